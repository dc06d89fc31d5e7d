//! How a request is known again when it is over.

/// Number of a socket in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

/// What a request was.
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
    /// Takes in who knocks at a door.
    Accept = 6,
    /// A time that was waited for has come.
    Alarm = 7,
}

impl Token {
    pub fn with(self, op: Op) -> u64 {
        (op as u64) << 32 | u64::from(self.0)
    }

    /// Reads back what `with` made.
    pub fn split(user_data: u64) -> Option<(Token, Op)> {
        let op = match user_data >> 32 {
            1 => Op::Receive,
            2 => Op::Send,
            3 => Op::Writable,
            4 => Op::Cancel,
            5 => Op::Watch,
            6 => Op::Accept,
            7 => Op::Alarm,
            _ => return None,
        };
        Some((Token(user_data as u32), op))
    }
}
