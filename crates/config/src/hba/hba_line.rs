//! Parses a line of `pool_hba.conf` into a rule. Source: `parse_hba_line` and `parse_hba_auth_opt` in PostgreSQL's hba.c.

use super::address::{self, HbaAddress, IpNetwork};
use super::ldap::LdapDirectory;
use super::tokens::{self, FileLoader, HbaLine, HbaToken};
use super::{AdmittedUsers, CertificateName, ClientCertDemand, HbaAuthMethod, HbaConnectionType, HbaNameEntry, HbaRule, problem};
use crate::client_demands::{ClientDemands, CommonMethod};
use crate::hba::demand_rules::BY_PARAMETER;
use crate::{ConfigProblem, ProblemSeverity};
use regex::{Regex, RegexBuilder};
use std::path::Path;
use std::sync::Arc;

/// Memory limit of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Unsupported methods of PostgreSQL and Pgpool-II, told apart from typing errors.
const NOT_BUILT: [&str; 8] = ["ident", "gss", "sspi", "krb5", "radius", "bsd", "oauth", "crypt"];

/// Returns the rules of a file and its includes. With `auth_type` set, rules after the last `auth_type` line do not
/// count; without it, `auth_type` lines do not count.
pub(super) fn rules(
    path: &Path,
    loader: &mut FileLoader<'_>,
    demands: ClientDemands,
    problems: &mut Vec<ConfigProblem>,
) -> Vec<HbaRule> {
    let (mut rules, mut common) = (Vec::new(), None);
    for line in tokens::lines(path, loader, problems) {
        match rule(&line) {
            Ok((mut rule, MethodSource::Parameter)) => {
                if demands.method != CommonMethod::ByRules {
                    demands.method.give_to(&mut rule);
                    rules.push(rule);
                }
                common = Some(rules.len());
            }
            Ok((rule, MethodSource::Line)) => {
                if rule.connection == HbaConnectionType::HostGss {
                    let message = "hostgssenc matches no client: there is no GSSAPI encryption".into();
                    let place = problem(&line.file, Some(line.number), message);
                    problems.push(ConfigProblem { severity: ProblemSeverity::Warning, ..place });
                }
                rules.push(rule);
            }
            Err(message) => problems.push(problem(&line.file, Some(line.number), message)),
        }
    }
    match (demands.method, common) {
        (CommonMethod::ByRules, Some(_)) if rules.is_empty() => {
            problems.push(problem(path, None, "auth_type is hba, and all rules leave their method to it".into()));
        }
        (CommonMethod::ByRules, _) => {}
        (_, Some(end)) => rules.truncate(end),
        (_, None) => {
            let message = "auth_type names a method, and no rule has the word auth_type in place of its own".into();
            problems.push(problem(path, None, message));
        }
    }
    rules.iter_mut().for_each(|rule| demands.tls.give_to(rule));
    rules
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MethodSource {
    Line,
    /// The parameter `auth_type`.
    Parameter,
}

struct HbaLineFields<'a> {
    rest: std::slice::Iter<'a, Vec<HbaToken>>,
}

impl<'a> HbaLineFields<'a> {
    fn list(&mut self, missing: &str) -> Result<&'a [HbaToken], String> {
        self.rest.next().map(Vec::as_slice).ok_or_else(|| format!("end-of-line before {missing}"))
    }

    fn one(&mut self, missing: &str) -> Result<&'a HbaToken, String> {
        match self.list(missing)? {
            [one] => Ok(one),
            _ => Err(format!("multiple values where one {missing} is expected")),
        }
    }
}

