//! The return of a server that was replaced, as a standby of the new primary.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use weir_demo::{Cluster, Server};

/// The longest wait for a return; a try that fails is repeated after 5 s and more.
pub const RETURN_LIMIT: Duration = Duration::from_secs(180);
/// Each look is a connection to every other server, of which the load should not feel anything.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Deeds of an agent that Weir's log tells, the one first that stands for the others.
const DEEDS: [&str; 2] = ["base backup", "rewind"];

/// A server that came back, or did not within the limit.
#[derive(Debug)]
pub struct Returned {
    /// `None`: it was not replaced.
    pub after: Option<Duration>,
    pub by: &'static str,
    /// Size of all databases.
    pub database_bytes: u64,
}

impl Returned {
    /// Adds its numbers to those of a round.
    pub fn add_to(&self, round: &mut Value) {
        round["returned_ms"] = json!(self.after.map(super::round::ms));
        round["returned_by"] = json!(self.by);
        round["database_bytes"] = json!(self.database_bytes);
    }
}

/// Waits until a server streams from any other one. Gives the time since `begun`; `None` at the limit.
pub fn wait(cluster: &Cluster, server: &Server, begun: Instant) -> Option<Duration> {
    let others = || cluster.servers().iter().filter(|other| other.port() != server.port());
    while begun.elapsed() < RETURN_LIMIT {
        if others().any(|primary| streams(server, primary).unwrap_or(false)) {
            return Some(begun.elapsed());
        }
        thread::sleep(LOOK_PAUSE);
    }
    None
}

/// Error: the other server does not answer.
pub fn streams(server: &Server, primary: &Server) -> Result<bool> {
    let (is_streaming, name) = ("state = 'streaming'", server.name());
    let text = format!("select count(*) from pg_stat_replication where {is_streaming} and application_name = '{name}'");
    Ok(primary.value(&text)? == "1")
}

/// The deed that brought a server back, by Weir's log of the round.
pub fn deed_in(log: &str) -> &'static str {
    let is_done = |deed: &&str| log.contains(&format!("{deed} by its agent: done"));
    DEEDS.into_iter().find(is_done).unwrap_or("start")
}

/// Size of all databases of a server.
pub fn database_bytes(server: &Server) -> Result<u64> {
    Ok(server.value("select sum(pg_database_size(oid)) from pg_database")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deed_that_brought_a_server_back_is_read_from_the_log() {
        let done = |deed: &str| format!("node 0: {deed} by its agent: done after 7 ms\n");
        assert_eq!(deed_in(&(done("follow") + &done("start"))), "start");
        assert_eq!(deed_in(&(done("rewind") + &done("follow"))), "rewind");
        assert_eq!(deed_in(&(done("rewind") + &done("base backup"))), "base backup");
        assert_eq!(deed_in("node 0: base backup: 10 of 90 MB"), "start");
    }
}
