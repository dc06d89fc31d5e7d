//! Takes snapshots of all shards in the engine, for the session's next statement (`weir_session::sharding::engine_snapshots`).

use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::OpenError;
use crate::runtime::pool::server_conn::shard_gates::GateSide;
use crate::server::shard_gate::{CONNECTION_CLASS, GatePass, LOOK, SHARDS, hold_limit, no_answer};
use crate::traffic::served::ServedSession;
use crate::traffic::shard_gather;
use std::time::Instant;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::sharding::{engine_snapshots, gathered_read};

/// Takes the snapshots. An error is that of the session's next statement. Not cancel safe.
pub async fn take(served: &mut ServedSession) -> Result<(), ErrorReport> {
    if gathered_read::statement(&served.s).is_some() {
        return shard_gather::gather(served).await;
    }
    let database = served.s.account.known.name.clone();
    let pass = GatePass::ask(&served.w, &database, GateSide::Reads);
    // A cancel request waits for the statement: the server ignores one that comes before.
    served.s.handle.is_ours.set(true);
    let outcome = match pass.held().await {
        Ok(()) => look(served, &pass).await,
        Err(fault) => {
            if !engine_snapshots::is_in_block(&served.s) {
                engine_snapshots::give_up(&mut served.s);
            }
            Err(fault)
        }
    };
    served.s.handle.is_ours.set(false);
    served.s.handle.cancel_waits.set(false);
    match outcome {
        Err(fault) if engine_snapshots::is_in_block(&served.s) => {
            engine_snapshots::fail_block(&mut served.s, &served.w, fault);
            Ok(())
        }
        outcome => outcome,
    }
}

/// Not cancel safe.
async fn look(served: &mut ServedSession, pass: &GatePass) -> Result<(), ErrorReport> {
    let is_in_block = engine_snapshots::is_in_block(&served.s);
    let Some((conn, upstream)) = engine_snapshots::lend(&mut served.s) else { return Ok(()) };
    let Some(conn) = served.sockets.host.whole(conn) else { return Ok(()) };
    let deadline = Instant::now() + hold_limit(&served.w);
    let (mut conn, mut said) = match is_in_block {
        true => conn_opening::ask_operators(&served.w, conn, LOOK, deadline).await,
        false => conn_opening::ask_ahead(&served.w, conn, LOOK, deadline).await,
    };
    let objection = match &said {
        Ok(_) if served.s.handle.cancel_waits.get() => Some(cancelled()),
        Ok(_) if !pass.is_held() => Some(lost_gate()),
        Ok(_) | Err(_) => None,
    };
    if objection.is_some() && !is_in_block {
        (conn, said) = conn_opening::end_ahead(&served.w, conn, deadline).await;
    }
    let conn = served.sockets.host.take(conn);
    match (said, objection) {
        (Ok(_), None) => {
            engine_snapshots::taken(&mut served.s, conn, upstream);
            Ok(())
        }
        (Ok(_), Some(objection)) => {
            engine_snapshots::not_taken(&mut served.s, conn, upstream);
            Err(objection)
        }
        (Err(error @ OpenError::Refused { .. }), _) => {
            engine_snapshots::not_taken(&mut served.s, conn, upstream);
            Err(fault_of(&error))
        }
        (Err(_), _) => {
            engine_snapshots::lost(&mut served.s, &served.w, conn, upstream);
            Err(ErrorReport::error(sqlstate::CONNECTION_FAILURE, no_answer(&served.w)).detail(SHARDS))
        }
    }
}

/// The error of the engine, which may not reach a shard.
#[cold]
pub fn fault_of(error: &OpenError) -> ErrorReport {
    match error {
        OpenError::Refused { sqlstate, .. } if sqlstate.starts_with(CONNECTION_CLASS) => {
            error.fault().detail(SHARDS).hint("Run the statement again when the shard is back.")
        }
        _ => error.fault(),
    }
}

#[cold]
pub fn cancelled() -> ErrorReport {
    ErrorReport::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}

#[cold]
pub fn lost_gate() -> ErrorReport {
    let text = "the statement reads several shards, and the lock that keeps commits on several shards out was lost meanwhile";
    ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text).hint("Run the statement again.")
}
