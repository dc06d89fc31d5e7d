use super::*;

/// Bytes as a string with escapes.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Packets of Pgpool-II 4.3.5's own clients, and of 4.7's for what they add.
const REQUESTS: [(&[u8], PcpRequest); 29] = [
    (b"M\0\0\0\x04", PcpRequest::Salt),
    (b"L\0\0\0\x04", PcpRequest::NodeCount),
    (b"I\0\0\0\x07-1\0", PcpRequest::NodeInfo(-1)),
    (b"I\0\0\0\x067\0", PcpRequest::NodeInfo(7)),
    (b"H\0\0\0\x060\0", PcpRequest::HealthCheckStats(0)),
    (b"N\0\0\0\x04", PcpRequest::ProcessCount),
    (b"P\0\0\0\x060\0", PcpRequest::ProcessInfo(0)),
    (b"P\0\0\0\x0712\0", PcpRequest::ProcessInfo(12)),
    (b"W\0\0\0\x07-1\0", PcpRequest::WatchdogInfo(-1)),
    (b"B\0\0\0\x04", PcpRequest::PoolStatus),
    (b"C\0\0\0\x061\0", PcpRequest::Attach(1)),
    (b"D\0\0\0\x061\0", PcpRequest::Detach(1, DrainMode::Now)),
    (b"d\0\0\0\x061\0", PcpRequest::Detach(1, DrainMode::Gracefully)),
    (b"J\0\0\0\x081 \0n", PcpRequest::Promote(1, DrainMode::Now, PromotionKind::Name)),
    (b"J\0\0\0\x081 \0s", PcpRequest::Promote(1, DrainMode::Now, PromotionKind::Switchover)),
    (b"j\0\0\0\x081 \0s", PcpRequest::Promote(1, DrainMode::Gracefully, PromotionKind::Switchover)),
    (b"O\0\0\0\x063\0", PcpRequest::Recover(3)),
    (b"T\0\0\0\x05s", PcpRequest::Stop(PcpShutdownMode::Smart, CommandScope::Local)),
    (b"T\0\0\0\x05f", PcpRequest::Stop(PcpShutdownMode::Fast, CommandScope::Local)),
    (b"T\0\0\0\x05i", PcpRequest::Stop(PcpShutdownMode::Immediate, CommandScope::Local)),
    (b"t\0\0\0\x05f", PcpRequest::Stop(PcpShutdownMode::Fast, CommandScope::Cluster)),
    (b"Z\0\0\0\x05l", PcpRequest::Reload(CommandScope::Local)),
    (b"Z\0\0\0\x05c", PcpRequest::Reload(CommandScope::Cluster)),
    (b"V\0\0\0\x05l", PcpRequest::RotateLog(CommandScope::Local)),
    (b"V\0\0\0\x05c", PcpRequest::RotateLog(CommandScope::Cluster)),
    (b"G\0\0\0\x04", PcpRequest::InvalidateQueryCache),
    (b"F\0\0\0\x04", PcpRequest::StopRecovery),
    (b"X\0\0\0\x04", PcpRequest::End),
    (b"W\0\0\0\x060\0", PcpRequest::WatchdogInfo(0)),
];

/// Requests that only Weir has.
const OWN: [(&[u8], PcpRequest); 8] = [
    (b"K\0\0\0\x061\0", PcpRequest::Restart(1)),
    (b"U\0\0\0\x04", PcpRequest::UpgradeWalk),
    (b"Y\0\0\0\x04", PcpRequest::WatchdogStatus),
    (b"Q\0\0\0\x072\0a", PcpRequest::WatchdogChange(WatchdogChange::Add, 2)),
    (b"Q\0\0\0\x072\0r", PcpRequest::WatchdogChange(WatchdogChange::Remove, 2)),
    (b"Q\0\0\0\x072\0l", PcpRequest::WatchdogChange(WatchdogChange::Lead, 2)),
    (b"Q\0\0\0\x070\0f", PcpRequest::WatchdogChange(WatchdogChange::Form, 0)),
    (b"Q\0\0\0\x070\0F", PcpRequest::WatchdogChange(WatchdogChange::FormByForce, 0)),
];

