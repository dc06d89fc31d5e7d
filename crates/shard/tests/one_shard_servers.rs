//! Random statements on one server with all rows, and on the shard that the plan names: rows, SQLSTATE and what a write leaves are equal.
//!
//! The rows of the database `whole` are spread over `s0`, `s1` and `s2` by the map. Statements are made of joins, outer joins, subqueries, CTEs, set
//! operations, literals and parameters, so that many of them do not fix their keys; those that the plan accepts must give what one server gives.
//! `WEIR_SEED` chooses other statements, `WEIR_ROUNDS` their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "one_shard_servers/dice.rs"]
mod dice;
#[path = "one_shard_servers/grammar.rs"]
mod grammar;

use dice::Dice;
use grammar::Statement;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_demo::{Cluster, Options, Row, Sql, SqlError};
use weir_shard::{
    BoundValue, KeyKind, KeyOrder, PartitionBound, PartitionMap, PartitionPlace, RelationKind, ShardPlan, ShardedTable,
    ValueFormat, plan,
};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms;
use weir_sql::literal::literal_at;

/// Statements that are made; so many of a hundred must be one shard's, or nothing is proven.
const ROUNDS: u64 = 4_000;
const ACCEPTED_PERCENT_MIN: u64 = 15;
/// On a busy machine so many are enough.
const ACCEPTED_MIN: u64 = 200;
const TIME_MAX: Duration = Duration::from_secs(12);
const FIXED_SEED: u64 = 20_261_129;
const SHARDS: usize = 3;

/// Name, definition of the columns, key, and the rows as a query over `i`.
const TABLES: &[(&str, &str, KeyKind, &str, &str)] = &[
    ("t", "id int, x int, name text", KeyKind::Int4, "id", "select i / 2, i % 4, chr(97 + i % 3) from generate_series(0, 19) i"),
    ("u", "id int8, t_id int, y int", KeyKind::Int8, "id", "select i, i % 5, nullif(i % 4, 3) from generate_series(-2, 11) i"),
    ("w", "v int, k int", KeyKind::Int4, "k", "select i % 3, i / 2 from generate_series(0, 15) i"),
    ("s", "k text, v int", KeyKind::Text, "k", "select chr(97 + i % 8), i % 5 from generate_series(0, 11) i"),
    // Has rows without a key.
    ("n", "id int, x int", KeyKind::Int4, "id", "select nullif(i % 7, 6), i % 3 from generate_series(0, 13) i"),
];
/// On every shard.
const REFERENCE: &str = "create table ref (id int, a int);
    insert into ref select i, nullif(i % 4, 2) from generate_series(0, 7) i";
/// On shard 0.
const SINGLE: &str = "create table h (id int, b int); insert into h select i, i % 3 from generate_series(0, 5) i";

struct Stage {
    tables: BTreeMap<&'static str, Arc<ShardedTable>>,
    whole: Sql,
    shards: Vec<Sql>,
    _cluster: Cluster,
}

fn table(columns: &str, kind: KeyKind, key: &str) -> Arc<ShardedTable> {
    let bound = |at| PartitionBound::of_text(kind, &format!("FOR VALUES WITH (modulus {SHARDS}, remainder {at})")).unwrap();
    let bounds: Vec<PartitionBound> = (0..SHARDS).map(bound).collect();
    Arc::new(ShardedTable {
        key: key.to_owned(),
        kind,
        order: KeyOrder::ByCollation,
        modifier: -1,
        map: PartitionMap::new(kind, KeyOrder::ByCollation, &bounds).unwrap(),
        shards: (0..SHARDS as u16).collect(),
        columns: columns.split(", ").map(|column| column.split(' ').next().unwrap().to_owned()).collect(),
        draws_keys: false,
        colocation: 0,
    })
}

/// The shard of a row, by the text of its key.
fn shard_of(table: &ShardedTable, row: &Row) -> usize {
    let at = table.columns.iter().position(|name| *name == table.key).unwrap();
    let value = row[at].as_deref().map_or(weir_shard::KeyValue::Null, |text| table.kind.of_text(text).unwrap());
    match table.map.place_of(&value) {
        PartitionPlace::At(at) => at,
        PartitionPlace::Nowhere => panic!("{row:?} has no place"),
    }
}

impl Stage {
    fn new() -> Stage {
        let cluster = Cluster::start(Options::default()).unwrap();
        let server = cluster.primary();
        let connect = |database: &str| {
            server.query(&format!("create database {database}")).unwrap();
            server.connect("postgres", database).unwrap()
        };
        let mut whole = connect("whole");
        let mut shards: Vec<Sql> = (0..SHARDS).map(|shard| connect(&format!("s{shard}"))).collect();
        let mut tables = BTreeMap::new();
        for (name, columns, kind, key, rows) in TABLES {
            let sharded = table(columns, *kind, key);
            let create = format!("create table {name} ({columns})");
            whole.query(&format!("{create}; insert into {name} {rows}")).unwrap();
            shards.iter_mut().for_each(|shard| drop(shard.query(&create).unwrap()));
            for row in whole.query(&format!("table {name}")).unwrap() {
                let quoted = row.iter().map(|value| value.as_ref().map_or("null".to_owned(), |value| format!("'{value}'")));
                let values = quoted.collect::<Vec<_>>().join(", ");
                shards[shard_of(&sharded, &row)].query(&format!("insert into {name} values ({values})")).unwrap();
            }
            tables.insert(*name, sharded);
        }
        for sql in shards.iter_mut().chain([&mut whole]) {
            sql.query(REFERENCE).unwrap();
        }
        whole.query(SINGLE).unwrap();
        shards[0].query(SINGLE).unwrap();
        Stage { tables, whole, shards, _cluster: cluster }
    }

