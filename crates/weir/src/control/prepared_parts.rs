//! Ends prepared parts of transactions on several shards whose sessions were lost (`weir_session::participants`).
//!
//! The name of a part tells which server decided, and the number of the transaction there. Any Weir may end a part, also while its session
//! lives: the answer of the server that decides is the only judge. A part whose outcome nobody can prove stays, and the log says so.

use crate::control::control_context::ControlContext;
use crate::control::shard_lines::ShardLines;
use crate::log::Level;
use crate::runtime::pool::server_conn::{OpenError, ServerAddress};
use crate::runtime::prepared_seen::PreparedSight;
use crate::server::xid_status;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use weir_config::NodeConfig;
use weir_failover::commit_outcome::{CommitOutcome, TransactionNumber, judge};
use weir_failover::prepared_name::{self, PreparedName};
use weir_session::fault::sqlstate;

const PERIOD: Duration = Duration::from_secs(2);

/// Younger parts are left to their sessions.
const YOUNG_MS: u64 = 3000;

const NAME: &str = "weir_prepared";

/// Parts told of in the log, at most.
const TOLD_MAX: usize = 1000;

struct FoundPart {
    name: PreparedName,
    database: String,
    age_ms: u64,
}

struct PartWatch {
    c: Rc<ControlContext>,
    lines: ShardLines,
    told: BTreeSet<String>,
    /// Parts of the look under way.
    seen: Vec<PreparedSight>,
}

/// Looks at each shard above 0: shard 0 decides wherever it takes part. Cancel safe: parts that were not ended are found again.
pub async fn watch(c: Rc<ControlContext>) {
    let mut watch = PartWatch { lines: ShardLines::new(c.clone(), NAME), c, told: BTreeSet::new(), seen: Vec::new() };
    loop {
        tokio::time::sleep(PERIOD).await;
        let config = watch.c.shared.config.load_full();
        for node in &config.sharding.nodes {
            let looked = watch.look(node).await;
            watch.tell(node, looked);
        }
        watch.c.shared.cluster.prepared.publish(std::mem::take(&mut watch.seen));
    }
}

impl PartWatch {
    /// Parts on a server that does not answer wait for it; that is told by those who watch servers. A login that is refused is told here.
    fn tell(&mut self, node: &NodeConfig, looked: Result<(), OpenError>) {
        let Err(error @ OpenError::Refused { .. }) = looked else { return };
        let text = format!("{error}");
        if self.told.len() < TOLD_MAX && self.told.insert(text) {
            let address = ServerAddress::of_shard(node);
            let text = format_args!("{address}: prepared transactions whose sessions are lost cannot be looked for: {error}");
            self.c.shared.log.say(Level::Warning, text);
        }
    }

    async fn look(&mut self, node: &NodeConfig) -> Result<(), OpenError> {
        let rows = self.lines.ask(node, &found()).await?;
        for part in rows.iter().filter_map(|row| read_part(row)) {
            let problem = if part.age_ms >= YOUNG_MS { self.judge(node, &part).await } else { Ok("") };
            let sight = PreparedSight {
                node: node.id,
                database: part.database.clone(),
                name: part.name,
                prepared_at: SystemTime::now() - Duration::from_millis(part.age_ms),
                problem: match &problem {
                    Ok(problem) => (*problem).to_owned(),
                    Err(error) => error.to_string(),
                },
            };
            self.seen.push(sight);
            problem?;
        }
        Ok(())
    }

