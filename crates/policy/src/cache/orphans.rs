//! What a member that is gone may have left running: transactions whose commits nobody will tell the store of.
//!
//! A member that was cut off from the store, said so on the primary and is gone has perhaps sent a statement that a server process still
//! carries out. Nobody can tell which of the primary's transactions are its own. So all count that run when it can have sent nothing more,
//! and until each of their processes was seen without one, nothing that lies in the store may be relied upon.
//!
//! By process, not by transaction: what a client had sent ahead is carried out in further transactions of the same process. Prepared
//! transactions are none of these: whoever commits one settles it, as for a member that lives.
//!
//! In: when something was lost, and what looks at the primary have shown. Out: whether to ask what runs, and whether to wait.

use super::holds::DEAD_MS;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans(State);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    /// Whoever is gone relies until then on what it had said, and may send something.
    Awaited { from_ms: u64 },
    /// These processes have been in a transaction at every look.
    Seen { processes: Vec<u32>, until_ms: u64 },
}

impl Orphans {
    /// A member is gone, or may be, that sends nothing any more from then on. Whoever ran before and still runs is seen then, too.
    pub fn lost(&mut self, from_ms: u64) {
        self.0 = State::Awaited { from_ms };
    }

    /// Whether a look at this time is to ask which processes are in a transaction.
    pub fn must_ask(&self, now_ms: u64) -> bool {
        match &self.0 {
            State::None => false,
            State::Awaited { from_ms } => now_ms >= *from_ms,
            State::Seen { .. } => true,
        }
    }

    /// What was told when it was asked at that time. What is not over `DEAD_MS` later is not waited for, as marks of the dead are not.
    pub fn saw(&mut self, running: &[u32], asked_ms: u64) {
        let (processes, until_ms) = match std::mem::take(&mut self.0) {
            State::None => return,
            State::Awaited { from_ms } if asked_ms < from_ms => return self.0 = State::Awaited { from_ms },
            State::Awaited { .. } => (running.to_vec(), asked_ms + DEAD_MS),
            State::Seen { mut processes, until_ms } => {
                processes.retain(|process| running.contains(process));
                (processes, until_ms)
            }
        };
        if !processes.is_empty() && asked_ms < until_ms {
            self.0 = State::Seen { processes, until_ms };
        }
    }

    /// Whether something may still be committed of which nobody tells the store.
    pub fn is_any(&self) -> bool {
        self.0 != State::None
    }

    /// Those that are waited for, as far as they are known.
    pub fn processes(&self) -> &[u32] {
        match &self.0 {
            State::None | State::Awaited { .. } => &[],
            State::Seen { processes, .. } => processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens: a loss, after which nothing is sent from that time on, or a look with the processes it finds in a transaction.
    enum Event {
        Lost(u64),
        Look(u64, &'static [u32]),
    }

    fn check(name: &str, events: &[(Event, &[u32], bool)]) {
        let mut orphans = Orphans::default();
        for (at, (event, processes, is_any)) in events.iter().enumerate() {
            match event {
                Event::Lost(from_ms) => orphans.lost(*from_ms),
                Event::Look(asked_ms, running) => orphans.saw(running, *asked_ms),
            }
            assert_eq!((orphans.processes(), orphans.is_any()), (*processes, *is_any), "{name}, step {at}");
        }
    }

    #[test]
    fn all_that_runs_when_nothing_more_is_sent_is_waited_for() {
        use Event::{Look, Lost};
        check("nothing was lost", &[(Look(0, &[1]), &[], false)]);
        check("nothing runs", &[(Lost(100), &[], true), (Look(100, &[]), &[], false)]);
        check(
            "it may still send something",
            &[(Lost(100), &[], true), (Look(99, &[]), &[], true), (Look(100, &[1]), &[1], true), (Look(200, &[]), &[], false)],
        );
        check(
            "what begins later is another's",
            &[
                (Lost(100), &[], true),
                (Look(100, &[1, 2]), &[1, 2], true),
                (Look(200, &[1, 3]), &[1], true),
                (Look(300, &[2, 3]), &[], false),
            ],
        );
        check(
            "another is lost meanwhile",
            &[
                (Lost(100), &[], true),
                (Look(100, &[1]), &[1], true),
                (Lost(300), &[], true),
                (Look(200, &[]), &[], true),
                (Look(300, &[1, 2]), &[1, 2], true),
            ],
        );
        check(
            "it does not end",
            &[
                (Lost(100), &[], true),
                (Look(100, &[1]), &[1], true),
                (Look(99 + DEAD_MS, &[1]), &[1], true),
                (Look(100 + DEAD_MS, &[1]), &[], false),
            ],
        );
    }

    #[test]
    fn it_is_asked_what_runs_only_while_that_matters() {
        let mut orphans = Orphans::default();
        assert!(!orphans.must_ask(0));
        orphans.lost(100);
        assert!(!orphans.must_ask(99) && orphans.must_ask(100));
        orphans.saw(&[1], 100);
        assert!(orphans.must_ask(101));
        orphans.saw(&[], 101);
        assert!(!orphans.must_ask(102));
    }
}
