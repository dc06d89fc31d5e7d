//! Prepared statements of the protocol, while server connections change hands.

use crate::support::raw::{first_value, tags};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::thread;

fn prepare(client: &mut Raw, name: &str, text: &str) {
    client.send(&[wire::parse(name, text), wire::sync()].concat());
    assert_eq!(client.tags(), "1Z", "{text}");
}

fn run(client: &mut Raw, name: &str, values: &[&str]) -> Result<String, crate::support::Failure> {
    client.send(&[wire::run(name, values), wire::sync()].concat());
    first_value(&client.until_ready())
}

#[test]
fn a_statement_prepared_by_sql_is_closed_by_the_protocol_too() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    for connection in [&mut client, &mut direct] {
        connection.run("prepare \"A b\" as select 2");
        assert_eq!(connection.value("execute \"A b\""), "2");
        connection.send(&[wire::close(b'S', "A b"), wire::sync()].concat());
        assert_eq!(connection.tags(), "3Z");
        assert_eq!(connection.error("execute \"A b\"").sqlstate, "26000");
        connection.send(&[wire::parse("A b", "select 3"), wire::run("A b", &[]), wire::sync()].concat());
        assert_eq!(connection.tags(), "12DCZ");
    }
}

/// Messages with long names, and the subject of each case.
fn long_names() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let a = "a".repeat(63);
    let [ax, ay, short] = [format!("{a}x"), format!("{a}yyy"), "a".repeat(62)];
    let [long, longer] = ["b".repeat(20_000), "b".repeat(30_000)];
    let accents = ["é".repeat(40), format!("{}ê", "é".repeat(31)), format!("{}e", "é".repeat(31))];
    let (parse, run) = (|name: &str, text: &str| wire::parse(name, text), |name: &str| wire::run(name, &[]));
    let huge = format!("select '{}'", "x".repeat(50_000));
    let (sync, sql) = (wire::sync(), |text: &str| wire::query(text));
    vec![
        ("two names are one", vec![parse(&ax, "select 1"), parse(&ay, "select 2"), sync.clone()]),
        (
            "it is used by either",
            vec![parse(&ax, "select 1"), run(&ay), wire::describe(b'S', &a), sync.clone(), run(&short), sync.clone()],
        ),
        ("and closed", vec![parse(&ax, "select 1"), wire::close(b'S', &ay), parse(&a, "select 3"), run(&ax), sync.clone()]),
        (
            "in pieces",
            vec![
                parse(&ax, "select 1"),
                sync.clone(),
                run(&ay),
                sync.clone(),
                wire::close(b'S', &ay),
                sync.clone(),
                run(&ax),
                sync.clone(),
            ],
        ),
        ("long ones", vec![parse(&long, "select 1"), run(&longer), sync.clone(), run(&long), sync.clone()]),
        ("a long portal", vec![parse("s", "select 1"), wire::bind(&long, "s", &[]), wire::execute(&long[..63], 0), sync.clone()]),
        ("described", vec![parse(&long, "select 1"), wire::describe(b'S', &long[..5000]), sync.clone()]),
        ("a long one that is not there", vec![run(&long), sync.clone()]),
        ("of a long text", vec![parse(&long, &huge), wire::bind("", &long[..63], &[]), sync.clone(), run(&longer), sync.clone()]),
        (
            "of what is answered here",
            vec![parse(&long, "begin"), wire::bind("", &longer, &[]), wire::execute("", 0), sync.clone()],
        ),
        (
            "where a character ends",
            vec![
                parse(&accents[0], "select 1"),
                sync.clone(),
                parse(&accents[1], "select 2"),
                sync.clone(),
                parse(&accents[2], "select 3"),
                sync.clone(),
            ],
        ),
        (
            "by SQL and by the protocol",
            vec![sql(&format!("prepare {ax} as select 4")), run(&ay), sync.clone(), parse(&ay, "select 5"), sync.clone()],
        ),
        ("let go by SQL", vec![parse(&ax, "select 1"), sync.clone(), sql(&format!("deallocate {ay}")), run(&ax), sync.clone()]),
    ]
}

