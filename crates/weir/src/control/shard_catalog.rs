//! The definitions of sharded and reference tables, as the engine's catalog holds them (`docs/sharding.md`).
//!
//! In: rows of `SHARDED_TABLES`, asked in the engine. Out: `ShardedTable`. A table that is otherwise than `weir shard` makes it has no key or no shard
//! here, and must not be routed.

use crate::control::engine_state;
use crate::runtime::pool::server_conn::Rows;
use weir_shard::ReferenceTable;
use weir_sql::facts::QualifiedName;

/// The foreign server of shard `k` is `shard_<k>`.
pub const SERVER_BEGIN: &str = "shard_";

/// The foreign server of reference tables.
pub const REFERENCE_SERVER: &str = "every_shard";

/// Gives one row for each partition of a sharded table, and one for each reference table; to be asked in the engine.
///
/// Only tables of a superuser or of the asker count: others could lead statements astray.
///
/// Columns: schema, table, kind (`s` or `r`), key column, oid of its type, is its collation deterministic, is its collation `C`, names of all columns
/// in their order as JSON, bound, shard, number for the order, modifier of the key's type, database behind the foreign server. The key is NULL where it is no plain column with the default operators of its type, the shard
/// where a partition is no table of a shard with this name.
pub const SHARDED_TABLES: &str = "SELECT n.nspname, c.relname, 's', a.attname, a.atttypid, COALESCE(l.collisdeterministic, true), \
    COALESCE((SELECT x.provider OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) x.locale FROM (SELECT \
    CASE WHEN l.collprovider OPERATOR(pg_catalog.=) 'd' THEN COALESCE(pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocprovider', 'c') \
    ELSE l.collprovider::pg_catalog.text END AS provider, \
    CASE WHEN l.collprovider OPERATOR(pg_catalog.=) 'd' \
    THEN COALESCE(pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocale', d.datcollate::pg_catalog.text) \
    ELSE COALESCE(l.collcollate::pg_catalog.text, pg_catalog.to_jsonb(l) OPERATOR(pg_catalog.->>) 'colllocale') END AS locale) AS x \
    WHERE l.oid IS NOT NULL) OPERATOR(pg_catalog.=) ANY ('{c:C,c:POSIX,b:C}'::pg_catalog.text[]), l.oid IS NULL), \
    (SELECT pg_catalog.json_agg(o.attname ORDER BY o.attnum) FROM pg_catalog.pg_attribute AS o \
    WHERE o.attrelid OPERATOR(pg_catalog.=) c.oid AND o.attnum OPERATOR(pg_catalog.>) 0 AND NOT o.attisdropped), \
    pg_catalog.pg_get_expr(p.relpartbound, p.oid), \
    (SELECT pg_catalog.substr(s.srvname::pg_catalog.text, 7) FROM pg_catalog.pg_foreign_table AS f, pg_catalog.pg_foreign_server AS s \
    WHERE f.ftrelid OPERATOR(pg_catalog.=) p.oid AND s.oid OPERATOR(pg_catalog.=) f.ftserver \
    AND s.srvname::pg_catalog.text OPERATOR(pg_catalog.~) '^shard_[0-9]+$' \
    AND f.ftoptions OPERATOR(pg_catalog.@>) ARRAY['schema_name=' OPERATOR(pg_catalog.||) n.nspname::pg_catalog.text, \
    'table_name=' OPERATOR(pg_catalog.||) c.relname::pg_catalog.text]), p.oid, a.atttypmod, \
    (SELECT pg_catalog.max(pg_catalog.substr(x.o, 8)) FROM pg_catalog.pg_foreign_table AS f, pg_catalog.pg_foreign_server AS s, \
    pg_catalog.unnest(s.srvoptions) AS x (o) WHERE f.ftrelid OPERATOR(pg_catalog.=) p.oid AND s.oid OPERATOR(pg_catalog.=) f.ftserver \
    AND pg_catalog.starts_with(x.o, 'dbname=')) \
    FROM pg_catalog.pg_partitioned_table AS t \
    JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) t.partrelid AND c.relpersistence OPERATOR(pg_catalog.=) 'p' \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent OPERATOR(pg_catalog.=) c.oid \
    JOIN pg_catalog.pg_class AS p ON p.oid OPERATOR(pg_catalog.=) i.inhrelid \
    JOIN pg_catalog.pg_database AS d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
    LEFT JOIN pg_catalog.pg_opclass AS k ON k.oid OPERATOR(pg_catalog.=) t.partclass[0] AND k.opcdefault \
    AND k.oid OPERATOR(pg_catalog.<) '16384'::pg_catalog.oid \
    LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.=) t.partattrs[0] \
    AND t.partnatts OPERATOR(pg_catalog.=) 1 AND k.oid IS NOT NULL AND a.attcollation OPERATOR(pg_catalog.=) t.partcollation[0] \
    LEFT JOIN pg_catalog.pg_collation AS l ON l.oid OPERATOR(pg_catalog.=) t.partcollation[0] \
    WHERE EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid OPERATOR(pg_catalog.=) c.relowner \
    AND (r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) current_user)) \
    UNION ALL SELECT n.nspname, c.relname, 'r', NULL, NULL, NULL, NULL, \
    (SELECT pg_catalog.json_agg(o.attname ORDER BY o.attnum) FROM pg_catalog.pg_attribute AS o \
    WHERE o.attrelid OPERATOR(pg_catalog.=) c.oid AND o.attnum OPERATOR(pg_catalog.>) 0 AND NOT o.attisdropped), \
    NULL, NULL, c.oid, NULL, (SELECT pg_catalog.max(pg_catalog.substr(x.o, 8)) FROM pg_catalog.unnest(s.srvoptions) AS x (o) \
    WHERE pg_catalog.starts_with(x.o, 'dbname=')) \
    FROM pg_catalog.pg_foreign_table AS f \
    JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) f.ftserver AND s.srvname OPERATOR(pg_catalog.=) 'every_shard' \
    JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) f.ftrelid AND NOT c.relispartition \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) c.relowner AND (r.rolsuper OR r.rolname OPERATOR(pg_catalog.=) current_user) \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    WHERE f.ftoptions OPERATOR(pg_catalog.@>) ARRAY['schema_name=' OPERATOR(pg_catalog.||) n.nspname::pg_catalog.text, \
    'table_name=' OPERATOR(pg_catalog.||) c.relname::pg_catalog.text] \
    ORDER BY 1, 2, 11";

