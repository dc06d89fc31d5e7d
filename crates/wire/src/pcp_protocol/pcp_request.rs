//! Requests of a client.

use super::{DIGEST_BYTES, PcpError, packet, push, take};

/// One request. Numbers are what the client sent; nothing says that such a node or process exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PcpRequest {
    /// A salt, which each `Login` needs anew.
    Salt,
    Login {
        user: Vec<u8>,
        answer: Vec<u8>,
    },
    NodeCount,
    /// Of one node; -1: of all.
    NodeInfo(i32),
    HealthCheckStats(i32),
    ProcessCount,
    /// Of one process; 0: of all.
    ProcessInfo(i32),
    /// Of one proxy, 0 is this one; -1: of all.
    WatchdogInfo(i32),
    PoolStatus,
    Attach(i32),
    Detach(i32, DrainMode),
    Promote(i32, DrainMode, PromotionKind),
    Recover(i32),
    /// The server of a standby is started anew. Of Weir only.
    Restart(i32),
    /// So are all servers, one after the other. Of Weir only.
    UpgradeWalk,
    Stop(PcpShutdownMode, CommandScope),
    Reload(CommandScope),
    RotateLog(CommandScope),
    InvalidateQueryCache,
    /// A parameter for this connection.
    Set {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    /// To stop a recovery. Pgpool-II answers nothing to it.
    StopRecovery,
    End,
}

/// If clients are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    Now,
    /// When all clients have left.
    Gracefully,
}

/// Kinds of promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionKind {
    /// The proxy takes the node for the primary.
    Name,
    /// The servers change their roles.
    Switchover,
}

/// How the proxy is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpShutdownMode {
    Smart,
    Fast,
    Immediate,
}

/// The processes that are to obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandScope {
    Local,
    /// All proxies of the watchdog's cluster.
    Cluster,
}

impl PcpRequest {
    /// Reads the packet of a request.
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

    /// Appends the packet.
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
            PcpRequest::Stop(stop, _) => body.push(stop.letter()),
            PcpRequest::Reload(scope) | PcpRequest::RotateLog(scope) => body.push(scope.letter()),
            PcpRequest::Salt
            | PcpRequest::NodeCount
            | PcpRequest::ProcessCount
            | PcpRequest::PoolStatus
            | PcpRequest::UpgradeWalk
            | PcpRequest::InvalidateQueryCache
            | PcpRequest::StopRecovery
            | PcpRequest::End => {}
        }
        packet(out, self.tag(), &body);
    }

    /// The letter of its packet. `K` and `U` are letters that no release of Pgpool-II has used: its server answers that it does not know them, and
    /// closes.
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

    /// The letter of the packets that answer it.
    pub fn reply_tag(&self) -> u8 {
        match self {
            PcpRequest::Promote(..) => b'd',
            PcpRequest::Recover(_) => b'c',
            other => other.tag().to_ascii_lowercase(),
        }
    }
}

impl std::fmt::Display for PcpRequest {
    /// In words, for the log. A login's proof and a parameter's value are not shown.
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
            PcpRequest::Stop(mode, _) => write!(f, "stop, mode {mode:?}"),
            PcpRequest::Reload(_) => f.write_str("reload the configuration"),
            PcpRequest::RotateLog(_) => f.write_str("rotate the log"),
            PcpRequest::InvalidateQueryCache => f.write_str("invalidate the query cache"),
            PcpRequest::Set { name, .. } => write!(f, "set {}", name.escape_ascii()),
            PcpRequest::StopRecovery => f.write_str("stop the recovery"),
            PcpRequest::End => f.write_str("end"),
        }
    }
}

/// The number that a body begins with, and what follows its string. A client may put blanks around it.
fn number(tag: u8, body: &[u8]) -> Result<(i32, &[u8]), PcpError> {
    let (text, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
    let text = String::from_utf8_lossy(text);
    let number = text.trim().parse().map_err(|_| PcpError::Number(text.trim().to_string()))?;
    Ok((number, rest))
}

impl PromotionKind {
    /// Releases before 4.3 send none.
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

impl CommandScope {
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