#[test]
fn long_names_are_taken_and_told_apart_by_their_first_63_bytes() {
    let ground = Ground::new();
    let proxies = [ground.proxy(""), ground.proxy("statement_analysis_max = 40kB\nmemory_cache_enabled = on")];
    for proxy in &proxies {
        for (name, messages) in &long_names() {
            let said = [ground.direct(), ground.client(proxy)].map(|mut client| {
                let mut rounds = Vec::new();
                for message in messages {
                    client.send(message);
                    if matches!(message[0], b'S' | b'Q') {
                        rounds.push(client.until_ready());
                    }
                }
                let failures = rounds.iter().flatten().filter(|message| message.tag == b'E').map(|message| message.failure());
                let failures: Vec<_> = failures.map(|failure| (failure.sqlstate, failure.message)).collect();
                (rounds.iter().map(|round| tags(round)).collect::<Vec<_>>(), failures)
            });
            assert_eq!(said[0], said[1], "{name}");
        }
    }
}

#[test]
fn names_beyond_what_a_text_may_have_are_an_error_and_the_session_goes_on() {
    let ground = Ground::new();
    let proxy = ground.proxy("statement_analysis_max = 40kB");
    let (mut client, name) = (ground.client(&proxy), "p".repeat(70_000));
    client.send(&[wire::parse("s", "select 1"), wire::bind(&name, "s", &[]), wire::execute("", 0), wire::sync()].concat());
    let messages = client.until_ready();
    assert_eq!((tags(&messages).as_str(), messages[1].failure().sqlstate.as_str()), ("1EZ", "54000"));
    client.send(&[wire::parse(&name, "select 1"), wire::sync()].concat());
    assert_eq!(client.until_ready()[0].failure().sqlstate, "54000");
    assert_eq!(client.value("select 7"), "7");
}

#[test]
fn a_named_statement_works_on_every_server_it_is_sent_to() {
    let ground = Ground::new();
    let proxy = ground.proxy("causal_reads = off");
    let mut client = ground.client(&proxy);
    prepare(&mut client, "s", "select inet_server_port() + $1::int");
    let mut ports: Vec<String> = (0..40).map(|_| run(&mut client, "s", &["0"]).unwrap()).collect();
    ports.sort();
    ports.dedup();
    let mut standbys = ground.standby_ports();
    standbys.sort();
    assert_eq!(ports, standbys, "40 executions reach both standbys");
    client.run("begin isolation level repeatable read");
    assert_eq!(run(&mut client, "s", &["0"]).unwrap(), ground.primary_port(), "and the primary within a transaction");
    client.run("commit");
}

#[test]
fn a_named_statement_survives_other_clients_on_the_same_connection() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    thread::scope(|scope| {
        for number in 0..12 {
            let (ground, proxy) = (&ground, &proxy);
            scope.spawn(move || {
                let mut client = ground.client(proxy);
                // All use the same names for different statements.
                prepare(&mut client, "s", &format!("select $1::int + {number}"));
                prepare(&mut client, "t", "select $1::text");
                for turn in 0..30 {
                    assert_eq!(run(&mut client, "s", &[&turn.to_string()]).unwrap(), (turn + number).to_string());
                    assert_eq!(run(&mut client, "t", &["x"]).unwrap(), "x");
                }
            });
        }
    });
    assert_eq!(ground.server_connections().len(), 1);
}

#[test]
fn a_full_connection_makes_room_for_another_statement() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nprepared_statements_max = 2");
    let mut client = ground.client(&proxy);
    for number in 0..6 {
        prepare(&mut client, &format!("s{number}"), &format!("select {number} + $1::int"));
    }
    for turn in 0..3 {
        for number in 0..6 {
            assert_eq!(run(&mut client, &format!("s{number}"), &[&turn.to_string()]).unwrap(), (number + turn).to_string());
        }
    }
    let on_server = client.value("select count(*) from pg_prepared_statements");
    assert!(on_server.parse::<u32>().unwrap() <= 2, "prepared_statements_max is 2, the server holds {on_server}");
    // All in one pipeline: room is made while earlier ones are still due.
    let mut bytes = Vec::new();
    for number in 0..6 {
        bytes.extend(wire::run(&format!("s{number}"), &["10"]));
    }
    client.send(&[bytes, wire::sync()].concat());
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "2DC".repeat(6) + "Z");
    let values: Vec<_> = messages.iter().filter(|m| m.tag == b'D').map(|m| m.row()[0].clone().unwrap()).collect();
    assert_eq!(values, ["10", "11", "12", "13", "14", "15"]);
}