    /// The shard of a statement; nothing if the plan refuses it, or it is no sharded one.
    fn shard(&self, statement: &Statement) -> Option<usize> {
        let lookup = |name: &QualifiedName| match self.tables.get(name.name.as_str()) {
            Some(table) => RelationKind::Sharded(table),
            None if name.name == "ref" => RelationKind::Reference,
            None => RelationKind::Single,
        };
        let plan = plan(&key_terms(&statement.text).ok()?, lookup).ok()?;
        let ShardPlan::OneShard(_) = plan else { return None };
        let bound = |number: u32| {
            let value = statement.parameters.get(number as usize - 1)?;
            Some(BoundValue { type_oid: 0, format: ValueFormat::Text, bytes: value.as_deref().map(str::as_bytes) })
        };
        plan.shard(|ordinal| literal_at(statement.text.as_bytes(), ordinal), bound).ok().map(usize::from)
    }

    /// The answers of one server and of the shard; the rows of all tables behind a write are looked at as well.
    fn compare(&mut self, statement: &Statement, shard: usize) -> Result<Answer, String> {
        let whole = outcome(&mut self.whole, statement);
        let part = outcome(&mut self.shards[shard], statement);
        let check = |what: &str, whole: &Answer, part: &Answer| match whole == part {
            true => Ok(()),
            false => Err(format!("{what}\n  one server: {whole:?}\n  shard {shard}: {part:?}")),
        };
        check("the answer", &whole.answer, &part.answer)?;
        for (at, (name, ..)) in TABLES.iter().enumerate() {
            let Some((all, on_shard)) = whole.left.get(at).zip(part.left.get(at)) else { continue };
            let table = &self.tables[name];
            let of_shard: Vec<Row> = all.iter().filter(|row| shard_of(table, row) == shard).cloned().collect();
            check(name, &Ok(of_shard), &Ok(on_shard.clone()))?;
            let elsewhere = all.len() - on_shard.len();
            let untouched: usize = (0..SHARDS).filter(|other| *other != shard).map(|other| self.count(other, name)).sum();
            if elsewhere != untouched {
                return Err(format!("{name}: {elsewhere} rows of other shards, {untouched} before"));
            }
        }
        Ok(whole.answer)
    }

    fn count(&mut self, shard: usize, table: &str) -> usize {
        let rows = self.shards[shard].query(&format!("select count(*) from {table}")).unwrap();
        rows[0][0].as_ref().unwrap().parse().unwrap()
    }
}

/// Rows in an order of their own, or the SQLSTATE.
type Answer = Result<Vec<Row>, String>;

struct Outcome {
    answer: Answer,
    /// Rows of each of `TABLES` after a write.
    left: Vec<Vec<Row>>,
}

fn answer(sql: &mut Sql, text: &str) -> Answer {
    let mut rows = sql.query(text).map_err(|error| error.downcast::<SqlError>().unwrap().sqlstate)?;
    rows.sort();
    Ok(rows)
}

/// Runs the statement in a transaction that leaves nothing. With parameters it is prepared first, so that the server finds their types.
fn outcome(sql: &mut Sql, statement: &Statement) -> Outcome {
    sql.query("begin").unwrap();
    let text = match statement.parameters.is_empty() {
        true => statement.text.clone(),
        false => {
            let value = |value: &Option<String>| value.as_ref().map_or("null".to_owned(), |value| format!("'{value}'"));
            let values: Vec<String> = statement.parameters.iter().map(value).collect();
            format!("prepare p as {}; execute p ({})", statement.text, values.join(", "))
        }
    };
    let answer = answer(sql, &text);
    let mut left = Vec::new();
    if answer.is_ok() && statement.writes {
        for (name, ..) in TABLES {
            let mut rows = sql.query(&format!("table {name}")).unwrap();
            rows.sort();
            left.push(rows);
        }
    }
    sql.query("rollback; deallocate all").unwrap();
    Outcome { answer, left }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_a_plan_accepts_has_the_answer_of_one_server() {
    let seed = number("WEIR_SEED", FIXED_SEED);
    println!("WEIR_SEED={seed}");
    let mut dice = Dice::new(seed);
    let mut stage = Stage::new();
    let begin = Instant::now();
    let (mut made, mut accepted, mut errors, mut rows) = (0, 0, 0, 0);
    for _ in 0..number("WEIR_ROUNDS", ROUNDS) {
        if begin.elapsed() > TIME_MAX && accepted >= ACCEPTED_MIN {
            break;
        }
        let statement = grammar::statement(&mut dice);
        made += 1;
        let Some(shard) = stage.shard(&statement) else { continue };
        accepted += 1;
        match stage.compare(&statement, shard) {
            Ok(Ok(found)) => rows += u64::from(!found.is_empty()),
            Ok(Err(_)) => errors += 1,
            Err(difference) => {
                let Statement { text, parameters, .. } = &statement;
                panic!("WEIR_SEED={seed}, statement {made}: {text}\n  parameters {parameters:?}\n{difference}");
            }
        }
    }
    let time_ms = begin.elapsed().as_millis();
    println!("{made} statements in {time_ms} ms: {accepted} of one shard, {rows} of them with rows, {errors} with an error");
    assert!(accepted * 100 >= made * ACCEPTED_PERCENT_MIN, "{accepted} of {made} statements are one shard's");
    assert!(errors * 5 < accepted && rows * 3 > accepted, "{errors} errors, {rows} with rows, of {accepted}");
}
