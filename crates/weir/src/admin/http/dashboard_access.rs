//! Access to the dashboard: the way of the connection, the login, the session of each request, and proof that an order is the page's own.
//!
//! Users are those of the console (`admin_users`, `stats_users`), proved by `pool_passwd`. Rights are looked at again for each request.

use super::api_error::ApiError;
use super::dashboard::{Dashboard, read_json, text_of};
use super::dashboard_sessions::{DashboardLogin, SecretToken};
use crate::auth::guesses::{CROWD_PERIOD, ProofOrigin, ProofPermit, ProofTurn};
use crate::auth::throttle::ProofVerdict;
use crate::log::Level;
use crate::runtime::shared::SharedState;
use axum::body::Body;
use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_config::passwd::UserSecret;
use weir_config::visibility::Viewer;
use weir_session::metrics::WorkerCounter;
use weir_wire::scram::SaltedKeys;
use zeroize::Zeroizing;

/// A login that earlier wrong ones would hold up for longer is sent away: waiting requests hold connections that others need.
const LOGIN_WAIT_MAX: Duration = Duration::from_secs(2);
/// A refusal comes no sooner, which hides the time that a user's kind of password takes.
const REFUSAL_AFTER: Duration = Duration::from_millis(20);
/// Of PostgreSQL's names.
const NAME_BYTES_MAX: usize = 63;
const COOKIE: &str = "weir_session";
const CSRF_HEADER: &str = "x-csrf-token";

/// Only files of ours, nothing inline, in no other page's frame.
const CONTENT_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// The first page without a dashboard.
const PAGES: &str = "/metrics  numbers for Prometheus\n/healthz  the process works\n/readyz   clients can be served\n\
    /primary  clients can write\n/standby  a standby takes reads\n/leader   this host leads its group\n";

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOrigin {
    pub address: IpAddr,
    pub channel: HttpChannel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpChannel {
    Plain,
    Tls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DashboardRole {
    Admin,
    Stats,
}

impl DashboardRole {
    /// `None`: no user of the dashboard.
    fn of(config: &Config, user: &str) -> Option<DashboardRole> {
        let is_in = |list: &[String]| list.iter().any(|name| name == user);
        if is_in(&config.admin.users) {
            return Some(DashboardRole::Admin);
        }
        is_in(&config.admin.stats_users).then_some(DashboardRole::Stats)
    }

    pub fn word(self) -> &'static str {
        match self {
            DashboardRole::Admin => "admin",
            DashboardRole::Stats => "stats",
        }
    }

    pub fn viewer(self) -> Viewer {
        match self {
            DashboardRole::Admin => Viewer::operator(),
            DashboardRole::Stats => Viewer::monitor(),
        }
    }
}

/// The user of a request, as of now.
#[derive(Clone)]
pub struct DashboardUser {
    pub name: Arc<str>,
    pub role: DashboardRole,
    pub address: IpAddr,
    pub login: DashboardLogin,
}

/// The user of a request that only users in `admin_users` may make.
pub struct AdminUser(pub DashboardUser);

impl<S: Sync> FromRequestParts<S> for AdminUser {
    type Rejection = ApiError;

    /// Cancel safe. A request without a user has not passed `check_session`.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<AdminUser, ApiError> {
        let user = parts.extensions.get::<DashboardUser>().ok_or_else(ApiError::fault)?;
        match user.role {
            DashboardRole::Admin => Ok(AdminUser(user.clone())),
            DashboardRole::Stats => {
                let error = ApiError::new(StatusCode::FORBIDDEN, "42501", "only users in admin_users may do this");
                Err(error.hint("admin_users in the configuration names them."))
            }
        }
    }
}

