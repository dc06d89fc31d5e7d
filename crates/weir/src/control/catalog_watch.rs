//! Reads the catalogs of databases in use, and checks whether they are still true. The only writer of `catalogs`.
//!
//! One task for each database with sessions, with one connection to the primary (to a standby while there is none), as
//! `sr_check_user`, or if he is refused as the user who came last. Every user may read system catalogs, and no user's settings
//! affect the result (`own_login`). The task looks once a second, less often where a look takes long, and at once after a
//! defining statement. Only a change causes a full reading. Rows are taken a few at a time and another thread does the rest, so
//! that nodes are watched meanwhile.
//!
//! A database without sessions is left alone, so that it can be dropped. Its catalog is kept for minutes (`Catalogs::shed`): a
//! job's session each minute may be as short as a reading.
//!
//! All databases share a few places (`look_places`). A task gives its place and connection up only if another one waits.

use crate::auth::own_login::OwnUse;
use crate::control::control_conn::ControlConn;
use crate::control::control_context::{ControlContext, TaskBell, WakeSubject};
use crate::control::sharding_look::{self, EngineSighting, ShardingWatch};
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

const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Inverse share of time: a look of 200 ms runs every 4 s.
const LOOK_SHARE: u32 = 20;

const LOOK_MIN: Duration = Duration::from_millis(20);

const RETRY: Duration = Duration::from_secs(2);

/// Retry after an oversized answer, which would be as large and costly again.
const FLOODED_RETRY: Duration = Duration::from_secs(60);

/// CREATE DATABASE copies this database if it is told nothing else, and fails while it has other connections than its own.
const TEMPLATE: &str = "template1";

/// A longer time would keep others from dropping the database.
const LINGER: Duration = Duration::from_secs(5);

/// Time to connect, or for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Rows read before other tasks get a turn.
const ROWS_AT_ONCE: u32 = 256;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const COMMIT: &str = "COMMIT";

const NAME: &str = "weir_catalog";

