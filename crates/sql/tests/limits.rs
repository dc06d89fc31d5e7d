//! Texts of a size and depth that no stack would hold, on a thread with a small stack and without optimisation.

use weir_sql::TEXT_BYTES_MAX;
use weir_sql::facts::{QueryEffect, QueryFacts, StateKind, StateKinds};

/// A thread of Rust's standard library has 2 MiB. Measured: 16 KiB, the least there is, are enough for all of these.
const STACK_BYTES: usize = 64 << 10;

fn check_effect(name: &str, text: String, effect: QueryEffect) -> QueryFacts {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || weir_sql::facts(text.as_bytes())).expect("a thread starts");
    let facts = thread.join().expect("no text panics");
    assert_eq!(facts.effect, effect, "{name}");
    facts
}

/// `left` and `right` nested `depth` times around `core`.
fn nested(left: &str, core: &str, right: &str, depth: usize) -> String {
    format!("{}{core}{}", left.repeat(depth), right.repeat(depth))
}

#[test]
fn long_chains_of_operators_are_read() {
    let count = 100_000;
    check_effect("plus", format!("select 1{}", "+1".repeat(count)), QueryEffect::Reads);
    check_effect("and", format!("select a{}", " and a".repeat(count)), QueryEffect::Reads);
    check_effect("or, and", format!("select a{}", " or a and b".repeat(count / 2)), QueryEffect::Reads);
    check_effect("||", format!("select a{}", "||a".repeat(count)), QueryEffect::Reads);
    check_effect("cast", format!("select a{}", "::int".repeat(count)), QueryEffect::Reads);
    check_effect("subscript", format!("select a{}", "[1]".repeat(count)), QueryEffect::Reads);
    check_effect("collate", format!("select a{}", " is null".repeat(count)), QueryEffect::Reads);
    check_effect("sort", format!("select a order by a{}", ",a".repeat(count)), QueryEffect::Reads);
}

#[test]
fn long_lists_are_read_and_keep_every_name() {
    let names: Vec<String> = (0..50_000).map(|n| format!("f{n}(1)")).collect();
    let facts = check_effect("functions", format!("select {}", names.join(",")), QueryEffect::Reads);
    assert_eq!(facts.named.functions.len(), 50_000);
    assert_eq!(facts.named.functions[49_999].name, "f49999");
    let facts = check_effect("same function", format!("select f(1){}", "+f(1)".repeat(50_000)), QueryEffect::Reads);
    assert_eq!(facts.named.functions.len(), 1);
    check_effect("in list", format!("select a in (1{})", ",1".repeat(400_000)), QueryEffect::Reads);
    check_effect("rows", format!("insert into t values (1,'x'){}", ",(1,'x')".repeat(100_000)), QueryEffect::Writes);
    check_effect("statements", "select 1;".repeat(50_000), QueryEffect::Reads);
    check_effect("string", format!("select '{}'", "x".repeat(1 << 20)), QueryEffect::Reads);
    check_effect("identifier", format!("select {}", "x".repeat(1 << 20)), QueryEffect::Reads);
    check_effect("comments", format!("select 1 {}", "/* x */".repeat(100_000)), QueryEffect::Reads);
    check_effect("nested comments", format!("select 1 {}", nested("/* ", "", "*/ ", 100_000)), QueryEffect::Reads);
    check_effect("rulers", format!("select 1 {}", "\n-- --------------------------------".repeat(20_000)), QueryEffect::Reads);
}

#[test]
fn long_runs_of_operator_characters_are_not_scanned() {
    // Each of these would take the scanner minutes.
    for run in [nested("/*", "", "*/", 1_000_000), "/*".repeat(1_000_000), "+".repeat(1_000_000), "@-/".repeat(1_000_000)] {
        let facts = check_effect("run", format!("select 1 {run} 2"), QueryEffect::Refused);
        assert_eq!(facts.state.keeps, StateKinds::of(StateKind::Unread));
    }
    check_effect("run in a string", format!("select '{}'", "-".repeat(1_000_000)), QueryEffect::Reads);
}

