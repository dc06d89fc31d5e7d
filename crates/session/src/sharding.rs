//! Tables over several servers (`parallel_mode`): the shard of a statement, or why it has none.
//!
//! A statement about rows of one shard goes there as it is. Shard 0 is the cluster, which has all that is not sharded. A SELECT about rows of several
//! shards goes to the engine, which sees what is committed: outside of transactions, and in one that has not begun on a server yet. An UPDATE or DELETE
//! may go to each shard, and an INSERT's rows each to its own (`write_steps`). Statements up to a Sync may go to several (`batch_steps`). A transaction stays on one shard unless it may span several (`participants`). Anything else is refused (0A000),
//! and nothing is guessed.

mod aim;
mod all_shards_aim;
pub mod batch_opening;
pub mod batch_steps;
mod bound_values;
pub mod copy_parts;
pub mod copy_plan;
pub mod copy_steps;
mod copy_table;
mod definitions;
mod engine_aim;
pub mod engine_settings;
pub mod engine_snapshots;
pub mod engine_standing;
pub mod gathered_read;
pub mod gathered_statement;
mod insert_parts;
pub mod kept_plan;
pub mod known_sharding;
mod look_lacks;
pub mod look_wait;
mod messages_ahead;
mod plan_facts;
pub mod plan_wish;
mod reference_plan;
pub mod reference_steps;
mod refusal_words;
pub mod returned_rows;
pub mod savepoint_stack;
pub mod savepoints;
pub mod shard_target;
pub mod shown_shard;
pub mod spread_refusal;
pub mod spread_write;
mod statement_plan;
pub mod text_plan;
mod unaimed;
mod unread_readers;
pub mod write_steps;

pub(crate) use aim::{aim, aim_parse, before, refusal_of_long};

use crate::fault::{ErrorReport, sqlstate};
use crate::session::{FAILED, IDLE, Session};
use crate::sharding::shard_target::{ENGINE, ShardTarget};
use weir_catalog::rule::RoutingRule;

/// The error of a statement whose transaction, or pipeline, is on another shard.
#[cold]
pub fn cannot_span(s: &Session) -> ErrorReport {
    if s.transaction() == FAILED {
        return ErrorReport::in_failed_transaction();
    }
    if engine_snapshots::is_in_block(s) {
        return cannot_leave_engine("it is about other things than spread tables, or begins another transaction");
    }
    let (here, there) = (place(s.sharding.here()), s.sharding.target());
    let is_held = s.transaction() == IDLE && !s.sharding.has_executed();
    let stays = if is_held { "what its session holds, such as a temporary table," } else { "its transaction" };
    let text = match there {
        ShardTarget::Engine => format!("the statement reads rows of several shards, and {stays} is on {here}"),
        _ => format!("the statement concerns {}, and {stays} is on {here}", place(there.number())),
    };
    let hint = match is_held {
        true => "Use another session for it, or end what holds the server connection (SHOW pool_sessions).",
        false => "End the transaction first. Messages up to a Sync are one transaction, too.",
    };
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
        .detail("A transaction goes on to other shards under READ COMMITTED only, without cursors, SET and the like, and once weir shard engine has run.")
        .hint(hint)
}

/// The error of a statement that cannot be carried out as `weir.plan` asks.
#[cold]
pub fn against_wish(why: &str) -> ErrorReport {
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, format!("weir.plan asks for another way than the statement has: {why}"))
        .hint("SET weir.plan = auto lets Weir choose.")
}

/// The error of a statement in a block that reads several shards by one snapshot of each: only the engine has these.
#[cold]
pub fn cannot_leave_engine(why: &str) -> ErrorReport {
    let text =
        format!("its transaction reads several shards by one snapshot of each, which cannot be given to this statement: {why}");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Run the statement in a transaction of its own.")
}

/// The error of a read of several shards that needs the transaction that it is in: there is none over several shards.
#[cold]
pub fn cannot_begin(rule: RoutingRule) -> ErrorReport {
    ErrorReport::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!(
            "the statement reads rows of several shards, and cannot run outside of its transaction, since {}",
            rule.because(None)
        ),
    )
    .detail(
        "No transaction over several shards is serializable, and under READ COMMITTED each statement has a snapshot of its own.",
    )
    .hint("Run the statement before BEGIN or after COMMIT, or in a transaction under REPEATABLE READ that only reads.")
}

/// The error of a read of several shards in a transaction that has begun on some of them, and stays there.
#[cold]
pub fn cannot_read_within() -> ErrorReport {
    cannot_gather("the transaction must be a block under READ COMMITTED, without cursors, SET and the like")
}

/// The error of a read of several shards that its transaction, which has begun, cannot have. `why`: of the engine, to which its rows would be copied.
#[cold]
pub fn cannot_gather(why: &str) -> ErrorReport {
    let text = format!("the statement reads rows of several shards, and its transaction has begun on some of them: {why}");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
        .detail("The engine, which reads several shards, does not see by itself what the transaction wrote.")
        .hint("Run the statement before BEGIN or after COMMIT, or read each shard by its key.")
}

/// The error of a read of several shards that the engine would answer otherwise than one server. `wanted`: what must be so.
#[cold]
pub fn cannot_read(wanted: &str) -> ErrorReport {
    let text = format!("the statement reads rows of several shards, for which {wanted}");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
        .detail("The engine hands values on as its session writes them, and the shards read them otherwise.")
}

/// The error of a statement about indexes right behind a new one of a spread table.
#[cold]
pub fn indexes_change() -> ErrorReport {
    let text = "an index of a spread table was just made, and the statement may mean it; the statement was not sent";
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text).hint("Run the statement again.")
}

/// The error of a cursor outside of a block, in PostgreSQL's words (`RequireTransactionBlock` in xact.c).
#[cold]
pub fn cannot_declare() -> ErrorReport {
    ErrorReport::error(sqlstate::NO_ACTIVE_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
}

/// The error of AND CHAIN in a failed transaction that is open on the engine: the next one would begin there, too.
#[cold]
pub fn cannot_chain() -> ErrorReport {
    let text = "the transaction has failed in a statement over several shards, and the next one cannot begin with its end";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Send ROLLBACK, and BEGIN behind it.")
}

/// The error of a second read of several shards in one pipeline: its snapshots would be those of the first one.
#[cold]
pub fn cannot_read_again() -> ErrorReport {
    let text = "a second statement that reads rows of several shards came before a Sync";
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
        .detail("Messages up to a Sync are one transaction, and the engine reads each shard once in it.")
        .hint("Send a Sync between them.")
}

/// The error of a COPY that Weir does not write anew for the engine.
#[cold]
pub fn cannot_copy(why: &str) -> ErrorReport {
    ErrorReport::error(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("the COPY of a sharded table is not carried out over several shards: {why}"),
    )
}

fn place(shard: u16) -> String {
    if shard == ENGINE { "the engine of all shards".to_owned() } else { format!("shard {shard}") }
}

/// The error of a statement for a shard that the configuration does not have any more.
#[cold]
pub fn no_server(shard: u16) -> ErrorReport {
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, format!("shard {shard} has no server in the configuration"))
        .hint("Set backend_shard for one, or look at weir shard show.")
}
