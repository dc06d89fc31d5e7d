//! HTTP/1.1 to one endpoint of etcd: connections that stay open, one question at a time on each; all waits and sizes are bounded.

use std::cell::RefCell;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use weir_group::GroupMs;
use weir_io::tls::explain;

use super::etcd_fault::{ANSWER_BYTES_MAX, EndpointFault};
use crate::runtime::server_names::NameResolver;

const HEAD_BYTES_MAX: usize = 16 << 10;
/// Connections kept for later: a read and a change go at the same time.
const IDLE_MAX: usize = 2;
/// Port of etcd for its clients.
const PORT: u16 = 2379;

pub struct EtcdQuestion {
    pub path: &'static str,
    pub body: String,
}

#[derive(Debug)]
pub struct EtcdAnswer {
    pub status: u16,
    pub body: Vec<u8>,
    /// Before the first byte of the question was sent.
    pub asked_at: GroupMs,
}

/// A question without an answer.
#[derive(Debug)]
pub enum QuestionFailure {
    /// etcd did not get it.
    Unsent(EndpointFault),
    /// etcd may have obeyed it.
    Unknown(EndpointFault),
}

impl QuestionFailure {
    pub fn into_fault(self) -> EndpointFault {
        match self {
            QuestionFailure::Unsent(fault) | QuestionFailure::Unknown(fault) => fault,
        }
    }
}

pub struct EtcdEndpoint {
    /// As configured.
    pub place: String,
    /// Value of the header.
    authority: HeaderValue,
    host: String,
    port: u16,
    encryption: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    names: Arc<NameResolver>,
    idle: RefCell<Vec<EtcdConn>>,
}

/// Closed when dropped, also with a question under way.
struct EtcdConn {
    sender: SendRequest<String>,
    task: AbortHandle,
}

impl Drop for EtcdConn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Fate of a question on a connection.
enum ExchangeFailure {
    /// The connection was closed before: another one can be tried.
    Closed(EndpointFault),
    Failed(QuestionFailure),
}

