//! Errors of etcd as an engine of the group: the endpoint, its fault, and advice for the operator.

use std::fmt;
use std::io;
use std::path::PathBuf;

use weir_group::VoteTextError;

/// Most endpoints: clusters of etcd have three, five or seven members.
pub const ENDPOINTS_MAX: usize = 8;
/// Longest key: it stands in messages.
pub const KEY_BYTES_MAX: usize = 256;
/// Longest answer; a state has at most half of it in base64.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;

/// Settings that no engine can be made of. All are the operator's.
#[derive(Debug, thiserror::Error)]
pub enum EtcdSettingsError {
    #[error("{0} endpoints of etcd, 1 to {ENDPOINTS_MAX} are needed")]
    EndpointCount(usize),
    #[error("endpoint '{endpoint}' of etcd: {fault}; write it as http://host:2379 or https://host:2379")]
    Endpoint { endpoint: String, fault: String },
    #[error("endpoint '{0}' of etcd is encrypted: the file of its certificate authority must be named")]
    NoAuthority(String),
    #[error("key of {0} bytes for etcd, 1 to {KEY_BYTES_MAX} are needed")]
    KeyLength(usize),
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {fault}", path.display())]
    Certificate { path: PathBuf, fault: String },
}

/// Why an operation has no result. After each of these nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// All endpoints that were asked, in that order. May be retried.
    #[error("etcd does not serve key '{key}': {}", in_one_line(failures))]
    Unanswered { key: String, failures: Vec<EndpointFailure> },
    /// The operator's: retrying is of no use until the key is changed.
    #[error(
        "key '{key}' of etcd, revision {revision}, holds no state of a group: {cause}. If the key is this group's, stop all its members, \
         delete the key and start them; else name another key"
    )]
    Foreign { key: String, revision: u64, cause: VoteTextError },
}

#[derive(Debug)]
pub struct EndpointFailure {
    pub endpoint: String,
    pub fault: EndpointFault,
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointFault {
    #[error("cannot be reached ({0}); look whether etcd runs there and whether this host may connect to it")]
    Unreachable(io::Error),
    #[error(
        "does not answer within {limit_ms} ms; look whether etcd has a quorum (etcdctl endpoint status) and how slow its disks and the network are"
    )]
    Late { limit_ms: u64 },
    #[error("no encryption with it ({0}); look at its certificate, at the authority named here, and whether it serves https")]
    Encryption(String),
    #[error("closed the connection ({0}); look at etcd's log, and whether it serves https only")]
    Lost(String),
    #[error("cannot serve ({text}, status {status}); look whether etcd has a leader and a quorum (etcdctl endpoint status)")]
    Unavailable { status: u16, text: String },
    #[error("does not let the user in ({0}); look at the user and password here, and at etcdctl user get")]
    Login(String),
    #[error("lets the user not read and write the key ({0}); grant it with etcdctl role grant-permission")]
    Forbidden(String),
    #[error("does not know the path {path}: it is no etcd from 3.4 on, or its gateway is off (--enable-grpc-gateway)")]
    NoGateway { path: &'static str },
    #[error("refuses ({text}, status {status})")]
    Refused { status: u16, text: String },
    #[error("does not speak as etcd ({0}); look at its host and port")]
    Foreign(String),
    #[error("answers more than {ANSWER_BYTES_MAX} bytes: the key holds no state of a group, or it is no etcd")]
    TooLong,
    #[error(
        "belongs to another cluster of etcd ({other:x}) than the first that answered ({first:x}); all endpoints must be of one"
    )]
    OtherCluster { first: u64, other: u64 },
}

impl fmt::Display for EndpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.endpoint, self.fault)
    }
}

fn in_one_line(failures: &[EndpointFailure]) -> String {
    failures.iter().map(EndpointFailure::to_string).collect::<Vec<_>>().join(" | ")
}
