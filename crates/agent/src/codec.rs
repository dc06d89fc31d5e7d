//! Encoding: tags of one byte, numbers in network order, texts after a 2-byte length.
//!
//! Trailing bytes and invalid values are errors.

use crate::answer::{
    AgentAnswer, AgentStatus, ClusterState, ControlFile, DataDirectoryState, FAILURE_BYTES_MAX, FinishedOrder, JobView,
    OrderFailure, OrderFailureKind, OrderKind, OrderProgress, Outcome, Postmaster, PostmasterState, ServerStatus,
};
use crate::request::{
    AgentOrder, AgentRequest, BackupCheckpoint, BaseBackup, LogKeeper, OrderAction, OrderId, RewindAction, ServerStopMode,
    SourceServer, StandbyUpstream, WORDS_MAX,
};
use crate::text::{ConninfoKeyword, DatabaseName, Host, SlotName, TextError, UserName, WordValue};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentMessageError {
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

struct AgentMessageReader<'a>(&'a [u8]);

type Read<T> = Result<T, AgentMessageError>;

impl<'a> AgentMessageReader<'a> {
    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(AgentMessageError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(AgentMessageError::Short)?;
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

    fn one_of<T: Copy>(&mut self, what: &'static str, values: &[T]) -> Read<T> {
        let at = self.u8()?;
        values.get(usize::from(at)).copied().ok_or(AgentMessageError::Value { what, value: at.into() })
    }

    fn text(&mut self) -> Read<&'a str> {
        let bytes = self.u16()?;
        std::str::from_utf8(self.bytes(bytes.into())?).map_err(|_| AgentMessageError::Encoding)
    }

    fn checked<T>(&mut self, new: fn(&str) -> Result<T, TextError>) -> Read<T> {
        Ok(new(self.text()?)?)
    }

    fn option<T>(&mut self, what: &'static str, read: fn(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    fn end(self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(AgentMessageError::Long(self.0.len())) }
    }
}