impl EtcdEndpoint {
    /// Endpoint of a text like `https://host:2379`. Error: what is wrong with the text. `Ok(None)`: it is encrypted, and there is no `tls`.
    pub fn parse(text: &str, tls: Option<&Arc<ClientConfig>>, names: &Arc<NameResolver>) -> Result<Option<EtcdEndpoint>, String> {
        let uri: Uri = text.parse().map_err(|cause: hyper::http::uri::InvalidUri| cause.to_string())?;
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it has more than a host and a port".into());
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let header = HeaderValue::from_str(authority.as_str()).map_err(|cause| cause.to_string())?;
        let encryption = match uri.scheme_str() {
            None | Some("http") => None,
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| "no certificate can have that host")?;
                let Some(tls) = tls else { return Ok(None) };
                Some((tls.clone(), name))
            }
            Some(other) => return Err(format!("unknown scheme {other}")),
        };
        Ok(Some(EtcdEndpoint {
            place: text.to_owned(),
            authority: header,
            host,
            port: uri.port_u16().unwrap_or(PORT),
            encryption,
            names: names.clone(),
            idle: RefCell::default(),
        }))
    }

    /// Sends a question and waits for the whole answer, `limit` at most for both. Needs a `LocalSet`.
    ///
    /// Cancel safe for questions that change nothing: the connection is closed. Others may have been obeyed.
    pub async fn ask(
        &self,
        question: &EtcdQuestion,
        token: Option<&str>,
        limit: Duration,
        now: fn() -> GroupMs,
    ) -> Result<EtcdAnswer, QuestionFailure> {
        let deadline = Instant::now() + limit;
        let late = || EndpointFault::Late { limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) };
        if let Some(conn) = self.take_idle() {
            match timeout_at(deadline, self.exchange(conn, question, token, now)).await {
                Ok(Err(ExchangeFailure::Closed(_))) => {}
                Ok(Err(ExchangeFailure::Failed(failure))) => return Err(failure),
                Ok(Ok(answer)) => return Ok(answer),
                Err(_) => return Err(QuestionFailure::Unknown(late())),
            }
        }
        let connected = timeout_at(deadline, self.connect(deadline)).await;
        let conn = connected.unwrap_or_else(|_| Err(late())).map_err(QuestionFailure::Unsent)?;
        match timeout_at(deadline, self.exchange(conn, question, token, now)).await {
            Ok(Err(ExchangeFailure::Closed(fault))) => Err(QuestionFailure::Unsent(fault)),
            Ok(Err(ExchangeFailure::Failed(failure))) => Err(failure),
            Ok(Ok(answer)) => Ok(answer),
            Err(_) => Err(QuestionFailure::Unknown(late())),
        }
    }

    fn take_idle(&self) -> Option<EtcdConn> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|conn| !conn.sender.is_closed());
        idle.pop()
    }

    fn keep(&self, conn: EtcdConn) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_MAX && !conn.sender.is_closed() {
            idle.push(conn);
        }
    }

    async fn exchange(
        &self,
        mut conn: EtcdConn,
        question: &EtcdQuestion,
        token: Option<&str>,
        now: fn() -> GroupMs,
    ) -> Result<EtcdAnswer, ExchangeFailure> {
        let unsent = |fault| ExchangeFailure::Failed(QuestionFailure::Unsent(fault));
        let unknown = |fault| ExchangeFailure::Failed(QuestionFailure::Unknown(fault));
        let request = self.request(question, token).map_err(unsent)?;
        conn.sender.ready().await.map_err(|cause| ExchangeFailure::Closed(fault_of(&cause)))?;
        let asked_at = now();
        let response = conn.sender.try_send_request(request).await.map_err(|mut failed| {
            let fault = fault_of(failed.error());
            if failed.take_message().is_some() { ExchangeFailure::Closed(fault) } else { unknown(fault) }
        })?;
        let status = response.status().as_u16();
        let body = whole_body(response).await.map_err(unknown)?;
        self.keep(conn);
        Ok(EtcdAnswer { status, body, asked_at })
    }

    fn request(&self, question: &EtcdQuestion, token: Option<&str>) -> Result<Request<String>, EndpointFault> {
        let mut request = Request::post(question.path)
            .header(HOST, self.authority.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(token).map_err(|_| EndpointFault::Foreign("a token that is no text".into()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(question.body.clone()).map_err(|cause| EndpointFault::Foreign(cause.to_string()))
    }

    async fn connect(&self, deadline: Instant) -> Result<EtcdConn, EndpointFault> {
        let stream = self.connect_any(deadline).await.map_err(EndpointFault::Unreachable)?;
        let Some((config, name)) = &self.encryption else { return greet(TokioIo::new(stream)).await };
        let tls = TlsConnector::from(config.clone()).connect(name.clone(), stream).await;
        greet(TokioIo::new(tls.map_err(|cause| EndpointFault::Encryption(explain(&cause)))?)).await
    }

    /// A connection to the first address that takes it.
    async fn connect_any(&self, deadline: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::other("the name has no address");
        for address in self.addresses(deadline).await? {
            match TcpStream::connect(SocketAddr::new(address, self.port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    async fn addresses(&self, deadline: Instant) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = self.host.parse() {
            return Ok(vec![address]);
        }
        let (wake, woken) = oneshot::channel();
        let wake = Box::new(move || {
            // Nobody may wait any more.
            let _ = wake.send(());
        });
        let lookup = self.names.ask(&self.host, deadline.into_std(), |_| true, wake, |_| ());
        if !lookup.is_over() {
            let _ = timeout_at(Instant::from_std(lookup.until), woken).await;
        }
        self.names.outcome(&self.host, &lookup)
    }
}

/// HTTP on a new connection, whose bytes a task of its own moves.
async fn greet<T: Read + Write + Unpin + 'static>(stream: T) -> Result<EtcdConn, EndpointFault> {
    let handshake = Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(stream).await;
    let (sender, connection) = handshake.map_err(|cause| fault_of(&cause))?;
    // Its error reaches the question under way.
    let task = tokio::task::spawn_local(async move { drop(connection.await) }).abort_handle();
    Ok(EtcdConn { sender, task })
}

async fn whole_body(response: Response<Incoming>) -> Result<Vec<u8>, EndpointFault> {
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame.map_err(|cause| fault_of(&cause))?.into_data() else { continue };
        if bytes.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(EndpointFault::TooLong);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn fault_of(error: &hyper::Error) -> EndpointFault {
    let cause = error.source().map(|cause| format!("{error}: {cause}"));
    let text = cause.unwrap_or_else(|| error.to_string());
    if error.is_parse() { EndpointFault::Foreign(text) } else { EndpointFault::Lost(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<EtcdEndpoint>, String> {
        EtcdEndpoint::parse(text, None, &Arc::new(NameResolver::default()))
    }

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        for (text, host, port) in [
            ("http://etcd1:2379", "etcd1", 2379),
            ("http://10.0.0.1/", "10.0.0.1", 2379),
            ("http://[::1]:4001", "::1", 4001),
            ("etcd2:2380", "etcd2", 2380),
        ] {
            let endpoint = parse(text).expect(text).expect(text);
            assert_eq!((endpoint.host.as_str(), endpoint.port, endpoint.place.as_str()), (host, port, text));
        }
        assert!(parse("https://etcd1:2379").expect("an endpoint").is_none(), "without an authority");
        for wrong in ["", "http://", "/etcd", "ftp://etcd1", "http://root:word@etcd1", "http://etcd1/v3", "http://etcd1?x", "a b"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
