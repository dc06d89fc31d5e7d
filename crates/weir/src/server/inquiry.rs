//! Asks a server about a user: verifier (`auth_query`), right to log in, role memberships.
//!
//! Each worker asks one question at a time over one connection, so that a storm of logins costs a server little; databases with their own
//! `auth_user` or `auth_dbname` share up to eight more. Answers are believed for `auth_cache_time`. Clients do not shape the connection:
//! user names travel as values, and only `pg_catalog` is searched.

pub mod viewer;

use crate::auth::access::UserCredential;
use crate::auth::own_login::{self, OwnUse};
use crate::runtime::bounds;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::kept_inquiries::{InquiryConn, InquiryLogin, LaneGrant, LaneKind};
use crate::runtime::pool::server_conn::{MessageConn, OpenError, ServerAddress, ServerLogin};
use crate::runtime::pool::server_login;
use crate::runtime::worker::Worker;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::passwd::UserSecret;
use weir_io::reactor::parked;
use weir_wire::frame::{back, front};
use weir_wire::{back as server, write};
use zeroize::Zeroizing;

/// Roles of the user $1, including itself. By `pg_has_role` a superuser is a member of every role, which `pg_hba.conf` does not count
/// (`is_member_of_role_nosuper`).
const GROUPS_QUERY: &str = "WITH RECURSIVE member(oid) AS (SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) $1 \
    UNION SELECT m.roleid FROM pg_catalog.pg_auth_members m, member WHERE m.member OPERATOR(pg_catalog.=) member.oid) \
    SELECT r.rolname FROM pg_catalog.pg_roles r, member WHERE r.oid OPERATOR(pg_catalog.=) member.oid";

/// True if the user $1 may log in now, and for how many seconds at least. No row: no such role.
const ROLE_QUERY: &str = "SELECT rolcanlogin AND (rolvaliduntil IS NULL OR rolvaliduntil OPERATOR(pg_catalog.>) pg_catalog.now()), \
    CASE WHEN pg_catalog.isfinite(rolvaliduntil) \
    THEN pg_catalog.floor(EXTRACT(epoch FROM rolvaliduntil OPERATOR(pg_catalog.-) pg_catalog.now()))::pg_catalog.text END \
    FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) $1";

/// True if a connection limit of 0 bars the user $1 from the database $2; superusers are exempt. Source: `InitializeSessionUserId` in
/// miscinit.c, `CheckMyDatabase` in postinit.c.
const LIMITS_QUERY: &str = "SELECT NOT r.rolsuper AND (r.rolconnlimit OPERATOR(pg_catalog.=) 0 OR d.datconnlimit OPERATOR(pg_catalog.=) 0) \
    FROM pg_catalog.pg_roles AS r, pg_catalog.pg_database AS d \
    WHERE r.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name AND d.datname OPERATOR(pg_catalog.=) $2::pg_catalog.name";

/// A missing user may be created any moment.
const ABSENT_LIFETIME: Duration = Duration::from_secs(1);

/// Names on servers have 63 bytes by default; unknown users must not cost much memory.
const NAME_BYTES_MAX: usize = 255;

