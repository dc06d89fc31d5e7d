//! Runs a fuzz body from `cargo test`, where no fuzzer is installed: seeds first, then a fixed number of mutated seeds.
//!
//! Equal numbers give equal inputs. `WEIR_FUZZ_ROUNDS` and `WEIR_FUZZ_DICE` choose others for a longer search.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Longest input tried; bodies that loop over their input stay fast.
const INPUT_BYTES_MAX: usize = 4096;
/// Most changes made to one seed.
const CHANGES_MAX: usize = 6;
/// Bytes that formats give a meaning to.
const BYTES: &[u8] = b"\0\xff\x7f\x80\n\r\t ,:;=$'\"\\/-*#()%{}09azAZ";
/// Lengths and counts at the edge of something.
const WORDS: &[u32] =
    &[0, 1, 3, 4, 5, 8, 255, 256, 0x7fff, 0xffff, 10_000, 10_001, 0x3fff_ffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Runs `body` on every seed of `target`, then on `rounds` mutated ones.
pub fn run(target: &str, rounds: u64, body: fn(&[u8])) {
    let seeds = read_seeds(target);
    for seed in &seeds {
        check(target, seed, body);
    }
    let mut dice = Dice(number("WEIR_FUZZ_DICE", 1));
    for _ in 0..number("WEIR_FUZZ_ROUNDS", rounds) {
        check(target, &mutate(&seeds, &mut dice), body);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => default,
    }
}

fn read_seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("seeds can be listed").path()).collect();
    // The order of a directory is chance; the inputs must not depend on it.
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {}", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("a seed can be read")).collect()
}

/// A panic says which input made it, so that it can become a seed.
fn check(target: &str, input: &[u8], body: fn(&[u8])) {
    if let Err(cause) = catch_unwind(AssertUnwindSafe(|| body(input))) {
        eprintln!("fuzz target {target}, input b\"{}\"", input.escape_ascii());
        std::panic::resume_unwind(cause);
    }
}

fn mutate(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(seeds).clone();
    for _ in 0..1 + dice.below(CHANGES_MAX) {
        change(&mut input, dice.pick(seeds).clone(), dice);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

/// One change: at a place, or of a range.
fn change(input: &mut Vec<u8>, other: Vec<u8>, dice: &mut Dice) {
    let place = dice.below(input.len() + 1);
    let end = place + dice.below(input.len() + 1 - place).min(16);
    match dice.below(8) {
        0 if place < input.len() => input[place] ^= 1 << dice.below(8),
        1 if place < input.len() => input[place] = *dice.pick(BYTES),
        2 => input.insert(place, *dice.pick(BYTES)),
        3 => drop(input.drain(place..end)),
        4 => {
            let copy = input[place..end].to_vec();
            input.splice(place..place, copy);
        }
        5 => {
            let word = dice.pick(WORDS).to_be_bytes();
            let until = (place + word.len()).min(input.len());
            input.splice(place..until, word);
        }
        6 => {
            let from = dice.below(other.len() + 1);
            let until = (from + dice.below(32)).min(other.len());
            input.splice(place..place, other[from..until].iter().copied());
        }
        _ => input.truncate(place),
    }
}

/// SplitMix64: small, and good enough to choose places.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit - 1`.
    fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
