//! Problems that show only when settings are looked at together.
mod watchdog_checks;

use std::collections::BTreeSet;

use super::problem::{ConfigProblem, ProblemSeverity};
use super::{ClusteringMode, Config, Given, SettingSource};
use crate::failover_settings::FailoverMode;
use crate::params::ParamIndexing;
use weir_sql::facts::{QueryEffect, TransactionVerb};

/// In the order of the messages.
const CHECKS: [fn(&mut CheckContext<'_>); 22] = [
    check_nodes,
    check_same_servers,
    check_host_names,
    check_flags,
    check_mode,
    check_listening,
    check_functions,
    check_reset,
    check_check_query,
    check_weights,
    check_limits,
    check_overrides,
    check_look_ups,
    check_peers,
    check_redirects,
    check_ranges,
    check_stores,
    check_failover,
    check_agents,
    check_dashboard,
    check_sharding,
    watchdog_checks::check_watchdog,
];

struct CheckContext<'a> {
    config: &'a Config,
    given: &'a Given,
    problems: &'a mut Vec<ConfigProblem>,
}

pub(super) fn check(config: &Config, given: &Given, problems: &mut Vec<ConfigProblem>) {
    let mut findings = CheckContext { config, given, problems };
    for check in CHECKS {
        check(&mut findings);
    }
}

impl CheckContext<'_> {
    /// Adds a problem at the line of setting `name`.
    fn add(&mut self, severity: ProblemSeverity, name: &str, index: Option<u16>, message: String) {
        let source = self.config.setting(name, index).map_or(SettingSource::Default, |setting| setting.source.clone());
        self.problems.push(ConfigProblem::at(severity, &source, message));
    }

    /// In milliseconds or bytes where the setting has a unit.
    fn number(&self, name: &str) -> i64 {
        let setting = self.config.setting(name, None);
        setting.and_then(|setting| setting.param.kind.parse(name, &setting.raw).ok()).map_or(0, |value| value.int())
    }

    fn shown(&self, name: &str) -> String {
        self.config.setting(name, None).map(super::ConfigSetting::shown).unwrap_or_default()
    }
}

fn check_nodes(findings: &mut CheckContext<'_>) {
    let known: BTreeSet<u16> = findings.config.all_nodes().map(|node| node.id).collect();
    let mut unknown = BTreeSet::new();
    for setting in findings.given.values() {
        let Some(index) = setting.index else { continue };
        let of_node = matches!(setting.param.indexed, ParamIndexing::Node | ParamIndexing::NodeOrDefault);
        // An empty name takes a node out.
        let is_of_none = of_node && !known.contains(&index) && setting.param.name != "backend_hostname";
        if is_of_none && unknown.insert(index) {
            let message = format!("\"{}\" is ignored because \"backend_hostname{index}\" is not set", setting.name());
            findings.problems.push(ConfigProblem::at(ProblemSeverity::Warning, &setting.source, message));
        }
    }
    if known.is_empty() {
        findings.add(ProblemSeverity::Error, "", None, super::problem::NO_NODE.into());
    }
}

/// User `postgres` may do, so only `weir check` says this.
pub fn unnamed_role_user(config: &Config) -> Option<ConfigProblem> {
    let roles_are_asked = config.clustering_mode == ClusteringMode::StreamingReplication
        && config.nodes.len() > 1
        && !config.nodes.iter().any(|node| node.always_primary);
    (roles_are_asked && config.check.user.is_empty()).then(|| {
        let message = "\"sr_check_user\" is not set: user postgres asks the nodes which of them is the primary";
        ConfigProblem { severity: ProblemSeverity::Warning, path: None, line: None, message: message.into() }
    })
}

/// One address for two nodes would hide a lost server.
fn check_same_servers(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    for (at, node) in config.all_nodes().enumerate() {
        let same = |other: &&super::NodeConfig| other.hostname == node.hostname && other.port == node.port;
        if let Some(other) = config.all_nodes().take(at).find(same) {
            let message = format!("nodes {} and {} are the same server, port {}", other.id, node.id, node.port);
            findings.add(ProblemSeverity::Warning, "backend_hostname", Some(node.id), message);
        }
    }
}

/// Brackets belong only before a port.
fn check_host_names(findings: &mut CheckContext<'_>) {
    for node in findings.config.all_nodes() {
        if node.hostname.starts_with('[') {
            let message =
                format!("\"backend_hostname{}\" is \"{}\": an address stands there without brackets", node.id, node.hostname);
            findings.add(ProblemSeverity::Error, "backend_hostname", Some(node.id), message);
        }
    }
}

