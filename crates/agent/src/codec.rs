//! Messages as bytes: tags of one byte, numbers in network order, texts behind their length in two bytes.
//!
//! A message is read whole or not at all: bytes behind it are an error, and so is any value that is not one of its type.

use crate::answer::{
    Answer, ClusterState, ControlFile, Data, FAILURE_BYTES_MAX, Failure, FailureKind, Finished, JobView, Kind, Outcome,
    Postmaster, Progress, ServerStatus, Status, Step,
};
use crate::request::{
    BaseBackup, Checkpoint, Deed, Follow, LogKeeper, Order, OrderId, Request, Rewind, Source, StopMode, WORDS_MAX,
};
use crate::text::{DatabaseName, Host, SlotName, TextError, UserName, Word, WordValue};

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the message ends too early")]
    Short,
    #[error("{0} bytes follow the message")]
    Long(usize),
    #[error("{value} is no {what}")]
    Value { what: &'static str, value: u64 },
    #[error("a text is not UTF-8")]
    Encoding,
    #[error(transparent)]
    Text(#[from] TextError),
}

struct Reader<'a>(&'a [u8]);

type Read<T> = Result<T, Malformed>;

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Read<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn flag(&mut self, what: &'static str) -> Read<bool> {
        self.one_of(what, &[false, true])
    }

    /// A value by its place in a list.
    fn one_of<T: Copy>(&mut self, what: &'static str, values: &[T]) -> Read<T> {
        let at = self.u8()?;
        values.get(usize::from(at)).copied().ok_or(Malformed::Value { what, value: at.into() })
    }

    fn text(&mut self) -> Read<&'a str> {
        let bytes = self.u16()?;
        std::str::from_utf8(self.bytes(bytes.into())?).map_err(|_| Malformed::Encoding)
    }

    fn checked<T>(&mut self, new: fn(&str) -> Result<T, TextError>) -> Read<T> {
        Ok(new(self.text()?)?)
    }

    fn option<T>(&mut self, what: &'static str, read: fn(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    fn end(self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long(self.0.len())) }
    }
}

/// The place of a value in a list. `None` cannot be: every list below holds all values, which a test proves by reading all of them back.
fn place<T: PartialEq>(value: &T, values: &[T]) -> u8 {
    values.iter().position(|known| known == value).unwrap_or_default() as u8
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Longer ones do not exist: each type has a limit far below.
    let end = text.floor_char_boundary(usize::from(u16::MAX));
    out.extend((end as u16).to_be_bytes());
    out.extend(&text.as_bytes()[..end]);
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        put(out, value);
    }
}

const MODES: [StopMode; 2] = [StopMode::Fast, StopMode::Immediate];
const LOG_KEEPERS: [LogKeeper; 2] = [LogKeeper::Copy, LogKeeper::Standby];
const CHECKPOINTS: [Checkpoint; 2] = [Checkpoint::Fast, Checkpoint::Spread];
const STEPS: [Step; 5] = [Step::Starting, Step::Stopping, Step::Ready, Step::Standby, Step::Unknown];
const DATA: [Data; 3] = [Data::Whole, Data::HalfRewound, Data::Absent];
const KINDS: [Kind; 6] = [Kind::Stop, Kind::Start, Kind::Restart, Kind::Follow, Kind::Rewind, Kind::BaseBackup];
const FAILURES: [FailureKind; 9] = [
    FailureKind::Running,
    FailureKind::OtherServer,
    FailureKind::Late,
    FailureKind::Source,
    FailureKind::OtherCluster,
    FailureKind::CannotRewind,
    FailureKind::Layout,
    FailureKind::HalfRewound,
    FailureKind::Other,
];

/// Reads a request.
pub fn read_request(bytes: &[u8]) -> Result<Request, Malformed> {
    let mut reader = Reader(bytes);
    let request = match reader.u8()? {
        0 => Request::Status,
        1 => Request::Order(Order { id: OrderId(reader.u64()?), deed: read_deed(&mut reader)? }),
        value => return Err(Malformed::Value { what: "request", value: value.into() }),
    };
    reader.end().map(|()| request)
}

pub fn write_request(out: &mut Vec<u8>, request: &Request) {
    match request {
        Request::Status => out.push(0),
        Request::Order(order) => {
            out.push(1);
            out.extend(order.id.0.to_be_bytes());
            put_deed(out, &order.deed);
        }
    }
}

