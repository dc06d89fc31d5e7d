//! Decides how a client must prove its identity, and judges the proof.
//!
//! Invariant: a client that fails does not learn whether the user exists. Exchange and words are the same. A refusal comes no
//! sooner than `REFUSAL_AFTER` the proof, which hides the time for keys and queries.

use super::ClientLogin;
use crate::auth::access::{AccessFiles, LooksUp, ProofDemand, SharedAccess, TrustQuestion, UserCredential};
use crate::auth::directory::PasswordVerdict;
use crate::log::{Level, LogOrigin};
use crate::runtime::key_derivation;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::{MessageConn, SlowAnswerError};
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerLogin};
use crate::runtime::pool::server_login::ServerAsked;
use crate::server::inquiry::{self, InquiryError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::PasswdProof;
use weir_config::databases::DatabaseEntry;
use weir_config::hba::{
    AdmittedUsers, ClientOrigin, ClientTlsFacts, HbaAuthMethod, HbaFact, HbaQuestion, HbaRule, HbaVerdict, LoginFacts,
    ReplicationRequest,
};
use weir_config::passwd::{UserSecret, UsualSecretKind};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_wire::scram::{ScramChallenge, ScramVerifier, ServerSecret};
use weir_wire::write;
use zeroize::Zeroizing;

/// Used when logins have no limit.
const JUDGE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub(super) struct LoginIdentity<'a> {
    pub(super) user: &'a str,
    pub(super) database: &'a str,
    pub(super) replication: ReplicationRequest,
}

#[derive(Default)]
pub(super) struct LoginAdmission {
    pub(super) message: Vec<u8>,
    /// True if nothing was proved: the servers themselves must trust the user. Never after a password.
    pub(super) is_unproved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProofExchange {
    ClearText,
    Md5,
    Scram,
}

impl ClientLogin<'_> {
    pub(super) async fn authenticate(&mut self, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        self.claim(caller.user);
        let proved = match self.unasked(caller) {
            Some(admission) => Ok(admission),
            // Boxed: logins without a proof do without its room.
            None => Box::pin(self.prove(caller)).await,
        };
        // Before waiting for a server: other proofs may wait for the place.
        self.settle_guess(proved.as_ref().err());
        let admission = proved?;
        if admission.is_unproved && self.entry_of(caller.database).is_some_and(|entry| entry.user.is_some()) {
            // The servers would judge the forced user, and nobody this one.
            let files = self.w.shared.access.files();
            Box::pin(self.by_nothing(&files, caller)).await?;
            return Err(self.wrong_password(caller));
        }
        Ok(admission)
    }

    pub(super) fn entry_of(&self, database: &str) -> Option<DatabaseEntry> {
        self.w.peek_config().databases.get(database).cloned()
    }

    /// Admits an unknown user without rules, whom the servers must trust: see `AccessFiles::keeps_proofs`.
    fn unasked(&self, caller: LoginIdentity<'_>) -> Option<LoginAdmission> {
        if self.w.peek_config().auth.allow_clear_text {
            return None;
        }
        let files = self.w.shared.access.peek_files();
        let is_unknown = files.hba.is_none() && matches!(self.known_credential(&files, caller), Some(UserCredential::Nobody));
        is_unknown.then(|| LoginAdmission { is_unproved: true, ..LoginAdmission::default() })
    }

    async fn prove(&mut self, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        let files = self.w.shared.access.files();
        match files.hba.clone() {
            Some(hba) => {
                let rule = Box::pin(self.find_rule(&hba, &files, caller)).await?;
                Box::pin(self.follow(rule, &files, caller)).await
            }
            None => self.by_what_is_known(&files, caller).await,
        }
    }

