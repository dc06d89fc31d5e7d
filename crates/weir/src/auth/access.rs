//! Data by which logins are decided, shared by threads.

use crate::auth::blocking_jobs::{BlockingJobs, JobLimits};
use crate::auth::challenges::MockChallenges;
use crate::auth::directory::{LdapQuestion, PasswordCheck};
use crate::auth::guesses::ProofAdmission;
use crate::auth::pam;
use crate::auth::privileges::PrivilegeCache;
use arc_swap::ArcSwap;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_config::CheckConfig;
use weir_config::hba::{HbaRuleSet, IpNetwork};
use weir_config::passwd::{PasswdKey, PoolPasswdFile, UserSecret};
use weir_wire::scram::{SaltedKeys, ScramChallenge};

/// Bounds the cost of invented names.
const USERS_MAX: usize = 100_000;

/// One proof for each realm (`Config::realm`).
const PROOFS_MAX: usize = 1000;

/// A storm of logins takes one core at most.
const KEYS: JobLimits = JobLimits { threads: 1, queue: 2048, answers: 10_000, lifetime: None };

/// A silent name server blocks each thread for seconds.
const HOSTS: JobLimits = JobLimits { threads: 4, queue: 256, answers: 10_000, lifetime: Some(Duration::from_secs(60)) };

/// A hanging directory delays no other logins: each answer takes `auth_query_timeout` at most.
const DIRECTORIES: JobLimits = JobLimits { threads: 8, queue: 512, answers: 10_000, lifetime: None };

/// Modules wait for people, and two seconds after a wrong password.
const SERVICES: JobLimits = JobLimits { threads: 32, queue: 512, answers: 10_000, lifetime: None };

#[derive(Clone, Debug, Default)]
pub struct AccessFiles {
    pub(crate) passwords: PoolPasswdFile,
    /// `None` without `enable_pool_hba`.
    pub(crate) hba: Option<Arc<HbaRuleSet>>,
    pub(crate) key: Option<PasswdKey>,
    /// Networks of this machine's addresses.
    pub(crate) networks: Vec<IpNetwork>,
    /// True if users without a line in the password file must always prove something or be trusted by a rule. If false, servers
    /// must trust them: another client's proof must not help them.
    pub(crate) keeps_proofs: bool,
}

impl AccessFiles {
    /// Returns the user of Weir's own checks and his password.
    pub fn checker<'a>(&'a self, check: &'a CheckConfig) -> (&'a str, Option<Cow<'a, UserSecret>>) {
        let user = if check.user.is_empty() { "postgres" } else { &check.user };
        let own = UserSecret::parse(check.password.as_bytes(), self.key.as_ref()).ok().map(Cow::Owned);
        (user, own.or_else(|| self.passwords.get(user.as_bytes()).map(Cow::Borrowed)))
    }
}

#[derive(Clone, Copy)]
pub enum ProofFilter<'a> {
    /// Proofs of the realm, for clients of a database.
    Of { realm: &'a str, looks_up: LooksUp },
    /// The user's last proof, for Weir's own queries.
    Any,
}

/// Tells whether `auth_query` looks up unlisted users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LooksUp {
    Yes,
    No,
}

/// A salt, and a password as a digest under `salt_secret`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SaltedPassword {
    pub(crate) password: [u8; 32],
    pub(crate) challenge: ScramChallenge,
}

type Groups = (Instant, Arc<BTreeSet<String>>);

#[derive(Clone)]
pub enum UserCredential {
    /// Unknown user, or one without the right to log in.
    Nobody,
    NoPassword,
    Secret(UserSecret),
}

struct AuthQueryResult {
    at: Instant,
    lifetime: Duration,
    credential: UserCredential,
}

/// Proof that servers demand from this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofDemand {
    /// All servers that could be asked trust the user.
    Nothing,
    /// At least one server wants a proof.
    Proof,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustQuestion {
    pub user: Box<str>,
    /// Name at the servers.
    pub database: Box<str>,
    pub replication: Option<&'static str>,
}