#[test]
fn long_chains_of_queries_are_read() {
    check_effect("union", format!("select a from t{}", " union all select a from t".repeat(20_000)), QueryEffect::Reads);
    check_effect("join", format!("select a from t{}", " cross join t".repeat(50_000)), QueryEffect::Reads);
    let union = check_effect("union values", format!("select 1{}", " union select 1".repeat(50_000)), QueryEffect::Reads);
    assert_eq!(union.state.keeps, StateKinds::NONE);
    let ctes: Vec<String> = (0..20_000).map(|n| format!("c{n} as (select 1 from t{n})")).collect();
    let facts = check_effect("with", format!("with {} select 1 from c19999", ctes.join(",")), QueryEffect::Reads);
    assert_eq!(facts.named.relations.len(), 20_000);
}

#[test]
fn what_postgresql_finds_too_deep_is_refused() {
    for (name, text) in [
        ("parentheses", nested("(", "1", ")", 1_000_000)),
        ("subselect", nested("(select ", "1", ")", 10_000)),
        ("from", nested("(select a from ", "t", ") x", 10_000)),
        ("case", nested("case when a then ", "1", " end", 10_000)),
        ("array", nested("array[", "1", "]", 10_000)),
        ("call", nested("f(", "1", ")", 10_000)),
        ("not", nested("not ", "a", "", 100_000)),
        ("minus", nested("- ", "a", "", 100_000)),
        ("in", nested("a in (select ", "1", ")", 10_000)),
        ("exists", nested("exists (select ", "1", ")", 10_000)),
        ("json", nested("json_object('a': ", "1", ")", 10_000)),
    ] {
        check_effect(name, format!("select {text}"), QueryEffect::Refused);
    }
    check_effect("with", nested("with a as (", "select 1", ") select 1", 10_000), QueryEffect::Refused);
    check_effect("open parentheses", format!("select {}", "(".repeat(1_000_000)), QueryEffect::Refused);
}

#[test]
fn deep_nesting_that_postgresql_takes_is_read() {
    for (name, text) in [
        ("parentheses", nested("(", "1", ")", 1_500)),
        ("subselect", nested("(select ", "1", ")", 1_500)),
        ("from", format!("a from {}", nested("(select a from ", "t", ") x", 1_500))),
        ("case", nested("case when a then ", "1", " end", 1_500)),
        ("array", nested("array[", "1", "]", 1_500)),
        ("call", nested("f(", "1", ")", 1_500)),
        ("not", nested("not ", "a", "", 5_000)),
        ("minus", nested("- ", "a", "", 5_000)),
    ] {
        check_effect(name, format!("select {text}"), QueryEffect::Reads);
    }
}

#[test]
fn text_that_cannot_be_looked_at_may_have_left_anything() {
    let too_long = check_effect("too long", format!("select '{}'", "x".repeat(TEXT_BYTES_MAX)), QueryEffect::Refused);
    assert_eq!(too_long.state.keeps, StateKinds::of(StateKind::Unread));
    let facts = weir_sql::facts(b"select a from \xff");
    assert_eq!((facts.effect, facts.state.keeps), (QueryEffect::Refused, StateKinds::of(StateKind::Unread)));
    let facts = weir_sql::facts(b"select 1\0; set a = 1");
    assert_eq!((facts.effect, facts.state.keeps), (QueryEffect::Refused, StateKinds::of(StateKind::Unread)));
}

#[test]
fn terms_of_shard_keys_of_large_texts_are_read_or_refused() {
    let count = 50_000;
    for (text, is_read) in [
        (format!("select * from t where id = 1{}", " and id = 1".repeat(count)), false),
        (format!("select * from t where id = 1{}", " and x > 1".repeat(count)), true),
        (format!("select * from t where id = 1{}", " or id = 1".repeat(count)), true),
        (format!("select 1{}", "+1".repeat(count)), true),
        (format!("select 1{}", " union select 1".repeat(1_000)), false),
        (format!("select * from t{}", " join t using (id)".repeat(1_000)), false),
        (format!("select * from t{}", ", t".repeat(count)), false),
        (nested("select (", "select 1", ")", 300), false),
        (format!("insert into t values (1, 2){}", ", (1, 2)".repeat(count)), false),
        (format!("insert into t values (1, 2){}", ", (1, 2)".repeat(5_000)), true),
        (format!("with {} select 1", (0..1_000).map(|n| format!("c{n} as (select 1)")).collect::<Vec<_>>().join(", ")), false),
    ] {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let begin = text.chars().take(60).collect::<String>();
        let terms = thread.spawn(move || weir_sql::key_terms(&text).is_ok()).expect("a thread starts");
        assert_eq!(terms.join().expect("no text panics"), is_read, "{begin}");
    }
}
