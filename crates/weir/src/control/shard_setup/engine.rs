//! `weir shard engine`: makes the engine able to answer statements over several shards, and says so in a note that Weir compares with the database
//! (`control::engine_state`).
//!
//! Rights on the shards come first. All in the engine is one transaction, in which it also reads every shard once: an address, a password or a line of
//! `pg_hba.conf` that is wrong leaves all as it was.

use super::create::{self, ENGINE_OWNER, first_cell};
use super::ddl;
use super::engine_alike;
use super::engine_probe::{self, FOREIGN_TABLES};
use super::engine_reader::{self, TableFacts};
use super::engine_servers::{self, Detour, MAPPINGS, Options, SERVER_OPTIONS, options_of};
use super::shard_servers::{ShardConn, ShardServers};
use super::shards_alike;
use super::words::{TableName, quote_name, quote_text};
use crate::control::engine_state::{self, ENGINE_NOTE, ENGINE_NOTE_THERE, EngineNote, EngineSeen, Fingerprint};
use crate::control::shard_catalog::{SERVER_BEGIN, ShardedKind, ShardedTable, UNFIT_COLUMNS};
use crate::counted;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fmt::Write;
use weir_config::Config;
use weir_shard::EngineReadiness;

/// Passwords stand in the statements that follow.
const QUIET: [&str; 4] = [
    "SET LOCAL log_statement TO 'none'",
    "SET LOCAL log_min_duration_statement TO '-1'",
    "SET LOCAL log_min_error_statement TO 'panic'",
    "SET LOCAL pg_stat_statements.track_utility TO 'off'",
];

const SUPERUSER: &str = "SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) current_user";

const MAJOR: &str = "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog./) 10000";

const PLACE: &str = "SELECT pg_catalog.current_setting('unix_socket_directories') OPERATOR(pg_catalog.||) ' ' \
    OPERATOR(pg_catalog.||) pg_catalog.current_setting('port')";

/// An owner of things in the engine could lead statements of others astray.
const STRANGERS: &str = "SELECT pg_catalog.pg_describe_object(x.class, x.object, 0), r.rolname FROM (\
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AS class, c.oid AS object, c.relowner AS owner FROM pg_catalog.pg_class AS c \
    WHERE c.relkind OPERATOR(pg_catalog.<>) ALL ('{i,I,t}'::pg_catalog.\"char\"[]) \
    UNION ALL SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass, p.oid, p.proowner FROM pg_catalog.pg_proc AS p \
    UNION ALL SELECT 'pg_catalog.pg_operator'::pg_catalog.regclass, o.oid, o.oprowner FROM pg_catalog.pg_operator AS o \
    UNION ALL SELECT 'pg_catalog.pg_collation'::pg_catalog.regclass, l.oid, l.collowner FROM pg_catalog.pg_collation AS l \
    UNION ALL SELECT 'pg_catalog.pg_type'::pg_catalog.regclass, t.oid, t.typowner FROM pg_catalog.pg_type AS t \
    UNION ALL SELECT 'pg_catalog.pg_foreign_server'::pg_catalog.regclass, s.oid, s.srvowner FROM pg_catalog.pg_foreign_server AS s \
    UNION ALL SELECT 'pg_catalog.pg_namespace'::pg_catalog.regclass, n.oid, n.nspowner FROM pg_catalog.pg_namespace AS n) AS x \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) x.owner \
    WHERE NOT r.rolsuper AND r.rolname OPERATOR(pg_catalog.<>) 'pg_database_owner' ORDER BY 1 LIMIT 1";

