//! The fuzz target of this crate on mutated seeds; `cargo fuzz` runs the same body for longer.

#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/bodies/skeleton_facts.rs"]
mod skeleton_facts;

#[test]
fn no_text_upsets_the_reader_of_statements() {
    mutate::run("skeleton_facts", 20_000, skeleton_facts::run);
}
