//! A process's keeper of the virtual address, by the real plan (`weir_group::AddressPlan`). `AddressKeeper` of the program is like it.

use weir_failover::Ms;
use weir_group::{AddressPlan, AddressRules, AddressStep, AddressWish, GroupMs, MemberHandover, VersionNumber};

const RULES: AddressRules =
    AddressRules { addresses: 1, has_up_and_down: false, has_arping: false, has_escalation: false, has_de_escalation: false };

/// The keeper of one process.
#[derive(Debug)]
pub struct AddressKeeper {
    pub plan: AddressPlan,
    wish: AddressWish,
    pub lease_until_ms: GroupMs,
    /// As it showed last.
    is_free: bool,
    /// The kernel has not answered its last call.
    pub is_calling: bool,
    /// When it looks again.
    pub wakes_at: Ms,
    /// Versions that are obeyed once the address is gone.
    pub freeing: Vec<VersionNumber>,
}

impl AddressKeeper {
    fn begin(plan: AddressPlan, wish: AddressWish) -> AddressKeeper {
        let lease_until_ms = match wish {
            AddressWish::Release => 0,
            AddressWish::Hold { until_ms } => until_ms,
        };
        let is_free = plan.is_free();
        AddressKeeper { plan, wish, lease_until_ms, is_free, is_calling: false, wakes_at: Ms::MAX, freeing: Vec::new() }
    }

    /// `before`: of a process that left it the address.
    pub fn of(before: Option<&MemberHandover>, clock: GroupMs) -> AddressKeeper {
        match before.filter(|before| before.holds_address) {
            Some(before) => {
                let until_ms = before.rights.leads.map_or(0, |_| before.rights.until);
                AddressKeeper::begin(AddressPlan::resume(RULES, clock), AddressWish::Hold { until_ms })
            }
            None => AddressKeeper::begin(AddressPlan::new(RULES), AddressWish::Release),
        }
    }

    pub fn holds(&self) -> bool {
        self.plan.holds()
    }

    pub fn hold(&mut self, until_ms: GroupMs) {
        (self.lease_until_ms, self.is_free, self.wish) = (until_ms, false, AddressWish::Hold { until_ms });
    }

    pub fn release(&mut self) {
        self.wish = AddressWish::Release;
    }

    /// The next step; `None` while the kernel works.
    pub fn next(&mut self, clock: GroupMs) -> Option<AddressStep> {
        if self.is_calling {
            return None;
        }
        self.plan.wish(self.wish);
        let step = self.plan.next(clock);
        self.is_free = self.plan.is_free();
        Some(step)
    }

    /// True if it is gone, or its lease is over.
    pub fn is_given_up(&self, clock: GroupMs) -> bool {
        self.wish == AddressWish::Release && (self.is_free || clock >= self.lease_until_ms)
    }
}
