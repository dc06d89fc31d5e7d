//! Statements prepared on a server connection under Weir's names, and the choice of those to close.

pub mod result_shape;
pub mod reuse;

use foldhash::HashMap;
use foldhash::fast::FixedState;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use weir_wire::frame::split_cstr;

/// Identity of text and parameter types, common to a worker's clients.
pub type StatementId = u64;

pub const NAME_PREFIX: &[u8] = b"weir_";

pub fn push_name(out: &mut Vec<u8>, id: StatementId) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = id;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(NAME_PREFIX);
    out.extend_from_slice(&digits[at..]);
}

/// Length of statement names compared by servers: `NAMEDATALEN - 1`. Source: `HASH_STRINGS` in dynahash.c. Unlike identifiers, longer
/// names are not truncated, but are equal to others with the same beginning.
const NAME_BYTES_MAX: usize = 63;

/// Returns the part of a client's statement name that a server compares.
#[inline]
pub fn key(name: &[u8]) -> &[u8] {
    name.get(..NAME_BYTES_MAX).unwrap_or(name)
}

/// Hash of a statement's description: parameter types, names and types of columns.
///
/// A client reads later rows by the first description, so a server with another one must not answer (0A000, `RevalidateCachedQuery` in
/// plancache.c). Parameters count too: a new analysis may infer other types than the client sends in binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementShape(u64);

impl StatementShape {
    /// Not described yet.
    pub const UNKNOWN: StatementShape = StatementShape(0);
    /// No parameters or columns to be misread.
    pub const EMPTY: StatementShape = StatementShape(1);
    /// The description is too long to be read.
    pub const VAST: StatementShape = StatementShape(2);

    pub fn number(self) -> u64 {
        self.0
    }

    pub fn of_parameters(body: &[u8]) -> StatementShape {
        if body == [0, 0] { StatementShape::EMPTY } else { StatementShape::EMPTY.and(|hash| hash.write(body)) }
    }

    /// Adds a RowDescription without OIDs of tables and formats: a recreated table gives the same rows.
    pub fn with_columns(self, body: &[u8]) -> StatementShape {
        const PLACE_BYTES: usize = 6;
        const TYPE_BYTES: usize = 10;
        const FORMAT_BYTES: usize = 2;
        if self == StatementShape::VAST {
            return self;
        }
        let mut is_whole = true;
        let shape = self.and(|hash| {
            let (count, mut rest) = body.split_at(body.len().min(2));
            hash.write(count);
            while !rest.is_empty() {
                let column = split_cstr(rest).filter(|(_, tail)| tail.len() >= PLACE_BYTES + TYPE_BYTES + FORMAT_BYTES);
                let Some((name, tail)) = column else { return is_whole = false };
                hash.write_usize(name.len());
                hash.write(name);
                hash.write(&tail[PLACE_BYTES..PLACE_BYTES + TYPE_BYTES]);
                rest = &tail[PLACE_BYTES + TYPE_BYTES + FORMAT_BYTES..];
            }
        });
        if is_whole { shape } else { StatementShape::VAST }
    }

    fn and(self, write: impl FnOnce(&mut <FixedState as BuildHasher>::Hasher)) -> StatementShape {
        let mut hash = FixedState::with_seed(0).build_hasher();
        hash.write_u64(self.0);
        write(&mut hash);
        // The first numbers are the constants above.
        StatementShape(hash.finish() | 1 << 63)
    }

    /// True if a client with this description may be served by one of `now`.
    #[inline]
    pub fn allows(self, now: StatementShape) -> bool {
        !self.can_change() || self == now
    }

    #[inline]
    pub fn can_change(self) -> bool {
        self != StatementShape::UNKNOWN && self != StatementShape::EMPTY
    }
}

/// True if a first answer's error may come from the kept statement (inferred types, columns, deallocated): a Parse may help, nothing has
/// run.
///
/// Errors of the moment count as answers: conflicts, limits, cancel requests, server faults. Source: `RevalidateCachedQuery` in
/// plancache.c keeps the parameter types.
pub fn may_be_of_kept(severity: &[u8], sqlstate: &[u8]) -> bool {
    const OF_THE_MOMENT: [&[u8]; 7] = [b"40", b"53", b"54", b"55", b"57", b"58", b"XX"];
    !matches!(severity, b"FATAL" | b"PANIC") && !OF_THE_MOMENT.iter().any(|class| sqlstate.starts_with(class))
}

