//! Decides which rows are copied for a read of several shards within a transaction (`traffic::shard_gather`).
//!
//! The engine's plan of the client's statement says it: each scan of a foreign table has the conditions that PostgreSQL itself found to depend on that
//! table alone, and wrote for the other server. A row for which none of a table's scans has its conditions true cannot count, in this plan or in any
//! other. Everything else about the statement, these conditions included, is left to the engine, which runs the statement over the copies.

use crate::control::shard_catalog::{REFERENCE_SERVER, SERVER_BEGIN};
use serde_json::Value;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::sharding::cannot_gather;
use weir_wire::write::{identifier, literal};

/// Most rows that are copied for one statement.
pub const ROWS_MAX: u64 = 100_000;

/// The temporary table of the engine that takes the rows as text.
const ROWS: &str = "weir_gathered_rows";

/// Makes the engine's next plans have a scan for each foreign table, with its conditions.
pub const PLAIN_PLANS: &str =
    "SET TRANSACTION READ WRITE; SET LOCAL enable_partitionwise_join TO off; SET LOCAL enable_partitionwise_aggregate TO off";

/// Before a Parse behind its name.
pub const EXPLAIN: &str = "EXPLAIN (VERBOSE, COSTS FALSE, FORMAT JSON) ";

/// Under these settings `postgres_fdw` has conditions read, and values are read as they are written. Source: `configure_remote_session` in
/// contrib/postgres_fdw/connection.c.
const TRANSFER_SETTINGS: &str = "SET LOCAL search_path TO pg_catalog; SET LOCAL datestyle TO 'ISO'; SET LOCAL intervalstyle TO 'postgres'; \
    SET LOCAL extra_float_digits TO 3";

/// A scan of a foreign table in the engine's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignScan {
    pub schema: String,
    pub table: String,
    /// `None`: any row may count.
    pub condition: Option<String>,
}

/// A foreign table as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTable {
    pub schema: String,
    pub name: String,
    pub server: String,
    /// The table that it is a partition of.
    pub parent: Option<(String, String)>,
    /// The columns of the whole table, of an alias `t`, in their order.
    pub columns: String,
}

/// Reads the engine's answer to `EXPLAIN`. `None`: it is not understood.
pub fn scans_of(plan: &str) -> Option<Vec<ForeignScan>> {
    let plan: Value = serde_json::from_str(plan).ok()?;
    let mut scans = Vec::new();
    for one in plan.as_array()? {
        add_scans(one.get("Plan")?, &mut scans)?;
    }
    Some(scans)
}

fn add_scans(node: &Value, scans: &mut Vec<ForeignScan>) -> Option<()> {
    let text = |name: &str| node.get(name).and_then(Value::as_str);
    if node.get("Remote SQL").is_some() || text("Node Type") == Some("Foreign Scan") {
        match (text("Schema"), text("Relation Name")) {
            (Some(schema), Some(table)) => {
                let condition = text("Remote SQL").and_then(condition_of).map(str::to_owned);
                scans.push(ForeignScan { schema: schema.to_owned(), table: table.to_owned(), condition });
            }
            // The other server joins or sums up several tables.
            _ => scans.extend(relations_in(text("Relations")?)?),
        }
    }
    for below in node.get("Plans").and_then(Value::as_array).into_iter().flatten() {
        add_scans(below, scans)?;
    }
    Some(())
}

/// The tables of a scan that the other server joins: names with their schemas stand right behind a parenthesis, perhaps with an alias.
fn relations_in(relations: &str) -> Option<Vec<ForeignScan>> {
    let (mut scans, mut at) = (Vec::new(), 0);
    while let Some(&byte) = relations.as_bytes().get(at) {
        match byte {
            b'"' => at = end_of_quoted(relations.as_bytes(), at)?,
            b'(' if !relations[at + 1..].starts_with('(') => {
                let (schema, rest) = name_at(&relations[at + 1..])?;
                let (table, _) = name_at(rest.strip_prefix('.')?)?;
                scans.push(ForeignScan { schema, table, condition: None });
            }
            _ => {}
        }
        at += 1;
    }
    (!scans.is_empty()).then_some(scans)
}

