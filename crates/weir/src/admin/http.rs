//! HTTP: metrics for Prometheus, health and readiness for orchestrators, and the dashboard for people.
//!
//! Time, size and number of connections are bounded against slow clients.

mod api_acts;
mod api_configuration;
mod api_error;
mod api_lists;
mod api_route;
mod attention;
mod dashboard;
mod dashboard_access;
mod dashboard_pages;
mod dashboard_pulse;
mod dashboard_sessions;
mod overview_streams;
mod paced;
mod traffic_history;
mod traffic_watch;
mod web_files;

pub use dashboard::{Dashboard, RecoveryOrder};
pub use dashboard_pulse::pulse;

use crate::admin::acts::online_recovery;
use crate::admin::exposition::{self, ExpositionFormat};
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::log::Level;
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::listeners::{self, AcceptFailure, PortSharing};
use crate::runtime::places::ListenPort;
use crate::runtime::shared::{ProxyShutdown, SharedState};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dashboard_access::{ConnectionOrigin, HttpChannel};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use paced::PacedStream;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use weir_config::Config;

const CONNECTIONS_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for a request, and the pause before it.
const READ_LIMIT: Duration = Duration::from_secs(5);
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Time for the last words of a connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// The first byte of TLS, and of no request.
const TLS_HANDSHAKE: u8 = 0x16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;

const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\n\
    Connection: close\r\n\r\nno request came in time\n";

pub fn open(config: &Config, inherited: &mut InheritedSockets) -> anyhow::Result<Vec<TcpListener>> {
    if config.admin.metrics_port == 0 {
        return Ok(Vec::new());
    }
    listeners::open_all(ListenPort::of_metrics(config), BACKLOG, PortSharing::Nobody, inherited)
}

