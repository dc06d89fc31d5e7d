//! Rights and settings that the engine has as its database: who may read what, and by which settings.

use super::words::{TableName, quote_name, quote_text};
use std::collections::BTreeSet;

/// The role whose one member is the owner of the database; so in the engine it is another's. Source: pg_authid.dat.
const DATABASE_OWNER: &str = "6171";

/// Settings whose values are lists of quoted names. Source: `variable_is_guc_list_quote` in dumputils.c.
const NAME_LISTS: [&str; 6] = [
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// Settings that the engine has unless its database sets them.
const OWN_SETTINGS: [(&str, &str); 2] = [("enable_partitionwise_aggregate", "on"), ("enable_partitionwise_join", "on")];

/// A right on something of the engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub on: Subject,
    /// Empty: the whole.
    pub column: String,
    pub right: String,
    /// Quoted, or `PUBLIC`.
    pub grantee: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The engine's database.
    Database,
    Schema(String),
    Table(TableName),
}

/// A setting of the database for one role, or for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Empty: all roles.
    pub role: String,
    pub name: String,
    /// As the catalog has it.
    pub value: String,
}

const SETTINGS: &str = "SELECT COALESCE(r.rolname, ''), s.setting FROM pg_catalog.pg_db_role_setting AS x \
    JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) x.setdatabase \
    CROSS JOIN LATERAL pg_catalog.unnest(x.setconfig) AS s (setting) \
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) x.setrole \
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

pub fn settings_query() -> &'static str {
    SETTINGS
}

fn grantee() -> String {
    format!(
        "CASE WHEN g.grantee OPERATOR(pg_catalog.=) '0'::pg_catalog.oid THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(\
         CASE WHEN g.grantee OPERATOR(pg_catalog.=) '{DATABASE_OWNER}'::pg_catalog.oid THEN d.datdba ELSE g.grantee END)::pg_catalog.text) END"
    )
}

/// Rights that the database gives: SELECT on spread tables, USAGE of their schemas, CONNECT, and TEMPORARY, by which a
/// transaction reads its own changes in the engine. An owner's rights count too. `list`: `engine_state::listed`.
pub fn rights_query(list: &str) -> String {
    let grantee = grantee();
    format!(
        "WITH spread AS (SELECT n.oid AS schema, n.nspname, n.nspowner, n.nspacl, c.oid, c.relname, c.relowner, c.relacl FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name) \
         SELECT DISTINCT g.kind, g.schema, g.name, g.of_column, g.privilege_type, {grantee} FROM (\
         SELECT 't' AS kind, s.nspname AS schema, s.relname AS name, '' AS of_column, x.grantee, x.privilege_type FROM spread AS s, \
         pg_catalog.aclexplode(COALESCE(s.relacl, pg_catalog.acldefault('r', s.relowner))) AS x WHERE x.privilege_type OPERATOR(pg_catalog.=) 'SELECT' \
         UNION ALL SELECT 't', s.nspname, s.relname, a.attname, x.grantee, x.privilege_type FROM spread AS s JOIN pg_catalog.pg_attribute AS a \
         ON a.attrelid OPERATOR(pg_catalog.=) s.oid AND NOT a.attisdropped, pg_catalog.aclexplode(a.attacl) AS x \
         WHERE x.privilege_type OPERATOR(pg_catalog.=) 'SELECT' \
         UNION ALL SELECT 'n', s.nspname, '', '', x.grantee, x.privilege_type FROM spread AS s, \
         pg_catalog.aclexplode(COALESCE(s.nspacl, pg_catalog.acldefault('n', s.nspowner))) AS x WHERE x.privilege_type OPERATOR(pg_catalog.=) 'USAGE' \
         UNION ALL SELECT 'd', '', '', '', x.grantee, x.privilege_type FROM pg_catalog.pg_database AS b, \
         pg_catalog.aclexplode(COALESCE(b.datacl, pg_catalog.acldefault('d', b.datdba))) AS x \
         WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND x.privilege_type OPERATOR(pg_catalog.=) ANY (ARRAY['CONNECT', 'TEMPORARY']::pg_catalog.text[])) AS g \
         JOIN pg_catalog.pg_database AS d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
    )
}

