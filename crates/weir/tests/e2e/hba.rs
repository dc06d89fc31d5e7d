//! `pool_hba.conf`: users who may connect, from where, and by which proof.

use super::auth::guarded;
use crate::support::driver::{self, Login};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_demo::Server;

/// Rules that let the tests' own `postgres` in, then these.
fn rules(more: &str) -> String {
    format!("local all postgres trust\nhost all postgres 127.0.0.1/32 trust\n{more}\n")
}

fn guarded_proxy(server: &Server, more_rules: &str, passwords: &str, more: &str) -> Proxy {
    let files = [("pool_hba.conf", rules(more_rules)), ("pool_passwd", passwords.to_string())];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Proxy::with_files(&[server], &format!("enable_pool_hba = on\n{more}"), &files, &[])
}

fn log_in(proxy: &Proxy, user: &str, password: &str, database: &str) -> Result<String, String> {
    let login = Login { database: database.into(), ..Login::new(proxy.port(), user, password) };
    driver::value(&login, "select current_user::text")
}

/// The code of the first authentication request a user gets, or the error.
fn first_request(proxy: &Proxy, user: &str) -> Result<u32, String> {
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", user), ("database", "postgres")]));
    let message = client.read();
    match message.tag {
        b'R' => Ok(u32::from_be_bytes(*message.body.first_chunk().unwrap())),
        _ => Err(format!("{}: {}", message.failure().sqlstate, message.failure().message)),
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let cluster = guarded();
    let more = "host all old all reject\nhost other anna all trust\nhost postgres anna 10.0.0.0/8 trust\n\
                host postgres anna samenet scram-sha-256\nhost all guest samehost trust";
    let passwords = "anna:secret of anna\nold:secret of old\nünï:pässwörd 密\n";
    let proxy = guarded_proxy(cluster.primary(), more, passwords, "");
    assert_eq!(log_in(&proxy, "anna", "secret of anna", "postgres"), Ok("anna".into()));
    assert_eq!(
        log_in(&proxy, "anna", "wrong", "postgres"),
        Err("28P01: password authentication failed for user \"anna\"".into())
    );
    assert_eq!(log_in(&proxy, "guest", "", "postgres"), Ok("guest".into()));
    let text =
        "28000: pool_hba.conf rejects connection for host \"127.0.0.1\", user \"old\", database \"postgres\", no encryption";
    assert_eq!(log_in(&proxy, "old", "secret of old", "postgres"), Err(text.into()));
    let text = "28000: no pool_hba.conf entry for host \"127.0.0.1\", user \"ünï\", database \"postgres\", no encryption";
    assert_eq!(log_in(&proxy, "ünï", "pässwörd 密", "postgres"), Err(text.into()));
    let text = "28000: no pool_hba.conf entry for host \"127.0.0.1\", user \"anna\", database \"template1\", no encryption";
    assert_eq!(log_in(&proxy, "anna", "secret of anna", "template1"), Err(text.into()));
    let log = proxy.log();
    assert!(log.contains("user \"old\" from 127.0.0.1 is rejected by") && log.contains("pool_hba.conf:3"), "{log}");
}

#[test]
fn every_method_asks_in_its_way_and_an_unknown_user_is_asked_in_the_same() {
    let cluster = guarded();
    let md5 = cluster.primary().value("select 'md5' || md5('secret of old' || 'old')").unwrap();
    let verifier = cluster.primary().value("select rolpassword from pg_authid where rolname = 'anna'").unwrap();
    let passwords = format!("plain:secret\nold:{md5}\nanna:{verifier}\nspoiled:AESxyz==\n");
    let proxy = guarded_proxy(cluster.primary(), "host all all all trust", &passwords, "");
    // 3: clear text, 5: md5, 10: SASL.
    let cases = [
        ("password", [("plain", 3), ("old", 3), ("anna", 3), ("nobody", 3), ("spoiled", 3)]),
        ("md5", [("plain", 5), ("old", 5), ("anna", 10), ("nobody", 5), ("spoiled", 5)]),
        ("scram-sha-256", [("plain", 10), ("old", 10), ("anna", 10), ("nobody", 10), ("spoiled", 10)]),
    ];
    for (method, users) in cases {
        proxy.write_file("pool_hba.conf", &rules(&format!("host all all all {method}")));
        proxy.reload();
        for (user, code) in users {
            assert_eq!(first_request(&proxy, user), Ok(code), "{user} by {method}");
        }
        let right = [("old", "secret of old"), ("anna", "secret of anna")];
        for (user, password) in right {
            let expected = match (user, method) {
                // A server that asks for SCRAM keys gets nothing from an md5 hash, nor a verifier from an md5 proof.
                ("old", "scram-sha-256") => Err(format!("28P01: password authentication failed for user \"{user}\"")),
                _ => Ok(user.to_string()),
            };
            assert_eq!(log_in(&proxy, user, password, "postgres"), expected, "{user} by {method}");
        }
        for user in ["plain", "old", "anna", "nobody", "spoiled"] {
            let refused = format!("28P01: password authentication failed for user \"{user}\"");
            assert_eq!(log_in(&proxy, user, "wrong", "postgres"), Err(refused), "{user} by {method}");
        }
    }
}

#[test]
fn known_users_keeps_out_users_of_whom_nothing_is_known_though_the_server_trusts_them() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    let refused = |outcome: Result<String, String>, expected: &str| {
        assert!(outcome.clone().is_err_and(|error| error.starts_with(expected)), "{outcome:?}");
    };
    let proxy = |passwords: &str, method: &str, more: &str| {
        guarded_proxy(primary, &format!("host all all all {method} known_users=1"), passwords, more)
    };
    let trusting = proxy("anna:secret of anna\nguest:\n", "trust", "");
    assert_eq!(log_in(&trusting, "anna", "", "postgres"), Ok("anna".into()));
    assert_eq!(log_in(&trusting, "guest", "", "postgres"), Ok("guest".into()), "a line without a password is a line");
    let (trusting, asking) = (proxy("anna:x\n", "trust", ""), proxy("anna:x\n", "password", ""));
    refused(log_in(&trusting, "guest", "", "postgres"), "28000: no pool_hba.conf entry");
    refused(log_in(&asking, "guest", "any", "postgres"), "28P01: password authentication failed");
    let looking_up = proxy("asker:secret of asker\n", "trust", "auth_user = 'asker'\nauth_cache_time = 0\n");
    refused(log_in(&looking_up, "nobody", "", "postgres"), "28000: no pool_hba.conf entry");
    assert_eq!(
        log_in(&looking_up, "guest", "", "postgres"),
        Ok("guest".into()),
        "auth_query knows him, though he has no password"
    );
    primary.query("alter role guest nologin").unwrap();
    refused(log_in(&looking_up, "guest", "", "postgres"), "28000: no pool_hba.conf entry");
    primary.query("alter role guest login").unwrap();
    let asking = proxy("asker:secret of asker\n", "md5", "auth_user = 'asker'\nauth_cache_time = 0\n");
    refused(log_in(&asking, "guest", "any", "postgres"), "28P01: password authentication failed");
}

