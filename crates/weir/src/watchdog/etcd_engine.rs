//! etcd as the engine of a group: one key that holds the state.
//!
//! Reads are linearizable ranges; a change is a transaction that compares the key's revision, which is the version's number. Never a lease of
//! etcd (two seconds at least, begun anew by each new leader, and some end early: etcd #15247), never a serializable read (it may be old).
//!
//! A read goes on to the next endpoint when one does not answer soon, and the first answer counts: each answer has the time of its own
//! question. Endpoints that did not answer are asked last for a while. A change goes to one endpoint, as long as it may have arrived there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_group::{GroupMs, GroupState, StateVersion, VersionNumber};
use zeroize::Zeroizing;

use super::etcd_fault::{ENDPOINTS_MAX, EndpointFailure, EndpointFault, EtcdError, EtcdSettingsError, KEY_BYTES_MAX};
use super::etcd_http::{EtcdAnswer, EtcdEndpoint, EtcdQuestion, QuestionFailure};
use super::etcd_json::{self, EtcdRefusal, EtcdReply, EtcdValue};
use super::etcd_tls::{self, EtcdTlsFiles};
use crate::runtime::server_names::NameResolver;

/// Parts of `wd_lease`: an answer that comes later is of little use, since its lease counts from the question.
const ANSWER_PARTS: u32 = 4;
/// Parts of `wd_lease` after which the next endpoint is asked as well. An etcd at rest answers in a few milliseconds.
const PATIENCE_PARTS: u32 = 16;
/// Parts of `wd_lease` for a login: etcd derives a key from the password, and agrees on the token.
const LOGIN_PARTS: u32 = 2;
/// Parts of `wd_lease` after which a change goes to no further endpoint.
const CHANGE_PARTS: u32 = 2;
/// Time in which an endpoint that did not answer is asked last.
const PASSED_OVER: Duration = Duration::from_secs(10);
/// Pause after a refused password: each one costs etcd a derivation of a key.
const LOGIN_PAUSE: Duration = Duration::from_secs(5);

const RANGE: &str = "/v3/kv/range";
const TXN: &str = "/v3/kv/txn";
const AUTHENTICATE: &str = "/v3/auth/authenticate";

pub struct EtcdSettings {
    /// As `http://host:2379`, all of one cluster; the first is preferred.
    pub endpoints: Vec<String>,
    pub user: Option<EtcdUser>,
    /// One for each group.
    pub key: String,
    pub tls: EtcdTlsFiles,
    pub lease_ms: GroupMs,
    /// Clock of leases: CLOCK_BOOTTIME in milliseconds.
    pub now: fn() -> GroupMs,
}

#[derive(Clone)]
pub struct EtcdUser {
    pub name: String,
    pub password: Zeroizing<String>,
}

/// A confirmed look at the key: no newer version than this was decided before `asked_at`.
#[derive(Debug, PartialEq, Eq)]
pub struct EtcdSight {
    /// Before the first byte of the question that was answered was sent.
    pub asked_at: GroupMs,
    /// `None`: there is no such key.
    pub version: Option<StateVersion>,
}

#[derive(Debug)]
pub enum EtcdChange {
    Made(StateVersion),
    /// Another version stood there, or none.
    Refused(Option<StateVersion>),
    /// The question was sent and not answered: it may have been obeyed, or be obeyed later. A read tells.
    Unknown(EndpointFailure),
}

/// For one thread, with a `LocalSet`. Reads and changes may be under way at once; nothing is queued, so the caller bounds their number.
pub struct EtcdEngine {
    core: Rc<EtcdCore>,
}

struct EtcdCore {
    endpoints: Vec<EtcdEndpoint>,
    user: Option<EtcdUser>,
    login: RefCell<EtcdLogin>,
    key: String,
    lease: Duration,
    now: fn() -> GroupMs,
    /// The endpoint that answered last.
    preferred: Cell<usize>,
    /// Until then the endpoint is asked last.
    passed_over: RefCell<Vec<Option<Instant>>>,
    /// Cluster that answered first. Another one would have other versions.
    cluster: Cell<Option<u64>>,
}

enum EtcdLogin {
    Needed,
    Token(Rc<str>),
    /// etcd does not ask for users.
    NoUsers,
    Refused {
        until: Instant,
        text: String,
    },
}

