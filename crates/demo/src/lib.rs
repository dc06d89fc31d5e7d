//! Makes and destroys PostgreSQL clusters: a primary and its streaming standbys on this machine.
//!
//! For `weir demo`, the end-to-end tests and the benchmark. Blocking, no other crate of this workspace is used.
//! Invariant: no server outlives its `Cluster`, whether it is dropped, unwound by a panic, or killed.
//! Only `initdb` and `postgres` are needed: standbys are copies of the stopped primary, and the few questions we ask
//! a server go through [`Sql`].
//!
//! ```no_run
//! let cluster = weir_demo::Cluster::start(weir_demo::Options { standbys: 2, ..Default::default() })?;
//! cluster.primary().query("create table t (a int)")?;
//! cluster.wait_caught_up()?;
//! assert!(cluster.standbys()[0].query("select a from t")?.is_empty());
//! # anyhow::Ok(())
//! ```
//!
//! Map: `cluster` starts and ends all servers, `making` tells how far that is · `template` what many clusters begin with, `control_file` their identifiers · `server` is one server, `replication` what
//! tests do to it, `row_copy` fills shards · `companion` a program beside them · `load` clients that note what was acknowledged · `host_network` hosts in
//! namespaces, `address_watch` asks their kernels for an address · `conf` the text of its files · `sql` a tiny
//! client · `programs` finds PostgreSQL · `process` starts and ends processes · `folder` files and owners · `port`
//! free ports.

mod address_watch;
mod cluster;
mod companion;
mod conf;
mod control_file;
mod folder;
mod host_network;
mod load;
mod making;
mod port;
mod process;
mod programs;
mod replication;
mod row_copy;
mod server;
mod sql;
mod template;
mod wait;

pub use address_watch::{AddressHistory, AddressWatch, HoldersFrom};
pub use cluster::{Cluster, Options};
pub use companion::Companion;
pub use conf::{Auth, HbaMethod, User, WalLevel};
pub use host_network::{HOST_PATHS_MAX, HostNetwork, NetworkCut};
pub use load::{Acknowledged, Crew, Load, LoadPlace, Noted, SCHEMA};
pub use making::{ClusterStage, StageHearer};
pub use port::ReservedPort;
pub use process::signal_process;
pub use programs::Programs;
pub use row_copy::CopiedRows;
pub use server::{Mode, Server};
pub use sql::{Row, Sql, SqlError};
pub use template::Template;
pub use wait::wait_until;
