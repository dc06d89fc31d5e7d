//! LISTEN and NOTIFY of sessions that share server connections.

use crate::support::ground::cluster;
use crate::support::proxy::show;
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::time::Duration;

/// Channel and payload of a notification.
fn news(message: &Message) -> (String, String) {
    assert_eq!(message.tag, b'A', "{message:?}");
    let texts: Vec<String> =
        message.body[4..].split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    (texts[0].clone(), texts[1].clone())
}

fn sender(message: &Message) -> u32 {
    u32::from_be_bytes(*message.body.first_chunk().unwrap())
}

/// The payloads of this many notifications, which come by themselves.
fn payloads(client: &mut Raw, count: usize) -> Vec<String> {
    (0..count).map(|_| news(&client.read()).1).collect()
}

/// Server connections that a session keeps.
fn kept(proxy: &Proxy) -> usize {
    show(&mut proxy.console(), "pool_pools", "status").iter().filter(|status| status.contains("(kept: listen)")).count()
}

fn wait_until_moved(proxy: &Proxy) {
    wait_until("sessions that listen to keep no connection", || kept(proxy) == 0);
}

#[test]
fn sessions_that_listen_share_one_connection_with_all_others() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut listeners: Vec<Raw> = (0..20).map(|_| ground.client(&proxy)).collect();
    for (at, listener) in listeners.iter_mut().enumerate() {
        listener.run(&format!("listen all_of_us; listen \"Only {at}\""));
    }
    let mut other = ground.client(&proxy);
    for round in 0..5 {
        other.run(&format!("notify all_of_us, '{round}'"));
        for (at, listener) in listeners.iter_mut().enumerate() {
            assert_eq!(news(&listener.read()), ("all_of_us".into(), round.to_string()), "listener {at}");
        }
    }
    for at in 0..20 {
        other.run(&format!("notify \"Only {at}\", 'you'"));
    }
    for (at, listener) in listeners.iter_mut().enumerate() {
        assert_eq!(news(&listener.read()), (format!("Only {at}"), "you".into()));
        assert_eq!(listener.value("select 1"), "1", "a listener may do other things");
    }
    wait_until_moved(&proxy);
    let statuses = show(&mut proxy.console(), "pool_pools", "status");
    let hubs = statuses.iter().filter(|status| status.contains("listens for clients")).count();
    assert!((1..=2).contains(&hubs), "one for each worker: {statuses:?}");
    assert!(proxy.metric("listens_moved_total") >= 20);
    drop(listeners);
    wait_until("the shared connection to be closed", || {
        !show(&mut proxy.console(), "pool_pools", "status").iter().any(|status| status.contains("listens for clients"))
    });
}

#[test]
fn a_notification_sent_right_after_listen_is_never_lost_and_never_comes_twice() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut other = ground.client(&proxy);
    let mut direct = ground.direct();
    for round in 0..60 {
        let mut listener = ground.client(&proxy);
        match round % 4 {
            0 => listener.run("listen quick"),
            1 => listener.extended("listen quick", &[]).map(drop).unwrap_or_default(),
            2 => listener.run("begin; listen quick; commit"),
            _ => listener.run("do $$ begin execute 'listen quick'; end $$"),
        }
        // While it moves from one connection to the other, in either order of arrival.
        let expected: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        for number in &expected {
            let text = format!("notify quick, '{number}'");
            if round % 2 == 0 { other.run(&text) } else { direct.run(&text) }
        }
        assert_eq!(payloads(&mut listener, 30), expected, "round {round}");
        assert_eq!(listener.value("select 'nothing more'"), "nothing more");
    }
    wait_until_moved(&proxy);
}

