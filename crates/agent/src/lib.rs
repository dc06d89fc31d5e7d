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
    Answer, ClusterState, ControlFile, Data, Failure, FailureKind, Finished, JobView, Kind, Outcome, Postmaster, Progress,
    ServerStatus, Status, Step,
};
pub use codec::{Malformed, read_answer, read_request, write_answer, write_request};
pub use request::{
    BaseBackup, Checkpoint, Deed, Follow, LogKeeper, Order, OrderId, Request, Rewind, Source, StopMode, WORDS_MAX,
};
pub use secret::{FILE_BYTES_MAX, Secret, SecretError};
pub use text::{DatabaseName, Host, SlotName, TextError, UserName, Word, WordValue};