/// End of an attempt at one endpoint.
enum AttemptFailure {
    NotDone(EndpointFault),
    Unknown(EndpointFault),
    /// Not the endpoint's fault.
    Key(EtcdError),
}

impl From<QuestionFailure> for AttemptFailure {
    fn from(failure: QuestionFailure) -> AttemptFailure {
        match failure {
            QuestionFailure::Unsent(fault) => AttemptFailure::NotDone(fault),
            QuestionFailure::Unknown(fault) => AttemptFailure::Unknown(fault),
        }
    }
}

impl EtcdEngine {
    /// Reads the files of certificates; connects nowhere.
    pub fn new(settings: EtcdSettings) -> Result<EtcdEngine, EtcdSettingsError> {
        if !(1..=ENDPOINTS_MAX).contains(&settings.endpoints.len()) {
            return Err(EtcdSettingsError::EndpointCount(settings.endpoints.len()));
        }
        if !(1..=KEY_BYTES_MAX).contains(&settings.key.len()) {
            return Err(EtcdSettingsError::KeyLength(settings.key.len()));
        }
        let tls = etcd_tls::client_config(&settings.tls)?;
        let names = Arc::new(NameResolver::default());
        let mut endpoints = Vec::new();
        for text in settings.endpoints {
            match EtcdEndpoint::parse(&text, tls.as_ref(), &names) {
                Ok(Some(endpoint)) => endpoints.push(endpoint),
                Ok(None) => return Err(EtcdSettingsError::NoAuthority(text)),
                Err(fault) => return Err(EtcdSettingsError::Endpoint { endpoint: text, fault }),
            }
        }
        let core = EtcdCore {
            passed_over: RefCell::new(vec![None; endpoints.len()]),
            endpoints,
            user: settings.user,
            login: RefCell::new(EtcdLogin::Needed),
            key: settings.key,
            lease: Duration::from_millis(settings.lease_ms),
            now: settings.now,
            preferred: Cell::new(0),
            cluster: Cell::new(None),
        };
        Ok(EtcdEngine { core: Rc::new(core) })
    }

    /// The present version. Ends within a quarter of the lease, a sixteenth more for each endpoint after the first, and half of the lease more
    /// if a login is needed. Cancel safe.
    pub async fn read(&self) -> Result<EtcdSight, EtcdError> {
        let core = &self.core;
        let patience = core.lease / PATIENCE_PARTS;
        let mut order = core.order().into_iter();
        let (mut next, mut asked, mut failures) = (order.next(), Vec::new(), Vec::new());
        // Ends its attempts when it is dropped.
        let mut attempts = JoinSet::new();
        loop {
            if let Some(at) = next {
                let core = core.clone();
                asked.push(at);
                attempts.spawn_local(async move { (at, core.range(at).await) });
                next = order.next();
            }
            let ended =
                if next.is_some() { timeout(patience, attempts.join_next()).await } else { Ok(attempts.join_next().await) };
            let (at, outcome) = match ended {
                // Nobody answered in time, or an attempt has panicked.
                Err(_) | Ok(Some(Err(_))) => continue,
                Ok(None) => break,
                Ok(Some(Ok(ended))) => ended,
            };
            match outcome {
                Ok(sight) => {
                    asked.into_iter().take_while(|before| *before != at).for_each(|before| core.pass_over(before));
                    core.prefer(at);
                    return Ok(sight);
                }
                Err(AttemptFailure::Key(error)) => return Err(error),
                Err(AttemptFailure::NotDone(fault) | AttemptFailure::Unknown(fault)) => failures.push(core.failed(at, fault)),
            }
        }
        Err(EtcdError::Unanswered { key: core.key.clone(), failures })
    }

    /// Puts the first state there, only if there is no such key. Otherwise as [`EtcdEngine::change`].
    pub async fn create(&self, new: GroupState) -> Result<EtcdChange, EtcdError> {
        self.put(0, new).await
    }

    /// Puts `new` in the place of version `expect`; with counter 0, as [`EtcdEngine::create`]. Error: nothing was changed. Ends within three
    /// quarters of the lease, and half of it more if a login is needed.
    ///
    /// Not cancel safe: the change may be made all the same, as after [`EtcdChange::Unknown`].
    pub async fn change(&self, expect: VersionNumber, new: GroupState) -> Result<EtcdChange, EtcdError> {
        self.put(expect.counter, new).await
    }

