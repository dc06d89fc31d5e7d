#![no_main]
#[path = "../../crates/session/tests/support/mod.rs"]
mod support;
#[path = "../bodies/session.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
