//! Starts the proxy, and obeys signals until its end.

use crate::admin::{http, pcp, views};
use crate::auth::trust;
use crate::counted;
use crate::log::{Level, ProxyLog, last_words};
use crate::process::acceptor::{self, SmartStopAdmission};
use crate::process::notify::SystemdNotifier;
use crate::process::pid_file::{PidFile, PidFileClaim};
use crate::process::renewal::SuccessorStarter;
use crate::process::takeover::{self, OldProxy, UnitSide};
use crate::process::{file_check, tasks, thread};
use crate::runtime::group_seat::HandedMember;
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::listeners::{CreatedUnixSockets, ListeningSocket};
use crate::runtime::mail::ControlOrder;
use crate::runtime::operator_files::OperatorFiles;
use crate::runtime::places;
use crate::runtime::shared::{FileReaders, ProxyShutdown, SharedState, WorkerMailbox, WorkerMessage};
use crate::runtime::tls_files::TlsFiles;
use crate::runtime::worker::Worker;
use crate::server::min_pool;
use crate::traffic::timeouts;
use crate::watchdog::group_thread::{self, GroupHost, GroupThread};
use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use weir_config::{self as config, Config, ConfigProblem, IoMethod, ProblemSeverity, SigintStop};
use weir_failover::{FailoverMode, FailoverRules};
use weir_group::MemberDuty;
use weir_io::buffers::BufferPool;
use weir_io::reactor::Reactor;

/// The C parser recurses as deep as a statement nests, up to its own limit. Virtual memory only.
const WORKER_STACK_BYTES: usize = 16 << 20;

/// The signals of Pgpool-II and of PgBouncer.
const SIGNALS: [i32; 6] = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2];

/// Time of an immediate stop, after which the process exits whatever blocks.
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(5);

/// Time to hand the lead of the group over at the end.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

struct ClientSockets {
    listeners: Vec<ListeningSocket>,
    control: thread::ControlSockets,
    /// Copies of all sockets, for a takeover.
    copies: Vec<OwnedFd>,
    drain: SmartStopAdmission,
}

