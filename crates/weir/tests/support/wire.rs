//! Messages of the protocol as bytes, built here and not with Weir's own code: a test must not share the proxy's mistakes.
//!
//! Source: PostgreSQL manual, "Message Formats".

/// Protocol 3.0 as a startup packet says it.
pub const V3_0: u32 = 3 << 16;
/// Protocol 3.2.
pub const V3_2: u32 = (3 << 16) | 2;

/// A message with a tag.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A packet without a tag: a code, then its data.
pub fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let parameters: Vec<_> = parameters.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    startup_of_bytes(version, &parameters)
}

/// A startup packet with values in any bytes.
pub fn startup_of_bytes(version: u32, parameters: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value, b"\0"].concat());
    }
    body.push(0);
    packet(version, &body)
}

pub fn cancel(pid: u32, key: &[u8]) -> Vec<u8> {
    packet(80_877_102, &[&pid.to_be_bytes(), key].concat())
}

pub fn ssl_request() -> Vec<u8> {
    packet(80_877_103, &[])
}

pub fn gss_request() -> Vec<u8> {
    packet(80_877_104, &[])
}

pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', &texts(&[text]))
}

pub fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', &[texts(&[name, text]).as_slice(), &[0, 0]].concat())
}

/// Values and results in text format.
pub fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let mut body = texts(&[portal, statement]);
    body.extend([0, 0]);
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

/// `kind`: `S` a statement, `P` a portal.
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind], texts(&[name]).as_slice()].concat())
}

pub fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind], texts(&[name]).as_slice()].concat())
}

/// `rows_max` 0: all.
pub fn execute(portal: &str, rows_max: u32) -> Vec<u8> {
    message(b'E', &[texts(&[portal]).as_slice(), &rows_max.to_be_bytes()].concat())
}

pub fn sync() -> Vec<u8> {
    message(b'S', &[])
}

pub fn flush() -> Vec<u8> {
    message(b'H', &[])
}

/// Parse, Bind and Execute of the unnamed statement and portal.
pub fn unnamed(text: &str, values: &[&str]) -> Vec<u8> {
    [parse("", text), bind("", "", values), execute("", 0)].concat()
}

/// Bind and Execute of a named statement.
pub fn run(name: &str, values: &[&str]) -> Vec<u8> {
    [bind("", name, values), execute("", 0)].concat()
}

pub fn copy_data(bytes: &[u8]) -> Vec<u8> {
    message(b'd', bytes)
}

pub fn copy_done() -> Vec<u8> {
    message(b'c', &[])
}

pub fn copy_fail(reason: &str) -> Vec<u8> {
    message(b'f', &texts(&[reason]))
}

/// A function by its number, with text arguments and a text result.
pub fn function_call(function: u32, arguments: &[&str]) -> Vec<u8> {
    let mut body = function.to_be_bytes().to_vec();
    body.extend([0, 0]);
    body.extend((arguments.len() as u16).to_be_bytes());
    for argument in arguments {
        body.extend((argument.len() as u32).to_be_bytes());
        body.extend(argument.as_bytes());
    }
    body.extend([0, 0]);
    message(b'F', &body)
}

pub fn terminate() -> Vec<u8> {
    message(b'X', &[])
}

/// Texts, each ended by a zero byte.
pub fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
}
