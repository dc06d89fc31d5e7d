//! The fuzz target of this crate on mutated seeds; `cargo fuzz` runs the same body for longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/bodies/session.rs"]
mod session;
mod support;

use std::panic::{catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

#[test]
fn no_client_and_no_server_bring_a_session_out_of_step() {
    mutate::run("session", 1000, session::run);
}

/// An input that failed, once more and told: `WEIR_FUZZ_TOLD=FILE cargo test -p weir-session --test mutations an_input -- --nocapture`.
#[test]
fn an_input_of_a_file_passes() {
    if let Some(path) = std::env::var_os("WEIR_FUZZ_TOLD") {
        session::run(&std::fs::read(path).unwrap());
    }
}

/// Inputs of nothing but chance, for so many seconds: `WEIR_FUZZ_SECONDS=60 WEIR_FUZZ_DICE=3 cargo test -p weir-session --test mutations chance`.
#[test]
fn inputs_of_chance_pass() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let begun = Instant::now();
    let limit = Duration::from_secs(number("WEIR_FUZZ_SECONDS", 0));
    let (mut dice, mut count) = (number("WEIR_FUZZ_DICE", 1), 0u64);
    while count < 200 || begun.elapsed() < limit {
        let length = 50 + roll(&mut dice) % 1500;
        let input: Vec<u8> = (0..length).map(|_| (roll(&mut dice) >> 32) as u8).collect();
        if let Err(cause) = catch_unwind(|| session::run(&input)) {
            eprintln!("fuzz target session, input b\"{}\"", input.escape_ascii());
            resume_unwind(cause);
        }
        count += 1;
    }
    println!("{count} inputs");
}

/// SplitMix64.
fn roll(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
