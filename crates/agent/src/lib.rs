//! The protocol between Weir and `weir agent`, which runs beside a PostgreSQL server and does what SQL cannot: stop, start, rewind, copy.
//!
//! No IO, no clock, no randomness. `request` and `answer` are the messages, `codec` their bytes, `seal` makes them authentic. `settings`, `service`, `control_file` and `postmaster` read and write what the agent finds beside its server.

mod answer;
mod codec;
pub mod control_file;
pub mod postmaster;
mod request;
pub mod seal;
mod secret;
pub mod service;
pub mod settings;
mod text;

pub use answer::{
    AgentAnswer, AgentStatus, ClusterState, ControlFile, DataDirectoryState, FinishedOrder, JobView, OrderFailure,
    OrderFailureKind, OrderKind, OrderProgress, Outcome, Postmaster, PostmasterState, ServerStatus,
};
pub use codec::{AgentMessageError, read_answer, read_request, write_answer, write_request};
pub use request::{
    AgentOrder, AgentRequest, BackupCheckpoint, BaseBackup, LogKeeper, OrderAction, OrderId, RewindAction, ServerStopMode,
    SourceServer, StandbyUpstream, WORDS_MAX,
};
pub use secret::{AgentSecret, AgentSecretError, FILE_BYTES_MAX};
pub use text::{ConninfoKeyword, DatabaseName, Host, SlotName, TextError, UserName, WordValue};
