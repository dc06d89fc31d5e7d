//! The first packet of a connection, which has no tag.
//!
//! Source: PostgreSQL manual, "Message Formats"; `ProcessStartupPacket` in backend_startup.c.

use crate::frame::split_cstr;

/// Major version in the high half, minor in the low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    pub const V3_0: ProtocolVersion = ProtocolVersion(3 << 16);
    pub const V3_2: ProtocolVersion = ProtocolVersion((3 << 16) | 2);
    /// Version that a server sees in a repeated encryption request.
    pub const SSL_REQUEST: ProtocolVersion = ProtocolVersion(SSL);
    pub const GSSENC_REQUEST: ProtocolVersion = ProtocolVersion(GSSENC);

    pub fn major(self) -> u32 {
        self.0 >> 16
    }
    pub fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

/// Limit of a startup packet with its length word. Source: `MAX_STARTUP_PACKET_LENGTH` in pqcomm.h (without it).
pub const STARTUP_BYTES_MAX: u32 = 10_000 + 4;

const CANCEL: u32 = (1234 << 16) | 5678;
const SSL: u32 = (1234 << 16) | 5679;
const GSSENC: u32 = (1234 << 16) | 5680;
/// Code of a cancel request between two Weirs. PostgreSQL refuses it.
pub(crate) const PASSED_CANCEL: u32 = (1234 << 16) | 7345;

