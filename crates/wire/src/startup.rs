//! The first packet of a connection: it has no tag.
//!
//! Source: PostgreSQL manual, "Message Formats"; `ProcessStartupPacket` in backend_startup.c.

use crate::frame::split_cstr;

/// A protocol version: major in the high half, minor in the low one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    pub const V3_0: Version = Version(3 << 16);
    pub const V3_2: Version = Version((3 << 16) | 2);

    pub fn major(self) -> u32 {
        self.0 >> 16
    }
    pub fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

/// Longest startup packet a server takes, with its length. Source: `MAX_STARTUP_PACKET_LENGTH` in pqcomm.h, which is without.
pub const STARTUP_BYTES_MAX: u32 = 10_000 + 4;

const CANCEL: u32 = (1234 << 16) | 5678;
const SSL: u32 = (1234 << 16) | 5679;
const GSSENC: u32 = (1234 << 16) | 5680;

/// Longest cancel key a client may show. Source: PostgreSQL 18 manual, `CancelRequest`.
const CANCEL_KEY_BYTES_MAX: usize = 256;

/// A client's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    Ssl,
    GssEnc,
    Cancel {
        pid: u32,
        key: Vec<u8>,
    },
    Startup(Startup),
    /// A version whose major is not 3: refuse, in the form that version understands.
    Unsupported(Version),
}

/// A StartupMessage of protocol 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    pub version: Version,
    /// Without those of `protocol_options`.
    pub parameters: Parameters,
    /// Names beginning with `_pq_.`: protocol extensions, none of which is known.
    pub protocol_options: Vec<String>,
}

/// Names and values of a StartupMessage in the order sent. One piece of memory: every login has them, and most only compare them with
/// those of a login before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Each name and each value, with a NUL after it.
    text: String,
}

impl Parameters {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.text;
        // By bytes: the words are short, and every login asks several times.
        let mut word = move || {
            let end = rest.bytes().position(|byte| byte == 0)?;
            let (word, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            Some(word)
        };
        std::iter::from_fn(move || word().zip(word()))
    }

    fn push(&mut self, name: &str, value: &str) {
        for word in [name, value] {
            self.text.push_str(word);
            self.text.push('\0');
        }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Parameters {
    /// What follows a NUL in a name or value is left out, as in a packet.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Parameters {
        let mut parameters = Parameters::default();
        let until_nul = |word: &'a str| word.split('\0').next().unwrap_or_default();
        pairs.into_iter().for_each(|(name, value)| parameters.push(until_nul(name), until_nul(value)));
        parameters
    }
}

/// Why a first packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    #[error("invalid length of startup packet: {length}")]
    BadLength { length: u32 },
    #[error("invalid startup packet layout: expected terminator as last byte")]
    BadLayout,
    #[error("startup packet is not valid UTF-8")]
    NotUtf8,
    #[error("invalid length of cancel request packet")]
    BadCancel,
}

