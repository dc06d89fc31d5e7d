//! Functions of users whose names are words of the grammar in a later version: SQL/JSON of 16 and 17, `merge_action`. A server that knows them as
//! functions runs them, whatever a parser of another version takes them for.

use super::cache::is_hit;
use crate::support::ground::wait_for_catalog;
use crate::support::{Ground, Raw};

/// Functions by name and arguments, and a call that the grammar of 18 reads as syntax of its own, or refuses.
const CALLS: [(&str, &str, &str); 16] = [
    ("json", "text", "json('x'::text)"),
    ("json", "int", "json(1)"),
    ("json_array", "text, text", "json_array('x'::text, 'y'::text)"),
    ("json_array", "", "json_array()"),
    ("json_arrayagg", "text", "json_arrayagg('x')"),
    ("json_exists", "text, text", "json_exists('x', '$')"),
    ("json_object", "int", "json_object(1)"),
    ("json_object", "", "json_object()"),
    ("json_objectagg", "text, text", "json_objectagg('x', 'y')"),
    ("json_query", "text, text", "json_query('x', '$')"),
    ("json_scalar", "text", "json_scalar('x')"),
    ("json_serialize", "text", "json_serialize('x')"),
    ("json_table", "text, text", "json_table('x', '$')"),
    ("json_value", "text, text", "json_value('x', '$')"),
    ("json_value", "text", "json_value('x')"),
    ("merge_action", "", "merge_action()"),
];

/// The calls among them that are calls for the server under test.
fn calls(ground: &Ground) -> Vec<&'static str> {
    let words = ground.direct().rows("select word from pg_get_keywords() where catcode in ('C', 'R')").concat();
    let is_function = |name: &str| !words.iter().any(|word| word == name);
    CALLS.iter().filter(|(name, _, _)| is_function(name)).map(|(_, _, call)| *call).collect()
}

/// Makes all functions in a schema, and a view and a function that use one of them.
fn define(ground: &Ground, body: &str) {
    ground.prepare("create schema later");
    for (name, arguments, _) in CALLS {
        ground.prepare(&format!(
            "create function later.\"{name}\"({arguments}) returns text volatile language plpgsql as $$ begin {body} end $$"
        ));
    }
    ground.prepare(
        "create table one (a text); insert into one values ('x');
         create function later.within() returns text language plpgsql as $$ begin return later.\"json_value\"('x', '$'); end $$;
         create view later.seen as select later.\"json_value\"(a, '$') as v from one",
    );
}

/// A client that finds the functions without a schema.
fn client(ground: &Ground, proxy: &crate::support::Proxy) -> Raw {
    let mut client = ground.client_with(proxy, &[("options", "-c search_path=later,public")]);
    wait_for_catalog(&mut client, &ground.database);
    client
}

/// Calls alone, in queries that hold more, and behind other functions and views.
fn texts(ground: &Ground) -> Vec<String> {
    let mut texts: Vec<String> = vec!["select within()".into(), "select v from seen".into()];
    for call in calls(ground) {
        texts.push(format!("select {call}"));
        texts.push(format!("select r from one, {call} as r where a <> ''"));
        texts.push(format!("select max(v) from (select coalesce({call}, '') as v from one) as x"));
    }
    texts
}

#[test]
fn where_functions_have_the_names_of_later_syntax_their_calls_go_to_the_primary() {
    let ground = Ground::new();
    define(&ground, "perform pg_advisory_lock(24); return pg_is_in_recovery();");
    let proxy = ground.proxy("");
    let mut client = client(&ground, &proxy);
    for text in texts(&ground) {
        for _ in 0..3 {
            assert_eq!(client.value(&text), "false", "{text}");
            let left = "/*NO LOAD BALANCE*/ select count(*) > 0 from pg_locks where locktype = 'advisory' and objid = 24 and pid = pg_backend_pid()";
            assert_eq!(client.value(left), "t", "the lock of {text}");
            client.run("select pg_advisory_unlock_all()");
        }
    }
}

#[test]
fn settings_of_functions_with_the_names_of_later_syntax_are_their_sessions() {
    let ground = Ground::new();
    define(&ground, "perform set_config('app.tenant', 'a', false); return 'x';");
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1");
    let (mut one, mut other) = (client(&ground, &proxy), client(&ground, &proxy));
    let read = "select coalesce(current_setting('app.tenant', true), '')";
    let mut check = |one: &mut Raw, text: &str| {
        assert_eq!(other.value(read), "", "the other one has what was set by: {text}");
        assert_eq!(one.value(read), "a", "lost is what was set by: {text}");
        one.run("reset app.tenant");
    };
    for text in texts(&ground) {
        for _ in 0..3 {
            one.run(&text);
            check(&mut one, &text);
        }
        one.extended(&text, &[]).unwrap();
        check(&mut one, &text);
        one.run(&format!("begin; {text}; commit"));
        check(&mut one, &text);
    }
}

#[test]
fn no_answer_of_functions_with_the_names_of_later_syntax_is_kept() {
    let ground = Ground::new();
    ground.prepare("create table known (a text); insert into known values ('0')");
    define(&ground, "return (select a from public.known);");
    let proxy = ground.primary_proxy("memory_cache_enabled = on");
    let (mut reader, mut writer) = (client(&ground, &proxy), client(&ground, &proxy));
    for (at, text) in texts(&ground).iter().enumerate() {
        (0..3).for_each(|_| assert!(!is_hit(&proxy, &mut reader, text), "{text}"));
        writer.run(&format!("update known set a = '{at}'"));
        assert_eq!(reader.value(text), at.to_string(), "{text}");
    }
}

#[test]
fn later_syntax_itself_is_read_on_a_standby_and_kept() {
    let ground = Ground::new();
    ground.prepare("create table one (a text); insert into one values ('{\"b\": 1}')");
    let words = ground.direct().rows("select word from pg_get_keywords() where catcode in ('C', 'R')").concat();
    let texts = [
        ("json_array", "select json_array(a, inet_server_port()) from one"),
        ("json_array", "select json_array(select a from one)"),
        ("json_arrayagg", "select json_arrayagg(a) from one"),
        ("json_object", "select json_object('a': a) from one"),
        ("json_objectagg", "select json_objectagg(a: a) from one"),
        ("json_value", "select json_value(a, '$.b') from one"),
        ("json_query", "select json_query(a, '$.b') from one"),
        ("json_exists", "select json_exists(a, '$.b') from one"),
        ("json_scalar", "select json_scalar(a) from one"),
        ("json_serialize", "select json_serialize(a) from one"),
        ("json_table", "select b from one, json_table(a, '$' columns (b int path '$.b')) as t"),
        ("", "select json_object(array['a', 'b']) from one"),
        (
            "",
            "select extract(day from date '2024-02-03'), overlay('a' placing 'b' from 1), nullif(a, ''), greatest(a, a) from one",
        ),
    ];
    let proxy = ground.proxy("");
    let mut client = client(&ground, &proxy);
    for (word, text) in texts.iter().filter(|(word, _)| word.is_empty() || words.iter().any(|known| known == word)) {
        let before = proxy.metric("reads_spread_total");
        client.run(text);
        assert_eq!(proxy.metric("reads_spread_total"), before + 1, "{word}: {text}");
    }
}
