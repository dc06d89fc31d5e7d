//! List of Weir's own SQL: every text it sends besides those of clients and the operator.
//!
//! `weir docs` refuses a text that a `search_path` could bend (`weir_sql::own`). `cargo xtask own-sql` finds SQL that the list
//! lacks. Tests run each text under the worst path.

use crate::admin::acts::online_recovery;
use crate::agent::keeper::source;
use crate::auth::own_login;
use crate::commands::check_servers;
use crate::control::failover::{hands, marks, node_facts};
use crate::control::node_monitor::question;
use crate::control::shard_setup;
use crate::control::{
    catalog_watch, engine_state, prepared_parts, return_node, shard_catalog, shard_deadlocks, sharding_look, wal_follower,
};
use crate::runtime::pool::conn_opening;
use crate::runtime::user_roles;
use crate::server::{inquiry, shard_gate, xid_status};
use crate::traffic::{ask_outcome, gather_plan, shard_commit, timeouts};
use weir_session::session_state::{client_settings, server_defaults, state_question};
use weir_session::sharding::{batch_opening, reference_steps, savepoint_stack};
use weir_session::signals::process_ids;
use weir_session::{lazy_begin, sequences};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentOver {
    /// A server connection with settings that nobody else chose.
    Own,
    /// A server connection of a client's pool.
    Clients,
}

pub struct SqlPlace {
    /// Source file, below `crates`.
    pub file: &'static str,
    pub over: SentOver,
    /// User of the connection, by parameter.
    pub user: &'static str,
    pub purpose: &'static str,
    /// Example values are filled in.
    pub texts: fn() -> Vec<String>,
}

const OWN: SqlPlace = SqlPlace { file: "", over: SentOver::Own, user: "", purpose: "", texts: Vec::new };
const CLIENTS: SqlPlace = SqlPlace { over: SentOver::Clients, user: "the client's", ..OWN };

const HEALTH: &str = "`health_check_user`, else `sr_check_user`";
const CHECK: &str = "`sr_check_user`";
const SHARD: &str = "`sr_check_user`, or `--user`";

/// The only texts that rely on their connection's path.
pub const CATALOG: &str = "catalog/src/query.rs";

