//! A member's sight of its group in the words of Pgpool-II's watchdog, for PCP, SHOW and metrics.
//!
//! Each member tells what it knows itself: the newest decided version that it has, and whom it heard. Pure.

use crate::runtime::group_seat::{GroupView, PeerView};
use crate::runtime::shared::SharedState;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_config::watchdog_settings::{WatchdogEngine, WatchdogHost, WatchdogSettings};
use weir_group::{
    GroupLead, GroupMembers, GroupMs, GroupState, GroupWrites, HalfVotes, HostNumber, MemberDuty, MemberId, MemberIntent,
    MemberRow, MemberSet,
};
use weir_io::clock::boot_now_ms;

/// State of a host. Numbers and words are those of `pcp_watchdog_info`; the states in between of Pgpool-II's elections do not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogState {
    /// Never heard by this member.
    Dead = 0,
    /// No member, or not yet.
    Joining = 2,
    /// There is no group yet.
    Initializing = 3,
    Leader = 4,
    /// Gets the lead once the former leader certainly has it no more.
    StandingForLeader = 6,
    /// Also a witness.
    Standby = 7,
    /// Silent, or marked lost by the group.
    Lost = 8,
    Shutdown = 10,
    /// This member itself, while it reaches no majority. Pgpool-II shows a leader without quorum here; no such thing exists in a group.
    NetworkIsolation = 12,
}

impl WatchdogState {
    pub fn number(self) -> i32 {
        self as i32
    }

    pub fn word(self) -> &'static str {
        match self {
            WatchdogState::Dead => "DEAD",
            WatchdogState::Joining => "JOINING",
            WatchdogState::Initializing => "INITIALIZING",
            WatchdogState::Leader => "LEADER",
            WatchdogState::StandingForLeader => "STANDING FOR LEADER",
            WatchdogState::Standby => "STANDBY",
            WatchdogState::Lost => "LOST",
            WatchdogState::Shutdown => "SHUTDOWN",
            WatchdogState::NetworkIsolation => "NETWORK ISOLATION",
        }
    }
}

/// Weight of a configured host in majorities: a host that was removed has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogMembership {
    Member = 0,
    RevokedShutdown = 1,
    RevokedNoShow = 2,
    RevokedLost = 3,
}

impl WatchdogMembership {
    pub fn number(self) -> i32 {
        self as i32
    }

