//! `SHOW pool_watchdog`: the hosts of the group, as this member knows them.

use crate::admin::group_sight::{DecidedFacts, GroupSight, HostSight};
use crate::admin::listing::{ListCell, ListSnapshot, Listing, listing, open, own};
use crate::watchdog::parameter_likeness::listed;
use weir_config::watchdog_settings::WatchdogEngine;
use weir_group::MemberDuty;

/// A host, and what is decided for all of them.
pub struct WatchdogRow {
    host: HostSight,
    decided: Option<DecidedFacts>,
    engine: WatchdogEngine,
    /// Of this host.
    lease_left_ms: Option<u64>,
    fault: Option<String>,
}

/// The fault, which may name files, is hidden from database users.
pub const POOL_WATCHDOG: Listing<WatchdogRow> = listing(watchdog_rows).columns(&[&[
    open("host_id", |row| u64::from(row.host.number).into()),
    open("hostname", |row| row.host.place.as_ref().map(|place| &place.hostname).into()),
    open("pgpool_port", |row| row.host.place.as_ref().map(|place| place.pgpool_port).into()),
    open("wd_port", |row| row.host.place.as_ref().map(|place| place.port).into()),
    open("state", |row| row.host.state.word().into()),
    open("membership", |row| row.host.membership.word().into()),
    open("is_asked", |row| row.host.is_own.into()),
    open("member", |row| row.host.incarnation.map(|number| format!("{number:08x}")).into()),
    open("priority", |row| row.host.priority.map(u64::from).into()),
    open("duty", |row| row.host.duty.map(duty).into()),
    open("votes", |row| row.host.vote.word().into()),
    open("lost", |row| row.host.is_lost.into()),
    open("heard_ms", |row| row.host.heard_ms_ago.into()),
    open("linked", |row| row.host.is_linked.into()),
    open("lease_left_ms", |row| row.lease_left_ms.into()),
    open("term", |row| row.told(|decided| decided.term.into())),
    open("epoch", |row| row.told(|decided| decided.epoch.into())),
    open("write_node", |row| row.told(|decided| decided.write_node.into())),
    open("version", |row| row.told(|decided| decided.version.into())),
    open("engine", |row| engine(row.engine).into()),
    open("differs", |row| listed(&row.host.differing).into()),
    own("fault", |row| row.fault.as_ref().into()),
]]);

impl WatchdogRow {
    fn told(&self, of: fn(DecidedFacts) -> ListCell) -> ListCell {
        self.decided.map_or(ListCell::Empty, of)
    }
}

fn engine(engine: WatchdogEngine) -> &'static str {
    match engine {
        WatchdogEngine::Builtin => "builtin",
        WatchdogEngine::Etcd => "etcd",
    }
}

fn duty(duty: MemberDuty) -> &'static str {
    match duty {
        MemberDuty::Serves => "serves",
        MemberDuty::Witness => "witness",
    }
}

fn watchdog_rows(of: &ListSnapshot<'_>) -> Vec<WatchdogRow> {
    GroupSight::now(of.shared).map(rows_of).unwrap_or_default()
}

fn rows_of(sight: GroupSight) -> Vec<WatchdogRow> {
    let GroupSight { hosts, decided, engine, lease_left_ms, fault, .. } = sight;
    let row = |host: HostSight| {
        let (lease_left_ms, fault) = if host.is_own { (Some(lease_left_ms), fault.clone()) } else { (None, None) };
        WatchdogRow { host, decided, engine, lease_left_ms, fault }
    };
    hosts.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::group_sight::tests::{config, view};
    use crate::admin::listing::AnyListing;
    use weir_group::MemberIntent;

    #[test]
    fn each_host_has_a_row() {
        let (config, mut view) = (config(0), view(0));
        view.fault = Some("disk".into());
        (view.peers[1].heard_at, view.peers[1].is_linked, view.peers[1].intent) = (None, false, MemberIntent::Serves);
        view.peers[1].differing = vec!["backend_weight", "pool_mode"];
        let sight = GroupSight::of(config.watchdog.as_ref().unwrap(), &view, crate::admin::group_sight::tests::NOW_MS);
        let rows: Vec<String> = rows_of(sight).iter().map(|row| POOL_WATCHDOG.texts(row).join("|")).collect();
        assert_eq!(
            rows,
            [
                "0|w0|9990|9000|LEADER|MEMBER|true|000000a0|1|serves|yes|false|||500|4|5|1|9|builtin||disk",
                "1|w1|9991|9001|STANDBY|MEMBER|false|000000a1|1|serves|yes|false|40|true||4|5|1|9|builtin||",
                "2|w2|9992|9002|DEAD|MEMBER|false|000000a2|1|serves|yes|false||false||4|5|1|9|builtin|backend_weight, pool_mode|",
            ]
        );
        assert_eq!(POOL_WATCHDOG.heads().len(), rows[0].split('|').count());
    }
}
