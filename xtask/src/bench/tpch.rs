//! `cargo xtask tpch`: the queries of TPC-H through Weir over three shards, beside one server with all rows.
//!
//! All servers share one machine, so that shards bring no machines: the table shows the price of asking several, not what more of them bring.

#[path = "../../../bench/tpch/tpch.rs"]
mod definition;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use weir_demo::{Cluster, CopiedRows, Row, Server, Sql};

use super::spread_stage::{self, ENGINE_USER, SpreadStage};
use super::{proc, programs, server, stats};

const SHARDS: usize = 3;

/// Choice of scale and rounds.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of suppliers, by which all tables grow; 100 are TPC-H's scale 0.01
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    suppliers: u32,
    /// Rounds of all queries, of which the medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
}

/// Measures and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = match &arguments.weir {
        Some(path) => path.canonicalize().with_context(|| format!("no program {}", path.display()))?,
        None => programs::build(&["-p", "weir", "--bin", "weir"], "weir")?,
    };
    let stage = Stage::start(&program, arguments.suppliers)?;
    let mut direct = Sql::connect_tcp("127.0.0.1", stage.whole.primary().port(), "postgres", "postgres")?;
    let mut through = Sql::connect_tcp("127.0.0.1", stage.spread.port(), "postgres", "postgres")?;
    let queries = definition::queries();
    let mut times = vec![(Vec::new(), Vec::new()); queries.len()];
    for round in 1..=arguments.rounds {
        eprintln!("round {round} of {}, load {}", arguments.rounds, proc::load_average());
        for (number, (text, (of_direct, of_through))) in (1..).zip(queries.iter().zip(&mut times)) {
            let expected = timed(&mut direct, text, of_direct)?;
            ensure!(timed(&mut through, text, of_through)? == expected, "query {number} has another answer over shards");
        }
    }
    println!("{}", table(arguments, &times));
    Ok(())
}

fn timed(sql: &mut Sql, text: &str, times_ms: &mut Vec<f64>) -> Result<Vec<Row>> {
    let begin = Instant::now();
    let rows = sql.query(text)?;
    times_ms.push(begin.elapsed().as_secs_f64() * 1e3);
    Ok(rows)
}

fn table(arguments: &Arguments, times: &[(Vec<f64>, Vec<f64>)]) -> String {
    let mut text = format!(
        "{}; {} suppliers, {} rounds, PostgreSQL and Weir on one machine\n\n\
         | query | one server, ms | {SHARDS} shards, ms | ratio |\n|---|---|---|---|\n",
        super::machine(),
        arguments.suppliers,
        arguments.rounds
    );
    let median = |values: &[f64]| stats::spread(values).map_or(0.0, |spread| spread.median);
    let mut sums = (0.0, 0.0);
    let mut line = |name: &str, one: f64, shards: f64| {
        let _ = writeln!(text, "| {name} | {one:.1} | {shards:.1} | {:.1} |", shards / one);
    };
    for (number, (of_direct, of_through)) in (1..).zip(times) {
        let (one, shards) = (median(of_direct), median(of_through));
        sums = (sums.0 + one, sums.1 + shards);
        line(&format!("{number}"), one, shards);
    }
    line("all", sums.0, sums.1);
    text
}

/// Servers that are shards, and one with all rows.
struct Stage {
    spread: SpreadStage,
    whole: Cluster,
}

impl Stage {
    fn start(program: &Path, suppliers: u32) -> Result<Stage> {
        let spread = SpreadStage::start(program, SHARDS, &server::SETTINGS)?;
        let stage = Stage { spread, whole: spread_stage::server(&server::SETTINGS)? };
        stage.fill(suppliers)?;
        Ok(stage)
    }

    fn fill(&self, suppliers: u32) -> Result<()> {
        eprintln!("making the rows of {suppliers} suppliers");
        let shards: Vec<&Server> = self.spread.shards().collect();
        let whole = self.whole.primary();
        whole.query(&format!("create role {ENGINE_USER} login"))?;
        for server in [shards[0], whole] {
            server.query(definition::SCHEMA)?;
        }
        whole.query(&definition::rows(suppliers))?;
        whole.query("vacuum analyze")?;
        shards[0].copy_rows(whole, definition::REFERENCE, CopiedRows::All)?;
        for table in definition::REFERENCE {
            self.spread.command(&["reference", "postgres", &format!("public.{table}")])?;
        }
        for (table, key, beside) in definition::SHARDED {
            let (name, beside) = (format!("public.{table}"), beside.map(|other| format!("public.{other}")));
            let with = beside.as_deref().map_or(Vec::new(), |other| vec!["--with", other]);
            self.spread.command(&[&["table", "postgres", &name, "--key", key], with.as_slice()].concat())?;
        }
        let names: Vec<&str> = definition::SHARDED.iter().map(|(table, ..)| *table).collect();
        for shard in shards {
            shard.copy_rows(whole, &names, CopiedRows::OfShard)?;
            shard.query("vacuum analyze")?;
        }
        self.spread.make_ready("select count(*) from lineitem")
    }
}
