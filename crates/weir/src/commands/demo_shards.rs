//! `weir demo --shards N`: pgbench's tables over several servers, spread by the commands that an operator has.

use crate::commands::demo::{go_on, say};
use crate::commands::demo_pgbench::{DATABASE, TABLES, payment_script};
use crate::commands::shard::{self, ShardCommand};
use crate::runtime::operator_files::OperatorFiles;
use anyhow::Context;
use clap::Parser;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_config::Config;
use weir_demo::{Cluster, Options, Row, Server, Sql, wait_until};
use weir_progress::{ProgressLine, WorkAmount};

/// More servers than that on one machine show nothing more.
pub const SHARDS_MAX: i64 = 9;
/// Weir reads the definitions once a second.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Reads the shards for the engine.
const ENGINE_ROLE: &str = "weir_engine";

/// Statements of one shard, of all, and one that is refused.
const ROUTES: [&str; 3] = [
    "SELECT abalance FROM pgbench_accounts WHERE aid = 100001",
    "SELECT sum(abalance) FROM pgbench_accounts",
    "UPDATE pgbench_accounts SET abalance = 0",
];
/// A row for each branch, from all shards.
const BRANCHES: &str = "SELECT bid, count(*) AS accounts, sum(abalance) FROM pgbench_accounts GROUP BY bid ORDER BY bid";
/// Two numbers that every payment leaves equal.
const BALANCES: &str =
    "SELECT (SELECT sum(abalance) FROM pgbench_accounts) AS accounts, (SELECT sum(delta) FROM pgbench_history) AS history";

/// The shards' servers. Dropping it ends those above shard 0, and has those of shard 0 begin to end. Their folders lie in that of shard 0, which is dropped later.
pub struct DemoShards<'a> {
    first: &'a Cluster,
    others: Vec<Cluster>,
    count: u16,
}

/// The words behind `weir shard`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct ShardLine {
    #[command(subcommand)]
    command: ShardCommand,
}