    pub fn word(self) -> &'static str {
        match self {
            WatchdogMembership::Member => "MEMBER",
            WatchdogMembership::RevokedShutdown => "REVOKED-SHUTDOWN",
            WatchdogMembership::RevokedNoShow => "REVOKED-NO-SHOW",
            WatchdogMembership::RevokedLost => "REVOKED-LOST",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuorumState {
    Exists = 1,
    /// Exactly half of the members is there, which is enough with the lowest one among them.
    OnEdge = 0,
    Absent = -1,
    NoLeader = -2,
}

impl QuorumState {
    pub fn number(self) -> i32 {
        self as i32
    }
}

/// Part of a host's member in majorities while members change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVote {
    None,
    Counts,
    Joins,
    Leaves,
}

impl HostVote {
    pub fn word(self) -> &'static str {
        match self {
            HostVote::None => "no",
            HostVote::Counts => "yes",
            HostVote::Joins => "joins",
            HostVote::Leaves => "leaves",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSight {
    pub number: HostNumber,
    /// `None`: a member that the configuration of this host does not name.
    pub place: Option<WatchdogHost>,
    pub state: WatchdogState,
    pub membership: WatchdogMembership,
    /// Incarnation of its member.
    pub incarnation: Option<u32>,
    /// As the group knows it; for this host before that, as configured.
    pub priority: Option<u8>,
    pub is_own: bool,
    /// Of its member.
    pub duty: Option<MemberDuty>,
    pub vote: HostVote,
    /// Marked lost by the group.
    pub is_lost: bool,
    pub heard_ms_ago: Option<GroupMs>,
    /// `None` for this host itself.
    pub is_linked: Option<bool>,
    /// Parameters in which it differs from this host, of those that all must have alike.
    pub differing: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSight {
    /// By number.
    pub hosts: Vec<HostSight>,
    pub quorum: QuorumState,
    /// Votes that are a majority.
    pub votes_needed: usize,
    /// This member leads: it holds the virtual address, and gives orders to servers.
    pub leads: bool,
    /// 0: no lease.
    pub lease_left_ms: GroupMs,
    pub engine: WatchdogEngine,
    /// `None`: no group yet.
    pub decided: Option<DecidedFacts>,
    /// Reason why this member has no vote.
    pub fault: Option<String>,
}

/// Of the newest decided version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedFacts {
    pub version: u64,
    pub changes: u64,
    pub term: u64,
    pub epoch: u64,
    /// `None` while writes are closed.
    pub write_node: Option<u16>,
    pub members: usize,
    pub lost: usize,
}

impl HostSight {
    /// As the configuration names it; several hosts may have one name.
    pub fn name(&self) -> String {
        self.place.as_ref().map_or_else(|| format!("host {}", self.number), |place| place.hostname.clone())
    }
}

impl GroupSight {
    /// `None` without a watchdog.
    pub fn now(shared: &SharedState) -> Option<GroupSight> {
        let (config, seat) = (shared.config.load(), shared.group.get()?);
        Some(GroupSight::of(config.watchdog.as_ref()?, &seat.view(), boot_now_ms()))
    }

    pub fn of(settings: &WatchdogSettings, view: &GroupView, now: GroupMs) -> GroupSight {
        let state = view.version.as_ref().map(|version| version.state.clone());
        let facts = SightFacts { settings, view, state, now };
        let numbers: BTreeSet<HostNumber> = settings.hosts.iter().map(|host| host.number).chain(facts.member_hosts()).collect();
        let hosts: Vec<HostSight> = numbers.into_iter().map(|number| facts.host(number)).collect();
        let has_leader = hosts.iter().any(|host| host.state == WatchdogState::Leader);
        GroupSight {
            quorum: facts.quorum(has_leader),
            votes_needed: facts.votes_needed(),
            leads: view.leads(now),
            lease_left_ms: view.rights.until.saturating_sub(now),
            engine: settings.engine,
            decided: facts.decided(),
            fault: view.fault.clone(),
            hosts,
        }
    }

    pub fn leader(&self) -> Option<&HostSight> {
        self.hosts.iter().find(|host| host.state == WatchdogState::Leader)
    }

    /// Members with a lease that do not lead, as far as this one knows.
    pub fn standbys(&self) -> usize {
        self.hosts.iter().filter(|host| host.state == WatchdogState::Standby).count()
    }
}

struct SightFacts<'a> {
    settings: &'a WatchdogSettings,
    view: &'a GroupView,
    state: Option<Arc<GroupState>>,
    now: GroupMs,
}

impl SightFacts<'_> {
    fn member_hosts(&self) -> Vec<HostNumber> {
        self.state.iter().flat_map(|state| state.members.rows.iter().map(|row| row.id.host)).collect()
    }

    fn host(&self, number: HostNumber) -> HostSight {
        let is_own = number == self.view.own.host;
        let (row, peer) = (self.member(number), self.view.peers.iter().find(|peer| peer.host == number));
        let id = row.map(|row| row.id);
        let configured = is_own.then_some(self.settings.priority);
        HostSight {
            number,
            place: self.settings.hosts.iter().find(|host| host.number == number).cloned(),
            state: if is_own { self.own_state(id) } else { self.peer_state(id, peer) },
            membership: self.membership(id, is_own, peer),
            incarnation: id.or(is_own.then_some(self.view.own)).map(|id| id.incarnation),
            priority: row.map(|row| row.priority).or(configured),
            is_own,
            duty: row.map(|row| row.duty),
            vote: id.map_or(HostVote::None, |id| self.vote(id)),
            is_lost: id.is_some_and(|id| self.is_marked_lost(id)),
            heard_ms_ago: peer.and_then(|peer| peer.heard_at).map(|at| self.now.saturating_sub(at)),
            is_linked: (!is_own).then(|| peer.is_some_and(|peer| peer.is_linked)),
            differing: peer.map(|peer| peer.differing.clone()).unwrap_or_default(),
        }
    }

    /// Returns the member of a host; of two incarnations the one that stays. This host's own member is only the incarnation that runs.
    fn member(&self, number: HostNumber) -> Option<&MemberRow> {
        let state = self.state.as_ref()?;
        if number == self.view.own.host {
            return state.members.row(self.view.own);
        }
        let rows = state.members.rows.iter().filter(|row| row.id.host == number);
        rows.max_by_key(|row| state.members.lasting().contains(&row.id))
    }

