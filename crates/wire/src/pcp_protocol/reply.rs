//! Replies of a server.

use super::{PcpError, SALT_BYTES, packet, push, take};

/// A packet of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PcpReply {
    Salt([u8; SALT_BYTES]),
    Notice(PcpReport),
    Error(PcpReport),
    /// `tag`: that of the request in lower case. `rest`: mostly NUL-terminated strings, see [`PcpReply::strings`].
    Words {
        tag: u8,
        code: PcpReplyCode,
        rest: Vec<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpReplyCode {
    LoggedIn,
    /// A row count.
    Count,
    Node,
    Process,
    Parameter,
    /// Of a list that only Weir has.
    Row,
    /// The end of an answer.
    Done,
}

/// After a fatal report the server closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpSeverity {
    Notice,
    Error,
    Fatal,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcpReport {
    /// Severity as written: `ERROR`.
    pub severity: String,
    pub message: String,
    pub detail: String,
}

impl PcpReplyCode {
    const ALL: [(PcpReplyCode, &'static str); 7] = [
        (PcpReplyCode::LoggedIn, "AuthenticationOK"),
        (PcpReplyCode::Count, "ArraySize"),
        (PcpReplyCode::Node, "NodeInfo"),
        (PcpReplyCode::Process, "ProcessInfo"),
        (PcpReplyCode::Parameter, "ProcessConfig"),
        (PcpReplyCode::Row, "ListRow"),
        (PcpReplyCode::Done, "CommandComplete"),
    ];

    fn word(self) -> &'static str {
        PcpReplyCode::ALL.into_iter().find(|(code, _)| *code == self).map_or("", |(_, word)| word)
    }

    fn read(word: &[u8]) -> Option<PcpReplyCode> {
        PcpReplyCode::ALL.into_iter().find(|(_, known)| known.as_bytes() == word).map(|(code, _)| code)
    }
}

impl PcpSeverity {
    pub fn word(self) -> &'static str {
        match self {
            PcpSeverity::Notice => "NOTICE",
            PcpSeverity::Error => "ERROR",
            PcpSeverity::Fatal => "FATAL",
        }
    }
}

impl PcpReport {
    pub fn new(severity: PcpSeverity, message: impl Into<String>) -> PcpReport {
        PcpReport { severity: severity.word().into(), message: message.into(), detail: String::new() }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> PcpReport {
        self.detail = detail.into();
        self
    }

    /// Appends the report with PostgreSQL's error fields. Pgpool-II's client misreads texts that begin with S, M or D, so these
    /// begin in lower case.
    fn write(&self, out: &mut Vec<u8>, tag: u8) {
        let mut body = Vec::new();
        let mut field = |letter: u8, text: &str| {
            body.push(letter);
            push(&mut body, text.as_bytes());
        };
        field(b'S', &self.severity);
        field(b'C', "XX000");
        field(b'M', &uncapitalised(&self.message));
        if !self.detail.is_empty() {
            field(b'D', &uncapitalised(&self.detail));
        }
        field(b'F', "pcp");
        field(b'L', "1");
        body.push(0);
        packet(out, tag, &body);
    }

    fn read(mut body: &[u8]) -> PcpReport {
        let mut fault = PcpReport::default();
        while let Some((&letter, rest)) = body.split_first().filter(|(letter, _)| **letter != 0) {
            let Some((text, behind)) = take(rest) else { break };
            let text = String::from_utf8_lossy(text).into_owned();
            match letter {
                b'S' => fault.severity = text,
                b'M' => fault.message = text,
                b'D' => fault.detail = text,
                _ => {}
            }
            body = behind;
        }
        fault
    }
}

fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first @ ('S' | 'M' | 'D')) => first.to_lowercase().chain(chars).collect(),
        Some(_) | None => text.to_owned(),
    }
}

impl PcpReply {
    pub fn of<S: AsRef<[u8]>>(tag: u8, code: PcpReplyCode, strings: impl IntoIterator<Item = S>) -> PcpReply {
        let mut rest = Vec::new();
        strings.into_iter().for_each(|text| push(&mut rest, text.as_ref()));
        PcpReply::Words { tag, code, rest }
    }

    pub fn done(tag: u8) -> PcpReply {
        PcpReply::Words { tag, code: PcpReplyCode::Done, rest: Vec::new() }
    }

    /// Makes the parameter count, the only number sent as four bytes.
    pub fn binary_count(tag: u8, count: u32) -> PcpReply {
        PcpReply::Words { tag, code: PcpReplyCode::Count, rest: count.to_be_bytes().to_vec() }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            PcpReply::Salt(salt) => packet(out, b'm', salt),
            PcpReply::Notice(fault) => fault.write(out, b'N'),
            PcpReply::Error(fault) => fault.write(out, b'E'),
            PcpReply::Words { tag, code, rest } => {
                let mut body = Vec::with_capacity(rest.len() + 16);
                push(&mut body, code.word().as_bytes());
                body.extend_from_slice(rest);
                packet(out, *tag, &body);
            }
        }
    }

    pub fn read(tag: u8, body: &[u8]) -> Result<PcpReply, PcpError> {
        match tag {
            b'm' => body.try_into().map(PcpReply::Salt).map_err(|_| PcpError::Malformed(tag)),
            b'N' => Ok(PcpReply::Notice(PcpReport::read(body))),
            b'E' => Ok(PcpReply::Error(PcpReport::read(body))),
            _ => {
                let (word, rest) = take(body).ok_or(PcpError::Malformed(tag))?;
                let code = PcpReplyCode::read(word).ok_or(PcpError::Unknown(tag))?;
                Ok(PcpReply::Words { tag, code, rest: rest.to_vec() })
            }
        }
    }

    /// Returns the strings of an answer; none of a salt or an error.
    pub fn strings(&self) -> Vec<String> {
        let mut strings = Vec::new();
        let PcpReply::Words { rest, .. } = self else { return strings };
        let mut rest = rest.as_slice();
        while let Some((text, behind)) = take(rest) {
            strings.push(String::from_utf8_lossy(text).into_owned());
            rest = behind;
        }
        strings
    }
}
