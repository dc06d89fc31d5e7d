//! Bytes as lines: one for each message, in the notation of `notation`.

use super::log::{Action, Out};
use super::notation::Side;
use weir_wire::frame::{HEADER_BYTES, back, front, read_header, split_cstr};

/// Longer texts are cut.
const TEXT_BYTES_MAX: usize = 160;

/// Parts of the question what a session has left.
const INVENTORY: &[(&str, &str)] = &[
    ("source OPERATOR(pg_catalog.=) 'session'", "settings"),
    ("SELECT 'u', SESSION_USER", "users"),
    ("SELECT 's', n, pg_catalog.current_setting(n, true)", "named"),
    ("FROM (SELECT f.prosrc", "made_up"),
    ("pg_prepared_statements", "prepared"),
    ("pg_listening_channels", "channels"),
    ("pg_locks", "locks"),
    ("pg_my_temp_schema", "temporary"),
    ("pg_cursors", "cursors"),
    ("pg_get_replication_slots", "slots"),
    ("SELECT 'f', p.proname", "sources"),
];

/// Lines of all that was done; `alone`: the name of the client that needs none.
pub fn lines_of(outs: &[Out], alone: char) -> Vec<String> {
    let mut lines = Vec::new();
    let name = |client: char| if client == alone { String::new() } else { format!(" {client}") };
    for out in joined(outs) {
        match out {
            Out::Server { client, conn, bytes } => {
                for message in messages(Side::Client, &bytes) {
                    lines.push(format!("to {conn}{}: {message}", name(client)));
                }
            }
            Out::Client { client, bytes } => {
                for message in messages(Side::Server, &bytes) {
                    lines.push(format!("to client{}: {message}", name(client)));
                }
            }
            Out::Action { client, what } => {
                let name = client.map(name).unwrap_or_default();
                lines.push(format!("action{name}: {}", words_of(&what)));
            }
        }
    }
    lines
}

fn words_of(what: &Action) -> String {
    match what {
        Action::Took(conn) => format!("takes {conn}"),
        Action::Opened(conn) => format!("opens {conn}"),
        Action::GaveBack(conn) => format!("gives back {conn}"),
        Action::Reset(conn) => format!("has {conn} cleaned"),
        Action::Closed(conn) => format!("closes {conn}"),
        Action::Waits(why) => format!("waits: {why}"),
        Action::Ended(why) => format!("ends: {why}"),
        Action::Other(what) => what.clone(),
    }
}

/// Neighbours that are of one stream.
pub fn joined(outs: &[Out]) -> Vec<Out> {
    let mut all: Vec<Out> = Vec::new();
    for out in outs {
        match (all.last_mut(), out) {
            (Some(Out::Server { conn, bytes, client }), Out::Server { conn: next, bytes: more, client: other })
                if conn == next && client == other =>
            {
                bytes.extend(more);
            }
            (Some(Out::Client { client, bytes }), Out::Client { client: next, bytes: more }) if client == next => {
                bytes.extend(more);
            }
            _ => all.push(out.clone()),
        }
    }
    all
}

/// Each message as a line; runs of the same as one.
pub fn messages(side: Side, bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = read_header(rest).ok().flatten().filter(|header| header.frame_bytes() <= rest.len());
        let (line, taken) = match header {
            Some(header) => (message(side, header.tag, &rest[HEADER_BYTES..header.frame_bytes()]), header.frame_bytes()),
            None => (None, rest.len()),
        };
        let line = line.unwrap_or_else(|| format!("Raw {}", quoted(&rest[..taken])));
        match lines.last_mut() {
            Some((last, times)) if *last == line => *times += 1,
            _ => lines.push((line, 1)),
        }
        rest = &rest[taken..];
    }
    lines.into_iter().map(|(line, times)| if times > 1 { format!("{times} * {line}") } else { line }).collect()
}

