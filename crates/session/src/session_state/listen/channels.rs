//! Channels that a session listens to, and the two connections that its notifications come from.
//!
//! LISTEN runs on the session's server connection, so that transactions, savepoints and functions keep their meaning. Then its
//! channels move to a connection that many sessions share (the hub). First the hub listens to them. Then the server connection
//! sends a mark through the server's one queue of notifications, and stops listening. Notifications before the mark come from the
//! server connection, later ones from the hub: none is lost or doubled.
//!
//! No IO.

use std::collections::BTreeSet;

pub type Channels = BTreeSet<Vec<u8>>;

/// Number of a notification that a session sends to itself.
pub type Mark = u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenedChannels {
    active: Channels,
    /// By the server's last answer.
    on_conn: Channels,
    moving: Option<ChannelMove>,
    /// The server connection listens to all channels, for a statement that may look at them or end them.
    is_brought: bool,
    fence: NotifyFence,
    last_mark: Mark,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ChannelMove {
    channels: Channels,
    stage: ChannelMoveStage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChannelMoveStage {
    /// The hub does not listen to all of them yet.
    Subscribing,
    /// A mark is on its way through the queue.
    Marked { mark: Mark, seen_on_link: bool, seen_on_hub: bool },
}

/// A transaction that may notify its own session, which must hear that before the transaction's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NotifyFence {
    #[default]
    None,
    /// Notifications of its server process after the mark `before` are its own.
    Open { before: Option<Mark>, is_seen: bool },
    /// Its end is told when the mark `after` has come.
    Closing { before: Option<Mark>, is_seen: bool, after: Mark },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenStep {
    Nothing,
    /// Send this mark, then UNLISTEN.
    Mark(Mark),
    /// The hub has all channels.
    Unlisten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEvent<'a> {
    Notification {
        channel: &'a [u8],
    },
    Mark(Mark),
    /// The hub's connection broke: its notifications and marks are lost.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubEventTreatment {
    Drop,
    Deliver,
    /// Deliver as the session's own, if its server process sent it.
    DeliverOwn,
    Release,
    /// Wait for the server connection.
    Wait,
}

impl ListenedChannels {
    /// True if nothing is listened to, or about to be.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty() && self.on_conn.is_empty() && self.moving.is_none() && self.fence == NotifyFence::None
    }

    pub fn wanted(&self) -> Channels {
        let moving = self.moving.iter().flat_map(|moving| &moving.channels);
        self.active.iter().chain(moving).cloned().collect()
    }

    /// Channels that the hub serves, or will after a mark.
    fn moved(&self) -> Channels {
        let is_marked = |moving: &&ChannelMove| matches!(moving.stage, ChannelMoveStage::Marked { .. });
        let marked = self.moving.iter().filter(is_marked).flat_map(|moving| &moving.channels);
        self.active.iter().chain(marked).cloned().collect()
    }

    pub fn on_answer(&mut self, on_conn: Channels) {
        if std::mem::take(&mut self.is_brought) {
            self.active.retain(|channel| on_conn.contains(channel));
            if let Some(moving) = &mut self.moving {
                moving.channels.retain(|channel| on_conn.contains(channel));
            }
        }
        self.on_conn = on_conn;
        self.plan();
    }

    /// Begins a move to the hub, unless one is marked.
    fn plan(&mut self) {
        if matches!(&self.moving, Some(ChannelMove { stage: ChannelMoveStage::Marked { .. }, .. })) {
            return;
        }
        let channels: Channels = self.on_conn.difference(&self.active).cloned().collect();
        self.moving = (!channels.is_empty()).then_some(ChannelMove { channels, stage: ChannelMoveStage::Subscribing });
    }

    /// `hub_has`: true if the hub listens to a channel.
    pub fn step(&mut self, hub_has: impl Fn(&[u8]) -> bool) -> ListenStep {
        if self.on_conn.is_empty() {
            return ListenStep::Nothing;
        }
        let is_moved = self.on_conn.is_subset(&self.moved());
        let step = match &mut self.moving {
            Some(ChannelMove { channels, stage: stage @ ChannelMoveStage::Subscribing }) => {
                if !channels.iter().all(|channel| hub_has(channel)) {
                    return ListenStep::Nothing;
                }
                self.last_mark += 1;
                *stage = ChannelMoveStage::Marked { mark: self.last_mark, seen_on_link: false, seen_on_hub: false };
                ListenStep::Mark(self.last_mark)
            }
            _ if is_moved => ListenStep::Unlisten,
            _ => return ListenStep::Nothing,
        };
        self.on_conn.clear();
        self.is_brought = false;
        step
    }

    pub fn on_conn(&mut self, channel: &[u8], mark: Option<Mark>) -> bool {
        if let Some(mark) = mark {
            if let Some(ChannelMove { stage: ChannelMoveStage::Marked { mark: awaited, seen_on_link, .. }, .. }) =
                &mut self.moving
            {
                *seen_on_link |= *awaited == mark;
            }
            self.finish();
            return false;
        }
        let is_past_mark = |moving: &ChannelMove| {
            matches!(moving.stage, ChannelMoveStage::Marked { seen_on_link: true, .. }) && moving.channels.contains(channel)
        };
        !self.active.contains(channel) && !self.moving.as_ref().is_some_and(is_past_mark)
    }

    /// The mark of a server connection that is gone counts as seen.
    pub fn conn_done(&mut self) {
        if let Some(ChannelMove { stage: ChannelMoveStage::Marked { seen_on_link, .. }, .. }) = &mut self.moving {
            *seen_on_link = true;
        }
        self.finish();
    }

    pub fn conn_lost(&mut self) {
        self.conn_done();
        self.on_conn.clear();
        self.is_brought = false;
        self.plan();
    }

    pub fn on_event(&mut self, event: ChannelEvent<'_>) -> HubEventTreatment {
        match event {
            ChannelEvent::Notification { channel } => self.on_notification(channel),
            ChannelEvent::Mark(mark) => self.on_mark(mark),
            ChannelEvent::Lost => {
                if let Some(ChannelMove { stage: ChannelMoveStage::Marked { seen_on_hub, .. }, .. }) = &mut self.moving {
                    *seen_on_hub = true;
                }
                self.finish();
                let was_closing = matches!(self.fence, NotifyFence::Closing { .. });
                self.fence = NotifyFence::None;
                if was_closing { HubEventTreatment::Release } else { HubEventTreatment::Drop }
            }
        }
    }

    fn on_notification(&self, channel: &[u8]) -> HubEventTreatment {
        let deliver = match self.fence {
            NotifyFence::Open { is_seen: true, .. } | NotifyFence::Closing { is_seen: true, .. } => HubEventTreatment::DeliverOwn,
            NotifyFence::None | NotifyFence::Open { .. } | NotifyFence::Closing { .. } => HubEventTreatment::Deliver,
        };
        if self.active.contains(channel) {
            return deliver;
        }
        match &self.moving {
            Some(ChannelMove { channels, stage: ChannelMoveStage::Marked { seen_on_link, seen_on_hub: true, .. } })
                if channels.contains(channel) =>
            {
                if *seen_on_link {
                    deliver
                } else {
                    HubEventTreatment::Wait
                }
            }
            _ => HubEventTreatment::Drop,
        }
    }

    fn on_mark(&mut self, mark: Mark) -> HubEventTreatment {
        if let Some(ChannelMove { stage: ChannelMoveStage::Marked { mark: awaited, seen_on_hub, .. }, .. }) = &mut self.moving {
            *seen_on_hub |= *awaited == mark;
        }
        self.finish();
        match &mut self.fence {
            NotifyFence::Open { before, is_seen } => *is_seen |= *before == Some(mark),
            NotifyFence::Closing { before, is_seen, after } => {
                if *after == mark {
                    self.fence = NotifyFence::None;
                    return HubEventTreatment::Release;
                }
                *is_seen |= *before == Some(mark);
            }
            NotifyFence::None => {}
        }
        HubEventTreatment::Drop
    }

    /// A move ends when its mark has come on both ways.
    fn finish(&mut self) {
        if let Some(ChannelMove { stage: ChannelMoveStage::Marked { seen_on_link: true, seen_on_hub: true, .. }, .. }) =
            &self.moving
            && let Some(moving) = self.moving.take()
        {
            self.active.extend(moving.channels);
            self.plan();
        }
    }

    /// Returns the channels that the server connection must listen to first; `None`: no change.
    pub fn bring(&mut self) -> Option<Channels> {
        let moved = self.moved();
        if self.is_brought || moved.is_empty() {
            return None;
        }
        self.is_brought = true;
        Some(moved)
    }

    /// Opens the fence before a statement that may notify. Returns the mark to send before it.
    pub fn open_fence(&mut self, may_mark: MayMark) -> Option<Mark> {
        if self.fence != NotifyFence::None || self.moved().is_empty() {
            return None;
        }
        let before = (may_mark == MayMark::Yes).then(|| {
            self.last_mark += 1;
            self.last_mark
        });
        self.fence = NotifyFence::Open { before, is_seen: false };
        before
    }

    /// Ends the transaction. `Some`: send this mark; the client hears of the end when it has come.
    pub fn close_fence(&mut self, may_mark: MayMark) -> Option<Mark> {
        let NotifyFence::Open { before, is_seen } = self.fence else { return None };
        if may_mark == MayMark::No {
            self.fence = NotifyFence::None;
            return None;
        }
        self.last_mark += 1;
        self.fence = NotifyFence::Closing { before, is_seen, after: self.last_mark };
        Some(self.last_mark)
    }

    pub fn is_closing(&self) -> bool {
        matches!(self.fence, NotifyFence::Closing { .. })
    }

    pub fn drop_fence(&mut self) {
        self.fence = NotifyFence::None;
    }

    pub fn is_moving(&self) -> bool {
        self.moving.is_some() || !self.on_conn.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayMark {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(names: &[&str]) -> Channels {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn hears(listening: &mut ListenedChannels, channel: &str) -> HubEventTreatment {
        listening.on_event(ChannelEvent::Notification { channel: channel.as_bytes() })
    }

    /// A session that has moved these channels to the hub.
    fn moved(names: &[&str]) -> ListenedChannels {
        let mut listening = ListenedChannels::default();
        listening.on_answer(channels(names));
        let ListenStep::Mark(mark) = listening.step(|_| true) else { panic!("{listening:?}") };
        assert!(!listening.on_conn(b"mark", Some(mark)));
        assert_eq!(listening.on_event(ChannelEvent::Mark(mark)), HubEventTreatment::Drop);
        assert_eq!(listening.moved(), channels(names));
        assert!(!listening.is_moving());
        listening
    }

    #[test]
    fn a_session_listens_as_long_as_one_thing_of_it_is_left() {
        let some = || channels(&["a"]);
        for (what, change) in [
            (
                "the hub serves it",
                (|l: &mut ListenedChannels| l.active = BTreeSet::from([b"a".to_vec()])) as fn(&mut ListenedChannels),
            ),
            ("its server connection does", |l| l.on_conn = BTreeSet::from([b"a".to_vec()])),
            ("it moves", |l| {
                l.moving = Some(ChannelMove { channels: Channels::default(), stage: ChannelMoveStage::Subscribing })
            }),
            ("it notifies itself", |l| l.fence = NotifyFence::Open { before: None, is_seen: false }),
        ] {
            let mut listening = ListenedChannels::default();
            assert!(listening.is_empty());
            change(&mut listening);
            assert!(!listening.is_empty(), "{what}");
        }
        assert!(!moved(&["a"]).is_empty() && moved(&["a"]).wanted() == some());
    }

    #[test]
    fn a_notification_comes_from_the_link_before_the_mark_and_from_the_hub_after_it() {
        let mut listening = ListenedChannels::default();
        listening.on_answer(channels(&["a"]));
        assert_eq!(listening.wanted(), channels(&["a"]));
        assert_eq!(listening.step(|_| false), ListenStep::Nothing);
        assert!(listening.on_conn(b"a", None));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Drop);
        assert_eq!(listening.step(|_| true), ListenStep::Mark(1));
        assert!(listening.on_conn(b"a", None));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Drop);
        assert_eq!(listening.on_event(ChannelEvent::Mark(1)), HubEventTreatment::Drop);
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Wait, "the link still has some that are older");
        assert!(listening.on_conn(b"a", None));
        assert!(!listening.on_conn(b"mark", Some(1)));
        assert!(!listening.on_conn(b"a", None));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Deliver);
        assert_eq!(listening.step(|_| true), ListenStep::Nothing);
    }

    #[test]
    fn the_mark_may_come_on_the_link_first() {
        let mut listening = ListenedChannels::default();
        listening.on_answer(channels(&["a"]));
        assert_eq!(listening.step(|_| true), ListenStep::Mark(1));
        listening.on_conn(b"mark", Some(1));
        assert!(!listening.on_conn(b"a", None));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Drop, "it came on the link");
        listening.on_event(ChannelEvent::Mark(1));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Deliver);
    }

    #[test]
    fn what_a_transaction_did_to_it_is_told_by_the_answer() {
        let mut listening = moved(&["a", "b"]);
        assert_eq!(listening.bring(), Some(channels(&["a", "b"])));
        assert_eq!(listening.bring(), None);
        assert!(!listening.on_conn(b"a", None), "the hub has it");
        listening.on_answer(channels(&["b", "c"]));
        assert_eq!(listening.wanted(), channels(&["b", "c"]));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Drop);
        assert_eq!(hears(&mut listening, "b"), HubEventTreatment::Deliver);
        assert!(listening.on_conn(b"c", None));
        assert_eq!(listening.step(|_| true), ListenStep::Mark(2));
    }

    #[test]
    fn what_was_not_brought_cannot_be_taken_away() {
        let mut listening = moved(&["a"]);
        listening.on_answer(channels(&[]));
        assert_eq!(listening.wanted(), channels(&["a"]));
        listening.on_answer(channels(&["a"]));
        assert_eq!(listening.step(|_| true), ListenStep::Unlisten);
        assert_eq!(listening.step(|_| true), ListenStep::Nothing);
        listening.bring();
        listening.on_answer(channels(&[]));
        assert!(listening.is_empty());
    }

    #[test]
    fn what_is_listened_to_during_a_move_follows_by_another() {
        let mut listening = ListenedChannels::default();
        listening.on_answer(channels(&["a"]));
        assert_eq!(listening.step(|_| true), ListenStep::Mark(1));
        listening.on_conn(b"mark", Some(1));
        listening.on_answer(channels(&["c"]));
        assert_eq!(listening.step(|_| true), ListenStep::Nothing);
        assert!(listening.on_conn(b"c", None));
        listening.on_event(ChannelEvent::Mark(1));
        assert_eq!(listening.wanted(), channels(&["a", "c"]));
        assert_eq!(listening.step(|_| true), ListenStep::Mark(2));
    }

    #[test]
    fn a_transaction_that_notifies_is_over_when_its_mark_has_come() {
        let mut listening = moved(&["a"]);
        assert_eq!(listening.open_fence(MayMark::Yes), Some(2));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Deliver, "of whoever used the server process before");
        listening.on_event(ChannelEvent::Mark(2));
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::DeliverOwn);
        assert_eq!(listening.close_fence(MayMark::Yes), Some(3));
        assert!(listening.is_closing());
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::DeliverOwn);
        assert_eq!(listening.on_event(ChannelEvent::Mark(3)), HubEventTreatment::Release);
        assert_eq!(hears(&mut listening, "a"), HubEventTreatment::Deliver);
        assert_eq!(listening.close_fence(MayMark::Yes), None);
    }

    #[test]
    fn a_hub_that_breaks_ends_every_wait() {
        let mut listening = moved(&["a"]);
        listening.open_fence(MayMark::No);
        assert!(listening.close_fence(MayMark::Yes).is_some());
        assert_eq!(listening.on_event(ChannelEvent::Lost), HubEventTreatment::Release);
        listening.on_answer(channels(&["b"]));
        listening.step(|_| true);
        listening.on_conn(b"mark", Some(3));
        listening.on_event(ChannelEvent::Lost);
        assert!(!listening.is_moving());
        assert_eq!(hears(&mut listening, "b"), HubEventTreatment::Deliver);
    }

    #[test]
    fn a_fence_whose_connection_is_gone_holds_nothing_up() {
        let mut listening = moved(&["a"]);
        listening.open_fence(MayMark::Yes);
        listening.drop_fence();
        assert_eq!(listening.close_fence(MayMark::Yes), None);
        listening.open_fence(MayMark::Yes);
        assert!(listening.close_fence(MayMark::Yes).is_some() && listening.is_closing());
        listening.drop_fence();
        assert!(!listening.is_closing());
    }
}
