//! First packets, versions, and clients that do not speak the protocol.

use crate::support::proxy::Backend;
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// A login packet of some version, with these parameters beside user and database.
fn startup(ground: &Ground, version: u32, more: &[(&str, &str)]) -> Vec<u8> {
    wire::startup(version, &[&[("user", "postgres"), ("database", &ground.database)], more].concat())
}

#[test]
fn protocol_3_0_gets_a_short_key_and_3_2_a_long_one() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for (version, key_bytes) in [(wire::V3_0, 4..=4), (wire::V3_2, 5..=256)] {
        let mut client = Raw::tcp(proxy.port());
        client.send(&startup(&ground, version, &[]));
        client.finish_login().unwrap();
        assert!(key_bytes.contains(&client.key.len()), "{} bytes", client.key.len());
        assert_eq!(client.value("select 1"), "1");
    }
}

#[test]
fn newer_versions_and_unknown_options_are_negotiated_down() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let cases = [
        (wire::V3_0, vec![("_pq_.something", "1"), ("_pq_.other", "2")], wire::V3_0),
        (3 << 16 | 9, vec![], wire::V3_2),
        (3 << 16 | 9999, vec![("_pq_.something", "1")], wire::V3_2),
    ];
    for (version, options, expected) in cases {
        let mut client = Raw::tcp(proxy.port());
        client.send(&startup(&ground, version, &options));
        let message = client.read();
        assert_eq!(message.tag, b'v', "{message:?}");
        assert_eq!(message.body[..4], expected.to_be_bytes(), "the newest version we speak");
        assert_eq!(message.body[4..8], (options.len() as u32).to_be_bytes());
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        assert_eq!(message.body[8..], wire::texts(&names), "the options we do not know");
        client.finish_login().unwrap();
        assert_eq!(client.value("select 1"), "1");
    }
}

#[test]
fn protocol_2_is_refused_with_a_text_it_can_show() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for version in [2 << 16, 1 << 16] {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::packet(version, &[0; 288]));
        let bytes = client.bytes_to_end();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with('E') && text.ends_with('\0'), "{text:?}: protocol 2 has no lengths in errors");
        assert!(text.contains("unsupported frontend protocol"), "{text:?}");
    }
    let mut client = Raw::tcp(proxy.port());
    client.send(&startup(&ground, 4 << 16, &[]));
    assert!(client.read().failure().message.contains("unsupported frontend protocol 4.0"));
}

#[test]
fn encryption_is_declined_and_the_login_goes_on() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for requests in [vec![wire::ssl_request()], vec![wire::gss_request()], vec![wire::gss_request(), wire::ssl_request()]] {
        let mut client = Raw::tcp(proxy.port());
        for request in requests {
            client.send(&request);
            assert_eq!(client.read_bytes(1), b"N");
        }
        client.send(&startup(&ground, wire::V3_0, &[]));
        client.finish_login().unwrap();
        assert_eq!(client.value("select 1"), "1");
    }
    // Bytes that were slipped in behind the request, before encryption could begin, are not taken.
    let mut client = Raw::tcp(proxy.port());
    client.send(&[wire::ssl_request(), startup(&ground, wire::V3_0, &[])].concat());
    let bytes = client.bytes_to_end();
    assert!(!bytes.windows(4).any(|four| four == b"R\0\0\0"), "no login: {}", bytes.escape_ascii());
}

#[test]
fn a_client_without_a_user_is_refused_and_a_database_defaults_to_the_user() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("database", "postgres")]));
    let failure = client.read().failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "28000"));
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", "postgres")]));
    client.finish_login().unwrap();
    assert_eq!(client.value("select current_database()"), "postgres");
}

