//! Decides whether open connections of a pool may serve a new client: only if the server let the user in shortly before.
//!
//! A server does not check connected users again, so withdrawn rights (REVOKE CONNECT, `NOLOGIN`, `pg_hba.conf`) would never reach a pool
//! with long-lived connections. Now and then a real login vouches for all clients that come until the next.

/// Shortest time between two such logins, even with `auth_cache_time = 0`.
const LEAST_MS: u64 = 1_000;
/// Time after which an unfinished login keeps no client waiting.
const ASK_MAX_MS: u64 = 5_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentLogins {
    /// Begin of the last successful login.
    accepted_ms: Option<u64>,
    /// Begin of a later, refused login.
    refused_ms: Option<u64>,
    asked_ms: Option<u64>,
    /// Time of the last inconclusive login (server full or unreachable), and its repetitions.
    unsure: Option<(u64, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLoginDecision {
    Given,
    /// The server cannot be asked, so open connections may be used.
    Unsure,
    /// The outcome of the login under way counts for this client too.
    Awaited {
        until_ms: u64,
    },
    /// A login must be made.
    Wanted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginAvailability {
    Open,
    /// The server was full or away, and it is too early to try again.
    Held,
    Paused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginDenial {
    /// The user may not connect: no connection of the user is lent.
    Right,
    /// Connected users may stay, as on the server itself.
    Password,
}

/// Returns the meaning of a refused login for the user.
///
/// Source: `ClientAuthentication` in auth.c, `InitializeSessionUserId` in miscinit.c, `CheckMyDatabase` and `InitPostgres` in postinit.c.
/// Login triggers raise P0001 by default.
pub fn withdrawal(sqlstate: &str) -> Option<LoginDenial> {
    match sqlstate {
        "28P01" => Some(LoginDenial::Password),
        // No role, no LOGIN, or rejected by pg_hba.conf.
        "28000" => Some(LoginDenial::Right),
        // No database, no right to connect, no connections allowed, or a login trigger.
        "3D000" | "42501" | "55000" | "P0001" => Some(LoginDenial::Right),
        _ => None,
    }
}

impl RecentLogins {
    pub fn covers(&self, came_ms: u64, cache_ms: u64) -> bool {
        let lifetime_ms = cache_ms.max(LEAST_MS);
        self.accepted_ms.is_some_and(|accepted_ms| came_ms <= accepted_ms.saturating_add(lifetime_ms))
            && self.refused_ms.is_none_or(|refused_ms| came_ms < refused_ms)
    }

    pub fn voucher(&self, came_ms: u64, cache_ms: u64, room: LoginAvailability, now_ms: u64) -> ClientLoginDecision {
        if self.covers(came_ms, cache_ms) {
            return ClientLoginDecision::Given;
        }
        if let Some(asked_ms) = self.asked_ms
            && now_ms < asked_ms + ASK_MAX_MS
        {
            return ClientLoginDecision::Awaited { until_ms: asked_ms + ASK_MAX_MS };
        }
        // The pause doubles with each repetition, up to the time for which a login vouches.
        let pause_ms = |times: u32| cache_ms.max(LEAST_MS).min(LEAST_MS << times.min(16));
        let was_unsure = self.unsure.is_some_and(|(unsure_ms, times)| now_ms < unsure_ms + pause_ms(times));
        match room {
            LoginAvailability::Paused => ClientLoginDecision::Unsure,
            // After a refusal only a successful login lets clients in again.
            LoginAvailability::Open | LoginAvailability::Held if self.is_refused() => ClientLoginDecision::Wanted,
            LoginAvailability::Held => ClientLoginDecision::Unsure,
            LoginAvailability::Open if was_unsure => ClientLoginDecision::Unsure,
            LoginAvailability::Open => ClientLoginDecision::Wanted,
        }
    }

    pub fn is_refused(&self) -> bool {
        self.refused_ms.is_some()
    }

    pub fn ask(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
    }

    pub fn asked(&mut self) {
        self.asked_ms = None;
    }

    pub fn accepted(&mut self, begun_ms: u64) {
        self.accepted_ms = self.accepted_ms.max(Some(begun_ms));
        self.refused_ms = self.refused_ms.filter(|refused_ms| *refused_ms > begun_ms);
        self.unsure = None;
    }

    /// False: a later login succeeded.
    pub fn refused(&mut self, begun_ms: u64) -> bool {
        let is_news = self.accepted_ms.is_none_or(|accepted_ms| accepted_ms <= begun_ms);
        if is_news {
            self.refused_ms = Some(self.refused_ms.unwrap_or(begun_ms));
        }
        is_news
    }

    pub fn unsure(&mut self, now_ms: u64) {
        // Logins that fail within `LEAST_MS` count as one.
        let times = match self.unsure {
            None => 0,
            Some((unsure_ms, times)) => times.saturating_add(u32::from(now_ms >= unsure_ms + LEAST_MS)),
        };
        self.unsure = Some((now_ms, times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE_MS: u64 = 10_000;

    fn voucher(vouching: &RecentLogins, came_ms: u64) -> ClientLoginDecision {
        vouching.voucher(came_ms, CACHE_MS, LoginAvailability::Open, came_ms)
    }

    #[test]
    fn a_login_vouches_for_clients_that_come_within_the_time() {
        let mut vouching = RecentLogins::default();
        assert_eq!(voucher(&vouching, 5), ClientLoginDecision::Wanted, "nobody has logged in");
        vouching.accepted(1000);
        assert_eq!(voucher(&vouching, 11_000), ClientLoginDecision::Given);
        assert_eq!(voucher(&vouching, 11_001), ClientLoginDecision::Wanted);
        assert!(vouching.covers(11_000, CACHE_MS), "who came in time stays, however long");
        assert!(vouching.covers(2000, 0) && !vouching.covers(2001, 0), "not more than one a second");
        vouching.accepted(500);
        assert!(vouching.covers(11_000, CACHE_MS), "a login that took long takes nothing back");
    }

    #[test]
    fn one_login_at_a_time_is_made_and_others_wait_for_it_but_not_for_ever() {
        let mut vouching = RecentLogins::default();
        vouching.ask(1000);
        assert_eq!(voucher(&vouching, 1001), ClientLoginDecision::Awaited { until_ms: 1000 + ASK_MAX_MS });
        assert_eq!(voucher(&vouching, 1000 + ASK_MAX_MS), ClientLoginDecision::Wanted);
        vouching.asked();
        assert_eq!(voucher(&vouching, 1001), ClientLoginDecision::Wanted);
    }

    #[test]
    fn a_refusal_shuts_out_who_comes_after_it_until_a_login_gets_in() {
        let mut vouching = RecentLogins::default();
        vouching.accepted(1000);
        assert!(vouching.refused(3000));
        assert!(vouching.covers(2999, CACHE_MS) && !vouching.covers(3000, CACHE_MS));
        assert!(vouching.refused(5000) && !vouching.covers(3000, CACHE_MS), "the first one counts");
        vouching.accepted(2900);
        assert!(vouching.is_refused(), "it began before the refused one, and came late");
        vouching.unsure(5000);
        for room in [LoginAvailability::Open, LoginAvailability::Held] {
            assert_eq!(
                vouching.voucher(5001, CACHE_MS, room, 5001),
                ClientLoginDecision::Wanted,
                "silence says nothing: {room:?}"
            );
        }
        vouching.accepted(6000);
        assert!(vouching.covers(5500, CACHE_MS) && !vouching.is_refused());
        assert!(!vouching.refused(5900), "the one that got in began later");
        assert!(vouching.covers(6500, CACHE_MS));
    }

    #[test]
    fn a_server_that_cannot_be_asked_keeps_nobody_out() {
        let mut vouching = RecentLogins::default();
        vouching.accepted(0);
        for room in [LoginAvailability::Held, LoginAvailability::Paused] {
            assert_eq!(vouching.voucher(20_000, CACHE_MS, room, 20_000), ClientLoginDecision::Unsure, "{room:?}");
        }
        vouching.unsure(20_000);
        assert_eq!(voucher(&vouching, 20_999), ClientLoginDecision::Unsure);
        assert_eq!(voucher(&vouching, 21_000), ClientLoginDecision::Wanted, "it is asked again");
        vouching.unsure(21_000);
        assert_eq!(
            (voucher(&vouching, 22_999), voucher(&vouching, 23_000)),
            (ClientLoginDecision::Unsure, ClientLoginDecision::Wanted)
        );
        (23_000..23_100).for_each(|now_ms| vouching.unsure(now_ms));
        assert_eq!(
            (voucher(&vouching, 27_098), voucher(&vouching, 27_099)),
            (ClientLoginDecision::Unsure, ClientLoginDecision::Wanted)
        );
        (3..20).for_each(|at| vouching.unsure(at * 10_000));
        assert_eq!(
            (voucher(&vouching, 199_999), voucher(&vouching, 200_000)),
            (ClientLoginDecision::Unsure, ClientLoginDecision::Wanted)
        );
    }

    #[test]
    fn only_words_about_the_user_are_a_refusal() {
        for (sqlstate, expected) in [
            ("28000", Some(LoginDenial::Right)),
            ("28P01", Some(LoginDenial::Password)),
            ("3D000", Some(LoginDenial::Right)),
            ("42501", Some(LoginDenial::Right)),
            ("55000", Some(LoginDenial::Right)),
            ("53300", None),
            ("57P03", None),
            ("57P01", None),
            ("08006", None),
            ("58000", None),
            ("XX000", None),
        ] {
            assert_eq!(withdrawal(sqlstate), expected, "{sqlstate}");
        }
    }
}
