//! Addresses of hosts' names. One task for each name asks the system now and then; the last good answer serves meanwhile.

use crate::log::{Level, ProxyLog};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

/// Most addresses of one name that are used.
const ADDRESSES_MAX: usize = 4;
/// Time for an answer, after which the silence is told. The question goes on: there is never more than one for a name.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(3);
const REFRESH: Duration = Duration::from_secs(30);
/// Shortest time between two questions.
const PAUSE: Duration = Duration::from_secs(1);

pub struct PeerNames {
    log: Arc<ProxyLog>,
    known: RefCell<BTreeMap<String, PeerName>>,
}

struct PeerName {
    found: Rc<RefCell<FoundAddresses>>,
    again: Rc<Notify>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct FoundAddresses {
    /// Of the last good answer.
    addresses: Vec<IpAddr>,
    /// Of the last answer, if it was no good one.
    fault: Option<String>,
}

impl PeerNames {
    pub fn new(log: Arc<ProxyLog>) -> PeerNames {
        PeerNames { log, known: RefCell::default() }
    }

    /// Looks after these names from now on, and forgets others. Addresses need no lookup.
    pub fn keep(&self, names: &BTreeSet<String>) {
        let mut known = self.known.borrow_mut();
        known.retain(|name, _| names.contains(name));
        for name in names.iter().filter(|name| name.parse::<IpAddr>().is_err()) {
            known.entry(name.clone()).or_insert_with(|| self.begin(name));
        }
    }

    pub fn forget_all(&self) {
        self.known.borrow_mut().clear();
    }

    fn begin(&self, name: &str) -> PeerName {
        let (found, again) = (Rc::new(RefCell::new(FoundAddresses::default())), Rc::new(Notify::new()));
        let mut task = JoinSet::new();
        task.spawn_local(look_after(name.to_owned(), found.clone(), again.clone(), self.log.clone()));
        PeerName { found, again, _task: task }
    }

    /// Error: nothing is known yet, with the reason.
    pub fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let known = self.known.borrow();
        let Some(entry) = known.get(name) else { return Err("it is not looked up yet".to_owned()) };
        let found = entry.found.borrow();
        if found.addresses.is_empty() {
            return Err(found.fault.clone().unwrap_or_else(|| "the system has not answered yet".to_owned()));
        }
        Ok(found.addresses.clone())
    }

    /// After a failure at its addresses: the name may lead elsewhere now.
    pub fn look_again(&self, name: &str) {
        if let Some(entry) = self.known.borrow().get(name) {
            entry.again.notify_one();
        }
    }
}

/// Cancel safe.
async fn look_after(name: String, found: Rc<RefCell<FoundAddresses>>, again: Rc<Notify>, log: Arc<ProxyLog>) {
    loop {
        let question = (name.clone(), 0);
        // The resolver's thread cannot be stopped, so its answer is awaited before the next question.
        let mut answer =
            spawn_local(async move { Ok(tokio::net::lookup_host(question).await?.map(|place| place.ip()).collect()) });
        let in_time = timeout(LOOK_UP_LIMIT, &mut answer).await;
        let answer = match in_time {
            Ok(answer) => answer,
            Err(_) => {
                note(&name, &found, Err("the system has not answered in time".to_owned()), &log);
                answer.await
            }
        };
        let answer: Result<Vec<IpAddr>, String> = match answer {
            Ok(answer) => answer.map_err(|cause: std::io::Error| cause.to_string()),
            Err(cause) => Err(cause.to_string()),
        };
        let is_good = note(&name, &found, answer, &log);
        sleep(PAUSE).await;
        if is_good {
            let _ = timeout(REFRESH, again.notified()).await;
        }
    }
}

/// True if there are addresses.
fn note(name: &str, found: &RefCell<FoundAddresses>, answer: Result<Vec<IpAddr>, String>, log: &ProxyLog) -> bool {
    let mut found = found.borrow_mut();
    let answer = answer.and_then(|all| if all.is_empty() { Err("it has no address".to_owned()) } else { Ok(all) });
    match answer {
        Ok(mut addresses) => {
            addresses.dedup();
            addresses.truncate(ADDRESSES_MAX);
            if found.fault.take().is_some() {
                log.say(Level::Log, format_args!("watchdog: host name \"{name}\" is resolved again"));
            }
            found.addresses = addresses;
            true
        }
        Err(cause) => {
            if found.fault.is_none() {
                log.say(Level::Warning, format_args!("watchdog: host name \"{name}\" is not resolved: {cause}"));
            }
            found.fault = Some(cause);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[tokio::test]
    async fn the_last_good_addresses_serve_while_a_name_is_not_resolved() {
        let log = ProxyLog::new(&Config::default().log).unwrap();
        let found = RefCell::new(FoundAddresses::default());
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        assert!(!note("weir1", &found, Err("away".into()), &log));
        assert!(note("weir1", &found, Ok(vec![address, address]), &log));
        assert!(!note("weir1", &found, Ok(vec![]), &log));
        assert_eq!((&found.borrow().addresses, found.borrow().fault.as_deref()), (&vec![address], Some("it has no address")));
        assert!(note("weir1", &found, Ok(vec![address; 9]), &log) && found.borrow().fault.is_none());
    }
}
