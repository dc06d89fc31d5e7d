//! The fuzz target of this crate on mutated seeds; `cargo fuzz` runs the same body for longer.

#[path = "../../../fuzz/bodies/agent.rs"]
mod agent;
#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;

#[test]
fn no_bytes_upset_an_agent_or_its_client_or_get_in_without_the_secret() {
    mutate::run("agent", 10_000, agent::run);
}
