//! The fuzz target of this crate on mutated seeds; `cargo fuzz` runs the same body for longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/bodies/one_shard.rs"]
mod one_shard;

#[test]
fn no_text_upsets_the_plan_of_its_shard() {
    mutate::run("one_shard", 20_000, one_shard::run);
}
