//! Random SELECTs on one server with all rows, and on an engine whose tables are the shards' by postgres_fdw: rows and SQLSTATE are equal.
//!
//! Only those that `engine_takes` and the catalog of the server accept count. `WEIR_SEED` chooses other statements, `WEIR_ROUNDS` their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "one_shard_servers/dice.rs"]
mod dice;
#[path = "engine_servers/grammar.rs"]
mod grammar;
#[path = "engine_servers/tables.rs"]
mod tables;

use dice::Dice;
use grammar::Query;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::{FIXED, REFERENCE, REFERENCE_ROWS, SETTINGS, TABLES, shorten};
use weir_catalog::{Catalog, CatalogDraft, LookupUser, PARTS, SearchPath, StatementNames, UsedNames};
use weir_config::Config;
use weir_demo::{Cluster, Options, Row, Server, Sql, SqlError};
use weir_shard::{KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardedTable, engine_takes};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms;

/// Statements that are made; most of them must be the engine's, or nothing is proven.
const ROUNDS: u64 = 1_500;
const ACCEPTED_PERCENT_MIN: u64 = 60;
/// On a busy machine so many are enough.
const ACCEPTED_MIN: u64 = 100;
const TIME_MAX: Duration = Duration::from_secs(12);
const FIXED_SEED: u64 = 20_261_130;
const SHARDS: usize = 3;

struct Stage {
    tables: BTreeMap<&'static str, Arc<ShardedTable>>,
    catalog: Catalog,
    path: SearchPath,
    whole: Sql,
    engine: Sql,
    _cluster: Cluster,
}

/// Its key and columns are looked at, not its map.
fn table(columns: &str, key: &str) -> Arc<ShardedTable> {
    let bound = PartitionBound::of_text(KeyKind::Int4, "FOR VALUES WITH (modulus 1, remainder 0)").unwrap();
    Arc::new(ShardedTable {
        key: key.to_owned(),
        kind: KeyKind::Int4,
        order: KeyOrder::Known,
        modifier: -1,
        map: PartitionMap::new(KeyKind::Int4, KeyOrder::Known, &[bound]).unwrap(),
        shards: vec![0],
        columns: columns.split(", ").map(|column| column.split(' ').next().unwrap().to_owned()).collect(),
        draws_keys: false,
        colocation: 0,
    })
}

/// The tables of the engine. Rows that are written to them go to their shards.
fn engine_text(server: &Server) -> String {
    let mut text = "create extension postgres_fdw;".to_owned();
    let (host, port) = (server.socket_dir().display(), server.port());
    for shard in 0..SHARDS {
        let options = format!("host '{host}', port '{port}', dbname 's{shard}', fetch_size '10000'");
        text += &format!("create server s{shard} foreign data wrapper postgres_fdw options ({options});");
        text += &format!("create user mapping for public server s{shard} options (user 'postgres', password_required 'false');");
    }
    for (name, columns, key, _) in TABLES {
        text += &format!("create table {name} ({columns}) partition by hash ({key});");
        for shard in 0..SHARDS {
            text += &format!(
                "create foreign table {name}_{shard} partition of {name} for values with (modulus {SHARDS}, remainder {shard}) \
                 server s{shard} options (table_name '{name}');"
            );
        }
    }
    text += &format!("create foreign table countries ({REFERENCE}) server s1 options (table_name 'countries')");
    text
}

fn catalog(sql: &mut Sql) -> Catalog {
    let mut draft = CatalogDraft::new(usize::MAX);
    sql.query("set search_path = pg_catalog").unwrap();
    for (number, part) in PARTS.iter().enumerate() {
        for row in sql.query(part.sql).unwrap() {
            let cells: Vec<Option<&[u8]>> = row.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect();
            draft.row(number, &cells).unwrap();
        }
    }
    sql.query("reset search_path").unwrap();
    draft.finish(&Config::default().routing)
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
        for shard in 0..SHARDS {
            let mut shard = connect(&format!("s{shard}"));
            for (name, columns, ..) in TABLES {
                shard.query(&format!("create table {name} ({columns})")).unwrap();
            }
            shard.query(&format!("create table countries ({REFERENCE}); insert into countries {REFERENCE_ROWS}")).unwrap();
        }
        let mut engine = connect("engine");
        engine.query(&engine_text(server)).unwrap();
        for (name, columns, _, rows) in TABLES {
            whole.query(&format!("create table {name} ({columns}); insert into {name} {rows}")).unwrap();
            engine.query(&format!("insert into {name} {rows}")).unwrap();
        }
        whole.query(&format!("create table countries ({REFERENCE}); insert into countries {REFERENCE_ROWS}")).unwrap();
        for shard in 0..SHARDS {
            let rows = engine.query(&format!("select from orders_{shard} limit 1")).unwrap();
            assert_eq!(rows.len(), 1, "shard {shard} has rows");
        }
        engine.query("analyze").unwrap();
        engine.query("set enable_partitionwise_join = on; set enable_partitionwise_aggregate = on; set jit = off").unwrap();
        [&mut whole, &mut engine].into_iter().for_each(|sql| drop(sql.query(SETTINGS).unwrap()));
        let catalog = catalog(&mut whole);
        let path = catalog.path(&LookupUser { user: "postgres", has_role: false }, Some("\"$user\", public"));
        let tables = TABLES.iter().map(|(name, columns, key, _)| (*name, table(columns, key))).collect();
        Stage { tables, catalog, path, whole, engine, _cluster: cluster }
    }

    fn accepts(&self, text: &str) -> bool {
        let lookup = |name: &QualifiedName| match self.tables.get(name.name.as_str()) {
            Some(table) => RelationKind::Sharded(table),
            None if name.name == "countries" => RelationKind::Reference,
            None => RelationKind::Single,
        };
        let terms = key_terms(text).unwrap();
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap_or_default();
        let used = UsedNames { operators: &terms.operators, collations: &terms.collations };
        let stranger = self.catalog.engine_stranger(&names, used, &self.path);
        assert_eq!(stranger, None, "all names are PostgreSQL's own: {text}");
        engine_takes(&terms, lookup).is_ok()
    }
}