/// Lets requests in if the dashboard is on and the connection is safe enough, and adds headers that bind browsers.
pub async fn check_way(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(origin): Extension<ConnectionOrigin>,
    request: Request,
    next: Next,
) -> Response {
    let (is_page, config) = (request.uri().path() == "/", dashboard.shared.config.load_full());
    let mut response = match why_not(&config, origin) {
        Some(_) if is_page && !config.admin.dashboard.is_on => PAGES.into_response(),
        Some(why) if is_page => (why.status, format!("{}\n{}\n", why.message, why.hint)).into_response(),
        Some(why) => why.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn why_not(config: &Config, origin: ConnectionOrigin) -> Option<ApiError> {
    let rules = &config.admin.dashboard;
    if !rules.is_on {
        return Some(ApiError::not_found("the dashboard is off").hint("dashboard = on turns it on."));
    }
    if rules.allows_plain || origin.channel == HttpChannel::Tls || origin.address.to_canonical().is_loopback() {
        return None;
    }
    let error =
        ApiError::new(StatusCode::FORBIDDEN, "not_encrypted", "the dashboard is not served without encryption to other hosts");
    Some(error.hint("Ask by https, which ssl = on with ssl_cert and ssl_key gives; dashboard_insecure = on does without."))
}

/// Finds the user of a request. A request that changes something must bear the session's token, too.
pub async fn check_session(
    State(dashboard): State<Arc<Dashboard>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let user = dashboard.user_of(&request)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_own_page(request.headers())?;
        let token = request.headers().get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        if !token.is_some_and(|token| user.login.csrf.is(token)) {
            let error = ApiError::new(StatusCode::FORBIDDEN, "csrf", "the header X-CSRF-Token is missing or wrong");
            return Err(error.hint("/api/v1/me tells the token of the session."));
        }
    }
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

/// Browsers name the page that sends a request; another server's page has no business here.
fn check_own_page(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let (host, origin) = (headers.get(header::HOST).and_then(|host| host.to_str().ok()), origin.to_str().unwrap_or_default());
    match origin.split_once("://") {
        Some(("http" | "https", of)) if Some(of) == host => Ok(()),
        _ => Err(ApiError::new(StatusCode::FORBIDDEN, "origin", "the request comes from another server's page")),
    }
}

impl Dashboard {
    /// The name tells Weirs on one host apart: cookies do not know ports.
    fn cookie(&self) -> String {
        format!("{COOKIE}_{}", self.shared.config.load().admin.metrics_port)
    }

    fn user_of(&self, request: &Request) -> Result<DashboardUser, ApiError> {
        let not_known =
            || ApiError::new(StatusCode::UNAUTHORIZED, "28000", "no login, or it has ended").hint("POST /api/v1/login");
        let origin = request.extensions().get::<ConnectionOrigin>().ok_or_else(ApiError::fault)?;
        let token = cookie_of(request.headers(), &self.cookie()).ok_or_else(not_known)?;
        let login = self.sessions.find(token, Instant::now()).ok_or_else(not_known)?;
        match self.role_now(&login) {
            Some(role) => Ok(DashboardUser { name: login.user.clone(), role, address: origin.address, login }),
            None => {
                self.sessions.close(&login.token);
                Err(not_known())
            }
        }
    }

    /// `None` if a reload took the user's rights, or his password has changed.
    fn role_now(&self, login: &DashboardLogin) -> Option<DashboardRole> {
        let role = DashboardRole::of(&self.shared.config.load(), &login.user)?;
        let is_same = self.shared.access.peek_files().passwords.get(login.user.as_bytes()) == Some(&login.secret);
        is_same.then_some(role)
    }

    /// True while a stream of this login may go on; it counts as used.
    pub fn is_known(&self, login: &DashboardLogin) -> bool {
        self.sessions.find(&login.token.hex(), Instant::now()).is_some_and(|login| self.role_now(&login).is_some())
    }

    fn count(&self, counter: WorkerCounter) {
        // The last ones are the control thread's, on which requests are answered.
        if let Some(counters) = self.shared.counters.last() {
            counters.count(counter);
        }
    }

    /// Cancel safe: an interrupted proof counts as wrong. Looks for a place again, for `LOGIN_WAIT_MAX` at most: places come free on all threads, whose
    /// event loops have no bell in common.
    async fn take_place(&self, address: IpAddr, user: &str) -> Result<ProofPermit, ApiError> {
        let guesses = &self.shared.access.guesses;
        let burst = self.shared.config.load().auth.failures_max;
        let visitor = guesses.visitor(ProofOrigin::Address(address), user);
        let limit = Instant::now() + LOGIN_WAIT_MAX;
        let wait_s = loop {
            match guesses.take(visitor, burst) {
                ProofTurn::Judge(permit, wait) if wait <= LOGIN_WAIT_MAX => {
                    tokio::time::sleep(wait).await;
                    return Ok(permit);
                }
                ProofTurn::Judge(permit, wait) => {
                    permit.settle(ProofVerdict::None);
                    break wait.as_secs() + 1;
                }
                ProofTurn::Crowded if Instant::now() < limit => tokio::time::sleep(CROWD_PERIOD).await,
                ProofTurn::Crowded => break 1,
                ProofTurn::Refused(wait_s) => break wait_s,
            }
        };
        self.count(WorkerCounter::LoginsSlowed);
        Err(ApiError::busy("too many failed logins from this address", wait_s))
    }
}

fn cookie_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(of, _)| *of == name)
        .map(|(_, v)| v)
}