/// A name as `quote_identifier` writes it, and what follows.
fn name_at(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|letter: char| !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'))?;
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

/// The conditions of a scan of one table, as `postgres_fdw` writes them: `SELECT ... FROM s.t WHERE ...`. `None`: there are none, they hang on values
/// that are known only later, or another clause counts too.
fn condition_of(remote: &str) -> Option<&str> {
    let mut clauses = Clauses { rest: remote, at: 0 };
    let mut begin = None;
    while let Some((at, word)) = clauses.next_word() {
        match (word, begin) {
            ("WHERE", None) => begin = Some(at + word.len()),
            ("SELECT" | "FROM", _) => {}
            // Rows are cut off, summed up or locked.
            (_, Some(_)) if !matches!(word, "AND" | "OR" | "NOT" | "IS" | "NULL" | "TRUE" | "FALSE") => return None,
            (_, Some(_)) => {}
            ("ORDER" | "LIMIT" | "GROUP" | "HAVING" | "OFFSET" | "FOR" | "JOIN", None) => return None,
            _ => {}
        }
    }
    let condition = remote.get(begin?..)?.trim();
    (!condition.is_empty() && !clauses_have_parameters(condition)).then_some(condition)
}

/// Words in capitals outside of parentheses, strings and quoted names: names without quotes have small letters.
struct Clauses<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Clauses<'a> {
    fn next_word(&mut self) -> Option<(usize, &'a str)> {
        let bytes = self.rest.as_bytes();
        let mut depth = 0_u32;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\'' | b'"' => self.at = end_of_quoted(bytes, self.at)?,
                b'(' => depth += 1,
                b')' => depth = depth.checked_sub(1)?,
                b'A'..=b'Z' if depth == 0 => {
                    let begin = self.at;
                    let length = bytes[begin..].iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
                    let end = length.map_or(bytes.len(), |length| begin + length);
                    // E'...' is a string.
                    if bytes.get(end) == Some(&b'\'') {
                        self.at = end;
                        continue;
                    }
                    self.at = end;
                    return Some((begin, &self.rest[begin..end]));
                }
                _ => {}
            }
            self.at += 1;
        }
        None
    }
}

/// The place of the last quotation mark of a string or name that begins at `at`. A string with a backslash begins with E, and has each of its backslashes
/// twice (`deparseStringLiteral`).
fn end_of_quoted(bytes: &[u8], at: usize) -> Option<usize> {
    let mark = bytes[at];
    let mut at = at + 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == mark)?;
        if bytes.get(at + 1) != Some(&mark) {
            return Some(at);
        }
        at += 2;
    }
}