    async fn put(&self, expect: u64, new: GroupState) -> Result<EtcdChange, EtcdError> {
        let core = &self.core;
        let new = etcd_json::unnumbered(new);
        let question = EtcdQuestion { path: TXN, body: etcd_json::compare_and_put(&core.key, expect, &new) };
        let (begun, mut failures) = (Instant::now(), Vec::new());
        for at in core.order() {
            match core.transact(at, &question, &new).await {
                Ok(change) => {
                    core.prefer(at);
                    return Ok(change);
                }
                Err(AttemptFailure::Key(error)) => return Err(error),
                Err(AttemptFailure::Unknown(fault)) => return Ok(EtcdChange::Unknown(core.failed(at, fault))),
                Err(AttemptFailure::NotDone(fault)) => failures.push(core.failed(at, fault)),
            }
            if begun.elapsed() >= core.lease / CHANGE_PARTS {
                break;
            }
        }
        Err(EtcdError::Unanswered { key: core.key.clone(), failures })
    }
}

impl EtcdCore {
    /// Endpoints in the order to ask them: the preferred one first, those passed over last.
    fn order(&self) -> Vec<usize> {
        let (now, count, first) = (Instant::now(), self.endpoints.len(), self.preferred.get());
        let passed_over = self.passed_over.borrow();
        let mut order: Vec<usize> = (0..count).map(|at| (first + at) % count).collect();
        order.sort_by_key(|at| passed_over.get(*at).copied().flatten().filter(|until| *until > now));
        order
    }

    fn pass_over(&self, at: usize) {
        if let Some(until) = self.passed_over.borrow_mut().get_mut(at) {
            *until = Some(Instant::now() + PASSED_OVER);
        }
    }

    fn prefer(&self, at: usize) {
        self.preferred.set(at);
        if let Some(until) = self.passed_over.borrow_mut().get_mut(at) {
            *until = None;
        }
    }

    fn failed(&self, at: usize, fault: EndpointFault) -> EndpointFailure {
        self.pass_over(at);
        let endpoint = self.endpoints.get(at).map(|endpoint| endpoint.place.clone()).unwrap_or_default();
        EndpointFailure { endpoint, fault }
    }

    /// Cancel safe.
    async fn range(&self, at: usize) -> Result<EtcdSight, AttemptFailure> {
        let question = EtcdQuestion { path: RANGE, body: etcd_json::range(&self.key) };
        let (reply, asked_at) = self.ask(at, &question).await?;
        let value = reply.value(&self.key).map_err(AttemptFailure::Unknown)?;
        Ok(EtcdSight { asked_at, version: value.map(|value| self.version(value)).transpose()? })
    }

    /// Not cancel safe.
    async fn transact(&self, at: usize, question: &EtcdQuestion, new: &StateVersion) -> Result<EtcdChange, AttemptFailure> {
        let (reply, _) = self.ask(at, question).await?;
        match reply.present(&self.key).map_err(AttemptFailure::Unknown)? {
            None => Ok(EtcdChange::Made(etcd_json::numbered(new.clone(), reply.revision))),
            Some(present) => Ok(EtcdChange::Refused(present.map(|value| self.version(value)).transpose()?)),
        }
    }

    fn version(&self, value: EtcdValue) -> Result<StateVersion, AttemptFailure> {
        let revision = value.revision;
        let version = StateVersion::parse(&value.bytes);
        version
            .map(|version| etcd_json::numbered(version, revision))
            .map_err(|cause| AttemptFailure::Key(EtcdError::Foreign { key: self.key.clone(), revision, cause }))
    }