#[test]
fn groups_are_those_of_the_server_and_followed_when_they_change() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary.query("create role staff; create role inner_circle role staff; grant staff to anna").unwrap();
    primary.query("create database inner_circle").unwrap();
    let more = "host all +staff all scram-sha-256\nhost samerole all all scram-sha-256";
    let passwords = "anna:secret of anna\nünï:pässwörd 密\n";
    let proxy = guarded_proxy(primary, more, passwords, "auth_cache_time = 0\n");
    assert_eq!(log_in(&proxy, "anna", "secret of anna", "postgres"), Ok("anna".into()));
    let outside = log_in(&proxy, "ünï", "pässwörd 密", "inner_circle").unwrap_err();
    assert!(outside.starts_with("28000: no pool_hba.conf entry"), "{outside}");
    // A member of a member.
    primary.query("revoke staff from anna; grant inner_circle to \"ünï\"").unwrap();
    assert_eq!(log_in(&proxy, "ünï", "pässwörd 密", "inner_circle"), Ok("ünï".into()));
    let left = log_in(&proxy, "anna", "secret of anna", "postgres").unwrap_err();
    assert!(left.starts_with("28000: no pool_hba.conf entry"), "{left}");
}

#[test]
fn a_rule_that_hangs_on_groups_nobody_can_be_asked_for_lets_nobody_past() {
    let cluster = guarded();
    let more = "host all +staff all reject\nhost all all all trust";
    let proxy = guarded_proxy(cluster.primary(), more, "anna:secret of anna\n", "auth_user = anna\nauth_dbname = nothing\n");
    let refused = log_in(&proxy, "guest", "", "postgres").unwrap_err();
    assert_eq!(refused, "28000: the groups of the user cannot be looked up now");
    let log = proxy.log();
    assert!(log.contains("cannot ask for the groups of user \"guest\"") && log.contains("pool_hba.conf:3"), "{log}");
}

#[test]
fn clients_of_the_unix_socket_have_rules_of_their_own() {
    let cluster = guarded();
    let proxy = guarded_proxy(cluster.primary(), "local all guest trust\nhost all guest all reject", "", "");
    let client = Raw::unix(proxy.folder(), proxy.port()).log_in("guest", "postgres", &[]);
    assert_eq!(client.unwrap().value("select current_user"), "guest");
    let refused = Raw::unix(proxy.folder(), proxy.port()).log_in("anna", "postgres", &[]).unwrap_err();
    let text = "no pool_hba.conf entry for host \"[local]\", user \"anna\", database \"postgres\", no encryption";
    assert_eq!((refused.sqlstate.as_str(), refused.message.as_str()), ("28000", text));
    assert!(log_in(&proxy, "guest", "", "postgres").unwrap_err().starts_with("28000: pool_hba.conf rejects connection"));
}

