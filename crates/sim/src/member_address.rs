//! The virtual address of a member that leads: its keeper's steps, and the kernels.

use weir_failover::Ms;
use weir_group::{AddressSetting, AddressStep, GroupMs, address_lifetime_s, may_outlive_lease};

use crate::group_oracle::BROKEN_MAX;
use crate::host_kernel::{AddressLife, KernelAnswer, KernelCall};
use crate::kinds::GroupPart;
use crate::member_host::MemberDue;
use crate::oracle::Broken;
use crate::world::{Due, World};

/// Of the kernel's timer, if nothing else happens to addresses, and if something does.
const LATE_MS: GroupMs = 250;
const LATE_MAX_MS: GroupMs = 1_050;
/// From so much of a lease on the keeper reckons with the latter.
const ROOMY_MS: GroupMs = 2_150;
/// Calls in a hundred that fail.
const FAILING: u64 = 4;
/// Beyond the lease, where that rule is left out.
const TOO_LONG_S: u32 = 3;

impl World {
    /// Takes the steps that are due. The wish may have changed.
    pub(crate) fn keep_address(&mut self, at: usize) {
        while let Some(step) = self.next_step(at) {
            match step {
                AddressStep::Wait { until_ms } => {
                    self.wake_keeper(at, until_ms);
                    break;
                }
                AddressStep::Set { lease_until_ms } => self.set_address(at, lease_until_ms),
                AddressStep::Remove => self.call_kernel(at, KernelCall::Remove),
                // Neighbours do not count here, and there are no commands.
                AddressStep::Announce { .. } | AddressStep::Start(_) | AddressStep::Kill(_) | AddressStep::SkipDeEscalation => {}
            }
        }
        self.tell_address_free(at);
    }

    fn next_step(&mut self, at: usize) -> Option<AddressStep> {
        let now = self.now;
        let host = self.member_host(at)?;
        let clock = host.clock(now);
        host.address.as_mut()?.next(clock)
    }

    /// Comes again at a time of the host's clock.
    fn wake_keeper(&mut self, at: usize, until_ms: GroupMs) {
        let (now, life) = (self.now, self.weirs[at].life);
        let Some(host) = self.member_host(at).filter(|_| until_ms < GroupMs::MAX) else { return };
        let wakes_at = host.world_time(until_ms).max(now + 1);
        let Some(keeper) = &mut host.address else { return };
        let is_woken_before = keeper.wakes_at > now && keeper.wakes_at <= wakes_at;
        if !is_woken_before {
            keeper.wakes_at = wakes_at;
            self.later(wakes_at - now, Due::Member { weir: at, due: MemberDue::AddressDue { life } });
        }
    }

    fn set_address(&mut self, at: usize, lease_until_ms: GroupMs) {
        let (now, is_too_long) = (self.now, self.leaves_out(GroupPart::AddressWithinLease));
        let Some(host) = self.member_host(at) else { return };
        let began_ms = host.clock(now);
        let Some(keeper) = &mut host.address else { return };
        let left_ms = lease_until_ms.saturating_sub(began_ms);
        match address_lifetime_s(left_ms) {
            None => keeper.plan.was_set(AddressSetting::TooLate, began_ms),
            Some(seconds) => {
                let lifetime_s = if is_too_long { seconds + TOO_LONG_S } else { seconds };
                self.call_kernel(at, KernelCall::Set(AddressLife { began_ms, lifetime_s, left_ms, lease_until_ms }));
            }
        }
    }

    fn call_kernel(&mut self, at: usize, call: KernelCall) {
        let (life, takes) = (self.weirs[at].life, self.kernel_takes());
        if let Some(keeper) = self.member_host(at).and_then(|host| host.address.as_mut()) {
            keeper.is_calling = true;
            self.later(takes, Due::Member { weir: at, due: MemberDue::KernelObeys { life, call } });
        }
    }

    /// Half of a call: the kernel's lock of its network settings may be taken.
    fn kernel_takes(&mut self) -> Ms {
        if self.dice_of_addresses.percent(10) { self.dice_of_addresses.within(5, 48) } else { self.dice_of_addresses.below(2) }
    }

    /// The kernel does what it was called for, and its answer is on the way.
    pub(crate) fn obey_call(&mut self, at: usize, life: u32, call: KernelCall) {
        let now = self.now;
        let is_roomy = matches!(call, KernelCall::Set(life) if life.left_ms >= ROOMY_MS);
        let latest_ms = if is_roomy && self.dice_of_addresses.percent(20) { LATE_MAX_MS } else { LATE_MS };
        let late_ms = self.dice_of_addresses.below(latest_ms);
        let answer = if self.dice_of_addresses.percent(FAILING) { KernelAnswer::Failed } else { KernelAnswer::Done };
        let (seat, takes) = (self.weirs[at].seat, self.kernel_takes());
        let Some(clock) = self.weirs[at].host.as_ref().map(|host| host.clock(now)) else { return };
        if answer == KernelAnswer::Done {
            self.kernels[seat].obey(call, clock, late_ms);
        }
        self.note(|| format!("kernel {seat}: {call:?} {answer:?}"));
        self.later(takes, Due::Member { weir: at, due: MemberDue::KernelAnswers { life, call, answer } });
    }

    pub(crate) fn hear_kernel(&mut self, at: usize, call: KernelCall, answer: KernelAnswer) {
        let (now, is_too_long) = (self.now, self.leaves_out(GroupPart::AddressWithinLease));
        let Some(host) = self.member_host(at) else { return };
        let clock = host.clock(now);
        let Some(keeper) = &mut host.address else { return };
        keeper.is_calling = false;
        match call {
            KernelCall::Remove => keeper.plan.was_removed(answer == KernelAnswer::Done, clock),
            KernelCall::Set(_) if answer == KernelAnswer::Failed => keeper.plan.was_set(AddressSetting::Failed, clock),
            KernelCall::Set(AddressLife { began_ms, lifetime_s, left_ms, lease_until_ms }) => {
                let is_late = may_outlive_lease(clock, lifetime_s, left_ms, lease_until_ms) && !is_too_long;
                let ends_ms = began_ms + u64::from(lifetime_s) * 1_000;
                let setting = if is_late { AddressSetting::TooSlow } else { AddressSetting::Done { ends_ms } };
                keeper.plan.was_set(setting, clock);
            }
        }
        self.keep_address(at);
    }

    /// Versions that took the lead are obeyed as far as the address goes.
    fn tell_address_free(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let clock = host.clock(now);
        let Some(keeper) = host.address.as_mut().filter(|keeper| !keeper.freeing.is_empty()) else { return };
        if !keeper.is_given_up(clock) {
            let until_ms = keeper.lease_until_ms;
            return self.wake_keeper(at, until_ms);
        }
        let freeing = std::mem::take(&mut keeper.freeing);
        if let Some(obeying) = host.obeying.as_mut().filter(|obeying| freeing.contains(&obeying.number)) {
            obeying.address = true;
            self.member_obeyed(at);
        }
    }

    /// Never two kernels with the address.
    pub(crate) fn look_at_addresses(&mut self) {
        let now = self.now;
        let mut holder = None;
        for (seat, kernel) in self.kernels.iter().enumerate() {
            let Some(host) = &self.weirs[seat].host else { return };
            if !kernel.has_address(host.clock(now)) {
                continue;
            }
            if let Some(first) = holder {
                let broken = Broken::TwoAddresses { first, second: seat, at: now };
                self.needless.extend((self.needless.len() < BROKEN_MAX).then_some(broken));
                return;
            }
            holder = Some(seat);
        }
    }
}
