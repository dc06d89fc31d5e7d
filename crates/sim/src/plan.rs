//! The shape of one run: how many of everything, which rule of synchronous standbys, which faults are likely. Drawn from the seed, so that
//! seeds differ in kind and not only in luck.

use weir_failover::{
    AgentPresence, DeathConsensus, FailbackMode, FailoverRules, Ms, NodeId, NodeLocation, NodeRules, OtherPromoters,
    RejoinInitiator, SafetyRule,
};
use weir_group::{EngineKind, GroupSettings, HalfVotes, MemberDuty, ShutdownFate};

use crate::dice::Dice;
use crate::kinds::{Fault, GroupPart, Proof, Scripted};
use crate::script_scene::MemberScript;

/// Faults begin after the first and end with the second; then the world is healed, and must be well at the third.
pub const FAULTS_FROM: Ms = 4_000;
pub const HEALED_AT: Ms = 24_000;
pub const WELL_AT: Ms = 60_000;
/// Of most groups: the default.
const LEASE_MS: Ms = 2_000;

const LONGEST_LEASE_MS: Ms = 5_000;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A safety rule that is left out.
    pub without: Option<SafetyRule>,
    /// A part of the proof of an outcome that is left out.
    pub unproved: Option<Proof>,
    /// A part of failover in a group that is left out.
    pub group_without: Option<GroupPart>,
    pub traces: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: NodeId,
    pub weirs: usize,
    pub sync_names: String,
    pub rules: FailoverRules,
    /// Shares of the kinds of faults.
    pub shares: Vec<(Fault, u64)>,
    pub faults: u64,
    /// Orders of Weirs in a hundred that trouble comes with.
    pub spite: u64,
    /// Faults at the n-th order that Weirs obey, counted from the first fault on. With a script there are no dice for faults.
    pub script: Vec<(u64, Scripted)>,
    /// Primaries are moved in this run.
    pub is_planned: bool,
    /// Agents bring replaced primaries back.
    pub is_returning: bool,
    /// Stops in a hundred that take long; a few of them are not clean.
    pub slow_stops: u64,
    /// A part of the proof of an outcome that is left out.
    pub unproved: Option<Proof>,
    /// Longest ordinary delay of a message.
    pub delay_ms: Ms,
    /// Messages in a thousand that come late by seconds.
    pub late: u64,
    pub company: WeirCompany,
    /// Messages between members of a group, in a hundred, that are lost.
    pub loss: u64,
    /// Orders to servers, in a hundred, that come when another Weir may lead.
    pub late_orders: u64,
    /// Where the group keeps its state.
    pub engine: EngineKind,
    pub lease_ms: Ms,
    /// `wd_lost_node_removal_timeout`.
    pub lost_removal_ms: Option<Ms>,
    /// `wd_remove_shutdown_nodes`.
    pub shutdowns: ShutdownFate,
    pub group_without: Option<GroupPart>,
    /// Faults of members in one order; without it, and with dice.
    pub member_script: Option<MemberScript>,
}

/// Weirs side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeirCompany {
    Single,
    /// They are members of one group.
    Group,
}

impl Plan {
    pub fn of(seed: u64, without: Option<SafetyRule>) -> Plan {
        let mut dice = Dice::new(seed);
        let nodes: NodeId = *dice.pick(&[2, 3, 3, 3, 4, 5]);
        let weirs = *dice.pick(&[1, 1, 2, 2, 3]);
        let all = (0..nodes).map(name).collect::<Vec<_>>().join(", ");
        let sync_names = match dice.below(6) {
            0..=2 => String::new(),
            3 => format!("ANY 1 ({all})"),
            4 => format!("FIRST 1 ({all})"),
            _ if nodes > 3 => format!("ANY 2 ({all})"),
            _ => format!("ANY 1 ({all})"),
        };
        let company = if weirs == 1 && dice.percent(60) { OtherPromoters::Alone } else { OtherPromoters::Possible };
        let barred = if nodes > 2 && dice.percent(10) { Some(dice.below(u64::from(nodes)) as NodeId) } else { None };
        let shares =
            Fault::ALL.iter().map(|fault| (*fault, if dice.percent(60) { dice.within(1, fault.weight()) } else { 0 })).collect();
        let mut plan = Plan {
            nodes,
            weirs,
            sync_names,
            rules: rules(nodes, company, barred, without),
            shares,
            faults: dice.within(1, 8),
            spite: *dice.pick(&[0, 3, 10, 25]),
            script: Vec::new(),
            is_planned: false,
            is_returning: false,
            slow_stops: 0,
            unproved: None,
            delay_ms: *dice.pick(&[2, 5, 20, 60]),
            late: *dice.pick(&[0, 0, 2, 10]),
            company: WeirCompany::Single,
            loss: 0,
            late_orders: 0,
            engine: EngineKind::Builtin,
            lease_ms: LEASE_MS,
            lost_removal_ms: None,
            shutdowns: ShutdownFate::Stays,
            group_without: None,
            member_script: None,
        };
        plan.draw_agents(&mut dice, &[0, 50, 100]);
        plan
    }