#[derive(Debug)]
struct ServerStatement {
    used: u64,
    shape: StatementShape,
    /// Closed before this Parse; on the server still if the Parse failed.
    closed: Option<StatementId>,
    /// Statements closed too because the limit was lowered.
    surplus: Vec<StatementId>,
    analysis: ParseAnalysis,
}

/// Analysis of a kept statement for unnamed Parses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseAnalysis {
    pub at_us: u64,
    /// Known number of definitions changed in the database.
    pub changes: u64,
    pub binds: u32,
}

/// The choice of plans for unnamed Parses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanCacheMode {
    /// A plan for the values.
    #[default]
    OfValues,
    /// The server's choice, after some uses perhaps a generic plan.
    OfServer,
}

/// Binds that get a plan for their values. Source: `choose_custom_plan` in plancache.c.
const PLANS_OF_VALUES: u32 = 5;

/// Age after which a text is analysed again. A kept analysis misses new objects earlier in the `search_path`, if created without Weir.
/// Source: PostgreSQL manual, PREPARE.
const ANALYSIS_AGE_MAX_US: u64 = 1_000_000;

impl ParseAnalysis {
    /// True if a new analysis and plan would be the same now.
    #[inline]
    pub fn stands(&self, now: ParseAnalysis, plans: PlanCacheMode, takes_values: bool) -> bool {
        self.changes == now.changes
            && now.at_us.saturating_sub(self.at_us) < ANALYSIS_AGE_MAX_US
            && (!takes_values || plans == PlanCacheMode::OfServer || self.binds < PLANS_OF_VALUES)
    }
}

/// Bounds the messages of one Parse after a lowered limit.
const SURPLUS_MAX: usize = 256;

/// The statements of a server connection, at most the limit.
#[derive(Debug, Default)]
pub struct ServerStatements {
    used: HashMap<StatementId, ServerStatement>,
    /// To be prepared again before use; evicted before used ones.
    stale: BTreeSet<StatementId>,
    /// Perhaps on the server: closed before use, evicted first.
    perhaps: BTreeSet<StatementId>,
    clock: u64,
}

/// The step before a statement can be used on a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrepareStep {
    Nothing,
    /// Prepare it, after closing `evict`.
    Parse {
        evict: Option<StatementId>,
    },
}

impl ServerStatements {
    pub fn contains(&self, id: StatementId) -> bool {
        self.used.contains_key(&id)
    }

    /// Notes a use. False if the statement is missing, or has another description than the client was `told`.
    pub fn use_if_known(&mut self, id: StatementId, told: StatementShape) -> bool {
        self.clock += 1;
        let Some(place) = self.used.get_mut(&id) else { return false };
        place.used = self.clock;
        told.allows(place.shape)
    }

    /// True if one more may be prepared without evicting a used one.
    #[inline]
    pub fn has_room(&self, max: usize) -> bool {
        self.used.len() < max.max(1)
    }

    #[inline]
    pub fn analysis(&mut self, id: StatementId) -> Option<&mut ParseAnalysis> {
        self.used.get_mut(&id).map(|place| &mut place.analysis)
    }

    pub fn describe(&mut self, id: StatementId, shape: StatementShape) {
        if let Some(place) = self.used.get_mut(&id) {
            place.shape = shape;
        }
    }

    /// Notes that a statement is prepared by a Parse without a Describe. Call `forget` if the Parse fails.
    pub fn touch(&mut self, id: StatementId, max: usize) -> PrepareStep {
        self.clock += 1;
        let (used, shape, surplus) = (self.clock, StatementShape::UNKNOWN, Vec::new());
        if let Some(known) = self.used.get_mut(&id) {
            *known = ServerStatement { used, shape, closed: Some(id), surplus, analysis: ParseAnalysis::default() };
            return PrepareStep::Nothing;
        }
        let evict = if self.stale.remove(&id) | self.perhaps.remove(&id) {
            Some(id)
        } else if self.used.len() + self.stale.len() + self.perhaps.len() >= max.max(1) {
            self.make_room()
        } else {
            None
        };
        self.used.insert(id, ServerStatement { used, shape, closed: evict, surplus, analysis: ParseAnalysis::default() });
        PrepareStep::Parse { evict }
    }

    /// Evicts statements beyond a lowered limit, to be closed before the Parse of `id`.
    #[inline]
    pub fn shed(&mut self, id: StatementId, max: usize) -> &[StatementId] {
        let all = self.used.len() + self.stale.len() + self.perhaps.len();
        if all <= max.max(1) {
            return &[];
        }
        self.shed_surplus(id, (all - max.max(1)).min(SURPLUS_MAX))
    }

