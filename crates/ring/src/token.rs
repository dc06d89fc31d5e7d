//! How a request is known again when it is over.

/// Bits of the place in the number of a request. A process has fewer descriptors: Linux allows 2^30 at most, and each takes
/// kilobytes.
const PLACE_BITS: u32 = 28;

/// A socket of one ring: its place, and how many sockets had this place before. The ring ignores a token of a socket that has
/// left its place, also when another socket has the place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketToken {
    pub place: u32,
    pub turn: u32,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOperation {
    Receive = 1,
    Send = 2,
    /// Waits until a socket takes bytes again.
    Writable = 3,
    /// Ends another request; its own end says nothing.
    Cancel = 4,
    /// Waits for the other event queue.
    Watch = 5,
    /// Accepts the next connection at a door.
    Accept = 6,
    /// A time that was waited for has come.
    Alarm = 7,
}

impl SocketToken {
    /// A token for a request of which a ring has one, and for doors, whose places are given once.
    pub const fn once(place: u32) -> SocketToken {
        SocketToken { place, turn: 0 }
    }

    pub fn with(self, op: RingOperation) -> u64 {
        (op as u64) << (32 + PLACE_BITS) | u64::from(self.place) << 32 | u64::from(self.turn)
    }

    /// Reads back what `with` made.
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
