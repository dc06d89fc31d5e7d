//! Logins under attack: storms, malformed messages, servers that lie. And that no secret is ever shown.

use super::auth::guarded;
use crate::support::driver::{self, Login};
use crate::support::proxy::Backend;
use crate::support::{Failure, Ground, Proxy, Raw, wait_until, wire};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

fn current_user(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

/// CPU time the proxy has used.
fn cpu_ms(proxy: &Proxy) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", proxy.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time, in hundredths of a second.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

#[test]
fn a_storm_of_logins_derives_each_password_once() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "pool_size = 4\nworker_threads = 2\n", &passwords, &[]);
    let before = cpu_ms(&proxy);
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    let first = (cpu_ms(&proxy) - before).max(10);
    let before = cpu_ms(&proxy);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
                }
            });
        }
    });
    let storm = cpu_ms(&proxy) - before;
    // Forty derivations would be forty times the first login, which has two of them.
    assert!(storm < first * 8, "one login took {first} ms, forty more took {storm} ms");
}

#[test]
fn deriving_keys_holds_up_nobody() {
    let cluster = guarded();
    let primary = cluster.primary();
    // A verifier that takes a hundred times as long as usual. The password behind it does not matter.
    let verifier =
        primary.value("select replace(rolpassword, '$4096:', '$400000:') from pg_authid where rolname = 'anna'").unwrap();
    let files = [
        ("pool_passwd", format!("anna:{verifier}\n")),
        ("pool_hba.conf", "host all postgres all trust\nhost all all all password\n".to_string()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let proxy = Proxy::with_files(&[primary], "enable_pool_hba = on\nworker_threads = 1\n", &files, &[]);
    let mut other = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    let mut slow = Raw::tcp(proxy.port());
    slow.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
    assert_eq!(slow.read().body, [0, 0, 0, 3]);
    let begun = Instant::now();
    slow.send(&wire::message(b'p', b"some password\0"));
    let mut answers = 0;
    let mut longest = Duration::ZERO;
    // As long as the keys are being derived, statements go on as ever.
    while slow.is_silent_for(Duration::from_millis(1)) {
        let asked = Instant::now();
        assert_eq!(other.value("select 7"), "7");
        longest = longest.max(asked.elapsed());
        answers += 1;
    }
    let took = begun.elapsed();
    assert!(answers >= 3 && longest * 4 < took, "{answers} answers, the longest in {longest:?}, while keys took {took:?}");
}

#[test]
fn a_refused_login_is_logged_with_user_database_and_address() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "log_line_prefix = '%h '\n", &passwords, &[]);
    assert!(current_user(&proxy, "anna", "wrong").is_err());
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains("login refused")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.starts_with("127.0.0.1 LOG:  login refused: "), "{line}");
    assert!(line.ends_with("(user \"anna\", database \"postgres\", from 127.0.0.1)"), "{line}");
}

fn sasl_initial(mechanism: &str, first: &[u8]) -> Vec<u8> {
    [wire::texts(&[mechanism]).as_slice(), &(first.len() as u32).to_be_bytes(), first].concat()
}

#[test]
fn a_client_that_is_silent_is_sent_away_in_time() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "authentication_timeout = 15\n", &passwords, &[]);
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
    assert_eq!(client.read().body[..4], [0, 0, 0, 10]);
    let refused = client.read().failure();
    assert_eq!(refused.sqlstate, "57014");
    assert!(refused.message.starts_with("canceling authentication due to timeout"), "{refused:?}");
}