/// The entry that the password fits. Takes as long without one. Blocks for some milliseconds.
fn proven(shared: &SharedState, user: &str, password: &[u8]) -> Option<UserSecret> {
    let files = shared.access.files();
    match files.passwords.get(user.as_bytes()) {
        Some(secret) => secret.matches(user.as_bytes(), password).then(|| secret.clone()),
        None => {
            let iterations = files.passwords.usual_iterations().unwrap_or_else(|| shared.access.challenges.iterations());
            let _ = SaltedKeys::derive(password, &shared.access.salt_secret[..16], iterations);
            None
        }
    }
}

/// Cancel safe: an interrupted proof counts as wrong.
pub async fn log_in(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(origin): Extension<ConnectionOrigin>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    check_own_page(&headers)?;
    let asked = read_json(body).await?;
    let (user, password) =
        (text_of(&asked, "user")?.to_owned(), Zeroizing::new(text_of(&asked, "password")?.as_bytes().to_vec()));
    drop(asked);
    let Ok(_turn) = dashboard.logins.try_acquire() else { return Err(ApiError::busy("too many logins at once", 1)) };
    if user.len() > NAME_BYTES_MAX {
        return Err(ApiError::bad_request(format!("a name has {NAME_BYTES_MAX} bytes at most")));
    }
    let permit = dashboard.take_place(origin.address, &user).await?;
    let judged_at = tokio::time::Instant::now();
    let (shared, name) = (dashboard.shared.clone(), user.clone());
    let secret = tokio::task::spawn_blocking(move || proven(&shared, &name, &password)).await.unwrap_or(None);
    let role = DashboardRole::of(&dashboard.shared.config.load(), &user);
    let log = &dashboard.shared.log;
    let Some((secret, role)) = secret.zip(role) else {
        permit.settle(ProofVerdict::Wrong);
        dashboard.count(WorkerCounter::LoginsFailed);
        log.say(
            Level::Warning,
            format_args!("dashboard: login failed for user \"{}\" from {}", user.escape_debug(), origin.address),
        );
        tokio::time::sleep_until(judged_at + REFUSAL_AFTER).await;
        let error =
            ApiError::new(StatusCode::UNAUTHORIZED, "28P01", "user or password is wrong, or the user may not use the dashboard");
        return Err(error.hint("admin_users and stats_users name those who may, pool_passwd has their passwords."));
    };
    permit.settle(ProofVerdict::Right);
    log.say(Level::Log, format_args!("dashboard: user \"{user}\" logs in from {} as {}", origin.address, role.word()));
    let login = DashboardLogin {
        user: user.into(),
        secret,
        token: SecretToken::new(crate::random()),
        csrf: SecretToken::new(crate::random()),
    };
    let answer = json!({ "user": &*login.user, "role": role.word(), "csrf": login.csrf.hex() });
    let cookie = cookie_line(&dashboard.cookie(), &login.token.hex(), origin.channel);
    dashboard.sessions.open(login, Instant::now());
    Ok((
        [(header::SET_COOKIE, cookie)],
        axum::response::AppendHeaders([(header::CONTENT_TYPE, "application/json")]),
        answer.to_string(),
    )
        .into_response())
}