    /// Takes the agents away: their servers stay primaries more often, and give numbers out again.
    pub fn without_agents(mut self) -> Plan {
        self.rules.nodes.iter_mut().for_each(|node| node.agent = AgentPresence::None);
        self.shares.retain(|(fault, _)| *fault != Fault::AgentDies);
        self
    }

    /// Agents stand beside so many nodes in a hundred.
    fn draw_agents(&mut self, dice: &mut Dice, shares: &[u64]) {
        let share = *dice.pick(shares);
        for node in &mut self.rules.nodes {
            node.agent = if dice.percent(share) { AgentPresence::There } else { AgentPresence::None };
        }
        if share > 0 {
            self.shares.push((Fault::AgentDies, dice.below(Fault::AgentDies.weight())));
        }
    }
}

impl Plan {
    /// A run in which primaries are moved; in one of four nothing else happens.
    pub fn planned(seed: u64, without: Option<SafetyRule>) -> Plan {
        let mut dice = Dice::new(seed ^ 0x5717);
        let mut of = Plan::of(seed, without);
        let is_calm = dice.percent(25);
        of.draw_agents(&mut dice, if is_calm { &[100] } else { &[100, 100, 100, 60] });
        let mut shares = if is_calm { Vec::new() } else { of.shares };
        let others: u64 = shares.iter().map(|(_, share)| share).sum();
        shares.push((Fault::SwitchOver, dice.within(others / 2 + 1, others + Fault::SwitchOver.weight())));
        if !is_calm {
            shares.push((Fault::Restart, dice.below(Fault::Restart.weight())));
            shares.push((Fault::ReplayStands, dice.below(Fault::ReplayStands.weight())));
        }
        let slow_stops = if is_calm { 0 } else { *dice.pick(&[0, 0, 15, 50]) };
        // Where nothing else happens all Weirs have time to see the promises.
        of.rules.transaction_limit_ms = if is_calm { 4_000 } else { *dice.pick(&[1_000, 4_000]) };
        let (spite, late) = if is_calm { (0, 0) } else { (of.spite, of.late) };
        Plan { shares, spite, late, slow_stops, faults: dice.within(3, 12), is_planned: true, ..of }
    }

    /// A run in which agents bring replaced primaries back.
    pub fn returning(seed: u64, without: Option<SafetyRule>) -> Plan {
        let mut dice = Dice::new(seed ^ 0xBAC4);
        let mut plan = Plan::of(seed, without);
        plan.rules.nodes.iter_mut().for_each(|node| node.returns = RejoinInitiator::ByAgent);
        plan.draw_agents(&mut dice, &[0, 100, 100]);
        plan.rules.failback = *dice.pick(&[FailbackMode::ByOperator, FailbackMode::Auto { interval_ms: 1_000 }]);
        plan.shares.push((Fault::AgentDies, dice.below(Fault::AgentDies.weight())));
        plan.shares.push((Fault::Kill, Fault::Kill.weight()));
        if dice.percent(50) {
            // Weirs that sleep through decisions of others.
            plan.weirs = 3;
            plan.rules.company = OtherPromoters::Possible;
            plan.shares.push((Fault::Narrow, 3 * Fault::Narrow.weight()));
            plan.faults += 6;
        }
        Plan { is_returning: true, ..plan }
    }

    /// A run in which the Weirs are members of a group.
    pub fn grouped(seed: u64, options: Options) -> Plan {
        let mut dice = Dice::new(seed ^ 0x6209);
        let mut plan = Plan::of(seed, options.without);
        plan.weirs = *dice.pick(&[1, 2, 3, 3, 3, 3, 4, 5]);
        plan.rules.company = OtherPromoters::Alone;
        plan.rules.consensus = *dice.pick(&[DeathConsensus::Own, DeathConsensus::Majority]);
        plan.rules.transaction_limit_ms = *dice.pick(&[1_000, 4_000]);
        let grouped = Fault::GROUPED.iter().map(|fault| (*fault, dice.below(2 * fault.weight())));
        plan.shares.extend(grouped.collect::<Vec<_>>());
        plan.shares.push((Fault::SwitchOver, dice.below(Fault::SwitchOver.weight() / 2)));
        plan.shares.push((Fault::Restart, dice.below(Fault::Restart.weight())));
        plan.shares.push((Fault::Kill, Fault::Kill.weight()));
        let mut dice_of_takeovers = Dice::new(seed ^ 0x7A4E);
        if dice_of_takeovers.percent(50) {
            plan.shares.push((Fault::TakenOver, dice_of_takeovers.within(2, 3 * Fault::TakenOver.weight())));
        }
        let mut dice_of_engines = Dice::new(seed ^ 0xE7C6);
        if dice_of_engines.percent(25) {
            plan.engine = EngineKind::Outside;
            plan.shares.push((Fault::EtcdSilent, dice_of_engines.within(2, 2 * Fault::EtcdSilent.weight())));
        }
        // A longer one has room for an address of several seconds.
        let mut dice_of_leases = Dice::new(seed ^ 0x1EAC);
        if dice_of_leases.percent(15) {
            plan.lease_ms = dice_of_leases.within(LEASE_MS, LONGEST_LEASE_MS);
        }
        plan.draw_members(seed);
        let loss = *dice.pick(&[0, 0, 2, 20]);
        Plan {
            faults: dice.within(2, 10),
            spite: *dice.pick(&[0, 5, 10, 25]),
            company: WeirCompany::Group,
            loss,
            late_orders: *dice.pick(&[0, 0, 5, 20]),
            group_without: options.group_without,
            ..plan
        }
    }

