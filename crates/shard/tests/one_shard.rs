//! Statements and the shard that each of them belongs to, or the reason why it belongs to none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use weir_shard::{
    BoundValue, KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardPlan, ShardedTable, ValueFormat, plan,
};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms;
use weir_sql::literal::literal_at;

/// Three shards: below 10 or 'h', below 20 or 'p', the rest.
fn table(key: &str, kind: KeyKind, columns: &[&str]) -> Arc<ShardedTable> {
    let (low, high) = match kind {
        KeyKind::Text | KeyKind::Bpchar | KeyKind::Name => ("'h'", "'p'"),
        KeyKind::Date => ("'2010-01-01'", "'2020-01-01'"),
        KeyKind::Bool => return list_table(key, columns),
        _ => ("10", "20"),
    };
    let bounds = [
        format!("FOR VALUES FROM (MINVALUE) TO ({low})"),
        format!("FOR VALUES FROM ({low}) TO ({high})"),
        format!("FOR VALUES FROM ({high}) TO (MAXVALUE)"),
    ];
    of_bounds(key, kind, columns, &bounds)
}

fn list_table(key: &str, columns: &[&str]) -> Arc<ShardedTable> {
    let bounds = ["FOR VALUES IN (false)", "FOR VALUES IN (true)"].map(str::to_owned);
    of_bounds(key, KeyKind::Bool, columns, &bounds)
}

fn of_bounds(key: &str, kind: KeyKind, columns: &[&str], bounds: &[String]) -> Arc<ShardedTable> {
    let bounds: Vec<PartitionBound> = bounds.iter().map(|bound| PartitionBound::of_text(kind, bound).unwrap()).collect();
    Arc::new(ShardedTable {
        key: key.to_owned(),
        kind,
        order: KeyOrder::Known,
        modifier: if key == "short" { 4 + 3 } else { -1 },
        map: PartitionMap::new(kind, KeyOrder::Known, &bounds).unwrap(),
        shards: (0..bounds.len()).map(|at| at as u16).collect(),
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        draws_keys: columns.contains(&"drawn"),
        colocation: 0,
    })
}

/// `t`, `u` and the others named here are sharded; `ref`, `ref2` are reference tables, `view` is unknown, all others lie on shard 0.
fn tables() -> Vec<(&'static str, Arc<ShardedTable>)> {
    vec![
        ("t", table("id", KeyKind::Int4, &["id", "x", "name"])),
        ("u", table("id", KeyKind::Int8, &["id", "t_id", "y"])),
        ("w", table("k", KeyKind::Int4, &["v", "k"])),
        ("texts", table("k", KeyKind::Text, &["k", "v"])),
        ("shorts", table("short", KeyKind::Text, &["short"])),
        ("chars", table("k", KeyKind::Bpchar, &["k", "v"])),
        ("numbers", table("k", KeyKind::Numeric, &["k", "v"])),
        ("floats", table("k", KeyKind::Float8, &["k", "v"])),
        ("days", table("day", KeyKind::Date, &["day", "v"])),
        ("flags", table("k", KeyKind::Bool, &["k", "v"])),
        ("drawn", table("id", KeyKind::Int4, &["id", "drawn"])),
        ("Upper", table("Key", KeyKind::Int4, &["Key", "key"])),
    ]
}

struct Parameter {
    oid: u32,
    format: ValueFormat,
    bytes: Option<Vec<u8>>,
}

fn text(oid: u32, value: &str) -> Parameter {
    Parameter { oid, format: ValueFormat::Text, bytes: Some(value.as_bytes().to_vec()) }
}

fn binary(oid: u32, bytes: &[u8]) -> Parameter {
    Parameter { oid, format: ValueFormat::Binary, bytes: Some(bytes.to_vec()) }
}

fn null(oid: u32) -> Parameter {
    Parameter { oid, format: ValueFormat::Text, bytes: None }
}

/// A shard's number, with `!` where the text needs shard 0; `any`, `elsewhere`, or the name of the refusal.
fn outcome(statement: &str, parameters: &[Parameter]) -> String {
    let tables = tables();
    let lookup = |name: &QualifiedName| match tables.iter().find(|(known, _)| *known == name.name) {
        Some((_, table)) => RelationKind::Sharded(table),
        None if name.name.starts_with("ref") => RelationKind::Reference,
        None if name.name == "view" => RelationKind::Unknown,
        None => RelationKind::Single,
    };
    let terms = match key_terms(statement) {
        Ok(terms) => terms,
        Err(reason) => return format!("{reason:?}"),
    };
    let plan = match plan(&terms, lookup) {
        Ok(plan) => plan,
        Err(refusal) => return refusal.name().to_owned(),
    };
    let bound = |number: u32| {
        let parameter = parameters.get(number as usize - 1)?;
        Some(BoundValue { type_oid: parameter.oid, format: parameter.format, bytes: parameter.bytes.as_deref() })
    };
    let shard = plan.shard(|ordinal| literal_at(statement.as_bytes(), ordinal), bound);
    match (&plan, shard) {
        (ShardPlan::Elsewhere, _) => "elsewhere".to_owned(),
        (ShardPlan::AnyShard, _) => "any".to_owned(),
        (ShardPlan::OneShard(one), Ok(_)) if one.any_of().is_some() => format!("one of {:?}", one.any_of().unwrap()),
        (ShardPlan::OneShard(one), Ok(shard)) => format!("{shard}{}", if one.needs_shard_zero { "!" } else { "" }),
        (ShardPlan::OneShard(_), Err(refusal)) => refusal.name().to_owned(),
    }
}

