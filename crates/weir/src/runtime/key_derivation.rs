//! Waits for password keys, host names, LDAP and PAM without blocking the event loop.

use crate::auth::access::{LooksUp, SaltedPassword};
use crate::auth::blocking_jobs::{BlockingJobs, JobState, Promise, Waiter};
use crate::auth::challenges::{ChallengeBasis, STRETCH, STRETCH_SALT};
use crate::auth::directory::{self, LdapQuestion, PasswordVerdict};
use crate::auth::pam;
use crate::runtime::pool::server_conn::SlowAnswerError;
use crate::runtime::shared::{ProxyShutdown, WorkerMessage};
use crate::runtime::worker::Worker;
use std::hash::Hash;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::hba::{LdapDirectory, PamService};
use weir_io::reactor::parked;
use weir_wire::scram::{SaltedKeys, ScramChallenge, fingerprint, steady_salt};
use zeroize::Zeroizing;

const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Returns the keys of a password under a salt, known or derived on a thread. Cancel safe.
pub async fn keys(
    w: &Worker,
    password: &Zeroizing<Vec<u8>>,
    challenge: ScramChallenge,
    deadline: Option<Instant>,
) -> Result<SaltedKeys, SlowAnswerError> {
    let key = SaltedPassword { password: fingerprint(&w.shared.access.salt_secret, password), challenge };
    if let Some(keys) = w.shared.access.keys.known(&key) {
        return Ok(keys);
    }
    let (password, challenge) = (password.clone(), key.challenge.clone());
    let work = move || SaltedKeys::derive(&password, &challenge.salt, challenge.iterations);
    wait(w, &w.shared.access.keys, &key, work, deadline).await
}

/// Returns a challenge for a user without a verifier, which does not tell why there is none. Cancel safe.
pub async fn steady_challenge(
    w: &Worker,
    user: &str,
    looks_up: LooksUp,
    deadline: Option<Instant>,
) -> Result<ScramChallenge, SlowAnswerError> {
    let challenges = &w.shared.access.challenges;
    let identifier = loop {
        match challenges.basis(w.now()) {
            ChallengeBasis::Cluster(identifier) => break Some(identifier),
            ChallengeBasis::Process => break None,
            ChallengeBasis::Awaited(_) if deadline.is_some_and(|deadline| w.now() >= deadline) => {
                return Err(SlowAnswerError::TimedOut);
            }
            // No server can tell soon, and an administrator may wait at the console.
            ChallengeBasis::Awaited(_) if w.view().nodes.iter().all(|node| node.cause.is_some()) => break None,
            ChallengeBasis::Awaited(_) if w.shared.stop_mode() >= ProxyShutdown::Fast => break None,
            ChallengeBasis::Awaited(until) => {
                w.wake_at_new_view();
                w.reactor.wake_at(until.min(Instant::now() + LOOK_PERIOD));
                parked().await;
            }
        }
    };
    let secret = match identifier.map(|identifier| (identifier, challenges.stretched(identifier))) {
        None => Zeroizing::new(w.shared.access.salt_secret),
        Some((_, Some(secret))) => secret,
        Some((identifier, None)) => {
            let number = Zeroizing::new(identifier.to_be_bytes().to_vec());
            let stretch = ScramChallenge { salt: STRETCH_SALT.to_vec(), iterations: STRETCH };
            let stretched = keys(w, &number, stretch, deadline).await?;
            let secret = stretched.server_key.bytes();
            challenges.keep(identifier, secret);
            Zeroizing::new(*secret)
        }
    };
    // With lookups, most verifiers come from servers.
    let in_file = w.shared.access.files().passwords.usual_iterations().filter(|_| looks_up == LooksUp::No);
    let iterations = in_file.unwrap_or_else(|| challenges.iterations());
    Ok(ScramChallenge { salt: steady_salt(&*secret, user.as_bytes()).to_vec(), iterations })
}

/// Returns the keys if they match `stored_key`. Keys of wrong guesses are not kept, so as not to displace others. Cancel safe.
pub async fn fits(
    w: &Worker,
    password: &Zeroizing<Vec<u8>>,
    challenge: ScramChallenge,
    stored_key: &weir_wire::scram::ScramKey,
    deadline: Option<Instant>,
) -> Result<Option<SaltedKeys>, SlowAnswerError> {
    let keys = keys(w, password, challenge.clone(), deadline).await?;
    if keys.stored_key == *stored_key {
        return Ok(Some(keys));
    }
    let password = fingerprint(&w.shared.access.salt_secret, password);
    w.shared.access.keys.forget(&SaltedPassword { password, challenge });
    Ok(None)
}

