//! The 22 queries of TPC-H over three shards: each answer is that of one server with all rows.

#[path = "../../../../bench/tpch/tpch.rs"]
mod definition;

use crate::support::spread::{How, Spread, ask};
use std::time::{Duration, Instant};

const SUPPLIERS: u32 = 100;

fn ground() -> Spread {
    let spread = Spread::start("");
    spread.define(definition::SCHEMA);
    spread.whole().query(&definition::rows(SUPPLIERS)).unwrap();
    spread.whole().query("analyze").unwrap();
    spread.fill_first(definition::REFERENCE);
    spread.reference(definition::REFERENCE);
    for (table, key, beside) in definition::SHARDED {
        spread.shard(table, key, &beside.map_or(String::new(), |other| format!("--with public.{other}")));
    }
    spread.fill(&definition::SHARDED.iter().map(|(table, ..)| *table).collect::<Vec<_>>());
    spread.make_ready("select count(*) from lineitem");
    spread
}

#[test]
fn the_queries_of_tpc_h_have_the_answers_of_one_server() {
    let spread = ground();
    let (mut through, mut direct) = (spread.client(), spread.direct());
    let (mut time_through, mut time_direct) = (Duration::ZERO, Duration::ZERO);
    let queries = definition::queries();
    assert_eq!(queries.len(), 22);
    let mut wrong = Vec::new();
    for (number, text) in (1..).zip(&queries) {
        for how in [How::Simple, How::Extended] {
            // Its subquery asks all shards for each of 8,000 rows: once is enough.
            if number == 20 && how == How::Extended {
                continue;
            }
            let begin = Instant::now();
            let expected = ask(&mut direct, how, text, &[]);
            time_direct += begin.elapsed();
            assert!(expected.rows.iter().flatten().flatten().next().is_some(), "query {number} finds nothing: {expected:?}");
            let begin = Instant::now();
            let got = ask(&mut through, how, text, &[]);
            time_through += begin.elapsed();
            // Rows are compared in their order: the data have no ties where an order leaves some open.
            if got != expected {
                wrong.push(format!("query {number}, {how:?}\n  one server {expected:?}\n  through {got:?}"));
            }
        }
    }
    println!("the 22 queries twice: one server {time_direct:?}, three shards {time_through:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
