//! Messages of peers as bytes: made by dice, read back, cut, changed, and of forms to come.

#[path = "support/dice.rs"]
mod dice;

use std::sync::Arc;

use dice::Dice;
use weir_group::{
    ActAnswer, ActDoer, GroupDecision, GroupLead, GroupMembers, GroupMessage, GroupState, GroupWrites, HalfVotes,
    MESSAGE_BYTES_MAX, MESSAGE_FORM, MemberDuty, MemberId, MemberIntent, MemberRow, MessageBytesError, MessagePart, NodeSights,
    OperatorAct, RegisterMessage, StateVersion, StoredVote, VersionNumber,
};

/// Of each kind, and each of its forms, some hundred.
const MESSAGES: u64 = 4_000;

fn id(dice: &mut Dice) -> MemberId {
    MemberId { host: dice.host(6) as u8, incarnation: dice.roll() as u32 }
}

fn number(dice: &mut Dice) -> VersionNumber {
    VersionNumber { counter: dice.roll() >> dice.within(1, 64), by: id(dice) }
}

fn text(dice: &mut Dice, longest: u64) -> String {
    const CHARACTERS: [char; 9] = ['a', ' ', '\n', '\r', '\\', 'n', 'ä', '\u{2028}', '\0'];
    (0..dice.within(0, longest)).map(|_| CHARACTERS[dice.host(9)]).collect()
}

fn row(dice: &mut Dice) -> MemberRow {
    let duty = if dice.percent(80) { MemberDuty::Serves } else { MemberDuty::Witness };
    MemberRow { id: id(dice), priority: dice.roll() as u8, duty }
}

fn rows(dice: &mut Dice) -> Vec<MemberRow> {
    (0..dice.within(1, 8)).map(|_| row(dice)).collect()
}

fn version(dice: &mut Dice) -> StateVersion {
    let half_votes = if dice.percent(50) { HalfVotes::TooFew } else { HalfVotes::LowestCasts };
    let mut members = GroupMembers::of(rows(dice), half_votes);
    if dice.percent(30) {
        members = members.joined_by(&rows(dice));
    }
    let lost = members.all().into_iter().filter(|_| dice.percent(20)).collect();
    let lead = match dice.within(0, 3) {
        0 => GroupLead::Held(id(dice)),
        1 => GroupLead::Taken { from: None, to: id(dice) },
        _ => GroupLead::Taken { from: Some(id(dice)), to: id(dice) },
    };
    let epoch = dice.roll() >> 1;
    let writes =
        if dice.percent(50) { GroupWrites::Open { epoch, node: dice.roll() as u16 } } else { GroupWrites::Closed { epoch } };
    let longest = if dice.percent(1) { 20_000 } else { 100 };
    let decisions =
        (0..dice.within(0, 17)).map(|_| GroupDecision { term: dice.roll() >> 1, text: text(dice, 60) }).collect::<Vec<_>>();
    let state = GroupState {
        group: id(dice),
        change: dice.roll() >> 1,
        members,
        lost,
        lead,
        term: dice.roll() >> 1,
        writes,
        lease_ms: dice.within(200, 60_001),
        failover: text(dice, longest),
        decisions,
        former: (0..dice.within(0, 9)).map(|_| id(dice)).collect(),
    };
    assert_eq!(state.check(), Ok(()));
    StateVersion { number: number(dice), state: Arc::new(state) }
}

fn part(dice: &mut Dice) -> MessagePart {
    let (attempt, round) = (dice.roll() >> 1, dice.roll() >> 1);
    MessagePart::Register(match dice.within(0, 14) {
        0 => RegisterMessage::Prepare { attempt, number: number(dice) },
        1 => RegisterMessage::Promise { attempt, accepted: dice.percent(70).then(|| version(dice)) },
        2 => RegisterMessage::Cast { attempt, version: version(dice) },
        3 => RegisterMessage::Accepted { attempt },
        4 => RegisterMessage::Refused { attempt, promised: number(dice) },
        5 => RegisterMessage::Ask { round, known: number(dice) },
        6 => RegisterMessage::Show { round, number: number(dice), newer: dice.percent(50).then(|| version(dice)) },
        7 => return MessagePart::Hello { row: row(dice) },
        8 => return MessagePart::Propose(version(dice)),
        9 => {
            let doer = if dice.percent(50) { ActDoer::Leader } else { ActDoer::Receiver };
            return MessagePart::Act(OperatorAct {
                number: round,
                doer,
                life: dice.percent(50).then(|| dice.roll()),
                text: text(dice, 200),
            });
        }
        10 => return MessagePart::ActLife { number: round, life: dice.roll() },
        11 => return MessagePart::Acted { number: round, answer: answer(dice) },
        12 => return MessagePart::Replaced { group: id(dice) },
        _ => return MessagePart::News,
    })
}

fn answer(dice: &mut Dice) -> ActAnswer {
    match dice.within(0, 4) {
        0 => ActAnswer::Done(text(dice, 200)),
        1 => ActAnswer::Refused(text(dice, 200)),
        2 => ActAnswer::NotLeader,
        _ => ActAnswer::Unknown,
    }
}

fn message(dice: &mut Dice) -> GroupMessage {
    const INTENTS: [MemberIntent; 3] = [MemberIntent::Serves, MemberIntent::Unfit, MemberIntent::ShutsDown];
    let part = part(dice);
    let accepts = matches!(part, MessagePart::Register(RegisterMessage::Accepted { .. }));
    GroupMessage {
        group: dice.percent(70).then(|| id(dice)),
        from: id(dice),
        to: dice.percent(70).then(|| id(dice)),
        led: (dice.roll() >> 1, dice.roll()),
        obeyed: number(dice),
        intent: INTENTS[dice.host(3)],
        sights: NodeSights { alive: u128::from(dice.roll()) << 64, dead: u128::from(dice.roll()) },
        part,
        parameters: dice.percent(70).then(|| dice.roll()),
        answered: accepts.then(|| (0..dice.within(0, 5)).map(|_| (id(dice), dice.roll())).collect()),
    }
}