/// A server of another shard taken for a standby of shard 0 would answer with other rows.
fn check_sharding(findings: &mut CheckContext<'_>) {
    let sharding = &findings.config.sharding;
    let name = "backend_shard";
    let mut errors = Vec::new();
    if let Some(node) = sharding.nodes.first().filter(|_| !sharding.is_on) {
        errors.push((node.id, format!("\"backend_shard{}\" is {}, and parallel_mode is off", node.id, node.shard)));
    }
    for (at, node) in sharding.nodes.iter().enumerate() {
        if let Some(other) = sharding.nodes[..at].iter().find(|other| other.shard == node.shard) {
            let shard = node.shard;
            let message = format!("nodes {} and {} are both of shard {shard}: a shard above 0 has one server", other.id, node.id);
            errors.push((node.id, message));
        }
    }
    if let Some(node) = sharding.nodes.first().filter(|_| findings.config.nodes.is_empty()) {
        errors.push((node.id, "no node is of shard 0, which has everything that is not sharded".to_owned()));
    }
    for (node, message) in errors {
        findings.add(ProblemSeverity::Error, name, Some(node), message);
    }
    if findings.config.sharding.is_on && findings.config.cache.enabled {
        let message = "memory_cache_enabled and parallel_mode are both on: answers of shards are not cached yet".to_owned();
        findings.add(ProblemSeverity::Error, "memory_cache_enabled", None, message);
    }
}

fn check_flags(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    for node in config.all_nodes() {
        let flags = config.setting("backend_flag", Some(node.id)).map(|s| s.raw.to_ascii_uppercase()).unwrap_or_default();
        let has = |word: &str| flags.split('|').any(|flag| flag.trim() == word);
        if has("ALLOW_TO_FAILOVER") && has("DISALLOW_TO_FAILOVER") {
            let message = "ALLOW_TO_FAILOVER and DISALLOW_TO_FAILOVER exclude each other".into();
            findings.add(ProblemSeverity::Error, "backend_flag", Some(node.id), message);
        }
    }
    let mut primaries = config.nodes.iter().filter(|node| node.always_primary);
    if let (Some(first), Some(second)) = (primaries.next(), primaries.next()) {
        let message = format!("nodes {} and {} are both ALWAYS_PRIMARY, only one may be", first.id, second.id);
        findings.add(ProblemSeverity::Error, "backend_flag", Some(second.id), message);
    }
}

/// Writes that reach one node instead of all would be a silent loss.
fn check_mode(findings: &mut CheckContext<'_>) {
    match findings.config.clustering_mode {
        ClusteringMode::StreamingReplication | ClusteringMode::Raw => {}
        ClusteringMode::NativeReplication | ClusteringMode::LogicalReplication | ClusteringMode::SnapshotIsolation => {
            let mode = findings.shown("backend_clustering_mode");
            let message = format!("clustering mode \"{mode}\" does not work yet, use streaming_replication or raw");
            findings.add(ProblemSeverity::Error, "backend_clustering_mode", None, message);
        }
    }
}

fn check_listening(findings: &mut CheckContext<'_>) {
    if findings.config.listen_addresses.is_empty() && findings.config.unix_socket_directories.is_empty() {
        let message = "\"listen_addresses\" and \"unix_socket_directories\" are both empty, no client could connect".into();
        findings.add(ProblemSeverity::Error, "listen_addresses", None, message);
    }
}

fn check_functions(findings: &mut CheckContext<'_>) {
    let routing = &findings.config.routing;
    if !routing.read_only_functions.is_empty() && !routing.write_functions.is_empty() {
        let message = "\"read_only_function_list\" and \"write_function_list\" exclude each other, set only one".into();
        findings.add(ProblemSeverity::Error, "write_function_list", None, message);
    }
}

/// Without ABORT an open transaction would reach the next client.
fn check_reset(findings: &mut CheckContext<'_>) {
    if !findings.config.pool.reset_query_list.iter().any(|query| query.eq_ignore_ascii_case("abort")) {
        findings.add(ProblemSeverity::Warning, "reset_query_list", None, "\"reset_query_list\" must contain ABORT".into());
    }
}

/// A session gets the connection as the query leaves it.
fn check_check_query(findings: &mut CheckContext<'_>) {
    let facts = weir_sql::facts(findings.config.pool.check_query.as_bytes());
    let is_harmless =
        facts.effect <= QueryEffect::Reads && facts.transaction == TransactionVerb::None && facts.state.keeps.is_empty();
    if !is_harmless {
        let message = "\"server_check_query\" must only read, like SELECT 1".into();
        findings.add(ProblemSeverity::Error, "server_check_query", None, message);
    }
}

