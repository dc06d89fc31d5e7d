//! The buffer of one direction between two sockets: bytes are read once, examined by header, and sent in place.
//!
//! ```text
//!   buffer  | sent | to send as is | examined, nothing to send | unexamined    | free |
//!           0    start            mark                        seen             end
//!   extra   bytes to send after `mark`: Weir's own messages and what follows them in the same batch
//! ```
//!
//! Invariant: while `extra` is not empty, `mark` is fixed, which keeps the order. An idle lane holds no memory: both buffers
//! go back to the worker's `BufferPool`.

use crate::buffers::BufferPool;
use crate::reactor::Reactor;
use crate::socket::Socket;
use std::io;
use weir_ring::{ReceivedChunk, SendBuffer, SendPiece};
use weir_wire::frame::{MessageHeader, WireError, read_header, run_bytes};

pub use crate::socket::ReadOutcome;

/// Treatment of the rest of a message whose head is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageRemainder {
    Forward,
    Drop,
}

pub struct RelayBuffer {
    buffer: Option<Box<[u8]>>,
    start: usize,
    mark: usize,
    seen: usize,
    end: usize,
    extra: Option<Vec<u8>>,
    extra_sent: usize,
    /// Bytes yet to come of a decided message.
    rest_bytes: usize,
    rest: MessageRemainder,
    /// Bytes needed to decide on the next message.
    want: usize,
}

impl Default for RelayBuffer {
    #[inline]
    fn default() -> RelayBuffer {
        RelayBuffer {
            buffer: None,
            start: 0,
            mark: 0,
            seen: 0,
            end: 0,
            extra: None,
            extra_sent: 0,
            rest_bytes: 0,
            rest: MessageRemainder::Forward,
            want: 0,
        }
    }
}

