//! Weir in the configurations that people have: a small set of rows in which any two values of any two parameters meet. In
//! each, sixteen clients are at work, whose every answer is checked. Then the rows run again while servers hang, die, fill up
//! and change their roles.
//!
//! `WEIR_MATRIX=3,7` runs only these rows of the tables in `matrix/table.rs`, `WEIR_MATRIX=few` less than half of them, in which every value of
//! every parameter occurs; `cargo xtask test` does that on its second version of PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "matrix/calm.rs"]
mod calm;
#[allow(dead_code, reason = "shared with other test programs, which use all of it")]
#[path = "differential/dice.rs"]
mod dice;
#[path = "matrix/load.rs"]
mod load;
#[path = "matrix/place.rs"]
mod place;
#[path = "matrix/stage.rs"]
mod stage;
#[allow(dead_code, unused_imports, reason = "shared with the end-to-end tests, which use all of it")]
mod support;
#[path = "matrix/table.rs"]
mod table;
#[path = "matrix/trouble.rs"]
mod trouble;

use load::{Forgiven, Load};
use place::Place;
use stage::{Servers, Stage};
use table::Row;
use trouble::Trouble;

/// Steps of each client before anything is looked at.
const STEPS: u64 = 120;
/// Steps of each client that show that nobody is stuck.
const STEPS_ON: u64 = 10;
/// So that a fault is noticed within seconds; their defaults are ten times as long.
const IMPATIENT: &str = "sr_check_period = 1\nconnect_timeout = 2s\ncausal_wait = 20ms\n";
/// A standby of a busy machine may take longer than the default to replay a write; its reads would go to others, and no share would be kept.
const PATIENT: &str = "causal_wait = 2s\n";

#[test]
fn every_promise_is_kept_in_every_configuration() {
    let servers = Servers::start();
    let complaints: Vec<String> = table::calm().iter().flat_map(|row| named(row, calm_row(row, &servers))).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Nothing happens to the servers.
fn calm_row(row: &Row, servers: &Servers) -> Vec<String> {
    let stage = Stage::set(row, servers, PATIENT);
    let mut complaints = Load::new(&stage, Forgiven::NONE).run(|load| load.wait_for_steps("at first", STEPS));
    complaints.extend(calm::weights(&stage));
    complaints.extend(calm::hits(&stage));
    complaints.extend(calm::idle(&stage));
    complaints.extend(calm::log(&stage));
    complaints
}

#[test]
fn every_promise_is_kept_while_servers_fail() {
    let mut servers = None;
    let mut complaints = Vec::new();
    for row in table::troubled() {
        let trouble = Trouble::of(row.cell("fault"));
        let cluster = servers.get_or_insert_with(Servers::start);
        let wrong = troubled_row(&row, trouble, cluster);
        // Servers after a failed row may be in any state, and those after a promotion have other roles.
        if !wrong.is_empty() || trouble == Trouble::Promoted {
            servers = None;
        } else if let Some(servers) = &servers {
            servers.cluster.wait_streaming(2).unwrap();
        }
        complaints.extend(named(&row, wrong));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn troubled_row(row: &Row, trouble: Trouble, servers: &Servers) -> Vec<String> {
    let stage = Stage::set(row, servers, IMPATIENT);
    let others = trouble.prepare(&stage);
    Load::new(&stage, trouble.forgiven()).run(|load| {
        load.wait_for_steps("before the fault", STEPS_ON);
        trouble.begin(&stage);
        if trouble.is_bearable() {
            load.wait_for_steps("while the fault lasts", STEPS_ON);
        }
        trouble.end(&stage, others);
        load.wait_for_steps("after the fault", STEPS_ON);
    })
}

#[test]
fn every_promise_is_kept_where_users_are() {
    let servers = Servers::start();
    let complaints: Vec<String> = table::placed().iter().flat_map(|row| named(row, placed_row(row, &servers))).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn placed_row(row: &Row, servers: &Servers) -> Vec<String> {
    let Some(place) = Place::of(row.cell("place"), row, servers) else { return Vec::new() };
    let stage = place.stage(row, servers, PATIENT);
    let complaints = Load::new(&stage, Forgiven::NONE).run(|load| {
        load.wait_for_steps("at first", STEPS_ON);
        place.changes(&stage);
        load.wait_for_steps("from then on", STEPS_ON);
    });
    if !complaints.is_empty() {
        println!("{}", stage.proxy.log());
    }
    drop(stage);
    place.leave(servers);
    complaints
}

/// Faults, each with its row.
fn named(row: &Row, complaints: Vec<String>) -> Vec<String> {
    println!("{row}: {}", if complaints.is_empty() { "fine" } else { "WRONG" });
    complaints.into_iter().map(|complaint| format!("{row}: {complaint}")).collect()
}
