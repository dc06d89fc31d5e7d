//! Requests of a client.

use super::{DIGEST_BYTES, PcpError, packet, push, take};

/// A request. Its numbers are unchecked: such a node or process may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PcpRequest {
    /// Asks for a salt, one for each `Login`.
    Salt,
    Login {
        user: Vec<u8>,
        answer: Vec<u8>,
    },
    NodeCount,
    /// One node; -1: all.
    NodeInfo(i32),
    HealthCheckStats(i32),
    ProcessCount,
    /// One process; 0: all.
    ProcessInfo(i32),
    /// One host of the watchdog by its `pgpool_node_id`; -1: all.
    WatchdogInfo(i32),
    /// All that a host knows of its group. Weir only.
    WatchdogStatus,
    /// Changes the group of the watchdog, by a host's number. Weir only.
    WatchdogChange(WatchdogChange, i32),
    PoolStatus,
    Attach(i32),
    Detach(i32, DrainMode),
    Promote(i32, DrainMode, PromotionKind),
    Recover(i32),
    /// Restarts a standby's server. Weir only.
    Restart(i32),
    /// Restarts all servers in turn. Weir only.
    UpgradeWalk,
    Stop(PcpShutdownMode, CommandScope),
    Reload(CommandScope),
    RotateLog(CommandScope),
    InvalidateQueryCache,
    /// Sets a parameter of this connection.
    Set {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// Pgpool-II does not answer it.
    StopRecovery,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    Now,
    /// Waits until all clients have left.
    Gracefully,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionKind {
    /// Changes the proxy's view of the primary only.
    Name,
    /// Changes the roles of the servers.
    Switchover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpShutdownMode {
    Smart,
    Fast,
    Immediate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogChange {
    /// The host is to be a member.
    Add,
    /// A host that does not run is to be no member.
    Remove,
    /// The host is to lead.
    Lead,
    /// A group is to be formed of the hosts that are heard. The number says nothing.
    Form,
    /// Of the host that is asked alone, by force.
    FormByForce,
}

/// The processes addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandScope {
    Local,
    /// All proxies of the watchdog cluster.
    Cluster,
}

impl PcpRequest {
    pub fn read(tag: u8, body: &[u8]) -> Result<PcpRequest, PcpError> {
        let node = || number(tag, body).map(|(node, _)| node);
        Ok(match tag {
            b'M' => PcpRequest::Salt,
            b'R' => {
                let (user, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
                let (answer, _) =
                    take(rest).filter(|(answer, _)| answer.len() <= DIGEST_BYTES).ok_or(PcpError::Malformed(tag))?;
                PcpRequest::Login { user: user.to_vec(), answer: answer.to_vec() }
            }
            b'L' => PcpRequest::NodeCount,
            b'I' => PcpRequest::NodeInfo(node()?),
            b'H' => PcpRequest::HealthCheckStats(node()?),
            b'N' => PcpRequest::ProcessCount,
            b'P' => PcpRequest::ProcessInfo(node()?),
            b'W' => PcpRequest::WatchdogInfo(node()?),
            b'Y' => PcpRequest::WatchdogStatus,
            b'Q' => {
                let (host, rest) = number(tag, body)?;
                PcpRequest::WatchdogChange(WatchdogChange::read(rest)?, host)
            }
            b'B' => PcpRequest::PoolStatus,
            b'C' => PcpRequest::Attach(node()?),
            b'D' => PcpRequest::Detach(node()?, DrainMode::Now),
            b'd' => PcpRequest::Detach(node()?, DrainMode::Gracefully),
            b'J' | b'j' => {
                let (node, rest) = number(tag, body)?;
                let when = if tag == b'J' { DrainMode::Now } else { DrainMode::Gracefully };
                PcpRequest::Promote(node, when, PromotionKind::read(rest)?)
            }
            b'O' => PcpRequest::Recover(node()?),
            b'K' => PcpRequest::Restart(node()?),
            b'U' => PcpRequest::UpgradeWalk,
            b'T' => PcpRequest::Stop(PcpShutdownMode::read(body)?, CommandScope::Local),
            b't' => PcpRequest::Stop(PcpShutdownMode::read(body)?, CommandScope::Cluster),
            b'Z' => PcpRequest::Reload(CommandScope::read(body)?),
            b'V' => PcpRequest::RotateLog(CommandScope::read(body)?),
            b'G' => PcpRequest::InvalidateQueryCache,
            b'A' => {
                let (name, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
                let (value, _) = take(rest).ok_or(PcpError::Malformed(tag))?;
                PcpRequest::Set { name: name.to_vec(), value: value.to_vec() }
            }
            b'F' => PcpRequest::StopRecovery,
            b'X' => PcpRequest::End,
            _ => return Err(PcpError::Unknown(tag)),
        })
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            PcpRequest::Login { user: one, answer: other } | PcpRequest::Set { name: one, value: other } => {
                push(&mut body, one);
                push(&mut body, other);
            }
            PcpRequest::NodeInfo(number)
            | PcpRequest::HealthCheckStats(number)
            | PcpRequest::ProcessInfo(number)
            | PcpRequest::WatchdogInfo(number)
            | PcpRequest::Attach(number)
            | PcpRequest::Detach(number, _)
            | PcpRequest::Recover(number)
            | PcpRequest::Restart(number) => push(&mut body, number.to_string().as_bytes()),
            PcpRequest::Promote(number, _, aim) => {
                // Pgpool-II's own client sends this blank.
                push(&mut body, format!("{number} ").as_bytes());
                body.push(aim.letter());
            }
            PcpRequest::WatchdogChange(change, host) => {
                push(&mut body, host.to_string().as_bytes());
                body.push(change.letter());
            }
            PcpRequest::Stop(stop, _) => body.push(stop.letter()),
            PcpRequest::Reload(scope) | PcpRequest::RotateLog(scope) => body.push(scope.letter()),
            PcpRequest::Salt
            | PcpRequest::NodeCount
            | PcpRequest::ProcessCount
            | PcpRequest::PoolStatus
            | PcpRequest::WatchdogStatus
            | PcpRequest::UpgradeWalk
            | PcpRequest::InvalidateQueryCache
            | PcpRequest::StopRecovery
            | PcpRequest::End => {}
        }
        packet(out, self.tag(), &body);
    }

    /// Returns the packet's tag. No Pgpool-II release uses `K`, `Q`, `U` and `Y`: its server rejects them as unknown and closes.
    pub fn tag(&self) -> u8 {
        match self {
            PcpRequest::Salt => b'M',
            PcpRequest::Login { .. } => b'R',
            PcpRequest::NodeCount => b'L',
            PcpRequest::NodeInfo(_) => b'I',
            PcpRequest::HealthCheckStats(_) => b'H',
            PcpRequest::ProcessCount => b'N',
            PcpRequest::ProcessInfo(_) => b'P',
            PcpRequest::WatchdogInfo(_) => b'W',
            PcpRequest::WatchdogStatus => b'Y',
            PcpRequest::WatchdogChange(..) => b'Q',
            PcpRequest::PoolStatus => b'B',
            PcpRequest::Attach(_) => b'C',
            PcpRequest::Detach(_, DrainMode::Now) => b'D',
            PcpRequest::Detach(_, DrainMode::Gracefully) => b'd',
            PcpRequest::Promote(_, DrainMode::Now, _) => b'J',
            PcpRequest::Promote(_, DrainMode::Gracefully, _) => b'j',
            PcpRequest::Recover(_) => b'O',
            PcpRequest::Restart(_) => b'K',
            PcpRequest::UpgradeWalk => b'U',
            PcpRequest::Stop(_, CommandScope::Local) => b'T',
            PcpRequest::Stop(_, CommandScope::Cluster) => b't',
            PcpRequest::Reload(_) => b'Z',
            PcpRequest::RotateLog(_) => b'V',
            PcpRequest::InvalidateQueryCache => b'G',
            PcpRequest::Set { .. } => b'A',
            PcpRequest::StopRecovery => b'F',
            PcpRequest::End => b'X',
        }
    }

    pub fn reply_tag(&self) -> u8 {
        match self {
            PcpRequest::Promote(..) => b'd',
            PcpRequest::Recover(_) => b'c',
            other => other.tag().to_ascii_lowercase(),
        }
    }
}

impl std::fmt::Display for PcpRequest {
    /// Formats for the log, without a login's proof or a parameter's value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gracefully = |when: &DrainMode| if *when == DrainMode::Gracefully { " gracefully" } else { "" };
        match self {
            PcpRequest::Salt => f.write_str("salt"),
            PcpRequest::Login { .. } => f.write_str("login"),
            PcpRequest::NodeCount => f.write_str("node count"),
            PcpRequest::NodeInfo(-1) => f.write_str("node info"),
            PcpRequest::NodeInfo(node) => write!(f, "node info {node}"),
            PcpRequest::HealthCheckStats(node) => write!(f, "health check stats {node}"),
            PcpRequest::ProcessCount => f.write_str("process count"),
            PcpRequest::ProcessInfo(0) => f.write_str("process info"),
            PcpRequest::ProcessInfo(pid) => write!(f, "process info {pid}"),
            PcpRequest::WatchdogInfo(id) => write!(f, "watchdog info {id}"),
            PcpRequest::WatchdogStatus => f.write_str("watchdog status"),
            PcpRequest::WatchdogChange(WatchdogChange::Add, host) => write!(f, "watchdog add {host}"),
            PcpRequest::WatchdogChange(WatchdogChange::Remove, host) => write!(f, "watchdog remove {host}"),
            PcpRequest::WatchdogChange(WatchdogChange::Lead, host) => write!(f, "watchdog lead {host}"),
            PcpRequest::WatchdogChange(WatchdogChange::Form, _) => f.write_str("watchdog form"),
            PcpRequest::WatchdogChange(WatchdogChange::FormByForce, _) => f.write_str("watchdog form by force"),
            PcpRequest::PoolStatus => f.write_str("pool status"),
            PcpRequest::Attach(node) => write!(f, "attach node {node}"),
            PcpRequest::Detach(node, when) => write!(f, "detach node {node}{}", gracefully(when)),
            PcpRequest::Promote(node, when, PromotionKind::Name) => write!(f, "promote node {node}{}", gracefully(when)),
            PcpRequest::Promote(node, when, PromotionKind::Switchover) => {
                write!(f, "switch over to node {node}{}", gracefully(when))
            }
            PcpRequest::Recover(node) => write!(f, "recover node {node}"),
            PcpRequest::Restart(node) => write!(f, "restart node {node}"),
            PcpRequest::UpgradeWalk => f.write_str("upgrade walk"),
            PcpRequest::Stop(mode, scope) => write!(f, "stop, mode {mode:?}{}", scope.words()),
            PcpRequest::Reload(scope) => write!(f, "reload the configuration{}", scope.words()),
            PcpRequest::RotateLog(scope) => write!(f, "rotate the log{}", scope.words()),
            PcpRequest::InvalidateQueryCache => f.write_str("invalidate the query cache"),
            PcpRequest::Set { name, .. } => write!(f, "set {}", name.escape_ascii()),
            PcpRequest::StopRecovery => f.write_str("stop the recovery"),
            PcpRequest::End => f.write_str("end"),
        }
    }
}

/// Reads the leading number, in blanks or not, and returns the rest after its string.
fn number(tag: u8, body: &[u8]) -> Result<(i32, &[u8]), PcpError> {
    let (text, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
    let text = String::from_utf8_lossy(text);
    let number = text.trim().parse().map_err(|_| PcpError::Number(text.trim().to_string()))?;
    Ok((number, rest))
}

impl PromotionKind {
    /// Clients before 4.3 send no kind.
    fn read(body: &[u8]) -> Result<PromotionKind, PcpError> {
        match body.first() {
            None | Some(b'n') => Ok(PromotionKind::Name),
            Some(b's') => Ok(PromotionKind::Switchover),
            Some(letter) => Err(PcpError::Letter { what: "kind of promotion", letter: *letter }),
        }
    }

    fn letter(self) -> u8 {
        match self {
            PromotionKind::Name => b'n',
            PromotionKind::Switchover => b's',
        }
    }
}

impl PcpShutdownMode {
    fn read(body: &[u8]) -> Result<PcpShutdownMode, PcpError> {
        match body.first() {
            Some(b's') => Ok(PcpShutdownMode::Smart),
            Some(b'f') => Ok(PcpShutdownMode::Fast),
            Some(b'i') => Ok(PcpShutdownMode::Immediate),
            Some(letter) => Err(PcpError::Letter { what: "shutdown mode", letter: *letter }),
            None => Err(PcpError::Malformed(b'T')),
        }
    }

    fn letter(self) -> u8 {
        match self {
            PcpShutdownMode::Smart => b's',
            PcpShutdownMode::Fast => b'f',
            PcpShutdownMode::Immediate => b'i',
        }
    }
}

impl WatchdogChange {
    fn read(body: &[u8]) -> Result<WatchdogChange, PcpError> {
        match body.first() {
            Some(b'a') => Ok(WatchdogChange::Add),
            Some(b'r') => Ok(WatchdogChange::Remove),
            Some(b'l') => Ok(WatchdogChange::Lead),
            Some(b'f') => Ok(WatchdogChange::Form),
            Some(b'F') => Ok(WatchdogChange::FormByForce),
            Some(letter) => Err(PcpError::Letter { what: "change of the watchdog", letter: *letter }),
            None => Err(PcpError::Malformed(b'Q')),
        }
    }

    fn letter(self) -> u8 {
        match self {
            WatchdogChange::Add => b'a',
            WatchdogChange::Remove => b'r',
            WatchdogChange::Lead => b'l',
            WatchdogChange::Form => b'f',
            WatchdogChange::FormByForce => b'F',
        }
    }
}

impl CommandScope {
    fn words(self) -> &'static str {
        match self {
            CommandScope::Local => "",
            CommandScope::Cluster => ", for all hosts",
        }
    }

    fn read(body: &[u8]) -> Result<CommandScope, PcpError> {
        match body.first() {
            None | Some(b'l') => Ok(CommandScope::Local),
            Some(b'c') => Ok(CommandScope::Cluster),
            Some(letter) => Err(PcpError::Letter { what: "scope", letter: *letter }),
        }
    }

    fn letter(self) -> u8 {
        match self {
            CommandScope::Local => b'l',
            CommandScope::Cluster => b'c',
        }
    }
}
