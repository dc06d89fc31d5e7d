//! Salts tell nobody who exists: those of unknown users stay as long, and are as shared, as those of real ones.

use super::auth::guarded;
use crate::support::{Proxy, Raw, wait_until, wire};
use weir_demo::Server;

const HBA: &str = "host all postgres all trust\nhost all all all scram-sha-256\n";

/// Salt and iterations that a client of the user is told.
fn challenge(proxy: &Proxy, user: &str) -> String {
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", user), ("database", "postgres")]));
    assert_eq!(client.read().body[..4], [0, 0, 0, 10]);
    let first = b"n,,n=,r=abc";
    let chosen = [wire::texts(&["SCRAM-SHA-256"]).as_slice(), &(first.len() as u32).to_be_bytes(), first].concat();
    client.send(&wire::message(b'p', &chosen));
    let text = String::from_utf8_lossy(&client.read().body[4..]).into_owned();
    text.split_once(",s=").unwrap_or_else(|| panic!("no salt: {text}")).1.to_string()
}

/// The challenges of all users, each asked for as soon as the proxy accepts.
fn challenges(proxy: &Proxy) -> Vec<String> {
    ["nobody", "nobody else", "plain", "anna"].map(|user| challenge(proxy, user)).to_vec()
}

fn check_steady(server: &Server, more: &str, passwords: &str) -> Vec<String> {
    let files = [("pool_passwd", passwords), ("pool_hba.conf", HBA)];
    let start = || Proxy::with_files(&[server], &format!("enable_pool_hba = on\n{more}"), &files, &[]);
    let (mut one, other) = (start(), start());
    let known = challenges(&one);
    assert_eq!(challenges(&other), known, "another proxy before the same servers");
    one.reload();
    assert_eq!(challenges(&one), known, "after a reload");
    one.crash_and_start();
    wait_until("the proxy to accept", || Raw::try_tcp(one.port()).is_some());
    assert_eq!(challenges(&one), known, "after a restart, also of the first who ask");
    let mut different = known.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), known.len(), "each user has his own");
    known
}

#[test]
fn salts_of_unknown_users_are_those_of_all_proxies_before_the_servers_and_stay_over_restarts() {
    let cluster = guarded();
    let primary = cluster.primary();
    // Verifiers that take more work than others do.
    let verifier =
        primary.value("select replace(rolpassword, '$4096:', '$5000:') from pg_authid where rolname = 'anna'").unwrap();
    let by_file = check_steady(primary, "", &format!("plain:secret\nanna:{verifier}\n"));
    assert!(by_file.iter().all(|challenge| challenge.ends_with(",i=5000")), "{by_file:?}");

    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    let by_query = check_steady(primary, "auth_user = 'asker'\n", "asker:secret of asker\nplain:secret\n");
    assert!(by_query.iter().all(|challenge| challenge.ends_with(",i=4096")), "{by_query:?}");
    let salts =
        |all: &[String]| all[..3].iter().map(|challenge| challenge.split(',').next().unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(salts(&by_file), salts(&by_query), "whatever the proxies know of users");

    // Salts of other servers are others: nobody can know them beforehand.
    let elsewhere = guarded();
    let proxy = Proxy::with_files(&[elsewhere.primary()], "enable_pool_hba = on\n", &[("pool_hba.conf", HBA)], &[]);
    assert!(!salts(&by_file).contains(&challenge(&proxy, "nobody").split(',').next().unwrap().to_string()));
}

#[test]
fn unknown_users_are_asked_for_as_many_iterations_as_the_servers_use() {
    let cluster = guarded();
    let primary = cluster.primary();
    // PostgreSQL 16 and later.
    let has_setting = primary.value("select count(*) from pg_settings where name = 'scram_iterations'").unwrap() == "1";
    let expected = if has_setting { ",i=6000" } else { ",i=4096" };
    if has_setting {
        primary.query("alter system set scram_iterations = 6000").unwrap();
        primary.query("select pg_reload_conf()").unwrap();
        wait_until("the server to have the setting", || primary.value("show scram_iterations").unwrap() == "6000");
        primary.query("alter role anna password 'secret of anna'").unwrap();
    }
    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    let files = [("pool_passwd", "asker:secret of asker\nplain:secret\n"), ("pool_hba.conf", HBA)];
    let proxy = Proxy::with_files(&[primary], "enable_pool_hba = on\nauth_user = 'asker'\n", &files, &[]);
    for user in ["anna", "plain", "nobody"] {
        let challenge = challenge(&proxy, user);
        assert!(challenge.ends_with(expected), "{user}: {challenge}");
    }
}