fn read_deed(reader: &mut Reader<'_>) -> Read<Deed> {
    Ok(match reader.one_of("deed", &KINDS)? {
        Kind::Stop => Deed::Stop {
            mode: reader.one_of("mode", &MODES)?,
            limit_ms: reader.u32()?,
            started_at: reader.option("time of a start", Reader::u64)?,
        },
        Kind::Start => Deed::Start { limit_ms: reader.u32()? },
        Kind::Restart => Deed::Restart { limit_ms: reader.u32()?, started_at: reader.u64()? },
        Kind::Follow => Deed::Follow(read_follow(reader)?),
        Kind::Rewind => Deed::Rewind(Rewind { source: read_source(reader)?, limit_ms: reader.u32()? }),
        Kind::BaseBackup => Deed::BaseBackup(BaseBackup {
            source: read_source(reader)?,
            log_keeper: reader.one_of("keeper of the log", &LOG_KEEPERS)?,
            checkpoint: reader.one_of("checkpoint", &CHECKPOINTS)?,
            limit_ms: reader.u32()?,
        }),
    })
}

fn put_deed(out: &mut Vec<u8>, deed: &Deed) {
    out.push(place(&Kind::of(deed), &KINDS));
    match deed {
        Deed::Stop { mode, limit_ms, started_at } => {
            out.push(place(mode, &MODES));
            out.extend(limit_ms.to_be_bytes());
            put_option(out, started_at.as_ref(), |out, at| out.extend(at.to_be_bytes()));
        }
        Deed::Start { limit_ms } => out.extend(limit_ms.to_be_bytes()),
        Deed::Restart { limit_ms, started_at } => {
            out.extend(limit_ms.to_be_bytes());
            out.extend(started_at.to_be_bytes());
        }
        Deed::Follow(follow) => put_follow(out, follow),
        Deed::Rewind(Rewind { source, limit_ms }) => {
            put_source(out, source);
            out.extend(limit_ms.to_be_bytes());
        }
        Deed::BaseBackup(BaseBackup { source, log_keeper, checkpoint, limit_ms }) => {
            put_source(out, source);
            out.push(place(log_keeper, &LOG_KEEPERS));
            out.push(place(checkpoint, &CHECKPOINTS));
            out.extend(limit_ms.to_be_bytes());
        }
    }
}

fn read_follow(reader: &mut Reader<'_>) -> Read<Follow> {
    let (host, port) = (reader.checked(Host::new)?, reader.u16()?);
    let user = reader.checked(UserName::new)?;
    let slot = reader.option("slot", |reader| reader.checked(SlotName::new))?;
    let count = reader.u8()?;
    if usize::from(count) > WORDS_MAX {
        return Err(Malformed::Value { what: "number of words", value: count.into() });
    }
    let word = |_| Ok((reader.checked(Word::new)?, reader.checked(WordValue::new)?));
    let words = (0..count).map(word).collect::<Read<_>>()?;
    Ok(Follow { host, port, user, slot, words })
}

fn put_follow(out: &mut Vec<u8>, Follow { host, port, user, slot, words }: &Follow) {
    put_text(out, host.as_str());
    out.extend(port.to_be_bytes());
    put_text(out, user.as_str());
    put_option(out, slot.as_ref(), |out, slot| put_text(out, slot.as_str()));
    let words = &words[..words.len().min(WORDS_MAX)];
    out.push(words.len() as u8);
    for (word, value) in words {
        put_text(out, word.as_str());
        put_text(out, value.as_str());
    }
}

fn read_source(reader: &mut Reader<'_>) -> Read<Source> {
    Ok(Source {
        host: reader.checked(Host::new)?,
        port: reader.u16()?,
        user: reader.checked(UserName::new)?,
        dbname: reader.checked(DatabaseName::new)?,
    })
}

fn put_source(out: &mut Vec<u8>, Source { host, port, user, dbname }: &Source) {
    put_text(out, host.as_str());
    out.extend(port.to_be_bytes());
    put_text(out, user.as_str());
    put_text(out, dbname.as_str());
}

/// Reads an answer.
pub fn read_answer(bytes: &[u8]) -> Result<Answer, Malformed> {
    let mut reader = Reader(bytes);
    let answer = match reader.u8()? {
        0 => Answer::Status(Box::new(read_status(&mut reader)?)),
        1 => Answer::Progress(read_progress(&mut reader)?),
        2 => Answer::Done,
        3 => Answer::Failed(read_failure(&mut reader)?),
        4 => Answer::Busy(read_job(&mut reader)?),
        value => return Err(Malformed::Value { what: "answer", value: value.into() }),
    };
    reader.end().map(|()| answer)
}

pub fn write_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Status(status) => {
            out.push(0);
            put_status(out, status);
        }
        Answer::Progress(progress) => {
            out.push(1);
            put_progress(out, progress);
        }
        Answer::Done => out.push(2),
        Answer::Failed(failure) => {
            out.push(3);
            put_failure(out, failure);
        }
        Answer::Busy(job) => {
            out.push(4);
            put_job(out, job);
        }
    }
}

fn read_status(reader: &mut Reader<'_>) -> Read<Status> {
    let server = match reader.option("server", read_postmaster)? {
        Some(postmaster) => ServerStatus::Running(postmaster),
        None => ServerStatus::Stopped,
    };
    Ok(Status {
        server,
        data: reader.one_of("state of the data", &DATA)?,
        control: reader.option("control file", read_control)?,
        has_standby_signal: reader.flag("signal of a standby")?,
        mark: reader.option("mark", |reader| reader.checked(WordValue::new))?,
        slot: reader.option("slot", |reader| reader.checked(SlotName::new))?,
        job: reader.option("job", read_job)?,
        last: reader.option("job before", read_finished)?,
    })
}

