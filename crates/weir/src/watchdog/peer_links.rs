//! Links between the members of a group, on the watchdog's thread. Nothing here blocks it.
//!
//! For each path to another host one link goes out, which only sends; a link that comes in only receives. So one-way cuts stay simple. Each message
//! goes out on all live links of its host, small ones also as a datagram over each path; receivers tolerate copies. Both sides of a link prove that
//! they know `wd_authkey` (`peer_handshake`), and each message bears a MAC with its number and link.
//!
//! `peer_outgoing`, `peer_incoming` and `peer_datagrams` are tasks; `peer_context` and `peer_host` are what they share.

use crate::log::{Level, ProxyLog};
use crate::watchdog::peer_context::PeerContext;
use crate::watchdog::peer_datagrams::{receive_datagrams, send_datagram};
use crate::watchdog::peer_host::PeerHost;
use crate::watchdog::peer_incoming::accept_links;
use crate::watchdog::peer_outgoing::keep_link;
use crate::watchdog::peer_settings::PeerHostSettings;
use crate::watchdog::peer_sockets::{self, PeerSockets};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_group::{GroupMessage, HostNumber};

pub use crate::watchdog::peer_context::PeerEvent;
pub use crate::watchdog::peer_host::{PeerLinkView, PeerPathView};
pub use crate::watchdog::peer_settings::{PeerKey, PeerSettings};
pub use crate::watchdog::peer_sockets::PeerLinkError;

/// All links of this host. They are closed on drop, when the thread comes to their tasks.
#[must_use = "the links are closed at once"]
pub struct PeerLinks {
    context: Rc<PeerContext>,
    listening: RefCell<JoinSet<()>>,
}

impl PeerLinks {
    /// Listens and begins all links, in a `LocalSet` of a runtime. Events go to `events`: links wait while it is full, datagrams are lost.
    pub fn begin(
        settings: PeerSettings,
        log: Arc<ProxyLog>,
        events: mpsc::Sender<PeerEvent>,
    ) -> Result<PeerLinks, PeerLinkError> {
        let sockets = peer_sockets::open(&settings)?;
        let context = Rc::new(PeerContext::new(settings, log, events));
        let links = PeerLinks { context, listening: RefCell::default() };
        links.listen(sockets);
        links.begin_hosts();
        Ok(links)
    }

    /// Never waits. A host that is not configured, or to which no link is up, hears nothing.
    pub fn send(&self, host: HostNumber, message: &GroupMessage) {
        let Some(host) = self.context.host(host) else { return };
        if let Some(datagram) = host.queue(message, Instant::now()) {
            send_datagram(&self.context, &host, &datagram);
        }
    }

    /// Takes new settings over. Links of hosts that stay the same stay, unless the key or this host's number changed.
    ///
    /// Error: cannot listen; all stays as it was. Not cancel safe: this host may not listen any more.
    pub async fn reconfigure(&self, settings: PeerSettings) -> Result<(), PeerLinkError> {
        let before = self.context.settings();
        if *before == settings {
            return Ok(());
        }
        if !before.listens_as(&settings) {
            self.listen_anew(&before, &settings).await?;
        }
        let are_others = before.key != settings.key || before.host != settings.host;
        self.context.set_settings(settings);
        let settings = self.context.settings();
        self.context.hosts().retain(|_, host| {
            let stays = !are_others && settings.others().any(|other| *other == host.settings);
            if !stays {
                host.end();
            }
            stays
        });
        if are_others {
            self.context.end_strangers();
        }
        self.begin_hosts();
        Ok(())
    }

    /// Closes all at once; the ports are free afterwards. Cancel safe: the rest is closed by the drop.
    pub async fn end(self) {
        let (mut listening, mut tasks) = (self.listening.take(), self.context.end());
        listening.shutdown().await;
        tasks.shutdown().await;
    }

    /// For SHOW, in order of the hosts' numbers.
    pub fn views(&self) -> Vec<PeerLinkView> {
        self.context.hosts().values().map(|host| host.view()).collect()
    }

    /// The last connection from outside that was refused, and why.
    pub fn last_refusal(&self) -> Option<String> {
        self.context.last_refusal()
    }

    /// Datagrams that were heard and lost, since the receiver of events was behind.
    pub fn overflow(&self) -> u64 {
        self.context.overflow.get()
    }

    async fn listen_anew(&self, before: &PeerSettings, settings: &PeerSettings) -> Result<(), PeerLinkError> {
        // The old places may be the new ones in part, so they are given up first.
        let mut listening = self.listening.take();
        listening.shutdown().await;
        let opened = peer_sockets::open(settings);
        let (sockets, outcome) = match opened {
            Ok(sockets) => (Ok(sockets), Ok(())),
            Err(error) => (peer_sockets::open(before), Err(error)),
        };
        match sockets {
            Ok(sockets) => self.listen(sockets),
            Err(error) => self.context.log.say(Level::Error, format_args!("watchdog: {error}")),
        }
        outcome
    }

    fn listen(&self, sockets: PeerSockets) {
        let mut listening = self.listening.borrow_mut();
        for listener in sockets.listeners {
            listening.spawn_local(accept_links(self.context.clone(), listener));
        }
        for socket in sockets.datagrams {
            listening.spawn_local(receive_datagrams(self.context.clone(), socket));
        }
        *self.context.datagram_senders.borrow_mut() = sockets.senders;
    }

    /// Begins the links of hosts that have none yet.
    fn begin_hosts(&self) {
        let settings = self.context.settings();
        self.context.names.keep(&settings.names());
        let has = |host: &PeerHostSettings| self.context.host(host.number).is_some();
        for new in settings.others().filter(|host| !has(host)) {
            let host = Rc::new(PeerHost::new(new.clone()));
            self.context.hosts().insert(new.number, host.clone());
            for path in host.add_paths() {
                let task = self.context.spawn(keep_link(self.context.clone(), host.clone(), path.clone()));
                *path.task.borrow_mut() = Some(task);
            }
        }
    }
}

impl Drop for PeerLinks {
    fn drop(&mut self) {
        self.context.end();
    }
}

#[cfg(test)]
mod tests;