#[test]
fn a_full_connection_stays_within_its_limit_after_errors() {
    const MAX: u32 = 20;
    let ground = Ground::new();
    let proxy = ground.primary_proxy(&format!("pool_size = 1\nprepared_statements_max = {MAX}"));
    let mut client = ground.client(&proxy);
    for round in 0..4 {
        for number in 0..MAX + 5 {
            prepare(&mut client, "s", &format!("select {round} + {number}"));
            client.send(&[wire::close(b'S', "s"), wire::sync()].concat());
            client.until_ready();
        }
        // Its error makes all statements there stale.
        prepare(&mut client, "s", "do $$ begin raise sqlstate '0A000'; end $$");
        assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "0A000");
        client.send(&[wire::close(b'S', "s"), wire::sync()].concat());
        client.until_ready();
        // Closes behind an error do not happen.
        client.send(&wire::parse("bad", "selec"));
        (0..MAX).for_each(|number| client.send(&wire::parse(&format!("n{number}"), &format!("select {round} - {number}"))));
        client.send(&wire::sync());
        assert_eq!(tags(&client.until_ready()), "EZ");
    }
    let on_server = client.value("select count(*) from pg_prepared_statements");
    assert!(on_server.parse::<u32>().unwrap() <= MAX, "prepared_statements_max is {MAX}, the server holds {on_server}");
}

#[test]
fn a_duplicate_name_is_an_error_and_the_old_statement_stays() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    prepare(&mut client, "s", "select 1");
    prepare(&mut direct, "s", "select 1");
    for text in ["select 2", "select 1"] {
        let bytes = [wire::parse("s", text), wire::bind("", "s", &[]), wire::execute("", 0), wire::sync()].concat();
        client.send(&bytes);
        direct.send(&bytes);
        let (through, own) = (client.until_ready(), direct.until_ready());
        assert_eq!(tags(&through), tags(&own));
        assert_eq!(through[0].failure().sqlstate, "42P05");
        assert_eq!(through[0].failure(), own[0].failure());
    }
    assert_eq!(run(&mut client, "s", &[]).unwrap(), "1");
    client.run("begin");
    client.send(&[wire::parse("s", "select 2"), wire::sync()].concat());
    let messages = client.until_ready();
    assert_eq!((tags(&messages).as_str(), messages.last().unwrap().body.as_slice()), ("EZ", &b"E"[..]), "the transaction fails");
    client.run("rollback");
}

#[test]
fn a_name_whose_parse_failed_is_free() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    for text in ["selec 1", "select * from no_such_table"] {
        client.send(&[wire::parse("s", text), wire::sync()].concat());
        assert_eq!(client.tags(), "EZ", "{text}");
        assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000", "{text}");
    }
    // The text that failed before is tried again when it may succeed.
    client.run("create table no_such_table as select 5 as a");
    prepare(&mut client, "s", "select * from no_such_table");
    assert_eq!(run(&mut client, "s", &[]).unwrap(), "5");
    // In one pipeline: the second Parse of the name is skipped with the rest.
    client.send(&[wire::parse("x", "selec"), wire::parse("x", "select 1"), wire::sync()].concat());
    assert_eq!(client.tags(), "EZ");
    prepare(&mut client, "x", "select 3");
    assert_eq!(run(&mut client, "x", &[]).unwrap(), "3");
}

#[test]
fn a_statement_prepared_after_an_error_in_the_same_pipeline_does_not_exist() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    client.send(&[wire::unnamed("select 1/0", &[]), wire::parse("s", "select 1"), wire::sync()].concat());
    assert_eq!(client.tags(), "1EZ", "the error comes when the unnamed statement is planned");
    assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000");
    prepare(&mut client, "s", "select 2");
    assert_eq!(run(&mut client, "s", &[]).unwrap(), "2");
}

