//! What sessions on shared server connections may hear of `currval` and `lastval`.
//!
//! A server process remembers what it drew from sequences, and nothing can move that. A session that asks gets the link it drew on last, as
//! long as it alone has drawn on it, or an error: never another session's value. Links forget what others drew (`DISCARD SEQUENCES`) before
//! a session draws on them, and sessions keep their links, only where somebody asks (`Plan`).

/// Where a session drew from sequences last: the number of the link, and how often anybody had drawn on it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub serial: u64,
    pub count: u64,
    /// The server process knew nothing of others' draws before the session's own.
    pub is_alone: bool,
    /// The session has held the link since: its transaction is still open, or something keeps it.
    pub is_held: bool,
}

/// What is known of the draws on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The link's number.
    pub serial: u64,
    /// How often anybody drew on it, or had it forget.
    pub count: u64,
    /// What `count` was when it forgot last.
    pub forgotten: u64,
}

impl Tally {
    /// Nobody has drawn since the server process forgot all.
    pub fn is_blank(self) -> bool {
        self.count == self.forgotten
    }

    /// It is about to forget. Whoever drew there last has lost his values: he shall hear so.
    pub fn forget(self) -> Tally {
        Tally { count: self.count + 1, forgotten: self.count + 1, ..self }
    }

    /// A session is about to draw on it.
    pub fn draw(self, drawn: Option<Drawn>) -> (Tally, Drawn) {
        let was_alone = drawn.is_some_and(|drawn| drawn.is_alone && drawn.is_last(self));
        let count = self.count + 1;
        let drawn = Drawn { serial: self.serial, count, is_alone: was_alone || self.is_blank(), is_held: true };
        (Tally { count, ..self }, drawn)
    }
}

impl Drawn {
    /// Whether nobody has drawn on this link since.
    pub fn is_last(self, tally: Tally) -> bool {
        self.serial == tally.serial && self.count == tally.count
    }

    /// Whether all that the link's server process remembers is this session's.
    pub fn is_own(self, tally: Tally) -> bool {
        self.is_alone && self.is_last(tally)
    }
}

/// A session that has a link of the primary, before it sends a statement.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Where it drew last.
    pub drawn: Option<Drawn>,
    pub tally: Tally,
    /// The session has held its link since this had forgotten all: link, and its count.
    pub forgotten: Option<(u64, u64)>,
    /// Somebody with this user and database has asked for what an earlier transaction drew.
    pub is_asked_later: bool,
    /// Somebody in this database may ask for what was drawn before.
    pub is_asked: bool,
    /// The session keeps its link for what it drew.
    pub is_kept: bool,
    /// A query of ours may stand before the statement.
    pub may_ask: bool,
}

/// What is to be done before a statement is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The link forgets what was drawn.
    pub forgets: bool,
    /// The session keeps its link from now on.
    pub keeps: bool,
    /// It is known from now on that somebody asks for what an earlier transaction drew.
    pub teaches_later: bool,
    /// The server process has nothing of others to tell the statement.
    pub knows_no_draws: bool,
}

impl Facts {
    fn is_own(&self) -> bool {
        self.drawn.is_some_and(|drawn| drawn.is_own(self.tally))
    }

    /// Of a statement that may draw, and does not ask for what was drawn.
    pub fn plan_draw(&self) -> Plan {
        if !self.is_asked_later && !self.is_asked {
            return Plan::default();
        }
        Plan {
            forgets: !self.is_own() && self.may_ask && !self.tally.is_blank(),
            keeps: self.is_asked_later && !self.is_kept,
            ..Plan::default()
        }
    }

