//! The role that reads spread tables on all shards for the engine: may it, and only that?

use super::engine::ReaderRights;
use super::engine_columns;
use super::shard_servers::ShardConn;
use super::words::{TableName, quote_name, quote_text};
use anyhow::bail;
use std::collections::BTreeSet;

/// A spread table on one server. Its columns have the versions of their collations: the engine takes over what a shard sorted.
pub struct TableFacts {
    table: TableName,
    exists: bool,
    has_row_security: bool,
    is_role_owner: bool,
    may_select: bool,
    may_use_schema: bool,
    columns: String,
}

fn role_facts(role: &str) -> String {
    format!(
        "SELECT r.rolcanlogin, r.rolsuper, r.rolbypassrls, \
         pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database()::pg_catalog.text, 'CONNECT') FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) {}",
        quote_text(role)
    )
}

/// `role`: an expression. Rights by membership do not count: they could go unseen.
pub fn table_facts(list: &str, role: &str) -> String {
    let of_role = format!("(SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) {role})");
    format!(
        "SELECT x.schema, x.name, c.oid IS NOT NULL, c.relrowsecurity OR c.relforcerowsecurity, \
         pg_catalog.pg_has_role({of_role}, c.relowner, 'USAGE'), \
         EXISTS (SELECT FROM pg_catalog.aclexplode(c.relacl) AS g WHERE g.grantee OPERATOR(pg_catalog.=) {of_role} \
         AND g.privilege_type OPERATOR(pg_catalog.=) 'SELECT'), \
         EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) AS g WHERE g.grantee OPERATOR(pg_catalog.=) {of_role} \
         AND g.privilege_type OPERATOR(pg_catalog.=) 'USAGE'), \
         (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
         l.collname, pg_catalog.pg_collation_actual_version(l.oid), a.attnotnull) ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a \
         LEFT JOIN pg_catalog.pg_collation AS l ON l.oid OPERATOR(pg_catalog.=) a.attcollation \
         WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped) \
         FROM {list} WITH ORDINALITY AS x (schema, name, place) \
         LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name \
         ORDER BY x.place"
    )
}

fn is_true(row: &[Option<String>], at: usize) -> bool {
    row.get(at).is_some_and(|cell| cell.as_deref() == Some("t"))
}

pub fn facts_of(rows: &[Vec<Option<String>>]) -> Vec<TableFacts> {
    let text = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let facts = |row: &Vec<Option<String>>| TableFacts {
        table: TableName { schema: text(row, 0), name: text(row, 1) },
        exists: is_true(row, 2),
        has_row_security: is_true(row, 3),
        is_role_owner: is_true(row, 4),
        may_select: is_true(row, 5),
        may_use_schema: is_true(row, 6),
        columns: text(row, 7),
    };
    rows.iter().map(facts).collect()
}

/// The statements by which the engine's table follows that of a shard.
pub fn followed(wanted: &TableFacts, there: &TableFacts) -> Vec<String> {
    match (engine_columns::columns_of(&wanted.columns), engine_columns::columns_of(&there.columns)) {
        (Some(wanted), Some(of_engine)) => engine_columns::followed(&there.table, &wanted, &of_engine),
        _ => Vec::new(),
    }
}

/// Reasons against reading a server's tables.
fn refusals(here: &[TableFacts], of_engine: &[TableFacts], role: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for (facts, entry) in here.iter().zip(of_engine) {
        let table = &facts.table;
        if !facts.exists {
            reasons.push(format!("there is no table {table}"));
        } else if facts.columns != entry.columns {
            reasons.push(format!(
                "the columns of {table} are {}, and {} in the engine: make them alike",
                facts.columns, entry.columns
            ));
        }
        if facts.has_row_security {
            reasons.push(format!(
                "{table} has row security, which the engine does not know: ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY"
            ));
        }
        if facts.is_role_owner {
            reasons.push(format!("\"{role}\" owns {table}, by itself or as a member: it must only read"));
        }
    }
    reasons
}

fn missing_grants(here: &[TableFacts], role: &str) -> Vec<String> {
    let role = quote_name(role);
    let schemas: BTreeSet<&str> =
        here.iter().filter(|facts| !facts.may_use_schema).map(|facts| facts.table.schema.as_str()).collect();
    let usage = schemas.into_iter().map(|schema| format!("GRANT USAGE ON SCHEMA {} TO {role}", quote_name(schema)));
    let select =
        here.iter().filter(|facts| !facts.may_select).map(|facts| format!("GRANT SELECT ON TABLE {} TO {role}", facts.table));
    usage.chain(select).collect()
}

/// Reasons against the role itself, with what mends them.
fn role_refusal(row: Option<&Vec<Option<String>>>, role: &str) -> Option<String> {
    let name = quote_name(role);
    let Some(row) = row else {
        return Some(format!("there is no role {name}: CREATE ROLE {name} LOGIN PASSWORD '…', on every shard"));
    };
    if !is_true(row, 0) {
        return Some(format!("the role {name} may not log in: ALTER ROLE {name} LOGIN"));
    }
    if is_true(row, 1) || is_true(row, 2) {
        return Some(format!("the role {name} may do more than read: ALTER ROLE {name} NOSUPERUSER NOBYPASSRLS"));
    }
    None
}