impl ClientSockets {
    /// Opens the configured sockets, or inherits them from systemd or the proxy to relieve.
    fn open(
        files: &OperatorFiles,
        config: &Config,
        made: &mut CreatedUnixSockets,
        warnings: &mut Vec<String>,
    ) -> anyhow::Result<(ClientSockets, Option<OldProxy>)> {
        let way = &config.admin.takeover_socket;
        if files.takes_over && way.as_os_str().is_empty() {
            bail!("--takeover needs the parameter takeover_socket, in the running proxy's configuration too");
        }
        let (mut inherited, old) =
            match files.takes_over.then(|| takeover::ask(way, config)).transpose().context("cannot take over")? {
                Some(Some((inherited, old))) => (inherited, Some(old)),
                Some(None) | None => (InheritedSockets::from_systemd()?, None),
            };
        let drain = if old.is_none() && inherited.left() > 0 { SmartStopAdmission::Nobody } else { SmartStopAdmission::Console };
        let doors = acceptor::open(config, &mut inherited, made)?;
        let readers = http::open(config, &mut inherited)?;
        let pcp = pcp::open(files, config, &mut inherited, made, warnings)?;
        if inherited.left() > 0 {
            warnings
                .push(format!("{} listening sockets were open already that the configuration does not name", inherited.left()));
        }
        let clients = doors.iter().chain(&pcp.doors).map(AsFd::as_fd);
        let all = clients.chain(readers.iter().map(AsFd::as_fd));
        let copy = |socket: BorrowedFd<'_>| socket.try_clone_to_owned().context("cannot copy a listening socket");
        let copies = if way.as_os_str().is_empty() { Vec::new() } else { all.map(copy).collect::<Result<_, _>>()? };
        let control = thread::ControlSockets { readers, pcp };
        Ok((ClientSockets { listeners: doors, control, copies, drain }, old))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedBy {
    Foreground,
    /// Only the PID file names the process.
    Daemon,
    /// Ends with its terminal, since it could not be found again.
    Demo,
}

/// Runs the proxy until it is told to stop. `ready` is called once clients can connect.
pub fn run(files: &OperatorFiles, config: Config, start: StartedBy, ready: impl FnOnce(&Arc<SharedState>)) -> anyhow::Result<()> {
    tell_of_panics();
    let files_max = raise_file_limit();
    let notify = SystemdNotifier::from_env();
    let (access, problems) = files.read_access(&config, None);
    let Some(access) = access else { bail!("not started: {}", list(&problems)) };
    let tls = files.read_tls(&config).map_err(|cause| anyhow::anyhow!("not started: {}", cause.problem(&config)))?;
    let mut warnings = warnings_of(files, (&config, &tls), &problems, start, files_max);
    // Removed if the start fails.
    let mut made = CreatedUnixSockets::default();
    let (sockets, mut old) = ClientSockets::open(files, &config, &mut made, &mut warnings)?;
    let mut paths: Vec<PathBuf> =
        sockets.listeners.iter().chain(&sockets.control.pcp.doors).filter_map(ListeningSocket::path).collect();
    let way = config.admin.takeover_socket.clone();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut polls, mut mailboxes) = (Vec::new(), Vec::new());
    for _ in 0..config.workers(cores).clamp(1, 127) {
        let (poll, waker) = Reactor::parts().context("cannot create an event loop")?;
        mailboxes.push(WorkerMailbox::new(waker));
        polls.push(poll);
    }
    let log = ProxyLog::new(&config.log)
        .with_context(|| format!("logging_collector: cannot write a log in {}", config.log.file.directory.display()))?;
    let shared = Arc::new(SharedState::new(config, files.config.clone(), access, tls, mailboxes, crate::random(), log));
    let _last = LastLines(shared.clone());
    shared.listeners.open.store(sockets.listeners.len() as u32, Ordering::Release);
    allow_reloads(&shared, files);
    let mut signals = Signals::new(SIGNALS).context("cannot watch signals")?;
    let wished = first_way(&shared)?;
    // The old proxy has its place again if anything fails until it is relieved.
    let taken = old.as_mut().map(|old| take_place(old, &shared)).transpose()?;
    let claim = if old.is_some() { PidFileClaim::Relief } else { PidFileClaim::Alone };
    let pid_file = take_pid_file(&shared.config.load(), claim, start, &mut warnings)?;
    announce(&shared, &warnings);
    // From here on no error may leave the clients without a proxy.
    let is_relief = old.is_some();
    if let Some(old) = old {
        relieve(old, &shared);
    }
    if !way.as_os_str().is_empty() {
        let unit = UnitSide { starter: SuccessorStarter::new(files), notify: notify.clone() };
        match takeover::offer(&way, sockets.copies, &shared, unit) {
            Ok(()) => paths.push(way),
            // The old proxy has gone: go on.
            Err(cause) if is_relief => {
                shared.log.say(Level::Error, format_args!("nobody can take over from this process: {cause:#}"))
            }
            Err(cause) => return Err(cause),
        }
    }
    let group = match taken {
        Some(group) => group,
        None => start_group(&shared, None)?,
    };
    let control = thread::start(&shared, sockets.control)?;
    let workers = start_workers(&shared, polls, (sockets.listeners, sockets.drain), wished)?;
    made.keep();
    let joiner = start_joiner(&shared, workers, (control, group), signals.handle())?;
    warn_of_trust(&shared);
    notify.ready();
    notify.feed_watchdog(&shared);
    ready(&shared);
    obey_all(&mut signals, &shared, &notify, start);
    notify.stopping();
    let outcome = joiner.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker thread panicked")));
    if !shared.is_handed_over() {
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
    drop(pid_file);
    shared.log.say(Level::Log, format_args!("stopped"));
    outcome
}

/// Writes the last log lines before the error of a failed start is shown.
struct LastLines(Arc<SharedState>);

impl Drop for LastLines {
    fn drop(&mut self) {
        self.0.log.close();
    }
}

fn end_in_any_case() {
    let end = || {
        std::thread::sleep(IMMEDIATE_LIMIT);
        last_words(&format!("weir: ended after {} s of an immediate stop\n", IMMEDIATE_LIMIT.as_secs()));
        std::process::exit(1);
    };
    drop(std::thread::Builder::new().name("end".into()).spawn(end));
}

/// Makes panics print to stderr without blocking on it.
fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("a value that is no text");
        last_words(&format!("thread '{name}' panicked at {place}:\n{text}\n{}\n", std::backtrace::Backtrace::capture()));
    }));
}

