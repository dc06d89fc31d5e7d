//! Problems of the watchdog's settings. The number of this host is judged where its file is read.

use super::{CheckContext, ConfigProblem, ProblemSeverity};
use crate::ConfigSetting;
use crate::failover_settings::OtherPromoters;
use crate::params::ParamIndexing;
use crate::watchdog_settings::{
    self as settings, ETCD_KEY_BYTES_MAX, LifecheckMethod, WATCHDOG_HOSTS_MAX, WatchdogEngine, WatchdogSettings,
};
use std::collections::BTreeSet;
use std::path::Path;

const CHECKS: [fn(&mut CheckContext<'_>, &WatchdogSettings); 7] =
    [check_hosts, check_heartbeats, check_key, check_addresses, check_engine, check_state_dir, check_ignored];

pub(super) fn check_watchdog(findings: &mut CheckContext<'_>) {
    let Some(watchdog) = &findings.config.watchdog else { return };
    for check in CHECKS {
        check(findings, watchdog);
    }
}

fn check_hosts(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    let hosts = &watchdog.hosts;
    if hosts.is_empty() {
        let message = "\"use_watchdog\" is on and no host is named: set \"hostname0\" and so on, the same on all hosts";
        findings.add(ProblemSeverity::Error, "use_watchdog", None, message.into());
    }
    if hosts.len() > WATCHDOG_HOSTS_MAX {
        let message = format!("the watchdog has {} hosts, the limit is {WATCHDOG_HOSTS_MAX}", hosts.len());
        findings.add(ProblemSeverity::Error, "use_watchdog", None, message);
    }
    for (at, host) in hosts.iter().enumerate() {
        let number = u16::from(host.number);
        let of_host = |s: &&ConfigSetting| s.param.indexed == ParamIndexing::Watchdog && s.index == Some(number);
        let first = findings.given.values().find(of_host);
        // Names come first in the table.
        let is_named = first.is_some_and(|first| first.param.name == "hostname") && !host.hostname.is_empty();
        if let Some(first) = first.filter(|_| !is_named) {
            let message = format!("\"hostname{number}\" is not set: name the host, or remove all lines of number {number}");
            findings.problems.push(ConfigProblem::at(ProblemSeverity::Error, &first.source, message));
            continue;
        }
        let is_same =
            |other: &&settings::WatchdogHost| other.hostname.eq_ignore_ascii_case(&host.hostname) && other.port == host.port;
        if let Some(other) = hosts[..at].iter().find(is_same) {
            let message = format!(
                "hosts {} and {number} of the watchdog are the same, {} with wd_port {}: each needs a name or port of its own",
                other.number, host.hostname, host.port
            );
            findings.add(ProblemSeverity::Error, "hostname", Some(number), message);
        }
    }
}

fn check_heartbeats(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    let mut known: BTreeSet<u16> = watchdog.hosts.iter().map(|host| host.number.into()).collect();
    for setting in findings.given.values().filter(|setting| setting.param.indexed == ParamIndexing::Heartbeat) {
        let Some(index) = setting.index.filter(|index| known.insert(*index)) else { continue };
        let message = format!("\"{}\" is ignored because \"hostname{index}\" is not set", setting.name());
        findings.problems.push(ConfigProblem::at(ProblemSeverity::Warning, &setting.source, message));
    }
}

fn check_key(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    if !watchdog.authkey.is_empty() {
        return;
    }
    if let Some(place) = watchdog.places_of_others().next() {
        let message = format!(
            "\"wd_authkey\" is empty, and \"{place}\" is not this machine alone: set wd_authkey, the same on all hosts, so that nobody \
             else can speak for one of them"
        );
        findings.add(ProblemSeverity::Error, "wd_authkey", None, message);
    } else if watchdog.others().next().is_some() {
        let message =
            "\"wd_authkey\" is empty: every user of this machine can speak for a host of the group, and do what an operator can";
        findings.add(ProblemSeverity::Warning, "wd_authkey", None, message.to_owned());
    }
}

fn check_addresses(findings: &mut CheckContext<'_>, _: &WatchdogSettings) {
    let text = raw(findings, "delegate_ip");
    if let Err(error) = settings::addresses(&text) {
        findings.add(ProblemSeverity::Error, "delegate_ip", None, format!("\"delegate_ip\": {error}"));
    }
}

fn check_engine(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    match watchdog.engine {
        WatchdogEngine::Builtin => check_two_hosts(findings, watchdog),
        WatchdogEngine::Etcd => check_etcd(findings, watchdog),
    }
}

fn check_two_hosts(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    if watchdog.hosts.len() == 2 && !watchdog.half_is_enough {
        let message = "two hosts survive the loss of neither: add a third one, on which \"weir witness\" is enough, or etcd (wd_engine), \
                       or let the lower one decide alone (enable_consensus_with_half_votes)";
        findings.add(ProblemSeverity::Warning, "use_watchdog", None, message.into());
    }
}

fn check_etcd(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    let list = raw(findings, "wd_etcd_endpoints");
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let problem = match settings::endpoints(entries) {
        Ok(endpoints) if endpoints.is_empty() => Some("wd_engine = etcd needs it, for example 'http://10.0.0.1:2379'".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    if let Some(problem) = problem {
        findings.add(ProblemSeverity::Error, "wd_etcd_endpoints", None, format!("\"wd_etcd_endpoints\": {problem}"));
    }
    let key = &watchdog.etcd.key;
    if key.is_empty() || key.len() > ETCD_KEY_BYTES_MAX {
        let message = format!("\"wd_etcd_key\" has {} bytes; it must have 1 to {ETCD_KEY_BYTES_MAX}", key.len());
        findings.add(ProblemSeverity::Error, "wd_etcd_key", None, message);
    }
    if watchdog.etcd.tls.cert.is_some() != watchdog.etcd.tls.key.is_some() {
        let message = "\"wd_etcd_client_cert_file\" and \"wd_etcd_client_key_file\" belong together: set both, or none".into();
        findings.add(ProblemSeverity::Error, "wd_etcd_client_cert_file", None, message);
    }
}

fn check_state_dir(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    let name = if raw(findings, "wd_state_dir").is_empty() { "work_dir" } else { "wd_state_dir" };
    let folder = &watchdog.state_dir;
    if !folder.is_absolute() {
        // Pgpool-II starts with any work_dir.
        let severity = if name == "work_dir" { ProblemSeverity::Warning } else { ProblemSeverity::Error };
        let message = format!(
            "\"{name}\" is \"{}\": the watchdog's folder must begin with a slash, so that it is found again wherever Weir is started",
            folder.display()
        );
        findings.add(severity, name, None, message);
    } else if folder == Path::new("/tmp") {
        let message = format!(
            "\"{name}\" is /tmp, which is emptied at a restart of the machine: this host's vote is lost then, and the others must admit it \
             as a new one; set wd_state_dir"
        );
        findings.add(ProblemSeverity::Warning, name, None, message);
    }
}

/// Settings of Pgpool-II and of a Weir alone that mean nothing, or something else, in a group.
fn check_ignored(findings: &mut CheckContext<'_>, watchdog: &WatchdogSettings) {
    if findings.shown("failover_when_quorum_exists") == "off" {
        let message = "\"failover_when_quorum_exists\" = off is ignored: without a quorum nothing is decided".into();
        findings.add(ProblemSeverity::Warning, "failover_when_quorum_exists", None, message);
    }
    if watchdog.lifecheck != LifecheckMethod::Heartbeat {
        let message = format!("\"wd_lifecheck_method\" {} means heartbeat here", findings.shown("wd_lifecheck_method"));
        findings.add(ProblemSeverity::Warning, "wd_lifecheck_method", None, message);
    }
    if findings.config.failover.company == OtherPromoters::Alone {
        let message = "\"failover_alone\" means nothing in a group, which decides by its majority".into();
        findings.add(ProblemSeverity::Warning, "failover_alone", None, message);
    }
    if findings.number("wd_priority") > u8::MAX.into() {
        let message = format!("\"wd_priority\" {} counts as {}", findings.shown("wd_priority"), u8::MAX);
        findings.add(ProblemSeverity::Warning, "wd_priority", None, message);
    }
}

fn raw(findings: &CheckContext<'_>, name: &str) -> String {
    findings.config.setting(name, None).map(|setting| setting.raw.trim().to_owned()).unwrap_or_default()
}