/// One statement a line, with its outcome behind the last arrow.
fn check(lines: &str) {
    let mut wrong = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (statement, expected) = line.rsplit_once("->").unwrap();
        let found = outcome(statement.trim(), &[]);
        if found != expected.trim() {
            wrong.push_str(&format!("{}\n    expected {}, found {found}\n", statement.trim(), expected.trim()));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_constant_fixes_the_key() {
    check(
        "SELECT * FROM t WHERE id = 5                                            -> 0
         SELECT * FROM t WHERE id = 15                                           -> 1
         SELECT * FROM t WHERE 25 = id                                           -> 2
         SELECT * FROM t WHERE id = -15                                          -> 0
         SELECT * FROM t WHERE id = - ( 15 )                                     -> 0
         SELECT * FROM t WHERE (id = 15) AND x > 3                               -> 1
         SELECT * FROM t WHERE x > 3 AND (x < 9 AND t.id = 15)                   -> 1
         SELECT * FROM public.t WHERE public.t.id = 15                           -> 1
         SELECT * FROM public.t WHERE t.id = 15                                  -> 1
         SELECT * FROM ONLY t WHERE id = 15                                      -> 1
         COPY (SELECT * FROM t WHERE id = 15) TO STDOUT                          -> 1
         COPY ref TO STDOUT                                                      -> any
         SELECT * FROM t AS a WHERE a.id = 15                                    -> 1
         SELECT * FROM t AS a (k, id) WHERE a.k = 15                             -> 1
         SELECT * FROM t AS a (k, id) WHERE a.id = 15                            -> key_not_fixed
         SELECT * FROM t WHERE id IN (15)                                        -> 1
         SELECT * FROM t WHERE id IN (15, 16)                                    -> key_not_fixed
         SELECT * FROM t WHERE id NOT IN (15)                                    -> key_not_fixed
         SELECT * FROM t WHERE id = ANY (ARRAY[15])                              -> 1
         SELECT * FROM t WHERE id = ANY (ARRAY['15'::int])                       -> 1
         SELECT * FROM t WHERE id = ANY (ARRAY['15'])                            -> key_not_fixed
         SELECT * FROM t WHERE id = ANY ('{15}')                                 -> key_not_fixed
         SELECT * FROM t WHERE id = ALL (ARRAY[15])                              -> key_not_fixed
         SELECT * FROM t WHERE (id, x) = (15, 2)                                 -> 1
         SELECT * FROM t WHERE ROW(x, id) = ROW(1, 15)                           -> 1
         SELECT * FROM t WHERE (id, x) <> (15, 2)                                -> key_not_fixed
         SELECT * FROM t WHERE (id, x) < (15, 2)                                 -> key_not_fixed
         SELECT * FROM t WHERE id OPERATOR(pg_catalog.=) 15                      -> 1
         SELECT * FROM t WHERE id OPERATOR(public.=) 15                          -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND id = 16                               -> 1
         SELECT * FROM t WHERE id = 15 AND id = 25                               -> key_of_many_shards
         SELECT * FROM t WHERE id = NULL                                         -> key_not_fixed
         SELECT * FROM t WHERE id = NULL::int                                    -> 0
         SELECT * FROM t WHERE id = 15 AND id = NULL                             -> 1
         SELECT * FROM \"Upper\" WHERE \"Key\" = 15                              -> 1
         SELECT * FROM \"Upper\" WHERE Key = 15                                  -> key_not_fixed
         SELECT * FROM \"Upper\" WHERE \"Upper\".\"Key\" = 15                    -> 1
         TABLE t                                                                 -> key_not_fixed
         EXPLAIN SELECT * FROM t WHERE id = 15                                   -> 1
         EXPLAIN (ANALYZE) DELETE FROM t WHERE id = 15                           -> 1
         DECLARE c CURSOR FOR SELECT * FROM t WHERE id = 15                      -> 1
         SELECT count(*) FROM t WHERE id = 15 GROUP BY x HAVING count(*) > 2 ORDER BY 1 LIMIT 3 -> 1
         SELECT * FROM t WHERE id = 15 FOR UPDATE                                -> 1
         SELECT * FROM t /* comment */ WHERE id = 15                             -> 1
         SELECT * FROM t WHERE id = '15' AND name = E'a\\n'                      -> 1",
    );
}

#[test]
fn a_condition_that_not_every_row_keeps_fixes_nothing() {
    check(
        "SELECT * FROM t                                                         -> key_not_fixed
         SELECT * FROM t WHERE id > 15                                           -> key_not_fixed
         SELECT * FROM t WHERE id BETWEEN 15 AND 15                              -> key_not_fixed
         SELECT * FROM t WHERE id = 15 OR id = 15                                -> key_not_fixed
         SELECT * FROM t WHERE id = 15 OR x = 1                                  -> key_not_fixed
         SELECT * FROM t WHERE NOT id = 15                                       -> key_not_fixed
         SELECT * FROM t WHERE NOT (id = 15 AND x = 1)                           -> key_not_fixed
         SELECT * FROM t WHERE (id = 15) IS NOT TRUE                             -> key_not_fixed
         SELECT * FROM t WHERE id <> 15                                          -> key_not_fixed
         SELECT * FROM t WHERE id IS NOT DISTINCT FROM 15                        -> key_not_fixed
         SELECT * FROM t WHERE id IS NULL                                        -> key_not_fixed
         SELECT * FROM t WHERE id = id                                           -> key_not_fixed
         SELECT * FROM t WHERE x = 15                                            -> key_not_fixed
         SELECT * FROM t WHERE id = x AND x = 15                                 -> key_not_fixed
         SELECT * FROM t WHERE id + 0 = 15                                       -> key_not_fixed
         SELECT * FROM t WHERE id::text = '15'                                   -> key_not_fixed
         SELECT * FROM t WHERE id = 15 + 0                                       -> key_not_fixed
         SELECT * FROM t WHERE id = abs(15)                                      -> key_not_fixed
         SELECT * FROM t WHERE id = (SELECT 15)                                  -> key_not_fixed
         SELECT * FROM t WHERE CASE WHEN id = 15 THEN true END                   -> key_not_fixed
         SELECT * FROM t WHERE coalesce(id = 15, true)                           -> key_not_fixed
         SELECT id = 15 FROM t                                                   -> key_not_fixed
         SELECT id FROM t GROUP BY id HAVING id = 15                             -> key_not_fixed
         SELECT count(*) FILTER (WHERE id = 15) FROM t                           -> key_not_fixed
         SELECT * FROM t ORDER BY id = 15 LIMIT 1                                -> key_not_fixed
         SELECT * FROM t WHERE name LIKE '15'                                    -> key_not_fixed",
    );
}

#[test]
fn values_are_read_as_the_server_reads_them() {
    check(
        "SELECT * FROM t WHERE id = '15'                                         -> 1
         SELECT * FROM t WHERE id = ' 15 '                                       -> 1
         SELECT * FROM t WHERE id = '1_5'                                        -> key_value_unread
         SELECT * FROM t WHERE id = '0x0F'                                       -> key_value_unread
         SELECT * FROM t WHERE id = ''                                           -> key_value_unread
         SELECT * FROM t WHERE id = 15.0                                         -> key_value_unread
         SELECT * FROM t WHERE id = 1.5e1                                        -> key_not_fixed
         SELECT * FROM t WHERE id = 0x0F                                         -> key_not_fixed
         SELECT * FROM t WHERE id = 1_5                                          -> key_not_fixed
         SELECT * FROM t WHERE id = 99999999999                                  -> 2
         SELECT * FROM t WHERE id = -99999999999                                 -> 0
         SELECT * FROM t WHERE id = 99999999999999999999                         -> key_value_unread
         SELECT * FROM t WHERE id = '99999999999'                                -> key_value_unread
         SELECT * FROM u WHERE id = '99999999999'                                -> 2
         SELECT * FROM t WHERE id = '15'::int8                                   -> 1
         SELECT * FROM t WHERE id = 15::smallint                                 -> 1
         SELECT * FROM t WHERE id = 70000::smallint                              -> key_value_unread
         SELECT * FROM t WHERE id = CAST('15' AS integer)                        -> 1
         SELECT * FROM t WHERE id = int '15'                                     -> 1
         SELECT * FROM t WHERE id = '15'::numeric                                -> key_not_fixed
         SELECT * FROM t WHERE id = '15'::mine                                   -> key_not_fixed
         SELECT * FROM t WHERE id = '15'::mine.int4                              -> key_not_fixed
         SELECT * FROM t WHERE id = '15'::int4[]                                 -> key_not_fixed
         SELECT * FROM t WHERE id = true                                         -> key_not_fixed
         SELECT * FROM t WHERE id = B'1'                                         -> key_not_fixed
         SELECT * FROM texts WHERE k = 'i'                                       -> 1
         SELECT * FROM texts WHERE k = 'it''s'                                   -> 1
         SELECT * FROM texts WHERE k = E'\\x69'                                  -> 1
         SELECT * FROM texts WHERE k = $$i$$                                     -> 1
         SELECT * FROM texts WHERE k = 'i'::varchar                              -> 1
         SELECT * FROM texts WHERE k = 'i'::varchar(1)                           -> key_not_fixed
         SELECT * FROM texts WHERE k = 'i'::char(3)                              -> key_not_fixed
         SELECT * FROM texts WHERE k = 'i' COLLATE \"de_DE\"                     -> key_not_fixed
         SELECT * FROM texts WHERE k = 15                                        -> key_not_fixed
         SELECT * FROM texts WHERE k = 'q '                                      -> 2
         SELECT * FROM chars WHERE k = 'i  '                                     -> 1
         SELECT * FROM chars WHERE k = 'i'::text                                 -> key_not_fixed
         SELECT * FROM numbers WHERE k = 15                                      -> 1
         SELECT * FROM numbers WHERE k = 15.50                                   -> 1
         SELECT * FROM numbers WHERE k = -99999999999999999999.5                 -> 0
         SELECT * FROM numbers WHERE k = '15.5'                                  -> 1
         SELECT * FROM numbers WHERE k = 'NaN'                                   -> key_value_unread
         SELECT * FROM floats WHERE k = 15.5                                     -> 1
         SELECT * FROM floats WHERE k = '15.5'                                   -> 1
         SELECT * FROM days WHERE day = '2015-03-01'                             -> 1
         SELECT * FROM days WHERE day = date '2015-03-01'                        -> 1
         SELECT * FROM days WHERE day = '2015-03-01'::timestamp                  -> key_not_fixed
         SELECT * FROM days WHERE day = '01/03/2015'                             -> key_value_unread
         SELECT * FROM days WHERE day = 'today'                                  -> key_value_unread
         SELECT * FROM days WHERE day = current_date                             -> key_not_fixed
         SELECT * FROM flags WHERE k = true                                      -> 1
         SELECT * FROM flags WHERE k = 'no'                                      -> 0
         SELECT * FROM flags WHERE k                                             -> key_not_fixed",
    );
    assert_eq!(outcome("SELECT * FROM texts WHERE k = 'a'\n 'z'", &[]), "key_not_fixed");
}

#[test]
fn joins_on_the_key_carry_the_constant() {
    check(
        "SELECT * FROM t JOIN u ON t.id = u.id WHERE t.id = 15                   -> 1
         SELECT * FROM t JOIN u ON t.id = u.id AND u.id = 15                     -> 1
         SELECT * FROM t, u WHERE t.id = u.id AND 15 = u.id                      -> 1
         SELECT * FROM t, u WHERE t.id = 15                                      -> key_not_fixed
         SELECT * FROM t, u WHERE t.id = 15 AND u.id = 16                        -> 1
         SELECT * FROM t, u WHERE t.id = 15 AND u.id = 25                        -> key_of_many_shards
         SELECT * FROM t, u WHERE t.id = 15 AND u.t_id = t.id                    -> key_not_fixed
         SELECT * FROM t JOIN u ON t.id > u.id WHERE t.id = 15                   -> key_not_fixed
         SELECT * FROM t JOIN u ON t.id = u.id OR true WHERE t.id = 15           -> key_not_fixed
         SELECT * FROM t JOIN u USING (id) WHERE id = 15                         -> 1
         SELECT * FROM t JOIN u USING (id) WHERE u.id = 15                       -> 1
         SELECT * FROM t JOIN u USING (id) JOIN t a USING (id) WHERE id = 15     -> 1
         SELECT * FROM t NATURAL JOIN u WHERE id = 15                            -> 1
         SELECT * FROM t JOIN ref USING (id) WHERE id = 15                       -> key_not_fixed
         SELECT * FROM t JOIN ref USING (id) WHERE t.id = 15                     -> 1
         SELECT * FROM ref JOIN t USING (a) WHERE id = 15                        -> 1
         SELECT * FROM texts JOIN chars USING (k) WHERE k = 'i'                  -> key_not_fixed
         SELECT * FROM t NATURAL JOIN w WHERE id = 15 AND k = 15                 -> 1
         SELECT * FROM t NATURAL JOIN w WHERE id = 15                            -> key_not_fixed
         SELECT * FROM t, u WHERE id = 15                                        -> key_not_fixed
         SELECT * FROM t, w WHERE id = 15 AND k = id                             -> 1
         SELECT * FROM t, texts WHERE t.id = 15 AND texts.k = t.name             -> key_not_fixed
         SELECT * FROM t, numbers n WHERE t.id = 15 AND n.k = t.id               -> key_not_fixed
         SELECT * FROM t a, t b, t c WHERE a.id = b.id AND b.id = c.id AND c.id = 15 -> 1
         SELECT * FROM t a JOIN (u b JOIN w c ON b.id = c.k) ON a.id = c.k WHERE b.id = 15 -> 1
         SELECT * FROM t a, t a WHERE a.id = 15                                  -> key_not_fixed
         SELECT * FROM (t JOIN u ON t.id = u.id AND t.id = 15) AS j              -> 1
         SELECT * FROM (t JOIN u ON t.id = u.id) AS j WHERE t.id = 15            -> key_not_fixed
         SELECT * FROM t CROSS JOIN u WHERE (t.id, u.id) = (15, 15)              -> 1",
    );
}

#[test]
fn outer_joins_fix_only_what_they_filter() {
    check(
        "SELECT * FROM t LEFT JOIN u ON t.id = u.id WHERE t.id = 15              -> 1
         SELECT * FROM t LEFT JOIN u ON t.id = u.id AND t.id = 15                -> key_not_fixed
         SELECT * FROM t LEFT JOIN u ON t.id = u.id AND u.id = 15                -> key_not_fixed
         SELECT * FROM t LEFT JOIN u ON t.id = u.id WHERE u.id = 15              -> 1
         SELECT * FROM t LEFT JOIN u ON u.id = 15 WHERE t.id = 15                -> 1
         SELECT * FROM t LEFT JOIN u ON u.id = 25 WHERE t.id = 15                -> key_of_many_shards
         SELECT * FROM t LEFT JOIN u ON true WHERE t.id = 15 AND u.id = 15       -> 1
         SELECT * FROM t LEFT JOIN u ON true WHERE t.id = 15                     -> key_not_fixed
         SELECT * FROM t LEFT JOIN u ON t.id = u.id WHERE u.id = 15 OR u.id IS NULL -> key_not_fixed
         SELECT * FROM t RIGHT JOIN u ON t.id = u.id WHERE u.id = 15             -> 1
         SELECT * FROM t RIGHT JOIN u ON t.id = u.id WHERE t.id = 15             -> 1
         SELECT * FROM t RIGHT JOIN u ON t.id = u.id AND u.id = 15               -> key_not_fixed
         SELECT * FROM t FULL JOIN u ON t.id = u.id WHERE t.id = 15              -> 1
         SELECT * FROM t FULL JOIN u ON t.id = u.id AND t.id = 15 AND u.id = 15  -> key_not_fixed
         SELECT * FROM t FULL JOIN u ON t.id = u.id                              -> key_not_fixed
         SELECT * FROM t FULL JOIN u ON true WHERE t.id = 15 AND u.id = 15       -> 1
         SELECT * FROM t LEFT JOIN u USING (id) WHERE id = 15                    -> key_not_fixed
         SELECT * FROM t LEFT JOIN u USING (id) WHERE t.id = 15                  -> 1
         SELECT * FROM t FULL JOIN u USING (id) WHERE id = 15                    -> key_not_fixed
         SELECT * FROM t NATURAL LEFT JOIN u WHERE t.id = 15                     -> 1
         SELECT * FROM ref LEFT JOIN t USING (id) WHERE id = 15                  -> key_not_fixed
         SELECT * FROM ref LEFT JOIN t ON t.id = 15                              -> 1
         SELECT * FROM t LEFT JOIN ref ON t.id = 15                              -> key_not_fixed
         SELECT * FROM t a LEFT JOIN u b ON b.id = a.id LEFT JOIN w c ON c.k = b.id WHERE a.id = 15 -> 1
         SELECT * FROM t a LEFT JOIN u b ON b.id = 15 LEFT JOIN w c ON c.k = b.id WHERE a.id = 15 -> 1
         SELECT * FROM t a LEFT JOIN (u b JOIN w c ON b.id = c.k) ON a.id = b.id WHERE a.id = 15 -> 1
         SELECT * FROM t a LEFT JOIN (u b LEFT JOIN w c ON b.id = c.k) ON a.id = b.id WHERE c.k = 15 -> 1
         SELECT * FROM t a LEFT JOIN (u b LEFT JOIN w c ON b.id = c.k AND b.id = 15) ON true WHERE a.id = 15 -> key_not_fixed
         SELECT * FROM t a LEFT JOIN u b ON b.id = a.id JOIN w c ON c.k = b.id WHERE c.k = 15 -> 1
         SELECT * FROM (t a LEFT JOIN u b ON b.id = 15) FULL JOIN w c ON c.k = b.id WHERE a.id = 15 -> 1",
    );
}

#[test]
fn subqueries_are_fixed_by_their_own_or_by_what_is_around_them() {
    check(
        "SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM u WHERE u.id = t.id)  -> 1
         SELECT * FROM t WHERE id = 15 AND NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id) -> 1
         SELECT * FROM t WHERE id = 15 OR EXISTS (SELECT 1 FROM u WHERE u.id = t.id)   -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM u WHERE id = t.id)    -> 1
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM u WHERE id = id)      -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM w WHERE k = id)       -> 1
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM w, ref WHERE k = id)  -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM ref WHERE id = 15)    -> 1
         SELECT * FROM ref WHERE EXISTS (SELECT 1 FROM ref2, t WHERE id = 15)          -> 1
         SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND t.id = 15) -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM t WHERE t.id = t.id)  -> key_not_fixed
         SELECT * FROM t WHERE t.id = 15 AND EXISTS (SELECT 1 FROM u t WHERE t.id = 15) -> 1
         SELECT * FROM u WHERE u.id = 15 AND EXISTS (SELECT 1 FROM t u WHERE u.id = u.id) -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND x IN (SELECT y FROM u)                      -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND x IN (SELECT y FROM u WHERE id = 16)        -> 1
         SELECT (SELECT max(y) FROM u WHERE u.id = t.id) FROM t WHERE id = 15          -> 1
         SELECT (SELECT max(y) FROM u WHERE u.id = t.id) FROM t                        -> key_not_fixed
         SELECT (SELECT y FROM u WHERE u.id = b.id) FROM t a LEFT JOIN t b ON b.id = a.id WHERE a.id = 15 -> 1
         SELECT (SELECT y FROM u WHERE u.id = 15)                                      -> 1
         SELECT * FROM (SELECT * FROM t) d WHERE d.id = 15                             -> 1
         SELECT * FROM (SELECT * FROM t) d WHERE id = 15                               -> 1
         SELECT * FROM (SELECT id AS x, x AS id FROM t) d WHERE d.x = 15               -> 1
         SELECT * FROM (SELECT id AS x, x AS id FROM t) d WHERE d.id = 15              -> key_not_fixed
         SELECT * FROM (SELECT * FROM t) d (a, b) WHERE a = 15                         -> 1
         SELECT * FROM (SELECT * FROM t) d (x, id) WHERE id = 15                       -> key_not_fixed
         SELECT * FROM (SELECT id, count(*) FROM t GROUP BY id) d WHERE id = 15        -> key_not_fixed
         SELECT * FROM (SELECT * FROM t ORDER BY x LIMIT 1) d WHERE id = 15            -> key_not_fixed
         SELECT * FROM (SELECT * FROM t OFFSET 1) d WHERE id = 15                      -> key_not_fixed
         SELECT * FROM (SELECT DISTINCT ON (x) * FROM t) d WHERE id = 15               -> key_not_fixed
         SELECT * FROM (SELECT id, row_number() OVER () FROM t) d WHERE id = 15        -> key_not_fixed
         SELECT * FROM (SELECT id, count(*) FROM t WHERE id = 15 GROUP BY id) d        -> 1
         SELECT * FROM (SELECT id, count(*) FROM t WHERE id = 15 GROUP BY id) d JOIN u ON u.id = d.id -> 1
         SELECT * FROM (SELECT x AS id, count(*) FROM t WHERE id = 15 GROUP BY x) d JOIN u ON u.id = d.id -> key_not_fixed
         SELECT * FROM (SELECT t.id FROM t LEFT JOIN u ON u.id = t.id) d WHERE d.id = 15 -> 1
         SELECT * FROM (SELECT u.id FROM t LEFT JOIN u ON u.id = t.id) d WHERE d.id = 15 -> 1
         SELECT * FROM (SELECT u.id FROM t LEFT JOIN u ON u.id = 15) d JOIN w ON w.k = d.id -> key_not_fixed
         SELECT * FROM (SELECT u.id FROM ref LEFT JOIN u ON u.id = 15) d LEFT JOIN w ON w.k = d.id -> 1
         SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.id = t.id LIMIT 1) d WHERE t.id = 15 -> 1
         SELECT * FROM t, LATERAL (SELECT count(*) FROM u WHERE u.id = t.id) d WHERE t.id = 15 -> 1
         SELECT * FROM t LEFT JOIN LATERAL (SELECT count(*) FROM u WHERE u.id = t.id) d ON true WHERE t.id = 15 -> 1
         SELECT * FROM t LEFT JOIN LATERAL (SELECT count(*) FROM u WHERE u.id = t.id) d ON t.id = 15 -> key_not_fixed
         SELECT * FROM ref, t, (SELECT * FROM u WHERE u.id = t.id) d WHERE t.id = 15   -> key_not_fixed
         SELECT * FROM t WHERE id = 15 AND EXISTS (SELECT 1 FROM (SELECT * FROM u WHERE u.id = t.id LIMIT 1) d) -> 1
         SELECT * FROM t WHERE x = ALL (SELECT y FROM u WHERE u.id = 15) AND id = 16   -> 1
         SELECT * FROM t JOIN u ON u.id = t.id AND EXISTS (SELECT 1 FROM w WHERE w.k = t.id) WHERE t.id = 15 -> 1
         SELECT * FROM t WHERE id = 15 ORDER BY (SELECT y FROM u WHERE u.id = t.id)    -> 1
         SELECT * FROM t WHERE id = 15 LIMIT (SELECT count(*) FROM u)                  -> key_not_fixed
         SELECT * FROM generate_series(1, (SELECT count(*) FROM t)) g                  -> key_not_fixed
         SELECT * FROM t, generate_series(1, t.x) g WHERE t.id = 15                    -> 1
         SELECT * FROM t, generate_series(1, 3) WHERE id = 15                          -> 1
         SELECT ARRAY(SELECT y FROM u WHERE id = 15)                                   -> 1",
    );
}

