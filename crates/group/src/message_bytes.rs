//! Messages between members as bytes, and back.
//!
//! Numbers in network order. A form comes first, so that a group is upgraded one host after another: a receiver refuses a newer form and says so. In
//! one form, fields may be added at the end of a message or of its part: a reader passes over bytes that it does not know.

use crate::group_event::{GroupMessage, MemberIntent, MessagePart, NodeSights};
use crate::group_state::{StateVersion, VersionNumber};
use crate::membership::{GroupMs, MemberDuty, MemberId, MemberRow};
use crate::operator_acts::{ACT_BYTES_MAX, ActAnswer, ActDoer, OperatorAct};
use crate::register::RegisterMessage;
use crate::stored_vote::{VOTE_BYTES_MAX, VoteTextError};

/// Newest form that is read, and the one that is written.
pub const MESSAGE_FORM: u16 = 1;
/// A version's text and room for all fields around it.
pub const MESSAGE_BYTES_MAX: usize = VOTE_BYTES_MAX + 1024;
/// Counters, terms and rounds from outside stay so far below the end of their type that nothing overflows.
const COUNTER_MAX: u64 = u64::MAX >> 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageBytesError {
    #[error("a message of {0} bytes, limit is {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    #[error("a message of form {0}, the newest known here is {MESSAGE_FORM}: upgrade this host")]
    Newer(u16),
    #[error("a message ends too early")]
    Short,
    #[error("a message has {value} where {field} is expected")]
    Value { field: &'static str, value: u64 },
    #[error("a message with a text that is no UTF-8")]
    Text,
    #[error("a message with a text of {0} bytes, limit is {ACT_BYTES_MAX}")]
    TextTooLong(usize),
    #[error("a message with a version that cannot be read: {0}")]
    Version(#[from] VoteTextError),
}

type Read<T> = Result<T, MessageBytesError>;

const INTENTS: [MemberIntent; 3] = [MemberIntent::Serves, MemberIntent::Unfit, MemberIntent::ShutsDown];
const DOERS: [ActDoer; 2] = [ActDoer::Leader, ActDoer::Receiver];
const DUTIES: [MemberDuty; 2] = [MemberDuty::Serves, MemberDuty::Witness];

/// Kinds of parts. Numbers are never used anew.
mod part_kind {
    pub const PREPARE: u8 = 0;
    pub const PROMISE: u8 = 1;
    pub const CAST: u8 = 2;
    pub const ACCEPTED: u8 = 3;
    pub const REFUSED: u8 = 4;
    pub const ASK: u8 = 5;
    pub const SHOW: u8 = 6;
    pub const HELLO: u8 = 7;
    pub const PROPOSE: u8 = 8;
    pub const NEWS: u8 = 9;
    pub const ACT: u8 = 10;
    pub const ACTED: u8 = 11;
    pub const ACT_LIFE: u8 = 12;
    pub const REPLACED: u8 = 13;
}

/// Answers to acts.
mod answer_kind {
    pub const DONE: u8 = 0;
    pub const REFUSED: u8 = 1;
    pub const NOT_LEADER: u8 = 2;
    pub const UNKNOWN: u8 = 3;
}

impl GroupMessage {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MESSAGE_FORM.to_be_bytes().to_vec();
        put_option(&mut out, self.group.as_ref(), |out, id| put_member(out, *id));
        put_member(&mut out, self.from);
        put_option(&mut out, self.to.as_ref(), |out, id| put_member(out, *id));
        put_u64(&mut out, self.led.0);
        put_u64(&mut out, self.led.1);
        put_number(&mut out, self.obeyed);
        out.push(match self.intent {
            MemberIntent::Serves => 0,
            MemberIntent::Unfit => 1,
            MemberIntent::ShutsDown => 2,
        });
        out.extend(self.sights.alive.to_be_bytes());
        out.extend(self.sights.dead.to_be_bytes());
        let (kind, body) = show_part(&self.part);
        out.push(kind);
        put_bytes(&mut out, &body);
        put_option(&mut out, self.parameters.as_ref(), |out, digest| put_u64(out, *digest));
        put_option(&mut out, self.answered.as_ref(), put_ages);
        out
    }

    /// Versions in the result have passed [`GroupState::check`](crate::GroupState::check).
    pub fn from_bytes(bytes: &[u8]) -> Result<GroupMessage, MessageBytesError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageBytesError::TooLong(bytes.len()));
        }
        let mut reader = MessageReader(bytes);
        match reader.u16()? {
            0 => return Err(MessageBytesError::Value { field: "a form", value: 0 }),
            MESSAGE_FORM => {}
            newer => return Err(MessageBytesError::Newer(newer)),
        }
        Ok(GroupMessage {
            group: reader.option("a mark of a group", MessageReader::member)?,
            from: reader.member()?,
            to: reader.option("a mark of a receiver", MessageReader::member)?,
            led: (reader.counter("a term")?, reader.u64()?),
            obeyed: reader.number()?,
            intent: reader.one_of("an intent", &INTENTS)?,
            sights: NodeSights { alive: reader.u128()?, dead: reader.u128()? },
            part: reader.part()?,
            parameters: reader.later_option("a mark of parameters", MessageReader::u64)?,
            answered: reader.later_option("a mark of answers", MessageReader::ages)?,
        })
    }

    /// True for what also fits into a datagram: all but attempts, versions and acts.
    pub fn is_small(&self) -> bool {
        match &self.part {
            MessagePart::Register(RegisterMessage::Ask { .. } | RegisterMessage::Show { newer: None, .. })
            | MessagePart::Hello { .. }
            | MessagePart::News => true,
            MessagePart::Register(
                RegisterMessage::Prepare { .. }
                | RegisterMessage::Promise { .. }
                | RegisterMessage::Cast { .. }
                | RegisterMessage::Accepted { .. }
                | RegisterMessage::Refused { .. }
                | RegisterMessage::Show { newer: Some(_), .. },
            )
            | MessagePart::Propose(_)
            | MessagePart::Replaced { .. }
            | MessagePart::Act(_)
            | MessagePart::ActLife { .. }
            | MessagePart::Acted { .. } => false,
        }
    }
}

