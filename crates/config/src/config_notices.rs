//! Notices about a working configuration, for the log and `weir check`.
//!
//! Rows without effect are named one by one, except where many serve one purpose: then one sentence names the missing feature.

use super::{CausalReads, Config, ConfigSetting};
use crate::params::{ConfigParam, ParamEffect, ParamGroup};
use crate::watchdog_settings::is_loopback;

/// Descriptors for listening sockets, files, and connections of Weir's own.
const DESCRIPTORS_OF_OURS: u64 = 64;

/// Rows of one purpose, and the text after their names.
struct MissingFeature {
    has: fn(&ConfigParam) -> bool,
    says: &'static str,
}

const PURPOSES: &[MissingFeature] = &[MissingFeature {
    has: |param| param.group == ParamGroup::Recovery,
    says: "but online recovery has one stage: clients need not leave for it",
}];

impl Config {
    /// Returns notices on settings without their promised effect.
    pub fn notices(&self) -> Vec<String> {
        let idle: Vec<&ConfigSetting> = self.settings.iter().filter(|setting| is_idle(setting)).collect();
        let mut notices = Vec::new();
        for purpose in PURPOSES {
            let names: Vec<String> = idle.iter().filter(|setting| (purpose.has)(setting.param)).map(|s| s.name()).collect();
            if !names.is_empty() {
                let verb = if names.len() == 1 { "is" } else { "are" };
                notices.push(format!("{} {verb} set, {}", names.join(", "), purpose.says));
            }
        }
        let others = idle.iter().filter(|setting| !PURPOSES.iter().any(|purpose| (purpose.has)(setting.param)));
        notices.extend(others.map(|setting| format!("parameter \"{}\" is accepted but has no effect yet", setting.name())));
        notices.extend(self.unqualified_look_ups().into_iter().map(|(database, name)| {
            let of = database.map_or_else(String::new, |database| format!("database \"{database}\": "));
            format!("{of}auth_query must write \"{name}\" with its schema: only pg_catalog is searched")
        }));
        notices
    }

    /// Returns a hint if reads show less than by default, by a value that was once the default. May be intended: not logged.
    pub fn older_causal_reads(&self) -> Option<String> {
        let is_older = self.nodes.len() > 1 && self.routing.causal_reads() == CausalReads::Session;
        let setting = self.setting("causal_reads", None).filter(|_| is_older)?;
        Some(format!(
            "{}: note: causal_reads = session shows a client its own writes only; tables, the default, also shows what others wrote to the \
             relations that are read, as programs with a pool of their own need it",
            setting.source
        ))
    }

    /// Warns if clients and server connections need more open files than `limit`.
    pub fn descriptors_notice(&self, limit: u64) -> Option<String> {
        let clients = u64::from(self.pool.max_clients);
        let each = u64::from(self.conns_per_node_max());
        let conns = (each * self.all_nodes().count() as u64).min(if self.limits.conns == 0 {
            u64::MAX
        } else {
            self.limits.conns.into()
        });
        let needed = clients + conns + DESCRIPTORS_OF_OURS;
        (needed > limit).then(|| {
            format!(
                "the limit of open files (ulimit -n, LimitNOFILE) is {limit}, but max_client_connections = {clients} and up to {conns} \
                 server connections need {needed}: raise the limit, or lower max_client_connections"
            )
        })
    }

    /// True if clients on other machines can connect.
    pub fn listens_to_others(&self) -> bool {
        self.listen_addresses.iter().any(|address| !is_loopback(address))
    }
}

/// True if a setting without effect has another value than its default.
fn is_idle(setting: &ConfigSetting) -> bool {
    let param = setting.param;
    param.effect == ParamEffect::NotYet && param.kind.show(&setting.raw) != param.kind.show(param.default)
}