/// Source: PostgreSQL 18 manual, `CancelRequest`.
const CANCEL_KEY_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstPacket {
    Ssl,
    GssEnc,
    Cancel {
        pid: u32,
        key: Vec<u8>,
        bearer: CancelSender,
    },
    Startup(StartupMessage),
    /// Refuse in the form of that version.
    Unsupported(ProtocolVersion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelSender {
    Client,
    /// Another Weir: never passed on again.
    Peer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupMessage {
    pub version: ProtocolVersion,
    /// Excludes `protocol_options`.
    pub parameters: StartupParameters,
    /// Names of unknown protocol extensions (`_pq_.`).
    pub protocol_options: Vec<String>,
}

/// In one allocation: most logins only compare them with an earlier login's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StartupParameters {
    text: String,
}

impl StartupParameters {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.text;
        // By bytes: faster for short words, read often per login.
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

impl<'a> FromIterator<(&'a str, &'a str)> for StartupParameters {
    /// Cuts names and values at a NUL, as in a packet.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> StartupParameters {
        let mut parameters = StartupParameters::default();
        let until_nul = |word: &'a str| word.split('\0').next().unwrap_or_default();
        pairs.into_iter().for_each(|(name, value)| parameters.push(until_nul(name), until_nul(value)));
        parameters
    }
}

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

impl StartupError {
    /// True if a server closes without an answer. Source: `ProcessStartupPacket` and `ProcessCancelRequestPacket` in
    /// backend_startup.c (`COMMERROR`).
    pub fn is_unanswered(self) -> bool {
        match self {
            StartupError::BadLength { .. } | StartupError::BadCancel => true,
            StartupError::BadLayout | StartupError::NotUtf8 => false,
        }
    }
}

/// Limit of a name: `NAMEDATALEN - 1`.
pub const NAME_BYTES_MAX: usize = 63;

/// Truncates a user or database name as a server does. Source: `truncate_identifier` in scansup.c and `ProcessStartupPacket` in
/// backend_startup.c.
pub fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// Reads the first packet and its size; `None` while incomplete.
pub fn read_first(bytes: &[u8]) -> Result<Option<(FirstPacket, usize)>, StartupError> {
    let Some((&word, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(word);
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(StartupError::BadLength { length });
    }
    let body_bytes = length as usize - 4;
    let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
    Ok(Some((read_body(body)?, length as usize)))
}

fn read_body(body: &[u8]) -> Result<FirstPacket, StartupError> {
    let Some((&word, rest)) = body.split_first_chunk::<4>() else { return Err(StartupError::BadLayout) };
    match u32::from_be_bytes(word) {
        SSL => Ok(FirstPacket::Ssl),
        GSSENC => Ok(FirstPacket::GssEnc),
        CANCEL => read_cancel(rest, CancelSender::Client),
        PASSED_CANCEL => read_cancel(rest, CancelSender::Peer),
        version if version >> 16 == 3 => read_parameters(ProtocolVersion(version), rest).map(FirstPacket::Startup),
        version => Ok(FirstPacket::Unsupported(ProtocolVersion(version))),
    }
}

fn read_cancel(rest: &[u8], bearer: CancelSender) -> Result<FirstPacket, StartupError> {
    let Some((&pid, key)) = rest.split_first_chunk::<4>() else { return Err(StartupError::BadCancel) };
    if key.is_empty() || key.len() > CANCEL_KEY_BYTES_MAX {
        return Err(StartupError::BadCancel);
    }
    Ok(FirstPacket::Cancel { pid: u32::from_be_bytes(pid), key: key.to_vec(), bearer })
}

fn read_parameters(version: ProtocolVersion, list: &[u8]) -> Result<StartupMessage, StartupError> {
    let mut options = Vec::new();
    let mut rest = list;
    let end = loop {
        // As in a server the last byte is unchecked: the terminator, or a name without a value.
        if rest.len() == 1 {
            break list.len() - 1;
        }
        let (name, after) = split_word(rest).ok_or(StartupError::BadLayout)?;
        if name.is_empty() {
            return Err(StartupError::BadLayout);
        }
        let (_, after) = split_word(after).ok_or(StartupError::BadLayout)?;
        if name.starts_with(OPTION_PREFIX) {
            options.push(name);
        }
        rest = after;
    };
    let mut parameters = match std::str::from_utf8(&list[..end]) {
        Ok(text) => StartupParameters { text: text.to_owned() },
        Err(_) => of_bytes(&list[..end])?,
    };
    if !options.is_empty() {
        let others = parameters.iter().filter(|(name, _)| !name.as_bytes().starts_with(OPTION_PREFIX));
        parameters = others.collect();
    }
    let protocol_options = options.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    Ok(StartupMessage { version, parameters, protocol_options })
}

#[inline]
fn split_word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Reads parameters with bytes outside UTF-8. An application name is cleaned as in a server. Others cannot be set on an open
/// server connection, where text has an encoding.
fn of_bytes(list: &[u8]) -> Result<StartupParameters, StartupError> {
    let mut parameters = StartupParameters::default();
    let mut rest = list;
    while let Some((name, after)) = split_cstr(rest) {
        let (value, after) = split_cstr(after).ok_or(StartupError::BadLayout)?;
        rest = after;
        let utf8 = |word| std::str::from_utf8(word).map_err(|_| StartupError::NotUtf8);
        match (name, utf8(value)) {
            (name, _) if name.starts_with(OPTION_PREFIX) => {}
            (b"application_name", Err(_)) => parameters.push("application_name", &clean(value)),
            (name, value) => parameters.push(utf8(name)?, value?),
        }
    }
    Ok(parameters)
}

/// Escapes bytes that do not print, as servers since 16; older ones put `?`. Source: `pg_clean_ascii` in string.c.
fn clean(value: &[u8]) -> String {
    let mut clean = String::with_capacity(4 * value.len());
    for byte in value {
        match byte {
            b' '..=b'~' => clean.push(char::from(*byte)),
            _ => clean.push_str(&format!("\\x{byte:02x}")),
        }
    }
    clean
}

const OPTION_PREFIX: &[u8] = b"_pq_.";

impl StartupMessage {
    /// Returns a parameter's last value, as PostgreSQL.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("invalid command-line argument for server process: {0}")]
    Unknown(String),
    #[error("{0} requires a value")]
    NoValue(String),
    #[error("unsupported command-line switch in startup options: \"{0}\"")]
    Unsupported(String),
}

/// Switches, parameters and values; `None`: the value follows. Servers refuse postmaster switches. Source:
/// `process_postgres_switches` in postgres.c.
const SWITCHES: [(char, &str, Option<&str>); 12] = [
    ('B', "shared_buffers", None),
    ('e', "datestyle", Some("euro")),
    ('F', "fsync", Some("false")),
    ('h', "listen_addresses", None),
    ('i', "listen_addresses", Some("*")),
    ('k', "unix_socket_directories", None),
    ('l', "ssl", Some("true")),
    ('N', "max_connections", None),
    ('O', "allow_system_table_mods", Some("true")),
    ('p', "port", None),
    ('S', "work_mem", None),
    ('s', "log_statement_stats", Some("true")),
];

/// Switches that a server ignores from clients: without a value, with one.
const IGNORED: [&str; 2] = ["bEjnT", "CDrv"];

const PLANS: [(&str, &str); 8] = [
    ("b", "enable_bitmapscan"),
    ("h", "enable_hashjoin"),
    ("i", "enable_indexscan"),
    ("m", "enable_mergejoin"),
    ("n", "enable_nestloop"),
    ("o", "enable_indexonlyscan"),
    ("s", "enable_seqscan"),
    ("t", "enable_tidscan"),
];
const STATISTICS: [(&str, &str); 3] = [("pa", "log_parser_stats"), ("pl", "log_planner_stats"), ("e", "log_executor_stats")];

/// Splits startup `options` into settings, as `pg_split_opts` and `process_postgres_switches` do.
pub fn split_options(options: &str) -> Result<Vec<(String, String)>, OptionsError> {
    let mut settings = Vec::new();
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        let Some(mut letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Err(OptionsError::Unknown(word));
        };
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            if takes_none(letter, &mut settings) {
                continue;
            }
            // Only settable at connection start; server connections are shared.
            if matches!(letter, 'P' | 'W') {
                return Err(OptionsError::Unsupported(format!("-{letter}")));
            }
            let behind = if letters.is_empty() { words.next() } else { None };
            // A server reports the last word it has read.
            let last = || OptionsError::Unknown(behind.as_ref().unwrap_or(&word).clone());
            let value = behind.as_deref().or((!letters.is_empty()).then_some(letters)).ok_or_else(last)?;
            settings.extend(set_by(letter, value).ok_or_else(last)??);
            break;
        }
    }
    Ok(settings)
}

