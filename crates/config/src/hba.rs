//! `pool_hba.conf`: users who may connect, from where, and by which proof. The rules are those of PostgreSQL's `pg_hba.conf`.
//!
//! In: bytes of files through a closure of the caller; then facts about one client. Out: the first rule that matches, the reason
//! to refuse, or a question whose answer is needed first (a host's name, a user's groups). No IO.
//! Why questions and not a callback: names and groups are asked of others and waited for; most rules need neither.
//! Source: PostgreSQL manual, "The pg_hba.conf File"; `check_hba` and `parse_hba_line` in hba.c.

mod address;
mod cover;
mod demand_rules;
mod hba_line;
mod ident;
mod ldap;
mod tokens;

pub use address::IpNetwork;
pub use ldap::{LdapDirectory, LdapSearchScope, LdapSteps};
pub use tokens::{FileLoader, LoadError};

use crate::client_demands::ClientDemands;
use crate::{ConfigProblem, ProblemSeverity, TlsConfig};
use address::HbaAddress;
use core::net::IpAddr;
use ident::IdentMaps;
use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The rules of a file, in its order, and the maps of user names beside it.
#[derive(Debug, Clone)]
pub struct HbaRuleSet {
    rules: Vec<HbaRule>,
    maps: IdentMaps,
}

/// One line of the file.
#[derive(Debug, Clone)]
pub struct HbaRule {
    /// The file it stands in, which may be an included one.
    pub file: PathBuf,
    /// Where it begins there, from 1.
    pub line: u32,
    /// The proof that the client must give.
    pub method: HbaAuthMethod,
    /// Demand for a certificate beside the method.
    pub certificate: ClientCertDemand,
    /// The users that the rule lets in (`known_users`).
    pub admits: AdmittedUsers,
    /// The directory that judges passwords, with method `Ldap`.
    pub directory: Option<Arc<LdapDirectory>>,
    /// The PAM service that judges passwords, with method `Pam`.
    pub service: Option<Arc<PamService>>,
    connection: HbaConnectionType,
    databases: Vec<HbaNameEntry>,
    users: Vec<HbaNameEntry>,
    address: HbaAddress,
    /// Name of the map between the certificate's name and the user's.
    map: Option<String>,
    by: CertificateName,
}

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaAuthMethod {
    /// It is believed.
    Trust,
    /// It is refused.
    Reject,
    /// The password in clear text.
    Password,
    /// md5, or SCRAM for users with a SCRAM verifier.
    Md5,
    /// SCRAM-SHA-256.
    Scram,
    /// A TLS certificate that names the user.
    Cert,
    /// A unix socket whose other end belongs to a process of the user.
    Peer,
    /// The password in clear text, judged by a directory.
    Ldap,
    /// The password in clear text, judged by the system's PAM.
    Pam,
}

/// Options of a `pam` rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PamService {
    /// Name of the service: a file in `/etc/pam.d`.
    pub name: String,
    /// True if modules are told the name of the client's host, and not its address.
    pub uses_host_name: bool,
    /// True if Weir logs in to servers with the password that PAM accepted (`backend_use_passwd`).
    pub is_password_for_servers: bool,
}

impl PamService {
    /// Takes one option of a rule; one without a name for the service leaves it as it is, as in PostgreSQL.
    fn set(&mut self, option: &str, value: &str) {
        match option {
            "pamservice" if !value.is_empty() => self.name = value.to_string(),
            "pam_use_hostname" => self.uses_host_name = value == "1",
            "backend_use_passwd" => self.is_password_for_servers = ldap::is_on(value),
            _ => {}
        }
    }
}

impl Default for PamService {
    /// The name is Pgpool-II's.
    fn default() -> PamService {
        PamService { name: "pgpool".into(), uses_host_name: false, is_password_for_servers: false }
    }
}

/// Demand on a client's certificate beside the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertDemand {
    /// Nothing.
    Any,
    /// Signed by an authority we trust.
    VerifyCa,
    /// Signed, and made out for the user.
    VerifyFull,
}

/// The users that a rule lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmittedUsers {
    /// All that match and give the method's proof.
    Anyone,
    /// Of those, users with a line in `pool_passwd`, or with a password by `auth_query`: PgBouncer's rule for all methods.
    KnownUsers,
}

/// The name of a certificate that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateName {
    Common,
    Distinguished,
}

