//! Values of `currval` and `lastval` for sessions on shared server connections.
//!
//! A server process remembers its draws, and this memory cannot move. A session that asks gets the server connection of its last
//! draw, as long as it alone has drawn there, or an error: never another session's value. Only `sequence_sessions = pin` makes a
//! session that has drawn keep its server connection.

/// A session's last draw, with `DrawCount::count` at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDraw {
    pub serial: u64,
    pub count: u64,
    /// True if the server process knew no draws of others before.
    pub is_alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawCount {
    pub serial: u64,
    /// Number of draws and of `DISCARD SEQUENCES`.
    pub count: u64,
    /// `count` at the last `DISCARD SEQUENCES`.
    pub forgotten: u64,
}

impl DrawCount {
    /// True if no session has drawn since the last `DISCARD SEQUENCES`.
    pub fn is_blank(self) -> bool {
        self.count == self.forgotten
    }

    /// Counts a `DISCARD SEQUENCES`: the session that drew last must hear that its values are lost.
    pub fn forget(self) -> DrawCount {
        DrawCount { count: self.count + 1, forgotten: self.count + 1, ..self }
    }

    pub fn draw(self, drawn: Option<LastDraw>) -> (DrawCount, LastDraw) {
        let is_alone = self.is_blank() || drawn.is_some_and(|drawn| drawn.is_own(self));
        let count = self.count + 1;
        (DrawCount { count, ..self }, LastDraw { serial: self.serial, count, is_alone })
    }
}

