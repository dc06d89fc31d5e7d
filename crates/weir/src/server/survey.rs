//! Reads the catalogs of the databases in use and looks whether they are still true. The only writer of `catalogs`.
//!
//! One task of the first worker for each database that has sessions, with one connection to the primary (to a standby while there is
//! none), logged in as a user of theirs: whoever may use the database may read its system catalogs. The task looks once a second, in
//! large databases the less often the longer a look takes, and at once when a statement passed that defines something. Only when the
//! look finds a change all is read. Rows are taken in a few at a time, and the rest of the work is a thread's, so that other sessions go
//! on meanwhile.

use crate::monitor::log::{Level, Who};
use crate::monitor::metrics::Metric;
use crate::process::shared::{Message, Stop};
use crate::process::worker::{Entry, Worker};
use crate::server::cached_results::{CachedResults, Doubt};
use crate::server::catalogs::{Database, Edition, Mark, UNKNOWN};
use crate::server::pool::server_conn::{Address, Login, OpenError, Talk};
use parking_lot::Mutex;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_catalog::{ANSWERS_FINGERPRINT, Catalog, DEFAULTS_FINGERPRINT, Draft, DraftError, FINGERPRINT, PARTS};
use weir_config::Config;
use weir_io::reactor::parked;
use weir_policy::roles;
use weir_wire::frame::back;
use weir_wire::write;

/// Shortest time between two looks that nobody asked for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// A look may take this share of the time: one that takes 200 ms is taken every 4 s. On a busy server it takes longer than it costs.
const LOOK_SHARE: u32 = 20;

/// Shortest time between two looks, however many changes are told.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// Time until the next attempt after one that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Time without sessions after which a database is left alone.
const LINGER: Duration = Duration::from_secs(5);

/// Time for connecting, or for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Sessions wait for so long from when their database was first named until it is known.
const FIRST_LIMIT: Duration = Duration::from_secs(1);

/// Rows taken in before others get their turn.
const ROWS_AT_ONCE: u32 = 256;

/// Sent once per connection. A user's own limits are for his statements; who does not know all of them would refuse them all. Questions have
/// backslashes in strings. Names are compared in UTF-8; of what is in no encoding none can be made. To compile the large ones (`jit`) takes a server twenty times as long as to answer them.
const SETTINGS_QUERY: &str = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), \
    pg_catalog.set_config('application_name', 'weir_catalog', false), pg_catalog.set_config('statement_timeout', '0', false), \
    pg_catalog.set_config('client_encoding', CASE pg_catalog.current_setting('server_encoding') WHEN 'SQL_ASCII' THEN 'SQL_ASCII' \
     ELSE 'UTF8' END, false), \
    pg_catalog.set_config('standard_conforming_strings', 'on', false), pg_catalog.set_config('jit', 'off', false), \
    (SELECT pg_catalog.string_agg(pg_catalog.set_config(name, '0', false), '') FROM pg_catalog.pg_settings \
     WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY['idle_session_timeout', 'transaction_timeout'])), \
    pg_catalog.set_config('default_transaction_read_only', 'on', false)";

/// Why a database could not be read.
#[derive(Debug, thiserror::Error)]
enum SurveyError {
    #[error("no server is up that could be asked")]
    NoServer,
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("{0}")]
    Draft(#[from] DraftError),
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
    #[error("reading it ended by a fault in the proxy")]
    Fault,
}

/// A connection to a server.
struct Line {
    talk: Talk,
    address: Address,
}

/// What answers hang on beside what is in the catalog, as it was found the last time. To look at it takes longer, so it is done when something was
/// defined through us, and else less often.
struct Beside {
    kinds: String,
    changes: u64,
    looked_at: Instant,
    took: Duration,
}

/// What was found the last time.
struct Known {
    edition: Edition,
    fingerprint: String,
    config: Arc<Config>,
    read_at: Instant,
}

/// Has a database looked after while it has sessions; the first worker does it.
pub fn begin(w: &Worker, database: &Arc<Database>) {
    if database.open()
        && let Some(mailbox) = w.shared.mailboxes.first()
    {
        mailbox.send(Message::Survey(database.clone()));
    }
}

/// Waits until a database that has just come into use is known, so that its first statements need not ask what they leave behind; not for long:
/// they can. Ends at once for a session that is to end. Cancel safe.
pub async fn await_first(w: &Worker, database: &Database, entry: &Entry) {
    let until = database.named_at + FIRST_LIMIT;
    let goes_on = || w.reactor.now() < until && entry.farewell.borrow().is_none();
    while goes_on() && database.is_untried((w.id, w.reactor.current_task())) {
        w.reactor.wake_at(until);
        parked().await;
    }
}