/// All rights in the engine that somebody else than an owner has, in the form of `rights_query`. `weir_shard` is left out.
pub const ENGINE_RIGHTS: &str = "SELECT DISTINCT g.kind, g.schema, g.name, g.of_column, g.privilege_type, \
    CASE WHEN g.grantee OPERATOR(pg_catalog.=) '0'::pg_catalog.oid THEN 'PUBLIC' \
    ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)::pg_catalog.text) END FROM (\
    SELECT 't' AS kind, n.nspname AS schema, c.relname AS name, '' AS of_column, x.grantee, x.privilege_type FROM pg_catalog.pg_class AS c \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace, pg_catalog.aclexplode(c.relacl) AS x \
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{p,f}'::pg_catalog.\"char\"[]) AND x.grantee OPERATOR(pg_catalog.<>) c.relowner \
    UNION ALL SELECT 't', n.nspname, c.relname, a.attname, x.grantee, x.privilege_type FROM pg_catalog.pg_class AS c \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND NOT a.attisdropped, pg_catalog.aclexplode(a.attacl) AS x \
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{p,f}'::pg_catalog.\"char\"[]) AND x.grantee OPERATOR(pg_catalog.<>) c.relowner \
    UNION ALL SELECT 'n', n.nspname, '', '', x.grantee, x.privilege_type FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS x \
    WHERE x.grantee OPERATOR(pg_catalog.<>) n.nspowner AND NOT pg_catalog.starts_with(n.nspname::pg_catalog.text, 'pg_') \
    AND n.nspname OPERATOR(pg_catalog.<>) ALL ('{information_schema,weir_shard}'::pg_catalog.name[]) \
    UNION ALL SELECT 'd', '', '', '', x.grantee, x.privilege_type FROM pg_catalog.pg_database AS b, \
    pg_catalog.aclexplode(COALESCE(b.datacl, pg_catalog.acldefault('d', b.datdba))) AS x \
    WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND x.grantee OPERATOR(pg_catalog.<>) b.datdba) AS g";

/// Owners in the engine, whose rights need no words: of the database, of schemas, of tables; quoted.
pub const ENGINE_OWNERS: &str = "SELECT 'd', '', '', pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(b.datdba)::pg_catalog.text) \
    FROM pg_catalog.pg_database AS b WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
    UNION ALL SELECT 'n', n.nspname, '', pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner)::pg_catalog.text) FROM pg_catalog.pg_namespace AS n \
    UNION ALL SELECT 't', n.nspname, c.relname, pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text) FROM pg_catalog.pg_class AS c \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{p,f}'::pg_catalog.\"char\"[])";

/// Reads rows of `rights_query` or `ENGINE_RIGHTS`.
pub fn rights(rows: &[Vec<Option<String>>]) -> BTreeSet<Right> {
    rows.iter().map(|row| Right { on: subject(row), column: text(row, 3), right: text(row, 4), grantee: text(row, 5) }).collect()
}

/// Reads rows of `ENGINE_OWNERS`.
pub fn owners(rows: &[Vec<Option<String>>]) -> BTreeSet<(Subject, String)> {
    rows.iter().map(|row| (subject(row), text(row, 3))).collect()
}

fn subject(row: &[Option<String>]) -> Subject {
    match text(row, 0).as_str() {
        "t" => Subject::Table(TableName { schema: text(row, 1), name: text(row, 2) }),
        "n" => Subject::Schema(text(row, 1)),
        _ => Subject::Database,
    }
}

fn text(row: &[Option<String>], at: usize) -> String {
    row.get(at).cloned().flatten().unwrap_or_default()
}

