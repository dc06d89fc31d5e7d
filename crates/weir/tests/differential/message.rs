//! A client's messages, as values that print themselves and become bytes.

/// One message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Query(String),
    Parse { name: &'static str, text: String, types: Vec<u32> },
    Bind { portal: &'static str, name: &'static str, parameters: Vec<Option<String>>, formats: Vec<u16> },
    DescribeStatement(&'static str),
    DescribePortal(&'static str),
    Execute { portal: &'static str, rows_max: u32 },
    CloseStatement(&'static str),
    ClosePortal(&'static str),
    Flush,
    Sync,
    CopyData(String),
    CopyDone,
    CopyFail,
    Call { function: u32, arguments: Vec<&'static str> },
}

impl Message {
    /// Appends the message as it goes over the wire. Source: PostgreSQL manual, "Message Formats".
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Query(text) => frame(out, b'Q', &[text.as_bytes(), b"\0"]),
            Message::Parse { name, text, types } => {
                let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
                let count = ((types.len() / 4) as u16).to_be_bytes();
                frame(out, b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0", &count, &types]);
            }
            Message::Bind { portal, name, parameters, formats } => {
                let mut body = [portal.as_bytes(), b"\0", name.as_bytes(), b"\0\0\0"].concat();
                body.extend((parameters.len() as u16).to_be_bytes());
                parameters.iter().for_each(|value| push_value(&mut body, value.as_deref()));
                body.extend((formats.len() as u16).to_be_bytes());
                body.extend(formats.iter().flat_map(|format| format.to_be_bytes()));
                frame(out, b'B', &[&body]);
            }
            Message::DescribeStatement(name) => frame(out, b'D', &[b"S", name.as_bytes(), b"\0"]),
            Message::DescribePortal(name) => frame(out, b'D', &[b"P", name.as_bytes(), b"\0"]),
            Message::Execute { portal, rows_max } => frame(out, b'E', &[portal.as_bytes(), b"\0", &rows_max.to_be_bytes()]),
            Message::CloseStatement(name) => frame(out, b'C', &[b"S", name.as_bytes(), b"\0"]),
            Message::ClosePortal(name) => frame(out, b'C', &[b"P", name.as_bytes(), b"\0"]),
            Message::Flush => frame(out, b'H', &[]),
            Message::Sync => frame(out, b'S', &[]),
            Message::CopyData(text) => frame(out, b'd', &[text.as_bytes()]),
            Message::CopyDone => frame(out, b'c', &[]),
            Message::CopyFail => frame(out, b'f', &[b"the client gives up\0"]),
            Message::Call { function, arguments } => {
                let mut body = function.to_be_bytes().to_vec();
                body.extend([0, 0]);
                body.extend((arguments.len() as u16).to_be_bytes());
                arguments.iter().for_each(|value| push_value(&mut body, Some(value)));
                body.extend([0, 0]);
                frame(out, b'F', &[&body]);
            }
        }
    }
}

fn push_value(body: &mut Vec<u8>, value: Option<&str>) {
    match value {
        Some(text) => {
            body.extend((text.len() as u32).to_be_bytes());
            body.extend(text.as_bytes());
        }
        None => body.extend(u32::MAX.to_be_bytes()),
    }
}

/// Appends a tag, the length of all parts, and the parts.
pub fn frame(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
    out.push(tag);
    out.extend((body_bytes as u32 + 4).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
