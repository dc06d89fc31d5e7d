//! Where scripts are played: servers, two databases of the same content, and the proxy before one of them.

use crate::connection::{Connection, Stop};
use crate::play::{Played, play};
use crate::reply::Reply;
use crate::script::Unit;
use crate::texts;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_demo::{Cluster, Options, ReservedPort, Sql};

/// The database the direct connection uses, and the one the proxy's clients use.
pub const DIRECT: &str = "direct";
pub const PROXIED: &str = "proxied";

/// Parameters of every session's startup packet.
const STARTUP: &[(&str, &str)] = &[("application_name", "differential"), ("options", "-c work_mem=3MB -c extra_float_digits=2")];

/// A wait this long is a hang: nothing that is sent takes a hundredth of it, but the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The limit while a script is made smaller: many of the tries may hang.
pub const PATIENCE_SMALLER: Duration = Duration::from_secs(3);

/// Time for the proxy to find its servers.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Brings a database back to where all scripts begin.
const RESET: &str = "set client_min_messages = warning; set lock_timeout = '10s';
    drop schema if exists public cascade; create schema public;
    create table t (a int primary key, b text);
    insert into t values (1, 'one'), (2, 'two'), (3, 'three'), (4, null);
    create table w (a int primary key, b text);
    insert into w values (2, 'two');
    create table late (a int references t deferrable initially deferred);
    create schema if not exists other; create table if not exists other.t (x int)";

/// Functions and triggers that run without a word of the text, and set something. Made once, before the proxy looks: it sees a
/// definition past it a moment later.
const HABIT: &str = "create schema habit;
    create function habit.does() returns void language plpgsql as
    $$ begin perform set_config('app.user', 'by habit', false); set work_mem = '11MB'; end $$;
    create function habit.fires() returns trigger language plpgsql as $$ begin perform habit.does(); return new; end $$;
    create table habit.sets (a int); create table habit.late (a int);
    create trigger t before insert on habit.sets for each row execute function habit.fires();
    create constraint trigger t after insert on habit.late deferrable initially deferred for each row execute function habit.fires();
    create function habit.writes(a int) returns int language sql as 'insert into habit.sets values (a) returning a';
    create view habit.seen as select habit.does() is null as done";

/// One way to run the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub standbys: usize,
    pub worker_threads: usize,
    pub pool_size: usize,
    pub prepared_statements_max: usize,
    pub memory_buffer_kb: usize,
}

pub struct Stage {
    pub setup: Setup,
    cluster: Cluster,
    proxy: Child,
    port: ReservedPort,
    folder: PathBuf,
    /// The databases are not as `RESET` leaves them.
    is_dirty: bool,
    /// Longest wait for a reply.
    pub patience: Duration,
}

