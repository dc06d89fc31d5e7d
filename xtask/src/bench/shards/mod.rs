//! `cargo xtask bench shards`: one read by its key over one to nine servers, each held to a share of the machine. Takes root.
//!
//! Asks again what the authors of Pgpool-II's parallel mode asked of theirs: does it scale with the nodes, up to how many, and how does that depend
//! on the size of the data beside the memory of a node.
//!
//! Map: `node_group` holds a server · `shard_stage` servers, tables and Weir · `shard_results` the kept file, its tables and its figure.

pub mod node_group;
mod shard_results;
mod shard_stage;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::node_group::OwnGroups;
pub use self::shard_results::KeptShards;
use self::shard_results::{SIZES, Size};
use self::shard_stage::{Hold, Placing, ShardStage, Table};
use super::{pages, proc, programs};

/// Nodes of a run, and users of each of its points.
const NODES: [usize; 5] = [1, 2, 4, 6, 9];
const USERS: [u32; 4] = [1, 4, 16, 32];
/// Server connections of Weir to each node: every one takes memory of its node.
const CONNECTIONS_OF_NODE: u32 = 8;
/// Reads that nobody counts, by the most users, until a node has kept the pages that it needs most.
const WARM_SECONDS: u32 = 5;

/// Clients that compare a routed statement with one that is not, the pairs of runs, and the seconds of each run.
const PAIR_CLIENTS: [u32; 2] = [8, 64];
const PAIRS: usize = 7;
const PAIR_SECONDS: u32 = 3;
const PAIR_CONNECTIONS: u32 = 20;
/// All keys that are read lie on the first of two nodes, as the table that is not sharded.
const PAIR_ROWS: u32 = 100_000;
const ROUTED: Table = Table { name: "spread_accounts", rows: 2 * PAIR_ROWS, placing: Placing::Spread };
const UNROUTED: Table = Table { name: "single_accounts", rows: PAIR_ROWS, placing: Placing::FirstNode };

/// Choice of nodes and times.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these numbers of nodes (comma separated): 1, 2, 4, 6, 9; 0 for the comparison with a table that is not sharded
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// Seconds of one run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Write bench/results/shards.json, the figure and the tables of the documents
    #[arg(long, conflicts_with = "nodes")]
    keep: bool,
}

impl Arguments {
    fn takes(&self, nodes: usize) -> bool {
        self.nodes.is_empty() || self.nodes.contains(&nodes)
    }
}

/// Measures and prints the tables.
pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    let program = match &arguments.weir {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => programs::build(&["-p", "weir", "--bin", "weir"], "weir")?,
    };
    let load = proc::load_average();
    let (mut points, mut pairs) = (Vec::new(), Vec::new());
    match OwnGroups::find(&std::env::temp_dir()) {
        Ok(own) => {
            for nodes in NODES.into_iter().filter(|nodes| arguments.takes(*nodes)) {
                if let Err(error) = measure_nodes(&program, &own, nodes, arguments.seconds, &mut points) {
                    eprintln!("{nodes} nodes are given up: {error:#}");
                }
            }
        }
        Err(error) if arguments.keep => bail!("kept results need nodes that are held: {error:#}"),
        Err(error) => println!("nodes cannot be held here, and what needs them is left out: {error:#}"),
    }
    if arguments.takes(0) {
        measure_pairs(&program, &mut pairs)?;
    }
    let about = json!({
        "date": crate::date::today(),
        "machine": super::machine(),
        "PostgreSQL": version_of_servers()?,
        "weir": programs::version(&program),
        "seconds": arguments.seconds,
        "load at the start": load,
        "load at the end": proc::load_average(),
    });
    let document = json!({ "about": about, "points": points, "pairs": pairs });
    println!("{}", shard_results::text(&document));
    if arguments.keep {
        shard_results::keep(root, &document)?;
        pages::write(root)?;
    }
    Ok(())
}

fn version_of_servers() -> Result<String> {
    Ok(programs::version(&weir_demo::Programs::find()?.bin().join("postgres")))
}

/// All sizes and users before so many nodes.
fn measure_nodes(program: &Path, own: &OwnGroups, nodes: usize, seconds: u32, points: &mut Vec<Value>) -> Result<()> {
    let tables = SIZES.map(|size| Table { name: size.table, rows: size.rows, placing: Placing::Spread });
    let stage = ShardStage::start(program, nodes, CONNECTIONS_OF_NODE, &tables, Hold::Nodes(own))?;
    for (Size { name, rows, .. }, table) in SIZES.iter().zip(&tables) {
        stage.warm_up(table)?;
        stage.reads_per_second(table, *rows, USERS[USERS.len() - 1], WARM_SECONDS)?;
        let bytes = stage.bytes_of(table)?;
        for users in USERS {
            let tps = stage.reads_per_second(table, *rows, users, seconds)?;
            eprintln!("{name} ({} MB), {nodes} nodes, {users} users: {tps:.0} tps, load {}", bytes >> 20, proc::load_average());
            points.push(json!({ "size": name, "bytes": bytes, "nodes": nodes, "users": users, "tps": tps.round() }));
        }
    }
    Ok(())
}

/// A routed statement beside one that is not, in turns, by the same Weir before the same server.
fn measure_pairs(program: &Path, pairs: &mut Vec<Value>) -> Result<()> {
    let stage = ShardStage::start(program, 2, PAIR_CONNECTIONS, &[ROUTED, UNROUTED], Hold::Nothing)?;
    for clients in PAIR_CLIENTS {
        let rate = |table| stage.reads_per_second(table, PAIR_ROWS, clients, PAIR_SECONDS);
        // Nobody counts the first, in which connections are made.
        rate(&ROUTED)?;
        for at in 0..PAIRS {
            // Each is the first of a pair as often as the other, but for one.
            let (routed, unrouted) = if at % 2 == 0 {
                let routed = rate(&ROUTED)?;
                (routed, rate(&UNROUTED)?)
            } else {
                let unrouted = rate(&UNROUTED)?;
                (rate(&ROUTED)?, unrouted)
            };
            eprintln!("{clients} clients: routed {routed:.0} tps, not sharded {unrouted:.0} tps, load {}", proc::load_average());
            pairs.push(json!({ "clients": clients, "routed": routed.round(), "unrouted": unrouted.round() }));
        }
    }
    Ok(())
}
