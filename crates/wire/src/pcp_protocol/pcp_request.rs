//! Requests of a client.

use super::{DIGEST_BYTES, PcpError, packet, push, take};

/// One request. Numbers are what the client sent; nothing says that such a node or process exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
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
    Detach(i32, When),
    Promote(i32, When, Aim),
    Recover(i32),
    /// The server of a standby is started anew. Of Weir only.
    Restart(i32),
    /// So are all servers, one after the other. Of Weir only.
    UpgradeWalk,
    Stop(Stop, Scope),
    Reload(Scope),
    RotateLog(Scope),
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
pub enum When {
    Now,
    /// When all clients have left.
    Gracefully,
}

/// Kinds of promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The proxy takes the node for the primary.
    Name,
    /// The servers change their roles.
    Switchover,
}

/// How the proxy is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Smart,
    Fast,
    Immediate,
}

/// The processes that are to obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Local,
    /// All proxies of the watchdog's cluster.
    Cluster,
}

impl Request {
    /// Reads the packet of a request.
    pub fn read(tag: u8, body: &[u8]) -> Result<Request, PcpError> {
        let node = || number(tag, body).map(|(node, _)| node);
        Ok(match tag {
            b'M' => Request::Salt,
            b'R' => {
                let (user, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
                let (answer, _) =
                    take(rest).filter(|(answer, _)| answer.len() <= DIGEST_BYTES).ok_or(PcpError::Malformed(tag))?;
                Request::Login { user: user.to_vec(), answer: answer.to_vec() }
            }
            b'L' => Request::NodeCount,
            b'I' => Request::NodeInfo(node()?),
            b'H' => Request::HealthCheckStats(node()?),
            b'N' => Request::ProcessCount,
            b'P' => Request::ProcessInfo(node()?),
            b'W' => Request::WatchdogInfo(node()?),
            b'B' => Request::PoolStatus,
            b'C' => Request::Attach(node()?),
            b'D' => Request::Detach(node()?, When::Now),
            b'd' => Request::Detach(node()?, When::Gracefully),
            b'J' | b'j' => {
                let (node, rest) = number(tag, body)?;
                let when = if tag == b'J' { When::Now } else { When::Gracefully };
                Request::Promote(node, when, Aim::read(rest)?)
            }
            b'O' => Request::Recover(node()?),
            b'K' => Request::Restart(node()?),
            b'U' => Request::UpgradeWalk,
            b'T' => Request::Stop(Stop::read(body)?, Scope::Local),
            b't' => Request::Stop(Stop::read(body)?, Scope::Cluster),
            b'Z' => Request::Reload(Scope::read(body)?),
            b'V' => Request::RotateLog(Scope::read(body)?),
            b'G' => Request::InvalidateQueryCache,
            b'A' => {
                let (name, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
                let (value, _) = take(rest).ok_or(PcpError::Malformed(tag))?;
                Request::Set { name: name.to_vec(), value: value.to_vec() }
            }
            b'F' => Request::StopRecovery,
            b'X' => Request::End,
            _ => return Err(PcpError::Unknown(tag)),
        })
    }

    /// Appends the packet.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self {
            Request::Login { user: one, answer: other } | Request::Set { name: one, value: other } => {
                push(&mut body, one);
                push(&mut body, other);
            }
            Request::NodeInfo(number)
            | Request::HealthCheckStats(number)
            | Request::ProcessInfo(number)
            | Request::WatchdogInfo(number)
            | Request::Attach(number)
            | Request::Detach(number, _)
            | Request::Recover(number)
            | Request::Restart(number) => push(&mut body, number.to_string().as_bytes()),
            Request::Promote(number, _, aim) => {
                // Pgpool-II's own client sends this blank.
                push(&mut body, format!("{number} ").as_bytes());
                body.push(aim.letter());
            }
            Request::Stop(stop, _) => body.push(stop.letter()),
            Request::Reload(scope) | Request::RotateLog(scope) => body.push(scope.letter()),
            Request::Salt
            | Request::NodeCount
            | Request::ProcessCount
            | Request::PoolStatus
            | Request::UpgradeWalk
            | Request::InvalidateQueryCache
            | Request::StopRecovery
            | Request::End => {}
        }
        packet(out, self.tag(), &body);
    }

