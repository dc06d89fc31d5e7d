//! Surroundings of a proxy whose servers are well.

use crate::stage::{Servers, Stage};
use crate::support::faults::{Fault, Network};
use crate::support::leave_out;
use crate::support::proxy::{Backend, HOSTS, has_own_hosts};
use crate::table::Row;
use std::time::Duration;

/// Half of the round trip to servers in another country.
const ONE_WAY: Duration = Duration::from_millis(150);
const RESOLVED: &str = "127.0.0.1 localhost db0.test db1.test db2.test\n";
const UNRESOLVED: &str = "127.0.0.1 localhost\n";
/// A role for looks without the attribute REPLICATION, and whichever rights the row grants it.
const PLAIN_ROLE: &str = "plain";

/// A place, with what it consists of.
pub enum Place {
    /// A standby has defaults of its own.
    Defaults,
    /// Each message takes its time.
    Slow(Vec<Network>),
    /// The resolver goes away.
    Nameless,
    /// The user for looks may look at little: without `pg_monitor`, which `failover_mode = builtin` needs to find a primary, at next to nothing.
    Unprivileged { is_monitor: bool },
    /// No state can be stored, and a failover may be wanted.
    Unwritable,
    /// Clients come before anything is known of the servers or of their catalogs.
    Unread,
}

impl Place {
    /// Prepares it; `None` if this machine cannot.
    pub fn of(name: &str, row: &Row, servers: &Servers) -> Option<Place> {
        let place = match name {
            "defaults" => Place::Defaults,
            "slow" => {
                let networks = Stage::backends(row, servers).into_iter().map(|backend| {
                    let network = Network::to(backend.port);
                    network.set_both(Fault::Delay(ONE_WAY));
                    network
                });
                Place::Slow(networks.collect())
            }
            "nameless" if !has_own_hosts() => {
                leave_out("a program may not have a mount namespace of its own");
                return None;
            }
            "nameless" => Place::Nameless,
            "unprivileged" => Place::Unprivileged { is_monitor: row.is_on("level") },
            "unwritable" => Place::Unwritable,
            "unread" => Place::Unread,
            other => panic!("no place {other}"),
        };
        place.prepare(servers);
        Some(place)
    }

    fn prepare(&self, servers: &Servers) {
        match self {
            Place::Defaults => {
                let standby = &servers.cluster.standbys()[0];
                for setting in ["datestyle = 'SQL, DMY'", "timezone = 'Asia/Tokyo'"] {
                    standby.query(&format!("alter system set {setting}")).unwrap();
                }
                standby.reload().unwrap();
            }
            Place::Unprivileged { is_monitor } => {
                let granted = if *is_monitor { " in role pg_monitor" } else { "" };
                servers.cluster.primary().query(&format!("create role {PLAIN_ROLE} login{granted}")).unwrap();
                servers.cluster.wait_caught_up().unwrap();
            }
            Place::Slow(_) | Place::Nameless | Place::Unwritable | Place::Unread => {}
        }
    }

    /// The proxy in this place, ready if the place lets it be.
    pub fn stage<'s>(&self, row: &Row, servers: &'s Servers, more: &str) -> Stage<'s> {
        let mut backends = Stage::backends(row, servers);
        let mut files: Vec<(&str, &str)> = Vec::new();
        let mut lines = more.to_owned();
        match self {
            Place::Slow(networks) => {
                backends =
                    networks.iter().zip(row.weights()).map(|(network, weight)| Backend::tcp(network.port(), weight)).collect();
            }
            Place::Nameless => {
                for (at, backend) in backends.iter_mut().enumerate() {
                    backend.host = format!("db{at}.test");
                }
                files.push((HOSTS, RESOLVED));
            }
            Place::Unprivileged { is_monitor } => {
                lines += &format!("sr_check_user = '{PLAIN_ROLE}'\n");
                lines += if *is_monitor { "failover_mode = builtin\n" } else { "" };
            }
            Place::Unwritable => lines += "work_dir = '/proc/1/task'\nfailover_mode = builtin\n",
            Place::Defaults | Place::Unread => {}
        }
        Stage::start(row, servers, &backends, &lines, &files)
    }

    /// The event while clients are at work.
    pub fn changes(&self, stage: &Stage<'_>) {
        match self {
            Place::Nameless => stage.proxy.write_file(HOSTS, UNRESOLVED),
            // The next client finds a catalog that is not read.
            Place::Unread => {
                stage.nodes()[0].query("create table if not exists defined_meanwhile (); drop table defined_meanwhile").unwrap();
            }
            Place::Defaults | Place::Slow(_) | Place::Unprivileged { .. } | Place::Unwritable => {}
        }
    }

    /// The servers are again as they were.
    pub fn leave(self, servers: &Servers) {
        match self {
            Place::Defaults => {
                let standby = &servers.cluster.standbys()[0];
                for name in ["datestyle", "timezone"] {
                    standby.query(&format!("alter system reset {name}")).unwrap();
                }
                standby.reload().unwrap();
            }
            Place::Unprivileged { .. } => {
                servers.cluster.primary().query(&format!("drop role {PLAIN_ROLE}")).unwrap();
            }
            Place::Slow(_) | Place::Nameless | Place::Unwritable | Place::Unread => {}
        }
    }
}
