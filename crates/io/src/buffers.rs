//! Unused buffers of a worker.

use std::cell::RefCell;
use weir_ring::SendBuffer;

const KEPT_MAX: usize = 256;

const EXTRA_BYTES: usize = 8 << 10;

const EXTRA_KEPT_BYTES_MAX: usize = 64 << 10;

/// Buffers: `bulk` of fixed size to receive into, `extra` to write into.
pub struct BufferPool {
    bulk: RefCell<Vec<Box<[u8]>>>,
    extra: RefCell<Vec<Vec<u8>>>,
    buffer_bytes: usize,
}

impl BufferPool {
    #[inline]
    pub fn new(buffer_bytes: usize) -> BufferPool {
        let (bulk, extra) = (RefCell::new(Vec::with_capacity(KEPT_MAX)), RefCell::new(Vec::with_capacity(KEPT_MAX)));
        BufferPool { bulk, extra, buffer_bytes }
    }

    #[inline]
    pub fn kept(&self) -> usize {
        self.bulk.borrow().len()
    }

    #[inline]
    pub fn take_bulk(&self) -> Box<[u8]> {
        self.bulk.borrow_mut().pop().unwrap_or_else(|| vec![0; self.buffer_bytes].into_boxed_slice())
    }

    #[inline]
    pub fn put_bulk(&self, buffer: Box<[u8]>) {
        let mut bulk = self.bulk.borrow_mut();
        if buffer.len() == self.buffer_bytes && bulk.len() < KEPT_MAX {
            bulk.push(buffer);
        }
    }

    #[inline]
    pub fn take_extra(&self) -> Vec<u8> {
        self.extra.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(EXTRA_BYTES))
    }

    #[inline]
    pub fn put_extra(&self, mut buffer: Vec<u8>) {
        let mut extra = self.extra.borrow_mut();
        if buffer.capacity() <= EXTRA_KEPT_BYTES_MAX && extra.len() < KEPT_MAX {
            buffer.clear();
            extra.push(buffer);
        }
    }

    #[inline]
    pub fn put(&self, bytes: SendBuffer) {
        match bytes {
            SendBuffer::Buffer(buffer) => self.put_bulk(buffer),
            SendBuffer::Vector(vector) => self.put_extra(vector),
        }
    }
}
