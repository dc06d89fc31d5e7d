//! Several Weirs as one: the IO around `weir_group`, on a thread of its own, so that no page, command or disk delays a read.

mod peer_context;
mod peer_datagrams;
mod peer_handshake;
mod peer_host;
mod peer_incoming;
pub mod peer_links;
mod peer_names;
mod peer_outgoing;
pub mod peer_settings;
mod peer_sockets;
mod told_news;
