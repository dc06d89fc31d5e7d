//! Why a statement has no server yet, and where its text stands.

use crate::fault::{ErrorReport, sqlstate};
use crate::session::Session;
use crate::sharding::known_sharding::EngineLack;
use crate::statements::PreparedStatement;
use weir_shard::ShardRefusal;
use weir_wire::frame::{front, read_header};
use weir_wire::write;

/// Longest message whose values are looked at, and longest pipeline in which a Bind is looked for, in bytes.
pub(super) const LOOKED_AT_BYTES_MAX: usize = 1 << 20;

/// Why a statement is not aimed.
pub(super) enum Unaimed {
    /// More of the message must arrive.
    More,
    /// So many bytes of the client's next messages must be here.
    MoreBytes(usize),
    /// Answers come first.
    Hold,
    Refused(Box<ErrorReport>),
    /// An INSERT by parameters, whose rows belong to several shards.
    ManyShards(ShardRefusal),
    /// Another message stands in the place of the client's.
    Rewritten,
    /// The engine is not ready for now, and the session has a connection to it.
    EngineLacks(EngineLack),
    /// A read of several shards in a transaction that has begun. The text is a Parse behind its name.
    Gathers(Box<[u8]>),
    /// The next look at the database tells what the statement depends on.
    AwaitsLook(EngineLack),
}

impl From<ErrorReport> for Unaimed {
    fn from(report: ErrorReport) -> Unaimed {
        Unaimed::Refused(Box::new(report))
    }
}

/// Where a statement's text stands.
#[derive(Clone, Copy)]
pub(super) enum TextPlace<'p> {
    /// In the message that is looked at.
    Message,
    Parse(&'p PreparedStatement),
}

impl TextPlace<'_> {
    /// `None`: a text that is too long to be analysed is not here as a whole.
    #[inline]
    pub(super) fn text<'t>(&'t self, s: &'t Session) -> Option<&'t [u8]> {
        match self {
            // A Query that an earlier zero byte ends is refused before.
            TextPlace::Message => s.up.whole_if_here(read_header(s.up.unseen()).ok()??)?.strip_suffix(b"\0"),
            TextPlace::Parse(prepared) => Some(prepared.text()),
        }
    }
}

pub(super) fn query_message(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::message(&mut out, front::QUERY, |out| write::cstr(out, text));
    out
}

#[cold]
pub(super) fn unknown(s: &Session) -> ErrorReport {
    let database = &s.account.known.name;
    let text = format!(
        "it is not known yet how the tables of database \"{database}\" are spread over shards; the statement was not sent"
    );
    let why = s.account.known.sharding.error().unwrap_or_else(|| "The database was not looked at yet.".to_owned());
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text).detail(why).hint("Run the statement again.")
}

#[cold]
pub(super) fn too_long() -> ErrorReport {
    ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the message is too long for its shard to be found")
        .detail("With parallel_mode = on the text of each statement is analysed.")
        .hint("Raise statement_analysis_max, or send fewer rows at once.")
}
