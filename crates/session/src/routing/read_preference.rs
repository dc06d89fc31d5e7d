//! The targets of a session's reads, and `PGPOOL SET`. Decisions are `session::routing::read_targets`'.

use crate::context::Context;
use crate::doubt::loss_choices;
use crate::fault::{ErrorReport, sqlstate};
use crate::lazy_begin::transaction_place::switch_of;
use crate::routing::own_parameters::{OWN, OwnParameter, OwnParameterValue, OwnParameters};
pub use crate::routing::own_parameters::{StatementLogLine, StatementLogLines};
use crate::routing::read_targets::{ReadPreference, ReadingSession, SETTING, of_session};
use crate::routing::{RouteClass, RouteSide};
use crate::session::Session;
use crate::session_state::client_settings::SettingValues;
use crate::sharding::plan_wish::{self, PlanWish};
use crate::statements::{Statement, StatementTrait};
use crate::{causal, session_state};
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_config::redirect::ReadTarget;
use weir_config::visibility::Viewer;
use weir_config::{self as config, CausalReads, SetError};
use weir_sql::facts::RoutingHint;

/// A parameter of Weir's that SET takes too.
pub struct WeirSetting {
    pub(crate) name: &'static str,
    pub(crate) allowed: &'static str,
    pub(crate) takes: fn(&str) -> bool,
}

pub const SETTINGS: [WeirSetting; 5] = [
    WeirSetting {
        name: SETTING,
        allowed: "primary, standby, node=number, or nothing",
        takes: |value| value.trim().is_empty() || ReadTarget::of_hint(RoutingHint::of_word(value)).is_some(),
    },
    WeirSetting {
        name: causal::SETTING,
        allowed: "off, session, tables, global",
        takes: |value| CausalReads::of_word(value).is_some(),
    },
    WeirSetting { name: loss_choices::OUTCOME, allowed: "on, off", takes: |value| switch_of(value).is_some() },
    WeirSetting { name: loss_choices::REPLAY, allowed: "on, off", takes: |value| switch_of(value).is_some() },
    WeirSetting { name: plan_wish::SETTING, allowed: plan_wish::ALLOWED, takes: |value| PlanWish::of_word(value).is_some() },
];

/// Returns the target of a read. `hinted`: the target in the hint of the statement or its transaction.
#[inline]
pub fn of(s: &mut Session, w: &Context, hinted: Option<ReadTarget>) -> Option<ReadPreference> {
    if let Some(read_target) = hinted {
        note_wish(w);
        return Some(ReadPreference::always(read_target, RoutingRule::ReadHinted));
    }
    let is_known = |(edition, settings): &(u64, Arc<SettingValues>)| {
        *edition == w.config_edition() && Arc::ptr_eq(settings, &s.state.settings)
    };
    if !s.reads.preferences.known.as_ref().is_some_and(is_known) {
        find(s, w);
    }
    s.reads.preferences.wish
}

/// Has the positions sampled: the wanted node may take no reads by weight.
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
        // The favourite was chosen under another wish.
        s.reads.favourite = None;
    }
    s.reads.preferences.wish = wish;
    s.reads.preferences.known = Some((w.config_edition(), s.state.settings.clone()));
}

fn work_out(s: &Session, w: &Context) -> Option<ReadPreference> {
    let settings = &s.state.settings;
    let asker = ReadingSession {
        user: &s.account.client_user,
        database: &s.account.client_database,
        application: settings.get("application_name").unwrap_or_default(),
        setting: settings.get(SETTING),
    };
    of_session(&w.peek_config().routing, &asker)
}

/// Returns the read preference for `SHOW route`, and keeps nothing.
pub fn for_show(s: &Session, w: &Context, statement: &Statement) -> Option<ReadPreference> {
    statement
        .read_target
        .map(|read_target| ReadPreference::always(read_target, RoutingRule::ReadHinted))
        .or_else(|| work_out(s, w))
}