/// True if all of `GROUND` is there.
const GROUND_THERE: &str = "SELECT pg_catalog.to_regclass('weir_shard.gate') IS NOT NULL \
    AND pg_catalog.to_regclass('weir_shard.commits_begun') IS NOT NULL AND pg_catalog.to_regclass('weir_shard.commits_ended') IS NOT NULL \
    AND pg_catalog.has_schema_privilege('public', pg_catalog.to_regnamespace('weir_shard')::pg_catalog.oid, 'USAGE') \
    AND pg_catalog.has_table_privilege('public', pg_catalog.to_regclass('weir_shard.engine_state')::pg_catalog.oid, 'SELECT') \
    AND pg_catalog.has_function_privilege('public', pg_catalog.to_regprocedure('weir_shard.engine_place()')::pg_catalog.oid, 'EXECUTE')";

/// The engine's own part of `weir_shard`. Only superusers may ask a server for its sockets, and Weir's look need not be one.
const GROUND: [&str; 7] = [
    "CREATE SCHEMA IF NOT EXISTS weir_shard",
    "GRANT USAGE ON SCHEMA weir_shard TO PUBLIC",
    "CREATE TABLE IF NOT EXISTS weir_shard.engine_state (state pg_catalog.text NOT NULL)",
    "GRANT SELECT ON TABLE weir_shard.engine_state TO PUBLIC",
    // Nobody else may lock it (`server::shard_gate`).
    "CREATE TABLE IF NOT EXISTS weir_shard.gate ()",
    "CREATE SEQUENCE IF NOT EXISTS weir_shard.commits_begun",
    "CREATE SEQUENCE IF NOT EXISTS weir_shard.commits_ended",
];

/// Rights of the role that reads the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderRights {
    /// The role is given what it lacks.
    Given,
    /// A lack is an error: somebody may have taken them.
    Needed,
}

/// The order that one run carries out.
pub struct EngineOrder {
    /// Reads the tables of all shards.
    pub role: String,
    pub password: Option<String>,
    pub detours: Vec<Detour>,
    pub rights: ReaderRights,
}

/// Tables that Weir will not let the engine answer for, with the reason.
fn unfit(tables: &[ShardedTable], columns: &[Vec<Option<String>>]) -> Vec<String> {
    let mut lines = Vec::new();
    for table in tables {
        let name = TableName { schema: table.schema.clone(), name: table.name.clone() };
        let mut shards = BTreeSet::new();
        let twice = match &table.kind {
            ShardedKind::Sharded { partitions, .. } => {
                partitions.iter().find_map(|one| one.shard.filter(|shard| !shards.insert(*shard)))
            }
            ShardedKind::Reference => None,
        };
        let is_of_table = |row: &&Vec<Option<String>>| row[..2] == [Some(name.schema.clone()), Some(name.name.clone())];
        let column = columns.iter().find(is_of_table).and_then(|row| row.get(2)?.clone());
        if let Some(shard) = twice {
            lines.push(format!("note: the engine is not used for {name}: several of its partitions lie on shard {shard}"));
        } else if let Some(column) = column {
            let column = quote_name(&column);
            lines.push(format!("note: the engine is not used for {name}: values of its column {column} do not pass unchanged"));
        }
    }
    lines
}

/// A partition that a `search_path` could find in place of a table. `foreign`: the answer to `FOREIGN_TABLES`.
fn ambiguous(tables: &[ShardedTable], foreign: &[Vec<Option<String>>]) -> Option<TableName> {
    foreign.iter().find_map(|row| match row.as_slice() {
        [Some(schema), Some(name), _, Some(_), ..] if tables.iter().any(|table| table.name == *name) => {
            Some(TableName { schema: schema.clone(), name: name.clone() })
        }
        _ => None,
    })
}