/// Also where the server is still asked for the session's channels.
#[test]
fn a_notification_sent_after_the_answer_to_unlisten_is_not_told() {
    let ground = Ground::new();
    for conf in ["pool_size = 4", "pool_size = 1\nworker_threads = 1"] {
        let proxy = ground.primary_proxy(conf);
        let mut other = ground.client(&proxy);
        for round in 0..40 {
            let mut listener = ground.client(&proxy);
            listener.run("listen a");
            match round % 4 {
                0 => listener.run("unlisten a"),
                1 => listener.run("unlisten *"),
                2 => listener.run("begin; unlisten a; commit"),
                _ => drop(listener.extended("unlisten a", &[])),
            }
            other.run("notify a, 'too late'");
            // A notification that was under way would come before the end of the next transaction.
            let answer = listener.query("listen b; notify b, 'x'");
            let heard: Vec<String> = answer.iter().filter(|message| message.tag == b'A').map(|message| news(message).0).collect();
            assert_eq!(heard, ["b"], "round {round}");
            assert!(listener.is_silent_for(Duration::from_millis(5)), "round {round}");
        }
    }
}

#[test]
fn transactions_and_savepoints_decide_over_listen_and_unlisten() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 3");
    let stories: &[(&str, &[&str], &str)] = &[
        ("a transaction", &["begin", "listen a", "commit"], "a"),
        ("one that is rolled back", &["begin", "listen a", "rollback"], ""),
        ("a savepoint", &["begin", "listen a", "savepoint s", "listen b", "rollback to s", "listen c", "commit"], "a c"),
        ("an end that is rolled back", &["listen a; listen b", "begin", "unlisten a", "rollback"], "a b"),
        (
            "an end in a savepoint",
            &["listen a; listen b", "begin", "savepoint s", "unlisten *", "rollback to s", "commit"],
            "a b",
        ),
        ("an end", &["listen a", "listen b", "begin", "unlisten a", "commit"], "b"),
        ("an end of all and a new begin", &["listen a; listen b", "begin", "unlisten *", "listen c", "commit"], "c"),
        ("an end by itself", &["listen a", "listen b", "unlisten b", "listen a"], "a"),
        ("discard all", &["listen a", "discard all", "listen b"], "b"),
        ("a failed transaction", &["listen a", "begin", "unlisten a", "select 1/0", "commit"], "a"),
        ("several in a text", &["listen a", "begin; unlisten a; listen b; commit"], "b"),
    ];
    let mut other = ground.client(&proxy);
    for (what, texts, expected) in stories {
        let mut listener = ground.client(&proxy);
        for text in *texts {
            // In the middle of a transaction nothing moves.
            if listener.query(text).last().unwrap().body == b"I" {
                wait_until_moved(&proxy);
            }
        }
        for channel in ["a", "b", "c"] {
            other.run(&format!("notify {channel}, 'x'"));
        }
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let heard: Vec<String> = expected.iter().map(|_| news(&listener.read()).0).collect();
        assert_eq!(heard, expected, "{what}");
        let listed = listener.value("select coalesce(string_agg(c, ' ' order by c), '') from pg_listening_channels() c");
        assert_eq!(listed, expected.join(" "), "{what}");
        assert!(listener.is_silent_for(Duration::from_millis(20)), "{what}");
    }
}

#[test]
fn channels_are_shown_also_behind_a_query_without_its_answer() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut listener = ground.client(&proxy);
    listener.run("listen a");
    wait_until_moved(&proxy);
    const SHOWN: &str = "select string_agg(c, ' ') from pg_listening_channels() c";
    let extended = |text: &str| [wire::unnamed(text, &[]), wire::sync()].concat();
    for (what, messages) in [
        ("queries", [wire::query("select 1"), wire::query(SHOWN)]),
        ("one behind the other", [wire::query("select 1"), extended(SHOWN)]),
        ("behind an error", [wire::query("select 1/0"), wire::query(SHOWN)]),
    ] {
        listener.send(&messages.concat());
        let _ = listener.until_ready();
        let shown = listener.until_ready();
        let row = shown.iter().find(|message| message.tag == b'D').unwrap_or_else(|| panic!("{what}: {shown:?}"));
        assert!(row.body.ends_with(b"\0\x01a"), "{what}: {row:?}");
        wait_until_moved(&proxy);
    }
    // A transaction that is open by then is not torn apart, and has what it has.
    listener.send(&[wire::query("begin"), wire::query("select 1"), wire::query(SHOWN), wire::query("commit")].concat());
    (0..4).for_each(|_| drop(listener.until_ready()));
    // Behind a copy the question is no part of it, and nobody waits for the other's end.
    listener.run("create table t (a text)");
    wait_until_moved(&proxy);
    listener.send(&[wire::query("copy t from stdin"), wire::query(SHOWN)].concat());
    let refused = listener.until_end();
    assert!(refused.iter().any(|message| message.tag == b'E' && message.failure().sqlstate == "08P01"), "{refused:?}");
}

