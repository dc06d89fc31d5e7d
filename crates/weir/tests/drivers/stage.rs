//! One program against a server itself and through Weir: it must see the same.

use crate::support::{Ground, Proxy, Raw, wait_until};
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest run of one program.
const LIMIT: Duration = Duration::from_secs(120);

/// The last line of every program's output.
const END: &str = "done";

/// Two server connections on each node for all clients of a program and the neighbours.
pub const SMALL_POOL: &str = "pool_size = 2\n";

/// A program's way through Weir, to look at when it has ended.
pub struct Through {
    pub proxy: Proxy,
    pub ground: Ground,
}

/// Runs the program of `make` on the primary and then through Weir, reads on standbys, where neighbours take server connections
/// all the time. Its output must be the same.
pub fn check(make: impl Fn() -> Result<Command, String>, more: &str) -> Result<Through, String> {
    let ground = Ground::new();
    wait_for_standbys_at_commit(&ground);
    // Held until another database is there: the servers end with their last user.
    let _cluster = ground.cluster.clone();
    let direct = run(make()?, &ground.database, ground.cluster.primary().port());
    drop(ground);
    check_ended(&direct);
    let ground = Ground::new();
    let proxy = ground.proxy(more);
    let neighbours = Neighbours::move_in(&ground, &proxy);
    let through = run(make()?, &ground.database, proxy.port());
    neighbours.move_out();
    check_same(&direct, &through);
    Ok(Through { proxy, ground })
}

/// A program must have said the same through Weir as on a direct connection.
pub fn check_same(direct: &Said, through: &Said) {
    let (expected, seen) = (direct.lines(), through.lines());
    if let Some(at) = (0..expected.len().max(seen.len())).find(|at| expected.get(*at) != seen.get(*at)) {
        panic!("line {}: {:?} was expected, Weir makes it {:?}; {through}", at + 1, expected.get(at), seen.get(at));
    }
    assert!(through.ended_well(), "through Weir: {through}");
}

/// A program that runs on the server itself must come to its end.
pub fn check_ended(direct: &Said) {
    assert!(direct.ended_well(), "against the server itself: {direct}");
    assert_eq!(direct.lines().last().map(String::as_str), Some(END), "against the server itself: {direct}");
}

/// Standbys show a commit before its client hears of it. Else a read after a write might, as on any such cluster, come too
/// early for its standby.
fn wait_for_standbys_at_commit(ground: &Ground) {
    let (primary, count) = (ground.cluster.primary(), ground.cluster.standbys().len());
    primary.query(&format!("alter system set synchronous_standby_names = '{count} (*)'")).unwrap();
    primary.query("alter system set synchronous_commit = remote_apply").unwrap();
    primary.query("select pg_reload_conf()").unwrap();
    wait_until("standbys to be waited for", || {
        let rows = primary.query("select from pg_stat_replication where sync_state = 'sync'").unwrap();
        rows.len() == count && primary.query("show synchronous_commit").unwrap()[0][0].as_deref() == Some("remote_apply")
    });
}

/// Output of a program.
pub struct Said {
    status: String,
    output: String,
    errors: String,
}

impl Said {
    pub fn ended_well(&self) -> bool {
        self.status == "exit status: 0"
    }

    pub fn lines(&self) -> Vec<String> {
        self.output.lines().map(str::to_owned).collect()
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}\n--- it printed:\n{}--- and on stderr:\n{}---", self.status, self.output, self.errors)
    }
}

/// Runs a program in a database behind this port.
pub fn run(command: Command, database: &str, port: u16) -> Said {
    let folder = crate::support::proxy::Folder::new();
    let (output, errors) = (folder.0.join("output"), folder.0.join("errors"));
    // The program ends with this one, should a test be killed.
    let mut ended_with_us = Command::new("setpriv");
    ended_with_us.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => ended_with_us.env(name, value),
            None => ended_with_us.env_remove(name),
        };
    }
    ended_with_us.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string()).env("PGUSER", "postgres");
    ended_with_us.env("PGDATABASE", database).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env_remove("PGOPTIONS");
    // A place for files of its own.
    ended_with_us.current_dir(&folder.0);
    ended_with_us.stdin(Stdio::null()).stdout(File::create(&output).unwrap()).stderr(File::create(&errors).unwrap());
    let mut child = ended_with_us.spawn().unwrap();
    let mut status = None;
    let ended = weir_demo::wait_until("a program to end", LIMIT, || {
        status = child.try_wait()?;
        Ok(status.is_some())
    });
    if ended.is_err() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    let status = status.map_or_else(|| format!("not ended after {LIMIT:?}"), |status| status.to_string());
    Said { status, output: read(output), errors: read(errors) }
}

/// A neighbour's look at its session, which must show the same all the time.
const LOOK: &str = "select current_setting('work_mem'), current_setting('search_path'), current_setting('timezone'), \
    current_setting('datestyle'), current_setting('statement_timeout'), current_setting('application_name'), \
    current_setting('client_encoding'), current_setting('extra_float_digits'), current_setting('jit'), \
    current_setting('transaction_isolation'), current_user, session_user, \
    (select count(*) from pg_prepared_statements where from_sql), (select count(*) from pg_listening_channels()), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_cursors where is_holdable), \
    (select count(*) from pg_class where relnamespace = pg_my_temp_schema())";

/// Clients of the same pool: one is in a transaction on the primary, one on a standby, nearly all the time.
struct Neighbours {
    leave: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Arc<AtomicU64>)>,
}

impl Neighbours {
    fn move_in(ground: &Ground, proxy: &Proxy) -> Neighbours {
        let leave = Arc::new(AtomicBool::new(false));
        let threads = ["begin", "begin read only"].map(|begin| {
            let parameters = [("application_name", begin), ("options", "-c work_mem=7MB -c jit=on")];
            let client = ground.client_with(proxy, &parameters);
            let (leave, rounds) = (leave.clone(), Arc::new(AtomicU64::new(0)));
            let counted = rounds.clone();
            (std::thread::spawn(move || live(client, begin, &leave, &counted)), rounds)
        });
        Neighbours { leave, threads: threads.into() }
    }

    fn move_out(self) {
        self.leave.store(true, Ordering::Relaxed);
        for (thread, rounds) in self.threads {
            thread.join().unwrap_or_else(|_| panic!("a neighbour complains, see above"));
            assert!(rounds.load(Ordering::Relaxed) > 20, "a neighbour got no turns");
        }
    }
}

fn live(mut client: Raw, begin: &str, leave: &AtomicBool, rounds: &AtomicU64) {
    let mut clean = None;
    while !leave.load(Ordering::Relaxed) {
        client.run(begin);
        let seen = client.rows(LOOK);
        let clean = clean.get_or_insert_with(|| seen.clone());
        assert_eq!(&seen, clean, "a neighbour sees what somebody else left");
        // Holds the connection for a moment in which others must use another one.
        client.run("select pg_sleep(0.002)");
        client.run("commit");
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}
