//! Nodes whose address has moved to another server than some of their open connections.
//!
//! The former server may work on in another role. A move shows by another start of a server at the address, or by a standby that refuses
//! a write although its node is the primary. After a refused write one new connection tells the role at the address. If it is a primary,
//! older connections to a standby are closed instead of used. If not, nothing is closed, and a later refused write may check again.

use crate::conn::Conn;
use crate::metrics::NODES_MAX;
use crate::reports::ReportedRole;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shortest time between checks of a node: clients that write to a standby must not burden others.
const ASK_AGAIN_US: u64 = 1_000_000;

/// Moved addresses by node. Times are microseconds since the start of the proxy; 0: never.
pub struct MovedAddresses([AddressTimes; NODES_MAX]);

#[derive(Default)]
struct AddressTimes {
    /// A standby refused a write: a new connection must check the address.
    asked_us: AtomicU64,
    /// The `asked_us` whose check was last begun.
    claimed_us: AtomicU64,
    /// The address led to a primary: earlier connections to a standby are out of date.
    primary_us: AtomicU64,
    /// The address led to a standby: earlier connections to a primary are out of date.
    standby_us: AtomicU64,
}

impl Default for MovedAddresses {
    fn default() -> MovedAddresses {
        MovedAddresses(std::array::from_fn(|_| AddressTimes::default()))
    }
}

impl MovedAddresses {
    fn node(&self, node: u16) -> &AddressTimes {
        &self.0[usize::from(node) % NODES_MAX]
    }

    /// Notes a write refused by a standby as the primary. True if a check is due: the caller leaves the connection and opens another.
    pub fn ask(&self, node: u16, now_us: u64) -> bool {
        let asked = &self.node(node).asked_us;
        let before = asked.load(Ordering::Relaxed);
        let is_due = before == 0 || now_us >= before.saturating_add(ASK_AGAIN_US);
        is_due && asked.compare_exchange(before, now_us.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True if a connection at rest must not be used as it is: the address of its node has moved, or may have.
    #[inline]
    pub fn is_doubted(&self, conn: &Conn) -> bool {
        let node = self.node(conn.status.address.node);
        let is_asked = || node.claimed_us.load(Ordering::Relaxed) < node.asked_us.load(Ordering::Relaxed);
        self.is_left(conn) || (conn.reported.told() == ReportedRole::Standby && is_asked())
    }

    /// True if the address of the connection's node has since led to a server of another role.
    #[inline]
    pub fn is_left(&self, conn: &Conn) -> bool {
        self.has_moved(conn.status.address.node, conn.reported.told(), conn.opened_us)
    }

    #[inline]
    fn has_moved(&self, node: u16, told: ReportedRole, opened_us: u64) -> bool {
        let node = self.node(node);
        let moved_us = match told {
            ReportedRole::Nothing => return false,
            ReportedRole::Primary => &node.standby_us,
            ReportedRole::Standby => &node.primary_us,
        };
        opened_us < moved_us.load(Ordering::Relaxed)
    }

    /// True if a new connection must be opened in the place of `conn`: once for each check.
    pub fn claim(&self, conn: &Conn) -> bool {
        let node = self.node(conn.status.address.node);
        let (claimed, asked) = (node.claimed_us.load(Ordering::Relaxed), node.asked_us.load(Ordering::Relaxed));
        conn.reported.told() == ReportedRole::Standby
            && conn.opened_us <= asked
            && claimed < asked
            && node.claimed_us.compare_exchange(claimed, asked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes the role told on a new connection. Without a refused write it proves no move: the server may have been promoted.
    pub fn opened(&self, node: u16, begun_us: u64, told: ReportedRole) {
        let of = self.node(node);
        let asked = of.asked_us.load(Ordering::Relaxed);
        if asked == 0 || begun_us < asked || asked <= of.primary_us.load(Ordering::Relaxed) {
            return;
        }
        of.claimed_us.fetch_max(asked, Ordering::Relaxed);
        if told == ReportedRole::Primary {
            self.moved(node, begun_us, told);
        }
    }

    /// Notes another start of a server at the address.
    pub fn moved(&self, node: u16, begun_us: u64, found: ReportedRole) {
        let of = self.node(node);
        match found {
            ReportedRole::Nothing => {}
            ReportedRole::Primary => _ = of.primary_us.fetch_max(begun_us, Ordering::Relaxed),
            ReportedRole::Standby => _ = of.standby_us.fetch_max(begun_us, Ordering::Relaxed),
        }
    }

    pub fn moved_us(&self, node: u16) -> u64 {
        let of = self.node(node);
        of.primary_us.load(Ordering::Relaxed).max(of.standby_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_writes_ask_once_a_second() {
        let moves = MovedAddresses::default();
        let asked: Vec<bool> = [5, 6, 999_999, 1_000_005, 1_000_006].iter().map(|now| moves.ask(1, *now)).collect();
        assert_eq!(asked, [true, false, false, true, false]);
        assert!(moves.ask(2, 6), "each node by itself");
    }

    #[test]
    fn a_login_at_a_primary_tells_only_after_a_refused_write() {
        let moves = MovedAddresses::default();
        moves.opened(1, 10, ReportedRole::Primary);
        assert_eq!(moves.moved_us(1), 0, "a standby that is promoted keeps its connections");
        assert!(moves.ask(1, 20));
        moves.opened(1, 15, ReportedRole::Primary);
        assert_eq!(moves.moved_us(1), 0, "the login began before");
        moves.opened(1, 30, ReportedRole::Standby);
        moves.opened(1, 40, ReportedRole::Nothing);
        assert_eq!(moves.moved_us(1), 0);
        moves.opened(1, 50, ReportedRole::Primary);
        moves.opened(1, 60, ReportedRole::Primary);
        assert_eq!(moves.moved_us(1), 50, "one answer is enough");
        assert!(moves.ask(2, 20));
        moves.opened(2, 20, ReportedRole::Primary);
        assert_eq!(moves.moved_us(2), 20, "it began when somebody asked");
    }

    #[test]
    fn connections_of_before_a_server_of_another_role_was_found_are_left() {
        let moves = MovedAddresses::default();
        moves.moved(1, 30, ReportedRole::Primary);
        for (node, told, opened_us, is_left) in [
            (1, ReportedRole::Standby, 29, true),
            (1, ReportedRole::Standby, 30, false),
            (1, ReportedRole::Standby, 31, false),
            (1, ReportedRole::Primary, 29, false),
            (1, ReportedRole::Nothing, 29, false),
            (2, ReportedRole::Standby, 29, false),
        ] {
            assert_eq!(moves.has_moved(node, told, opened_us), is_left, "{node} {told:?} {opened_us}");
        }
        moves.moved(1, 40, ReportedRole::Standby);
        moves.moved(1, 35, ReportedRole::Standby);
        assert!(
            moves.has_moved(1, ReportedRole::Primary, 39) && !moves.has_moved(1, ReportedRole::Primary, 40),
            "the latest counts"
        );
    }
}