    async fn find_rule<'h>(
        &mut self,
        hba: &'h weir_config::hba::HbaRuleSet,
        files: &AccessFiles,
        caller: LoginIdentity<'_>,
    ) -> Result<&'h HbaRule, ErrorReport> {
        let mut groups: Option<Option<Arc<BTreeSet<String>>>> = None;
        let mut host: Option<Option<Arc<str>>> = None;
        let system_user = hba.asks_for_system_user().then(|| self.system_user()).flatten();
        loop {
            let visit = LoginFacts {
                user: caller.user,
                database: caller.database,
                replication: caller.replication,
                origin: self.peer.map_or(ClientOrigin::Local, |peer| ClientOrigin::Address(peer.ip().to_canonical())),
                tls: self.tls.as_ref().map(|tls| ClientTlsFacts {
                    common_name: tls.common_name.as_deref(),
                    distinguished_name: tls.distinguished_name.as_deref(),
                }),
                system_user: system_user.as_deref(),
                networks: &files.networks,
                groups: known(groups.as_ref().map(Option::as_deref)),
                host: known(host.as_ref().map(Option::as_deref)),
            };
            let question = match hba.decide(&visit) {
                HbaVerdict::Ask(question) => question,
                HbaVerdict::Apply(rule) if rule.method == HbaAuthMethod::Reject => return Err(self.rejected(caller, rule)),
                HbaVerdict::Apply(rule) => match hba.accepts_outside_name(rule, &visit) {
                    Some(true) => return Ok(rule),
                    Some(false) => return Err(self.wrong_name(caller, rule)),
                    None => HbaQuestion::Groups,
                },
                HbaVerdict::NoEntry => return Err(self.no_entry(caller)),
                HbaVerdict::InDoubt(rule) => return Err(self.in_doubt(caller, rule)),
            };
            match question {
                HbaQuestion::Groups => groups = Some(self.groups(caller.user).await),
                HbaQuestion::HostName => host = Some(self.host_name().await?),
            }
        }
    }

    /// Only rules with `peer` read the file.
    fn system_user(&self) -> Option<String> {
        let number = self.socket.peer_uid()?.to_string();
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let line = users.lines().find(|line| line.split(':').nth(2) == Some(&number))?;
        line.split(':').next().map(str::to_string)
    }

    async fn groups(&self, user: &str) -> Option<Arc<BTreeSet<String>>> {
        match Box::pin(inquiry::groups(self.w, user, self.question_deadline())).await {
            Ok(groups) => Some(groups),
            Err(error) => {
                let text = format_args!("cannot ask for the groups of user \"{user}\": {error}");
                self.w.shared.log.say(Level::Warning, text);
                None
            }
        }
    }

    async fn host_name(&self) -> Result<Option<Arc<str>>, ErrorReport> {
        let Some(peer) = self.peer else { return Ok(None) };
        key_derivation::host_name(self.w, peer.ip().to_canonical(), self.deadline).await.map_err(busy)
    }

    async fn follow(
        &mut self,
        rule: &HbaRule,
        files: &AccessFiles,
        caller: LoginIdentity<'_>,
    ) -> Result<LoginAdmission, ErrorReport> {
        let exchange = match rule.method {
            // External names were checked when the rule was found.
            HbaAuthMethod::Trust | HbaAuthMethod::Cert | HbaAuthMethod::Peer => return self.believe(rule, files, caller).await,
            HbaAuthMethod::Reject => return Err(self.rejected(caller, rule)),
            HbaAuthMethod::Ldap => {
                let admission = self.by_directory(rule, caller).await?;
                return self.admit_known(rule, files, caller, admission).await;
            }
            HbaAuthMethod::Pam => {
                let admission = self.by_service(rule, caller).await?;
                return self.admit_known(rule, files, caller, admission).await;
            }
            HbaAuthMethod::Password => ProofExchange::ClearText,
            HbaAuthMethod::Md5 => ProofExchange::Md5,
            HbaAuthMethod::Scram => ProofExchange::Scram,
        };
        let secret = self.secret(files, caller).await?;
        let is_askable = rule.admits == AdmittedUsers::Anyone
            && !files.passwords.is_spoiled(caller.user)
            && self.looks_up(caller) == LooksUp::No;
        match (exchange, secret) {
            // Only servers can judge the password.
            (ProofExchange::ClearText, None) if is_askable => Box::pin(self.ask_for_servers(caller)).await,
            (ProofExchange::ClearText, secret) => self.by_clear_text(caller, secret).await,
            // `md5` covers SCRAM where the file has nothing else. Source: PostgreSQL manual, method md5.
            (ProofExchange::Md5, Some(secret @ UserSecret::Scram(_))) => self.by_scram(caller, Some(secret)).await,
            (ProofExchange::Md5, Some(secret)) => self.by_md5(caller, Some(secret)).await,
            (ProofExchange::Md5, None) => match (files.passwords.usual(), is_askable) {
                // Servers store SCRAM verifiers.
                (UsualSecretKind::Scram, _) | (UsualSecretKind::Nothing, false) => self.by_scram(caller, None).await,
                (UsualSecretKind::Nothing, true) | (UsualSecretKind::Plain | UsualSecretKind::Md5, _) => {
                    self.by_md5(caller, None).await
                }
            },
            (ProofExchange::Scram, secret) => self.by_scram(caller, secret).await,
        }
    }

    /// A line without a usable password is enough for a rule that wants a known user.
    async fn believe(
        &self,
        rule: &HbaRule,
        files: &AccessFiles,
        caller: LoginIdentity<'_>,
    ) -> Result<LoginAdmission, ErrorReport> {
        self.admit_known(rule, files, caller, LoginAdmission::default()).await
    }

    async fn admit_known(
        &self,
        rule: &HbaRule,
        files: &AccessFiles,
        caller: LoginIdentity<'_>,
        admission: LoginAdmission,
    ) -> Result<LoginAdmission, ErrorReport> {
        if rule.admits == AdmittedUsers::Anyone || !matches!(self.credential(files, caller).await?, UserCredential::Nobody) {
            return Ok(admission);
        }
        self.say(caller.user, &format!("is not known, which known_users at {}:{} asks for", rule.file.display(), rule.line));
        Err(self.no_entry(caller))
    }

    /// Users with a secret must prove it; for others servers may be asked.
    async fn by_what_is_known(&mut self, files: &AccessFiles, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        let user = caller.user;
        let asks_servers = self.looks_up(caller) == LooksUp::Yes;
        let allows_clear_text = self.w.peek_config().auth.allow_clear_text;
        if files.passwords.get(user).is_some() && Box::pin(self.is_left_to_servers(caller)).await {
            return Ok(LoginAdmission { is_unproved: true, ..LoginAdmission::default() });
        }
        match self.secret(files, caller).await? {
            Some(secret @ UserSecret::Md5(_)) => Box::pin(self.by_md5(caller, Some(secret))).await,
            Some(secret) => Box::pin(self.by_scram(caller, Some(secret))).await,
            None if files.passwords.is_spoiled(user) || asks_servers => Box::pin(self.by_nothing(files, caller)).await,
            None if allows_clear_text => Box::pin(self.ask_for_servers(caller)).await,
            // See `AccessFiles::keeps_proofs`.
            None => Ok(LoginAdmission { is_unproved: true, ..LoginAdmission::default() }),
        }
    }

    /// True if no server asks a user with a line in `pool_passwd` for a proof (`pool_passwd_proof = as_servers`).
    ///
    /// All reachable servers must agree: Weir would give the line's proof to one that wants it, whoever comes.
    async fn is_left_to_servers(&self, caller: LoginIdentity<'_>) -> bool {
        let (proof, lifetime) = {
            let auth = &self.w.peek_config().auth;
            (auth.passwd_proof, Duration::from_millis(auth.cache_ms))
        };
        let entry = self.entry_of(caller.database);
        let is_of_servers = !crate::admin::console::is_console(self.w, caller.database)
            && entry.as_ref().is_none_or(|entry| entry.user.is_none());
        if proof == PasswdProof::Always || !is_of_servers {
            return false;
        }
        let replication = match caller.replication {
            ReplicationRequest::No => None,
            ReplicationRequest::Physical => Some("true"),
            ReplicationRequest::Logical => Some("database"),
        };
        let database = entry.as_ref().map_or(caller.database, |entry| entry.database(caller.database));
        let entrant = TrustQuestion { user: caller.user.into(), database: database.into(), replication };
        let access = &self.w.shared.access;
        if let Some(known) = access.demand(&entrant, lifetime) {
            return known == ProofDemand::Nothing;
        }
        let asked = self.ask_for_demand(&entrant).await;
        asked.inspect(|demand| access.learn_demand(entrant, *demand)) == Some(ProofDemand::Nothing)
    }

    /// `None`: an unclear answer, or no server.
    async fn ask_for_demand(&self, entrant: &TrustQuestion) -> Option<ProofDemand> {
        let deadline = self.question_deadline();
        let parameters: Vec<(&str, &str)> = entrant.replication.iter().map(|kind| ("replication", *kind)).collect();
        let login = ServerLogin {
            user: &entrant.user,
            database: &entrant.database,
            secret: None,
            generation: 0,
            parameters: &parameters,
        };
        let mut demand = None;
        for address in inquiry::servers(self.w, deadline).await {
            match MessageConn::enter(self.w, &address, &login, deadline).await {
                Ok((talk, greeting)) => {
                    talk.part(self.w);
                    match greeting.asked {
                        ServerAsked::Nothing => demand = Some(ProofDemand::Nothing),
                        ServerAsked::Proof => return Some(ProofDemand::Proof),
                    }
                }
                Err(OpenError::Secret { .. }) => return Some(ProofDemand::Proof),
                Err(error) if error.is_unreachable() => self.w.shared.request_role_check(RoleCheckReason::LoginFailed),
                Err(_) => return None,
            }
        }
        demand
    }

    /// Runs the exchange of most users for one who cannot succeed.
    pub(super) async fn by_nothing(
        &mut self,
        files: &AccessFiles,
        caller: LoginIdentity<'_>,
    ) -> Result<LoginAdmission, ErrorReport> {
        match files.passwords.usual() {
            UsualSecretKind::Md5 => self.by_md5(caller, None).await,
            UsualSecretKind::Nothing | UsualSecretKind::Plain | UsualSecretKind::Scram => self.by_scram(caller, None).await,
        }
    }

    async fn secret(&self, files: &AccessFiles, caller: LoginIdentity<'_>) -> Result<Option<UserSecret>, ErrorReport> {
        Ok(match self.credential(files, caller).await? {
            UserCredential::Secret(secret) => Some(secret),
            UserCredential::NoPassword | UserCredential::Nobody => None,
        })
    }

    fn looks_up(&self, caller: LoginIdentity<'_>) -> LooksUp {
        if self.w.peek_config().look_up(Some(caller.database)).user.is_empty() { LooksUp::No } else { LooksUp::Yes }
    }

    /// Returns the credential without asking a server; `None`: a server must be asked.
    fn known_credential(&self, files: &AccessFiles, caller: LoginIdentity<'_>) -> Option<UserCredential> {
        if let Some(secret) = files.passwords.get(caller.user) {
            return Some(UserCredential::Secret(secret.clone()));
        }
        if files.passwords.is_spoiled(caller.user) {
            return Some(UserCredential::NoPassword);
        }
        (self.looks_up(caller) == LooksUp::No).then_some(UserCredential::Nobody)
    }

    /// Returns the credential, from the password file or `auth_query`.
    async fn credential(&self, files: &AccessFiles, caller: LoginIdentity<'_>) -> Result<UserCredential, ErrorReport> {
        if let Some(known) = self.known_credential(files, caller) {
            return Ok(known);
        }
        let user = caller.user;
        Box::pin(inquiry::credential(self.w, user, caller.database, self.question_deadline())).await.map_err(|error| {
            let text = format_args!("auth_query for user \"{user}\" failed: {error}");
            self.w.shared.log.say(Level::Warning, text);
            let text = "the user cannot be looked up now";
            let fault = match error {
                InquiryError::Answer(_) => ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text),
                InquiryError::Disabled(_) => ErrorReport::fatal(sqlstate::NOT_IN_STATE, text),
                InquiryError::NoServer | InquiryError::TimedOut | InquiryError::Server(_) => {
                    ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, text)
                }
            };
            fault.hint("The log of the proxy has the cause.")
        })
    }

    async fn by_md5(&mut self, caller: LoginIdentity<'_>, secret: Option<UserSecret>) -> Result<LoginAdmission, ErrorReport> {
        let user = caller.user;
        let md5 = match &secret {
            Some(UserSecret::Md5(secret)) => Some(secret.clone()),
            Some(UserSecret::Plain(password)) => Some(weir_wire::md5::Md5Secret::from_password(password, user.as_bytes())),
            Some(UserSecret::Scram(_) | UserSecret::Keys(..)) | None => None,
        };
        match (self.ask_md5(md5.as_ref()).await?, secret) {
            (true, Some(secret)) => {
                self.remember(caller, secret);
                Ok(LoginAdmission::default())
            }
            _ => Err(self.wrong_password(caller)),
        }
    }

    async fn by_scram(&mut self, caller: LoginIdentity<'_>, secret: Option<UserSecret>) -> Result<LoginAdmission, ErrorReport> {
        let user = caller.user;
        // Also where it is not needed: the time must not tell.
        let challenge =
            key_derivation::steady_challenge(self.w, user, self.looks_up(caller), self.deadline).await.map_err(busy)?;
        let verifier = match secret {
            Some(UserSecret::Scram(verifier)) => Some(verifier),
            Some(UserSecret::Plain(password)) => {
                let keys = key_derivation::keys(self.w, &password, challenge.clone(), self.deadline).await.map_err(busy)?;
                Some(ScramVerifier {
                    iterations: challenge.iterations,
                    salt: challenge.salt.clone(),
                    stored_key: keys.stored_key,
                    server_key: keys.server_key,
                })
            }
            Some(UserSecret::Md5(_)) => {
                self.say(user, "has an md5 password, which cannot be proved by scram-sha-256");
                None
            }
            Some(UserSecret::Keys(..)) | None => None,
        };
        let proof = match &verifier {
            Some(verifier) => ServerSecret::Known(verifier.clone()),
            None => ServerSecret::unknown(challenge),
        };
        let (Some(accepted), Some(verifier)) = (self.ask_scram(proof).await?, verifier) else {
            return Err(self.wrong_password(caller));
        };
        let challenge = ScramChallenge { salt: verifier.salt, iterations: verifier.iterations };
        self.remember(caller, UserSecret::Keys(challenge, accepted.keys));
        let mut message = Vec::with_capacity(512);
        write::authentication(&mut message, 12, &accepted.message);
        Ok(LoginAdmission { message, is_unproved: false })
    }

    async fn by_clear_text(
        &mut self,
        caller: LoginIdentity<'_>,
        secret: Option<UserSecret>,
    ) -> Result<LoginAdmission, ErrorReport> {
        let password = self.ask_clear_text().await?;
        let proved = match secret {
            Some(UserSecret::Scram(verifier)) => {
                let challenge = ScramChallenge { salt: verifier.salt, iterations: verifier.iterations };
                let keys = key_derivation::fits(self.w, &password, challenge.clone(), &verifier.stored_key, self.deadline).await;
                keys.map_err(busy)?.map(|keys| UserSecret::Keys(challenge, keys))
            }
            Some(secret) => secret.matches(caller.user.as_bytes(), &password).then_some(secret),
            None => None,
        };
        match proved {
            Some(secret) => {
                self.remember(caller, secret);
                Ok(LoginAdmission::default())
            }
            None => Err(self.wrong_password(caller)),
        }
    }

    async fn by_directory(&mut self, rule: &HbaRule, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        let user = caller.user;
        let password = self.ask_clear_text().await?;
        let failed =
            || ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, format!("LDAP authentication failed for user \"{user}\""));
        let Some(directory) = &rule.directory else { return Err(failed()) };
        let outcome = key_derivation::ask_directory(self.w, directory, user, &password, self.deadline).await.map_err(busy)?;
        self.obey(rule, user, "directory", outcome, failed)?;
        if directory.is_password_for_servers {
            self.remember(caller, UserSecret::Plain(password));
        }
        Ok(LoginAdmission::default())
    }

    async fn by_service(&mut self, rule: &HbaRule, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        let user = caller.user;
        let password = self.ask_clear_text().await?;
        let failed =
            || ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, format!("PAM authentication failed for user \"{user}\""));
        let Some(service) = &rule.service else { return Err(failed()) };
        let name = if service.uses_host_name { self.host_name().await? } else { None };
        let number = || self.peer.map(|peer| peer.ip().to_canonical().to_string());
        let host = name.map(|name| name.to_string()).or_else(number).map(String::into_boxed_str);
        let asked = key_derivation::ask_pam(self.w, service, (user, host), &password, self.deadline).await;
        self.obey(rule, user, "PAM service", asked.map_err(busy)?, failed)?;
        if service.is_password_for_servers {
            self.remember(caller, UserSecret::Plain(password));
        }
        Ok(LoginAdmission::default())
    }

    /// `failed`: the client's error for a wrong password.
    fn obey(
        &self,
        rule: &HbaRule,
        user: &str,
        judge: &str,
        said: PasswordVerdict,
        failed: impl FnOnce() -> ErrorReport,
    ) -> Result<(), ErrorReport> {
        let place = format!("{}:{}", rule.file.display(), rule.line);
        match said {
            PasswordVerdict::Right => Ok(()),
            PasswordVerdict::Wrong(cause) => {
                self.say(user, &format!("is refused by the {judge} of {place}: {cause}"));
                Err(failed())
            }
            PasswordVerdict::Unasked(cause) => {
                let text = format_args!("user \"{user}\" is refused: the {judge} of {place} cannot be asked: {cause}");
                self.w.shared.log.say(Level::Warning, text);
                Err(ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, "the password cannot be checked now")
                    .hint("The log of the proxy has the cause."))
            }
        }
    }

    /// An accepted password is valid for `auth_cache_time`.
    async fn ask_for_servers(&mut self, caller: LoginIdentity<'_>) -> Result<LoginAdmission, ErrorReport> {
        let password = self.ask_clear_text().await?;
        let lifetime = Duration::from_millis(self.w.peek_config().auth.cache_ms);
        let realm = self.w.peek_config().realm(caller.database).to_owned();
        let is_known = self.w.shared.access.proven(caller.user, &realm).is_some_and(|proven| {
            proven.at.elapsed() < lifetime
                && matches!(proven.secret, UserSecret::Plain(_))
                && proven.secret.matches(caller.user.as_bytes(), &password)
        });
        if !is_known {
            self.let_judge(caller, &password).await?;
            self.w.shared.access.prove(caller.user, &realm, UserSecret::Plain(password));
        }
        Ok(LoginAdmission::default())
    }

    /// A server that lets this machine in without a question judges nothing: the client is refused, since any password would do.
    async fn let_judge(&self, caller: LoginIdentity<'_>, password: &Zeroizing<Vec<u8>>) -> Result<(), ErrorReport> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + JUDGE_LIMIT);
        let secret = UserSecret::Plain(password.clone());
        // No server has the console's database.
        let is_console = crate::admin::console::is_console(self.w, caller.database);
        let own = is_console.then(|| self.w.peek_config().look_up(None).database.to_owned());
        let entry = self.entry_of(caller.database);
        let served = entry.as_ref().map_or(caller.database, |entry| entry.database(caller.database));
        let database = own.as_deref().unwrap_or(served);
        let login = ServerLogin { user: caller.user, database, secret: Some(&secret), generation: 0, parameters: &[] };
        let mut fault =
            ErrorReport::fatal(sqlstate::CANNOT_CONNECT_NOW, "no server can be reached that could judge the password");
        for address in inquiry::servers(self.w, deadline).await {
            let judged = async {
                let (talk, greeting) = MessageConn::enter(self.w, &address, &login, deadline).await?;
                talk.part(self.w);
                Ok(greeting.asked)
            };
            match judged.await {
                Ok(ServerAsked::Proof) => return Ok(()),
                Ok(ServerAsked::Nothing) => {
                    self.say_unjudged(caller, &address);
                    return Err(self.wrong_password(caller));
                }
                Err(OpenError::Refused { sqlstate: state, .. }) if matches!(&*state, "28P01" | "28000") => {
                    return Err(self.wrong_password(caller));
                }
                Err(error) if error.is_unreachable() => {
                    self.w.shared.request_role_check(RoleCheckReason::LoginFailed);
                    fault = error.fault().as_fatal();
                }
                Err(error) => return Err(error.fault().as_fatal()),
            }
        }
        Err(fault)
    }

    fn remember(&self, caller: LoginIdentity<'_>, secret: UserSecret) {
        let access: &SharedAccess = &self.w.shared.access;
        let is_in_file = matches!(access.files().passwords.get(caller.user), Some(UserSecret::Plain(_) | UserSecret::Md5(_)));
        if !is_in_file {
            access.prove(caller.user, self.w.peek_config().realm(caller.database), secret);
        }
    }

    fn question_deadline(&self) -> Instant {
        let limit = Instant::now() + Duration::from_millis(self.w.peek_config().auth.ask_timeout_ms);
        self.deadline.map_or(limit, |deadline| deadline.min(limit))
    }
}

