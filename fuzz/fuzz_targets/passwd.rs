#![no_main]
#[path = "../bodies/passwd.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