/// Gives schema, table and first column of tables with a column whose values might not be read from a foreign table as they are on the shard; to be asked
/// in the engine.
///
/// Values come as text. `postgres_fdw` fixes `DateStyle`, `IntervalStyle`, `TimeZone`, `extra_float_digits` and `search_path` of the shard. Not fixed are
/// `lc_monetary` (money), `xmloption` (xml), and names of objects and their numbers (regclass and its like). The list has types, and arrays of them,
/// whose text depends on nothing else.
pub const UNFIT_COLUMNS: &str = "SELECT n.nspname, c.relname, (pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum))[1] \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
    JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{p,f}'::pg_catalog.\"char\"[]) AND NOT c.relispartition \
    AND CASE WHEN t.typcategory OPERATOR(pg_catalog.=) 'A' THEN t.typelem ELSE t.oid END OPERATOR(pg_catalog.<>) ALL \
    ('{16,17,18,19,20,21,23,25,26,27,28,29,30,114,600,601,602,603,604,628,650,700,701,718,774,829,869,1042,1043,1082,1083,1114,1184,1186,1266,\
    1560,1562,1700,1790,2950,2970,3220,3614,3615,3802,3904,3906,3908,3910,3912,3926,4072,4451,4532,4533,4534,4535,4536,5038,5069}'\
    ::pg_catalog.oid[]) GROUP BY 1, 2";

/// Gives schema, table and column of columns whose values tell no time, whatever text gives them: truth values, numbers, texts, JSON and the like; to be
/// asked in the engine.
pub const TIMELESS_COLUMNS: &str = "SELECT n.nspname, c.relname, a.attname \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
    WHERE c.relkind OPERATOR(pg_catalog.=) 'p' \
    AND a.atttypid OPERATOR(pg_catalog.=) ANY ('{16,17,20,21,23,25,114,700,701,1042,1043,1700,2950,3802}'::pg_catalog.oid[])";

