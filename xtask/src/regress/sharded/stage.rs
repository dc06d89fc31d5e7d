//! The servers of a run: three shards with Weir before them, and one server with all rows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use weir_demo::{Cluster, wait_until};

use super::client::Client;
use crate::bench::spread_stage::{self, ENGINE_USER, SpreadStage};

pub const SHARDS: usize = 3;
pub const DATABASE: &str = "regression";
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Of a statement of the harness itself.
const OWN_LIMIT: Duration = Duration::from_secs(60);
/// An engine is made ready for some table.
const FIRST_TABLE: &str = "spread_first";
/// Plans and sizes hang on autovacuum.
const SETTINGS: [(&str, &str); 2] = [("autovacuum", "off"), ("synchronous_commit", "on")];
/// Settings that the suite's driver makes, but for its styles of dates and intervals, in which the engine answers nothing.
const DATABASE_SETTINGS: [&str; 7] = [
    "lc_messages TO 'C'",
    "lc_monetary TO 'C'",
    "lc_numeric TO 'C'",
    "lc_time TO 'C'",
    "bytea_output TO 'hex'",
    "timezone_abbreviations TO 'Default'",
    "TimeZone TO 'PST8PDT'",
];

/// Everything that runs. Dropping it ends it.
pub struct Stage {
    spread: SpreadStage,
    whole: Cluster,
    /// Libraries that the scripts load.
    pub libraries: PathBuf,
}

impl Stage {
    /// Starts all, with the engine ready. `more`: lines of Weir's configuration.
    pub fn start(program: &Path, libraries: &Path, more: &str) -> Result<Stage> {
        let spread = SpreadStage::start_with(program, SHARDS, &SETTINGS, more)?;
        let whole = spread_stage::server(&SETTINGS)?;
        let copied = spread.folder().join("lib");
        crate::regress::stage::copy_tree(libraries, &copied)?;
        let stage = Stage { spread, whole, libraries: copied };
        stage.whole.primary().query(&format!("CREATE ROLE {ENGINE_USER} LOGIN"))?;
        for server in stage.spread.shards().chain([stage.whole.primary()]) {
            server.query(&format!("CREATE DATABASE {DATABASE} TEMPLATE template0"))?;
            for setting in DATABASE_SETTINGS {
                server.query(&format!("ALTER DATABASE {DATABASE} SET {setting}"))?;
            }
        }
        for server in [stage.spread.shards().next().context("no shard")?, stage.whole.primary()] {
            drop(server.connect("postgres", DATABASE)?.query(&format!("CREATE TABLE {FIRST_TABLE} (id int PRIMARY KEY)"))?);
        }
        stage.command(&["table", DATABASE, &format!("public.{FIRST_TABLE}"), "--key", "id"])?;
        stage.command(&["engine", DATABASE, "--user", ENGINE_USER])?;
        wait_until("Weir to answer", READY_LIMIT, || {
            Ok(stage.weir("postgres", OWN_LIMIT).is_ok_and(|mut client| client.rows("SELECT 1").is_ok()))
        })?;
        Ok(stage)
    }

    /// Runs `weir shard`.
    pub fn command(&self, arguments: &[&str]) -> Result<()> {
        self.spread.command(arguments)
    }

    /// A client of Weir.
    pub fn weir(&self, user: &str, limit: Duration) -> Result<Client> {
        Client::connect(self.spread.port(), user, DATABASE, limit).context("Weir")
    }

    /// A client of the server with all rows.
    pub fn whole(&self, user: &str, limit: Duration) -> Result<Client> {
        Client::connect(self.whole.primary().port(), user, DATABASE, limit).context("the server with all rows")
    }

    /// Clients of the harness's own, past Weir: of each shard, and of the server with all rows.
    pub fn own(&self) -> Result<(Vec<Client>, Client)> {
        let shards = self.spread.shards().map(|shard| Client::connect(shard.port(), "postgres", DATABASE, OWN_LIMIT));
        Ok((shards.collect::<Result<_>>()?, self.whole("postgres", OWN_LIMIT)?))
    }

    /// The last lines of Weir's log.
    pub fn log_end(&self) -> String {
        let log = std::fs::read_to_string(self.spread.folder().join("weir/weir.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// True if Weir has ended.
    pub fn has_weir_ended(&self) -> bool {
        self.weir("postgres", OWN_LIMIT).is_err()
    }
}
