//! Bytes to send, owned until the kernel has taken them.

use crate::token::{RingOperation, SocketToken};
use io_uring::{opcode, squeue, types};
use std::os::fd::RawFd;

/// Limit of pieces per system call.
pub const PIECES_MAX: usize = 4;

#[derive(Debug)]
pub enum SendBuffer {
    Buffer(Box<[u8]>),
    Vector(Vec<u8>),
}

impl SendBuffer {
    fn all(&self) -> &[u8] {
        match self {
            SendBuffer::Buffer(buffer) => buffer,
            SendBuffer::Vector(vector) => vector,
        }
    }
}

#[derive(Debug)]
pub struct SendPiece {
    pub bytes: SendBuffer,
    pub start: usize,
    pub end: usize,
}

impl SendPiece {
    /// Returns the bytes; empty if the bounds are wrong.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.all().get(self.start..self.end).unwrap_or_default()
    }
}

pub struct VectoredSend {
    pieces: Vec<SendPiece>,
    vectors: [libc::iovec; PIECES_MAX],
    message: libc::msghdr,
}

impl Default for VectoredSend {
    fn default() -> VectoredSend {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all of a msghdr's fields are numbers and pointers, for which zero is a value.
        let message = unsafe { std::mem::zeroed() };
        VectoredSend { pieces: Vec::with_capacity(PIECES_MAX), vectors: [empty; PIECES_MAX], message }
    }
}

impl VectoredSend {
    pub fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX
    }

    pub fn push(&mut self, piece: SendPiece) {
        self.pieces.push(piece);
    }

    pub fn total(&self) -> usize {
        self.pieces.iter().map(|piece| piece.as_slice().len()).sum()
    }

    pub fn take_pieces(&mut self) -> impl Iterator<Item = SendPiece> + '_ {
        self.pieces.drain(..)
    }

    /// The request points into `self`, which must not move or change until completion.
    pub fn request(self: &mut Box<VectoredSend>, fd: RawFd, token: SocketToken) -> squeue::Entry {
        // All or an error: the kernel continues by itself after a full socket.
        const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        if let [piece] = &self.pieces[..] {
            let bytes = piece.as_slice();
            let send = opcode::Send::new(types::Fd(fd), bytes.as_ptr(), bytes.len() as u32).flags(FLAGS);
            return send.build().user_data(token.with(RingOperation::Send));
        }
        for (vector, piece) in self.vectors.iter_mut().zip(&self.pieces) {
            let bytes = piece.as_slice();
            *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.pieces.len().min(PIECES_MAX) as _;
        let send = opcode::SendMsg::new(types::Fd(fd), &raw const self.message).flags(FLAGS as u32);
        send.build().user_data(token.with(RingOperation::Send))
    }
}
