//! State that the dashboard's requests share, how they are read and answered, and threads for work that takes longer than a moment.

use super::api_error::ApiError;
use super::dashboard_sessions::DashboardSessions;
use super::overview_streams::OverviewStreams;
use super::traffic_watch::TrafficWatch;
use crate::runtime::shared::SharedState;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Requests to change something are short; statements to route are not much longer.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Time for a body.
const BODY_LIMIT: Duration = Duration::from_secs(5);
/// Answers made at once, each on a thread of its own.
const JOBS_MAX: usize = 4;
/// Logins judged or waiting at once. Others get their connections.
const LOGINS_MAX: usize = 8;
/// Recoveries that wait for the task that obeys; it does one after the other.
const RECOVERIES_MAX: usize = 4;

/// A node to recover, and where its end is told.
pub struct RecoveryOrder {
    pub node: i32,
    pub told: oneshot::Sender<Result<(), String>>,
}

/// All that the dashboard's requests share.
pub struct Dashboard {
    pub(super) shared: Arc<SharedState>,
    pub(super) sessions: DashboardSessions,
    pub(super) traffic: TrafficWatch,
    pub(super) streams: OverviewStreams,
    pub(super) logins: Semaphore,
    pub(super) recoveries: mpsc::Sender<RecoveryOrder>,
    /// Checks of the files; one at a time.
    pub(super) checks: Semaphore,
    jobs: Semaphore,
}

impl Dashboard {
    /// The receiver brings nodes that are to be recovered, which only a task of the control thread can do.
    pub fn new(shared: Arc<SharedState>) -> (Arc<Dashboard>, mpsc::Receiver<RecoveryOrder>) {
        let (recoveries, orders) = mpsc::channel(RECOVERIES_MAX);
        let dashboard = Dashboard {
            shared,
            sessions: DashboardSessions::default(),
            traffic: TrafficWatch::default(),
            streams: OverviewStreams::default(),
            logins: Semaphore::new(LOGINS_MAX),
            recoveries,
            checks: Semaphore::new(1),
            jobs: Semaphore::new(JOBS_MAX),
        };
        (Arc::new(dashboard), orders)
    }

    /// Makes an answer on another thread. Cancel safe.
    pub async fn job<T: Send + 'static>(
        self: &Arc<Dashboard>,
        work: impl FnOnce(&Dashboard) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let _turn = self.jobs.acquire().await.map_err(|_| ApiError::fault())?;
        let own = self.clone();
        // The panic hook has logged a fault.
        tokio::task::spawn_blocking(move || work(&own)).await.map_err(|_| ApiError::fault())
    }
}

pub fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Reads a body that is a JSON object, within bounds of size and time. Cancel safe.
pub async fn read_json(body: Body) -> Result<Value, ApiError> {
    let read = tokio::time::timeout(BODY_LIMIT, axum::body::to_bytes(body, BODY_BYTES_MAX)).await;
    let Ok(Ok(bytes)) = read else {
        let text = format!("the body must come within {} s and have {BODY_BYTES_MAX} bytes at most", BODY_LIMIT.as_secs());
        return Err(ApiError::bad_request(text));
    };
    match serde_json::from_slice(&bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) | Err(_) => Err(ApiError::bad_request("the body must be a JSON object")),
    }
}

pub fn text_of<'v>(value: &'v Value, name: &str) -> Result<&'v str, ApiError> {
    value.get(name).and_then(Value::as_str).ok_or_else(|| ApiError::bad_request(format!("\"{name}\" must be a text")))
}

/// Values of an address after its question mark; the first of each name counts.
pub struct ApiQuery(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for ApiQuery {
    type Rejection = Infallible;

    /// Cancel safe.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<ApiQuery, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(ApiQuery(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

impl ApiQuery {
    /// An empty value is none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub fn must(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::bad_request(format!("\"{name}\" is missing")))
    }
}
