//! Servers, the tables that lie over them, and Weir before them.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, fadvise};
use weir_demo::{Cluster, Companion, Mode, Options, ReservedPort, Server, Sql, Template, wait_until};

use super::node_group::{NodeGroup, OwnGroups};
use crate::bench::pgbench;
use crate::process;

/// Of a server that is held. Its own buffers are small, since all its memory counts: pages lie in the page cache.
const HELD: [(&str, &str); 1] = [("shared_buffers", "4MB")];
const FREE: [(&str, &str); 1] = [("shared_buffers", "256MB")];
/// Settings that keep background work out of the numbers.
const SETTINGS: [(&str, &str); 7] = [
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
];
/// Rows of one INSERT: the client that sends it waits two minutes at most.
const ROWS_OF_INSERT: u32 = 200_000;
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
const READY_LIMIT: Duration = Duration::from_secs(60);

/// Where the rows of a table lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// On all nodes, in ranges of `aid` of one length.
    Spread,
    /// On the first node; the table is not sharded.
    FirstNode,
}

/// A table like pgbench's `pgbench_accounts`.
#[derive(Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    pub rows: u32,
    pub placing: Placing,
}

/// How the servers run.
#[derive(Clone, Copy)]
pub enum Hold<'a> {
    /// Each is held to a node's share of the machine.
    Nodes(&'a OwnGroups),
    /// They share the machine.
    Nothing,
}

/// Everything that runs. Dropping it ends it, in this order.
pub struct ShardStage {
    // Dropped first: its folder is in that of the first server.
    weir: Companion,
    port: ReservedPort,
    nodes: Vec<Cluster>,
    // Dropped last: a group with processes cannot be removed.
    #[allow(dead_code)]
    groups: Vec<NodeGroup>,
}

impl ShardStage {
    /// Starts so many servers, fills the tables, and starts Weir with so many server connections to each.
    pub fn start(program: &Path, nodes: usize, pool_size: u32, tables: &[Table], hold: Hold) -> Result<Self> {
        // Before the servers, so that it is dropped after them if something fails.
        let mut groups = Vec::new();
        let template = Arc::new(Template::new(weir_demo::Programs::find()?)?);
        let nodes = (0..nodes).map(|_| start_server(&template, hold)).collect::<Result<Vec<Cluster>>>()?;
        let port = ReservedPort::any()?;
        let conf = write_conf(&nodes, port.number(), pool_size)?;
        for table in tables {
            make_table(program, &conf, &nodes, table)?;
        }
        fill_tables(&nodes, tables)?;
        if let Hold::Nodes(own) = hold {
            hold_servers(own, &nodes, &mut groups)?;
        }
        let weir = Companion::start(program, &["-f".as_ref(), conf.as_os_str()], &conf.with_file_name("log"))?;
        let stage = Self { weir, port, nodes, groups };
        stage.wait_ready(tables.iter().filter(|table| table.placing == Placing::Spread).count())?;
        Ok(stage)
    }

    /// Bytes of a table with its index, on all nodes.
    pub fn bytes_of(&self, table: &Table) -> Result<u64> {
        let bytes = |node: &Cluster| -> Result<u64> {
            Ok(node.primary().value(&format!("select pg_total_relation_size(to_regclass('{}'))", table.name))?.parse()?)
        };
        self.nodes_of(table).iter().map(bytes).sum()
    }

    /// Each node reads its part of the table, from the first block to the last, and then the index, of which every read takes more pages. So a
    /// node begins as after a long time of reads.
    pub fn warm_up(&self, table: &Table) -> Result<()> {
        let name = table.name;
        let read = |node: &Cluster| -> Result<()> {
            node.primary().query(&format!("select sum(abalance) from {name}"))?;
            node.primary().query(&format!(
                "set enable_seqscan = off; set enable_bitmapscan = off; select count(*) from {name} where aid > 0"
            ))?;
            Ok(())
        };
        on_all(self.nodes_of(table), read)
    }

    /// Transactions per second of so many clients that each read one row by its key: the statement of `pgbench -S`.
    pub fn reads_per_second(&self, table: &Table, rows: u32, clients: u32, seconds: u32) -> Result<f64> {
        let text = format!("\\set aid random(1, {rows})\nSELECT abalance FROM {} WHERE aid = :aid;\n", table.name);
        let rate = pgbench::rate(&text, self.port.number(), clients, seconds, self.nodes[0].dir());
        ensure!(!self.weir.has_ended(), "Weir ended: {}", fs::read_to_string(self.folder().join("log"))?);
        rate
    }

    fn folder(&self) -> PathBuf {
        weir_folder(&self.nodes)
    }

    fn nodes_of(&self, table: &Table) -> &[Cluster] {
        match table.placing {
            Placing::Spread => &self.nodes,
            Placing::FirstNode => &self.nodes[..1],
        }
    }

    fn wait_ready(&self, spread: usize) -> Result<()> {
        let log = || fs::read_to_string(self.folder().join("log")).unwrap_or_default();
        wait_until("Weir to know the tables", READY_LIMIT, || {
            ensure!(!self.weir.has_ended(), "Weir does not start:\n{}", log());
            let Ok(mut sql) = Sql::connect_tcp("127.0.0.1", self.port.number(), "postgres", "postgres") else { return Ok(false) };
            Ok(sql.query("show pool_shard_tables").is_ok_and(|rows| rows.len() == spread))
        })
        .with_context(log)
    }
}

