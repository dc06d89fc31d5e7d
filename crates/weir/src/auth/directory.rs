//! Asks an LDAP directory whether a password is a user's. Blocks: runs on threads of `blocking_jobs`.
//!
//! Source: `CheckLDAPAuth` in PostgreSQL's auth.c.

use ldap3::{LdapConn, LdapConnSettings, LdapError, Scope as LdapScope, SearchEntry, SearchOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::hba::{LdapDirectory, LdapSearchScope, LdapSteps};
use weir_wire::gather::{GatherBound, GatherBudget};

const ENTRIES_MAX: i32 = 2;

/// Entries, and references to other servers, which are ignored.
const SEARCH: GatherBound =
    GatherBound { thing: "the directory's answer", count_max: 1024, bytes_max: usize::MAX, parameter: "" };

/// Result codes; `REFUSALS` mean a wrong name or password. Source: RFC 4511, section 4.1.9.
const SUCCESS: u32 = 0;
const SIZE_LIMIT_EXCEEDED: u32 = 4;
const REFUSALS: [u32; 5] = [32, 34, 48, 49, 53];

/// Files that name OpenLDAP's trusted authorities.
const SETTINGS: [&str; 2] = ["/etc/ldap/ldap.conf", "/etc/openldap/ldap.conf"];

/// The password is a digest under a secret of this process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LdapQuestion {
    pub(crate) directory: Arc<LdapDirectory>,
    pub(crate) user: Box<str>,
    pub(crate) password: [u8; 32],
}

#[derive(Clone, Debug)]
pub struct PasswordCheck {
    pub(crate) at: Instant,
    pub(crate) outcome: PasswordVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordVerdict {
    Right,
    /// Wrong password or unknown user, for the log.
    Wrong(Arc<str>),
    /// No verdict, for the log.
    Unasked(Arc<str>),
}

/// Asks the rule's servers in turn until one answers.
pub fn judge(directory: &LdapDirectory, user: &str, password: &[u8], limit: Duration) -> PasswordCheck {
    let deadline = Instant::now() + limit;
    let outcome = match (std::str::from_utf8(password), directory.steps(user)) {
        (Err(_), _) => PasswordVerdict::Wrong("the password is not valid UTF-8".into()),
        (_, None) => PasswordVerdict::Wrong("invalid character in user name for LDAP authentication".into()),
        (Ok(password), Some(steps)) => ask_servers(directory, &steps, password, deadline),
    };
    PasswordCheck { at: Instant::now(), outcome }
}

fn ask_servers(directory: &LdapDirectory, steps: &LdapSteps<'_>, password: &str, deadline: Instant) -> PasswordVerdict {
    let mut failures = Vec::new();
    for server in &directory.servers {
        let asked = connect(directory, server, deadline).and_then(|mut talk| {
            let outcome = talk.follow(steps, password);
            let _ = talk.connection.unbind();
            outcome
        });
        match asked {
            Ok(outcome) => return outcome,
            Err(cause) => failures.push(format!("{server} port {}: {cause}", directory.port())),
        }
    }
    PasswordVerdict::Unasked(failures.join("; ").into())
}

struct LdapExchange {
    connection: LdapConn,
    deadline: Instant,
}

fn connect(directory: &LdapDirectory, server: &str, deadline: Instant) -> Result<LdapExchange, LdapError> {
    let mut settings = LdapConnSettings::new().set_conn_timeout(left(deadline)).set_starttls(directory.starts_tls);
    if directory.is_ldaps || directory.starts_tls {
        let authorities = authorities();
        if let Some(path) = authorities {
            settings = settings.set_config(trusting(&path).map_err(LdapError::from)?);
        }
    }
    let scheme = if directory.is_ldaps { "ldaps" } else { "ldap" };
    let url = format!("{scheme}://{server}:{}", directory.port());
    Ok(LdapExchange { connection: LdapConn::with_settings(settings, &url)?, deadline })
}

/// Time is never up before the first attempt.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

impl LdapExchange {
    fn follow(&mut self, steps: &LdapSteps<'_>, password: &str) -> Result<PasswordVerdict, LdapError> {
        let name = match steps {
            LdapSteps::Bind(name) => name.clone(),
            LdapSteps::Search { name, password, base, scope, filter } => {
                if let PasswordVerdict::Wrong(cause) = self.bind(name, password)? {
                    let text = format!("could not perform initial LDAP bind for ldapbinddn \"{name}\": {cause}");
                    return Ok(PasswordVerdict::Unasked(text.into()));
                }
                match self.find(base, *scope, filter)? {
                    Ok(name) => name,
                    Err(outcome) => return Ok(outcome),
                }
            }
        };
        self.bind(&name, password)
    }