#[test]
fn an_unknown_user_cannot_be_told_from_a_known_one_by_the_challenge() {
    let cluster = guarded();
    let hba = ("pool_hba.conf", "host all postgres all trust\nhost all all all scram-sha-256\n");
    let files = [("pool_passwd", "anna:secret of anna\n"), hba];
    let proxy = Proxy::with_files(&[cluster.primary()], "enable_pool_hba = on\n", &files, &[]);
    let challenge = |user: &str| {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", user), ("database", "postgres")]));
        let mechanisms = client.read().body;
        client.send(&wire::message(b'p', &sasl_initial("SCRAM-SHA-256", b"n,,n=,r=abc")));
        let body = client.read().body;
        let text = String::from_utf8_lossy(&body[4..]).into_owned();
        let (_, salt) = text.split_once(",s=").unwrap();
        (mechanisms, salt.to_string())
    };
    let (known, unknown) = (challenge("anna"), challenge("nobody"));
    assert_eq!(known.0, unknown.0);
    assert_eq!(known.1.len(), unknown.1.len());
    assert!(known.1.ends_with(",i=4096") && unknown.1.ends_with(",i=4096"));
    // A salt that changed from time to time for one of them only would tell.
    assert_eq!(challenge("anna").1, known.1);
    assert_eq!(challenge("nobody").1, unknown.1);
    assert_ne!(known.1, unknown.1);
    // A wrong proof is refused with the same words, in the same time. The shortest of some times is the proxy's own.
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..REFUSALS {
        let [known, unknown] = ["anna", "nobody"].map(|user| refusal(&proxy, user));
        assert_eq!(known.0, unknown.0);
        shortest = [shortest[0].min(known.1), shortest[1].min(unknown.1)];
    }
    let [known, unknown] = shortest;
    assert!(known.abs_diff(unknown) < TELLS, "a known user is refused in {known:?}, an unknown one in {unknown:?}");
}

/// Refusals of each user whose times are compared.
const REFUSALS: usize = 10;
/// A difference that would tell. To derive a key, which one of two ways might do and the other not, takes ten times as long in this build.
const TELLS: Duration = Duration::from_millis(5);

/// The words in which a wrong proof is refused, without the user's name, and the time from the proof to them.
fn refusal(proxy: &Proxy, user: &str) -> (Failure, Duration) {
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", user), ("database", "postgres")]));
    assert_eq!(client.read().body[..4], [0, 0, 0, 10]);
    client.send(&wire::message(b'p', &sasl_initial("SCRAM-SHA-256", b"n,,n=,r=abc")));
    let challenge = client.read();
    let nonce = String::from_utf8_lossy(&challenge.body[4..]).split(',').next().unwrap().to_string();
    let begun = Instant::now();
    client.send(&wire::message(b'p', format!("c=biws,{nonce},p={}", "A".repeat(43) + "=").as_bytes()));
    let mut failure = client.read().failure();
    let took = begun.elapsed();
    assert_eq!(failure.message, format!("password authentication failed for user \"{user}\""));
    failure.message.clear();
    (failure, took)
}

