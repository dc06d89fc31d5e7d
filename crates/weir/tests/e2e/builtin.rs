//! The lists of PostgreSQL's own objects (`catalog/src/builtin.rs`, `sql/src/leaves.rs`), held against the server under test.

use crate::support::Ground;
use crate::support::left_out::leave_out;
use crate::support::raw::{Failure, Raw};
use std::collections::BTreeMap;
use weir_catalog::builtin::{
    is_alike_in_databases, is_standard_operator, leaves_nothing, may_run_on_standby, reads_types, runs_text,
};
use weir_catalog::{Catalog, CatalogDraft, LookupUser, PARTS, StatementNames, UsedNames};
use weir_config::Config;
use weir_sql::leaves::left_by_function;

/// Every volatile function of versions 13 to 18, its subject (`reads` may run on a standby, the others may not), and what it leaves.
const VOLATILE: &str = include_str!("../../../catalog/tests/builtin_volatile.txt");

/// Volatile functions of the extensions that come with PostgreSQL.
const CONTRIBUTED: &str = include_str!("../../../catalog/tests/contrib_volatile.txt");

/// Functions that a query can call: one row for each overload. `direct` counts the arguments of an ordered-set aggregate that stand
/// before `WITHIN GROUP`.
const CALLABLE: &str = "select p.proname, p.provolatile, p.prokind, coalesce(a.aggkind, ''), coalesce(a.aggnumdirectargs, 0),
       array_to_string(array(select format_type(t, null) from unnest(p.proargtypes::oid[]) with ordinality u (t, at) order by at), '|')
from pg_proc p left join pg_aggregate a on a.aggfnoid = p.oid
where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind <> 'p' and p.oid < 16384
  and not p.proargtypes::oid[] && array['internal', 'cstring']::regtype[]::oid[]
  and p.prorettype <> all (array['internal', 'cstring', 'trigger', 'event_trigger', 'language_handler', 'fdw_handler',
                                 'index_am_handler', 'table_am_handler', 'tsm_handler']::regtype[])
order by p.proname, p.oid";

/// Steady functions whose answer is another one at another moment, or tells which server was asked. Each single answer is
/// right.
const OF_THE_MOMENT: &[&str] = &["inet_server_addr", "inet_server_port", "now", "statement_timestamp", "transaction_timestamp"];

/// Answers that need no arguments of a kind nobody can make up: so many calls of a hundred must come to an answer.
const ANSWERED_PERCENT_MIN: usize = 60;

struct Function {
    name: String,
    is_volatile: bool,
    kind: char,
    /// Kind of an aggregate: ordinary, ordered-set or hypothetical.
    aggregate: String,
    direct: usize,
    arguments: Vec<String>,
}

fn callable(ground: &Ground) -> Vec<Function> {
    let rows = ground.direct().rows(CALLABLE);
    let function = |row: Vec<String>| Function {
        name: row[0].clone(),
        is_volatile: row[1] == "v",
        kind: row[2].chars().next().unwrap(),
        aggregate: row[3].clone(),
        direct: row[4].parse().unwrap(),
        arguments: row[5].split('|').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
    };
    rows.into_iter().map(function).collect()
}

/// A function of a list: its subject, and what it leaves behind its transaction.
struct Listed {
    class: &'static str,
    left: Option<&'static str>,
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Volatile functions by their names.
fn listed() -> BTreeMap<&'static str, Listed> {
    let one = |line: &'static str| {
        let (class, rest) = line.split_once(' ').unwrap_or_else(|| panic!("not `class name`: {line}"));
        let (name, left) = rest.split_once(" > ").map_or((rest, None), |(name, left)| (name, Some(left)));
        (name, Listed { class, left })
    };
    lines(VOLATILE).map(one).collect()
}