/// A proof that a server or a verifier confirmed.
#[derive(Clone)]
pub struct ConfirmedProof {
    /// See `Config::realm`.
    realm: Box<str>,
    pub(crate) secret: UserSecret,
    pub(crate) at: Instant,
}

pub struct SharedAccess {
    files: ArcSwap<AccessFiles>,
    /// Incremented by a reload: server connections opened with older passwords are closed, as they prove nothing about present
    /// rights.
    generation: AtomicU64,
    /// Key of password digests; new at each start.
    pub(crate) salt_secret: [u8; 32],
    pub(crate) challenges: MockChallenges,
    pub(crate) keys: Arc<BlockingJobs<SaltedPassword, SaltedKeys>>,
    /// Host names that their own addresses confirm.
    pub(crate) hosts: Arc<BlockingJobs<IpAddr, Option<Arc<str>>>>,
    pub(crate) directories: Arc<BlockingJobs<LdapQuestion, PasswordCheck>>,
    pub(crate) services: Arc<BlockingJobs<pam::PamQuestion, PasswordCheck>>,
    groups: Mutex<HashMap<Box<str>, Groups>>,
    pub(crate) privileges: PrivilegeCache,
    /// Proofs of users without a password here, for logins to servers; the last one last.
    proven: Mutex<HashMap<Box<str>, Vec<ConfirmedProof>>>,
    /// By question: see `server::inquiry`.
    asked: Mutex<HashMap<Box<str>, AuthQueryResult>>,
    demands: Mutex<HashMap<TrustQuestion, (Instant, ProofDemand)>>,
    pub(crate) guesses: Arc<ProofAdmission>,
}

impl SharedAccess {
    pub fn new(files: AccessFiles, salt_secret: [u8; 32]) -> SharedAccess {
        SharedAccess {
            files: ArcSwap::from_pointee(files),
            generation: AtomicU64::new(0),
            salt_secret,
            challenges: MockChallenges::new(Instant::now()),
            keys: BlockingJobs::new("keys", KEYS),
            hosts: BlockingJobs::new("hosts", HOSTS),
            directories: BlockingJobs::new("directories", DIRECTORIES),
            services: BlockingJobs::new("pam", SERVICES),
            groups: Mutex::default(),
            privileges: PrivilegeCache::default(),
            proven: Mutex::default(),
            asked: Mutex::default(),
            demands: Mutex::default(),
            guesses: ProofAdmission::new(),
        }
    }

    /// Replaces the files, and clears the answers that depend on them.
    pub fn replace(&self, files: AccessFiles) {
        self.files.store(Arc::new(files));
        self.generation.fetch_add(1, Ordering::Release);
        self.keys.clear();
        self.directories.clear();
        self.services.clear();
        self.groups.lock().clear();
        self.privileges.clear();
        self.asked.lock().clear();
        self.demands.lock().clear();
    }

    pub fn files(&self) -> Arc<AccessFiles> {
        self.files.load_full()
    }

    pub fn peek_files(&self) -> arc_swap::Guard<Arc<AccessFiles>> {
        self.files.load()
    }

    /// Must be read before the files: a reload in between then outdates a server connection at once.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the secret for logins to servers: the password file's, or a proof that `proofs` selects.
    pub fn secret_for_server(&self, user: &str, proofs: ProofFilter<'_>) -> Option<UserSecret> {
        let proven = || match proofs {
            ProofFilter::Of { realm, .. } => self.proven(user, realm).map(|proven| proven.secret),
            ProofFilter::Any => self.proven.lock().get(user).and_then(|all| all.last()).map(|proven| proven.secret.clone()),
        };
        let files = self.files.load();
        match files.passwords.get(user) {
            // Keys of another verifier belong to an outdated password.
            Some(UserSecret::Scram(verifier)) => match proven() {
                Some(secret @ UserSecret::Keys(..)) if secret.is_of(verifier) => Some(secret),
                Some(_) | None => Some(UserSecret::Scram(verifier.clone())),
            },
            Some(secret) => Some(secret.clone()),
            None if files.passwords.is_spoiled(user) => None,
            None if files.keeps_proofs || matches!(proofs, ProofFilter::Any | ProofFilter::Of { looks_up: LooksUp::Yes, .. }) => {
                proven()
            }
            None => None,
        }
    }