/// PgBouncer's CVE-2026-6664 and -6665 and their like: lengths and numbers made to overflow.
#[test]
fn malformed_proofs_are_refused_with_an_error_and_harm_nobody() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let proxy = Proxy::with_files(&[cluster.primary()], "login_failure_limit = 0\n", &passwords, &[]);
    let long_nonce = [b"n,,n=,r=".as_slice(), &[b'x'; 15_000]].concat();
    let most_of_a_nonce = [b"n,,n=,r=".as_slice(), &[b'x'; 4000]].concat();
    let with_length = |length: u32| [wire::texts(&["SCRAM-SHA-256"]).as_slice(), &length.to_be_bytes(), b"n,,n=,r=abc"].concat();
    let bodies = [
        with_length(0xffff_ffff),
        with_length(0x7fff_ffff),
        with_length(0x8000_0000),
        with_length(0),
        with_length(12),
        sasl_initial("SCRAM-SHA-256", b""),
        sasl_initial("SCRAM-SHA-256", &long_nonce),
        sasl_initial("SCRAM-SHA-256", &most_of_a_nonce),
        sasl_initial("SCRAM-SHA-256", b"n,,n=,r="),
        sasl_initial("SCRAM-SHA-256", b"n,,n=,r=\0abc"),
        sasl_initial("SCRAM-SHA-256", b"p=tls-server-end-point,,n=,r=abc"),
        sasl_initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"),
        sasl_initial("SCRAM-SHA-256", b"n,a=postgres,n=,r=abc"),
        b"SCRAM-SHA-256".to_vec(),
        Vec::new(),
    ];
    for body in bodies {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
        assert_eq!(client.read().body[..4], [0, 0, 0, 10]);
        client.send(&wire::message(b'p', &body));
        assert_eq!(client.read().failure().sqlstate, "08P01", "{}", body[..body.len().min(60)].escape_ascii());
    }
    for (tag, length) in [(b'p', 0u32), (b'p', 3), (b'p', 0xffff_ffff), (b'p', 0x7fff_ffff), (b'Q', 8)] {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
        assert_eq!(client.read().body[..4], [0, 0, 0, 10]);
        client.send(&[[tag].as_slice(), &length.to_be_bytes(), b"abcd"].concat());
        assert_eq!(client.read().failure().sqlstate, "08P01", "{length}");
    }
    let finals = ["c=biws,r=other,p=AAAA", "p=", "c=biws", "c=biws,r=abc", "", "c=eSws,NONCE,p=AAAA", "c=biws,NONCE,p=AAAA,x=y"];
    for last in finals {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
        client.read();
        client.send(&wire::message(b'p', &sasl_initial("SCRAM-SHA-256", b"n,,n=,r=abc")));
        let nonce = String::from_utf8_lossy(&client.read().body[4..]).split(',').next().unwrap().to_string();
        client.send(&wire::message(b'p', last.replace("NONCE", &nonce).as_bytes()));
        assert_eq!(client.read().failure().sqlstate, "08P01", "{last}");
    }
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
}

/// A server that answers each connection by the same messages, to any bytes.
fn liar(answers: Vec<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answers = answers.clone();
            thread::spawn(move || lie(&mut stream, &answers));
        }
    });
    port
}