/// The question for definitions of reference tables, to be asked in the database itself. `list`: of the tables, by `engine_state::listed`.
///
/// Columns: schema, table, names of all columns in their order as JSON, names of those whose default each server computes by itself as JSON, and why
/// copies might not stay equal, or NULL. A default is the same everywhere if its stored tree (outfuncs.c) has constants and PostgreSQL's own immutable
/// functions only. A write goes on to tables whose foreign keys lead to the written one.
pub fn reference_query(list: &str) -> String {
    format!(
        "WITH RECURSIVE spread AS (SELECT n.nspname, c.oid, c.relname, c.relkind, c.relhasrules, c.relrowsecurity \
         FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name), \
         reached (root, oid) AS (SELECT s.oid, s.oid FROM spread AS s UNION SELECT r.root, k.conrelid FROM reached AS r \
         JOIN pg_catalog.pg_constraint AS k ON k.confrelid OPERATOR(pg_catalog.=) r.oid AND k.contype OPERATOR(pg_catalog.=) 'f') \
         SELECT s.nspname, s.relname, \
         COALESCE((SELECT pg_catalog.json_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a \
         WHERE a.attrelid OPERATOR(pg_catalog.=) s.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped)::pg_catalog.text, '[]'), \
         COALESCE((SELECT pg_catalog.json_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a \
         LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum \
         LEFT JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
         WHERE a.attrelid OPERATOR(pg_catalog.=) s.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
         AND a.attgenerated OPERATOR(pg_catalog.=) '' AND (a.attidentity OPERATOR(pg_catalog.<>) '' \
         OR (d.oid IS NULL AND t.typdefault IS NOT NULL) \
         OR EXISTS (SELECT FROM pg_catalog.regexp_matches(d.adbin::pg_catalog.text, '[{{]([A-Z_]+)', 'g') AS m (found) \
         WHERE m.found[1] OPERATOR(pg_catalog.<>) ALL ('{{CONST,FUNCEXPR,OPEXPR,RELABELTYPE,ARRAY,ARRAYEXPR,BOOLEXPR}}'::pg_catalog.text[])) \
         OR EXISTS (SELECT FROM pg_catalog.regexp_matches(d.adbin::pg_catalog.text, ':(?:funcid|opfuncid) ([0-9]+)', 'g') AS m (found) \
         LEFT JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) m.found[1]::pg_catalog.oid \
         WHERE p.oid IS NULL OR p.provolatile OPERATOR(pg_catalog.<>) 'i' OR p.oid OPERATOR(pg_catalog.>=) '16384'::pg_catalog.oid)) \
         )::pg_catalog.text, '[]'), \
         CASE WHEN s.relkind OPERATOR(pg_catalog.<>) 'r' THEN 'it is no plain table' WHEN s.relhasrules THEN 'the table has rules' \
         WHEN s.relrowsecurity THEN 'the table has row security' \
         WHEN EXISTS (SELECT FROM reached AS r JOIN pg_catalog.pg_trigger AS g ON g.tgrelid OPERATOR(pg_catalog.=) r.oid \
         WHERE r.root OPERATOR(pg_catalog.=) s.oid AND NOT g.tgisinternal AND g.tgenabled OPERATOR(pg_catalog.<>) 'D') \
         THEN 'the table, or one whose foreign keys lead to it, has a trigger, which might do something else on each server' \
         WHEN EXISTS (SELECT FROM reached AS r JOIN pg_catalog.pg_constraint AS k ON k.confrelid OPERATOR(pg_catalog.=) r.oid \
         AND k.contype OPERATOR(pg_catalog.=) 'f' WHERE r.root OPERATOR(pg_catalog.=) s.oid \
         AND (k.confdeltype OPERATOR(pg_catalog.=) 'd' OR k.confupdtype OPERATOR(pg_catalog.=) 'd')) \
         THEN 'a foreign key that leads to the table sets columns to their defaults' END FROM spread AS s"
    )
}

