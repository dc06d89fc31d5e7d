//! Support of end-to-end tests: servers, the proxy as its own process, clients that see every byte, and broken networks.
//!
//! PostgreSQL's version is that of `WEIR_PG_BIN`, which `cargo xtask test --pg 15,18` sets for one run after the other;
//! without it the newest installed one. `WEIR_TEST_PG` names the version that is meant, and is checked.

pub mod certs;
pub mod driver;
pub mod faults;
pub mod flooder;
pub mod ground;
pub mod left_out;
pub mod panics;
pub mod pgpool;
pub mod proxy;
pub mod raw;
pub mod spread;
pub mod time;
pub mod wire;

pub use ground::{Ground, wait_for_catalog, wait_until};
pub use left_out::{has_programs, leave_out};
pub use proxy::Proxy;
pub use raw::{Failure, Raw};