fn quoted(text: &[u8]) -> String {
    let parts: Vec<&str> = match std::str::from_utf8(text) {
        Ok(sql) if text.len() > TEXT_BYTES_MAX || sql.contains("pg_catalog.") => {
            INVENTORY.iter().filter(|(part, _)| sql.contains(part)).map(|(_, name)| *name).collect()
        }
        _ => Vec::new(),
    };
    if !parts.is_empty() {
        return format!("inventory({})", parts.join(", "));
    }
    if text.len() > TEXT_BYTES_MAX {
        return format!("\"{}...\" of {} bytes", text[..40].escape_ascii(), text.len());
    }
    format!("\"{}\"", text.escape_ascii()).replace("\\'", "'").replace("\\x00", "\\0")
}

fn message(side: Side, tag: u8, body: &[u8]) -> Option<String> {
    match side {
        Side::Client => of_client(tag, body),
        Side::Server => of_server(tag, body),
    }
}

/// One string that is all.
fn only(body: &[u8]) -> Option<&[u8]> {
    split_cstr(body).filter(|(_, rest)| rest.is_empty()).map(|(text, _)| text)
}

fn of_client(tag: u8, body: &[u8]) -> Option<String> {
    Some(match tag {
        front::QUERY => format!("Query {}", quoted(only(body)?)),
        front::PARSE => {
            let (name, rest) = split_cstr(body)?;
            let (text, types) = split_cstr(rest)?;
            let types = types.get(2..)?.chunks_exact(4).map(|oid| oid.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)));
            let types: Vec<String> = types.map(|oid| format!(" {oid}")).collect();
            format!("Parse {} {}{}", quoted(name), quoted(text), types.concat())
        }
        front::BIND => bind(body)?,
        front::DESCRIBE | front::CLOSE => {
            let verb = if tag == front::CLOSE { "Close" } else { "Describe" };
            let (kind, name) = body.split_first()?;
            format!("{verb} {} {}", char::from(*kind), quoted(only(name)?))
        }
        front::EXECUTE => {
            let (portal, rows) = split_cstr(body)?;
            let rows = u32::from_be_bytes(rows.try_into().ok()?);
            let rows = if rows == 0 { String::new() } else { format!(" {rows}") };
            format!("Execute {}{rows}", quoted(portal))
        }
        front::FLUSH if body.is_empty() => "Flush".into(),
        front::SYNC if body.is_empty() => "Sync".into(),
        front::TERMINATE if body.is_empty() => "Terminate".into(),
        front::FUNCTION_CALL => {
            let (oid, rest) = body.split_first_chunk::<4>()?;
            let (values, _) = values(rest.get(2..)?)?;
            format!("FunctionCall {} ({values})", u32::from_be_bytes(*oid))
        }
        front::COPY_DATA => format!("CopyData {}", quoted(body)),
        front::COPY_DONE if body.is_empty() => "CopyDone".into(),
        front::COPY_FAIL => format!("CopyFail {}", quoted(only(body)?)),
        _ => return None,
    })
}

fn bind(body: &[u8]) -> Option<String> {
    let (portal, rest) = split_cstr(body)?;
    let (name, rest) = split_cstr(rest)?;
    let (formats, rest) = words(rest)?;
    let (values, rest) = values(rest)?;
    let (results, rest) = words(rest)?;
    if !rest.is_empty() || !formats.is_empty() {
        return None;
    }
    let list = if values.is_empty() { String::new() } else { format!(" ({values})") };
    let results = if results.is_empty() { String::new() } else { format!(" formats {}", results.join(" ")) };
    Some(format!("Bind {} {}{list}{results}", quoted(portal), quoted(name)))
}

fn words(bytes: &[u8]) -> Option<(Vec<String>, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<2>()?;
    let bytes = usize::from(u16::from_be_bytes(*count)) * 2;
    let list = rest.get(..bytes)?.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]).to_string());
    Some((list.collect(), &rest[bytes..]))
}

