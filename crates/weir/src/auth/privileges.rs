//! Roles whose privileges users have, kept for a while.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USERS_MAX: usize = 100_000;

/// Pause after no server answered: SHOW must not log in again and again, nor wait each time for a hanging server.
const FAILURE_LIFETIME: Duration = Duration::from_secs(5);

pub type Roles = Arc<BTreeSet<String>>;

struct UserRoles {
    /// Kept while no server answers: operators need SHOW most then.
    roles: Option<Roles>,
    answered_at: Option<Instant>,
    failed_at: Option<Instant>,
}

#[derive(Default)]
pub struct PrivilegeCache(Mutex<HashMap<Box<str>, UserRoles>>);

impl PrivilegeCache {
    /// Returns the roles told within `lifetime`, or the last known ones if no server answered just now. Outer `None`: ask.
    pub fn get(&self, user: &str, lifetime: Duration) -> Option<Option<Roles>> {
        let known = self.0.lock();
        let known = known.get(user)?;
        let is_within = |at: Option<Instant>, lifetime| at.is_some_and(|at| at.elapsed() < lifetime);
        (is_within(known.answered_at, lifetime) || is_within(known.failed_at, FAILURE_LIFETIME)).then(|| known.roles.clone())
    }

    pub fn learn(&self, user: &str, roles: Roles) {
        let known = UserRoles { roles: Some(roles), answered_at: Some(Instant::now()), failed_at: None };
        self.put(user, known);
    }

    /// Notes that no server answered. Returns the last known roles.
    pub fn note_failure(&self, user: &str) -> Option<Roles> {
        let now = Some(Instant::now());
        {
            let mut known = self.0.lock();
            if let Some(known) = known.get_mut(user) {
                known.failed_at = now;
                return known.roles.clone();
            }
        }
        self.put(user, UserRoles { roles: None, answered_at: None, failed_at: now });
        None
    }

    fn put(&self, user: &str, what: UserRoles) {
        let mut known = self.0.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(user.into(), what);
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_time_and_on_while_no_server_gives_another() {
        let (known, hour, at_once) = (PrivilegeCache::default(), Duration::from_secs(3600), Duration::ZERO);
        assert!(known.get("joe", hour).is_none());
        assert!(known.note_failure("joe").is_none());
        assert_eq!(known.get("joe", at_once), Some(None), "nobody is asked again at once");
        let roles: Roles = Arc::new(BTreeSet::from(["joe".to_owned()]));
        known.learn("joe", roles.clone());
        assert!(known.get("joe", hour) == Some(Some(roles.clone())) && known.get("joe", at_once).is_none());
        assert_eq!(known.note_failure("joe"), Some(roles.clone()));
        assert_eq!(known.get("joe", at_once), Some(Some(roles)));
        known.clear();
        assert!(known.get("joe", hour).is_none());
    }
}
