//! Tests that lack something on this machine.

use std::io::Write as _;
use std::thread;
use weir_demo::Server;

/// Says that the test that runs here is left out. Written past the test program's capturing, which hides the words of tests that pass;
/// `cargo xtask test` repeats the line at the end.
pub fn leave_out(why: &str) {
    let this = thread::current();
    let line = format!("left out: {}: {}\n", this.name().unwrap_or("a test"), why.trim().replace('\n', " "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// True if all these programs are there of a server's version. Else the test is left out: a package may hold the server alone.
pub fn has_programs(server: &Server, names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !server.programs().bin().join(name).exists());
    if let Some(name) = missing {
        leave_out(&format!("there is no {name} of the server's version (Debian: in postgresql and postgresql-client)"));
    }
    missing.is_none()
}