/// Reads the first packet; `None` while it is not all here. Also says how many bytes it took.
pub fn read_first(bytes: &[u8]) -> Result<Option<(First, usize)>, StartupError> {
    let Some((&word, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(word);
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(StartupError::BadLength { length });
    }
    let body_bytes = length as usize - 4;
    let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
    Ok(Some((read_body(body)?, length as usize)))
}

fn read_body(body: &[u8]) -> Result<First, StartupError> {
    let Some((&word, rest)) = body.split_first_chunk::<4>() else { return Err(StartupError::BadLayout) };
    match u32::from_be_bytes(word) {
        SSL => Ok(First::Ssl),
        GSSENC => Ok(First::GssEnc),
        CANCEL => read_cancel(rest),
        version if version >> 16 == 3 => read_parameters(Version(version), rest).map(First::Startup),
        version => Ok(First::Unsupported(Version(version))),
    }
}

fn read_cancel(rest: &[u8]) -> Result<First, StartupError> {
    let Some((&pid, key)) = rest.split_first_chunk::<4>() else { return Err(StartupError::BadCancel) };
    if key.is_empty() || key.len() > CANCEL_KEY_BYTES_MAX {
        return Err(StartupError::BadCancel);
    }
    Ok(First::Cancel { pid: u32::from_be_bytes(pid), key: key.to_vec() })
}

fn read_parameters(version: Version, list: &[u8]) -> Result<Startup, StartupError> {
    let mut options = Vec::new();
    let mut rest = list;
    let end = loop {
        let (name, after) = split_cstr(rest).ok_or(StartupError::BadLayout)?;
        if name.is_empty() {
            if !after.is_empty() {
                return Err(StartupError::BadLayout);
            }
            break list.len() - rest.len();
        }
        let (_, after) = split_cstr(after).ok_or(StartupError::BadLayout)?;
        if name.starts_with(OPTION_PREFIX) {
            options.push(name);
        }
        rest = after;
    };
    let text = std::str::from_utf8(&list[..end]).map_err(|_| StartupError::NotUtf8)?;
    let mut parameters = Parameters { text: text.to_owned() };
    if !options.is_empty() {
        let others = parameters.iter().filter(|(name, _)| !name.as_bytes().starts_with(OPTION_PREFIX));
        parameters = others.collect();
    }
    let protocol_options = options.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    Ok(Startup { version, parameters, protocol_options })
}

/// Names that begin so are of protocol extensions.
const OPTION_PREFIX: &[u8] = b"_pq_.";

impl Startup {
    /// The value of a parameter; the last one counts, as in PostgreSQL.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }
}

/// Splits a startup `options` value into settings, as `pg_split_opts` and the `-c` and `--` switches of a server do.
///
/// Error: the first word that is neither; a server would refuse others of its switches or take them, we refuse.
pub fn split_options(options: &str) -> Result<Vec<(String, String)>, String> {
    let words = split_words(options);
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next().ok_or_else(|| word.clone())?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_string()
        } else {
            return Err(word);
        };
        let Some((name, value)) = assignment.split_once('=') else { return Err(word) };
        settings.push((name.replace('-', "_"), value.to_string()));
    }
    Ok(settings)
}

/// Words apart by white space; a backslash takes the next character as it is.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((body.len() + 8) as u32).to_be_bytes().to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn first_packets_are_told_apart() {
        let startup = packet(3 << 16, b"user\0joe\0_pq_.x\0y\0database\0d\0\0");
        let (first, taken) = read_first(&startup).unwrap().unwrap();
        assert_eq!(taken, startup.len());
        let First::Startup(startup) = first else { panic!() };
        assert_eq!(startup.get("user"), Some("joe"));
        assert_eq!(startup.protocol_options, ["_pq_.x"]);
        assert_eq!(read_first(&packet(SSL, b"")).unwrap().unwrap().0, First::Ssl);
        assert_eq!(read_first(&packet(GSSENC, b"")).unwrap().unwrap().0, First::GssEnc);
        let cancel = First::Cancel { pid: 7, key: vec![1, 2, 3, 4] };
        assert_eq!(read_first(&packet(CANCEL, b"\0\0\0\x07\x01\x02\x03\x04")).unwrap().unwrap().0, cancel);
        assert_eq!(read_first(&packet(2 << 16, b"x")).unwrap().unwrap().0, First::Unsupported(Version(2 << 16)));
    }

    #[test]
    fn malformed_first_packets_are_refused() {
        assert_eq!(read_first(b"\0\0"), Ok(None));
        assert_eq!(read_first(b"\0\0\0\x07"), Err(StartupError::BadLength { length: 7 }));
        assert_eq!(read_first(b"\0\0\x27\x15"), Err(StartupError::BadLength { length: 10_005 }));
        assert_eq!(read_first(b"\0\0\x27\x14"), Ok(None), "the longest there may be");
        assert_eq!(read_first(&packet(3 << 16, b"user\0joe\0")), Err(StartupError::BadLayout));
        assert_eq!(read_first(&packet(3 << 16, b"user\0joe\0\0x")), Err(StartupError::BadLayout));
        assert_eq!(read_first(&packet(3 << 16, b"user\0\xff\0\0")), Err(StartupError::NotUtf8));
        assert_eq!(read_first(&packet(CANCEL, b"\0\0\0\x07")), Err(StartupError::BadCancel));
    }

    #[test]
    fn options_become_settings() {
        let settings = split_options(r"-c a.b=1  --work-mem=4MB -cx=a\ b").unwrap();
        let expected = [("a.b", "1"), ("work_mem", "4MB"), ("x", "a b")];
        assert_eq!(settings, expected.map(|(n, v)| (n.to_string(), v.to_string())));
        assert_eq!(split_options("-W 3"), Err("-W".to_string()));
    }
}