fn warnings_of(
    files: &OperatorFiles,
    (config, tls): (&Config, &TlsFiles),
    problems: &[ConfigProblem],
    start: StartedBy,
    files_max: u64,
) -> Vec<String> {
    let mut warnings: Vec<String> = problems.iter().map(ConfigProblem::place_and_message).collect();
    warnings.extend(tls.warnings(config, SystemTime::now()).iter().map(ConfigProblem::place_and_message));
    warnings.extend(warnings_of_system(config, start, files_max));
    // Errors appear later in the start, unless systemd has opened the socket.
    let places = places::findings(files, config).into_iter().filter(|found| found.severity == ProblemSeverity::Warning);
    warnings.extend(places.map(|found| found.problem(config).place_and_message()));
    warnings
}

fn obey_all(signals: &mut Signals, shared: &Arc<SharedState>, notify: &SystemdNotifier, start: StartedBy) {
    let mut asked = ProxyShutdown::No;
    for signal in signals.forever() {
        let signal = if signal == SIGHUP && start == StartedBy::Demo { SIGINT } else { signal };
        asked = stop_of(signal, asked, shared.config.load().sigint_stop);
        obey(signal, asked, shared, notify);
        if signal == SIGQUIT && start != StartedBy::Demo {
            // The demo must stop its servers.
            end_in_any_case();
        }
    }
}

fn warnings_of_system(config: &Config, start: StartedBy, files_max: u64) -> impl Iterator<Item = String> {
    let nowhere = "nothing keeps the log: a daemon has no terminal; set logging_collector = on, or log_destination = 'syslog'";
    let is_nowhere = start == StartedBy::Daemon && !config.log.is_kept();
    let root = "the process runs as root, which it needs for nothing: whoever finds a way into it has the whole machine; start it as a user of its own";
    let is_root = start != StartedBy::Demo && rustix::process::geteuid().is_root();
    let words = [(is_nowhere, nowhere), (is_root, root)];
    let said = words.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned());
    config.descriptors_notice(files_max).into_iter().chain(said)
}

/// Checks on another thread: a silent server must not delay the start.
fn warn_of_trust(shared: &Arc<SharedState>) {
    let shared = shared.clone();
    let look = move || {
        if let Some(warning) = trust::warning(&shared.config.load(), &shared.access.files()) {
            shared.log.say(Level::Warning, format_args!("{warning}"));
        }
    };
    drop(std::thread::Builder::new().name("trust".into()).spawn(look));
}