/// The SQLSTATE of a statement that took longer than `statement_timeout`.
const TIMED_OUT: &str = "57014";

/// Rows, or the SQLSTATE.
type Answer = Result<Vec<Row>, String>;

/// Rows that are not ordered come in an order of their own. `1.50` is `1.5`: which of equal values stands for a group is open.
fn answer(sql: &mut Sql, query: &Query) -> Answer {
    let mut rows = sql.query(&query.text).map_err(|error| error.downcast::<SqlError>().unwrap().sqlstate)?;
    rows.iter_mut().flatten().flatten().for_each(shorten);
    if !query.is_ordered {
        rows.sort();
    }
    Ok(rows)
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn values_of_each_type_and_errors_are_those_of_one_server() {
    let mut stage = Stage::new();
    let mut wrong = Vec::new();
    for text in FIXED {
        assert!(stage.accepts(text), "{text}");
        let query = Query { text: (*text).to_owned(), is_ordered: false };
        let (whole, engine) = (answer(&mut stage.whole, &query), answer(&mut stage.engine, &query));
        if whole != engine {
            wrong.push(format!("{text}\n  one server: {whole:?}\n  the engine: {engine:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A join of two tables of one server, cut there, of which PostgreSQL 17 and 18 forget the part of WHERE that has no column.
const GATED: [(&str, &str); 4] = [
    ("", "not exists (select from orders)"),
    ("", "a.id = (select min(id) from countries) and a.id = (select max(id) from countries)"),
    ("(1)", "$1 = 2"),
    ("(1, 2)", "a.id = $1 and a.id = $2"),
];

#[test]
fn joins_whose_condition_a_server_forgets_are_refused() {
    let mut stage = Stage::new();
    let forgets =
        stage.whole.query("select from pg_settings where name = 'server_version_num' and setting::int >= 170000").unwrap().len()
            == 1;
    stage.engine.query("set plan_cache_mode = force_generic_plan").unwrap();
    for (number, (values, condition)) in GATED.into_iter().enumerate() {
        let text = format!(
            "select a.id from countries a left join countries b on a.id = b.id, orders o where {condition} order by 1 limit 4"
        );
        assert!(!stage.accepts(&text), "{text}");
        let text = text.replace(", orders o", "");
        let prepare = format!("prepare p{number} as {text}");
        let rows = |sql: &mut Sql| {
            sql.query(&prepare).unwrap();
            sql.query(&format!("execute p{number}{values}")).unwrap().len()
        };
        let (whole, engine) = (rows(&mut stage.whole), rows(&mut stage.engine));
        assert!(whole == 0 && (engine == 0 || forgets), "{text}: {engine} rows");
    }
}

#[test]
fn what_the_engine_takes_has_the_answer_of_one_server() {
    let seed = number("WEIR_SEED", FIXED_SEED);
    println!("WEIR_SEED={seed}");
    let mut dice = Dice::new(seed);
    let mut stage = Stage::new();
    let begin = Instant::now();
    let rounds = number("WEIR_ROUNDS", ROUNDS);
    let (mut made, mut accepted, mut errors, mut rows, mut ordered, mut slow) = (0, 0, BTreeMap::<String, u64>::new(), 0, 0, 0);
    for _ in 0..rounds {
        if begin.elapsed() > TIME_MAX && accepted >= ACCEPTED_MIN && rounds <= ROUNDS {
            break;
        }
        let query = grammar::query(&mut dice);
        made += 1;
        if !stage.accepts(&query.text) {
            continue;
        }
        accepted += 1;
        let whole = answer(&mut stage.whole, &query);
        let engine = answer(&mut stage.engine, &query);
        if [&whole, &engine].into_iter().any(|answer| answer.as_ref().is_err_and(|sqlstate| sqlstate == TIMED_OUT)) {
            slow += 1;
            continue;
        }
        assert!(
            whole == engine,
            "WEIR_SEED={seed}, statement {made}: {}\n  one server: {whole:?}\n  the engine: {engine:?}",
            query.text
        );
        match whole {
            Ok(found) => {
                rows += u64::from(!found.is_empty());
                ordered += u64::from(query.is_ordered && found.len() > 1);
            }
            Err(sqlstate) => *errors.entry(sqlstate).or_default() += 1,
        }
    }
    let time_ms = begin.elapsed().as_millis();
    println!(
        "{made} statements in {time_ms} ms: {accepted} of the engine, {rows} with rows, {ordered} in order; errors {errors:?}"
    );
    let failed: u64 = errors.values().sum();
    assert!(accepted * 100 >= made * ACCEPTED_PERCENT_MIN, "{accepted} of {made} statements are the engine's");
    assert!(slow * 20 < accepted, "{slow} of {accepted} were too slow");
    assert!(failed * 10 < accepted && rows * 2 > accepted, "{failed} errors, {rows} with rows, of {accepted}");
}