#[test]
fn a_statement_prepared_before_an_error_in_the_same_pipeline_exists() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    client.send(&[wire::parse("s", "select 1"), wire::unnamed("select 1/0", &[]), wire::sync()].concat());
    assert_eq!(client.tags(), "11EZ");
    assert_eq!(run(&mut client, "s", &[]).unwrap(), "1");
}

#[test]
fn deallocate_frees_one_name_or_all() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    prepare(&mut other, "s", "select 1");
    for all in ["deallocate s", "deallocate prepare s", "deallocate all", "DEALLOCATE PREPARE ALL", "discard all"] {
        prepare(&mut client, "s", "select 1");
        assert_eq!(run(&mut client, "s", &[]).unwrap(), "1");
        let messages = client.query(all);
        let tag = messages.iter().find(|m| m.tag == b'C').map(|m| m.text()).unwrap_or_default();
        assert!(matches!(tag.as_str(), "DEALLOCATE" | "DEALLOCATE ALL" | "DISCARD ALL"), "{all}: {tag}");
        assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000", "after {all}");
        assert_eq!(run(&mut other, "s", &[]).unwrap(), "1", "another client's statement stays after {all}");
    }
    let failure = client.error("deallocate nothing_of_this_name");
    assert_eq!(failure, ground.direct().error("deallocate nothing_of_this_name"));
    prepare(&mut client, "s", "select 1");
    client.extended("deallocate s", &[]).unwrap();
    assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000", "DEALLOCATE through the extended protocol");
    prepare(&mut client, "s", "select 1");
    client.extended("deallocate all", &[]).unwrap();
    assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000", "DEALLOCATE ALL through the extended protocol");
    assert_eq!(run(&mut other, "s", &[]).unwrap(), "1");
}

#[test]
fn close_frees_a_name_and_closing_what_is_not_there_is_no_error() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    prepare(&mut client, "s", "select 1");
    prepare(&mut other, "s", "select 1");
    client.send(&[wire::close(b'S', "s"), wire::close(b'S', "nothing"), wire::close(b'P', "nothing"), wire::sync()].concat());
    assert_eq!(client.tags(), "333Z");
    assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "26000");
    assert_eq!(run(&mut other, "s", &[]).unwrap(), "1");
    // Closed and prepared again within one pipeline, with another text.
    client.send(
        &[
            wire::parse("s", "select 1"),
            wire::run("s", &[]),
            wire::close(b'S', "s"),
            wire::parse("s", "select 2"),
            wire::run("s", &[]),
            wire::sync(),
        ]
        .concat(),
    );
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "12DC312DCZ");
    let values: Vec<_> = messages.iter().filter(|m| m.tag == b'D').map(|m| m.row()[0].clone().unwrap()).collect();
    assert_eq!(values, ["1", "2"]);
}

#[test]
fn the_unnamed_statement_can_be_used_again_in_a_later_transaction() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    client.send(&[wire::parse("", "select $1::int + 1"), wire::sync()].concat());
    assert_eq!(client.tags(), "1Z");
    for turn in 0..10 {
        assert_eq!(other.extended("select 'other'", &[]).unwrap(), "other");
        assert_eq!(run(&mut client, "", &[&turn.to_string()]).unwrap(), (turn + 1).to_string());
    }
    // A simple query ends it, as PostgreSQL has it.
    client.run("select 1");
    assert_eq!(run(&mut client, "", &["1"]).unwrap_err().sqlstate, "26000");
}

#[test]
fn after_discard_all_the_same_text_can_be_prepared_again() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    for _ in 0..3 {
        prepare(&mut client, "s", "select 7");
        assert_eq!(run(&mut client, "s", &[]).unwrap(), "7");
        client.run("discard all");
    }
    prepare(&mut client, "s", "select 7");
    client.extended("discard all", &[]).unwrap();
    prepare(&mut client, "s", "select 7");
    assert_eq!(run(&mut client, "s", &[]).unwrap(), "7");
}

#[test]
fn a_statement_is_described_with_its_types_wherever_it_is() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let bytes = |name: &str| [wire::describe(b'S', name), wire::sync()].concat();
    for client in [&mut client, &mut direct] {
        prepare(client, "s", "select $1::int8 as number, $2::text as words");
    }
    for _ in 0..5 {
        client.send(&bytes("s"));
        direct.send(&bytes("s"));
        assert_eq!(client.until_ready(), direct.until_ready());
    }
    client.send(&bytes("nothing"));
    direct.send(&bytes("nothing"));
    assert_eq!(client.until_ready()[0].failure(), direct.until_ready()[0].failure());
}

