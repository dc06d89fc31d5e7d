//! `cargo xtask regress --sharded`: PostgreSQL's regression suite on a database whose tables are spread over three shards, beside one server.
//!
//! Scripts are played statement by statement on both sides. Each table that a script makes and that `weir shard` can spread is spread before the
//! next statement: by the first column of its key (`key`), or so that all of it lies on one shard, each table on another one (`node`). Weir may refuse a
//! statement, which is counted by reason. Whatever else differs is a bug, or stands with its reason in `differences.txt`.
//!
//! Map: `tokens`, `script`, `verbs` read scripts · `client` asks, `answers` compares · `stage` the servers · `tables` spreads, compares and repairs ·
//! `player` plays · `known`, `report` judge.

mod answers;
mod client;
mod known;
mod player;
mod report;
mod script;
mod stage;
mod tables;
mod tokens;
mod verbs;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::sources::Suite;
use player::Player;
use stage::Stage;
use tables::Tables;

/// How tables are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Placing {
    /// By the first column of their key.
    Key,
    /// Each as a whole on another shard.
    Node,
}

impl Placing {
    fn name(self) -> &'static str {
        match self {
            Placing::Key => "key",
            Placing::Node => "node",
        }
    }

    /// Lines of Weir's configuration. Both ways to read several shards are tried.
    fn configuration(self) -> &'static str {
        match self {
            Placing::Key => "cross_shard_reads = latest\n",
            Placing::Node => "cross_shard_reads = snapshot\n",
        }
    }
}

/// Makes tables for the others.
const FIRST: [&str; 1] = ["test_setup"];

/// Scripts that are about rows and what statements make of them, with those that matter most at the begin.
const SCRIPTS: &str = "select select_distinct select_distinct_on select_implicit select_having select_into join aggregates groupingsets window \
    subselect union case with insert insert_conflict update delete returning merge limit truncate arrays jsonb json numeric int2 int4 int8 float4 \
    float8 text varchar char name strings boolean bit uuid date time timetz timestamp timestamptz interval horology copy copyselect copydml copy2 \
    prepare prepared_xacts portals portals_p2 transactions constraints create_index btree_index hash_index index_including generated identity foreign_key alter_table \
    triggers rules updatable_views create_view create_table_like plancache rangefuncs rowtypes domain enum rangetypes multirangetypes inet macaddr \
    functional_deps join_hash incremental_sort tsrf tidscan equivclass memoize inherit partition_join partition_prune partition_aggregate temp \
    sequence namespace privileges";

/// Plays on servers of its own. Error: something differs that is not explained, or could not be played.
pub fn run(suite: &Suite, program: &Path, placing: Placing, scripts: &[String], minutes: u64) -> Result<()> {
    let begin = Instant::now();
    let until = begin + Duration::from_secs(60 * minutes);
    let known = known::read()?;
    let folder = results_folder()?;
    // A build meanwhile does no harm.
    let own = folder.join(format!("weir-{}", placing.name()));
    fs::copy(program, &own).with_context(|| format!("cannot copy {}", program.display()))?;
    let stage = Stage::start(&own, &suite.libraries, placing.configuration())?;
    let tables = Tables::new(&stage, placing)?;
    let mut player = Player::new(&stage, &suite.input, tables)?;
    let usual = || SCRIPTS.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let wanted = if scripts.is_empty() { usual() } else { scripts.to_vec() };
    let mut left = Vec::new();
    for name in FIRST.iter().map(|name| (*name).to_owned()).chain(wanted) {
        if !left.is_empty() || !suite.input.join("sql").join(format!("{name}.sql")).exists() {
            left.push(name);
            continue;
        }
        let (began, before, seen) = (Instant::now(), player.report.played, player.report.differing.len());
        if !player.play(&name, until).with_context(|| format!("{name}: {}", stage.log_end()))? {
            left.push(name);
            continue;
        }
        println!(
            "regress: {}: {name}: {} statements in {:.1} s",
            placing.name(),
            player.report.played - before,
            began.elapsed().as_secs_f64()
        );
        player.report.differing[seen..]
            .iter()
            .filter(|one| !one.is_known(&known, placing))
            .for_each(|one| println!("{}", one.shown()));
    }
    if stage.has_weir_ended() {
        bail!("Weir has ended: {}", stage.log_end());
    }
    tell(&player, placing, &known, &left, begin.elapsed())
}

fn results_folder() -> Result<PathBuf> {
    let folder = crate::target_folder()?.join("regress/sharded");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes all, prints what counts. Error: something differs that is not explained.
fn tell(player: &Player<'_>, placing: Placing, known: &[known::Known], left: &[String], took: Duration) -> Result<()> {
    let folder = results_folder()?;
    let file = folder.join(format!("{}.txt", placing.name()));
    let (unexplained, stale) = player.report.judge(known, placing);
    let mut text = format!("placing {}, {} s: {}", placing.name(), took.as_secs(), player.report.counts());
    text += &format!("tables: {} sharded, {} reference\n", player.tables.sharded, player.tables.reference);
    for (reason, count) in &player.tables.plain {
        text += &format!("{count:6} on shard 0 only: {reason}\n");
    }
    if !left.is_empty() {
        text += &format!("not played, as the time was over or this version lacks them: {}\n", left.join(" "));
    }
    for stale in &stale {
        text += &format!("no longer differs, take it out of differences.txt: {stale}\n");
    }
    fs::write(&file, format!("{text}\n\n{}", player.report.story))?;
    println!("{text}regress: all statements are in {}", file.display());
    if unexplained.is_empty() && stale.is_empty() {
        return Ok(());
    }
    bail!(
        "{} answers over shards differ from those of one server; {} rows of differences.txt are not needed",
        unexplained.len(),
        stale.len()
    )
}