    fn bind(&mut self, name: &str, password: &str) -> Result<PasswordVerdict, LdapError> {
        let result = self.connection.with_timeout(left(self.deadline)).simple_bind(name, password)?;
        let words: Arc<str> = format!("LDAP login failed for \"{name}\": result {} {}", result.rc, result.text).into();
        Ok(match result.rc {
            SUCCESS => PasswordVerdict::Right,
            refusal if REFUSALS.contains(&refusal) => PasswordVerdict::Wrong(words),
            _ => PasswordVerdict::Unasked(words),
        })
    }

    fn find(&mut self, base: &str, scope: LdapSearchScope, filter: &str) -> Result<Result<String, PasswordVerdict>, LdapError> {
        let scope = match scope {
            LdapSearchScope::Base => LdapScope::Base,
            LdapSearchScope::OneLevel => LdapScope::OneLevel,
            LdapSearchScope::Subtree => LdapScope::Subtree,
        };
        let seconds = i32::try_from(left(self.deadline).as_secs()).unwrap_or(i32::MAX).max(1);
        let options = SearchOptions::new().sizelimit(ENTRIES_MAX).timelimit(seconds);
        let connection = self.connection.with_search_options(options).with_timeout(left(self.deadline));
        let mut entries = connection.streaming_search(base, scope, filter, ["1.1"])?;
        let (mut found, mut budget) = (None, GatherBudget::new(SEARCH));
        // One by one, so that the budget cuts off an endless answer.
        while let Some(entry) = entries.next()? {
            if let Err(exceeded) = budget.take(0) {
                return Ok(Err(PasswordVerdict::Unasked(format!("LDAP search for filter \"{filter}\": {exceeded}").into())));
            }
            if entry.is_ref() {
                continue;
            }
            if found.is_some() {
                let text = format!("LDAP search for filter \"{filter}\" returned several entries");
                return Ok(Err(PasswordVerdict::Wrong(text.into())));
            }
            found = Some(SearchEntry::construct(entry).dn);
        }
        let result = entries.result();
        if !matches!(result.rc, SUCCESS | SIZE_LIMIT_EXCEEDED) {
            let text = format!("could not search LDAP for filter \"{filter}\": result {} {}", result.rc, result.text);
            return Ok(Err(PasswordVerdict::Unasked(text.into())));
        }
        let nobody = || PasswordVerdict::Wrong(format!("LDAP search for filter \"{filter}\" returned no entries").into());
        Ok(found.ok_or_else(nobody))
    }
}

/// Returns OpenLDAP's file of authorities; without one, the system's count.
fn authorities() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("LDAPTLS_CACERT") {
        return Some(path.into());
    }
    let named = std::env::var_os("LDAPCONF").map(PathBuf::from);
    let places = named.into_iter().chain(SETTINGS.map(PathBuf::from));
    places.filter_map(|path| std::fs::read_to_string(path).ok()).find_map(|text| {
        let mut lines = text.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.next()? == "TLS_CACERT").then(|| words.next().map(PathBuf::from)).flatten())
    })
}

fn trusting(path: &Path) -> std::io::Result<Arc<ClientConfig>> {
    let wrong = |cause: String| std::io::Error::other(format!("{}: {cause}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|cause| wrong(cause.to_string()))? {
        roots.add_parsable_certificates([certificate.map_err(|cause| wrong(cause.to_string()))?]);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|cause| wrong(cause.to_string()))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