/// An application says its name in any encoding. Up to version 15 a server puts a `?` for bytes that do not print.
#[test]
fn an_application_may_say_its_name_in_any_bytes() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let asked = "select current_setting('application_name')";
    for (name, encoding) in [(&b"caf\xe9"[..], "UTF8"), (b"caf\xe9", "LATIN1"), (b"\xff\xfe 'x' \\", "UTF8"), (b"plain", "UTF8")]
    {
        let database = ground.database.as_bytes();
        let parameters = [
            ("user", &b"postgres"[..]),
            ("database", database),
            ("application_name", name),
            ("client_encoding", encoding.as_bytes()),
        ];
        let packet = wire::startup_of_bytes(wire::V3_0, &parameters);
        let [direct, through] = [ground.primary_port().parse().unwrap(), proxy.port()].map(|port| {
            let mut client = Raw::tcp(port);
            client.send(&packet);
            client.finish_login().unwrap();
            let reported = client.parameter("application_name").unwrap().to_string();
            assert_eq!(client.value(asked), reported);
            client.run("begin; rollback");
            assert_eq!(client.value(asked), reported, "and stays");
            reported
        });
        let is_new = ground.direct().value("show server_version_num").parse::<u32>().unwrap() >= 160_000;
        let shown = if is_new { through } else { through.replace(r"\xe9", "?").replace(r"\xff", "?").replace(r"\xfe", "?") };
        assert_eq!(shown, direct);
    }
    // Parameters of which an open connection cannot be told.
    for parameter in ["user", "database", "search_path"] {
        let mut client = Raw::tcp(proxy.port());
        let parameters = [("user", &b"postgres"[..]), ("database", b"postgres"), (parameter, b"\xe9")];
        client.send(&wire::startup_of_bytes(wire::V3_0, &parameters));
        let failure = client.finish_login().unwrap_err();
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "08P01"), "{parameter}");
    }
}

#[test]
fn an_unknown_database_or_user_gives_the_servers_own_error() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for (user, database) in [("postgres", "no_such_database"), ("no_such_user", ground.database.as_str())] {
        let through = Raw::tcp(proxy.port()).log_in(user, database, &[]).unwrap_err();
        let direct = Raw::tcp(ground.cluster.primary().port()).log_in(user, database, &[]).unwrap_err();
        assert_eq!((through.severity, through.sqlstate, through.message), (direct.severity, direct.sqlstate, direct.message));
    }
}

#[test]
fn garbage_on_the_port_harms_nobody() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut witness = ground.client(&proxy);
    let garbage: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        vec![0; 1000],
        vec![0xff; 1000],
        vec![0, 0, 0, 8, 0, 3, 0, 0],
        wire::packet(wire::V3_0, b"user\0postgres\0"),
        wire::packet(wire::V3_0, b"user\0\xff\xfe\0\0"),
        wire::packet(wire::V3_0, &[b'x'; 9000]),
        wire::packet(80_877_102, b""),
        wire::packet(80_877_102, &[7; 400]),
        [&20_000u32.to_be_bytes()[..], &wire::V3_0.to_be_bytes()].concat(),
        b"".to_vec(),
        b"\0".to_vec(),
    ];
    for bytes in &garbage {
        let mut client = Raw::tcp(proxy.port());
        // It may close on us before we are through.
        let _ = client.try_send(bytes);
        client.half_close_if_open();
        let answer = client.bytes_to_end();
        assert!(answer.is_empty() || answer[0] == b'E', "{}: {}", bytes.escape_ascii(), answer.escape_ascii());
        assert_eq!(witness.value("select 1"), "1");
    }
}

#[test]
fn garbage_after_the_login_is_an_error_of_that_session_alone() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut witness = ground.client(&proxy);
    let garbage: Vec<Vec<u8>> = vec![
        wire::message(b'?', b""),
        vec![b'Q', 0, 0, 0, 3],
        vec![b'Q', 0xff, 0xff, 0xff, 0xff],
        vec![0; 100],
        wire::message(b'Q', b"select 1"),
        wire::message(b'P', b"no end"),
        wire::message(b'B', b""),
        wire::message(b'D', b"X\0"),
        wire::message(b'C', b""),
        wire::message(b'E', b"x"),
        wire::message(b'p', b"password\0"),
        wire::message(b'F', b"\0"),
        [wire::parse("", "select 1"), wire::message(b'B', b"\0\0\0")].concat(),
    ];
    for bytes in &garbage {
        let mut client = ground.client(&proxy);
        // It may close on us before we are through.
        let _ = client.try_send(&[bytes.clone(), wire::sync()].concat());
        let mut message = client.read();
        while message.tag != b'E' {
            assert!(matches!(message.tag, b'1' | b'2'), "{}: {message:?}", bytes.escape_ascii());
            message = client.read();
        }
        assert_eq!(message.failure().sqlstate, "08P01", "{}: {message:?}", bytes.escape_ascii());
        assert_eq!(witness.value("select 1"), "1");
    }
    wait_until("the connections to be few", || ground.server_connections().len() <= 2);
}