#[test]
fn a_table_that_changed_under_a_statement_gives_postgresqls_own_error_and_no_more() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    prepare(&mut client, "s", "select * from t");
    run(&mut client, "s", &[]).unwrap();
    client.run("alter table t add b int");
    assert_eq!(run(&mut client, "s", &[]).unwrap_err().sqlstate, "0A000", "cached plan must not change result type");
    // Elsewhere Weir says it, as drivers know it (pgjdbc, asyncpg): by the routine.
    ground.client(&proxy).run("discard all");
    client.send(&[wire::run("s", &[]), wire::sync()].concat());
    let refused = client.until_ready().remove(0);
    let says = |field: &[u8]| refused.body.split(|byte| *byte == 0).any(|known| known == field);
    assert!(says(b"C0A000") && says(b"RRevalidateCachedQuery"), "{refused:?}");
    client.send(&[wire::close(b'S', "s"), wire::parse("s", "select * from t"), wire::run("s", &[]), wire::sync()].concat());
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "312CZ", "the usual cure of a driver, closing and preparing again, works: {messages:?}");
}

#[test]
fn statements_come_back_after_the_server_connection_was_lost() {
    let ground = Ground::new();
    let proxy: Proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    prepare(&mut client, "s", "select $1::int");
    for turn in 0..5 {
        assert_eq!(run(&mut client, "s", &[&turn.to_string()]).unwrap(), turn.to_string());
        let pids = ground.server_connections();
        ground.cluster.primary().query(&format!("select pg_terminate_backend({})", pids[0])).unwrap();
        wait_until("the connection to be gone", || !ground.server_connections().contains(&pids[0]));
    }
}

/// Constants are read, and names are looked up, when a statement is prepared: by the settings of the session that prepares it.
#[test]
fn the_same_text_means_to_each_client_what_its_own_settings_say() {
    let ground = Ground::new();
    ground.prepare(
        "create schema a; create table a.t as select 1 as x; create schema b; create table b.t as select 'two'::text as x, 2 as y",
    );
    let proxy = ground.primary_proxy("pool_size = 1");
    let settings = [
        [("TimeZone", "UTC"), ("search_path", "a"), ("DateStyle", "ISO, MDY")],
        [("TimeZone", "Asia/Tokyo"), ("search_path", "a"), ("DateStyle", "ISO, DMY")],
        [("TimeZone", "UTC"), ("search_path", "b"), ("DateStyle", "ISO, MDY")],
    ];
    let texts =
        ["select extract(epoch from timestamptz '2024-01-01 00:00')::bigint", "select date '02/03/2024'", "select x from t"];
    for round in 0..3 {
        for settings in &settings {
            let mut client = ground.client_with(&proxy, settings);
            let direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, settings);
            let mut direct = direct.unwrap();
            for text in texts {
                let expected = direct.value(text);
                prepare(&mut client, "s", text);
                assert_eq!(
                    run(&mut client, "s", &[]).as_deref(),
                    Ok(expected.as_str()),
                    "{text} with {settings:?}, round {round}"
                );
                client.send(&[wire::close(b'S', "s"), wire::sync()].concat());
                client.tags();
                assert_eq!(client.extended(text, &[]).as_deref(), Ok(expected.as_str()), "{text} unnamed with {settings:?}");
            }
        }
    }
}

