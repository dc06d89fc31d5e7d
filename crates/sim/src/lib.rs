//! A seeded simulation of PostgreSQL servers, the network, clients, an operator and several Weirs, around the real decisions of
//! `weir_policy::failover`. A seed is a run: the same events in the same order.
//!
//! [`run`] plays one seed and returns the invariants that were broken. Nothing in here waits, opens a socket or asks a clock.

mod agent;
mod dice;
mod doubt;
mod fault;
mod oracle;
mod plan;
mod returning;
mod server;
mod trace;
mod traffic;
mod weir;
mod world;

pub use dice::Dice;
pub use doubt::{Proof, Told};
pub use fault::Scripted;
pub use oracle::Broken;
pub use plan::Plan;
use weir_policy::failover::Rule;

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub broken: Vec<Broken>,
    /// Writes that were acknowledged to clients.
    pub acknowledged: usize,
    /// Acknowledged writes that the last primary lacks, all of them announced.
    pub announced_lost: usize,
    /// Changes of the primary that some Weir reported.
    pub failovers: usize,
    /// Those that were asked for while the old primary worked.
    pub switchovers: usize,
    /// Writes that Weirs had sent and gave up.
    pub given_up: usize,
    /// Replaced primaries that agents made standbys.
    pub brought_back: usize,
    /// COMMITs whose answer was lost.
    pub told: Told,
    pub events: u64,
    /// Events of the run, if they were asked for.
    pub trace: Vec<String>,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A safety rule that is left out.
    pub without: Option<Rule>,
    /// A part of the proof of an outcome that is left out.
    pub unproved: Option<Proof>,
    pub traces: bool,
}

/// Plays a script.
pub fn run_script(plan: Plan, options: Options) -> Outcome {
    let mut world = world::World::new(1, plan, options);
    world.play();
    world.outcome(1)
}

/// Plays one seed in which primaries are moved on purpose.
pub fn run_planned(seed: u64, options: Options) -> Outcome {
    let plan = Plan::planned(seed, options.without);
    let mut world = world::World::new(seed, plan, options);
    world.play();
    world.outcome(seed)
}

/// Plays one seed in which agents bring replaced primaries back.
pub fn run_returning(seed: u64, options: Options) -> Outcome {
    let plan = Plan::returning(seed, options.without);
    let mut world = world::World::new(seed, plan, options);
    world.play();
    world.outcome(seed)
}

/// Plays one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let plan = Plan::of(seed, options.without);
    let mut world = world::World::new(seed, plan, options);
    world.play();
    world.outcome(seed)
}