#[test]
fn what_a_session_notifies_itself_comes_before_the_end_of_its_transaction() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 3");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("listen mine");
    wait_until_moved(&proxy);
    for (at, text) in ["notify mine, 'x'", "select pg_notify('mine', 'x')", "begin; notify mine, 'x'; commit"].iter().enumerate()
    {
        other.run("select 1; notify mine, 'of another'");
        let mut messages = vec![client.read()];
        assert_ne!(sender(&messages[0]), client.pid);
        messages = client.query(text);
        let own: Vec<&Message> = messages.iter().filter(|message| message.tag == b'A').collect();
        assert_eq!(own.len(), 1, "{text}: {messages:?}");
        assert_eq!(messages.last().unwrap().tag, b'Z');
        assert_eq!(news(own[0]).1, "x");
        assert_eq!(sender(own[0]), client.pid, "{at}: a session knows its own by its process id");
    }
    client.send(&wire::query("begin"));
    client.until_ready();
    other.run("notify mine, 'later'");
    assert!(client.is_silent_for(Duration::from_millis(50)), "not within a transaction");
    let messages = client.query("commit");
    let late: Vec<Message> = messages.into_iter().filter(|message| message.tag == b'A').collect();
    let late = late.first().cloned().unwrap_or_else(|| client.read());
    assert_eq!(news(&late).1, "later");
}

#[test]
fn any_channel_and_payload_arrives_whole() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    let long = "x".repeat(70);
    let names = ["plain", "MiXed", "quo\"ted", "with space", "ünï密", &long, "select", "a;b'c\\"];
    for name in names {
        client.query(&format!("listen \"{}\"", name.replace('"', "\"\"")));
    }
    wait_until_moved(&proxy);
    for name in names {
        let payload = "ä'\\\"".repeat(1100);
        direct.run(&format!("notify \"{}\", '{}'", name.replace('"', "\"\""), payload.replace('\'', "''")));
        let got = news(&client.read());
        assert_eq!(got, (name.chars().take(63).collect(), payload));
    }
    direct.run(&format!("notify plain, '{}'", "y".repeat(7999)));
    assert_eq!(news(&client.read()).1.len(), 7999);
}

#[test]
fn a_lost_connection_is_opened_again_and_listens_to_the_same() {
    let cluster = cluster(0);
    let server = cluster.primary();
    let proxy = Proxy::before(&[server], "pool_size = 2");
    let enter = |user: &str| Raw::tcp(proxy.port()).log_in(user, "postgres", &[]).unwrap();
    server.query("create role two login").unwrap();
    let mut listeners = [enter("postgres"), enter("two")];
    listeners.iter_mut().for_each(|listener| listener.run("listen a"));
    wait_until_moved(&proxy);
    let mut heard = |proxy: &Proxy, payload: &str| {
        for listener in &mut listeners {
            wait_until("a session to hear again", || {
                server.query(&format!("notify a, '{payload}'")).is_ok() && !listener.is_silent_for(Duration::from_millis(100))
            });
        }
        assert!(proxy.log().contains("listens again, to 1 channels"));
    };
    let hubs = "from pg_stat_activity where query ~ '^LISTEN' and state = 'idle'";
    wait_until("both workers to listen", || server.value(&format!("select count(*) {hubs}")).unwrap() == "2");
    server.query(&format!("select pg_terminate_backend(pid) {hubs}")).unwrap();
    wait_until("the loss to be seen", || proxy.metric("listeners_lost_total") == 2);
    heard(&proxy, "after a kill");
    server.stop(weir_demo::Mode::Fast).unwrap();
    server.start().unwrap();
    wait_until("the server to be up again", || proxy.nodes("status") == ["up"]);
    heard(&proxy, "after a restart");
}

