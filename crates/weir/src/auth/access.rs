//! The data by which logins are decided, as far as two threads see it: the files' contents, and the facts found out since.

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

/// Users that are remembered: far more than log in anywhere, and a limit on the cost of invented names.
const USERS_MAX: usize = 100_000;

/// Proofs of one user that are remembered, one for each realm: databases that look users up in a way of their own.
const PROOFS_MAX: usize = 1000;

/// Keys are derived by one thread, so that a storm of logins takes no more than a core; the last in its queue waits two seconds.
const KEYS: JobLimits = JobLimits { threads: 1, queue: 2048, answers: 10_000, lifetime: None };

/// Threads that ask for the names of hosts. A name server that does not answer holds each for seconds.
const HOSTS: JobLimits = JobLimits { threads: 4, queue: 256, answers: 10_000, lifetime: Some(Duration::from_secs(60)) };

/// Threads that ask LDAP directories. Each answer takes `auth_query_timeout` at most, so that a directory that hangs refuses logins in time
/// and holds nobody else up.
const DIRECTORIES: JobLimits = JobLimits { threads: 8, queue: 512, answers: 10_000, lifetime: None };

/// Threads that ask PAM, each with a process: modules wait for people and their telephones, and two seconds after a wrong password.
const SERVICES: JobLimits = JobLimits { threads: 32, queue: 512, answers: 10_000, lifetime: None };

/// The files' rules of access.
#[derive(Clone, Debug, Default)]
pub struct AccessFiles {
    pub(crate) passwords: PoolPasswdFile,
    /// Rules of `pool_hba.conf`; `None` without `enable_pool_hba`.
    pub(crate) hba: Option<Arc<HbaRuleSet>>,
    /// Decrypts passwords in the configuration.
    pub(crate) key: Option<PasswdKey>,
    /// Networks this machine has an address in.
    pub(crate) networks: Vec<IpNetwork>,
    /// True if every user without a line in the password file must prove something, or log in by a rule that trusts him, wherever nobody
    /// is looked up by `auth_user`, too. If false, such users are let in there as far as servers trust them, and must not be helped by another
    /// client's proof.
    pub(crate) keeps_proofs: bool,
}

impl AccessFiles {
    /// The user as whom Weir looks at the servers, and his password: the configuration's, else the password file's.
    pub fn checker<'a>(&'a self, check: &'a CheckConfig) -> (&'a str, Option<Cow<'a, UserSecret>>) {
        let user = if check.user.is_empty() { "postgres" } else { &check.user };
        let own = UserSecret::parse(check.password.as_bytes(), self.key.as_ref()).ok().map(Cow::Owned);
        (user, own.or_else(|| self.passwords.get(user.as_bytes()).map(Cow::Borrowed)))
    }
}

/// Proofs of clients that may help with a login to a server.
#[derive(Clone, Copy)]
pub enum ProofFilter<'a> {
    /// For clients of a database: those of its realm.
    Of { realm: &'a str, looks_up: LooksUp },
    /// For a question of Weir's own, as a user who is there: the last one. The server judges it.
    Any,
}

/// Users without a line in the password file are looked up by `auth_query`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LooksUp {
    Yes,
    No,
}

/// A password under a salt. The password stands for itself only as a digest under a secret of this process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SaltedPassword {
    pub(crate) password: [u8; 32],
    pub(crate) challenge: ScramChallenge,
}

/// Roles a user is a member of, and since when that is known.
type Groups = (Instant, Arc<BTreeSet<String>>);

/// The answer of `auth_query` about a user.
#[derive(Clone)]
pub enum UserCredential {
    /// There is no such user, or he may not log in.
    Nobody,
    /// He has none, so that he can prove nothing.
    NoPassword,
    /// To be proved.
    Secret(UserSecret),
}

/// Result of `auth_query` for a user, its time, and the time for which it is believed.
struct AuthQueryResult {
    at: Instant,
    lifetime: Duration,
    credential: UserCredential,
}

/// The demand of servers on a user who comes from this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofDemand {
    /// All that could be asked let him in without a proof.
    Nothing,
    /// One of them wants a proof.
    Proof,
}