#[derive(Debug, thiserror::Error)]
enum SurveyError {
    #[error("no server is up that could be asked")]
    NoServer,
    #[error("user \"{user}\" (sr_check_user) may not log in to it, and no other user has")]
    NobodyMay { user: String },
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error("{0}")]
    Sharding(#[from] sharding_look::ShardingError),
    #[error("{0}")]
    Draft(#[from] DraftError),
    #[error("reading it ended by a fault in the proxy")]
    Fault,
}

impl SurveyError {
    fn is_of_size(&self) -> bool {
        match self {
            SurveyError::Server(OpenError::Flooded { .. }) | SurveyError::Draft(DraftError::TooMany | DraftError::TooMuch(_)) => {
                true
            }
            SurveyError::Server(_) | SurveyError::Draft(DraftError::Row) => false,
            SurveyError::Sharding(_) | SurveyError::NoServer | SurveyError::NobodyMay { .. } | SurveyError::Fault => false,
        }
    }
}

/// Facts outside of the catalog that answers depend on. Asking takes longer, so it is done after definitions, and else less
/// often.
struct OuterFacts {
    kinds: String,
    changes: u64,
    looked_at: Instant,
    took: Duration,
}

struct CountedConn {
    conn: ControlConn,
    _counted: LookCountGuard,
}

/// Counts a connection among those of clients, until dropped.
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

struct CatalogWatchGuard {
    c: Rc<ControlContext>,
    database: Arc<KnownDatabase>,
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

fn primary(c: &ControlContext) -> Option<u16> {
    c.shared.cluster.view.load().primary_id()
}

/// Watches a database until it has had no sessions for a while. Not cancel safe: a look under way is lost.
pub async fn watch(c: Rc<ControlContext>, database: Arc<KnownDatabase>) {
    let mut duty = CatalogWatchGuard::begin(&c, &database);
    let bell = c.bell(WakeSubject::Database(database.name.clone()));
    let (mut line, mut beside, mut sharding) = (None, None, ShardingWatch::default());
    let (mut place, mut looked) = (None, None);
    let mut used_at = Instant::now();
    while c.shared.stop_mode() < ProxyShutdown::Fast {
        // Writers whose end was not seen need looks.
        let has_doubts = || !c.shared.changes.doubts(&database.name).is_empty();
        if database.has_sessions() || (!database.is_wanted_empty() && has_doubts()) {
            used_at = Instant::now();
        } else if used_at.elapsed() >= LINGER || database.is_wanted_empty() {
            break;
        }
        let changes = database.changes();
        if place.is_none() {
            let urgency = if looked == Some(changes) { LookUrgency::Routine } else { LookUrgency::Unknown };
            let is_used = || database.has_sessions() || has_doubts() || used_at.elapsed() < LINGER;
            let is_wanted = || c.shared.stop_mode() < ProxyShutdown::Fast && !database.is_wanted_empty() && is_used();
            place = c.look_places.take(urgency, || places_max(&c), is_wanted).await;
            if place.is_none() {
                continue;
            }
        }
        let started = Instant::now();
        // Read before the look, which sees these changes.
        let changes = database.changes();
        let had_line = line.is_some();
        let outcome = look(&c, &database, &mut line, (&mut duty.known, &mut beside), changes).await;
        if c.shared.config.load().sharding.is_on {
            look_at_sharding(&c, &database, &mut line, &mut sharding).await;
            sharding.follow(&c, &database);
        }
        let pause = match &outcome {
            Ok(took) => LOOK_PERIOD.max(*took * LOOK_SHARE),
            Err(error) if error.is_of_size() => FLOODED_RETRY,
            Err(_) if had_line => LOOK_MIN,
            Err(_) => RETRY,
        };
        if outcome.is_err() {
            if had_line {
                // Another database may have this name: only connections prevent a drop.
                doubt(&c, &database);
            }
            line = None;
        } else {
            looked = Some(changes);
            if *database.name == *TEMPLATE {
                line = None;
            }
        }
        tell(&c, &database, outcome.err());
        database.tried().into_iter().for_each(|waiter| c.wake(waiter));
        let yields_at = line.as_ref().map(|_| started + hold(started.elapsed()));
        if line.is_none() {
            place = None;
        }
        if rest(&c, &database, &bell, (started + pause, yields_at), changes).await == RestEndReason::Yields {
            (line, place, sharding.engine) = (None, None, None);
            rest(&c, &database, &bell, (started + pause, None), changes).await;
        }
    }
    drop(duty);
    if database.has_sessions() {
        // A session came just now, and found the database still watched.
        c.shared.watch_catalog(&database);
    }
}

fn places_max(c: &ControlContext) -> u32 {
    looks_max(c.shared.config.load().conns_per_node_max())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestEndReason {
    /// Time for a look, or to leave the database alone.
    Due,
    /// Another database waits for the place.
    Yields,
}

/// Waits for a time or a change, or from `yields_at` on for another database that wants the place. Cancel safe.
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
        tokio::select! {
            () = tokio::time::sleep_until(wake_at.into()) => {}
            () = bell.rung() => {}
            () = c.look_places.changed(), if yields_at.is_some() => {}
        }
    }
}

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

/// Looks at the engine as well, whose connection is kept beside the database's own. Not cancel safe.
async fn look_at_sharding(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut Option<CountedConn>,
    watch: &mut ShardingWatch,
) {
    let looked = match line {
        Some(line) => read_sharding(c, database, &mut line.conn, watch).await,
        None => Err(SurveyError::NoServer),
    };
    let error = looked.err().map(|error| error.to_string());
    if let Some(error) = &error {
        watch.engine = None;
        if database.sharding.note_error(Some(error.clone())) {
            let who = LogOrigin { database: &database.name, ..LogOrigin::default() };
            let text = format_args!(
                "how the tables of database \"{}\" are spread over shards cannot be read, and what was read before counts; until then \
                 statements that name tables are refused: {error}",
                database.name
            );
            c.shared.log.write(Level::Warning, &who, text);
        }
    } else {
        database.sharding.note_error(None);
    }
}

/// Not cancel safe.
async fn read_sharding(
    c: &ControlContext,
    database: &KnownDatabase,
    line: &mut ControlConn,
    watch: &mut ShardingWatch,
) -> Result<(), SurveyError> {
    line.renew((Instant::now() + ANSWER_TIMEOUT).into());
    let engine = c.shared.config.load().sharding.engine_of(&database.name);
    let sighting = sharding_look::sight_engine(line, &engine).await?;
    if sighting == EngineSighting::Others && !std::mem::replace(&mut watch.is_warned, true) {
        let text = format_args!(
            "database \"{engine}\" is not used as the engine of \"{}\": it must belong to a superuser, or to the user of this look",
            database.name
        );
        c.shared.log.say(Level::Warning, text);
    }
    if sighting != EngineSighting::Trusted {
        watch.engine = None;
    } else if watch.engine.as_ref().is_none_or(|known| known.address != line.address) {
        watch.keep_engine(open(c, database, &engine, line.address.clone()).await?).await?;
    }
    if let Some(engine) = &mut watch.engine {
        engine.renew((Instant::now() + ANSWER_TIMEOUT).into());
    }
    // Behind a definition the edition is unknown, and the readers are read again.
    let defined = database.sharding.readers_before_look();
    match sharding_look::look(c, database, line, watch, (database.edition(), defined)).await {
        Err(error) if watch.is_due_again(&error) => Ok(()),
        looked => Ok(looked?),
    }
}

/// Without a primary nothing is defined, so a standby will do.
fn server(c: &ControlContext) -> Option<ServerAddress> {
    let view = c.shared.cluster.view.load();
    let at = view.primary.or_else(|| (0..view.nodes.len()).find(|&at| view.is_up(at)));
    at.and_then(|at| ServerAddress::of(&view, &c.shared.config.load(), at))
}

/// Looks once, and reads all after a change. Returns the look's duration. Not cancel safe.
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
            // Counted after publishing: readers of the counter may rely on the catalog.
            report(c, database, &catalog, started.elapsed());
            if is_redefined {
                // A session that asked meanwhile used the old catalog.
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

/// Not cancel safe.
async fn look_at_roles(c: &ControlContext, line: &mut ControlConn) -> Result<(), SurveyError> {
    // A standby may lag behind.
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

/// Ends all logins under a name with a new role: server connections, and sessions, whose next statement would run with another
/// role's rights.
fn note_role(c: &ControlContext, user: &Arc<str>, oid: &str) {
    let noted = c.shared.clients.roles.lock().note(user, oid, c.millis(Instant::now()));
    let Some(until_ms) = noted else { return };
    c.renew(&c.shared.pools.of_user(user));
    c.shared.tell_all(|| WorkerMessage::Refresh);
    for mailbox in &c.shared.mailboxes {
        mailbox.send(WorkerMessage::Kill(TerminationTarget::User { user: user.clone(), until_ms }));
    }
}

/// Closes server connections with outdated defaults, perhaps changed past Weir. Must run before answers are kept again. Not
/// cancel safe.
async fn renew(c: &ControlContext, database: &KnownDatabase, line: &mut ControlConn) -> Result<(), SurveyError> {
    let rows = line.query_catalog(CatalogQuery::Defaults).await?;
    let mark = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    if database.is_another(ChangeMark::Defaults, &mark) {
        c.renew(&c.shared.pools.of_database(Some(&database.name)));
        c.shared.tell_all(|| WorkerMessage::Refresh);
    }
    Ok(())
}

/// Opens a new connection if needed. Cancel safe.
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
            let conn = open(c, database, &database.name, address).await?;
            &mut line.insert(CountedConn { conn, _counted: counted }).conn
        }
    })
}