#[test]
fn ctes_and_set_operations_need_every_branch_fixed() {
    check(
        "WITH c AS (SELECT * FROM t WHERE id = 15) SELECT * FROM c                     -> 1
         WITH c AS (SELECT * FROM t) SELECT * FROM c WHERE id = 15                     -> key_not_fixed
         WITH c AS (SELECT * FROM t WHERE id = 15) SELECT * FROM c JOIN u ON u.id = c.id -> 1
         WITH c (k) AS (SELECT id FROM t WHERE id = 15) SELECT * FROM c JOIN u ON u.id = c.k -> 1
         WITH c (k) AS (SELECT id FROM t WHERE id = 15) SELECT * FROM c a, c b, u WHERE u.id = b.k -> 1
         WITH c AS (SELECT * FROM t WHERE id = 15) SELECT * FROM c, u                  -> key_not_fixed
         WITH t AS (SELECT * FROM ref) SELECT * FROM t                                 -> any
         WITH t AS (SELECT * FROM t) SELECT * FROM t WHERE id = 15                     -> key_not_fixed
         WITH c AS (SELECT * FROM t WHERE id = 15), d AS (SELECT * FROM c) SELECT * FROM d JOIN u USING (id) -> 1
         WITH c AS (SELECT 1) SELECT * FROM public.c, t WHERE t.id = 5                 -> 0!
         WITH c AS (SELECT * FROM t) SELECT 1                                          -> key_not_fixed
         WITH RECURSIVE c AS (SELECT id FROM t WHERE id = 15 UNION ALL SELECT t.id FROM t, c WHERE t.id = c.id) SELECT * FROM c -> key_not_fixed
         WITH RECURSIVE c AS (SELECT id FROM t WHERE id = 15 UNION ALL SELECT t.id FROM t, c WHERE t.id = c.id AND t.id = 16) SELECT * FROM c -> 1
         WITH RECURSIVE c AS (SELECT * FROM c JOIN t USING (id)) SELECT * FROM c       -> key_not_fixed
         WITH c AS (UPDATE t SET x = 1 WHERE id = 15 RETURNING *) SELECT * FROM c      -> 1
         WITH c AS (UPDATE t SET x = 1 RETURNING *) SELECT * FROM u WHERE id = 15      -> key_not_fixed
         WITH c AS (DELETE FROM t WHERE id = 15 RETURNING *) SELECT * FROM c JOIN u ON u.id = c.id -> key_not_fixed
         WITH c AS (DELETE FROM t WHERE id = 15 RETURNING *) INSERT INTO u VALUES (15, 1, 1) -> 1
         WITH c AS (DELETE FROM t WHERE id = 15 RETURNING *) INSERT INTO u SELECT id, 1, 1 FROM c -> insert_from_query
         WITH c AS (INSERT INTO t VALUES (15, 1, 'a') RETURNING *) SELECT * FROM c     -> 1
         WITH c AS (INSERT INTO ref VALUES (15)) SELECT * FROM t WHERE id = 15         -> writes_reference
         SELECT id FROM t WHERE id = 15 UNION SELECT id FROM u WHERE id = 16           -> 1
         SELECT id FROM t WHERE id = 15 UNION ALL SELECT id FROM u                     -> key_not_fixed
         SELECT id FROM t WHERE id = 15 EXCEPT SELECT id FROM u WHERE id = 25          -> key_of_many_shards
         (SELECT id FROM t WHERE id = 15 LIMIT 1) INTERSECT (SELECT 15)                -> 1
         SELECT * FROM (SELECT id FROM t UNION SELECT id FROM u) d WHERE id = 15       -> key_not_fixed
         SELECT * FROM (SELECT id FROM t WHERE id = 15 UNION SELECT id FROM u WHERE id = 15) d JOIN w ON w.k = d.id -> key_not_fixed
         SELECT * FROM (VALUES (15)) v (id) JOIN t ON t.id = v.id                      -> key_not_fixed
         VALUES ((SELECT x FROM t WHERE id = 15))                                      -> 1
         SELECT * FROM t WHERE id = 15 UNION SELECT 1, 2, name FROM ref ORDER BY 1     -> 1",
    );
}

