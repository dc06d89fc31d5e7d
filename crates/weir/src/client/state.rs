//! What a session has beyond its messages: settings, statements prepared by SQL, and what keeps its link.
//!
//! The session owns what can move; a link is brought to it before use. After a transaction that may have left something the server
//! is asked (`inventory`), so that here stands what is true at the last rest, and `due` says what may be more.

use crate::client::flow::Kept;
use crate::client::hub::Subscription;
use crate::monitor::fault::Fault;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_policy::by_sql::{BySql, Entry};
use weir_policy::inventory::{Answer, Ask};
use weir_policy::sequences::Drawn;
use weir_policy::settings::{Reading, Settings};
use weir_policy::temporary::Temporaries;
use weir_sql::facts::{Keeps, Leaves, Reset};

/// A question under way.
#[derive(Debug, Default)]
pub struct Asking {
    pub ask: Ask,
    pub answer: Answer,
}

/// A statement whose effect on the settings is known from its text, if it succeeds: it is the only one under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plain {
    Set { name: String, value: String },
    Reset(Reset),
}

/// The link is not at rest though nothing is under way for the client: its next statement waits for an answer to something of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    #[default]
    No,
    /// The statement's description was asked for.
    Describing,
    /// The link is being brought to the session's settings.
    Bringing,
    /// The same, after all settings of others were taken back: the link refused to be brought from those.
    Cleaning,
}

pub struct State {
    /// What the session asked for in its startup packet.
    pub startup: Arc<Settings>,
    /// What it has now.
    pub settings: Arc<Settings>,
    /// How these have servers read its texts.
    pub reading: Reading,
    /// What it makes without naming a schema is temporary: its `search_path` says so.
    pub makes_temporary: bool,
    /// Temporary relations it may have.
    pub temporaries: Temporaries,
    /// As it begins, servers read its texts otherwise than Weir's parser.
    pub begins_otherwise: bool,
    /// What was sent and not answered yet may change how the server reads texts.
    pub moves_ahead: bool,
    /// Number of the settings that shape what a statement means.
    pub meaning: u64,
    pub by_sql: Arc<BySql>,
    /// Texts that may have prepared statements by SQL were sent, and the server has not said yet what is there: the names of made-up parameters
    /// in them.
    pub young: Option<Box<Ask>>,
    /// What may have been left on the link since it was last asked.
    pub due: Ask,
    pub asking: Option<Box<Asking>>,
    /// State that cannot move and was there when it was last asked.
    pub found: Leaves,
    /// State of which no server can tell whether it is still there.
    pub stuck: Leaves,
    /// Where it may have drawn from sequences last.
    pub drawn: Option<Drawn>,
    /// `pool_mode = session`: the link stays anyway, and nothing is asked.
    pub by_mode: bool,
    pub plain: Option<Plain>,
    /// What a RESET takes back that was bound and not executed yet.
    pub bound_reset: Option<Reset>,
    /// What a RESET under way takes back to what the session asked for at its start.
    pub resetting: Option<Reset>,
    /// DISCARD ALL has run, and the session's settings are not on the link yet.
    pub was_discarded: bool,
    /// Whether a statement waits for what the link is asked or brought.
    pub claim: Claim,
    /// The startup's values are being set again after a reset.
    pub telling: bool,
    /// The ReadyForQuery of the reset waits for that.
    pub owes_ready: bool,
    /// Parameters whose reports were held back meanwhile, each with the value the client knows.
    pub untold: Vec<(String, String)>,
    /// Once this transaction is over, names may stand for something else.
    pub redefines: bool,
    /// Connections opened before the end of this transaction begin with other settings than those opened later.
    pub renews: bool,
    /// Roles that this transaction has renamed or dropped.
    pub unseats: Vec<String>,
    /// Not all of the session's statements could be brought to this link: it must be cleaned before another's use.
    pub is_link_off: bool,
    /// Statements prepared by SQL that are being brought to the link, in order; without a name those that are taken away.
    pub preparing: VecDeque<Option<Arc<Entry>>>,
    /// Those that the link in use has refused, and why.
    pub refused: Vec<(Arc<Entry>, Fault)>,
    /// What it listens to without a link.
    pub listening: Option<Box<Subscription>>,
}

impl State {
    pub fn new(startup: Arc<Settings>, meaning: u64, by_sql: Arc<BySql>) -> State {
        State {
            begins_otherwise: false,
            makes_temporary: startup.makes_temporary(),
            temporaries: Temporaries::default(),
            moves_ahead: false,
            reading: startup.reading(),
            settings: startup.clone(),
            startup,
            meaning,
            by_sql,
            young: None,
            due: Ask::default(),
            asking: None,
            found: Leaves::NONE,
            stuck: Leaves::NONE,
            drawn: None,
            by_mode: false,
            plain: None,
            bound_reset: None,
            resetting: None,
            was_discarded: false,
            claim: Claim::No,
            telling: false,
            owes_ready: false,
            untold: Vec::new(),
            redefines: false,
            renews: false,
            unseats: Vec::new(),
            is_link_off: false,
            preparing: VecDeque::new(),
            refused: Vec::new(),
            listening: None,
        }
    }

    /// Why the link stays with the session, as far as is known.
    pub fn kept(&self) -> Option<Kept> {
        if self.by_mode {
            return Some(Kept::Mode);
        }
        self.found.and(self.stuck).kinds().next().map(Kept::State)
    }

