//! Requests to a leader, served one after the other.

use std::collections::VecDeque;

use crate::group_event::GroupRequest;

/// Requests that wait.
const REQUESTS_MAX: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct RequestQueue {
    waiting: VecDeque<(u64, GroupRequest)>,
    /// Ticket and number of the change under way that answers the first one.
    asked: Option<(u64, u64)>,
}

impl RequestQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// False: there is no room.
    pub(crate) fn push(&mut self, ticket: u64, request: GroupRequest) -> bool {
        let has_room = self.waiting.len() < REQUESTS_MAX;
        if has_room {
            self.waiting.push_back((ticket, request));
        }
        has_room
    }

    pub(crate) fn first(&self) -> Option<(u64, GroupRequest)> {
        self.waiting.front().cloned()
    }

    /// The first one has its answer.
    pub(crate) fn end_first(&mut self) {
        self.waiting.pop_front();
    }

    /// A change is to answer the first one.
    pub(crate) fn ask(&mut self, ticket: u64, change: u64) {
        self.asked = Some((ticket, change));
    }

    pub(crate) fn take_asked(&mut self) -> Option<(u64, u64)> {
        self.asked.take()
    }

    /// Tickets of all, which wait no more.
    pub(crate) fn end_all(&mut self) -> impl Iterator<Item = u64> {
        self.asked = None;
        self.waiting.drain(..).map(|(ticket, _)| ticket)
    }
}
