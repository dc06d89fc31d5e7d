//! Groups of proxies on hosts of their own, which are network namespaces: hosts that die, stand still or are cut off. The holder of the address is
//! asked of all kernels many times a second.

mod etcd_hosts;
mod histories;
mod host_group;
mod host_recipes;
mod host_takeovers;
mod leader_faults;
mod primary_faults;
mod quorum_faults;

use super::*;
use host_group::{HostGroup, host_network, servers_for};
