//! Wrong passwords are counted, however many come at once and wherever they come from; right ones are not held up.

use super::auth::guarded;
use crate::support::driver::{self, Login};
use crate::support::{Failure, Proxy, Raw, wire};
use std::thread;
use std::time::Instant;

fn current_user(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

/// How a client shows a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    ClearText,
    Md5,
    Scram,
}

/// A client that has been asked for its proof, and has only that left to send.
fn asked(mut client: Raw, user: &str, shown: Shown) -> (Raw, Vec<u8>) {
    client.send(&wire::startup(wire::V3_0, &[("user", user), ("database", "postgres")]));
    let request = client.read().body;
    let proof = match shown {
        Shown::ClearText => {
            assert_eq!(request, [0, 0, 0, 3]);
            b"wrong\0".to_vec()
        }
        Shown::Md5 => {
            assert_eq!(request[..4], [0, 0, 0, 5]);
            format!("md5{}\0", "0".repeat(32)).into_bytes()
        }
        Shown::Scram => {
            assert_eq!(request[..4], [0, 0, 0, 10]);
            let first = b"n,,n=,r=abc";
            let chosen = [wire::texts(&["SCRAM-SHA-256"]).as_slice(), &(first.len() as u32).to_be_bytes(), first].concat();
            client.send(&wire::message(b'p', &chosen));
            let challenge = client.read();
            let nonce = String::from_utf8_lossy(&challenge.body[4..]).split(',').next().unwrap().to_string();
            format!("c=biws,{nonce},p={}=", "A".repeat(43)).into_bytes()
        }
    };
    (client, proof)
}

/// Sends so many wrong proofs at once, over connections that were asked for them before. The clients, which have no answer yet.
fn send_at_once(proxy: &Proxy, user: &str, shown: Shown, count: usize) -> Vec<Raw> {
    let clients: Vec<(Raw, Vec<u8>)> = (0..count).map(|_| asked(Raw::tcp(proxy.port()), user, shown)).collect();
    let sent = clients.into_iter().map(|(mut client, proof)| {
        client.send(&wire::message(b'p', &proof));
        client
    });
    sent.collect()
}

fn failures(clients: Vec<Raw>) -> Vec<Failure> {
    clients.into_iter().map(|mut client| client.read().failure()).collect()
}

/// Rules by which each user shows his password in another way.
const HBA: &str = "host all postgres all trust
host all anna all scram-sha-256
host all old all md5
host all ünï,guest,check all password
";

/// Words that have told a guesser something, of so many that were sent at once. Words to guessers that were sent away tell nothing.
const JUDGED: &str = "28P01";
const SENT_AWAY: &str = "53300";

#[test]
fn proofs_that_come_at_once_are_judged_no_faster_than_one_after_the_other() {
    const COUNT: usize = 90;
    let cluster = guarded();
    let passwords = "anna:secret of anna\nold:secret of old\nünï:pässwörd 密\n";
    let files = [("pool_passwd", passwords), ("pool_hba.conf", HBA)];
    let more = "enable_pool_hba = on\nlogin_failure_limit = 3\n";
    // `check` is judged by the server.
    let ways = [("anna", Shown::Scram), ("old", Shown::Md5), ("ünï", Shown::ClearText), ("check", Shown::ClearText)];
    for way in ways.chunks(2) {
        // All users of an address together have ten times as many.
        let proxy = Proxy::with_files(&[cluster.primary()], more, &files, &[]);
        thread::scope(|scope| {
            for (user, shown) in way {
                let proxy = &proxy;
                scope.spawn(move || {
                    let begun = Instant::now();
                    let failures = failures(send_at_once(proxy, user, *shown, COUNT));
                    let count = |sqlstate: &str| failures.iter().filter(|failure| failure.sqlstate == sqlstate).count();
                    let (judged, sent_away) = (count(JUDGED), count(SENT_AWAY));
                    assert_eq!(judged + sent_away, COUNT, "{user}: {failures:?}");
                    let most = 3 + 60 + 1 + begun.elapsed().as_secs() as usize;
                    assert!((3..=most).contains(&judged), "{user}: {judged} wrong proofs were judged, at most {most} may be");
                });
            }
        });
    }
}

#[test]
fn right_passwords_that_come_at_once_are_not_held_up() {
    const COUNT: usize = 12;
    let cluster = guarded();
    let files = [("pool_passwd", "anna:secret of anna\nünï:pässwörd 密\n"), ("pool_hba.conf", HBA)];
    // A server judges `check` each time, several at once.
    let more = "enable_pool_hba = on\nlogin_failure_limit = 2\nauth_cache_time = 0\n";
    let proxy = Proxy::with_files(&[cluster.primary()], more, &files, &[]);
    thread::scope(|scope| {
        for (user, password) in [("anna", "secret of anna"), ("ünï", "pässwörd 密"), ("check", "secret of check")] {
            for _ in 0..COUNT {
                let proxy = &proxy;
                scope.spawn(move || assert_eq!(current_user(proxy, user, password), Ok(user.into())));
            }
        }
    });
    assert_eq!(proxy.metric("logins_slowed_total"), 0);
}

#[test]
fn who_is_wrong_too_often_waits_and_others_do_not() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\nünï:pässwörd 密\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "login_failure_limit = 3\n", &passwords, &[]);
    let all = failures(send_at_once(&proxy, "anna", Shown::Scram, 3));
    assert!(all.iter().all(|failure| failure.sqlstate == JUDGED), "{all:?}");
    assert_eq!(proxy.metric("logins_slowed_total"), 0);
    // The right password waits as a wrong one does, or the wait would tell them apart.
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(proxy.metric("logins_slowed_total"), 1);
    assert_eq!(current_user(&proxy, "ünï", "pässwörd 密"), Ok("ünï".into()));
    assert_eq!(proxy.metric("logins_slowed_total"), 1);
}

#[test]
fn the_right_password_gets_in_behind_twenty_wrong_ones_of_the_same_user_and_host() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "login_failure_limit = 1\n", &passwords, &[]);
    let _under_way = send_at_once(&proxy, "anna", Shown::Scram, 20);
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
}

#[test]
fn when_more_than_a_minute_of_wrong_ones_has_piled_up_proofs_are_sent_away() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\nünï:pässwörd 密\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "login_failure_limit = 1\n", &passwords, &[]);
    let _under_way = send_at_once(&proxy, "anna", Shown::Scram, 130);
    let refused = current_user(&proxy, "anna", "secret of anna").unwrap_err();
    assert!(refused.starts_with("53300: too many failed logins from this address, try again in "), "{refused}");
    assert_eq!(current_user(&proxy, "ünï", "pässwörd 密"), Ok("ünï".into()), "others of the host are let in");
    // A client from elsewhere is another visitor.
    let (_client, proof) = asked(Raw::unix(proxy.folder(), proxy.port()), "anna", Shown::Scram);
    assert!(!proof.is_empty());
}

#[test]
fn guesses_over_the_unix_socket_are_counted_by_the_system_user() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "login_failure_limit = 3\n", &passwords, &[]);
    let guess = || {
        let (mut client, proof) = asked(Raw::unix(proxy.folder(), proxy.port()), "anna", Shown::Scram);
        client.send(&wire::message(b'p', &proof));
        assert_eq!(client.read().failure().sqlstate, JUDGED);
    };
    (0..3).for_each(|_| guess());
    assert_eq!(proxy.metric("logins_slowed_total"), 0);
    guess();
    assert_eq!(proxy.metric("logins_slowed_total"), 1);
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(proxy.metric("logins_slowed_total"), 1, "the network's are others");
}
