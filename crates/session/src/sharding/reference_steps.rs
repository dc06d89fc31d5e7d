//! A write to a reference table, which each shard carries out on its own copy (`write_steps`).
//!
//! One transaction at a time writes to the reference tables of a database, so that all copies have the same history: a statement sees on each shard what
//! the ones before it left there, and nothing else. Each shard but the last one is locked for that before it gets the statement. The last one is shard 0,
//! which decides about the commit: it has ended the transaction before the first shard lets another one go on.
//!
//! The client's answer is shard 0's. If another shard tells another number of rows, the copies differ: the statement fails, and nothing of it remains.

use crate::concern;
use crate::context::Context;
use crate::loss::{LossOutcome, TransactionAfterLoss, loss_words};
use crate::participants;
use crate::session::{MessageFate, Session};
use crate::sharding::spread_write::{PartAnswers, WriteStep, copies_differ};
use crate::sharding::write_steps;
use crate::statement_statistics::statement_rows::rows_of_tag;
use weir_wire::frame::{HEADER_BYTES, back, front, read_header};
use weir_wire::write;

/// Waits until no other transaction writes to reference tables, without a row as its answer. The first number stands for Weir among the locks of others.
const LOCK: &str = "SELECT FROM pg_catalog.pg_advisory_xact_lock(1464158546, 1) AS l WHERE l IS NULL";

/// The messages for a shard other than the last one. `parse`: the statement's text with the types of its parameters. `values`: a Bind behind its names.
pub fn part_messages(parse: &[u8], values: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    run(&mut out, &without_parameters(LOCK.as_bytes()), &NO_VALUES);
    run(&mut out, parse, values);
    write::bare(&mut out, front::SYNC);
    out
}

/// A Bind behind its names: no formats, no parameters, no formats of columns.
pub const NO_VALUES: [u8; 6] = [0; 6];

/// A Parse behind its name.
pub fn without_parameters(text: &[u8]) -> Vec<u8> {
    [text, &[0; 3]].concat()
}

fn run(out: &mut Vec<u8>, parse: &[u8], values: &[u8]) {
    write::parse(out, b"", parse);
    write::bind_head(out, b"", b"", values.len());
    out.extend_from_slice(values);
    write::message(out, front::EXECUTE, |out| out.extend([0; 5]));
}

/// Ends a statement whose last shard tells another number of rows than those before it. The transaction is rolled back everywhere, with its server
/// connections. True if the server's next message is not to be looked at: there is none any more, or more of it must come.
#[cold]
pub fn breaks_off(s: &mut Session, w: &Context) -> bool {
    let (told, before) = match last_tag(s) {
        LastTag::Differs { told, before } => (told, before),
        LastTag::More(bytes) => return !s.down.has_whole(bytes),
        LastTag::Other => return false,
    };
    let owner = write_steps::lost(s);
    let outcome = write_steps::outcome_for(owner, LossOutcome::RolledBack(TransactionAfterLoss::Failed));
    participants::abandon(s);
    let Some((conn, owed)) = s.lose(w, MessageFate::Unknown) else { return true };
    s.host.close(conn);
    s.up.drop_rest();
    loss_words::take_outcome(s, w, outcome);
    concern::lost(s, w);
    loss_words::tell(s, w, outcome, owed, &copies_differ(told, before));
    s.show_doing();
    s.wake();
    true
}

/// The next message of the last shard.
enum LastTag {
    /// It tells another number of rows than the shards before it.
    Differs { told: u64, before: u64 },
    /// As many bytes are needed to know.
    More(usize),
    /// It is no tag, or tells what the others told.
    Other,
}

fn last_tag(s: &Session) -> LastTag {
    let write = s.sharding.write.as_ref().filter(|write| write.step == WriteStep::Last);
    let Some(PartAnswers::Equal(Some(before))) = write.map(|write| write.answers) else { return LastTag::Other };
    if s.replies().is_our_turn() || s.down.is_mid_message() {
        return LastTag::Other;
    }
    let here = s.down.unseen();
    let Ok(Some(header)) = read_header(here) else { return LastTag::Other };
    if header.tag != back::COMMAND_COMPLETE {
        return LastTag::Other;
    }
    match here.get(HEADER_BYTES..header.frame_bytes()).map(rows_of_tag) {
        None => LastTag::More(header.frame_bytes()),
        Some(told) if told == before => LastTag::Other,
        Some(told) => LastTag::Differs { told, before },
    }
}

pub fn own_texts() -> Vec<String> {
    vec![LOCK.to_owned()]
}
