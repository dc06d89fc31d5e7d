//! Protocol between Weir and `weir agent`, which does beside a PostgreSQL server what SQL cannot: stop, start, rewind, copy.
//!
//! No IO, clock or randomness. `codec` encodes and `seal` authenticates messages. `settings`, `service`, `control_file` and
//! `postmaster` are for the server's files.

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