impl<'a> DemoShards<'a> {
    /// Starts one server for each shard above 0. `first`: the servers of shard 0, which were made by these options.
    pub fn start(count: u16, first: &'a Cluster, options: Options) -> anyhow::Result<DemoShards<'a>> {
        let mut others = Vec::new();
        for shard in 1..count {
            let dir = Some(first.dir().join(format!("shard{shard}")));
            let other = Cluster::start(Options { dir, standbys: 0, ..options.clone() })?;
            say(&format!("  node {}: port {}, shard {shard}\n", first.servers().len() + others.len(), other.primary().port()));
            others.push(other);
        }
        Ok(DemoShards { first, others, count })
    }

    /// Primaries, by shard.
    fn servers(&self) -> impl Iterator<Item = (u16, &Server)> {
        (0..).zip(std::iter::once(self.first).chain(&self.others).map(Cluster::primary))
    }

    /// Lines of pgpool.conf, behind those about the nodes of shard 0.
    pub fn configuration(&self) -> String {
        let mut text = String::from("parallel_mode = on\n");
        for (node, (shard, server)) in (self.first.servers().len()..).zip(self.servers().skip(1)) {
            let port = server.port();
            let _ = write!(
                text,
                "backend_hostname{node} = '127.0.0.1'\nbackend_port{node} = {port}\nbackend_shard{node} = {shard}\n"
            );
        }
        text
    }

    /// Makes and spreads the tables, fills them, and makes the engine ready. Error: also if it was stopped.
    pub fn spread(&self, files: &OperatorFiles, config: &Config, stop: &AtomicBool, line: &ProgressLine) -> anyhow::Result<()> {
        say("Spreading pgbench's tables ...\n");
        for (_, server) in self.servers() {
            server.query(&format!("CREATE ROLE {ENGINE_ROLE} LOGIN"))?;
        }
        let mut lines = Vec::new();
        for table in &TABLES {
            self.first.primary().query(&table.create())?;
            lines.push(table.command(self.count));
        }
        lines.push(format!("engine {DATABASE} --user {ENGINE_ROLE}"));
        for order in &lines {
            go_on(stop)?;
            say(&format!("  weir shard {order}\n"));
            let words = ShardLine::try_parse_from(order.split(' ')).with_context(|| format!("weir shard {order}"))?;
            shard::run(files, config, &words.command, line)?;
        }
        say("Filling them ...\n");
        for (shard, server) in self.servers() {
            go_on(stop)?;
            if shard == 0 {
                line.begin("filling", WorkAmount::Count { total: u64::from(self.count), unit: "shards" });
            }
            fill(server, shard)?;
            line.advance(1);
        }
        line.rest();
        let script = self.script();
        std::fs::write(&script, payment_script(self.count)).with_context(|| format!("cannot write {}", script.display()))
    }

    fn script(&self) -> PathBuf {
        self.first.dir().join("payment.sql")
    }

    /// Things to try with so many shards.
    pub fn proposals(&self, port: u16, conf: &Path) -> anyhow::Result<String> {
        let program = std::env::current_exe().context("cannot find the own program")?;
        let (program, conf, script) = (program.display(), conf.display(), self.script());
        let place = format!("-h 127.0.0.1 -p {port} -U postgres");
        let psql = |statement: &str| format!("  psql {place} {DATABASE} -c \"{statement}\"\n");
        let pgbench = |script: &str| format!("  pgbench {place} -n -c 4 -T 3 {script} {DATABASE}\n");
        Ok([
            "\nPayments of one shard each, reads, writes to accounts and history, and transactions on several shards:\n"
                .to_owned(),
            pgbench(&format!("-f '{}'", script.display())),
            pgbench("-S"),
            pgbench("-N"),
            pgbench("-b tpcb-like"),
            "\nAll shards in one answer. The two sums of the last line are equal:\n".to_owned(),
            psql(BRANCHES),
            psql(BALANCES),
            "\nWhere things lie, and where statements go:\n".to_owned(),
            psql("SHOW pool_shards"),
            psql("SHOW pool_shard_tables"),
            psql(&format!("SHOW route FOR '{}'", ROUTES[0])),
            format!("  {program} shard check {DATABASE} -f '{conf}'\n"),
            format!("\nOr connect with:\n  psql {place} {DATABASE}\n"),
        ]
        .concat())
    }
}

impl Drop for DemoShards<'_> {
    fn drop(&mut self) {
        self.first.begin_stop();
        self.others.iter().for_each(Cluster::begin_stop);
    }
}

fn fill(server: &Server, shard: u16) -> anyhow::Result<()> {
    for table in &TABLES {
        if let Some(text) = table.fill(shard) {
            server.query(&text)?;
        }
        server.query(&format!("VACUUM (FREEZE, ANALYZE) {}", table.name))?;
    }
    Ok(())
}

/// Tells where some statements go, by Weir's own words. Waits until it knows all tables.
pub fn tour(port: u16) -> anyhow::Result<String> {
    let mut sql = Sql::connect_tcp("127.0.0.1", port, "postgres", DATABASE)?;
    wait_until("the engine to be ready", READY_LIMIT, || {
        let tables = sql.query("SHOW pool_shard_tables")?;
        Ok(tables.len() == TABLES.len() && tables.iter().all(|table| last_of(table) == "ready"))
    })?;
    let mut text = String::from("\nThrough Weir:\n");
    for statement in ROUTES {
        let route = sql.query(&format!("SHOW route FOR '{statement}'"))?;
        let cell = |at: usize| route.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
        // A refusal has its reason in place of facts.
        let reason = if cell(0) == "refused" { format!(": {}", cell(3)) } else { String::new() };
        let _ = writeln!(text, "  {statement:<56} -> {}{reason}", cell(0));
    }
    Ok(text)
}

fn last_of(row: &Row) -> &str {
    row.last().and_then(Option::as_deref).unwrap_or_default()
}