/// Returns what to say. Not cancel safe: rights on shards may be given.
pub async fn make(servers: &ShardServers, database: &str, order: &EngineOrder) -> anyhow::Result<String> {
    let mut conns = Vec::new();
    for server in &servers.servers {
        conns.push(servers.open(server, database).await?);
    }
    for conn in &mut conns {
        if first_cell(&conn.query(SUPERUSER).await?).as_deref() != Some("t") {
            bail!("{}: weir shard engine needs a superuser: name one by --login", conn.server);
        }
    }
    let differences = shards_alike::differences(&mut conns).await?;
    if !differences.is_empty() {
        bail!("the shards are not alike:\n{}", differences.join("\n"));
    }
    if let Some(detour) = order.detours.iter().find(|detour| !servers.numbers().contains(&detour.shard)) {
        bail!("there is no shard {}: --address names shards of the configuration", detour.shard);
    }
    let (mut engine, tables) = create::begin_engine(servers, database).await?;
    refuse_strangers(&mut engine).await?;
    if let Some(partition) = ambiguous(&tables, &engine.query(FOREIGN_TABLES).await?) {
        bail!("a partition of the engine has the name of a sharded table: ALTER FOREIGN TABLE {partition} RENAME, in the engine");
    }
    let tables = forget_dropped(&mut engine, &mut conns, tables).await?;
    let list = list_of(&tables);
    follow_columns(&mut engine, &mut conns, &list).await?;
    let entries = engine_reader::facts_of(&engine.query(&engine_reader::table_facts(&list, "current_user")).await?);
    engine_reader::give_rights(&mut conns, (&list, &entries), &order.role, order.rights).await?;
    make_engine(servers, (&mut engine, &mut conns), (&list, &entries), order).await?;
    let notes = unfit(&tables, &engine.query(UNFIT_COLUMNS).await?);
    engine.query("COMMIT").await.context("it is unknown if the engine is ready: run this again")?;
    let mut text = format!(
        "the engine of \"{database}\" is ready: {} on {}, read as {}\n",
        counted(tables.len(), "table"),
        counted(conns.len(), "shard"),
        quote_name(&order.role)
    );
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    Ok(text)
}

/// Takes tables that no shard has any more out of the engine, and returns the others. Not cancel safe: the connections are unusable afterwards.
async fn forget_dropped(
    engine: &mut ShardConn,
    conns: &mut [ShardConn],
    tables: Vec<ShardedTable>,
) -> anyhow::Result<Vec<ShardedTable>> {
    let query = present_query(&list_of(&tables));
    let mut present = BTreeSet::new();
    for conn in conns {
        present.extend(conn.query(&query).await?);
    }
    let is_there = |table: &ShardedTable| present.contains(&vec![Some(table.schema.clone()), Some(table.name.clone())]);
    let (kept, dropped): (Vec<_>, Vec<_>) = tables.into_iter().partition(is_there);
    for table in dropped {
        let is_sharded = table.kind != ShardedKind::Reference;
        engine.run(&ddl::engine_drop(&TableName { schema: table.schema, name: table.name }, is_sharded)).await?;
    }
    Ok(kept)
}

/// Gives the schema and name of each of the tables that a database has. `list`: of them.
fn present_query(list: &str) -> String {
    format!(
        "SELECT n.nspname, c.relname FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name"
    )
}

/// Gives the engine's tables the columns that those of shard 0 have. Not cancel safe: the connections are unusable afterwards.
async fn follow_columns(engine: &mut ShardConn, conns: &mut [ShardConn], list: &str) -> anyhow::Result<()> {
    let Some(primary) = conns.first_mut() else { bail!("there is no shard 0") };
    let facts = engine_reader::table_facts(list, "current_user");
    let wanted = engine_reader::facts_of(&primary.query(&facts).await?);
    let there = engine_reader::facts_of(&engine.query(&facts).await?);
    for (wanted, there) in wanted.iter().zip(&there) {
        engine.run_all(&engine_reader::followed(wanted, there)).await?;
    }
    Ok(())
}

