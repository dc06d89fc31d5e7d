//! Counts by text, user and database. One worker writes its rows without a lock; views of any thread add them up.

use crate::account::Account;
use crate::histogram::{Histogram, HistogramCounts, TimeBucket, add};
use crate::statement_statistics::row_ticket::{LastPlace, RowTicket};
use crate::statements::{Statement, StatementTrait};
use crate::upstream::TakenFor;
use foldhash::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use weir_catalog::rule::RoutingRule;
use weir_sql::without_literals::without_literals;

/// Most rows of a worker. A place must fit `RowTicket`.
pub const ROWS_MAX: u32 = 50_000;
/// Part kept of a text.
const TEXT_BYTES_MAX: usize = 1024;
/// Functions kept of those that a text calls, and the longest name of one on a server.
const FUNCTIONS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 63;
/// One of so many rows makes room at once, the least used: a search for each new text would cost too much.
const EVICTED_PART: usize = 16;

/// The text of a statement, as far as it may be shown.
#[derive(Clone, Copy, Debug)]
pub enum StatementSource<'a> {
    Text(&'a [u8]),
    FunctionCall,
    /// Prepared by SQL, or too long to be kept.
    OnServer,
}

impl StatementSource<'_> {
    /// Only where the parser read the text is it known which part of it is a literal.
    fn shown(self, statement: &Statement) -> String {
        match self {
            StatementSource::Text(_) if statement.has(StatementTrait::Unread) => "<a text that is not parsed>".into(),
            StatementSource::Text(text) => without_literals(&String::from_utf8_lossy(text)),
            StatementSource::FunctionCall => "<a function call by number>".into(),
            StatementSource::OnServer => "<a statement that only the server knows>".into(),
        }
    }
}

fn functions_of(statement: &Statement) -> Box<[String]> {
    let functions = statement.state.functions.iter().filter(|name| name.len() <= NAME_BYTES_MAX);
    functions.take(FUNCTIONS_MAX).cloned().collect()
}

