//! Makes a stopped server a standby.

use super::broke;
use crate::agent::keeper::look::server;
use crate::agent::keeper::site::ServerInstallation;
use crate::agent::keeper::{source, synced_files};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_agent::{
    ConninfoKeyword, Host, OrderFailure, OrderFailureKind, Outcome, ServerStatus, SourceServer, StandbyUpstream, UserName,
    settings,
};
use weir_failover::conninfo::Conninfo;

/// Time for a killed server to vanish.
const REST_LIMIT: Duration = Duration::from_secs(10);
const LOGIN_LIMIT: Duration = Duration::from_secs(15);
/// Words that authenticate a user.
const PROOFS: [&str; 6] = ["password", "passfile", "sslcert", "sslkey", "sslpassword", "sslcertmode"];
const AUTO_CONF_BYTES_MAX: usize = 1 << 20;

type Place<'a> = (&'a Host, u16, &'a UserName);

/// Writes the settings, with a login that the primary accepts. The signal comes first: a start in between gives an idle standby, never a
/// primary.
pub fn follow(site: &ServerInstallation, order: &StandbyUpstream) -> Outcome {
    super::check_whole(site)?;
    let (auto_conf, signal) = (site.data.join("postgresql.auto.conf"), site.data.join("standby.signal"));
    let text = read(&auto_conf)?;
    let logins = logins(&known(&text), place(order), site.passfile.as_deref());
    let is_there = |login: &Conninfo| change(&text, order, login) == text;
    if matches!(server(site), ServerStatus::Running(_)) && logins.iter().any(is_there) && signal.exists() {
        return Ok(());
    }
    super::check_rests(site, Instant::now() + REST_LIMIT)?;
    let changed = change(&text, order, &working(site, logins)?);
    mark_standby(&site.data).map_err(broke(&signal))?;
    synced_files::write(&auto_conf, changed.as_bytes()).map_err(broke(&auto_conf))
}

/// Checks the login as a standby, without which a copy is useless.
pub fn check_login(site: &ServerInstallation, data: &Path, source: &SourceServer) -> Outcome {
    let text = read(&data.join("postgresql.auto.conf"))?;
    let place = (&source.host, source.port, &source.user);
    working(site, logins(&known(&text), place, site.passfile.as_deref())).map(|_| ())
}

/// Returns the first accepted login, or the last failure, that of the agent's own.
fn working(site: &ServerInstallation, logins: Vec<Conninfo>) -> Result<Conninfo, OrderFailure> {
    let mut outcome = Err(OrderFailure::new(OrderFailureKind::Other, "there is no login to try"));
    for login in logins {
        outcome = source::log_in(site, &login, Instant::now() + LOGIN_LIMIT).map(|()| login);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn read(auto_conf: &Path) -> Result<String, OrderFailure> {
    let text = fs::read_to_string(auto_conf).or_else(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound => Ok(String::new()),
        _ => Err(broke(auto_conf)(cause)),
    })?;
    if text.len() > AUTO_CONF_BYTES_MAX {
        return Err(OrderFailure::new(OrderFailureKind::Other, format!("{} has {} bytes", auto_conf.display(), text.len())));
    }
    Ok(text)
}

pub fn mark_standby(data: &Path) -> std::io::Result<()> {
    if !data.join("standby.signal").exists() {
        synced_files::write(&data.join("standby.signal"), b"")?;
    }
    synced_files::remove(&data.join("recovery.signal"))
}

fn known(text: &str) -> Conninfo {
    settings::get(text, "primary_conninfo").and_then(|text| Conninfo::parse(&text)).unwrap_or_default()
}

fn place(order: &StandbyUpstream) -> Place<'_> {
    (&order.host, order.port, &order.user)
}

/// Removes Weir's fence, which a standby does not need.
fn change(text: &str, order: &StandbyUpstream, login: &Conninfo) -> String {
    let conninfo = named(login, order).show();
    settings::change(
        text,
        &[
            ("primary_conninfo", Some(&conninfo)),
            ("primary_slot_name", order.slot.as_ref().map(weir_agent::SlotName::as_str)),
            ("default_transaction_read_only", None),
        ],
    )
}

/// Logins to try, in order. Password, passfile and certificate of another user are dropped: libpq prefers the password to the file.
/// Encryption words and Weir's mark stay.
fn logins(known: &Conninfo, (host, port, user): Place<'_>, passfile: Option<&Path>) -> Vec<Conninfo> {
    let there = known.clone().to(host.as_str(), port).with("user", user.as_str());
    let own = there.clone().without(&PROOFS);
    let is_same = known.get("user") == Some(user.as_str());
    match passfile {
        Some(file) => vec![own.with("passfile", &file.display().to_string())],
        None if is_same && own != there => vec![there, own],
        None => vec![own],
    }
}

