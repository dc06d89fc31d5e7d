//! Several Weirs as one: the IO around `weir_group`, on a thread of its own, so that no page, command or disk delays a read.

pub mod etcd_engine;
pub mod etcd_fault;
mod etcd_http;
mod etcd_json;
pub mod etcd_tls;
