//! Open pages, to each of which the overview is sent once a second.
//!
//! A page that does not take what is sent misses some overviews, and delays nobody.

use super::api_error::ApiError;
use super::dashboard::Dashboard;
use super::dashboard_access::DashboardUser;
use super::dashboard_sessions::DashboardLogin;
use crate::control::control_context::ControlContext;
use crate::runtime::shared::ProxyShutdown;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Half of the connections, so that monitoring always gets one.
const STREAMS_MAX: usize = 16;
/// Overviews that wait for a page.
const UNREAD_MAX: usize = 2;
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct OverviewStreams(Mutex<Vec<OverviewStream>>);

struct OverviewStream {
    login: DashboardLogin,
    sender: mpsc::Sender<Bytes>,
}

/// The body of an answer that ends when the page leaves, or its login ends.
struct StreamBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn event(overview: &str) -> Bytes {
    format!("event: overview\ndata: {overview}\n\n").into()
}

pub async fn events(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(user): Extension<DashboardUser>,
) -> Result<Response, ApiError> {
    let first = dashboard.job(|own| own.traffic.overview(&own.shared)).await?;
    let (sender, receiver) = mpsc::channel(UNREAD_MAX);
    // The channel is new and empty.
    let _ = sender.try_send(event(&first));
    let mut streams = dashboard.streams.0.lock();
    streams.retain(|stream| !stream.sender.is_closed());
    if streams.len() >= STREAMS_MAX {
        return Err(ApiError::busy(format!("{STREAMS_MAX} pages are open already"), 10));
    }
    streams.push(OverviewStream { login: user.login, sender });
    drop(streams);
    Ok(([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], Body::new(StreamBody(receiver)))
        .into_response())
}

impl OverviewStreams {
    /// Forgets pages that left, and those whose login has ended.
    fn keep_known(&self, dashboard: &Dashboard) -> bool {
        let mut streams = self.0.lock();
        streams.retain(|stream| !stream.sender.is_closed() && dashboard.is_known(&stream.login));
        !streams.is_empty()
    }

    fn send(&self, bytes: &Bytes) {
        for stream in self.0.lock().iter() {
            // A page that is behind gets the next one.
            let _ = stream.sender.try_send(bytes.clone());
        }
    }

    fn end_all(&self) {
        self.0.lock().clear();
    }
}

/// Takes samples for the curves, and sends overviews to open pages, while the dashboard is on. Cancel safe.
pub async fn pulse(c: Rc<ControlContext>, dashboard: Arc<Dashboard>) {
    let mut beats = tokio::time::interval(PERIOD);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let is_on = c.shared.config.load().admin.dashboard.is_on;
        c.shared.log.recent.keep(is_on);
        if !is_on || c.shared.is_handed_over() || c.shared.stop_mode() > ProxyShutdown::Fast {
            dashboard.streams.end_all();
            continue;
        }
        if dashboard.streams.keep_known(&dashboard) {
            // A fault is logged by the panic hook; the next second makes another one.
            if let Ok(overview) = dashboard.job(|own| own.traffic.overview(&own.shared)).await {
                dashboard.streams.send(&event(&overview));
            }
        } else if dashboard.traffic.is_due(&c.shared) {
            let _ = dashboard.job(|own| own.traffic.note(&own.shared)).await;
        }
    }
}
