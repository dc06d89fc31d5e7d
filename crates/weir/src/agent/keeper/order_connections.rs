//! Connections that bring orders. Slow, silent or unknown callers delay no other, and get one log line.

mod complaints;

use crate::agent::keeper::order_desk::{OrderExecutor, OrderReceipt};
use crate::log::{Level, ProxyLog};
use crate::runtime::agent_line::{ByteStream, SealedStream, SealedStreamError};
use complaints::RejectionLog;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use weir_agent::{AgentAnswer, AgentOrder, AgentRequest, AgentSecret, read_request, write_answer};
use weir_config::hba::IpNetwork;

/// Connections before the proof; a further one replaces the oldest.
const STRANGERS_MAX: usize = 16;
/// Connections with the secret.
const KNOWN_MAX: usize = 8;
/// Time for TLS and the proof.
const LOGIN_LIMIT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// Period of progress messages, which show that the agent lives.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct AgentTls {
    pub acceptor: TlsAcceptor,
    /// Callers without a certificate of these authorities are rejected.
    pub certificates: CertificateDemand,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CertificateDemand {
    Demanded,
    NotAsked,
}

pub struct OrderListener {
    pub desk: Arc<OrderExecutor>,
    pub secret: AgentSecret,
    pub tls: Option<AgentTls>,
    /// Empty: all.
    pub allowed: Vec<IpNetwork>,
    pub log: Arc<ProxyLog>,
}

struct OrderListenerState {
    door: OrderListener,
    complaints: RejectionLog,
    /// One reference is the listener's, one for each known connection.
    known: Rc<()>,
}

enum OrderRejection {
    Line(SealedStreamError),
    Late,
    Full,
    NoCertificate,
}

impl From<SealedStreamError> for OrderRejection {
    fn from(error: SealedStreamError) -> OrderRejection {
        OrderRejection::Line(error)
    }
}