/// Closes the books when the task ends, however it ends.
struct Duty(Arc<Database>);

impl Drop for Duty {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Looks after one database until it has had no sessions for a while. Runs as a task of its own.
pub async fn watch(w: Rc<Worker>, database: Arc<Database>) {
    let duty = Duty(database.clone());
    database.task.store(w.reactor.current_task(), Ordering::SeqCst);
    let (mut line, mut known, mut beside) = (None, None, None);
    let mut used_at = Instant::now();
    while w.shared.stop_mode() < Stop::Fast {
        // Of a writer whose end nobody heard of it must be seen that it has ended.
        let has_doubts = || w.shared.answers.as_ref().is_some_and(|answers| !answers.doubts(&database.name).is_empty());
        if database.has_sessions() || (!database.is_wanted_empty() && has_doubts()) {
            used_at = Instant::now();
        } else if used_at.elapsed() >= LINGER || database.is_wanted_empty() {
            break;
        }
        let started = Instant::now();
        let changes = database.changes();
        let had_line = line.is_some();
        let outcome = look(&w, &database, &mut line, (&mut known, &mut beside), changes).await;
        let pause = match &outcome {
            Ok(took) => LOOK_PERIOD.max(*took * LOOK_SHARE),
            Err(_) if had_line => LOOK_MIN,
            Err(_) => RETRY,
        };
        if outcome.is_err() {
            if had_line {
                // Another database may have this name by now: nobody drops one to which there are connections.
                doubt(&w, &database);
            }
            line = None;
        }
        tell(&w, &database, outcome.err());
        for (worker, task) in database.tried() {
            w.shared.mailboxes[usize::from(worker)].send(Message::Wake(task));
        }
        rest(&w, &database, started + pause, changes).await;
    }
    drop(duty);
    if database.has_sessions() {
        // One came just now, and found the database looked after.
        begin(&w, &database);
    }
}

/// Until the time has come, or something has changed.
async fn rest(w: &Worker, database: &Database, until: Instant, changes: u64) {
    let soonest = Instant::now() + LOOK_MIN;
    loop {
        let now = Instant::now();
        let is_due = now >= until || (database.changes() != changes && now >= soonest);
        if is_due || w.shared.stop_mode() >= Stop::Fast {
            return;
        }
        let linger = if database.has_sessions() { until } else { until.min(now + LINGER) };
        w.reactor.wake_at(if database.changes() != changes { soonest } else { linger });
        parked().await;
    }
}

/// Notes the outcome where operators look; an error is logged when it is a new one.
fn tell(w: &Worker, database: &Database, error: Option<SurveyError>) {
    let error = error.map(|error| error.to_string());
    let mut report = database.report.lock();
    if report.error == error {
        return;
    }
    if let Some(error) = &error {
        let who = Who { database: &database.name, ..Who::default() };
        let text = format_args!(
            "the catalog of database \"{}\" cannot be read, so that statements that name anything go to the primary, and after each write \
             the server is asked what it left on the connection, as long as something has changed or nothing is known: {error}",
            database.name
        );
        w.shared.log.write(Level::Warning, &who, text);
        database.note_unreadable();
    }
    report.error = error;
}

/// The primary; while there is none, nothing is defined either, and a standby will do.
fn server(w: &Worker) -> Option<Address> {
    let at = {
        let view = w.view();
        view.primary.or_else(|| (0..view.nodes.len()).find(|&at| view.is_up(at)))
    };
    at.and_then(|at| w.address_of(at))
}

/// One look, and a reading if something has changed. Gives the time the look took. Not cancel safe.
async fn look(
    w: &Worker,
    database: &Database,
    line: &mut Option<Line>,
    (known, beside): (&mut Option<Known>, &mut Option<Beside>),
    changes: u64,
) -> Result<Duration, SurveyError> {
    let line = line_to_server(w, database, line).await?;
    line.talk.renew(w, Instant::now() + ANSWER_TIMEOUT);
    look_at_roles(w, line).await?;
    let started = Instant::now();
    line.query(w, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let rows = line.query(w, FINGERPRINT).await?;
    let took = started.elapsed();
    let mut fingerprint = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if w.shared.answers.is_some() {
        look_beside(w, database, line, beside, changes).await?;
    }
    if let Some(beside) = beside {
        fingerprint.push_str(&beside.kinds);
    }
    let config = w.shared.config.load_full();
    let expire_ms = config.routing.catalog_expire_ms;
    let is_same = |known: &&mut Known| {
        let is_young = expire_ms == 0 || known.read_at.elapsed() < Duration::from_millis(expire_ms);
        known.fingerprint == fingerprint && known.config.routing.judges_as(&config.routing) && is_young
    };
    match known.as_mut().filter(is_same) {
        Some(known) => {
            database.publish(known.edition, None, changes);
        }
        None => {
            renew(w, database, line).await?;
            // What was relied upon until now is not true any more.
            let catalog = read(w, line, config.clone()).await?;
            let edition = w.shared.catalogs.next_edition();
            let is_redefined = database.is_another(Mark::Definitions, &fingerprint);
            if is_redefined {
                database.follow.redefine();
                doubt(w, database);
            }
            debug_assert_ne!(edition, UNKNOWN);
            report(w, database, &catalog, started.elapsed());
            database.publish(edition, Some(Arc::new(catalog)), changes);
            if is_redefined {
                // Who asked meanwhile took his tables from the catalog of before.
                doubt(w, database);
            }
            *known = Some(Known { edition, fingerprint, config, read_at: Instant::now() });
        }
    }
    line.query(w, "COMMIT").await?;
    if let Some(answers) = &w.shared.answers {
        dispel(w, database, answers, line).await?;
    }
    database.report.lock().look_ms = took.as_millis() as u64;
    Ok(took)
}

/// Looks whether the users' names stand for the same roles as before. Not cancel safe.
async fn look_at_roles(w: &Worker, line: &mut Line) -> Result<(), SurveyError> {
    // A standby may not know yet what we know already.
    if !w.is_primary(line.address.node) || !w.shared.roles.lock().begin_look(w.now_ms()) {
        return Ok(());
    }
    let users = w.shared.pools.users();
    if users.is_empty() {
        return Ok(());
    }
    for row in line.query(w, &roles::question(users.iter().map(|user| &**user))).await? {
        let [Some(name), oid] = row.as_slice() else { continue };
        if let Some(user) = users.get(name.as_str()) {
            w.note_role(user, oid.as_deref().unwrap_or_default());
        }
    }
    Ok(())
}

/// Has the connections closed that began with other defaults than those of now, perhaps set past us. To be done before answers are kept again.
async fn renew(w: &Worker, database: &Database, line: &mut Line) -> Result<(), SurveyError> {
    let rows = line.query(w, DEFAULTS_FINGERPRINT).await?;
    let mark = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if database.is_another(Mark::Defaults, &mark) {
        w.renew_conns(Some(&database.name));
    }
    Ok(())
}

/// The connection to the server to be asked, a new one if need be.
async fn line_to_server<'l>(w: &Worker, database: &Database, line: &'l mut Option<Line>) -> Result<&'l mut Line, SurveyError> {
    let address = server(w).ok_or(SurveyError::NoServer)?;
    if line.as_ref().is_some_and(|line| line.address != address) {
        *line = None;
    }
    Ok(match line {
        Some(line) => line,
        None => line.insert(open(w, database, address).await?),
    })
}