    /// A question, with a login where one is needed, and once more with a new one where the token is too old.
    async fn ask(&self, at: usize, question: &EtcdQuestion) -> Result<(EtcdReply, GroupMs), AttemptFailure> {
        let endpoint = self.endpoint(at)?;
        let mut is_again = false;
        loop {
            let token = self.token(endpoint).await?;
            let answer = endpoint.ask(question, token.as_deref(), self.lease / ANSWER_PARTS, self.now).await?;
            if answer.status == 200 {
                return Ok((self.reply(&answer)?, answer.asked_at));
            }
            match EtcdRefusal::of(&answer, question.path) {
                EtcdRefusal::Token(_) if !is_again && self.user.is_some() => {
                    self.forget(token.as_deref());
                    is_again = true;
                }
                EtcdRefusal::Token(fault) | EtcdRefusal::Refused(fault) => return Err(AttemptFailure::NotDone(fault)),
                EtcdRefusal::NoUsers => {
                    let text = "authentication is not enabled".into();
                    return Err(AttemptFailure::NotDone(EndpointFault::Refused { status: answer.status, text }));
                }
                EtcdRefusal::Unknown(fault) => return Err(AttemptFailure::Unknown(fault)),
            }
        }
    }

    fn endpoint(&self, at: usize) -> Result<&EtcdEndpoint, AttemptFailure> {
        let none = || AttemptFailure::NotDone(EndpointFault::Foreign("there is no such endpoint".into()));
        self.endpoints.get(at).ok_or_else(none)
    }

    fn reply(&self, answer: &EtcdAnswer) -> Result<EtcdReply, AttemptFailure> {
        let reply = EtcdReply::parse(answer).map_err(AttemptFailure::Unknown)?;
        let first = self.cluster.get().unwrap_or(reply.cluster);
        if first != reply.cluster {
            return Err(AttemptFailure::Unknown(EndpointFault::OtherCluster { first, other: reply.cluster }));
        }
        self.cluster.set(Some(first));
        Ok(reply)
    }

    /// The token in use, or that of a new login. Cancel safe.
    async fn token(&self, endpoint: &EtcdEndpoint) -> Result<Option<Rc<str>>, AttemptFailure> {
        let Some(user) = &self.user else { return Ok(None) };
        match &*self.login.borrow() {
            EtcdLogin::Token(token) => return Ok(Some(token.clone())),
            EtcdLogin::NoUsers => return Ok(None),
            EtcdLogin::Refused { until, text } if Instant::now() < *until => {
                return Err(AttemptFailure::NotDone(EndpointFault::Login(text.clone())));
            }
            EtcdLogin::Needed | EtcdLogin::Refused { .. } => {}
        }
        let question = EtcdQuestion { path: AUTHENTICATE, body: etcd_json::login(&user.name, &user.password) };
        let answer = endpoint.ask(&question, None, self.lease / LOGIN_PARTS, self.now).await;
        // Whatever became of the login: the question after it was not sent.
        let answer = answer.map_err(|failure| AttemptFailure::NotDone(failure.into_fault()))?;
        let login = self.login_of(&answer).map_err(AttemptFailure::NotDone)?;
        let token = if let EtcdLogin::Token(token) = &login { Some(token.clone()) } else { None };
        *self.login.borrow_mut() = login;
        Ok(token)
    }

    fn login_of(&self, answer: &EtcdAnswer) -> Result<EtcdLogin, EndpointFault> {
        if answer.status == 200 {
            let reply = EtcdReply::parse(answer)?;
            let token = reply.token().ok_or_else(|| EndpointFault::Foreign("a login without a token".into()))?;
            return Ok(EtcdLogin::Token(token.into()));
        }
        match EtcdRefusal::of(answer, AUTHENTICATE) {
            EtcdRefusal::NoUsers => Ok(EtcdLogin::NoUsers),
            EtcdRefusal::Token(fault) | EtcdRefusal::Refused(fault) | EtcdRefusal::Unknown(fault) => {
                if let EndpointFault::Login(text) = &fault {
                    let until = Instant::now() + LOGIN_PAUSE;
                    *self.login.borrow_mut() = EtcdLogin::Refused { until, text: text.clone() };
                }
                Err(fault)
            }
        }
    }

    /// Forgets a token that was refused, unless another attempt has got a new one.
    fn forget(&self, token: Option<&str>) {
        let mut login = self.login.borrow_mut();
        let is_same = match &*login {
            EtcdLogin::Token(known) => token == Some(known),
            EtcdLogin::NoUsers => true,
            EtcdLogin::Needed | EtcdLogin::Refused { .. } => false,
        };
        if is_same {
            *login = EtcdLogin::Needed;
        }
    }
}