#[test]
fn writes_name_the_key_of_every_row() {
    check(
        "INSERT INTO t VALUES (15, 1, 'a')                                       -> 1
         INSERT INTO t (x, id) VALUES (1, 15)                                    -> 1
         INSERT INTO t AS a (x, id) VALUES (1, '15')                             -> 1
         INSERT INTO t VALUES (15), (16)                                         -> 1
         INSERT INTO t VALUES (15), (25)                                         -> key_of_many_shards
         INSERT INTO t (x) VALUES (1)                                            -> key_not_given
         INSERT INTO t VALUES (DEFAULT, 1)                                       -> key_not_given
         INSERT INTO w VALUES (1)                                                -> key_not_given
         INSERT INTO t DEFAULT VALUES                                            -> key_not_given
         INSERT INTO t VALUES (15 + 0)                                           -> key_computed
         INSERT INTO t VALUES ((SELECT 15))                                      -> key_computed
         INSERT INTO t VALUES (15), (nextval('s'))                               -> key_computed
         INSERT INTO t VALUES (15, (SELECT y FROM u WHERE id = 16))              -> 1
         INSERT INTO t VALUES (15, (SELECT y FROM u))                            -> key_not_fixed
         INSERT INTO t VALUES (15, (SELECT count(*) FROM ref))                   -> 1
         INSERT INTO t VALUES (NULL)                                             -> no_partition
         INSERT INTO t VALUES (15.4)                                             -> key_value_unread
         INSERT INTO t VALUES (99999999999)                                      -> key_value_unread
         INSERT INTO t VALUES ('15'::int8)                                       -> 1
         INSERT INTO t VALUES ('15'::text)                                       -> key_type_unknown
         INSERT INTO shorts VALUES ('iii')                                       -> 1
         INSERT INTO shorts VALUES ('iii ')                                      -> key_value_unread
         INSERT INTO t OVERRIDING USER VALUE VALUES (15)                         -> key_overridden
         INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (15)                       -> 1
         INSERT INTO t SELECT 15, 1, 'a'                                         -> insert_from_query
         INSERT INTO t SELECT * FROM t WHERE id = 15                             -> insert_from_query
         INSERT INTO t VALUES (15) LIMIT 1                                       -> insert_from_query
         INSERT INTO t VALUES (15) ON CONFLICT DO NOTHING                        -> 1
         INSERT INTO t VALUES (15) ON CONFLICT (id) DO UPDATE SET x = excluded.x -> 1
         INSERT INTO t VALUES (15) ON CONFLICT (id) DO UPDATE SET id = 16        -> key_changed
         INSERT INTO t VALUES (15) ON CONFLICT (id) DO UPDATE SET (x, id) = (1, 16) -> key_changed
         INSERT INTO t VALUES (15) RETURNING *                                   -> 1
         INSERT INTO t VALUES (15) RETURNING (SELECT y FROM u WHERE u.id = t.id) -> key_not_fixed
         INSERT INTO t VALUES (15) RETURNING ctid                                -> system_columns
         INSERT INTO single SELECT * FROM t WHERE id = 5                         -> 0!
         INSERT INTO single SELECT * FROM t WHERE id = 15                        -> not_on_shard_zero
         UPDATE t SET x = 1 WHERE id = 15                                        -> 1
         UPDATE t a SET x = 1 WHERE a.id = 15                                    -> 1
         UPDATE t SET x = 1                                                      -> key_not_fixed
         UPDATE t SET id = 15 WHERE id = 15                                      -> key_changed
         UPDATE t SET (x, id) = (1, 15) WHERE id = 15                            -> key_changed
         UPDATE t SET x = u.y FROM u WHERE u.id = t.id AND t.id = 15             -> 1
         UPDATE t SET x = u.y FROM u WHERE t.id = 15                             -> key_not_fixed
         UPDATE t SET x = (SELECT y FROM u WHERE u.id = t.id) WHERE id = 15      -> 1
         UPDATE w SET v = 16 WHERE k = 15 RETURNING (SELECT y FROM u WHERE u.id = w.k) -> key_not_fixed
         UPDATE t SET x = 1 WHERE CURRENT OF c                                   -> at_cursor
         UPDATE ref SET x = 1                                                    -> writes_reference
         UPDATE ref SET x = t.x FROM t WHERE t.id = 15                           -> writes_reference
         UPDATE single SET x = t.x FROM t WHERE t.id = 15                        -> not_on_shard_zero
         DELETE FROM t WHERE id = 15                                             -> 1
         DELETE FROM t USING u WHERE t.id = u.id AND u.id = 15                   -> 1
         DELETE FROM t USING ref WHERE t.id = 15 AND ref.a = t.x                 -> 1
         DELETE FROM t USING u WHERE t.id = 15                                   -> key_not_fixed
         DELETE FROM t                                                           -> key_not_fixed",
    );
}

