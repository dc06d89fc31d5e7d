//! Connects a worker to a store host: by one connection, or one to each master of a Redis Cluster.
//!
//! An outdated map of a cluster costs only misses: a node without a key says so (`MOVED`), and the map is asked for again.

use super::StoreConnFailure;
use crate::runtime::pool::conn_opening;
use crate::runtime::stores::{VALUE_BYTES_MAX, WorkerStores};
use crate::runtime::tls_choice::plan;
use crate::runtime::worker::Worker;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_cache::ShardMap;
use weir_config::SslMode;
use weir_config::hosts::StoreHost;
use weir_io::socket::Socket;
use weir_io::tls::explain;
use weir_wire::store_protocol::{StoreDialect, StoreReply, StoreReplyKind, StoreRequest};

/// Masters of the last map, to be asked if the configured host does not answer.
pub type Seeds = Vec<StoreHost>;

/// Sockets are in the order of the host's lanes. Not cancel safe.
pub async fn arrive(
    w: &Rc<Worker>,
    stores: &Rc<WorkerStores>,
    at: usize,
    seeds: &mut Seeds,
) -> Result<Vec<Socket>, StoreConnFailure> {
    let host = stores.shelves[at].host.clone();
    let mut socket = open_any(w, stores, &host, seeds).await?;
    if stores.dialect == StoreDialect::Redis {
        match ask_nodes(w, stores, &mut socket).await {
            Ok(StoreReply::Text(text)) => {
                socket.close(&w.reactor);
                return gather(w, stores, at, &host, &text, seeds).await;
            }
            // A host that reads its disk does not say if it is in a cluster.
            Ok(StoreReply::Refused(text)) if text.starts_with("LOADING") => {
                socket.close(&w.reactor);
                return Err(StoreConnFailure::Lost(text));
            }
            // No cluster, or a host that does not tell.
            Ok(_) => {}
            Err(cause) => {
                socket.close(&w.reactor);
                return Err(cause);
            }
        }
    }
    stores.set_now(w.millis(Instant::now()));
    stores.begin(at, None);
    Ok(vec![socket])
}

async fn open(w: &Worker, host: &StoreHost, timeout_ms: u64) -> Result<Socket, StoreConnFailure> {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let lost = |cause: io::Error| StoreConnFailure::Lost(format!("{host}: {cause}"));
    match host {
        StoreHost::Unix(path) => Socket::connect_unix(&w.reactor, Path::new(path)).map_err(lost),
        StoreHost::Tcp { name, port } => {
            let socket = conn_opening::connect_any(w, name, *port, deadline).await.map_err(lost)?;
            encrypt(w, name, socket, deadline).await.map_err(|cause| {
                let text = format!("{host}: no TLS: {}", explain(&cause));
                // A breach of the protocol or a wrong certificate needs an operator.
                if cause.kind() == ErrorKind::InvalidData {
                    StoreConnFailure::Refused(text)
                } else {
                    StoreConnFailure::Lost(text)
                }
            })
        }
    }
}

/// After an error the host has been told.
async fn encrypt(w: &Worker, name: &str, mut socket: Socket, deadline: Instant) -> io::Result<Socket> {
    let mode = w.peek_config().tls.store_mode;
    if mode == SslMode::Disable {
        return Ok(socket);
    }
    // Mode and certificates are both read at the start.
    let Some(side) = w.shared.files.tls.load().store.clone() else { return Err(ErrorKind::InvalidData.into()) };
    let begun = match side.towards(plan(mode, false, side.has_authorities, false).check, name) {
        Ok(tls) => socket.begin_tls(&w.reactor, tls, &[], Some(deadline)).await,
        Err(cause) => Err(cause),
    };
    match begun {
        Ok(()) => Ok(socket),
        Err(cause) => {
            socket.close(&w.reactor);
            Err(cause)
        }
    }
}

async fn open_any(w: &Worker, stores: &WorkerStores, host: &StoreHost, seeds: &Seeds) -> Result<Socket, StoreConnFailure> {
    let mut opened = open(w, host, stores.timeout_ms).await;
    for seed in seeds {
        if opened.is_err()
            && let Ok(socket) = open(w, seed, stores.timeout_ms).await
        {
            opened = Ok(socket);
        }
    }
    opened
}

async fn gather(
    w: &Rc<Worker>,
    stores: &Rc<WorkerStores>,
    at: usize,
    host: &StoreHost,
    text: &str,
    seeds: &mut Seeds,
) -> Result<Vec<Socket>, StoreConnFailure> {
    if stores.shelves.len() > 1 {
        return Err(StoreConnFailure::Refused("it is one of a cluster's nodes, beside other hosts".into()));
    }
    let shards = ShardMap::read(text).map_err(StoreConnFailure::Refused)?;
    let hosts: Vec<StoreHost> = shards.masters.iter().map(|master| host_of(host, &master.name, master.port)).collect();
    let mut sockets: Vec<Socket> = Vec::new();
    for host in &hosts {
        match open(w, host, stores.timeout_ms).await {
            Ok(socket) => sockets.push(socket),
            Err(cause) => {
                sockets.into_iter().for_each(|socket| socket.close(&w.reactor));
                return Err(cause);
            }
        }
    }
    *seeds = hosts;
    stores.set_now(w.millis(Instant::now()));
    stores.begin(at, Some(shards));
    Ok(sockets)
}

/// A node that does not know its address is the one that was asked.
fn host_of(asked: &StoreHost, name: &str, port: u16) -> StoreHost {
    match asked {
        StoreHost::Tcp { name: own, .. } if name.is_empty() => StoreHost::Tcp { name: own.clone(), port },
        StoreHost::Unix(_) if name.is_empty() => asked.clone(),
        StoreHost::Tcp { .. } | StoreHost::Unix(_) => StoreHost::Tcp { name: name.to_string(), port },
    }
}

async fn ask_nodes(w: &Worker, stores: &WorkerStores, socket: &mut Socket) -> Result<StoreReply, StoreConnFailure> {
    let deadline = Some(Instant::now() + Duration::from_millis(stores.timeout_ms));
    let (user, password) = (stores.config.user.as_bytes(), stores.config.password.as_bytes());
    let (mut out, mut logs_in) = (Vec::new(), !password.is_empty());
    if logs_in {
        stores.dialect.write(StoreRequest::LogIn { user, password }, &mut out);
    }
    stores.dialect.write(StoreRequest::Nodes, &mut out);
    let lost = |cause: io::Error| StoreConnFailure::Lost(cause.to_string());
    socket.write_all(&w.reactor, &out, deadline).await.map_err(lost)?;
    let (mut buffer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let expect = if logs_in { StoreReplyKind::Done } else { StoreReplyKind::Text };
        match stores.dialect.read(&expect, &buffer, VALUE_BYTES_MAX).map_err(|error| error.to_string())? {
            Some((StoreReply::Refused(text), _)) if logs_in => return Err(StoreConnFailure::Refused(text)),
            Some((_, bytes)) if logs_in => {
                buffer.drain(..bytes);
                logs_in = false;
            }
            Some((told, _)) => return Ok(told),
            None => match socket.read(&w.reactor, &mut piece, deadline).await.map_err(lost)? {
                0 => return Err(StoreConnFailure::Lost("it closed the connection".into())),
                bytes => buffer.extend_from_slice(&piece[..bytes]),
            },
        }
    }
}
