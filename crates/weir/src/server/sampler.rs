//! Asks servers for their WAL positions: the primary in rounds, as long as statements run, and standbys until they have replayed what the
//! primary had. Publishes what follows from it in `Shared::positions`.
//!
//! One task per node on the first worker, each with a connection of its own, so that a server that does not answer delays nobody. They look
//! for work every `causal_sample_period`; after a while without any they set no timer, and are woken. A question costs no allocation.
//! Decisions are `policy::causal`'s.

use crate::monitor::log::Level;
use crate::monitor::metrics::Metric;
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::pool::login::{protocol, refused};
use crate::server::pool::server_conn::{Address, Login, OpenError, Talk};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_cache::{History, Round, Snapshot};
use weir_config::Config;
use weir_io::reactor::{TaskId, parked};
use weir_policy::causal::waiting::{Shows, Waiting};
use weir_policy::causal::{Board, Covers, Doubts, Era, Life, Replayed, Word, end_of_record, read_position};
use weir_policy::cluster::{Health, Role};
use weir_wire::back::read_columns;
use weir_wire::frame::{HEADER_BYTES, back, read_header};
use weir_wire::write;

/// Time for one answer, and for connecting.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two questions to a server for which somebody waits.
const GAP_MIN: Duration = Duration::from_micros(500);
/// A standby that does not advance is asked more and more rarely, up to so many periods apart.
const GAP_PERIODS_MAX: u32 = 16;
/// Time between two attempts to reach a server.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Without a statement for so long the tasks set no timers any more.
const AWAKE: Duration = Duration::from_secs(1);
/// An answer is a few dozen bytes, and about ten for each transaction that writes at that time.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Who one is. Asked once per connection.
const WHO_QUERY: &str = "SELECT (pg_catalog.pg_control_system()).system_identifier, \
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))";

/// The snapshot tells whether any transaction has ended since the last round. As long as none has, nobody can have seen more than before, and the
/// position of the round before still covers it. The insert position alone may stand behind records that belong to no transaction (of vacuum,
/// of pages tidied by reads); those are flushed, and sent to standbys, only with the next commit or after some seconds.
///
/// A standby is sent no more than the primary has flushed, so this covers what standbys show while the primary's snapshot does not show it yet.
///
/// Commits that wait for `synchronous_standby_names` are asked for only where there are such names: to look at all connections costs more than
/// all the rest. One without a number is `?`.
///
/// The timeline of a primary stands in the names of its WAL files; that of a standby is the one it streams. `-`: it streams, and the user may
/// not know what.
const PREPARE: &str = "PREPARE weir_position AS SELECT r, \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN r THEN (SELECT COALESCE(received_tli::pg_catalog.text, '-') FROM pg_catalog.pg_stat_wal_receiver) \
    ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) END, \
    CASE WHEN r THEN '' ELSE pg_catalog.txid_current_snapshot()::pg_catalog.text END, \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_current_wal_flush_lsn() END, \
    CASE WHEN r OR pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.=) '' THEN NULL ELSE \
    (SELECT COALESCE(pg_catalog.string_agg(COALESCE(backend_xid::pg_catalog.text, '?'), ','), '') \
    FROM pg_catalog.pg_stat_get_activity(NULL::pg_catalog.int4) WHERE wait_event OPERATOR(pg_catalog.=) 'SyncRep') END \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r OFFSET 0) AS x";

const ASK: &str = "EXECUTE weir_position";

/// What all tasks know.
#[derive(Default)]
struct Desk {
    board: RefCell<Board>,
    /// By place in the view.
    scouts: RefCell<Vec<TaskId>>,
    /// Moves when the servers' addresses may have changed: tasks of an older edition end.
    edition: Cell<u64>,
    doubts: RefCell<Doubts>,
    /// Of the primary with this number.
    waiting: RefCell<(u16, Waiting)>,
}

impl Desk {
    /// Nothing is known of the primary's commits that wait, so that they keep nobody off.
    fn forget_waiting(&self, w: &Worker) {
        self.waiting.replace(Default::default());
        w.shared.positions.publish_primary(Shows::ALL);
    }

