//! IO between the kernel and the lanes: event loop, sockets, TLS; files in shared folders.

pub mod buffers;
pub mod clock;
pub mod lane;
pub mod own_files;
pub mod reactor;
pub mod socket;
pub mod tls;
