//! Scheduling class of a thread.

use std::io;

/// Lets the running thread go on (`SCHED_BATCH`) or preempts it (`SCHED_OTHER`) on wake-up. Later threads and programs inherit
/// it. Another class set from outside is kept. Source: sched(7).
///
/// Error: forbidden, as by a sandbox; unchanged.
pub fn yield_when_woken(yields: bool) -> io::Result<()> {
    // SAFETY: asks about this thread (0) and hands no memory over.
    let now = unsafe { libc::sched_getscheduler(0) };
    let wanted = if yields { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
    if now < 0 {
        return Err(io::Error::last_os_error());
    }
    if now == wanted || ![libc::SCHED_BATCH, libc::SCHED_OTHER].contains(&now) {
        return Ok(());
    }
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is on this stack and only read; 0 is this thread.
    let outcome = unsafe { libc::sched_setscheduler(0, wanted, &raw const ordinary) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> i32 {
        // SAFETY: asks about this thread and hands no memory over.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_thread_yields_and_takes_that_back() {
        if class() != libc::SCHED_OTHER {
            // Given from outside: it stays.
            return;
        }
        yield_when_woken(true).unwrap();
        assert_eq!(class(), libc::SCHED_BATCH);
        yield_when_woken(false).unwrap();
        assert_eq!(class(), libc::SCHED_OTHER);
    }
}