/// The question for generated columns, to be asked in the database itself. `list`: of the tables, by `engine_state::listed`.
///
/// Columns: schema, table, column.
pub fn generated_query(list: &str) -> String {
    format!(
        "SELECT n.nspname, c.relname, a.attname FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name \
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
         WHERE a.attgenerated OPERATOR(pg_catalog.<>) ''"
    )
}

/// Gives schema and name of the tables whose keys the shards draw (`shard_setup::key_draw`); to be asked in the database. `list`: of sharded tables, by
/// `engine_state::listed`.
pub fn drawn_query(list: &str) -> String {
    format!(
        "SELECT n.nspname, c.relname FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name \
         JOIN pg_catalog.pg_trigger AS t ON t.tgrelid OPERATOR(pg_catalog.=) c.oid AND t.tgname OPERATOR(pg_catalog.=) 'weir_shard_key' \
         AND t.tgenabled OPERATOR(pg_catalog.=) ANY ('{{O,A}}'::pg_catalog.\"char\"[]) \
         JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid \
         JOIN pg_catalog.pg_namespace AS o ON o.oid OPERATOR(pg_catalog.=) p.pronamespace AND o.nspname OPERATOR(pg_catalog.=) 'weir_shard' ORDER BY 1, 2"
    )
}

/// Gives the schema and name of each view, and each table with rules, over these tables; to be asked in the database. `list`: of the reference tables, by
/// `engine_state::listed`.
pub fn view_query(list: &str) -> String {
    format!(
        "WITH RECURSIVE uses (view, read) AS (SELECT r.ev_class, d.refobjid FROM pg_catalog.pg_depend AS d \
         JOIN pg_catalog.pg_rewrite AS r ON r.oid OPERATOR(pg_catalog.=) d.objid \
         WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass \
         AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass AND r.ev_class OPERATOR(pg_catalog.<>) d.refobjid), \
         views (oid) AS (SELECT u.view FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name \
         JOIN uses AS u ON u.read OPERATOR(pg_catalog.=) c.oid \
         UNION SELECT u.view FROM views AS v JOIN uses AS u ON u.read OPERATOR(pg_catalog.=) v.oid) \
         SELECT n.nspname, c.relname FROM views AS v JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) v.oid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace ORDER BY 1, 2"
    )
}

/// Reads the answer to `view_query` or `drawn_query`.
pub fn names(rows: &Rows) -> Vec<QualifiedName> {
    let cell = |row: &Vec<Option<String>>, at: usize| row.get(at).cloned().flatten();
    rows.iter().filter_map(|row| Some(QualifiedName { schema: cell(row, 0)?, name: cell(row, 1)? })).collect()
}

/// Gives the schema and name of each index of spread tables, and the name of its table, which has that schema; to be asked in the database. `list`: of
/// schemas and names.
pub fn index_query(list: &str) -> String {
    format!(
        "SELECT n.nspname, i.relname, c.relname FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name \
         JOIN pg_catalog.pg_index AS o ON o.indrelid OPERATOR(pg_catalog.=) c.oid \
         JOIN pg_catalog.pg_class AS i ON i.oid OPERATOR(pg_catalog.=) o.indexrelid ORDER BY 1, 2"
    )
}

/// Reads the answer to `index_query`.
pub fn indexes(rows: &Rows) -> Vec<(QualifiedName, QualifiedName)> {
    let index = |row: &Vec<Option<String>>| {
        let cell = |at: usize| row.get(at).cloned().flatten();
        let named = |name: String| Some(QualifiedName { schema: cell(0)?, name });
        Some((named(cell(1)?)?, named(cell(2)?)?))
    };
    rows.iter().filter_map(index).collect()
}

/// Reads the answer to `reference_query`.
pub fn references(rows: &Rows) -> Vec<(QualifiedName, ReferenceTable)> {
    let reference = |row: &Vec<Option<String>>| {
        let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
        let name = QualifiedName { schema: cell(0)?.to_owned(), name: cell(1)?.to_owned() };
        let names = |at: usize| serde_json::from_str(cell(at)?).ok();
        let obstacle = cell(4).map(str::to_owned);
        Some((name, ReferenceTable { columns: names(2)?, unsteady_defaults: names(3)?, obstacle }))
    };
    rows.iter().filter_map(reference).collect()
}