/// True for `$1` outside of strings and names.
fn clauses_have_parameters(condition: &str) -> bool {
    let bytes = condition.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\'' | b'"' => match end_of_quoted(bytes, at) {
                Some(end) => at = end,
                None => return true,
            },
            b'$' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

/// Asks the engine for the servers of foreign tables. The first row is the `search_path`.
pub fn tables_query(scans: &[ForeignScan]) -> String {
    let mut names: Vec<String> =
        scans.iter().map(|scan| format!("{}.{}", quote_name(&scan.schema), quote_name(&scan.table))).collect();
    names.sort();
    names.dedup();
    let mut list = String::new();
    for name in &names {
        if !list.is_empty() {
            list += ", ";
        }
        literal(&mut list, name);
        list += "::pg_catalog.regclass::pg_catalog.oid";
    }
    format!(
        "SELECT pg_catalog.current_setting('search_path'), NULL, NULL, NULL, NULL, NULL UNION ALL \
         SELECT n.nspname, c.relname, s.srvname, pn.nspname, p.relname, \
         (SELECT pg_catalog.string_agg('t.' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(a.attname::pg_catalog.text), ', ' ORDER BY a.attnum) \
         FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) COALESCE(p.oid, c.oid) \
         AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped) FROM pg_catalog.pg_foreign_table AS f \
         JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) f.ftrelid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         JOIN pg_catalog.pg_foreign_server AS s ON s.oid OPERATOR(pg_catalog.=) f.ftserver \
         LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid OPERATOR(pg_catalog.=) c.oid \
         LEFT JOIN pg_catalog.pg_class AS p ON p.oid OPERATOR(pg_catalog.=) i.inhparent \
         LEFT JOIN pg_catalog.pg_namespace AS pn ON pn.oid OPERATOR(pg_catalog.=) p.relnamespace \
         WHERE f.ftrelid OPERATOR(pg_catalog.=) ANY (ARRAY[{list}]::pg_catalog.oid[])"
    )
}

/// Reads the answer to `tables_query`: the `search_path`, and the tables.
pub fn read_tables(rows: Vec<Vec<Option<String>>>) -> Option<(String, Vec<ForeignTable>)> {
    let mut rows = rows.into_iter();
    let path = rows.next()?.into_iter().next()??;
    let tables = rows.map(|row| {
        let [schema, name, server, parent_schema, parent, columns] = <[Option<String>; 6]>::try_from(row).ok()?;
        Some(ForeignTable { schema: schema?, name: name?, server: server?, parent: parent_schema.zip(parent), columns: columns? })
    });
    Some((path, tables.collect::<Option<_>>()?))
}

/// The rows of one table that are copied.
#[derive(Debug)]
struct GatheredTable {
    schema: String,
    name: String,
    columns: String,
    /// The shard, the foreign table that stands for it in the engine, and the conditions of its scans.
    places: Vec<RowPlace>,
}

#[derive(Debug)]
struct RowPlace {
    /// `None`: each shard has all rows.
    shard: Option<u16>,
    foreign: (String, String),
    /// `None`: all rows.
    conditions: Option<Vec<String>>,
}

/// The rows that are copied for a statement.
#[derive(Debug)]
pub struct GatherPlan {
    tables: Vec<GatheredTable>,
    /// The shards that the transaction has a part on.
    parts: Vec<u16>,
    path: String,
}

impl GatherPlan {
    /// `parts`: the shards that the transaction has a part on.
    ///
    /// # Errors
    /// The error of the statement, whose rows cannot be copied.
    pub fn new(
        scans: Vec<ForeignScan>,
        (path, known): (String, Vec<ForeignTable>),
        parts: &[u16],
    ) -> Result<GatherPlan, ErrorReport> {
        let mut tables: Vec<GatheredTable> = Vec::new();
        for scan in scans {
            let known = known.iter().find(|table| table.schema == scan.schema && table.name == scan.table);
            let Some(known) = known else { return Err(not_understood()) };
            let shard = match known.server.strip_prefix(SERVER_BEGIN).map(str::parse) {
                Some(Ok(shard)) => Some(shard),
                _ if known.server == REFERENCE_SERVER => None,
                _ => return Err(not_understood()),
            };
            let (schema, name) = known.parent.clone().unwrap_or_else(|| (known.schema.clone(), known.name.clone()));
            if tables.iter().any(|table| table.name == name && table.schema != schema) {
                return Err(cannot_gather("it reads two tables of one name in two schemas"));
            }
            let at = tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
                tables.push(GatheredTable { schema, name, columns: known.columns.clone(), places: Vec::new() });
                tables.len() - 1
            });
            tables[at].add(shard, (scan.schema, scan.table), scan.condition);
        }
        Ok(GatherPlan { tables, parts: parts.to_vec(), path })
    }

    /// True if the transaction has no part where the rows are: the engine reads them by itself.
    pub fn is_empty(&self) -> bool {
        !self.tables.iter().flat_map(|table| &table.places).any(|place| self.part_of(place).is_some())
    }

    /// The shard over whose part of the transaction rows are read.
    fn part_of(&self, place: &RowPlace) -> Option<u16> {
        match place.shard {
            Some(shard) => self.parts.contains(&shard).then_some(shard),
            None => self.parts.first().copied(),
        }
    }

    /// The statements that copy the rows of one shard over the transaction's own connection to it. `None`: there are none. Whatever they set is undone at
    /// their end, or by `PART_FAILED`.
    pub fn part_text(&self, shard: u16) -> Option<String> {
        let selects: Vec<String> = self
            .numbered()
            .filter(|(_, _, place)| self.part_of(place) == Some(shard))
            .map(|(number, table, place)| table.select(number, condition_of_places(&[place])))
            .collect();
        (!selects.is_empty()).then(|| {
            format!("SAVEPOINT weir_gather; {TRANSFER_SETTINGS}; COPY ({}) TO STDOUT; {PART_FAILED}", selects.join(" UNION ALL "))
        })
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &GatheredTable, &RowPlace)> {
        self.tables.iter().enumerate().flat_map(|(number, table)| table.places.iter().map(move |place| (number, table, place)))
    }

    /// Takes the rows of other shards, and makes the tables that the statement reads. Its first row is the number of rows.
    pub fn engine_text(&self) -> String {
        format!("{}; {}", self.rest_text(), self.tables_text())
    }

    /// Takes rows of all shards that the transaction has no part on, and counts what is there. Rights are those of the whole table.
    fn rest_text(&self) -> String {
        let mut text = "SET LOCAL search_path TO pg_catalog; ".to_owned();
        for (number, table) in self.tables.iter().enumerate() {
            let rest: Vec<&RowPlace> = table.places.iter().filter(|place| self.part_of(place).is_none()).collect();
            if rest.is_empty() {
                continue;
            }
            let mut partitions = String::new();
            for place in &rest {
                partitions += if partitions.is_empty() { "" } else { ", " };
                literal(&mut partitions, &format!("{}.{}", quote_name(&place.foreign.0), quote_name(&place.foreign.1)));
                partitions += "::pg_catalog.regclass::pg_catalog.oid";
            }
            let mut condition = format!("t.tableoid OPERATOR(pg_catalog.=) ANY (ARRAY[{partitions}])");
            if let Some(other) = condition_of_places(&rest) {
                condition += &format!(" AND ({other})");
            }
            let rows = table.select(number, Some(condition));
            text += &format!("INSERT INTO pg_temp.{ROWS} {rows}; ");
        }
        text + &format!("SELECT pg_catalog.count(*) FROM pg_temp.{ROWS}")
    }

    /// Makes the tables that the statement reads, under the client's `search_path`, in which temporary tables come first. Plans that were made before mean
    /// others.
    fn tables_text(&self) -> String {
        let mut text = String::new();
        for (number, table) in self.tables.iter().enumerate() {
            let (schema, name) = (quote_name(&table.schema), quote_name(&table.name));
            text += &format!(
                "CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT (x.r).* FROM (SELECT g.r::{schema}.{name} AS r \
                 FROM pg_temp.{ROWS} AS g WHERE g.part OPERATOR(pg_catalog.=) {number} OFFSET 0) AS x; "
            );
        }
        text += "SELECT pg_catalog.set_config('search_path', ";
        literal(&mut text, &self.path);
        text + ", true); DISCARD PLANS"
    }
}