/// Serves until the proxy has stopped or is handed over. Not cancel safe: a client being accepted is lost.
pub async fn serve(c: Rc<ControlContext>, dashboard: Arc<Dashboard>, listener: Rc<tokio::net::TcpListener>) {
    let (bell, open, pages) = (c.bell(WakeSubject::Doors), Rc::new(()), pages(c.shared.clone(), &dashboard));
    let mut shortage = AcceptFailure::default();
    // Also while the proxy stops, when operators look.
    while c.shared.stop_mode() <= ProxyShutdown::Fast && !c.shared.is_handed_over() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = bell.rung() => continue,
        };
        match accepted {
            // One reference is local, one for each connection.
            Ok((stream, peer)) if Rc::strong_count(&open) <= CONNECTIONS_MAX => {
                shortage.end(&c.shared, "readers of metrics");
                let (own, counted, pages) = (c.clone(), open.clone(), pages.clone());
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    receive(&own, stream, peer.ip(), pages).await;
                });
            }
            Ok(_) => c.shared.log.say(Level::Debug1, format_args!("more than {CONNECTIONS_MAX} readers of metrics")),
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(cause) => {
                shortage.note(&c.shared, "readers of metrics", &cause);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers one connection, encrypted if it begins so. Cancel safe: the connection is closed.
async fn receive(c: &ControlContext, stream: TcpStream, address: IpAddr, pages: Router) {
    let server = c.shared.files.tls.load().server.as_ref().map(|server| server.pages.clone());
    let Some(config) = server else {
        let origin = ConnectionOrigin { address, channel: HttpChannel::Plain };
        return converse(c, PacedStream::new(stream, WRITE_LIMIT), origin, pages).await;
    };
    let mut first = [0];
    match timeout(READ_LIMIT, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first == [TLS_HANDSHAKE] => {
            let shaken = timeout(READ_LIMIT, TlsAcceptor::from(config).accept(PacedStream::new(stream, WRITE_LIMIT))).await;
            let Ok(Ok(stream)) = shaken else {
                return c.shared.log.say(Level::Debug1, format_args!("a reader of metrics from {address} fails at TLS"));
            };
            converse(c, stream, ConnectionOrigin { address, channel: HttpChannel::Tls }, pages).await;
        }
        Ok(Ok(1)) => {
            let origin = ConnectionOrigin { address, channel: HttpChannel::Plain };
            converse(c, PacedStream::new(stream, WRITE_LIMIT), origin, pages).await;
        }
        Ok(_) => {}
        Err(_) => say_too_late(stream).await,
    }
}

/// Answers one connection. Errors have no receiver. Cancel safe: the connection is closed.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(c: &ControlContext, stream: S, origin: ConnectionOrigin, pages: Router) {
    let (bell, answered, pages) = (c.bell(WakeSubject::Doors), Rc::new(Cell::new(0_u64)), TowerToHyperService::new(pages));
    let count = answered.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        count.set(count.get() + 1);
        request.extensions_mut().insert(origin);
        Box::pin(pages.call(request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let outcome = loop {
        tokio::select! {
            outcome = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break outcome,
            // The client is to ask the process that has taken over.
            () = bell.rung() => if c.shared.is_handed_over() {
                Pin::new(&mut connection).graceful_shutdown();
            },
        }
    };
    let stream = connection.into_parts().io.into_inner();
    if answered.get() == 0 && outcome.is_err_and(|error| error.is_timeout()) {
        return say_too_late(stream).await;
    }
    let _ = timeout(CLOSE_LIMIT, close(stream)).await;
}

async fn say_too_late<S: AsyncWrite + Unpin>(mut stream: S) {
    let said = async {
        stream.write_all(TOO_LATE).await?;
        stream.shutdown().await
    };
    // Nobody may listen.
    let _ = timeout(CLOSE_LIMIT, said).await;
}

async fn close<S: AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    stream.shutdown().await
}

/// Recovers nodes for the dashboard, one after the other. Cancel safe, but begun scripts go on.
pub async fn recover(c: Rc<ControlContext>, orders: Rc<tokio::sync::Mutex<mpsc::Receiver<RecoveryOrder>>>) {
    // One task holds it; after a fault in it the next one does.
    let mut orders = orders.lock().await;
    while let Some(RecoveryOrder { node, told }) = orders.recv().await {
        let outcome = online_recovery::recover(&c, node).await.map_err(|error| error.to_string());
        // The one who asked may be gone.
        let _ = told.send(outcome);
    }
}

fn pages(shared: Arc<SharedState>, dashboard: &Arc<Dashboard>) -> Router {
    let nothing = || async { (StatusCode::NOT_FOUND, "there is /metrics, /healthz and /readyz\n") };
    let plain = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async |State(shared): State<Arc<SharedState>>| said(exposition::health(&shared))))
        .route("/readyz", get(async |State(shared): State<Arc<SharedState>>| said(exposition::readiness(&shared))))
        .route("/primary", get(async |State(shared): State<Arc<SharedState>>| said(exposition::takes_writes(&shared))))
        .route("/standby", get(async |State(shared): State<Arc<SharedState>>| said(exposition::takes_reads(&shared))))
        .route("/leader", get(async |State(shared): State<Arc<SharedState>>| said(exposition::leads(&shared))))
        .with_state(shared);
    dashboard_pages::pages(dashboard)
        .merge(plain)
        .fallback(nothing)
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n") })
}

fn said(outcome: Result<(), String>) -> (StatusCode, String) {
    match outcome {
        Ok(()) => (StatusCode::OK, "ok\n".into()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// On another thread: with many pools it would delay the nodes' looks. Cancel safe.
async fn metrics(State(shared): State<Arc<SharedState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = ExpositionFormat::asked_for(accept);
    match tokio::task::spawn_blocking(move || exposition::page(&shared, format)).await {
        Ok(page) => ([(header::CONTENT_TYPE, format.content_type())], page).into_response(),
        // The panic hook has logged it.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the page could not be made\n").into_response(),
    }
}