/// Adds a valueless switch's settings. False for others.
fn takes_none(switch: char, settings: &mut Vec<(String, String)>) -> bool {
    let found = SWITCHES.iter().find_map(|(letter, name, value)| value.filter(|_| *letter == switch).map(|value| (*name, value)));
    settings.extend(found.map(|(name, value)| (name.to_owned(), value.to_owned())));
    found.is_some() || IGNORED[0].contains(switch)
}

type Set = Result<Vec<(String, String)>, OptionsError>;

/// Returns a switch's settings; `None`: unknown switch or value.
fn set_by(switch: char, value: &str) -> Option<Set> {
    let one = |name: &str, value: &str| Some(Ok(vec![(name.to_owned(), value.to_owned())]));
    match switch {
        'c' | '-' => Some(assignment(switch, value)),
        'd' => Some(Ok(debugging(value))),
        'f' => PLANS.iter().find(|(plan, _)| *plan == value).and_then(|(_, name)| one(name, "false")),
        't' => STATISTICS.iter().find(|(begin, _)| value.starts_with(begin)).and_then(|(_, name)| one(name, "true")),
        _ if IGNORED[1].contains(switch) => Some(Ok(Vec::new())),
        _ => SWITCHES.iter().find(|(letter, _, _)| *letter == switch).and_then(|(_, name, _)| one(name, value)),
    }
}

fn assignment(switch: char, text: &str) -> Set {
    let Some((name, value)) = text.split_once('=') else {
        let before = if switch == 'c' { "-c " } else { "--" };
        return Err(OptionsError::NoValue(format!("{before}{text}")));
    };
    Ok(vec![(name.replace('-', "_"), value.to_owned())])
}

/// Source: `set_debug_options` in postgres.c.
fn debugging(level: &str) -> Vec<(String, String)> {
    const MORE: [(i64, &str, &str); 4] = [
        (2, "log_statement", "all"),
        (3, "debug_print_parse", "true"),
        (4, "debug_print_plan", "true"),
        (5, "debug_print_rewritten", "true"),
    ];
    let digits = level
        .trim_start()
        .bytes()
        .take_while(u8::is_ascii_digit)
        .fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 31));
    let messages = if digits > 0 { format!("debug{digits}") } else { "notice".to_owned() };
    let more =
        MORE.iter().filter(|(least, _, _)| digits >= *least).map(|(_, name, value)| ((*name).to_owned(), (*value).to_owned()));
    std::iter::once(("log_min_messages".to_owned(), messages)).chain(more).collect()
}

