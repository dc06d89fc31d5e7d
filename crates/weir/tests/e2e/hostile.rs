//! Statements made to bring a parser down. The proxy must give the server's own answer, and live.

use crate::support::proxy::show;
use crate::support::raw::{first_value, tags};
use crate::support::time::check_within;
use crate::support::{Ground, Raw, wait_until, wire};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a statement on both; answers must be the same, except that a stack limit may be met at another depth.
fn check_same(client: &mut Raw, direct: &mut Raw, text: &str) {
    let shown = &text[..text.len().min(60)];
    let (through, own) = (client.try_rows(text), direct.try_rows(text));
    match (&through, &own) {
        (Ok(_), Ok(_)) => assert_eq!(through, own, "{shown}"),
        (Err(through), Err(own)) => assert_eq!((&through.sqlstate, &through.message), (&own.sqlstate, &own.message), "{shown}"),
        _ => panic!("{shown}: through the proxy {through:?}, directly {own:?}"),
    }
}

fn repeated(before: &str, piece: &str, count: usize, middle: &str, after: &str) -> String {
    [before, &piece.repeat(count), middle, &after.repeat(count)].concat()
}

fn statements() -> Vec<String> {
    let mut texts = vec![
        format!("select length('{}')", "x".repeat(1_000_000)),
        repeated("select 1", " + 1", 100_000, "", ""),
        repeated("select 1 where true", " and true", 30_000, "", ""),
        repeated("select 1 where 1 in (1", ", 1", 200_000, ")", ""),
        repeated("select 'a'", " || 'a'", 50_000, "", ""),
        repeated("select ", "-", 1, " 1", ""),
        repeated("select ", "- ", 50_000, "1", ""),
        repeated("select ", "not ", 50_000, "true", ""),
        repeated("select 1", "::int", 50_000, "", ""),
        repeated("select '{}'::int[]", "[1]", 50_000, "", ""),
        repeated("select a", ".a", 50_000, "", ""),
        repeated("select 1", " union all select 1", 500, "", ""),
        repeated("select ", "array[", 50_000, "1", "]"),
        repeated("select ", "case when true then ", 20_000, "1", " end"),
        repeated("select ", "(select ", 20_000, "1", ")"),
        repeated("select * from ", "(select * from ", 20_000, "t", ") s"),
        repeated("select ", "abs(", 50_000, "1", ")"),
        repeated("", "/*", 2_000, "", "*/") + "select 5",
        repeated("select 5", ";", 500_000, "", ""),
        repeated("", "with a as (", 20_000, "select 1", ") select 1"),
        repeated("select 1 -- ", "x", 1_000_000, "", ""),
        repeated("", "explain ", 100_000, "select 1", ""),
        repeated("select $x$", "y", 900_000, "$x$", ""),
        "((((((((((".to_string(),
        "$$".to_string(),
        "/*".to_string(),
        "select E'\\".to_string(),
        "U&'\\".to_string(),
    ];
    for count in [1_000, 10_000, 50_000, 100_000, 1_000_000] {
        texts.push(repeated("select ", "(", count, "1", ")"));
        texts.push(repeated("select ", "(", count, "", ""));
    }
    texts
}

/// The limit of the analysis is high, so that all of the text meets the parser.
#[test]
fn statements_of_a_megabyte_or_of_a_million_parentheses_get_the_servers_own_answer() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("statement_analysis_max = 64MB");
    let mut witness = ground.client(&proxy);
    for text in statements() {
        // New sessions: a server may end one that runs out of memory or stack.
        check_same(&mut ground.client(&proxy), &mut ground.direct(), &text);
        assert_eq!(witness.value("select 7"), "7");
    }
}

#[test]
fn the_same_statements_through_the_extended_protocol() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("");
    for text in statements() {
        let through = ground.client(&proxy).extended(&text, &[]).map_err(|failure| failure.sqlstate);
        let own = ground.direct().extended(&text, &[]).map_err(|failure| failure.sqlstate);
        assert_eq!(through, own, "{}", &text[..text.len().min(60)]);
    }
}

/// PostgreSQL's own scanner takes quadratic time for some texts: a minute for these. They do not get as far as the server here, since its
/// only connection is taken.
#[test]
fn a_statement_that_is_slow_to_read_holds_no_other_client_up() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nworker_threads = 1");
    let mut holder = ground.client(&proxy);
    holder.run("begin; select 1");
    for (before, piece) in [("", "/*"), ("select *&*", "/*"), ("select 1 ~", "*/*"), ("select 1 ", "+"), ("select 1", " -")] {
        let mut hostile = ground.client(&proxy);
        hostile.send(&wire::query(&(before.to_string() + &piece.repeat(250_000 / piece.len()))));
        let started = Instant::now();
        for _ in 0..5 {
            proxy.console().run("show pool_version");
        }
        assert_eq!(holder.value("select 7"), "7");
        check_within(&format!("others, behind {before}{piece}{piece}{piece}..."), started, Duration::ZERO);
    }
}