impl Stage {
    pub fn new(setup: Setup) -> Stage {
        let mut options = Options { standbys: setup.standbys, ..Options::default() };
        options.extra_conf = vec![("max_connections".into(), "100".into())];
        let cluster = Cluster::start(options).unwrap();
        for database in [DIRECT, PROXIED] {
            cluster.primary().query(&format!("create database {database}")).unwrap();
            cluster.primary().connect("postgres", database).unwrap().query(HABIT).unwrap();
        }
        let port = ReservedPort::any().unwrap();
        let folder = std::env::temp_dir().join(format!("weir-differential-{}", port.number()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("pgpool.conf");
        std::fs::write(&file, configuration(&setup, &cluster, port.number(), &folder.to_string_lossy())).unwrap();
        let log = File::create(folder.join("log")).unwrap();
        // `setpriv` ends the proxy with this program, should a run be killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_weir"), "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let proxy = command.spawn().unwrap();
        let mut stage = Stage { setup, cluster, proxy, port, folder, is_dirty: true, patience: PATIENCE };
        stage.reset();
        stage.make_wide();
        stage.cluster.wait_caught_up().unwrap();
        stage.wait_for_proxy();
        stage
    }

    pub fn proxy_port(&self) -> u16 {
        self.port.number()
    }

    /// The proxy's log.
    pub fn log(&self) -> String {
        std::fs::read(self.folder.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// A table whose rows' description does not fit into one read, in a schema that stays.
    fn make_wide(&self) {
        let columns: Vec<String> = (0..300).map(|at| format!("column_number_{at} int")).collect();
        for database in [DIRECT, PROXIED] {
            let text = format!("create schema wide; create table wide.wide ({})", columns.join(", "));
            self.sql(database).query(&text).unwrap();
        }
    }

    fn sql(&self, database: &str) -> Sql {
        self.cluster.primary().connect("postgres", database).unwrap()
    }

    fn wait_for_proxy(&self) {
        let start = Instant::now();
        while Connection::open(self.proxy_port(), PROXIED, &[], PATIENCE).is_err() {
            assert!(start.elapsed() < START_LIMIT, "the proxy did not start:\n{}", self.log());
        }
        let found = weir_demo::wait_until("the proxy to find all servers", START_LIMIT, || {
            // The primary may have been accepted before its role was asked for.
            let log = self.log();
            Ok(log.contains(" primary node is ") && log.matches(" is up: standby").count() >= self.setup.standbys)
        });
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    fn reset(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            for database in [DIRECT, PROXIED] {
                if let Err(error) = self.sql(database).query(RESET) {
                    panic!("{database} cannot be reset, something may still hold a lock: {error:#}\n{}", self.log());
                }
            }
            // Reads may be answered by a standby.
            self.cluster.wait_caught_up().unwrap();
        }
    }

    /// Plays a script on both sides. `None`: it ends a direct connection, or differs in nothing.
    pub fn difference(&mut self, units: &[Unit], cuts: u64) -> Option<String> {
        self.reset();
        self.is_dirty = !only_reads(units);
        let direct = self.play(self.cluster.primary().port(), DIRECT, units, cuts).unwrap();
        if direct.stopped.is_some() {
            self.is_dirty = true;
            return None;
        }
        let proxied = match self.play(self.proxy_port(), PROXIED, units, cuts) {
            Ok(proxied) => proxied,
            Err(stop) => return Some(format!("cannot log in: {stop:?}")),
        };
        compare(&direct, &proxied)
    }

    fn play(&self, port: u16, database: &str, units: &[Unit], cuts: u64) -> Result<Played, Stop> {
        let mut connection = Connection::open(port, database, STARTUP, self.patience)?;
        Ok(play(&mut connection, units, cuts))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
        if std::thread::panicking() {
            eprintln!("--- the proxy's log:\n{}", self.log());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn configuration(setup: &Setup, cluster: &Cluster, port: u16, folder: &str) -> String {
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n\
         pid_file_name = '{folder}/weir.pid'\nwork_dir = '{folder}'\nsr_check_user = 'postgres'\nstatement_level_load_balance = on\n\
         worker_threads = {}\npool_size = {}\nprepared_statements_max = {}\nmemory_buffer_size = {}kB\npool_wait_timeout = 60\n{}",
        setup.worker_threads,
        setup.pool_size,
        setup.prepared_statements_max,
        setup.memory_buffer_kb,
        std::env::var("WEIR_TEST_IO").map_or_else(|_| String::new(), |method| format!("io_method = {method}\n"))
    );
    for (at, server) in cluster.servers().iter().enumerate() {
        let weight = u8::from(at > 0 || setup.standbys == 0);
        let _ = write!(
            text,
            "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\nbackend_weight{at} = {weight}\n",
            server.port()
        );
    }
    text
}

/// True if a script leaves the databases as they are.
fn only_reads(units: &[Unit]) -> bool {
    let texts = format!("{units:?}");
    let writes = [texts::WRITES, texts::DEFINITIONS].concat();
    !texts.contains("copy w from") && !writes.iter().any(|text| texts.contains(text.sql))
}

/// Two errors that PostgreSQL itself gives for one fault, depending on its order of checks.
///
/// In a failed transaction it looks at the number of a Bind's parameters before it looks at the transaction, unless the proxy must
/// prepare the statement first; of a portal that a failed simple query left it reads the statements from memory it has freed; and a
/// standby refuses a write for its own reason.
fn is_same_refusal(direct: Option<&Reply>, proxied: Option<&Reply>) -> bool {
    const SAME: [(&str, &str); 4] =
        [("C08P01|Mbind", "C25P02|"), ("C25P02|", "C55000|Mportal"), ("C55000|Mportal", "C25P02|"), ("C25006|", "C25006|")];
    let holds = |reply: Option<&Reply>, what: &str| reply.is_some_and(|reply| reply.tag == b'E' && reply.text.contains(what));
    SAME.iter().any(|(of_direct, of_proxied)| holds(direct, of_direct) && holds(proxied, of_proxied))
}

/// In a failed transaction a server describes a statement without columns that it has. If it does not have it, the proxy cannot
/// prepare it then, and all messages up to the next Sync are skipped.
fn is_incomparable(direct: Option<&Reply>, proxied: Option<&Reply>) -> bool {
    direct.is_some_and(|reply| reply.tag == b't')
        && proxied.is_some_and(|reply| reply.tag == b'E' && reply.text.contains("C25P02|"))
}

/// The first difference, with the replies before it.
fn compare(direct: &Played, proxied: &Played) -> Option<String> {
    let pairs = direct.replies.iter().map(Some).chain(std::iter::repeat(None));
    let mut proxied_replies = proxied.replies.iter();
    for (at, expected) in pairs.enumerate() {
        let got = proxied_replies.next();
        if expected.is_none() && got.is_none() {
            break;
        }
        if is_incomparable(expected, got) {
            return None;
        }
        if expected != got && !is_same_refusal(expected, got) {
            let before: Vec<&Reply> = direct.replies[at.saturating_sub(6)..at.min(direct.replies.len())].iter().collect();
            let stopped = proxied.stopped.map(|(stop, unit)| format!("; the proxy's connection: {stop:?} in unit {unit}"));
            return Some(format!(
                "reply {at}: direct {expected:?}, proxied {got:?}{}\n  before it: {before:?}",
                stopped.unwrap_or_default()
            ));
        }
    }
    proxied.stopped.map(|(stop, unit)| format!("all replies came, then {stop:?} in unit {unit}"))
}
