//! Expected replies, played as scripts.

use super::*;

/// Plays `script`: `>X` pushes, `<X` is a server's message; the outcome of each `<` is compared with the word after it.
fn check_replies(script: &str) {
    let mut replies = ReplyQueue::default();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (what, expected) = line.split_once("->").map_or((line, ""), |(a, b)| (a.trim(), b.trim()));
        if let Some(sent) = what.strip_prefix('>') {
            for word in sent.split_whitespace() {
                replies.push(expect_named(word));
            }
        } else if let Some(received) = what.strip_prefix('<') {
            let bytes = received.trim().as_bytes();
            let reply = replies.on_server(bytes[0], bytes.get(1).copied().unwrap_or(0));
            assert_eq!(reply_name(reply), expected, "at {line}");
        } else {
            let state = match what {
                "settled?" => replies.is_settled(),
                "skipping?" => replies.is_skipping(),
                "copying?" => replies.is_copying_in(),
                "bringing?" => replies.is_bringing_statement(),
                "setting?" => replies.is_setting(),
                "one query?" => replies.is_one_query(),
                other => panic!("unknown line {other}"),
            };
            assert_eq!(state.to_string(), expected, "at {line}");
        }
    }
}

fn expect_named(word: &str) -> ExpectedReply {
    match word {
        "Query" => ExpectedReply::Query,
        "QueryRefused" => ExpectedReply::QueryRefused,
        "QueryChange" => ExpectedReply::QueryChange,
        "Call" => ExpectedReply::FunctionCall,
        "Parse" => ExpectedReply::Parse,
        "CopyEnd" => ExpectedReply::CopyEnd,
        "ParseOurs" => ExpectedReply::ParseOurs,
        "Refused" => ExpectedReply::Refused,
        "Bind" => ExpectedReply::Bind,
        "Describe" => ExpectedReply::Describe,
        "DescribeTold" => ExpectedReply::DescribeTold,
        "DescribeOurs" => ExpectedReply::DescribeOurs,
        "Execute" => ExpectedReply::Execute,
        "Close" => ExpectedReply::Close,
        "CloseOurs" => ExpectedReply::CloseOurs,
        "Sync" => ExpectedReply::Sync,
        "SyncGarbled" => ExpectedReply::SyncGarbled,
        "SyncOurs" => ExpectedReply::SyncOurs,
        "Settings" => ExpectedReply::SettingsOurs,
        "Inventory" => ExpectedReply::StateOurs,
        "PrepareOurs" => ExpectedReply::PrepareOurs,
        "Statement" => ExpectedReply::StatementOurs,
        "Begin" => ExpectedReply::BeginOurs,
        "Fail" => ExpectedReply::FailOurs,
        "Number" => ExpectedReply::NumberOurs,
        "Part" => ExpectedReply::PartOurs,
        other => panic!("unknown entry {other}"),
    }
}

fn reply_name(reply: ReplyTreatment) -> String {
    match reply {
        ReplyTreatment::Pass | ReplyTreatment::PassEnd => "pass".into(),
        ReplyTreatment::PassChange => "pass change".into(),
        ReplyTreatment::Eat => "eat".into(),
        ReplyTreatment::Description { is_ours } => if is_ours { "look, eat" } else { "look, pass" }.into(),
        ReplyTreatment::Row => "row".into(),
        ReplyTreatment::OursRefused => "ours refused".into(),
        ReplyTreatment::Number => "number".into(),
        ReplyTreatment::NumberRefused => "number refused".into(),
        ReplyTreatment::PartTag => "part tag".into(),
        ReplyTreatment::PartRefused => "part refused".into(),
        ReplyTreatment::Misplaced { tag } => format!("misplaced {}", char::from(tag)),
        ReplyTreatment::BeginRefused => "begin refused".into(),
        ReplyTreatment::Ready { status, whose } => {
            format!(
                "ready {}{}",
                char::from(status),
                match whose {
                    RequestOrigin::Client | RequestOrigin::ClientSync => "",
                    RequestOrigin::ClientChange => " change",
                    RequestOrigin::Sync
                    | RequestOrigin::Settings
                    | RequestOrigin::Inventory
                    | RequestOrigin::Prepare
                    | RequestOrigin::Statement
                    | RequestOrigin::Begin
                    | RequestOrigin::Number
                    | RequestOrigin::Part
                    | RequestOrigin::Unlisten => {
                        " ours"
                    }
                }
            )
        }
        ReplyTreatment::Error(d) => {
            let mut name = "error".to_string();
            for (count, what) in [(d.changes, "changes"), (d.ours, "ours"), (d.described, "described"), (d.refused, "refused")] {
                if count > 0 {
                    name += &format!(" {what}={count}");
                }
            }
            name += match d.failed {
                FailedMessage::Parse => " parse",
                FailedMessage::Refused => " exchange",
                FailedMessage::Question => " question",
                FailedMessage::Other => "",
            };
            name + if d.rest == RemainingMessages::Discarded { " discard" } else { "" }
        }
        ReplyTreatment::SettingsRefused => "settings refused".into(),
        ReplyTreatment::Unasked => "unasked".into(),
    }
}

