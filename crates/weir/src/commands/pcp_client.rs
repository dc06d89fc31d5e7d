//! Clients of PCP: `weir pcp node_info`, and Pgpool-II's own names.
//!
//! Options and output are those of Pgpool-II 4.7; answers since 4.3 are understood. A failure exits with code 1.

mod connection;
mod output;
mod passfile;

use crate::commands::prompt;
use anyhow::Context;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use connection::{PcpAddress, PcpClientConn};
use output::OutputShape;
use std::io::Write;
use std::process::ExitCode;
use weir_wire::pcp_protocol::{CommandScope, DrainMode, PcpRequest, PcpShutdownMode, PromotionKind, WatchdogChange};
use zeroize::Zeroizing;

/// Highest number of a node. Source: Pgpool-II, `MAX_NUM_BACKENDS`.
const NODE_MAX: i64 = 127;

/// One client.
#[derive(Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum PcpCommand {
    /// Attach a node.
    #[command(name = "pcp_attach_node", visible_aliases = ["attach_node", "attach-node"], disable_help_flag = true)]
    AttachNode(OfNode),
    /// Detach a node.
    #[command(name = "pcp_detach_node", visible_aliases = ["detach_node", "detach-node"], disable_help_flag = true)]
    DetachNode(OfNodeGracefully),
    /// The number of nodes.
    #[command(name = "pcp_node_count", visible_aliases = ["node_count", "node-count"], disable_help_flag = true)]
    NodeCount(PcpArgs),
    /// Nodes: where they are, if they are in use, their roles.
    #[command(name = "pcp_node_info", visible_aliases = ["node_info", "node-info"], disable_help_flag = true)]
    NodeInfo(OfNodeOrAll),
    /// How often a node was looked at, and what came of it.
    #[command(name = "pcp_health_check_stats", visible_aliases = ["health_check_stats", "health-check-stats"], disable_help_flag = true)]
    HealthCheckStats(OfNode),
    /// Parameters and their values.
    #[command(name = "pcp_pool_status", visible_aliases = ["pool_status", "pool-status"], disable_help_flag = true)]
    PoolStatus(PcpArgs),
    /// The numbers of processes: of the proxy and of its sessions.
    #[command(name = "pcp_proc_count", visible_aliases = ["proc_count", "proc-count"], disable_help_flag = true)]
    ProcCount(PcpArgs),
    /// Server connections and who uses them.
    #[command(name = "pcp_proc_info", visible_aliases = ["proc_info", "proc-info"], disable_help_flag = true)]
    ProcInfo(OfProcess),
    /// Make a node the primary.
    #[command(name = "pcp_promote_node", visible_aliases = ["promote_node", "promote-node"], disable_help_flag = true)]
    PromoteNode(PromoteArgs),
    /// Make a node anew out of the primary, and attach it.
    #[command(name = "pcp_recovery_node", visible_aliases = ["recovery_node", "recovery-node"], disable_help_flag = true)]
    RecoveryNode(OfNode),
    /// Start the server of a standby anew, out of use meanwhile. Of Weir only.
    #[command(name = "pcp_restart_node", visible_aliases = ["restart_node", "restart-node"], disable_help_flag = true)]
    RestartNode(OfNode),
    /// Start all servers anew, one after the other, without a failed statement: a rolling minor upgrade. Of Weir only.
    #[command(name = "pcp_upgrade_walk", visible_aliases = ["upgrade_walk", "upgrade-walk"], disable_help_flag = true)]
    UpgradeWalk(PcpArgs),
    /// Read the configuration again.
    #[command(name = "pcp_reload_config", visible_aliases = ["reload_config", "reload-config"], disable_help_flag = true)]
    ReloadConfig(ScopeArgs),
    /// Begin a new file of the log.
    #[command(name = "pcp_log_rotate", visible_aliases = ["log_rotate", "log-rotate"], disable_help_flag = true)]
    LogRotate(ScopeArgs),
    /// Forget all answers in the query cache.
    #[command(name = "pcp_invalidate_query_cache", visible_aliases = ["invalidate_query_cache", "invalidate-query-cache"], disable_help_flag = true)]
    InvalidateQueryCache(PcpArgs),
    /// Stop the proxy.
    #[command(name = "pcp_stop_pgpool", visible_aliases = ["stop_pgpool", "stop-pgpool", "stop"], disable_help_flag = true)]
    StopPgpool(StopArgs),
    /// Hosts of the watchdog.
    #[command(name = "pcp_watchdog_info", visible_aliases = ["watchdog_info", "watchdog-info"], disable_help_flag = true)]
    WatchdogInfo(OfWatchdog),
    /// All that a host of the watchdog knows of its group. Of Weir only; `weir watchdog status` is the same.
    #[command(name = "pcp_watchdog_status", visible_aliases = ["watchdog_status", "watchdog-status"], disable_help_flag = true)]
    WatchdogStatus(PcpArgs),
    /// Wait until a host of the watchdog is a member of its group. Of Weir only; `weir watchdog add` is the same.
    #[command(name = "pcp_watchdog_add", visible_aliases = ["watchdog_add", "watchdog-add"], disable_help_flag = true)]
    WatchdogAdd(OfHost),
    /// Remove a host that does not run from the watchdog's group. Of Weir only; `weir watchdog remove` is the same.
    #[command(name = "pcp_watchdog_remove", visible_aliases = ["watchdog_remove", "watchdog-remove"], disable_help_flag = true)]
    WatchdogRemove(OfHost),
    /// Hand the lead of the watchdog's group over to a host. Of Weir only; `weir watchdog lead` is the same.
    #[command(name = "pcp_watchdog_lead", visible_aliases = ["watchdog_lead", "watchdog-lead"], disable_help_flag = true)]
    WatchdogLead(OfHost),
    /// Form a group of the watchdog where it does not form by itself. Of Weir only; `weir watchdog form` is the same.
    #[command(name = "pcp_watchdog_form", visible_aliases = ["watchdog_form", "watchdog-form"], disable_help_flag = true)]
    WatchdogForm(OfForming),
}

