//! Sockets over io_uring: all that a round of an event loop reads, sends and waits for is one system call.
//!
//! The only crate of ours with `unsafe` code. Its interface is safe because memory the kernel works on is owned here until the kernel is
//! done: buffers to receive into are given away only after their completion, and what is sent is moved in.
//!
//! Needs Linux 6.1 (deferred task work; multishot receive is 6.0): [`Ring::new`] fails where it is missing or forbidden, and the event loop
//! then works with epoll alone.

mod door;
mod outgoing;
mod provided;
mod ring;
mod token;

pub use outgoing::{Bytes, Piece};
pub use ring::{Chunk, Host, Ring, available};
pub use token::Token;

/// Something arrived, or the end.
pub const READ: u8 = 1;
/// Bytes can be sent again.
pub const WRITE: u8 = 2;
/// The peer closed its side or the socket failed.
pub const CLOSED: u8 = 4;
