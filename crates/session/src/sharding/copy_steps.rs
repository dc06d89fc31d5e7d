//! A `COPY ... FROM STDIN` into several shards, as steps of a statement that each of them carries out (`write_steps`).
//!
//! The first server gets the COPY without rows: it says if the client may send data, and how. Then Weir takes the data, gives each row to its shard's
//! block, and sends a block as a COPY of its own while the client's data waits. For this the client's Query message is put back into its buffer: the
//! statement comes again, and goes on with the next server. The last server's answer becomes the client's.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::session::Session;
use crate::sharding::copy_parts::CopyParts;
use crate::sharding::spread_write::{PartMessages, WriteStep};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front};
use weir_wire::write;

/// Longest reason of a CopyFail that is handed on.
const REASON_BYTES_MAX: usize = 8 << 10;

/// True while the client's rows are awaited.
#[inline]
pub fn takes_rows(s: &Session) -> bool {
    s.sharding.write.as_ref().is_some_and(|write| write.step == WriteStep::Takes)
}

fn copy_of(s: &mut Session) -> Option<&mut CopyParts> {
    match &mut s.sharding.write.as_mut()?.parts.messages {
        PartMessages::Copy(copy) => Some(copy),
        PartMessages::Same(_) | PartMessages::Own(_) => None,
    }
}

/// The client's Query, which comes first, or again after a block. `Some`: it needs nothing now.
#[cold]
pub fn on_query(s: &mut Session, w: &Context, header: MessageHeader) -> Option<MessageFlow> {
    if !takes_rows(s) || !s.sharding.write.as_ref()?.is_again {
        return None;
    }
    if let Some(body) = copy_of(s)?.take_response() {
        write::message(s.down.extra(&w.buffers), back::COPY_IN, |out| out.extend_from_slice(&body));
    }
    s.sharding.write.iter_mut().for_each(|write| write.is_again = false);
    s.up.eat(header);
    Some(MessageFlow::Next)
}

/// The server asks for the rows that it has been sent. False: more of the message must arrive.
#[cold]
pub fn on_copy_in(s: &mut Session, header: MessageHeader) -> bool {
    let Some(body) = s.down.whole(header).map(<[u8]>::to_vec) else { return false };
    let is_last = s.sharding.write.as_ref().is_some_and(|write| !write.is_ahead());
    if is_last {
        if let Some(upstream) = s.upstream_mut() {
            upstream.replies.on_server(header.tag, 0);
        }
    } else if let Some(Err(fault)) = copy_of(s).map(|copy| copy.note_response(&body)) {
        s.sharding.write.iter_mut().for_each(|write| write.step = WriteStep::Failed(fault.clone()));
    }
    s.down.eat(header);
    true
}

/// Rows of the client.
#[cold]
pub fn on_data(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    let here = s.up.unseen().len().min(header.frame_bytes());
    let is_whole = here == header.frame_bytes();
    let body = here.saturating_sub(HEADER_BYTES);
    // The bytes that are taken of a message that has not come as a whole make room for the header of its rest.
    if !is_whole && body < HEADER_BYTES {
        s.up.has_whole(HEADER_BYTES + HEADER_BYTES.min(header.body_bytes as usize));
        return MessageFlow::More;
    }
    let mut write = s.sharding.write.take();
    let taken = match write.as_deref_mut().map(|write| &mut write.parts.messages) {
        Some(PartMessages::Copy(copy)) => copy.take(&s.up.unseen()[HEADER_BYTES..here]),
        Some(PartMessages::Same(_) | PartMessages::Own(_)) | None => Ok(false),
    };
    s.sharding.write = write;
    if is_whole {
        s.up.eat(header);
    } else {
        take_begin(s, header, body);
    }
    match taken {
        Ok(false) => {}
        Ok(true) => {
            let place = copy_of(s).map_or(0, CopyParts::flush);
            go_on(s, w, place, WriteStep::Due);
        }
        Err(fault) => go_on(s, w, 0, WriteStep::Failed(fault)),
    }
    MessageFlow::Next
}

/// Eats the begin of a message. The rest becomes a message of its own.
fn take_begin(s: &mut Session, header: MessageHeader, body: usize) {
    let rest = header.body_bytes as usize - body;
    s.up.eat(MessageHeader { tag: header.tag, body_bytes: (body - HEADER_BYTES) as u32 });
    let mut head = Vec::with_capacity(HEADER_BYTES);
    head.push(header.tag);
    head.extend_from_slice(&((rest + 4) as u32).to_be_bytes());
    head.iter().enumerate().for_each(|(at, byte)| s.up.change(at, *byte));
}

/// The client's data is over, or it gives up.
#[cold]
pub fn on_end(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    let is_short = header.body_bytes as usize <= REASON_BYTES_MAX;
    if is_short && !s.up.has_whole(header.frame_bytes()) {
        return MessageFlow::More;
    }
    let reason = s.up.whole_if_here(header).map_or(&b"\0"[..], |body| body).to_vec();
    s.up.eat(header);
    let Some(copy) = copy_of(s) else { return MessageFlow::Next };
    let (place, last) = (if header.tag == front::COPY_FAIL { Ok(copy.fail(&reason)) } else { copy.end() }, copy.last());
    match place {
        Ok(place) if place == last => go_on(s, w, place, WriteStep::Last),
        Ok(place) => go_on(s, w, place, WriteStep::Due),
        Err(fault) => go_on(s, w, 0, WriteStep::Failed(fault)),
    }
    MessageFlow::Next
}

/// The statement comes again.
fn go_on(s: &mut Session, w: &Context, place: usize, step: WriteStep) {
    let Some(write) = &mut s.sharding.write else { return };
    write.turn_to(place, step);
    write.is_again = true;
    let query = copy_of(s).map(|copy| copy.query().to_vec()).unwrap_or_default();
    s.up.unread(&query, &w.buffers);
}

/// The error of a message that is none of a COPY.
#[cold]
pub fn misplaced() -> ErrorReport {
    ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, "a message that is none of the COPY came before its end")
}