#[test]
fn a_simple_query_is_over_at_ready() {
    check_replies(
        "> Query
         < T -> pass
         < D -> pass
         < C -> pass
         settled? -> false
         < ZI -> ready I
         settled? -> true
         < D -> unasked",
    );
}

#[test]
fn a_begin_of_ours_is_unseen_and_one_that_is_refused_is_noticed() {
    check_replies(
        "> Begin Query
         < C -> eat
         < ZT -> ready T ours
         < C -> pass
         < ZT -> ready T
         > Begin Fail Query
         < C -> eat
         < ZT -> ready T ours
         < E -> eat
         < ZE -> ready E ours
         < E -> error
         < ZE -> ready E
         settled? -> true
         > Begin Query
         < E -> begin refused",
    );
}

#[test]
fn a_pipeline_is_answered_in_order() {
    check_replies(
        "> Parse Bind Describe Execute Sync
         < 1 -> pass change
         < 2 -> pass
         < T -> pass
         < D -> pass
         < C -> pass
         < ZT -> ready T
         > ParseOurs Bind Execute
         < 1 -> eat
         < 2 -> pass
         < s -> pass
         settled? -> false
         > Sync
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn an_error_drops_what_follows_up_to_the_sync() {
    check_replies(
        "> Parse Bind Execute ParseOurs Sync Query
         < 1 -> pass change
         < E -> error ours=1
         < ZI -> ready I
         < C -> pass
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn after_an_error_without_sync_all_is_skipped_until_it_comes() {
    check_replies(
        "> Parse Bind
         < E -> error changes=1 parse
         skipping? -> true
         > Bind Execute Query
         settled? -> false
         > Sync
         skipping? -> false
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_client_that_left_is_waited_for_only_where_answers_come_without_it() {
    let of = |script: &str| {
        let mut replies = ReplyQueue::default();
        script.split_whitespace().for_each(|word| replies.push(expect_named(word)));
        replies
    };
    for (script, unfinished, expected) in [
        ("", 0, false),
        ("Query", 0, true),
        ("Query", 1, false),
        ("Query Query", 1, true),
        ("Parse Bind Execute", 0, false),
        ("Parse Bind Execute Sync", 0, true),
        ("Parse Sync Bind", 0, true),
        ("Parse Sync Bind", 1, true),
        ("Parse Bind Query", 1, false),
        ("CopyEnd", 0, false),
    ] {
        assert_eq!(of(script).will_answer(unfinished), expected, "{script}, {unfinished} unfinished");
    }
}

#[test]
fn what_is_sent_into_a_copy_that_begins_is_misplaced() {
    check_replies(
        "> Query Query
         < G -> misplaced Q",
    );
    check_replies(
        "> Query Call
         < G -> misplaced F",
    );
    check_replies(
        "> Parse Bind Execute Sync Parse
         < 1 -> pass change
         < 2 -> pass
         < G -> misplaced P",
    );
}

#[test]
fn copy_in_swallows_the_syncs_sent_before_its_end() {
    check_replies(
        "> Parse Bind Execute Sync
         < 1 -> pass change
         < 2 -> pass
         < G -> pass
         copying? -> true
         > Sync
         < C -> pass
         copying? -> false
         > Sync
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_copy_sent_whole_in_one_pipeline_ends_at_its_own_sync() {
    check_replies(
        "> Parse Bind Execute Sync CopyEnd Sync
         < 1 -> pass change
         < 2 -> pass
         < G -> pass
         copying? -> false
         < C -> pass
         < ZI -> ready I
         settled? -> true
         > Query CopyEnd
         < G -> pass
         < C -> pass
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_copy_that_failed_before_it_began_leaves_no_trace() {
    check_replies(
        "> Query CopyEnd
         < E -> error
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_query_the_server_skips_does_not_settle_the_link() {
    check_replies(
        "> Parse Query
         < E -> error changes=1 parse
         settled? -> false
         > Sync
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn an_error_with_which_the_server_goes_is_still_owed() {
    let mut replies = ReplyQueue::default();
    replies.push(ExpectedReply::Parse);
    let ReplyTreatment::Error(dropped) = replies.on_server(back::ERROR, 0) else { panic!("an error") };
    assert!(
        dropped.rest == RemainingMessages::Skipped && replies.owed() == OwedReplies { skipping: true, ..OwedReplies::default() },
        "it was told"
    );
    replies.unskip();
    assert_eq!(replies.owed(), OwedReplies { unsynced: true, ..OwedReplies::default() });
    // A second error is none that anybody waits for.
    let mut replies = ReplyQueue::default();
    replies.push(ExpectedReply::Parse);
    replies.on_server(back::ERROR, 0);
    assert_eq!(replies.on_server(back::ERROR, 0), ReplyTreatment::Error(DroppedReplies::default()));
}

#[test]
fn a_query_behind_messages_without_a_sync_is_skipped_with_them() {
    let owed = |expects: &[ExpectedReply]| {
        let mut replies = ReplyQueue::default();
        expects.iter().for_each(|expect| replies.push(*expect));
        replies.owed()
    };
    let cut_off = OwedReplies { readies: 0, unsynced: true, skipping: false };
    assert_eq!(owed(&[ExpectedReply::Parse, ExpectedReply::Query]), cut_off);
    assert_eq!(owed(&[ExpectedReply::Parse, ExpectedReply::Query, ExpectedReply::FunctionCall, ExpectedReply::Bind]), cut_off);
    assert_eq!(
        owed(&[ExpectedReply::Parse, ExpectedReply::Query, ExpectedReply::Sync]),
        OwedReplies { readies: 1, ..OwedReplies::default() }
    );
    assert_eq!(owed(&[ExpectedReply::Query, ExpectedReply::Parse, ExpectedReply::Query]), OwedReplies { readies: 1, ..cut_off });
}

#[test]
fn a_copy_whose_sync_was_swallowed_leaves_its_transaction_open() {
    check_replies(
        "> Parse Bind Execute Sync CopyEnd
         < 1 -> pass change
         < 2 -> pass
         < G -> pass
         copying? -> false
         < C -> pass
         settled? -> false
         > Sync
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn settings_of_ours_are_eaten() {
    check_replies(
        "setting? -> false
         > Settings Query
         setting? -> true
         < S -> eat
         < C -> eat
         < ZI -> ready I ours
         setting? -> false
         < S -> pass
         < C -> pass
         < ZI -> ready I
         > Settings
         < E -> settings refused",
    );
}

#[test]
fn one_simple_query_is_told_from_more_and_from_what_has_no_sync() {
    check_replies(
        "one query? -> false
         > Settings Query
         one query? -> true
         > Query
         one query? -> false",
    );
    check_replies(
        "> Bind
         one query? -> false
         > Sync Query
         one query? -> false
         < 2 -> pass
         < ZI -> ready I
         one query? -> true",
    );
    check_replies(
        "> Bind Query
         < 2 -> pass
         one query? -> true",
    );
    // An error skips all up to a Sync, and with it the query behind.
    check_replies(
        "> Bind Query
         one query? -> false
         < E -> error
         one query? -> false",
    );
}

#[test]
fn a_query_behind_an_error_changes_nothing() {
    check_replies(
        "> Parse Parse QueryChange Sync QueryChange
         < 1 -> pass change
         < E -> error changes=2 parse
         < ZI -> ready I
         < C -> pass
         < ZI -> ready I change
         settled? -> true",
    );
}

#[test]
fn an_inventory_is_read_and_eaten() {
    check_replies(
        "> Inventory Query
         < T -> eat
         < D -> row
         < S -> eat
         < C -> eat
         < ZI -> ready I ours
         < T -> pass
         < D -> pass
         < C -> pass
         < ZI -> ready I
         > PrepareOurs
         < E -> ours refused
         < ZI -> ready I ours
         settled? -> true",
    );
}

#[test]
fn a_refused_parse_exchanges_the_error() {
    check_replies(
        "> Refused Bind Sync
         < E -> error refused=1 exchange
         < ZI -> ready I
         > QueryRefused
         < E -> error exchange
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_statement_that_is_brought_is_known_from_other_questions() {
    check_replies(
        "> Inventory Statement Query
         bringing? -> false
         < C -> eat
         < ZI -> ready I ours
         bringing? -> true
         < E -> ours refused
         < ZI -> ready I ours
         bringing? -> false
         < C -> pass
         < ZI -> ready I
         bringing? -> false",
    );
}

#[test]
fn an_error_before_our_sync_makes_us_discard() {
    check_replies(
        "> Parse Bind Execute SyncOurs
         < E -> error changes=1 parse discard
         < ZI -> ready I ours
         settled? -> true",
    );
}

#[test]
fn a_sync_that_holds_something_fails_and_ends_what_a_sync_ends() {
    check_replies(
        "> SyncGarbled Query
         < E -> error
         < ZI -> ready I
         < C -> pass
         < ZI -> ready I
         > Parse Bind SyncGarbled Parse Sync
         < E -> error changes=1 parse
         < E -> error
         < ZI -> ready I
         < 1 -> pass change
         < ZI -> ready I
         > Parse
         < E -> error changes=1 parse
         skipping? -> true
         > SyncGarbled
         skipping? -> false
         < E -> error
         < ZI -> ready I
         settled? -> true
         > Query SyncGarbled CopyEnd
         < G -> pass
         < C -> pass
         < ZI -> ready I
         settled? -> true",
    );
}

#[test]
fn a_farewell_reaches_an_idle_client() {
    check_replies(
        "< N -> pass
         < A -> pass
         < E -> error
         < ZI -> unasked",
    );
}

#[test]
fn descriptions_that_were_asked_for_are_looked_at() {
    check_replies(
        "> CloseOurs Parse DescribeOurs Bind DescribeTold Execute Sync
         < 3 -> eat
         < 1 -> pass change
         < t -> look, eat
         < T -> look, eat
         < 2 -> pass
         < t -> look, pass
         < n -> look, pass
         < C -> pass
         < ZI -> ready I
         settled? -> true
         > ParseOurs DescribeOurs SyncOurs
         < E -> error ours=1 described=1 question discard
         < ZI -> ready I ours",
    );
}

/// All orders of three entries and three messages: passed in one go they leave what they leave one by one.
#[test]
fn messages_passed_together_leave_what_they_leave_one_by_one() {
    let entries = [
        ExpectedReply::Query,
        ExpectedReply::QueryChange,
        ExpectedReply::Bind,
        ExpectedReply::Describe,
        ExpectedReply::DescribeTold,
        ExpectedReply::Execute,
        ExpectedReply::CopyEnd,
        ExpectedReply::Sync,
        ExpectedReply::StateOurs,
    ];
    let tags = [back::ROW_DESCRIPTION, back::DATA_ROW, back::COMMAND_COMPLETE, back::BIND_COMPLETE, back::NO_DATA, back::READY];
    let mut passed = 0;
    for number in 0..entries.len().pow(3) * tags.len().pow(3) {
        let (ring, said) = (number % entries.len().pow(3), number / entries.len().pow(3));
        let (mut one_by_one, mut together) = (ReplyQueue::default(), ReplyQueue::default());
        for at in 0..3 {
            let entry = entries[ring / entries.len().pow(at) % entries.len()];
            one_by_one.push(entry);
            together.push(entry);
        }
        let said: Vec<u8> = (0..3).map(|at| tags[said / tags.len().pow(at) % tags.len()]).collect();
        let bytes: Vec<u8> = said.iter().flat_map(|tag| [*tag, 0, 0, 0, 4]).collect();
        let whole = together.pass_run(&bytes, |_| true, |_, _| {}) / HEADER_BYTES;
        for tag in &said[..whole] {
            let reply = one_by_one.on_server(*tag, 0);
            assert!(matches!(reply, ReplyTreatment::Pass | ReplyTreatment::PassEnd), "{said:?}: {reply:?}");
        }
        assert_eq!(format!("{together:?}"), format!("{one_by_one:?}"), "{said:?}");
        passed += whole;
    }
    assert!(passed > 10_000, "{passed}");
}

#[test]
fn a_run_ends_at_what_is_not_whole_not_allowed_or_no_message() {
    let check = |bytes: &[u8], passed: usize| {
        let mut replies = ReplyQueue::default();
        replies.push(ExpectedReply::Query);
        assert_eq!(replies.pass_run(bytes, |body_bytes| body_bytes != 3, |_, _| {}), passed, "{bytes:?}");
    };
    check(b"", 0);
    check(b"D\0\0\0", 0);
    check(b"D\0\0\0\x05", 0);
    check(b"D\0\0\0\x05xD\0\0\0\x04T\0", 11);
    check(b"C\0\0\0\x06xx", 7);
    check(b"C\0\0\0\x07xxx", 0);
    check(b"D\0\0\0\x03", 0);
    check(b"D\xff\xff\xff\xff", 0);
}

#[test]
fn a_question_for_a_number_goes_before_a_query() {
    check_replies(
        "> Number
         > Query
         < 1 -> eat
         < 2 -> eat
         < D -> number
         < C -> eat
         < 3 -> eat
         < ZT -> ready T ours
         < C -> pass
         < ZT -> ready T
         settled? -> true",
    );
    check_replies(
        "> Number
         > Query
         < E -> number refused
         < ZE -> ready E ours
         < E -> error
         < ZE -> ready E",
    );
}

#[test]
fn a_statement_of_several_shards_tells_its_rows_and_errors_to_weir() {
    check_replies(
        "> Begin
         > Part
         < C -> eat
         < ZT -> ready T ours
         < N -> pass
         < C -> part tag
         < ZT -> ready T ours
         settled? -> true
         > Part
         < 1 -> eat
         < 2 -> eat
         < E -> part refused
         < ZE -> ready E ours
         settled? -> true",
    );
}

#[test]
fn the_answer_to_a_lost_commit_is_made_up_as_far_as_it_is_due() {
    let answer = |entries: &[ExpectedReply]| {
        let mut replies = ReplyQueue::default();
        entries.iter().for_each(|entry| replies.push(*entry));
        let bytes = replies.answer_of_one("COMMIT");
        bytes.map(|bytes| bytes.iter().copied().filter(|byte| b"123nC".contains(byte)).map(char::from).collect::<String>())
    };
    use ExpectedReply::{Bind, Describe, Execute, NumberOurs, Parse, Query, QueryChange, Sync};
    let is_tag = |answer: Option<String>, tags: &str| answer.is_some_and(|answer| answer.starts_with(tags));
    assert!(is_tag(answer(&[Query]), "C"));
    assert!(is_tag(answer(&[NumberOurs, QueryChange]), "C"));
    assert!(is_tag(answer(&[QueryChange]), "C"));
    assert!(is_tag(answer(&[Parse, Bind, Describe, Execute, Sync]), "12nC"));
    assert_eq!(answer(&[Query, QueryChange]), None);
    assert_eq!(answer(&[Execute, QueryChange]), None);
    assert_eq!(answer(&[Bind, Execute, Bind, Execute, Sync]), None);
    assert_eq!(answer(&[Bind, Execute]), None, "its Sync is still to come");
    assert_eq!(answer(&[]), None);
}
