//! Reads the catalogs of the databases in use and looks whether they are still true. The only writer of `catalogs`.
//!
//! One task for each database that has sessions, with one connection to the primary (to a standby while there is none), logged in as
//! `sr_check_user`, or where he may not log in as the user who came last. Every user of a database may read its system catalogs, and no setting
//! of a user shapes what is read (`own_login`). The task looks once a second, in large databases the less often the
//! longer a look takes, and at once when a statement passed that defines something. Only when the look finds a change all is read. Rows are
//! taken in a few at a time, and the rest of the work is another thread's, so that nodes are watched meanwhile.
//!
//! A database without sessions is left alone, so that anybody may drop it. Its catalog is kept for some minutes (`Catalogs::shed`), and the look of the
//! next task tells whether it is still true: sessions of a job each minute are as short as the time that a reading takes.
//!
//! All databases share a few places for such connections (`look_places`). A task keeps its place and its connection between two looks unless
//! another one waits, so that a server with a database for each tenant is not filled by looks.

use crate::auth::own_login::OwnUse;
use crate::control::control_conn::ControlConn;
use crate::control::control_context::{ControlContext, TaskBell, WakeSubject};
use crate::log::{Level, LogOrigin};
use crate::runtime::pool::look_places::{LookUrgency, hold, looks_max};
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerLogin};
use crate::runtime::shared::{ProxyShutdown, SharedState, TerminationTarget, WorkerMessage};
use crate::runtime::user_roles;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_catalog::{Catalog, CatalogDraft, CatalogQuery, DraftError, PARTS};
use weir_config::Config;
use weir_config::passwd::UserSecret;
use weir_session::catalogs::{CatalogReading, ChangeMark, KnownDatabase, UNKNOWN};
use weir_session::fault::sqlstate;
use weir_session::metrics::WorkerCounter;
use weir_session::table_changes::UnsettledWriter;
use weir_wire::frame::back;

/// Shortest time between two looks that nobody asked for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// A look may take this share of the time: one that takes 200 ms is taken every 4 s. On a busy server it takes longer than it costs.
const LOOK_SHARE: u32 = 20;

/// Shortest time between two looks, however many changes are told.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// Time until the next attempt after one that failed.
const RETRY: Duration = Duration::from_secs(2);

/// The same, if the server said more than is taken in: to read as much again costs both sides much, and comes out the same.
const FLOODED_RETRY: Duration = Duration::from_secs(60);

/// Time without sessions after which a database is left alone. A longer one would keep others from dropping it.
const LINGER: Duration = Duration::from_secs(5);

/// Time for connecting, or for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Rows taken in before others get their turn.
const ROWS_AT_ONCE: u32 = 256;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const COMMIT: &str = "COMMIT";

/// As servers show it.
const NAME: &str = "weir_catalog";

/// Why a database could not be read.
#[derive(Debug, thiserror::Error)]
enum SurveyError {
    #[error("no server is up that could be asked")]
    NoServer,
    #[error("user \"{user}\" (sr_check_user) may not log in to it, and no other user has")]
    NobodyMay { user: String },
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("{0}")]
    Draft(#[from] DraftError),
    #[error("reading it ended by a fault in the proxy")]
    Fault,
}

impl SurveyError {
    /// True if there was more to read than is taken in.
    fn is_of_size(&self) -> bool {
        match self {
            SurveyError::Server(OpenError::Flooded { .. }) | SurveyError::Draft(DraftError::TooMany | DraftError::TooMuch(_)) => {
                true
            }
            SurveyError::Server(_) | SurveyError::Draft(DraftError::Row) => false,
            SurveyError::NoServer | SurveyError::NobodyMay { .. } | SurveyError::Fault => false,
        }
    }
}

/// Facts outside of the catalog that answers depend on, as they were found the last time. A look at them takes longer, so it is done when something
/// was defined through us, and else less often.
struct OuterFacts {
    kinds: String,
    changes: u64,
    looked_at: Instant,
    took: Duration,
}

/// A connection for looks, which counts among those of clients.
struct CountedConn {
    conn: ControlConn,
    _counted: LookCountGuard,
}

/// A connection to a node that counts among those of clients.
struct LookCountGuard {
    shared: Arc<SharedState>,
    node: u16,
}