#[test]
fn what_no_shard_can_do_alone_is_refused_by_its_name() {
    check(
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE            -> merge
         MERGE INTO single USING single2 s ON true WHEN MATCHED THEN DELETE      -> elsewhere
         COPY t FROM STDIN                                                       -> copy
         COPY t TO STDOUT                                                        -> key_not_fixed
         COPY (SELECT * FROM t WHERE id = 15) TO '/tmp/t'                        -> copy
         COPY (DELETE FROM t WHERE id = 15 RETURNING id) TO STDOUT               -> copy
         COPY ref FROM STDIN                                                     -> writes_reference
         COPY single FROM STDIN                                                  -> elsewhere
         TRUNCATE single, t                                                      -> truncate
         ALTER TABLE t ADD y int                                                 -> definition
         DROP TABLE t                                                            -> definition
         CREATE INDEX ON t (x)                                                   -> definition
         CREATE TABLE kid () INHERITS (t)                                        -> definition
         CREATE VIEW v AS SELECT * FROM t                                        -> definition
         CREATE TABLE c AS SELECT * FROM t WHERE id = 15                         -> definition
         SELECT * INTO c FROM t WHERE id = 15                                    -> definition
         LOCK TABLE t                                                            -> utility
         VACUUM t                                                                -> definition
         PREPARE p AS SELECT * FROM t WHERE id = 15                              -> utility
         SELECT * FROM t TABLESAMPLE system (10) WHERE id = 15                   -> samples
         SELECT ctid FROM t WHERE id = 15                                        -> system_columns
         SELECT * FROM t WHERE id = 15 AND t.tableoid = 1                        -> system_columns
         SELECT (t).xmin FROM t WHERE id = 15                                    -> system_columns
         SELECT 't'::regclass::oid FROM t WHERE id = 15                          -> object_numbers
         SELECT * FROM view                                                      -> unknown_relation
         SELECT * FROM view, t WHERE t.id = 15                                   -> unknown_relation
         SELECT 1; SELECT 2                                                      -> NotOneStatement
         SELEC                                                                   -> Unparsed",
    );
    assert_eq!(outcome("", &[]), "NotOneStatement");
}

