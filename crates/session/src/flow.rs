//! Shared types: the fate of a client message, and the reason why a server connection stays with a session.

use crate::routing::RouteClass;
use crate::routing::read_targets::ReadPreference;
use crate::sequences::drawn_values::DrawConnDemand;
use weir_sql::facts::StateKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFlow {
    Next,
    /// More of the message must arrive.
    More,
    /// Wait for replies, then process again.
    Hold,
    /// Wait for a server connection, then process again.
    Need(ConnRequirement),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnRequirement {
    pub class: RouteClass,
    /// 0: the cluster, whose nodes `class` chooses from.
    pub shard: u16,
    pub is_read: bool,
    /// Preferred node of a read.
    pub wish: Option<ReadPreference>,
    /// The connection with the sequence values asked for.
    pub conn: Option<DrawConnDemand>,
    /// True if the statement needs no primary once none is known: it is then processed again.
    pub ends_with_primary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    State(StateKind),
    Mode,
    Replication,
    /// Weir's own, for many clients.
    Listener,
    /// Half a message.
    Message,
    /// Messages without a Sync.
    Series,
}

impl HoldReason {
    /// For `ConnHold::code`; 0 means none.
    pub fn code(self) -> u8 {
        match self {
            HoldReason::Mode => 1,
            HoldReason::Replication => 2,
            HoldReason::Listener => 3,
            HoldReason::Message => 4,
            HoldReason::Series => 5,
            HoldReason::State(kind) => 6 + kind as u8,
        }
    }

    pub fn reason(code: u8) -> &'static str {
        match code {
            0 => "",
            1 => "pool_mode",
            2 => "replication",
            3 => "listens for clients",
            4 => "half a message",
            5 => "no Sync",
            _ => StateKind::ALL.get(usize::from(code) - 6).map_or("unknown", |kind| kind.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_number() {
        for kind in StateKind::ALL {
            assert_eq!(HoldReason::reason(HoldReason::State(kind).code()), kind.name());
        }
        assert_eq!((HoldReason::reason(HoldReason::Mode.code()), HoldReason::reason(0)), ("pool_mode", ""));
        assert_eq!(
            [HoldReason::Message, HoldReason::Series].map(|kept| HoldReason::reason(kept.code())),
            ["half a message", "no Sync"]
        );
    }
}
