//! The fuzz targets of this crate on mutated seeds; `cargo fuzz` runs the same bodies for longer.

#[path = "../../../fuzz/bodies/config.rs"]
mod config;
#[path = "../../../fuzz/bodies/hba.rs"]
mod hba;
#[path = "../../../fuzz/bodies/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/bodies/passwd.rs"]
mod passwd;

#[test]
fn no_bytes_upset_the_reader_of_configuration_files() {
    mutate::run("config", 400, config::run);
}

#[test]
fn no_bytes_upset_the_reader_of_password_files() {
    mutate::run("passwd", 20_000, passwd::run);
}

#[test]
fn no_bytes_upset_the_reader_of_rules() {
    mutate::run("hba", 300, hba::run);
}