impl LookCountGuard {
    fn new(shared: &Arc<SharedState>, node: u16) -> LookCountGuard {
        shared.pools.look_began(node);
        LookCountGuard { shared: shared.clone(), node }
    }
}

impl Drop for LookCountGuard {
    fn drop(&mut self) {
        self.shared.pools.look_ended(self.node);
    }
}

/// Closes the books when the task ends, however it ends.
struct CatalogWatchGuard {
    c: Rc<ControlContext>,
    database: Arc<KnownDatabase>,
    /// The last reading.
    known: Option<CatalogReading>,
}

impl CatalogWatchGuard {
    fn begin(c: &Rc<ControlContext>, database: &Arc<KnownDatabase>) -> CatalogWatchGuard {
        let known = database.take_kept(primary(c));
        CatalogWatchGuard { c: c.clone(), database: database.clone(), known }
    }
}

impl Drop for CatalogWatchGuard {
    fn drop(&mut self) {
        let now = Instant::now();
        self.database.close(self.known.take(), primary(&self.c), now);
        self.c.shared.catalogs.shed(now);
    }
}

/// The number of the node that is the primary now.
fn primary(c: &ControlContext) -> Option<u16> {
    c.shared.cluster.view.load().primary_id()
}

/// Looks after one database until it has had no sessions for a while. Not cancel safe: a look that is under way is lost.
pub async fn watch(c: Rc<ControlContext>, database: Arc<KnownDatabase>) {
    let mut duty = CatalogWatchGuard::begin(&c, &database);
    let bell = c.bell(WakeSubject::Database(database.name.clone()));
    let (mut line, mut beside) = (None, None);
    let (mut place, mut looked) = (None, None);
    let mut used_at = Instant::now();
    while c.shared.stop_mode() < ProxyShutdown::Fast {
        // Of a writer whose end nobody heard of it must be seen that it has ended.
        let has_doubts = || !c.shared.changes.doubts(&database.name).is_empty();
        if database.has_sessions() || (!database.is_wanted_empty() && has_doubts()) {
            used_at = Instant::now();
        } else if used_at.elapsed() >= LINGER || database.is_wanted_empty() {
            break;
        }
        let changes = database.changes();
        if place.is_none() {
            let urgency = if looked == Some(changes) { LookUrgency::Routine } else { LookUrgency::Unknown };
            // As long as the task goes on.
            let is_used = || database.has_sessions() || has_doubts() || used_at.elapsed() < LINGER;
            let is_wanted = || c.shared.stop_mode() < ProxyShutdown::Fast && !database.is_wanted_empty() && is_used();
            place = c.look_places.take(urgency, || places_max(&c), is_wanted).await;
            if place.is_none() {
                continue;
            }
        }
        let started = Instant::now();
        // Of a statement before the look begins its work is seen.
        let changes = database.changes();
        let had_line = line.is_some();
        let outcome = look(&c, &database, &mut line, (&mut duty.known, &mut beside), changes).await;
        let pause = match &outcome {
            Ok(took) => LOOK_PERIOD.max(*took * LOOK_SHARE),
            Err(error) if error.is_of_size() => FLOODED_RETRY,
            Err(_) if had_line => LOOK_MIN,
            Err(_) => RETRY,
        };
        if outcome.is_err() {
            if had_line {
                // Another database may have this name by now: nobody drops one to which there are connections.
                doubt(&c, &database);
            }
            line = None;
        } else {
            looked = Some(changes);
        }
        tell(&c, &database, outcome.err());
        database.tried().into_iter().for_each(|waiter| c.wake(waiter));
        // One that is not open needs no place.
        let yields_at = line.as_ref().map(|_| started + hold(started.elapsed()));
        if line.is_none() {
            place = None;
        }
        if rest(&c, &database, &bell, (started + pause, yields_at), changes).await == RestEndReason::Yields {
            (line, place) = (None, None);
            rest(&c, &database, &bell, (started + pause, None), changes).await;
        }
    }
    drop(duty);
    if database.has_sessions() {
        // One came just now, and found the database looked after.
        c.shared.watch_catalog(&database);
    }
}

/// Connections that may look at catalogs.
fn places_max(c: &ControlContext) -> u32 {
    looks_max(c.shared.config.load().conns_per_node_max())
}

