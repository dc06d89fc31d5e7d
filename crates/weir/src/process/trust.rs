//! Warns of servers that let this machine in without a password while Weir asks clients for none either: then every client may
//! be anybody.
//!
//! Asks each server once, at the start and in `weir check`, with a connection that ends when the server has named the proof it
//! wants. Blocks, so it runs on a thread of its own.

use crate::client::access::AccessFiles;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use weir_config::{Config, NodeConfig};
use weir_wire::startup::Version;
use weir_wire::write;

/// Time for each step of one question. A server that takes longer is looked at by the probes of roles, which name it.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// AuthenticationOk: nothing was asked for.
const OK: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 0];

/// The warning, if clients on other machines get in without a proof to Weir or to the server.
pub fn warning(config: &Config, access: &AccessFiles) -> Option<String> {
    let is_open = match &access.hba {
        Some(hba) => hba.trusts_hosts(),
        None => !access.keeps_proofs,
    };
    if !is_open || !config.listens_to_others() {
        return None;
    }
    let (user, _) = access.checker(&config.check);
    let node = config.nodes.iter().find(|node| trusts(node, user, &config.check.database).unwrap_or(false))?;
    let believed = match &access.hba {
        Some(_) => "pool_hba.conf has a rule with method trust for other hosts",
        None => "Weir asks nobody for a password who has no line in pool_passwd",
    };
    Some(format!(
        "node {} ({}:{}) lets user \"{user}\" in from this machine without a password, and {believed}: whoever reaches Weir gets in as such a \
         user, superusers too. Have the server ask (pg_hba.conf), or set enable_pool_hba = on with rules that ask",
        node.id, node.hostname, node.port
    ))
}

/// True if a server wants no proof of this user from here.
fn trusts(node: &NodeConfig, user: &str, database: &str) -> io::Result<bool> {
    if node.hostname.starts_with('/') {
        let stream = UnixStream::connect(format!("{}/.s.PGSQL.{}", node.hostname, node.port))?;
        stream.set_read_timeout(Some(STEP_LIMIT))?;
        return ask(stream, user, database);
    }
    let address = (node.hostname.as_str(), node.port).to_socket_addrs()?.next();
    let address = address.ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, STEP_LIMIT)?;
    stream.set_read_timeout(Some(STEP_LIMIT))?;
    ask(stream, user, database)
}

fn ask(mut stream: impl Read + Write, user: &str, database: &str) -> io::Result<bool> {
    let mut packet = Vec::new();
    write::startup(&mut packet, Version::V3_0, [("user", user), ("database", database)].into_iter());
    stream.write_all(&packet)?;
    let mut answer = OK.map(|_| 0);
    stream.read_exact(&mut answer)?;
    let mut farewell = Vec::new();
    write::bare(&mut farewell, weir_wire::frame::front::TERMINATE);
    // A server that has refused is gone already.
    let _ = stream.write_all(&farewell);
    Ok(answer == OK)
}
