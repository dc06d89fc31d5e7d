//! Protocols of a result store, memcached or Redis: one reply per request, in order.
//!
//! Replies are untrusted: sizes are bounded, and a malformed reply ends the connection.

mod memcached;
mod redis;

#[cfg(test)]
mod tests;

const LINE_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDialect {
    Memcached,
    Redis,
}

/// Keys are letters, digits and colons, at most 250 bytes, as memcached requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreRequest<'a> {
    Get(&'a [Vec<u8>]),
    /// `seconds` 0: no limit.
    Set {
        key: &'a [u8],
        bytes: &'a [u8],
        seconds: u64,
    },
    LogIn {
        user: &'a [u8],
        password: &'a [u8],
    },
    Select(u32),
    Nodes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReplyKind {
    Values(Vec<Vec<u8>>),
    Text,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// In the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    Text(String),
    Done,
    /// The store's words: no room, too large.
    Refused(String),
}

/// Malformed: the connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LongLine,
    #[error("a value of {bytes} bytes, the limit is {limit_bytes}")]
    Large { bytes: u64, limit_bytes: usize },
    #[error("unexpected \"{0}\"")]
    Unexpected(String),
}

impl StoreDialect {
    pub fn write(self, ask: StoreRequest<'_>, out: &mut Vec<u8>) {
        match self {
            StoreDialect::Memcached => memcached::write(ask, out),
            StoreDialect::Redis => redis::write(ask, out),
        }
    }

    /// Reads a reply and its size; `None` while incomplete.
    pub fn read(
        self,
        expect: &StoreReplyKind,
        bytes: &[u8],
        limit_bytes: usize,
    ) -> Result<Option<(StoreReply, usize)>, StoreError> {
        let mut reader = StoreReplyReader { bytes, at: 0, limit_bytes };
        let told = match self {
            StoreDialect::Memcached => memcached::read(expect, &mut reader)?,
            StoreDialect::Redis => redis::read(expect, &mut reader)?,
        };
        Ok(told.map(|told| (told, reader.at)))
    }
}

struct StoreReplyReader<'a> {
    bytes: &'a [u8],
    at: usize,
    limit_bytes: usize,
}

impl<'a> StoreReplyReader<'a> {
    fn line(&mut self) -> Result<Option<&'a [u8]>, StoreError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let looked = &rest[..rest.len().min(LINE_BYTES_MAX)];
        match looked.windows(2).position(|end| end == b"\r\n") {
            Some(end) => {
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            None if rest.len() >= LINE_BYTES_MAX => Err(StoreError::LongLine),
            None => Ok(None),
        }
    }

    fn block(&mut self, length: u64) -> Result<Option<&'a [u8]>, StoreError> {
        let large = StoreError::Large { bytes: length, limit_bytes: self.limit_bytes };
        let length = usize::try_from(length).ok().filter(|length| *length <= self.limit_bytes).ok_or(large)?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((block, end)) = rest.get(..length).zip(rest.get(length..length + 2)) else { return Ok(None) };
        if end != b"\r\n" {
            return Err(unexpected(end));
        }
        self.at += length + 2;
        Ok(Some(block))
    }
}

/// Advice by words of a refusal; the first match counts.
const ADVICE: &[(&str, &str)] = &[
    ("OOM", "Give it more memory, or let it drop what is asked for least: maxmemory-policy allkeys-lru"),
    ("out of memory", "Give it more memory (-m), and let it drop what is asked for least: no -M"),
    ("READONLY", "It is a replica: name the server it copies from"),
    ("MISCONF", "It cannot save to its disk: switch its persistence off (save \"\", appendonly no)"),
    ("NOAUTH", "Set memqcache_redis_password"),
    ("WRONGPASS", "See memqcache_redis_user and memqcache_redis_password"),
    ("AUTH", "See memqcache_redis_user and memqcache_redis_password"),
    ("NOPERM", "The user must be allowed AUTH, SELECT, MGET and SET on all keys of memqcache_namespace"),
    ("CLUSTERDOWN", "See CLUSTER INFO"),
    ("at no node", "See CLUSTER SLOTS"),
    ("SELECT is not allowed in cluster mode", "The user must be allowed CLUSTER"),
    ("MOVED", "The user must be allowed CLUSTER"),
    ("CROSSSLOT", "The user must be allowed CLUSTER"),
    ("no TLS", "See memqcache_sslmode and the parameters behind it, and whether the store has TLS at this port"),
    ("one of a cluster's nodes", "Give memqcache_redis_host one entry, best a name that leads to all nodes"),
];

pub fn advice(words: &str) -> &'static str {
    ADVICE.iter().find(|(sign, _)| words.contains(sign)).map_or("See the store's own log", |(_, advice)| advice)
}

pub fn is_too_large(words: &str) -> bool {
    words.contains("too large")
}

/// True if another cluster node has the key permanently.
pub fn is_moved(words: &str) -> bool {
    words.starts_with("MOVED ")
}

/// True while the key moves to another node.
pub fn is_moving(words: &str) -> bool {
    ["ASK ", "TRYAGAIN "].iter().any(|sign| words.starts_with(sign))
}

fn unexpected(bytes: &[u8]) -> StoreError {
    const SHOWN_MAX: usize = 80;
    StoreError::Unexpected(bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii().to_string())
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|letter| !letter.is_control()).collect()
}
