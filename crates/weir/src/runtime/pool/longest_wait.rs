//! Decides which pool gets a place under a shared limit: the one whose first session has waited longest.
//!
//! A pool is queued once. Entries per session would outlive sessions that their own pool serves, and a busy pool would keep a quiet one
//! from the front for ever.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Pools that lack a place under one limit, by the wait of their first sessions.
///
/// A recorded time is a bound, which `longest` corrects, so that serving a session needs no update.
pub struct LongestWaitQueue<T, P> {
    order: BTreeMap<(T, u64), P>,
    places: BTreeMap<u64, T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLook<T> {
    /// No session waits for a place of this queue: the pool leaves it.
    Nobody,
    /// The first session has waited since this time, and a place would serve it.
    Waits(T),
    /// The pool lacks this limit, where one with a higher maximum may not.
    Barred,
    /// No pool in the queue can be served.
    Closed,
}

impl<T, P> Default for LongestWaitQueue<T, P> {
    fn default() -> LongestWaitQueue<T, P> {
        LongestWaitQueue { order: BTreeMap::new(), places: BTreeMap::new() }
    }
}

impl<T: Ord + Copy, P: Clone> LongestWaitQueue<T, P> {
    /// Queues a pool. False: it was queued already, and keeps the earlier time.
    pub fn enter(&mut self, id: u64, since: T, pool: &P) -> bool {
        let before = self.places.get(&id).copied();
        if before.is_none_or(|before| since < before) {
            before.and_then(|before| self.order.remove(&(before, id)));
            self.places.insert(id, since);
            self.order.insert((since, id), pool.clone());
        }
        before.is_none()
    }

    /// Returns the pool that has waited longest among those that a place would serve.
    pub fn longest(&mut self, mut look: impl FnMut(&P) -> QueueLook<T>) -> Option<(T, P)> {
        let mut after = Bound::Unbounded;
        loop {
            let (&(since, id), pool) = self.order.range((after, Bound::Unbounded)).next()?;
            match look(pool) {
                QueueLook::Nobody => self.leave(id),
                QueueLook::Waits(now) if now > since => {
                    let pool = self.order.remove(&(since, id))?;
                    self.places.insert(id, now);
                    self.order.insert((now, id), pool);
                }
                QueueLook::Waits(now) => return Some((now, pool.clone())),
                QueueLook::Barred => after = Bound::Excluded((since, id)),
                QueueLook::Closed => return None,
            }
        }
    }

