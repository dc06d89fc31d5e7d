//! The command line: `weir` with its commands, and Pgpool-II's when called by the name `pgpool`.

use crate::agent::keeper::{self, AgentOptions};
use crate::commands::check_servers;
use crate::commands::config_files::ConfigFileArgs;
use crate::commands::http_probe::{self, ProbeQuestion};
use crate::commands::manual_pages;
use crate::commands::password_tools::{self, PgEnc, PgMd5};
use crate::commands::pcp_client::{self, OfForming, OfHost, PcpArgs, PcpCommand};
use crate::commands::progress_option::ProgressOption;
use crate::commands::shard::{self, ShardCommand};
use crate::counted;
use crate::process::file_check::{self, UsableFiles};
use crate::process::supervisor::{self, StartedBy};
use crate::process::{pid_file, renewal};
use crate::runtime::operator_files::{EnvironmentUse, OperatorFiles, ProgramName};
use anyhow::{Context, bail};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use rustix::process::{Pid, Signal, kill_process, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weir_config::visibility::Viewer;
use weir_config::{self as config, Config, ProblemSeverity, SigintStop};
use weir_progress::ProgressLine;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Message of a daemon to its starter once clients can connect.
const READY: &[u8] = b"ready\n";

const WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Time to stop without waiting for clients.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Time to stop when clients may stay as long as they like.
const SMART_LIMIT: Duration = Duration::from_secs(600);

const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Tells a daemon that its parent waits.
const DAEMON_CHILD: &str = "WEIR_DAEMON_CHILD";

/// A proxy for clusters of PostgreSQL.
#[derive(Parser)]
#[command(name = "weir", version = crate::VERSION, long_version = version_page(), about, args_conflicts_with_subcommands = true)]
struct WeirCli {
    #[command(subcommand)]
    command: Option<WeirCommand>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    place: ConfigFileArgs,
    /// Discard pgpool_status, which keeps nodes out of use.
    #[arg(short = 'D', long = "discard-status")]
    discard_status: bool,
    /// Do not become a daemon: accepted for Pgpool-II's scripts, since weir never does.
    #[arg(short = 'n', long = "dont-detach")]
    foreground: bool,
    /// Take the listening sockets over from the running proxy (takeover_socket), which then ends when its clients have left.
    #[arg(long)]
    takeover: bool,
}

#[derive(Args)]
struct ProbeArgs {
    #[arg(value_enum, default_value = "ready")]
    question: ProbeQuestion,
    #[command(flatten)]
    place: ConfigFileArgs,
}

#[derive(Args)]
struct CheckArgs {
    #[command(flatten)]
    place: ConfigFileArgs,
    /// Ask each server for all that a failover needs, and name what is missing. Nothing is changed.
    #[arg(long)]
    connect: bool,
    #[command(flatten)]
    progress: ProgressOption,
}

#[derive(Subcommand)]
enum WeirCommand {
    /// Run in the foreground (the default).
    Run(RunArgs),
    /// Replace the running proxy by a process of the program that is installed now: no client is lost (takeover_socket).
    Renew(ConfigFileArgs),
    /// Ask the running proxy of this machine if it is ready (the default) or alive; exit code 0 says yes (metrics_port).
    Probe(ProbeArgs),
    /// Read a configuration and say what is wrong with it; with --connect also what is wrong with the servers.
    Check(CheckArgs),
    /// Print every parameter, its value, its source and its unit.
    ShowConfig(ConfigFileArgs),
    /// Print a commented sample configuration.
    SampleConfig,
    /// Print the reference page of all parameters, or write generated documents into a folder.
    Docs {
        /// Folder of the documents; without it the page is printed.
        #[arg(long)]
        write: Option<PathBuf>,
        /// Fail if a document in this folder is not what would be written.
        #[arg(long, conflicts_with = "write")]
        check: Option<PathBuf>,
    },
    /// Write the manual pages, one of each command and pgpool.conf(5), into man1 and man5 of a folder, such as /usr/local/share/man.
    Man {
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Print what a shell needs to complete this command line.
    Completions { shell: Shell },
    /// Write the setup of a pgbouncer.ini as pgpool.conf and pool_hba.conf, and say line by line what has no equal.
    Import(ImportArgs),
    /// Ask a running proxy for something over PCP, as Pgpool-II's clients do.
    #[command(disable_help_subcommand = true)]
    Pcp {
        #[command(subcommand)]
        command: PcpCommand,
    },
    /// Look at the group of a running proxy (use_watchdog), and change it, over PCP.
    Watchdog {
        #[command(subcommand)]
        command: WatchdogCommand,
    },
    #[command(name = "pg_md5", visible_alias = "pg-md5")]
    PgMd5(PgMd5),
    #[command(name = "pg_enc", visible_alias = "pg-enc")]
    PgEnc(PgEnc),
    /// Stop, start, rewind and copy the PostgreSQL server of this machine when a proxy orders it.
    Agent(Box<AgentOptions>),
    /// Ask the agents of all nodes what they see.
    AgentStatus(ConfigFileArgs),
    /// Vote as a host of use_watchdog that keeps the group's state and serves nobody.
    Witness(ConfigFileArgs),
    /// Asks PAM what the standard input says: a running proxy's own use.
    #[command(name = crate::auth::pam::COMMAND, hide = true)]
    JudgeByPam,
    /// Spread tables over several servers (parallel_mode): make the definitions, show and check them.
    Shard {
        #[command(subcommand)]
        command: Box<ShardCommand>,
    },
    /// Make a PostgreSQL primary with standbys, put Weir before them, and stay until Ctrl-C.
    Demo(crate::commands::demo::DemoArgs),
}

#[derive(Subcommand)]
enum WatchdogCommand {
    /// Print the hosts of the group and their states, as the proxy that is asked knows them.
    #[command(disable_help_flag = true)]
    Status(PcpArgs),
    /// Wait until a host is a member. Hosts that run and name each other in their configurations are admitted by themselves.
    #[command(disable_help_flag = true)]
    Add(OfHost),
    /// Remove a host that does not run: the others need no vote of it any more.
    #[command(disable_help_flag = true)]
    Remove(OfHost),
    /// Hand the lead over to a host.
    #[command(disable_help_flag = true)]
    Lead(OfHost),
    /// Form a group where none forms by itself: of most of the hosts, or by force of one host that lost the others for good. Whoever orders it vouches that no other group of these hosts runs.
    #[command(disable_help_flag = true)]
    Form(OfForming),
}

#[derive(Args)]
struct ImportArgs {
    /// PgBouncer's configuration.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder for pgpool.conf, pool_hba.conf, databases and pool_passwd, none of which may be there; without it the first two are printed.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Pgpool-II's clients, each by its own name.
#[derive(Parser)]
#[command(multicall = true, disable_help_flag = true, disable_help_subcommand = true)]
struct ByName {
    #[command(subcommand)]
    command: PcpCommand,
}

/// Its tools for passwords, the same way.
#[derive(Parser)]
#[command(multicall = true, disable_help_subcommand = true)]
enum PasswordTool {
    #[command(name = "pg_md5")]
    Md5(PgMd5),
    #[command(name = "pg_enc")]
    Enc(PgEnc),
}

/// Pgpool-II's command line.
#[derive(Parser)]
#[command(name = "pgpool", display_name = "pgpool-II", disable_version_flag = true)]
#[command(version = concat!("version 4.7 is what this command line is of; the program is weir ", env!("WEIR_VERSION")))]
struct PgpoolCli {
    /// Configuration file.
    #[arg(short = 'f', long = "config-file", value_name = "FILE", default_value = "/etc/pgpool2/pgpool.conf")]
    file: PathBuf,
    /// pcp.conf, if it is not beside the configuration file.
    #[arg(short = 'F', long = "pcp-file", value_name = "FILE")]
    pcp_file: Option<PathBuf>,
    /// pool_hba.conf, if it is not beside the configuration file.
    #[arg(short = 'a', long = "hba-file", value_name = "FILE")]
    hba_file: Option<PathBuf>,
    /// File with the key of pool_passwd; by default $PGPOOLKEYFILE, then ~/.pgpoolkey.
    #[arg(short = 'k', long = "key-file", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Do not become a daemon.
    #[arg(short = 'n', long = "dont-detach")]
    foreground: bool,
    /// Discard pgpool_status, which keeps nodes out of use.
    #[arg(short = 'D', long = "discard-status")]
    discard_status: bool,
    /// Clear the query cache's object ids: accepted, there are none yet.
    #[arg(short = 'C', long = "clear-oidmaps")]
    clear_oidmaps: bool,
    /// Debug messages.
    #[arg(short = 'd', long = "debug")]
    debug: bool,
    /// Assertions: accepted, has no effect.
    #[arg(short = 'x', long = "debug-assertions")]
    assertions: bool,
    /// How to stop.
    #[arg(short = 'm', long = "mode", value_enum, default_value = "smart")]
    mode: PgpoolStopMode,
    /// Print the version.
    #[arg(short = 'v', long = "version", action = clap::ArgAction::Version)]
    version: (),
    /// `stop` or `reload`; without it, start.
    #[arg(value_enum)]
    verb: Option<PgpoolVerb>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PgpoolStopMode {
    #[value(alias = "s")]
    Smart,
    #[value(alias = "f")]
    Fast,
    #[value(alias = "i")]
    Immediate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PgpoolVerb {
    Stop,
    Reload,
}

fn version_page() -> String {
    format!("{}\nfeatures: {}\nparser: {}", crate::VERSION, crate::FEATURES.join(", "), weir_sql::PARSER)
}

/// Runs the command line of the name by which the program is called.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let name = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let outcome = match name.to_str() {
        Some("pgpool") => pgpool(&PgpoolCli::parse_from(&arguments), &arguments),
        Some(name) if name.starts_with("pcp_") => {
            ByName::try_parse_from(&arguments).map_or_else(refuse, |by| pcp_client::run(&by.command))
        }
        Some("pg_md5" | "pg_enc") => PasswordTool::try_parse_from(&arguments).map_or_else(refuse, |tool| match tool {
            PasswordTool::Md5(options) => password_tools::md5(&options),
            PasswordTool::Enc(options) => password_tools::enc(&options),
        }),
        // The package of the agent has it by this name.
        Some("weir-agent") => weir(WeirCli::parse_from(as_agent(arguments))),
        Some(_) | None => weir(WeirCli::parse_from(&arguments)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn as_agent(arguments: Vec<OsString>) -> Vec<OsString> {
    let rest: Vec<OsString> = arguments.into_iter().skip(1).collect();
    // The command itself has no version of its own.
    let is_version = matches!(rest.as_slice(), [one] if one == "--version" || one == "-V");
    let command = (!is_version).then(|| OsString::from("agent"));
    [OsString::from("weir")].into_iter().chain(command).chain(rest).collect()
}

/// Exit code as in Pgpool-II.
fn refuse(error: clap::Error) -> anyhow::Result<ExitCode> {
    let _ = error.print();
    Ok(if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn weir(weir: WeirCli) -> anyhow::Result<ExitCode> {
    match weir.command {
        None => run(&weir.run),
        Some(WeirCommand::Run(options)) => run(&options),
        Some(WeirCommand::Renew(options)) => renew(&options),
        Some(WeirCommand::Probe(options)) => probe(&options),
        Some(WeirCommand::Check(options)) => {
            check(&options.place, options.connect.then(|| ServerChecks::Asked(options.progress.line())))
        }
        Some(WeirCommand::ShowConfig(options)) => show_config(&options),
        Some(WeirCommand::SampleConfig) => say(&config::sample_file()),
        Some(WeirCommand::Docs { write, check }) => match (write, check) {
            (Some(folder), _) => crate::commands::docs::write(WeirCli::command(), &folder),
            (None, Some(folder)) => crate::commands::docs::check(WeirCli::command(), &folder),
            (None, None) => say(&config::reference_page()),
        },
        Some(WeirCommand::Man { folder }) => manual_pages::write(WeirCli::command(), &folder),
        Some(WeirCommand::Completions { shell }) => say(&manual_pages::completions(WeirCli::command(), shell)),
        Some(WeirCommand::Import(options)) => import(&options),
        Some(WeirCommand::Agent(options)) => keeper::run(&options),
        Some(WeirCommand::AgentStatus(options)) => agent_status(&options),
        Some(WeirCommand::Witness(options)) => witness(&options),
        Some(WeirCommand::JudgeByPam) => {
            crate::auth::pam::serve()?;
            Ok(ExitCode::SUCCESS)
        }
        Some(WeirCommand::PgMd5(options)) => password_tools::md5(&options),
        Some(WeirCommand::PgEnc(options)) => password_tools::enc(&options),
        Some(WeirCommand::Pcp { command }) => pcp_client::run(&command),
        Some(WeirCommand::Watchdog { command }) => pcp_client::run(&match command {
            WatchdogCommand::Status(options) => PcpCommand::WatchdogStatus(options),
            WatchdogCommand::Add(options) => PcpCommand::WatchdogAdd(options),
            WatchdogCommand::Remove(options) => PcpCommand::WatchdogRemove(options),
            WatchdogCommand::Lead(options) => PcpCommand::WatchdogLead(options),
            WatchdogCommand::Form(options) => PcpCommand::WatchdogForm(options),
        }),
        Some(WeirCommand::Shard { command }) => shard(&command),
        Some(WeirCommand::Demo(demo)) => crate::commands::demo::run(&demo),
    }
}

/// A reader that went away is no error.
fn say(text: &str) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(cause).context("cannot write to the standard output"),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the number of errors too; problems go to stderr. `None` on errors.
fn read(files: &OperatorFiles) -> (Option<Config>, usize) {
    let outcome = files.read();
    for problem in &outcome.problems {
        let _ = writeln!(std::io::stderr(), "{problem}");
    }
    let errors = outcome.problems.iter().filter(|p| p.severity == ProblemSeverity::Error).count();
    (outcome.config, errors)
}

fn run(options: &RunArgs) -> anyhow::Result<ExitCode> {
    let has_variables = options.place.environment() == EnvironmentUse::Parameters;
    if options.place.file.is_none() && options.place.settings.is_empty() && !has_variables {
        bail!("no configuration: give one with -f FILE, or try `weir demo` (`weir --help` says more)");
    }
    let files = OperatorFiles { takes_over: options.takeover, ..options.place.files() };
    let (Some(config), _) = read(&files) else { bail!("not started: the configuration has errors") };
    let _ = options.foreground;
    if options.discard_status {
        discard_status(&config);
    }
    supervisor::run(&files, config, StartedBy::Foreground, |_| {})?;
    Ok(ExitCode::SUCCESS)
}

/// Says nothing of warnings, which the running proxy has told.
fn renew(options: &ConfigFileArgs) -> anyhow::Result<ExitCode> {
    let Some(config) = options.files().read().config else { bail!("the configuration has errors: weir check names them") };
    let (old, new) = renewal::renew(&config.admin.takeover_socket)?;
    let (old, new) = (old.as_raw_nonzero(), new.as_raw_nonzero());
    say(&format!("process {new} serves new clients; process {old} ends when its last client has left\n"))
}

fn probe(options: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let Some(config) = options.place.files().read().config else { bail!("the configuration has errors: weir check names them") };
    let answer = http_probe::ask(&config, options.question)?;
    say(&format!("{}\n", answer.text))?;
    Ok(if answer.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn discard_status(config: &Config) {
    for path in crate::control::failover::discard_status(config) {
        complain(&format!("{} is discarded (-D): the nodes that it keeps out of use are taken in again", path.display()));
    }
}

fn witness(options: &ConfigFileArgs) -> anyhow::Result<ExitCode> {
    let (Some(config), _) = read(&options.files()) else { bail!("the configuration has errors") };
    crate::commands::witness::run(&config)
}

fn shard(command: &ShardCommand) -> anyhow::Result<ExitCode> {
    let files = command.files();
    let (Some(config), _) = read(&files) else { bail!("the configuration has errors") };
    let (text, code) = shard::run(&files, &config, command, &command.line())?;
    say(&text)?;
    Ok(code)
}

fn agent_status(options: &ConfigFileArgs) -> anyhow::Result<ExitCode> {
    let files = options.files();
    let (Some(config), _) = read(&files) else { bail!("the configuration has errors") };
    crate::commands::agent_status::run(&files, &config)
}

/// Notes go to stderr.
fn import(options: &ImportArgs) -> anyhow::Result<ExitCode> {
    let path = &options.file;
    let beside = |name: &str| path.parent().unwrap_or(Path::new("")).join(name);
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut include = |name: &str| std::fs::read(beside(name)).map_err(|cause| cause.to_string());
    let import = weir_import::import(&bytes, &mut include);
    note(path, &import.notes);
    let mut passwd = None;
    if let Some(file) = &import.auth_file {
        let file = beside(file);
        match std::fs::read(&file) {
            Ok(bytes) => {
                let (text, notes) = weir_import::read_users(&bytes);
                note(&file, &notes);
                passwd = Some(text);
            }
            Err(cause) => complain(&format!("{}: cannot be read: {cause}", file.display())),
        }
    }
    let Some(folder) = &options.into else {
        let rules = import.rules.lines().map(|line| format!("# {line}").trim_end().to_string() + "\n");
        return say(&format!("{}\n# pool_hba.conf, which must be there too:\n{}", import.conf, rules.collect::<String>()));
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    write_new(&folder.join("pgpool.conf"), &import.conf, 0o644)?;
    write_new(&folder.join("pool_hba.conf"), &import.rules, 0o644)?;
    if let Some(text) = &import.databases {
        write_new(&folder.join("databases"), text, 0o600)?;
    }
    if let Some(text) = passwd {
        write_new(&folder.join("pool_passwd"), &text, 0o600)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn note(path: &Path, notes: &[weir_import::ImportNote]) {
    for note in notes {
        let place = if note.line == 0 { path.display().to_string() } else { format!("{}:{}", path.display(), note.line) };
        complain(&format!("{place}: {}", note.text));
    }
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// No configuration may be overwritten.
fn write_new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("{} written\n", path.display())).map(drop)
}

enum ServerChecks {
    Asked(ProgressLine),
}

fn check(options: &ConfigFileArgs, servers: Option<ServerChecks>) -> anyhow::Result<ExitCode> {
    let (found, usable) = file_check::check(&options.files(), supervisor::raise_file_limit());
    found.problems.iter().for_each(|problem| complain(&problem.to_string()));
    found.notes.iter().for_each(|note| complain(note));
    let Some(UsableFiles { config, access, tls }) = usable else {
        say(&format!("configuration has {}\n", counted(found.errors(), "error")))?;
        return Ok(ExitCode::FAILURE);
    };
    say(&format!("configuration is valid: {}, port {}\n", counted(config.nodes.len(), "node"), config.port))?;
    let Some(ServerChecks::Asked(line)) = servers else { return Ok(ExitCode::SUCCESS) };
    let (text, errors) = check_servers::run(&config, access, tls, &line)?;
    say(&text)?;
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_config(options: &ConfigFileArgs) -> anyhow::Result<ExitCode> {
    let outcome = options.files().read();
    // Parameters are shown without a node, too.
    let problems: Vec<_> = outcome.problems.iter().filter(|problem| !problem.is_no_node()).collect();
    problems.iter().for_each(|problem| complain(&problem.to_string()));
    if problems.iter().any(|problem| problem.severity == ProblemSeverity::Error) {
        bail!("the configuration has errors");
    }
    let shown = config::show_all(&outcome.draft, &Viewer::operator());
    let width = |of: fn(&config::ParamRow) -> usize| shown.iter().map(of).max().unwrap_or(0);
    let (names, values) = (width(|s| s.name.len()), width(|s| s.value.len()).min(40));
    let mut text = String::new();
    for s in &shown {
        text += &format!("{:names$}  {:values$}  {:8}  {}\n", s.name, s.value, s.unit, s.source);
    }
    say(&text)
}

fn pgpool(options: &PgpoolCli, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let settings = if options.debug { vec![("log_min_messages".to_string(), "debug1".to_string())] } else { Vec::new() };
    let files = OperatorFiles {
        config: Some(options.file.clone()),
        settings,
        environment: EnvironmentUse::Ignored,
        hba: options.hba_file.clone(),
        pcp: options.pcp_file.clone(),
        key: options.key_file.clone(),
        takes_over: false,
        called: ProgramName::Pgpool,
    };
    let (config, _) = read(&files);
    let config = config.with_context(|| format!("{} has errors", options.file.display()))?;
    match options.verb {
        Some(PgpoolVerb::Stop) => stop(&config, options.mode),
        Some(PgpoolVerb::Reload) => {
            signal(&config, Signal::HUP)?;
            Ok(ExitCode::SUCCESS)
        }
        None if options.foreground => {
            if options.discard_status {
                discard_status(&config);
            }
            if std::env::var_os(DAEMON_CHILD).is_some() {
                // Survives the end of the terminal, whose output stays usable. Fails only for a group leader.
                let _ = setsid();
                supervisor::run(&files, config, StartedBy::Daemon, |shared| {
                    shared.log.flush(WORDS_LIMIT);
                    tell_parent();
                })?;
            } else {
                supervisor::run(&files, config, StartedBy::Foreground, |_| {})?;
            }
            Ok(ExitCode::SUCCESS)
        }
        None => daemonise(&config, arguments),
    }
}

fn signal(config: &Config, signal: Signal) -> anyhow::Result<Pid> {
    let pid = pid_file::running(&config.pid_file)?
        .with_context(|| format!("no running proxy: none holds {} (pid_file_name)", config.pid_file.display()))?;
    kill_process(pid, signal).with_context(|| format!("cannot signal process {}", pid.as_raw_nonzero()))?;
    Ok(pid)
}

fn stop(config: &Config, mode: PgpoolStopMode) -> anyhow::Result<ExitCode> {
    let (by, limit) = match mode {
        PgpoolStopMode::Smart => (Signal::TERM, SMART_LIMIT),
        PgpoolStopMode::Fast => (Signal::INT, STOP_LIMIT),
        PgpoolStopMode::Immediate => (Signal::QUIT, STOP_LIMIT),
    };
    let pid = signal(config, by)?;
    if mode == PgpoolStopMode::Fast && config.sigint_stop == SigintStop::WaitForServers {
        // The second signal does not wait.
        signal(config, Signal::TERM)?;
    }
    complain(&format!("stop request sent to weir (pid: {}). waiting for termination...", pid.as_raw_nonzero()));
    let asked = Instant::now();
    while pid_file::lives(pid) {
        if asked.elapsed() >= limit {
            let next = match mode {
                PgpoolStopMode::Smart => "its clients have not left; \"-m fast stop\" does not wait for them",
                PgpoolStopMode::Fast => "try \"-m immediate stop\"",
                PgpoolStopMode::Immediate => "look at its log",
            };
            bail!("process {} still runs after {} s: {next}", pid.as_raw_nonzero(), limit.as_secs());
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    complain("done.");
    Ok(ExitCode::SUCCESS)
}

/// Passes the daemon's messages on until clients can connect.
fn daemonise(config: &Config, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let is_named = !config.pid_file.as_os_str().is_empty();
    if let Some(pid) = is_named.then(|| pid_file::running(&config.pid_file)).transpose()?.flatten() {
        bail!("already running: process {} ({})", pid.as_raw_nonzero(), config.pid_file.display());
    }
    let program = std::env::current_exe().context("cannot find the program's own file")?;
    let mut child = Command::new(program)
        .arg0("pgpool")
        .arg("-n")
        .args(arguments.iter().skip(1))
        .env(DAEMON_CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let (words, is_ready) = (child.stderr.take(), child.stdout.take());
    let said = aside(move || words.map(|mut words| std::io::copy(&mut words, &mut std::io::stderr())).is_some())?;
    let ready = aside(move || is_ready.is_some_and(|mut pipe| pipe.read_exact(&mut [0; READY.len()]).is_ok()))?;
    match ready.recv_timeout(START_LIMIT) {
        Ok(is_ready) => {
            // A child of the daemon may hold the pipe: the text so far is all.
            let _ = said.recv_timeout(WORDS_LIMIT);
            if is_ready { Ok(ExitCode::SUCCESS) } else { Err(not_started(&mut child)) }
        }
        Err(_) => bail!("the daemon (process {}) accepts no clients after {} s; it goes on", child.id(), START_LIMIT.as_secs()),
    }
}

fn not_started(child: &mut Child) -> anyhow::Error {
    match child.wait() {
        Ok(status) => anyhow::anyhow!("the daemon did not start ({status})"),
        Err(cause) => anyhow::Error::new(cause).context("the daemon did not start"),
    }
}

fn aside(work: impl FnOnce() -> bool + Send + 'static) -> anyhow::Result<mpsc::Receiver<bool>> {
    let (done, wait) = mpsc::channel();
    std::thread::Builder::new().name("daemon".into()).spawn(move || {
        // The receiver may be gone.
        let _ = done.send(work());
    })?;
    Ok(wait)
}

/// Leaves the parent's pipes too, which have no reader any more.
fn tell_parent() {
    let _ = std::io::stderr().flush();
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null");
    if let Ok(nowhere) = &nowhere {
        let _ = dup2_stderr(nowhere);
    }
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
    if let Ok(nowhere) = &nowhere {
        let _ = dup2_stdout(nowhere);
    }
}