fn show_part(part: &MessagePart) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    let kind = match part {
        MessagePart::Register(message) => show_register(message, &mut out),
        MessagePart::Hello { row } => {
            put_member(&mut out, row.id);
            out.push(row.priority);
            out.push(match row.duty {
                MemberDuty::Serves => 0,
                MemberDuty::Witness => 1,
            });
            part_kind::HELLO
        }
        MessagePart::Propose(version) => {
            put_version(&mut out, version);
            part_kind::PROPOSE
        }
        MessagePart::News => part_kind::NEWS,
        MessagePart::Replaced { group } => {
            put_member(&mut out, *group);
            part_kind::REPLACED
        }
        MessagePart::Act(OperatorAct { number, doer, life, text }) => {
            put_u64(&mut out, *number);
            out.push(match doer {
                ActDoer::Leader => 0,
                ActDoer::Receiver => 1,
            });
            put_option(&mut out, life.as_ref(), |out, life| put_u64(out, *life));
            put_bytes(&mut out, text.as_bytes());
            part_kind::ACT
        }
        MessagePart::ActLife { number, life } => {
            put_u64(&mut out, *number);
            put_u64(&mut out, *life);
            part_kind::ACT_LIFE
        }
        MessagePart::Acted { number, answer } => {
            put_u64(&mut out, *number);
            let (kind, text) = match answer {
                ActAnswer::Done(text) => (answer_kind::DONE, text.as_str()),
                ActAnswer::Refused(text) => (answer_kind::REFUSED, text.as_str()),
                ActAnswer::NotLeader => (answer_kind::NOT_LEADER, ""),
                ActAnswer::Unknown => (answer_kind::UNKNOWN, ""),
            };
            out.push(kind);
            put_bytes(&mut out, text.as_bytes());
            part_kind::ACTED
        }
    };
    (kind, out)
}

fn show_register(message: &RegisterMessage, out: &mut Vec<u8>) -> u8 {
    match message {
        RegisterMessage::Prepare { attempt, number } => {
            put_u64(out, *attempt);
            put_number(out, *number);
            part_kind::PREPARE
        }
        RegisterMessage::Promise { attempt, accepted } => {
            put_u64(out, *attempt);
            put_option(out, accepted.as_ref(), put_version);
            part_kind::PROMISE
        }
        RegisterMessage::Cast { attempt, version } => {
            put_u64(out, *attempt);
            put_version(out, version);
            part_kind::CAST
        }
        RegisterMessage::Accepted { attempt } => {
            put_u64(out, *attempt);
            part_kind::ACCEPTED
        }
        RegisterMessage::Refused { attempt, promised } => {
            put_u64(out, *attempt);
            put_number(out, *promised);
            part_kind::REFUSED
        }
        RegisterMessage::Ask { round, known } => {
            put_u64(out, *round);
            put_number(out, *known);
            part_kind::ASK
        }
        RegisterMessage::Show { round, number, newer } => {
            put_u64(out, *round);
            put_number(out, *number);
            put_option(out, newer.as_ref(), put_version);
            part_kind::SHOW
        }
    }
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_be_bytes());
}

fn put_member(out: &mut Vec<u8>, id: MemberId) {
    out.push(id.host);
    out.extend(id.incarnation.to_be_bytes());
}

fn put_number(out: &mut Vec<u8>, number: VersionNumber) {
    put_u64(out, number.counter);
    put_member(out, number.by);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Versions are below 200 kB.
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

fn put_version(out: &mut Vec<u8>, version: &StateVersion) {
    put_bytes(out, version.show().as_bytes());
}

fn put_ages(out: &mut Vec<u8>, ages: &Vec<(MemberId, GroupMs)>) {
    // More than twice the members are never told of.
    out.push(ages.len() as u8);
    for (id, age_ms) in ages {
        put_member(out, *id);
        put_u64(out, *age_ms);
    }
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        put(out, value);
    }
}

struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(MessageBytesError::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Read<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn u128(&mut self) -> Read<u128> {
        self.array().map(u128::from_be_bytes)
    }

    fn counter(&mut self, field: &'static str) -> Read<u64> {
        let value = self.u64()?;
        if value > COUNTER_MAX { Err(MessageBytesError::Value { field, value }) } else { Ok(value) }
    }

    fn one_of<T: Copy>(&mut self, field: &'static str, values: &[T]) -> Read<T> {
        let at = self.u8()?;
        values.get(usize::from(at)).copied().ok_or(MessageBytesError::Value { field, value: at.into() })
    }

    fn option<T>(&mut self, field: &'static str, read: fn(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.one_of(field, &[false, true])? { read(self).map(Some) } else { Ok(None) }
    }

    /// A field that earlier programs do not write.
    fn later_option<T>(&mut self, field: &'static str, read: fn(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.0.is_empty() { Ok(None) } else { self.option(field, read) }
    }

    /// The length is checked before anything is kept.
    fn bytes(&mut self) -> Read<&'a [u8]> {
        let bytes = u32::from_be_bytes(self.array()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(bytes).ok_or(MessageBytesError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn member(&mut self) -> Read<MemberId> {
        Ok(MemberId { host: self.u8()?, incarnation: u32::from_be_bytes(self.array()?) })
    }

    fn ages(&mut self) -> Read<Vec<(MemberId, GroupMs)>> {
        (0..self.u8()?).map(|_| Ok((self.member()?, self.u64()?))).collect()
    }

    fn number(&mut self) -> Read<VersionNumber> {
        Ok(VersionNumber { counter: self.counter("a number of a version")?, by: self.member()? })
    }

    fn version(&mut self) -> Read<StateVersion> {
        let version = StateVersion::parse(self.bytes()?)?;
        let state = &version.state;
        let epoch = state.writes.open().map(|(epoch, _)| epoch).or(state.writes.closed()).unwrap_or_default();
        let largest = version.number.counter.max(state.change).max(state.term).max(epoch);
        if largest > COUNTER_MAX {
            return Err(MessageBytesError::Value { field: "a number of a version", value: largest });
        }
        Ok(version)
    }

    fn part(&mut self) -> Read<MessagePart> {
        let kind = self.u8()?;
        let mut body = MessageReader(self.bytes()?);
        Ok(match kind {
            part_kind::HELLO => {
                let (id, priority, duty) = (body.member()?, body.u8()?, body.one_of("a duty", &DUTIES)?);
                MessagePart::Hello { row: MemberRow { id, priority, duty } }
            }
            part_kind::PROPOSE => MessagePart::Propose(body.version()?),
            part_kind::NEWS => MessagePart::News,
            part_kind::REPLACED => MessagePart::Replaced { group: body.member()? },
            part_kind::ACT => MessagePart::Act(OperatorAct {
                number: body.counter("a number of an act")?,
                doer: body.one_of("who is to act", &DOERS)?,
                life: body.option("a mark of a life", MessageReader::u64)?,
                text: body.text()?,
            }),
            part_kind::ACT_LIFE => MessagePart::ActLife { number: body.counter("a number of an act")?, life: body.u64()? },
            part_kind::ACTED => MessagePart::Acted { number: body.counter("a number of an act")?, answer: body.answer()? },
            kind => MessagePart::Register(body.register(kind)?),
        })
    }

    /// Of an act.
    fn text(&mut self) -> Read<String> {
        let bytes = self.bytes()?;
        if bytes.len() > ACT_BYTES_MAX {
            return Err(MessageBytesError::TextTooLong(bytes.len()));
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| MessageBytesError::Text)
    }

    fn answer(&mut self) -> Read<ActAnswer> {
        let (kind, text) = (self.u8()?, self.text()?);
        Ok(match kind {
            answer_kind::DONE => ActAnswer::Done(text),
            answer_kind::REFUSED => ActAnswer::Refused(text),
            answer_kind::NOT_LEADER => ActAnswer::NotLeader,
            answer_kind::UNKNOWN => ActAnswer::Unknown,
            value => return Err(MessageBytesError::Value { field: "an answer", value: value.into() }),
        })
    }

    fn register(&mut self, kind: u8) -> Read<RegisterMessage> {
        let first = "a number of an attempt or a round";
        Ok(match kind {
            part_kind::PREPARE => RegisterMessage::Prepare { attempt: self.counter(first)?, number: self.number()? },
            part_kind::PROMISE => RegisterMessage::Promise {
                attempt: self.counter(first)?,
                accepted: self.option("a mark of a version", MessageReader::version)?,
            },
            part_kind::CAST => RegisterMessage::Cast { attempt: self.counter(first)?, version: self.version()? },
            part_kind::ACCEPTED => RegisterMessage::Accepted { attempt: self.counter(first)? },
            part_kind::REFUSED => RegisterMessage::Refused { attempt: self.counter(first)?, promised: self.number()? },
            part_kind::ASK => RegisterMessage::Ask { round: self.counter(first)?, known: self.number()? },
            part_kind::SHOW => RegisterMessage::Show {
                round: self.counter(first)?,
                number: self.number()?,
                newer: self.option("a mark of a version", MessageReader::version)?,
            },
            value => return Err(MessageBytesError::Value { field: "a kind of message", value: value.into() }),
        })
    }
}