/// The first field of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HbaConnectionType {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
    /// Never: there is no GSSAPI encryption.
    HostGss,
    HostNoGss,
}

/// One entry of the database or user field.
#[derive(Debug, Clone)]
enum HbaNameEntry {
    All,
    SameUser,
    SameRole,
    Replication,
    /// Members of this role.
    Group(String),
    Pattern(Regex),
    Name(String),
}

/// Knowledge of one client that wants to log in.
#[derive(Debug, Clone, Copy)]
pub struct LoginFacts<'a> {
    /// Name given in the startup packet.
    pub user: &'a str,
    /// Database given there, or the user's name.
    pub database: &'a str,
    /// Its wish to replicate.
    pub replication: ReplicationRequest,
    /// Where it comes from.
    pub origin: ClientOrigin,
    /// Facts from its TLS session; `None` without one.
    pub tls: Option<ClientTlsFacts<'a>>,
    /// Name of the system user at the other end of a unix socket, if there is one by that number.
    pub system_user: Option<&'a str>,
    /// Networks this machine has an address in.
    pub networks: &'a [IpNetwork],
    /// Roles the user is a member of, himself included.
    pub groups: HbaFact<&'a BTreeSet<String>>,
    /// Name of the client's host, if it is proved by the address behind the name.
    pub host: HbaFact<&'a str>,
}

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrigin {
    /// A unix socket.
    Local,
    /// TCP.
    Address(IpAddr),
}

/// Facts from a client's TLS session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTlsFacts<'a> {
    /// The certificate's common name, if one was shown and it was signed by an authority we trust.
    pub common_name: Option<&'a str>,
    /// Its whole subject.
    pub distinguished_name: Option<&'a str>,
}

/// Purpose of a connection. Source: `am_walsender` and `am_db_walsender` in walsender.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicationRequest {
    /// Statements.
    No,
    /// All of the server's log of changes; matches the keyword `replication` only.
    Physical,
    /// Changes of one database; matches its name.
    Logical,
}

/// The answer to a question that may not have been asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaFact<T> {
    /// Nobody asked.
    NotAsked,
    /// It was asked, and nobody could say.
    Nothing,
    /// The answer.
    Is(T),
}

/// A fact that is needed before the rules can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaQuestion {
    /// `LoginFacts::groups`.
    Groups,
    /// `LoginFacts::host`.
    HostName,
}

/// Decision of the rules.
#[derive(Debug, Clone, Copy)]
pub enum HbaVerdict<'a> {
    /// Find this out and ask again.
    Ask(HbaQuestion),
    /// The first rule that matches.
    Apply(&'a HbaRule),
    /// No rule matches.
    NoEntry,
    /// This rule might match, but the user's groups cannot be asked for. Refused: the next rule may be more generous than meant.
    InDoubt(&'a HbaRule),
}

/// Match of one part of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HbaMatch {
    Yes,
    No,
    Ask(HbaQuestion),
    InDoubt,
}

impl From<bool> for HbaMatch {
    fn from(fits: bool) -> HbaMatch {
        if fits { HbaMatch::Yes } else { HbaMatch::No }
    }
}

impl HbaRuleSet {
    /// Reads the rules in `path` and, if there is such a file, the maps in `ident`. `None` if anything is wrong with them.
    pub fn read(path: &Path, ident: Option<&Path>, loader: &mut FileLoader<'_>) -> (Option<HbaRuleSet>, Vec<ConfigProblem>) {
        HbaRuleSet::read_under(ClientDemands::default(), path, ident, loader)
    }

    /// The same, under the demands that parameters make on all clients.
    pub fn read_under(
        demands: ClientDemands,
        path: &Path,
        ident: Option<&Path>,
        loader: &mut FileLoader<'_>,
    ) -> (Option<HbaRuleSet>, Vec<ConfigProblem>) {
        let mut problems = Vec::new();
        let rules = hba_line::rules(path, loader, demands, &mut problems);
        let maps = ident.map(|path| ident::read(path, loader, &mut problems)).unwrap_or_default();
        if rules.is_empty() && problems.is_empty() {
            // It would refuse everyone, which is more likely a mistake.
            problems.push(problem(path, None, "the file contains no entries".into()));
        }
        for rule in &rules {
            if let Some(map) = rule.map.as_ref().filter(|map| !maps.has(map)) {
                let message = format!("no line of the ident file belongs to map \"{map}\", so that nobody matches");
                problems.push(rule.warning(message));
            }
        }
        problems.extend(cover::warnings(&rules));
        let is_usable = problems.iter().all(|problem| problem.severity == ProblemSeverity::Warning);
        (is_usable.then_some(HbaRuleSet { rules, maps }), problems)
    }