fn cookie_line(name: &str, value: &str, channel: HttpChannel) -> String {
    let secure = match channel {
        HttpChannel::Tls => "; Secure",
        HttpChannel::Plain => "",
    };
    format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/{secure}")
}

pub async fn log_out(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(origin): Extension<ConnectionOrigin>,
    Extension(user): Extension<DashboardUser>,
) -> Response {
    dashboard.sessions.close(&user.login.token);
    let cookie = cookie_line(&dashboard.cookie(), "; Max-Age=0", origin.channel);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_the_own_page_may_send_orders() {
        for (pairs, is_own) in [
            (&[("host", "weir:9127")][..], true),
            (&[("host", "weir:9127"), ("origin", "http://weir:9127")], true),
            (&[("host", "weir:9127"), ("origin", "https://weir:9127")], true),
            (&[("host", "weir:9127"), ("origin", "http://weir")], false),
            (&[("host", "weir:9127"), ("origin", "http://evil:9127")], false),
            (&[("host", "weir:9127"), ("origin", "null")], false),
            (&[("origin", "http://weir:9127")], false),
        ] {
            assert_eq!(check_own_page(&headers(pairs)).is_ok(), is_own, "{pairs:?}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = headers(&[("cookie", "a=b; weir_session_9=x; weir_session_91=y; c")]);
        assert_eq!(cookie_of(&headers, "weir_session_91"), Some("y"));
        assert_eq!(cookie_of(&headers, "weir_session"), None);
    }

    #[test]
    fn passwords_travel_encrypted_or_within_this_machine() {
        let mut config = Config::default();
        let code = |config: &Config, address: &str, channel| {
            why_not(config, ConnectionOrigin { address: address.parse().unwrap(), channel }).map(|why| why.code)
        };
        assert_eq!(code(&config, "127.0.0.1", HttpChannel::Tls).as_deref(), Some("not_found"), "it is off");
        config.admin.dashboard.is_on = true;
        for (address, channel, expected) in [
            ("127.0.0.1", HttpChannel::Plain, None),
            ("::1", HttpChannel::Plain, None),
            ("::ffff:127.0.0.1", HttpChannel::Plain, None),
            ("10.0.0.1", HttpChannel::Plain, Some("not_encrypted")),
            ("2001:db8::1", HttpChannel::Plain, Some("not_encrypted")),
            ("10.0.0.1", HttpChannel::Tls, None),
        ] {
            assert_eq!(code(&config, address, channel).as_deref(), expected, "{address} {channel:?}");
        }
        config.admin.dashboard.allows_plain = true;
        assert_eq!(code(&config, "10.0.0.1", HttpChannel::Plain), None);
    }

    #[test]
    fn roles_are_those_of_the_console() {
        let mut config = Config::default();
        config.admin.users = vec!["ann".into()];
        config.admin.stats_users = vec!["ann".into(), "joe".into()];
        let word = |user: &str| DashboardRole::of(&config, user).map(DashboardRole::word);
        assert_eq!([word("ann"), word("joe"), word("eve"), word("")], [Some("admin"), Some("stats"), None, None]);
    }
}