impl OrderListener {
    pub async fn serve(self, listener: TcpListener) {
        let house = Rc::new(OrderListenerState { door: self, complaints: RejectionLog::default(), known: Rc::new(()) });
        let mut strangers: VecDeque<JoinHandle<()>> = VecDeque::new();
        loop {
            match listener.accept().await {
                Ok((_, peer)) if !house.admits(peer.ip()) => house.complain(peer.ip(), "its address is not allowed (--allow)"),
                Ok((stream, peer)) => {
                    strangers.retain(|task| !task.is_finished());
                    if strangers.len() >= STRANGERS_MAX
                        && let Some(oldest) = strangers.pop_front()
                    {
                        oldest.abort();
                    }
                    strangers.push_back(spawn_local(receive(house.clone(), stream, peer)));
                }
                Err(cause) if cause.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(cause) => {
                    house.door.log.say(Level::Error, format_args!("cannot accept a connection: {cause}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl OrderListenerState {
    fn admits(&self, peer: IpAddr) -> bool {
        let allowed = &self.door.allowed;
        allowed.is_empty() || allowed.iter().any(|network| network.contains(peer.to_canonical()))
    }

    fn complain(&self, peer: IpAddr, why: &str) {
        if let Some(text) = self.complaints.tell(peer, why, Instant::now().into_std()) {
            self.door.log.say(Level::Warning, format_args!("{text}"));
        }
    }
}

/// Checks a caller's proof; the conversation is a separate task, which unknown callers cannot displace. Cancel safe: the connection is
/// closed.
async fn receive(house: Rc<OrderListenerState>, stream: TcpStream, peer: SocketAddr) {
    let limit = Instant::now() + LOGIN_LIMIT;
    let met = async {
        stream.set_nodelay(true).map_err(SealedStreamError::Io)?;
        match house.door.tls.clone() {
            None => greet(&house, stream, peer).await,
            Some(AgentTls { acceptor, certificates }) => {
                let stream = acceptor.accept(stream).await.map_err(SealedStreamError::Io)?;
                if certificates == CertificateDemand::Demanded && stream.get_ref().1.peer_certificates().is_none() {
                    return Err(OrderRejection::NoCertificate);
                }
                greet(&house, stream, peer).await
            }
        }
    };
    let met = timeout_at(limit, met).await.unwrap_or(Err(OrderRejection::Late));
    if let Err(farewell) = met {
        house.part(peer, &farewell);
    }
}

async fn greet<S: ByteStream + 'static>(
    house: &Rc<OrderListenerState>,
    stream: S,
    peer: SocketAddr,
) -> Result<(), OrderRejection> {
    let line = SealedStream::to_weir(stream, &house.door.secret).await?;
    if Rc::strong_count(&house.known) > KNOWN_MAX {
        return Err(OrderRejection::Full);
    }
    let (house, counted) = (house.clone(), house.known.clone());
    spawn_local(async move {
        let _counted = counted;
        if let Err(farewell) = converse(&house, line, peer).await {
            house.part(peer, &farewell);
        }
    });
    Ok(())
}

impl OrderListenerState {
    fn part(&self, peer: SocketAddr, farewell: &OrderRejection) {
        match farewell {
            OrderRejection::Line(error) if error.is_end() => {}
            OrderRejection::Line(error) => self.complain(peer.ip(), &error.to_string()),
            OrderRejection::Late => self.complain(peer.ip(), "it says nothing"),
            OrderRejection::Full => self.complain(peer.ip(), "there are too many connections"),
            OrderRejection::NoCertificate => self.complain(peer.ip(), "it shows no certificate"),
        }
    }
}

async fn converse<S: ByteStream>(
    house: &OrderListenerState,
    mut line: SealedStream<S>,
    peer: SocketAddr,
) -> Result<(), OrderRejection> {
    loop {
        let Ok(heard) = timeout(REQUEST_LIMIT, line.next()).await else { return Ok(()) };
        match read_request(&heard?).map_err(SealedStreamError::Malformed)? {
            AgentRequest::Status => {
                let desk = house.door.desk.clone();
                // Only a panic prevents an answer.
                let Ok(status) = spawn_blocking(move || desk.status()).await else { return Ok(()) };
                say(&mut line, &AgentAnswer::Status(Box::new(status))).await?;
            }
            AgentRequest::Order(order) => obey(house, &mut line, &order, peer).await?,
        }
    }
}

async fn obey<S: ByteStream>(
    house: &OrderListenerState,
    line: &mut SealedStream<S>,
    order: &AgentOrder,
    peer: SocketAddr,
) -> Result<(), OrderRejection> {
    let desk = &house.door.desk;
    let mut over = desk.over();
    let answer = match desk.take(order, &peer.to_string()) {
        OrderReceipt::Busy(job) => AgentAnswer::Busy(job),
        OrderReceipt::Over(outcome) => of(outcome),
        OrderReceipt::UnderWay => loop {
            match desk.outcome(order.id) {
                Ok(outcome) => break of(outcome),
                Err(_) => {
                    // Asked after the pause: progress of before it would be told late.
                    if timeout(PROGRESS_PERIOD, over.changed()).await.is_err()
                        && let Err(progress) = desk.outcome(order.id)
                    {
                        say(line, &AgentAnswer::Progress(progress)).await?;
                    }
                }
            }
        },
    };
    say(line, &answer).await
}

fn of(outcome: weir_agent::Outcome) -> AgentAnswer {
    outcome.map_or_else(AgentAnswer::Failed, |()| AgentAnswer::Done)
}

async fn say<S: ByteStream>(line: &mut SealedStream<S>, answer: &AgentAnswer) -> Result<(), OrderRejection> {
    let mut body = Vec::new();
    write_answer(&mut body, answer);
    timeout(SEND_LIMIT, line.send(&body)).await.map_err(|_| OrderRejection::Late)?.map_err(OrderRejection::Line)
}
