//! The dashboard: its files, and its interface `/api/v1`, described in docs/api.md.
//!
//! Answers that cost more than a moment are made on other threads, a few at a time.

use super::api_acts;
use super::api_error::ApiError;
use super::api_lists;
use super::api_route;
use super::dashboard_access::{DashboardUser, check_session, check_way, log_in, log_out};
use super::dashboard_sessions::DashboardSessions;
use super::overview_streams::{OverviewStreams, events};
use super::traffic_history::HistorySpan;
use super::traffic_watch::TrafficWatch;
use super::web_files;
use crate::runtime::shared::SharedState;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, RawQuery, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde_json::{Value, json};
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

pub fn pages(dashboard: &Arc<Dashboard>) -> Router {
    let known = Router::new()
        .route("/api/v1/logout", post(log_out))
        .route("/api/v1/me", get(me))
        .route("/api/v1/show", get(api_lists::lists))
        .route("/api/v1/show/{name}", get(api_lists::list))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/history", get(history))
        .route("/api/v1/events", get(events))
        .route("/api/v1/log", get(log_lines))
        .route("/api/v1/route", get(api_route::route))
        .route("/api/v1/act", get(api_acts::forecast).post(api_acts::act))
        .route("/api/v1/{*rest}", any(async || ApiError::not_found("there is no such page")))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(dashboard.clone(), check_session));
    Router::new()
        .route("/api/v1/login", post(log_in))
        .method_not_allowed_fallback(wrong_method)
        .route("/", get(file))
        .route("/assets/{*name}", get(file))
        .merge(known)
        .layer(from_fn_with_state(dashboard.clone(), check_way))
        .with_state(dashboard.clone())
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", "the method is not allowed here")
        .hint("docs/api.md names those that are.")
}

/// Files change with the program only, and browsers ask each time if it has.
async fn file(uri: Uri) -> Response {
    match web_files::file(uri.path()) {
        Some(file) => {
            ([(header::CONTENT_TYPE, file.content_type), (header::CACHE_CONTROL, "no-cache")], file.bytes).into_response()
        }
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
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

impl ApiQuery {
    pub fn of(RawQuery(query): RawQuery) -> ApiQuery {
        ApiQuery(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// An empty value is none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub fn must(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::bad_request(format!("\"{name}\" is missing")))
    }
}

async fn me(State(dashboard): State<Arc<Dashboard>>, Extension(user): Extension<DashboardUser>) -> Response {
    let host = super::traffic_watch::host_name(&dashboard.shared);
    answer(&json!({
        "user": &*user.name, "role": user.role.word(), "csrf": user.login.csrf.hex(), "version": crate::VERSION, "host": host,
    }))
}

async fn overview(State(dashboard): State<Arc<Dashboard>>) -> Result<Response, ApiError> {
    let text = dashboard.job(|own| own.traffic.overview(&own.shared)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response())
}

async fn history(State(dashboard): State<Arc<Dashboard>>, query: RawQuery) -> Result<Response, ApiError> {
    let span = match ApiQuery::of(query).get("span") {
        None | Some("hour") => HistorySpan::Hour,
        Some("day") => HistorySpan::Day,
        Some(_) => return Err(ApiError::bad_request("\"span\" must be hour or day")),
    };
    dashboard.job(move |own| answer(&own.traffic.history(&own.shared, span))).await
}

async fn log_lines(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(user): Extension<DashboardUser>,
    query: RawQuery,
) -> Result<Response, ApiError> {
    user.check_admin()?;
    let query = ApiQuery::of(query);
    let after = query.get("after").map(str::parse::<u64>).transpose();
    let after = after.map_err(|_| ApiError::bad_request("\"after\" must be a number"))?.unwrap_or(0);
    let contains = query.get("contains").unwrap_or_default().to_lowercase();
    let lines = dashboard.shared.log.recent.after(after);
    let next = lines.last().map_or(after, |line| line.number);
    let shown = lines.iter().filter(|line| contains.is_empty() || line.text.to_lowercase().contains(&contains));
    let lines: Vec<Value> =
        shown.map(|line| json!({ "n": line.number, "at": line.at, "level": line.level, "text": line.text })).collect();
    Ok(answer(&json!({ "next": next, "lines": lines })))
}
