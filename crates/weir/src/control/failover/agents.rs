//! Orders to the agents beside servers, each over a connection of its own. An order that is cut short may be done: the next look tells.

use super::reach::Reach;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use weir_agent::seal::{ClientHello, FRAME_BYTES_MAX, GREETING_BYTES_MAX, Seal, SealError, frame, frame_bytes};
use weir_agent::{
    Answer, ClusterState, Deed, Follow, Host, JobView, Malformed, Order, OrderId, Request, Secret, SecretError, ServerStatus,
    Status, StopMode, TextError, UserName, Word, WordValue, read_answer, write_request,
};
use weir_policy::failover::{Failure, Lsn, NodeId};

/// The postmaster's time of start is taken twice by the server, for its file and for its function.
const SAME_START_S: u64 = 2;
/// Of the time of an order, this much is left for its answer to arrive.
const ANSWER: Duration = Duration::from_millis(200);

/// Why an agent did not do something, as far as anybody knows.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("node {0} has none")]
    None(NodeId),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Seal(#[from] SealError),
    #[error("its answer makes no sense: {0}")]
    Malformed(#[from] Malformed),
    #[error("agent_secret_file: {0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Text(#[from] TextError),
    #[error("{}", .0.text)]
    Failed(weir_agent::Failure),
    #[error("it is busy with another order ({})", .0.kind.name())]
    Busy(JobView),
    #[error("the server is another one than was meant")]
    OtherServer,
    #[error("the server was not stopped cleanly")]
    NotClean,
    #[error("it answers something else than was asked")]
    Answer,
}

impl AgentError {
    pub fn failure(&self) -> Failure {
        match self {
            AgentError::Io(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => Failure::Refused,
            AgentError::Io(_) => Failure::Unreachable,
            _ => Failure::Refuses,
        }
    }
}

/// A conversation with an agent.
struct Talk {
    stream: TcpStream,
    seal: Seal,
}

impl Talk {
    /// Cancel safe: the connection is closed.
    async fn with(reach: &Reach, node: NodeId) -> Result<Talk, AgentError> {
        let known = reach.config.nodes.iter().find(|known| known.id == node && !known.agent.is_empty());
        let place = known.map(|known| known.agent.clone()).ok_or(AgentError::None(node))?;
        let secret = secret(&reach.config.failover.planned.agent_secret_file, &place).await?;
        let mut stream = TcpStream::connect(&place).await?;
        stream.set_nodelay(true)?;
        let greeting = read(&mut stream, GREETING_BYTES_MAX).await?;
        let (hello, proof) = ClientHello::answer(&secret, &greeting, crate::random())?;
        stream.write_all(&frame(&proof)).await?;
        let proof = match read(&mut stream, GREETING_BYTES_MAX).await {
            // An agent says nothing to one who does not know the secret.
            Err(AgentError::Io(cause)) if cause.kind() == io::ErrorKind::UnexpectedEof => return Err(SealError::Secret.into()),
            other => other?,
        };
        let seal = hello.finish(&secret, &proof)?;
        Ok(Talk { stream, seal })
    }

    /// Not cancel safe.
    async fn say(&mut self, request: &Request) -> Result<(), AgentError> {
        let mut body = Vec::new();
        write_request(&mut body, request);
        let payload = self.seal.close(&body);
        Ok(self.stream.write_all(&frame(&payload)).await?)
    }

    /// Not cancel safe.
    async fn hear(&mut self) -> Result<Answer, AgentError> {
        let payload = read(&mut self.stream, FRAME_BYTES_MAX).await?;
        Ok(read_answer(self.seal.open(&payload)?)?)
    }

    async fn status(&mut self) -> Result<Status, AgentError> {
        self.say(&Request::Status).await?;
        match self.hear().await? {
            Answer::Status(status) => Ok(*status),
            Answer::Progress(_) | Answer::Done | Answer::Failed(_) | Answer::Busy(_) => Err(AgentError::Answer),
        }
    }

    async fn order(&mut self, deed: Deed) -> Result<(), AgentError> {
        let id = OrderId(u64::from_le_bytes(crate::random()));
        self.say(&Request::Order(Order { id, deed })).await?;
        loop {
            match self.hear().await? {
                Answer::Progress(_) => {}
                Answer::Done => return Ok(()),
                Answer::Failed(failure) => return Err(AgentError::Failed(failure)),
                Answer::Busy(job) => return Err(AgentError::Busy(job)),
                Answer::Status(_) => return Err(AgentError::Answer),
            }
        }
    }
}

async fn secret(path: &Path, place: &str) -> Result<Secret, AgentError> {
    let path = path.to_path_buf();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
    let text = zeroize::Zeroizing::new(read.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?);
    Ok(Secret::read(&text, Some(place))?)
}

async fn read(stream: &mut TcpStream, limit: usize) -> Result<Vec<u8>, AgentError> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; frame_bytes(head, limit)?];
    stream.read_exact(&mut payload).await?;
    Ok(payload)
}

fn left_ms(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).saturating_sub(ANSWER);
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Stops a server cleanly, if it is the one that was started then (microseconds since 1970). Not cancel safe: it may be stopped.
pub async fn stop(reach: &Reach, node: NodeId, started_at: Option<u64>, deadline: Instant) -> Result<(), AgentError> {
    let mut talk = Talk::with(reach, node).await?;
    let own = match talk.status().await?.server {
        ServerStatus::Stopped => return Ok(()),
        ServerStatus::Running(postmaster) => postmaster.started_at,
    };
    let is_it = |micros: u64| own.abs_diff(micros / 1_000_000) <= SAME_START_S;
    if !started_at.is_none_or(is_it) {
        return Err(AgentError::OtherServer);
    }
    talk.order(Deed::Stop { mode: StopMode::Fast, limit_ms: left_ms(deadline), started_at: Some(own) }).await
}

/// Where the last record of a server begins that was stopped cleanly. Cancel safe.
pub async fn inspect(reach: &Reach, node: NodeId, _deadline: Instant) -> Result<Lsn, AgentError> {
    let status = Talk::with(reach, node).await?.status().await?;
    match (status.server, status.control) {
        (ServerStatus::Stopped, Some(control)) if control.state == ClusterState::ShutDown => Ok(control.checkpoint),
        (ServerStatus::Stopped | ServerStatus::Running(_), _) => Err(AgentError::NotClean),
    }
}

/// Starts a server. Not cancel safe: it may be started.
pub async fn start(reach: &Reach, node: NodeId, deadline: Instant) -> Result<(), AgentError> {
    Talk::with(reach, node).await?.order(Deed::Start { limit_ms: left_ms(deadline) }).await
}

/// Makes a stopped server a standby of another one. Not cancel safe: it may be one.
pub async fn follow(reach: &Reach, node: NodeId, primary: NodeId, _deadline: Instant) -> Result<(), AgentError> {
    let (host, port) = reach.place(primary).ok_or(AgentError::None(primary))?;
    let known = reach.config.nodes.iter().find(|known| known.id == node).ok_or(AgentError::None(node))?;
    let user = if known.health.user.is_empty() { &reach.config.check.user } else { &known.health.user };
    let mut words = Vec::new();
    if !known.application_name.is_empty() {
        words.push((Word::APPLICATION_NAME, WordValue::new(&known.application_name)?));
    }
    let follow = Follow { host: Host::new(host)?, port, user: UserName::new(user)?, slot: None, words };
    Talk::with(reach, node).await?.order(Deed::Follow(follow)).await
}
