//! The roles whose privileges users have, as servers said, for as long as that is believed.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Users that are remembered.
const USERS_MAX: usize = 100_000;

/// Time for which a server that did not answer is not asked again, so that SHOW is no way to make Weir log in again and again.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// What a server said, or that none did.
pub type Told = Option<Arc<BTreeSet<String>>>;

/// By user. Each worker asks, all see the answers.
#[derive(Default)]
pub struct Privileges(Mutex<HashMap<Box<str>, (Instant, Told)>>);

impl Privileges {
    /// What is known of a user and was asked for within `lifetime`.
    pub fn get(&self, user: &str, lifetime: Duration) -> Option<Told> {
        let known = self.0.lock();
        let (since, told) = known.get(user)?;
        let lifetime = if told.is_some() { lifetime } else { FAILURE_LIFETIME };
        (since.elapsed() < lifetime).then(|| told.clone())
    }

    pub fn learn(&self, user: &str, told: Told) {
        let mut known = self.0.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(user.into(), (Instant::now(), told));
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_time_and_a_failure_for_a_moment() {
        let (known, hour) = (Privileges::default(), Duration::from_secs(3600));
        assert!(known.get("joe", hour).is_none());
        known.learn("joe", Some(Arc::default()));
        assert!(known.get("joe", hour) == Some(Some(Arc::default())) && known.get("joe", Duration::ZERO).is_none());
        known.learn("joe", None);
        assert!(known.get("joe", Duration::ZERO) == Some(None), "nobody is asked again at once");
        known.clear();
        assert!(known.get("joe", hour).is_none());
    }
}
