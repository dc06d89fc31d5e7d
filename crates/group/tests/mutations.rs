//! The fuzz target of this crate on mutated seeds; `cargo fuzz` runs the same body for longer.

#[path = "../../../fuzz/bodies/group.rs"]
mod group;
#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;

#[test]
fn no_bytes_of_peers_and_no_state_file_upset_a_member() {
    mutate::run("group", 10_000, group::run);
}
