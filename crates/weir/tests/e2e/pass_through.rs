//! Weir logs in to servers with the proof of the client: no password is stored.

use super::auth::guarded;
use crate::support::driver::{self, Login};
use crate::support::proxy::Backend;
use crate::support::{Proxy, wait_until};
use std::thread;
use weir_demo::Server;

fn verifier(server: &Server, user: &str) -> String {
    server.value(&format!("select rolpassword from pg_authid where rolname = '{user}'")).unwrap()
}

fn current_user(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

#[test]
fn a_verifier_is_enough_for_clients_and_servers() {
    let cluster = guarded();
    let primary = cluster.primary();
    let text = format!("anna:{}\nünï:{}\n", verifier(primary, "anna"), verifier(primary, "ünï"));
    let proxy = Proxy::with_files(&[primary], "pool_size = 2\n", &[("pool_passwd", &text)], &[]);
    for _ in 0..3 {
        assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
        assert_eq!(current_user(&proxy, "ünï", "pässwörd 密"), Ok("ünï".into()));
    }
    let refused = "28P01: password authentication failed for user \"anna\"";
    assert_eq!(current_user(&proxy, "anna", "secret of ünï"), Err(refused.into()));
    // The server connection is gone: the next is opened with the keys of a client that left long ago, for one that proves itself now.
    primary.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'anna'").unwrap();
    wait_until("the server process to end", || {
        primary.value("select count(*) from pg_stat_activity where usename = 'anna'").unwrap() == "0"
    });
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
}

#[test]
fn sessions_outlive_a_reload_and_a_new_verifier_ends_what_the_old_one_could() {
    let cluster = guarded();
    let primary = cluster.primary();
    let old = verifier(primary, "anna");
    let proxy = Proxy::with_files(&[primary], "pool_size = 2\n", &[("pool_passwd", &format!("anna:{old}\n"))], &[]);
    driver::block_on(async {
        let (client, _mover) = driver::connect(&Login::new(proxy.port(), "anna", "secret of anna")).await.unwrap();
        proxy.reload();
        // Older server connections are closed by the reload; a new one is opened with this very client's proof.
        assert!(client.simple_query("select 1").await.is_ok());
        primary.query("alter role anna password 'another'").unwrap();
        proxy.write_file("pool_passwd", &format!("anna:{}\n", verifier(primary, "anna")));
        proxy.reload();
        let error = client.simple_query("select 1").await.unwrap_err();
        assert!(driver::describe(&error).contains("no client has proved yet"), "{}", driver::describe(&error));
    });
    let refused = "28P01: password authentication failed for user \"anna\"";
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err(refused.into()));
    assert_eq!(current_user(&proxy, "anna", "another"), Ok("anna".into()));
}

#[test]
fn a_verifier_that_is_not_the_servers_own_is_named_in_the_log() {
    let cluster = guarded();
    let primary = cluster.primary();
    let old = verifier(primary, "anna");
    // The old password with another salt.
    primary.query("alter role anna password 'secret of anna'").unwrap();
    let proxy = Proxy::with_files(&[primary], "", &[("pool_passwd", &format!("anna:{old}\n"))], &[]);
    assert!(current_user(&proxy, "anna", "secret of anna").is_err());
    let text = "the server has another scram verifier for user \"anna\" than the one the client proved itself by";
    wait_until("the log to name it", || proxy.log().contains(text));
}

#[test]
fn passwords_encrypted_by_pg_enc_are_used_with_their_key() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary.query("create role aes login password 'secret word'").unwrap();
    // pg_enc -K mykey "secret word"
    let files = [("pool_passwd", "aes:AESlk1/GsZX1rit4U3t5At8EQ==\n"), ("key", "mykey\n")];
    let proxy = Proxy::with_files(&[primary], "", &files, &["-k", "FOLDER/key"]);
    assert_eq!(current_user(&proxy, "aes", "secret word"), Ok("aes".into()));
    assert!(current_user(&proxy, "aes", "secret").unwrap_err().starts_with("28P01"));
    proxy.write_file("key", "another");
    proxy.reload();
    assert!(current_user(&proxy, "aes", "secret word").unwrap_err().starts_with("28P01"));
    let log = proxy.log();
    assert!(log.contains("pool_passwd:1: encrypted password (AES) does not fit the key in the key file"), "{log}");

    let proxy = Proxy::with_files(&[primary], "", &files, &["-k", "FOLDER/nothing"]);
    assert!(current_user(&proxy, "aes", "secret word").unwrap_err().starts_with("28P01"));
    let log = proxy.log();
    assert!(log.contains("nothing: key file cannot be read"), "{log}");
    assert!(log.contains("pool_passwd:1: password is encrypted by pg_enc (AES) and there is no key file"), "{log}");
}