/// A table of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedTable {
    pub schema: String,
    pub name: String,
    pub kind: ShardedKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardedKind {
    /// All rows lie on every shard.
    Reference,
    Sharded {
        /// `None`: no key that rows can be found by.
        key: Option<ShardKey>,
        partitions: Vec<ShardedPartition>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKey {
    pub column: String,
    pub type_oid: u32,
    pub is_deterministic: bool,
    pub is_c: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedPartition {
    /// As PostgreSQL writes it.
    pub bound: String,
    /// `None`: the partition is no table of a shard.
    pub shard: Option<u16>,
}

/// Reads the answer to `SHARDED_TABLES`.
pub fn tables(rows: &Rows) -> Vec<ShardedTable> {
    let mut found: Vec<ShardedTable> = Vec::new();
    for row in rows {
        let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
        let (schema, name) = (cell(0).unwrap_or_default(), cell(1).unwrap_or_default());
        if !found.last().is_some_and(|last| last.schema == schema && last.name == name) {
            let kind = match cell(2) {
                Some("r") => ShardedKind::Reference,
                _ => ShardedKind::Sharded { key: key(row), partitions: Vec::new() },
            };
            found.push(ShardedTable { schema: schema.to_owned(), name: name.to_owned(), kind });
        }
        if let Some(ShardedTable { kind: ShardedKind::Sharded { partitions, .. }, .. }) = found.last_mut() {
            let shard = cell(9).and_then(|number| number.parse().ok());
            partitions.push(ShardedPartition { bound: cell(8).unwrap_or_default().to_owned(), shard });
        }
    }
    found
}

fn key(row: &[Option<String>]) -> Option<ShardKey> {
    let cell = |at: usize| row.get(at).and_then(|cell| cell.as_deref());
    Some(ShardKey {
        column: cell(3)?.to_owned(),
        type_oid: cell(4)?.parse().ok()?,
        is_deterministic: cell(5)? == "t",
        is_c: cell(6)? == "t",
    })
}

pub fn own_texts() -> Vec<String> {
    let list = engine_state::listed([("public", "items")].into_iter());
    vec![
        SHARDED_TABLES.to_owned(),
        UNFIT_COLUMNS.to_owned(),
        TIMELESS_COLUMNS.to_owned(),
        reference_query(&list),
        generated_query(&list),
        index_query(&list),
        view_query(&list),
        drawn_query(&list),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lines: &[&str]) -> Rows {
        let cell = |text: &str| (text != "-").then(|| text.to_owned());
        lines.iter().map(|line| line.split('|').map(cell).collect()).collect()
    }

    #[test]
    fn partitions_are_gathered_under_their_table() {
        let found = tables(&rows(&[
            "a|countries|r|-|-|-|-|-|-|-|7|-|shop",
            "a|items|s|id|23|t|t|-|FOR VALUES WITH (modulus 2, remainder 0)|0|8",
            "a|items|s|id|23|t|t|-|FOR VALUES WITH (modulus 2, remainder 1)|1|9",
            "b|items|s|-|-|t|t|-|DEFAULT|-|10",
        ]));
        let partition = |bound: &str, shard| ShardedPartition { bound: bound.to_owned(), shard };
        let table = |schema: &str, name: &str, kind| ShardedTable { schema: schema.to_owned(), name: name.to_owned(), kind };
        let key = ShardKey { column: "id".to_owned(), type_oid: 23, is_deterministic: true, is_c: true };
        let halves = vec![
            partition("FOR VALUES WITH (modulus 2, remainder 0)", Some(0)),
            partition("FOR VALUES WITH (modulus 2, remainder 1)", Some(1)),
        ];
        assert_eq!(
            found,
            [
                table("a", "countries", ShardedKind::Reference),
                table("a", "items", ShardedKind::Sharded { key: Some(key), partitions: halves }),
                table("b", "items", ShardedKind::Sharded { key: None, partitions: vec![partition("DEFAULT", None)] }),
            ]
        );
    }
}