fn put_status(out: &mut Vec<u8>, status: &Status) {
    let postmaster = match &status.server {
        ServerStatus::Running(postmaster) => Some(postmaster),
        ServerStatus::Stopped => None,
    };
    put_option(out, postmaster, put_postmaster);
    out.push(place(&status.data, &DATA));
    put_option(out, status.control.as_ref(), put_control);
    out.push(status.has_standby_signal.into());
    put_option(out, status.mark.as_ref(), |out, mark| put_text(out, mark.as_str()));
    put_option(out, status.slot.as_ref(), |out, slot| put_text(out, slot.as_str()));
    put_option(out, status.job.as_ref(), put_job);
    put_option(out, status.last.as_ref(), put_finished);
}

fn read_postmaster(reader: &mut Reader<'_>) -> Read<Postmaster> {
    Ok(Postmaster {
        pid: reader.u32()?,
        started_at: reader.u64()?,
        port: reader.u16()?,
        step: reader.one_of("step of a server", &STEPS)?,
    })
}

fn put_postmaster(out: &mut Vec<u8>, Postmaster { pid, started_at, port, step }: &Postmaster) {
    out.extend(pid.to_be_bytes());
    out.extend(started_at.to_be_bytes());
    out.extend(port.to_be_bytes());
    out.push(place(step, &STEPS));
}

fn read_control(reader: &mut Reader<'_>) -> Read<ControlFile> {
    Ok(ControlFile {
        system_identifier: reader.u64()?,
        state: reader.one_of("state of a cluster", &ClusterState::ALL)?,
        major: reader.u16()?,
        timeline: reader.u32()?,
        checkpoint: reader.u64()?,
        redo: reader.u64()?,
        recovery_end: reader.u64()?,
        recovery_timeline: reader.u32()?,
        can_rewind: reader.flag("ability to be rewound")?,
    })
}

fn put_control(out: &mut Vec<u8>, file: &ControlFile) {
    out.extend(file.system_identifier.to_be_bytes());
    out.push(place(&file.state, &ClusterState::ALL));
    out.extend(file.major.to_be_bytes());
    out.extend(file.timeline.to_be_bytes());
    out.extend(file.checkpoint.to_be_bytes());
    out.extend(file.redo.to_be_bytes());
    out.extend(file.recovery_end.to_be_bytes());
    out.extend(file.recovery_timeline.to_be_bytes());
    out.push(file.can_rewind.into());
}

fn read_progress(reader: &mut Reader<'_>) -> Read<Progress> {
    Ok(Progress { done_bytes: reader.u64()?, total_bytes: reader.u64()? })
}

fn put_progress(out: &mut Vec<u8>, progress: &Progress) {
    out.extend(progress.done_bytes.to_be_bytes());
    out.extend(progress.total_bytes.to_be_bytes());
}

fn read_job(reader: &mut Reader<'_>) -> Read<JobView> {
    Ok(JobView {
        id: OrderId(reader.u64()?),
        kind: reader.one_of("deed", &KINDS)?,
        since_ms: reader.u64()?,
        progress: read_progress(reader)?,
    })
}

fn put_job(out: &mut Vec<u8>, job: &JobView) {
    out.extend(job.id.0.to_be_bytes());
    out.push(place(&job.kind, &KINDS));
    out.extend(job.since_ms.to_be_bytes());
    put_progress(out, &job.progress);
}

fn read_failure(reader: &mut Reader<'_>) -> Read<Failure> {
    let (kind, text) = (reader.one_of("failure", &FAILURES)?, reader.text()?);
    if text.len() > FAILURE_BYTES_MAX {
        return Err(TextError::TooLong { what: "text of a failure", bytes: text.len(), limit: FAILURE_BYTES_MAX }.into());
    }
    Ok(Failure::new(kind, text))
}

fn put_failure(out: &mut Vec<u8>, failure: &Failure) {
    out.push(place(&failure.kind, &FAILURES));
    put_text(out, &failure.text);
}

fn read_finished(reader: &mut Reader<'_>) -> Read<Finished> {
    let (id, kind) = (OrderId(reader.u64()?), reader.one_of("deed", &KINDS)?);
    let outcome: Outcome = reader.option("failure", read_failure)?.map_or(Ok(()), Err);
    Ok(Finished { id, kind, outcome })
}

fn put_finished(out: &mut Vec<u8>, finished: &Finished) {
    out.extend(finished.id.0.to_be_bytes());
    out.push(place(&finished.kind, &KINDS));
    put_option(out, finished.outcome.as_ref().err(), put_failure);
}

#[cfg(test)]
mod tests;