impl GatheredTable {
    /// Columns by their names, as `postgres_fdw` takes them: a server may have them in another order.
    fn select(&self, number: usize, condition: Option<String>) -> String {
        let condition = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        let (schema, name, columns) = (quote_name(&self.schema), quote_name(&self.name), &self.columns);
        format!("(SELECT {number}, ROW({columns})::pg_catalog.text FROM {schema}.{name} AS t{condition} LIMIT {})", ROWS_MAX + 1)
    }

    fn add(&mut self, shard: Option<u16>, foreign: (String, String), condition: Option<String>) {
        match self.places.iter_mut().find(|place| place.shard == shard) {
            Some(place) => match (&mut place.conditions, condition) {
                (Some(all), Some(condition)) if !all.contains(&condition) => all.push(condition),
                (Some(_), Some(_)) => {}
                (conditions, _) => *conditions = None,
            },
            None => self.places.push(RowPlace { shard, foreign, conditions: condition.map(|condition| vec![condition]) }),
        }
    }
}

/// Ends the statements of a part that failed.
pub const PART_FAILED: &str = "ROLLBACK TO SAVEPOINT weir_gather; RELEASE SAVEPOINT weir_gather";

/// Begins to take rows.
pub fn begin_text() -> String {
    format!("{}; COPY pg_temp.{ROWS} FROM STDIN", rows_table())
}

fn rows_table() -> String {
    format!("CREATE TEMPORARY TABLE {ROWS} (part pg_catalog.int4, r pg_catalog.text) ON COMMIT DROP")
}