#[test]
fn bytes_that_are_no_text_in_any_encoding_are_refused_by_the_server() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    for bytes in [&b"select '\xff\xfe'\0"[..], b"\xff\0", b"select \xc3(\0", b"select '\xf0\x9f\x98'\0", b"\x01\x02\x03\0"] {
        let message = wire::message(b'Q', bytes);
        client.send(&message);
        direct.send(&message);
        assert_eq!(client.until_ready()[0].failure(), direct.until_ready()[0].failure(), "{}", bytes.escape_ascii());
    }
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn tens_of_thousands_of_different_statements_do_not_fill_the_memory() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("prepared_statements_max = 50\npool_size = 2");
    let mut client = ground.client(&proxy);
    let words = |n: usize| format!("select {n} as column_{n}_{}", "x".repeat(40));
    (0..6_000).for_each(|n| client.run(&words(n)));
    let before = proxy.rss_kb();
    for n in 6_000..14_000 {
        client.run(&words(n));
        client.extended(&words(n), &[]).unwrap();
    }
    let growth = proxy.rss_kb().saturating_sub(before);
    assert!(growth < 20_000, "{growth} kB more after 8,000 more texts");
}

#[test]
fn settings_of_one_client_do_not_fill_the_memory() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut client = ground.client(&proxy);
    (0..6).for_each(|n| client.run(&format!("set app.long_{n} = '{}'", "x".repeat(100_000))));
    (0..20).for_each(|n| client.run(&format!("set app.short = '{n}'")));
    let before = proxy.rss_kb();
    (20..220).for_each(|n| client.run(&format!("set app.short = '{n}'")));
    let growth = proxy.rss_kb().saturating_sub(before);
    assert!(growth < 30_000, "{growth} kB more after 200 settings");
    assert_eq!(client.value("select length(current_setting('app.long_5'))"), "100000");
}

#[test]
fn many_hostile_clients_at_once_disturb_no_other() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("statement_analysis_max = 64MB\npool_size = 6");
    let texts: Vec<String> = statements().into_iter().filter(|text| text.len() < 300_000).collect();
    thread::scope(|scope| {
        let (ground, proxy, texts) = (&ground, &proxy, &texts);
        for _ in 0..3 {
            scope.spawn(move || {
                for text in texts {
                    let _ = ground.client(proxy).try_rows(text);
                }
            });
        }
        scope.spawn(move || {
            let mut client = ground.client(proxy);
            for number in 0..200 {
                assert_eq!(client.value(&format!("select {number}")), number.to_string());
            }
        });
    });
}

/// The proxy sends long messages on as they come, so that the server waits for the rest of one as well.
#[test]
fn a_client_that_dies_in_a_long_message_leaves_neither_session_nor_connection() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let long = wire::query(&format!("select '{}'", "x".repeat(3 << 20)));
    let function = wire::function_call(1397, &[&"1".repeat(100_000)]);
    for message in [&long, &function] {
        let mut client = ground.client(&proxy);
        client.send(&[wire::query("select 1").as_slice(), &message[..message.len() - 100]].concat());
        assert_eq!(client.tags(), "TDCZ", "what was whole is answered");
        client.half_close_if_open();
        assert_eq!(client.until_end(), []);
        assert_eq!(ground.client(&proxy).value("select 2"), "2");
    }
    let mut console = proxy.console();
    wait_until("their sessions to end", || show(&mut console, "pool_processes", "pool_pid").len() == 1);
}

/// A server answers a Sync if the copy has failed by then, and ignores it if not. One answer too many would be taken for that
/// of the next statement, and later answers would reach another client.
#[test]
fn a_sync_in_the_middle_of_a_copys_data_mixes_up_no_replies() {
    let ground = Ground::new();
    ground.prepare("create table numbers (n int)");
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut other = ground.client(&proxy);
    for round in 0..30 {
        let mut client = ground.client(&proxy);
        client.send(&wire::query("copy numbers from stdin"));
        if round % 2 == 0 {
            assert_eq!(client.read().tag, b'G');
        }
        let own = wire::query(&format!("select 'own {round}'"));
        let bad = wire::copy_data(b"no number\n");
        client.send(&[bad, wire::sync(), wire::sync(), wire::copy_done(), own].concat());
        assert_eq!(other.value(&format!("select 'other {round}'")), format!("other {round}"));
        let failed = client.until_ready();
        assert_eq!(failed.iter().find(|m| m.tag == b'E').map(|m| m.failure().sqlstate).as_deref(), Some("22P02"));
        let mut answer = client.until_ready();
        while tags(&answer) == "Z" {
            // The answer to a Sync that came after the failure.
            answer = client.until_ready();
        }
        assert_eq!(first_value(&answer).as_deref(), Ok(format!("own {round}").as_str()));
    }
}

#[test]
fn what_is_sent_into_a_copy_ends_the_session_and_names_of_a_gigabyte_do_too() {
    let ground = Ground::new();
    ground.prepare("create table numbers (n int)");
    let proxy = ground.primary_proxy("");
    let mut copying = ground.client(&proxy);
    copying.send(&[wire::query("copy numbers from stdin"), wire::query("select 1")].concat());
    let said = copying.until_end();
    let last = said.last().expect("it is told why").failure();
    assert_eq!((last.severity.as_str(), last.sqlstate.as_str()), ("FATAL", "08P01"), "{said:?}");
    for tag in [b'C', b'D', b'E'] {
        let mut greedy = ground.client(&proxy);
        greedy.send(&[&[tag][..], &0x3fff_ffff_u32.to_be_bytes(), b"S"].concat());
        assert_eq!(greedy.read().failure().sqlstate, "08P01");
    }
}
