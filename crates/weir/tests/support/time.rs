//! Time in tests: limits of waits, and the only places where a test lets time pass without a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Time that a busy machine may take beside the parameter's.
pub const SLACK: Duration = Duration::from_secs(5);
/// Time between two looks at a thing that must not happen. A look may be a login to each server.
const LOOK_PERIOD: Duration = Duration::from_millis(30);

/// Fails the test if something took longer since `begun` than `granted`, the parameter's time, and the slack of a busy machine.
pub fn check_within(what: &str, begun: Instant, granted: Duration) {
    check_took(what, begun, granted + SLACK);
}

/// Fails the test if something took longer than a limit of the test's own. The words are those of all waits that ran out:
/// `cargo xtask test` knows them.
pub fn check_took(what: &str, begun: Instant, limit: Duration) {
    let waited = begun.elapsed();
    assert!(waited <= limit, "waited {} ms for {what}, limit is {} ms", waited.as_millis(), limit.as_millis());
}

/// Proves that something does not happen in this time, which is longer than any cause of it would take.
pub fn check_never(what: &str, looked_for: Duration, happens: impl FnMut() -> bool) {
    assert!(!happens_within(looked_for, happens), "{what}, and must not");
}

/// True if something happens within a time. The time is the test's own to say: nobody else ends it.
pub fn happens_within(limit: Duration, mut happens: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if happens() {
            return true;
        }
        if begun.elapsed() >= limit {
            return false;
        }
        thread::sleep(LOOK_PERIOD);
    }
}

/// Lets time pass: between two deeds of a disturber, or while something is counted.
pub fn let_pass(time: Duration) {
    thread::sleep(time);
}