/// Takes the PID file. A default one that nothing needs may be missing.
fn take_pid_file(
    config: &Config,
    claim: PidFileClaim,
    start: StartedBy,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Option<PidFile>> {
    if config.pid_file.as_os_str().is_empty() {
        return Ok(None);
    }
    match PidFile::take(&config.pid_file, claim) {
        Ok(file) => Ok(Some(file)),
        Err(cause) if start != StartedBy::Daemon && config.is_default("pid_file_name") => {
            warnings.push(format!("{cause:#}; there is no pid file then, and pid_file_name was not set"));
            Ok(None)
        }
        Err(cause) => Err(cause),
    }
}

/// Joins the group of `use_watchdog` as the member that the old proxy was.
fn take_place(old: &mut OldProxy, shared: &Arc<SharedState>) -> anyhow::Result<Option<GroupThread>> {
    if shared.config.load().watchdog.is_none() {
        return Ok(None);
    }
    let handed = old.take_member().context("cannot take over")?;
    start_group(shared, Some(handed))
}

/// Joins the group of `use_watchdog`.
fn start_group(shared: &Arc<SharedState>, handed: Option<HandedMember>) -> anyhow::Result<Option<GroupThread>> {
    let config = shared.config.load_full();
    let Some(watchdog) = &config.watchdog else { return Ok(None) };
    // Where others promote, the group has no epoch of writes.
    if matches!(FailoverRules::of(&config).mode, FailoverMode::Builtin | FailoverMode::Command) {
        shared.lease.need();
    }
    let (lease, parameters, mail) = (shared.clone(), shared.clone(), shared.clone());
    let host = GroupHost {
        duty: MemberDuty::Serves,
        log: shared.log.clone(),
        grant: Box::new(move |until_ms, writes| lease.lease.grant(until_ms.saturating_mul(1000), writes)),
        parameters: Box::new(move || Some(parameters.config.load_full())),
        news: Box::new(move || mail.control.send(ControlOrder::Group)),
    };
    let group = group_thread::start(watchdog, host, handed)?;
    let _ = shared.group.set(group.seat.clone());
    Ok(Some(group))
}

/// Has the old proxy stop accepting. Without its answer it may still accept and serve some clients.
fn relieve(old: OldProxy, shared: &SharedState) {
    match old.relieve() {
        Ok(()) => shared.log.say(Level::Log, format_args!("taken over from the running proxy")),
        Err(cause) => shared.log.say(Level::Warning, format_args!("taken over, but: {cause:#}")),
    }
}

fn allow_reloads(shared: &SharedState, files: &OperatorFiles) {
    let (all, own, rules, now, checked) = (files.clone(), files.clone(), files.clone(), files.clone(), files.clone());
    let readers = FileReaders {
        all: Box::new(move |shared| reload(&all, shared)),
        tls: Box::new(move |config| own.read_tls(config).map_err(|cause| cause.to_string())),
        access: Box::new(move |config, before| {
            let (access, problems) = rules.read_access(config, Some(before));
            access.ok_or_else(|| first_error("a file of access cannot be used", &problems))
        }),
        now: Box::new(move || now.read()),
        check: Box::new(move || file_check::check(&checked, raise_file_limit()).0),
    };
    let _ = shared.files.readers.set(readers);
}

type Worker0 = JoinHandle<std::io::Result<()>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventLoopKind {
    Ring,
    Epoll,
}

/// Chooses by the first refused ring. Fails if the configuration requires io_uring.
fn way(method: IoMethod, refused: Option<std::io::Error>, shared: &SharedState) -> anyhow::Result<EventLoopKind> {
    match (method, refused) {
        (IoMethod::Epoll, _) => Ok(EventLoopKind::Epoll),
        (IoMethod::Auto | IoMethod::IoUring, None) => Ok(EventLoopKind::Ring),
        (IoMethod::IoUring, Some(cause)) => Err(anyhow::Error::new(cause).context(
            "io_method = io_uring: the system does not allow it (Linux 6.1 or later is needed, and locked memory, see ulimit -l)",
        )),
        (IoMethod::Auto, Some(cause)) => {
            let text = format_args!("io_method = auto: epoll is used, since io_uring cannot be had: {cause}");
            shared.log.say(Level::Log, text);
            Ok(EventLoopKind::Epoll)
        }
    }
}

/// Tries one ring before anything is started.
fn first_way(shared: &SharedState) -> anyhow::Result<EventLoopKind> {
    let method = shared.config.load().io_method;
    let refused = if method == IoMethod::Epoll { None } else { weir_ring::available().err() };
    way(method, refused, shared)
}

/// Starts the workers. Each takes its ring first: locked memory may suffice for one ring but not for all, and that of an ended
/// process is freed late. All use one kind, since sockets move between them.
fn start_workers(
    shared: &Arc<SharedState>,
    polls: Vec<mio::Poll>,
    (doors, drain): (Vec<ListeningSocket>, SmartStopAdmission),
    wished: EventLoopKind,
) -> anyhow::Result<Vec<Worker0>> {
    let mut doors = Some(doors);
    let (mut threads, mut verdicts) = (Vec::new(), Vec::new());
    let (tell, told) = std::sync::mpsc::channel();
    for (id, poll) in polls.into_iter().enumerate() {
        let (shared, doors) = (shared.clone(), doors.take().unwrap_or_default());
        let tell = tell.clone();
        let (verdict, decided) = std::sync::mpsc::channel();
        verdicts.push(verdict);
        let thread = std::thread::Builder::new().name(format!("worker {id}")).stack_size(WORKER_STACK_BYTES);
        threads.push(thread.spawn(move || {
            let buffers = BufferPool::new(shared.config.load().memory_buffer_bytes);
            let mut reactor = Reactor::new(poll, buffers, false, shared.begun)?;
            let _ = tell.send(if wished == EventLoopKind::Ring { reactor.begin_ring() } else { Ok(()) });
            drop(tell);
            match decided.recv() {
                Ok(EventLoopKind::Ring) => {}
                Ok(EventLoopKind::Epoll) => reactor.end_ring(),
                Err(_) => return Ok(()),
            }
            let worker = Worker::new(id as u8, shared, reactor, views::view_of);
            for door in doors {
                worker.reactor.spawn(acceptor::accept(worker.clone(), door, drain));
            }
            worker.reactor.spawn(timeouts::watch(worker.clone()));
            if id == 0 {
                worker.reactor.spawn(min_pool::keep(worker.clone()));
            }
            tasks::run(&worker)
        })?);
    }
    drop(tell);
    // Ends when each worker has reported, or ended.
    let refused = told.iter().filter_map(Result::err).last();
    let way = if wished == EventLoopKind::Ring { way(shared.config.load().io_method, refused, shared)? } else { wished };
    for verdict in verdicts {
        let _ = verdict.send(way);
    }
    Ok(threads)
}

fn start_joiner(
    shared: &Arc<SharedState>,
    workers: Vec<Worker0>,
    (control, group): (JoinHandle<()>, Option<GroupThread>),
    signals: Handle,
) -> std::io::Result<JoinHandle<anyhow::Result<()>>> {
    let shared = shared.clone();
    std::thread::Builder::new().name("joiner".into()).spawn(move || {
        let outcome = join(workers);
        if let Some(group) = group {
            group.leave(LEAVE_LIMIT);
        }
        shared.control.send(ControlOrder::End);
        let ended = control.join();
        signals.close();
        if ended.is_err() { Err(anyhow::anyhow!("the control thread panicked")) } else { outcome }
    })
}

fn join(workers: Vec<Worker0>) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    for worker in workers {
        match worker.join() {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => outcome = Err(anyhow::Error::new(cause).context("a worker's event loop failed")),
            Err(_) => outcome = Err(anyhow::anyhow!("a worker thread panicked")),
        }
    }
    outcome
}

