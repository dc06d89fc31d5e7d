//! Answers that take a thread's time: each is found once, by few threads, and remembered.
//!
//! Tasks that need the same answer wait for it together. Threads start when there is work and end when there is none.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Worker, and task there.
pub type Waiter = (u8, u32);

#[derive(Clone, Copy, Debug)]
pub struct JobLimits {
    pub(crate) threads: usize,
    pub(crate) queue: usize,
    /// A full table forgets all.
    pub(crate) answers: usize,
    /// `None`: for ever.
    pub(crate) lifetime: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum JobState<V> {
    Known(V),
    Underway,
    Full,
}

type Work<V> = Box<dyn FnOnce() -> V + Send>;
type Wake = Arc<dyn Fn(Waiter) + Send + Sync>;

/// Slot of an answer, valid even if the table forgets it.
pub type Promise<V> = Arc<OnceLock<V>>;

enum JobEntry<V> {
    Known(V, Instant),
    Underway(Vec<Waiter>, Promise<V>),
}

struct JobTable<K, V> {
    places: HashMap<K, JobEntry<V>>,
    queue: VecDeque<(K, Work<V>)>,
    threads: usize,
}

pub struct BlockingJobs<K, V> {
    limits: JobLimits,
    name: &'static str,
    inner: Mutex<JobTable<K, V>>,
}

impl<K: Hash + Eq + Clone + Send + 'static, V: Clone + Send + Sync + 'static> BlockingJobs<K, V> {
    /// `name`: of the threads.
    pub fn new(name: &'static str, limits: JobLimits) -> Arc<BlockingJobs<K, V>> {
        let inner = JobTable { places: HashMap::new(), queue: VecDeque::new(), threads: 0 };
        Arc::new(BlockingJobs { limits, name, inner: Mutex::new(inner) })
    }

    pub fn known(&self, key: &K) -> Option<V> {
        match self.inner.lock().places.get(key) {
            Some(JobEntry::Known(answer, since)) if self.is_good(*since) => Some(answer.clone()),
            Some(JobEntry::Known(..) | JobEntry::Underway(..)) | None => None,
        }
    }

    pub fn promise(&self, key: &K) -> Option<Promise<V>> {
        match self.inner.lock().places.get(key) {
            Some(JobEntry::Underway(_, promise)) => Some(promise.clone()),
            Some(JobEntry::Known(..)) | None => None,
        }
    }

    fn is_good(&self, since: Instant) -> bool {
        self.limits.lifetime.is_none_or(|lifetime| since.elapsed() < lifetime)
    }

    /// Returns the answer, or runs `work` once for all waiters and wakes `waiter`.
    pub fn ask(
        self: &Arc<Self>,
        key: &K,
        waiter: Waiter,
        wake: impl FnOnce() -> Wake,
        work: impl FnOnce() -> V + Send + 'static,
    ) -> JobState<V> {
        let mut inner = self.inner.lock();
        match inner.places.get_mut(key) {
            Some(JobEntry::Known(answer, since)) if self.is_good(*since) => return JobState::Known(answer.clone()),
            Some(JobEntry::Underway(waiters, _)) => {
                if !waiters.contains(&waiter) {
                    waiters.push(waiter);
                }
                return JobState::Underway;
            }
            Some(JobEntry::Known(..)) | None => {}
        }
        if inner.queue.len() >= self.limits.queue {
            return JobState::Full;
        }
        if inner.places.len() >= self.limits.answers {
            inner.places.retain(|_, place| matches!(place, JobEntry::Underway(..)));
        }
        inner.places.insert(key.clone(), JobEntry::Underway(vec![waiter], Arc::default()));
        inner.queue.push_back((key.clone(), Box::new(work)));
        if inner.threads < self.limits.threads {
            let (errands, wake) = (self.clone(), wake());
            let thread = std::thread::Builder::new().name(self.name.into()).spawn(move || errands.run(&wake));
            match thread {
                Ok(_) => inner.threads += 1,
                // Running threads take the job; without any, it would wait for ever.
                Err(_) if inner.threads > 0 => {}
                Err(_) => {
                    inner.queue.pop_back();
                    inner.places.remove(key);
                    return JobState::Full;
                }
            }
        }
        JobState::Underway
    }

    /// Adds an answer found elsewhere, if there is room.
    pub fn learn(&self, key: &K, answer: V) {
        let mut inner = self.inner.lock();
        if inner.places.len() < self.limits.answers && !inner.places.contains_key(key) {
            inner.places.insert(key.clone(), JobEntry::Known(answer, Instant::now()));
        }
    }

    pub fn forget(&self, key: &K) {
        let mut inner = self.inner.lock();
        if matches!(inner.places.get(key), Some(JobEntry::Known(..))) {
            inner.places.remove(key);
        }
    }