#[test]
fn tables_that_are_not_sharded_have_their_own_places() {
    check(
        "SELECT * FROM single                                                    -> elsewhere
         SELECT 1                                                                -> elsewhere
         SELECT * FROM ref                                                       -> any
         SELECT * FROM ref, ref2                                                 -> any
         SELECT * FROM ref FOR UPDATE                                            -> elsewhere
         SELECT ctid FROM ref                                                    -> elsewhere
         SELECT * FROM ref, single                                               -> elsewhere
         INSERT INTO single SELECT * FROM ref                                    -> elsewhere
         SELECT * FROM t JOIN ref ON ref.a = t.x WHERE t.id = 15                 -> 1
         SELECT * FROM t JOIN ref ON ref.a = t.x WHERE t.id = 15 FOR UPDATE      -> not_on_shard_zero
         SELECT * FROM t JOIN ref ON ref.a = t.x WHERE t.id = 5 FOR UPDATE       -> 0!
         SELECT * FROM t JOIN ref ON ref.a = t.x WHERE id = 15                   -> 1
         SELECT * FROM t, single WHERE t.id = 5                                  -> 0!
         SELECT * FROM t, single WHERE t.id = 15                                 -> not_on_shard_zero
         SELECT * FROM t WHERE id = 15 AND x IN (SELECT a FROM single)           -> not_on_shard_zero
         SELECT * FROM t JOIN ref ON t.id = ref.id WHERE ref.id = 15             -> key_not_fixed
         BEGIN                                                                   -> elsewhere
         SET x = 1                                                               -> elsewhere
         CREATE TABLE new (a int)                                                -> elsewhere",
    );
}

