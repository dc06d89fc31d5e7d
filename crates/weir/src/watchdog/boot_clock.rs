//! The clock of leases.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the machine started, by CLOCK_BOOTTIME: it goes on while the machine sleeps, and nobody can set it.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}