#[test]
fn a_login_that_comes_byte_by_byte_is_taken() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = Raw::tcp(proxy.port());
    for byte in wire::ssl_request() {
        client.send(&[byte]);
    }
    assert_eq!(client.read_bytes(1), b"N");
    for byte in startup(&ground, wire::V3_0, &[("application_name", "slow")]) {
        client.send(&[byte]);
    }
    client.finish_login().unwrap();
    assert_eq!(client.value("show application_name"), "slow");
}

#[test]
fn what_a_client_calls_itself_is_told_as_the_server_takes_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let names = ["plain", "", &"x".repeat(63), &"y".repeat(64), &"z".repeat(500), "n\u{e4}me", "tab\there"];
    for name in names {
        let seen = [ground.cluster.primary().port(), proxy.port()].map(|port| {
            let mut client = Raw::tcp(port);
            client.send(&startup(&ground, wire::V3_0, &[("application_name", name)]));
            client.finish_login().unwrap();
            (client.parameter("application_name").map(str::to_owned), client.value("show application_name"))
        });
        assert_eq!(seen[0], seen[1], "{name}");
    }
}

#[test]
fn a_startup_packet_may_be_as_long_as_a_server_takes_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let bare = startup(&ground, wire::V3_0, &[("application_name", "")]).len();
    for (bytes, is_taken) in [(10_003, true), (10_004, true), (10_005, false)] {
        for port in [ground.cluster.primary().port(), proxy.port()] {
            let mut client = Raw::tcp(port);
            client.send(&startup(&ground, wire::V3_0, &[("application_name", &"x".repeat(bytes - bare))]));
            // A server closes without a word.
            let is_in = client.try_read().is_ok_and(|message| message.is_some_and(|message| message.tag == b'R'));
            assert_eq!(is_in, is_taken, "{bytes} bytes");
        }
    }
}

#[test]
fn a_query_may_come_with_the_login() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = Raw::tcp(proxy.port());
    client.send(&[startup(&ground, wire::V3_0, &[]), wire::query("select 5")].concat());
    client.finish_login().unwrap();
    assert_eq!(client.tags(), "TDCZ");
}

#[test]
fn a_client_that_never_logs_in_is_dismissed() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("authentication_timeout = 1");
    let mut client = Raw::tcp(proxy.port());
    client.send(b"\0\0");
    client.bytes_to_end();
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn a_client_that_ends_its_sending_still_gets_its_answer() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("select 5"));
    client.half_close_if_open();
    // PostgreSQL answers the messages before the end.
    let tags = crate::support::raw::tags(&client.until_end());
    assert_eq!(tags, "TDCZ");
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn a_client_that_ends_its_sending_while_it_waits_still_gets_its_answer() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut holder = ground.client(&proxy);
    let waits = |count: usize| {
        wait_until("them to wait", || {
            let doing = crate::support::proxy::show(&mut proxy.console(), "pool_processes", "status");
            doing.iter().filter(|status| *status == "Wait for connection").count() == count
        });
    };
    let mut client = ground.client(&proxy);
    let lost = ground.client(&proxy);
    holder.run("begin; select 1");
    client.send(&wire::query("insert into t values (1) returning 5"));
    waits(1);
    client.half_close_if_open();
    let mut lost = lost;
    lost.send(&wire::query("insert into t values (2)"));
    waits(2);
    // A connection that was reset can hear nothing: its waiting statements are not carried out.
    let stream = lost.tcp_stream();
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop((stream, lost));
    waits(1);
    holder.run("commit");
    assert_eq!(crate::support::raw::tags(&client.until_end()), "TDCZ");
    assert_eq!(holder.rows("select a from t"), [["1"]]);
}