#[test]
fn parameters_have_a_type_and_a_form() {
    const QUERY: &str = "SELECT * FROM t WHERE id = $1";
    for (statement, parameters, expected) in [
        (QUERY, vec![text(23, "15")], "1"),
        (QUERY, vec![text(20, " 15 ")], "1"),
        (QUERY, vec![text(0, "15")], "1"),
        (QUERY, vec![text(705, "15")], "1"),
        (QUERY, vec![text(25, "15")], "key_type_unknown"),
        (QUERY, vec![text(1700, "15")], "key_type_unknown"),
        (QUERY, vec![text(99_999, "15")], "key_type_unknown"),
        (QUERY, vec![text(23, "x")], "key_value_unread"),
        (QUERY, vec![text(23, "3000000000")], "key_value_unread"),
        (QUERY, vec![text(20, "3000000000")], "2"),
        (QUERY, vec![binary(23, &[0, 0, 0, 15])], "1"),
        (QUERY, vec![binary(20, &[0, 0, 0, 0, 0, 0, 0, 15])], "1"),
        (QUERY, vec![binary(0, &[0, 0, 0, 15])], "1"),
        (QUERY, vec![binary(23, &[0, 15])], "key_value_unread"),
        (QUERY, vec![binary(21, &[0, 15])], "1"),
        (QUERY, vec![null(23)], "0"),
        (QUERY, vec![], "key_type_unknown"),
        ("SELECT * FROM t WHERE id = $1 AND x = $1", vec![text(0, "15")], "key_type_unknown"),
        ("SELECT * FROM t WHERE id = $1 AND x = $1", vec![text(23, "15")], "1"),
        ("SELECT $1 FROM t WHERE id = $1", vec![text(0, "15")], "key_type_unknown"),
        ("SELECT * FROM t, u WHERE t.id = $1 AND u.id = $1", vec![text(0, "15")], "key_type_unknown"),
        ("SELECT * FROM t, u WHERE t.id = $1 AND u.id = $1", vec![text(20, "15")], "1"),
        ("SELECT * FROM t, w WHERE t.id = $1 AND w.k = $1", vec![text(0, "15")], "1"),
        ("SELECT * FROM t, w WHERE t.id = $1 AND w.k = $2", vec![text(23, "15"), text(23, "16")], "1"),
        ("SELECT * FROM t, w WHERE t.id = $1 AND w.k = $2", vec![text(23, "15"), text(23, "26")], "key_of_many_shards"),
        ("SELECT * FROM t WHERE id = $1::int", vec![text(0, "15")], "1"),
        ("SELECT * FROM t WHERE id = $1::int8", vec![text(0, "3000000000")], "2"),
        ("SELECT * FROM t WHERE id = $1::int", vec![text(20, "3000000000")], "key_value_unread"),
        ("SELECT * FROM t WHERE id = $1::text", vec![text(0, "15")], "key_not_fixed"),
        ("SELECT * FROM t WHERE id = ANY (ARRAY[$1])", vec![text(0, "15")], "key_not_fixed"),
        ("SELECT * FROM t WHERE id = ANY ($1)", vec![text(0, "{15}")], "key_not_fixed"),
        ("SELECT * FROM t WHERE id IN ($1)", vec![text(0, "15")], "1"),
        ("SELECT * FROM texts WHERE k = $1", vec![text(1043, "i")], "1"),
        ("SELECT * FROM texts WHERE k = $1", vec![text(1042, "i")], "key_type_unknown"),
        ("SELECT * FROM texts WHERE k = $1", vec![binary(25, b"i\xff")], "key_value_unread"),
        ("INSERT INTO t VALUES ($1, $2)", vec![text(0, "15"), text(0, "1")], "1"),
        ("INSERT INTO t VALUES ($1, $1)", vec![text(0, "15")], "key_type_unknown"),
        ("INSERT INTO t VALUES ($1), ($2)", vec![text(23, "15"), text(23, "16")], "1"),
        ("INSERT INTO t VALUES ($1)", vec![text(20, "3000000000")], "key_value_unread"),
        ("INSERT INTO t VALUES ($1)", vec![null(23)], "no_partition"),
        ("UPDATE t SET x = $1 WHERE id = $2", vec![text(0, "1"), text(0, "15")], "1"),
    ] {
        assert_eq!(outcome(statement, &parameters), expected, "{statement}");
    }
}

