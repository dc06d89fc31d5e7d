//! Several Weirs as one: the IO around `weir_group`, on a thread of its own, so that no page, command or disk delays a read.

#[cfg(test)]
mod disk_tests;
pub mod etcd_engine;
pub mod etcd_fault;
mod etcd_http;
mod etcd_json;
pub mod etcd_tls;
mod former_process;
mod group_driver;
pub mod group_thread;
mod group_words;
mod heard_copies;
pub mod host_fitness;
mod lease_line;
pub mod parameter_likeness;
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
pub mod state_store;
mod successor_line;
mod told_news;
pub mod virtual_address;
mod vote_file;
