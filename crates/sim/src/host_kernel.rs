//! The virtual address in the kernel of a host. It stays, whatever becomes of the process that set it, until its time ends or a process removes it.

use weir_group::GroupMs;

#[derive(Clone, Copy, Debug, Default)]
pub struct HostKernel {
    /// When it ends by itself, by the host's clock.
    ends_at: Option<GroupMs>,
}

/// A call of a process: the kernel does it, also if the process dies or stops meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    Set(AddressLife),
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAnswer {
    Done,
    /// Nothing was changed.
    Failed,
}

/// A life of the address, as its process asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLife {
    pub began_ms: GroupMs,
    pub lifetime_s: u32,
    pub left_ms: GroupMs,
    pub lease_until_ms: GroupMs,
}

impl HostKernel {
    pub fn has_address(&self, clock: GroupMs) -> bool {
        self.ends_at.is_some_and(|ends_at| clock < ends_at)
    }

    /// `late_ms`: the kernel's timer is not exact.
    pub fn obey(&mut self, call: KernelCall, clock: GroupMs, late_ms: GroupMs) {
        self.ends_at = match call {
            KernelCall::Set(life) => Some(clock + u64::from(life.lifetime_s) * 1_000 + late_ms),
            KernelCall::Remove => None,
        };
    }
}
