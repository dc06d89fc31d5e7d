//! Several Weirs as one: the IO around `weir_group`, on a thread of its own, so that no page, command or disk delays a read.

#[cfg(test)]
mod disk_tests;
pub mod etcd_engine;
pub mod etcd_fault;
mod etcd_http;
mod etcd_json;
pub mod etcd_tls;
mod group_driver;
pub mod group_thread;
mod group_words;
pub mod host_fitness;
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
mod told_news;
pub mod virtual_address;
mod vote_file;