/// With one node its weight does not matter.
fn check_weights(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    let is_balanced = config.routing.load_balance && config.clustering_mode != ClusteringMode::Raw;
    if is_balanced && config.nodes.len() > 1 && config.nodes.iter().all(|node| node.weight == 0.0) {
        let message = "\"load_balance_mode\" is on but every \"backend_weight\" is 0, so reads are not balanced".into();
        findings.add(ProblemSeverity::Warning, "load_balance_mode", None, message);
    }
}

fn check_limits(findings: &mut CheckContext<'_>) {
    let (size, limit) = (findings.config.pool.size, findings.config.conns_per_node_max());
    if size > limit {
        let which = match findings.config.limits.conns_per_node {
            0 => "num_init_children * max_pool",
            _ => "max_server_connections_per_node",
        };
        let message = format!("\"pool_size\" {size} is above {which} = {limit}, which is the limit of a node");
        findings.add(ProblemSeverity::Warning, "pool_size", None, message);
    }
    let kept = findings.config.limits.pool_min;
    if kept > size {
        let which = if findings.number("pool_size") == 0 { "num_init_children" } else { "pool_size" };
        let message = format!("\"min_pool_size\" {kept} is above {which} = {size}: a pool keeps no more than that");
        findings.add(ProblemSeverity::Warning, "min_pool_size", None, message);
    }
}

fn check_overrides(findings: &mut CheckContext<'_>) {
    let text = findings.config.setting("limit_override_list", None).map(|setting| setting.raw.clone()).unwrap_or_default();
    if let Err(error) = crate::limits::read_overrides(&text) {
        findings.add(ProblemSeverity::Error, "limit_override_list", None, format!("\"limit_override_list\": {error}"));
    }
}

fn check_peers(findings: &mut CheckContext<'_>) {
    let text = findings.config.setting("peer_list", None).map(|setting| setting.raw.clone()).unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    if let Err(error) = crate::peers::read(entries) {
        findings.add(ProblemSeverity::Error, "peer_list", None, format!("\"peer_list\": {error}"));
    }
}

/// PgBouncer refuses look-ups in the console, too. A server database of that name needs another one in `database_file`.
fn check_look_ups(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    let console = config.admin.database.as_str();
    if console.is_empty() || config.databases.named(console).is_some() {
        return;
    }
    let what =
        format!("cannot be \"{console}\", which is the administration console (admin_database), and no database of the servers");
    if config.auth.ask_database == console {
        findings.add(ProblemSeverity::Error, "auth_dbname", None, format!("\"auth_dbname\" {what}"));
    }
    let wrong = config.databases.iter().find(|(_, entry)| entry.look_up.database.as_deref() == Some(console));
    if let Some((name, _)) = wrong {
        findings.add(ProblemSeverity::Error, "database_file", None, format!("auth_dbname of database \"{name}\" {what}"));
    }
}

fn check_redirects(findings: &mut CheckContext<'_>) {
    for name in ["user_redirect_preference_list", "database_redirect_preference_list", "app_name_redirect_preference_list"] {
        let text = findings.config.setting(name, None).map(|setting| setting.raw.clone()).unwrap_or_default();
        if let Err(error) = crate::redirect::check_nodes(&text, |id| findings.config.nodes.iter().any(|node| node.id == id)) {
            findings.add(ProblemSeverity::Error, name, None, format!("\"{name}\": {error}"));
        }
    }
}