#[test]
fn a_file_of_passwords_or_a_key_that_is_gone_at_a_reload_changes_nothing() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary.query("create role aes login password 'secret word'").unwrap();
    let files = [("pool_passwd", "aes:AESlk1/GsZX1rit4U3t5At8EQ==\n"), ("key", "mykey\n")];
    let proxy = Proxy::with_files(&[primary], "", &files, &["-k", "FOLDER/key"]);
    for name in ["pool_passwd", "key"] {
        let (path, away) = (proxy.folder().join(name), proxy.folder().join("away"));
        std::fs::rename(&path, &away).unwrap();
        let refusals = || proxy.log().matches("configuration not reloaded: a file of access cannot be used").count();
        // Missing, and there without being readable.
        for is_folder in [false, true] {
            if is_folder {
                std::fs::create_dir(&path).unwrap();
            }
            let before = refusals();
            proxy.signal(rustix::process::Signal::HUP);
            wait_until("the reload to be refused", || refusals() > before);
            assert_eq!(current_user(&proxy, "aes", "secret word"), Ok("aes".into()), "{name}");
        }
        assert!(proxy.log().contains(&format!("/{name}")), "{}", proxy.log());
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        proxy.reload();
        assert_eq!(current_user(&proxy, "aes", "secret word"), Ok("aes".into()));
    }
}

#[test]
fn a_key_file_that_others_may_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = guarded();
    let files = [("pool_passwd", "aes:AESlk1/GsZX1rit4U3t5At8EQ==\n"), ("key", "mykey\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "", &files, &["-k", "FOLDER/key"]);
    assert!(!proxy.log().contains("warning"), "{}", proxy.log());
    std::fs::set_permissions(proxy.folder().join("key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    proxy.reload();
    assert!(proxy.log().contains("key file has group or world access and is not used"), "{}", proxy.log());
}

#[test]
fn a_password_in_clear_text_is_judged_by_the_servers_where_that_is_allowed() {
    let cluster = guarded();
    let primary = cluster.primary();
    let more = "allow_clear_text_frontend_auth = on
auth_cache_time = 0
";
    let by_consent = Proxy::spawn(&[Backend::tcp(primary.port(), 1)], more);
    wait_until("a server to judge", || current_user(&by_consent, "anna", "secret of anna").is_ok());
    check_judged(&by_consent, primary);
    let hba = ("pool_hba.conf", "host all postgres all trust\nhost all all all password\n");
    let by_rule = Proxy::with_files(&[primary], "enable_pool_hba = on\nauth_cache_time = 0\n", &[hba], &[]);
    check_judged(&by_rule, primary);
}

fn check_judged(proxy: &Proxy, primary: &Server) {
    primary.query("alter role anna password 'secret of anna'").unwrap();
    let refused = "28P01: password authentication failed for user";
    assert_eq!(current_user(proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(current_user(proxy, "anna", "wrong"), Err(format!("{refused} \"anna\"")));
    assert_eq!(current_user(proxy, "nobody", "wrong"), Err(format!("{refused} \"nobody\"")));
    // The server connection of the right password is there; a changed password counts all the same.
    primary.query("alter role anna password 'another'").unwrap();
    assert_eq!(current_user(proxy, "anna", "secret of anna"), Err(format!("{refused} \"anna\"")));
    assert_eq!(current_user(proxy, "anna", "another"), Ok("anna".into()));
}

/// A reload that asks for less must not open connections to all that another client's proof opened.
#[test]
fn what_one_client_proved_lets_nobody_in_who_proved_nothing() {
    let cluster = guarded();
    let primary = cluster.primary();
    let hba = ("pool_hba.conf", "host all postgres all trust\nhost all all all password\n");
    let proxy = Proxy::with_files(&[primary], "enable_pool_hba = on\npool_size = 2\n", &[hba], &[]);
    driver::block_on(async {
        let (client, _mover) = driver::connect(&Login::new(proxy.port(), "anna", "secret of anna")).await.unwrap();
        assert!(client.simple_query("select 1").await.is_ok());
        proxy.add_conf("enable_pool_hba = off");
        proxy.reload();
        // The session stays, but its password opens no more connections that strangers could be given.
        let stranger = || current_user(&proxy, "anna", "x").unwrap_err();
        let refused = thread::scope(|scope| scope.spawn(stranger).join().unwrap());
        assert!(refused.starts_with("28P01"), "{refused}");
        assert!(client.simple_query("select 1").await.is_err());
    });
    let refused = "28P01: password authentication failed for user \"anna\"";
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err(refused.into()));
    assert_eq!(current_user(&proxy, "guest", ""), Ok("guest".into()));
}