/// Refusals, in PostgreSQL's words. The log says more.
impl ClientLogin<'_> {
    fn wrong_password(&self, caller: LoginIdentity<'_>) -> ErrorReport {
        inquiry::doubt(self.w, caller.user, caller.database);
        wrong_password(caller.user)
    }

    pub(super) fn place(&self) -> String {
        self.peer.map_or_else(|| "[local]".to_string(), |peer| peer.ip().to_canonical().to_string())
    }

    fn encryption(&self) -> &'static str {
        if self.tls.is_some() { "SSL encryption" } else { "no encryption" }
    }

    fn rejected(&self, caller: LoginIdentity<'_>, rule: &HbaRule) -> ErrorReport {
        self.say(caller.user, &format!("is rejected by {}:{}", rule.file.display(), rule.line));
        self.refusal("pool_hba.conf rejects connection", caller)
    }

    fn no_entry(&self, caller: LoginIdentity<'_>) -> ErrorReport {
        self.refusal("no pool_hba.conf entry", caller)
    }

    fn in_doubt(&self, caller: LoginIdentity<'_>, rule: &HbaRule) -> ErrorReport {
        let place = format!("{}:{}", rule.file.display(), rule.line);
        self.say(caller.user, &format!("is refused: whether {place} holds depends on groups that cannot be asked for"));
        ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, "the groups of the user cannot be looked up now")
            .hint("The log of the proxy has the cause.")
    }

    fn wrong_name(&self, caller: LoginIdentity<'_>, rule: &HbaRule) -> ErrorReport {
        self.say(caller.user, &format!("is not called outside as {}:{} asks for", rule.file.display(), rule.line));
        let what = if rule.method == HbaAuthMethod::Peer { "Peer" } else { "certificate" };
        let text = format!("{what} authentication failed for user \"{}\"", caller.user);
        ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text)
    }

    fn refusal(&self, what: &str, caller: LoginIdentity<'_>) -> ErrorReport {
        let (place, user) = (self.place(), caller.user);
        let target = match caller.replication {
            ReplicationRequest::Physical => format!("replication connection from host \"{place}\", user \"{user}\""),
            ReplicationRequest::No | ReplicationRequest::Logical => {
                format!("host \"{place}\", user \"{user}\", database \"{}\"", caller.database)
            }
        };
        ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, format!("{what} for {target}, {}", self.encryption()))
    }

    /// With such servers no password of an unknown user is ever right.
    fn say_unjudged(&self, caller: LoginIdentity<'_>, server: &ServerAddress) {
        let (user, place) = (caller.user, self.place());
        let who = LogOrigin { user, database: caller.database, client: &place, ..LogOrigin::default() };
        let text = format_args!(
            "user \"{user}\" from {place} is refused: {server} lets this machine in without asking for a password, so that nobody \
             has judged the client's. Have the server ask (its pg_hba.conf), or have Weir judge: a line in pool_passwd, or auth_user with \
             auth_query. If no password shall be needed, say so by method trust in pool_hba.conf"
        );
        self.w.shared.log.write(Level::Warning, &who, text);
    }

    fn say(&self, user: &str, what: &str) {
        let place = self.place();
        let who = LogOrigin { user, client: &place, ..LogOrigin::default() };
        self.w.shared.log.write(Level::Log, &who, format_args!("user \"{user}\" from {place} {what}"));
    }
}

pub(super) fn wrong_password(user: &str) -> ErrorReport {
    ErrorReport::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

fn busy(error: SlowAnswerError) -> ErrorReport {
    let sqlstate = match error {
        SlowAnswerError::Full => sqlstate::TOO_MANY_CONNECTIONS,
        SlowAnswerError::TimedOut => sqlstate::QUERY_CANCELED,
    };
    ErrorReport::fatal(sqlstate, format!("the login cannot be checked now: {error}"))
}

fn known<T>(asked: Option<Option<T>>) -> HbaFact<T> {
    match asked {
        None => HbaFact::NotAsked,
        Some(None) => HbaFact::Nothing,
        Some(Some(answer)) => HbaFact::Is(answer),
    }
}
