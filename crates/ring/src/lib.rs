//! Sockets over io_uring: a round's reads, sends and wait are one system call.
//!
//! The only crate of Weir with `unsafe` code. Sound because it owns the kernel's memory: receive buffers are given away only
//! after completion, bytes to send are moved in.
//!
//! Needs Linux 6.1 (deferred task work; multishot receive is 6.0), else [`Ring::new`] fails and epoll is used.

mod kernel_timer;
mod listening;
mod outgoing;
mod provided;
mod scheduling;
mod stream_rounds;
mod token;
mod unread;
mod uring;

pub use crate::kernel_timer::RoundWait;
pub use crate::uring::{Ring, RingHost, SendProgress, available};
pub use outgoing::{SendBuffer, SendPiece};
pub use scheduling::yield_when_woken;
pub use token::SocketToken;
pub use unread::ReceivedChunk;

/// Defers a TCP connection until its first bytes or about `seconds`. Call before `listen`. Source: tcp(7), `TCP_DEFER_ACCEPT`.
pub fn defer_accept(listener: &impl std::os::fd::AsRawFd, seconds: u32) -> std::io::Result<()> {
    let value = seconds as libc::c_int;
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int on this stack, of the length that is given with it, and is only read.
    let outcome = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value, bytes)
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Keeps an inherited descriptor from child processes.
pub fn keep_from_children(descriptor: &impl std::os::fd::AsRawFd) -> std::io::Result<()> {
    // SAFETY: no memory is handed over; of a number that is not open the kernel says so.
    let outcome = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Sends a whole frame of Ethernet through an interface, over a raw socket of AF_PACKET. Source: packet(7).
pub fn send_link_frame(socket: &impl std::os::fd::AsRawFd, interface: u32, frame: &[u8]) -> std::io::Result<()> {
    // SAFETY: the structure consists of integers, for which zeros are values.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as libc::c_ushort;
    to.sll_ifindex = i32::try_from(interface).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let bytes = size_of_val(&to) as libc::socklen_t;
    // SAFETY: frame and address live until the call returns, are of the lengths given with them, and are only read.
    let sent = unsafe {
        let to = (&raw const to).cast();
        libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT, to, bytes)
    };
    if sent < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes or the end arrived.
pub const READ: u8 = 1;
/// Sending is possible again.
pub const WRITE: u8 = 2;
/// The peer closed its side or the socket failed.
pub const CLOSED: u8 = 4;
