//! Logins of the dashboard: who holds which token, and for how long.
//!
//! In: tokens, the time. Out: the user. No IO. Sessions live in memory only: a restart ends them.

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use weir_config::passwd::UserSecret;

/// A further login ends the session that was used longest ago.
const SESSIONS_MAX: usize = 64;
/// A session ends when nobody has used it for this time. An open page uses it.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// A session ends at this age, used or not.
const AGE_MAX: Duration = Duration::from_secs(12 * 3600);

const TOKEN_BYTES: usize = 32;

/// Random bytes that only their holder knows. Never printed.
#[derive(Clone, Copy)]
pub struct SecretToken([u8; TOKEN_BYTES]);

impl SecretToken {
    pub fn new(dice: [u8; TOKEN_BYTES]) -> SecretToken {
        SecretToken(dice)
    }

    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(TOKEN_BYTES * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Takes as long for a wrong text as for a right one of its length.
    pub fn is(&self, text: &str) -> bool {
        self.hex().as_bytes().ct_eq(text.as_bytes()).into()
    }
}

/// A login: the proof that it has shown, and the tokens that it gets.
#[derive(Clone)]
pub struct DashboardLogin {
    pub user: Arc<str>,
    /// The entry of the password file that the password fitted: with another one the session ends.
    pub secret: UserSecret,
    /// Names the session: the cookie.
    pub token: SecretToken,
    /// Shows that an order comes from the dashboard's own page.
    pub csrf: SecretToken,
}

struct OpenSession {
    login: DashboardLogin,
    begun_at: Instant,
    used_at: Instant,
}

impl OpenSession {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used_at) >= IDLE_MAX || now.saturating_duration_since(self.begun_at) >= AGE_MAX
    }
}

#[derive(Default)]
pub struct DashboardSessions(Mutex<Vec<OpenSession>>);

impl DashboardSessions {
    pub fn open(&self, login: DashboardLogin, now: Instant) {
        let mut sessions = self.0.lock();
        sessions.retain(|session| !session.is_over(now));
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = (0..sessions.len()).min_by_key(|at| sessions[*at].used_at)
        {
            sessions.swap_remove(oldest);
        }
        sessions.push(OpenSession { login, begun_at: now, used_at: now });
    }

    /// The login of a token; it counts as used now. All tokens are compared, so that the time tells nothing.
    pub fn find(&self, token: &str, now: Instant) -> Option<DashboardLogin> {
        let mut found = None;
        for session in self.0.lock().iter_mut() {
            if session.login.token.is(token) && !session.is_over(now) {
                session.used_at = now;
                found = Some(session.login.clone());
            }
        }
        found
    }

    pub fn close(&self, token: &SecretToken) {
        self.0.lock().retain(|session| session.login.token.0 != token.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, number: u8) -> DashboardLogin {
        DashboardLogin {
            user: user.into(),
            secret: UserSecret::Plain(b"x".to_vec().into()),
            token: SecretToken::new([number; 32]),
            csrf: SecretToken::new([255; 32]),
        }
    }

    fn token(number: u8) -> String {
        SecretToken::new([number; 32]).hex()
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_or_too_old_or_closed() {
        let (sessions, start) = (DashboardSessions::default(), Instant::now());
        let minutes = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let user = |number: u8, now: Instant| sessions.find(&token(number), now).map(|login| login.user.to_string());
        sessions.open(login("ann", 1), start);
        assert_eq!(user(1, minutes(29)).as_deref(), Some("ann"));
        assert_eq!(user(1, minutes(58)).as_deref(), Some("ann"), "each use begins the time anew");
        assert_eq!(user(1, minutes(88)), None, "nobody used it for half an hour");
        sessions.open(login("joe", 2), start);
        (0..72).for_each(|ten| assert!(user(2, minutes(ten * 10)).is_some(), "{ten}"));
        assert_eq!(user(2, minutes(720)), None, "half a day old");
        sessions.open(login("eve", 3), start);
        sessions.close(&SecretToken::new([3; 32]));
        assert_eq!(user(3, start), None);
        for wrong in ["", "0", &token(4), &token(3).to_uppercase()] {
            assert!(sessions.find(wrong, start).is_none(), "{wrong}");
        }
    }

    #[test]
    fn there_are_so_many_sessions_at_most_and_the_one_used_longest_ago_ends_for_another() {
        let (sessions, start) = (DashboardSessions::default(), Instant::now());
        for number in 0..SESSIONS_MAX as u8 {
            sessions.open(login("ann", number), start + Duration::from_secs(u64::from(number)));
        }
        let now = start + Duration::from_secs(100);
        assert!(sessions.find(&token(0), now).is_some());
        sessions.open(login("ann", 200), now);
        assert_eq!([0, 1, 2, 200].map(|number| sessions.find(&token(number), now).is_some()), [true, false, true, true]);
    }
}