/// Why a database rests no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestEndReason {
    /// It is to be looked at, or to be left alone.
    Due,
    /// Another one waits for its place.
    Yields,
}

/// Until the time has come, or something has changed, or from `yields_at` on another database waits for the place of this one. Cancel safe.
async fn rest(
    c: &ControlContext,
    database: &KnownDatabase,
    bell: &TaskBell,
    (until, yields_at): (Instant, Option<Instant>),
    changes: u64,
) -> RestEndReason {
    let soonest = Instant::now() + LOOK_MIN;
    loop {
        let now = Instant::now();
        let is_due = now >= until || (database.changes() != changes && now >= soonest);
        if is_due || c.shared.stop_mode() >= ProxyShutdown::Fast {
            return RestEndReason::Due;
        }
        let is_wanted = yields_at.is_some() && c.look_places.is_wanted(places_max(c));
        if is_wanted && yields_at.is_some_and(|at| now >= at) {
            return RestEndReason::Yields;
        }
        let linger = if database.has_sessions() { until } else { until.min(now + LINGER) };
        let wake_at = if database.changes() != changes { soonest } else { linger };
        let wake_at = yields_at.filter(|_| is_wanted).map_or(wake_at, |at| at.min(wake_at));
        // However it ends, it is looked at what is due.
        tokio::select! {
            () = tokio::time::sleep_until(wake_at.into()) => {}
            () = bell.rung() => {}
            () = c.look_places.changed(), if yields_at.is_some() => {}
        }
    }
}

/// Notes the outcome where operators look; an error is logged when it is a new one.
fn tell(c: &ControlContext, database: &KnownDatabase, error: Option<SurveyError>) {
    let error = error.map(|error| error.to_string());
    let mut report = database.report.lock();
    if report.error == error {
        return;
    }
    if let Some(error) = &error {
        let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
        let text = format_args!(
            "the catalog of database \"{}\" cannot be read, so that statements that name anything go to the primary, and after each write \
             the server is asked what it left on the connection, as long as something has changed or nothing is known: {error}",
            database.name
        );
        c.shared.log.write(Level::Warning, &who, text);
        database.note_unreadable();
    }
    report.error = error;
}

/// The primary; while there is none, nothing is defined either, and a standby will do.
fn server(c: &ControlContext) -> Option<ServerAddress> {
    let view = c.shared.cluster.view.load();
    let at = view.primary.or_else(|| (0..view.nodes.len()).find(|&at| view.is_up(at)));
    at.and_then(|at| ServerAddress::of(&view, &c.shared.config.load(), at))
}

/// One look, and a reading if something has changed. Gives the time the look took. Not cancel safe.
async fn look(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut Option<CountedConn>,
    (known, beside): (&mut Option<CatalogReading>, &mut Option<OuterFacts>),
    changes: u64,
) -> Result<Duration, SurveyError> {
    let is_new = line.is_none();
    let line = line_to_server(c, database, line).await?;
    if is_new {
        identify(c, database, line, known).await?;
    }
    line.renew((Instant::now() + ANSWER_TIMEOUT).into());
    look_at_roles(c, line).await?;
    let started = Instant::now();
    line.query(BEGIN).await?;
    let rows = line.query_catalog(CatalogQuery::Fingerprint).await?;
    let took = started.elapsed();
    let mut fingerprint = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if c.shared.cached_results.is_some() {
        look_beside(c, database, line, beside, changes).await?;
    }
    if let Some(beside) = beside {
        fingerprint.push_str(&beside.kinds);
    }
    let config = c.shared.config.load_full();
    let expire_ms = config.routing.catalog_expire_ms;
    let is_same = |known: &&mut CatalogReading| {
        let is_young = expire_ms == 0 || known.read_at.elapsed() < Duration::from_millis(expire_ms);
        known.fingerprint == fingerprint && known.config.routing.judges_as(&config.routing) && is_young
    };
    match known.as_mut().filter(is_same) {
        Some(known) => {
            database.publish(known.edition, Some(known.catalog.clone()), changes);
        }
        None => {
            renew(c, database, line).await?;
            // The facts that sessions relied upon until now are not true any more.
            let catalog = read(line, config.clone()).await?;
            let edition = c.shared.catalogs.next_edition();
            let is_redefined = database.is_another(ChangeMark::Definitions, &fingerprint);
            if is_redefined {
                database.follow.redefine();
                doubt(c, database);
            }
            debug_assert_ne!(edition, UNKNOWN);
            let catalog = Arc::new(catalog);
            database.publish(edition, Some(catalog.clone()), changes);
            // A reader of that count may rely on the catalog.
            report(c, database, &catalog, started.elapsed());
            if is_redefined {
                // A session that asked meanwhile took its tables from the catalog of before.
                doubt(c, database);
            }
            let bytes = catalog.counts().bytes;
            *known = Some(CatalogReading { edition, catalog, bytes, fingerprint, config, read_at: Instant::now() });
        }
    }
    line.query(COMMIT).await?;
    dispel(c, database, line).await?;
    database.report.lock().look_ms = took.as_millis() as u64;
    Ok(took)
}

