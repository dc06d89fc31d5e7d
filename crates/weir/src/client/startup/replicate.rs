//! Login of replication clients, with a server connection of their own.

use super::{ClientLogin, login_fault};
use crate::client::startup::login_gate::LoginIdentity;
use crate::runtime::pool::PoolPurpose;
use crate::traffic::replication;
use weir_config::Config;
use weir_config::hba::ReplicationRequest;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::stats::StatCounter;
use weir_wire::startup_packet::{StartupMessage, cut_name};
use weir_wire::write;

/// Stands for the database in rules, as in `pg_hba.conf`.
const NO_DATABASE: &str = "replication";

/// Source: `ProcessStartupPacket` in PostgreSQL's backend_startup.c.
pub(super) fn asked(startup: &StartupMessage) -> Result<ReplicationRequest, ErrorReport> {
    let Some(word) = startup.get("replication") else { return Ok(ReplicationRequest::No) };
    if word == "database" {
        return Ok(ReplicationRequest::Logical);
    }
    match truth(word) {
        Some(true) => Ok(ReplicationRequest::Physical),
        Some(false) => Ok(ReplicationRequest::No),
        None => {
            Err(ErrorReport::fatal(sqlstate::INVALID_VALUE, format!("invalid value for parameter \"replication\": \"{word}\""))
                .hint("Valid values are: \"false\", 0, \"true\", 1, \"database\"."))
        }
    }
}

/// Returns the names for rules and for `database_file`. Servers ignore a physical replication client's database, so only a listed
/// one counts.
pub(super) fn names<'a>(
    config: &Config,
    replication: ReplicationRequest,
    database: &'a str,
    startup: &'a StartupMessage,
) -> (&'a str, &'a str) {
    if replication != ReplicationRequest::Physical {
        return (database, database);
    }
    let given = startup.get("database").map(cut_name);
    (NO_DATABASE, given.filter(|name| config.databases.named(name).is_some()).unwrap_or(NO_DATABASE))
}

/// Reads a boolean: any case, unambiguous prefixes. Source: `parse_bool_with_len` in bool.c.
fn truth(word: &str) -> Option<bool> {
    let word = word.to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    match &*word {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("true", 1) || begins("yes", 1) || begins("on", 2) => Some(true),
        _ if begins("false", 1) || begins("no", 1) || begins("off", 2) => Some(false),
        _ => None,
    }
}

impl ClientLogin<'_> {
    /// `database`: the name the client gave.
    pub(super) async fn replicate(
        &mut self,
        caller: LoginIdentity<'_>,
        database: &str,
        startup: &StartupMessage,
    ) -> Result<(), ErrorReport> {
        let admission = self.authenticate(caller).await?;
        self.check_own_user(caller, database)?;
        let pools = self.w.pool_set(caller.user, database);
        self.take_seat(&pools).inspect_err(|_| self.w.forget_pool_set(&pools))?;
        // A walsender takes no SET: nothing can be set later.
        let (kind, purpose) = match caller.replication {
            ReplicationRequest::Logical => ("database", PoolPurpose::LogicalReplication),
            ReplicationRequest::Physical | ReplicationRequest::No => ("true", PoolPurpose::PhysicalReplication),
        };
        let config = self.w.config();
        let is_ignored = |name: &str| config.ignored_parameters.iter().any(|ignored| ignored.eq_ignore_ascii_case(name));
        let own = |name: &str| !matches!(name, "user" | "database" | "replication") && !is_ignored(name);
        let given = startup.parameters.iter().filter(|(name, _)| own(name));
        let parameters: Vec<(&str, &str)> = given.chain([("replication", kind)]).collect();
        let opened = replication::open(self.w, &self.socket, &pools, purpose, &parameters).await;
        let opened = opened.and_then(|opened| opened.map_err(|error| login_fault(self.w, &pools, &error)));
        let conn = match opened {
            Ok(conn) => conn,
            Err(fault) => {
                self.w.forget_pool_set(&pools);
                return self.turn_away(caller, &admission, fault).await;
            }
        };
        let application = startup.get("application_name").unwrap_or_default();
        let entry = self.entry(pools.whose.clone(), None, application, startup.version);
        *entry.counted.borrow_mut() = self.counted.take();
        pools.stats.add(StatCounter::Logins, 1);
        let mut out = admission.message;
        write::authentication(&mut out, 0, &[]);
        out.extend_from_slice(&conn.transport.notices.early);
        conn.reported.iter().for_each(|(name, value)| write::parameter_status(&mut out, name, value));
        write::backend_key_data(&mut out, entry.status.pid, &entry.key);
        out.extend_from_slice(&conn.transport.notices.late);
        write::ready(&mut out, weir_session::session::IDLE);
        if config.log.connections {
            self.w.log_client(&entry.status, "replication connection authorized");
        }
        let _ = self.send(&out).await;
        let before = std::mem::take(&mut self.buffer).into_bytes();
        replication::serve(self.w, &self.socket, &before, conn, &entry, &pools).await;
        if config.log.disconnections {
            self.w.log_client(&entry.status, "disconnection");
        }
        Ok(())
    }

    /// A rule for replication permits neither the forced user nor the client's own name at a server.
    fn check_own_user(&self, caller: LoginIdentity<'_>, database: &str) -> Result<(), ErrorReport> {
        let is_forced = self.entry_of(database).is_some_and(|entry| entry.user.is_some());
        if caller.replication != ReplicationRequest::Physical || !is_forced {
            return Ok(());
        }
        let text = format!("database \"{database}\" has a user of its own, as whom nobody replicates");
        Err(ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text)
            .hint("Name a database without a forced user, or none, for physical replication."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::startup_packet::ProtocolVersion;

    #[test]
    fn the_word_for_replication_is_read_as_postgresql_reads_it() {
        let kind = |word: &str| {
            let parameters = [("replication", word)].into_iter().collect();
            asked(&StartupMessage { version: ProtocolVersion::V3_0, parameters, protocol_options: Vec::new() }).ok()
        };
        for word in ["true", "T", "yes", "y", "on", "ON", "1", "tru"] {
            assert_eq!(kind(word), Some(ReplicationRequest::Physical), "{word}");
        }
        for word in ["false", "f", "no", "N", "off", "of", "0"] {
            assert_eq!(kind(word), Some(ReplicationRequest::No), "{word}");
        }
        assert_eq!(kind("database"), Some(ReplicationRequest::Logical));
        for word in ["", "o", "2", "Database", "truer"] {
            assert_eq!(kind(word), None, "{word}");
        }
    }
}
