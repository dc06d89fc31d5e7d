//! A server at rest becomes a standby.

use super::broke;
use crate::process::keeper::files;
use crate::process::keeper::look::server;
use crate::process::keeper::site::Site;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_agent::{Failure, FailureKind, Follow, Outcome, ServerStatus, Word, settings};
use weir_policy::failover::conninfo::Conninfo;

/// Time for a server that was killed to vanish.
const REST_LIMIT: Duration = Duration::from_secs(10);
/// Longest `postgresql.auto.conf`.
const AUTO_CONF_BYTES_MAX: usize = 1 << 20;

/// Writes what makes it one. The signal comes first: between the two the server would start as a standby that receives nothing, never as a primary.
pub fn follow(site: &Site, order: &Follow) -> Outcome {
    super::check_whole(site)?;
    let (auto_conf, signal) = (site.data.join("postgresql.auto.conf"), site.data.join("standby.signal"));
    let text = fs::read_to_string(&auto_conf).or_else(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound => Ok(String::new()),
        _ => Err(broke(&auto_conf)(cause)),
    })?;
    if text.len() > AUTO_CONF_BYTES_MAX {
        return Err(Failure::new(FailureKind::Other, format!("{} has {} bytes", auto_conf.display(), text.len())));
    }
    let changed = change(&text, order, site.passfile.as_deref());
    if matches!(server(site), ServerStatus::Running(_)) && changed == text && signal.exists() {
        return Ok(());
    }
    super::check_rests(site, Instant::now() + REST_LIMIT)?;
    mark_standby(&site.data).map_err(broke(&signal))?;
    files::write(&auto_conf, changed.as_bytes()).map_err(broke(&auto_conf))
}

/// Makes a data directory one of a standby.
pub fn mark_standby(data: &Path) -> std::io::Result<()> {
    if !data.join("standby.signal").exists() {
        files::write(&data.join("standby.signal"), b"")?;
    }
    files::remove(&data.join("recovery.signal"))
}

/// The settings after the change. Weir's fence is taken away: a standby takes no writes anyway.
fn change(text: &str, order: &Follow, passfile: Option<&Path>) -> String {
    let known = settings::get(text, "primary_conninfo").and_then(|text| Conninfo::parse(&text)).unwrap_or_default();
    let conninfo = conninfo(known, order, passfile).show();
    settings::change(
        text,
        &[
            ("primary_conninfo", Some(&conninfo)),
            ("primary_slot_name", order.slot.as_ref().map(weir_agent::SlotName::as_str)),
            ("default_transaction_read_only", None),
        ],
    )
}

/// Other words that were there stay, such as those for encryption, and Weir's mark if no other is sent.
fn conninfo(known: Conninfo, order: &Follow, passfile: Option<&Path>) -> Conninfo {
    let is_sent = order.words.iter().any(|(word, _)| *word == Word::MARK);
    let mark = known.get(Word::MARK.as_str()).map(str::to_string).filter(|_| !is_sent);
    let mut conninfo = known.to(order.host.as_str(), order.port).with("user", order.user.as_str());
    if let Some(file) = passfile {
        conninfo = conninfo.with("passfile", &file.display().to_string());
    }
    for (word, value) in &order.words {
        conninfo = conninfo.with(word.as_str(), value.as_str());
    }
    match mark {
        Some(mark) => conninfo.with(Word::MARK.as_str(), &mark),
        None => conninfo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agent::{Host, SlotName, UserName, WordValue};

    #[test]
    fn a_server_is_pointed_at_its_primary_and_all_else_stays() {
        let order = |words| Follow {
            host: Host::new("10.0.0.2").unwrap(),
            port: 5433,
            user: UserName::new("o'neil \\x").unwrap(),
            slot: Some(SlotName::new("weir_0").unwrap()),
            words,
        };
        let old = "work_mem = '8MB'\ndefault_transaction_read_only = 'on'\n\
                   primary_conninfo = 'host=/weir-cut-off sslmode=require password=''a b'' user=x fallback_application_name=weir/3.7'\n";
        let name = (Word::APPLICATION_NAME, WordValue::new("server 0").unwrap());
        let changed = change(old, &order(vec![name]), Some(Path::new("/etc/pass")));
        let conninfo = Conninfo::parse(&settings::get(&changed, "primary_conninfo").unwrap()).unwrap();
        let words = [
            ("host", Some("10.0.0.2")),
            ("port", Some("5433")),
            ("user", Some("o'neil \\x")),
            ("application_name", Some("server 0")),
            ("sslmode", Some("require")),
            ("password", Some("a b")),
            ("passfile", Some("/etc/pass")),
            ("fallback_application_name", Some("weir/3.7")),
        ];
        for (word, value) in words {
            assert_eq!(conninfo.get(word), value, "{word}");
        }
        assert_eq!(settings::get(&changed, "primary_slot_name").as_deref(), Some("weir_0"));
        assert_eq!(settings::get(&changed, "work_mem").as_deref(), Some("8MB"));
        assert_eq!(settings::get(&changed, "default_transaction_read_only"), None);
        let mark = (Word::MARK, WordValue::new("weir/4.8").unwrap());
        let marked = change(old, &order(vec![mark]), None);
        assert!(settings::get(&marked, "primary_conninfo").unwrap().contains("fallback_application_name=weir/4.8"));
        assert!(!marked.contains("weir/3.7"));
    }
}