/// Makes an engine ready again that was, as it was; says nothing about others. Not cancel safe: rights on shards may be given.
pub async fn again(servers: &ShardServers, database: &str, rights: ReaderRights) -> anyhow::Result<String> {
    let Some(mut engine) = create::open_engine(servers, database).await? else { return Ok(String::new()) };
    if engine.query(ENGINE_NOTE_THERE).await?.is_empty() {
        return Ok(String::new());
    }
    let note = first_cell(&engine.run(ENGINE_NOTE).await?).as_deref().and_then(EngineNote::of_text);
    let note = note.context("another version of Weir made the engine ready")?;
    let (role, password) = login(&mut engine).await?.context("the engine shows no login for its shards")?;
    let password = servers.password_of(&role)?.or(password);
    let numbers = servers.numbers();
    let detours = note.detours.into_iter().filter(|(shard, ..)| numbers.contains(shard));
    let detours = detours.map(|(shard, host, port)| Detour { shard, host, port }).collect();
    drop(engine);
    make(servers, database, &EngineOrder { role, password, detours, rights }).await
}

/// The role that reads the shards for the engine, and its password there. Not cancel safe: the connection is unusable afterwards.
pub async fn login(engine: &mut ShardConn) -> anyhow::Result<Option<(String, Option<String>)>> {
    let mappings = engine.query(MAPPINGS).await?;
    let options = mappings.iter().find(|row| row.get(1) == Some(&None)).and_then(|row| row.get(2)?.as_deref()).map(options_of);
    let value = |name: &str| options.iter().flatten().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    Ok(value("user").map(|role| (role, value("password"))))
}

/// For `weir shard check`: why an engine that was made ready is not now. Not cancel safe: connections are unusable afterwards.
pub async fn findings(
    servers: &ShardServers,
    engine: &mut ShardConn,
    conns: &mut [ShardConn],
    tables: &[ShardedTable],
) -> anyhow::Result<Vec<String>> {
    let Some(of_engine) = first_cell(&engine.query(ENGINE_NOTE_THERE).await?) else { return Ok(Vec::new()) };
    let Some(primary) = conns.first_mut() else { return Ok(Vec::new()) };
    let note = engine.run(ENGINE_NOTE).await?;
    let cell = |at: usize| note.first().and_then(|row| row.get(at)?.clone()).unwrap_or_default();
    let fingerprint = Fingerprint::of_rows(&primary.query(&engine_state::fingerprint_query(&list_of(tables))).await?);
    let seen = EngineSeen {
        node: primary.server.node,
        note: EngineNote::of_text(&cell(0)),
        fingerprint: fingerprint.context("shard 0 does not describe its tables")?,
        of_engine,
        place: cell(1),
        addresses: engine_state::addresses_of(servers.config()),
    };
    let mut lines = match engine_state::readiness(&seen, &primary.database) {
        EngineReadiness::Follows(reason) | EngineReadiness::Behind(reason) => vec![format!("the engine is behind: {reason}")],
        EngineReadiness::Ready { .. } | EngineReadiness::DefinesOnly => Vec::new(),
    };
    let Some((role, _)) = login(engine).await? else { return Ok(lines) };
    let list = list_of(tables);
    let entries = engine_reader::facts_of(&engine.query(&engine_reader::table_facts(&list, "current_user")).await?);
    for conn in conns.iter_mut() {
        lines.extend(
            engine_reader::of_shard(conn, (&list, &entries), &role)
                .await?
                .reasons
                .iter()
                .map(|reason| format!("{}: {reason}", conn.server)),
        );
    }
    engine.query("BEGIN READ WRITE").await?;
    lines.extend(engine_probe::failures(engine, conns).await?);
    engine.query("ROLLBACK").await?;
    Ok(lines)
}

fn list_of(tables: &[ShardedTable]) -> String {
    engine_state::listed(tables.iter().map(|table| (&*table.schema, &*table.name)))
}

/// Not cancel safe: the connection is unusable afterwards.
async fn refuse_strangers(engine: &mut ShardConn) -> anyhow::Result<()> {
    if first_cell(&engine.query(ENGINE_OWNER).await?).as_deref() != Some("t") {
        bail!("the database \"{}\" belongs to an ordinary user: give it to a superuser", engine.database);
    }
    if let Some([Some(thing), Some(owner)]) = engine.query(STRANGERS).await?.first().map(Vec::as_slice) {
        bail!(
            "the database \"{}\" has a {thing} of \"{owner}\", who is no superuser: drop it, or give it to one",
            engine.database
        );
    }
    Ok(())
}

