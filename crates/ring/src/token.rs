//! How a request is known again when it is over.

/// Bits of the place in the number of a request. A process has fewer descriptors: Linux allows 2^30 at most, and each takes
/// kilobytes.
const PLACE_BITS: u32 = 28;

/// A socket of one ring: its place, and how many sockets had this place before. The ring ignores a token of a socket that has
/// left its place, also when another socket has the place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub place: u32,
    pub turn: u32,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
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

impl Token {
    /// A token for a request of which a ring has one, and for doors, whose places are given once.
    pub const fn once(place: u32) -> Token {
        Token { place, turn: 0 }
    }

    pub fn with(self, op: Op) -> u64 {
        (op as u64) << (32 + PLACE_BITS) | u64::from(self.place) << 32 | u64::from(self.turn)
    }

    /// Reads back what `with` made.
    pub fn split(user_data: u64) -> Option<(Token, Op)> {
        let op = match user_data >> (32 + PLACE_BITS) {
            1 => Op::Receive,
            2 => Op::Send,
            3 => Op::Writable,
            4 => Op::Cancel,
            5 => Op::Watch,
            6 => Op::Accept,
            7 => Op::Alarm,
            _ => return None,
        };
        let place = (user_data >> 32) as u32 & ((1 << PLACE_BITS) - 1);
        Some((Token { place, turn: user_data as u32 }, op))
    }
}
