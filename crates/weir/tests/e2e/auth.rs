//! Logins of clients and of Weir, with each kind of proof.

use crate::support::driver::{self, Login};
use crate::support::ground::{Owned, cluster_with};
use crate::support::proxy::Folder;
use crate::support::{Proxy, wait_until};
use std::fs;
use weir_demo::{Auth, HbaMethod, Options, User};

/// One server: scram for all, but md5 for `old`, and trust for `guest` and for the tests' own `postgres`.
pub fn guarded() -> Owned {
    guarded_with(0)
}

/// The guarded cluster with standbys.
pub fn guarded_with(standbys: usize) -> Owned {
    let user = |name: &str, password: &str| User { name: name.into(), password: password.into() };
    let users = vec![
        user("anna", "secret of anna"),
        user("old", "secret of old"),
        user("check", "secret of check"),
        user("ünï", "pässwörd 密"),
    ];
    let hba_lines = vec![
        "host all old samehost md5".into(),
        "host all guest samehost trust".into(),
        "host all postgres samehost trust".into(),
    ];
    let auth = Auth { method: HbaMethod::Scram, users, hba_lines };
    let cluster = cluster_with(Options { standbys, auth, ..Options::default() });
    cluster
        .primary()
        .query("set password_encryption = 'md5'; alter role old password 'secret of old'; create role guest login")
        .unwrap();
    cluster
}

/// Lines of the configuration that name a file with these users.
fn passwords(folder: &Folder, text: &str) -> String {
    let file = folder.0.join("pool_passwd");
    fs::write(&file, text).unwrap();
    format!("pool_passwd = '{}'\n", file.display())
}

#[test]
fn each_user_proves_who_he_is_and_the_servers_are_shown_the_same_proof() {
    let cluster = guarded();
    let folder = Folder::new();
    // md5 of password and name, as pg_md5 writes it.
    let md5 = cluster.primary().value("select 'md5' || md5('secret of old' || 'old')").unwrap();
    let verifier = cluster.primary().value("select rolpassword from pg_authid where rolname = 'anna'").unwrap();
    cluster.primary().query("create role by_verifier login").unwrap();
    let text = format!("# users\nanna:TEXTsecret of anna\nold:{md5}\nünï:TEXTpässwörd 密\nby_verifier:{verifier}\n");
    let proxy = Proxy::before(&[cluster.primary()], &passwords(&folder, &text));
    let port = proxy.port();
    let ok = [("anna", "secret of anna"), ("old", "secret of old"), ("ünï", "pässwörd 密")];
    for (user, password) in ok {
        assert_eq!(driver::value(&Login::new(port, user, password), "select current_user::text"), Ok(user.into()));
    }
    assert_eq!(
        driver::value(&Login::new(port, "guest", ""), "select current_user::text"),
        Ok("guest".into()),
        "trusted by the server"
    );
    for (user, password) in [("anna", "wrong"), ("old", "wrong"), ("ünï", "x"), ("by_verifier", "wrong")] {
        let refused = driver::value(&Login::new(port, user, password), "select 1::text").unwrap_err();
        assert_eq!(refused, format!("28P01: password authentication failed for user \"{user}\""));
    }
}

