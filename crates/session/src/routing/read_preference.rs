//! The targets of a session's reads, by its own word or the operator's, and its own parameters by `PGPOOL SET`. Decisions are
//! `session::routing::read_targets`'s. Worked out when settings or configuration have changed; a read costs two comparisons.

use crate::context::Context;
use crate::doubt::loss_choices;
use crate::fault::{Fault, sqlstate};
use crate::routing::own_parameters::{Item, OWN, Own, Set};
pub use crate::routing::own_parameters::{Line, Logged};
use crate::routing::read_targets::{Asker, ReadPreference, SETTING, of_session};
use crate::routing::{Class, Side};
use crate::session::Session;
use crate::session_state::client_settings::Settings;
use crate::statements::{Statement, Trait};
use crate::{causal, session_state};
use std::sync::Arc;
use weir_catalog::rule::Rule;
use weir_config::redirect::ReadTarget;
use weir_config::visibility::Viewer;
use weir_config::{self as config, CausalReads, SetError};
use weir_sql::facts::Hint;

/// A parameter that servers know as a made-up one, set by SET as well.
pub struct Setting {
    pub(crate) name: &'static str,
    /// Its values, in words.
    pub(crate) allowed: &'static str,
    pub(crate) takes: fn(&str) -> bool,
}

/// All of them.
pub const SETTINGS: [Setting; 4] = [
    Setting {
        name: SETTING,
        allowed: "primary, standby, node=number, or nothing",
        takes: |value| value.trim().is_empty() || ReadTarget::of_hint(Hint::of_word(value)).is_some(),
    },
    Setting {
        name: causal::SETTING,
        allowed: "off, session, tables, global",
        takes: |value| CausalReads::of_word(value).is_some(),
    },
    Setting { name: loss_choices::OUTCOME, allowed: "on, off", takes: |value| loss_choices::of_word(value).is_some() },
    Setting { name: loss_choices::REPLAY, allowed: "on, off", takes: |value| loss_choices::of_word(value).is_some() },
];

/// The target of a read; `hinted`: the target in its hint, or in that of its transaction.
#[inline]
pub fn of(s: &mut Session, w: &Context, hinted: Option<ReadTarget>) -> Option<ReadPreference> {
    if let Some(read_target) = hinted {
        note_wish(w);
        return Some(ReadPreference::always(read_target, Rule::ReadHinted));
    }
    let is_known =
        |(edition, settings): &(u64, Arc<Settings>)| *edition == w.config_edition() && Arc::ptr_eq(settings, &s.state.settings);
    if !s.reads.preferences.known.as_ref().is_some_and(is_known) {
        find(s, w);
    }
    s.reads.preferences.wish
}

/// The node that is wanted may be one that takes no reads by weight.
#[inline]
fn note_wish(w: &Context) {
    if w.shared.positions.wish() {
        causal::wake_sampler(w);
    }
}

#[cold]
fn find(s: &mut Session, w: &Context) {
    let wish = work_out(s, w);
    if wish.is_some() {
        note_wish(w);
    }
    if wish != s.reads.preferences.wish {
        // The node it went to was another one's choice.
        s.reads.favourite = None;
    }
    s.reads.preferences.wish = wish;
    s.reads.preferences.known = Some((w.config_edition(), s.state.settings.clone()));
}

fn work_out(s: &Session, w: &Context) -> Option<ReadPreference> {
    let settings = &s.state.settings;
    let asker = Asker {
        user: &s.account.client_user,
        database: &s.account.client_database,
        application: settings.get("application_name").unwrap_or_default(),
        setting: settings.get(SETTING),
    };
    of_session(&w.peek_config().routing, &asker)
}

/// The same without keeping anything, for those who ask why.
pub fn for_show(s: &Session, w: &Context, statement: &Statement) -> Option<ReadPreference> {
    statement.read_target.map(|read_target| ReadPreference::always(read_target, Rule::ReadHinted)).or_else(|| work_out(s, w))
}