    fn wake_all(&self, w: &Worker) {
        self.scouts.borrow().iter().for_each(|task| w.reactor.wake(*task));
    }

    /// Tells everybody what is known now.
    fn publish(&self, w: &Worker) {
        let board = self.board.borrow();
        for node in &w.view().nodes {
            w.shared.positions.publish(node.id, board.mark(node.id), w.millis(w.reactor.now()));
        }
        w.shared.positions.take_waiters(|(worker, task)| {
            if worker == w.id {
                w.reactor.wake(task);
            } else {
                w.shared.mailboxes[usize::from(worker)].send(crate::process::shared::Message::Wake(task));
            }
        });
    }
}

/// Runs for the proxy's life: has one task per node, and wakes them when roles or addresses change, or somebody waits.
pub async fn watch(w: Rc<Worker>) {
    let desk = Rc::new(Desk::default());
    let mut config: Option<Arc<Config>> = None;
    let (mut generation, mut places) = (0, Vec::new());
    w.shared.positions.task.store(w.reactor.current_task(), Ordering::SeqCst);
    while w.shared.stop_mode() < Stop::Fast {
        let newest = w.config();
        // The view takes another address in later than the configuration.
        let now_at: Vec<_> = w.view().nodes.iter().map(|node| (node.id, node.hostname.clone(), node.port)).collect();
        let has_moved = std::mem::replace(&mut places, now_at) != places;
        if has_moved || config.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &newest)) {
            desk.edition.set(desk.edition.get() + 1);
            desk.wake_all(&w);
            desk.board.replace(Board::default());
            desk.doubts.replace(Doubts::default());
            desk.forget_waiting(&w);
            w.view().nodes.iter().for_each(|node| w.shared.positions.end_life(node.id));
            let count = w.view().nodes.len();
            let scouts = (0..count).map(|at| w.reactor.spawn(Scout::new(&w, &desk, at).run())).collect();
            desk.scouts.replace(scouts);
            config = Some(newest);
        }
        if std::mem::replace(&mut generation, w.view().generation) != w.view().generation {
            desk.doubts.replace(Doubts::default());
        }
        desk.wake_all(&w);
        w.wake_at_new_view();
        parked().await;
    }
}

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    in_recovery: bool,
    position: Option<u64>,
    /// Of a primary.
    flushed: Option<u64>,
    timeline: Timeline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timeline {
    Of(u32),
    /// A standby that does not stream.
    None,
    /// The user lacks the rights to know.
    Hidden,
}

/// A connection to ask over.
struct Line {
    talk: Talk,
    address: Address,
    life: Life,
    system: u64,
    segment_bytes: u64,
    inbox: Vec<u8>,
    /// Of a primary: the transactions that have ended, as it said last, and a position that covers them.
    snapshot: Vec<u8>,
    covering: u64,
    /// Commits that wait for standbys; none: there are no names of standbys to wait for.
    waiting: Option<Vec<Option<u32>>>,
}

/// The task of one node.
struct Scout {
    w: Rc<Worker>,
    desk: Rc<Desk>,
    edition: u64,
    /// Place in the view.
    at: usize,
    node: u16,
    line: Option<Line>,
    /// When it asked last.
    asked_at: Option<Instant>,
    /// Time to the next question.
    gap: Duration,
    /// Last time somebody wanted something.
    busy_at: Instant,
    retry_at: Option<Instant>,
    /// Its node was up when last looked at.
    was_up: bool,
    has_complained: bool,
}

/// What a task has to do.
enum Duty {
    Nothing,
    /// Ask the primary, a standby.
    Ask(Role),
    /// Somebody will want to know at that time.
    At(Instant),
}

impl Scout {
    fn new(w: &Rc<Worker>, desk: &Rc<Desk>, at: usize) -> Scout {
        let node = w.view().nodes.get(at).map_or(0, |node| node.id);
        Scout {
            w: w.clone(),
            desk: desk.clone(),
            edition: desk.edition.get(),
            at,
            node,
            line: None,
            asked_at: None,
            gap: Duration::ZERO,
            busy_at: w.reactor.now(),
            retry_at: None,
            was_up: false,
            has_complained: false,
        }
    }