    /// Warnings about rules that let nobody in because of the settings of encryption.
    pub fn without_encryption(&self, tls: &TlsConfig) -> Vec<ConfigProblem> {
        let has_authority = tls.ca_cert.is_some() || tls.ca_cert_dir.is_some();
        let warning = |rule: &HbaRule| {
            let message = match (rule.connection, rule.certificate) {
                (HbaConnectionType::HostSsl, _) if !tls.enabled => "hostssl matches no client: \"ssl\" is off",
                (_, ClientCertDemand::VerifyCa | ClientCertDemand::VerifyFull) if !has_authority => {
                    "the rule asks for a certificate and lets nobody in: neither \"ssl_ca_cert\" nor \"ssl_ca_cert_dir\" is set"
                }
                _ => return None,
            };
            Some(rule.warning(message.into()))
        };
        self.rules.iter().filter_map(warning).collect()
    }

    /// True if an ident file was read.
    pub fn has_maps(&self) -> bool {
        !self.maps.is_empty()
    }

    /// The first rule that matches, or the fact that is needed to find it.
    pub fn decide(&self, visit: &LoginFacts<'_>) -> HbaVerdict<'_> {
        for rule in &self.rules {
            match rule.fit(visit) {
                HbaMatch::No => {}
                HbaMatch::Yes => return HbaVerdict::Apply(rule),
                HbaMatch::Ask(question) => return HbaVerdict::Ask(question),
                HbaMatch::InDoubt => return HbaVerdict::InDoubt(rule),
            }
        }
        HbaVerdict::NoEntry
    }

    /// True if the client's outside name (in its certificate, or in the system) is enough for this rule, or if the rule wants
    /// none.
    ///
    /// `None`: the groups must be known first.
    pub fn accepts_outside_name(&self, rule: &HbaRule, visit: &LoginFacts<'_>) -> Option<bool> {
        let shown = visit.tls.and_then(|tls| match rule.by {
            CertificateName::Common => tls.common_name,
            CertificateName::Distinguished => tls.distinguished_name,
        });
        match (rule.method, rule.certificate) {
            (HbaAuthMethod::Peer, _) => self.is_called(rule, visit.system_user, visit),
            (_, ClientCertDemand::Any) => Some(true),
            (_, ClientCertDemand::VerifyCa) => Some(shown.is_some()),
            (_, ClientCertDemand::VerifyFull) => self.is_called(rule, shown, visit),
        }
    }

    /// True if this outside name may be the user: by the rule's map, or as the same name.
    fn is_called(&self, rule: &HbaRule, outside: Option<&str>, visit: &LoginFacts<'_>) -> Option<bool> {
        let Some(name) = outside else { return Some(false) };
        match rule.map.as_ref().map(|map| self.maps.fit(map, name, visit)) {
            None => Some(name == visit.user),
            Some(HbaMatch::Yes) => Some(true),
            Some(HbaMatch::No | HbaMatch::InDoubt) => Some(false),
            Some(HbaMatch::Ask(_)) => None,
        }
    }

    /// True if some clients on other machines are believed without a proof.
    pub fn trusts_hosts(&self) -> bool {
        self.unasked().any(|rule| rule.admits == AdmittedUsers::Anyone)
    }

    /// True if a rule leaves passwords of users of whom nothing is known to the servers, where there is no `auth_user`.
    pub fn passes_passwords_on(&self) -> bool {
        self.rules.iter().any(|rule| rule.method == HbaAuthMethod::Password && rule.admits == AdmittedUsers::Anyone)
    }

    /// Rules that let clients of other machines in and ask them for nothing.
    pub fn unasked(&self) -> impl Iterator<Item = &HbaRule> {
        self.rules.iter().filter(|rule| {
            let asks_nothing = rule.method == HbaAuthMethod::Trust && rule.certificate == ClientCertDemand::Any;
            asks_nothing && rule.connection.is_remote() && rule.address.has_others()
        })
    }

    /// True if any rule asks for the system user.
    pub fn asks_for_system_user(&self) -> bool {
        self.rules.iter().any(|rule| rule.method == HbaAuthMethod::Peer)
    }
}

impl HbaRule {
    /// A warning at its line.
    fn warning(&self, message: String) -> ConfigProblem {
        ConfigProblem { severity: ProblemSeverity::Warning, ..problem(&self.file, Some(self.line), message) }
    }