#[test]
fn a_process_of_the_users_own_needs_no_password_on_the_unix_socket() {
    let cluster = guarded();
    let number = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(&number)).expect("this user has a name");
    let own = own.split(':').next().unwrap();
    let files = [
        ("pool_hba.conf", "host all postgres all trust\nlocal postgres all peer map=m\nlocal all all peer\n".to_string()),
        ("pool_ident.conf", format!("m \"{own}\" guest\n")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let proxy = Proxy::with_files(&[cluster.primary()], "enable_pool_hba = on", &files, &[]);
    let local = |user: &str, database: &str| Raw::unix(proxy.folder(), proxy.port()).log_in(user, database, &[]);
    assert_eq!(local("guest", "postgres").unwrap().value("select current_user"), "guest");
    for (user, database) in [("anna", "postgres"), ("guest", "template1"), (own, "postgres")] {
        let refused = local(user, database).unwrap_err();
        let text = format!("Peer authentication failed for user \"{user}\"");
        assert_eq!((refused.sqlstate.as_str(), refused.message), ("28000", text));
    }
}

#[test]
fn a_hosts_name_counts_if_its_own_address_proves_it() {
    let cluster = guarded();
    let proxy = guarded_proxy(cluster.primary(), "host all guest localhost trust\nhost all anna example.invalid trust", "", "");
    assert_eq!(log_in(&proxy, "guest", "", "postgres"), Ok("guest".into()));
    assert!(log_in(&proxy, "anna", "", "postgres").unwrap_err().starts_with("28000: no pool_hba.conf entry"));
}

#[test]
fn rules_with_errors_change_nothing_and_stop_a_start() {
    let cluster = guarded();
    let proxy = guarded_proxy(cluster.primary(), "host all guest all trust", "", "");
    proxy.write_file("pool_hba.conf", &rules("host all guest all radius\nhost all guest 1.2.3.4/99 trust"));
    proxy.add_conf("log_min_messages = debug5");
    proxy.signal(rustix::process::Signal::HUP);
    wait_until("the reload to be refused", || {
        proxy.log().contains("configuration not reloaded: a file of access cannot be used")
    });
    let log = proxy.log();
    for part in ["pool_hba.conf:3: authentication method \"radius\" is not supported", "pool_hba.conf:4: invalid CIDR mask"] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert_eq!(log_in(&proxy, "guest", "", "postgres"), Ok("guest".into()));
    let file = proxy.conf_path().display().to_string();
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "-f", &file]).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned() + &String::from_utf8_lossy(&check.stdout);
    assert!(!check.status.success() && said.contains("pool_hba.conf:4: error") && said.contains("2 errors"), "{said}");

    let files = [("pool_hba.conf", "host all all all magic")];
    let backends = [Backend::tcp(cluster.primary().port(), 1)];
    let mut other = Proxy::spawn_with_files(&backends, "enable_pool_hba = on", &files, &[]);
    assert!(!other.wait_end().success());
    assert!(other.log().contains("pool_hba.conf:1: error: invalid authentication method \"magic\""), "{}", other.log());
}

#[test]
fn the_command_line_names_another_file_and_rules_may_include_others() {
    let cluster = guarded();
    let files = [
        ("pool_hba.conf", "host all all all reject"),
        ("mine.conf", "include trusted\nhost all all all reject\n"),
        ("trusted", "host all postgres,@friends all trust\n"),
        ("friends", "guest # a comment\n"),
    ];
    let proxy = Proxy::with_files(&[cluster.primary()], "enable_pool_hba = on\n", &files, &["-a", "FOLDER/mine.conf"]);
    assert_eq!(log_in(&proxy, "guest", "", "postgres"), Ok("guest".into()));
    assert!(log_in(&proxy, "anna", "", "postgres").unwrap_err().starts_with("28000: pool_hba.conf rejects connection"));
    proxy.write_file("friends", "anna");
    proxy.reload();
    assert!(log_in(&proxy, "guest", "", "postgres").unwrap_err().starts_with("28000: pool_hba.conf rejects connection"));
}

#[test]
fn rules_for_tls_match_nobody_who_comes_without() {
    let cluster = guarded();
    let more = "hostssl all guest all trust\nhostnossl all anna all trust\nhostssl all ünï all cert";
    let proxy = guarded_proxy(cluster.primary(), more, "anna:secret of anna\n", "");
    assert!(log_in(&proxy, "guest", "", "postgres").unwrap_err().starts_with("28000: no pool_hba.conf entry"));
    assert!(log_in(&proxy, "ünï", "", "postgres").unwrap_err().starts_with("28000: no pool_hba.conf entry"));
    assert_eq!(log_in(&proxy, "anna", "", "postgres"), Ok("anna".into()));
}

#[test]
fn who_waits_for_an_answer_about_groups_holds_up_nobody_else() {
    let cluster = guarded();
    let primary = cluster.primary();
    let more = "host all guest all trust\nhost all +staff all trust";
    let proxy = guarded_proxy(primary, more, "", "auth_query_timeout = 2\nworker_threads = 1\n");
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    primary.freeze();
    let mut asking = Raw::tcp(proxy.port());
    asking.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
    let begun = Instant::now();
    assert!(!client.rows("SHOW pool_version").is_empty());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let refused = asking.read().failure();
    assert_eq!(
        (refused.sqlstate.as_str(), refused.message.as_str()),
        ("28000", "the groups of the user cannot be looked up now")
    );
    primary.thaw();
}
