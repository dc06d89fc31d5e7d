use super::*;

fn source() -> Source {
    Source {
        host: Host::new("10.0.0.2").unwrap(),
        port: 5433,
        user: UserName::new("o'neil").unwrap(),
        dbname: DatabaseName::new("postgres").unwrap(),
    }
}

fn deeds() -> Vec<Deed> {
    let slot = Some(SlotName::new("weir_0").unwrap());
    let words =
        vec![(Word::APPLICATION_NAME, WordValue::new("server0").unwrap()), (Word::MARK, WordValue::new("weir/3.7").unwrap())];
    let follow = Follow { host: source().host, port: 1, user: source().user, slot, words };
    let copy = |log_keeper, checkpoint| Deed::BaseBackup(BaseBackup { source: source(), log_keeper, checkpoint, limit_ms: 7 });
    vec![
        Deed::Stop { mode: StopMode::Fast, limit_ms: 1, started_at: None },
        Deed::Stop { mode: StopMode::Immediate, limit_ms: u32::MAX, started_at: Some(1_800_000_000) },
        Deed::Start { limit_ms: 60_000 },
        Deed::Restart { limit_ms: 60_000, started_at: 1_800_000_000 },
        Deed::Follow(Follow { slot: None, words: Vec::new(), ..follow.clone() }),
        Deed::Follow(follow),
        Deed::Rewind(Rewind { source: source(), limit_ms: 5 }),
        copy(LogKeeper::Standby, Checkpoint::Fast),
        copy(LogKeeper::Copy, Checkpoint::Spread),
    ]
}

fn requests() -> Vec<Request> {
    let order = |(at, deed)| Request::Order(Order { id: OrderId(at as u64), deed });
    deeds().into_iter().enumerate().map(order).chain([Request::Status]).collect()
}

fn answers() -> Vec<Answer> {
    let job = |kind| JobView { id: OrderId(3), kind, since_ms: 4, progress: Progress { done_bytes: 5, total_bytes: 6 } };
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
    let bare = Status {
        server: ServerStatus::Stopped,
        data: Data::Whole,
        control: None,
        has_standby_signal: false,
        mark: None,
        slot: None,
        job: None,
        last: None,
    };
    let running = |step| ServerStatus::Running(Postmaster { pid: 1, started_at: 2, port: 3, step });
    let finished = |kind, outcome| Some(Finished { id: OrderId(9), kind, outcome });
    let status = |status| Answer::Status(Box::new(status));
    let mut all = vec![Answer::Done, Answer::Progress(Progress { done_bytes: 1, total_bytes: 2 }), status(bare.clone())];
    all.extend(STEPS.map(|step| {
        status(Status { server: running(step), has_standby_signal: true, mark: WordValue::new("weir/3.7").ok(), ..bare.clone() })
    }));
    all.push(status(Status { slot: SlotName::new("standby_1").ok(), ..bare.clone() }));
    all.extend(DATA.map(|data| status(Status { data, ..bare.clone() })));
    all.extend(ClusterState::ALL.map(|state| status(Status { control: Some(control(state)), ..bare.clone() })));
    all.extend(KINDS.map(|kind| status(Status { job: Some(job(kind)), last: finished(kind, Ok(())), ..bare.clone() })));
    all.extend(KINDS.map(|kind| Answer::Busy(job(kind))));
    all.extend(FAILURES.map(|kind| Answer::Failed(Failure::new(kind, "no room"))));
    let failure = Failure::new(FailureKind::Late, "x");
    all.push(status(Status { last: finished(Kind::Start, Err(failure)), ..bare }));
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
            assert_eq!(read_request(&out[..end]), Err(Malformed::Short), "{request:?}");
        }
        out.push(0);
        assert_eq!(read_request(&out), Err(Malformed::Long(1)));
    }
    for answer in answers() {
        let mut out = Vec::new();
        write_answer(&mut out, &answer);
        for end in 0..out.len() {
            assert_eq!(read_answer(&out[..end]), Err(Malformed::Short), "{answer:?}");
        }
    }
}

#[test]
fn odd_texts_are_refused_wherever_they_stand() {
    for (deed, text) in deeds().iter().flat_map(|deed| ["10.0.0.2", "o'neil", "weir_0", "weir/3.7"].map(|text| (deed, text))) {
        let mut out = Vec::new();
        write_request(&mut out, &Request::Order(Order { id: OrderId(1), deed: deed.clone() }));
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
    let failure = Failure::new(FailureKind::Other, format!("a\nb\u{1b}[1m{}", "ä".repeat(FAILURE_BYTES_MAX)));
    assert!(failure.text.starts_with("a b [1m"));
    assert!(failure.text.len() <= FAILURE_BYTES_MAX);
}