    /// Forgets all answers but those under way.
    pub fn clear(&self) {
        self.inner.lock().places.retain(|_, place| matches!(place, JobEntry::Underway(..)));
    }

    fn run(&self, wake: &Wake) {
        loop {
            let next = {
                let mut inner = self.inner.lock();
                let next = inner.queue.pop_front();
                if next.is_none() {
                    inner.threads -= 1;
                }
                next
            };
            let Some((key, work)) = next else { return };
            // A panic leaves no answer: the waiters ask again.
            let answer = catch_unwind(AssertUnwindSafe(work)).ok();
            let waiters = {
                let mut inner = self.inner.lock();
                let place = match &answer {
                    Some(answer) => inner.places.insert(key, JobEntry::Known(answer.clone(), Instant::now())),
                    None => inner.places.remove(&key),
                };
                match place {
                    Some(JobEntry::Underway(waiters, promise)) => {
                        if let Some(answer) = answer {
                            // Set only here, once.
                            let _ = promise.set(answer);
                        }
                        waiters
                    }
                    Some(JobEntry::Known(..)) | None => Vec::new(),
                }
            };
            for waiter in waiters {
                wake(waiter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LIMITS: JobLimits = JobLimits { threads: 2, queue: 2, answers: 3, lifetime: None };

    fn nobody() -> Wake {
        Arc::new(|_| {})
    }

    #[test]
    fn an_answer_is_found_once_and_all_who_wait_are_woken() {
        let errands = BlockingJobs::<u32, u32>::new("errand", LIMITS);
        let (woken, awake) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let wake = move || -> Wake { Arc::new(move |waiter| woken.send(waiter).unwrap()) };
        let work = move || {
            gate.recv().unwrap();
            7
        };
        assert_eq!(errands.ask(&1, (0, 1), wake, work), JobState::Underway);
        assert_eq!(errands.ask(&1, (1, 2), nobody, || panic!("asked twice")), JobState::Underway);
        assert_eq!(errands.ask(&1, (1, 2), nobody, || panic!("asked twice")), JobState::Underway);
        let promise = errands.promise(&1).unwrap();
        assert_eq!(promise.get(), None);
        go.send(()).unwrap();
        assert_eq!([awake.recv().unwrap(), awake.recv().unwrap()], [(0, 1), (1, 2)]);
        assert_eq!(errands.ask(&1, (0, 1), nobody, || panic!("asked twice")), JobState::Known(7));
        errands.forget(&1);
        assert_eq!(
            (promise.get(), errands.promise(&1).is_none()),
            (Some(&7), true),
            "who waited has it, although it is forgotten"
        );
        assert_eq!(errands.ask(&1, (0, 1), nobody, || 8), JobState::Underway);
    }

    #[test]
    fn no_more_than_the_limits_allow_run_or_wait() {
        let errands = BlockingJobs::<u32, u32>::new("errand", LIMITS);
        let (started, starts) = mpsc::channel();
        let mut gates = Vec::new();
        for key in 0..2 {
            let (go, gate) = mpsc::channel::<()>();
            gates.push(go);
            let started = started.clone();
            let work = move || {
                started.send(()).unwrap();
                let _ = gate.recv();
                key
            };
            assert_eq!(errands.ask(&key, (0, 0), nobody, work), JobState::Underway);
            starts.recv().unwrap();
        }
        for key in 2..4 {
            assert_eq!(errands.ask(&key, (0, 0), nobody, move || key), JobState::Underway);
        }
        assert_eq!(errands.ask(&4, (0, 0), nobody, || 4), JobState::Full);
        assert_eq!(errands.ask(&0, (0, 0), nobody, || 0), JobState::Underway, "who joins others is not turned away");
        assert_eq!(errands.inner.lock().threads, 2);
        drop(gates);
    }

    #[test]
    fn an_answer_that_is_too_old_is_found_anew() {
        let errands = BlockingJobs::<u32, u32>::new("errand", JobLimits { lifetime: Some(Duration::ZERO), ..LIMITS });
        let (woken, awake) = mpsc::channel();
        for round in 0..2 {
            let woken = woken.clone();
            let wake = move || -> Wake { Arc::new(move |_| woken.send(()).unwrap()) };
            assert_eq!(errands.ask(&1, (0, 0), wake, move || round), JobState::Underway);
            awake.recv().unwrap();
        }
    }

    #[test]
    fn an_errand_that_fails_leaves_no_answer_and_wakes_those_who_wait() {
        let errands = BlockingJobs::<u32, u32>::new("errand", LIMITS);
        let (woken, awake) = mpsc::channel();
        let wake = move || -> Wake { Arc::new(move |_| woken.send(()).unwrap()) };
        assert_eq!(errands.ask(&1, (0, 0), wake, || panic!("on purpose")), JobState::Underway);
        awake.recv().unwrap();
        assert_eq!(errands.ask(&1, (0, 0), nobody, || 3), JobState::Underway);
    }
}
