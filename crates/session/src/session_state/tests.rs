//! The state that a statement may leave, as it is noted before it is sent.

use super::*;
use crate::session_state::client_settings::SettingValues;
use crate::session_state::state_question::StateQuestion;
use crate::session_state::temporary::TemporaryList;
use crate::statements::StatementCache as Texts;
use weir_config::Config;

/// The facts about a session before a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Its `search_path` leads to its temporary relations.
    PathOfTemporaries,
    /// The server is asked where its `search_path` leads.
    PathIsAsked,
    /// It has a temporary relation.
    Temporary,
    /// Code of users ran, and the server has not been asked.
    Code,
    /// `pool_mode = session`.
    ByMode,
}

const ALL: [Before; 6] =
    [Before::Nothing, Before::PathOfTemporaries, Before::PathIsAsked, Before::Temporary, Before::Code, Before::ByMode];

/// The state before which a statement may make that what follows it is read otherwise, and before which the temporary relations may be others.
fn noted(text: &str) -> (Vec<Before>, Vec<Before>) {
    let (mut moves, mut temporaries) = (Vec::new(), Vec::new());
    for before in ALL {
        let mut state = HeldState::new(Arc::new(SettingValues::default()), 0, Arc::default(), Arc::default());
        let mut left = LeftoverState::default();
        match before {
            Before::Nothing => {}
            Before::PathOfTemporaries => state.makes_temporary = true,
            Before::PathIsAsked => {
                let ask = StateQuestion { kinds: StateKinds::of(StateKind::Temporary), ..StateQuestion::default() };
                left.asking = Some(Box::new(PendingStateQuestion { ask, ..PendingStateQuestion::default() }));
            }
            Before::Temporary => {
                left.found.add(StateKind::Temporary);
                left.temporaries.told(Some(TemporaryList::default()));
            }
            Before::Code => left.due.kinds.add(StateKind::Unknown),
            Before::ByMode => state.by_mode = true,
        }
        let statement = Texts::new(Arc::new(Config::default()), 1, |_| None).of_text(text.as_bytes());
        let may_change = statement.state.may_change;
        note(&state, &mut left, &statement, may_change, StateKinds::NONE, (text.as_bytes(), &[]), true);
        note_unseen(&state, &mut left, &statement);
        moves.extend(left.moves_ahead.then_some(before));
        temporaries.extend(left.temporaries.is_due().then_some(before));
    }
    (moves, temporaries)
}

/// Before these a statement that makes a relation without naming a schema may make a temporary one, or is about one.
const BY_PATH: &[Before] = &[Before::PathOfTemporaries, Before::PathIsAsked, Before::Temporary, Before::Code, Before::ByMode];

/// The server is asked for all anyway.
const CODE: &[Before] = &[Before::Code];

/// Nobody asks in a session that keeps its server connection.
const UNASKED: &[Before] = &[Before::Code, Before::ByMode];

#[test]
fn what_may_be_unseen_of_a_statement_hangs_on_what_was_before() {
    for (text, moves, temporaries) in [
        ("select 1", CODE, CODE),
        ("select lower('a')", CODE, CODE),
        ("begin", CODE, CODE),
        ("listen a", CODE, CODE),
        ("declare c cursor with hold for select 1", CODE, CODE),
        ("discard temp", CODE, CODE),
        ("insert into t values (1)", UNASKED, CODE),
        ("load 'x'", UNASKED, CODE),
        ("set work_mem = '1MB'", &ALL, CODE),
        ("set search_path = x", &ALL, CODE),
        ("select set_config('a.b', 'c', false)", &ALL, CODE),
        ("execute p", UNASKED, UNASKED),
        ("prepare p as select 1", UNASKED, UNASKED),
        ("create table x (a int)", UNASKED, BY_PATH),
        ("alter table x rename to y", UNASKED, BY_PATH),
        ("drop table x", UNASKED, BY_PATH),
        ("select 1 into x", UNASKED, BY_PATH),
        ("create temp table x (a int)", UNASKED, &ALL),
        ("create temp table x (a int) on commit drop", UNASKED, &ALL),
        ("select f(1)", &ALL, &ALL),
        ("do 'begin end'", &ALL, &ALL),
        ("call p()", &ALL, &ALL),
        ("selec 1", &ALL, &ALL),
    ] {
        let (moves, temporaries) = (moves.to_vec(), temporaries.to_vec());
        assert_eq!(noted(text), (moves, temporaries), "{text}");
    }
}