#[test]
fn a_message_is_read_as_it_was_written() {
    let mut dice = Dice(1);
    for at in 0..MESSAGES {
        let written = message(&mut dice);
        let bytes = written.to_bytes();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX && (!written.is_small() || bytes.len() < 200), "{at}");
        assert_eq!(GroupMessage::from_bytes(&bytes).as_ref(), Ok(&written), "{at}");
    }
}

#[test]
fn a_message_that_is_cut_is_an_error_and_one_that_is_changed_never_panics() {
    let mut dice = Dice(2);
    for at in 0..MESSAGES {
        let message = message(&mut dice);
        let mut bytes = message.to_bytes();
        let end = dice.within(0, bytes.len() as u64) as usize;
        // Fields that earlier programs do not write.
        let answers_end = bytes.len() - message.answered.as_ref().map_or(1, |ages| 2 + 13 * ages.len());
        let earlier_end = answers_end - if message.parameters.is_some() { 9 } else { 1 };
        let read = GroupMessage::from_bytes(&bytes[..end]);
        if end == earlier_end {
            assert_eq!(read, Ok(GroupMessage { parameters: None, answered: None, ..message }), "{at} of an earlier program");
        } else if end == answers_end {
            assert_eq!(read, Ok(GroupMessage { answered: None, ..message }), "{at} of an earlier program");
        } else {
            assert!(read.is_err(), "{at} cut at {end}");
        }
        for _ in 0..dice.within(1, 4) {
            let place = dice.within(0, bytes.len() as u64) as usize;
            bytes[place] = dice.roll() as u8;
        }
        if let Ok(read) = GroupMessage::from_bytes(&bytes) {
            assert_eq!(GroupMessage::from_bytes(&read.to_bytes()), Ok(read), "{at}");
        }
    }
}

#[test]
fn fields_of_later_programs_are_passed_over_and_later_forms_are_refused_by_name() {
    let mut dice = Dice(3);
    for _ in 0..200 {
        let written = message(&mut dice);
        let mut bytes = written.to_bytes();
        bytes.extend(b"a field at the end of the message");
        assert_eq!(GroupMessage::from_bytes(&bytes).as_ref(), Ok(&written));
        bytes[..2].copy_from_slice(&(MESSAGE_FORM + 1).to_be_bytes());
        let refused = GroupMessage::from_bytes(&bytes);
        assert_eq!(refused, Err(MessageBytesError::Newer(MESSAGE_FORM + 1)));
    }
    let news = GroupMessage { part: MessagePart::News, parameters: None, answered: None, ..message(&mut dice) };
    let mut bytes = news.to_bytes();
    let part_end = bytes.len() - 2;
    bytes[part_end - 1] = 3;
    bytes.splice(part_end..part_end, *b"end");
    assert_eq!(GroupMessage::from_bytes(&bytes), Ok(news), "a field at the end of a part");
    let told = MessageBytesError::Newer(2).to_string();
    assert_eq!(told, "a message of form 2, the newest known here is 1: upgrade this host");
}

#[test]
fn a_message_beyond_the_bounds_is_refused() {
    let long = vec![0; MESSAGE_BYTES_MAX + 1];
    assert_eq!(GroupMessage::from_bytes(&long), Err(MessageBytesError::TooLong(MESSAGE_BYTES_MAX + 1)));
    let mut dice = Dice(4);
    let mut large = version(&mut dice);
    Arc::make_mut(&mut large.state).lease_ms = 1;
    let message = GroupMessage { part: MessagePart::Propose(large), ..message(&mut dice) };
    assert!(matches!(GroupMessage::from_bytes(&message.to_bytes()), Err(MessageBytesError::Version(_))));
    let mut late = version(&mut dice);
    late.number.counter = u64::MAX;
    let message = GroupMessage { part: MessagePart::Propose(late), ..message };
    let refused = GroupMessage::from_bytes(&message.to_bytes());
    assert_eq!(refused, Err(MessageBytesError::Value { field: "a number of a version", value: u64::MAX }));
}

#[test]
fn the_largest_state_fits_into_a_message_and_a_file() {
    let mut dice = Dice(5);
    let rows: Vec<MemberRow> =
        (0..32).map(|host| MemberRow { id: MemberId { host, incarnation: u32::MAX }, ..row(&mut dice) }).collect();
    let mut members = GroupMembers::of(rows.clone(), HalfVotes::LowestCasts);
    members = members.joined_by(&rows);
    let decisions = vec![GroupDecision { term: u64::MAX >> 1, text: "\n".repeat(256) }; 16];
    let base = version(&mut dice);
    let lost = members.all();
    let state = GroupState { members, lost, decisions, failover: "\\".repeat(64 * 1024), ..(*base.state).clone() };
    assert_eq!(state.check(), Ok(()));
    let version = StateVersion { number: base.number, state: Arc::new(state) };
    let number = version.number;
    let written = GroupMessage { part: MessagePart::Propose(version.clone()), ..message(&mut dice) };
    assert_eq!(GroupMessage::from_bytes(&written.to_bytes()), Ok(written));
    let vote = StoredVote { member: number.by, group: Some(version.state.group), promised: number, accepted: Some(version) };
    assert_eq!(StoredVote::parse(vote.show().as_bytes()), Ok(vote));
}
