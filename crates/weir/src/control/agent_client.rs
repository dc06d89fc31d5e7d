//! Client of the agents beside servers (`weir agent`).
//!
//! An order is sent again when its connection is lost: the agent knows it by its number, goes on meanwhile, and tells the outcome
//! to all who ask.

use crate::agent::keeper::read_secret;
use crate::runtime::agent_line::{ByteStream, SealedStream, SealedStreamError};
use crate::runtime::tls_choice::CertificateCheck;
use crate::runtime::tls_files::{ClientSide, server_name};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use weir_agent::{
    AgentAnswer, AgentOrder, AgentRequest, AgentStatus, OrderAction, OrderFailure, OrderId, OrderProgress, read_answer,
    write_request,
};
use weir_config::{Config, SslMode};

const LOGIN_LIMIT: Duration = Duration::from_secs(5);
/// Progress comes every second.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("agent {place}: {cause}")]
    Line { place: String, cause: SealedStreamError },
    #[error("agent {place}: it does not answer in time")]
    Late { place: String },
    #[error("agent {place}: {text}")]
    Setup { place: String, text: String },
    /// The agent answered, but the order failed.
    #[error("agent {place}: {}", failure.text)]
    Failed { place: String, failure: OrderFailure },
}

#[derive(Clone)]
pub struct AgentEndpoint {
    host: String,
    port: u16,
    /// Address as in the file of secrets.
    place: String,
    secret_file: PathBuf,
    encryption: Option<(ClientSide, CertificateCheck)>,
}

enum AgentStream {
    Plain(Box<SealedStream<TcpStream>>),
    Tls(Box<SealedStream<tokio_rustls::client::TlsStream<TcpStream>>>),
}

impl AgentStream {
    async fn send(&mut self, body: &[u8]) -> Result<(), SealedStreamError> {
        match self {
            AgentStream::Plain(line) => line.send(body).await,
            AgentStream::Tls(line) => line.send(body).await,
        }
    }

    async fn next(&mut self) -> Result<Vec<u8>, SealedStreamError> {
        match self {
            AgentStream::Plain(line) => line.next().await,
            AgentStream::Tls(line) => line.next().await,
        }
    }
}

impl AgentEndpoint {
    /// `folder`: of the configuration.
    pub fn of(config: &Config, tls: Option<&ClientSide>, folder: &Path, node: u16) -> Option<AgentEndpoint> {
        let known = config.nodes.iter().find(|known| known.id == node)?;
        let (host, port) = known.agent()?;
        let file = config.recovery.agents.secret_file.as_ref()?;
        let check = match (config.recovery.agents.ssl_mode.0, tls) {
            (SslMode::VerifyFull, _) => CertificateCheck::HostName,
            (SslMode::VerifyCa, _) => CertificateCheck::Authority,
            (_, Some(side)) if side.has_authorities => CertificateCheck::Authority,
            _ => CertificateCheck::Nothing,
        };
        let encryption = tls.map(|side| (side.clone(), check));
        Some(AgentEndpoint { place: known.agent.clone(), host, port, secret_file: folder.join(file), encryption })
    }

    /// Cancel safe.
    pub async fn status(&self, deadline: Instant) -> Result<AgentStatus, AgentError> {
        match self.ask(&AgentRequest::Status, deadline, &mut |_| {}).await? {
            AgentAnswer::Status(status) => Ok(*status),
            _ => Err(self.setup("it answers something else")),
        }
    }

    /// Sends the order again when the connection is lost. Cancel safe: the agent goes on.
    pub async fn order(
        &self,
        deed: &OrderAction,
        deadline: Instant,
        heed: &mut dyn FnMut(OrderProgress),
    ) -> Result<(), AgentError> {
        let order = AgentRequest::Order(AgentOrder { id: OrderId(u64::from_le_bytes(crate::random())), deed: deed.clone() });
        loop {
            let error = match self.ask(&order, deadline, heed).await {
                Ok(AgentAnswer::Done) => return Ok(()),
                Ok(AgentAnswer::Failed(failure)) => return Err(AgentError::Failed { place: self.place.clone(), failure }),
                Ok(AgentAnswer::Busy(job)) => self.setup(format!("it is busy with another order: {}", job.kind.name())),
                Ok(AgentAnswer::Status(_) | AgentAnswer::Progress(_)) => return Err(self.setup("it answers something else")),
                Err(error @ (AgentError::Setup { .. } | AgentError::Failed { .. })) => return Err(error),
                Err(error @ (AgentError::Line { .. } | AgentError::Late { .. })) => error,
            };
            if Instant::now() + RETRY_PAUSE >= deadline {
                return Err(error);
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn ask(
        &self,
        request: &AgentRequest,
        deadline: Instant,
        heed: &mut dyn FnMut(OrderProgress),
    ) -> Result<AgentAnswer, AgentError> {
        let broke = |cause| AgentError::Line { place: self.place.clone(), cause };
        let late = || AgentError::Late { place: self.place.clone() };
        let mut way = timeout_at(deadline.min(Instant::now() + LOGIN_LIMIT), self.connect()).await.map_err(|_| late())??;
        let mut body = Vec::new();
        write_request(&mut body, request);
        timeout(SILENCE_LIMIT, way.send(&body)).await.map_err(|_| late())?.map_err(broke)?;
        loop {
            let heard = timeout_at(deadline.min(Instant::now() + SILENCE_LIMIT), way.next()).await.map_err(|_| late())?;
            match read_answer(&heard.map_err(broke)?).map_err(|cause| broke(cause.into()))? {
                AgentAnswer::Progress(progress) => heed(progress),
                answer => return Ok(answer),
            }
        }
    }

    async fn connect(&self) -> Result<AgentStream, AgentError> {
        let broke = |cause| AgentError::Line { place: self.place.clone(), cause };
        let (file, place) = (self.secret_file.clone(), self.place.clone());
        // The disk may be slow.
        let secret = tokio::task::spawn_blocking(move || read_secret(&file, Some(&place))).await;
        let secret = secret.map_err(|cause| self.setup(cause.to_string()))?.map_err(|cause| self.setup(format!("{cause:#}")))?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|cause| broke(cause.into()))?;
        stream.set_nodelay(true).map_err(|cause| broke(cause.into()))?;
        let Some((side, check)) = &self.encryption else {
            return Ok(AgentStream::Plain(Box::new(SealedStream::to_agent(stream, &secret).await.map_err(broke)?)));
        };
        let begun = async {
            let name = server_name(*check, &self.host)?;
            TlsConnector::from(side.config(*check)).connect(name, stream).await
        };
        let stream = begun.await.map_err(|cause: io::Error| broke(cause.into()))?;
        Ok(AgentStream::Tls(Box::new(prove(stream, &secret).await.map_err(broke)?)))
    }

    fn setup(&self, text: impl Into<String>) -> AgentError {
        AgentError::Setup { place: self.place.clone(), text: text.into() }
    }
}

async fn prove<S: ByteStream>(stream: S, secret: &weir_agent::AgentSecret) -> Result<SealedStream<S>, SealedStreamError> {
    SealedStream::to_agent(stream, secret).await
}
