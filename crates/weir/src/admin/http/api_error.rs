//! Refusals of the dashboard's interface, as JSON.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use weir_session::fault::ErrorReport;

/// Why a request is not answered: a SQLSTATE or a word, what happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    pub hint: String,
    pub retry_after_s: Option<u64>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> ApiError {
        ApiError { status, code: code.into(), message: message.into(), hint: String::new(), retry_after_s: None }
    }

    pub fn hint(self, hint: impl Into<String>) -> ApiError {
        ApiError { hint: hint.into(), ..self }
    }

    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message).hint("docs/api.md describes the requests.")
    }

    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// An order that cannot be carried out now.
    pub fn conflict(code: &str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, code, message)
    }

    pub fn fault() -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "XX000", "a fault in the proxy").hint("The log tells more.")
    }

    pub fn busy(message: impl Into<String>, retry_after_s: u64) -> ApiError {
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message);
        ApiError { retry_after_s: Some(retry_after_s), ..error }.hint(format!("Try again in {retry_after_s} s."))
    }
}

impl From<ErrorReport> for ApiError {
    fn from(report: ErrorReport) -> ApiError {
        ApiError::conflict(&report.sqlstate, report.message).hint(report.hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message, "hint": self.hint } });
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