#[test]
fn a_client_that_is_gone_does_not_hold_a_connection_until_its_statement_is_over() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 14");
    // A client that was reset is known to be gone; others get ten seconds.
    for (how, seconds) in [("reset", 8), ("closed", 15)] {
        let mut client = ground.client(&proxy);
        client.run(&format!("set application_name = '{how}'"));
        // The server takes longer than anybody waits here, and is not cancelled.
        client.send(&wire::query(&format!("insert into t select 1 from pg_sleep({seconds})")));
        let count = format!("select count(*) from pg_stat_activity where application_name = '{how}' and wait_event = 'PgSleep'");
        wait_until("it to run", || ground.direct().value(&count) == "1");
        if how == "reset" {
            let stream = client.tcp_stream();
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        drop(client);
        let mut next = ground.client(&proxy);
        assert_eq!(next.value("select 1"), "1", "{how}");
        assert_eq!(ground.direct().value(&count), "1", "{how}: the server goes on");
    }
    wait_until("what was sent to be done", || ground.direct().value("select count(*) from t") == "2");
}

#[test]
fn a_client_that_ends_its_sending_gets_an_answer_that_takes_its_time() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    // More than ten seconds in all, but never ten without a word.
    let texts = ["select 5 from pg_sleep(6)", "select 6 from pg_sleep(6)"];
    client.send(&texts.map(wire::query).concat());
    client.half_close_if_open();
    assert_eq!(crate::support::raw::tags(&client.until_end()), "TDCZTDCZ");
}

#[test]
fn servers_and_clients_are_reached_over_unix_sockets() {
    let ground = Ground::new();
    let backends: Vec<Backend> =
        ground.cluster.servers().iter().enumerate().map(|(at, server)| Backend::unix(server, u32::from(at > 0))).collect();
    let proxy = Proxy::spawn(&backends, "");
    proxy.wait_for_nodes(3);
    let mut client = Raw::unix(proxy.folder(), proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
    for _ in 0..5 {
        assert_eq!(client.value("select inet_server_port() is null"), "t", "no TCP between Weir and the server");
    }
    client.run("create table t (a int)");
    client.run("insert into t values (1)");
    assert_eq!(client.extended("select $1::int", &["7"]).unwrap(), "7");
}

/// Replies to a client before it has logged in: bytes, and of errors severity, SQLSTATE and text; the versions a server speaks
/// differ.
fn heard_by_garbage(port: u16, bytes: &[u8]) -> Vec<String> {
    let mut client = Raw::tcp(port);
    let _ = client.try_send(bytes);
    client.half_close_if_open();
    let mut answer = client.bytes_to_end();
    let mut heard = Vec::new();
    while answer.first() == Some(&b'N') {
        answer.remove(0);
        heard.push("N".to_string());
    }
    while let Some(length) = answer.get(1..5).map(|word| u32::from_be_bytes(word.try_into().unwrap()) as usize) {
        let Some(body) = answer.get(5..=length).map(<[u8]>::to_vec) else { break };
        let failure = Message { tag: answer[0], body }.failure();
        let text = failure.message.split(": server supports").next().unwrap_or_default().to_string();
        heard.push(format!("{} {} {} {text}", answer[0] as char, failure.severity, failure.sqlstate));
        answer.drain(..=length);
    }
    let rest = String::from_utf8_lossy(&answer).into_owned();
    heard.extend(rest.split(": server supports").next().filter(|rest| !rest.is_empty()).map(str::to_string));
    heard
}

#[test]
fn what_is_no_login_is_answered_as_the_server_answers_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut witness = ground.client(&proxy);
    let length = |length: u32| [&length.to_be_bytes()[..], &wire::V3_0.to_be_bytes(), &[0; 20]].concat();
    let garbage: Vec<Vec<u8>> = vec![
        wire::terminate(),
        b"".to_vec(),
        b"\0".to_vec(),
        b"\0\0\0".to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        wire::query("select 1"),
        vec![0; 1000],
        vec![0xff; 1000],
        length(0),
        length(4),
        length(7),
        length(10_005),
        length(1 << 30),
        length(u32::MAX),
        [&20_u32.to_be_bytes()[..], &wire::V3_0.to_be_bytes(), b"user"].concat(),
        wire::packet(wire::V3_0, b""),
        wire::packet(wire::V3_0, b"user\0postgres\0"),
        wire::packet(wire::V3_0, b"user\0postgres\0\0x"),
        wire::packet(wire::V3_0, b"\0"),
        wire::packet(4 << 16, b"user\0postgres\0\0"),
        wire::packet(80_877_102, b""),
        wire::packet(80_877_102, b"\0\0\0\x01\0\0\0\x02"),
        wire::packet(80_877_105, b""),
        [wire::ssl_request(), wire::terminate()].concat(),
        [wire::ssl_request(), startup(&ground, wire::V3_0, &[])].concat(),
    ];
    for bytes in &garbage {
        let (direct, through) = (heard_by_garbage(ground.cluster.primary().port(), bytes), heard_by_garbage(proxy.port(), bytes));
        assert_eq!(through, direct, "{}", bytes.escape_ascii());
    }
    for bytes in [wire::ssl_request(), wire::terminate(), vec![0; 8]] {
        let answers = [ground.cluster.primary().port(), proxy.port()].map(|port| {
            let mut client = Raw::tcp(port);
            client.send(&wire::ssl_request());
            assert_eq!(client.read_bytes(1), b"N");
            client.send(&bytes);
            let failure = client.until_end().first().map(Message::failure).unwrap_or_default();
            (failure.sqlstate, failure.message.split(": server supports").next().unwrap_or_default().to_string())
        });
        assert_eq!(answers[1], answers[0], "{}", bytes.escape_ascii());
    }
    assert_eq!(witness.value("select 1"), "1");
    assert!(proxy.log().contains("invalid length of startup packet"), "the log says why");
}