    fn own_state(&self, id: Option<MemberId>) -> WatchdogState {
        let Some(state) = &self.state else { return WatchdogState::Initializing };
        match id {
            None => WatchdogState::Joining,
            Some(id) if !state.lets(id) => WatchdogState::Lost,
            Some(_) if !self.view.has_lease(self.now) => WatchdogState::NetworkIsolation,
            Some(_) if self.view.leads(self.now) => WatchdogState::Leader,
            Some(id) if heir(state.lead) == id => WatchdogState::StandingForLeader,
            Some(_) => WatchdogState::Standby,
        }
    }

    fn peer_state(&self, id: Option<MemberId>, peer: Option<&PeerView>) -> WatchdogState {
        let is_lost = id.is_some_and(|id| self.is_marked_lost(id));
        let Some((peer, heard_at)) = peer.and_then(|peer| Some((peer, peer.heard_at?))) else {
            return if is_lost { WatchdogState::Lost } else { WatchdogState::Dead };
        };
        if peer.intent == MemberIntent::ShutsDown {
            return WatchdogState::Shutdown;
        }
        if is_lost || self.is_silent(peer, heard_at) {
            return WatchdogState::Lost;
        }
        let Some(state) = &self.state else { return WatchdogState::Initializing };
        match (id.filter(|id| state.lets(*id)), state.lead) {
            (None, _) => WatchdogState::Joining,
            (Some(id), GroupLead::Held(leader)) if id == leader => WatchdogState::Leader,
            (Some(id), GroupLead::Taken { to, .. }) if id == to => WatchdogState::StandingForLeader,
            (Some(_), GroupLead::Held(_) | GroupLead::Taken { .. }) => WatchdogState::Standby,
        }
    }

    /// Without a lease nobody marks a host as lost, so that a closed link tells.
    fn is_silent(&self, peer: &PeerView, heard_at: GroupMs) -> bool {
        self.now.saturating_sub(heard_at) > self.settings.heartbeat_deadtime_ms
            || (!self.view.has_lease(self.now) && !peer.is_linked)
    }

    fn is_marked_lost(&self, id: MemberId) -> bool {
        self.state.as_ref().is_some_and(|state| state.lost.contains(&id))
    }

    fn membership(&self, id: Option<MemberId>, is_own: bool, peer: Option<&PeerView>) -> WatchdogMembership {
        let Some(state) = &self.state else { return WatchdogMembership::Member };
        if id.is_some_and(|id| state.members.lasting().contains(&id)) {
            return WatchdogMembership::Member;
        }
        match peer.filter(|peer| peer.heard_at.is_some()) {
            None if is_own => WatchdogMembership::RevokedLost,
            None => WatchdogMembership::RevokedNoShow,
            Some(peer) if peer.intent == MemberIntent::ShutsDown => WatchdogMembership::RevokedShutdown,
            Some(_) => WatchdogMembership::RevokedLost,
        }
    }

    fn vote(&self, id: MemberId) -> HostVote {
        let Some(GroupMembers { voters, next, .. }) = self.state.as_ref().map(|state| &state.members) else {
            return HostVote::None;
        };
        match (voters.contains(&id), next.as_ref().map(|next| next.contains(&id))) {
            (true, None | Some(true)) => HostVote::Counts,
            (true, Some(false)) => HostVote::Leaves,
            (false, Some(true)) => HostVote::Joins,
            (false, None | Some(false)) => HostVote::None,
        }
    }

    fn quorum(&self, has_leader: bool) -> QuorumState {
        let Some(state) = &self.state else { return QuorumState::NoLeader };
        if state.members.has(self.view.own) && !self.view.has_lease(self.now) {
            return QuorumState::Absent;
        }
        if !has_leader {
            return QuorumState::NoLeader;
        }
        let lasting = state.members.lasting();
        let there: MemberSet = lasting.difference(&state.lost).copied().collect();
        match there.len() * 2 {
            _ if !state.members.is_enough(lasting, &there) => QuorumState::Absent,
            twice if twice == lasting.len() => QuorumState::OnEdge,
            _ => QuorumState::Exists,
        }
    }

    fn votes_needed(&self) -> usize {
        let (votes, half_is_enough) = match &self.state {
            Some(state) => (state.members.lasting().len(), state.members.half_votes == HalfVotes::LowestCasts),
            None => (self.settings.hosts.len(), self.settings.half_is_enough),
        };
        if half_is_enough && votes.is_multiple_of(2) { votes / 2 } else { votes / 2 + 1 }
    }