fn quote_name(name: &str) -> String {
    let mut out = String::new();
    identifier(&mut out, name);
    out
}

/// The condition of rows that count in any of a table's places. `None`: all do.
fn condition_of_places(places: &[&RowPlace]) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for place in places {
        all.extend(place.conditions.as_ref()?.iter().map(String::as_str));
    }
    all.sort_unstable();
    all.dedup();
    Some(format!("({})", all.join(") OR (")))
}

pub fn own_texts() -> Vec<String> {
    vec![PLAIN_PLANS.to_owned(), TRANSFER_SETTINGS.to_owned(), PART_FAILED.to_owned(), rows_table(), tables_query(&[])]
}

/// The error of a statement for whose rows commits on several shards would have to wait.
#[cold]
pub fn too_slow() -> ErrorReport {
    cannot_gather("a shard has not begun to send its rows within a few seconds; cross_shard_reads = latest lets it take longer")
}

#[cold]
pub fn not_understood() -> ErrorReport {
    cannot_gather("the engine's plan for it is not understood")
}

#[cold]
pub fn too_many_rows() -> ErrorReport {
    let text = format!(
        "the statement reads rows of several shards, and its transaction has begun on some of them: more than {ROWS_MAX} rows would be copied to the engine"
    );
    ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)
        .detail("Rows that may count are copied for the statement, which must see what the transaction wrote.")
        .hint("Give conditions on columns, run the statement before BEGIN or after COMMIT, or read each shard by its key.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_one_table_are_read_and_nothing_else() {
        for (remote, expected) in [
            ("SELECT id, note FROM public.orders", None),
            ("SELECT id FROM public.orders WHERE ((note = 'x'::text))", Some("((note = 'x'::text))")),
            (
                "SELECT id FROM public.orders WHERE ((note = 'a WHERE '' b'::text)) AND ((id > 3))",
                Some("((note = 'a WHERE '' b'::text)) AND ((id > 3))"),
            ),
            (r"SELECT id FROM public.orders WHERE ((note = E'\\ LIMIT '))", Some(r"((note = E'\\ LIMIT '))")),
            ("SELECT \"LIMIT 1\" FROM public.\"WHERE\" WHERE ((\"ORDER BY\" IS NULL))", Some("((\"ORDER BY\" IS NULL))")),
            ("SELECT id FROM public.orders WHERE ((id = $1::integer))", None),
            ("SELECT id FROM public.orders WHERE ((note = '$1'::text))", Some("((note = '$1'::text))")),
            ("SELECT id FROM public.orders WHERE ((id > 3)) ORDER BY id ASC NULLS LAST LIMIT 3::bigint", None),
            ("SELECT id FROM public.orders ORDER BY id ASC NULLS LAST", None),
            ("SELECT count(*) FROM public.orders WHERE ((id > 3)) GROUP BY 1", None),
            ("SELECT id FROM public.orders WHERE ((id > 3)) FOR UPDATE", None),
            (
                "SELECT r1.id FROM (public.a r1 INNER JOIN public.b r2 ON (((r1.id = r2.id)))) WHERE ((r1.id > 3))",
                Some("((r1.id > 3))"),
            ),
            ("SELECT id FROM public.orders WHERE ((note = 'open", None),
        ] {
            assert_eq!(condition_of(remote), expected, "{remote}");
        }
    }

    #[test]
    fn scans_of_one_table_and_of_joins_are_found_at_any_depth() {
        let plan = r#"[{"Plan": {"Node Type": "Sort", "Plans": [{"Node Type": "Append", "Plans": [
            {"Node Type": "Foreign Scan", "Schema": "public", "Relation Name": "orders_1", "Remote SQL": "SELECT id FROM public.orders WHERE ((id > 3))"},
            {"Node Type": "Foreign Scan", "Relations": "((public.a) INNER JOIN (\"My \"\"s\"\"\".\"t (x\" b)) LEFT JOIN (public.c_1 c)", "Remote SQL": "SELECT 1"},
            {"Node Type": "Foreign Scan", "Relations": "Aggregate on (public.items)", "Remote SQL": "SELECT count(*) FROM public.items"}]}]}}]"#;
        let told: Vec<String> = scans_of(plan)
            .unwrap()
            .into_iter()
            .map(|scan| format!("{}.{} {:?}", scan.schema, scan.table, scan.condition))
            .collect();
        let expected = [
            "public.orders_1 Some(\"((id > 3))\")",
            "public.a None",
            "My \"s\".t (x None",
            "public.c_1 None",
            "public.items None",
        ];
        assert_eq!(told, expected);
        assert_eq!(scans_of(r#"[{"Plan": {"Node Type": "Result"}}]"#), Some(Vec::new()));
        for unknown in ["", "[]x", r#"[{}]"#, r#"[{"Plan": {"Node Type": "Foreign Scan"}}]"#] {
            assert_eq!(scans_of(unknown), None, "{unknown}");
        }
    }

    fn foreign(name: &str, server: &str, parent: Option<&str>) -> ForeignTable {
        let parent = parent.map(|parent| ("public".to_owned(), parent.to_owned()));
        let columns = "t.id, t.\"No\"".to_owned();
        ForeignTable { schema: "public".to_owned(), name: name.to_owned(), server: server.to_owned(), parent, columns }
    }

    fn scan(table: &str, condition: Option<&str>) -> ForeignScan {
        ForeignScan { schema: "public".to_owned(), table: table.to_owned(), condition: condition.map(str::to_owned) }
    }

    fn plan(scans: &[ForeignScan], parts: &[u16]) -> Result<GatherPlan, ErrorReport> {
        let known = vec![
            foreign("orders_0", "shard_0", Some("orders")),
            foreign("orders_1", "shard_1", Some("orders")),
            foreign("kinds", "every_shard", None),
            foreign("strange", "other", None),
        ];
        GatherPlan::new(scans.to_vec(), ("public".to_owned(), known), parts)
    }

    #[test]
    fn rows_come_over_the_parts_of_the_transaction_and_from_the_engine_elsewhere() {
        let scans = [
            scan("orders_0", Some("((id > 3))")),
            scan("orders_1", Some("((id > 3))")),
            scan("orders_1", Some("((id < 1))")),
            scan("kinds", None),
        ];
        let of_one = plan(&scans, &[1]).unwrap();
        let text = of_one.part_text(1).unwrap();
        for expected in [
            "SELECT 0, ROW(t.id, t.\"No\")::pg_catalog.text FROM \"public\".\"orders\" AS t WHERE (((id < 1))) OR (((id > 3))) LIMIT 100001",
            "SELECT 1, ROW(t.id, t.\"No\")::pg_catalog.text FROM \"public\".\"kinds\" AS t LIMIT 100001",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        let rest = of_one.rest_text();
        let expected = "FROM \"public\".\"orders\" AS t WHERE t.tableoid OPERATOR(pg_catalog.=) \
             ANY (ARRAY['\"public\".\"orders_0\"'::pg_catalog.regclass::pg_catalog.oid]) AND ((((id > 3)))) LIMIT";
        assert!(rest.contains(expected) && !rest.contains("orders_1"), "{rest}");
        assert_eq!((of_one.part_text(0), of_one.is_empty()), (None, false));
        let tables = of_one.tables_text();
        assert!(
            tables.contains("CREATE TEMPORARY TABLE \"orders\" ") && tables.contains("CREATE TEMPORARY TABLE \"kinds\" "),
            "{tables}"
        );
        assert!(tables.ends_with("SELECT pg_catalog.set_config('search_path', 'public', true); DISCARD PLANS"), "{tables}");
        assert!(plan(&scans[..1], &[1]).unwrap().is_empty(), "the transaction has no part where the rows are");
    }

    #[test]
    fn a_condition_less_takes_all_rows_and_what_is_unknown_is_refused() {
        let all = plan(&[scan("orders_1", Some("((id > 3))")), scan("orders_1", None)], &[1]).unwrap();
        assert!(!all.part_text(1).unwrap().contains("WHERE"));
        for table in ["strange", "missing"] {
            assert_eq!(plan(&[scan(table, None)], &[1]).unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED, "{table}");
        }
    }
}