/// Looks at what answers hang on beside the catalog, if it is time to. If that is another than before, they are not true any more.
async fn look_beside(
    w: &Worker,
    database: &Database,
    line: &mut Line,
    beside: &mut Option<Beside>,
    changes: u64,
) -> Result<(), SurveyError> {
    let started = Instant::now();
    let is_recent = |last: &Beside| last.changes == changes && last.looked_at.elapsed() < last.took * LOOK_SHARE;
    if beside.as_ref().is_some_and(is_recent) {
        return Ok(());
    }
    let rows = line.query(w, ANSWERS_FINGERPRINT).await?;
    let mut cells = rows.into_iter().flatten().map(Option::unwrap_or_default);
    let (kinds, rights) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    *beside = Some(Beside { kinds, changes, looked_at: Instant::now(), took: started.elapsed() });
    if database.is_another(Mark::Rights, &rights) {
        doubt(w, database);
    }
    Ok(())
}

/// Something was defined or granted, perhaps past us: answers of before are not true any more, and names may be other tables'. To be done before a
/// new catalog is published, and after it.
fn doubt(w: &Worker, database: &Database) {
    if let Some(answers) = &w.shared.answers {
        answers.versions.change(&[answers.versions.of_database(&database.name)], w.shared.positions.next_round());
    }
}