/// All that stands in the engine. Not cancel safe: the connections are unusable afterwards.
async fn make_engine(
    servers: &ShardServers,
    (engine, conns): (&mut ShardConn, &mut [ShardConn]),
    (list, entries): (&str, &[TableFacts]),
    order: &EngineOrder,
) -> anyhow::Result<()> {
    let Some(primary) = conns.first_mut() else { bail!("there is no shard 0") };
    let database = primary.database.clone();
    // The copy and the note are of one moment: a later change is seen as such.
    primary.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let fingerprint = Fingerprint::of_rows(&primary.query(&engine_state::fingerprint_query(list)).await?);
    let fingerprint = fingerprint.context("shard 0 does not describe its tables")?;
    let found = engine_reader::of_shard(primary, (list, entries), &order.role).await?;
    if !found.reasons.is_empty() || !found.grants.is_empty() {
        bail!("the tables of shard 0 have just been changed: run this again");
    }
    make_ground(engine).await?;
    copy_rights(engine, primary, list).await?;
    copy_settings(engine, primary).await?;
    primary.query("COMMIT").await?;
    let place = first_cell(&engine.query(PLACE).await?).unwrap_or_default();
    make_servers(servers, engine, &database, (order, &place)).await?;
    make_gate(engine, &servers.numbers(), servers.config()).await?;
    let failures = engine_probe::failures(engine, conns).await?;
    if !failures.is_empty() {
        bail!(
            "the engine does not read all shards, so nothing is changed in it:\n  {}\n{}",
            failures.join("\n  "),
            advice(&database, &order.role)
        );
    }
    let of_engine = first_cell(&engine.query(ENGINE_NOTE_THERE).await?).context("the engine does not show its note")?;
    let addresses = engine_state::addresses_of(servers.config());
    let detours = order.detours.iter().map(|detour| (detour.shard, detour.host.clone(), detour.port)).collect();
    let note = EngineNote { fingerprint, of_engine, place, addresses, detours }.text();
    if first_cell(&engine.run(ENGINE_NOTE).await?).as_deref() != Some(&note) {
        engine.run("DELETE FROM weir_shard.engine_state").await?;
        engine.run(&format!("INSERT INTO weir_shard.engine_state VALUES ({})", quote_text(&note))).await?;
    }
    Ok(())
}

fn advice(database: &str, role: &str) -> String {
    let (name, quoted) = (quote_name(database), quote_name(role));
    format!(
        "Look at the address (--address), at the password of {quoted} in pool_passwd, and at pg_hba.conf of the server: it must let {quoted} in to {name} by \
         password, on shard 0 by a line like: local {name} {quoted} scram-sha-256; on the others by a line that begins with host and has the address of shard 0's server."
    )
}

/// Not cancel safe: the connection is unusable afterwards.
async fn make_ground(engine: &mut ShardConn) -> anyhow::Result<()> {
    if first_cell(&engine.query(GROUND_THERE).await?).as_deref() == Some("t") {
        return Ok(());
    }
    for statement in GROUND {
        engine.run(statement).await?;
    }
    let place = format!(
        "CREATE OR REPLACE FUNCTION weir_shard.engine_place() RETURNS pg_catalog.text LANGUAGE sql STABLE SECURITY DEFINER \
         SET search_path TO pg_catalog, pg_temp AS {}",
        quote_text(PLACE)
    );
    engine.run(&place).await?;
    engine.run("GRANT EXECUTE ON FUNCTION weir_shard.engine_place() TO PUBLIC").await.map(drop)
}

