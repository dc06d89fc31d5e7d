//! Faults of servers while clients are at work, and the failures that clients may notice.

use crate::load::Forgiven;
use crate::stage::{CONNECTIONS_MAX, DATABASE, Stage, USER};
use crate::support::Raw;
use crate::support::wait_until;
use weir_demo::Mode;

/// Connections that are left when a server is full.
const FREE: usize = 4;

/// A fault of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Hung,
    Killed,
    Paused,
    Restarted,
    Full,
    Promoted,
}

/// Somebody else's connections.
pub struct Others(Vec<Raw>);

impl Trouble {
    pub fn of(name: &str) -> Trouble {
        match name {
            "hung" => Trouble::Hung,
            "killed" => Trouble::Killed,
            "paused" => Trouble::Paused,
            "restarted" => Trouble::Restarted,
            "full" => Trouble::Full,
            "promoted" => Trouble::Promoted,
            other => panic!("no fault {other}"),
        }
    }

    /// A primary that goes ends the statements under way: a statement or transaction of each client, and its next try.
    pub fn forgiven(self) -> Forgiven {
        match self {
            Trouble::Restarted | Trouble::Promoted => {
                Forgiven { sqlstates: &["57P01", "57P02", "08006", "08007", "40001", "25P02", "25006", "lost"], each_max: 2 }
            }
            Trouble::Hung | Trouble::Killed | Trouble::Paused | Trouble::Full => Forgiven::NONE,
        }
    }

    /// True if all clients go on while it lasts.
    pub fn is_bearable(self) -> bool {
        !matches!(self, Trouble::Restarted | Trouble::Promoted)
    }

    /// Prepares the stage before the clients come.
    pub fn prepare(self, stage: &Stage<'_>) -> Others {
        let mut others = Vec::new();
        if self == Trouble::Full {
            for server in stage.nodes() {
                let count = || -> usize {
                    server
                        .value("select count(*) from pg_stat_activity where backend_type = 'client backend'")
                        .unwrap()
                        .parse()
                        .unwrap()
                };
                let reserved: usize = server.value("show superuser_reserved_connections").unwrap().parse().unwrap();
                while count() + FREE + reserved < CONNECTIONS_MAX {
                    others.push(Raw::tcp(server.port()).log_in(USER, DATABASE, &[]).expect("the server has room"));
                }
            }
        }
        Others(others)
    }

    pub fn begin(self, stage: &Stage<'_>) {
        let nodes = stage.nodes();
        match self {
            Trouble::Hung => nodes[1].freeze(),
            Trouble::Killed => nodes[1].kill9().unwrap(),
            Trouble::Paused => {
                nodes[1].query("select pg_wal_replay_pause()").unwrap();
            }
            Trouble::Restarted => {
                nodes[0].stop(Mode::Fast).unwrap();
                nodes[0].start().unwrap();
            }
            Trouble::Full => {}
            Trouble::Promoted => promote(stage),
        }
    }

    pub fn end(self, stage: &Stage<'_>, others: Others) {
        let nodes = stage.nodes();
        match self {
            Trouble::Hung => nodes[1].thaw(),
            Trouble::Killed => nodes[1].start().unwrap(),
            Trouble::Paused => {
                nodes[1].query("select pg_wal_replay_resume()").unwrap();
            }
            Trouble::Full => drop(others.0),
            Trouble::Restarted | Trouble::Promoted => {}
        }
    }
}

/// As an operator does it by hand: the primary is stopped in order, so that its standbys have everything; one is promoted, the other follows it.
fn promote(stage: &Stage<'_>) {
    let [old, new, rest @ ..] = stage.servers.cluster.servers() else { panic!("too few servers") };
    old.stop(Mode::Fast).unwrap();
    new.query("select pg_promote()").unwrap();
    wait_until("the promoted server to accept writes", || {
        new.value("select pg_is_in_recovery()").is_ok_and(|answer| answer == "f")
    });
    for server in rest {
        let followed = format!("host=127.0.0.1 port={} user=postgres application_name={}", new.port(), server.name());
        server.query(&format!("alter system set primary_conninfo = '{followed}'")).unwrap();
        server.reload().unwrap();
    }
    stage.wait_for_primary(1);
}