#[test]
fn requests_are_those_of_pgpools_clients_and_some_of_ours() {
    for (bytes, request) in REQUESTS.iter().chain(&OWN) {
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(shown(&out), shown(bytes), "{request:?}");
        let PcpPacket { tag, body, used } = read(bytes, REQUEST_LENGTH_MAX).unwrap().unwrap();
        assert_eq!((PcpRequest::read(tag, body).as_ref(), used), (Ok(request), bytes.len()));
    }
    let mut out = Vec::new();
    let login = PcpRequest::Login { user: b"admin".to_vec(), answer: proof(b"secret", b"admin", *b"abcd").to_vec() };
    login.write(&mut out);
    assert_eq!(shown(&out), r"R\x00\x00\x00+admin\x00c3339676c5970e069f0d5dbd5ec4022c\x00");
    assert_eq!(PcpRequest::read(b'R', &out[HEADER_BYTES..]), Ok(login));
    let set = PcpRequest::Set { name: b"client_min_messages".to_vec(), value: b"debug1".to_vec() };
    assert_eq!(PcpRequest::read(b'A', b"client_min_messages\0debug1\0"), Ok(set));
    assert_eq!(
        PcpRequest::read(b'J', b"1\0"),
        Ok(PcpRequest::Promote(1, DrainMode::Now, PromotionKind::Name)),
        "of a release before 4.3"
    );
}

#[test]
fn requests_of_ours_and_their_answers_have_letters_of_their_own() {
    // Letters of pcp_worker.c, and S, which asked old releases for the system database.
    const PGPOOLS: &[u8] = b"ABCDFGHIJLMNOPRSTVWXZdjt";
    for (_, own) in OWN {
        assert!(!PGPOOLS.contains(&own.tag()), "{own:?}");
        assert!(REQUESTS.iter().all(|(_, theirs)| theirs.reply_tag() != own.reply_tag()), "{own:?}");
        assert_eq!(PcpReply::read(own.reply_tag(), b"CommandComplete\0"), Ok(PcpReply::done(own.reply_tag())));
    }
}

#[test]
fn what_is_no_request_is_named_and_only_some_of_it_ends_the_connection() {
    for (tag, body, expected) in [
        (b'q', b"".as_slice(), "fatal: unknown PCP packet type \"q\""),
        (b'\0', b"", "fatal: unknown PCP packet type \"\\x00\""),
        (b'I', b"", "fatal: malformed PCP packet of type \"I\""),
        (b'K', b"", "fatal: malformed PCP packet of type \"K\""),
        (b'I', b"1", "fatal: malformed PCP packet of type \"I\""),
        (b'R', b"admin\0", "fatal: malformed PCP packet of type \"R\""),
        (b'R', b"admin\0c3339676c5970e069f0d5dbd5ec4022cc\0", "fatal: malformed PCP packet of type \"R\""),
        (b'T', b"", "fatal: malformed PCP packet of type \"T\""),
        (b'A', b"a\0b", "fatal: malformed PCP packet of type \"A\""),
        (b'I', b"x\0", "\"x\" is not a number"),
        (b'I', b"\0", "\"\" is not a number"),
        (b'I', b"1x\0", "\"1x\" is not a number"),
        (b'C', b"99999999999\0", "\"99999999999\" is not a number"),
        (b'T', b"q", "invalid shutdown mode \"q\""),
        (b'Z', b"x", "invalid scope \"x\""),
        (b'J', b"1 \0x", "invalid kind of promotion \"x\""),
    ] {
        let error = PcpRequest::read(tag, body).unwrap_err();
        let fatal = if error.is_fatal() { "fatal: " } else { "" };
        assert_eq!(format!("{fatal}{error}"), expected, "{}", shown(body));
    }
}