/// Not cancel safe: the connections are unusable afterwards.
async fn copy_rights(engine: &mut ShardConn, primary: &mut ShardConn, list: &str) -> anyhow::Result<()> {
    let wanted = engine_alike::rights(&primary.query(&engine_alike::rights_query(list)).await?);
    let owners = engine_alike::owners(&engine.query(engine_alike::ENGINE_OWNERS).await?);
    let there = engine_alike::rights(&engine.query(engine_alike::ENGINE_RIGHTS).await?);
    engine.run_all(&engine_alike::revokes(&engine.database, &wanted, &there)).await?;
    // A right on a table that is taken takes those on its columns along.
    let there = engine_alike::rights(&engine.query(engine_alike::ENGINE_RIGHTS).await?);
    engine.run_all(&engine_alike::grants(&engine.database, &wanted, &there, &owners)).await
}

/// Not cancel safe: the connections are unusable afterwards.
async fn copy_settings(engine: &mut ShardConn, primary: &mut ShardConn) -> anyhow::Result<()> {
    let of_database = engine_alike::settings(&primary.query(engine_alike::settings_query()).await?);
    let there = engine_alike::settings(&engine.query(engine_alike::settings_query()).await?);
    let wanted = engine_alike::wanted_settings(&of_database);
    engine.run_all(&engine_alike::setting_statements(&engine.database, &wanted, &there)).await
}

/// Not cancel safe: the connection is unusable afterwards.
async fn make_servers(
    servers: &ShardServers,
    engine: &mut ShardConn,
    database: &str,
    (order, place): (&EngineOrder, &str),
) -> anyhow::Result<()> {
    let major = first_cell(&engine.query(MAJOR).await?).and_then(|number| number.parse().ok()).context("no version")?;
    let own = engine_servers::own_address(place).with_context(|| format!("the server of shard 0 listens at \"{place}\""))?;
    let wanted = engine_servers::wanted(servers.config(), &servers.servers, database, (&own, &order.detours), major);
    let known: Vec<(Option<String>, Options)> = engine.query(SERVER_OPTIONS).await?.into_iter().map(named_options).collect();
    for (name, options) in &wanted {
        let there = known.iter().find(|(known, _)| known.as_ref() == Some(name)).map(|(_, options)| options);
        if let Some(statement) = engine_servers::server_statement(name, there, options) {
            engine.run(&statement).await?;
        }
    }
    let mappings = engine.query(MAPPINGS).await?;
    let mut of_all = Vec::new();
    for row in mappings {
        match row.as_slice() {
            [Some(server), None, Some(options)] => of_all.push((server.clone(), options_of(options))),
            [Some(server), Some(role), _] => bail!(
                "\"{role}\" has a login of its own at the server {server} of the engine: DROP USER MAPPING FOR {} SERVER {server}",
                quote_name(role)
            ),
            _ => {}
        }
    }
    for statement in QUIET {
        engine.query(statement).await?;
    }
    let options = engine_servers::mapping(&order.role, order.password.as_deref());
    for (name, _) in &wanted {
        let there = of_all.iter().find(|(server, _)| server == name).map(|(_, options)| options);
        if let Some(statement) = engine_servers::mapping_statement(name, there, &options) {
            let done = engine.attempt(&statement).await?;
            done.map_err(anyhow::Error::msg).with_context(|| format!("cannot give the server {name} its login"))?;
        }
    }
    Ok(())
}

/// Makes the tables by which reads of several shards see no commit in part (`server::shard_gate`). Not cancel safe: the connection is unusable afterwards.
async fn make_gate(engine: &mut ShardConn, shards: &[u16], config: &Config) -> anyhow::Result<()> {
    let user = if config.check.user.is_empty() { "postgres" } else { &config.check.user };
    let there = engine.query(&gate_there(user)).await?;
    let names: Vec<&str> = there.iter().filter_map(|row| row.first()?.as_deref()).collect();
    for statement in gate_statements(shards, &names, user) {
        engine.run(&statement).await?;
    }
    Ok(())
}

