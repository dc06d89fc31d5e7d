//! Roles that user names stand for, as last observed.
//!
//! A server process keeps the role that logged in. So a connection belongs to a user only while the name stands for the same role: the
//! next role of that name must not get it.

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_wire::write::literal;

/// Time for which an observed role is certain: longer than the period of catalog looks, so that logins need not ask.
const CERTAIN_MS: u64 = 2_000;

const LOOK_MIN_MS: u64 = 500;

#[derive(Debug, Default)]
pub struct RoleKnowledge {
    seen: BTreeMap<Arc<str>, KnownRole>,
    looked_at_ms: Option<u64>,
}

#[derive(Debug)]
struct KnownRole {
    /// Empty: no such role.
    oid: String,
    at_ms: u64,
    is_doubted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleCertainty {
    Certain,
    Old,
    /// The role was never looked at, or may have changed.
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

    /// Returns, if the role has changed, when the old one was last seen: users who logged in by then have it.
    pub fn note(&mut self, user: &Arc<str>, oid: &str, now_ms: u64) -> Option<u64> {
        let now = KnownRole { oid: oid.to_owned(), at_ms: now_ms, is_doubted: false };
        let before = self.seen.insert(user.clone(), now)?;
        (before.oid != oid).then_some(before.at_ms)
    }

    pub fn doubt(&mut self, user: &str, now_ms: u64) {
        if let Some(seen) = self.seen.get_mut(user) {
            (seen.at_ms, seen.is_doubted) = (now_ms, true);
        }
    }

    pub fn retain(&mut self, is_used: impl Fn(&str) -> bool) {
        self.seen.retain(|user, _| is_used(user));
    }

    /// True if a look at all users is due; the caller then makes it.
    pub fn begin_look(&mut self, now_ms: u64) -> bool {
        let is_due = self.looked_at_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= LOOK_MIN_MS);
        if is_due {
            self.looked_at_ms = Some(now_ms);
        }
        is_due
    }
}

/// Query for the roles of these names: rows of name and OID, null without a role. Needs no privilege.
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
