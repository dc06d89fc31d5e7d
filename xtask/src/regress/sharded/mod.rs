//! `cargo xtask regress --sharded`: PostgreSQL's regression suite on a database whose tables are spread over three shards, beside one server.
//!
//! Scripts are played statement by statement on both sides. Each table that a script makes and that `weir shard` can spread is spread before the
//! next statement: by the first column of its key (`key`), or so that all of it lies on one shard, each table on another one (`node`). Weir may refuse a
//! statement, which is counted by reason. Several stages play at a time, since most of a run is waiting. Whatever else differs is a bug, or stands with its reason in `differences.txt`.
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

use std::collections::VecDeque;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::sources::Suite;
use known::Known;
use player::Player;
use report::Report;
use stage::Stage;
use tables::{SpreadCounts, Tables};

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
    sequence namespace privileges rowsecurity plpgsql tsearch tstypes create_misc create_table create_function_sql create_procedure expressions \
    errors typed_table matview fast_default indexing gin gist brin spgist regex geometry point box money macaddr8 pg_lsn oid jsonpath jsonb_jsonpath \
    select_parallel combocid tablesample tuplesort cluster collate bitmapops hash_part hash_func misc_functions xml advisory_lock txid xid random \
    numerology numeric_big unicode replica_identity reloptions generated_stored generated_virtual sqljson sqljson_queryfuncs sqljson_jsontable \
    without_overlaps predicate copyencoding";

/// Choices of a run.
#[derive(Debug, Clone, Copy)]
pub struct Wishes<'w> {
    pub placing: Placing,
    /// Empty: the usual ones.
    pub scripts: &'w [String],
    pub minutes: u64,
    /// Stages at a time.
    pub stages: usize,
}

/// Scripts that no stage has begun.
struct Queue {
    waiting: Mutex<VecDeque<String>>,
    until: Instant,
}

/// Outcome of all stages.
#[derive(Default)]
struct Played {
    report: Report,
    spread: SpreadCounts,
    /// Scripts that were not played to their end, as the time was over or this version lacks them.
    left: Vec<String>,
    /// Why a stage could not go on.
    broken: Vec<String>,
}

/// Plays on servers of its own. Error: something differs that is not explained, or could not be played.
pub fn run(suite: &Suite, program: &Path, wishes: Wishes<'_>) -> Result<()> {
    let begin = Instant::now();
    let known = known::read()?;
    // A build meanwhile does no harm, and neither does another run.
    let own = results_folder()?.join(format!("weir-{}", wishes.placing.name()));
    let _ = fs::remove_file(&own);
    fs::copy(program, &own).with_context(|| format!("cannot copy {}", program.display()))?;
    let usual = || SCRIPTS.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let wanted = if wishes.scripts.is_empty() { usual() } else { wishes.scripts.to_vec() };
    let (waiting, left): (VecDeque<String>, VecDeque<String>) = wanted.into_iter().partition(|name| has_script(suite, name));
    let queue = Queue { waiting: Mutex::new(waiting), until: begin + Duration::from_secs(60 * wishes.minutes) };
    let mut all = Played { left: left.into(), ..Played::default() };
    let play = || play_all(suite, &own, wishes.placing, &known, &queue);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..wishes.stages.max(1)).map(|_| scope.spawn(play)).collect();
        threads.into_iter().for_each(|thread| all.add(thread.join().unwrap_or_else(|panic| resume_unwind(panic))));
    });
    all.left.extend(queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    tell(&all, wishes.placing, &known, begin.elapsed())
}

fn has_script(suite: &Suite, name: &str) -> bool {
    suite.input.join("sql").join(format!("{name}.sql")).exists()
}