/// One text has one number, everywhere and always.
fn id_of(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

fn cut(mut text: String) -> Arc<str> {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text.into()
}

/// Counts of one row, with a single writer.
#[derive(Debug)]
pub struct StatementRow {
    ticket: AtomicU64,
    /// Runs by role of the server: see `TakenFor`.
    runs: [AtomicU64; 3],
    rows: AtomicU64,
    bytes: AtomicU64,
    from_cache: AtomicU64,
    parses: AtomicU64,
    errors: AtomicU64,
    sqlstate: AtomicU64,
    rule: AtomicU8,
    times: Histogram,
}

impl Default for StatementRow {
    fn default() -> StatementRow {
        let zero = || AtomicU64::new(0);
        StatementRow {
            ticket: AtomicU64::new(RowTicket::VACANT.0),
            runs: [const { AtomicU64::new(0) }; 3],
            rows: zero(),
            bytes: zero(),
            from_cache: zero(),
            parses: zero(),
            errors: zero(),
            sqlstate: zero(),
            rule: AtomicU8::new(RoutingRule::Read as u8),
            times: Histogram::default(),
        }
    }
}

/// A run of a statement on a server.
#[derive(Clone, Copy, Debug)]
pub struct StatementRun {
    pub us: u64,
    pub bucket: TimeBucket,
    pub rows: u64,
    pub bytes: u64,
    pub role: TakenFor,
    pub rule: RoutingRule,
}

impl StatementRow {
    #[inline]
    pub fn count(&self, run: StatementRun) {
        self.times.note_in(run.bucket, run.us);
        add(&self.runs[run.role as usize], 1);
        add(&self.rows, run.rows);
        add(&self.bytes, run.bytes);
        self.rule.store(run.rule as u8, Ordering::Relaxed);
    }

    pub fn count_hit(&self, rows: u64, bytes: u64) {
        add(&self.from_cache, 1);
        add(&self.rows, rows);
        add(&self.bytes, bytes);
    }

    #[inline]
    pub fn count_parse(&self) {
        add(&self.parses, 1);
    }

    pub fn count_error(&self, sqlstate: &[u8]) {
        add(&self.errors, 1);
        let code = sqlstate.iter().take(5).fold(0, |code, byte| (code << 8) | u64::from(*byte));
        self.sqlstate.store(code, Ordering::Relaxed);
    }

    fn clear(&self, ticket: RowTicket) {
        let numbers = [&self.rows, &self.bytes, &self.from_cache, &self.parses, &self.errors, &self.sqlstate];
        numbers.into_iter().chain(&self.runs).for_each(|number| number.store(0, Ordering::Relaxed));
        self.times.clear();
        self.rule.store(RoutingRule::Read as u8, Ordering::Relaxed);
        self.ticket.store(ticket.0, Ordering::Relaxed);
    }

    fn calls(&self) -> u64 {
        self.runs.iter().chain([&self.from_cache]).map(|number| number.load(Ordering::Relaxed)).sum()
    }

    fn counted(&self) -> StatementCounts {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        StatementCounts {
            on_primary: load(&self.runs[TakenFor::Primary as usize]) + load(&self.runs[TakenFor::PrimaryToRead as usize]),
            on_standby: load(&self.runs[TakenFor::Standby as usize]),
            from_cache: load(&self.from_cache),
            rows: load(&self.rows),
            bytes: load(&self.bytes),
            parses: load(&self.parses),
            errors: load(&self.errors),
            sqlstate: load(&self.sqlstate),
            rule: RoutingRule::all().nth(self.rule.load(Ordering::Relaxed).into()).unwrap_or(RoutingRule::Read),
            times: self.times.counted(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementCounts {
    pub on_primary: u64,
    pub on_standby: u64,
    pub from_cache: u64,
    pub rows: u64,
    pub bytes: u64,
    pub parses: u64,
    pub errors: u64,
    sqlstate: u64,
    pub rule: RoutingRule,
    /// Of runs on servers.
    pub times: HistogramCounts,
}

impl StatementCounts {
    /// The last error's SQLSTATE is that of either.
    pub fn add(&mut self, other: &StatementCounts) {
        let sums = [
            (&mut self.on_primary, other.on_primary),
            (&mut self.on_standby, other.on_standby),
            (&mut self.from_cache, other.from_cache),
            (&mut self.rows, other.rows),
            (&mut self.bytes, other.bytes),
            (&mut self.parses, other.parses),
            (&mut self.errors, other.errors),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum += more);
        if other.sqlstate != 0 {
            self.sqlstate = other.sqlstate;
        }
        self.times.add(&other.times);
    }

    pub fn runs(&self) -> u64 {
        self.on_primary + self.on_standby
    }

    pub fn calls(&self) -> u64 {
        self.runs() + self.from_cache
    }

    /// `None`: no error.
    pub fn sqlstate(&self) -> Option<String> {
        let code = &self.sqlstate.to_be_bytes()[3..];
        (self.sqlstate != 0).then(|| String::from_utf8_lossy(code).into_owned())
    }
}

/// Whose statement a row is about.
#[derive(Debug, PartialEq, Eq)]
pub struct StatementName {
    pub id: u64,
    /// Without literals.
    pub text: Arc<str>,
    pub user: Arc<str>,
    /// The role at the servers.
    pub role: Arc<str>,
    pub database: Arc<str>,
    /// Functions that are not PostgreSQL's.
    pub functions: Box<[String]>,
    pub only_reads: bool,
}

/// One worker's rows, as all threads see them.
#[derive(Debug)]
pub struct StatementBoard {
    rows: Arc<[StatementRow]>,
    /// By place. Held while a row gets another statement, so that counts are never shown with another one's name.
    names: Mutex<Vec<Option<Arc<StatementName>>>>,
}

impl StatementBoard {
    pub fn new(rows: u32) -> StatementBoard {
        let rows = rows.min(ROWS_MAX) as usize;
        StatementBoard { rows: (0..rows).map(|_| StatementRow::default()).collect(), names: Mutex::new(vec![None; rows]) }
    }

    pub fn counted(&self) -> Vec<(Arc<StatementName>, StatementCounts)> {
        let names = self.names.lock();
        let named = names.iter().zip(self.rows.iter());
        named.filter_map(|(name, row)| name.clone().map(|name| (name, row.counted()))).collect()
    }

    /// Hides all rows until the worker begins anew: see `WorkerStatements::reset`.
    pub fn hide(&self) {
        self.names.lock().fill(None);
    }
}

/// Rows in use.
#[derive(Debug, Default)]
struct SeatedRows {
    /// By text and account.
    places: HashMap<(u64, u64), u16>,
    /// Reverse of `places`, with the use at the last search for room. `None`: free.
    seats: Vec<Option<RowSeat>>,
    next_number: u64,
    accounts: u64,
}

#[derive(Clone, Copy, Debug)]
struct RowSeat {
    of: (u64, u64),
    /// Calls at the last search.
    calls: u64,
    /// Use before: half of it counts at each search.
    usage: u64,
}

/// The worker's side.
pub struct WorkerStatements {
    /// The rows of `board`, nearer.
    rows: Arc<[StatementRow]>,
    board: Arc<StatementBoard>,
    /// A multiple of `EDITION`, another one whenever rows change hands. 0: no statistics.
    edition: Cell<u64>,
    seated: RefCell<SeatedRows>,
}

const EDITION: u64 = 1 << 32;

impl WorkerStatements {
    pub fn new(board: Arc<StatementBoard>) -> WorkerStatements {
        let edition = if board.rows.is_empty() { 0 } else { EDITION };
        WorkerStatements { rows: board.rows.clone(), board, edition: Cell::new(edition), seated: RefCell::default() }
    }

    #[inline]
    pub fn is_off(&self) -> bool {
        self.edition.get() == 0
    }

    /// Tells whose the place is that a statement remembers.
    #[inline]
    fn key(&self, account: &Account) -> u64 {
        account.number.get() + self.edition.get()
    }

    /// Returns the ticket of a statement's row, if it was used last by this account.
    #[inline]
    pub fn known(&self, account: &Account, statement: &Statement) -> Option<RowTicket> {
        let last = statement.place.last.get();
        (last.whose == self.key(account)).then_some(last.ticket)
    }

    #[inline]
    pub fn row(&self, ticket: RowTicket) -> Option<&StatementRow> {
        self.rows.get(ticket.place()).filter(|row| row.ticket.load(Ordering::Relaxed) == ticket.0)
    }

    /// Returns the ticket of a statement's row, perhaps a new one. True: rows of other texts made room for it.
    #[cold]
    pub fn seat(&self, account: &Account, statement: &Statement, source: StatementSource<'_>) -> (RowTicket, bool) {
        let seated = &mut *self.seated.borrow_mut();
        if account.number.get() == 0 {
            seated.accounts += 1;
            account.number.set(seated.accounts);
        }
        let (id, text) = statement.place.name.get_or_init(|| {
            let text = source.shown(statement);
            (id_of(&text), cut(text))
        });
        let of = (*id, account.number.get());
        let (ticket, is_full) = match seated.places.get(&of) {
            Some(place) => (self.ticket_at(*place), false),
            None => {
                let name = || StatementName {
                    id: *id,
                    text: text.clone(),
                    user: account.client_user.clone(),
                    role: account.user.clone(),
                    database: account.client_database.clone(),
                    functions: functions_of(statement),
                    only_reads: statement.has(StatementTrait::Read),
                };
                let mut names = self.board.names.lock();
                let is_full = seated.free(&self.rows).is_none();
                if is_full {
                    self.edition.set(self.edition.get() + EDITION);
                    seated.make_room(&self.rows, &mut names);
                }
                (seated.sit(&self.rows, &mut names, of, name()), is_full)
            }
        };
        statement.place.last.set(LastPlace { whose: self.key(account), ticket });
        (ticket, is_full)
    }

    fn ticket_at(&self, place: u16) -> RowTicket {
        self.rows.get(usize::from(place)).map_or(RowTicket::NO_ROW, |row| RowTicket(row.ticket.load(Ordering::Relaxed)))
    }

    /// Begins anew. Statements under way are not counted.
    pub fn reset(&self) {
        if self.is_off() {
            return;
        }
        let seated = &mut *self.seated.borrow_mut();
        let mut names = self.board.names.lock();
        self.edition.set(self.edition.get() + EDITION);
        seated.places.clear();
        seated.seats.clear();
        self.rows.iter().for_each(|row| row.clear(RowTicket::VACANT));
        names.fill(None);
    }
}

impl SeatedRows {
    fn free(&self, rows: &[StatementRow]) -> Option<usize> {
        (self.seats.len() < rows.len())
            .then_some(self.seats.len())
            .or_else(|| if self.places.len() < self.seats.len() { self.seats.iter().position(Option::is_none) } else { None })
    }

    fn sit(
        &mut self,
        rows: &[StatementRow],
        names: &mut [Option<Arc<StatementName>>],
        of: (u64, u64),
        name: StatementName,
    ) -> RowTicket {
        let place = self.free(rows);
        let Some((at, place)) = place.and_then(|at| u16::try_from(at).ok().map(|place| (at, place))) else {
            return RowTicket::NO_ROW;
        };
        self.next_number += 1;
        let ticket = RowTicket::new(place, self.next_number);
        let seat = Some(RowSeat { of, calls: 0, usage: 0 });
        match self.seats.get_mut(at) {
            Some(free) => *free = seat,
            None => self.seats.push(seat),
        }
        self.places.insert(of, place);
        rows[at].clear(ticket);
        names[at] = Some(Arc::new(name));
        ticket
    }

    /// Takes their rows from the least used statements. Use of long ago counts less and less.
    fn make_room(&mut self, rows: &[StatementRow], names: &mut [Option<Arc<StatementName>>]) {
        let mut by_use: Vec<(u64, usize)> = Vec::with_capacity(self.seats.len());
        for (at, seat) in self.seats.iter_mut().enumerate() {
            let (Some(seat), Some(row)) = (seat, rows.get(at)) else { continue };
            let calls = row.calls();
            seat.usage = seat.usage / 2 + calls.saturating_sub(seat.calls);
            seat.calls = calls;
            by_use.push((seat.usage, at));
        }
        let count = (by_use.len() / EVICTED_PART).max(1);
        by_use.sort_unstable();
        for (_, at) in by_use.into_iter().take(count) {
            if let Some(seat) = self.seats[at].take() {
                self.places.remove(&seat.of);
            }
            rows[at].clear(RowTicket::VACANT);
            names[at] = None;
        }
    }
}

/// Rows that a command tag counts; 0 for tags without a number. `upto`: a message or more, up to the NUL of the tag.
///
/// No tag but one with a number ends with a blank and one more character.
#[inline]
pub fn rows_of_tag(upto: &[u8]) -> u64 {
    match upto {
        [.., b' ', digit, _] => u64::from(digit.wrapping_sub(b'0')),
        _ => long_rows_of_tag(upto),
    }
}

#[cold]
fn long_rows_of_tag(upto: &[u8]) -> u64 {
    let Some((_, digits)) = upto.split_last() else { return 0 };
    let digits = digits.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (rows, _) = digits.fold((0_u64, 1_u64), |(rows, unit), digit| {
        (rows.saturating_add(unit.saturating_mul(u64::from(digit - b'0'))), unit.saturating_mul(10))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_end_of_a_tag() {
        for (tag, rows) in [
            ("SELECT 0", 0),
            ("SELECT 7", 7),
            ("INSERT 0 12", 12),
            ("COPY 1234567", 1_234_567),
            ("FETCH 18446744073709551615", u64::MAX),
            ("BEGIN", 0),
            ("CREATE TABLE", 0),
            ("DISCARD ALL", 0),
            ("", 0),
        ] {
            assert_eq!(rows_of_tag(format!("{tag}\0").as_bytes()), rows, "{tag}");
        }
        assert_eq!(rows_of_tag(b""), 0);
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(&*cut("ab".into()), "ab");
        let long = cut(format!("a{}", "ä".repeat(600)));
        assert!(long.len() <= TEXT_BYTES_MAX + 3 && long.ends_with("ä..."), "{long}");
    }
}
