//! HTTP: metrics for Prometheus, and health and readiness for orchestrators.
//!
//! Time, size and number of connections are bounded against slow clients.

mod paced;

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
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use paced::PacedStream;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use weir_config::Config;

const CONNECTIONS_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for a request, and the pause before it.
const READ_LIMIT: Duration = Duration::from_secs(5);
const WRITE_LIMIT: Duration = Duration::from_secs(30);
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
pub async fn serve(c: Rc<ControlContext>, listener: Rc<tokio::net::TcpListener>) {
    let (bell, open, pages) = (c.bell(WakeSubject::Doors), Rc::new(()), pages(c.shared.clone()));
    let mut shortage = AcceptFailure::default();
    // Also while the proxy stops, when operators look.
    while c.shared.stop_mode() <= ProxyShutdown::Fast && !c.shared.is_handed_over() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = bell.rung() => continue,
        };
        match accepted {
            // One reference is local, one for each connection.
            Ok((stream, _)) if Rc::strong_count(&open) <= CONNECTIONS_MAX => {
                shortage.end(&c.shared, "readers of metrics");
                let (own, counted, pages) = (c.clone(), open.clone(), pages.clone());
                tokio::task::spawn_local(async move {
                    let _counted = counted;
                    converse(&own, stream, pages).await;
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

/// Answers one connection. Errors have no receiver. Cancel safe: the connection is closed.
async fn converse(c: &ControlContext, stream: TcpStream, pages: Router) {
    let (bell, answered, pages) = (c.bell(WakeSubject::Doors), Rc::new(Cell::new(0_u64)), TowerToHyperService::new(pages));
    let count = answered.clone();
    let service = service_fn(move |request| {
        count.set(count.get() + 1);
        Box::pin(pages.call(request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(PacedStream::new(stream, WRITE_LIMIT)), service);
    let outcome = loop {
        tokio::select! {
            outcome = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break outcome,
            // The client is to ask the process that has taken over.
            () = bell.rung() => if c.shared.is_handed_over() {
                Pin::new(&mut connection).graceful_shutdown();
            },
        }
    };
    let mut stream = connection.into_parts().io.into_inner().into_inner();
    if answered.get() == 0 && outcome.is_err_and(|error| error.is_timeout()) {
        let _ = stream.try_write(TOO_LATE);
    }
    let _ = stream.shutdown().await;
}

fn pages(shared: Arc<SharedState>) -> Router {
    let nothing = || async { (StatusCode::NOT_FOUND, "there is /metrics, /healthz and /readyz\n") };
    Router::new()
        .route("/", get("/metrics  numbers for Prometheus\n/healthz  the process works\n/readyz   clients can be served\n"))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async |State(shared): State<Arc<SharedState>>| said(exposition::health(&shared))))
        .route("/readyz", get(async |State(shared): State<Arc<SharedState>>| said(exposition::readiness(&shared))))
        .fallback(nothing)
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n") })
        .with_state(shared)
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