    fn leave(&mut self, id: u64) {
        self.places.remove(&id).and_then(|since| self.order.remove(&(since, id)));
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Difference of two waits that is worth a login. A pool with own server connections waits so long for idle ones of others.
pub const ROOM_PATIENCE_MS: u64 = 50;

/// Shortest time between two places for a pool with server connections from one where sessions wait too. Without it places move back and
/// forth between busy pools: in the model of the tests a quarter of all statements cost a login.
pub const SHARE_PERIOD_MS: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompetingPool {
    pub open: u32,
    /// Wait of the first session. `None`: no session waits.
    pub waited_ms: Option<u64>,
    /// Time since the pool got a place under a shared limit.
    pub given_ms: u64,
}

/// True if a server connection of `gives` is closed so that `lacks` may open one.
///
/// A closed server connection costs a login. So only a pool that waits clearly longer, or has no connection that could come back, gets
/// one.
pub fn makes_room(lacks: CompetingPool, gives: CompetingPool) -> bool {
    let Some(waited_ms) = lacks.waited_ms else { return false };
    let has_none = lacks.open == 0;
    match gives.waited_ms {
        None => has_none || waited_ms >= ROOM_PATIENCE_MS,
        Some(gives_ms) if has_none && gives.open > 1 => waited_ms > gives_ms,
        Some(gives_ms) => {
            waited_ms >= gives_ms.saturating_add(ROOM_PATIENCE_MS) && (has_none || lacks.given_ms >= SHARE_PERIOD_MS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_pool_with_connections_waits_for_them_before_others_are_closed_for_it() {
        let need =
            |open, waited_ms: i64| CompetingPool { open, waited_ms: u64::try_from(waited_ms).ok(), given_ms: SHARE_PERIOD_MS };
        for (lacks, gives, expected, why) in [
            (need(0, 0), need(1, -1), true, "nobody needs it now"),
            (need(1, 49), need(3, -1), false, "its own may come back"),
            (need(1, 50), need(3, -1), true, "it has waited long"),
            (need(0, 8), need(2, 7), true, "the other keeps one"),
            (need(0, 7), need(2, 7), false, "the other has waited as long"),
            (need(0, 8), need(1, 7), false, "the other would have none"),
            (need(0, 57), need(1, 7), true, "nobody waits for ever"),
            (need(4, 900), need(4, 851), false, "both wait about as long"),
            (need(4, 901), need(4, 851), true, "it waits clearly longer"),
            (CompetingPool { given_ms: 99, ..need(4, 901) }, need(4, 851), false, "it got a place a moment ago"),
            (CompetingPool { given_ms: 0, ..need(0, 901) }, need(4, 851), true, "what it got is gone"),
            (need(0, -1), need(4, -1), false, "nobody waits"),
        ] {
            assert_eq!(makes_room(lacks, gives), expected, "{why}");
        }
    }

    #[test]
    fn a_queue_follows_the_waits_of_pools_and_forgets_those_that_are_done() {
        let mut queue = LongestWaitQueue::default();
        assert!(queue.enter(1, 10, &"busy") && queue.enter(2, 20, &"quiet") && queue.enter(3, 5, &"gone"));
        assert!(!queue.enter(1, 30, &"busy"), "it stands there already");
        let waits = |busy: u64| {
            move |pool: &&str| match *pool {
                "busy" => QueueLook::Waits(busy),
                "quiet" => QueueLook::Waits(20),
                _ => QueueLook::Nobody,
            }
        };
        assert_eq!(queue.longest(waits(10)), Some((10, "busy")));
        assert_eq!(queue.len(), 2, "the one that is done has left");
        assert_eq!(queue.longest(waits(25)), Some((20, "quiet")), "a session of the busy one was served otherwise");
        assert_eq!(
            queue.longest(|pool| if *pool == "quiet" { QueueLook::Barred } else { QueueLook::Waits(25) }),
            Some((25, "busy"))
        );
        assert_eq!(queue.longest(|_| QueueLook::Closed), None);
        assert!(!queue.enter(2, 1, &"quiet"), "an earlier wait counts");
        assert_eq!(queue.longest(|_| QueueLook::Waits(1)), Some((1, "quiet")));
        assert_eq!(queue.longest(|_| QueueLook::Nobody), None);
        assert!(queue.is_empty());
    }

    /// Pools whose sessions come and ask for server connections under one limit, as the shell serves them.
    struct Model {
        pools: Vec<Tenant>,
        queue: LongestWaitQueue<u64, usize>,
        places: u32,
        now_ms: u64,
        /// Ends of statements, and their pools.
        running: BTreeMap<u64, Vec<usize>>,
        logins: u32,
        served: u32,
        dice: u64,
    }

    struct Tenant {
        waiters: VecDeque<u64>,
        open: u32,
        idle: u32,
        open_max: u32,
        given_ms: Option<u64>,
        statement_ms: u64,
        longest_ms: u64,
    }

    impl Model {
        fn new(tenants: &[(u32, u64)], places: u32) -> Model {
            let tenant = |&(open_max, statement_ms): &(u32, u64)| Tenant {
                waiters: VecDeque::new(),
                open: 0,
                idle: 0,
                open_max,
                given_ms: None,
                statement_ms,
                longest_ms: 0,
            };
            let pools = tenants.iter().map(tenant).collect();
            Model {
                pools,
                queue: LongestWaitQueue::default(),
                places,
                now_ms: 0,
                running: BTreeMap::new(),
                logins: 0,
                served: 0,
                dice: 1,
            }
        }

        fn open(&self) -> u32 {
            self.pools.iter().map(|pool| pool.open).sum()
        }

        fn need(&self, at: usize) -> CompetingPool {
            let pool = &self.pools[at];
            let given_ms = pool.given_ms.map_or(u64::MAX, |at| self.now_ms - at);
            CompetingPool { open: pool.open, waited_ms: pool.waiters.front().map(|since| self.now_ms - since), given_ms }
        }

        fn longest(&mut self) -> Option<(u64, usize)> {
            let pools = &self.pools;
            self.queue.longest(|at| match pools[*at].waiters.front() {
                Some(since) if pools[*at].open < pools[*at].open_max => QueueLook::Waits(*since),
                _ => QueueLook::Nobody,
            })
        }

        fn begin(&mut self, at: usize, since: u64) {
            let pool = &mut self.pools[at];
            pool.longest_ms = pool.longest_ms.max(self.now_ms - since);
            self.served += 1;
            // Statements differ, in an order of their own: from half to one and a half of the time.
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let statement_ms = pool.statement_ms / 2 + (self.dice >> 33) % (pool.statement_ms + 1);
            self.running.entry(self.now_ms + statement_ms.max(1)).or_default().push(at);
        }

        fn open_for(&mut self, at: usize) {
            let since = self.pools[at].waiters.pop_front().expect("somebody waits");
            self.pools[at].open += 1;
            self.pools[at].given_ms = Some(self.now_ms);
            self.logins += 1;
            self.begin(at, since);
        }

        fn feed(&mut self) {
            while self.open() < self.places {
                let Some((_, at)) = self.longest() else { return };
                self.open_for(at);
            }
        }

        fn ask(&mut self, at: usize) {
            self.pools[at].waiters.push_back(self.now_ms);
            if self.pools[at].waiters.len() == 1 && self.pools[at].idle > 0 {
                self.pools[at].idle -= 1;
                let since = self.pools[at].waiters.pop_front().expect("it has just come");
                return self.begin(at, since);
            }
            if self.pools[at].open < self.pools[at].open_max {
                self.queue.enter(at as u64, self.now_ms, &at);
                self.feed();
            }
        }

        fn give_back(&mut self, at: usize) {
            if let Some((_, other)) = self.longest()
                && other != at
                && makes_room(self.need(other), self.need(at))
            {
                self.pools[at].open -= 1;
                if let Some(since) = self.pools[at].waiters.front() {
                    self.queue.enter(at as u64, *since, &at);
                }
                return self.feed();
            }
            match self.pools[at].waiters.pop_front() {
                Some(since) => self.begin(at, since),
                None => self.pools[at].idle += 1,
            }
        }

        /// So many clients of each pool ask again as soon as they are answered; the others' first ask comes at `later_ms`.
        fn run(&mut self, clients: &[u32], later_ms: u64, until_ms: u64) {
            while self.now_ms < until_ms {
                for (at, count) in clients.iter().enumerate() {
                    if self.now_ms == if at == 0 { 0 } else { later_ms } {
                        (0..*count).for_each(|_| self.ask(at));
                    }
                }
                for at in self.running.remove(&self.now_ms).unwrap_or_default() {
                    self.give_back(at);
                    self.ask(at);
                }
                // The wait for others' server connections at rest, as `make_room` looks at them.
                if let Some((_, at)) = self.longest()
                    && let Some(idle) = (0..self.pools.len()).find(|other| *other != at && self.pools[*other].idle > 0)
                    && makes_room(self.need(at), CompetingPool { waited_ms: None, ..self.need(idle) })
                {
                    (self.pools[idle].idle, self.pools[idle].open) = (self.pools[idle].idle - 1, self.pools[idle].open - 1);
                    self.feed();
                }
                self.now_ms += 1;
            }
        }
    }

    #[test]
    fn a_quiet_pool_waits_no_longer_than_a_noisy_one() {
        for (noisy_size, noisy_ms) in [(20, 300), (20, 50), (12, 300), (100, 300)] {
            let mut model = Model::new(&[(noisy_size, noisy_ms), (20, 1)], 12);
            model.run(&[50, 3], 2000, 12_000);
            let [noisy, quiet] = [model.pools[0].longest_ms, model.pools[1].longest_ms];
            assert!(quiet > 0 && quiet <= noisy + ROOM_PATIENCE_MS, "size {noisy_size}, {noisy_ms} ms: {quiet} after {noisy} ms");
        }
    }

    #[test]
    fn pools_that_come_and_go_are_all_served() {
        let tenants: Vec<_> = (0..40).map(|at| (3, if at == 0 { 100 } else { 5 + at })).collect();
        let mut model = Model::new(&tenants, 6);
        let clients: Vec<_> = (0..40).map(|at| if at == 0 { 30 } else { 1 }).collect();
        model.run(&clients, 500, 20_000);
        let longest = model.pools.iter().map(|pool| pool.longest_ms);
        let (min, max) = (longest.clone().min().expect("pools"), longest.max().expect("pools"));
        assert!(min > 0 && max < 2000, "the longest waits are {min} to {max} ms");
    }

    #[test]
    fn two_busy_pools_share_the_places_without_a_login_for_each_statement() {
        let mut model = Model::new(&[(20, 100), (20, 100)], 12);
        model.run(&[50, 50], 1000, 30_000);
        assert!(model.served > 3000 && model.logins < model.served / 10, "{} logins, {} served", model.logins, model.served);
        let [first, second] = [model.pools[0].longest_ms, model.pools[1].longest_ms];
        assert!(second <= first * 3 / 2, "the one that came later waited {second} ms, the other {first} ms");
    }
}
