//! Addresses of servers' host names.
//!
//! The system's resolver blocks, so each lookup has a thread, one per name at most. The last addresses serve while the resolver is away,
//! which says nothing of a server.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for a new answer before the last one serves.
const PATIENCE: Duration = Duration::from_millis(500);
/// Waiters that one answer wakes. Further ones wait until their time is over.
const WAITERS_MAX: usize = 1024;

type Found = Result<Vec<IpAddr>, String>;
pub type Wake = Box<dyn FnOnce() + Send>;

/// No address of a name is known, which says nothing of the server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the name cannot be resolved: {0}")]
pub struct ResolveError(String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolverEvent {
    Fails { cause: String },
    ResolvesAgain,
}

pub struct NameResolver {
    lookup: fn(&str) -> Found,
    known: Mutex<BTreeMap<String, ResolvedName>>,
}

#[derive(Default)]
struct ResolvedName {
    /// Addresses of the last good answer.
    addresses: Vec<IpAddr>,
    last: ResolveOutcome,
    under_way: Option<(Instant, Arc<NameLookup>)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ResolveOutcome {
    #[default]
    Good,
    Failed,
}

struct NameLookup(Mutex<LookupProgress>);

enum LookupProgress {
    UnderWay(Vec<Wake>),
    Over(Found),
}

pub struct PendingLookup {
    lookup: Arc<NameLookup>,
    pub until: Instant,
}

impl Default for NameResolver {
    fn default() -> NameResolver {
        NameResolver::new(|name| match (name, 0).to_socket_addrs() {
            Ok(all) => Ok(all.map(|address| address.ip()).collect()),
            Err(cause) => Err(cause.to_string()),
        })
    }
}

impl NameResolver {
    fn new(lookup: fn(&str) -> Found) -> NameResolver {
        NameResolver { lookup, known: Mutex::default() }
    }

    /// Starts a lookup unless one is under way. `wake` is called at the answer or dropped. `is_named`: the configuration names this host;
    /// other names are forgotten.
    pub fn ask(
        self: &Arc<NameResolver>,
        name: &str,
        deadline: Instant,
        is_named: impl Fn(&str) -> bool,
        wake: Wake,
        tell: impl FnOnce(ResolverEvent) + Send + 'static,
    ) -> PendingLookup {
        let now = Instant::now();
        // The other half is left for connecting.
        let half = now + deadline.saturating_duration_since(now) / 2;
        let mut known = self.known.lock();
        if !known.contains_key(name) {
            known.retain(|other, entry| is_named(other) || entry.under_way.is_some());
        }
        let entry = known.entry(name.to_owned()).or_default();
        let (begun_at, lookup) = match &entry.under_way {
            Some(under_way) => under_way.clone(),
            None => {
                // A thread that cannot be started counts as an answer.
                let begun = self.begin(name, tell);
                let progress = begun
                    .as_ref()
                    .map_or_else(|cause| LookupProgress::Over(Err(cause.to_string())), |()| LookupProgress::UnderWay(Vec::new()));
                let lookup = (now, Arc::new(NameLookup(Mutex::new(progress))));
                entry.under_way = begun.is_ok().then(|| lookup.clone());
                lookup
            }
        };
        let until = if entry.addresses.is_empty() { half } else { half.min(begun_at + PATIENCE) };
        if until > now
            && let LookupProgress::UnderWay(waiters) = &mut *lookup.0.lock()
            && waiters.len() < WAITERS_MAX
        {
            waiters.push(wake);
        }
        PendingLookup { lookup, until }
    }

    /// The caller holds the lock, so that the answer is taken in after the question is noted.
    fn begin(self: &Arc<NameResolver>, name: &str, tell: impl FnOnce(ResolverEvent) + Send + 'static) -> io::Result<()> {
        let (names, of) = (self.clone(), name.to_owned());
        let work = move || {
            let found = (names.lookup)(&of);
            if let Some(news) = names.finish(&of, found) {
                tell(news);
            }
        };
        std::thread::Builder::new().name("resolve".into()).spawn(work).map(drop)
    }

    fn finish(&self, name: &str, found: Found) -> Option<ResolverEvent> {
        let found = found.and_then(|all| if all.is_empty() { Err("it has no address".to_owned()) } else { Ok(all) });
        let mut known = self.known.lock();
        let entry = known.get_mut(name)?;
        let (_, lookup) = entry.under_way.take()?;
        let last = if found.is_ok() { ResolveOutcome::Good } else { ResolveOutcome::Failed };
        let before = std::mem::replace(&mut entry.last, last);
        if let Ok(addresses) = &found {
            entry.addresses.clone_from(addresses);
        }
        let news = match &found {
            Ok(_) if before == ResolveOutcome::Failed => Some(ResolverEvent::ResolvesAgain),
            Err(cause) if before == ResolveOutcome::Good && !entry.addresses.is_empty() => {
                Some(ResolverEvent::Fails { cause: cause.clone() })
            }
            Ok(_) | Err(_) => None,
        };
        drop(known);
        let before = std::mem::replace(&mut *lookup.0.lock(), LookupProgress::Over(found));
        if let LookupProgress::UnderWay(waiters) = before {
            waiters.into_iter().for_each(|wake| wake());
        }
        news
    }

    /// Returns the addresses to try, after the answer or the wait.
    pub fn outcome(&self, name: &str, question: &PendingLookup) -> io::Result<Vec<IpAddr>> {
        let cause = match &*question.lookup.0.lock() {
            LookupProgress::Over(Ok(addresses)) => return Ok(addresses.clone()),
            LookupProgress::Over(Err(cause)) => cause.clone(),
            LookupProgress::UnderWay(_) => "the system has not answered in time".to_owned(),
        };
        let known = self.known.lock();
        let last = known.get(name).map(|entry| entry.addresses.clone()).unwrap_or_default();
        if last.is_empty() { Err(io::Error::other(ResolveError(cause))) } else { Ok(last) }
    }
}

impl PendingLookup {
    pub fn is_over(&self) -> bool {
        matches!(&*self.lookup.0.lock(), LookupProgress::Over(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const FIRST: &str = "10.0.0.1";
    const SECOND: &str = "10.0.0.2";

    fn names() -> Arc<NameResolver> {
        Arc::new(NameResolver::new(|_| panic!("the test answers")))
    }

    /// Notes a question whose answer the test gives, as if it had been asked so long ago.
    fn pose(names: &Arc<NameResolver>, name: &str, before: Duration) {
        let lookup = Arc::new(NameLookup(Mutex::new(LookupProgress::UnderWay(Vec::new()))));
        let begun_at = Instant::now().checked_sub(before).unwrap();
        names.known.lock().entry(name.to_owned()).or_default().under_way = Some((begun_at, lookup));
    }

    fn ask(names: &Arc<NameResolver>, name: &str, wake: Wake) -> PendingLookup {
        names.ask(name, Instant::now() + Duration::from_secs(60), |_| true, wake, |_| ())
    }

    fn of(address: &str) -> Found {
        Ok(vec![address.parse().unwrap()])
    }

    fn shown(names: &NameResolver, question: &PendingLookup) -> Result<String, String> {
        let found = names.outcome("db", question).map_err(|cause| cause.to_string())?;
        Ok(found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_last_addresses_serve_while_a_name_does_not_resolve() {
        let names = names();
        let check = |answer: Found, expected: Result<&str, &str>, news: Option<ResolverEvent>| {
            pose(&names, "db", Duration::ZERO);
            let question = ask(&names, "db", Box::new(|| ()));
            assert!(!question.is_over());
            assert_eq!(names.finish("db", answer.clone()), news, "{answer:?}");
            assert!(question.is_over());
            assert_eq!(shown(&names, &question), expected.map(str::to_owned).map_err(str::to_owned), "{answer:?}");
        };
        let fails = || Some(ResolverEvent::Fails { cause: "away".into() });
        check(Err("away".into()), Err("the name cannot be resolved: away"), None);
        check(of(FIRST), Ok(FIRST), Some(ResolverEvent::ResolvesAgain));
        check(Err("away".into()), Ok(FIRST), fails());
        check(Err("away".into()), Ok(FIRST), None);
        check(of(SECOND), Ok(SECOND), Some(ResolverEvent::ResolvesAgain));
        check(Ok(Vec::new()), Ok(SECOND), Some(ResolverEvent::Fails { cause: "it has no address".into() }));
    }

    #[test]
    fn a_resolver_that_hangs_is_waited_for_by_those_who_know_no_address() {
        let names = names();
        pose(&names, "db", Duration::ZERO);
        let (woken, wakes) = mpsc::channel();
        let wake = || {
            let woken = woken.clone();
            Box::new(move || woken.send(()).unwrap())
        };
        let (one, other) = (ask(&names, "db", wake()), ask(&names, "db", wake()));
        assert!(Arc::ptr_eq(&one.lookup, &other.lookup), "one question at a time");
        assert!(one.until > Instant::now() + PATIENCE);
        assert_eq!(shown(&names, &one), Err("the name cannot be resolved: the system has not answered in time".into()));
        names.finish("db", of(FIRST));
        assert_eq!(wakes.try_iter().count(), 2);
        pose(&names, "db", PATIENCE);
        let third = ask(&names, "db", wake());
        assert!(third.until <= Instant::now(), "others have waited for this answer already");
        assert_eq!(shown(&names, &third), Ok(FIRST.into()));
        names.finish("db", of(SECOND));
        assert_eq!((wakes.try_iter().count(), shown(&names, &third)), (0, Ok(SECOND.into())));
    }

    #[test]
    fn names_that_are_configured_no_more_are_forgotten() {
        let names = names();
        for at in 0..100 {
            let name = format!("db{at}");
            pose(&names, &name, Duration::ZERO);
            ask(&names, &name, Box::new(|| ()));
            names.finish(&name, of(FIRST));
        }
        assert_eq!(names.known.lock().len(), 100);
        let names = Arc::new(NameResolver { lookup: |_| of(FIRST), known: Mutex::new(std::mem::take(&mut *names.known.lock())) });
        let (told, wait) = mpsc::channel();
        let wake = Box::new(move || told.send(()).unwrap());
        names.ask("new", Instant::now() + Duration::from_secs(60), |name| name == "db7", wake, |_| ());
        wait.recv().unwrap();
        assert_eq!(names.known.lock().keys().collect::<Vec<_>>(), ["db7", "new"]);
    }
}
