//! The text of one line.

use super::events::event_of;
use super::{Level, LogField, LogOrigin};
use std::fmt::Write as _;
use std::time::Duration;
use weir_config::{LogConfig, LogFormat};

#[derive(Debug)]
pub enum LogLineFormat {
    Text { prefix: String },
    Values(ValueForm),
}

impl LogLineFormat {
    pub fn of(config: &LogConfig) -> LogLineFormat {
        match config.format {
            LogFormat::Text => LogLineFormat::Text { prefix: config.line_prefix.clone() },
            LogFormat::Json => LogLineFormat::Values(ValueForm::Json),
            LogFormat::Logfmt => LogLineFormat::Values(ValueForm::Logfmt),
        }
    }

    /// `now` counts from 1970.
    pub fn line(
        &self,
        level: Level,
        who: &LogOrigin<'_>,
        text: std::fmt::Arguments<'_>,
        fields: &[(&str, LogField<'_>)],
        now: Duration,
    ) -> String {
        let mut line = String::with_capacity(160);
        match self {
            LogLineFormat::Values(form) => push_values(&mut line, *form, (level, who), &text.to_string(), fields, now),
            LogLineFormat::Text { prefix } => {
                push_prefix(&mut line, prefix, who, now.as_secs(), now.subsec_millis());
                line.push_str(name(level));
                line.push_str(":  ");
                let _ = line.write_fmt(text);
                make_one_line(&mut line);
            }
        }
        line.push('\n');
        line
    }
}

pub fn name(level: Level) -> &'static str {
    match level {
        Level::Debug5 | Level::Debug4 | Level::Debug3 | Level::Debug2 | Level::Debug1 => "DEBUG",
        Level::Info => "INFO",
        Level::Notice => "NOTICE",
        Level::Warning => "WARNING",
        Level::Error => "ERROR",
        Level::Log => "LOG",
        Level::Fatal => "FATAL",
        Level::Panic => "PANIC",
    }
}

/// Two ways to write names and values.
#[derive(Clone, Copy, Debug)]
pub enum ValueForm {
    Json,
    Logfmt,
}

impl ValueForm {
    fn push(self, line: &mut String, name: &str, value: LogField<'_>) {
        let is_first = line.is_empty();
        match self {
            ValueForm::Json => line.push_str(if is_first { "{\"" } else { ",\"" }),
            ValueForm::Logfmt if is_first => {}
            ValueForm::Logfmt => line.push(' '),
        }
        line.push_str(name);
        line.push_str(match self {
            ValueForm::Json => "\":",
            ValueForm::Logfmt => "=",
        });
        match (value, self) {
            (LogField::Number(number), _) => {
                let _ = write!(line, "{number}");
            }
            (LogField::Text(text), ValueForm::Logfmt) if is_bare(text) => line.push_str(text),
            // Quotes and escapes of logfmt are those of JSON.
            (LogField::Text(text), _) => line.push_str(&serde_json::Value::from(text).to_string()),
        }
    }

    fn end(self, line: &mut String) {
        match self {
            ValueForm::Json => line.push('}'),
            ValueForm::Logfmt => {}
        }
    }
}

/// True for a value that logfmt takes without quotes.
fn is_bare(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '=' | '\\'))
}

