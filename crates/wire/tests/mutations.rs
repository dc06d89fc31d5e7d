//! The fuzz targets of this crate on mutated seeds; `cargo fuzz` runs the same bodies for longer.

#[path = "../../../fuzz/bodies/frame.rs"]
mod frame;
#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/bodies/pcp.rs"]
mod pcp;
#[path = "../../../fuzz/bodies/scram.rs"]
mod scram;
#[path = "../../../fuzz/bodies/startup.rs"]
mod startup;

#[test]
fn no_bytes_upset_the_reader_of_messages() {
    mutate::run("frame", 20_000, frame::run);
}

#[test]
fn no_bytes_upset_the_reader_of_first_packets() {
    mutate::run("startup", 20_000, startup::run);
}

#[test]
fn no_bytes_upset_a_scram_exchange_or_get_in_without_the_keys() {
    mutate::run("scram", 10_000, scram::run);
}

#[test]
fn no_bytes_upset_the_readers_of_pcp() {
    mutate::run("pcp", 20_000, pcp::run);
}