/// `NONCE` in an answer stands for the nonce of the client's first SCRAM message.
fn lie(stream: &mut TcpStream, answers: &[Vec<u8>]) {
    let mut nonce = String::new();
    for answer in answers {
        let mut heard = [0u8; 8192];
        let Ok(bytes @ 1..) = stream.read(&mut heard) else { return };
        let text = String::from_utf8_lossy(&heard[..bytes]).into_owned();
        if let Some((_, rest)) = text.split_once(",r=") {
            nonce = rest.split(',').next().unwrap_or_default().to_string();
        }
        let body = String::from_utf8_lossy(answer.get(5..).unwrap_or_default()).into_owned();
        let answer =
            if body.contains("NONCE") { wire::message(b'R', body.replace("NONCE", &nonce).as_bytes()) } else { answer.clone() };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
    // Stays until the other side has had enough.
    let _ = stream.read(&mut [0u8; 64]);
}

/// PgBouncer's CVE-2026-6664, -6665 and -6666, from the side of the servers: an error without an SQLSTATE, SCRAM messages made to overflow.
#[test]
fn a_server_that_lies_during_the_login_harms_nobody_and_is_named() {
    let sasl = wire::message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let challenge = |text: &str| vec![sasl.clone(), wire::message(b'R', format!("\0\0\0\x0b{text}").as_bytes())];
    let long = "x".repeat(100_000);
    let ok = wire::message(b'R', &[0, 0, 0, 0]);
    let last = wire::message(b'R', format!("\0\0\0\x0cv={}=", "A".repeat(43)).as_bytes());
    let normal = "r=NONCEabc,s=QUJDREVGR0hJSktMTU5PUA==,i=4096";
    let cases = [
        (vec![wire::message(b'E', b"SFATAL\0Mno code\0\0")], "no code"),
        (vec![wire::message(b'E', b"\0")], "08006"),
        (vec![wire::message(b'E', b"")], "08006"),
        (vec![wire::message(b'E', b"C1\0Mshort code\0\0")], "short code"),
        (challenge(&format!("r=NONCE{long},s=QUJD,i=4096")), "says too much"),
        (challenge(&format!("r=NONCEabc,s={long},i=4096")), "says too much"),
        (challenge("r=NONCEabc,s=QUJD,i=4294967297"), "iteration count"),
        (challenge("r=NONCEabc,s=QUJD,i=99999999999999999999"), "iteration count"),
        (challenge("r=NONCEabc,s=QUJD,i=-1"), "iteration count"),
        (challenge("r=NONCEabc,s=QUJD,i=0"), "iteration count"),
        (challenge("r=NONCE,s=QUJD,i=4096"), "nonce"),
        (challenge("r=other,s=QUJD,i=4096"), "nonce"),
        ([challenge(normal), vec![last.clone()]].concat(), "signature of the server does not match"),
        ([challenge(normal), vec![ok.clone()]].concat(), "SCRAM ended before its end"),
        (vec![sasl.clone(), ok], "SCRAM ended before its end"),
        (vec![last], "SASL out of order"),
        (vec![wire::message(b'R', b"\0\0")], "malformed authentication request"),
        (vec![wire::message(b'R', b"\0\0\0\x05\x01")], "malformed authentication request"),
        (vec![wire::message(b'R', b"\0\0\0\x0aOTHER\0\0")], "no SASL mechanism"),
    ];
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    for (answers, said) in cases {
        let backends = [Backend::tcp(liar(answers), 1)];
        let more = "log_min_messages = debug5\nsr_check_password = 'x'\n";
        let proxy = Proxy::spawn_with_files(&backends, more, &passwords, &[]);
        wait_until("the proxy to accept", || Raw::try_tcp(proxy.port()).is_some());
        let refused = current_user(&proxy, "anna", "secret of anna").unwrap_err();
        let (sqlstate, _) = refused.split_once(": ").unwrap_or_else(|| panic!("{said}: no SQLSTATE in {refused}"));
        // A server that floods counts as one that is not there.
        assert!(matches!(sqlstate, "08006" | "08P01" | "28000" | "57P03"), "{said}: {refused}");
        assert!(refused.contains(said) || proxy.log().contains(said), "{said}: {refused}\n{}", proxy.log());
    }
}

#[test]
fn no_secret_is_logged_or_shown() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary
        .query("create role asker login superuser password 'secret of asker'; create role aes login password 'secret word'")
        .unwrap();
    let verifier = primary.value("select rolpassword from pg_authid where rolname = 'anna'").unwrap();
    let other = primary.value("select rolpassword from pg_authid where rolname = 'ünï'").unwrap();
    let md5 = primary.value("select 'md5' || md5('secret of old' || 'old')").unwrap();
    let passwords = format!(
        "asker:secret of asker\nanna:{verifier}\nold:{md5}\naes:AESlk1/GsZX1rit4U3t5At8EQ==\nspoiled:AESspoiledspoiled\nbroken hunter2\n"
    );
    let hba = "host all postgres all trust\nhost all ünï all md5\nhost all old all md5\nhost all aes all password\nhost all all all scram-sha-256\n";
    let files = [("pool_passwd", passwords.as_str()), ("pool_hba.conf", hba), ("key", "mykey\n")];
    let more = "enable_pool_hba = on\nauth_user = 'asker'\nsr_check_user = 'check'\nsr_check_password = 'secret of check'\n\
                wd_authkey = 'secret of watchdog'\nlog_min_messages = debug5\nlog_connections = on\nlog_statement = on\n";
    let proxy = Proxy::with_files(&[primary], more, &files, &["-k", "FOLDER/key"]);
    let users = [
        ("anna", "secret of anna"),
        ("old", "secret of old"),
        ("aes", "secret word"),
        ("ünï", "pässwörd 密"),
        ("nobody", "hunter3"),
    ];
    for (user, password) in users {
        assert_eq!(current_user(&proxy, user, password).is_ok(), user != "nobody", "{user}");
        assert!(current_user(&proxy, user, "hunter4").is_err());
    }
    proxy.reload();
    let mut shown = proxy.log();
    let mut console = proxy.console();
    for view in ["pool_status", "pool_pools", "pool_processes", "pool_metrics", "pool_nodes"] {
        shown += &format!("{:?}", console.rows(&format!("SHOW {view}")));
    }
    shown += &format!("{:?}", console.rows("PGPOOL SHOW ALL"));
    for command in ["show-config", "check"] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args([command, "-f"]).arg(proxy.conf_path()).output().unwrap();
        shown += &String::from_utf8_lossy(&output.stdout);
        shown += &String::from_utf8_lossy(&output.stderr);
    }
    assert!(shown.contains("sr_check_password") && shown.contains("auth_user") && shown.contains("login refused"), "{shown}");
    let keys = |verifier: &str| verifier.split(['$', ':']).skip(2).map(str::to_string).collect::<Vec<_>>();
    let mut secrets = vec![verifier.clone(), other.clone(), md5[3..].to_string()];
    secrets.extend(keys(&verifier));
    secrets.extend(keys(&other));
    let words = ["secret of", "secret word", "hunter", "pässwörd", "mykey", "lk1/GsZX1rit4U3t5At8EQ", "spoiledspoiled"];
    secrets.extend(words.map(str::to_string));
    for secret in secrets {
        assert!(!shown.contains(&secret), "{secret} is shown");
    }
}