/// Where a statement may run, with regard to the comment it begins with.
#[inline]
pub fn class_of(s: &Session, w: &Context, statement: &Statement, class: Class) -> Class {
    let class = if class.rule == Rule::UnloggedTable && !s.reads.preferences.own.get(Item::CheckUnlogged, &w.peek_config()) {
        statement.class
    } else {
        class
    };
    let is_held = statement.has(Trait::Commented)
        && class.side == Side::Reader
        && w.has_readers()
        && !s.reads.preferences.own.get(Item::AllowComments, &w.peek_config());
    if is_held { Class::primary(Rule::Comment) } else { class }
}

/// `PGPOOL SET`.
pub fn set(s: &mut Session, w: &Context, name: &str, value: &str) -> Result<(), Fault> {
    let checked = w.config().set_for_session(name, value).map_err(|error| refused(&error))?;
    let at = place(name)?;
    let shown = config::show_one(&checked, OWN[at].0, &Viewer::operator())
        .unwrap_or_default()
        .pop()
        .map(|row| row.value)
        .unwrap_or_default();
    s.reads.preferences.own.set(at, Some(Set { value: (OWN[at].1)(&checked), shown: shown.into() }));
    note_idle_limit(s);
    Ok(())
}

/// `PGPOOL RESET`.
pub fn reset(s: &mut Session, w: &Context, name: &str) -> Result<(), Fault> {
    let config = w.config();
    config.reset_for_session(name, &config).map_err(|error| refused(&error))?;
    if name.eq_ignore_ascii_case("all") {
        s.reads.preferences.own = Own::default();
        SETTINGS.iter().for_each(|setting| session_state::set_own(s, w, setting.name, None));
    } else {
        s.reads.preferences.own.set(place(name)?, None);
    }
    note_idle_limit(s);
    Ok(())
}

/// Limits on time are looked at by a task that does not see the session.
fn note_idle_limit(s: &Session) {
    let own = s.reads.preferences.own.at(Item::IdleLimit as usize);
    s.handle.clock.idle_ms.set(own.map(|set| set.value));
}

fn place(name: &str) -> Result<usize, Fault> {
    OWN.iter().position(|(known, _)| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<&str> = OWN.iter().map(|(name, _)| *name).collect();
        Fault::error(sqlstate::FEATURE_NOT_SUPPORTED, format!("parameter \"{name}\" cannot be set for one session yet"))
            .hint(format!("These can: {}.", known.join(", ")))
    })
}

fn refused(error: &SetError) -> Fault {
    let code = match error {
        SetError::Unknown(_) => sqlstate::UNDEFINED_OBJECT,
        SetError::NotPerSession(_) | SetError::AtStart(_) => sqlstate::CANNOT_CHANGE_NOW,
        SetError::Refused(_) | SetError::Value(_) => sqlstate::INVALID_VALUE,
    };
    Fault::error(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn every_item_stands_at_its_place() {
        assert_eq!(Item::IdleLimit as usize + 1, OWN.len());
        assert_eq!(OWN[Item::CheckUnlogged as usize].0, "check_unlogged_table");
        assert_eq!(OWN[Item::Notice as usize].0, "notice_per_node_statement");
        for (name, _) in OWN {
            let value = if name == "client_idle_limit" { "1s" } else { "on" };
            assert!(Config::default().set_for_session(name, value).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_a_session_has_set_goes_before_the_configuration() {
        let mut config = Config::default();
        let mut own = Own::default();
        assert_eq!((own.logged(&config).has(Line::Notice), own.shown("notice_per_node_statement")), (false, None));
        let set = |value: u64, shown: &str| Some(Set { value, shown: shown.into() });
        own.set(Item::Notice as usize, set(1, "on"));
        assert_eq!((own.logged(&config).has(Line::Notice), own.shown("Notice_Per_Node_Statement")), (true, Some("on")));
        own.set(Item::Notice as usize, set(0, "off"));
        config.log.notice_per_node_statement = true;
        assert!(!own.logged(&config).has(Line::Notice));
    }
}