/// A plan is kept for all texts of one skeleton.
#[test]
fn a_plan_serves_other_texts_of_its_skeleton() {
    let tables = tables();
    let table = &tables[0].1;
    let terms = key_terms("SELECT 'a', * FROM t WHERE x = 7 AND id = -0").unwrap();
    let plan = plan(&terms, |_: &QualifiedName| RelationKind::Sharded(table)).unwrap();
    let shard = |text: &str| plan.shard(|ordinal| literal_at(text.as_bytes(), ordinal), |_| None);
    assert_eq!(shard("SELECT 'it''s', * FROM t WHERE x = 1000 AND id = -15"), Ok(0));
    assert_eq!(shard("SELECT '15', * FROM t WHERE x = 1000 AND id = -0"), Ok(0));
    let ShardPlan::OneShard(one) = &plan else { panic!("{plan:?}") };
    assert_eq!(one.keys().len(), 1);
}

#[test]
fn rows_without_a_key_belong_to_any_shard_that_draws_it() {
    let any = "one of [0, 1, 2]";
    for (statement, expected) in [
        ("insert into drawn (drawn) values (1)", any),
        ("insert into drawn values (default, 1), (default, 2)", any),
        ("insert into drawn default values", any),
        ("insert into drawn (drawn) select 1", any),
        ("insert into drawn (drawn) select x from ref", any),
        ("insert into drawn (drawn) select * from unnest($1::int[]) on conflict do nothing returning id", any),
        ("with a as (insert into drawn default values returning id) select * from a", any),
        ("insert into drawn (drawn) select x from single", "0!"),
        ("insert into drawn (drawn) select x from t where id = 15", "1"),
        ("insert into drawn (id) values (25), (default)", "2"),
        ("insert into drawn (id) values (25), (default), (5)", "key_of_many_shards"),
        ("with a as (insert into drawn default values) select * from t where id = 15", "1"),
        ("insert into drawn (drawn) select x from t", "key_not_fixed"),
        ("insert into drawn select 1", "insert_from_query"),
        ("insert into drawn (drawn) values (1) on conflict (id) do update set id = 5", "key_changed"),
        ("insert into t (x) values (1)", "key_not_given"),
        ("insert into t (x) select 1", "insert_from_query"),
        ("insert into t default values", "key_not_given"),
    ] {
        assert_eq!(outcome(statement, &[]), expected, "{statement}");
    }
}