/// A view over one foreign table for each shard.
struct ShardView {
    name: &'static str,
    columns: &'static str,
    /// The relation of the shard, and what else `postgres_fdw` is told.
    options: &'static str,
    /// Columns of the view, of the table `p`, behind the shard's number.
    shown: &'static str,
}

/// Prepared transactions.
const PREPARED: ShardView = ShardView {
    name: "prepared",
    columns: "gid pg_catalog.text, database pg_catalog.name",
    options: "schema_name 'pg_catalog', table_name 'pg_prepared_xacts'",
    shown: ", p.gid, p.database",
};

/// The plan of a read of it asks each shard for an estimate, in the transaction that later reads use. No row is read. The relation is any small one.
const SHARDS: ShardView = ShardView {
    name: "shards",
    columns: "oid pg_catalog.oid",
    options: "schema_name 'pg_catalog', table_name 'pg_am', use_remote_estimate 'true'",
    shown: "",
};

impl ShardView {
    fn table_of(&self, shard: u16) -> String {
        format!("{}_{shard}", self.name)
    }

    fn table_statement(&self, shard: u16) -> String {
        let (table, columns, options) = (self.table_of(shard), self.columns, self.options);
        format!("CREATE FOREIGN TABLE weir_shard.{table} ({columns}) SERVER {SERVER_BEGIN}{shard} OPTIONS ({options})")
    }

    fn view_statements(&self, shards: &[u16]) -> [String; 2] {
        let part = |shard: &u16| {
            let (shown, table) = (self.shown, self.table_of(*shard));
            format!("SELECT '{shard}'::pg_catalog.int4 AS shard{shown} FROM weir_shard.{table} AS p")
        };
        let parts: Vec<String> = shards.iter().map(part).collect();
        let name = self.name;
        [
            format!("CREATE OR REPLACE VIEW weir_shard.{name} AS {}", parts.join(" UNION ALL ")),
            format!("GRANT SELECT ON TABLE weir_shard.{name} TO PUBLIC"),
        ]
    }
}

/// Gives the names of the gate's objects that are there: `gate` if the user may lock it, its sequences if the user may raise and read them, `prepared` and
/// `shards` if all may read them.
fn gate_there(user: &str) -> String {
    format!(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE n.nspname OPERATOR(pg_catalog.=) 'weir_shard' AND CASE WHEN c.relname OPERATOR(pg_catalog.=) 'gate' \
         THEN pg_catalog.has_table_privilege({user}, c.oid, 'UPDATE') WHEN c.relkind OPERATOR(pg_catalog.=) 'S' \
         THEN pg_catalog.has_sequence_privilege({user}, c.oid, 'USAGE') AND pg_catalog.has_sequence_privilege({user}, c.oid, 'SELECT') \
         WHEN c.relkind OPERATOR(pg_catalog.=) 'v' \
         THEN pg_catalog.has_table_privilege('public', c.oid, 'SELECT') ELSE c.relkind OPERATOR(pg_catalog.=) 'f' END",
        user = quote_text(user)
    )
}

/// Statements that are needed where `names` are there. `user`: who locks the gate.
fn gate_statements(shards: &[u16], names: &[&str], user: &str) -> Vec<String> {
    let views = [PREPARED, SHARDS];
    let is_of_view = |name: &str| views.iter().any(|view| name.strip_prefix(view.name).is_some_and(|rest| rest.starts_with('_')));
    let tables: Vec<String> = views.iter().flat_map(|view| shards.iter().map(|shard| view.table_of(*shard))).collect();
    let old = names.iter().filter(|name| is_of_view(name) && !tables.iter().any(|table| table == *name));
    let drops: Vec<String> = old.map(|table| format!("DROP FOREIGN TABLE weir_shard.{table}")).collect();
    let mut statements = Vec::new();
    for view in views {
        let new = shards.iter().filter(|shard| !names.contains(&&*view.table_of(**shard)));
        let tables: Vec<String> = new.map(|shard| view.table_statement(*shard)).collect();
        if !tables.is_empty() || !drops.is_empty() || !names.contains(&view.name) {
            statements.extend(tables);
            statements.extend(view.view_statements(shards));
        }
    }
    if !names.contains(&"gate") {
        statements.push(format!("GRANT UPDATE ON TABLE weir_shard.gate TO {}", quote_name(user)));
    }
    for sequence in ["commits_begun", "commits_ended"] {
        if !names.contains(&sequence) {
            statements.push(format!("GRANT USAGE, SELECT ON SEQUENCE weir_shard.{sequence} TO {}", quote_name(user)));
        }
    }
    statements.extend(drops);
    statements
}

