#![no_main]
#[path = "../bodies/group.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