fn list(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn announce(shared: &SharedState, warnings: &[String]) {
    let config = shared.config.load();
    for warning in warnings {
        shared.log.say(Level::Warning, format_args!("{warning}"));
    }
    for notice in config.notices() {
        shared.log.say(Level::Warning, format_args!("{notice}"));
    }
    shared.log.say(
        Level::Log,
        format_args!(
            "weir {} starts: port {}, {}, {}",
            crate::VERSION,
            config.port,
            counted(config.nodes.len(), "node"),
            counted(shared.mailboxes.len(), "worker"),
        ),
    );
}

fn obey(signal: i32, stop: ProxyShutdown, shared: &Arc<SharedState>, notify: &SystemdNotifier) {
    match signal {
        SIGHUP => {
            notify.reloading();
            let _ = shared.reload();
            return notify.ready();
        }
        // PgBouncer's PAUSE and RESUME.
        SIGUSR1 => return shared.tell_first(WorkerMessage::Pause(None)),
        SIGUSR2 => return shared.tell_first(WorkerMessage::Resume(None)),
        // With all databases paused, a smart stop waits for servers only.
        SIGINT if stop == ProxyShutdown::Smart => shared.tell_first(WorkerMessage::Pause(None)),
        _ => {}
    }
    notify.stopping();
    shared.begin_stop(stop);
}

/// Returns the stop that all signals so far ask for: a second signal stops faster.
fn stop_of(signal: i32, asked: ProxyShutdown, sigint: SigintStop) -> ProxyShutdown {
    match signal {
        SIGTERM if asked == ProxyShutdown::No => ProxyShutdown::Smart,
        SIGINT if asked == ProxyShutdown::No && sigint == SigintStop::WaitForServers => ProxyShutdown::Smart,
        SIGTERM | SIGINT => asked.max(ProxyShutdown::Fast),
        SIGQUIT => ProxyShutdown::Immediate,
        _ => asked,
    }
}

/// Reads the configuration again. An invalid one changes nothing.
fn reload(files: &OperatorFiles, shared: &SharedState) -> Result<Vec<String>, String> {
    let say = |problems: &[ConfigProblem]| {
        for problem in problems {
            let level = if problem.severity == ProblemSeverity::Error { Level::Error } else { Level::Warning };
            shared.log.say(level, format_args!("{}", problem.place_and_message()));
        }
    };
    let outcome = files.read();
    say(&outcome.problems);
    let Some(new) = outcome.config else {
        let text = "configuration not reloaded: it has errors";
        shared.log.say(Level::Error, format_args!("{text}"));
        return Err(first_error(text, &outcome.problems));
    };
    let old = shared.config.load_full();
    let (merged, unchanged) = config::reload(&old, new);
    let (access, problems) = files.read_access(&merged, Some(&shared.access.files()));
    say(&problems);
    let Some(access) = access else {
        let text = "configuration not reloaded: a file of access cannot be used";
        shared.log.say(Level::Error, format_args!("{text}"));
        return Err(first_error(text, &problems));
    };
    let tls = match files.read_tls(&merged) {
        Ok(tls) => tls,
        Err(cause) => {
            let text = format!("configuration not reloaded: {}", cause.problem(&merged).place_and_message());
            shared.log.say(Level::Error, format_args!("{text}"));
            return Err(text);
        }
    };
    for name in &unchanged {
        shared.log.say(Level::Warning, format_args!("parameter \"{name}\" cannot be changed without a restart"));
    }
    let known = old.notices();
    for notice in merged.notices().iter().filter(|notice| !known.contains(notice)) {
        shared.log.say(Level::Warning, format_args!("{notice}"));
    }
    for warning in tls.warnings(&merged, SystemTime::now()) {
        shared.log.say(Level::Warning, format_args!("{}", warning.place_and_message()));
    }
    shared.files.tls.store(Arc::new(tls));
    shared.access.replace(access);
    shared.adopt(Arc::new(merged));
    shared.log.say(Level::Log, format_args!("configuration reloaded"));
    Ok(unchanged)
}

fn first_error(text: &str, problems: &[ConfigProblem]) -> String {
    let first = problems.iter().find(|problem| problem.severity == ProblemSeverity::Error);
    first.map_or_else(|| text.to_string(), |problem| format!("{text}: {}", problem.place_and_message()))
}

/// Raises the limit of file descriptors to its maximum, and returns it: each client takes one.
pub fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok();
    let allowed = if is_raised { limit.maximum } else { limit.current };
    allowed.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_is_a_fast_stop_and_nothing_weakens_a_stop() {
        for (signals, stop) in [
            (&[SIGHUP, SIGUSR1][..], ProxyShutdown::No),
            (&[SIGTERM, SIGHUP], ProxyShutdown::Smart),
            (&[SIGUSR1, SIGTERM, SIGTERM], ProxyShutdown::Fast),
            (&[SIGINT, SIGINT, SIGTERM], ProxyShutdown::Fast),
            (&[SIGQUIT, SIGTERM, SIGINT], ProxyShutdown::Immediate),
        ] {
            assert_eq!(
                signals.iter().fold(ProxyShutdown::No, |asked, signal| stop_of(*signal, asked, SigintStop::Fast)),
                stop,
                "{signals:?}"
            );
        }
        let waiting = SigintStop::WaitForServers;
        for (signals, stop) in [
            (&[SIGINT][..], ProxyShutdown::Smart),
            (&[SIGINT, SIGINT], ProxyShutdown::Fast),
            (&[SIGINT, SIGTERM], ProxyShutdown::Fast),
            (&[SIGTERM, SIGINT], ProxyShutdown::Fast),
            (&[SIGINT, SIGQUIT], ProxyShutdown::Immediate),
        ] {
            assert_eq!(
                signals.iter().fold(ProxyShutdown::No, |asked, signal| stop_of(*signal, asked, waiting)),
                stop,
                "{signals:?}"
            );
        }
    }
}
