//! Lines of the log about the group.

use crate::log::Level;
use crate::watchdog::parameter_likeness::{LikenessNews, listed};
use crate::watchdog::virtual_address::WatchdogLog;
use weir_group::{GroupLead, GroupState, GroupWrites, HostNumber, MemberId, MemberSet};

pub fn say_lead(say: &WatchdogLog, term: Option<u64>) {
    match term {
        // In Pgpool-II's words, which its tests look for.
        Some(term) => {
            say(Level::Log, format_args!("watchdog: I am the cluster leader node. Starting escalation process of term {term}"));
        }
        None => say(Level::Log, format_args!("watchdog: this host does not lead the group any more")),
    }
}

/// In Pgpool-II's words.
pub fn say_shutdown(say: &WatchdogLog, host: HostNumber) {
    say(Level::Log, format_args!("watchdog: host {host} is shutting down"));
}

pub fn say_likeness(say: &WatchdogLog, host: HostNumber, news: &LikenessNews) {
    match news {
        LikenessNews::Differs(names) => say(
            Level::Warning,
            format_args!(
                "watchdog: host {host} has other values than this host for {}: all hosts must have them alike, see PGPOOL SHOW on both",
                listed(names)
            ),
        ),
        LikenessNews::AlikeAgain => {
            say(Level::Log, format_args!("watchdog: host {host} has the parameters alike again that all hosts must have alike"));
        }
    }
}

fn hosts(of: &MemberSet) -> String {
    of.iter().map(|id| id.host.to_string()).collect::<Vec<_>>().join(", ")
}

/// Tells what differs from the version known before; of the first one its members and leader.
pub fn say_changes(say: &WatchdogLog, own: MemberId, before: Option<&GroupState>, now: &GroupState) {
    let members = now.members.all();
    if before.is_none_or(|before| before.members != now.members) {
        match &now.members.next {
            Some(next) => say(
                Level::Log,
                format_args!("watchdog: members change from hosts {} to {}", hosts(&now.members.voters), hosts(next)),
            ),
            None => say(Level::Log, format_args!("watchdog: the group has the hosts {}", hosts(&members))),
        }
    }
    if members.contains(&own) && before.is_none_or(|before| !before.members.has(own)) {
        say(Level::Log, format_args!("watchdog: lifecheck started: hosts of the group that fall silent are marked lost"));
    }
    if before.is_none_or(|before| before.lead != now.lead) {
        match now.lead {
            GroupLead::Held(id) if id == own => {}
            GroupLead::Held(id) => {
                say(
                    Level::Log,
                    format_args!("watchdog: host {} leads the group in term {}, and decides on failover", id.host, now.term),
                );
                if now.members.has(own) {
                    let joined = "successfully joined the watchdog cluster as standby node";
                    say(Level::Log, format_args!("watchdog: {joined}, of host {}", id.host));
                }
            }
            GroupLead::Taken { from: Some(from), to } => say(
                Level::Log,
                format_args!(
                    "watchdog: the lead goes from host {} to host {}, once the first certainly has it no more",
                    from.host, to.host
                ),
            ),
            GroupLead::Taken { from: None, to } => {
                say(Level::Log, format_args!("watchdog: host {} is to lead the group", to.host))
            }
        }
    }
    let Some(before) = before else { return };
    for id in now.lost.difference(&before.lost) {
        say(Level::Log, format_args!("watchdog: host {} is lost: it was silent", id.host));
    }
    for id in before.lost.difference(&now.lost).filter(|id| members.contains(id)) {
        say(Level::Log, format_args!("watchdog: host {} is back", id.host));
    }
    if before.writes != now.writes {
        match now.writes {
            GroupWrites::Open { epoch, node } => {
                say(Level::Log, format_args!("watchdog: writes go to node {node}, in epoch {epoch}"))
            }
            GroupWrites::Closed { epoch } => say(Level::Log, format_args!("watchdog: writes are closed after epoch {epoch}")),
        }
    }
}