/// Returns a value's index. Each list holds all values, as a test proves.
fn place<T: PartialEq>(value: &T, values: &[T]) -> u8 {
    values.iter().position(|known| known == value).unwrap_or_default() as u8
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Not reached: each type has a far lower limit.
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

const MODES: [ServerStopMode; 2] = [ServerStopMode::Fast, ServerStopMode::Immediate];
const LOG_KEEPERS: [LogKeeper; 2] = [LogKeeper::Copy, LogKeeper::Standby];
const CHECKPOINTS: [BackupCheckpoint; 2] = [BackupCheckpoint::Fast, BackupCheckpoint::Spread];
const STEPS: [PostmasterState; 5] = [
    PostmasterState::Starting,
    PostmasterState::Stopping,
    PostmasterState::Ready,
    PostmasterState::Standby,
    PostmasterState::Unknown,
];
const DATA: [DataDirectoryState; 3] = [DataDirectoryState::Whole, DataDirectoryState::HalfRewound, DataDirectoryState::Absent];
const KINDS: [OrderKind; 6] =
    [OrderKind::Stop, OrderKind::Start, OrderKind::Restart, OrderKind::Follow, OrderKind::Rewind, OrderKind::BaseBackup];
const FAILURES: [OrderFailureKind; 9] = [
    OrderFailureKind::Running,
    OrderFailureKind::OtherServer,
    OrderFailureKind::Late,
    OrderFailureKind::Source,
    OrderFailureKind::OtherCluster,
    OrderFailureKind::CannotRewind,
    OrderFailureKind::Layout,
    OrderFailureKind::HalfRewound,
    OrderFailureKind::Other,
];

pub fn read_request(bytes: &[u8]) -> Result<AgentRequest, AgentMessageError> {
    let mut reader = AgentMessageReader(bytes);
    let request = match reader.u8()? {
        0 => AgentRequest::Status,
        1 => AgentRequest::Order(AgentOrder { id: OrderId(reader.u64()?), deed: read_deed(&mut reader)? }),
        value => return Err(AgentMessageError::Value { what: "request", value: value.into() }),
    };
    reader.end().map(|()| request)
}

pub fn write_request(out: &mut Vec<u8>, request: &AgentRequest) {
    match request {
        AgentRequest::Status => out.push(0),
        AgentRequest::Order(order) => {
            out.push(1);
            out.extend(order.id.0.to_be_bytes());
            put_deed(out, &order.deed);
        }
    }
}

fn read_deed(reader: &mut AgentMessageReader<'_>) -> Read<OrderAction> {
    Ok(match reader.one_of("deed", &KINDS)? {
        OrderKind::Stop => OrderAction::Stop {
            mode: reader.one_of("mode", &MODES)?,
            limit_ms: reader.u32()?,
            started_at: reader.option("time of a start", AgentMessageReader::u64)?,
        },
        OrderKind::Start => OrderAction::Start { limit_ms: reader.u32()? },
        OrderKind::Restart => OrderAction::Restart { limit_ms: reader.u32()?, started_at: reader.u64()? },
        OrderKind::Follow => OrderAction::Follow(read_follow(reader)?),
        OrderKind::Rewind => OrderAction::Rewind(RewindAction { source: read_source(reader)?, limit_ms: reader.u32()? }),
        OrderKind::BaseBackup => OrderAction::BaseBackup(BaseBackup {
            source: read_source(reader)?,
            log_keeper: reader.one_of("keeper of the log", &LOG_KEEPERS)?,
            checkpoint: reader.one_of("checkpoint", &CHECKPOINTS)?,
            limit_ms: reader.u32()?,
        }),
    })
}

fn put_deed(out: &mut Vec<u8>, deed: &OrderAction) {
    out.push(place(&OrderKind::of(deed), &KINDS));
    match deed {
        OrderAction::Stop { mode, limit_ms, started_at } => {
            out.push(place(mode, &MODES));
            out.extend(limit_ms.to_be_bytes());
            put_option(out, started_at.as_ref(), |out, at| out.extend(at.to_be_bytes()));
        }
        OrderAction::Start { limit_ms } => out.extend(limit_ms.to_be_bytes()),
        OrderAction::Restart { limit_ms, started_at } => {
            out.extend(limit_ms.to_be_bytes());
            out.extend(started_at.to_be_bytes());
        }
        OrderAction::Follow(follow) => put_follow(out, follow),
        OrderAction::Rewind(RewindAction { source, limit_ms }) => {
            put_source(out, source);
            out.extend(limit_ms.to_be_bytes());
        }
        OrderAction::BaseBackup(BaseBackup { source, log_keeper, checkpoint, limit_ms }) => {
            put_source(out, source);
            out.push(place(log_keeper, &LOG_KEEPERS));
            out.push(place(checkpoint, &CHECKPOINTS));
            out.extend(limit_ms.to_be_bytes());
        }
    }
}

fn read_follow(reader: &mut AgentMessageReader<'_>) -> Read<StandbyUpstream> {
    let (host, port) = (reader.checked(Host::new)?, reader.u16()?);
    let user = reader.checked(UserName::new)?;
    let slot = reader.option("slot", |reader| reader.checked(SlotName::new))?;
    let count = reader.u8()?;
    if usize::from(count) > WORDS_MAX {
        return Err(AgentMessageError::Value { what: "number of words", value: count.into() });
    }
    let word = |_| Ok((reader.checked(ConninfoKeyword::new)?, reader.checked(WordValue::new)?));
    let words = (0..count).map(word).collect::<Read<_>>()?;
    Ok(StandbyUpstream { host, port, user, slot, words })
}

fn put_follow(out: &mut Vec<u8>, StandbyUpstream { host, port, user, slot, words }: &StandbyUpstream) {
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

fn read_source(reader: &mut AgentMessageReader<'_>) -> Read<SourceServer> {
    Ok(SourceServer {
        host: reader.checked(Host::new)?,
        port: reader.u16()?,
        user: reader.checked(UserName::new)?,
        dbname: reader.checked(DatabaseName::new)?,
    })
}

fn put_source(out: &mut Vec<u8>, SourceServer { host, port, user, dbname }: &SourceServer) {
    put_text(out, host.as_str());
    out.extend(port.to_be_bytes());
    put_text(out, user.as_str());
    put_text(out, dbname.as_str());
}

pub fn read_answer(bytes: &[u8]) -> Result<AgentAnswer, AgentMessageError> {
    let mut reader = AgentMessageReader(bytes);
    let answer = match reader.u8()? {
        0 => AgentAnswer::Status(Box::new(read_status(&mut reader)?)),
        1 => AgentAnswer::Progress(read_progress(&mut reader)?),
        2 => AgentAnswer::Done,
        3 => AgentAnswer::Failed(read_failure(&mut reader)?),
        4 => AgentAnswer::Busy(read_job(&mut reader)?),
        value => return Err(AgentMessageError::Value { what: "answer", value: value.into() }),
    };
    reader.end().map(|()| answer)
}

pub fn write_answer(out: &mut Vec<u8>, answer: &AgentAnswer) {
    match answer {
        AgentAnswer::Status(status) => {
            out.push(0);
            put_status(out, status);
        }
        AgentAnswer::Progress(progress) => {
            out.push(1);
            put_progress(out, progress);
        }
        AgentAnswer::Done => out.push(2),
        AgentAnswer::Failed(failure) => {
            out.push(3);
            put_failure(out, failure);
        }
        AgentAnswer::Busy(job) => {
            out.push(4);
            put_job(out, job);
        }
    }
}

fn read_status(reader: &mut AgentMessageReader<'_>) -> Read<AgentStatus> {
    let server = match reader.option("server", read_postmaster)? {
        Some(postmaster) => ServerStatus::Running(postmaster),
        None => ServerStatus::Stopped,
    };
    Ok(AgentStatus {
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

fn put_status(out: &mut Vec<u8>, status: &AgentStatus) {
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

fn read_postmaster(reader: &mut AgentMessageReader<'_>) -> Read<Postmaster> {
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

fn read_control(reader: &mut AgentMessageReader<'_>) -> Read<ControlFile> {
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

fn read_progress(reader: &mut AgentMessageReader<'_>) -> Read<OrderProgress> {
    Ok(OrderProgress { done_bytes: reader.u64()?, total_bytes: reader.u64()? })
}

fn put_progress(out: &mut Vec<u8>, progress: &OrderProgress) {
    out.extend(progress.done_bytes.to_be_bytes());
    out.extend(progress.total_bytes.to_be_bytes());
}

fn read_job(reader: &mut AgentMessageReader<'_>) -> Read<JobView> {
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

fn read_failure(reader: &mut AgentMessageReader<'_>) -> Read<OrderFailure> {
    let (kind, text) = (reader.one_of("failure", &FAILURES)?, reader.text()?);
    if text.len() > FAILURE_BYTES_MAX {
        return Err(TextError::TooLong { what: "text of a failure", bytes: text.len(), limit: FAILURE_BYTES_MAX }.into());
    }
    Ok(OrderFailure::new(kind, text))
}

fn put_failure(out: &mut Vec<u8>, failure: &OrderFailure) {
    out.push(place(&failure.kind, &FAILURES));
    put_text(out, &failure.text);
}

fn read_finished(reader: &mut AgentMessageReader<'_>) -> Read<FinishedOrder> {
    let (id, kind) = (OrderId(reader.u64()?), reader.one_of("deed", &KINDS)?);
    let outcome: Outcome = reader.option("failure", read_failure)?.map_or(Ok(()), Err);
    Ok(FinishedOrder { id, kind, outcome })
}

fn put_finished(out: &mut Vec<u8>, finished: &FinishedOrder) {
    out.extend(finished.id.0.to_be_bytes());
    out.push(place(&finished.kind, &KINDS));
    put_option(out, finished.outcome.as_ref().err(), put_failure);
}

#[cfg(test)]
mod tests;