    #[cold]
    fn shed_surplus(&mut self, id: StatementId, count: usize) -> &[StatementId] {
        let mut surplus: Vec<StatementId> = Vec::with_capacity(count);
        while surplus.len() < count
            && let Some(first) = self.perhaps.pop_first().or_else(|| self.stale.pop_first())
        {
            surplus.push(first);
        }
        let rest = count - surplus.len();
        let mut oldest: Vec<(u64, StatementId)> = self.used.iter().map(|(known, place)| (place.used, *known)).collect();
        oldest.retain(|(_, known)| *known != id);
        if rest > 0 && rest < oldest.len() {
            oldest.select_nth_unstable(rest - 1);
        }
        for (_, old) in oldest.into_iter().take(rest) {
            self.used.remove(&old);
            surplus.push(old);
        }
        let Some(place) = self.used.get_mut(&id) else { return &[] };
        place.surplus = surplus;
        &place.surplus
    }

    fn make_room(&mut self) -> Option<StatementId> {
        if let Some(first) = self.perhaps.pop_first().or_else(|| self.stale.pop_first()) {
            return Some(first);
        }
        let oldest = self.oldest()?;
        self.used.remove(&oldest);
        Some(oldest)
    }

    /// Linear; runs only for a new statement on a full server connection.
    fn oldest(&self) -> Option<StatementId> {
        self.used.iter().min_by_key(|(_, place)| place.used).map(|(id, _)| *id)
    }

    /// Takes back a Parse and its Close: either may have failed.
    pub fn forget(&mut self, id: StatementId) {
        let Some(ServerStatement { closed, surplus, .. }) = self.used.remove(&id) else { return };
        for closed in closed.into_iter().chain(surplus) {
            if !self.used.contains_key(&closed) {
                self.perhaps.insert(closed);
            }
        }
    }

    pub fn clear(&mut self) {
        self.used.clear();
        self.stale.clear();
        self.perhaps.clear();
    }

    /// Number of statements on the server, unless code has deallocated some.
    pub fn certain(&self) -> usize {
        self.used.len() + self.stale.len()
    }

    /// Compares the number of statements on the server with the expected one (`certain`).
    pub fn counted(&mut self, on_server: usize, certain: usize) {
        if on_server < certain {
            self.doubt_all();
        }
    }

    /// Notes that code may have deallocated some statements.
    pub fn doubt_all(&mut self) {
        self.perhaps.extend(self.used.drain().map(|(id, _)| id));
        self.perhaps.append(&mut self.stale);
    }

    /// Notes that the meaning of the statements may have changed; all are still on the server.
    pub fn stale_all(&mut self) {
        self.stale.extend(self.used.drain().map(|(id, _)| id));
    }

    pub fn len(&self) -> usize {
        self.used.len()
    }

    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_knows_what_it_was_given_and_nothing_else() {
        let mut known = ServerStatements::default();
        assert!(known.is_empty());
        assert_eq!(known.len(), 0);
        assert!(matches!(known.touch(7, 2), PrepareStep::Parse { .. }));
        assert!(!known.is_empty());
        assert_eq!(known.len(), 1);
        assert_eq!(known.touch(7, 2), PrepareStep::Nothing);
        known.forget(7);
        assert!(known.is_empty());
    }

    #[test]
    fn names_are_decimal() {
        for (id, name) in [(0, "weir_0"), (1234, "weir_1234"), (u64::MAX, "weir_18446744073709551615")] {
            let mut out = Vec::new();
            push_name(&mut out, id);
            assert_eq!(out, name.as_bytes());
        }
    }

    #[test]
    fn the_least_recently_used_statement_goes_first() {
        let mut known = ServerStatements::default();
        assert_eq!(known.touch(1, 2), PrepareStep::Parse { evict: None });
        assert_eq!(known.touch(2, 2), PrepareStep::Parse { evict: None });
        assert_eq!(known.touch(1, 2), PrepareStep::Nothing);
        assert_eq!(known.touch(3, 2), PrepareStep::Parse { evict: Some(2) });
        known.forget(3);
        assert_eq!(known.touch(3, 2), PrepareStep::Parse { evict: Some(2) }, "it may not have been closed");
    }

