//! A seeded simulation of PostgreSQL servers, the network, clients, an operator and several Weirs, around the real decisions of
//! `weir_failover`. A seed is a run: the same events in the same order.
//!
//! [`run`] plays one seed and returns the invariants that were broken. Nothing in here waits, opens a socket or asks a clock.

mod address_keeper;
mod again;
mod agenda;
mod agent;
mod dice;
mod doubt;
mod engine_talk;
mod etcd;
mod fault;
mod group_oracle;
mod host_kernel;
mod kinds;
mod member_address;
mod member_changes;
mod member_etcd;
mod member_host;
mod member_link;
mod member_processes;
mod member_scripts;
mod member_takeover;
mod oracle;
mod plan;
mod returning;
mod script_scene;
mod server;
mod trace;
mod traffic;
mod weir;
mod world;

pub use dice::Dice;
pub use doubt::Told;
pub use kinds::{GroupPart, Proof, Scripted};
pub use oracle::{Broken, Outcome};
pub use plan::{Options, Plan};
pub use script_scene::MemberScript;

/// Plays a script.
pub fn run_script(plan: Plan, options: Options) -> Outcome {
    let mut world = world::World::new(1, plan, options);
    world.play();
    world.outcome(1)
}

/// Plays a script of a group's members; the seed has its moments.
pub fn run_member_script(seed: u64, script: MemberScript, options: Options) -> Outcome {
    let mut world = world::World::new(seed, Plan::of_members(script, options), options);
    world.play();
    world.outcome(seed)
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

/// Plays one seed in which the Weirs are members of a group.
pub fn run_grouped(seed: u64, options: Options) -> Outcome {
    let plan = Plan::grouped(seed, options);
    let mut world = world::World::new(seed, plan, options);
    world.play();
    world.outcome(seed)
}

/// Plays one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut plan = Plan::of(seed, options.without);
    if options.unproved.is_some() {
        plan = plan.without_agents();
    }
    let mut world = world::World::new(seed, plan, options);
    world.play();
    world.outcome(seed)
}
