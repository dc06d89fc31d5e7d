//! Errors as told to clients.

use weir_wire::write::{self, OutgoingReport};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ErrorReport {
    pub severity: ErrorSeverity,
    pub sqlstate: String,
    pub message: String,
    pub detail: Box<str>,
    pub hint: Box<str>,
    pub routine: &'static str,
    /// Fields of a server's report that are handed on as they came.
    pub fields: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSeverity {
    Error,
    Fatal,
}

/// A server's texts for malformed messages. Source: pqformat.c.
pub mod garbled {
    pub const NOTHING: &str = "no data left in message";
    pub const NO_END_OF_STRING: &str = "invalid string in message";
    pub const TOO_SHORT: &str = "insufficient data left in message";
    pub const MORE_THAN_MEANT: &str = "invalid message format";
}

/// SQLSTATEs used by Weir. Source: PostgreSQL manual, appendix "PostgreSQL Error Codes".
pub mod sqlstate {
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
    pub const CANNOT_CONNECT: &str = "08001";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const BAD_COPY_FILE_FORMAT: &str = "22P04";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const INVALID_AUTHORIZATION: &str = "28000";
    pub const INVALID_PASSWORD: &str = "28P01";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const UNDEFINED_STATEMENT: &str = "26000";
    pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    pub const UNDEFINED_DATABASE: &str = "3D000";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const UNDEFINED_CURSOR: &str = "34000";
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub const UNDEFINED_FILE: &str = "58P01";
    pub const INVALID_VALUE: &str = "22023";
    pub const NOT_IN_STATE: &str = "55000";
    pub const CANNOT_CHANGE_NOW: &str = "55P02";
    pub const LOCK_NOT_AVAILABLE: &str = "55P03";
    pub const CONFIGURATION_ERROR: &str = "F0000";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const QUERY_CANCELED: &str = "57014";
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    pub const CRASH_SHUTDOWN: &str = "57P02";
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    pub const DATABASE_DROPPED: &str = "57P04";
    pub const IN_FAILED_TRANSACTION: &str = "25P02";
    pub const UNKNOWN_SAVEPOINT: &str = "3B001";
    pub const DATA_CORRUPTED: &str = "XX001";
    pub const DEADLOCK_DETECTED: &str = "40P01";
    pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
    pub const TRANSACTION_TIMEOUT: &str = "25P04";
    pub const IDLE_TIMEOUT: &str = "57P05";
}

impl ErrorReport {
    pub fn error(sqlstate: &str, message: impl Into<String>) -> ErrorReport {
        ErrorReport {
            severity: ErrorSeverity::Error,
            sqlstate: sqlstate.to_string(),
            message: message.into(),
            detail: Box::default(),
            hint: Box::default(),
            routine: "",
            fields: Box::default(),
        }
    }

    pub fn fatal(sqlstate: &str, message: impl Into<String>) -> ErrorReport {
        ErrorReport { severity: ErrorSeverity::Fatal, ..ErrorReport::error(sqlstate, message) }
    }

    /// Source: `exec_simple_query` in postgres.c.
    pub fn in_failed_transaction() -> ErrorReport {
        let text = "current transaction is aborted, commands ignored until end of transaction block";
        ErrorReport::error(sqlstate::IN_FAILED_TRANSACTION, text).routine("exec_simple_query")
    }

    pub fn garbled(text: &str) -> ErrorReport {
        ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, text)
    }

    pub fn of_report(report: &weir_wire::back::ReceivedReport<'_>) -> ErrorReport {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ErrorReport::error(&text(report.sqlstate), text(report.message))
    }

    /// The error of a server with all that it says, but for positions in its text and its source. `body`: of its message.
    pub fn of_server(body: &[u8]) -> ErrorReport {
        /// Detail, hint, context, and the names of schema, table, column, type and constraint. Source: the manual, "Error and Notice Message Fields".
        const FIELDS: &[u8] = b"DHWstcdn";
        let report = weir_wire::back::read_report(body);
        ErrorReport { fields: weir_wire::back::report_fields(body, FIELDS).into(), ..ErrorReport::of_report(&report) }
    }

    pub fn detail(self, detail: impl Into<Box<str>>) -> ErrorReport {
        ErrorReport { detail: detail.into(), ..self }
    }

    /// PostgreSQL's function; some drivers depend on it.
    pub fn routine(self, routine: &'static str) -> ErrorReport {
        ErrorReport { routine, ..self }
    }

    pub fn hint(self, hint: impl Into<Box<str>>) -> ErrorReport {
        ErrorReport { hint: hint.into(), ..self }
    }

    pub fn as_fatal(self) -> ErrorReport {
        ErrorReport { severity: ErrorSeverity::Fatal, ..self }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let severity = match self.severity {
            ErrorSeverity::Error => "ERROR",
            ErrorSeverity::Fatal => "FATAL",
        };
        let report = OutgoingReport {
            severity,
            sqlstate: &self.sqlstate,
            message: &self.message,
            detail: &self.detail,
            hint: &self.hint,
            routine: self.routine,
        };
        write::error_with_fields(out, &report, &self.fields);
    }
}
