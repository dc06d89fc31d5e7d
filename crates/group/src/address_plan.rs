//! The next step with the virtual address, by what is wished, what is done and the time. No IO: the program's `AddressKeeper` and the simulator
//! carry the steps out.
//!
//! Order of Pgpool: escalation command, address, notices; de-escalation command, address away.

use crate::address_lifetime::address_lifetime_s;

/// Times of notices to neighbours after the address was taken, in ms; more than one, since a frame may be lost.
const NOTICES_MS: [u64; 5] = [0, 300, 1_000, 2_000, 5_000];
/// Time between later notices, in ms, for neighbours that heard none of the first.
const NOTICE_PERIOD_MS: u64 = 60_000;
/// Times of `arping_cmd`, which repeats its frames itself.
const ARPINGS_MS: [u64; 2] = [0, 5_000];
/// Time between two renewals in the kernel, in ms.
const RENEW_MS: u64 = 250;
/// Time until something that failed is tried again, in ms.
const RETRY_MS: u64 = 1_000;
/// The longest a command may hold up the address while the lease goes on, in ms.
const COMMAND_MS_MAX: u64 = 30_000;
/// Part of the lease that `wd_de_escalation_command` leaves for the removal, in ms.
const REMOVAL_MS: u64 = 150;
/// Time left for it where `if_down_cmd` removes the address.
const DOWN_COMMAND_MS: u64 = 600;
/// The longest `if_down_cmd` may run when the lease is over, in ms: a process that stood still must still give the address up.
const LATE_DOWN_MS: u64 = 5_000;

/// The wish of the group for this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressWish {
    Release,
    /// Hold the address until this time of the boot clock.
    Hold {
        until_ms: u64,
    },
}

/// A command of the operator; the number is that of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressCommand {
    Escalation,
    Up(usize),
    Arping(usize),
    DeEscalation,
    Down(usize),
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressStep {
    /// Nothing before this time, unless the wish changes or the command ends.
    Wait { until_ms: u64 },
    /// `ended` is to be told.
    Start(AddressCommand),
    /// Kill the command that runs. Nothing is to be told of it.
    Kill(AddressCommand),
    /// Set the addresses or renew them in the kernel; `was_set` is to be told.
    Set { lease_until_ms: u64 },
    /// Send notices.
    Announce { lease_until_ms: u64 },
    /// Remove the addresses from the kernel; `was_removed` is to be told.
    Remove,
    /// `wd_de_escalation_command` is left out, since the lease is over.
    SkipDeEscalation,
}

/// The end of a try to set the addresses or to renew them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSetting {
    /// The kernel ends the first of them then, if all is quiet.
    Done {
        ends_ms: u64,
    },
    /// Nothing was set: the address could outlive the lease.
    TooLate,
    /// The kernel took so long that the address could outlive the lease. It must be removed.
    TooSlow,
    Failed,
}

