//! Bytes between the kernel and the lanes: the event loop, sockets, TLS.

pub mod buffers;
pub mod clock;
pub mod lane;
pub mod reactor;
pub mod socket;
pub mod tls;