fn rule(line: &HbaLine) -> Result<(HbaRule, MethodSource), String> {
    let mut fields = HbaLineFields { rest: line.fields.iter() };
    let connection = connection(&fields.one("connection type")?.text)?;
    let databases = fields.list("database specification")?.iter().map(database).collect::<Result<_, _>>()?;
    let users = fields.list("role specification")?.iter().map(user).collect::<Result<_, _>>()?;
    let address = if connection == HbaConnectionType::Local { HbaAddress::All } else { address(&mut fields)? };
    let word = fields.one("authentication method")?;
    let source = if word.is(BY_PARAMETER) { MethodSource::Parameter } else { MethodSource::Line };
    let method = if source == MethodSource::Parameter { HbaAuthMethod::Reject } else { method(&word.text)? };
    let certificate = if method == HbaAuthMethod::Cert { ClientCertDemand::VerifyFull } else { ClientCertDemand::Any };
    let mut rule = HbaRule {
        file: line.file.clone(),
        line: line.number,
        method,
        certificate,
        admits: AdmittedUsers::Anyone,
        connection,
        databases,
        users,
        address,
        map: None,
        by: CertificateName::Common,
        directory: None,
        service: (method == HbaAuthMethod::Pam).then(Arc::default),
    };
    if method == HbaAuthMethod::Cert && connection != HbaConnectionType::HostSsl {
        return Err("cert authentication is only supported on hostssl connections".into());
    }
    if method == HbaAuthMethod::Peer && connection != HbaConnectionType::Local {
        return Err("peer authentication is only supported on local sockets".into());
    }
    if source == MethodSource::Parameter && fields.rest.len() > 0 {
        return Err("a rule with the word auth_type has no options".into());
    }
    let mut directory = LdapDirectory::default();
    for option in fields.rest.flatten() {
        rule.set(&option.text, &mut directory)?;
    }
    if method == HbaAuthMethod::Ldap {
        directory.check()?;
        rule.directory = Some(Arc::new(directory));
    }
    Ok((rule, source))
}

fn connection(word: &str) -> Result<HbaConnectionType, String> {
    Ok(match word {
        "local" => HbaConnectionType::Local,
        "host" => HbaConnectionType::Host,
        "hostssl" => HbaConnectionType::HostSsl,
        "hostnossl" => HbaConnectionType::HostNoSsl,
        "hostgssenc" => HbaConnectionType::HostGss,
        "hostnogssenc" => HbaConnectionType::HostNoGss,
        other => return Err(format!("invalid connection type \"{other}\"")),
    })
}

fn database(token: &HbaToken) -> Result<HbaNameEntry, String> {
    Ok(match () {
        () if token.is("all") => HbaNameEntry::All,
        () if token.is("sameuser") => HbaNameEntry::SameUser,
        () if token.is("samerole") || token.is("samegroup") => HbaNameEntry::SameRole,
        () if token.is("replication") => HbaNameEntry::Replication,
        () => return name(token),
    })
}

pub(super) fn user(token: &HbaToken) -> Result<HbaNameEntry, String> {
    match token.text.strip_prefix('+').filter(|_| !token.is_quoted) {
        Some(role) => Ok(HbaNameEntry::Group(role.to_string())),
        None if token.is("all") => Ok(HbaNameEntry::All),
        None => name(token),
    }
}

/// Parses a name, or a pattern after a slash.
fn name(token: &HbaToken) -> Result<HbaNameEntry, String> {
    match token.text.strip_prefix('/') {
        Some(text) => pattern(text).map(HbaNameEntry::Pattern),
        None => Ok(HbaNameEntry::Name(token.text.clone())),
    }
}

pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|cause| {
        // The regex error is a drawing over several lines; the last one names the fault.
        let cause = cause.to_string();
        let last = cause.lines().last().unwrap_or_default();
        format!("invalid regular expression \"{text}\": {}", last.trim_start_matches("error: "))
    })
}

fn address(fields: &mut HbaLineFields<'_>) -> Result<HbaAddress, String> {
    let token = fields.one("IP address specification")?;
    match () {
        () if token.is("all") => return Ok(HbaAddress::All),
        () if token.is("samehost") => return Ok(HbaAddress::SameHost),
        () if token.is("samenet") => return Ok(HbaAddress::SameNet),
        () => {}
    }
    match address::parse(&token.text) {
        Ok((_, Some(network))) => Ok(HbaAddress::Network(network)),
        Ok((ip, None)) => {
            let missing = "netmask specification (specify an address range in CIDR notation, or provide a separate netmask)";
            let mask = &fields.one(missing)?.text;
            let parsed = address::numeric(mask).ok_or_else(|| format!("invalid IP mask \"{mask}\""))?;
            IpNetwork::new(ip, parsed)
                .map(HbaAddress::Network)
                .ok_or_else(|| format!("IP address and mask do not match: \"{mask}\""))
        }
        Err(None) => Ok(HbaAddress::Host(token.text.clone())),
        Err(Some(message)) => Err(message),
    }
}