    fn decided(&self) -> Option<DecidedFacts> {
        let version = self.view.version.as_ref()?;
        let state = &version.state;
        let (epoch, write_node) = match state.writes {
            GroupWrites::Open { epoch, node } => (epoch, Some(node)),
            GroupWrites::Closed { epoch } => (epoch, None),
        };
        let (members, lost) = (state.members.lasting().len(), state.lost.intersection(state.members.lasting()).count());
        Some(DecidedFacts {
            version: version.number.counter,
            changes: state.change,
            term: state.term,
            epoch,
            write_node,
            members,
            lost,
        })
    }
}

/// Returns the member that has the lead, or gets it next.
fn heir(lead: GroupLead) -> MemberId {
    match lead {
        GroupLead::Held(id) | GroupLead::Taken { to: id, .. } => id,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::auth::access::AccessFiles;
    use crate::log::ProxyLog;
    use crate::runtime::group_seat::{GroupSeat, WritesObedience};
    use crate::runtime::tls_files::TlsFiles;
    use std::path::Path;
    use weir_config::Config;
    use weir_group::{GroupDecision, MemberRights, StateVersion, VersionNumber};

    /// Of the views below: half a second before the lease ends.
    pub const NOW_MS: GroupMs = 100_000;

    /// Hosts 0, 1 and 2 of a watchdog with a virtual address; this one is `own`.
    pub fn config(own: HostNumber) -> Config {
        let mut text = String::from(
            "backend_hostname0 = 'a'\nuse_watchdog = on\nwd_authkey = 'x'\nwork_dir = '/var/lib/weir'\ndelegate_ip = '10.0.0.9'\nwd_priority = 3\n",
        );
        for host in 0..3 {
            text += &format!("hostname{host} = 'w{host}'\nwd_port{host} = 900{host}\npgpool_port{host} = 999{host}\n");
        }
        let outcome = weir_config::read(Path::new("/etc/weir/pgpool.conf"), &mut |path| {
            Ok(if path.ends_with("pgpool_node_id") { own.to_string() } else { text.clone() }.into_bytes())
        });
        outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems))
    }

    pub fn member(host: HostNumber) -> MemberId {
        MemberId { host, incarnation: 0xa0 + u32::from(host) }
    }

    fn row(host: HostNumber) -> MemberRow {
        MemberRow { id: member(host), priority: 1, duty: MemberDuty::Serves }
    }

    fn state() -> GroupState {
        GroupState {
            group: member(0),
            change: 7,
            members: GroupMembers::of((0..3).map(row).collect(), HalfVotes::TooFew),
            lost: MemberSet::new(),
            lead: GroupLead::Held(member(0)),
            term: 4,
            writes: GroupWrites::Open { epoch: 5, node: 1 },
            lease_ms: 2000,
            failover: String::new(),
            decisions: vec![GroupDecision { term: 3, text: "older".into() }, GroupDecision { term: 4, text: "newer".into() }],
            former: Vec::new(),
        }
    }

    /// Three members with a lease that hear each other; host 0 leads.
    pub fn view(own: HostNumber) -> GroupView {
        let peer = |host| PeerView {
            host,
            heard_at: Some(NOW_MS - 40),
            is_linked: true,
            intent: MemberIntent::Serves,
            differing: Vec::new(),
        };
        GroupView {
            own: member(own),
            version: Some(StateVersion { number: VersionNumber { counter: 9, by: member(0) }, state: Arc::new(state()) }),
            rights: MemberRights { until: NOW_MS + 500, leads: (own == 0).then_some(4), writes: Some((5, 1)) },
            obedience: WritesObedience::Done,
            stopped_epoch: None,
            peers: (0..3).filter(|host| *host != own).map(peer).collect(),
            sights_of_others: Vec::new(),
            fault: None,
        }
    }

    /// A proxy that shows this view.
    pub fn shared(view: GroupView) -> SharedState {
        let config = config(view.own.host);
        let log = ProxyLog::new(&config.log).unwrap();
        let shared = SharedState::new(config, None, AccessFiles::default(), TlsFiles::default(), Vec::new(), [7; 32], log);
        let (seat, _) = GroupSeat::new(view.own);
        seat.show(view);
        assert!(shared.group.set(seat).is_ok());
        shared
    }

    fn set_state(view: &mut GroupView, set: impl FnOnce(&mut GroupState)) {
        let version = view.version.as_mut().expect("it has one");
        set(Arc::make_mut(&mut version.state));
    }

    fn peer(view: &mut GroupView, host: HostNumber) -> &mut PeerView {
        view.peers.iter_mut().find(|peer| peer.host == host).expect("it is a peer")
    }