/// Weir's mark stays unless a new one is sent.
fn named(login: &Conninfo, order: &StandbyUpstream) -> Conninfo {
    let is_sent = order.words.iter().any(|(word, _)| *word == ConninfoKeyword::MARK);
    let mark = login.get(ConninfoKeyword::MARK.as_str()).map(str::to_string).filter(|_| !is_sent);
    let mut conninfo = login.clone();
    for (word, value) in &order.words {
        conninfo = conninfo.with(word.as_str(), value.as_str());
    }
    match mark {
        Some(mark) => conninfo.with(ConninfoKeyword::MARK.as_str(), &mark),
        None => conninfo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agent::{SlotName, WordValue};

    fn changed_to(text: &str, order: &StandbyUpstream, passfile: Option<&Path>) -> String {
        change(text, order, &logins(&known(text), place(order), passfile)[0])
    }

    #[test]
    fn a_server_is_pointed_at_its_primary_and_all_else_stays() {
        let order = |words| StandbyUpstream {
            host: Host::new("10.0.0.2").unwrap(),
            port: 5433,
            user: UserName::new("o'neil \\x").unwrap(),
            slot: Some(SlotName::new("weir_0").unwrap()),
            words,
        };
        let old = "work_mem = '8MB'\ndefault_transaction_read_only = 'on'\n\
                   primary_conninfo = 'host=/weir-cut-off sslmode=require password=''a b'' sslcert=/x user=x fallback_application_name=weir/3.7'\n";
        let name = (ConninfoKeyword::APPLICATION_NAME, WordValue::new("server 0").unwrap());
        let changed = changed_to(old, &order(vec![name]), Some(Path::new("/etc/pass")));
        let conninfo = Conninfo::parse(&settings::get(&changed, "primary_conninfo").unwrap()).unwrap();
        let words = [
            ("host", Some("10.0.0.2")),
            ("port", Some("5433")),
            ("user", Some("o'neil \\x")),
            ("application_name", Some("server 0")),
            ("sslmode", Some("require")),
            ("password", None),
            ("sslcert", None),
            ("passfile", Some("/etc/pass")),
            ("fallback_application_name", Some("weir/3.7")),
        ];
        for (word, value) in words {
            assert_eq!(conninfo.get(word), value, "{word}");
        }
        assert_eq!(settings::get(&changed, "primary_slot_name").as_deref(), Some("weir_0"));
        assert_eq!(settings::get(&changed, "work_mem").as_deref(), Some("8MB"));
        assert_eq!(settings::get(&changed, "default_transaction_read_only"), None);
        let mark = (ConninfoKeyword::MARK, WordValue::new("weir/4.8").unwrap());
        let marked = changed_to(old, &order(vec![mark]), None);
        assert!(settings::get(&marked, "primary_conninfo").unwrap().contains("fallback_application_name=weir/4.8"));
        assert!(!marked.contains("weir/3.7"));
    }

    #[test]
    fn what_belongs_to_a_user_stays_with_him() {
        let (host, user) = (Host::new("b").unwrap(), UserName::new("weir").unwrap());
        let file = Path::new("/etc/pass");
        let cases: &[(&str, Option<&Path>, &[&str])] = &[
            ("host=a user=repl password=x sslmode=require", None, &["sslmode=require user=weir host=b port=1"]),
            ("host=a user=repl password=x", Some(file), &["user=weir host=b port=1 passfile=/etc/pass"]),
            ("host=a user=repl passfile=/repl sslcert=/c sslkey=/k", None, &["user=weir host=b port=1"]),
            ("host=a password=x", None, &["user=weir host=b port=1"]),
            ("host=a user=weir password=x", Some(file), &["user=weir host=b port=1 passfile=/etc/pass"]),
            // His own password first; it may be an old one.
            ("host=a user=weir password=x", None, &["password=x user=weir host=b port=1", "user=weir host=b port=1"]),
            ("", None, &["user=weir host=b port=1"]),
        ];
        for (before, passfile, expected) in cases {
            let shown = |login: &Conninfo| {
                let place = Conninfo::parse("user=weir host=b port=1").unwrap();
                let rest = login.clone().without(&["user", "host", "port", "passfile"]).show();
                let file = login.get("passfile").map(|file| format!("passfile={file}")).unwrap_or_default();
                [rest, place.show(), file].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
            };
            let found = logins(&Conninfo::parse(before).unwrap(), (&host, 1, &user), *passfile);
            assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), *expected, "{before}");
            let is_there = |login: &Conninfo| (login.get("host"), login.get("user")) == (Some("b"), Some("weir"));
            assert!(found.iter().all(is_there), "{before}");
        }
    }
}