impl RelayBuffer {
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.start < self.mark || self.extra.is_some()
    }

    #[inline]
    pub fn has_unseen(&self) -> bool {
        self.seen < self.end
    }

    /// True if the last message is incomplete or not yet forwarded: nothing may be inserted.
    #[inline]
    pub fn is_mid_message(&self) -> bool {
        self.rest_bytes > 0
    }

    /// Reads once. Grows only for a message needed whole.
    #[inline]
    pub fn fill(&mut self, socket: &Socket, reactor: &Reactor) -> io::Result<ReadOutcome> {
        if !socket.is_readable() {
            return Ok(ReadOutcome::Nothing);
        }
        if socket.is_ringed() {
            return self.adopt(socket, reactor);
        }
        let buffers = &reactor.buffers;
        self.make_room(buffers);
        let Some(buffer) = self.buffer.as_mut() else { return Ok(ReadOutcome::Nothing) };
        if self.end == buffer.len() {
            return Ok(ReadOutcome::Nothing);
        }
        let got = socket.try_read(reactor, &mut buffer[self.end..])?;
        if let ReadOutcome::Bytes(bytes) = got {
            self.end += bytes;
        } else {
            self.rest_if_empty(buffers);
        }
        Ok(got)
    }

    /// Takes bytes from the ring, as their own buffer if the lane is empty.
    #[inline]
    fn adopt(&mut self, socket: &Socket, reactor: &Reactor) -> io::Result<ReadOutcome> {
        let Some(mut chunk) = socket.take(reactor)? else { return Ok(ReadOutcome::Nothing) };
        let here = chunk.end - chunk.start;
        if here == 0 {
            return Ok(ReadOutcome::End);
        }
        if self.buffer.is_none() && self.want <= chunk.buffer.len() - chunk.start {
            let ReceivedChunk { buffer, start, end } = chunk;
            self.buffer = Some(buffer);
            (self.start, self.mark, self.seen, self.end) = (start, start, start, end);
            return Ok(ReadOutcome::Bytes(here));
        }
        self.make_room(&reactor.buffers);
        let room = self.buffer.as_mut().map_or(&mut [][..], |buffer| &mut buffer[self.end..]);
        let taken = here.min(room.len());
        room[..taken].copy_from_slice(&chunk.buffer[chunk.start..chunk.start + taken]);
        self.end += taken;
        chunk.start += taken;
        socket.put_back(reactor, chunk);
        Ok(if taken > 0 { ReadOutcome::Bytes(taken) } else { ReadOutcome::Nothing })
    }

    #[inline]
    fn make_room(&mut self, buffers: &BufferPool) {
        let buffer = self.buffer.get_or_insert_with(|| buffers.take_bulk());
        if self.start == self.mark && self.seen > 0 && (self.end == buffer.len() || self.want > buffer.len() - self.seen) {
            buffer.copy_within(self.seen..self.end, 0);
            self.end -= self.seen;
            (self.start, self.mark, self.seen) = (0, 0, 0);
        }
        if self.start == self.mark && self.want > buffer.len() - self.seen {
            let mut larger = vec![0; self.want].into_boxed_slice();
            larger[..self.end].copy_from_slice(&buffer[..self.end]);
            buffers.put_bulk(std::mem::replace(buffer, larger));
        }
    }

    /// Adds bytes that a handshake read too far.
    #[inline]
    pub fn preload(&mut self, bytes: &[u8], buffers: &BufferPool) {
        if bytes.is_empty() {
            return;
        }
        self.want = bytes.len();
        self.make_room(buffers);
        if let Some(buffer) = self.buffer.as_mut() {
            buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
            self.end += bytes.len();
        }
        self.want = 0;
    }

    /// Adds bytes without a socket; returns how many fit.
    pub fn feed(&mut self, bytes: &[u8], buffers: &BufferPool) -> usize {
        self.make_room(buffers);
        let room = self.buffer.as_mut().map_or(&mut [][..], |buffer| &mut buffer[self.end..]);
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.end += taken;
        self.rest_if_empty(buffers);
        taken
    }

    pub fn drain_to(&mut self, out: &mut Vec<u8>, buffers: &BufferPool) {
        if let Some(buffer) = &self.buffer {
            out.extend_from_slice(&buffer[self.start..self.mark]);
        }
        if let Some(extra) = &self.extra {
            out.extend_from_slice(&extra[self.extra_sent..]);
        }
        self.forget_pending(buffers);
        self.rest_if_empty(buffers);
    }

    /// Returns the next header, after forwarding the last message's rest.
    #[inline]
    pub fn peek(&mut self, buffers: &BufferPool) -> Result<Option<MessageHeader>, WireError> {
        if self.rest_bytes > 0 {
            let here = self.rest_bytes.min(self.end - self.seen);
            self.rest_bytes -= here;
            match self.rest {
                MessageRemainder::Forward => self.forward(here, buffers),
                MessageRemainder::Drop => self.seen += here,
            }
            if self.rest_bytes > 0 {
                return Ok(None);
            }
        }
        read_header(self.unseen())
    }

    #[inline]
    pub fn unseen(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.seen..self.end])
    }

    #[inline]
    pub fn rest_here(&self) -> &[u8] {
        let unseen = self.unseen();
        &unseen[..self.rest_bytes.min(unseen.len())]
    }

    /// Returns the next body, or notes that it is needed whole.
    #[inline]
    pub fn whole(&mut self, header: MessageHeader) -> Option<&[u8]> {
        if self.has_whole(header.frame_bytes()) { Some(&self.unseen()[5..header.frame_bytes()]) } else { None }
    }

    /// Returns the next body if complete; notes nothing.
    #[inline]
    pub fn whole_if_here(&self, header: MessageHeader) -> Option<&[u8]> {
        self.unseen().get(..header.frame_bytes()).map(|frame| &frame[5..])
    }

    /// Notes the need for `bytes` if they are not here.
    #[inline]
    pub fn has_whole(&mut self, bytes: usize) -> bool {
        let here = self.end - self.seen >= bytes;
        self.want = if here { 0 } else { bytes };
        here
    }

    /// Changes an unexamined byte, which must have arrived.
    #[inline]
    pub fn change(&mut self, at: usize, byte: u8) {
        let at = self.seen + at;
        if let Some(place) = self.buffer.as_mut().and_then(|buffer| buffer[..self.end].get_mut(at)) {
            *place = byte;
        }
    }

    /// Forwards the next message, also its part yet to come.
    ///
    /// Cancels a request for the whole message: it needs no room.
    #[inline]
    pub fn pass(&mut self, header: MessageHeader, buffers: &BufferPool) {
        self.want = 0;
        let total = header.frame_bytes();
        let here = total.min(self.end - self.seen);
        self.forward(here, buffers);
        self.rest_bytes = total - here;
        self.rest = MessageRemainder::Forward;
    }

    /// Forwards the next whole messages with this tag.
    #[inline]
    pub fn pass_run(&mut self, tag: u8, buffers: &BufferPool) {
        if self.rest_bytes == 0 {
            let bytes = run_bytes(self.unseen(), tag);
            self.forward(bytes, buffers);
        }
    }

    /// Forwards the next whole messages, `bytes` together.
    #[inline]
    pub fn pass_whole(&mut self, bytes: usize, buffers: &BufferPool) {
        self.want = 0;
        self.forward(bytes, buffers);
    }

    #[inline]
    pub fn eat(&mut self, header: MessageHeader) {
        self.want = 0;
        let total = header.frame_bytes();
        let here = total.min(self.end - self.seen);
        self.seen += here;
        self.rest_bytes = total - here;
        self.rest = MessageRemainder::Drop;
    }

    /// Forwards the next message with its first `head_bytes` replaced by `write`.
    #[inline]
    pub fn pass_with_head(
        &mut self,
        header: MessageHeader,
        head_bytes: usize,
        buffers: &BufferPool,
        write: impl FnOnce(&[u8], &mut Vec<u8>),
    ) {
        self.want = 0;
        let total = header.frame_bytes();
        let extra = self.extra.get_or_insert_with(|| buffers.take_extra());
        if let Some(buffer) = &self.buffer {
            write(&buffer[self.seen..self.seen + head_bytes], extra);
        }
        self.seen += head_bytes;
        let here = (total - head_bytes).min(self.end - self.seen);
        self.forward(here, buffers);
        self.rest_bytes = total - head_bytes - here;
        self.rest = MessageRemainder::Forward;
    }

    #[inline]
    fn forward(&mut self, bytes: usize, buffers: &BufferPool) {
        if self.extra.is_none() && self.start == self.mark {
            self.start = self.seen;
            self.mark = self.seen;
        }
        if self.extra.is_none() && self.mark == self.seen {
            self.mark += bytes;
        } else {
            let extra = self.extra.get_or_insert_with(|| buffers.take_extra());
            if let Some(buffer) = &self.buffer {
                extra.extend_from_slice(&buffer[self.seen..self.seen + bytes]);
            }
        }
        self.seen += bytes;
    }

    /// Returns the buffer for Weir's messages, sent after all decided so far.
    #[inline]
    pub fn extra(&mut self, buffers: &BufferPool) -> &mut Vec<u8> {
        self.extra.get_or_insert_with(|| buffers.take_extra())
    }

    /// Sends in one system call. True when all is sent or in the ring.
    #[inline]
    pub fn drain(&mut self, socket: &Socket, reactor: &Reactor) -> io::Result<bool> {
        if !self.has_pending() {
            return Ok(true);
        }
        if socket.is_ringed() {
            return self.give(socket, reactor);
        }
        let buffers = &reactor.buffers;
        let direct: &[u8] = self.buffer.as_ref().map_or(&[], |b| &b[self.start..self.mark]);
        let extra: &[u8] = self.extra.as_ref().map_or(&[], |e| &e[self.extra_sent..]);
        let written = socket.try_write(reactor, direct, extra)?;
        let of_direct = written.min(self.mark - self.start);
        self.start += of_direct;
        self.extra_sent += written - of_direct;
        if self.start < self.mark {
            return Ok(false);
        }
        if self.extra.as_ref().is_some_and(|extra| self.extra_sent < extra.len()) {
            return Ok(false);
        }
        if let Some(extra) = self.extra.take() {
            buffers.put_extra(extra);
            self.extra_sent = 0;
        }
        self.rest_if_empty(buffers);
        Ok(true)
    }

    /// Moves the pending bytes into the ring, which owns them until the kernel has them.
    #[inline]
    fn give(&mut self, socket: &Socket, reactor: &Reactor) -> io::Result<bool> {
        if self.start < self.mark {
            if !socket.can_send(reactor)? {
                return Ok(false);
            }
            if let Some(piece) = self.cut(&reactor.buffers) {
                socket.send(reactor, piece);
            }
        }
        if let Some(extra) = self.extra.take() {
            if !socket.can_send(reactor)? {
                self.extra = Some(extra);
                return Ok(false);
            }
            let (start, end) = (std::mem::take(&mut self.extra_sent), extra.len());
            socket.send(reactor, SendPiece { bytes: SendBuffer::Vector(extra), start, end });
        }
        self.rest_if_empty(&reactor.buffers);
        Ok(true)
    }

    /// Cuts out the pending bytes, copying them or the unexamined ones, whichever are fewer.
    #[inline]
    fn cut(&mut self, buffers: &BufferPool) -> Option<SendPiece> {
        let (start, end) = (self.start, self.mark);
        let left = self.end - self.seen;
        let buffer = self.buffer.as_ref()?;
        if left > end - start {
            let mut copy = buffers.take_extra();
            copy.extend_from_slice(&buffer[start..end]);
            self.start = self.mark;
            return Some(SendPiece { end: copy.len(), bytes: SendBuffer::Vector(copy), start: 0 });
        }
        let rest = (left > 0).then(|| {
            let mut rest = buffers.take_bulk();
            if rest.len() <= left {
                rest = vec![0; buffer.len()].into_boxed_slice();
            }
            rest[..left].copy_from_slice(&buffer[self.seen..self.end]);
            rest
        });
        let sent = std::mem::replace(&mut self.buffer, rest)?;
        (self.start, self.mark, self.seen, self.end) = (0, 0, 0, left);
        Some(SendPiece { bytes: SendBuffer::Buffer(sent), start, end })
    }

    #[inline]
    pub fn pending(&self) -> [&[u8]; 2] {
        let direct: &[u8] = self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.mark]);
        let extra: &[u8] = self.extra.as_ref().map_or(&[], |extra| &extra[self.extra_sent..]);
        [direct, extra]
    }

    pub fn skip_pending(&mut self, bytes: usize, buffers: &BufferPool) {
        let of_direct = bytes.min(self.mark - self.start);
        self.start += of_direct;
        self.extra_sent += bytes - of_direct;
        let is_done = self.start == self.mark && self.extra.as_ref().is_some_and(|extra| self.extra_sent >= extra.len());
        if is_done && let Some(extra) = self.extra.take() {
            buffers.put_extra(extra);
            self.extra_sent = 0;
        }
        self.rest_if_empty(buffers);
    }

    #[inline]
    pub fn forget_pending(&mut self, buffers: &BufferPool) {
        self.start = self.mark;
        self.extra_sent = 0;
        if let Some(extra) = self.extra.take() {
            buffers.put_extra(extra);
        }
    }

    #[inline]
    pub fn drop_unseen(&mut self) {
        self.end = self.seen;
        self.rest_bytes = 0;
        self.want = 0;
    }

    /// Drops unexamined bytes at the end of input. Nothing may follow a partly forwarded message.
    #[inline]
    pub fn cut_off(&mut self) {
        let is_half_said = self.rest_bytes > 0 && self.rest == MessageRemainder::Forward;
        let rest_bytes = if is_half_said { self.rest_bytes } else { 0 };
        self.drop_unseen();
        self.rest_bytes = rest_bytes;
    }

    /// Drops the current message's rest: the receiver is gone.
    #[inline]
    pub fn drop_rest(&mut self) {
        self.rest = MessageRemainder::Drop;
    }

    /// Puts messages back. Requires no pending bytes and no message under way.
    #[inline]
    pub fn unread(&mut self, bytes: &[u8], buffers: &BufferPool) {
        let here = self.end - self.seen;
        let mut buffer = buffers.take_bulk();
        if buffer.len() < bytes.len() + here {
            buffer = vec![0; bytes.len() + here].into_boxed_slice();
        }
        buffer[..bytes.len()].copy_from_slice(bytes);
        if let Some(old) = self.buffer.take() {
            buffer[bytes.len()..bytes.len() + here].copy_from_slice(&old[self.seen..self.end]);
            buffers.put_bulk(old);
        }
        self.buffer = Some(buffer);
        (self.start, self.mark, self.seen, self.end) = (0, 0, 0, bytes.len() + here);
        self.want = 0;
    }

    #[inline]
    pub fn rest_if_empty(&mut self, buffers: &BufferPool) {
        if self.start == self.mark && self.seen == self.end && self.extra.is_none() {
            (self.start, self.mark, self.seen, self.end) = (0, 0, 0, 0);
            if let Some(buffer) = self.buffer.take() {
                buffers.put_bulk(buffer);
            }
        }
    }

    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, |b| b.len()) + self.extra.as_ref().map_or(0, Vec::capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads `bytes` in pieces of `step`, decides on each message with `decide`, and returns all that would be sent.
    fn run(bytes: &[u8], step: usize, mut decide: impl FnMut(&mut RelayBuffer, MessageHeader, &BufferPool) -> bool) -> Vec<u8> {
        let buffers = BufferPool::new(64);
        let mut lane = RelayBuffer::default();
        let mut sent = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let taken = lane.feed(&left[..step.min(left.len())], &buffers);
            assert!(taken > 0, "no room");
            left = &left[taken..];
            while let Some(header) = lane.peek(&buffers).unwrap() {
                if !decide(&mut lane, header, &buffers) {
                    break;
                }
            }
            lane.drain_to(&mut sent, &buffers);
        }
        assert!(!lane.has_unseen() && lane.held_bytes() == 0);
        sent
    }

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_pass_whatever_the_pieces() {
        let bytes = [frame(b'a', &[b'x'; 100]), frame(b'b', b""), frame(b'c', &[b'y'; 30])].concat();
        for step in 1..=40 {
            let sent = run(&bytes, step, |lane, header, buffers| {
                lane.pass(header, buffers);
                true
            });
            assert_eq!(sent, bytes, "in pieces of {step}");
        }
    }

    #[test]
    fn messages_are_eaten_and_inserted_in_order() {
        let bytes = [frame(b'a', b"1"), frame(b'e', &[b'x'; 70]), frame(b'b', b"2")].concat();
        let expected = [frame(b'a', b"1"), b"+".to_vec(), frame(b'b', b"2"), b"+".to_vec()].concat();
        for step in 1..=40 {
            let sent = run(&bytes, step, |lane, header, buffers| {
                if header.tag == b'e' {
                    lane.eat(header);
                    return true;
                }
                // The inserted bytes follow a message, so all of the message must be here.
                if lane.whole(header).is_none() {
                    return false;
                }
                lane.pass(header, buffers);
                lane.extra(buffers).push(b'+');
                true
            });
            assert_eq!(sent, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_message_that_is_decided_on_before_it_is_whole_needs_no_room() {
        let bytes = [frame(b'a', &[b'x'; 500]), frame(b'b', &[b'y'; 500])].concat();
        let sent = run(&bytes, 10, |lane, header, buffers| {
            let is_whole = if header.tag == b'a' { lane.whole(header).is_some() } else { lane.whole_if_here(header).is_some() };
            assert!(!is_whole);
            lane.pass(header, buffers);
            assert_eq!((lane.want, lane.held_bytes()), (0, 64));
            true
        });
        assert_eq!(sent, bytes);
    }

    #[test]
    fn a_message_that_was_cut_off_stays_half_said_if_its_head_was_sent() {
        let buffers = BufferPool::new(64);
        for (eats, is_mid) in [(false, true), (true, false)] {
            let mut lane = RelayBuffer::default();
            lane.feed(&frame(b'a', &[b'x'; 500]), &buffers);
            let header = lane.peek(&buffers).unwrap().unwrap();
            if eats {
                lane.eat(header)
            } else {
                lane.pass(header, &buffers)
            }
            assert!(lane.is_mid_message());
            lane.cut_off();
            assert_eq!((lane.is_mid_message(), lane.has_unseen()), (is_mid, false));
        }
    }

    #[test]
    fn bytes_to_send_are_dropped_from_the_front() {
        let buffers = BufferPool::new(64);
        let mut lane = RelayBuffer::default();
        lane.feed(&frame(b'a', b"bc"), &buffers);
        let header = lane.peek(&buffers).unwrap().unwrap();
        lane.pass(header, &buffers);
        lane.extra(&buffers).extend_from_slice(b"defg");
        lane.skip_pending(2, &buffers);
        assert_eq!(lane.pending().concat(), [&frame(b'a', b"bc")[2..], b"defg"].concat());
        lane.skip_pending(7, &buffers);
        assert_eq!(lane.pending(), [&b""[..], b"fg"]);
        lane.skip_pending(2, &buffers);
        assert!(!lane.has_pending() && lane.held_bytes() == 0);
    }

    #[test]
    fn a_message_that_must_be_whole_grows_the_buffer() {
        let bytes = frame(b'a', &[b'x'; 500]);
        let sent = run(&bytes, 10, |lane, header, buffers| {
            if lane.whole(header).is_none() {
                return false;
            }
            lane.pass_with_head(header, 10, buffers, |head, out| out.extend(head.iter().rev()));
            true
        });
        assert_eq!(sent.len(), bytes.len());
        assert_eq!(sent[9], b'a');
    }
}
