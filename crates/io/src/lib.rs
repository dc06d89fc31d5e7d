//! Bytes between the kernel and the lanes: the event loop, sockets, TLS; and files in folders of others.

pub mod buffers;
pub mod clock;
pub mod lane;
pub mod own_files;
pub mod reactor;
pub mod socket;
pub mod tls;
