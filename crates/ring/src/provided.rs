//! Buffers that the kernel fills on arrival: a waiting connection holds none (`IORING_REGISTER_PBUF_RING`, Linux 5.19).

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

/// The only buffer group of a ring.
pub const GROUP: u16 = 0;

/// Alignment of the ring of entries.
const PAGE_BYTES: usize = 4096;

/// Never freed: the kernel may write into a buffer while the ring is closed. A process has few rings, for its lifetime.
pub struct ProvidedBuffers {
    entries: *mut BufRingEntry,
    mask: u16,
    tail: u16,
    /// Buffers by number. Raw, since the kernel may write at any time.
    buffers: Vec<*mut [u8]>,
}

impl ProvidedBuffers {
    /// Registers `count` buffers, a power of two.
    pub fn register(uring: &IoUring, count: u16, mut make: impl FnMut() -> Box<[u8]>) -> io::Result<ProvidedBuffers> {
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout has a size, because `count` is a power of two.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the memory is page aligned, as large as the entries and never freed.
        unsafe { uring.submitter().register_buf_ring_with_flags(memory as u64, count, GROUP, 0)? };
        let mut provided = ProvidedBuffers { entries: memory.cast(), mask: count - 1, tail: 0, buffers: Vec::new() };
        for number in 0..count {
            provided.buffers.push(Box::into_raw(make()));
            provided.offer(number);
        }
        Ok(provided)
    }

    pub fn swap(&mut self, number: u16, fresh: Box<[u8]>) -> Option<Box<[u8]>> {
        let place = self.buffers.get_mut(usize::from(number))?;
        let filled = std::mem::replace(place, Box::into_raw(fresh));
        self.offer(number);
        // SAFETY: it came from `Box::into_raw`, is nowhere else any more, and the kernel has said that it is done with it.
        Some(unsafe { Box::from_raw(filled) })
    }

    fn offer(&mut self, number: u16) {
        let buffer = self.buffers[usize::from(number)];
        // SAFETY: the masked index is inside of the entries, which live for ever. The kernel reads an entry only once the tail has
        // passed it, so nobody else looks at this one.
        let entry = unsafe { &mut *self.entries.add(usize::from(self.tail & self.mask)) };
        entry.set_addr(buffer.cast::<u8>() as u64);
        entry.set_len(buffer.len() as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the address of the ring's first entry was registered, and its tail is an aligned u16 that only we write.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}