    /// Ends a part, or returns why it stays.
    async fn judge(&mut self, node: &NodeConfig, part: &FoundPart) -> Result<&'static str, OpenError> {
        let end = match self.outcome(&part.name.decides).await {
            Err(_) => return Ok("the server that decides does not answer"),
            Ok(CommitOutcome::NotYet) => return Ok("the server that decides has not decided"),
            Ok(CommitOutcome::Untold) => return Ok("another Weir knows what the new primary has taken over"),
            Ok(CommitOutcome::Committed) => ("COMMIT", "committed"),
            Ok(CommitOutcome::RolledBack) => ("ROLLBACK", "rolled back"),
            Ok(CommitOutcome::Unknown) => {
                self.tell_unknown(node, part);
                return Ok("nobody can prove the outcome: the log says what to run");
            }
        };
        self.end(node, part, end).await
    }

    async fn end(&mut self, node: &NodeConfig, part: &FoundPart, (verb, done): (&str, &str)) -> Result<&'static str, OpenError> {
        let mut line = self.lines.open(node, Some(&part.database)).await?;
        let (name, address) = (part.name, ServerAddress::of_shard(node));
        match line.query(&end_of(verb, name)).await {
            Ok(_) => self.c.shared.log.say(
                Level::Log,
                format_args!(
                    "{address}: the prepared transaction {name} was {done}, as node {} decided; its session is lost",
                    name.decides.node
                ),
            ),
            // Its session, or another Weir, was faster.
            Err(OpenError::Refused { sqlstate, .. }) if sqlstate == NOT_PREPARED => {}
            Err(OpenError::Refused { sqlstate, message, .. }) if sqlstate == sqlstate::INSUFFICIENT_PRIVILEGE => {
                let text = format_args!(
                    "{address}: the prepared transaction {name} holds its locks, and the health check's user may not end it: {message}; \
                     make the user a superuser, or run {} there as its owner",
                    end_of(verb, name)
                );
                self.tell_once(part, text);
                return Ok("the health check's user may not end it");
            }
            Err(error) => return Err(error),
        }
        Ok("")
    }

    /// Asks the server that decides; in shard 0 the primary, which may be another one by now.
    async fn outcome(&mut self, decides: &TransactionNumber) -> Result<CommitOutcome, OpenError> {
        let view = self.c.shared.cluster.view.load_full();
        let config = self.c.shared.config.load_full();
        let is_elsewhere = config.sharding.shard_of(decides.node) != 0;
        let asked = if is_elsewhere { Some(decides.node) } else { view.primary_id() };
        let Some(node) = asked.and_then(|id| config.all_nodes().find(|node| node.id == id)) else {
            return Ok(CommitOutcome::NotYet);
        };
        let mut is_future = false;
        let mut said = self.lines.ask(node, &xid_status::question(Some(decides.xid))).await;
        if matches!(&said, Err(OpenError::Refused { sqlstate, .. }) if sqlstate == xid_status::FUTURE) {
            is_future = true;
            said = self.lines.ask(node, &xid_status::question(None)).await;
        }
        let horizon = view.horizon.filter(|_| !is_elsewhere);
        let answer = xid_status::read(&said?, node.id, false, is_future);
        Ok(answer.map_or(CommitOutcome::NotYet, |(answer, _)| judge(decides, decides.said_ms, &answer, horizon.as_ref())))
    }

    fn tell_unknown(&mut self, node: &NodeConfig, part: &FoundPart) {
        let (name, address) = (part.name, ServerAddress::of_shard(node));
        let TransactionNumber { xid, node: decider, .. } = name.decides;
        let text = format_args!(
            "{address}: the prepared transaction {name} of database \"{}\" holds its locks, and nobody can prove what became of transaction {xid} \
             of node {decider}, which may have crashed since; look at the rows there, then run {} or {}",
            part.database,
            end_of("COMMIT", name),
            end_of("ROLLBACK", name)
        );
        self.tell_once(part, text);
    }

    fn tell_once(&mut self, part: &FoundPart, text: std::fmt::Arguments<'_>) {
        if self.told.len() < TOLD_MAX && self.told.insert(part.name.to_string()) {
            self.c.shared.log.say(Level::Warning, text);
        }
    }
}

/// SQLSTATE of a name that is not prepared. Source: `LockGXact` in twophase.c.
const NOT_PREPARED: &str = "42704";

fn found() -> String {
    format!(
        "SELECT p.gid, p.database, pg_catalog.floor(1000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', \
         pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) p.prepared))::pg_catalog.int8 \
         FROM pg_catalog.pg_prepared_xacts AS p WHERE pg_catalog.starts_with(p.gid, '{}')",
        prepared_name::BEGIN
    )
}

fn end_of(verb: &str, name: PreparedName) -> String {
    format!("{verb} PREPARED '{name}'")
}

fn read_part(row: &[Option<String>]) -> Option<FoundPart> {
    let [gid, database, age_ms] = row else { return None };
    // A server's clock may have been set back.
    let age_ms = age_ms.as_deref()?.parse().unwrap_or(0);
    Some(FoundPart { name: PreparedName::of_text(gid.as_deref()?)?, database: database.clone()?, age_ms })
}

pub fn own_texts() -> Vec<String> {
    let name = PreparedName::of_text("weir_1_0_1_1_1_1");
    let ends = name.into_iter().flat_map(|name| ["COMMIT", "ROLLBACK"].map(|verb| end_of(verb, name)));
    std::iter::once(found()).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_weir_are_read() {
        let row = |cells: [&str; 3]| cells.map(|cell| Some(cell.to_owned()));
        let part = read_part(&row(["weir_1_0_7_1_768_5", "shop", "4000"])).unwrap();
        assert_eq!((part.name.decides.xid.get(), &*part.database, part.age_ms), (768, "shop", 4000));
        assert_eq!(read_part(&row(["weir_1_0_7_1_768_5", "shop", "-3"])).map(|part| part.age_ms), Some(0));
        assert!(read_part(&row(["weir_x", "shop", "4000"])).is_none() && read_part(&[]).is_none());
    }
}