    #[test]
    fn an_analysis_stands_while_nothing_has_changed_and_the_planner_looks_at_values() {
        let made = ParseAnalysis { at_us: 10, changes: 3, binds: 4 };
        let now = ParseAnalysis { at_us: 10 + ANALYSIS_AGE_MAX_US - 1, ..made };
        assert!(made.stands(now, PlanCacheMode::OfValues, true));
        let used = ParseAnalysis { binds: 5, ..made };
        assert!(!used.stands(now, PlanCacheMode::OfValues, true), "the next plan may be one for all values");
        assert!(used.stands(now, PlanCacheMode::OfServer, true));
        assert!(used.stands(now, PlanCacheMode::OfValues, false), "there is one plan only");
        assert!(!made.stands(ParseAnalysis { at_us: now.at_us + 1, ..now }, PlanCacheMode::OfServer, false), "of long ago");
        assert!(!made.stands(ParseAnalysis { changes: 4, ..now }, PlanCacheMode::OfServer, false), "something was defined");
    }

    #[test]
    fn a_new_parse_has_an_analysis_of_its_own() {
        let mut known = ServerStatements::default();
        assert!(known.has_room(1));
        known.touch(1, 5);
        assert!(known.has_room(2) && !known.has_room(1));
        let analysis = known.analysis(1).expect("there");
        (analysis.binds, analysis.changes) = (5, 1);
        known.touch(1, 5);
        assert_eq!(known.analysis(1).copied(), Some(ParseAnalysis::default()));
        known.stale_all();
        assert_eq!(known.analysis(1), None);
        assert!(known.has_room(1), "stale ones make room");
    }

    #[test]
    fn an_error_of_the_moment_is_not_of_what_is_kept() {
        for (severity, sqlstate, expected) in [
            ("ERROR", "0A000", true),
            ("ERROR", "26000", true),
            ("ERROR", "42804", true),
            ("ERROR", "22P02", true),
            ("ERROR", "08P01", true),
            ("ERROR", "57014", false),
            ("ERROR", "40P01", false),
            ("ERROR", "55P03", false),
            ("FATAL", "0A000", false),
        ] {
            assert_eq!(may_be_of_kept(severity.as_bytes(), sqlstate.as_bytes()), expected, "{severity} {sqlstate}");
        }
    }

    #[test]
    fn a_lowered_limit_is_obeyed_at_the_next_parse() {
        let mut known = ServerStatements::default();
        for id in 1..=8 {
            known.touch(id, 8);
            assert_eq!(known.shed(id, 8), [0; 0]);
        }
        known.touch(3, 8);
        assert_eq!(known.touch(9, 2), PrepareStep::Parse { evict: Some(1) });
        let mut shed = known.shed(9, 2).to_vec();
        shed.sort_unstable();
        assert_eq!(shed, [2, 4, 5, 6, 7, 8], "the one used last stays");
        assert!(known.contains(3) && known.contains(9) && known.len() == 2);
        // An error came before the Closes: all of them may be there still.
        known.forget(9);
        assert_eq!(known.touch(10, 2), PrepareStep::Parse { evict: Some(1) });
        assert_eq!(known.shed(10, 2), [2, 4, 5, 6, 7, 8]);
        assert_eq!(known.touch(11, 2), PrepareStep::Parse { evict: Some(3) });
        assert_eq!(known.shed(11, 2), [0; 0]);
    }

    #[test]
    fn a_flood_of_closes_is_shared_out() {
        let mut known = ServerStatements::default();
        for id in 0..1000 {
            known.touch(id, 1000);
        }
        let mut closed = 0;
        for id in 1000..1010 {
            closed += usize::from(matches!(known.touch(id, 1), PrepareStep::Parse { evict: Some(_) }));
            let shed = known.shed(id, 1).len();
            assert!(shed <= SURPLUS_MAX);
            closed += shed;
        }
        assert_eq!((closed, known.len()), (1009, 1));
    }

    #[test]
    fn a_stale_statement_is_closed_and_prepared_anew() {
        let mut known = ServerStatements::default();
        known.touch(1, 5);
        known.stale_all();
        assert!(!known.contains(1));
        assert_eq!(known.touch(1, 5), PrepareStep::Parse { evict: Some(1) });
        assert_eq!(known.touch(1, 5), PrepareStep::Nothing);
    }

    #[test]
    fn stale_statements_count_until_they_are_closed() {
        const MAX: usize = 3;
        let (mut known, mut on_server) = (ServerStatements::default(), BTreeSet::new());
        for round in 0..10 {
            for id in round * 10..round * 10 + 5 {
                let PrepareStep::Parse { evict } = known.touch(id, MAX) else { panic!("{id} is new") };
                evict.into_iter().for_each(|evict| assert!(on_server.remove(&evict), "{evict} is not there"));
                on_server.insert(id);
                assert!(on_server.len() <= MAX, "the limit is {MAX}, the server holds {on_server:?}");
            }
            known.stale_all();
        }
    }