/// Plays until no script waits, each stage as long as it can go on.
fn play_all(suite: &Suite, program: &Path, placing: Placing, known: &[Known], queue: &Queue) -> Played {
    let mut all = Played::default();
    while !queue.is_empty() {
        let mut played = Played::default();
        let end = play_on_stage(suite, program, placing, known, queue, &mut played);
        let has_begun = played.report.played > 0;
        all.add(played);
        if let Err(error) = end {
            println!("regress: {}: a stage ends: {error:#}", placing.name());
            all.broken.push(format!("{error:#}"));
            if !has_begun {
                break;
            }
        }
    }
    all
}

fn play_on_stage(
    suite: &Suite,
    program: &Path,
    placing: Placing,
    known: &[Known],
    queue: &Queue,
    played: &mut Played,
) -> Result<()> {
    let stage = Stage::start(program, &suite.libraries, placing.configuration())?;
    let tables = Tables::new(&stage, placing)?;
    let mut player = Player::new(&stage, &suite.input, tables)?;
    let mut first = FIRST.iter().map(|name| (*name).to_owned());
    let mut end = Ok(());
    while let Some(name) = first.next().or_else(|| queue.next()) {
        match play_script(&stage, &mut player, &name, placing, known, queue.until) {
            Ok(true) => {}
            Ok(false) => played.left.push(name),
            Err(error) => {
                end = Err(error);
                played.left.push(name);
                break;
            }
        }
    }
    let has_ended = stage.has_weir_ended();
    played.report.add(player.report);
    played.spread.add(&player.tables.counts);
    if has_ended {
        bail!("Weir has ended: {}", stage.log_end());
    }
    end
}

/// Returns false if the time was over.
fn play_script(
    stage: &Stage,
    player: &mut Player<'_>,
    name: &str,
    placing: Placing,
    known: &[Known],
    until: Instant,
) -> Result<bool> {
    let (began, before, seen) = (Instant::now(), player.report.played, player.report.differing.len());
    let is_whole = player.play(name, until).with_context(|| format!("{name}: {}", stage.log_end()))?;
    let (statements, seconds) = (player.report.played - before, began.elapsed().as_secs_f64());
    println!("regress: {}: {name}: {statements} statements in {seconds:.1} s", placing.name());
    let news = player.report.differing[seen..].iter().filter(|one| !one.is_known(known, placing));
    news.for_each(|one| println!("{}", one.shown()));
    Ok(is_whole)
}

impl Queue {
    /// `None`: all are begun, or the time is over.
    fn next(&self) -> Option<String> {
        if Instant::now() >= self.until {
            return None;
        }
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn is_empty(&self) -> bool {
        Instant::now() >= self.until || self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Played {
    fn add(&mut self, other: Played) {
        self.report.add(other.report);
        self.spread.add(&other.spread);
        self.left.extend(other.left);
        self.broken.extend(other.broken);
    }
}

fn results_folder() -> Result<PathBuf> {
    let folder = crate::target_folder()?.join("regress/sharded");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes all, prints what counts. Error: something differs that is not explained.
fn tell(all: &Played, placing: Placing, known: &[Known], took: Duration) -> Result<()> {
    let folder = results_folder()?;
    let file = folder.join(format!("{}.txt", placing.name()));
    let (unexplained, stale) = all.report.judge(known, placing);
    let mut text = format!("placing {}, {} s: {}", placing.name(), took.as_secs(), all.report.counts());
    text += &all.spread.shown();
    if !all.left.is_empty() {
        text += &format!("not played to the end, as the time was over or this version lacks them: {}\n", all.left.join(" "));
    }
    for stale in &stale {
        text += &format!("no longer differs, take it out of differences.txt: {stale}\n");
    }
    for broken in &all.broken {
        text += &format!("a stage could not go on: {broken}\n");
    }
    fs::write(&file, format!("{text}\n\n{}", all.report.story))?;
    println!("{text}regress: all statements are in {}", file.display());
    if unexplained.is_empty() && stale.is_empty() && all.broken.is_empty() {
        return Ok(());
    }
    bail!(
        "{} answers over shards differ from those of one server; {} rows of differences.txt are not needed; {} stages could not go on",
        unexplained.len(),
        stale.len(),
        all.broken.len()
    )
}
