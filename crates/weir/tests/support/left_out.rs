//! Tests that lack something on this machine.

use std::io::Write as _;
use std::thread;

/// Says that the test that runs here is left out. Written past the test program's capturing, which hides the words of tests that pass;
/// `cargo xtask test` repeats the line at the end.
pub fn leave_out(why: &str) {
    let this = thread::current();
    let line = format!("left out: {}: {}\n", this.name().unwrap_or("a test"), why.trim().replace('\n', " "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