    pub fn prove(&self, user: &str, realm: &str, secret: UserSecret) {
        let mut users = self.proven.lock();
        if !users.contains_key(user) && users.len() >= USERS_MAX {
            users.clear();
        }
        let proofs = users.entry(user.into()).or_default();
        proofs.retain(|proven| *proven.realm != *realm);
        if proofs.len() >= PROOFS_MAX {
            proofs.remove(0);
        }
        proofs.push(ConfirmedProof { realm: realm.into(), secret, at: Instant::now() });
    }

    pub fn proven(&self, user: &str, realm: &str) -> Option<ConfirmedProof> {
        self.proven.lock().get(user)?.iter().find(|proven| *proven.realm == *realm).cloned()
    }

    pub fn asked(&self, question: &str) -> Option<UserCredential> {
        let asked = self.asked.lock();
        asked.get(question).filter(|asked| asked.at.elapsed() < asked.lifetime).map(|asked| asked.credential.clone())
    }

    pub fn learn_asked(&self, question: &str, credential: UserCredential, lifetime: Duration) {
        let mut asked = self.asked.lock();
        if asked.len() >= USERS_MAX {
            asked.clear();
        }
        asked.insert(question.into(), AuthQueryResult { at: Instant::now(), lifetime, credential });
    }

    pub fn demand(&self, entrant: &TrustQuestion, lifetime: Duration) -> Option<ProofDemand> {
        let demands = self.demands.lock();
        demands.get(entrant).filter(|(since, _)| since.elapsed() < lifetime).map(|(_, demand)| *demand)
    }

    pub fn learn_demand(&self, entrant: TrustQuestion, demand: ProofDemand) {
        let mut demands = self.demands.lock();
        if demands.len() >= USERS_MAX {
            demands.clear();
        }
        demands.insert(entrant, (Instant::now(), demand));
    }

    /// Forgets an answer after a failed proof: the password may have changed. Not in its first second, or wrong passwords would
    /// become queries.
    pub fn doubt_asked(&self, question: &str) {
        const LEAST: Duration = Duration::from_secs(1);
        let mut asked = self.asked.lock();
        if asked.get(question).is_some_and(|asked| asked.at.elapsed() >= LEAST) {
            asked.remove(question);
        }
    }

    pub fn groups(&self, user: &str, lifetime: Duration) -> Option<Arc<BTreeSet<String>>> {
        let groups = self.groups.lock();
        groups.get(user).filter(|(since, _)| since.elapsed() < lifetime).map(|(_, groups)| groups.clone())
    }

