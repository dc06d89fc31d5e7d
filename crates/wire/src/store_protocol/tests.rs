//! Requests are written as the stores' manuals say. Replies are read whole, in parts, and when they are none.

use super::*;

const LIMIT_BYTES: usize = 1000;

/// A question as it is on the wire.
fn check_written(dialect: StoreDialect, ask: StoreRequest<'_>, expected: &str) {
    let mut out = Vec::new();
    dialect.write(ask, &mut out);
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

fn two_keys() -> Vec<Vec<u8>> {
    vec![b"a".to_vec(), b"b".to_vec()]
}

/// A reply that is read, with more behind it, and of which every part is too little.
fn check_read(dialect: StoreDialect, expect: &StoreReplyKind, bytes: &[u8], expected: &StoreReply) {
    let more = [bytes, b"next"].concat();
    let read = dialect.read(expect, &more, LIMIT_BYTES);
    assert_eq!(read, Ok(Some((expected.clone(), bytes.len()))), "{}", bytes.escape_ascii());
    for end in 0..bytes.len() {
        assert_eq!(dialect.read(expect, &bytes[..end], LIMIT_BYTES), Ok(None), "{} bytes of {}", end, bytes.escape_ascii());
    }
}

fn check_refused(dialect: StoreDialect, expect: &StoreReplyKind, bytes: &[u8]) {
    let read = dialect.read(expect, bytes, LIMIT_BYTES);
    assert!(read.is_err(), "{} is read as {read:?}", bytes.escape_ascii());
}

#[test]
fn memcached_is_asked_in_its_text_protocol() {
    let check = |ask: StoreRequest<'_>, expected: &str| check_written(StoreDialect::Memcached, ask, expected);
    check(StoreRequest::Get(&two_keys()), "get a b\r\n");
    check(StoreRequest::Set { key: b"a", bytes: b"x", seconds: 60 }, "set a 0 60 1\r\nx\r\n");
    check(StoreRequest::Set { key: b"a", bytes: b"x", seconds: 10_000_000 }, "set a 0 2592000 1\r\nx\r\n");
}

#[test]
fn redis_is_asked_in_arrays_of_strings() {
    let check = |ask: StoreRequest<'_>, expected: &str| check_written(StoreDialect::Redis, ask, expected);
    check(StoreRequest::Get(&two_keys()), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n");
    check(StoreRequest::Set { key: b"a", bytes: b"x", seconds: 0 }, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nx\r\n");
    check(
        StoreRequest::Set { key: b"a", bytes: b"x", seconds: 9 },
        "*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nx\r\n$2\r\nEX\r\n$1\r\n9\r\n",
    );
    check(StoreRequest::LogIn { user: b"", password: b"p" }, "*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n");
    check(StoreRequest::LogIn { user: b"u", password: b"p" }, "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n");
    check(StoreRequest::Nodes, "*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n");
    check(StoreRequest::Select(3), "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n");
}

#[test]
fn replies_are_read_whole() {
    use StoreDialect::{Memcached, Redis};
    let values = StoreReplyKind::Values(two_keys());
    let value = |bytes: &[u8]| Some(bytes.to_vec());
    check_read(Memcached, &values, b"END\r\n", &StoreReply::Values(vec![None, None]));
    check_read(Memcached, &values, b"VALUE b 0 4\r\nx\r\ny\r\nEND\r\n", &StoreReply::Values(vec![None, value(b"x\r\ny")]));
    check_read(
        Memcached,
        &values,
        b"VALUE a 0 0\r\n\r\nVALUE b 5 1\r\nz\r\nEND\r\n",
        &StoreReply::Values(vec![value(b""), value(b"z")]),
    );
    check_read(Memcached, &StoreReplyKind::Done, b"STORED\r\n", &StoreReply::Done);
    let large = "SERVER_ERROR object too large for cache";
    check_read(Memcached, &StoreReplyKind::Done, format!("{large}\r\n").as_bytes(), &StoreReply::Refused(large.into()));
    check_read(Redis, &values, b"*2\r\n$-1\r\n$4\r\nx\r\ny\r\n", &StoreReply::Values(vec![None, value(b"x\r\ny")]));
    check_read(Redis, &StoreReplyKind::Text, b"$4\r\na\r\nb\r\n", &StoreReply::Text("a\r\nb".into()));
    check_read(Redis, &StoreReplyKind::Text, b"-ERR no cluster\r\n", &StoreReply::Refused("ERR no cluster".into()));
    check_read(Redis, &values, b"-OOM no room\r\n", &StoreReply::Refused("OOM no room".into()));
    check_read(Redis, &StoreReplyKind::Done, b"+OK\r\n", &StoreReply::Done);
}

#[test]
fn a_refusal_comes_with_what_to_do() {
    for (words, expected) in [
        ("OOM command not allowed when used memory > 'maxmemory'.", "maxmemory-policy allkeys-lru"),
        ("SERVER_ERROR out of memory storing object", "no -M"),
        ("READONLY You can't write against a read only replica.", "It is a replica"),
        ("MISCONF Redis is configured to save RDB snapshots", "save \"\""),
        ("NOAUTH Authentication required.", "memqcache_redis_password"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "memqcache_redis_user"),
        ("NOPERM this user has no permissions to run the 'set' command", "SET"),
        ("ERR what", "own log"),
    ] {
        assert!(advice(words).contains(expected), "{words}: {}", advice(words));
    }
    assert!(is_too_large("SERVER_ERROR object too large for cache") && !is_too_large("OOM"));
}

#[test]
fn what_is_no_reply_ends_the_connection() {
    use StoreDialect::{Memcached, Redis};
    let values = StoreReplyKind::Values(two_keys());
    for bytes in [
        "VALUE c 0 1\r\nx\r\nEND\r\n",
        "VALUE a 0 1001\r\n",
        "VALUE a 0 99999999999999999999\r\n",
        "VALUE a 0 -1\r\n",
        "VALUE a 0\r\nx\r\n",
        "VALUE a 0 1\r\nxyz\r\n",
        "VALUE b 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
        "STORED\r\n",
        "ERROR\r\n",
        "\r\n",
    ] {
        check_refused(Memcached, &values, bytes.as_bytes());
    }
    check_refused(Memcached, &StoreReplyKind::Done, &[b'x'; 2000]);
    check_refused(Memcached, &StoreReplyKind::Done, b"END\r\n");
    for bytes in
        ["*3\r\n", "*2\r\n:1\r\n", "*2\r\n$1001\r\n", "*2\r\n$-2\r\n", "*99999999999999999999\r\n", "+OK\r\n", "\r\n", "?\r\n"]
    {
        check_refused(Redis, &values, bytes.as_bytes());
    }
    check_refused(Redis, &StoreReplyKind::Text, b"$1001\r\n");
    check_refused(Redis, &StoreReplyKind::Text, b"$-1\r\n");
    check_refused(Redis, &StoreReplyKind::Done, b":1\r\n");
    check_refused(Redis, &StoreReplyKind::Done, b"$1\r\nx\r\n");
}

/// Replies with bytes changed, left out and doubled, by a fixed seed: none takes the reader beyond its bytes, and none panics.
#[test]
fn no_bytes_are_too_much_for_it() {
    let seeds: [(StoreDialect, StoreReplyKind, &[u8]); 4] = [
        (StoreDialect::Memcached, StoreReplyKind::Values(two_keys()), b"VALUE a 0 3\r\nxyz\r\nVALUE b 5 1\r\nz\r\nEND\r\n"),
        (StoreDialect::Memcached, StoreReplyKind::Done, b"SERVER_ERROR out of memory\r\n"),
        (StoreDialect::Redis, StoreReplyKind::Values(two_keys()), b"*2\r\n$-1\r\n$12\r\nabcdefghijkl\r\n"),
        (StoreDialect::Redis, StoreReplyKind::Done, b"-ERR what\r\n"),
    ];
    let mut state = 1_u64;
    let mut dice = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let (mut whole, mut none) = (0, 0);
    for round in 0..40_000 {
        let (dialect, expect, seed) = &seeds[round % seeds.len()];
        let mut bytes = seed.to_vec();
        for _ in 0..=dice(3) {
            let at = dice(bytes.len());
            match dice(4) {
                0 if !bytes.is_empty() => bytes[at] = dice(256) as u8,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => bytes.insert(at, *b"0123456789\r\n -".get(dice(14)).unwrap()),
                _ => bytes.truncate(at),
            }
        }
        match dialect.read(expect, &bytes, LIMIT_BYTES) {
            Ok(Some((_, taken))) => {
                assert!(taken <= bytes.len());
                whole += 1;
            }
            Ok(None) | Err(_) => none += 1,
        }
    }
    assert!(whole > 1000 && none > 1000, "{whole} were replies, {none} were none");
}