/// Why a shard's tables cannot be read, and what lets the role read them.
pub struct ShardFindings {
    pub reasons: Vec<String>,
    pub grants: Vec<String>,
}

/// Not cancel safe: the connection is unusable afterwards.
pub async fn of_shard(conn: &mut ShardConn, (list, entries): (&str, &[TableFacts]), role: &str) -> anyhow::Result<ShardFindings> {
    let of_role = conn.query(&role_facts(role)).await?;
    if let Some(reason) = role_refusal(of_role.first(), role) {
        return Ok(ShardFindings { reasons: vec![reason], grants: Vec::new() });
    }
    let here = facts_of(&conn.query(&table_facts(list, &quote_text(role))).await?);
    let may_connect = of_role.first().is_some_and(|row| is_true(row, 3));
    let connect = format!("GRANT CONNECT ON DATABASE {} TO {}", quote_name(&conn.database), quote_name(role));
    let connect = (!may_connect).then_some(connect);
    let grants = connect.into_iter().chain(missing_grants(&here, role)).collect();
    Ok(ShardFindings { reasons: refusals(&here, entries, role), grants })
}

/// Looks at all shards before it changes one. Not cancel safe: the connections are unusable afterwards.
pub async fn give_rights(
    conns: &mut [ShardConn],
    (list, entries): (&str, &[TableFacts]),
    role: &str,
    rights: ReaderRights,
) -> anyhow::Result<()> {
    let (mut reasons, mut grants) = (Vec::new(), Vec::new());
    for conn in conns.iter_mut() {
        let found = of_shard(conn, (list, entries), role).await?;
        reasons.extend(found.reasons.iter().map(|reason| format!("{}: {reason}", conn.server)));
        if rights == ReaderRights::Needed && !found.grants.is_empty() {
            reasons.push(format!("{}: \"{role}\" may not read all spread tables", conn.server));
        }
        grants.push(found.grants);
    }
    if !reasons.is_empty() {
        bail!("the engine cannot be made ready:\n  {}", reasons.join("\n  "));
    }
    for (conn, grants) in conns.iter_mut().zip(grants).filter(|(_, grants)| !grants.is_empty()) {
        conn.query("BEGIN").await?;
        conn.run_all(&grants).await?;
        conn.query("COMMIT").await?;
    }
    Ok(())
}

pub fn own_texts() -> Vec<String> {
    let list = crate::control::engine_state::listed([("public", "items")].into_iter());
    vec![role_facts("weir_engine"), table_facts(&list, "'weir_engine'"), table_facts(&list, "current_user")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| (*cell != "-").then(|| (*cell).to_owned())).collect()
    }

    fn facts(changes: &[(usize, &str)]) -> Vec<TableFacts> {
        let mut cells = ["s", "it's", "t", "f", "f", "t", "t", "[1]"];
        for (at, cell) in changes {
            cells[*at] = cell;
        }
        facts_of(&[row(&cells)])
    }

    #[test]
    fn a_table_is_read_only_if_it_is_as_in_the_engine_and_hides_no_rows() {
        let entry = facts(&[]);
        assert!(refusals(&facts(&[]), &entry, "r").is_empty());
        for (changes, reason) in [
            (&[(2, "f"), (7, "-")][..], "there is no table"),
            (&[(7, "[2]")], "the columns of \"s\".\"it's\" are [2], and [1] in the engine"),
            (&[(3, "t")], "has row security"),
            (&[(4, "t")], "it must only read"),
        ] {
            let said = refusals(&facts(changes), &entry, "r");
            assert!(said.len() == 1 && said[0].contains(reason), "{said:?}");
        }
    }

    #[test]
    fn only_missing_rights_are_given_on_shards() {
        assert!(missing_grants(&facts(&[]), "r").is_empty());
        assert_eq!(
            missing_grants(&facts(&[(5, "f"), (6, "f")]), "it\"s"),
            ["GRANT USAGE ON SCHEMA \"s\" TO \"it\"\"s\"", "GRANT SELECT ON TABLE \"s\".\"it's\" TO \"it\"\"s\""]
        );
    }

    #[test]
    fn a_role_that_cannot_log_in_or_sees_too_much_is_refused_with_what_mends_it() {
        for (cells, mends) in [
            (None, Some("CREATE ROLE \"r\" LOGIN")),
            (Some(["f", "f", "f"]), Some("ALTER ROLE \"r\" LOGIN")),
            (Some(["t", "t", "f"]), Some("NOSUPERUSER")),
            (Some(["t", "f", "t"]), Some("NOBYPASSRLS")),
            (Some(["t", "f", "f"]), None),
        ] {
            let said = role_refusal(cells.map(|cells| row(&cells)).as_ref(), "r");
            assert_eq!(said.is_some(), mends.is_some(), "{cells:?}");
            assert!(said.iter().all(|said| said.contains(mends.unwrap_or_default())), "{said:?}");
        }
    }
}