#[test]
fn a_packet_is_read_when_all_of_it_is_here_and_its_length_is_bounded() {
    for short in 0..7 {
        assert_eq!(read(&b"I\0\0\0\x067\0"[..short], REQUEST_LENGTH_MAX), Ok(None), "{short}");
    }
    for (bytes, length) in [(b"M\0\0\0\x03", 3), (b"M\0\0\0\0", 0), (b"M\0\0\x01\x04", 260), (b"GET /", 0x4554_202f)] {
        assert_eq!(read(bytes, REQUEST_LENGTH_MAX), Err(PcpError::Length(length)));
    }
    assert_eq!(read(b"M\0\0\x01\x03", REQUEST_LENGTH_MAX), Ok(None));
}

#[test]
fn answers_are_those_of_pgpools_server() {
    let words = |tag, code, strings: &[&str]| PcpReply::of(tag, code, strings);
    for (reply, expected) in [
        (PcpReply::Salt(*b"abcd"), r"m\x00\x00\x00\x08abcd"),
        (words(b'r', PcpReplyCode::LoggedIn, &[]), r"r\x00\x00\x00\x15AuthenticationOK\x00"),
        (words(b'l', PcpReplyCode::Done, &["2"]), r"l\x00\x00\x00\x16CommandComplete\x002\x00"),
        (words(b'i', PcpReplyCode::Count, &["2"]), r"i\x00\x00\x00\x10ArraySize\x002\x00"),
        (PcpReply::binary_count(b'b', 152), r"b\x00\x00\x00\x12ArraySize\x00\x00\x00\x00\x98"),
        (
            words(b'b', PcpReplyCode::Parameter, &["port", "1", "the port"]),
            r#"b\x00\x00\x00\"ProcessConfig\x00port\x001\x00the port\x00"#,
        ),
        (words(b'n', PcpReplyCode::Done, &["1", "22"]), r"n\x00\x00\x00\x19CommandComplete\x001\x0022\x00"),
        (PcpReply::done(b'c'), r"c\x00\x00\x00\x14CommandComplete\x00"),
        (
            PcpReply::Error(PcpReport::new(PcpSeverity::Error, "informing node info failed").detail("Invalid node ID : 7")),
            r"E\x00\x00\x00LSERROR\x00CXX000\x00Minforming node info failed\x00DInvalid node ID : 7\x00Fpcp\x00L1\x00\x00",
        ),
        (
            PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, "Done so far")),
            r"N\x00\x00\x00)SNOTICE\x00CXX000\x00Mdone so far\x00Fpcp\x00L1\x00\x00",
        ),
    ] {
        let mut out = Vec::new();
        reply.write(&mut out);
        assert_eq!(shown(&out), expected);
        let PcpPacket { tag, body, used } = read(&out, REPLY_LENGTH_MAX).unwrap().unwrap();
        assert_eq!(used, out.len());
        let mut again = Vec::new();
        PcpReply::read(tag, body).unwrap().write(&mut again);
        assert_eq!(again, out, "{reply:?}");
    }
    assert_eq!(words(b'l', PcpReplyCode::Done, &["a\0b", ""]).strings(), ["a", ""], "a zero byte ends a string");
}

#[test]
fn an_error_of_pgpools_is_read() {
    let body = b"SFATAL\0CXX000\0Mauthentication failed for user \"nobody\"\0Dusername and/or password does not match\0Fpcp_worker.c\0L517\0\0";
    let fault = PcpReport {
        severity: "FATAL".into(),
        message: "authentication failed for user \"nobody\"".into(),
        detail: "username and/or password does not match".into(),
    };
    assert_eq!(PcpReply::read(b'E', body), Ok(PcpReply::Error(fault)));
    assert_eq!(PcpReply::read(b'E', b"Mcut"), Ok(PcpReply::Error(PcpReport::default())));
}

#[test]
fn answers_that_are_none_are_refused() {
    for (tag, body) in [(b'm', b"abc".as_slice()), (b'l', b"CommandComplete"), (b'l', b""), (b'i', b"Nonsense\0")] {
        assert!(PcpReply::read(tag, body).is_err(), "{}", shown(body));
    }
}