    fn sight(view: &GroupView) -> GroupSight {
        GroupSight::of(config(view.own.host).watchdog.as_ref().expect("it is on"), view, NOW_MS)
    }

    /// Checks states, with the membership of those that are no members, and the quorum of a member's sight.
    fn check(what: &str, own: HostNumber, change: impl FnOnce(&mut GroupView), expected: &str) {
        let mut view = view(own);
        change(&mut view);
        let sight = sight(&view);
        let word = |host: &HostSight| match host.membership {
            WatchdogMembership::Member => host.state.word().to_owned(),
            membership => format!("{} {}", host.state.word(), membership.word()),
        };
        let words: Vec<String> = sight.hosts.iter().map(word).collect();
        assert_eq!(format!("{}; {:?}", words.join(", "), sight.quorum), expected, "{what}");
        assert_eq!(sight.leads, sight.leader().is_some_and(|host| host.is_own), "{what}");
    }

    #[test]
    fn members_with_a_lease_see_one_leader() {
        check("the leader", 0, |_| {}, "LEADER, STANDBY, STANDBY; Exists");
        check("another member", 2, |_| {}, "LEADER, STANDBY, STANDBY; Exists");
        let led_by_1 = |view: &mut GroupView| set_state(view, |state| state.lead = GroupLead::Held(member(1)));
        check("after a change of the leader", 2, led_by_1, "STANDBY, LEADER, STANDBY; Exists");
        let taken = |view: &mut GroupView| {
            set_state(view, |state| state.lead = GroupLead::Taken { from: Some(member(0)), to: member(1) });
            view.rights.leads = None;
        };
        check("while the lead changes", 0, taken, "STANDBY, STANDING FOR LEADER, STANDBY; NoLeader");
        check("the heir", 1, taken, "STANDBY, STANDING FOR LEADER, STANDBY; NoLeader");
        check(
            "a leader whose rights have not begun",
            0,
            |view| view.rights.leads = None,
            "STANDING FOR LEADER, STANDBY, STANDBY; NoLeader",
        );
    }

    #[test]
    fn hosts_that_are_gone_are_told_apart() {
        let lost = |view: &mut GroupView| set_state(view, |state| state.lost.extend([member(2)]));
        check("marked lost", 0, lost, "LEADER, STANDBY, LOST; Exists");
        check(
            "silent for a long time",
            0,
            |view| peer(view, 2).heard_at = Some(NOW_MS - 30_001),
            "LEADER, STANDBY, LOST; Exists",
        );
        check(
            "silent for a short time",
            0,
            |view| peer(view, 2).heard_at = Some(NOW_MS - 30_000),
            "LEADER, STANDBY, STANDBY; Exists",
        );
        check(
            "shut down",
            0,
            |view| {
                lost(view);
                peer(view, 2).intent = MemberIntent::ShutsDown;
            },
            "LEADER, STANDBY, SHUTDOWN; Exists",
        );
        check("never heard", 0, |view| peer(view, 2).heard_at = None, "LEADER, STANDBY, DEAD; Exists");
        check("no peer at all", 0, |view| view.peers.truncate(1), "LEADER, STANDBY, DEAD; Exists");
        check(
            "never heard, but the group lost it",
            0,
            |view| {
                lost(view);
                peer(view, 2).heard_at = None;
            },
            "LEADER, STANDBY, LOST; Exists",
        );
        check(
            "itself, before it is taken back",
            2,
            |view| {
                lost(view);
                view.rights = MemberRights::default();
            },
            "LEADER, STANDBY, LOST; Absent",
        );
    }

    #[test]
    fn without_a_majority_nobody_leads() {
        let alone = |view: &mut GroupView| {
            view.rights.until = NOW_MS;
            view.peers.iter_mut().for_each(|peer| peer.is_linked = false);
        };
        check("a former leader", 0, alone, "NETWORK ISOLATION, LOST, LOST; Absent");
        check("another member", 1, alone, "LOST, NETWORK ISOLATION, LOST; Absent");
        let deaf = |view: &mut GroupView| view.rights.until = 0;
        check("a member that hears others, which do not hear it", 1, deaf, "LEADER, NETWORK ISOLATION, STANDBY; Absent");
        let mut former = view(0);
        alone(&mut former);
        assert_eq!((sight(&former).lease_left_ms, sight(&former).standbys()), (0, 0));
    }