/// Settings that the plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRules {
    pub addresses: usize,
    pub has_up_and_down: bool,
    pub has_arping: bool,
    pub has_escalation: bool,
    pub has_de_escalation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressStage {
    Free { retry_ms: u64 },
    Escalating,
    Raising { next: usize, try_ms: u64 },
    Held(HeldAddress),
    DeEscalating,
    Lowering { next: usize, try_ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldAddress {
    since_ms: u64,
    /// Notices sent.
    notices: usize,
    notice_ms: u64,
    /// The address that the next `arping_cmd` is for.
    next_arping: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunningCommand {
    command: AddressCommand,
    began_ms: u64,
}

#[derive(Clone, Debug)]
pub struct AddressPlan {
    rules: AddressRules,
    wish: AddressWish,
    /// The end of the last lease.
    lease_until_ms: u64,
    stage: AddressStage,
    running: Option<RunningCommand>,
    /// When the kernel ends the first address.
    kernel_ends_ms: u64,
    renew_ms: u64,
}

impl AddressPlan {
    pub fn new(rules: AddressRules) -> AddressPlan {
        AddressPlan {
            rules,
            wish: AddressWish::Release,
            lease_until_ms: 0,
            stage: AddressStage::Free { retry_ms: 0 },
            running: None,
            kernel_ends_ms: 0,
            renew_ms: 0,
        }
    }

    /// Goes on with addresses that another process of this host set.
    pub fn resume(rules: AddressRules, now_ms: u64) -> AddressPlan {
        AddressPlan { stage: just_held(now_ms), ..AddressPlan::new(rules) }
    }

    /// Other rules, for all that begins from here on. Addresses and the way they are taken stay.
    pub fn obey(&mut self, rules: AddressRules) {
        self.rules = rules;
    }

    pub fn wish(&mut self, wish: AddressWish) {
        self.wish = wish;
        if let AddressWish::Hold { until_ms } = wish {
            self.lease_until_ms = until_ms;
        }
    }

    /// True while the address is held, or is being given up.
    pub fn holds(&self) -> bool {
        match self.stage {
            AddressStage::Held(_) | AddressStage::DeEscalating | AddressStage::Lowering { .. } => true,
            AddressStage::Free { .. } | AddressStage::Escalating | AddressStage::Raising { .. } => false,
        }
    }

    /// True if nothing is held and no command runs; after `next`: and nothing is to be taken.
    pub fn is_free(&self) -> bool {
        matches!(self.stage, AddressStage::Free { .. })
    }

    /// Returns the next step. Call again after each step but `Wait`.
    pub fn next(&mut self, now_ms: u64) -> AddressStep {
        if let Some(running) = self.running {
            return self.beside(running, now_ms);
        }
        match self.stage {
            AddressStage::Free { retry_ms } if !self.is_wanted(now_ms) || now_ms < retry_ms => {
                AddressStep::Wait { until_ms: if self.is_wanted(now_ms) { retry_ms } else { u64::MAX } }
            }
            AddressStage::Free { .. } if self.rules.has_escalation => {
                self.stage = AddressStage::Escalating;
                self.start(AddressCommand::Escalation, now_ms)
            }
            AddressStage::Free { .. } | AddressStage::Escalating => {
                self.stage = AddressStage::Raising { next: 0, try_ms: now_ms };
                self.next(now_ms)
            }
            AddressStage::Raising { .. } | AddressStage::Held(_) if !self.is_wanted(now_ms) => self.give_up(now_ms),
            AddressStage::Raising { next, try_ms } => self.raise(next, try_ms, now_ms),
            AddressStage::Held(held) => self.keep(held, now_ms),
            AddressStage::DeEscalating => {
                self.stage = AddressStage::Lowering { next: 0, try_ms: now_ms };
                self.next(now_ms)
            }
            AddressStage::Lowering { try_ms, .. } if now_ms < try_ms => AddressStep::Wait { until_ms: try_ms },
            AddressStage::Lowering { next, .. } if self.rules.has_up_and_down && next < self.rules.addresses => {
                self.start(AddressCommand::Down(next), now_ms)
            }
            AddressStage::Lowering { .. } if self.rules.addresses > 0 => AddressStep::Remove,
            AddressStage::Lowering { .. } => {
                self.was_removed(true, now_ms);
                self.next(now_ms)
            }
        }
    }

    /// The command ended by itself.
    pub fn ended(&mut self, is_success: bool, now_ms: u64) {
        let Some(RunningCommand { command, .. }) = self.running.take() else { return };
        match (command, self.stage) {
            (AddressCommand::Escalation, _) => self.stage = AddressStage::Raising { next: 0, try_ms: now_ms },
            (AddressCommand::Up(at), _) if !is_success => {
                self.stage = AddressStage::Raising { next: at, try_ms: now_ms + RETRY_MS };
            }
            (AddressCommand::Up(at), _) if at + 1 < self.rules.addresses => {
                self.stage = AddressStage::Raising { next: at + 1, try_ms: now_ms };
            }
            (AddressCommand::Up(_), _) => self.stage = just_held(now_ms),
            (AddressCommand::Arping(at), AddressStage::Held(held)) if at + 1 < self.rules.addresses => {
                self.stage = AddressStage::Held(HeldAddress { next_arping: at + 1, ..held });
            }
            (AddressCommand::Arping(_), AddressStage::Held(held)) => {
                self.stage = after_notice(held, now_ms, &ARPINGS_MS);
            }
            (AddressCommand::Arping(_), _) => {}
            (AddressCommand::DeEscalation, _) => self.stage = AddressStage::Lowering { next: 0, try_ms: now_ms },
            // The removal that follows finds what the command left.
            (AddressCommand::Down(at), _) => self.stage = AddressStage::Lowering { next: at + 1, try_ms: now_ms },
        }
    }

    /// The outcome of `Set`.
    pub fn was_set(&mut self, outcome: AddressSetting, now_ms: u64) {
        self.renew_ms = now_ms + RENEW_MS;
        match (outcome, self.stage) {
            (AddressSetting::Done { ends_ms }, stage) => {
                self.kernel_ends_ms = ends_ms;
                if let AddressStage::Raising { .. } = stage {
                    self.stage = just_held(now_ms);
                }
            }
            (AddressSetting::TooSlow, _) => self.stage = AddressStage::Lowering { next: 0, try_ms: now_ms },
            (AddressSetting::TooLate, _) | (AddressSetting::Failed, AddressStage::DeEscalating) => {}
            // Another interface may have the network by now.
            (AddressSetting::Failed, _) => self.stage = AddressStage::Raising { next: 0, try_ms: now_ms + RETRY_MS },
        }
    }

    /// The outcome of `Remove`.
    pub fn was_removed(&mut self, is_success: bool, now_ms: u64) {
        self.kernel_ends_ms = 0;
        self.stage = if is_success {
            AddressStage::Free { retry_ms: now_ms }
        } else {
            AddressStage::Lowering { next: 0, try_ms: now_ms + RETRY_MS }
        };
    }

    fn is_wanted(&self, now_ms: u64) -> bool {
        matches!(self.wish, AddressWish::Hold { until_ms } if now_ms < until_ms)
    }

    fn start(&mut self, command: AddressCommand, now_ms: u64) -> AddressStep {
        self.running = Some(RunningCommand { command, began_ms: now_ms });
        AddressStep::Start(command)
    }

    /// The next step while a command runs.
    fn beside(&mut self, running: RunningCommand, now_ms: u64) -> AddressStep {
        let limit_ms = self.limit(running, now_ms);
        if now_ms >= limit_ms {
            self.ended(false, now_ms);
            self.running = None;
            return AddressStep::Kill(running.command);
        }
        if let Some(step) = self.renewal(now_ms) {
            return step;
        }
        AddressStep::Wait { until_ms: limit_ms.min(self.next_renewal()) }
    }

    /// When the command is to be killed.
    fn limit(&self, running: RunningCommand, now_ms: u64) -> u64 {
        let longest_ms = running.began_ms.saturating_add(COMMAND_MS_MAX);
        let is_lowering = matches!(self.stage, AddressStage::Lowering { .. });
        match running.command {
            AddressCommand::Escalation | AddressCommand::Up(_) | AddressCommand::Arping(_) => {
                if self.is_wanted(now_ms) && !is_lowering { longest_ms.min(self.lease_until_ms) } else { now_ms }
            }
            AddressCommand::DeEscalation if is_lowering => now_ms,
            AddressCommand::DeEscalation => longest_ms.min(self.lease_until_ms.saturating_sub(self.removal_ms())),
            AddressCommand::Down(_) if running.began_ms < self.lease_until_ms => longest_ms.min(self.lease_until_ms),
            AddressCommand::Down(_) => running.began_ms + LATE_DOWN_MS,
        }
    }

    fn removal_ms(&self) -> u64 {
        if self.rules.has_up_and_down { DOWN_COMMAND_MS } else { REMOVAL_MS }
    }

    fn raise(&mut self, next: usize, try_ms: u64, now_ms: u64) -> AddressStep {
        if self.rules.addresses == 0 {
            self.stage = just_held(now_ms);
            return self.next(now_ms);
        }
        if now_ms < try_ms {
            return AddressStep::Wait { until_ms: try_ms.min(self.lease_until_ms) };
        }
        if self.rules.has_up_and_down {
            return self.start(AddressCommand::Up(next), now_ms);
        }
        match address_lifetime_s(self.lease_until_ms - now_ms) {
            Some(_) => AddressStep::Set { lease_until_ms: self.lease_until_ms },
            // A longer lease wakes the keeper.
            None => AddressStep::Wait { until_ms: self.lease_until_ms },
        }
    }

    fn keep(&mut self, held: HeldAddress, now_ms: u64) -> AddressStep {
        if self.rules.addresses == 0 {
            return AddressStep::Wait { until_ms: self.lease_until_ms };
        }
        if let Some(step) = self.renewal(now_ms) {
            return step;
        }
        if now_ms < held.notice_ms {
            return AddressStep::Wait { until_ms: self.lease_until_ms.min(held.notice_ms).min(self.next_renewal()) };
        }
        if self.rules.has_arping {
            return self.start(AddressCommand::Arping(held.next_arping), now_ms);
        }
        self.stage = after_notice(held, now_ms, &NOTICES_MS);
        AddressStep::Announce { lease_until_ms: self.lease_until_ms }
    }

    /// After the end of the lease a de-escalation command could undo what the next leader's command did.
    fn give_up(&mut self, now_ms: u64) -> AddressStep {
        if self.rules.has_de_escalation && now_ms + self.removal_ms() < self.lease_until_ms {
            self.stage = AddressStage::DeEscalating;
            return self.start(AddressCommand::DeEscalation, now_ms);
        }
        self.stage = AddressStage::Lowering { next: 0, try_ms: now_ms };
        if self.rules.has_de_escalation { AddressStep::SkipDeEscalation } else { self.next(now_ms) }
    }

    /// A renewal that is due and makes the address live longer.
    fn renewal(&mut self, now_ms: u64) -> Option<AddressStep> {
        if now_ms < self.next_renewal() {
            return None;
        }
        let left_ms = self.lease_until_ms.saturating_sub(now_ms);
        match address_lifetime_s(left_ms) {
            Some(seconds) if now_ms + u64::from(seconds) * 1000 > self.kernel_ends_ms => {
                Some(AddressStep::Set { lease_until_ms: self.lease_until_ms })
            }
            Some(_) | None => {
                self.renew_ms = now_ms + RENEW_MS;
                None
            }
        }
    }

    fn next_renewal(&self) -> u64 {
        match self.stage {
            AddressStage::Held(_) | AddressStage::DeEscalating if !self.rules.has_up_and_down && self.rules.addresses > 0 => {
                self.renew_ms
            }
            AddressStage::Held(_)
            | AddressStage::DeEscalating
            | AddressStage::Free { .. }
            | AddressStage::Escalating
            | AddressStage::Raising { .. }
            | AddressStage::Lowering { .. } => u64::MAX,
        }
    }
}

fn just_held(now_ms: u64) -> AddressStage {
    AddressStage::Held(HeldAddress { since_ms: now_ms, notices: 0, notice_ms: now_ms, next_arping: 0 })
}

/// The stage after a notice: the next one is in its list, or a period later.
fn after_notice(held: HeldAddress, now_ms: u64, times_ms: &[u64]) -> AddressStage {
    let notices = held.notices + 1;
    let notice_ms = match times_ms.get(notices) {
        Some(after_ms) => (held.since_ms + after_ms).max(now_ms),
        None => now_ms + NOTICE_PERIOD_MS,
    };
    AddressStage::Held(HeldAddress { notices, notice_ms, next_arping: 0, ..held })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETLINK: AddressRules =
        AddressRules { addresses: 1, has_up_and_down: false, has_arping: false, has_escalation: false, has_de_escalation: false };
    const COMMANDS: AddressRules =
        AddressRules { addresses: 2, has_up_and_down: true, has_arping: true, has_escalation: true, has_de_escalation: true };

    fn plan(rules: AddressRules, until_ms: u64) -> AddressPlan {
        let mut plan = AddressPlan::new(rules);
        plan.wish(AddressWish::Hold { until_ms });
        plan
    }

    /// Holds an address of the kernel from time 0 on.
    fn held(rules: AddressRules, until_ms: u64) -> AddressPlan {
        let mut plan = plan(rules, until_ms);
        assert_eq!(plan.next(0), AddressStep::Set { lease_until_ms: until_ms });
        plan.was_set(AddressSetting::Done { ends_ms: 1_000 }, 0);
        assert!(plan.holds());
        plan
    }

    #[test]
    fn an_address_of_a_process_before_is_renewed_at_once_and_no_command_runs_for_it() {
        let mut plan = AddressPlan::resume(AddressRules { has_escalation: true, ..NETLINK }, 100);
        plan.wish(AddressWish::Hold { until_ms: 1_900 });
        assert!(plan.holds());
        assert_eq!(plan.next(100), AddressStep::Set { lease_until_ms: 1_900 });
        plan.was_set(AddressSetting::Done { ends_ms: 1_100 }, 100);
        assert_eq!(plan.next(100), AddressStep::Announce { lease_until_ms: 1_900 });
        let mut not_led = AddressPlan::resume(NETLINK, 100);
        not_led.wish(AddressWish::Hold { until_ms: 0 });
        assert_eq!(not_led.next(100), AddressStep::Remove, "without the lead it goes");
        let mut by_commands = AddressPlan::resume(AddressRules { has_arping: false, ..COMMANDS }, 100);
        by_commands.wish(AddressWish::Hold { until_ms: 1_900 });
        assert!(matches!(by_commands.next(100), AddressStep::Announce { .. }), "if_up_cmd is not run again");
    }

    #[test]
    fn an_address_is_set_announced_and_renewed_while_the_lease_goes_on() {
        let mut plan = held(NETLINK, 2_000);
        assert_eq!(plan.next(0), AddressStep::Announce { lease_until_ms: 2_000 });
        assert_eq!(plan.next(1), AddressStep::Wait { until_ms: 250 });
        plan.wish(AddressWish::Hold { until_ms: 2_250 });
        assert_eq!(plan.next(250), AddressStep::Set { lease_until_ms: 2_250 });
        plan.was_set(AddressSetting::Done { ends_ms: 1_250 }, 250);
        assert_eq!(plan.next(300), AddressStep::Announce { lease_until_ms: 2_250 });
        assert_eq!(plan.next(301), AddressStep::Wait { until_ms: 500 });
    }

    #[test]
    fn nothing_is_renewed_that_could_outlive_the_lease() {
        let mut plan = held(NETLINK, 2_000);
        assert_eq!(plan.next(0), AddressStep::Announce { lease_until_ms: 2_000 });
        // 1.39 s are left: a second and the kernel's delay do not fit.
        assert_eq!(plan.next(610), AddressStep::Announce { lease_until_ms: 2_000 });
        assert_eq!(plan.next(611), AddressStep::Wait { until_ms: 860 });
        // A long lease given away bit by bit: a shorter lifetime would end before the one there is.
        let mut plan = held(NETLINK, 5_000);
        plan.kernel_ends_ms = 3_000;
        plan.next(0);
        assert_eq!(plan.next(1_000), AddressStep::Announce { lease_until_ms: 5_000 }, "2 s from now is no longer");
        assert_eq!(plan.next(1_000), AddressStep::Announce { lease_until_ms: 5_000 });
        assert_eq!(plan.next(1_000), AddressStep::Wait { until_ms: 1_250 });
    }

    #[test]
    fn a_keeper_that_wakes_after_its_lease_removes_the_address_at_once() {
        let mut plan = held(AddressRules { has_de_escalation: true, ..NETLINK }, 2_000);
        assert_eq!(plan.next(2_000), AddressStep::SkipDeEscalation);
        assert_eq!(plan.next(2_000), AddressStep::Remove);
        plan.was_removed(false, 2_010);
        assert!(plan.holds());
        assert_eq!(plan.next(2_011), AddressStep::Wait { until_ms: 3_010 });
        assert_eq!(plan.next(3_010), AddressStep::Remove);
        plan.was_removed(true, 3_011);
        assert!(plan.is_free());
        assert_eq!(plan.next(3_012), AddressStep::Wait { until_ms: u64::MAX });
    }

    #[test]
    fn the_address_stays_while_the_de_escalation_command_runs() {
        let mut plan = held(AddressRules { has_de_escalation: true, ..NETLINK }, 2_000);
        plan.wish(AddressWish::Release);
        assert_eq!(plan.next(100), AddressStep::Start(AddressCommand::DeEscalation));
        assert_eq!(plan.next(250), AddressStep::Set { lease_until_ms: 2_000 });
        plan.was_set(AddressSetting::Done { ends_ms: 1_250 }, 250);
        assert_eq!(plan.next(300), AddressStep::Wait { until_ms: 500 });
        assert_eq!(plan.next(1_850), AddressStep::Kill(AddressCommand::DeEscalation));
        assert_eq!(plan.next(1_850), AddressStep::Remove);
    }

    #[test]
    fn commands_run_in_the_order_of_pgpool() {
        let mut plan = plan(COMMANDS, 10_000);
        let up = [AddressCommand::Escalation, AddressCommand::Up(0), AddressCommand::Up(1), AddressCommand::Arping(0)];
        for command in up.into_iter().chain([AddressCommand::Arping(1)]) {
            assert_eq!(plan.next(10), AddressStep::Start(command));
            plan.ended(true, 10);
        }
        assert_eq!(plan.next(20), AddressStep::Wait { until_ms: 5_010 }, "nothing is renewed without the kernel");
        assert!(plan.holds());
        plan.wish(AddressWish::Release);
        for command in [AddressCommand::DeEscalation, AddressCommand::Down(0), AddressCommand::Down(1)] {
            assert_eq!(plan.next(30), AddressStep::Start(command));
            plan.ended(true, 30);
        }
        assert_eq!(plan.next(40), AddressStep::Remove, "what the commands left");
        plan.was_removed(true, 40);
        assert!(plan.is_free());
    }

    #[test]
    fn a_command_is_killed_when_the_lease_ends() {
        let mut plan = plan(COMMANDS, 2_000);
        assert_eq!(plan.next(0), AddressStep::Start(AddressCommand::Escalation));
        assert_eq!(plan.next(1_999), AddressStep::Wait { until_ms: 2_000 });
        assert_eq!(plan.next(2_000), AddressStep::Kill(AddressCommand::Escalation));
        assert_eq!(plan.next(2_000), AddressStep::SkipDeEscalation);
        assert_eq!(plan.next(2_000), AddressStep::Start(AddressCommand::Down(0)));
        // The process may have stood still: the address must go all the same.
        assert_eq!(plan.next(6_999), AddressStep::Wait { until_ms: 7_000 });
        assert_eq!(plan.next(7_000), AddressStep::Kill(AddressCommand::Down(0)));
    }

    #[test]
    fn a_hanging_escalation_command_does_not_keep_the_address_away_for_ever() {
        let mut plan = plan(COMMANDS, 60_000);
        assert_eq!(plan.next(0), AddressStep::Start(AddressCommand::Escalation));
        assert_eq!(plan.next(30_000), AddressStep::Kill(AddressCommand::Escalation));
        assert_eq!(plan.next(30_000), AddressStep::Start(AddressCommand::Up(0)));
        plan.ended(false, 30_100);
        assert_eq!(plan.next(30_100), AddressStep::Wait { until_ms: 31_100 });
        assert_eq!(plan.next(31_100), AddressStep::Start(AddressCommand::Up(0)));
        plan.wish(AddressWish::Release);
        assert_eq!(plan.next(31_200), AddressStep::Kill(AddressCommand::Up(0)));
        assert_eq!(plan.next(31_200), AddressStep::Start(AddressCommand::DeEscalation));
    }

    #[test]
    fn an_address_that_took_the_kernel_too_long_goes() {
        let mut plan = plan(NETLINK, 2_000);
        assert_eq!(plan.next(0), AddressStep::Set { lease_until_ms: 2_000 });
        plan.was_set(AddressSetting::TooSlow, 900);
        assert_eq!(plan.next(900), AddressStep::Remove);
    }

    #[test]
    fn a_refused_address_is_tried_again_a_second_later() {
        let mut plan = plan(NETLINK, 20_000);
        assert_eq!(plan.next(0), AddressStep::Set { lease_until_ms: 20_000 });
        plan.was_set(AddressSetting::Failed, 10);
        assert!(!plan.holds());
        assert_eq!(plan.next(10), AddressStep::Wait { until_ms: 1_010 });
        assert_eq!(plan.next(1_010), AddressStep::Set { lease_until_ms: 20_000 });
    }

    #[test]
    fn without_an_address_only_the_escalation_commands_run() {
        let rules = AddressRules { addresses: 0, ..COMMANDS };
        let mut plan = plan(rules, 2_000);
        assert_eq!(plan.next(0), AddressStep::Start(AddressCommand::Escalation));
        plan.ended(true, 10);
        assert_eq!(plan.next(10), AddressStep::Wait { until_ms: 2_000 });
        plan.wish(AddressWish::Release);
        assert_eq!(plan.next(20), AddressStep::Start(AddressCommand::DeEscalation));
        plan.ended(true, 30);
        assert_eq!(plan.next(30), AddressStep::Wait { until_ms: u64::MAX });
        assert!(plan.is_free());
    }
}