fn node() -> NodeInfo {
    NodeInfo {
        hostname: "127.0.0.1".into(),
        port: 5432,
        status: NodeStatus::Quarantined,
        pg_status: "up".into(),
        weight: 0.5,
        role: NodeRole::Standby,
        pg_role: "standby".into(),
        delay: StandbyDelay::Micros(1_500_000),
        replication_state: "streaming".into(),
        replication_sync_state: "async".into(),
        changed_at_s: 1_795_596_358,
    }
}

#[test]
fn a_node_has_the_strings_of_each_release() {
    for (layout, expected) in [
        ("4.3.0", "127.0.0.1 5432 3 up 1073741823.500000 3 standby 1500000 streaming async 1795596358"),
        ("4.3", "127.0.0.1 5432 3 1 up 1073741823.500000 3 standby 1500000 streaming async 1795596358"),
        ("4.4", "127.0.0.1 5432 3 1 up 1073741823.500000 3 standby 1 1500000 streaming async 1795596358"),
        ("4.7", "127.0.0.1 5432 3 1 up 1073741823.500000 3 standby 1 1500000 streaming async 1795596358"),
    ] {
        let strings = node().strings(PcpLayout::of_word(layout).unwrap());
        assert_eq!(strings.join(" "), expected, "{layout}");
        let read = NodeInfo::read(&strings).unwrap();
        let is_known = |from: &str| layout >= from;
        let status = if is_known("4.3") && layout != "4.3.0" { NodeStatus::Quarantined } else { NodeStatus::Down };
        let delay = if is_known("4.4") { StandbyDelay::Micros(1_500_000) } else { StandbyDelay::Bytes(1_500_000) };
        assert_eq!(read, NodeInfo { status, delay, ..node() }, "{layout}");
    }
    assert_eq!(PcpLayout::of_word("4.2"), None);
    let process: Vec<usize> =
        PcpLayout::WORDS.iter().filter_map(|word| PcpLayout::of_word(word)).map(PcpLayout::process_strings).collect();
    assert_eq!(process, [17, 17, 17, 18, 18, 21]);
}

#[test]
fn strings_that_are_no_node_are_refused() {
    let good = node().strings(PcpLayout::V4_7);
    assert!(NodeInfo::read(&good[..10]).is_none() && NodeInfo::read(&[]).is_none());
    for at in [1, 2, 5, 6, 9, 12] {
        let mut bad = good.clone();
        bad[at] = "x".into();
        assert!(NodeInfo::read(&bad).is_none(), "string {at}");
    }
    let mut bad = good;
    bad[6] = "4".into();
    assert!(NodeInfo::read(&bad).is_none(), "there are four roles");
}

#[test]
fn a_password_is_proven_as_pgpool_does_it() {
    // pg_md5 of Pgpool-II 4.3.5.
    let stored = StoredDigest::parse(b"5EBE2294ECD0E0F08EAB7690D2A6EE69").unwrap();
    assert_eq!(stored.text(), StoredDigest::of_password(b"secret").text());
    let answer = proof(b"secret", b"admin", *b"abcd");
    assert_eq!(shown(&answer), "c3339676c5970e069f0d5dbd5ec4022c", "as pcp_node_count sends it");
    assert!(stored.verify(b"admin", *b"abcd", &answer));
    for (user, salt, answer) in [
        (b"admin".as_slice(), *b"abce", answer.as_slice()),
        (b"other", *b"abcd", &answer),
        (b"admin", *b"abcd", &answer[..31]),
        (b"admin", *b"abcd", b""),
    ] {
        assert!(!stored.verify(user, salt, answer));
    }
    for text in ["", "5ebe2294ecd0e0f08eab7690d2a6ee6", "5ebe2294ecd0e0f08eab7690d2a6ee6x", "md55ebe2294ecd0e0f08eab7690d2a6ee69"]
    {
        assert!(StoredDigest::parse(text.as_bytes()).is_none(), "{text}");
    }
    assert_eq!(format!("{stored:?}"), "*****");
}