fn start_server(template: &Arc<Template>, hold: Hold) -> Result<Cluster> {
    let buffers = match hold {
        Hold::Nodes(_) => HELD,
        Hold::Nothing => FREE,
    };
    let extra_conf = SETTINGS.into_iter().chain(buffers).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Cluster::start(Options { template: Some(Arc::clone(template)), extra_conf, ..Options::default() })
}

fn weir_folder(nodes: &[Cluster]) -> PathBuf {
    nodes[0].dir().join("weir")
}

fn write_conf(nodes: &[Cluster], port: u16, pool_size: u32) -> Result<PathBuf> {
    let folder = weir_folder(nodes);
    fs::create_dir(&folder)?;
    let shown = folder.display();
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{shown}'\npid_file_name = '{shown}/weir.pid'\n\
         work_dir = '{shown}'\nsr_check_user = 'postgres'\nlog_min_messages = warning\n\
         parallel_mode = on\npool_mode = transaction\npool_size = {pool_size}\n"
    );
    for (at, node) in nodes.iter().enumerate() {
        let shard = if at == 0 { String::new() } else { format!("backend_shard{at} = {at}\n") };
        text += &format!("backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\n{shard}", node.primary().port());
    }
    let path = folder.join("pgpool.conf");
    fs::write(&path, text)?;
    Ok(path)
}

/// Makes an empty table, and has Weir spread it.
fn make_table(program: &Path, conf: &Path, nodes: &[Cluster], table: &Table) -> Result<()> {
    let Table { name, rows, placing } = *table;
    let columns = "aid int not null primary key, bid int, abalance int, filler char(84)";
    nodes[0].primary().query(&format!("create table {name} ({columns}) with (fillfactor = 100)"))?;
    if placing == Placing::FirstNode {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(["shard", "table", "postgres", &format!("public.{name}"), "--key", "aid"]);
    command.args(["--range", &range_option(rows, nodes.len()), "-f"]).arg(conf);
    let output = process::run(&mut command, COMMAND_LIMIT)?;
    ensure!(output.status.success(), "weir shard table {name}: {}{}", output.stdout, output.stderr);
    Ok(())
}

/// The keys of a node: equal parts of 1 to `rows`.
fn keys_of(rows: u32, nodes: usize, node: usize) -> Range<u32> {
    let first = |node: usize| {
        let before = u64::from(rows) * node as u64 / nodes as u64;
        // No more than `rows`, which fits.
        1 + u32::try_from(before).unwrap_or(rows)
    };
    first(node)..first(node + 1)
}

/// "..51=0,51..=1"
fn range_option(rows: u32, nodes: usize) -> String {
    let range = |node: usize| {
        let keys = keys_of(rows, nodes, node);
        let from = if node == 0 { String::new() } else { keys.start.to_string() };
        let to = if node + 1 == nodes { String::new() } else { keys.end.to_string() };
        format!("{from}..{to}={node}")
    };
    (0..nodes).map(range).collect::<Vec<_>>().join(",")
}

/// Fills the tables on each node directly: Weir does not split rows of many shards.
fn fill_tables(nodes: &[Cluster], tables: &[Table]) -> Result<()> {
    let numbered: Vec<(usize, &Cluster)> = nodes.iter().enumerate().collect();
    on_all(&numbered, |(node, cluster)| {
        for table in tables {
            match table.placing {
                Placing::Spread => fill(cluster.primary(), table.name, keys_of(table.rows, nodes.len(), *node))?,
                Placing::FirstNode if *node == 0 => fill(cluster.primary(), table.name, 1..table.rows + 1)?,
                Placing::FirstNode => {}
            }
        }
        cluster.primary().query("checkpoint")?;
        Ok(())
    })
}

fn fill(server: &Server, table: &str, keys: Range<u32>) -> Result<()> {
    for first in keys.clone().step_by(ROWS_OF_INSERT as usize) {
        let last = (first + ROWS_OF_INSERT).min(keys.end) - 1;
        server.query(&format!(
            "insert into {table} select aid, (aid - 1) / 100000 + 1, 0, '' from generate_series({first}, {last}) aid"
        ))?;
    }
    // Frozen, so that a read never writes.
    server.query(&format!("vacuum (freeze, analyze) {table}"))?;
    Ok(())
}

/// Starts all servers anew, with nothing of theirs in the page cache, and holds each: memory counts for the group that first uses it.
fn hold_servers(own: &OwnGroups, nodes: &[Cluster], groups: &mut Vec<NodeGroup>) -> Result<()> {
    for (at, node) in nodes.iter().enumerate() {
        let server = node.primary();
        server.stop(Mode::Fast)?;
        forget_pages(server.data_dir())?;
        let group = NodeGroup::make(own, &at.to_string())?;
        server.start()?;
        let taken = group.take(server.pid().context("a server ended")?);
        groups.push(group);
        taken?;
    }
    Ok(())
}

/// Drops all files below a folder from the page cache.
fn forget_pages(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget_pages(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            let file = File::open(entry.path())?;
            // Only pages that are on the disk can be dropped.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Does something for all at the same time.
fn on_all<T: Sync>(all: &[T], deed: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let deed = &deed;
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || deed(one))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_all_keys_in_equal_parts() {
        assert_eq!(range_option(100, 1), "..=0");
        assert_eq!(range_option(100, 2), "..51=0,51..=1");
        assert_eq!(range_option(10, 3), "..4=0,4..7=1,7..=2");
        for nodes in 1..=9 {
            let keys: Vec<u32> = (0..nodes).flat_map(|node| keys_of(2_783, nodes, node)).collect();
            assert!(keys.iter().copied().eq(1..=2_783), "{nodes}");
        }
    }
}