/// Looks whether the users' names stand for the same roles as before. Not cancel safe.
async fn look_at_roles(c: &ControlContext, line: &mut ControlConn) -> Result<(), SurveyError> {
    // A standby may not know yet what we know already.
    if !c.shared.cluster.view.load().is_primary(line.address.node)
        || !c.shared.clients.roles.lock().begin_look(c.millis(Instant::now()))
    {
        return Ok(());
    }
    let users = c.shared.pools.users();
    if users.is_empty() {
        return Ok(());
    }
    for row in line.query(&user_roles::question(users.iter().map(|user| &**user))).await? {
        let [Some(name), oid] = row.as_slice() else { continue };
        if let Some(user) = users.get(name.as_str()) {
            note_role(c, user, oid.as_deref().unwrap_or_default());
        }
    }
    Ok(())
}

/// Takes in the role that a user's name stands for. If it is another one than before, all logins under the old one end. These are connections, and
/// sessions, whose next statement would run with the rights of somebody else.
fn note_role(c: &ControlContext, user: &Arc<str>, oid: &str) {
    let noted = c.shared.clients.roles.lock().note(user, oid, c.millis(Instant::now()));
    let Some(until_ms) = noted else { return };
    c.renew(&c.shared.pools.of_user(user));
    c.shared.tell_all(|| WorkerMessage::Refresh);
    for mailbox in &c.shared.mailboxes {
        mailbox.send(WorkerMessage::Kill(TerminationTarget::User { user: user.clone(), until_ms }));
    }
}

/// Has the connections closed that began with other defaults than those of now, perhaps set past us. To be done before answers are kept again.
/// Not cancel safe.
async fn renew(c: &ControlContext, database: &KnownDatabase, line: &mut ControlConn) -> Result<(), SurveyError> {
    let rows = line.query_catalog(CatalogQuery::Defaults).await?;
    let mark = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if database.is_another(ChangeMark::Defaults, &mark) {
        c.renew(&c.shared.pools.of_database(Some(&database.name)));
        // Weir asks a server anew for the values that welcome clients.
        c.shared.tell_all(|| WorkerMessage::Refresh);
    }
    Ok(())
}

/// The connection to the server to be asked, a new one if need be. Cancel safe.
async fn line_to_server<'l>(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &'l mut Option<CountedConn>,
) -> Result<&'l mut ControlConn, SurveyError> {
    let address = server(c).ok_or(SurveyError::NoServer)?;
    if line.as_ref().is_some_and(|line| line.conn.address != address || line.conn.is_left(&c.shared)) {
        *line = None;
    }
    Ok(match line {
        Some(line) => &mut line.conn,
        None => {
            let counted = LookCountGuard::new(&c.shared, address.node);
            let conn = open(c, database, address).await?;
            &mut line.insert(CountedConn { conn, _counted: counted }).conn
        }
    })
}

/// Without a connection to it a database may be dropped, and another one have its name: nothing that is known is true of that one.
/// Not cancel safe.
async fn identify(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut ControlConn,
    known: &mut Option<CatalogReading>,
) -> Result<(), SurveyError> {
    let rows = line.query(IDENTITY).await?;
    let identity = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if database.is_another(ChangeMark::Identity, &identity) {
        *known = None;
        doubt(c, database);
    }
    Ok(())
}

/// The number of a database, which no other one gets.
const IDENTITY: &str =
    "SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// Looks at what answers hang on beside the catalog, if it is time to. If that is another than before, they are not true any more.