/// Looks whether the server processes of writers have ended whose end nobody heard of. Cancel safe.
async fn dispel(w: &Worker, database: &Database, answers: &CachedResults, line: &mut Line) -> Result<(), SurveyError> {
    let doubts = answers.doubts(&database.name);
    // A standby does not know what the primary of before and after still does.
    if doubts.is_empty() || !w.is_primary(line.address.node) {
        return Ok(());
    }
    let pids: Vec<String> = doubts.iter().map(|doubt| doubt.pid.to_string()).collect();
    let rows = line.query(w, &format!("SELECT pid FROM pg_stat_activity WHERE pid IN ({})", pids.join(", "))).await?;
    let running: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let round = w.shared.positions.next_round();
    // What another node than the primary still does is nobody's answer.
    let is_over = |doubt: &&Doubt| doubt.node != line.address.node || !running.contains(&doubt.pid.to_string());
    doubts.iter().filter(is_over).for_each(|doubt| answers.dispel(doubt, round));
    Ok(())
}

fn report(w: &Worker, database: &Database, catalog: &Catalog, took: Duration) {
    w.count(Metric::CatalogsRead);
    let counts = catalog.counts();
    let text = format_args!(
        "catalog of database \"{}\" read in {} ms: {} relations, {} functions",
        database.name,
        took.as_millis(),
        counts.relations,
        counts.functions
    );
    w.shared.log.say(Level::Debug1, text);
    let mut report = database.report.lock();
    report.reads += 1;
    report.read_ms = took.as_millis() as u64;
}

async fn open(w: &Worker, database: &Database, address: Address) -> Result<Line, SurveyError> {
    let user = database.user().unwrap_or_else(|| "postgres".into());
    let generation = w.shared.access.generation();
    let secret = w.secret_for_server(&user, None);
    let login = Login { user: &user, database: &database.name, secret: secret.as_ref(), generation, parameters: &[] };
    let talk = Talk::log_in(w, &address, &login, Instant::now() + ANSWER_TIMEOUT).await?;
    let mut line = Line { talk, address };
    line.query(w, SETTINGS_QUERY).await?;
    Ok(line)
}

impl Line {
    async fn query(&mut self, w: &Worker, sql: &str) -> Result<Vec<Vec<Option<String>>>, OpenError> {
        self.talk.query(w, &self.address, sql).await
    }

    /// Takes the rows of one part into a draft.
    async fn take(&mut self, w: &Worker, part: usize, draft: &mut Draft) -> Result<(), SurveyError> {
        let mut out = Vec::new();
        write::query(&mut out, PARTS[part].sql);
        self.talk.send(w, &self.address, &out).await?;
        let (mut error, mut rows) = (None, 0_u32);
        loop {
            let (tag, body) = self.talk.next(w, &self.address).await?;
            match tag {
                back::DATA_ROW => {
                    let cells = weir_wire::back::read_row(&body).ok_or(DraftError::Row)?;
                    draft.row(part, &cells)?;
                    rows += 1;
                    if rows.is_multiple_of(ROWS_AT_ONCE) {
                        w.reactor.wake(w.reactor.current_task());
                        parked().await;
                    }
                }
                back::ERROR => error = Some(crate::server::pool::login::refused(&self.address, &body)),
                back::READY => return error.map_or(Ok(()), |error| Err(error.into())),
                _ => {}
            }
        }
    }
}

/// Reads all parts, in the transaction that is open. Not cancel safe.
async fn read(w: &Worker, line: &mut Line, config: Arc<Config>) -> Result<Catalog, SurveyError> {
    let mut draft = Draft::default();
    for part in 0..PARTS.len() {
        line.take(w, part, &mut draft).await?;
    }
    let done: Arc<Mutex<Option<Catalog>>> = Arc::default();
    let (theirs, shared, id, task) = (done.clone(), w.shared.clone(), w.id, w.reactor.current_task());
    let thread = std::thread::Builder::new().name("catalog".into());
    let thread = thread.spawn(move || {
        *theirs.lock() = Some(draft.finish(&config.routing));
        shared.mailboxes[usize::from(id)].send(Message::Wake(task));
    });
    let thread = thread.map_err(SurveyError::Thread)?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        if let Some(catalog) = done.lock().take() {
            return Ok(catalog);
        }
        // A thread that panicked never sends its mail.
        if thread.is_finished() && done.lock().is_none() {
            return Err(SurveyError::Fault);
        }
        w.reactor.wake_at(deadline.min(Instant::now() + LOOK_PERIOD));
        parked().await;
    }
}