    /// Of a statement that asks for what was drawn; `draws`: it may draw itself.
    pub fn plan_recall(&self, draws: bool) -> Plan {
        let is_own = self.is_own();
        let is_here = !draws && self.drawn.is_some_and(|drawn| drawn.is_held && drawn.is_last(self.tally));
        let plan = Plan { teaches_later: !is_here || !is_own, ..Plan::default() };
        // What it drew here needs nothing beyond what keeps the link now; among others' values its own are not told apart. What was drawn
        // elsewhere, or among others', is lost: who asks for it is refused; who draws anew goes on.
        let is_lost = !is_own && self.drawn.is_some() && !draws;
        if is_here || is_lost {
            return plan;
        }
        let has_forgotten = self.forgotten == Some((self.tally.serial, self.tally.count));
        // Also if nothing is known to have been drawn: a view or an operator draws unseen.
        let forgets = !is_own && !has_forgotten && self.may_ask;
        Plan { forgets, keeps: (is_own || draws) && !self.is_kept, knows_no_draws: !is_own && (has_forgotten || forgets), ..plan }
    }

    /// Whether the link would have to forget before the statement: then it waits until all before it is answered. `recalls`: it asks.
    pub fn must_settle(&self, recalls: bool) -> bool {
        let is_wanted = (self.is_asked_later || self.is_asked) && !self.tally.is_blank();
        !self.is_own() && (recalls || is_wanted)
    }

