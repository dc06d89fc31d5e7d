//! Small words that many modules use: the fate of a client's message, and the reason why a server connection stays with a session.

use crate::routing::RouteClass;
use crate::routing::read_targets::ReadPreference;
use crate::sequences::drawn_values::DrawConnDemand;
use weir_sql::facts::StateKind;

/// The step after a message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFlow {
    /// Look at the next one.
    Next,
    /// More of this one must arrive first.
    More,
    /// This one must wait for replies; it is looked at again after they came.
    Hold,
    /// This one needs a server connection that is not at hand; it is looked at again once there is one.
    Need(ConnRequirement),
}

/// A server connection that a statement needs and that is not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnRequirement {
    pub class: RouteClass,
    pub is_read: bool,
    /// Where somebody wants it to go, if it only reads.
    pub wish: Option<ReadPreference>,
    /// The very server connection that has the values which the statement asks for.
    pub conn: Option<DrawConnDemand>,
    /// There was a primary when this was found, and without one the statement needs none: it is to be looked at again once there is none.
    pub ends_with_primary: bool,
}

/// Why a server connection stays with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    State(StateKind),
    /// `pool_mode = session`.
    Mode,
    /// A replication client has its own.
    Replication,
    /// No client's: it listens for many.
    Listener,
    /// The client has sent half of a message.
    Message,
    /// The client has sent messages of the extended protocol and no Sync.
    Series,
}

impl HoldReason {
    /// A number for `ConnStatus::kept`; 0 is not kept.
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

    /// The reason behind a `code`, in words.
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