    #[test]
    fn there_may_be_no_group_yet() {
        check(
            "a first start",
            0,
            |view| {
                view.version = None;
                view.rights = MemberRights::default();
                peer(view, 2).heard_at = None;
            },
            "INITIALIZING, INITIALIZING, DEAD; NoLeader",
        );
        check(
            "a host that lost its file",
            2,
            |view| {
                view.own.incarnation = 1;
                view.rights = MemberRights::default();
            },
            "LEADER, STANDBY, JOINING REVOKED-LOST; Exists",
        );
    }

    #[test]
    fn removed_hosts_are_no_members() {
        let removed = |view: &mut GroupView| {
            set_state(view, |state| state.members = GroupMembers::of((0..2).map(row).collect(), HalfVotes::TooFew))
        };
        check("it is back", 0, removed, "LEADER, STANDBY, JOINING REVOKED-LOST; Exists");
        check(
            "lost",
            0,
            |view| {
                removed(view);
                peer(view, 2).heard_at = Some(NOW_MS - 40_000);
            },
            "LEADER, STANDBY, LOST REVOKED-LOST; Exists",
        );
        check(
            "shut down",
            0,
            |view| {
                removed(view);
                peer(view, 2).intent = MemberIntent::ShutsDown;
            },
            "LEADER, STANDBY, SHUTDOWN REVOKED-SHUTDOWN; Exists",
        );
        check(
            "never there",
            0,
            |view| {
                removed(view);
                peer(view, 2).heard_at = None;
            },
            "LEADER, STANDBY, DEAD REVOKED-NO-SHOW; Exists",
        );
    }

    #[test]
    fn votes_follow_a_change_of_members() {
        let words = |view: &GroupView| sight(view).hosts.iter().map(|host| host.vote.word()).collect::<Vec<_>>();
        let mut view = view(0);
        assert_eq!(words(&view), ["yes", "yes", "yes"]);
        set_state(&mut view, |state| state.members = state.members.joined_by(&[row(0), row(1), row(3)]));
        assert_eq!(words(&view), ["yes", "yes", "leaves", "joins"]);
        let unnamed = &sight(&view).hosts[3];
        assert!(unnamed.place.is_none() && unnamed.state == WatchdogState::Dead, "{unnamed:?}");
        set_state(&mut view, |state| state.members = state.members.ended());
        assert_eq!(words(&view), ["yes", "yes", "no", "yes"]);
    }

    #[test]
    fn a_majority_is_counted_over_the_members() {
        for (hosts, half_votes, lost, needed, expected) in [
            (3, HalfVotes::TooFew, 0, 2, QuorumState::Exists),
            (3, HalfVotes::TooFew, 1, 2, QuorumState::Exists),
            (3, HalfVotes::LowestCasts, 1, 2, QuorumState::Exists),
            (2, HalfVotes::TooFew, 0, 2, QuorumState::Exists),
            (2, HalfVotes::LowestCasts, 0, 1, QuorumState::Exists),
            (2, HalfVotes::LowestCasts, 1, 1, QuorumState::OnEdge),
            (1, HalfVotes::TooFew, 0, 1, QuorumState::Exists),
        ] {
            let mut view = view(0);
            set_state(&mut view, |state| {
                state.members = GroupMembers::of((0..hosts).map(row).collect(), half_votes);
                state.lost = (hosts - lost..hosts).map(member).collect();
            });
            let sight = sight(&view);
            assert_eq!((sight.votes_needed, sight.quorum), (needed, expected), "{hosts} hosts, {half_votes:?}, {lost} lost");
        }
        let mut first = view(0);
        first.version = None;
        assert_eq!(sight(&first).votes_needed, 2, "of the configured hosts");
    }

    #[test]
    fn facts_are_those_of_the_decided_version() {
        let mut view = view(0);
        let decided = DecidedFacts { version: 9, changes: 7, term: 4, epoch: 5, write_node: Some(1), members: 3, lost: 0 };
        assert_eq!(sight(&view).decided, Some(decided));
        set_state(&mut view, |state| (state.writes, state.lost) = (GroupWrites::Closed { epoch: 5 }, [member(2)].into()));
        assert_eq!(sight(&view).decided, Some(DecidedFacts { write_node: None, lost: 1, ..decided }));
        let own = &sight(&view).hosts[0];
        assert_eq!((own.incarnation, own.priority, own.is_linked), (Some(0xa0), Some(1), None));
        view.version = None;
        let own = &sight(&view).hosts[0];
        assert_eq!((own.incarnation, own.priority, sight(&view).decided), (Some(0xa0), Some(3), None));
    }
}