impl Right {
    fn sql(&self, engine: &str) -> String {
        let column = if self.column.is_empty() { String::new() } else { format!(" ({})", quote_name(&self.column)) };
        let on = match &self.on {
            Subject::Database => format!("DATABASE {}", quote_name(engine)),
            Subject::Schema(name) => format!("SCHEMA {}", quote_name(name)),
            Subject::Table(name) => format!("TABLE {name}"),
        };
        format!("{}{column} ON {on}", self.right)
    }
}

/// Takes what nobody should have.
pub fn revokes(engine: &str, wanted: &BTreeSet<Right>, there: &BTreeSet<Right>) -> Vec<String> {
    there.difference(wanted).map(|right| format!("REVOKE {} FROM {}", right.sql(engine), right.grantee)).collect()
}

/// Gives what is missing. An owner has his rights without.
pub fn grants(
    engine: &str,
    wanted: &BTreeSet<Right>,
    there: &BTreeSet<Right>,
    owners: &BTreeSet<(Subject, String)>,
) -> Vec<String> {
    let is_owners = |right: &&Right| !owners.contains(&(right.on.clone(), right.grantee.clone()));
    wanted.difference(there).filter(is_owners).map(|right| format!("GRANT {} TO {}", right.sql(engine), right.grantee)).collect()
}

/// Reads rows of `settings_query`.
pub fn settings(rows: &[Vec<Option<String>>]) -> BTreeSet<Setting> {
    let setting = |row: &Vec<Option<String>>| {
        let line = text(row, 1);
        let (name, value) = line.split_once('=')?;
        Some(Setting { role: text(row, 0), name: name.to_owned(), value: value.to_owned() })
    };
    rows.iter().filter_map(setting).collect()
}

/// The engine's settings, given those of its database.
pub fn wanted_settings(of_database: &BTreeSet<Setting>) -> BTreeSet<Setting> {
    let mut wanted = of_database.clone();
    for (name, value) in OWN_SETTINGS {
        if !of_database.iter().any(|setting| setting.role.is_empty() && setting.name == name) {
            wanted.insert(Setting { role: String::new(), name: name.to_owned(), value: value.to_owned() });
        }
    }
    wanted
}

/// Makes the engine's settings those that are wanted.
pub fn setting_statements(engine: &str, wanted: &BTreeSet<Setting>, there: &BTreeSet<Setting>) -> Vec<String> {
    let is_set = |setting: &&Setting| wanted.iter().any(|other| (&other.role, &other.name) == (&setting.role, &setting.name));
    let resets = there
        .iter()
        .filter(|setting| !is_set(setting))
        .map(|setting| format!("{} RESET {}", of(engine, setting), quote_name(&setting.name)));
    let sets = wanted
        .difference(there)
        .map(|setting| format!("{} SET {} TO {}", of(engine, setting), quote_name(&setting.name), value_text(setting)));
    resets.chain(sets).collect()
}

fn of(engine: &str, setting: &Setting) -> String {
    match setting.role.as_str() {
        "" => format!("ALTER DATABASE {}", quote_name(engine)),
        role => format!("ALTER ROLE {} IN DATABASE {}", quote_name(role), quote_name(engine)),
    }
}

/// A list of names would be one long name if it were quoted as a whole.
fn value_text(setting: &Setting) -> String {
    if !NAME_LISTS.iter().any(|name| setting.name.eq_ignore_ascii_case(name)) {
        return quote_text(&setting.value);
    }
    let names = names_of(&setting.value);
    if names.is_empty() { "''".to_owned() } else { names.iter().map(|name| quote_text(name)).collect::<Vec<_>>().join(", ") }
}

/// Names of a list, with their quotes taken off. Source: `SplitGUCList` in varlena.c.
fn names_of(list: &str) -> Vec<String> {
    let (mut names, mut name, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                name.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => names.push(std::mem::take(&mut name)),
            ' ' | '\t' | '\n' if !is_quoted => {}
            letter => name.push(letter),
        }
    }
    if !name.is_empty() || !names.is_empty() {
        names.push(name);
    }
    names
}