fn values(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (count, mut rest) = bytes.split_first_chunk::<2>()?;
    let mut list = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        match u32::from_be_bytes(*length) {
            u32::MAX => {
                list.push("null".to_owned());
                rest = after;
            }
            length => {
                let value = after.get(..length as usize)?;
                list.push(quoted(value));
                rest = &after[length as usize..];
            }
        }
    }
    Some((list.join(" "), rest))
}

fn of_server(tag: u8, body: &[u8]) -> Option<String> {
    Some(match tag {
        back::ROW_DESCRIPTION => format!("RowDescription{}", columns(body)?),
        back::DATA_ROW => format!("DataRow {}", values(body)?.0),
        back::COMMAND_COMPLETE => format!("CommandComplete {}", quoted(only(body)?)),
        back::ERROR => format!("Error {}", report(body)?),
        back::NOTICE => format!("Notice {}", report(body)?),
        back::READY => format!("Ready {}", char::from(*body.first()?)),
        back::PARAMETER_DESCRIPTION => {
            let types = body.get(2..)?.chunks_exact(4).map(|oid| oid.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)));
            format!("ParameterDescription{}", types.map(|oid| format!(" {oid}")).collect::<String>())
        }
        back::PARAMETER_STATUS => {
            let (name, value) = split_cstr(body)?;
            format!("ParameterStatus {} {}", quoted(name), quoted(only(value)?))
        }
        back::NOTIFICATION => {
            let (pid, rest) = body.split_first_chunk::<4>()?;
            let (channel, payload) = split_cstr(rest)?;
            format!("Notification {} {} {}", u32::from_be_bytes(*pid), quoted(channel), quoted(only(payload)?))
        }
        back::COPY_IN => "CopyIn".into(),
        back::COPY_OUT => "CopyOut".into(),
        back::COPY_BOTH => "CopyBoth".into(),
        back::COPY_DATA => format!("CopyData {}", quoted(body)),
        back::FUNCTION_RESULT => format!("FunctionResult {}", quoted(body.get(4..)?)),
        _ if !body.is_empty() => return None,
        back::PARSE_COMPLETE => "ParseComplete".into(),
        back::BIND_COMPLETE => "BindComplete".into(),
        back::CLOSE_COMPLETE => "CloseComplete".into(),
        back::NO_DATA => "NoData".into(),
        back::EMPTY_QUERY => "EmptyQuery".into(),
        back::PORTAL_SUSPENDED => "PortalSuspended".into(),
        back::COPY_DONE => "CopyDone".into(),
        _ => return None,
    })
}

fn columns(body: &[u8]) -> Option<String> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut line = String::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (name, after) = split_cstr(rest)?;
        let oid = u32::from_be_bytes(after.get(6..10)?.try_into().ok()?);
        let oid = if oid == 25 { String::new() } else { format!("/{oid}") };
        let binary = if after.get(17) == Some(&1) { "b" } else { "" };
        line.push_str(&format!(" {}{oid}{binary}", String::from_utf8_lossy(name)));
        rest = after.get(18..)?;
    }
    Some(line)
}

fn report(mut body: &[u8]) -> Option<String> {
    let (mut head, mut more) = ([const { String::new() }; 3], String::new());
    while let Some((&field, rest)) = body.split_first().filter(|(field, _)| **field != 0) {
        let (value, after) = split_cstr(rest)?;
        match field {
            b'S' => head[0] = String::from_utf8_lossy(value).into_owned(),
            b'C' => head[1] = String::from_utf8_lossy(value).into_owned(),
            b'M' => head[2] = quoted(value),
            b'D' => more.push_str(&format!(" detail {}", quoted(value))),
            b'H' => more.push_str(&format!(" hint {}", quoted(value))),
            b'R' => more.push_str(&format!(" routine {}", quoted(value))),
            _ => {}
        }
        body = after;
    }
    Some(format!("{}{more}", head.join(" ")))
}
