//! Received chunks not yet taken.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct ReceivedChunk {
    pub buffer: Box<[u8]>,
    pub start: usize,
    pub end: usize,
}

/// Oldest first. Idle sockets are many, with mostly one chunk: no allocation.
#[derive(Default)]
pub struct ReceiveQueue {
    next: Option<ReceivedChunk>,
    behind: VecDeque<ReceivedChunk>,
}

impl ReceiveQueue {
    pub fn len(&self) -> usize {
        usize::from(self.next.is_some()) + self.behind.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    #[inline]
    pub fn push_back(&mut self, chunk: ReceivedChunk) {
        match self.next {
            None => self.next = Some(chunk),
            Some(_) => self.behind.push_back(chunk),
        }
    }

    pub fn push_front(&mut self, chunk: ReceivedChunk) {
        if let Some(second) = self.next.replace(chunk) {
            self.behind.push_front(second);
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<ReceivedChunk> {
        let first = self.next.take();
        if self.behind.capacity() > 0 {
            self.move_up();
        }
        first
    }

    fn move_up(&mut self) {
        self.next = self.behind.pop_front();
        if self.behind.is_empty() {
            self.behind = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(end: usize) -> ReceivedChunk {
        ReceivedChunk { buffer: vec![0; 8].into(), start: 0, end }
    }

    #[test]
    fn chunks_are_taken_in_the_order_in_which_they_came_and_leave_no_memory_behind() {
        let mut unread = ReceiveQueue::default();
        assert!(unread.is_empty() && unread.pop_front().is_none());
        (1..=5).for_each(|end| unread.push_back(chunk(end)));
        assert_eq!((unread.len(), unread.is_empty()), (5, false));
        let first = unread.pop_front().unwrap();
        assert_eq!((first.end, unread.len()), (1, 4));
        unread.push_front(first);
        let taken: Vec<_> = std::iter::from_fn(|| unread.pop_front()).map(|chunk| chunk.end).collect();
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        assert_eq!((unread.len(), unread.is_empty(), unread.behind.capacity()), (0, true, 0));
        unread.push_front(chunk(6));
        unread.push_back(chunk(7));
        assert_eq!([unread.pop_front().unwrap().end, unread.pop_front().unwrap().end], [6, 7]);
        assert!(unread.is_empty());
    }
}