#[test]
fn the_statement_without_a_name_outlives_a_discard_of_all() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let ways = [
        // The statement by which it discards stays.
        vec![[wire::unnamed("discard all", &[]), wire::sync()].concat(), [wire::run("", &[]), wire::sync()].concat()],
        vec![
            [wire::parse("d", "discard all"), wire::parse("", "select 5"), wire::sync()].concat(),
            [wire::run("d", &[]), wire::sync()].concat(),
            [wire::run("", &[]), wire::sync()].concat(),
            [wire::run("d", &[]), wire::sync()].concat(),
        ],
        vec![
            [wire::parse("d", "discard all"), wire::parse("", "select 5"), wire::run("d", &[]), wire::run("", &[]), wire::sync()]
                .concat(),
            [wire::run("", &[]), wire::sync()].concat(),
        ],
    ];
    for way in ways {
        let tags = [ground.direct(), ground.client(&proxy)].map(|mut client| {
            let mut other = ground.client(&proxy);
            let run = |bytes: &Vec<u8>| {
                client.send(bytes);
                let tags = client.tags();
                // On the connection that may have been the session's.
                other.extended("select 6", &[]).unwrap();
                tags
            };
            way.iter().map(run).collect::<Vec<_>>()
        });
        assert_eq!(tags[0], tags[1]);
    }
}

/// Ways in which code takes away the statements of the connection that it runs on.
const DEALLOCATING: [(&str, &str); 9] = [
    ("do", "do $$ begin deallocate all; end $$"),
    ("made up", "do $$ begin execute 'deal' || 'locate all'; end $$"),
    ("discard", "do $$ begin execute 'discard all'; exception when others then deallocate all; end $$"),
    ("function", "select forgets()"),
    ("procedure", "call forgetting()"),
    ("trigger", "insert into watched values (1)"),
    (
        "loop",
        "do $$ declare n text; begin for n in select name from pg_prepared_statements where not from_sql \
         loop execute format('deallocate %I', n); end loop; end $$",
    ),
    (
        "one",
        "do $$ declare n text; begin select name into n from pg_prepared_statements where statement like '%40%'; \
         if n is not null then execute format('deallocate %I', n); end if; end $$",
    ),
    ("rolled back", "begin; do $$ begin deallocate all; end $$; rollback"),
];

fn make_deallocating(ground: &Ground) {
    ground.prepare(
        "create function forgets() returns int language plpgsql as 'begin deallocate all; return 1; end'; \
         create procedure forgetting() language plpgsql as 'begin deallocate all; end'; \
         create function forgets_by_trigger() returns trigger language plpgsql as 'begin deallocate all; return new; end'; \
         create table watched (a int); \
         create trigger forgets before insert on watched for each row execute function forgets_by_trigger()",
    );
}

/// A server connection's statements are all sessions': code of one session takes none away from another.
#[test]
fn code_that_deallocates_takes_no_statements_from_other_sessions() {
    let ground = Ground::new();
    make_deallocating(&ground);
    for mode in ["transaction", "statement"] {
        let proxy = ground.primary_proxy(&format!("pool_size = 1\npool_mode = {mode}"));
        let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
        prepare(&mut other, "s", "select 40 + $1::int");
        prepare(&mut other, "t", "select 50 + $1::int");
        for (how, text) in DEALLOCATING {
            if mode == "statement" && how == "rolled back" {
                continue;
            }
            assert_eq!(run(&mut other, "s", &["1"]).unwrap(), "41", "before {how}");
            assert_eq!(run(&mut other, "t", &["1"]).unwrap(), "51", "before {how}");
            one.run(text);
            // Nothing of the one's is waited for.
            assert_eq!(run(&mut other, "s", &["2"]).unwrap(), "42", "after {how}, {mode}");
            assert_eq!(run(&mut other, "t", &["2"]).unwrap(), "52", "after {how}, {mode}");
        }
    }
}

/// The session itself prepares anew what it deallocated, as on a connection of its own.
#[test]
fn a_session_prepares_anew_what_its_code_deallocated() {
    let ground = Ground::new();
    make_deallocating(&ground);
    for mode in ["transaction", "session"] {
        let proxy = ground.primary_proxy(&format!("pool_size = 2\npool_mode = {mode}"));
        for (how, text) in DEALLOCATING {
            let is_seen = !matches!(how, "made up" | "function" | "procedure" | "trigger");
            if mode == "session" && !is_seen {
                continue;
            }
            let mut client = ground.client(&proxy);
            prepare(&mut client, "s", "select 40 + $1::int");
            assert_eq!(run(&mut client, "s", &["1"]).unwrap(), "41");
            client.run(text);
            prepare(&mut client, "again", "select 40 + $1::int");
            assert_eq!(run(&mut client, "again", &["2"]).unwrap(), "42", "after {how}, {mode}");
            if how != "rolled back" && is_seen {
                client.run("begin");
                client.run(text);
                prepare(&mut client, "within", "select 40 + $1::int");
                assert_eq!(run(&mut client, "within", &["3"]).unwrap(), "43", "after {how}, within, {mode}");
                client.run("commit");
            }
        }
    }
}