fn method(word: &str) -> Result<HbaAuthMethod, String> {
    const BUILT: [(&str, HbaAuthMethod); 9] = [
        ("trust", HbaAuthMethod::Trust),
        ("reject", HbaAuthMethod::Reject),
        ("password", HbaAuthMethod::Password),
        ("md5", HbaAuthMethod::Md5),
        ("scram-sha-256", HbaAuthMethod::Scram),
        ("cert", HbaAuthMethod::Cert),
        ("peer", HbaAuthMethod::Peer),
        ("ldap", HbaAuthMethod::Ldap),
        ("pam", HbaAuthMethod::Pam),
    ];
    match BUILT.iter().find(|(name, _)| *name == word) {
        Some((_, method)) => Ok(*method),
        None if NOT_BUILT.contains(&word) => {
            let names = BUILT.map(|(name, _)| name).join(", ");
            Err(format!("authentication method \"{word}\" is not supported by this version; use one of {names}"))
        }
        None => Err(format!("invalid authentication method \"{word}\"")),
    }
}

impl HbaRule {
    /// Takes one `name=value`.
    fn set(&mut self, option: &str, directory: &mut LdapDirectory) -> Result<(), String> {
        let Some((name, value)) = option.split_once('=') else {
            return Err(format!("authentication option not in name=value format: {option}"));
        };
        let needs_ssl = |rule: &HbaRule| match rule.connection {
            HbaConnectionType::HostSsl => Ok(()),
            _ => Err(format!("{name} can only be configured for \"hostssl\" rows")),
        };
        match name {
            "map" if matches!(self.method, HbaAuthMethod::Cert | HbaAuthMethod::Peer) => self.map = Some(value.to_string()),
            "map" => return Err("authentication option \"map\" is only valid for authentication methods peer and cert".into()),
            "clientcert" => {
                needs_ssl(self)?;
                self.certificate = match value {
                    "verify-full" => ClientCertDemand::VerifyFull,
                    "verify-ca" if self.method == HbaAuthMethod::Cert => {
                        return Err("clientcert only accepts \"verify-full\" when using \"cert\" authentication".into());
                    }
                    "verify-ca" => ClientCertDemand::VerifyCa,
                    _ => return Err(format!("invalid value for clientcert: \"{value}\"")),
                };
            }
            "clientname" => {
                needs_ssl(self)?;
                self.by = match value {
                    "CN" => CertificateName::Common,
                    "DN" => CertificateName::Distinguished,
                    _ => return Err(format!("invalid value for clientname: \"{value}\"")),
                };
            }
            "known_users" => {
                self.admits = match value {
                    "1" => AdmittedUsers::KnownUsers,
                    "0" => AdmittedUsers::Anyone,
                    _ => return Err(format!("invalid value for known_users: \"{value}\"")),
                };
            }
            "pamservice" | "pam_use_hostname" => {
                let only = || format!("authentication option \"{name}\" is only valid for authentication methods pam");
                self.service.as_mut().and_then(Arc::get_mut).ok_or_else(only)?.set(name, value);
            }
            "backend_use_passwd" if self.method == HbaAuthMethod::Pam => {
                self.service.iter_mut().filter_map(Arc::get_mut).for_each(|service| service.set(name, value));
            }
            _ => match directory.set(name, value) {
                None => return Err(format!("unrecognized authentication option name: \"{name}\"")),
                Some(taken) if self.method == HbaAuthMethod::Ldap => taken?,
                Some(_) => {
                    return Err(format!("authentication option \"{name}\" is only valid for authentication methods ldap"));
                }
            },
        }
        Ok(())
    }
}
