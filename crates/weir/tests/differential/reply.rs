//! A server's messages, without all that may differ between two servers.

use std::fmt;

/// One message of a server, comparable between a direct connection and the proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub tag: u8,
    /// The body without numbers of processes and objects, places in the server's source, and names of statements.
    pub text: String,
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.text.chars().take(160).collect();
        write!(out, "{} {short}", char::from(self.tag))
    }
}

impl Reply {
    pub fn new(tag: u8, body: &[u8]) -> Reply {
        let text = match tag {
            b'E' | b'N' => report(body),
            b'T' => columns(body),
            // The process that notified has another number on each server.
            b'A' => body.get(4..).unwrap_or_default().escape_ascii().to_string(),
            _ => body.escape_ascii().to_string(),
        };
        Reply { tag, text }
    }

    /// The first column of a DataRow of one text column.
    pub fn is_row(&self, value: &str) -> bool {
        self.tag == b'D' && self.text.ends_with(value)
    }
}

/// Fields of an error or notice but file, line and routine.
fn report(body: &[u8]) -> String {
    let mut text = String::new();
    for field in body.split(|byte| *byte == 0).filter(|field| !field.is_empty()) {
        if !matches!(field[0], b'F' | b'L' | b'R') {
            text += &without_names(&String::from_utf8_lossy(field));
            text.push('|');
        }
    }
    text
}

/// Names of statements in messages are the proxy's own on its servers.
fn without_names(text: &str) -> String {
    let Some((before, rest)) = text.split_once("prepared statement \"") else { return text.to_string() };
    let after = rest.split_once('"').map_or("", |(_, after)| after);
    format!("{before}prepared statement *{after}")
}

/// Columns without the numbers of their tables.
fn columns(body: &[u8]) -> String {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut text = String::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let Some(numbers) = rest.get(end + 1..end + 19) else { return format!("malformed: {}", body.escape_ascii()) };
        let of_table = numbers[..4] != [0; 4];
        text += &format!("{} {of_table} {:?}, ", rest[..end].escape_ascii(), &numbers[4..]);
        rest = &rest[end + 19..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_statements_and_places_in_the_source_do_not_count() {
        let body = b"SERROR\0Mprepared statement \"weir_1\" does not exist\0Fx.c\0L12\0Rroutine\0\0";
        assert_eq!(Reply::new(b'E', body).text, "SERROR|Mprepared statement * does not exist|");
    }
}
