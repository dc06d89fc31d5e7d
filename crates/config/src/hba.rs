//! `pool_hba.conf`: who may connect, from where, and by which proof, as in PostgreSQL's `pg_hba.conf`.
//!
//! Questions instead of a callback: host names and groups need a wait, and most rules need neither. No IO.
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

#[derive(Debug, Clone)]
pub struct HbaRuleSet {
    rules: Vec<HbaRule>,
    maps: IdentMaps,
}

#[derive(Debug, Clone)]
pub struct HbaRule {
    /// May be an included file.
    pub file: PathBuf,
    pub line: u32,
    pub method: HbaAuthMethod,
    pub certificate: ClientCertDemand,
    pub admits: AdmittedUsers,
    pub directory: Option<Arc<LdapDirectory>>,
    pub service: Option<Arc<PamService>>,
    connection: HbaConnectionType,
    databases: Vec<HbaNameEntry>,
    users: Vec<HbaNameEntry>,
    address: HbaAddress,
    /// Map between outside names and users.
    map: Option<String>,
    by: CertificateName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaAuthMethod {
    Trust,
    Reject,
    Password,
    Md5,
    Scram,
    Cert,
    /// A unix socket to a process of the user.
    Peer,
    Ldap,
    Pam,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PamService {
    /// A file in `/etc/pam.d`.
    pub name: String,
    /// True if modules get the host name instead of the address.
    pub uses_host_name: bool,
    /// True if Weir logs in to servers with this password (`backend_use_passwd`).
    pub is_password_for_servers: bool,
}

impl PamService {
    /// Sets one option. Ignores an empty service name, as in PostgreSQL.
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
    /// Pgpool-II's service name.
    fn default() -> PamService {
        PamService { name: "pgpool".into(), uses_host_name: false, is_password_for_servers: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertDemand {
    Any,
    VerifyCa,
    VerifyFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmittedUsers {
    Anyone,
    /// Users in `pool_passwd` or with a password by `auth_query`: PgBouncer's rule for all methods.
    KnownUsers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateName {
    Common,
    Distinguished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HbaConnectionType {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
    /// Never matches: no GSSAPI encryption.
    HostGss,
    HostNoGss,
}

#[derive(Debug, Clone)]
enum HbaNameEntry {
    All,
    SameUser,
    SameRole,
    Replication,
    Group(String),
    Pattern(Regex),
    Name(String),
}

#[derive(Debug, Clone, Copy)]
pub struct LoginFacts<'a> {
    pub user: &'a str,
    /// Database in the startup packet, or the user's name.
    pub database: &'a str,
    pub replication: ReplicationRequest,
    pub origin: ClientOrigin,
    pub tls: Option<ClientTlsFacts<'a>>,
    /// System user at the other end of a unix socket.
    pub system_user: Option<&'a str>,
    /// Networks in which this machine has an address.
    pub networks: &'a [IpNetwork],
    /// Roles of the user, itself included.
    pub groups: HbaFact<&'a BTreeSet<String>>,
    /// Name confirmed by a forward lookup.
    pub host: HbaFact<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOrigin {
    Local,
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTlsFacts<'a> {
    /// From a certificate signed by a trusted authority.
    pub common_name: Option<&'a str>,
    pub distinguished_name: Option<&'a str>,
}

/// Purpose of a connection. Source: `am_walsender` and `am_db_walsender` in walsender.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicationRequest {
    No,
    /// WAL of the server; matches the keyword `replication` only.
    Physical,
    Logical,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaFact<T> {
    NotAsked,
    /// Asked, without an answer.
    Nothing,
    Is(T),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HbaQuestion {
    Groups,
    HostName,
}

#[derive(Debug, Clone, Copy)]
pub enum HbaVerdict<'a> {
    Ask(HbaQuestion),
    Apply(&'a HbaRule),
    NoEntry,
    /// The groups are unknown. Refused: the next rule may be more generous than meant.
    InDoubt(&'a HbaRule),
}

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
    pub fn read(path: &Path, ident: Option<&Path>, loader: &mut FileLoader<'_>) -> (Option<HbaRuleSet>, Vec<ConfigProblem>) {
        HbaRuleSet::read_under(ClientDemands::default(), path, ident, loader)
    }

    /// Reads as [`Self::read`], under the demands of parameters on all clients.
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
            // An empty file refuses everyone: more likely a mistake.
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

    /// Warns of rules that admit no client because of the encryption settings.
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

    pub fn has_maps(&self) -> bool {
        !self.maps.is_empty()
    }

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

    /// True if the outside name (certificate or system user) satisfies the rule. `None`: the groups are needed first.
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

    /// True if the rule's map, or equality, makes the name this user.
    fn is_called(&self, rule: &HbaRule, outside: Option<&str>, visit: &LoginFacts<'_>) -> Option<bool> {
        let Some(name) = outside else { return Some(false) };
        match rule.map.as_ref().map(|map| self.maps.fit(map, name, visit)) {
            None => Some(name == visit.user),
            Some(HbaMatch::Yes) => Some(true),
            Some(HbaMatch::No | HbaMatch::InDoubt) => Some(false),
            Some(HbaMatch::Ask(_)) => None,
        }
    }

    /// True if some remote clients get in without a proof.
    pub fn trusts_hosts(&self) -> bool {
        self.unasked().any(|rule| rule.admits == AdmittedUsers::Anyone)
    }

    /// True if passwords of unknown users go to the servers, where no `auth_user` is set.
    pub fn passes_passwords_on(&self) -> bool {
        self.rules.iter().any(|rule| rule.method == HbaAuthMethod::Password && rule.admits == AdmittedUsers::Anyone)
    }

    /// Returns rules that let remote clients in without a proof.
    pub fn unasked(&self) -> impl Iterator<Item = &HbaRule> {
        self.rules.iter().filter(|rule| {
            let asks_nothing = rule.method == HbaAuthMethod::Trust && rule.certificate == ClientCertDemand::Any;
            asks_nothing && rule.connection.is_remote() && rule.address.has_others()
        })
    }

    pub fn asks_for_system_user(&self) -> bool {
        self.rules.iter().any(|rule| rule.method == HbaAuthMethod::Peer)
    }
}

impl HbaRule {
    fn warning(&self, message: String) -> ConfigProblem {
        ConfigProblem { severity: ProblemSeverity::Warning, ..problem(&self.file, Some(self.line), message) }
    }

    /// Asks for no fact if another part does not match.
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

/// Asks for a fact only if no word matches without it.
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

/// A role is a member of itself, if it exists.
fn is_member(visit: &LoginFacts<'_>, role: &str) -> HbaMatch {
    match visit.groups {
        HbaFact::NotAsked => HbaMatch::Ask(HbaQuestion::Groups),
        HbaFact::Nothing => HbaMatch::InDoubt,
        HbaFact::Is(groups) => groups.contains(role).into(),
    }
}

fn problem(path: &Path, line: Option<u32>, message: String) -> ConfigProblem {
    ConfigProblem { severity: ProblemSeverity::Error, path: Some(path.to_path_buf()), line, message }
}

#[cfg(test)]
mod tests;