/// Applies the rules for leading comments and unlogged tables.
#[inline]
pub fn class_of(s: &Session, w: &Context, statement: &Statement, class: RouteClass) -> RouteClass {
    let class = if class.rule == RoutingRule::UnloggedTable
        && !s.reads.preferences.own.get(OwnParameter::CheckUnlogged, &w.peek_config())
    {
        statement.class
    } else {
        class
    };
    let is_held = statement.has(StatementTrait::Commented)
        && class.side == RouteSide::Reader
        && w.has_readers()
        && !s.reads.preferences.own.get(OwnParameter::AllowComments, &w.peek_config());
    if is_held { RouteClass::primary(RoutingRule::Comment) } else { class }
}

pub fn set(s: &mut Session, w: &Context, name: &str, value: &str) -> Result<(), ErrorReport> {
    let checked = w.config().set_for_session(name, value).map_err(|error| refused(&error))?;
    let at = place(name)?;
    let shown = config::show_one(&checked, OWN[at].0, &Viewer::operator())
        .unwrap_or_default()
        .pop()
        .map(|row| row.value)
        .unwrap_or_default();
    s.reads.preferences.own.set(at, Some(OwnParameterValue { value: (OWN[at].1)(&checked), shown: shown.into() }));
    note_idle_limit(s);
    Ok(())
}

pub fn reset(s: &mut Session, w: &Context, name: &str) -> Result<(), ErrorReport> {
    let config = w.config();
    config.reset_for_session(name, &config).map_err(|error| refused(&error))?;
    if name.eq_ignore_ascii_case("all") {
        s.reads.preferences.own = OwnParameters::default();
        SETTINGS.iter().for_each(|setting| session_state::set_own(s, w, setting.name, None));
    } else {
        s.reads.preferences.own.set(place(name)?, None);
    }
    note_idle_limit(s);
    Ok(())
}

/// Tells the task that checks time limits, which does not see the session.
fn note_idle_limit(s: &Session) {
    let own = s.reads.preferences.own.at(OwnParameter::IdleLimit as usize);
    s.handle.clock.idle_ms.set(own.map(|set| set.value));
}

fn place(name: &str) -> Result<usize, ErrorReport> {
    OWN.iter().position(|(known, _)| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<&str> = OWN.iter().map(|(name, _)| *name).collect();
        ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, format!("parameter \"{name}\" cannot be set for one session yet"))
            .hint(format!("These can: {}.", known.join(", ")))
    })
}

fn refused(error: &SetError) -> ErrorReport {
    let code = match error {
        SetError::Unknown(_) => sqlstate::UNDEFINED_OBJECT,
        SetError::NotPerSession(_) | SetError::AtStart(_) => sqlstate::CANNOT_CHANGE_NOW,
        SetError::Refused(_) | SetError::Value(_) => sqlstate::INVALID_VALUE,
    };
    ErrorReport::error(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn every_item_stands_at_its_place() {
        assert_eq!(OwnParameter::IdleLimit as usize + 1, OWN.len());
        assert_eq!(OWN[OwnParameter::CheckUnlogged as usize].0, "check_unlogged_table");
        assert_eq!(OWN[OwnParameter::Notice as usize].0, "notice_per_node_statement");
        for (name, _) in OWN {
            let value = if name == "client_idle_limit" { "1s" } else { "on" };
            assert!(Config::default().set_for_session(name, value).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_a_session_has_set_goes_before_the_configuration() {
        let mut config = Config::default();
        let mut own = OwnParameters::default();
        assert_eq!((own.logged(&config).has(StatementLogLine::Notice), own.shown("notice_per_node_statement")), (false, None));
        let set = |value: u64, shown: &str| Some(OwnParameterValue { value, shown: shown.into() });
        own.set(OwnParameter::Notice as usize, set(1, "on"));
        assert_eq!(
            (own.logged(&config).has(StatementLogLine::Notice), own.shown("Notice_Per_Node_Statement")),
            (true, Some("on"))
        );
        own.set(OwnParameter::Notice as usize, set(0, "off"));
        config.log.notice_per_node_statement = true;
        assert!(!own.logged(&config).has(StatementLogLine::Notice));
    }
}