    /// The letter of its packet. `K` and `U` are letters that no release of Pgpool-II has used: its server answers that it does not know them, and
    /// closes.
    pub fn tag(&self) -> u8 {
        match self {
            Request::Salt => b'M',
            Request::Login { .. } => b'R',
            Request::NodeCount => b'L',
            Request::NodeInfo(_) => b'I',
            Request::HealthCheckStats(_) => b'H',
            Request::ProcessCount => b'N',
            Request::ProcessInfo(_) => b'P',
            Request::WatchdogInfo(_) => b'W',
            Request::PoolStatus => b'B',
            Request::Attach(_) => b'C',
            Request::Detach(_, When::Now) => b'D',
            Request::Detach(_, When::Gracefully) => b'd',
            Request::Promote(_, When::Now, _) => b'J',
            Request::Promote(_, When::Gracefully, _) => b'j',
            Request::Recover(_) => b'O',
            Request::Restart(_) => b'K',
            Request::UpgradeWalk => b'U',
            Request::Stop(_, Scope::Local) => b'T',
            Request::Stop(_, Scope::Cluster) => b't',
            Request::Reload(_) => b'Z',
            Request::RotateLog(_) => b'V',
            Request::InvalidateQueryCache => b'G',
            Request::Set { .. } => b'A',
            Request::StopRecovery => b'F',
            Request::End => b'X',
        }
    }

    /// The letter of the packets that answer it.
    pub fn reply_tag(&self) -> u8 {
        match self {
            Request::Promote(..) => b'd',
            Request::Recover(_) => b'c',
            other => other.tag().to_ascii_lowercase(),
        }
    }
}

impl std::fmt::Display for Request {
    /// In words, for the log. A login's proof and a parameter's value are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gracefully = |when: &When| if *when == When::Gracefully { " gracefully" } else { "" };
        match self {
            Request::Salt => f.write_str("salt"),
            Request::Login { .. } => f.write_str("login"),
            Request::NodeCount => f.write_str("node count"),
            Request::NodeInfo(-1) => f.write_str("node info"),
            Request::NodeInfo(node) => write!(f, "node info {node}"),
            Request::HealthCheckStats(node) => write!(f, "health check stats {node}"),
            Request::ProcessCount => f.write_str("process count"),
            Request::ProcessInfo(0) => f.write_str("process info"),
            Request::ProcessInfo(pid) => write!(f, "process info {pid}"),
            Request::WatchdogInfo(id) => write!(f, "watchdog info {id}"),
            Request::PoolStatus => f.write_str("pool status"),
            Request::Attach(node) => write!(f, "attach node {node}"),
            Request::Detach(node, when) => write!(f, "detach node {node}{}", gracefully(when)),
            Request::Promote(node, when, Aim::Name) => write!(f, "promote node {node}{}", gracefully(when)),
            Request::Promote(node, when, Aim::Switchover) => write!(f, "switch over to node {node}{}", gracefully(when)),
            Request::Recover(node) => write!(f, "recover node {node}"),
            Request::Restart(node) => write!(f, "restart node {node}"),
            Request::UpgradeWalk => f.write_str("upgrade walk"),
            Request::Stop(mode, _) => write!(f, "stop, mode {mode:?}"),
            Request::Reload(_) => f.write_str("reload the configuration"),
            Request::RotateLog(_) => f.write_str("rotate the log"),
            Request::InvalidateQueryCache => f.write_str("invalidate the query cache"),
            Request::Set { name, .. } => write!(f, "set {}", name.escape_ascii()),
            Request::StopRecovery => f.write_str("stop the recovery"),
            Request::End => f.write_str("end"),
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

impl Aim {
    /// Releases before 4.3 send none.
    fn read(body: &[u8]) -> Result<Aim, PcpError> {
        match body.first() {
            None | Some(b'n') => Ok(Aim::Name),
            Some(b's') => Ok(Aim::Switchover),
            Some(letter) => Err(PcpError::Letter { what: "kind of promotion", letter: *letter }),
        }
    }

    fn letter(self) -> u8 {
        match self {
            Aim::Name => b'n',
            Aim::Switchover => b's',
        }
    }
}

impl Stop {
    fn read(body: &[u8]) -> Result<Stop, PcpError> {
        match body.first() {
            Some(b's') => Ok(Stop::Smart),
            Some(b'f') => Ok(Stop::Fast),
            Some(b'i') => Ok(Stop::Immediate),
            Some(letter) => Err(PcpError::Letter { what: "shutdown mode", letter: *letter }),
            None => Err(PcpError::Malformed(b'T')),
        }
    }

    fn letter(self) -> u8 {
        match self {
            Stop::Smart => b's',
            Stop::Fast => b'f',
            Stop::Immediate => b'i',
        }
    }
}

impl Scope {
    fn read(body: &[u8]) -> Result<Scope, PcpError> {
        match body.first() {
            None | Some(b'l') => Ok(Scope::Local),
            Some(b'c') => Ok(Scope::Cluster),
            Some(letter) => Err(PcpError::Letter { what: "scope", letter: *letter }),
        }
    }

    fn letter(self) -> u8 {
        match self {
            Scope::Local => b'l',
            Scope::Cluster => b'c',
        }
    }
}