pub fn own_texts() -> Vec<String> {
    let list = crate::control::engine_state::listed([("public", "items")].into_iter());
    vec![SETTINGS.to_owned(), rights_query(&list), ENGINE_RIGHTS.to_owned(), ENGINE_OWNERS.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(on: &Subject, column: &str, right: &str, grantee: &str) -> Right {
        Right { on: on.clone(), column: column.to_owned(), right: right.to_owned(), grantee: grantee.to_owned() }
    }

    #[test]
    fn the_engine_has_the_rights_of_its_database_and_no_others() {
        let table = Subject::Table(TableName { schema: "s".to_owned(), name: "it's".to_owned() });
        let schema = Subject::Schema("s".to_owned());
        let wanted = BTreeSet::from([
            right(&table, "", "SELECT", "app"),
            right(&table, "id", "SELECT", "\"Clerk\""),
            right(&table, "", "SELECT", "postgres"),
            right(&schema, "", "USAGE", "PUBLIC"),
            right(&Subject::Database, "", "CONNECT", "app"),
        ]);
        let there = BTreeSet::from([
            right(&schema, "", "USAGE", "PUBLIC"),
            right(&schema, "", "CREATE", "app"),
            right(&table, "", "DELETE", "app"),
            right(&Subject::Database, "", "TEMPORARY", "PUBLIC"),
        ]);
        let owners = BTreeSet::from([(table, "postgres".to_owned())]);
        assert_eq!(
            revokes("e", &wanted, &there),
            [
                "REVOKE TEMPORARY ON DATABASE \"e\" FROM PUBLIC",
                "REVOKE CREATE ON SCHEMA \"s\" FROM app",
                "REVOKE DELETE ON TABLE \"s\".\"it's\" FROM app",
            ]
        );
        assert_eq!(
            grants("e", &wanted, &there, &owners),
            [
                "GRANT CONNECT ON DATABASE \"e\" TO app",
                "GRANT SELECT ON TABLE \"s\".\"it's\" TO app",
                "GRANT SELECT (\"id\") ON TABLE \"s\".\"it's\" TO \"Clerk\"",
            ]
        );
    }

    #[test]
    fn settings_are_those_of_the_database_and_lists_of_names_stay_lists() {
        let setting = |role: &str, name: &str, value: &str| Setting {
            role: role.to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let of_database = BTreeSet::from([
            setting("", "search_path", "\"$user\", \"a\"\"b\", public"),
            setting("app", "app.x", "it's"),
            setting("app", "enable_partitionwise_join", "off"),
            setting("", "enable_partitionwise_join", "off"),
            setting("app", "temp_tablespaces", ""),
        ]);
        let there = BTreeSet::from([setting("", "work_mem", "1MB"), setting("app", "app.x", "other")]);
        let wanted = wanted_settings(&of_database);
        assert_eq!(
            setting_statements("e", &wanted, &there),
            [
                "ALTER DATABASE \"e\" RESET \"work_mem\"",
                "ALTER DATABASE \"e\" SET \"enable_partitionwise_aggregate\" TO 'on'",
                "ALTER DATABASE \"e\" SET \"enable_partitionwise_join\" TO 'off'",
                "ALTER DATABASE \"e\" SET \"search_path\" TO '$user', 'a\"b', 'public'",
                "ALTER ROLE \"app\" IN DATABASE \"e\" SET \"app.x\" TO 'it''s'",
                "ALTER ROLE \"app\" IN DATABASE \"e\" SET \"enable_partitionwise_join\" TO 'off'",
                "ALTER ROLE \"app\" IN DATABASE \"e\" SET \"temp_tablespaces\" TO ''",
            ]
        );
        assert!(setting_statements("e", &wanted, &wanted).is_empty());
    }
}