/// Replies to a client up to its first ReadyForQuery: kinds in order, and the text of notices.
fn greeting(port: u16, parameters: &[(&str, &str)]) -> Vec<String> {
    let mut client = Raw::tcp(port);
    client.send(&wire::startup(wire::V3_0, parameters));
    let mut heard: Vec<String> = Vec::new();
    for message in client.until_ready() {
        let failure = || message.failure();
        match message.tag {
            b'N' => heard.push(format!("N {} {} {}", failure().severity, failure().sqlstate, failure().message)),
            // How many there are does not matter here.
            b'S' if heard.last().is_some_and(|last| last == "S") => {}
            tag => heard.push((tag as char).to_string()),
        }
    }
    heard
}

#[test]
fn notices_of_the_login_are_told_to_each_client() {
    let ground = Ground::new();
    let mut direct = ground.direct();
    let version: u32 = direct.value("select current_setting('server_version_num')").parse().unwrap();
    if version >= 150_000 {
        direct.run("update pg_database set datcollversion = 'of old' where datname = current_database()");
    }
    if version >= 170_000 {
        direct.run(
            "create function greets() returns event_trigger language plpgsql as $$ begin raise notice 'welcome'; end $$;
             create event trigger greets on login execute function greets()",
        );
    }
    let proxy = ground.primary_proxy("");
    let who = [("user", "postgres"), ("database", ground.database.as_str())];
    let long = "a".repeat(100);
    for more in
        [&[][..], &[("application_name", &*long)], &[("client_min_messages", "error")], &[("client_min_messages", "warning")]]
    {
        let parameters = [&who[..], more].concat();
        let expected = greeting(ground.cluster.primary().port(), &parameters);
        // The server says it to every client.
        assert_eq!(
            expected.iter().any(|heard| heard.starts_with('N')),
            version >= 150_000 || more.len() == 1 && more[0].0 == "application_name"
        );
        for turn in 0..4 {
            assert_eq!(greeting(proxy.port(), &parameters), expected, "{more:?}, client {turn}");
        }
    }
    if version >= 170_000 {
        direct.run("drop event trigger greets; drop function greets()");
    }
    if version >= 150_000 {
        direct.run("update pg_database set datcollversion = null where datname = current_database()");
    }
}

#[test]
fn startup_parameters_that_are_to_be_ignored_reach_no_server() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("ignore_startup_parameters = 'Extra_Float_Digits, not.known here'");
    let enter = |more: &[(&str, &str)]| Raw::tcp(proxy.port()).log_in("postgres", &ground.database, more);
    let more =
        [("extra_float_digits", "nonsense"), ("not.known here", "x"), ("options", "-c extra_float_digits=x -c work_mem=2MB")];
    let mut client = enter(&more).unwrap();
    assert_eq!(client.value("show extra_float_digits"), "1");
    assert_eq!(client.value("show work_mem"), "2MB");
    let refused = enter(&[("geqo", "nonsense")]).map(|_| ()).unwrap_err();
    assert_eq!(refused.sqlstate, "22023", "others are passed on");
    proxy.add_conf("ignore_startup_parameters = 'geqo'");
    proxy.reload();
    assert_eq!(enter(&[("geqo", "nonsense")]).unwrap().value("show geqo"), "on");
}