    pub fn learn_groups(&self, user: &str, groups: Arc<BTreeSet<String>>) {
        let mut known = self.groups.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(user.into(), (Instant::now(), groups));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::scram::ScramVerifier;

    const COMMON: ProofFilter<'_> = ProofFilter::Of { realm: "", looks_up: LooksUp::No };

    fn keys(password: &[u8], salt: &[u8]) -> UserSecret {
        let challenge = ScramChallenge { salt: salt.to_vec(), iterations: 2 };
        let keys = SaltedKeys::derive(password, salt, challenge.iterations);
        UserSecret::Keys(challenge, keys)
    }

    /// The verifier of such keys, as a password file has it.
    fn line(user: &str, secret: &UserSecret) -> String {
        let UserSecret::Keys(challenge, keys) = secret else { panic!() };
        let verifier = ScramVerifier {
            iterations: challenge.iterations,
            salt: challenge.salt.clone(),
            stored_key: keys.stored_key.clone(),
            server_key: keys.server_key.clone(),
        };
        format!("{user}:{}\n", verifier.to_text().as_str())
    }

    fn access(passwords: &str, keeps_proofs: bool) -> SharedAccess {
        let passwords = PoolPasswdFile::read(passwords.as_bytes(), None).0;
        SharedAccess::new(AccessFiles { passwords, keeps_proofs, ..AccessFiles::default() }, [7; 32])
    }

    #[test]
    fn keys_log_in_as_long_as_they_are_those_of_the_verifier_in_force() {
        let (old, new) = (keys(b"old", b"salt"), keys(b"new", b"salt"));
        let access = access(&line("joe", &old), false);
        assert!(matches!(access.secret_for_server("joe", COMMON), Some(UserSecret::Scram(_))), "nobody has proved anything");
        access.prove("joe", "", new.clone());
        assert!(matches!(access.secret_for_server("joe", COMMON), Some(UserSecret::Scram(_))), "they are of another password");
        access.prove("joe", "", old.clone());
        assert!(access.secret_for_server("joe", COMMON) == Some(old.clone()));
        let passwords = PoolPasswdFile::read(line("joe", &keys(b"old", b"other salt")).as_bytes(), None).0;
        access.replace(AccessFiles { passwords, ..AccessFiles::default() });
        assert!(matches!(access.secret_for_server("joe", COMMON), Some(UserSecret::Scram(_))), "they fit one salt only");
    }

    #[test]
    fn what_was_proved_counts_only_where_all_must_prove_something() {
        let asking = access("spoiled:AESx\nann:secret\n", true);
        let trusting = access("", false);
        for access in [&asking, &trusting] {
            for user in ["joe", "spoiled", "ann"] {
                access.prove(user, "", keys(b"secret", b"salt"));
            }
        }
        assert!(asking.secret_for_server("joe", COMMON).is_some());
        assert!(asking.secret_for_server("spoiled", COMMON).is_none());
        assert!(matches!(asking.secret_for_server("ann", COMMON), Some(UserSecret::Plain(_))), "the file knows more");
        assert!(trusting.secret_for_server("joe", COMMON).is_none());
    }

    #[test]
    fn a_proof_counts_in_its_realm_only() {
        let access = access("", false);
        let of = |realm, looks_up| access.secret_for_server("joe", ProofFilter::Of { realm, looks_up });
        access.prove("joe", "tenant", keys(b"tenant's word", b"salt"));
        assert!(of("", LooksUp::Yes).is_none() && of("other", LooksUp::Yes).is_none());
        assert!(of("tenant", LooksUp::Yes) == Some(keys(b"tenant's word", b"salt")));
        assert!(of("tenant", LooksUp::No).is_none(), "users without a line are asked for nothing there");
        access.prove("joe", "", keys(b"own", b"salt"));
        assert!(of("", LooksUp::Yes) == Some(keys(b"own", b"salt")) && of("tenant", LooksUp::Yes).is_some());
        assert!(access.secret_for_server("joe", ProofFilter::Any) == Some(keys(b"own", b"salt")), "the last one");
        for number in 0..2 * PROOFS_MAX {
            access.prove("joe", &format!("t{number}"), keys(b"x", b"y"));
        }
        assert!(of("t0", LooksUp::Yes).is_none() && of("t1999", LooksUp::Yes).is_some(), "there is a limit");
    }

    #[test]
    fn answers_of_servers_are_believed_for_their_time_and_forgotten_at_a_reload() {
        let access = access("", true);
        access.learn_asked("joe", UserCredential::Nobody, Duration::ZERO);
        assert!(access.asked("joe").is_none());
        access.learn_asked("joe", UserCredential::Secret(keys(b"x", b"salt")), Duration::from_secs(3600));
        access.learn_groups("joe", Arc::default());
        assert!(matches!(access.asked("joe"), Some(UserCredential::Secret(_))));
        access.doubt_asked("joe");
        assert!(access.asked("joe").is_some(), "it was asked just now");
        assert!(access.groups("joe", Duration::from_secs(3600)).is_some() && access.groups("joe", Duration::ZERO).is_none());
        let before = access.generation();
        access.replace(AccessFiles::default());
        assert!(access.asked("joe").is_none() && access.groups("joe", Duration::from_secs(3600)).is_none());
        assert_ne!(access.generation(), before);
    }
}
