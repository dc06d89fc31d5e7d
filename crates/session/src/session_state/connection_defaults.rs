//! Defaults of server connections and of their sessions. Decisions are `session::session_state::server_defaults`'.

use super::set_settings;
use crate::conn::Conn;
use crate::context::Context;
use crate::session::Session;
use crate::session_state::server_defaults::{ConnNodeRole, DefaultsChoice, SessionSettings};
use std::sync::Arc;
use weir_wire::write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultsEffect {
    Alike,
    /// The waiting statement must be decided on again.
    Others,
}

/// Takes in the defaults of a new server connection. Must run before the settings are brought: the merge may add to them.
#[inline]
pub fn meet(s: &mut Session, w: &Context) -> DefaultsEffect {
    if s.conn().is_none_or(|conn| s.state.defaults.knows(&conn.defaults)) { DefaultsEffect::Alike } else { take_in(s, w) }
}

#[cold]
fn take_in(s: &mut Session, w: &Context) -> DefaultsEffect {
    let Some(conn) = s.conn() else { return DefaultsEffect::Alike };
    let place = if conn.is_to_primary(&w.view()) { ConnNodeRole::Primary } else { ConnNodeRole::Elsewhere };
    let theirs = conn.defaults.clone();
    let meeting = s.state.defaults.base.meet(&theirs, place);
    let mut own = SessionSettings {
        startup: (*s.state.startup).clone(),
        now: (*s.state.settings).clone(),
        held: std::mem::take(&mut s.state.defaults.held),
    };
    let changed = own.take_in(&meeting);
    s.state.defaults.held = own.held;
    if own.startup != *s.state.startup {
        s.state.startup = w.shared.intern_settings(own.startup).0;
    }
    let before = s.state.settings.clone();
    set_settings(s, w, own.now);
    if meeting.base == DefaultsChoice::Theirs {
        // The session may hold other values against the new defaults.
        s.state.defaults.met.clear();
        s.state.defaults.base = theirs.clone();
    } else {
        s.state.defaults.note_met(theirs.clone());
    }
    for name in &changed {
        if let Some((name, value)) = theirs.report_of(name) {
            write::parameter_status(s.down.extra(&w.buffers), name, value);
        }
    }
    if changed.is_empty() && Arc::ptr_eq(&before, &s.state.settings) { DefaultsEffect::Alike } else { DefaultsEffect::Others }
}

/// True: the server has reloaded its configuration, and the client hears of it. The defaults are asked for again before the next
/// session gets the connection.
pub fn on_own_report(s: &Session, w: &Context, name: &str, value: &str) -> bool {
    let Some(conn) = s.conn() else { return false };
    let is_news = conn.defaults.contradicts(name, value, &conn.settings);
    if is_news {
        note(conn, w);
    }
    is_news
}

/// Looks for a reload. All settings on the connection must be known.
pub fn look(conn: &Conn, w: &Context) {
    if conn.reported.iter().any(|(name, value)| conn.defaults.contradicts(name, value, &conn.settings)) {
        note(conn, w);
    }
}

fn note(conn: &Conn, w: &Context) {
    w.shared.stale.reloads.note(conn.status.address.node, conn.reloads);
}

/// True if the server has reloaded its configuration since it was asked for its defaults.
#[inline]
pub fn are_stale(conn: &Conn, w: &Context) -> bool {
    conn.reloads != w.shared.stale.reloads.of(conn.status.address.node)
}
