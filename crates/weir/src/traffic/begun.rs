//! Transactions whose BEGIN waits for the first statement: that one says where they run, and a server that is not needed is not asked.
//!
//! The client is answered at once. What it sends next takes a link, and the BEGIN goes in front of it in the same write; its answer is
//! eaten. A transaction that ends or fails before a server knew of it never costs one; if a statement follows the failure, the server is
//! made to fail too, so that it says what a failed transaction says. Decisions are `policy::transaction`'s.

use crate::client::inventory;
use crate::client::session::{Begun, FAILED, IDLE, Session, WITHIN};
use crate::client::session_card::Doing;
use crate::client::statements::Statement;
use crate::monitor::metrics::Metric;
use crate::monitor::stats::Stat;
use crate::monitor::views::Local;
use crate::process::worker::Worker;
use crate::traffic::judging;
use crate::traffic::wishes;
use std::rc::Rc;
use weir_policy::config::PoolMode;
use weir_policy::replies::Expect;
use weir_policy::route::{Class, Side};
use weir_policy::rule::Rule;
use weir_policy::transaction::{self, Ask, Defaults};
use weir_policy::wish::Goal;
use weir_sql::facts::{Begin, Ending, Hint, Isolation, Keeps, Leaves, Transaction, Verb};

/// Fails on every server.
const FAILING: &str = "the transaction has failed";

/// State that a transaction may leave on any server, since it moves with its session.
pub const MOVES: Leaves = Leaves::of(Keeps::Setting).with(Keeps::Prepare);

/// Whether a BEGIN may wait. Not in a transaction, and not behind what a link has still to do. What a session listens to is told to
/// its link by the BEGIN. One that is refused is not answered.
#[inline]
pub fn may_hold(s: &Session) -> bool {
    s.link.is_none()
        && s.transaction == IDLE
        && !s.begun.is_open()
        && s.state.listening.is_none()
        && s.pools.limits.get().mode != PoolMode::Statement
}

/// Begins a transaction that no server knows of. Says its command tag.
pub fn hold(s: &mut Session, w: &Worker, statement: &Rc<Statement>) -> &'static str {
    w.count(Metric::BeginsHeld);
    s.begun = Begun::Held(statement.clone());
    let now = w.reactor.now();
    s.entry.clock.transaction_since.set(Some(now));
    s.entry.clock.ready_at.set(now);
    s.entry.card.set_doing(Doing::IdleInTransaction);
    if options_of(statement).starts { "START TRANSACTION" } else { "BEGIN" }
}

/// Ends it. Says the command tag.
pub fn end(s: &mut Session, w: &Worker, ending: Ending) -> &'static str {
    let begun = std::mem::take(&mut s.begun);
    let clock = &s.entry.clock;
    if let Some(began) = clock.transaction_since.take() {
        let us = w.reactor.now().saturating_duration_since(began).as_micros() as u64;
        s.pools.stats.add(Stat::Transactions, 1);
        s.pools.stats.add(Stat::TransactionUs, us);
    }
    clock.ready_at.set(w.reactor.now());
    s.entry.card.set_doing(Doing::Idle);
    match (ending, begun) {
        (Ending::Commit, Begun::No | Begun::Held(_) | Begun::Sent(_)) => "COMMIT",
        (Ending::Commit, Begun::Failed(_)) | (Ending::Rollback | Ending::Prepare, _) => "ROLLBACK",
    }
}

/// Where the transaction runs whose first statement this is; none if no transaction waits for one.
#[inline]
pub fn class_of(s: &mut Session, w: &Worker, statement: &Statement) -> Option<Class> {
    let begin = match &s.begun {
        Begun::No | Begun::Sent(_) => return None,
        Begun::Failed(_) => return Some(Class::primary(Rule::TransactionControl)),
        Begun::Held(begin) => begin.clone(),
    };
    let class = judging::class_of(s, w, statement);
    let class = transaction::class_of(&Ask {
        begin: options_of(&begin),
        defaults: defaults(s),
        class: wishes::class_of(s, w, statement, class),
        stays: statement.locks || !statement.leaves.without(MOVES).is_empty(),
        is_of_primary: statement.is_of_primary,
    });
    // What stands in front of the BEGIN holds for the transaction.
    let to_primary = class.side == Side::Reader && begin.hint == Hint::Primary;
    Some(if to_primary { Class::primary(Rule::Hint) } else { wishes::class_of(s, w, &begin, class) })
}

/// Where the transaction that waits for its first statement shall run, by the hint in front of its BEGIN.
pub fn goal(s: &Session) -> Option<Goal> {
    match &s.begun {
        Begun::Held(begin) => begin.goal,
        Begun::No | Begun::Sent(_) | Begun::Failed(_) => None,
    }
}

fn options_of(statement: &Statement) -> Begin {
    match statement.transaction {
        Transaction::Begin(begin) => begin,
        Transaction::None | Transaction::End(_) | Transaction::Within | Transaction::Prepared | Transaction::Many => {
            Begin::default()
        }
    }
}

/// What the session begins its transactions with.
fn defaults(s: &Session) -> Defaults {
    let settings = &s.state.settings;
    let isolation = settings.get("default_transaction_isolation").map(transaction::isolation_of);
    let read_only = settings.get("default_transaction_read_only").is_some_and(transaction::is_on);
    Defaults { isolation: isolation.unwrap_or(Isolation::ReadCommitted), read_only }
}

/// Sends the BEGIN over the session's link, in front of the statement that is about to be sent.
pub fn send(s: &mut Session, w: &Worker) {
    let (statement, has_failed) = match std::mem::take(&mut s.begun) {
        Begun::Held(statement) => (statement, false),
        Begun::Failed(statement) => (statement, true),
        other @ (Begun::No | Begun::Sent(_)) => return s.begun = other,
    };
    if let Some(Local::Begin(text)) = &statement.local {
        inventory::send(s, w, text, Expect::BeginOurs);
        if let Some(link) = &s.link {
            w.counters().count_statement(link.card.address.node, Verb::Other);
        }
        s.transaction = WITHIN;
    }
    if has_failed {
        inventory::send(s, w, FAILING, Expect::FailOurs);
        s.transaction = FAILED;
    }
    s.begun = Begun::Sent(statement);
}

/// The link is lost. True: with it only a transaction that had not begun for the server, as far as anybody knows; it has failed.
pub fn lost(s: &mut Session) -> bool {
    match std::mem::take(&mut s.begun) {
        Begun::Sent(statement) => {
            s.begun = Begun::Failed(statement);
            s.transaction = IDLE;
            true
        }
        other => {
            s.begun = other;
            false
        }
    }
}