pub const PLACES: &[SqlPlace] = &[
    SqlPlace {
        file: "weir/src/auth/own_login.rs",
        user: "each below",
        purpose: "Settings of Weir's own connections that a startup packet cannot hold.",
        texts: own_login::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/node_monitor/question.rs",
        user: CHECK,
        purpose: "The role of a node, who streams from it, its WAL position.",
        texts: question::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/failover/node_facts.rs",
        user: HEALTH,
        purpose: "The facts that decide about a failover.",
        texts: node_facts::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/failover/hands.rs",
        user: HEALTH,
        purpose: "Votes, promotions, and whom standbys follow.",
        texts: hands::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/failover/marks.rs",
        user: HEALTH,
        purpose: "The exclusion of other Weirs at a server.",
        texts: marks::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/return_node.rs",
        user: HEALTH,
        purpose: "The replication slot of a standby that comes back.",
        texts: return_node::own_texts,
        ..OWN
    },
    SqlPlace {
        file: CATALOG,
        user: "`sr_check_user`, else the client's who came last",
        purpose: "The catalog of a database in use. These name things of `pg_catalog` by the connection's own path.",
        texts: catalog_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/catalog_watch.rs",
        user: "`sr_check_user`, else the client's who came last",
        purpose: "The transaction in which a catalog is read; server processes whose end nobody heard of.",
        texts: catalog_watch::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/sharding_look.rs",
        user: "`sr_check_user`, else the client's who came last",
        purpose: "Does a database have an engine that spreads its tables over shards (`parallel_mode`)?",
        texts: sharding_look::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/wal_follower.rs",
        user: CHECK,
        purpose: "Needs of a stream of the log (`memqcache_invalidation = wal`).",
        texts: wal_follower::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/admin/acts/online_recovery.rs",
        user: "`recovery_user`",
        purpose: "The functions of online recovery by scripts, and how far the copy is (`SHOW pool_recovery`).",
        texts: online_recovery::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/server/inquiry.rs",
        user: "`auth_user`, else `sr_check_user`",
        purpose: "Groups of a user, and whether he may log in, beside `auth_query`.",
        texts: inquiry::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/traffic/timeouts.rs",
        user: "`auth_user`, else `sr_check_user`",
        purpose: "Server processes that wait for a synchronous standby, before `query_timeout` cancels one.",
        texts: timeouts::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/commands/check_servers.rs",
        user: HEALTH,
        purpose: "`weir check --connect`.",
        texts: check_servers::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_catalog.rs",
        user: CHECK,
        purpose: "The tables that are spread over several servers; asked in the engine.",
        texts: shard_catalog::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "session/src/sharding/reference_steps.rs",
        purpose: "One transaction at a time writes to reference tables, each of which has a copy on every shard.",
        texts: reference_steps::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/control/engine_state.rs",
        user: CHECK,
        purpose: "Is the engine ready? The facts by which it was made, and those that its answers depend on; asked in the engine and in its database.",
        texts: engine_state::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/engine.rs",
        user: SHARD,
        purpose: "`weir shard engine`: the server of the engine, and owners of things in it. Statements that name its own things in `weir_shard` follow.",
        texts: shard_setup::engine::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/engine_probe.rs",
        user: SHARD,
        purpose: "`weir shard engine`: the tables that the engine reads on shards. Statements that read them follow.",
        texts: shard_setup::engine_probe::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/engine_reader.rs",
        user: SHARD,
        purpose: "`weir shard engine`: may the role of the engine read the tables of a shard, and are they as in the engine?",
        texts: shard_setup::engine_reader::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/engine_alike.rs",
        user: SHARD,
        purpose: "`weir shard engine`: rights and settings that the engine has as its database.",
        texts: shard_setup::engine_alike::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/engine_servers.rs",
        user: SHARD,
        purpose: "`weir shard engine`: foreign servers and logins.",
        texts: shard_setup::engine_servers::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/shard_servers.rs",
        user: SHARD,
        purpose: "`weir shard`: the primary of each shard.",
        texts: shard_setup::shard_servers::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/shards_alike.rs",
        user: SHARD,
        purpose: "`weir shard`: what databases of shards must have in common.",
        texts: shard_setup::shards_alike::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/table_definition.rs",
        user: SHARD,
        purpose: "`weir shard`: the definition of a table.",
        texts: shard_setup::table_definition::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/create.rs",
        user: SHARD,
        purpose: "`weir shard`: the engine. Statements that make the table follow, and name it by its schema.",
        texts: shard_setup::create::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/show.rs",
        user: SHARD,
        purpose: "`weir shard show`: estimates of rows.",
        texts: shard_setup::show::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_setup/check.rs",
        user: SHARD,
        purpose: "`weir shard check`: constraints that keep rows of other shards out.",
        texts: shard_setup::check::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/agent/keeper/source.rs",
        user: "the agent's replication user",
        purpose: "The server that an agent copies from.",
        texts: source::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/runtime/pool/conn_opening.rs",
        purpose: "The start of a server that a failover has chosen.",
        texts: start,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/traffic/ask_outcome.rs",
        purpose: "The outcome of a COMMIT whose answer was lost (`commit_outcome`).",
        texts: ask_outcome::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/server/xid_status.rs",
        purpose: "The outcome of a transaction, by its number.",
        texts: xid_status::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/control/prepared_parts.rs",
        user: CHECK,
        purpose: "Prepared parts of transactions on several shards whose sessions were lost.",
        texts: prepared_parts::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/control/shard_deadlocks.rs",
        user: CHECK,
        purpose: "Waits for locks, of transactions on several shards.",
        texts: shard_deadlocks::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/server/shard_gate.rs",
        user: CHECK,
        purpose: "The gate between commits on several shards and reads of several shards. Statements that name `weir_shard.gate` and `weir_shard.prepared` follow; \
            clients of the engine read the second, too.",
        texts: shard_gate::own_texts,
        ..OWN
    },
    SqlPlace {
        file: "weir/src/traffic/gather_plan.rs",
        purpose: "Rows that are copied to the engine for a SELECT over several shards within a transaction. Texts with conditions of the engine's own plan and names of tables follow, \
            under `search_path = pg_catalog`.",
        texts: gather_plan::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/traffic/shard_commit.rs",
        purpose: "Commits on several shards.",
        texts: shard_commit::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/sharding/batch_opening.rs",
        purpose: "Makes a transaction of statements up to a Sync that go to several shards.",
        texts: begin,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/sharding/savepoint_stack.rs",
        purpose: "The client's savepoints on each shard of its transaction.",
        texts: savepoint_stack::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/doubt/transaction_number.rs",
        purpose: "The number of a transaction (`commit_outcome`).",
        texts: weir_session::doubt::transaction_number::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/lazy_begin.rs",
        purpose: "A snapshot that the client took before its BEGIN was sent.",
        texts: reads,
        ..CLIENTS
    },
    SqlPlace { file: "session/src/sequences.rs", purpose: "Forgets what another session drew.", texts: forget, ..CLIENTS },
    SqlPlace {
        file: "session/src/session_state/listen.rs",
        purpose: "Channels that a session listens to.",
        texts: weir_session::session_state::listen::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/session_state/state_question.rs",
        purpose: "State that a session left on its server connection.",
        texts: state_question::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/session_state/server_defaults.rs",
        purpose: "The settings that a new connection begins with, and those of one at rest after a reload of its server.",
        texts: server_defaults::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/session_state/client_settings.rs",
        purpose: "Settings of the next session.",
        texts: client_settings::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "weir/src/runtime/user_roles.rs",
        purpose: "The role that a user's name stands for.",
        texts: user_roles::own_texts,
        ..CLIENTS
    },
    SqlPlace {
        file: "session/src/signals/process_ids.rs",
        purpose: "The answer to a client that ended another session of Weir's.",
        texts: process_ids::own_texts,
        ..CLIENTS
    },
];

fn catalog_texts() -> Vec<String> {
    weir_catalog::CatalogQuery::all().map(|question| question.sql().to_owned()).collect()
}

fn start() -> Vec<String> {
    vec![conn_opening::START.to_owned()]
}

fn begin() -> Vec<String> {
    vec![batch_opening::BEGIN.to_owned()]
}

fn reads() -> Vec<String> {
    vec![lazy_begin::READS.to_owned()]
}

fn forget() -> Vec<String> {
    vec![sequences::FORGET.to_owned()]
}
