//! `cargo run -p weir-sim -- --seed N` plays one seed and prints it; `--planned`: one in which primaries are moved on purpose. `--returning`: one in which agents bring replaced primaries back; `--grouped`: one of a group, `--group-without PART` without a part of it; `--script NAME`: one of a script of members. `--seeds N [--from M]` plays many and prints their broken
//! invariants. `--without RULE` leaves a safety rule out, `--unproved PART` a part of the proof of a COMMIT's outcome.

use std::process::ExitCode;

use weir_failover::SafetyRule;
use weir_group::GroupRule;
use weir_sim::{
    GroupPart, MemberScript, Options, Outcome, Proof, run, run_grouped, run_member_script, run_planned, run_returning,
};

const USAGE: &str = "usage: weir-sim [--planned | --returning | --grouped | --script NAME] (--seed N | --seeds N [--from M]) [--without RULE] [--unproved PART] [--group-without PART]";

struct Arguments {
    from: u64,
    seeds: u64,
    run: fn(u64, Options) -> Outcome,
    script: Option<MemberScript>,
    options: Options,
}

impl Arguments {
    fn play(&self, seed: u64) -> Outcome {
        match self.script {
            Some(script) => run_member_script(seed, script, self.options),
            None => (self.run)(seed, self.options),
        }
    }
}

fn arguments() -> Option<Arguments> {
    let mut read = Arguments { from: 0, seeds: 1_000, run, script: None, options: Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--planned" => read.run = run_planned,
            "--returning" => read.run = run_returning,
            "--grouped" => read.run = run_grouped,
            _ => {}
        }
        if word == "--planned" || word == "--returning" || word == "--grouped" {
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--seed" => {
                (read.from, read.seeds) = (value.parse().ok()?, 1);
                read.options.traces = true;
            }
            "--script" => read.script = Some(*MemberScript::ALL.iter().find(|script| format!("{script:?}") == value)?),
            "--seeds" => read.seeds = value.parse().ok()?,
            "--from" => read.from = value.parse().ok()?,
            "--unproved" => {
                read.options.unproved = Some(*Proof::ALL.iter().find(|proof| format!("{proof:?}") == value)?);
            }
            "--group-without" => {
                let rules = GroupRule::ALL.into_iter().map(GroupPart::Rule);
                let mut parts = GroupPart::BINDING.into_iter().chain(rules);
                read.options.group_without = Some(parts.find(|part| format!("{part:?}") == value)?);
            }
            "--without" => read.options.without = Some(*SafetyRule::ALL.iter().find(|rule| format!("{rule:?}") == value)?),
            _ => return None,
        }
    }
    Some(read)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}\nrules: {:?}\nparts of a proof: {:?}\nscripts: {:?}", SafetyRule::ALL, Proof::ALL, MemberScript::ALL);
        return ExitCode::FAILURE;
    };
    let (from, seeds) = (arguments.from, arguments.seeds);
    let (mut brought_back, mut ended) = (0, 0);
    let (mut committed, mut rolled_back, mut unknown, mut again, mut refused) = (0, 0, 0, 0, 0);
    let (mut takeovers, mut etcd_changes, mut disks_lost, mut beside, mut removals) = (0, 0, 0, 0, 0);
    let (mut shutdowns, mut members_left) = (0, 0);
    let (mut broken, mut failovers, mut switchovers, mut events, mut acknowledged, mut lost) = (0, 0, 0, 0, 0, 0);
    for seed in from..from + seeds {
        let outcome = arguments.play(seed);
        outcome.trace.iter().for_each(|line| println!("{line}"));
        if !outcome.broken.is_empty() {
            broken += 1;
            println!("seed {seed}: {:?}", outcome.broken);
        }
        failovers += outcome.failovers;
        switchovers += outcome.switchovers;
        events += outcome.events;
        acknowledged += outcome.acknowledged;
        lost += outcome.announced_lost;
        brought_back += outcome.brought_back;
        ended += outcome.ended;
        takeovers += outcome.takeovers;
        disks_lost += outcome.disks_lost;
        beside += outcome.disks_lost_beside;
        removals += outcome.removals;
        shutdowns += outcome.shutdowns;
        members_left += outcome.members_left;
        etcd_changes += outcome.etcd_changes;
        committed += outcome.told.committed;
        rolled_back += outcome.told.rolled_back;
        unknown += outcome.told.unknown;
        again += outcome.told.again;
        refused += outcome.told.refused;
    }
    println!(
        "{seeds} seeds, {broken} broken; {failovers} changes of the primary, {switchovers} of them asked for, {acknowledged} writes acknowledged, \
         {lost} of them lost as announced, {brought_back} brought back, {ended} ended, {takeovers} taken over, {disks_lost} disks lost, {beside} of them beside another process, {removals} hosts to be removed, {shutdowns} stopped, {members_left} hosts left groups, {etcd_changes} changes in etcd, {events} events; lost answers: {committed} committed, {rolled_back} rolled back, {unknown} unknown; transactions: {again} ran again, {refused} did not"
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