    async fn run(mut self) {
        while self.edition == self.desk.edition.get() && self.w.shared.stop_mode() < Stop::Fast {
            match self.duty() {
                Duty::Nothing => parked().await,
                Duty::At(time) => {
                    self.w.reactor.wake_at(time);
                    parked().await;
                }
                Duty::Ask(role) => match self.ask(role).await {
                    Ok(()) => self.has_complained = false,
                    Err(error) => self.fail(&error),
                },
            }
        }
        self.hang_up();
    }

    /// The node's role in the view; none: it is down, or a primary that is not followed.
    fn role(&self) -> Option<Role> {
        let view = self.w.view();
        match view.nodes.get(self.at)?.health {
            Health::Up(Role::Standby) => Some(Role::Standby),
            Health::Up(Role::Primary) => (view.primary == Some(self.at)).then_some(Role::Primary),
            Health::Down => None,
        }
    }

    fn duty(&mut self) -> Duty {
        let now = self.w.reactor.now();
        let Some(role) = self.role() else {
            self.was_up = false;
            self.hang_up();
            return Duty::Nothing;
        };
        if !std::mem::replace(&mut self.was_up, true) {
            self.retry_at = None;
            self.w.shared.positions.expect(self.node, self.w.millis(now));
        }
        if let Some(retry_at) = self.retry_at.filter(|at| *at > now) {
            return Duty::At(retry_at);
        }
        let positions = &self.w.shared.positions;
        let gap = if positions.has_waiters() || positions.is_urgent() { self.gap.min(GAP_MIN) } else { self.gap };
        let due_at = self.asked_at.map_or(now, |at| at + gap);
        let is_wanted = match role {
            // Who waits for the primary to show what a standby showed wants no later round, and only such a round tells.
            Role::Primary => {
                let is_awaited = positions.is_primary_behind() && positions.has_waiters();
                self.is_of_use() && (is_awaited || positions.wanted() > self.desk.board.borrow().round())
            }
            Role::Standby => self.is_behind(),
        };
        if is_wanted {
            self.busy_at = now;
            return if due_at <= now { Duty::Ask(role) } else { Duty::At(due_at) };
        }
        // A standby's is woken by the primary's.
        if role == Role::Standby {
            return Duty::Nothing;
        }
        let known = self.desk.board.borrow().round();
        if now >= self.busy_at + AWAKE && (positions.fall_asleep(known) || !self.is_of_use()) {
            return Duty::Nothing;
        }
        Duty::At(now + self.period())
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.w.peek_config().routing.causal_period_ms.max(1))
    }

    /// True if anybody makes use of the primary's position.
    fn is_of_use(&self) -> bool {
        self.may_read_standbys() || self.w.shared.positions.is_followed()
    }

    fn may_read_standbys(&self) -> bool {
        let view = self.w.view();
        let is_wanted = |at: usize| view.takes_reads(at) || self.w.shared.positions.is_wished();
        (0..view.nodes.len()).any(|at| view.is_standby(at) && is_wanted(at))
    }

    /// True if this standby lacks something of what is known, or nobody knows yet who it is, or somebody must know that it still is.
    fn is_behind(&self) -> bool {
        let board = self.desk.board.borrow();
        let positions = &self.w.shared.positions;
        let all = Covers { primary: board.round(), standbys: board.round() };
        let lacks = !board.mark(self.node).covers.reach(all);
        let verify_us = positions.verify_us();
        let is_doubted = verify_us > 0 && positions.asked_us(self.node) <= verify_us;
        self.line.is_none() || is_doubted || (board.round() > 0 && lacks)
    }

    async fn ask(&mut self, role: Role) -> Result<(), OpenError> {
        let w = self.w.clone();
        let mut line = match self.line.take() {
            Some(line) => line,
            None => Box::pin(self.connect()).await?,
        };
        let now = w.reactor.now();
        self.asked_at = Some(now);
        let round = match role {
            Role::Primary => {
                w.count(Metric::PositionRounds);
                w.shared.positions.begin_round()
            }
            Role::Standby => 0,
        };
        let said = line.ask(&w).await?;
        self.line = Some(line);
        if self.edition == self.desk.edition.get() {
            w.shared.positions.answered(self.node, w.micros(now));
            self.take(role, round, said, w.millis(now));
        }
        Ok(())
    }

    /// Takes an answer into the board.
    fn take(&mut self, role: Role, round: u64, said: Said, asked_ms: u64) {
        let (Some(line), Some(position)) = (&self.line, said.position) else { return };
        let word = self.desk.doubts.borrow_mut().said(self.node, role, self.role(), said.in_recovery);
        if word == Word::Stale {
            return;
        }
        if word == Word::Contradicts {
            self.desk.board.borrow_mut().lost(self.node);
            self.desk.publish(&self.w);
            self.w.shared.nudge_prober();
            self.retry_at = Some(self.w.reactor.now() + RETRY_AFTER);
            return;
        }
        match (role, said.timeline) {
            (Role::Primary, Timeline::Of(timeline)) => {
                self.gap = self.period();
                if !self.desk.doubts.borrow().is_empty() {
                    return;
                }
                let era = Era { primary: (self.node, line.life), system: line.system, timeline };
                self.desk.board.borrow_mut().primary_said(era, round, position, said.flushed.unwrap_or(position), asked_ms);
                // Standbys may show a commit that waits, which the snapshot does not: the log must have been taken in up to there.
                let is_waiting = self.note_waiting(round, asked_ms);
                let shown = if is_waiting { position.max(said.flushed.unwrap_or(position)) } else { position };
                self.w.shared.positions.answer_round(round);
                let history = History { node: self.node, system: line.system, timeline };
                self.tell_followers(history, round, shown, asked_ms, &line.snapshot);
                self.desk.publish(&self.w);
                self.desk.wake_all_but(&self.w, self.at);
            }
            (Role::Primary, _) => {}
            (Role::Standby, timeline) => {
                let replayed = Replayed { system: line.system, timeline: timeline.known(), position };
                let mut board = self.desk.board.borrow_mut();
                let before = board.mark(self.node);
                board.standby_said(self.node, replayed);
                let (after, round) = (board.mark(self.node), board.round());
                drop(board);
                let is_done = after.covers.reach(Covers { primary: round, standbys: round });
                let advances = after.covers != before.covers;
                self.gap = match (is_done, advances) {
                    (true, _) => Duration::ZERO,
                    (false, true) => GAP_MIN,
                    (false, false) => (self.gap * 2).clamp(GAP_MIN, self.period() * GAP_PERIODS_MAX),
                };
                self.desk.publish(&self.w);
                if timeline == Timeline::Hidden {
                    self.complain("sr_check_user may not see pg_stat_wal_receiver: it needs the rights of pg_monitor");
                }
            }
        }
    }

    /// Takes in which commits wait for standbys. True: some do.
    fn note_waiting(&self, round: u64, asked_ms: u64) -> bool {
        let Some(line) = &self.line else { return false };
        let mut waiting = self.desk.waiting.borrow_mut();
        if waiting.0 != self.node {
            *waiting = (self.node, Waiting::default());
        }
        let snapshot = || std::str::from_utf8(&line.snapshot).ok().and_then(Snapshot::parse);
        let shows = match &line.waiting {
            None => waiting.1.found(round, None, |_| true, asked_ms),
            Some(list) => match snapshot() {
                Some(snapshot) => waiting.1.found(round, Some(list), |xid| snapshot.shows(xid), asked_ms),
                None => Shows::ALL,
            },
        };
        self.w.shared.positions.publish_primary(shows);
        shows.behind_since_ms.is_some()
    }

    /// Tells those who take in databases' logs.
    fn tell_followers(&self, history: History, number: u64, position: u64, asked_ms: u64, snapshot: &[u8]) {
        let w = &self.w;
        if !w.shared.positions.is_followed() {
            return;
        }
        let Some(snapshot) = std::str::from_utf8(snapshot).ok().and_then(Snapshot::parse) else { return };
        let round = Round { number, history, position, snapshot, asked_ms };
        let mut is_needed = false;
        for database in w.shared.catalogs.all().iter().filter(|database| database.follow.is_watched()) {
            is_needed |= database.follow.round(&round);
        }
        if is_needed {
            w.shared.positions.want(w.shared.positions.next_round());
        }
    }

    async fn connect(&self) -> Result<Line, OpenError> {
        let w = self.w.clone();
        let address = w.address_of(self.at).ok_or(OpenError::Gone { node: self.node })?;
        let deadline = Instant::now() + ASK_TIMEOUT;
        let config = w.config();
        let check = &config.check;
        let files = w.shared.access.files();
        let (user, secret) = files.checker(check);
        let secret = secret.as_deref();
        let login = Login { user, database: &check.database, secret, generation: 0, parameters: &[] };
        let mut talk = Talk::log_in(&w, &address, &login, deadline).await?;
        let rows = talk.query(&w, &address, WHO_QUERY).await?;
        let number = |at: usize| rows.first()?.get(at)?.as_deref()?.parse::<u64>().ok();
        let (Some(system), Some(segment_bytes)) = (number(0), number(1)) else {
            return Err(protocol(&address, "no answer to who it is"));
        };
        talk.query(&w, &address, PREPARE).await?;
        let life = w.shared.positions.begin_life(self.node);
        Ok(Line {
            talk,
            address,
            life,
            system,
            segment_bytes,
            inbox: Vec::with_capacity(512),
            snapshot: Vec::new(),
            covering: 0,
            waiting: None,
        })
    }

    fn fail(&mut self, error: &OpenError) {
        self.hang_up();
        self.retry_at = Some(self.w.reactor.now() + RETRY_AFTER);
        self.complain(&error.to_string());
    }

    fn complain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            let (node, text) = (self.node, "its WAL position is not known, so that reads that must show recent writes avoid it");
            self.w.shared.log.say(Level::Warning, format_args!("node {node}: {text}: {why}"));
        }
    }

    /// Ends the connection, and with it all that is known of the node.
    fn hang_up(&mut self) {
        if let Some(line) = self.line.take() {
            line.talk.socket.close(&self.w.reactor);
        }
        if self.edition == self.desk.edition.get() {
            self.desk.board.borrow_mut().lost(self.node);
            self.w.shared.positions.end_life(self.node);
            if self.desk.waiting.borrow().0 == self.node {
                self.desk.forget_waiting(&self.w);
            }
        }
    }
}

