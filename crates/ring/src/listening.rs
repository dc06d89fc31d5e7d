//! Listening sockets with multishot accept (Linux 5.19).

use crate::token::{RingOperation, SocketToken};
use io_uring::{opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

pub struct RingListener<M> {
    pub mark: M,
    /// `None` once shut with no request in the kernel.
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

    pub fn request(&mut self, token: SocketToken) -> Option<squeue::Entry> {
        if self.accepting || !self.open {
            return None;
        }
        let fd = self.file.as_ref()?.as_fd().as_raw_fd();
        self.accepting = true;
        let accept = opcode::AcceptMulti::new(types::Fd(fd)).flags(libc::SOCK_CLOEXEC);
        Some(accept.build().user_data(token.with(RingOperation::Accept)))
    }

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

    /// Earlier connections can still be taken.
    fn close(&mut self) {
        self.file = None;
    }

    /// After a failure accepting restarts on request.
    pub fn goes_on(&self) -> bool {
        self.failed.is_none()
    }

    /// Error: why no connection can arrive, reported once.
    pub fn take(&mut self) -> io::Result<Option<OwnedFd>> {
        if let Some(came) = self.came.pop_front() {
            return Ok(Some(came));
        }
        self.failed.take().map_or(Ok(None), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    pub fn has_callers(&self) -> bool {
        !self.came.is_empty() || self.failed.is_some()
    }

    pub fn is_shut(&self) -> bool {
        !self.open && !self.accepting && self.came.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        self.file.is_none()
    }

    /// True when a request must be cancelled.
    pub fn shut(&mut self) -> bool {
        self.open = false;
        if !self.accepting {
            self.close();
        }
        self.accepting
    }
}
