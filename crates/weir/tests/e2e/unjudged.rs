//! Passwords that nobody has judged let nobody in: a server that trusts Weir's machine asks for none.

use super::auth::{guarded, guarded_with};
use crate::support::driver::{self, Login};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::fs;
use weir_demo::{Mode, Server};

/// The tests' own user is let in to look, everybody else is to show a password.
const RULES: &str = "host postgres postgres all trust\nlocal all all password\nhost all all all password\n";

/// Words of the log on a password that no server asked for.
const SAID: &str = "lets this machine in without asking for a password, so that nobody has judged the client's";

fn log_in(proxy: &Proxy, user: &str, database: &str, password: &str) -> Result<String, String> {
    let login = Login { database: database.into(), ..Login::new(proxy.port(), user, password) };
    driver::value(&login, "select current_user::text")
}

fn refused(user: &str) -> Result<String, String> {
    Err(format!("28P01: password authentication failed for user \"{user}\""))
}

/// Number of a user's connections to a server, the asking one not counted.
fn connections(server: &Server, user: &str) -> String {
    server.value(&format!("select count(*) from pg_stat_activity where usename = '{user}' and datname = 'template1'")).unwrap()
}

/// `guest`, and the superuser, whom the server trusts.
fn check_unjudged(proxy: &Proxy, server: &Server) {
    for password in ["x", "another"] {
        for user in ["guest", "postgres"] {
            assert_eq!(log_in(proxy, user, "template1", password), refused(user), "{password}");
        }
    }
    assert_eq!(log_in(proxy, "nobody", "template1", "x"), refused("nobody"));
    for user in ["guest", "postgres"] {
        assert_eq!(connections(server, user), "0", "{user} has left server connections");
    }
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains(SAID)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("WARNING") && line.contains("user \"guest\" from 127.0.0.1 is refused: node 0"), "{line}");
    assert!(line.contains("pg_hba.conf") && line.contains("pool_passwd") && line.contains("auth_user"), "{line}");
}

#[test]
fn a_password_that_no_server_asks_for_lets_nobody_in() {
    let cluster = guarded();
    let primary = cluster.primary();
    let by_rule = Proxy::with_files(&[primary], "enable_pool_hba = on\n", &[("pool_hba.conf", RULES)], &[]);
    check_unjudged(&by_rule, primary);
    assert_eq!(log_in(&by_rule, "anna", "postgres", "secret of anna"), Ok("anna".into()), "her the server asks");
    let mut local = Raw::unix(by_rule.folder(), by_rule.port());
    local.send(&wire::startup(wire::V3_0, &[("user", "guest"), ("database", "postgres")]));
    assert_eq!(local.read().body, [0, 0, 0, 3]);
    local.send(&wire::message(b'p', b"x\0"));
    assert_eq!(local.read().failure().sqlstate, "28P01");

    let by_consent = Proxy::spawn(&[Backend::tcp(primary.port(), 1)], "allow_clear_text_frontend_auth = on\n");
    wait_until("a server to judge", || log_in(&by_consent, "anna", "postgres", "secret of anna").is_ok());
    check_unjudged(&by_consent, primary);
}

#[test]
fn a_standby_that_trusts_judges_nothing_while_the_primary_is_away() {
    let cluster = guarded_with(1);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    let rules = standby.data_dir().join("pg_hba.conf");
    fs::write(&rules, format!("host all anna samehost trust\n{}", fs::read_to_string(&rules).unwrap())).unwrap();
    standby.reload().unwrap();
    let more = "enable_pool_hba = on\nauth_cache_time = 0\n";
    let proxy = Proxy::with_files(&[primary, standby], more, &[("pool_hba.conf", RULES)], &[]);
    assert_eq!(log_in(&proxy, "anna", "postgres", "x"), refused("anna"), "the primary has judged it");
    assert!(!proxy.log().contains(SAID), "{}", proxy.log());
    primary.stop(Mode::Fast).unwrap();
    wait_until("the password to come before the standby", || {
        let outcome = log_in(&proxy, "anna", "postgres", "x");
        assert!(outcome.is_err(), "she is let in by any password");
        outcome == refused("anna") && proxy.log().contains(SAID)
    });
    assert!(proxy.log().contains("is refused: node 1"), "{}", proxy.log());
}
