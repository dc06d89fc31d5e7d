//! Waiting for a condition, never for a time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Pauses between two looks at a condition: at first short beside the shortest thing we wait for (a server start, 100 ms). A look may be a login.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A wait takes no more than this part longer than it must.
const PAUSE_DIVISOR: u32 = 20;

/// Asks `done` again and again until it says yes.
///
/// Error: `done` failed, or said no for `limit`; the text names `what` and the limit.
pub fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > limit {
            bail!("waited {} ms for {what}, limit is {} ms", start.elapsed().as_millis(), limit.as_millis());
        }
        thread::sleep((start.elapsed() / PAUSE_DIVISOR).clamp(FIRST_PAUSE, LONGEST_PAUSE));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_condition_holds_or_the_limit_is_reached() {
        let mut looks = 0;
        wait_until("three looks", Duration::from_secs(10), || {
            looks += 1;
            Ok(looks == 3)
        })
        .unwrap();
        assert_eq!(looks, 3);
        let error = wait_until("the moon", Duration::ZERO, || Ok(false)).unwrap_err();
        assert!(error.to_string().contains("for the moon, limit is 0 ms"), "{error}");
    }
}