#[test]
fn every_volatile_function_is_classed_and_the_list_holds_those_that_read() {
    let ground = Ground::new();
    let listed = listed();
    let mut wrong = Vec::new();
    for function in callable(&ground).iter().filter(|function| function.is_volatile) {
        let name = function.name.as_str();
        match listed.get(name) {
            None => wrong.push(format!("{name} is in no class: what does it do?")),
            Some(Listed { class, .. }) if (*class == "reads") != may_run_on_standby(name) => {
                wrong.push(format!("{name} is of class {class}, and may run on a standby: {}", may_run_on_standby(name)));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A name alone, such as `pg_`, says nothing: each function is on the list, or the server is asked about it.
#[test]
fn what_each_function_leaves_on_its_session_is_known() {
    let ground = Ground::new();
    let listed = listed();
    let mut wrong = Vec::new();
    for function in callable(&ground) {
        let name = function.name.as_str();
        let known = (left_by_function(name).map(|kind| kind.name()), leaves_nothing(name), runs_text(name));
        let is_right = match (function.is_volatile, listed.get(name)) {
            // A stable one changes nothing; it may run code.
            (false, None) => leaves_nothing(name) || runs_text(name) || reads_types(name),
            (true, None) => false,
            (_, Some(Listed { left: None | Some("sequence value"), .. })) => known == (None, true, false),
            (_, Some(Listed { left: Some("text"), .. })) => known == (None, false, true),
            (_, Some(Listed { left: Some("asked"), .. })) => known == (None, false, false),
            (_, Some(Listed { left: Some(kind), .. })) => known.0 == Some(kind) && !known.2,
        };
        if !is_right {
            wrong.push(format!("{name}: {known:?}"));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_functions_of_contributed_extensions_leave_is_known() {
    let ground = Ground::new();
    let mut client = ground.direct();
    let available = client.rows("select name from pg_available_extensions").concat();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in lines(CONTRIBUTED) {
        let (extension, functions) = line.split_once(':').unwrap_or_else(|| panic!("not `extension: functions`: {line}"));
        if !available.iter().any(|name| name == extension) {
            continue;
        }
        count += 1;
        client.run(&format!("begin; create extension if not exists \"{extension}\" cascade"));
        let functions: BTreeMap<&str, Option<&str>> = functions
            .split_ascii_whitespace()
            .map(|function| function.split_once('>').map_or((function, None), |(name, left)| (name, Some(left))))
            .collect();
        let rows = client.rows(&format!(
            "select distinct proname from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
             where d.refobjid = (select oid from pg_extension where extname = '{extension}') and provolatile = 'v'
               and not proargtypes::oid[] && array['internal']::regtype[]::oid[]
               and prorettype <> all (array['internal', 'trigger', 'event_trigger', 'fdw_handler', 'index_am_handler', 'table_am_handler',
                                            'tsm_handler']::regtype[])"
        ));
        client.run("rollback");
        for name in rows.concat() {
            let known = left_by_function(&name).map(|kind| kind.name());
            match functions.get(name.as_str()) {
                None => wrong.push(format!("{extension}: {name} is not listed: what does it leave?")),
                Some(left) if *left != known => wrong.push(format!("{extension}: {name} is known to leave {known:?}")),
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if count == 0 {
        leave_out("the extensions that come with PostgreSQL are not installed");
    }
}

#[test]
fn operators_that_count_as_standard_run_no_volatile_function() {
    let ground = Ground::new();
    let rows = ground.direct().rows(
        "select o.oprname, bool_or(p.provolatile = 'v') from pg_operator o join pg_proc p on p.oid = o.oprcode
         where o.oprnamespace = 'pg_catalog'::regnamespace and o.oid < 16384 group by 1",
    );
    assert!(rows.len() > 60, "{} operators", rows.len());
    let wrong: Vec<&String> =
        rows.iter().filter(|row| row[1] == "t" && is_standard_operator(&row[0])).map(|row| &row[0]).collect();
    assert!(wrong.is_empty(), "{wrong:?} run something volatile");
}

/// Each is called with arguments made up by their types, on the primary and on a standby. There it must say the same: the answer, or why
/// the arguments are wrong; and on the primary it must not take a number for a transaction, which every write does.
#[test]
fn what_may_run_on_a_standby_writes_nothing_and_says_the_same_there() {
    let ground = Ground::new();
    ground.prepare("create type kind as enum ('one', 'two')");
    let (mut primary, mut standby) = (ground.direct(), ground.direct_to(&ground.cluster.standbys()[0]));
    for client in [&mut primary, &mut standby] {
        client.run("set statement_timeout = '20s'; set client_min_messages = error; set timezone = 'UTC'");
    }
    assert!(takes_a_number(&mut primary.try_rows(&format!("select lo_creat(-1); {NUMBER}"))), "what writes is noticed");
    let (mut wrong, mut calls, mut answers) = (Vec::new(), 0, 0);
    for function in callable(&ground).iter().filter(|function| may_run_on_standby(&function.name)) {
        let call = call(function);
        let mut on_primary = primary.try_rows(&format!("{call}; {NUMBER}"));
        if takes_a_number(&mut on_primary) {
            wrong.push(format!("{call} writes"));
        }
        let on_standby = standby.try_rows(&call);
        (calls, answers) = (calls + 1, answers + usize::from(on_primary.is_ok()));
        let is_of_the_moment = function.is_volatile || OF_THE_MOMENT.contains(&function.name.as_str());
        if outcome(&on_primary, is_of_the_moment) != outcome(&on_standby, is_of_the_moment) {
            wrong.push(format!("{call}: {on_primary:?} on the primary, {on_standby:?} on a standby"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(calls > 1500 && answers * 100 >= calls * ANSWERED_PERCENT_MIN, "{answers} of {calls} calls came to an answer");
}

/// Functions that the engine may not call, since they answer otherwise in another database.
const DIFFERING: &[&str] = &["current_database", "hashenum", "to_tsvector"];

/// A database of the server, as its catalogs say.
fn catalog(client: &mut Raw) -> Catalog {
    let mut draft = CatalogDraft::new(usize::MAX);
    for (number, part) in PARTS.iter().enumerate() {
        for row in client.try_rows(part.sql).unwrap() {
            let cells: Vec<Option<&[u8]>> = row.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect();
            draft.row(number, &cells).unwrap();
        }
    }
    draft.finish(&Config::default().routing)
}

/// The engine of sharded tables is another database of the same server. Each function that statements of the engine may call is called in two
/// databases, whose objects have other numbers and definitions.
#[test]
fn what_the_engine_may_call_answers_alike_in_each_database_of_a_server() {
    let (ground, other) = (Ground::new(), Ground::new());
    let (mut here, mut there) = (ground.direct(), other.direct());
    here.run("create type kind as enum ('one', 'two')");
    there.run(
        "create type pad as enum ('x', 'y'); create type kind as enum ('one', 'two');
         create text search dictionary other (template = simple, stopwords = english);
         alter text search configuration simple alter mapping for asciiword, word with other;
         comment on table pg_class is 'a table'; create schema a",
    );
    for client in [&mut here, &mut there] {
        client.run("set statement_timeout = '20s'; set client_min_messages = error; set timezone = 'Europe/Berlin'; set datestyle = 'German'");
    }
    let catalog = catalog(&mut here);
    let path = catalog.path(&LookupUser { user: "postgres", has_role: false }, Some("public"));
    let is_taken = |name: &str| {
        let names = StatementNames::of(&weir_sql::facts(format!("select \"{name}\"()").as_bytes())).unwrap();
        catalog.engine_stranger(&names, UsedNames { operators: &[], collations: &[] }, &path).is_none()
    };
    let differs = |here: &mut Raw, there: &mut Raw, function: &Function| {
        let is_of_the_moment = function.is_volatile || OF_THE_MOMENT.contains(&function.name.as_str());
        let call = call(function);
        let (one, two) = (here.try_rows(&call), there.try_rows(&call));
        let is_other = outcome(&one, is_of_the_moment) != outcome(&two, is_of_the_moment);
        is_other.then(|| format!("{call}: {one:?} here, {two:?} there"))
    };
    let (mut wrong, mut taken, mut told) = (Vec::new(), 0, BTreeMap::new());
    for function in callable(&ground) {
        let name = function.name.as_str();
        if is_taken(name) {
            taken += 1;
            wrong.extend(differs(&mut here, &mut there, &function));
        } else if DIFFERING.contains(&name) {
            *told.entry(name.to_owned()).or_insert(false) |= differs(&mut here, &mut there, &function).is_some();
        }
        if is_alike_in_databases(name) && !is_taken(name) {
            wrong.push(format!("{name} is listed, and not taken"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(taken > 1300, "{taken} functions are taken");
    for name in DIFFERING {
        assert_eq!(told.get(*name), Some(&true), "{name} is refused, and the databases would answer otherwise: {told:?}");
    }
    here.run("drop type kind");
    there.run(
        "drop schema a; comment on table pg_class is null; alter text search configuration simple alter mapping for asciiword, word with simple;
         drop text search dictionary other; drop type kind, pad",
    );
}

/// The transaction's number, if it has one.
const NUMBER: &str = "select pg_current_xact_id_if_assigned()";

/// True if the last row, which is the answer to `NUMBER` and is taken off, shows a number.
fn takes_a_number(answer: &mut Answer) -> bool {
    answer.as_mut().is_ok_and(|rows| rows.pop() != Some(vec![None]))
}

type Answer = Result<Vec<Vec<Option<String>>>, Failure>;

/// The part of an answer that must be the same on both servers: rows, or the SQLSTATE.
fn outcome(answer: &Answer, is_of_the_moment: bool) -> String {
    match answer {
        Ok(_) if is_of_the_moment => "rows".into(),
        Ok(rows) => format!("{rows:?}"),
        Err(failure) => failure.sqlstate.clone(),
    }
}

fn call(function: &Function) -> String {
    let arguments: Vec<String> = function.arguments.iter().enumerate().map(|(at, kind)| made_up(kind, at)).collect();
    let name = format!("pg_catalog.\"{}\"", function.name);
    if matches!(function.aggregate.as_str(), "o" | "h") {
        let (direct, ordered) = arguments.split_at(function.direct.min(arguments.len()));
        let ordered = if ordered.is_empty() { direct } else { ordered };
        return format!("select {name}({}) within group (order by {})", direct.join(", "), ordered.join(", "));
    }
    let over = if function.kind == 'w' { " over ()" } else { "" };
    let is_star = function.kind == 'a' && arguments.is_empty();
    let arguments = if is_star { "*".to_owned() } else { arguments.join(", ") };
    format!("select {name}({arguments}){over}")
}

/// A value of a type as a constant. `at`: small numbers rise from one argument to the next, so that ranges of them are short.
fn made_up(kind: &str, at: usize) -> String {
    let number = at + 1;
    let text = match kind {
        "smallint"
        | "integer"
        | "bigint"
        | "money"
        | "xid"
        | "xid8"
        | "cid"
        | "bit"
        | "anyelement"
        | "anycompatible"
        | "anynonarray"
        | "anycompatiblenonarray" => format!("{number}"),
        "numeric" | "real" | "double precision" => format!("0.{number}"),
        _ => fixed(kind).to_owned(),
    };
    let kind = match kind {
        "anyelement" | "anycompatible" | "anynonarray" | "anycompatiblenonarray" => "integer",
        "anyarray" | "anycompatiblearray" => "integer[]",
        "anyrange" | "anycompatiblerange" => "int4range",
        "anymultirange" | "anycompatiblemultirange" => "int4multirange",
        "anyenum" => "kind",
        "\"any\"" | "unknown" => "text",
        "record" => return "row(1, 2)".into(),
        "record[]" => return "array[row(1, 2)]".into(),
        named => named,
    };
    if text.is_empty() { format!("null::{kind}") } else { format!("'{text}'::{kind}") }
}

/// The value of a type that is always the same; empty if there is none.
fn fixed(kind: &str) -> &'static str {
    match kind {
        "text" | "character varying" | "character" | "name" | "\"char\"" | "\"any\"" | "unknown" => "a",
        "bytea" => "\\x0102",
        "boolean" => "t",
        "date" => "2024-02-03",
        "timestamp without time zone" | "timestamp with time zone" => "2024-02-03 04:05:06",
        "time without time zone" | "time with time zone" => "04:05:06",
        "interval" => "00:00:00.01",
        "json" | "jsonb" => "{\"a\": 1}",
        "jsonpath" => "$.a",
        "oid" | "regclass" => "1259",
        "regproc" | "regprocedure" => "1299",
        "regtype" => "23",
        "regrole" => "10",
        "regnamespace" => "11",
        "regconfig" => "simple",
        "regdictionary" => "simple",
        "inet" | "cidr" => "10.0.0.1",
        "macaddr" => "08:00:2b:01:02:03",
        "macaddr8" => "08:00:2b:01:02:03:04:05",
        "point" => "(1,2)",
        "line" => "{1,2,3}",
        "lseg" => "[(1,2),(3,4)]",
        "box" => "(1,2),(3,4)",
        "path" => "[(1,2),(3,4)]",
        "polygon" => "((1,2),(3,4),(5,6))",
        "circle" => "<(1,2),3>",
        "bit varying" => "101",
        "tsvector" => "a b",
        "tsquery" => "a & b",
        "uuid" => "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "xml" => "<a/>",
        "tid" => "(0,1)",
        "pg_lsn" => "0/1",
        "aclitem" => "postgres=r/postgres",
        "aclitem[]" => "{postgres=r/postgres}",
        "oidvector" | "int2vector" => "1 2",
        "anyenum" => "one",
        "int4range" | "int8range" | "numrange" | "anyrange" | "anycompatiblerange" => "[1,3)",
        "int4multirange" | "int8multirange" | "nummultirange" | "anymultirange" | "anycompatiblemultirange" => "{[1,3)}",
        "daterange" | "tsrange" | "tstzrange" => "[2024-02-03,2024-02-05)",
        "datemultirange" | "tsmultirange" | "tstzmultirange" => "{[2024-02-03,2024-02-05)}",
        "anyarray" | "anycompatiblearray" => "{1,2}",
        "text[]" | "name[]" | "character varying[]" => "{a,b}",
        array if array.ends_with("[]") => "{1,2}",
        _ => "",
    }
}
