//! A timer with microseconds: the runtime's rounds up to milliseconds, in which a standby is asked twice.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub struct FineTimer(AsyncFd<OwnedFd>);

impl FineTimer {
    #[expect(deprecated, reason = "its successor is unsafe, for descriptors that somebody else may close; this one owns its own")]
    pub fn new() -> io::Result<FineTimer> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(FineTimer(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// Cancel safe: the next wait sets the timer again.
    pub async fn after(&self, wait: Duration) -> io::Result<()> {
        // Zero would disarm the timer.
        let wait = wait.max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut count = [0; 8];
            // The error comes from a dropped wait whose timer was set again.
            if let Ok(read) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut count)?)) {
                return read.map(drop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_rings_after_its_time_and_not_after_that_of_a_wait_that_was_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = FineTimer::new().unwrap();
            let begun = Instant::now();
            for _ in 0..20 {
                alarm.after(Duration::from_micros(100)).await.unwrap();
            }
            assert!(begun.elapsed() >= Duration::from_millis(2));
            tokio::select! {
                biased;
                outcome = alarm.after(Duration::ZERO) => outcome.unwrap(),
                () = tokio::task::yield_now() => {}
            }
            let begun = Instant::now();
            alarm.after(Duration::from_millis(20)).await.unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(20));
        });
    }
}
