//! Listening sockets: the kernel accepts unasked (multishot accept, Linux 5.19).

use crate::token::{RingOperation, SocketToken};
use io_uring::{opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// One listening socket.
pub struct RingListener<M> {
    pub mark: M,
    /// None once the door is shut and nothing of it is in the kernel.
    file: Option<Arc<dyn AsFd + Send + Sync>>,
    came: VecDeque<OwnedFd>,
    failed: Option<i32>,
    open: bool,
    accepting: bool,
}

impl<M> RingListener<M> {
    pub fn new(file: Arc<dyn AsFd + Send + Sync>, mark: M) -> RingListener<M> {
        RingListener { mark, file: Some(file), came: VecDeque::new(), failed: None, open: true, accepting: false }
    }

    /// The request that accepts, unless one is under way or the door is shut.
    pub fn request(&mut self, token: SocketToken) -> Option<squeue::Entry> {
        if self.accepting || !self.open {
            return None;
        }
        let fd = self.file.as_ref()?.as_fd().as_raw_fd();
        self.accepting = true;
        let accept = opcode::AcceptMulti::new(types::Fd(fd)).flags(libc::SOCK_CLOEXEC);
        Some(accept.build().user_data(token.with(RingOperation::Accept)))
    }

    /// Notes how an accept went.
    pub fn note(&mut self, result: i32, more: bool) {
        self.accepting &= more;
        if result >= 0 {
            // SAFETY: the kernel made this descriptor for us just now, and nobody else knows of it.
            self.came.push_back(unsafe { OwnedFd::from_raw_fd(result) });
        } else if !matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ECONNABORTED) {
            self.failed = Some(-result);
        }
        if !self.open && !self.accepting {
            self.close();
        }
    }

    /// Connections that came before stay to be taken.
    fn close(&mut self) {
        self.file = None;
    }

    /// True if accepting goes on by itself; after a failure it begins anew only when it is asked for.
    pub fn goes_on(&self) -> bool {
        self.failed.is_none()
    }

    /// The first connection that arrived and was not taken yet. Error: the reason why none can arrive, reported once.
    pub fn take(&mut self) -> io::Result<Option<OwnedFd>> {
        if let Some(came) = self.came.pop_front() {
            return Ok(Some(came));
        }
        self.failed.take().map_or(Ok(None), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    pub fn has_callers(&self) -> bool {
        !self.came.is_empty() || self.failed.is_some()
    }

    /// True if nobody will come any more, and all connections were taken.
    pub fn is_shut(&self) -> bool {
        !self.open && !self.accepting && self.came.is_empty()
    }

    /// True if the listening socket is ours no more.
    pub fn is_closed(&self) -> bool {
        self.file.is_none()
    }

    /// Lets nobody in any more. True when a request is to be ended.
    pub fn shut(&mut self) -> bool {
        self.open = false;
        if !self.accepting {
            self.close();
        }
        self.accepting
    }
}
