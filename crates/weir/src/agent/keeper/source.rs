//! The source of a copy or rewind, asked over SQL before any change.

use super::program::{self, ProgramEnd, ProgramResult};
use super::site::ServerInstallation;
use crate::agent::keeper::synced_files;
use crate::auth::own_login::{self, OwnUse};
use std::time::{Duration, Instant};
use weir_agent::{OrderFailure, OrderFailureKind, SourceServer, service};
use weir_failover::conninfo::Conninfo;

const QUESTION_LIMIT: Duration = Duration::from_secs(30);
const CHECKPOINT_PERIOD: Duration = Duration::from_millis(500);

/// One row. After a promotion the control file's timeline is older than the log's until a checkpoint.
const QUESTION: &str = "select (select system_identifier from pg_catalog.pg_control_system()), \
     pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog./) 10000, \
     (select pg_catalog.count(*) from pg_catalog.pg_tablespace where spcname operator(pg_catalog.<>) all ('{pg_default,pg_global}')), \
     (select timeline_id from pg_catalog.pg_control_checkpoint()), \
     case when pg_catalog.pg_is_in_recovery() then null \
       else pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) end";

const CHECKPOINT: &str = "CHECKPOINT";
/// Needs a login for replication, as a standby does.
const IDENTIFY: &str = "IDENTIFY_SYSTEM";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    pub system_identifier: u64,
    pub major: u16,
    pub tablespaces: u32,
    /// Of the last checkpoint; `timeline` is that of the log, `None` on a standby.
    pub checkpoint_timeline: u32,
    pub timeline: Option<u32>,
}

pub fn conninfo() -> String {
    format!("service={}", service::SERVICE)
}

/// Writes the service file and asks.
pub fn look(site: &ServerInstallation, source: &SourceServer, until: Instant) -> Result<SourceFacts, OrderFailure> {
    let text = service::show(source);
    synced_files::write(&site.service(), text.as_bytes())
        .map_err(|cause| OrderFailure::new(OrderFailureKind::Other, format!("{}: {cause}", site.service().display())))?;
    let ended = ask(site, QUESTION, until)?;
    if ended.end != ProgramEnd::Success {
        return Err(OrderFailure::new(
            OrderFailureKind::Source,
            format!("the source {}:{}: {}", source.host, source.port, ended.words()),
        ));
    }
    let row = ended.out.back().map(String::as_str).unwrap_or_default();
    read(row).ok_or_else(|| OrderFailure::new(OrderFailureKind::Source, format!("the source answers {row:?}")))
}

fn read(row: &str) -> Option<SourceFacts> {
    let mut cells = row.trim().split('|');
    let found = SourceFacts {
        system_identifier: cells.next()?.parse().ok()?,
        major: cells.next()?.parse().ok()?,
        tablespaces: cells.next()?.parse().ok()?,
        checkpoint_timeline: cells.next()?.parse().ok()?,
        timeline: match cells.next()? {
            "" => None,
            text => Some(u32::from_str_radix(text, 16).ok()?),
        },
    };
    cells.next().is_none().then_some(found)
}

fn ask(site: &ServerInstallation, text: &str, until: Instant) -> Result<ProgramResult, OrderFailure> {
    let mut command = site.program("psql");
    command.env("PGOPTIONS", own_login::as_options(OwnUse::Questions));
    command.args(["-X", "-A", "-t", "-q", "-w", "-F", "|", "-v", "ON_ERROR_STOP=1", "-d", &conninfo(), "-c", text]);
    let until = until.min(Instant::now() + QUESTION_LIMIT);
    program::run(command, until, &mut |_| {})
        .map_err(|cause| OrderFailure::new(OrderFailureKind::Other, format!("psql: {cause}")))
}

/// Logs in with a standby's `primary_conninfo`. Words that a service file cannot hold are not tried.
pub fn log_in(site: &ServerInstallation, conninfo: &Conninfo, until: Instant) -> Result<(), OrderFailure> {
    let fixed = [("replication", "true"), ("dbname", "replication")];
    let own = conninfo.words().filter(|(name, _)| !["dbname", "replication", "connect_timeout"].contains(name));
    let Some(text) = service::show_words(own.chain(fixed)) else { return Ok(()) };
    let file = site.service();
    let broke = |cause| OrderFailure::new(OrderFailureKind::Other, format!("{}: {cause}", file.display()));
    synced_files::write(&file, text.as_bytes()).map_err(broke)?;
    let mut command = site.program("psql");
    command.args(["-X", "-A", "-t", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-d", &self::conninfo(), "-c", IDENTIFY]);
    let until = until.min(Instant::now() + QUESTION_LIMIT);
    let ended = program::run(command, until, &mut |_| {});
    // The file may hold a password. The next question writes its own.
    synced_files::remove(&file).map_err(broke)?;
    let ended = ended.map_err(|cause| OrderFailure::new(OrderFailureKind::Other, format!("psql: {cause}")))?;
    if ended.end == ProgramEnd::Success {
        return Ok(());
    }
    let user = conninfo.get("user").unwrap_or("the server's own user");
    let text = format!("a standby here cannot log in for replication as {user}: {}", ended.words());
    Err(OrderFailure::new(OrderFailureKind::Source, text))
}

/// Waits until the source's control file has its timeline, without which `pg_rewind` finds nothing to do. Asks for a checkpoint; without
/// the right, waits for that of the promotion.
pub fn wait_checkpoint(
    site: &ServerInstallation,
    source: &SourceServer,
    first: SourceFacts,
    until: Instant,
) -> Result<(), OrderFailure> {
    let is_there = |found: &SourceFacts| found.timeline.is_none_or(|timeline| timeline == found.checkpoint_timeline);
    if is_there(&first) {
        return Ok(());
    }
    let _ = ask(site, CHECKPOINT, until);
    loop {
        if is_there(&look(site, source, until)?) {
            return Ok(());
        }
        if Instant::now() >= until {
            let text = "the source has written no checkpoint since its promotion; grant pg_checkpoint to the user, or run CHECKPOINT there";
            return Err(OrderFailure::new(OrderFailureKind::Late, text));
        }
        std::thread::sleep(CHECKPOINT_PERIOD);
    }
}

/// For the list of Weir's own texts.
pub fn own_texts() -> Vec<String> {
    [QUESTION, CHECKPOINT, IDENTIFY].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_a_primary_and_of_a_standby_are_read() {
        let primary = SourceFacts { system_identifier: 7, major: 15, tablespaces: 0, checkpoint_timeline: 1, timeline: Some(10) };
        assert_eq!(read("7|15|0|1|0000000A\n"), Some(primary));
        assert_eq!(read("7|15|0|1|"), Some(SourceFacts { timeline: None, ..primary }));
        for wrong in ["", "7|15|0|1", "7|15|0|1|x", "7|15|0|1||", "a|15|0|1|"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