/// Output of psql, or its error.
fn psql(proxy: &Proxy, user: &str, password: Option<&str>) -> Result<String, String> {
    let mut command = Command::new("psql");
    let port = proxy.port().to_string();
    command.args([
        "-X",
        "-w",
        "-A",
        "-t",
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-U",
        user,
        "-d",
        "postgres",
        "-c",
        "select current_user",
    ]);
    command.env_remove("PGPASSWORD").env("PGPASSFILE", "/nonexistent").env("PGCONNECT_TIMEOUT", "30");
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    let output = command.output().expect("psql is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn libpq_logs_in_by_every_method() {
    let cluster = guarded();
    let primary = cluster.primary();
    let verifier = primary.value("select rolpassword from pg_authid where rolname = 'anna'").unwrap();
    let passwords = format!("anna:{verifier}\nold:secret of old\nünï:pässwörd 密\n");
    let rules = |method: &str| format!("host all postgres all trust\nhost all all all {method}\n");
    let files = [("pool_passwd", passwords.as_str()), ("pool_hba.conf", &rules("trust"))];
    let proxy = Proxy::with_files(&[primary], "enable_pool_hba = on\n", &files, &[]);
    for method in ["scram-sha-256", "md5", "password"] {
        proxy.write_file("pool_hba.conf", &rules(method));
        proxy.reload();
        for (user, password) in [("anna", "secret of anna"), ("old", "secret of old"), ("ünï", "pässwörd 密")] {
            assert_eq!(psql(&proxy, user, Some(password)), Ok(user.to_string()), "{user} by {method}");
            let refused = psql(&proxy, user, Some("wrong")).unwrap_err();
            let expected = format!("FATAL:  password authentication failed for user \"{user}\"");
            assert!(refused.contains(&expected), "{user} by {method}: {refused}");
        }
        let silent = psql(&proxy, "anna", None).unwrap_err();
        assert!(silent.contains("no password supplied"), "{method}: {silent}");
    }
    proxy.write_file("pool_hba.conf", &rules("reject"));
    proxy.reload();
    let refused = psql(&proxy, "anna", Some("secret of anna")).unwrap_err();
    assert!(refused.contains("FATAL:  pool_hba.conf rejects connection for host \"127.0.0.1\", user \"anna\""), "{refused}");
}

/// The console's answer to a user who looks and changes something.
fn administer(proxy: &Proxy, user: &str, password: &str) -> Result<(), String> {
    let login = Login { database: "pgbouncer".into(), ..Login::new(proxy.port(), user, password) };
    driver::block_on(async {
        let (console, _mover) = driver::connect(&login).await.map_err(|error| driver::describe(&error))?;
        for command in ["SHOW VERSION", "RELOAD"] {
            console.simple_query(command).await.map_err(|error| driver::describe(&error))?;
        }
        Ok(())
    })
}

/// PgBouncer's CVE-2026-6667 and its like: a user without the right or without a proof administers nothing.
#[test]
fn nobody_administers_without_a_proof() {
    let cluster = guarded();
    let primary = cluster.primary();
    let verifier = primary.value("select rolpassword from pg_authid where rolname = 'anna'").unwrap();
    let passwords = format!("anna:{verifier}\nold:secret of old\n");
    let files = [("pool_passwd", passwords.as_str()), ("pool_hba.conf", HBA)];
    let more = "admin_users = 'anna, guest, postgres'\n";
    let by_rule = Proxy::with_files(&[primary], &format!("enable_pool_hba = on\n{more}"), &files, &[]);
    let by_entry = Proxy::with_files(&[primary], more, &files, &[]);
    // This server believes `guest` without a password.
    let by_consent = Proxy::with_files(&[primary], more, &[files[0], ("x", "")], &[]);
    by_consent.add_conf("allow_clear_text_frontend_auth = on");
    by_consent.reload();
    for proxy in [&by_rule, &by_entry, &by_consent] {
        wait_until("the console to answer", || administer(proxy, "anna", "secret of anna").is_ok());
        let cases = [
            ("anna", "wrong", "28P01"),
            ("old", "secret of old", "28000"), // is no administrator
            ("guest", "x", "28P01"),           // is one without a password
        ];
        for (user, password, expected) in cases {
            let refused = administer(proxy, user, password).unwrap_err();
            assert!(refused.starts_with(expected), "{user}: {refused}");
        }
    }
}

const HBA: &str = "host all postgres all trust\nhost all all all scram-sha-256\n";

#[test]
fn a_login_that_does_not_end_does_not_delay_the_end_of_the_proxy() {
    let cluster = guarded();
    let passwords = [("pool_passwd", "anna:secret of anna\n")];
    let mut proxy = Proxy::with_files(&[cluster.primary()], "authentication_timeout = 3600\n", &passwords, &[]);
    let silent = Raw::tcp(proxy.port());
    let mut halfway = Raw::tcp(proxy.port());
    halfway.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
    assert_eq!(halfway.read().body[..4], [0, 0, 0, 10]);
    proxy.signal(rustix::process::Signal::INT);
    assert_eq!(halfway.read().failure().sqlstate, "57P01");
    assert!(proxy.wait_end().success());
    drop(silent);
}

/// A login with startup parameters that nobody sent before is greeted by a server, and waits for no connection that clients have.
#[test]
fn a_login_waits_for_no_connection_that_clients_keep() {
    for limits in ["pool_size = 2", "max_server_connections_per_node = 2", "max_db_connections = 2", "max_user_connections = 2"] {
        let ground = Ground::new();
        let proxy = ground.primary_proxy(&format!("{limits}\npool_wait_timeout = 5"));
        let mut keepers: Vec<Raw> = (0..2).map(|_| ground.client(&proxy)).collect();
        keepers.iter_mut().for_each(|client| client.run("create temporary table kept (a int)"));
        let mut german = ground.client_with(&proxy, &[("DateStyle", "German")]);
        assert_eq!(german.parameter("DateStyle"), Some("German, DMY"), "{limits}");
        let others: Vec<_> = thread::scope(|scope| {
            let login = |at: usize| ground.client_with(&proxy, &[("options", &format!("-c work_mem={}kB", 1000 + at))]);
            let logins: Vec<_> = (0..4).map(|at| scope.spawn(move || login(at))).collect();
            logins.into_iter().map(|login| login.join().unwrap()).collect()
        });
        wait_until("the connections beside the pool to be closed", || ground.server_connections().len() == 2);
        assert_eq!(german.error("select 1").sqlstate, "53300", "{limits}: a statement waits for its turn");
        keepers[0].run("discard all");
        assert_eq!(german.value("select '2026-01-02'::date"), "02.01.2026");
        drop(others);
    }
}
