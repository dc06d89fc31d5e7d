//! `postmaster.pid` of a server that runs or ran. Source: pidfile.h.

use crate::answer::{Postmaster, PostmasterState};

/// The state is unknown until written. `None`: malformed.
pub fn read(text: &str) -> Option<Postmaster> {
    let line = |number: usize| text.lines().nth(number - 1).map(str::trim);
    // A single-user server writes a negative pid.
    let pid: i32 = line(1)?.parse().ok()?;
    Some(Postmaster {
        pid: pid.unsigned_abs(),
        started_at: line(3).and_then(|text| text.parse().ok()).unwrap_or(0),
        // A single-user server listens nowhere, and writes the configured port all the same.
        port: line(4).filter(|_| pid > 0).and_then(|text| text.parse().ok()).unwrap_or(0),
        step: match line(8) {
            Some("starting") => PostmasterState::Starting,
            Some("stopping") => PostmasterState::Stopping,
            Some("ready") => PostmasterState::Ready,
            Some("standby") => PostmasterState::Standby,
            Some(_) | None => PostmasterState::Unknown,
        },
    })
    .filter(|postmaster| postmaster.pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_far_as_it_was_written() {
        let whole = "4711\n/data\n1800000000\n5432\n/tmp\n*\n  123  456\nstandby \n";
        let expected = Postmaster { pid: 4711, started_at: 1_800_000_000, port: 5432, step: PostmasterState::Standby };
        assert_eq!(read(whole), Some(expected));
        assert_eq!(read("4711\n"), Some(Postmaster { pid: 4711, started_at: 0, port: 0, step: PostmasterState::Unknown }));
        let single_user = read("-4711\n/data\n1\n5432\n").map(|file| (file.pid, file.port));
        assert_eq!(single_user, Some((4711, 0)), "nobody can reach it");
        for wrong in ["", "x", "0\n", "99999999999\n"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
