//! The role that each user's name stands for, as far as was seen.
//!
//! A server process goes on as the role that logged in, even if the role is renamed. So a connection belongs to a user only as
//! long as his name stands for the same role: the next role of that name must not get it.
//! In: servers' answers, and the time. Out: a change of the role, and a wish to ask a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_wire::write::literal;

/// Time for which an observed role counts as certain. Longer than the time between two looks at a catalog, so that logins need
/// not ask while somebody looks anyway.
const CERTAIN_MS: u64 = 2_000;

/// Shortest time between two looks at all users, however many databases are looked at.
const LOOK_MIN_MS: u64 = 500;

/// Knowledge of all users that have connections.
#[derive(Debug, Default)]
pub struct RoleKnowledge {
    seen: BTreeMap<Arc<str>, KnownRole>,
    looked_at_ms: Option<u64>,
}

#[derive(Debug)]
struct KnownRole {
    /// Empty: there is no such role.
    oid: String,
    at_ms: u64,
    /// It may be another one since.
    is_doubted: bool,
}

/// How well a user's role is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleCertainty {
    Certain,
    /// Nobody has looked for a while.
    Old,
    /// Nobody has ever looked, or it was seen that it may have changed.
    Doubtful,
}

impl RoleKnowledge {
    pub fn standing(&self, user: &str, now_ms: u64) -> RoleCertainty {
        match self.seen.get(user) {
            None => RoleCertainty::Doubtful,
            Some(seen) if seen.is_doubted => RoleCertainty::Doubtful,
            Some(seen) if now_ms.saturating_sub(seen.at_ms) < CERTAIN_MS => RoleCertainty::Certain,
            Some(_) => RoleCertainty::Old,
        }
    }

    /// Takes in a server's answer. If the role has changed: the time when the old one was last seen. Users who logged in by
    /// then have the old role.
    pub fn note(&mut self, user: &Arc<str>, oid: &str, now_ms: u64) -> Option<u64> {
        let now = KnownRole { oid: oid.to_owned(), at_ms: now_ms, is_doubted: false };
        let before = self.seen.insert(user.clone(), now)?;
        (before.oid != oid).then_some(before.at_ms)
    }

    /// The name may stand for another role from now on.
    pub fn doubt(&mut self, user: &str, now_ms: u64) {
        if let Some(seen) = self.seen.get_mut(user) {
            (seen.at_ms, seen.is_doubted) = (now_ms, true);
        }
    }

    /// Forgets users whom nobody relies upon any more.
    pub fn retain(&mut self, is_used: impl Fn(&str) -> bool) {
        self.seen.retain(|user, _| is_used(user));
    }

    /// True if it is time to look at all users again; if so, somebody does.
    pub fn begin_look(&mut self, now_ms: u64) -> bool {
        let is_due = self.looked_at_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= LOOK_MIN_MS);
        if is_due {
            self.looked_at_ms = Some(now_ms);
        }
        is_due
    }
}

/// The question which roles these names stand for: rows of name and number, which is null where there is none. Needs no right.
pub fn question<'a>(users: impl Iterator<Item = &'a str>) -> String {
    let mut sql =
        String::from("SELECT n, pg_catalog.to_regrole(pg_catalog.quote_ident(n))::pg_catalog.oid FROM pg_catalog.unnest(ARRAY[");
    for (at, user) in users.enumerate() {
        if at > 0 {
            sql.push(',');
        }
        literal(&mut sql, user);
    }
    sql.push_str("]::pg_catalog.text[]) n");
    sql
}

/// For the list of Weir's own texts.
pub fn own_texts() -> Vec<String> {
    vec![question(["joe", "it's"].into_iter())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_role_under_the_same_name_is_noticed_once() {
        let (mut roles, joe) = (RoleKnowledge::default(), Arc::from("joe"));
        assert_eq!(roles.standing("joe", 0), RoleCertainty::Doubtful);
        assert_eq!(roles.note(&joe, "16384", 0), None, "nothing was relied upon before");
        assert_eq!(roles.standing("joe", CERTAIN_MS - 1), RoleCertainty::Certain);
        assert_eq!(roles.standing("joe", CERTAIN_MS), RoleCertainty::Old);
        assert_eq!(roles.note(&joe, "16384", 7), None);
        assert_eq!(roles.note(&joe, "", CERTAIN_MS), Some(7), "he was dropped");
        assert_eq!(roles.note(&joe, "16385", CERTAIN_MS), Some(CERTAIN_MS));
        assert_eq!(roles.note(&joe, "16385", CERTAIN_MS), None);
    }

    #[test]
    fn a_name_in_doubt_is_looked_at_before_the_time() {
        let (mut roles, joe) = (RoleKnowledge::default(), Arc::from("joe"));
        roles.note(&joe, "16384", 0);
        roles.doubt("joe", 5);
        roles.doubt("sue", 5);
        assert_eq!(roles.standing("joe", 5), RoleCertainty::Doubtful);
        assert_eq!(roles.note(&joe, "16385", 6), Some(5), "who came before the doubt is of the role before");
        assert_eq!(roles.standing("joe", 6), RoleCertainty::Certain);
    }

    #[test]
    fn who_is_forgotten_is_in_doubt_again() {
        let mut roles = RoleKnowledge::default();
        for user in ["joe", "sue"] {
            assert_eq!(roles.note(&Arc::from(user), "16384", 0), None);
        }
        roles.retain(|user| user == "sue");
        assert_eq!((roles.standing("joe", 0), roles.standing("sue", 0)), (RoleCertainty::Doubtful, RoleCertainty::Certain));
        assert_eq!(roles.seen.len(), 1);
    }

    #[test]
    fn many_databases_do_not_look_more_often() {
        let mut roles = RoleKnowledge::default();
        assert!(roles.begin_look(0) && !roles.begin_look(LOOK_MIN_MS - 1) && roles.begin_look(LOOK_MIN_MS));
    }

    #[test]
    fn names_are_asked_for_as_they_are() {
        assert!(question(["joe", "o'neil"].into_iter()).ends_with("unnest(ARRAY['joe','o''neil']::pg_catalog.text[]) n"));
    }
}
