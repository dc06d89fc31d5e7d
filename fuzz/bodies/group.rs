//! The bytes that a member of a group hears from its peers, and the text of its state file.

use weir_group::{
    ActDoer, EngineKind, GroupAction, GroupEvent, GroupMember, GroupMessage, GroupSettings, HalfVotes, MemberDuty, MemberId,
    MemberIntent, MessagePart, OperatorAct, RegisterMessage, ShutdownFate, StateVersion, StoredVote, group_step,
};

/// Of the member that hears.
const LIFE: u64 = 1 << 32;

/// Reads the bytes as each of them. A message that can be read is also heard by members.
pub fn run(bytes: &[u8]) {
    if let Ok(message) = GroupMessage::from_bytes(bytes) {
        assert_eq!(GroupMessage::from_bytes(&message.to_bytes()).as_ref(), Ok(&message));
        hear(&message);
    }
    if let Ok(version) = StateVersion::parse(bytes) {
        assert_eq!(StateVersion::parse(version.show().as_bytes()), Ok(version));
    }
    if let Ok(vote) = StoredVote::parse(bytes) {
        assert_eq!(StoredVote::parse(vote.show().as_bytes()), Ok(vote));
    }
    // A checksum that fits lets changed lines through.
    let Some(text) = with_sum(bytes) else { return };
    if let Ok(vote) = StoredVote::parse(&text) {
        assert_eq!(StoredVote::parse(vote.show().as_bytes()), Ok(vote));
    }
    if let Ok(version) = StateVersion::parse(&text) {
        hear_version(version);
    }
}

/// A member of the version hears it from another one, in each message that has room for it.
fn hear_version(version: StateVersion) {
    let rows = &version.state.members.rows;
    let (Some(from), Some(to)) = (rows.first(), rows.last()) else { return };
    let (round, attempt, number) = (1, 1, version.number);
    let message = |part| GroupMessage {
        group: Some(version.state.group),
        from: from.id,
        to: Some(to.id),
        led: (version.state.term, 0),
        obeyed: number,
        intent: MemberIntent::Serves,
        sights: Default::default(),
        part,
        parameters: None,
        answered: None,
    };
    let parts = [
        MessagePart::Propose(version.clone()),
        MessagePart::Register(RegisterMessage::Cast { attempt, version: version.clone() }),
        MessagePart::Register(RegisterMessage::Promise { attempt, accepted: Some(version.clone()) }),
        MessagePart::Register(RegisterMessage::Show { round, number, newer: Some(version.clone()) }),
        MessagePart::Act(OperatorAct { number: 1, doer: ActDoer::Receiver, life: Some(LIFE), text: "reload".into() }),
    ];
    for part in parts {
        // Some numbers are beyond what a message may have.
        if let Ok(message) = GroupMessage::from_bytes(&message(part).to_bytes()) {
            hear(&message);
        }
    }
}

/// The receiver that the message names, alone or beside the sender, hears it twice and goes on.
fn hear(message: &GroupMessage) {
    let own = message.to.unwrap_or(MemberId { host: 1, incarnation: 1 });
    let settings = GroupSettings {
        host: own.host,
        hosts: vec![own.host, message.from.host],
        priority: 1,
        duty: MemberDuty::Serves,
        half_votes: HalfVotes::TooFew,
        lease_ms: 2_000,
        no_show_ms: None,
        lost_removal_ms: None,
        shutdowns: ShutdownFate::Stays,
        engine: EngineKind::Builtin,
        without: None,
    };
    let mut member = GroupMember::new(settings, StoredVote::new(own), LIFE, 10_000);
    for now in [10_000, 10_700, 13_000] {
        let heard = group_step(&mut member, GroupEvent::Message(Box::new(message.clone())), now);
        let ticked = group_step(&mut member, GroupEvent::Tick { dice: 7 }, now + 1);
        for action in heard.into_iter().chain(ticked) {
            if let GroupAction::Write { number, text } = action {
                assert!(StoredVote::parse(text.as_bytes()).is_ok());
                let _ = group_step(&mut member, GroupEvent::Written { number }, now + 2);
            }
        }
    }
}

/// The text with the checksum that it should have at its end (FNV-1a).
fn with_sum(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, _) = text.trim_end().rsplit_once("sum ")?;
    let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Some(format!("{body}sum {sum:016x}\n").into_bytes())
}
