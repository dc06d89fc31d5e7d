//! Random SELECTs over tables of three shards: through Weir, by the shard or the engine it finds, and on one server with all rows.
//!
//! Queries and tables are those that the engine's decision is tested with (`crates/shard/tests/engine_servers`).

#[path = "../../../shard/tests/engine_servers/grammar.rs"]
mod grammar;
#[path = "../../../shard/tests/engine_servers/tables.rs"]
mod tables;

use crate::dice::Dice;
use crate::support::Raw;
use crate::support::spread::{Answer, How, Spread, ask};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tables::{FIXED, REFERENCE, REFERENCE_ROWS, SETTINGS, TABLES};

/// Statements when nothing else is asked for.
const STATEMENTS: u64 = 800;
/// On a busy machine so many are enough.
const STATEMENTS_MIN: u64 = 100;
const TIME_MAX: Duration = Duration::from_secs(20);
/// So many of a hundred must be answered, or nothing is proven.
const ANSWERED_PERCENT_MIN: u64 = 60;

#[test]
fn selects_over_shards() {
    let spread = ground();
    let (mut direct, mut through) = (spread.direct(), spread.client());
    [&mut direct, &mut through].into_iter().for_each(|client| SETTINGS.split("; ").for_each(|set| client.run(set)));
    for text in FIXED {
        let query = grammar::Query { text: (*text).to_owned(), is_ordered: false };
        let expected = answer(&mut direct, How::Extended, &query);
        let got = answer(&mut through, How::Extended, &query);
        assert!(
            got == expected || got.failure.as_deref() == Some("0A000"),
            "{text}\n  one server {expected:?}\n  through    {got:?}"
        );
    }
    let rounds = crate::number_of("WEIR_ROUNDS").map_or(STATEMENTS, |rounds| rounds * 100);
    let seed = crate::first_seed();
    let mut dice = Dice::new(seed);
    let (mut made, mut refused, mut outcomes) = (0, 0, BTreeMap::<String, u64>::new());
    let begin = Instant::now();
    for _ in 0..rounds {
        if made >= STATEMENTS_MIN && rounds <= STATEMENTS && begin.elapsed() > TIME_MAX {
            break;
        }
        let query = grammar::query(&mut dice);
        made += 1;
        let how = if dice.once_in(2) { How::Simple } else { How::Extended };
        let got = answer(&mut through, how, &query);
        if got.failure.as_deref() == Some("0A000") {
            refused += 1;
            continue;
        }
        let expected = answer(&mut direct, how, &query);
        assert!(
            got == expected,
            "WEIR_SEED={seed}, statement {made}, {how:?}: {}\n  one server {expected:?}\n  through    {got:?}",
            query.text
        );
        *outcomes.entry(expected.failure.unwrap_or_else(|| "ok".to_owned())).or_default() += 1;
    }
    eprintln!("{made} SELECTs over shards in {:?}: {refused} refused, outcomes {outcomes:?}", begin.elapsed());
    assert!((made - refused) * 100 >= made * ANSWERED_PERCENT_MIN, "{refused} of {made} were refused");
    assert!(outcomes["ok"] * 10 >= (made - refused) * 8, "{outcomes:?}");
}

fn ground() -> Spread {
    let spread = Spread::start("");
    for (name, columns, _, rows) in TABLES {
        spread.define(&format!("create table {name} ({columns})"));
        spread.whole().query(&format!("insert into {name} {rows}")).unwrap();
    }
    spread.define(&format!("create table countries ({REFERENCE}); insert into countries {REFERENCE_ROWS}"));
    spread.reference(&["countries"]);
    for (name, _, key, _) in TABLES {
        spread.shard(name, key, if *name == "items" { "--with public.orders" } else { "" });
    }
    spread.fill(&TABLES.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    spread.make_ready("select count(*) from orders");
    spread
}

/// Rows without an order come in one of their own, those before an error hang on the plan. `1.50` is `1.5`: which of equal values stands for a group is open.
fn answer(client: &mut Raw, how: How, query: &grammar::Query) -> Answer {
    let mut answer = ask(client, how, &query.text, &[]);
    if answer.failure.is_some() {
        answer.rows.clear();
    }
    answer.rows.iter_mut().flatten().flatten().for_each(tables::shorten);
    if query.is_ordered { answer } else { answer.sorted() }
}
