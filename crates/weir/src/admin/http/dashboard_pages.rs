//! The dashboard's pages: its files, and its interface `/api/v1`, described in docs/api.md.
//!
//! Answers that cost more than a moment are made on other threads, a few at a time.

use super::api_acts;
use super::api_configuration;
use super::api_error::ApiError;
use super::api_lists;
use super::api_route;
use super::dashboard::{ApiQuery, Dashboard, answer};
use super::dashboard_access::{AdminUser, DashboardUser, check_session, check_way, log_in, log_out};
use super::overview_streams::event;
use super::traffic_history::HistorySpan;
use super::traffic_watch::host_name;
use super::web_files;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use foldhash::fast::FixedState;
use serde_json::{Value, json};
use std::hash::BuildHasher;
use std::sync::Arc;

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
        .route("/api/v1/configuration", get(api_configuration::parameters))
        .route("/api/v1/check", get(api_configuration::check))
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

/// Browsers keep files, and ask each time if they have changed.
async fn file(uri: Uri, headers: HeaderMap) -> Response {
    let Some(file) = web_files::file(uri.path()) else {
        return (StatusCode::NOT_FOUND, "there is no such file\n").into_response();
    };
    let mark = format!("\"{:016x}\"", FixedState::default().hash_one(file.bytes));
    let kept = [(header::CACHE_CONTROL, "no-cache".to_owned()), (header::ETAG, mark.clone())];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == mark.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(header::CONTENT_TYPE, file.content_type)], file.bytes).into_response()
}

async fn me(State(dashboard): State<Arc<Dashboard>>, Extension(user): Extension<DashboardUser>) -> Response {
    let host = host_name(&dashboard.shared);
    answer(&json!({
        "user": &*user.name, "role": user.role.word(), "csrf": user.login.csrf.hex(), "version": crate::VERSION, "host": host,
    }))
}

async fn overview(State(dashboard): State<Arc<Dashboard>>) -> Result<Response, ApiError> {
    let text = dashboard.job(|own| own.traffic.overview(&own.shared)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response())
}

async fn history(State(dashboard): State<Arc<Dashboard>>, query: ApiQuery) -> Result<Response, ApiError> {
    let span = match query.get("span") {
        None | Some("hour") => HistorySpan::Hour,
        Some("day") => HistorySpan::Day,
        Some(_) => return Err(ApiError::bad_request("\"span\" must be hour or day")),
    };
    dashboard.job(move |own| answer(&own.traffic.history(&own.shared, span))).await
}

async fn log_lines(State(dashboard): State<Arc<Dashboard>>, _: AdminUser, query: ApiQuery) -> Result<Response, ApiError> {
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

/// A stream of overviews, the first one at once.
async fn events(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(user): Extension<DashboardUser>,
) -> Result<Response, ApiError> {
    let first = dashboard.job(|own| own.traffic.overview(&own.shared)).await?;
    let body = dashboard.streams.open(user.login, event(&first))?;
    Ok(([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], Body::new(body)).into_response())
}