    /// Disks are lost in an eighth of the groups, members are removed in another one, or shut down: a disk that is lost while there are fewer members may
    /// be one of too few.
    fn draw_members(&mut self, seed: u64) {
        let mut dice = Dice::new(seed ^ 0xD15C);
        match seed % 8 {
            3 if self.disks_to_lose() > 0 => {
                self.shares.push((Fault::DiskLost, dice.within(10, 6 * Fault::DiskLost.weight())));
            }
            5 if self.weirs > 1 => {
                self.shares.push((Fault::ShutDown, dice.within(10, 6 * Fault::ShutDown.weight())));
                self.shutdowns = if dice.percent(70) { ShutdownFate::Removed } else { ShutdownFate::Stays };
            }
            7 if self.weirs > 1 => {
                self.shares.push((Fault::MemberRemoved, dice.within(10, 6 * Fault::MemberRemoved.weight())));
                self.lost_removal_ms = dice.percent(50).then(|| dice.within(0, 3_000));
            }
            _ => {}
        }
    }

    /// Disks of one run: less than half of the members, so that the others decide.
    pub fn disks_to_lose(&self) -> usize {
        self.weirs.saturating_sub(1) / 2
    }

    /// True if nothing goes wrong in this run but that primaries are moved.
    pub fn is_calm(&self) -> bool {
        self.script.is_empty() && self.shares.iter().all(|(fault, _)| *fault == Fault::SwitchOver)
    }

    /// Three nodes of which the primary is killed; the script has the rest.
    pub fn scripted(
        weirs: usize,
        sync_names: &str,
        company: OtherPromoters,
        script: Vec<(u64, Scripted)>,
        without: Option<SafetyRule>,
    ) -> Plan {
        Plan {
            nodes: 3,
            weirs,
            sync_names: sync_names.into(),
            rules: rules(3, company, None, without),
            shares: Vec::new(),
            faults: 0,
            spite: 0,
            script,
            is_planned: false,
            is_returning: false,
            slow_stops: 0,
            unproved: None,
            delay_ms: 3,
            late: 0,
            company: WeirCompany::Single,
            loss: 0,
            late_orders: 0,
            engine: EngineKind::Builtin,
            lease_ms: LEASE_MS,
            lost_removal_ms: None,
            shutdowns: ShutdownFate::Stays,
            group_without: None,
            member_script: None,
        }
    }
}

impl Plan {
    /// Three members of a group before three nodes; the script has all faults.
    pub fn of_members(script: MemberScript, options: Options) -> Plan {
        let plan = Plan::scripted(3, "", OtherPromoters::Alone, Vec::new(), options.without);
        let member_script = Some(script);
        Plan { company: WeirCompany::Group, group_without: options.group_without, member_script, ..plan }
    }
}

/// The name of a server by which others know it.
pub fn name(id: NodeId) -> String {
    format!("n{id}")
}

fn rules(nodes: NodeId, company: OtherPromoters, barred: Option<NodeId>, without: Option<SafetyRule>) -> FailoverRules {
    let node = |id: NodeId| NodeRules {
        address: NodeLocation { hostname: name(id), port: 5432, data_directory: "/data".into() },
        application_name: name(id),
        agent: AgentPresence::None,
        priority: if barred == Some(id) { 0 } else { 100 },
        ..NodeRules::plain(id)
    };
    FailoverRules {
        company,
        search_ms: None,
        failback: FailbackMode::Auto { interval_ms: 1_000 },
        without,
        ..FailoverRules::plain((0..nodes).map(node).collect())
    }
}

impl Plan {
    /// Settings of a group, as of its first host.
    pub fn group_settings(&self) -> GroupSettings {
        GroupSettings {
            host: 0,
            hosts: (0..self.weirs as u8).collect(),
            priority: 1,
            duty: MemberDuty::Serves,
            half_votes: HalfVotes::LowestCasts,
            lease_ms: self.lease_ms,
            no_show_ms: None,
            lost_removal_ms: self.lost_removal_ms,
            shutdowns: self.shutdowns,
            engine: self.engine,
            without: match self.group_without {
                Some(GroupPart::Rule(rule)) => Some(rule),
                Some(_) | None => None,
            },
        }
    }
}