/// Returns a host's name if the name resolves to this address. Cancel safe.
///
/// Source: `check_hostname` in PostgreSQL's hba.c: the owner of an address may give it any name.
pub async fn host_name(w: &Worker, address: IpAddr, deadline: Option<Instant>) -> Result<Option<Arc<str>>, SlowAnswerError> {
    let work = move || {
        let name = dns_lookup::lookup_addr(&address).ok()?;
        // Without a name the system returns the number.
        if name.parse::<IpAddr>().is_ok() {
            return None;
        }
        let mut addresses = (name.as_str(), 0).to_socket_addrs().ok()?;
        addresses.any(|found| found.ip().to_canonical() == address).then(|| Arc::from(name))
    };
    wait(w, &w.shared.access.hosts, &address, work, deadline).await
}

/// Asks LDAP. Acceptance is cached for `auth_cache_time`. Cancel safe.
pub async fn ask_directory(
    w: &Worker,
    directory: &Arc<LdapDirectory>,
    user: &str,
    password: &Zeroizing<Vec<u8>>,
    deadline: Option<Instant>,
) -> Result<PasswordVerdict, SlowAnswerError> {
    let (lifetime, limit) = {
        let auth = &w.peek_config().auth;
        (Duration::from_millis(auth.cache_ms), Duration::from_millis(auth.ask_timeout_ms))
    };
    let directories = &w.shared.access.directories;
    let key = LdapQuestion {
        directory: directory.clone(),
        user: user.into(),
        password: fingerprint(&w.shared.access.salt_secret, password),
    };
    if directories.known(&key).is_some_and(|verdict| verdict.at.elapsed() >= lifetime) {
        directories.forget(&key);
    }
    let (claim, password) = (key.clone(), password.clone());
    let work = move || directory::judge(&claim.directory, &claim.user, &password, limit);
    let verdict = wait(w, directories, &key, work, deadline).await?;
    if verdict.outcome != PasswordVerdict::Right {
        directories.forget(&key);
    }
    Ok(verdict.outcome)
}

/// Asks PAM. Acceptance is cached for `auth_cache_time`. Cancel safe.
pub async fn ask_pam(
    w: &Worker,
    service: &Arc<PamService>,
    (user, host): (&str, Option<Box<str>>),
    password: &Zeroizing<Vec<u8>>,
    deadline: Option<Instant>,
) -> Result<PasswordVerdict, SlowAnswerError> {
    let lifetime = Duration::from_millis(w.peek_config().auth.cache_ms);
    let services = &w.shared.access.services;
    let digest = fingerprint(&w.shared.access.salt_secret, password);
    let key = pam::PamQuestion { service: service.clone(), user: user.into(), host, password: digest };
    if services.known(&key).is_some_and(|verdict| verdict.at.elapsed() >= lifetime) {
        services.forget(&key);
    }
    let (claim, password) = (key.clone(), password.clone());
    let verdict = wait(w, services, &key, move || pam::judge(&claim, &password, deadline), deadline).await?;
    if verdict.outcome != PasswordVerdict::Right {
        services.forget(&key);
    }
    Ok(verdict.outcome)
}

async fn wait<K: Hash + Eq + Clone + Send + 'static, V: Clone + Send + Sync + 'static>(
    w: &Worker,
    errands: &Arc<BlockingJobs<K, V>>,
    key: &K,
    work: impl FnOnce() -> V + Clone + Send + 'static,
    deadline: Option<Instant>,
) -> Result<V, SlowAnswerError> {
    let mut promise: Option<Promise<V>> = None;
    loop {
        // The first reader forgets an answer not worth caching; others have it through their promise.
        if let Some(answer) = promise.as_ref().and_then(|promise| promise.get()) {
            return Ok(answer.clone());
        }
        let waiter = (w.id, w.reactor.current_task());
        let wake = || -> Arc<dyn Fn(Waiter) + Send + Sync> {
            let shared = w.shared.clone();
            Arc::new(move |(worker, task): Waiter| shared.mailboxes[usize::from(worker)].send(WorkerMessage::Wake(task)))
        };
        match errands.ask(key, waiter, wake, work.clone()) {
            JobState::Known(answer) => return Ok(answer),
            JobState::Full => return Err(SlowAnswerError::Full),
            JobState::Underway => promise = errands.promise(key),
        }
        if let Some(at) = deadline {
            if w.now() >= at {
                return Err(SlowAnswerError::TimedOut);
            }
            w.reactor.wake_at(at);
        }
        parked().await;
    }
}