/// By a name that a client has found on the server.
#[test]
fn a_statement_that_a_client_deallocates_by_its_name_on_the_server_is_prepared_anew() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
    prepare(&mut other, "s", "select 40 + $1::int");
    assert_eq!(run(&mut other, "s", &["1"]).unwrap(), "41");
    let name = one.value("select name from pg_prepared_statements where statement like '%40 +%' and not from_sql");
    one.run(&format!("deallocate \"{name}\""));
    assert_eq!(run(&mut other, "s", &["2"]).unwrap(), "42");
}

#[test]
fn a_lowered_limit_is_obeyed_on_open_connections() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nworker_threads = 1\nprepared_statements_max = 5");
    let (mut client, mut console) = (ground.client(&proxy), super::console::admin(&proxy));
    for number in 0..8 {
        prepare(&mut client, &format!("s{number}"), &format!("select {number}"));
        assert_eq!(run(&mut client, &format!("s{number}"), &[]), Ok(number.to_string()));
    }
    // In the same connection, but for this statement itself.
    let on_server = "select count(*) from pg_prepared_statements where not from_sql";
    let count = |client: &mut Raw| client.value(on_server).parse::<u32>().unwrap();
    assert_eq!(count(&mut client), 5);
    console.run("SET max_prepared_statements = 2");
    prepare(&mut client, "new", "select 'new'");
    assert_eq!(run(&mut client, "new", &[]), Ok("new".into()));
    assert!(count(&mut client) <= 2, "{}", count(&mut client));
    for number in 0..8 {
        assert_eq!(run(&mut client, &format!("s{number}"), &[]), Ok(number.to_string()));
        assert!(count(&mut client) <= 2);
    }
}

/// Drivers send it behind each rollback.
#[test]
fn deallocate_all_takes_no_statements_from_other_sessions() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\n");
    let (mut one, mut other, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    for connection in [&mut other, &mut direct] {
        prepare(connection, "s", "select 5 + 5");
    }
    prepare(&mut one, "s", "select 4 + 4");
    let kept = "select count(*) from pg_prepared_statements where statement in ('select 4 + 4', 'select 5 + 5')";
    assert_eq!(one.value(kept), "2");
    let said = |client: &mut Raw, text: &str| {
        client.send(&wire::query(text));
        tags(&client.until_ready())
    };
    for text in ["rollback", "begin", "deallocate all", "select 1 / 0", "deallocate all", "rollback", "deallocate all"] {
        let (got, expected) = (said(&mut other, text), said(&mut direct, text));
        assert_eq!(got, expected, "{text}");
    }
    assert_eq!(one.value(kept), "2", "the server connection keeps them");
    assert_eq!(run(&mut one, "s", &[]).unwrap(), "8");
    // Beside statements prepared by SQL, and before a Parse in one write.
    for text in [
        "rollback",
        "begin",
        "deallocate all",
        "prepare q as select 6",
        "deallocate all",
        "execute q",
        "deallocate all",
        "rollback",
        "prepare q as select 7",
        "deallocate all",
        "execute q",
    ] {
        let (got, expected) = (said(&mut other, text), said(&mut direct, text));
        assert_eq!(got, expected, "{text}");
    }
    for connection in [&mut other, &mut direct] {
        assert_eq!(run(connection, "s", &[]).unwrap_err().sqlstate, "26000");
        connection.send(
            &[
                wire::parse("s", "select 5 + 5"),
                wire::sync(),
                wire::query("deallocate all"),
                wire::parse("s", "select 9"),
                wire::run("s", &[]),
                wire::sync(),
            ]
            .concat(),
        );
        connection.until_ready();
        connection.until_ready();
        assert_eq!(first_value(&connection.until_ready()).unwrap(), "9");
    }
    assert_eq!(run(&mut one, "s", &[]).unwrap(), "8");
}