impl LastDraw {
    /// True if the server process remembers only this session's draws.
    pub fn is_own(self, tally: DrawCount) -> bool {
        self.is_alone && self.serial == tally.serial && self.count == tally.count
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceUse {
    Nothing,
    /// May draw.
    Draws,
    /// Asks for earlier draws, and draws nothing.
    Recalls,
    /// Asks, and may draw.
    Both,
}

impl SequenceUse {
    pub fn of(draws: bool, recalls: bool) -> SequenceUse {
        match (draws, recalls) {
            (false, false) => SequenceUse::Nothing,
            (true, false) => SequenceUse::Draws,
            (false, true) => SequenceUse::Recalls,
            (true, true) => SequenceUse::Both,
        }
    }

    pub fn draws(self) -> bool {
        matches!(self, SequenceUse::Draws | SequenceUse::Both)
    }

    pub fn recalls(self) -> bool {
        matches!(self, SequenceUse::Recalls | SequenceUse::Both)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawConnDemand {
    pub drawn: LastDraw,
    pub by: SequenceUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawWaitOutcome {
    Takes,
    /// Any server connection will do: the statement draws itself.
    TakesAny,
    /// The values are lost. Told at once: elsewhere the session would first bring its settings, give the server connection back,
    /// and wait for the old one again, without end.
    Refused,
}

impl DrawConnDemand {
    pub fn after(self, there: Option<DrawCount>) -> DrawWaitOutcome {
        match there {
            Some(tally) if self.by.draws() || self.drawn.is_own(tally) => DrawWaitOutcome::Takes,
            None if self.by.draws() => DrawWaitOutcome::TakesAny,
            Some(_) | None => DrawWaitOutcome::Refused,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct DrawFacts {
    pub drawn: Option<LastDraw>,
    pub tally: DrawCount,
    /// True if sessions of this database may ask for earlier draws.
    pub is_asked: bool,
}

impl DrawFacts {
    fn is_own(&self) -> bool {
        self.drawn.is_some_and(|drawn| drawn.is_own(self.tally))
    }

    /// True if the server connection must forget first.
    pub fn forgets(&self, by: SequenceUse) -> bool {
        let may_hear_others = !self.tally.is_blank() && !self.is_own();
        may_hear_others
            && match by {
                SequenceUse::Nothing => false,
                SequenceUse::Draws => self.is_asked,
                // A session whose values are lost is refused.
                SequenceUse::Recalls => self.drawn.is_none(),
                SequenceUse::Both => true,
            }
    }

    /// True if a statement may run, after a `DISCARD SEQUENCES` where possible. A blank server process itself refuses.
    pub fn may_run(&self, by: SequenceUse) -> bool {
        !by.recalls() || self.is_own() || (self.tally.is_blank() && (by.draws() || self.drawn.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of one server process, and the sessions that know a part of it.
    #[derive(Clone, Copy)]
    struct Process {
        tally: DrawCount,
        /// The sessions that drew; bits.
        drawers: u8,
    }

    #[derive(Clone, Copy, Default)]
    struct Session {
        drawn: Option<LastDraw>,
        link: Option<usize>,
    }

    #[derive(Clone, Copy)]
    enum Act {
        Does(SequenceUse),
        /// Draws where nobody sees it.
        Hidden,
        /// The transaction ends, and the server connection goes.
        Rest,
    }

    const SEEN: [Act; 4] =
        [Act::Does(SequenceUse::Draws), Act::Does(SequenceUse::Recalls), Act::Does(SequenceUse::Both), Act::Rest];

    #[derive(Clone)]
    struct World {
        links: [Process; 2],
        sessions: [Session; 2],
        /// In a pipeline nothing of ours can stand before a statement.
        may_ask: bool,
        is_asked: bool,
        /// Recalls that were answered with the session's own.
        answered: u32,
    }

    impl World {
        fn new(may_ask: bool) -> World {
            let link = |serial| Process { tally: DrawCount { serial, count: 0, forgotten: 0 }, drawers: 0 };
            let sessions = [Session::default(); 2];
            World { links: [link(1), link(2)], sessions, may_ask, is_asked: false, answered: 0 }
        }

        /// The server connection a session gets: the one it has, else the one it drew on if that is free, else any that is.
        fn take(&mut self, who: usize) -> Option<usize> {
            let session = self.sessions[who];
            let is_free = |at: &usize| self.sessions.iter().all(|other| other.link != Some(*at));
            let is_wanted = |at: &usize| session.drawn.is_some_and(|drawn| drawn.serial == self.links[*at].tally.serial);
            let free = (0..self.links.len()).filter(is_free);
            let at = session.link.or_else(|| free.clone().find(is_wanted)).or_else(|| free.clone().next())?;
            self.sessions[who].link = Some(at);
            Some(at)
        }

        /// True if a session that asks hears a value of another one.
        fn step(&mut self, who: usize, act: Act) -> bool {
            let by = match act {
                Act::Does(by) => by,
                Act::Hidden => SequenceUse::Nothing,
                Act::Rest => {
                    self.sessions[who].link = None;
                    return false;
                }
            };
            let Some(at) = self.take(who) else { return false };
            self.is_asked |= by.recalls();
            let mut facts = DrawFacts { drawn: self.sessions[who].drawn, tally: self.links[at].tally, is_asked: self.is_asked };
            if facts.forgets(by) && self.may_ask {
                facts.tally = facts.tally.forget();
                self.links[at] = Process { tally: facts.tally, drawers: 0 };
            }
            if !facts.may_run(by) {
                return false;
            }
            if by.draws() {
                let (tally, drawn) = facts.tally.draw(facts.drawn);
                self.links[at].tally = tally;
                self.sessions[who].drawn = Some(drawn);
            }
            if by.draws() || matches!(act, Act::Hidden) {
                self.links[at].drawers |= 1 << who;
            }
            self.answered += u32::from(by.recalls() && self.links[at].drawers == 1 << who);
            by.recalls() && self.links[at].drawers & !(1 << who) != 0
        }

        fn walk(&self, depth: u32, with: &[Act], seen: &mut (u64, u32)) {
            if depth == 0 {
                return;
            }
            for who in 0..2 {
                for act in with {
                    let mut next = self.clone();
                    let hears_others = next.step(who, *act);
                    seen.0 += u64::from(hears_others);
                    seen.1 = seen.1.max(next.answered);
                    next.walk(depth - 1, with, seen);
                }
            }
        }
    }

    #[test]
    fn no_order_of_draws_shows_a_session_what_another_drew() {
        for (may_ask, depth) in [(true, 7), (false, 6)] {
            let mut seen = (0, 0);
            World::new(may_ask).walk(depth, &SEEN, &mut seen);
            assert_eq!(seen.0, 0, "values of another session were told");
            assert!(seen.1 >= 3, "at most {} were answered", seen.1);
        }
        // A draw that nothing shows can only be met before its server connection has forgotten: that the walk finds such shows that it can.
        let mut seen = (0, 0);
        World::new(true).walk(
            5,
            &[Act::Does(SequenceUse::Draws), Act::Does(SequenceUse::Recalls), Act::Hidden, Act::Rest],
            &mut seen,
        );
        assert!(seen.0 > 0);
    }

    #[test]
    fn what_a_session_drew_is_told_until_another_draws_there() {
        let tally = DrawCount { serial: 1, count: 4, forgotten: 4 };
        let (tally, drawn) = tally.draw(None);
        let facts = DrawFacts { drawn: Some(drawn), tally, is_asked: true };
        assert!(
            !facts.forgets(SequenceUse::Recalls) && !facts.forgets(SequenceUse::Draws) && facts.may_run(SequenceUse::Recalls)
        );
        let drawn_over = DrawFacts { tally: tally.draw(None).0, ..facts };
        assert!(!drawn_over.forgets(SequenceUse::Recalls) && !drawn_over.may_run(SequenceUse::Recalls), "lost");
        assert!(drawn_over.forgets(SequenceUse::Draws) && drawn_over.may_run(SequenceUse::Draws), "it draws anew");
        assert!(!DrawFacts { is_asked: false, ..drawn_over }.forgets(SequenceUse::Draws), "nobody asks");
        let (again, drawn) = drawn_over.tally.forget().draw(drawn_over.drawn);
        assert!(DrawFacts { drawn: Some(drawn), tally: again, ..facts }.may_run(SequenceUse::Recalls));
    }

    #[test]
    fn the_wait_for_the_values_of_a_session_ends_with_them_or_a_refusal() {
        let blank = DrawCount { serial: 1, count: 4, forgotten: 4 };
        let (tally, drawn) = blank.draw(None);
        let (drawn_over, _) = tally.draw(None);
        for (by, there, expected) in [
            (SequenceUse::Recalls, Some(tally), DrawWaitOutcome::Takes),
            (SequenceUse::Recalls, Some(drawn_over), DrawWaitOutcome::Refused),
            (SequenceUse::Recalls, Some(tally.forget()), DrawWaitOutcome::Refused),
            (SequenceUse::Recalls, None, DrawWaitOutcome::Refused),
            (SequenceUse::Both, Some(tally), DrawWaitOutcome::Takes),
            (SequenceUse::Both, Some(drawn_over), DrawWaitOutcome::Takes),
            (SequenceUse::Both, None, DrawWaitOutcome::TakesAny),
        ] {
            assert_eq!(DrawConnDemand { drawn, by }.after(there), expected, "{by:?} with {there:?}");
        }
    }

    #[test]
    fn who_never_drew_is_told_so_by_a_process_that_has_forgotten() {
        let facts = DrawFacts { drawn: None, tally: DrawCount { serial: 1, count: 4, forgotten: 0 }, is_asked: false };
        assert!(facts.forgets(SequenceUse::Recalls) && !facts.may_run(SequenceUse::Recalls), "else it would hear of others");
        let after = DrawFacts { tally: facts.tally.forget(), ..facts };
        assert!(after.may_run(SequenceUse::Recalls) && after.may_run(SequenceUse::Both));
    }
}