    /// No part that asks is looked at when another part does not fit anyway.
    fn fit(&self, visit: &LoginFacts<'_>) -> HbaMatch {
        if !self.connection.fits(visit) {
            return HbaMatch::No;
        }
        let database = any(&self.databases, |word| word.fits_database(visit));
        let parts = [database, any(&self.users, |word| word.fits_user(visit)), self.address.fit(visit)];
        if parts.contains(&HbaMatch::No) {
            return HbaMatch::No;
        }
        parts.into_iter().find(|part| *part != HbaMatch::Yes).unwrap_or(HbaMatch::Yes)
    }
}

impl HbaConnectionType {
    /// True if a client of another machine can match.
    fn is_remote(self) -> bool {
        match self {
            HbaConnectionType::Local | HbaConnectionType::HostGss => false,
            HbaConnectionType::Host
            | HbaConnectionType::HostSsl
            | HbaConnectionType::HostNoSsl
            | HbaConnectionType::HostNoGss => true,
        }
    }

    fn fits(self, visit: &LoginFacts<'_>) -> bool {
        let is_local = visit.origin == ClientOrigin::Local;
        match self {
            HbaConnectionType::Local => is_local,
            HbaConnectionType::Host | HbaConnectionType::HostNoGss => !is_local,
            HbaConnectionType::HostSsl => !is_local && visit.tls.is_some(),
            HbaConnectionType::HostNoSsl => !is_local && visit.tls.is_none(),
            HbaConnectionType::HostGss => false,
        }
    }
}

/// The best match of these words; a fact that is needed is only asked for when no word matches without it.
fn any(words: &[HbaNameEntry], fit: impl Fn(&HbaNameEntry) -> HbaMatch) -> HbaMatch {
    let mut best = HbaMatch::No;
    for word in words {
        match fit(word) {
            HbaMatch::Yes => return HbaMatch::Yes,
            HbaMatch::No => {}
            unsure @ (HbaMatch::Ask(_) | HbaMatch::InDoubt) => best = unsure,
        }
    }
    best
}

impl HbaNameEntry {
    /// Source: `check_db` in hba.c.
    fn fits_database(&self, visit: &LoginFacts<'_>) -> HbaMatch {
        if visit.replication == ReplicationRequest::Physical {
            return matches!(self, HbaNameEntry::Replication).into();
        }
        match self {
            HbaNameEntry::All => HbaMatch::Yes,
            HbaNameEntry::SameUser => (visit.user == visit.database).into(),
            HbaNameEntry::SameRole => is_member(visit, visit.database),
            HbaNameEntry::Replication => HbaMatch::No,
            HbaNameEntry::Group(role) => is_member(visit, role),
            HbaNameEntry::Pattern(pattern) => pattern.is_match(visit.database).into(),
            HbaNameEntry::Name(name) => (name == visit.database).into(),
        }
    }

    /// Source: `check_role` in hba.c.
    fn fits_user(&self, visit: &LoginFacts<'_>) -> HbaMatch {
        match self {
            HbaNameEntry::All => HbaMatch::Yes,
            HbaNameEntry::Group(role) => is_member(visit, role),
            HbaNameEntry::Pattern(pattern) => pattern.is_match(visit.user).into(),
            HbaNameEntry::Name(name) => (name == visit.user).into(),
            HbaNameEntry::SameUser | HbaNameEntry::SameRole | HbaNameEntry::Replication => HbaMatch::No,
        }
    }
}

/// Tells if the user is a member of a role. A role is a member of itself, if it exists at all.
fn is_member(visit: &LoginFacts<'_>, role: &str) -> HbaMatch {
    match visit.groups {
        HbaFact::NotAsked => HbaMatch::Ask(HbaQuestion::Groups),
        HbaFact::Nothing => HbaMatch::InDoubt,
        HbaFact::Is(groups) => groups.contains(role).into(),
    }
}

/// An error at a place in a file.
fn problem(path: &Path, line: Option<u32>, message: String) -> ConfigProblem {
    ConfigProblem { severity: ProblemSeverity::Error, path: Some(path.to_path_buf()), line, message }
}

#[cfg(test)]
mod tests;