fn push_values(
    line: &mut String,
    form: ValueForm,
    (level, who): (Level, &LogOrigin<'_>),
    text: &str,
    fields: &[(&str, LogField<'_>)],
    now: Duration,
) {
    let time = format!("{}.{:03}Z", utc(now.as_secs()).replacen(' ', "T", 1), now.subsec_millis());
    form.push(line, "time", LogField::Text(&time));
    form.push(line, "level", LogField::Text(name(level)));
    form.push(line, "event", LogField::Text(event_of(text)));
    form.push(line, "pid", LogField::Number(f64::from(std::process::id())));
    let origin = [("user", who.user), ("database", who.database), ("application", who.application), ("client", who.client)];
    for (name, value) in origin.into_iter().filter(|(_, value)| !value.is_empty()) {
        form.push(line, name, LogField::Text(value));
    }
    if who.session > 0 {
        form.push(line, "session", LogField::Number(f64::from(who.session)));
    }
    fields.iter().for_each(|(name, value)| form.push(line, name, *value));
    form.push(line, "message", LogField::Text(text));
    form.end(line);
}

/// Escapes control characters: a client's text must neither look like another line nor control the operator's terminal.
fn make_one_line(line: &mut String) {
    let is_control = |c: char| c.is_control() && c != '\t';
    if !line.contains(is_control) {
        return;
    }
    let mut clean = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        match c {
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            c if is_control(c) => {
                let _ = write!(clean, "\\x{:02x}", c as u32);
            }
            c => clean.push(c),
        }
    }
    *line = clean;
}

/// Expands `log_line_prefix`. Source: `pgpool.conf`.
fn push_prefix(line: &mut String, prefix: &str, who: &LogOrigin<'_>, seconds: u64, millis: u32) {
    let mut chars = prefix.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            line.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => line.push_str(if who.application.is_empty() { "[No Connection]" } else { who.application }),
            Some('p') => line.push_str(&std::process::id().to_string()),
            Some('P') => line.push_str("weir"),
            Some('t') => line.push_str(&utc(seconds)),
            Some('m') => line.push_str(&format!("{}.{millis:03}", utc(seconds))),
            Some('d') => line.push_str(who.database),
            Some('u') => line.push_str(who.user),
            Some('h') => line.push_str(who.client),
            Some('l') => line.push_str(&who.session.to_string()),
            Some('%') => line.push('%'),
            Some(_) | None => {}
        }
    }
}

/// `YYYY-MM-DD hh:mm:ss` in UTC.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Seconds since 1970 as `1970-01-01T00:00:00Z`.
pub fn rfc3339(seconds: u64) -> String {
    format!("{}Z", utc(seconds).replacen(' ', "T", 1))
}

/// Date of a day since 1970-01-01, Gregorian: eras of 400 years that begin in March.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    fn values(form: ValueForm, text: &str) -> String {
        let mut line = String::new();
        let who = LogOrigin { user: "j\"oe", database: "shop", session: 7, ..LogOrigin::default() };
        let fields = [("duration_ms", LogField::Number(1.5)), ("rule", LogField::Text("read"))];
        push_values(&mut line, form, (Level::Log, &who), text, &fields, Duration::from_millis(5));
        line.replace(&std::process::id().to_string(), "PID")
    }

    #[test]
    fn json_and_logfmt_have_event_and_who_and_values() {
        assert_eq!(
            values(ValueForm::Json, "a\n\u{1}é"),
            r#"{"time":"1970-01-01T00:00:00.005Z","level":"LOG","event":"other","pid":PID,"user":"j\"oe","database":"shop","session":7,"duration_ms":1.5,"rule":"read","message":"a\n\u0001é"}"#
        );
        assert_eq!(
            values(ValueForm::Logfmt, "node 1 is in use again"),
            r#"time=1970-01-01T00:00:00.005Z level=LOG event=node_up pid=PID user="j\"oe" database=shop session=7 duration_ms=1.5 rule=read message="node 1 is in use again""#
        );
        assert!(values(ValueForm::Logfmt, "a=b\nlevel=PANIC").ends_with(r#" message="a=b\nlevel=PANIC""#));
    }

    #[test]
    fn what_a_client_calls_itself_makes_no_lines_of_its_own() {
        let mut line = "joe\nLOG:  all is well\r\u{1b}[31m\u{9b}é\t密".to_string();
        make_one_line(&mut line);
        assert_eq!(line, "joe\\nLOG:  all is well\\r\\x1b[31m\\x9bé\t密");
    }

    #[test]
    fn the_prefix_is_expanded() {
        let mut line = String::new();
        let who = LogOrigin { user: "joe", database: "d", application: "psql", client: "", session: 7 };
        push_prefix(&mut line, "%t %u@%d %a %l%% ", &who, 0, 5);
        assert_eq!(line, "1970-01-01 00:00:00 joe@d psql 7% ");
    }
}