/// Checks the database's identity: without a connection it may have been dropped, and another one have its name. Not cancel safe.
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

const IDENTITY: &str =
    "SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// Checks facts outside of the catalog, if due. Not cancel safe.
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

/// Outdates answers and table names after a definition, perhaps past Weir. Must run before a new catalog is published, and after
/// it.
fn doubt(c: &ControlContext, database: &KnownDatabase) {
    c.shared.changes.doubt_database(&database.name, c.shared.positions.next_round());
}

/// Checks whether writers whose end was not seen have ended. Not cancel safe.
async fn dispel(c: &ControlContext, database: &KnownDatabase, line: &mut ControlConn) -> Result<(), SurveyError> {
    let changes = &c.shared.changes;
    let doubts = changes.doubts(&database.name);
    if doubts.is_empty() || !c.shared.cluster.view.load().is_primary(line.address.node) {
        return Ok(());
    }
    let rows = line.query(&running(doubts.iter().map(|doubt| doubt.pid))).await?;
    let running: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let round = c.shared.positions.next_round();
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

fn running(pids: impl Iterator<Item = u32>) -> String {
    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
    format!(
        "SELECT pid FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int4[])",
        pids.join(",")
    )
}

/// Logs in to the database or its engine, `name`, as `sr_check_user`, or if refused as the user who came last. Cancel safe.
async fn open(
    c: &ControlContext,
    database: &KnownDatabase,
    name: &str,
    address: ServerAddress,
) -> Result<ControlConn, SurveyError> {
    let generation = c.shared.access.generation();
    let (files, config) = (c.shared.access.files(), c.shared.config.load_full());
    let (own, secret) = files.checker(&config.check);
    let refused = database.report.lock().refused.clone();
    if !is_refused_still(refused.as_ref(), own, generation) {
        match log_in(c, database, name, &address, (own, secret.as_deref(), generation)).await {
            Ok(mut line) => match reads_defaults_of_others(&mut line).await? {
                true => return Ok(line),
                // A role's own defaults hide others' ones: a role without any serves better.
                false if database.user().is_none_or(|user| *user == *own) => return Ok(line),
                false => {}
            },
            Err(error) => {
                let Some(lasting) = refuses_user(&error) else { return Err(error.into()) };
                // A refusal by the engine says nothing of the database.
                if lasting == RefusalPermanence::Yes && *name == *database.name {
                    database.report.lock().refused = Some((own.to_owned(), generation));
                }
            }
        }
    }
    let Some(user) = database.user().filter(|user| **user != *own) else {
        return Err(SurveyError::NobodyMay { user: own.to_owned() });
    };
    let secret = c.shared.secret_for_server(&user, None);
    Ok(log_in(c, database, name, &address, (&user, secret.as_ref(), generation)).await?)
}

/// False if the role's own defaults hide those of others. Not cancel safe.
async fn reads_defaults_of_others(line: &mut ControlConn) -> Result<bool, OpenError> {
    let rows = line.query(OWN_DEFAULTS).await?;
    Ok(rows.iter().flatten().flatten().next().is_none_or(|count| count == "0"))
}

/// Counts a role's own defaults in `own_login::ASKED`.
const OWN_DEFAULTS: &str = "SELECT pg_catalog.count(*) FROM pg_catalog.pg_db_role_setting AS s \
    JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) s.setrole, pg_catalog.unnest(s.setconfig) AS c (entry) \
    WHERE r.rolname OPERATOR(pg_catalog.=) SESSION_USER AND pg_catalog.split_part(c.entry, '=', 1) OPERATOR(pg_catalog.=) ANY \
    ('{search_path,default_transaction_isolation,idle_in_transaction_session_timeout,transaction_timeout}'::pg_catalog.text[])";

fn is_refused_still(refused: Option<&(String, u64)>, user: &str, generation: u64) -> bool {
    refused.is_some_and(|(name, of)| name == user && *of == generation)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalPermanence {
    /// Until rights or passwords change.
    Yes,
    No,
}

/// `None`: the error is about the server or connection.
fn refuses_user(error: &OpenError) -> Option<RefusalPermanence> {
    match error {
        OpenError::Secret { .. } => Some(RefusalPermanence::Yes),
        OpenError::Refused { sqlstate, .. } if sqlstate.starts_with("28") || sqlstate == sqlstate::INSUFFICIENT_PRIVILEGE => {
            Some(RefusalPermanence::Yes)
        }
        // Server, role or database may have a limit.
        OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::TOO_MANY_CONNECTIONS => Some(RefusalPermanence::No),
        _ => None,
    }
}

/// Cancel safe: the connection is closed.
async fn log_in(
    c: &ControlContext,
    database: &KnownDatabase,
    name: &str,
    address: &ServerAddress,
    (user, secret, generation): (&str, Option<&UserSecret>, u64),
) -> Result<ControlConn, OpenError> {
    let parameters = &[("application_name", NAME)];
    let login = ServerLogin { user, database: name, secret, generation, parameters };
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let (line, _) = ControlConn::log_in(&c.shared, address, &login, OwnUse::Catalog, deadline.into()).await?;
    database.report.lock().read_as = user.to_owned();
    Ok(line)
}

/// Not cancel safe.
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

/// Not cancel safe: reads in the open transaction.
async fn read(conn: &mut ControlConn, config: Arc<Config>) -> Result<Catalog, SurveyError> {
    let mut draft = CatalogDraft::new(config.routing.catalog_bytes_max);
    for part in 0..PARTS.len() {
        take(conn, part, &mut draft).await?;
    }
    let work = tokio::task::spawn_blocking(move || draft.finish(&config.routing));
    work.await.map_err(|_| SurveyError::Fault)
}

pub fn own_texts() -> Vec<String> {
    [BEGIN, COMMIT, OWN_DEFAULTS, IDENTITY].map(str::to_owned).into_iter().chain([running([1, 2].into_iter())]).collect()
}