/// Not cancel safe.
async fn look_beside(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut ControlConn,
    beside: &mut Option<OuterFacts>,
    changes: u64,
) -> Result<(), SurveyError> {
    let started = Instant::now();
    let is_recent = |last: &OuterFacts| last.changes == changes && last.looked_at.elapsed() < last.took * LOOK_SHARE;
    if beside.as_ref().is_some_and(is_recent) {
        return Ok(());
    }
    let rows = line.query_catalog(CatalogQuery::Answers).await?;
    let mut cells = rows.into_iter().flatten().map(Option::unwrap_or_default);
    let (kinds, rights) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
    *beside = Some(OuterFacts { kinds, changes, looked_at: Instant::now(), took: started.elapsed() });
    if database.is_another(ChangeMark::Rights, &rights) {
        doubt(c, database);
    }
    Ok(())
}

/// Something was defined or granted, perhaps past us: answers of before are not true any more, and names may be other tables'. To be done before a
/// new catalog is published, and after it.
fn doubt(c: &ControlContext, database: &KnownDatabase) {
    c.shared.changes.doubt_database(&database.name, c.shared.positions.next_round());
}

/// Looks whether the server processes of writers have ended whose end nobody heard of. Not cancel safe.
async fn dispel(c: &ControlContext, database: &KnownDatabase, line: &mut ControlConn) -> Result<(), SurveyError> {
    let changes = &c.shared.changes;
    let doubts = changes.doubts(&database.name);
    // A standby does not know what the primary of before and after still does.
    if doubts.is_empty() || !c.shared.cluster.view.load().is_primary(line.address.node) {
        return Ok(());
    }
    let rows = line.query(&running(doubts.iter().map(|doubt| doubt.pid))).await?;
    let running: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let round = c.shared.positions.next_round();
    // The work of a node other than the primary shows in nobody's answer.
    let is_over = |doubt: &&UnsettledWriter| doubt.node != line.address.node || !running.contains(&doubt.pid.to_string());
    doubts.iter().filter(is_over).for_each(|doubt| changes.dispel(doubt, round));
    Ok(())
}

fn report(c: &ControlContext, database: &KnownDatabase, catalog: &Catalog, took: Duration) {
    c.count(WorkerCounter::CatalogsRead);
    let counts = catalog.counts();
    let text = format_args!(
        "catalog of database \"{}\" read in {} ms: {} relations, {} functions",
        database.name,
        took.as_millis(),
        counts.relations,
        counts.functions
    );
    c.shared.log.say(Level::Debug1, text);
    let mut report = database.report.lock();
    report.reads += 1;
    report.read_ms = took.as_millis() as u64;
}

/// Asks which of these server processes still run.
fn running(pids: impl Iterator<Item = u32>) -> String {
    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
    format!(
        "SELECT pid FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int4[])",
        pids.join(",")
    )
}

/// Logs in to read the catalog: as the user of Weir's own looks, or where he may not log in as the user who came last. Cancel safe.
async fn open(c: &ControlContext, database: &KnownDatabase, address: ServerAddress) -> Result<ControlConn, SurveyError> {
    let generation = c.shared.access.generation();
    let (files, config) = (c.shared.access.files(), c.shared.config.load_full());
    let (own, secret) = files.checker(&config.check);
    let refused = database.report.lock().refused.clone();
    if !is_refused_still(refused.as_ref(), own, generation) {
        match log_in(c, database, &address, (own, secret.as_deref(), generation)).await {
            Ok(mut line) => match reads_defaults_of_others(&mut line).await? {
                true => return Ok(line),
                // A role whose own defaults do not hide those of others serves better.
                false if database.user().is_none_or(|user| *user == *own) => return Ok(line),
                false => {}
            },
            Err(error) => {
                let Some(lasting) = refuses_user(&error) else { return Err(error.into()) };
                if lasting == RefusalPermanence::Yes {
                    database.report.lock().refused = Some((own.to_owned(), generation));
                }
            }
        }
    }
    let Some(user) = database.user().filter(|user| **user != *own) else {
        return Err(SurveyError::NobodyMay { user: own.to_owned() });
    };
    let secret = c.shared.secret_for_server(&user, None);
    Ok(log_in(c, database, &address, (&user, secret.as_ref(), generation)).await?)
}