fn named_options(row: Vec<Option<String>>) -> (Option<String>, Options) {
    let mut cells = row.into_iter();
    (cells.next().flatten(), cells.next().flatten().map(|json| options_of(&json)).unwrap_or_default())
}

pub fn own_texts() -> Vec<String> {
    let present = present_query(&engine_state::listed([("public", "items")].into_iter()));
    [SUPERUSER, MAJOR, PLACE, STRANGERS, GROUND_THERE]
        .map(str::to_owned)
        .into_iter()
        .chain([gate_there("weir"), present])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::shard_catalog::ShardedPartition;

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| (*cell != "-").then(|| (*cell).to_owned())).collect()
    }

    fn sharded(name: &str, shards: &[u16]) -> ShardedTable {
        let partition = |shard: &u16| ShardedPartition { bound: String::new(), shard: Some(*shard) };
        let kind = ShardedKind::Sharded { key: None, partitions: shards.iter().map(partition).collect() };
        ShardedTable { schema: "s".to_owned(), name: name.to_owned(), kind }
    }

    #[test]
    fn tables_that_the_engine_is_not_used_for_are_told() {
        let tables = [sharded("a", &[0, 1]), sharded("b", &[1, 0, 1]), sharded("c", &[0])];
        let notes = unfit(&tables, &[row(&["s", "c", "price"])]);
        assert!(notes.len() == 2 && notes[0].contains("\"b\": several") && notes[1].contains("column \"price\""), "{notes:?}");
    }

    #[test]
    fn the_gate_is_made_once_and_follows_the_shards() {
        let made = gate_statements(&[0, 1], &[], "weir");
        assert!(made.len() == 11 && made[2].contains("prepared_0 AS p UNION ALL SELECT '1'"), "{made:?}");
        let names =
            ["gate", "prepared", "shards", "prepared_0", "prepared_1", "shards_0", "shards_1", "commits_begun", "commits_ended"];
        assert_eq!(gate_statements(&[0, 1], &names, "weir"), Vec::<String>::new());
        let fewer = gate_statements(&[0], &names, "weir");
        assert!(
            fewer.len() == 6
                && fewer[4..] == ["prepared_1", "shards_1"].map(|table| format!("DROP FOREIGN TABLE weir_shard.{table}")),
            "{fewer:?}"
        );
        assert_eq!(gate_statements(&[0, 1], &names[1..], "a b"), ["GRANT UPDATE ON TABLE weir_shard.gate TO \"a b\""]);
    }

    #[test]
    fn a_partition_with_the_name_of_a_table_is_ambiguous_and_a_reference_table_is_none() {
        let tables = [sharded("a", &[0]), sharded("a_0", &[0])];
        let of = |cells: &[&str]| ambiguous(&tables, &[row(cells)]);
        assert_eq!(of(&["s", "a_1", "shard_0", "s", "a"]), None);
        assert_eq!(of(&["s", "a_0", "every_shard", "-", "-"]), None);
        assert_eq!(of(&["t", "a_0", "shard_0", "t", "a"]).map(|name| name.to_string()).as_deref(), Some("\"t\".\"a_0\""));
    }
}