const LOOK_PERIOD: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
pub enum InquiryError {
    #[error("no server is up that could be asked")]
    NoServer,
    #[error("nobody answered in time (auth_query_timeout)")]
    TimedOut,
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("auth_query gave {0}")]
    Answer(&'static str),
    #[error("database \"{0}\", in which it is asked (auth_dbname), was disabled by an administrator")]
    Disabled(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRight {
    Granted,
    /// The user or the database has a connection limit of 0.
    Withdrawn,
}

type Row = Vec<Option<Zeroizing<Vec<u8>>>>;

/// Roles of a user, including itself. Cancel safe.
pub async fn groups(w: &Worker, user: &str, deadline: Instant) -> Result<Arc<BTreeSet<String>>, InquiryError> {
    if user.len() > NAME_BYTES_MAX {
        return Ok(Arc::default());
    }
    let lifetime = Duration::from_millis(w.peek_config().auth.cache_ms);
    if let Some(known) = w.shared.access.groups(user, lifetime) {
        return Ok(known);
    }
    let mut turn = InquiryTurn::take(w, None, deadline).await?;
    // The task before may have asked this question.
    if let Some(known) = w.shared.access.groups(user, lifetime) {
        return Ok(known);
    }
    let mut answers = turn.ask(&[GROUPS_QUERY], &[user], deadline).await?;
    let rows = answers.pop().unwrap_or_default();
    let name = |row: Row| row.into_iter().next().flatten().map(|name| String::from_utf8_lossy(&name).into_owned());
    let groups: Arc<BTreeSet<String>> = Arc::new(rows.into_iter().filter_map(name).collect());
    w.shared.access.learn_groups(user, groups.clone());
    Ok(groups)
}

/// Returns the answer of a database's `auth_query`. Cancel safe.
pub async fn credential(w: &Worker, user: &str, database: &str, deadline: Instant) -> Result<UserCredential, InquiryError> {
    if user.len() > NAME_BYTES_MAX {
        return Ok(UserCredential::Nobody);
    }
    check_gate(w, database)?;
    let question = question(w, user, database);
    if let Some(known) = w.shared.access.asked(&question) {
        return Ok(known);
    }
    let mut turn = InquiryTurn::take(w, Some(database), deadline).await?;
    if let Some(known) = w.shared.access.asked(&question) {
        return Ok(known);
    }
    let (query, cache_ms) = {
        let config = w.peek_config();
        (config.look_up(Some(database)).query.to_owned(), config.auth.query_cache_ms.unwrap_or(config.auth.cache_ms))
    };
    // One round trip for both. Weir's own query sees a password's end that an old `auth_query` overlooks.
    let mut answers = turn.ask(&[&query, ROLE_QUERY], &[user], deadline).await?;
    let (role, found) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    let (credential, valid_for) = judge(user, &found, &role)?;
    let lifetime = match &credential {
        UserCredential::Secret(_) | UserCredential::NoPassword => valid_for.unwrap_or(Duration::MAX),
        UserCredential::Nobody => ABSENT_LIFETIME,
    };
    w.shared.access.learn_asked(&question, credential.clone(), lifetime.min(Duration::from_millis(cache_ms)));
    Ok(credential)
}

/// Known answers are refused, too: DISABLE counts at once.
fn check_gate(w: &Worker, database: &str) -> Result<(), InquiryError> {
    let config = w.peek_config();
    let place = config.look_up_place(database);
    if w.shared.pause_state.own(place).disabled { Err(InquiryError::Disabled(place.to_owned())) } else { Ok(()) }
}

/// Doubts an answer that a client did not match: the password may have changed.
pub fn doubt(w: &Worker, user: &str, database: &str) {
    w.shared.access.doubt_asked(&question(w, user, database));
}

/// Cache key with all that decides the answer, so that no database believes the answer of another's query.
fn question(w: &Worker, user: &str, database: &str) -> String {
    let config = w.peek_config();
    let look_up = config.look_up(Some(database));
    // No name has a zero byte, and the query comes last.
    [user, look_up.user, look_up.database, look_up.query].join("\0")
}

/// Asks if a user may have connections at all, which a full server's error does not tell. Cancel safe.
pub async fn may_connect(w: &Worker, user: &str, database: &str, deadline: Instant) -> Result<ConnectRight, InquiryError> {
    let mut answers = InquiryTurn::take(w, None, deadline).await?.ask(&[LIMITS_QUERY], &[user, database], deadline).await?;
    let rows = answers.pop().unwrap_or_default();
    let is_none = rows.first().and_then(|row| row.first()?.as_ref()).is_some_and(|cell| cell.as_slice() == b"t");
    Ok(if is_none { ConnectRight::Withdrawn } else { ConnectRight::Granted })
}

/// Returns the credential, and the time until the role expires.
fn judge(user: &str, found: &[Row], role: &[Row]) -> Result<(UserCredential, Option<Duration>), InquiryError> {
    let nobody = Ok((UserCredential::Nobody, None));
    let Some([may_log_in, seconds]) = role.first().map(Vec::as_slice) else { return nobody };
    let secret = match found {
        [] => return nobody,
        [row] => match row.as_slice() {
            [Some(name), _, ..] if name.as_slice() != user.as_bytes() => {
                return Err(InquiryError::Answer("a row of another user"));
            }
            [Some(_), secret, ..] => secret,
            // A function with OUT parameters that finds no user gives a row of nulls.
            [None, None, ..] => return nobody,
            _ => return Err(InquiryError::Answer("a row without name and verifier")),
        },
        _ => return Err(InquiryError::Answer("more than one row")),
    };
    if may_log_in.as_ref().is_none_or(|may| may.as_slice() != b"t") {
        return nobody;
    }
    let text = seconds.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
    let valid_for = text.map(|text| Duration::from_secs(text.parse().unwrap_or(0)));
    // Without a password there is nothing to prove.
    let Some(secret) = secret else { return Ok((UserCredential::NoPassword, valid_for)) };
    match UserSecret::parse(secret, None) {
        Ok(secret @ (UserSecret::Md5(_) | UserSecret::Scram(_))) => Ok((UserCredential::Secret(secret), valid_for)),
        Ok(UserSecret::Plain(_) | UserSecret::Keys(..)) | Err(_) => {
            Err(InquiryError::Answer("a password that is neither md5 nor a SCRAM-SHA-256 verifier"))
        }
    }
}

struct InquiryTurn<'a> {
    w: &'a Worker,
    asker: InquiryLogin,
    line: Option<InquiryConn>,
}

impl<'a> InquiryTurn<'a> {
    /// `None`: for questions other than look-ups.
    async fn take(w: &'a Worker, client_database: Option<&str>, deadline: Instant) -> Result<InquiryTurn<'a>, InquiryError> {
        let (own, asker) = (w.reactor.current_task(), asker(w, client_database));
        let kind = if asker == self::asker(w, None) { LaneKind::Common } else { LaneKind::OfDatabase };
        let forget = || w.inquiry.waiting.borrow_mut().retain(|(task, _)| *task != own);
        loop {
            let taken = w.inquiry.lanes.borrow_mut().take(&asker, kind);
            if let Some(LaneGrant { kept, evicted }) = taken {
                forget();
                if let Some(line) = evicted {
                    line.talk.part(w);
                }
                return Ok(InquiryTurn { w, asker, line: kept });
            }
            if w.now() >= deadline {
                forget();
                return Err(InquiryError::TimedOut);
            }
            let is_listed = w.inquiry.waiting.borrow().iter().any(|(task, _)| *task == own);
            if !is_listed {
                w.inquiry.waiting.borrow_mut().push_back((own, asker.clone()));
            }
            w.reactor.wake_at(deadline);
            parked().await;
        }
    }

    /// Runs queries in one round trip.
    async fn ask(&mut self, queries: &[&str], values: &[&str], deadline: Instant) -> Result<Vec<Vec<Row>>, InquiryError> {
        let w = self.w;
        match self.line.take() {
            Some(mut line) if line.is_current(w) => {
                line.talk.renew(w, deadline);
                match line.run(w, queries, values).await {
                    Err(OpenError::Broke { .. }) if w.now() < deadline => line.talk.part(w),
                    other => return self.keep(line, other),
                }
            }
            Some(line) => line.talk.part(w),
            None => {}
        }
        let mut line = InquiryConn::open(w, &self.asker, deadline).await?;
        let answer = line.run(w, queries, values).await;
        self.keep(line, answer)
    }

    /// A statement's error leaves the connection whole.
    fn keep(&mut self, line: InquiryConn, answer: Result<Vec<Vec<Row>>, OpenError>) -> Result<Vec<Vec<Row>>, InquiryError> {
        if matches!(answer, Ok(_) | Err(OpenError::Refused { .. })) {
            self.line = Some(line);
        } else {
            line.talk.part(self.w);
        }
        answer.map_err(InquiryError::Server)
    }
}

impl Drop for InquiryTurn<'_> {
    fn drop(&mut self) {
        let inquiry = &self.w.inquiry;
        inquiry.lanes.borrow_mut().give_back(&self.asker, self.line.take(), self.w.now());
        let lanes = inquiry.lanes.borrow();
        let mut waiting = inquiry.waiting.borrow_mut();
        // One task that waits for this lane, and one that may evict it.
        let next =
            [waiting.iter().position(|(_, asker)| *asker == self.asker), waiting.iter().position(|(_, asker)| !lanes.has(asker))];
        let mut next: Vec<usize> = next.into_iter().flatten().collect();
        next.sort_unstable();
        // From behind, so that indexes stay valid.
        for at in next.into_iter().rev() {
            if let Some((task, _)) = waiting.remove(at) {
                self.w.reactor.wake(task);
            }
        }
    }
}

/// User and database for questions about a database's users; `None`: for all others.
fn asker(w: &Worker, client_database: Option<&str>) -> InquiryLogin {
    let config = w.peek_config();
    let look_up = config.look_up(client_database);
    let user = [look_up.user, &config.check.user].into_iter().find(|user| !user.is_empty());
    InquiryLogin { user: user.unwrap_or("postgres").to_string(), database: look_up.database.to_string() }
}

/// Servers that may be asked, the primary first. Waits until one is known; empty at the deadline. Cancel safe.
pub async fn servers(w: &Worker, deadline: Instant) -> Vec<ServerAddress> {
    loop {
        let known: Vec<usize> = {
            let view = w.view();
            let others = (0..view.nodes.len()).filter(|&at| view.is_up(at) && view.primary != Some(at));
            view.primary.into_iter().chain(others).collect()
        };
        let known: Vec<ServerAddress> = known.into_iter().filter_map(|at| w.address_of(at)).collect();
        if !known.is_empty() || w.now() >= deadline {
            return known;
        }
        w.shared.request_role_check(RoleCheckReason::NodeAwaited);
        w.wake_at_new_view();
        w.reactor.wake_at(deadline.min(Instant::now() + LOOK_PERIOD));
        parked().await;
    }
}

pub async fn talk_to(w: &Worker, address: &ServerAddress, deadline: Instant) -> Result<MessageConn, OpenError> {
    enter(w, address, &asker(w, None), deadline).await
}

async fn enter(w: &Worker, address: &ServerAddress, asker: &InquiryLogin, deadline: Instant) -> Result<MessageConn, OpenError> {
    let InquiryLogin { user, database } = asker;
    let (generation, files) = (w.shared.access.generation(), w.shared.access.files());
    let own = {
        let config = w.peek_config();
        let is_checker = *user == config.check.user && !config.check.password.is_empty();
        is_checker.then(|| UserSecret::parse(config.check.password.as_bytes(), files.key.as_ref()).ok()).flatten()
    };
    let secret = own.as_ref().or_else(|| files.passwords.get(user));
    let parameters: Vec<(&str, &str)> = own_login::in_packet(OwnUse::Questions).collect();
    let login = ServerLogin { user, database, secret, generation, parameters: &parameters };
    let (mut talk, greeting) = MessageConn::enter(w, address, &login, deadline).await?;
    let words =
        own_login::after_login(OwnUse::Questions, greeting.reported("server_version"), greeting.reported("server_encoding"));
    if let Some(words) = words
        && let Err(error) = talk.query(w, address, &words).await
    {
        talk.part(w);
        return Err(error);
    }
    Ok(talk)
}

impl InquiryConn {
    /// Connects to the primary, or to another server if it is unreachable.
    async fn open(w: &Worker, asker: &InquiryLogin, deadline: Instant) -> Result<InquiryConn, InquiryError> {
        let mut first = InquiryError::NoServer;
        for address in servers(w, deadline).await {
            match InquiryConn::open_to(w, asker, address, deadline).await {
                Ok(line) => return Ok(line),
                Err(error) => {
                    w.shared.request_role_check(RoleCheckReason::LoginFailed);
                    let goes_on = error.is_unreachable();
                    if matches!(first, InquiryError::NoServer) {
                        first = error.into();
                    }
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        Err(first)
    }

    async fn open_to(
        w: &Worker,
        asker: &InquiryLogin,
        address: ServerAddress,
        deadline: Instant,
    ) -> Result<InquiryConn, OpenError> {
        let generation = w.shared.access.generation();
        let talk = enter(w, &address, asker, deadline).await?;
        Ok(InquiryConn { talk, address, generation })
    }

    fn is_current(&self, w: &Worker) -> bool {
        let view = w.view();
        let is_up = view.nodes.iter().position(|n| n.id == self.address.node).is_some_and(|at| view.is_up(at));
        is_up && self.generation == w.shared.access.generation()
    }

    async fn run(&mut self, w: &Worker, queries: &[&str], values: &[&str]) -> Result<Vec<Vec<Row>>, OpenError> {
        let mut out = Vec::with_capacity(512);
        for query in queries {
            write::message(&mut out, front::PARSE, |out| {
                write::cstr(out, b"");
                write::cstr(out, query.as_bytes());
                out.extend(0u16.to_be_bytes());
            });
            write::message(&mut out, front::BIND, |out| {
                write::cstr(out, b"");
                write::cstr(out, b"");
                out.extend(0u16.to_be_bytes());
                out.extend((values.len() as u16).to_be_bytes());
                for value in values {
                    out.extend((value.len() as u32).to_be_bytes());
                    out.extend(value.as_bytes());
                }
                out.extend(0u16.to_be_bytes());
            });
            write::message(&mut out, front::EXECUTE, |out| {
                write::cstr(out, b"");
                out.extend(0u32.to_be_bytes());
            });
        }
        write::bare(&mut out, front::SYNC);
        self.talk.ask_for(w, &self.address, &out, &bounds::ANSWER).await?;
        self.read(w, queries.len()).await
    }

    async fn read(&mut self, w: &Worker, count: usize) -> Result<Vec<Vec<Row>>, OpenError> {
        let mut answers = Vec::with_capacity(count);
        let mut rows = Vec::new();
        let mut error = None;
        loop {
            let (tag, body) = self.talk.next(w, &self.address).await?;
            let body = Zeroizing::new(body);
            match tag {
                back::DATA_ROW => {
                    let row = server::read_row(&body).ok_or_else(|| server_login::protocol(&self.address, "malformed row"))?;
                    rows.push(row.into_iter().map(|value| value.map(|value| value.to_vec().into())).collect());
                }
                back::COMMAND_COMPLETE => answers.push(std::mem::take(&mut rows)),
                back::ERROR => error = Some(server_login::refused(&self.address, &body)),
                back::READY => {
                    answers.resize_with(count, Vec::new);
                    return error.map_or(Ok(answers), Err);
                }
                _ => {}
            }
        }
    }
}

pub fn own_texts() -> Vec<String> {
    [GROUPS_QUERY, ROLE_QUERY, LIMITS_QUERY, viewer::PRIVILEGES_QUERY].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "md5ff193827f67bab881badb54115e0da72";

    fn row(values: &[Option<&str>]) -> Row {
        values.iter().map(|value| value.map(|value| value.as_bytes().to_vec().into())).collect()
    }

    /// Checks the result of `judge` for the rows of both queries.
    fn check(found: &[&[Option<&str>]], role: &[&[Option<&str>]], expected: &str) {
        let rows = |all: &[&[Option<&str>]]| all.iter().map(|values| row(values)).collect::<Vec<_>>();
        let judged = match judge("joe", &rows(found), &rows(role)) {
            Ok((UserCredential::Secret(_), None)) => "secret".into(),
            Ok((UserCredential::Secret(_), Some(time))) => format!("secret for {} s", time.as_secs()),
            Ok((UserCredential::NoPassword, _)) => "no password".into(),
            Ok((UserCredential::Nobody, _)) => "nobody".into(),
            Err(error) => error.to_string(),
        };
        assert_eq!(judged, expected, "{found:?} {role:?}");
    }

    #[test]
    fn a_role_that_may_not_log_in_has_no_secret_whatever_the_query_says() {
        let found: &[&[Option<&str>]] = &[&[Some("joe"), Some(MD5)]];
        check(found, &[&[Some("t"), None]], "secret");
        check(found, &[&[Some("t"), Some("17")]], "secret for 17 s");
        check(found, &[&[Some("f"), None]], "nobody");
        check(found, &[&[None, None]], "nobody");
        check(found, &[], "nobody");
    }

    #[test]
    fn an_answer_that_is_no_verifier_of_the_user_is_not_used() {
        let role: &[&[Option<&str>]] = &[&[Some("t"), None]];
        check(&[], role, "nobody");
        check(&[&[Some("joe"), None]], role, "no password");
        check(&[&[None, None]], role, "nobody");
        check(&[&[Some("joe"), None]], &[&[Some("f"), None]], "nobody");
        check(&[&[Some("ann"), None]], role, "auth_query gave a row of another user");
        check(&[&[Some("ann"), Some(MD5)]], role, "auth_query gave a row of another user");
        check(&[&[None, Some(MD5)]], role, "auth_query gave a row without name and verifier");
        check(&[&[Some("joe")]], role, "auth_query gave a row without name and verifier");
        check(&[&[Some("joe"), Some(MD5)], &[Some("joe"), Some(MD5)]], role, "auth_query gave more than one row");
        let neither = "auth_query gave a password that is neither md5 nor a SCRAM-SHA-256 verifier";
        for text in ["hunter2", "TEXThunter2", "AESxyz==", "", "SCRAM-SHA-256$x"] {
            check(&[&[Some("joe"), Some(text)]], role, neither);
        }
    }
}