/// Runs psql without a password: the answer, or the complaint.
fn without_password(port: u16, connection: &str) -> Result<String, String> {
    let connection = format!("host=127.0.0.1 port={port} dbname=postgres {connection}");
    let mut command = std::process::Command::new("psql");
    let output = command.args(["-X", "-A", "-t", "-w", "-c", "SHOW server_version_num", &connection]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn a_user_of_pool_passwd_is_asked_as_servers_ask_only_if_the_operator_says_so() {
    let cluster = guarded_with(1);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    primary.query("alter role guest replication").unwrap();
    cluster.wait_caught_up().unwrap();
    let folder = Folder::new();
    let lines = passwords(&folder, "guest:TEXTsecret of guest\nanna:TEXTsecret of anna\n");
    let proxy = Proxy::before(&[primary, standby], &format!("{lines}auth_cache_time = 0\n"));
    let port = proxy.port();
    let asks = |outcome: Result<String, String>| outcome.is_err_and(|said| said.contains("no password supplied"));
    assert!(asks(without_password(port, "user=guest")), "always, by default");
    proxy.add_conf("pool_passwd_proof = as_servers");
    proxy.reload();
    assert!(without_password(port, "user=guest").is_ok(), "{}", proxy.log());
    assert!(asks(without_password(port, "user=anna")), "the servers ask anna");
    assert_eq!(driver::value(&Login::new(port, "anna", "secret of anna"), "select 1::text"), Ok("1".into()));
    let refused = driver::value(&Login::new(port, "anna", "wrong"), "select 1::text").unwrap_err();
    assert!(refused.starts_with("28P01"), "{refused}");
    // The servers' rule of trust is one for logical replication, and not for physical, to which the line's password would be given.
    assert!(without_password(port, "user=guest replication=database").is_ok(), "{}", proxy.log());
    assert!(asks(without_password(port, "user=guest replication=true")));
    // One of them asks: Weir would give it the line's password for whoever comes.
    let rules = standby.data_dir().join("pg_hba.conf");
    let before = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("host all guest samehost scram-sha-256\n{before}")).unwrap();
    standby.reload().unwrap();
    wait_until("the standby to ask", || asks(without_password(port, "user=guest")));
}

#[test]
fn a_user_without_an_entry_whom_the_servers_ask_for_a_password_is_refused() {
    let cluster = guarded();
    let proxy = Proxy::before(&[cluster.primary()], "");
    for user in ["anna", "old"] {
        let refused = driver::value(&Login::new(proxy.port(), user, "secret of anna"), "select 1::text").unwrap_err();
        assert!(refused.starts_with("28P01: password authentication failed"), "{refused}");
    }
    wait_until("the log to say what is missing", || proxy.log().contains("pool_passwd"));
    assert_eq!(driver::value(&Login::new(proxy.port(), "guest", ""), "select 1::text"), Ok("1".into()));
}

#[test]
fn an_entry_the_server_does_not_take_is_refused_and_the_log_says_why() {
    let cluster = guarded();
    let folder = Folder::new();
    let md5 = cluster.primary().value("select 'md5' || md5('secret of anna' || 'anna')").unwrap();
    let proxy = Proxy::before(&[cluster.primary()], &passwords(&folder, &format!("anna:{md5}\nold:TEXTnot his secret\n")));
    // The server wants scram, for which an md5 hash is not enough.
    assert!(driver::value(&Login::new(proxy.port(), "anna", "secret of anna"), "select 1::text").is_err());
    let refused = driver::value(&Login::new(proxy.port(), "old", "not his secret"), "select 1::text").unwrap_err();
    assert!(refused.starts_with("28P01"), "{refused}");
    let log = proxy.log();
    assert!(log.contains("anna") && log.contains("old"), "{log}");
}

#[test]
fn an_unknown_user_learns_no_more_than_one_with_a_wrong_password() {
    let cluster = guarded();
    let folder = Folder::new();
    let proxy = Proxy::before(&[cluster.primary()], &passwords(&folder, "anna:TEXTsecret of anna\nghost:TEXTboo\n"));
    let refused = driver::value(&Login::new(proxy.port(), "ghost", "boo"), "select 1::text").unwrap_err();
    assert!(refused.starts_with("28P01: password authentication failed for user \"ghost\""), "{refused}");
    let refused = driver::value(&Login::new(proxy.port(), "nobody", "x"), "select 1::text").unwrap_err();
    assert!(refused.starts_with("28P01: password authentication failed for user \"nobody\""), "{refused}");
}

#[test]
fn roles_are_asked_for_with_the_check_users_own_password() {
    let cluster = guarded();
    cluster.primary().query("grant pg_monitor to \"check\"").unwrap();
    let proxy = Proxy::before(&[cluster.primary()], "sr_check_user = 'check'\nsr_check_password = 'secret of check'\n");
    assert_eq!(proxy.nodes("status"), ["up"]);
    let text = "select count(*) > 0 from pg_stat_activity where usename = 'check'";
    wait_until("the check user to be connected", || cluster.primary().value(text).unwrap() == "t");
}

#[test]
fn a_changed_password_file_counts_after_a_reload() {
    let cluster = guarded();
    let folder = Folder::new();
    let proxy = Proxy::before(&[cluster.primary()], &passwords(&folder, "anna:TEXTnot yet\n"));
    let login = Login::new(proxy.port(), "anna", "secret of anna");
    assert!(driver::value(&login, "select 1::text").is_err());
    passwords(&folder, "anna:TEXTsecret of anna\n");
    proxy.reload();
    assert_eq!(driver::value(&login, "select 1::text"), Ok("1".into()));
}