impl Desk {
    fn wake_all_but(&self, w: &Worker, at: usize) {
        for (place, task) in self.scouts.borrow().iter().enumerate() {
            if place != at {
                w.reactor.wake(*task);
            }
        }
    }
}

impl Timeline {
    fn known(self) -> Option<u32> {
        match self {
            Timeline::Of(timeline) => Some(timeline),
            Timeline::None | Timeline::Hidden => None,
        }
    }
}

impl Line {
    /// Asks, and reads the answer where it lies.
    async fn ask(&mut self, w: &Worker) -> Result<Said, OpenError> {
        let address = &self.address;
        self.talk.renew(w, Instant::now() + ASK_TIMEOUT);
        self.inbox.clear();
        write::query(&mut self.inbox, ASK);
        self.talk.send(w, address, &self.inbox).await?;
        self.inbox.clear();
        let mut piece = [0u8; 512];
        loop {
            let deadline = Some(self.talk.deadline());
            let read = self.talk.socket.read(&w.reactor, &mut piece, deadline).await;
            let bytes = read.map_err(|cause| OpenError::Broke { address: address.clone(), cause })?;
            self.inbox.extend_from_slice(&piece[..bytes]);
            if let Some((mut said, snapshot, waiting)) = read_answer(&self.inbox, address)? {
                self.waiting = waiting.map(|list| read_waiting(list, self.waiting.take()));
                if !said.in_recovery
                    && let Some(position) = &mut said.position
                {
                    if self.covering == 0 || snapshot != self.snapshot {
                        self.snapshot.clear();
                        self.snapshot.extend_from_slice(snapshot);
                        self.covering = end_of_record(*position, self.segment_bytes);
                    }
                    *position = self.covering;
                }
                return Ok(said);
            }
            if self.inbox.len() > ANSWER_BYTES_MAX {
                return Err(protocol(address, format!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
    }
}

/// Reads the numbers of commits that wait, into a list that was used before.
fn read_waiting(list: &[u8], before: Option<Vec<Option<u32>>>) -> Vec<Option<u32>> {
    let mut waiting = before.unwrap_or_default();
    waiting.clear();
    let numbers = list.split(|byte| *byte == b',').filter(|number| !number.is_empty());
    waiting.extend(numbers.map(|number| std::str::from_utf8(number).ok().and_then(|number| number.parse().ok())));
    waiting
}

/// A row of an answer: what it says, the snapshot, the commits that wait.
type Answer<'a> = (Said, &'a [u8], Option<&'a [u8]>);

/// Reads the messages of an answer. `None`: more must come.
fn read_answer<'a>(mut bytes: &'a [u8], address: &Address) -> Result<Option<Answer<'a>>, OpenError> {
    let mut said = None;
    while let Some(header) = read_header(bytes).map_err(|error| protocol(address, error.to_string()))? {
        let Some(body) = bytes.get(HEADER_BYTES..header.frame_bytes()) else { return Ok(None) };
        match header.tag {
            back::DATA_ROW => said = read_said(body),
            back::ERROR => return Err(refused(address, body)),
            back::READY => {
                return said.map(Some).ok_or_else(|| protocol(address, "no position in its answer"));
            }
            _ => {}
        }
        bytes = &bytes[header.frame_bytes()..];
    }
    Ok(None)
}

fn read_said(row: &[u8]) -> Option<Answer<'_>> {
    let [in_recovery, position, timeline, snapshot, flushed, waiting] = read_columns(row)?;
    let in_recovery = in_recovery? == b"t";
    let timeline = match timeline {
        None => Timeline::None,
        Some(b"-") => Timeline::Hidden,
        Some(text) => {
            // Names of files have it in hexadecimal.
            let radix = if in_recovery { 10 } else { 16 };
            Timeline::Of(u32::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()?)
        }
    };
    let (position, flushed) = (position.and_then(read_position), flushed.and_then(read_position));
    Some((Said { in_recovery, position, flushed, timeline }, snapshot.unwrap_or_default(), waiting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::SslMode;

    fn address() -> Address {
        Address { node: 1, hostname: "h".into(), port: 1, connect_timeout_ms: 0, ssl_mode: SslMode::Auto }
    }

    fn answer(cells: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let row: Vec<String> = cells.iter().map(ToString::to_string).collect();
        write::data_row(&mut bytes, &row);
        write::command_complete(&mut bytes, "SELECT 1");
        write::ready(&mut bytes, b'I');
        bytes
    }

    #[test]
    fn answers_of_a_primary_and_of_a_standby_are_read() {
        let address = address();
        let primary = answer(&["f", "0/3000028", "0000001A", "7:9:8", "0/3000020", "8,?"]);
        let (said, snapshot, waiting) = read_answer(&primary, &address).unwrap().unwrap();
        assert_eq!(snapshot, b"7:9:8");
        assert_eq!(waiting.map(|list| read_waiting(list, None)), Some(vec![Some(8), None]));
        assert_eq!(
            said,
            Said { in_recovery: false, position: Some(0x300_0028), flushed: Some(0x300_0020), timeline: Timeline::Of(26) }
        );
        let bytes = answer(&["t", "1/0", "12", "", "", ""]);
        let (said, ..) = read_answer(&bytes, &address).unwrap().unwrap();
        assert_eq!(said, Said { in_recovery: true, position: Some(1 << 32), flushed: None, timeline: Timeline::Of(12) });
        let bytes = answer(&["t", "1/0", "-", "", "", ""]);
        let (said, ..) = read_answer(&bytes, &address).unwrap().unwrap();
        assert_eq!(said.timeline, Timeline::Hidden);
        for cut in 0..primary.len() {
            assert!(read_answer(&primary[..cut], &address).unwrap().is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn an_answer_without_a_row_is_an_error() {
        let mut bytes = Vec::new();
        write::ready(&mut bytes, b'I');
        assert!(read_answer(&bytes, &address()).is_err());
        assert!(read_answer(&[b'Z', 0, 0, 0, 1], &address()).is_err());
    }
}