/// Options of all.
#[derive(Args)]
pub struct PcpArgs {
    /// Host, or the folder of the unix socket; by default the socket in /tmp.
    #[arg(short = 'h', long = "host", value_name = "HOSTNAME")]
    host: Option<String>,
    /// Port.
    #[arg(short = 'p', long = "port", value_name = "PORT", default_value_t = 9898)]
    port: u16,
    /// User of pcp.conf; by default the name of the system's user.
    #[arg(short = 'U', long = "username", value_name = "NAME")]
    user: Option<String>,
    /// Never ask for the password: it is that of $PCPPASSFILE, or ~/.pcppass.
    #[arg(short = 'w', long = "no-password", overrides_with = "ask")]
    never_ask: bool,
    /// Ask for the password (the default).
    #[arg(short = 'W', long = "password", overrides_with = "never_ask")]
    ask: bool,
    #[command(flatten)]
    shape: VerbosityArgs,
    /// Print this help.
    #[arg(short = '?', long = "help", action = ArgAction::Help)]
    help: Option<bool>,
    /// Print the version.
    #[arg(short = 'V', long = "version")]
    version: bool,
}

#[derive(Args)]
struct VerbosityArgs {
    /// Print the packets that go and come.
    #[arg(short = 'd', long = "debug")]
    debug: bool,
    /// A line for each value.
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
}

/// The number of a node, by its option or by its place.
#[derive(Args)]
struct NodeId {
    /// Number of the node.
    #[arg(short = 'n', long = "node-id", value_name = "NODEID", allow_hyphen_values = true)]
    by_option: Option<String>,
    /// Number of the node, without the option's name.
    #[arg(value_name = "node-id")]
    by_place: Option<String>,
}