/// True if the role of a connection has no defaults of its own for the parameters of which a catalog has the defaults: one with them does not see
/// what others begin with. Not cancel safe.
async fn reads_defaults_of_others(line: &mut ControlConn) -> Result<bool, OpenError> {
    let rows = line.query(OWN_DEFAULTS).await?;
    Ok(rows.iter().flatten().flatten().next().is_none_or(|count| count == "0"))
}

/// Counts a role's own defaults of the parameters in `own_login`'s list.
const OWN_DEFAULTS: &str = "SELECT pg_catalog.count(*) FROM pg_catalog.pg_db_role_setting AS s \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) s.setrole, pg_catalog.unnest(s.setconfig) AS c (entry) \
    WHERE r.rolname OPERATOR(pg_catalog.=) SESSION_USER AND pg_catalog.split_part(c.entry, '=', 1) OPERATOR(pg_catalog.=) ANY \
    ('{search_path,default_transaction_isolation,idle_in_transaction_session_timeout,transaction_timeout}'::pg_catalog.text[])";

/// True if this user was refused with the passwords of now.
fn is_refused_still(refused: Option<&(String, u64)>, user: &str, generation: u64) -> bool {
    refused.is_some_and(|(name, of)| name == user && *of == generation)
}

/// A refusal of one user that another one may not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalPermanence {
    /// Until somebody changes rights or passwords.
    Yes,
    No,
}

/// `None`: the error is about the server, or the connection to it.
fn refuses_user(error: &OpenError) -> Option<RefusalPermanence> {
    match error {
        OpenError::Secret { .. } => Some(RefusalPermanence::Yes),
        OpenError::Refused { sqlstate, .. } if sqlstate.starts_with("28") || sqlstate == sqlstate::INSUFFICIENT_PRIVILEGE => {
            Some(RefusalPermanence::Yes)
        }
        // The server may be full for all, or the role or the database may have a limit.
        OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::TOO_MANY_CONNECTIONS => Some(RefusalPermanence::No),
        _ => None,
    }
}

/// Cancel safe: the connection is closed.
async fn log_in(
    c: &ControlContext,
    database: &KnownDatabase,
    address: &ServerAddress,
    (user, secret, generation): (&str, Option<&UserSecret>, u64),
) -> Result<ControlConn, OpenError> {
    let parameters = &[("application_name", NAME)];
    let login = ServerLogin { user, database: &database.name, secret, generation, parameters };
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let (line, _) = ControlConn::log_in(&c.shared, address, &login, OwnUse::Catalog, deadline.into()).await?;
    database.report.lock().read_as = user.to_owned();
    Ok(line)
}

/// Takes the rows of one part into a draft. Not cancel safe.
async fn take(conn: &mut ControlConn, part: usize, draft: &mut CatalogDraft) -> Result<(), SurveyError> {
    conn.ask_catalog(CatalogQuery::Part(part)).await?;
    let (mut error, mut rows) = (None, 0_u32);
    loop {
        let (tag, body) = conn.next().await?;
        match tag {
            back::DATA_ROW => {
                let cells = weir_wire::back::read_row(&body).ok_or(DraftError::Row)?;
                draft.row(part, &cells)?;
                rows += 1;
                if rows.is_multiple_of(ROWS_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            back::ERROR => error = Some(crate::runtime::pool::server_login::refused(&conn.address, &body)),
            back::READY => return error.map_or(Ok(()), |error| Err(error.into())),
            _ => {}
        }
    }
}

/// Reads all parts, in the transaction that is open. Not cancel safe.
async fn read(conn: &mut ControlConn, config: Arc<Config>) -> Result<Catalog, SurveyError> {
    let mut draft = CatalogDraft::new(config.routing.catalog_bytes_max);
    for part in 0..PARTS.len() {
        take(conn, part, &mut draft).await?;
    }
    let work = tokio::task::spawn_blocking(move || draft.finish(&config.routing));
    work.await.map_err(|_| SurveyError::Fault)
}

/// For the list of Weir's own texts, beside those of `weir_catalog`.
pub fn own_texts() -> Vec<String> {
    [BEGIN, COMMIT, OWN_DEFAULTS, IDENTITY].map(str::to_owned).into_iter().chain([running([1, 2].into_iter())]).collect()
}