#[test]
fn a_client_that_takes_no_notifications_is_dismissed_and_harms_no_other() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let (mut stuck, mut well, mut other) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    stuck.run("listen flood");
    well.run("listen flood");
    wait_until_moved(&proxy);
    stuck.run("begin");
    let text = "select count(pg_notify('flood', n || repeat('x', 7900))) from generate_series(1, 1200) n";
    other.run(text);
    for number in 1..=1200 {
        assert!(news(&well.read()).1.starts_with(&format!("{number}x")));
    }
    let end = stuck.until_end();
    let failure = end.last().unwrap().failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "54000"), "{failure:?}");
    assert_eq!(well.value("select 1"), "1");
}

/// The hub has the session's channels, and a function or a block ends listening on another connection.
#[test]
fn functions_and_blocks_begin_and_end_listening_as_statements_do() {
    let ground = Ground::new();
    ground.prepare(
        "create function tell(text) returns void language plpgsql as $$ begin execute $1; end $$;
         create function tell_through(text) returns void language sql as $$ select tell($1) $$;
         create procedure carry_out(text) language plpgsql as $$ begin execute $1; end $$",
    );
    let ways: [fn(&str) -> String; 5] = [
        |verb| format!("select tell('{verb} news')"),
        |verb| format!("select tell_through('{verb} news')"),
        |verb| format!("call carry_out('{verb} news')"),
        |verb| format!("do $$ begin execute '{verb} news'; end $$"),
        |verb| format!("prepare way as select tell('{verb} news'); execute way; deallocate way"),
    ];
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut other = ground.client(&proxy);
    for way in ways {
        let mut listener = ground.client(&proxy);
        let mut first_of = |listener: &mut Raw| {
            other.run("notify news");
            other.run("notify mark");
            news(&listener.read()).0
        };
        listener.run("listen mark; listen news");
        wait_until_moved(&proxy);
        for _ in 0..2 {
            listener.run(&way("unlisten"));
            assert_eq!(first_of(&mut listener), "mark", "{}", way("unlisten"));
            assert_eq!(listener.value("select string_agg(c, ' ' order by c) from pg_listening_channels() c"), "mark");
            listener.run(&way("listen"));
            // While one of them is on its way to the shared connection, the other may be told first.
            let mut heard = [first_of(&mut listener), news(&listener.read()).0];
            heard.sort();
            assert_eq!(heard, ["mark", "news"], "{}", way("listen"));
            wait_until_moved(&proxy);
        }
    }
}

#[test]
fn a_listener_of_many_channels_leaves_them_all_and_another_keeps_its_own() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 2");
    let (mut many, mut one, mut sender) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    one.run("listen c7");
    let listens: Vec<String> = (0..500).map(|number| format!("listen c{number}")).collect();
    many.run(&listens.join("; "));
    wait_until_moved(&proxy);
    assert_eq!(many.value("select count(*) from pg_listening_channels()"), "500");
    many.run("unlisten *");
    assert_eq!(many.value("select count(*) from pg_listening_channels()"), "0");
    many.run("listen c8");
    sender.run("notify c7, 'one'");
    sender.run("notify c8, 'many'");
    for (client, payload) in [(&mut one, "one"), (&mut many, "many")] {
        assert_eq!(payloads(client, 1), [payload]);
    }
}