    /// Whether one that asks may be answered. `knows_no_draws`: as its plan said, or it goes to a standby, which gives out no values.
    pub fn may_recall(&self, draws: bool, knows_no_draws: bool) -> bool {
        // A server process that knows nothing says so itself, and of what the text itself draws.
        self.is_own() || (knows_no_draws && (draws || self.drawn.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a link's server process remembers, and who knows what of it.
    #[derive(Clone, Copy)]
    struct Process {
        tally: Tally,
        /// Who drew; bits.
        drawers: u8,
    }

    #[derive(Clone, Copy, Default)]
    struct Session {
        drawn: Option<Drawn>,
        forgotten: Option<(u64, u64)>,
        is_kept: bool,
        link: Option<usize>,
    }

    #[derive(Clone, Copy)]
    enum Act {
        Draw,
        Recall,
        Both,
        /// Draws where nobody sees it.
        Hidden,
        /// The transaction ends, and the link goes unless it is kept.
        Rest,
    }

    const ACTS: [Act; 5] = [Act::Draw, Act::Recall, Act::Both, Act::Hidden, Act::Rest];

    #[derive(Clone)]
    struct World {
        links: [Process; 2],
        sessions: [Session; 2],
        is_asked_later: bool,
        is_asked: bool,
        /// Recalls that were answered with the session's own.
        answered: u32,
    }

    impl World {
        fn new() -> World {
            let link = |serial| Process { tally: Tally { serial, count: 0, forgotten: 0 }, drawers: 0 };
            let sessions = [Session::default(); 2];
            World { links: [link(1), link(2)], sessions, is_asked_later: false, is_asked: false, answered: 0 }
        }

        /// The link a session gets: its own, else the one it drew on if it asks and that is free, else any that is.
        fn take(&mut self, who: usize, asks: bool) -> Option<usize> {
            let session = self.sessions[who];
            let is_free = |at: &usize| self.sessions.iter().all(|other| other.link != Some(*at));
            let is_wanted = |at: &usize| asks && session.drawn.is_some_and(|drawn| drawn.serial == self.links[*at].tally.serial);
            let free = (0..self.links.len()).filter(is_free);
            let at = session.link.or_else(|| free.clone().find(is_wanted)).or_else(|| free.clone().next())?;
            self.sessions[who].link = Some(at);
            Some(at)
        }

        /// Whether a session that asks hears what is not its own.
        fn step(&mut self, who: usize, act: Act) -> bool {
            let (draws, asks) = match act {
                Act::Draw => (true, false),
                Act::Recall => (false, true),
                Act::Both => (true, true),
                Act::Hidden => (false, false),
                Act::Rest => {
                    let session = &mut self.sessions[who];
                    if !session.is_kept && session.link.take().is_some() {
                        session.forgotten = None;
                        session.drawn = session.drawn.map(|drawn| Drawn { is_held: false, ..drawn });
                    }
                    return false;
                }
            };
            let Some(at) = self.take(who, asks) else { return false };
            let (session, link) = (self.sessions[who], self.links[at]);
            self.is_asked |= asks;
            let (is_asked_later, is_asked) = (self.is_asked_later, self.is_asked);
            let Session { drawn, forgotten, is_kept, .. } = session;
            let mut facts = Facts { drawn, tally: link.tally, forgotten, is_asked_later, is_asked, is_kept, may_ask: true };
            let plan = match (asks, draws) {
                (true, _) => facts.plan_recall(draws),
                (false, true) => facts.plan_draw(),
                (false, false) => Plan::default(),
            };
            self.is_asked_later |= plan.teaches_later;
            if plan.forgets {
                facts.tally = facts.tally.forget();
                self.links[at] = Process { tally: facts.tally, drawers: 0 };
                self.sessions[who].forgotten = Some((facts.tally.serial, facts.tally.count));
            }
            self.sessions[who].is_kept |= plan.keeps;
            if asks && !facts.may_recall(draws, plan.knows_no_draws) {
                return false;
            }
            if draws {
                let (tally, drawn) = facts.tally.draw(facts.drawn);
                self.links[at].tally = tally;
                self.sessions[who].drawn = Some(drawn);
            }
            if draws || matches!(act, Act::Hidden) {
                self.links[at].drawers |= 1 << who;
            }
            self.answered += u32::from(asks && self.links[at].drawers == 1 << who);
            asks && self.links[at].drawers & !(1 << who) != 0
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
        let acts = [Act::Draw, Act::Recall, Act::Both, Act::Rest];
        let mut seen = (0, 0);
        World::new().walk(7, &acts, &mut seen);
        assert_eq!(seen.0, 0, "values of another session were told");
        assert!(seen.1 >= 3, "at most {} were answered", seen.1);
        // A draw that nothing shows can only be met before its link has forgotten: that the walk finds such shows that it can.
        let mut seen = (0, 0);
        World::new().walk(5, &ACTS, &mut seen);
        assert!(seen.0 > 0);
    }

    #[test]
    fn what_was_drawn_in_the_transaction_is_told_and_what_was_lost_is_refused() {
        let tally = Tally { serial: 1, count: 4, forgotten: 4 };
        let (tally, drawn) = tally.draw(None);
        assert!(drawn.is_own(tally) && drawn.is_held);
        let facts = Facts {
            drawn: Some(drawn),
            tally,
            forgotten: None,
            is_asked_later: false,
            is_asked: true,
            is_kept: false,
            may_ask: true,
        };
        assert_eq!(facts.plan_recall(false), Plan::default(), "nothing needs to be kept");
        assert!(facts.may_recall(false, false) && !facts.must_settle(true));
        let others = Facts { tally: Tally { count: tally.count + 1, ..tally }, ..facts };
        assert_eq!(others.plan_recall(false), Plan { teaches_later: true, ..Plan::default() });
        assert!(!others.may_recall(false, false));
        assert_eq!(others.plan_draw(), Plan { forgets: true, ..Plan::default() });
        assert_eq!(Facts { is_asked: false, ..others }.plan_draw(), Plan::default(), "nobody asks");
        let later = Facts { is_asked_later: true, ..others };
        assert_eq!(later.plan_draw(), Plan { forgets: true, keeps: true, ..Plan::default() });
        assert!(later.must_settle(false) && !Facts { tally: tally.forget(), ..later }.must_settle(false));
    }

    #[test]
    fn who_never_drew_is_told_so_by_a_process_that_has_forgotten() {
        let tally = Tally { serial: 1, count: 4, forgotten: 0 };
        let facts =
            Facts { drawn: None, tally, forgotten: None, is_asked_later: false, is_asked: false, is_kept: false, may_ask: true };
        let plan = facts.plan_recall(false);
        assert_eq!(plan, Plan { forgets: true, keeps: false, teaches_later: true, knows_no_draws: true });
        assert!(facts.may_recall(false, plan.knows_no_draws));
        let again = Facts { tally: tally.forget(), forgotten: Some((1, 5)), ..facts };
        assert_eq!(again.plan_recall(false), Plan { forgets: false, ..plan }, "once is enough");
        let busy = Facts { may_ask: false, ..facts };
        assert!(!busy.may_recall(false, busy.plan_recall(false).knows_no_draws), "else it would hear of others");
    }
}