fn check_stores(findings: &mut CheckContext<'_>) {
    let cache = &findings.config.cache;
    let (Some(store), method) = (cache.store(), cache.method) else { return };
    if let Err(message) = crate::hosts::hosts(&store.hosts, store.port) {
        let name = if method == super::MemqcacheMethod::Redis { "memqcache_redis_host" } else { "memqcache_memcached_host" };
        findings.add(ProblemSeverity::Error, name, None, format!("\"{name}\": {message}"));
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let namespace = &cache.namespace;
    if namespace.is_empty() || namespace.len() > NAMESPACE_BYTES_MAX || !namespace.chars().all(is_plain) {
        let limits = format!("1 to {NAMESPACE_BYTES_MAX} letters, digits, dots, dashes and underscores");
        let message = format!("\"memqcache_namespace\" is \"{namespace}\"; it must be {limits}");
        findings.add(ProblemSeverity::Error, "memqcache_namespace", None, message);
    }
}

/// memcached takes keys of 250 bytes at most.
const NAMESPACE_BYTES_MAX: usize = 64;

/// Pairs of settings of which the first must not be above the second, where Pgpool-II would use them.
fn check_ranges(findings: &mut CheckContext<'_>) {
    let is_dynamic = findings.shown("process_management_mode") == "dynamic";
    let is_cached = findings.shown("memory_cache_enabled") == "on";
    let is_watched = findings.shown("use_watchdog") == "on";
    let pairs = [
        (is_dynamic, "min_spare_children", "max_spare_children"),
        (is_dynamic, "max_spare_children", "num_init_children"),
        (true, "reserved_connections", "num_init_children"),
        (is_cached, "memqcache_maxcache", "memqcache_cache_block_size"),
        (is_cached, "memqcache_cache_block_size", "memqcache_total_size"),
        (is_watched, "wd_heartbeat_keepalive", "wd_heartbeat_deadtime"),
    ];
    for (is_used, low, high) in pairs {
        if is_used && findings.number(low) > findings.number(high) {
            let (low_value, high_value) = (findings.shown(low), findings.shown(high));
            let message = format!("\"{low}\" {low_value} must not be above \"{high}\" {high_value}");
            findings.add(ProblemSeverity::Error, low, None, message);
        }
    }
}

fn check_failover(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    let failover = &config.failover;
    let streams = config.clustering_mode == ClusteringMode::StreamingReplication;
    match failover.mode() {
        FailoverMode::Builtin if !streams => {
            let message = "failover_mode = builtin needs backend_clustering_mode = streaming_replication";
            findings.add(ProblemSeverity::Error, "failover_mode", None, message.into());
        }
        FailoverMode::Builtin => check_builtin(findings),
        FailoverMode::Command if failover.command.is_empty() => {
            let message = "failover_mode = command needs a failover_command";
            findings.add(ProblemSeverity::Error, "failover_mode", None, message.into());
        }
        FailoverMode::Command | FailoverMode::Follow | FailoverMode::Off => {}
    }
    let is_run = failover.mode() == FailoverMode::Command;
    for (name, command) in [("failover_command", &failover.command), ("follow_primary_command", &failover.follow_primary_command)]
    {
        if !command.is_empty() && !is_run {
            let message = format!("\"{name}\" is run with failover_mode = command only");
            findings.add(ProblemSeverity::Warning, name, None, message);
        }
    }
}

fn check_agents(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    for node in &config.nodes {
        if let Err(message) = super::agents::place(&node.agent) {
            findings.add(
                ProblemSeverity::Error,
                "backend_agent",
                Some(node.id),
                format!("\"backend_agent{}\": {message}", node.id),
            );
        }
    }
    let has_agents = config.nodes.iter().any(|node| !node.agent.is_empty());
    if has_agents && config.recovery.agents.secret_file.is_none() {
        let message = "\"backend_agent\" of a node is set, and \"agent_secret_file\" is not".into();
        findings.add(ProblemSeverity::Error, "agent_secret_file", None, message);
    }
}

fn check_dashboard(findings: &mut CheckContext<'_>) {
    let admin = &findings.config.admin;
    if !admin.dashboard.is_on {
        return;
    }
    if admin.metrics_port == 0 {
        let message = "\"dashboard\" is not served because \"metrics_port\" is 0".into();
        findings.add(ProblemSeverity::Warning, "dashboard", None, message);
    }
    if admin.users.is_empty() && admin.stats_users.is_empty() {
        let message = "nobody may enter the dashboard: \"admin_users\" and \"stats_users\" are empty".into();
        findings.add(ProblemSeverity::Warning, "dashboard", None, message);
    }
}

fn check_builtin(findings: &mut CheckContext<'_>) {
    let config = findings.config;
    if config.nodes.len() < 2 {
        findings.add(ProblemSeverity::Warning, "failover_mode", None, "failover_mode = builtin has no standby to promote".into());
    }
    if config.nodes.iter().all(|node| node.promote_priority == 0) {
        let message = "\"backend_promote_priority\" of all nodes is 0, so that none is promoted".into();
        findings.add(ProblemSeverity::Warning, "failover_mode", None, message);
    }
    if config.check.user.is_empty() && config.nodes.iter().any(|node| node.health.user.is_empty()) {
        let message = "failover_mode = builtin without \"health_check_user\" or \"sr_check_user\": user postgres promotes, see docs/failover.md for a user with less rights".into();
        findings.add(ProblemSeverity::Warning, "failover_mode", None, message);
    }
    for node in config.nodes.iter().filter(|node| node.application_name.is_empty()) {
        let message =
            format!("\"backend_application_name{}\" is not set: a synchronous standby is known by its name only", node.id);
        findings.add(ProblemSeverity::Warning, "failover_mode", None, message);
    }
    if config.work_dir == std::path::Path::new("/tmp") {
        let message =
            "\"work_dir\" is /tmp, which is emptied at a restart of the machine: what failover must remember is lost then. \
             And every user of the machine can put a file of that name there, which keeps Weir from writing its own"
                .into();
        findings.add(ProblemSeverity::Warning, "work_dir", None, message);
    }
}