/// Splits at white space; a backslash escapes the next character.
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
        let FirstPacket::Startup(startup) = first else { panic!() };
        assert_eq!(startup.get("user"), Some("joe"));
        assert_eq!(startup.protocol_options, ["_pq_.x"]);
        let names: Vec<&str> = startup.parameters.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["user", "database"], "an extension of the protocol is no parameter");
        assert_eq!(read_first(&packet(SSL, b"")).unwrap().unwrap().0, FirstPacket::Ssl);
        assert_eq!(read_first(&packet(GSSENC, b"")).unwrap().unwrap().0, FirstPacket::GssEnc);
        let cancel = FirstPacket::Cancel { pid: 7, key: vec![1, 2, 3, 4], bearer: CancelSender::Client };
        assert_eq!(read_first(&packet(CANCEL, b"\0\0\0\x07\x01\x02\x03\x04")).unwrap().unwrap().0, cancel);
        assert_eq!(read_first(&packet(2 << 16, b"x")).unwrap().unwrap().0, FirstPacket::Unsupported(ProtocolVersion(2 << 16)));
    }

    #[test]
    fn a_long_name_ends_between_two_characters() {
        let (letters, accents) = ("a".repeat(70), "é".repeat(40));
        let cases =
            [("joe", "joe"), (&letters[..63], &letters[..63]), (&letters, &letters[..63]), (&accents, &accents[..62]), ("", "")];
        cases.into_iter().for_each(|(name, expected)| assert_eq!(cut_name(name), expected));
    }

    #[test]
    fn malformed_first_packets_are_refused() {
        assert_eq!(read_first(b"\0\0"), Ok(None));
        assert_eq!(read_first(b"\0\0\0\x07"), Err(StartupError::BadLength { length: 7 }));
        assert_eq!(read_first(b"\0\0\x27\x15"), Err(StartupError::BadLength { length: 10_005 }));
        assert_eq!(read_first(b"\0\0\x27\x14"), Ok(None), "the longest there may be");
        assert_eq!(read_first(&packet(3 << 16, b"user\0joe\0")), Err(StartupError::BadLayout));
        // A server looks at no last byte.
        let named = read_first(&packet(3 << 16, b"user\0joe\0x"));
        assert_eq!(named, read_first(&packet(3 << 16, b"user\0joe\0\0")));
        assert!(named.is_ok());
        assert_eq!(read_first(&packet(3 << 16, b"user\0joe\0\0x")), Err(StartupError::BadLayout));
        for list in [&b"user\0\xff\0\0"[..], b"user\0joe\0\xff\0x\0\0", b"application_name\0\xff\0search_path\0\xff\0\0"] {
            assert_eq!(read_first(&packet(3 << 16, list)), Err(StartupError::NotUtf8));
        }
        assert_eq!(read_first(&packet(CANCEL, b"\0\0\0\x07")), Err(StartupError::BadCancel));
    }

    #[test]
    fn an_application_may_have_a_name_in_any_bytes() {
        for (name, expected) in [(&b"caf\xe9"[..], r"caf\xe9"), (b"caf\xc3\xa9", "caf\u{e9}"), (b"\t\xff\x7f~", r"\x09\xff\x7f~")]
        {
            let list = [b"user\0jo\xc3\xa9\0application_name\0", name, b"\0_pq_.\xff\0\xfe\0database\0d\0\0"].concat();
            let (FirstPacket::Startup(startup), _) = read_first(&packet(3 << 16, &list)).unwrap().unwrap() else { panic!() };
            let of = ["user", "application_name", "database"].map(|name| startup.get(name).unwrap());
            assert_eq!(of, ["jo\u{e9}", expected, "d"]);
            assert_eq!(startup.protocol_options.len(), 1);
        }
    }

    #[test]
    fn options_become_settings() {
        let settings = split_options(r"-c a.b=1  --work-mem=4MB -cx=a\ b").unwrap();
        let expected = [("a.b", "1"), ("work_mem", "4MB"), ("x", "a b")];
        assert_eq!(settings, expected.map(|(n, v)| (n.to_string(), v.to_string())));
        let settings = split_options("-eS 4MB -fs -f t -tpl -sd2 -D x -F").unwrap();
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
        assert_eq!(
            settings,
            "datestyle=euro work_mem=4MB enable_seqscan=false enable_tidscan=false log_planner_stats=true \
             log_statement_stats=true log_min_messages=debug2 log_statement=all fsync=false"
        );
        let unknown = |word: &str| Err(OptionsError::Unknown(word.to_string()));
        assert_eq!(split_options("-W 3"), Err(OptionsError::Unsupported("-W".to_string())));
        assert_eq!(split_options("-c a"), Err(OptionsError::NoValue("-c a".to_string())));
        assert_eq!(split_options("-e x"), unknown("x"));
        assert_eq!(split_options("-Z"), unknown("-Z"));
        assert_eq!(split_options("-fz"), unknown("-fz"));
        assert_eq!(split_options("-S"), unknown("-S"));
    }
}
