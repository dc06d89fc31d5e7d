//! Identification of completed requests.

/// A process has fewer descriptors: at most 2^30, of kilobytes each.
const PLACE_BITS: u32 = 28;

/// A socket's place in a ring and the number of its predecessors there. Tokens of past sockets are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketToken {
    pub place: u32,
    pub turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOperation {
    Receive = 1,
    Send = 2,
    Writable = 3,
    /// Cancels a request; its own completion is ignored.
    Cancel = 4,
    /// Waits for the other event queue.
    Watch = 5,
    Accept = 6,
    Alarm = 7,
}

impl SocketToken {
    /// For unique requests, and listening sockets, whose places are not reused.
    pub const fn once(place: u32) -> SocketToken {
        SocketToken { place, turn: 0 }
    }

    pub fn with(self, op: RingOperation) -> u64 {
        (op as u64) << (32 + PLACE_BITS) | u64::from(self.place) << 32 | u64::from(self.turn)
    }

    pub fn split(user_data: u64) -> Option<(SocketToken, RingOperation)> {
        let op = match user_data >> (32 + PLACE_BITS) {
            1 => RingOperation::Receive,
            2 => RingOperation::Send,
            3 => RingOperation::Writable,
            4 => RingOperation::Cancel,
            5 => RingOperation::Watch,
            6 => RingOperation::Accept,
            7 => RingOperation::Alarm,
            _ => return None,
        };
        let place = (user_data >> 32) as u32 & ((1 << PLACE_BITS) - 1);
        Some((SocketToken { place, turn: user_data as u32 }, op))
    }
}