#[derive(Args)]
pub struct OfNode {
    #[command(flatten)]
    node: NodeId,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfNodeGracefully {
    /// When the transactions that run have ended; others wait meanwhile.
    #[arg(short = 'g', long = "gracefully")]
    gracefully: bool,
    #[command(flatten)]
    node: NodeId,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfNodeOrAll {
    /// All nodes, as without a number.
    #[arg(short = 'a', long = "all")]
    all: bool,
    #[command(flatten)]
    node: NodeId,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct PromoteArgs {
    /// When the transactions that run have ended; others wait meanwhile.
    #[arg(short = 'g', long = "gracefully")]
    gracefully: bool,
    /// Also if the primary works: it makes room for this node, and no statement fails.
    #[arg(short = 's', long = "switchover")]
    switchover: bool,
    #[command(flatten)]
    node: NodeId,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfProcess {
    /// Number of the process.
    #[arg(short = 'P', long = "process-id", value_name = "PID", allow_hyphen_values = true)]
    by_option: Option<String>,
    /// Number of the process, without the option's name.
    #[arg(value_name = "process-id")]
    by_place: Option<String>,
    /// Also what no client uses.
    #[arg(short = 'a', long = "all")]
    all: bool,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfWatchdog {
    /// Number of a host, as in its file pgpool_node_id; by default all.
    #[arg(short = 'n', long = "watchdog-id", value_name = "ID", allow_hyphen_values = true)]
    by_option: Option<String>,
    /// Number of a host, without the option's name.
    #[arg(value_name = "watchdog-id")]
    by_place: Option<String>,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfHost {
    /// Number of the host, as in its file pgpool_node_id.
    #[arg(value_name = "HOST")]
    number: String,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct OfForming {
    /// Of the host that is asked alone, although it has a group whose other members do not answer. You vouch that they do not run and will not be
    /// started with their files; what only they know is lost.
    #[arg(long = "force")]
    by_force: bool,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct ScopeArgs {
    /// The processes that are to obey.
    #[arg(short = 's', long = "scope", value_enum, default_value = "local")]
    scope: ScopeWord,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Args)]
pub struct StopArgs {
    /// If clients may finish.
    #[arg(short = 'm', long = "mode", value_enum, default_value = "smart")]
    mode: ModeWord,
    /// The processes that are to obey.
    #[arg(short = 's', long = "scope", value_enum, default_value = "local")]
    scope: ScopeWord,
    #[command(flatten)]
    common: PcpArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScopeWord {
    #[value(alias = "l")]
    Local,
    /// All proxies of the watchdog's cluster.
    #[value(alias = "c")]
    Cluster,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeWord {
    #[value(alias = "s")]
    Smart,
    #[value(alias = "f")]
    Fast,
    #[value(alias = "i")]
    Immediate,
}

impl ScopeWord {
    fn scope(self) -> CommandScope {
        match self {
            ScopeWord::Local => CommandScope::Local,
            ScopeWord::Cluster => CommandScope::Cluster,
        }
    }
}

impl ModeWord {
    fn stop(self) -> PcpShutdownMode {
        match self {
            ModeWord::Smart => PcpShutdownMode::Smart,
            ModeWord::Fast => PcpShutdownMode::Fast,
            ModeWord::Immediate => PcpShutdownMode::Immediate,
        }
    }
}

struct PcpCall<'a> {
    name: &'static str,
    common: &'a PcpArgs,
    request: PcpRequest,
    shows_all: bool,
}

impl PcpCommand {
    fn common(&self) -> &PcpArgs {
        match self {
            PcpCommand::NodeCount(common)
            | PcpCommand::PoolStatus(common)
            | PcpCommand::ProcCount(common)
            | PcpCommand::UpgradeWalk(common)
            | PcpCommand::WatchdogStatus(common)
            | PcpCommand::InvalidateQueryCache(common) => common,
            PcpCommand::AttachNode(options)
            | PcpCommand::HealthCheckStats(options)
            | PcpCommand::RecoveryNode(options)
            | PcpCommand::RestartNode(options) => &options.common,
            PcpCommand::DetachNode(options) => &options.common,
            PcpCommand::NodeInfo(options) => &options.common,
            PcpCommand::ProcInfo(options) => &options.common,
            PcpCommand::PromoteNode(options) => &options.common,
            PcpCommand::ReloadConfig(options) | PcpCommand::LogRotate(options) => &options.common,
            PcpCommand::StopPgpool(options) => &options.common,
            PcpCommand::WatchdogInfo(options) => &options.common,
            PcpCommand::WatchdogForm(options) => &options.common,
            PcpCommand::WatchdogAdd(options) | PcpCommand::WatchdogRemove(options) | PcpCommand::WatchdogLead(options) => {
                &options.common
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            PcpCommand::AttachNode(_) => "pcp_attach_node",
            PcpCommand::DetachNode(_) => "pcp_detach_node",
            PcpCommand::NodeCount(_) => "pcp_node_count",
            PcpCommand::NodeInfo(_) => "pcp_node_info",
            PcpCommand::HealthCheckStats(_) => "pcp_health_check_stats",
            PcpCommand::PoolStatus(_) => "pcp_pool_status",
            PcpCommand::ProcCount(_) => "pcp_proc_count",
            PcpCommand::ProcInfo(_) => "pcp_proc_info",
            PcpCommand::PromoteNode(_) => "pcp_promote_node",
            PcpCommand::RecoveryNode(_) => "pcp_recovery_node",
            PcpCommand::RestartNode(_) => "pcp_restart_node",
            PcpCommand::UpgradeWalk(_) => "pcp_upgrade_walk",
            PcpCommand::ReloadConfig(_) => "pcp_reload_config",
            PcpCommand::LogRotate(_) => "pcp_log_rotate",
            PcpCommand::InvalidateQueryCache(_) => "pcp_invalidate_query_cache",
            PcpCommand::StopPgpool(_) => "pcp_stop_pgpool",
            PcpCommand::WatchdogInfo(_) => "pcp_watchdog_info",
            PcpCommand::WatchdogStatus(_) => "pcp_watchdog_status",
            PcpCommand::WatchdogAdd(_) => "pcp_watchdog_add",
            PcpCommand::WatchdogRemove(_) => "pcp_watchdog_remove",
            PcpCommand::WatchdogLead(_) => "pcp_watchdog_lead",
            PcpCommand::WatchdogForm(_) => "pcp_watchdog_form",
        }
    }

    fn plan(&self) -> Result<PcpCall<'_>, String> {
        let when = |gracefully| if gracefully { DrainMode::Gracefully } else { DrainMode::Now };
        let request = match self {
            PcpCommand::AttachNode(options) => PcpRequest::Attach(options.node.needed()?),
            PcpCommand::DetachNode(options) => PcpRequest::Detach(options.node.needed()?, when(options.gracefully)),
            PcpCommand::NodeCount(_) => PcpRequest::NodeCount,
            PcpCommand::NodeInfo(options) if options.all => PcpRequest::NodeInfo(-1),
            PcpCommand::NodeInfo(options) => PcpRequest::NodeInfo(options.node.given()?.unwrap_or(-1)),
            PcpCommand::HealthCheckStats(options) => PcpRequest::HealthCheckStats(options.node.needed()?),
            PcpCommand::PoolStatus(_) => PcpRequest::PoolStatus,
            PcpCommand::ProcCount(_) => PcpRequest::ProcessCount,
            PcpCommand::ProcInfo(options) => {
                let pid = options.by_option.as_ref().or(options.by_place.as_ref());
                PcpRequest::ProcessInfo(number(pid, "process-id", 1, i64::from(i32::MAX))?.unwrap_or(0))
            }
            PcpCommand::PromoteNode(options) => {
                let aim = if options.switchover { PromotionKind::Switchover } else { PromotionKind::Name };
                PcpRequest::Promote(options.node.needed()?, when(options.gracefully), aim)
            }
            PcpCommand::RecoveryNode(options) => PcpRequest::Recover(options.node.needed()?),
            PcpCommand::RestartNode(options) => PcpRequest::Restart(options.node.needed()?),
            PcpCommand::UpgradeWalk(_) => PcpRequest::UpgradeWalk,
            PcpCommand::ReloadConfig(options) => PcpRequest::Reload(options.scope.scope()),
            PcpCommand::LogRotate(options) => PcpRequest::RotateLog(options.scope.scope()),
            PcpCommand::InvalidateQueryCache(_) => PcpRequest::InvalidateQueryCache,
            PcpCommand::StopPgpool(options) => PcpRequest::Stop(options.mode.stop(), options.scope.scope()),
            PcpCommand::WatchdogStatus(_) => PcpRequest::WatchdogStatus,
            PcpCommand::WatchdogAdd(options) => PcpRequest::WatchdogChange(WatchdogChange::Add, options.number()?),
            PcpCommand::WatchdogRemove(options) => PcpRequest::WatchdogChange(WatchdogChange::Remove, options.number()?),
            PcpCommand::WatchdogLead(options) => PcpRequest::WatchdogChange(WatchdogChange::Lead, options.number()?),
            PcpCommand::WatchdogForm(OfForming { by_force: false, .. }) => PcpRequest::WatchdogChange(WatchdogChange::Form, 0),
            PcpCommand::WatchdogForm(OfForming { by_force: true, .. }) => {
                PcpRequest::WatchdogChange(WatchdogChange::FormByForce, 0)
            }
            PcpCommand::WatchdogInfo(options) => {
                let id = options.by_option.as_ref().or(options.by_place.as_ref());
                PcpRequest::WatchdogInfo(number(id, "watchdog-id", 0, NODE_MAX)?.unwrap_or(-1))
            }
        };
        let shows_all = matches!(self, PcpCommand::ProcInfo(options) if options.all);
        Ok(PcpCall { name: self.name(), common: self.common(), request, shows_all })
    }
}

impl OfHost {
    fn number(&self) -> Result<i32, String> {
        number(Some(&self.number), "number of a host", 0, NODE_MAX)?.ok_or_else(|| "missing number of a host".to_string())
    }
}

impl NodeId {
    fn given(&self) -> Result<Option<i32>, String> {
        number(self.by_option.as_ref().or(self.by_place.as_ref()), "node-id", 0, NODE_MAX)
    }

    fn needed(&self) -> Result<i32, String> {
        self.given()?.ok_or_else(|| "missing node-id".to_string())
    }
}

/// Pgpool-II takes invalid text for 0.
fn number(text: Option<&String>, what: &str, least: i64, most: i64) -> Result<Option<i32>, String> {
    let Some(text) = text else { return Ok(None) };
    let number = text.trim().parse::<i64>().ok().filter(|number| (least..=most).contains(number));
    let number = number.and_then(|number| i32::try_from(number).ok());
    number.map(Some).ok_or_else(|| format!("invalid {what} \"{text}\", must be between {least} and {most}"))
}

pub fn run(command: &PcpCommand) -> anyhow::Result<ExitCode> {
    let (common, name) = (command.common(), command.name());
    if common.version {
        writeln!(std::io::stdout(), "{name} (Weir {}) for Pgpool-II 4.7", crate::VERSION)?;
        return Ok(ExitCode::SUCCESS);
    }
    match command
        .plan()
        .map_err(|text| format!("{name}: {text}\nTry \"{name} --help\" for more information.\n"))
        .and_then(|plan| ask(&plan))
    {
        Ok(text) => {
            std::io::stdout().write_all(text.as_bytes()).context("cannot write to the standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(text) => {
            writeln!(std::io::stderr(), "{text}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn ask(plan: &PcpCall<'_>) -> Result<String, String> {
    let common = plan.common;
    let target = PcpAddress::new(common.host.as_deref(), common.port);
    let user = common.user.clone().unwrap_or_else(prompt::system_user);
    let password = password_for(common, &target, &user)?;
    let mut connection = PcpClientConn::open(&target, common.shape.debug)?;
    connection.log_in(&user, password.as_bytes())?;
    let replies = connection.ask(&plan.request)?;
    connection.end();
    let shape = OutputShape { is_verbose: common.shape.verbose, shows_all: plan.shows_all };
    output::text(plan.name, &plan.request, &replies, shape)
}

/// The typed password wins over the file's.
fn password_for(common: &PcpArgs, target: &PcpAddress, user: &str) -> Result<Zeroizing<String>, String> {
    let typed = if common.never_ask { None } else { Some(prompt::password("Password: ").map_err(|cause| cause.to_string())?) };
    match typed.filter(|typed| !typed.is_empty()) {
        Some(typed) => Ok(typed),
        None => Ok(passfile::look_up(target, user).unwrap_or_default()),
    }
}
