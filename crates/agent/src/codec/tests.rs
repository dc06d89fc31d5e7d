use super::*;

fn source() -> SourceServer {
    SourceServer {
        host: Host::new("10.0.0.2").unwrap(),
        port: 5433,
        user: UserName::new("o'neil").unwrap(),
        dbname: DatabaseName::new("postgres").unwrap(),
    }
}

fn deeds() -> Vec<OrderAction> {
    let slot = Some(SlotName::new("weir_0").unwrap());
    let words = vec![
        (ConninfoKeyword::APPLICATION_NAME, WordValue::new("server0").unwrap()),
        (ConninfoKeyword::MARK, WordValue::new("weir/3.7").unwrap()),
    ];
    let follow = StandbyUpstream { host: source().host, port: 1, user: source().user, slot, words };
    let copy =
        |log_keeper, checkpoint| OrderAction::BaseBackup(BaseBackup { source: source(), log_keeper, checkpoint, limit_ms: 7 });
    vec![
        OrderAction::Stop { mode: ServerStopMode::Fast, limit_ms: 1, started_at: None },
        OrderAction::Stop { mode: ServerStopMode::Immediate, limit_ms: u32::MAX, started_at: Some(1_800_000_000) },
        OrderAction::Start { limit_ms: 60_000 },
        OrderAction::Restart { limit_ms: 60_000, started_at: 1_800_000_000 },
        OrderAction::Follow(StandbyUpstream { slot: None, words: Vec::new(), ..follow.clone() }),
        OrderAction::Follow(follow),
        OrderAction::Rewind(RewindAction { source: source(), limit_ms: 5 }),
        copy(LogKeeper::Standby, BackupCheckpoint::Fast),
        copy(LogKeeper::Copy, BackupCheckpoint::Spread),
    ]
}

fn requests() -> Vec<AgentRequest> {
    let order = |(at, deed)| AgentRequest::Order(AgentOrder { id: OrderId(at as u64), deed });
    deeds().into_iter().enumerate().map(order).chain([AgentRequest::Status]).collect()
}

fn answers() -> Vec<AgentAnswer> {
    let job = |kind| JobView { id: OrderId(3), kind, since_ms: 4, progress: OrderProgress { done_bytes: 5, total_bytes: 6 } };
    let control = |state| ControlFile {
        system_identifier: u64::MAX,
        state,
        major: 15,
        timeline: 2,
        checkpoint: 3,
        redo: 4,
        recovery_end: 5,
        recovery_timeline: 6,
        can_rewind: true,
    };
    let bare = AgentStatus {
        server: ServerStatus::Stopped,
        data: DataDirectoryState::Whole,
        control: None,
        has_standby_signal: false,
        mark: None,
        slot: None,
        job: None,
        last: None,
    };
    let running = |step| ServerStatus::Running(Postmaster { pid: 1, started_at: 2, port: 3, step });
    let finished = |kind, outcome| Some(FinishedOrder { id: OrderId(9), kind, outcome });
    let status = |status| AgentAnswer::Status(Box::new(status));
    let mut all =
        vec![AgentAnswer::Done, AgentAnswer::Progress(OrderProgress { done_bytes: 1, total_bytes: 2 }), status(bare.clone())];
    all.extend(STEPS.map(|step| {
        status(AgentStatus {
            server: running(step),
            has_standby_signal: true,
            mark: WordValue::new("weir/3.7").ok(),
            ..bare.clone()
        })
    }));
    all.push(status(AgentStatus { slot: SlotName::new("standby_1").ok(), ..bare.clone() }));
    all.extend(DATA.map(|data| status(AgentStatus { data, ..bare.clone() })));
    all.extend(ClusterState::ALL.map(|state| status(AgentStatus { control: Some(control(state)), ..bare.clone() })));
    all.extend(KINDS.map(|kind| status(AgentStatus { job: Some(job(kind)), last: finished(kind, Ok(())), ..bare.clone() })));
    all.extend(KINDS.map(|kind| AgentAnswer::Busy(job(kind))));
    all.extend(FAILURES.map(|kind| AgentAnswer::Failed(OrderFailure::new(kind, "no room"))));
    let failure = OrderFailure::new(OrderFailureKind::Late, "x");
    all.push(status(AgentStatus { last: finished(OrderKind::Start, Err(failure)), ..bare }));
    all
}

#[test]
fn all_that_is_written_is_read_back() {
    for request in requests() {
        let mut out = Vec::new();
        write_request(&mut out, &request);
        assert_eq!(read_request(&out), Ok(request));
    }
    for answer in answers() {
        let mut out = Vec::new();
        write_answer(&mut out, &answer);
        assert_eq!(read_answer(&out), Ok(answer));
    }
}

#[test]
fn a_part_of_a_message_and_more_than_one_are_refused() {
    for request in requests() {
        let mut out = Vec::new();
        write_request(&mut out, &request);
        for end in 0..out.len() {
            assert_eq!(read_request(&out[..end]), Err(AgentMessageError::Short), "{request:?}");
        }
        out.push(0);
        assert_eq!(read_request(&out), Err(AgentMessageError::Long(1)));
    }
    for answer in answers() {
        let mut out = Vec::new();
        write_answer(&mut out, &answer);
        for end in 0..out.len() {
            assert_eq!(read_answer(&out[..end]), Err(AgentMessageError::Short), "{answer:?}");
        }
    }
}

#[test]
fn odd_texts_are_refused_wherever_they_stand() {
    for (deed, text) in deeds().iter().flat_map(|deed| ["10.0.0.2", "o'neil", "weir_0", "weir/3.7"].map(|text| (deed, text))) {
        let mut out = Vec::new();
        write_request(&mut out, &AgentRequest::Order(AgentOrder { id: OrderId(1), deed: deed.clone() }));
        let Some(at) = out.windows(text.len()).position(|bytes| bytes == text.as_bytes()) else { continue };
        for odd in [b'\n', b'\r', 0, 0x7f, 0xff] {
            let mut changed = out.clone();
            changed[at + 1] = odd;
            assert!(read_request(&changed).is_err(), "{text} with {odd} in {deed:?}");
        }
        out[at] = b'-';
        assert!(read_request(&out).is_err(), "an option in place of {text}");
    }
}

#[test]
fn a_failure_is_one_line_of_bounded_length() {
    let failure = OrderFailure::new(OrderFailureKind::Other, format!("a\nb\u{1b}[1m{}", "ä".repeat(FAILURE_BYTES_MAX)));
    assert!(failure.text.starts_with("a b [1m"));
    assert!(failure.text.len() <= FAILURE_BYTES_MAX);
}