    /// Why the server does not know a statement prepared by SQL that the session has, by its complaint about that.
    pub fn why_refused(&self, complaint: &[u8]) -> Option<&Fault> {
        self.refused.iter().find(|(entry, _)| quotes(complaint, entry.name.as_bytes())).map(|(_, fault)| fault)
    }

    /// State that was found, or is still asked for: a statement may take it away before the answer to that.
    #[inline]
    pub fn may_have(&self) -> Leaves {
        let asked = self.asking.as_ref().map_or(Leaves::NONE, |asking| asking.ask.kinds);
        self.found.and(self.due.kinds).and(asked)
    }

    /// The link may have more on it than is known.
    pub fn is_unsure(&self) -> bool {
        !self.due.is_empty() || self.asking.is_some()
    }

    /// What it makes without naming a schema is or may be temporary: where its `search_path` leads to is perhaps still asked.
    pub fn may_make_temporary(&self) -> bool {
        let asked = self.asking.as_ref().map_or(Leaves::NONE, |asking| asking.ask.kinds);
        self.makes_temporary || self.due.kinds.and(asked).has(Keeps::Temporary)
    }

    /// Statements analysed now may mean something else than for other sessions of the same settings.
    pub fn is_own(&self) -> bool {
        const SHAPING: Leaves =
            Leaves::of(Keeps::Setting).with(Keeps::Temporary).with(Keeps::Unknown).with(Keeps::Unread).with(Keeps::Library);
        !self.by_mode && !self.stuck.and(self.may_have()).common(SHAPING).is_empty()
    }

    /// Notes what a statement may leave. `text` and `values` are looked through for names of parameters.
    pub fn note(&mut self, leaves: Leaves, functions: &[String], text: &[u8], values: &[u8]) {
        if self.by_mode {
            return;
        }
        self.stuck = self.stuck.and(leaves.common(Leaves::of(Keeps::Library).with(Keeps::Unread)));
        if self.found.has(Keeps::Unknown) && !leaves.is_empty() {
            // The last question was not answered.
            self.due.kinds.add(Keeps::Unknown);
        }
        if leaves.has(Keeps::Setting) {
            let names = weir_sql::names_set(text);
            self.due.names.extend(names.known);
            self.due.any_setting |= names.others;
        }
        // Which of its settings a session may not make itself is told with all of them.
        self.due.any_setting |= leaves.has(Keeps::Setting) && self.found.has(Keeps::ForeignSetting);
        if leaves.has(Keeps::Prepare) {
            self.young.get_or_insert_default().add_custom_names(text);
        }
        if leaves.has(Keeps::Unknown) || self.due.any_setting {
            self.due.add_custom_names(text);
            self.due.add_custom_names(values);
            self.due.functions.extend(functions.iter().cloned());
        }
        self.due.kinds = self.due.kinds.and(leaves.without(Leaves::of(Keeps::Library)));
    }

    /// A parameter changed unasked: some function or the server itself did it. `before`: its value until now.
    pub fn note_report(&mut self, name: &str, before: &str) {
        let is_plain = matches!(&self.plain, Some(Plain::Set { name: set, .. }) if set.eq_ignore_ascii_case(name));
        if self.by_mode || is_plain {
            return;
        }
        match name {
            "in_hot_standby" | "server_version" | "server_encoding" | "integer_datetimes" => return,
            "is_superuser" | "session_authorization" => self.due.names.extend(["role".into(), "session_authorization".into()]),
            _ => {}
        }
        self.due.add_report(name, before);
    }

    /// An error: what a SET or RESET under way was to do does not happen.
    pub fn will_not_reset(&mut self) {
        (self.bound_reset, self.plain) = (None, None);
        // DISCARD ALL commits at once, also in a pipeline.
        if !self.was_discarded {
            self.resetting = None;
        }
    }

    /// The server dropped everything of the session's.
    pub fn discarded(&mut self, none: Arc<BySql>) {
        self.by_sql = none;
        self.due = Ask::default();
        self.found = Leaves::NONE;
        self.stuck = Leaves::NONE;
        self.drawn = None;
        self.listening = None;
        self.temporaries.gone();
    }

    /// Forgets what was under way on a link that is gone.
    pub fn link_lost(&mut self) {
        self.temporaries.gone();
        self.due = Ask::default();
        self.asking = None;
        self.plain = None;
        self.bound_reset = None;
        self.resetting = None;
        self.was_discarded = false;
        self.claim = Claim::No;
        self.telling = false;
        self.owes_ready = false;
        self.untold.clear();
        self.renews = false;
        self.is_link_off = false;
        self.preparing.clear();
        self.refused.clear();
        if let Some(subscription) = &mut self.listening {
            subscription.rules.link_lost();
            subscription.rules.drop_fence();
        }
    }
}

/// True if a complaint of a server's is about this name. The words around it may hold the same letters.
fn quotes(complaint: &[u8], name: &[u8]) -> bool {
    let quoted = [b"\"", name, b"\""].concat();
    complaint.windows(quoted.len()).any(|part| part == quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_about_the_name_in_quotes() {
        let complaint = b"prepared statement \"zzz\" does not exist";
        assert!(quotes(complaint, b"zzz"));
        assert!(!quotes(complaint, b"a") && !quotes(complaint, b"zz") && !quotes(complaint, b""));
    }
}
