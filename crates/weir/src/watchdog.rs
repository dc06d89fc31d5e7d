//! Several Weirs as one: the IO around `weir_group`, on a thread of its own, so that no page, command or disk delays a read.

pub mod boot_clock;
pub mod host_fitness;
pub mod virtual_address;