    #[test]
    fn a_statement_whose_close_did_not_happen_is_closed_later() {
        let mut known = ServerStatements::default();
        known.touch(1, 1);
        for failed in 2..5 {
            assert_eq!(
                known.touch(failed, 1),
                PrepareStep::Parse { evict: Some(1) },
                "an error comes before the Close each time"
            );
            known.forget(failed);
        }
        assert_eq!(known.touch(1, 1), PrepareStep::Parse { evict: Some(1) });
        // Prepared once more, for another client, behind an error.
        known.touch(1, 1);
        known.forget(1);
        assert_eq!(known.touch(5, 1), PrepareStep::Parse { evict: Some(1) });
    }

    #[test]
    fn statements_that_the_server_has_no_more_are_prepared_anew() {
        let mut known = ServerStatements::default();
        (1..=3).for_each(|id| assert_eq!(known.touch(id, 5), PrepareStep::Parse { evict: None }));
        assert_eq!(known.certain(), 3);
        known.counted(3, 3);
        assert!(known.contains(1));
        // Prepared since the server was asked.
        known.touch(4, 5);
        known.counted(2, 3);
        assert_eq!(known.certain(), 0, "none is missed a second time");
        for id in 1..=4 {
            assert_eq!(known.touch(id, 5), PrepareStep::Parse { evict: Some(id) }, "closed first, since it may be there");
        }
        known.stale_all();
        assert_eq!(known.certain(), 4);
        known.counted(0, 4);
        assert_eq!(known.certain(), 0, "stale ones were there, too");
        assert_eq!(known.touch(5, 4), PrepareStep::Parse { evict: Some(1) }, "they count until they are closed");
    }

    #[test]
    fn a_statement_that_may_have_been_closed_is_not_missed() {
        let mut known = ServerStatements::default();
        known.touch(1, 1);
        known.touch(2, 1);
        known.forget(2);
        assert_eq!(known.certain(), 0);
    }

    fn column(name: &str, table: u32, of: u32, format: u16) -> Vec<u8> {
        let place = [&table.to_be_bytes()[..], &1u16.to_be_bytes()].concat();
        let kind = [&of.to_be_bytes()[..], &4u16.to_be_bytes(), &(-1i32).to_be_bytes()].concat();
        [name.as_bytes(), b"\0", &place, &kind, &format.to_be_bytes()].concat()
    }

    fn rows(columns: &[Vec<u8>]) -> Vec<u8> {
        [(columns.len() as u16).to_be_bytes().to_vec(), columns.concat()].concat()
    }

    #[test]
    fn names_and_types_make_a_shape_and_places_and_formats_do_not() {
        let none = StatementShape::of_parameters(&[0, 0]);
        assert_eq!(none, StatementShape::EMPTY);
        let told = none.with_columns(&rows(&[column("a", 7, 23, 0)]));
        assert!(told.can_change() && told.allows(told));
        assert_eq!(none.with_columns(&rows(&[column("a", 8, 23, 1)])), told, "of a table made anew, in binary");
        let others = [
            none,
            none.with_columns(&rows(&[column("b", 7, 23, 0)])),
            none.with_columns(&rows(&[column("a", 7, 20, 0)])),
            none.with_columns(&rows(&[column("a", 7, 23, 0), column("a", 7, 23, 0)])),
            StatementShape::of_parameters(&[0, 1, 0, 0, 0, 23]).with_columns(&rows(&[column("a", 7, 23, 0)])),
            StatementShape::VAST,
            StatementShape::UNKNOWN,
        ];
        for other in others {
            assert!(!told.allows(other), "{other:?}");
        }
        assert!(StatementShape::EMPTY.allows(told) && StatementShape::UNKNOWN.allows(told), "nothing can be misread");
        let cut = rows(&[column("a", 7, 23, 0)]);
        assert_eq!(none.with_columns(&cut[..cut.len() - 1]), StatementShape::VAST);
    }

    #[test]
    fn a_statement_prepared_anew_is_not_taken_for_what_it_was() {
        let told = StatementShape::of_parameters(&[0, 1, 0, 0, 0, 23]);
        let mut known = ServerStatements::default();
        known.touch(1, 5);
        assert!(known.use_if_known(1, StatementShape::UNKNOWN) && !known.use_if_known(1, told));
        known.describe(1, told);
        assert!(known.use_if_known(1, told) && !known.use_if_known(2, told));
        known.touch(1, 5);
        assert!(!known.use_if_known(1, told), "somebody prepared it again");
    }
}