/// A login whose demand was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustQuestion {
    pub user: Box<str>,
    /// As the servers know it.
    pub database: Box<str>,
    /// The value of the startup parameter `replication`, if it has one.
    pub replication: Option<&'static str>,
}

/// Proof of a client, and the last time a server or a verifier confirmed it.
#[derive(Clone)]
pub struct ConfirmedProof {
    /// The databases that believe it: see `Config::realm`.
    realm: Box<str>,
    pub(crate) secret: UserSecret,
    pub(crate) at: Instant,
}

/// Everything about access that the threads of one proxy share.
pub struct SharedAccess {
    files: ArcSwap<AccessFiles>,
    /// Moves when the files were read again. Server connections opened with older passwords are closed instead of used, since
    /// they prove nothing about present rights to log in.
    generation: AtomicU64,
    /// Passwords stand in tables as digests under it; new at each start.
    pub(crate) salt_secret: [u8; 32],
    /// Challenges of users without a verifier.
    pub(crate) challenges: MockChallenges,
    /// Keys of passwords.
    pub(crate) keys: Arc<BlockingJobs<SaltedPassword, SaltedKeys>>,
    /// Names of hosts that their own addresses prove.
    pub(crate) hosts: Arc<BlockingJobs<IpAddr, Option<Arc<str>>>>,
    /// Verdicts of directories on passwords.
    pub(crate) directories: Arc<BlockingJobs<LdapQuestion, PasswordCheck>>,
    /// Verdicts of PAM on passwords.
    pub(crate) services: Arc<BlockingJobs<pam::PamQuestion, PasswordCheck>>,
    groups: Mutex<HashMap<Box<str>, Groups>>,
    /// Roles whose privileges users have, which decide what SHOW shows them.
    pub(crate) privileges: PrivilegeCache,
    /// Proofs of clients whose users have no password here: enough to log in to servers. The last one comes last.
    proven: Mutex<HashMap<Box<str>, Vec<ConfirmedProof>>>,
    /// By the question: see `client::inquiry`.
    asked: Mutex<HashMap<Box<str>, AuthQueryResult>>,
    demands: Mutex<HashMap<TrustQuestion, (Instant, ProofDemand)>>,
    /// Counts of proofs and failed logins.
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

    /// Takes new contents of the files.
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

    /// The same, for a look without a wait.
    pub fn peek_files(&self) -> arc_swap::Guard<Arc<AccessFiles>> {
        self.files.load()
    }

    /// Number of the reading of the files that is in force. Ask for it before the files: a reload in between makes a server
    /// connection old at once.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The secret for logins to servers as this user: from the password file, or from a client that proved itself, as far as `proofs` lets it
    /// serve.
    pub fn secret_for_server(&self, user: &str, proofs: ProofFilter<'_>) -> Option<UserSecret> {
        let proven = || match proofs {
            ProofFilter::Of { realm, .. } => self.proven(user, realm).map(|proven| proven.secret),
            ProofFilter::Any => self.proven.lock().get(user).and_then(|all| all.last()).map(|proven| proven.secret.clone()),
        };
        let files = self.files.load();
        match files.passwords.get(user) {
            // Keys of another verifier than the file's are of a password that does not count any more.
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

    /// Remembers the proof of a client of the user in a realm, until another one brings another proof.
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

    /// The last proof of a client of the user in a realm.
    pub fn proven(&self, user: &str, realm: &str) -> Option<ConfirmedProof> {
        self.proven.lock().get(user)?.iter().find(|proven| *proven.realm == *realm).cloned()
    }

    /// The result of `auth_query` for a user, while it is believed.
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

    /// The demand of servers on such a login, if they were asked within `lifetime`.
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

    /// A client of the user could not prove the secret of `auth_query`: perhaps the password was changed since. Not at once
    /// again, or wrong passwords would be questions to the servers.
    pub fn doubt_asked(&self, question: &str) {
        const LEAST: Duration = Duration::from_secs(1);
        let mut asked = self.asked.lock();
        if asked.get(question).is_some_and(|asked| asked.at.elapsed() >= LEAST) {
            asked.remove(question);
        }
    }

    /// The user's groups, if they were asked for within `lifetime`.
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
