//! The parameter table and the reader of `pgpool.conf`: text in, values and problems out.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_config::params::{self, ConfigParam, ParamContext, ParamEffect, ParamGroup, ParamIndexing, ParamKind};
use weir_config::visibility::{ValueVisibility, Viewer};
use weir_config::{
    self as config, ClusteringMode, Config, ConfigReadResult, ConfigSetting, LogLevel, PoolMode, ProblemSeverity, SettingSource,
    WaitsUntil,
};

/// One case of `config_cases.txt`.
struct Case {
    title: String,
    files: BTreeMap<String, String>,
    expect: Vec<String>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut file = String::new();
    for line in include_str!("config_cases.txt").lines() {
        if let Some(title) = line.strip_prefix("=== ") {
            cases.push(Case { title: title.into(), files: BTreeMap::new(), expect: Vec::new() });
            file = "pgpool.conf".into();
        } else if let Some(name) = line.strip_prefix("--- ") {
            file = name.into();
        } else if let Some(case) = cases.last_mut() {
            if file != "expect" {
                *case.files.entry(file.clone()).or_default() += &format!("{line}\n");
            } else if !line.is_empty() {
                case.expect.push(line.into());
            }
        }
    }
    // The first "case" is the explanation of the format.
    cases.split_off(1)
}

fn read_files(files: &BTreeMap<String, String>, command_line: &[(String, String)]) -> ConfigReadResult {
    config::read_with(Path::new("pgpool.conf"), command_line, &mut |path| {
        let name = path.to_str().expect("the names in the cases are UTF-8");
        // The one ".." of the cases, as the operating system would see it.
        let text = files.get(name).or_else(|| files.get(name.rsplit("../").next()?));
        text.map(|text| text.clone().into_bytes()).ok_or_else(|| "no such file".into())
    })
}

fn read_bytes(bytes: &[u8]) -> ConfigReadResult {
    config::read(Path::new("pgpool.conf"), &mut |path| {
        Ok(match path.to_str() {
            Some("pgpool.conf") => bytes.to_vec(),
            Some("pgpool_node_id") => b"0\n".to_vec(),
            // A file that the configuration names is empty.
            Some(_) | None => Vec::new(),
        })
    })
}

fn check_read(text: &str) -> Config {
    let outcome = read_bytes(text.as_bytes());
    outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems))
}

fn shown(config: &Config, name: &str) -> String {
    config::show_one(config, name, &Viewer::operator()).expect("a known name")[0].value.clone()
}

#[test]
fn every_case_gives_its_values_and_problems() {
    let cases = cases();
    assert!(cases.len() > 40, "only {} cases were found", cases.len());
    for case in cases {
        let node = [("backend_hostname0".to_string(), "db0".to_string())];
        let command_line: &[_] = if case.title.ends_with("(no node)") { &[] } else { &node };
        let outcome = read_files(&case.files, command_line);
        let problems: Vec<_> = outcome.problems.iter().map(|problem| format!("! {problem}")).collect();
        let wanted: Vec<_> = case.expect.iter().filter(|line| line.starts_with("! ")).cloned().collect();
        assert_eq!(problems, wanted, "\nin case: {}", case.title);
        for line in case.expect.iter().filter(|line| !line.starts_with("! ")) {
            let (name, value) = line.split_once(" = ").unwrap();
            let config = outcome.config.as_ref().unwrap();
            assert_eq!(shown(config, name), value, "\n{name} in case: {}", case.title);
        }
    }
}

#[test]
fn every_parameter_of_pgpool_has_a_row() {
    let mut count = 0;
    for line in include_str!("config_names.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, is_numbered) = line.strip_suffix('N').map_or((line, false), |name| (name, true));
        let param = params::all().find(|param| param.name == name);
        let param = param.unwrap_or_else(|| panic!("no row for {line}"));
        assert_eq!(param.indexed != ParamIndexing::No, is_numbered, "{line}");
        count += 1;
    }
    assert_eq!(count, 198);
    let ours = params::all().filter(|param| param.since.starts_with("Weir")).count();
    assert_eq!(params::all().count(), 198 + ours);
}

#[test]
fn every_name_is_unique_and_leads_to_its_row() {
    let mut names = BTreeSet::new();
    for param in params::all() {
        assert!(names.insert(param.name), "{} is there twice", param.name);
        assert_eq!(params::find(param.name).unwrap().name, param.name);
        assert!(!param.name.ends_with(|c: char| c.is_ascii_digit()), "{} would look numbered", param.name);
    }
}

#[test]
fn every_row_is_complete_and_its_default_is_allowed() {
    for (group, rows) in params::groups() {
        for param in rows {
            let name = param.name;
            assert_eq!(param.group, group, "{name}");
            if let Err(cause) = param.kind.parse(name, param.default) {
                panic!("default of {name}: {cause}");
            }
            assert!(param.help.len() > 10 && param.help.ends_with('.'), "help of {name}");
            assert!(!param.kind.describe().is_empty());
            if let Some(target) = param.alias_of {
                let target = params::find(target).unwrap();
                assert!(target.alias_of.is_none() && param.hidden && param.effect == ParamEffect::NotYet, "{name}");
            }
            assert_eq!(param.is_secret(), name.contains("password") && name != "pool_passwd" || name == "wd_authkey", "{name}");
        }
    }
}

#[test]
fn the_defaults_are_those_of_pgpool() {
    let config = Config::default();
    assert_eq!(config.listen_addresses, ["localhost"]);
    assert_eq!(config.port, 9999);
    assert_eq!(config.unix_socket_directories, [Path::new("/tmp")]);
    assert_eq!(config.unix_socket_permissions, 0o777);
    assert_eq!(config.listen_backlog_multiplier, 2);
    assert_eq!(config.auth.timeout_ms, 60_000);
    assert_eq!(config.clustering_mode, ClusteringMode::StreamingReplication);
    assert!(config.nodes.is_empty());
    assert_eq!(config.auth.passwd_file.as_deref(), Some(Path::new("pool_passwd")));
    let pool = &config.pool;
    assert_eq!((pool.mode, pool.size, pool.num_init_children, pool.max_pool), (PoolMode::Transaction, 32, 32, 4));
    assert_eq!(config.conns_per_node_max(), 128);
    assert_eq!((pool.wait_timeout_ms, pool.server_idle_timeout_ms), (120_000, 600_000));
    assert_eq!((pool.prepared_max, pool.max_clients, pool.connection_life_time_ms), (500, 10_000, 0));
    assert_eq!(pool.reset_query_list, ["ABORT", "DISCARD ALL"]);
    assert!(config.routing.load_balance && !config.routing.statement_level);
    assert_eq!(config.routing.statement_analysis_bytes_max, 256 * 1024);
    assert_eq!(config.memory_buffer_bytes, 32 * 1024);
    assert_eq!((config.check.period_ms, config.check.database.as_str()), (10_000, "postgres"));
    assert_eq!(config.search_primary_timeout_ms, 300_000);
    assert_eq!(config.log.min_messages, LogLevel::Warning);
    assert_eq!(config.log.line_prefix, "%m: %a pid %p: ");
    assert_eq!(config.work_dir, Path::new("/tmp"));
    assert_eq!((config.workers(1), config.workers(2), config.workers(9)), (1, 1, 4));
    assert!(config.notices().is_empty());
}

/// Words of which each parameter takes one that is not its default.
#[rustfmt::skip]
const OTHER_VALUES: &[&str] = &[
    "user=a: pool_size=5", "off", "on", "33", "5000", "session", "DISALLOW_TO_FAILOVER", "other", "8kB", "0700", "panic",
    "epoll", "json", "syslog", "LOCAL1", "TLSv1.3", "require", "pass", "pin", "disable", "always", "memcached", "wal",
    "normal", "primary", "a:0", "select 1", "error", "builtin", "4.3", "verify-ca", "db0:9797", "3MB", "raw", "gentle",
    "lazy", "none", "trust", "query", "terse", "load_balance_node", "1", "dynamic", "as_servers", "wait_for_servers",
    "10.0.0.9", "http://e:2379", "/state", "etcd", "refuse", "latest",
];

/// A watchdog all of whose settings count.
const WATCHDOG: &str = "hostname0 = 'a'\nwd_authkey = 'key'\nwd_state_dir = '/base'\nheartbeat_hostname0 = 'a'\n\
    wd_etcd_endpoints = 'http://base:2379'\nif_up_cmd = 'up'\narping_cmd = 'tell'\nwd_etcd_client_cert_file = 'c'\n\
    wd_etcd_client_key_file = 'k'";

#[test]
fn a_built_row_changes_the_typed_fields() {
    // A value other than the default for each kind of row; secrets and texts get a plain word.
    // An agent needs a secret.
    const FEW: &str = "backend_hostname0 = 'db0'\nagent_secret_file = 'base'";
    // Rows of the watchdog without a notice of their own: each has a field, if there is a watchdog.
    let is_watchdogs = |param: &&'static ConfigParam| {
        param.group == ParamGroup::Watchdog && param.effect != ParamEffect::Needless && param.alias_of.is_none()
    };
    for param in params::all().filter(|param| param.effect == ParamEffect::Built || is_watchdogs(param)) {
        let few = match param.name {
            "use_watchdog" => format!("{FEW}\n{WATCHDOG}"),
            "backend_shard" => format!("{FEW}\nbackend_hostname1 = 'db1'\nparallel_mode = on"),
            _ if is_watchdogs(&param) => format!("{FEW}\nuse_watchdog = on\n{WATCHDOG}"),
            _ => FEW.to_owned(),
        };
        let base = check_read(&few);
        if ["worker_threads", "backend_clustering_mode"].contains(&param.name) {
            continue;
        }
        let name = if param.indexed == ParamIndexing::No { param.name.to_string() } else { format!("{}0", param.name) };
        // A server given twice is an error.
        let few = few.lines().filter(|line| !line.starts_with(&name)).collect::<Vec<_>>().join("\n");
        let is_other = |value: &&&str| {
            let text = format!("{few}\n{name} = '{value}'");
            param.kind.parse(param.name, value).is_ok()
                && param.kind.show(value) != param.kind.show(param.default)
                && read_bytes(text.as_bytes()).config.is_some()
        };
        let value = OTHER_VALUES.iter().find(is_other).unwrap_or_else(|| panic!("no other value is known for {name}"));
        let changed = check_read(&format!("{few}\n{name} = '{value}'"));
        let fields = |config: &Config| {
            let secrets = [
                &config.check.password,
                &config.cache.redis.password,
                &config.recovery.password,
                &config.nodes[0].health.password,
            ];
            let watchdog = config.watchdog.as_ref().map(|watchdog| [watchdog.authkey.expose(), watchdog.etcd.password.expose()]);
            let text = format!("{:?} {secrets:?} {watchdog:?}", Config { settings: Vec::new(), ..config.clone() });
            text
        };
        assert_ne!(fields(&base), fields(&changed), "{name} = {value} changes no field");
    }
}

#[test]
fn nodes_are_ordered_by_number_whatever_the_order_of_the_lines() {
    let config = check_read(
        "backend_weight7 = 0.25\nbackend_hostname7 = 'c'\nbackend_flag7 = 'DISALLOW_TO_FAILOVER|ALWAYS_PRIMARY'\n\
         backend_hostname2 = 'b'\nbackend_port2 = 5433\nbackend_application_name2 = 'standby'\n\
         backend_data_directory2 = '/data'\nconnect_timeout2 = 1s\nconnect_timeout = 3s",
    );
    let ids: Vec<_> = config.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, [2, 7]);
    let (b, c) = (&config.nodes[0], &config.nodes[1]);
    assert_eq!((b.hostname.as_str(), b.port, b.weight, b.connect_timeout_ms), ("b", 5433, 0.0, 1000));
    assert_eq!((b.application_name.as_str(), b.data_directory.as_str()), ("standby", "/data"));
    assert!(b.allow_failover && !b.always_primary);
    assert_eq!((c.hostname.as_str(), c.port, c.weight, c.connect_timeout_ms), ("c", 5432, 0.25, 3000));
    assert!(!c.allow_failover && c.always_primary);
    assert_eq!(config.connect_timeout_max_ms(), 3000);
    let endless = check_read("backend_hostname0 = 'a'\nconnect_timeout0 = 0\nbackend_hostname1 = 'b'\nconnect_timeout = 3s");
    assert_eq!(endless.connect_timeout_max_ms(), 0, "0 is no limit");
}

#[test]
fn a_problem_stands_with_its_place() {
    let files = BTreeMap::from([("pgpool.conf".to_owned(), "backend_hostname0 = 'a'\nport = no\n".to_owned())]);
    let problems = read_files(&files, &[]).problems;
    let text = problems[0].place_and_message();
    assert!(text.starts_with("pgpool.conf:2: ") && text.contains("port"), "{text}");
}

#[test]
fn patterns_match_whole_texts_in_small_and_capital_letters() {
    let config = check_read(
        "backend_hostname0 = 'a'\nwrite_function_list = 'nextval, ^set.*$ ,a|b'\n\
         primary_routing_query_pattern_list = 'SELECT 1\\;.*;.*secret.*'",
    );
    let writes = |name: &str| config.routing.write_functions.is_match(name);
    assert!(writes("nextval") && writes("NextVal") && writes("setval") && writes("a") && writes("b"));
    assert!(!writes("my_nextval") && !writes("nextval2") && !writes("ab"));
    let primary = |text: &str| config.routing.primary_patterns.is_match(text);
    assert_eq!(config.routing.primary_patterns.len(), 2);
    assert!(primary("select 1; select 2") && primary("select *\nfrom SECRET\nwhere x") && !primary("select 1"));
}

#[test]
fn lines_may_end_as_on_windows_and_begin_with_a_byte_order_mark() {
    let config = check_read("\u{feff}backend_hostname0 = 'a'\r\nport = 5555\r\n\r\n# x\r\nlog_connections = on\r\n");
    assert_eq!((config.port, config.log.connections), (5555, true));
}

#[test]
fn invalid_utf8_is_an_error_in_its_line() {
    let outcome = read_bytes(b"backend_hostname0 = 'a'\n# \xC3\xA9\nsr_check_user = '\xFF'\nport = 5555\n");
    let problems: Vec<_> = outcome.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["pgpool.conf:3: error: byte 18 of the line is not valid utf-8"]);
    assert!(outcome.config.is_none());
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let outcome = config::read(Path::new("/etc/pgpool.conf"), &mut |_| Err("permission denied".into()));
    assert_eq!(
        outcome.problems[0].to_string(),
        "error: could not read configuration file \"/etc/pgpool.conf\": permission denied"
    );
}

#[test]
fn files_that_include_each_other_many_times_come_to_an_end() {
    let mut files = 0;
    let outcome = config::read(Path::new("0"), &mut |path| {
        files += 1;
        let depth: u32 = path.to_str().unwrap().parse().unwrap();
        Ok(format!("include = '{}'\n", depth + 1).repeat(10).into_bytes())
    });
    assert!(files <= 1000 && outcome.config.is_none());
    assert!(outcome.problems.len() < 1100, "{}", outcome.problems.len());
    let mut files = 0;
    let outcome = config::read(Path::new("0"), &mut |path| {
        files += 1;
        Ok(if path == Path::new("0") { "include = 'x'\n".repeat(1500).into_bytes() } else { Vec::new() })
    });
    assert!(files == 1000 && outcome.config.is_none());
}

#[test]
fn the_command_line_wins_and_its_problems_have_no_file() {
    let files = BTreeMap::from([("pgpool.conf".to_string(), "port = 5555\nbackend_hostname0 = 'a'".to_string())]);
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let outcome = read_files(&files, &[pair("port", "7777")]);
    let config = outcome.config.unwrap();
    assert_eq!(config.port, 7777);
    let port = config.settings.iter().find(|setting| setting.param.name == "port").unwrap();
    assert_eq!(port.source, SettingSource::CommandLine);
    let outcome = read_files(&files, &[pair("port", "7")]);
    assert_eq!(
        outcome.problems[0].to_string(),
        "error: on the command line: 7 is outside the valid range for parameter \"port\" (1024 .. 65535)"
    );
}

#[test]
fn what_is_set_but_not_read_yet_is_listed_once() {
    let config = check_read(
        "backend_hostname0 = 'a'\nmemqcache_oiddir = x\nhealth_check_period0 = 5\nchild_life_time = 5min\n\
         failover_command = 'x'\nport = 5555\nssl = off",
    );
    let notices = config.notices();
    assert_eq!(notices, ["parameter \"memqcache_oiddir\" is accepted but has no effect yet"]);
}

#[test]
fn the_older_default_of_causal_reads_is_named_with_the_new_one() {
    let of = |more: &str| check_read(&format!("backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\n{more}")).older_causal_reads();
    let hint = of("causal_reads = session").unwrap();
    assert!(hint.contains(":3: note: causal_reads = session shows a client its own writes only"), "{hint}");
    for more in ["", "causal_reads = tables", "causal_reads = off", "causal_reads = global"] {
        assert_eq!(of(more), None, "{more}");
    }
    assert!(of("causal_reads = session\ndisable_load_balance_on_write = dml_adaptive_global").is_none(), "it means tables");
    assert!(check_read("backend_hostname0 = 'a'\ncausal_reads = session").older_causal_reads().is_none(), "no standby");
}

#[test]
fn rows_that_are_needed_for_nothing_are_not_named() {
    let config = check_read(
        "backend_hostname0 = 'a'\nbackend_data_directory0 = '/data'\nwork_dir = '/var/log/pgpool'\nlog_pcp_processes = on\n\
         hostname0 = 'w'\nwd_port0 = 9001",
    );
    assert!(config.notices().is_empty(), "{:?}", config.notices());
    let config =
        check_read("backend_hostname0 = 'a'\nuse_watchdog = on\nhostname0 = 'localhost'\nrecovery_2nd_stage_command = 'r'");
    let notices = config.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("online recovery has one stage"), "{notices:?}");
}

#[test]
fn a_limit_of_open_files_that_is_too_low_for_all_clients_is_named() {
    let config = check_read(
        "backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\nmax_client_connections = 1000\nnum_init_children = 10\nmax_pool = 1",
    );
    assert_eq!(config.descriptors_notice(1000 + 20 + 64), None);
    let notice = config.descriptors_notice(1024).unwrap();
    assert!(notice.contains("is 1024, but max_client_connections = 1000 and up to 20 server connections need 1084"), "{notice}");
}

#[test]
fn addresses_of_this_machine_only_are_not_those_of_others() {
    for (addresses, expected) in [
        ("localhost", false),
        ("", false),
        ("127.0.0.1, ::1", false),
        ("*", true),
        ("0.0.0.0", true),
        ("localhost,10.0.0.1", true),
    ] {
        let config = check_read(&format!("backend_hostname0 = 'a'\nlisten_addresses = '{addresses}'"));
        assert_eq!(config.listens_to_others(), expected, "{addresses}");
    }
}

#[test]
fn a_configuration_without_a_node_cannot_run_but_can_be_looked_at() {
    let outcome = read_bytes(b"port = 5555");
    assert!(outcome.config.is_none() && outcome.problems.iter().all(|problem| problem.is_no_node()), "{:?}", outcome.problems);
    assert_eq!(shown(&outcome.draft, "port"), "5555");
}

#[test]
fn the_level_log_hides_neither_warnings_nor_errors() {
    let config = check_read("backend_hostname0 = 'a'\nlog_min_messages = log");
    assert!(config.log.min_messages <= LogLevel::Warning);
    assert_eq!(shown(&config, "log_min_messages"), "log");
}

#[test]
fn a_reload_takes_what_may_change_and_names_what_waits_for_a_restart() {
    let old = check_read(
        "port = 5555\nbackend_hostname0 = 'a'\nbackend_weight0 = 1\nbackend_hostname1 = 'b'\nbackend_weight1 = 2\n\
         authentication_timeout = 60s\nmax_pool = 7",
    );
    let new = check_read(
        "port = 6666\nbackend_hostname0 = 'moved'\nbackend_weight0 = 3\nbackend_hostname2 = 'c'\nbackend_port2 = 5433\n\
         authentication_timeout = 1min\nlog_connections = on\npool_size = 9",
    );
    let (merged, waiting) = config::reload(&old, new);
    assert_eq!(waiting, ["port", "max_pool", "backend_hostname1"]);
    assert_eq!((merged.port, merged.pool.max_pool, merged.pool.size), (5555, 7, 9));
    assert!(merged.log.connections);
    let nodes: Vec<_> = merged.nodes.iter().map(|node| (node.hostname.as_str(), node.port, node.weight)).collect();
    assert_eq!(nodes, [("moved", 5432, 3.0), ("b", 5432, 2.0), ("c", 5433, 0.0)]);
}

#[test]
fn a_change_in_the_files_waits_for_a_reload_or_a_restart() {
    let old = check_read(
        "port = 5555\nbackend_hostname0 = 'a'\nbackend_hostname1 = 'b'\nbackend_weight1 = 2\nauthentication_timeout = 60s\npool_size = 8",
    );
    let old = old.set_while_running("log_connections", "on").unwrap();
    let new =
        check_read("port = 6666\nbackend_hostname0 = 'a'\nbackend_hostname2 = 'c'\nauthentication_timeout = 1min\npool_size = 9");
    let waiting = config::waiting_changes(&old, &new);
    let told: Vec<(&str, Option<String>, WaitsUntil)> = waiting
        .iter()
        .map(|change| (change.name.as_str(), change.in_files.as_ref().map(ConfigSetting::shown), change.until))
        .collect();
    let of = |name: &str| told.iter().find(|(known, ..)| *known == name).map(|(_, value, until)| (value.as_deref(), *until));
    for (name, expected) in [
        ("port", Some((Some("6666"), WaitsUntil::Restart))),
        ("pool_size", Some((Some("9"), WaitsUntil::Reload))),
        // Set in the console: a reload takes it back.
        ("log_connections", Some((Some("off"), WaitsUntil::Reload))),
        ("backend_hostname1", Some((None, WaitsUntil::Restart))),
        ("backend_weight1", Some((None, WaitsUntil::Restart))),
        ("backend_hostname2", Some((Some("c"), WaitsUntil::Reload))),
        // Written otherwise, and equal.
        ("authentication_timeout", None),
        ("backend_port2", None),
    ] {
        assert_eq!(of(name), expected, "{name} in {told:?}");
    }
    assert!(config::waiting_changes(&new, &new).is_empty());
}

#[test]
fn a_reload_of_the_same_file_changes_nothing() {
    let text = "backend_hostname0 = 'a'\nbackend_flag0 = 'ALWAYS_PRIMARY'\nport = 5555\nhostname0 = 'x'\nwd_port0 = 9001";
    let (merged, waiting) = config::reload(&check_read(text), check_read(text));
    assert!(waiting.is_empty(), "{waiting:?}");
    assert_eq!(format!("{merged:?}"), format!("{:?}", check_read(text)));
}

#[test]
fn every_parameter_reloads_as_its_row_says() {
    let old = check_read("backend_hostname0 = 'a'\nhostname0 = 'localhost'");
    for param in params::all().filter(|param| param.indexed == ParamIndexing::No && param.alias_of.is_none()) {
        let outcome = OTHER_VALUES.iter().find_map(|value| {
            let is_other =
                param.kind.parse(param.name, value).is_ok() && param.kind.show(value) != param.kind.show(param.default);
            let text = format!("backend_hostname0 = 'a'\nhostname0 = 'localhost'\n{} = '{value}'", param.name);
            if is_other { read_bytes(text.as_bytes()).config } else { None }
        });
        let new = outcome.unwrap_or_else(|| panic!("no other value for {}", param.name));
        let (merged, waiting) = config::reload(&old, new.clone());
        if param.applies == ParamContext::AtStart {
            assert_eq!(waiting, [param.name]);
            assert_eq!(shown(&merged, param.name), shown(&old, param.name));
        } else {
            assert!(waiting.is_empty(), "{waiting:?}");
            assert_eq!(shown(&merged, param.name), shown(&new, param.name));
        }
    }
}

#[test]
fn a_session_sets_for_itself_only_what_its_row_allows() {
    let base = check_read("backend_hostname0 = 'a'\nlog_statement = on");
    let session = base.set_for_session("client_idle_limit", "5min").unwrap();
    assert_eq!((session.client_idle_limit_ms, base.client_idle_limit_ms), (300_000, 0));
    let session = session.set_for_session("log_statement", "off").unwrap();
    assert!(!session.log.statement);
    let again = session.reset_for_session("log_statement", &base).unwrap();
    assert!(again.log.statement && again.client_idle_limit_ms == 300_000);
    assert_eq!(session.reset_for_session("all", &base).unwrap().client_idle_limit_ms, 0);
    let text = |name: &str, value: &str| base.set_for_session(name, value).unwrap_err().to_string();
    assert_eq!(text("port", "5555"), "parameter \"port\" cannot be changed for one session");
    assert_eq!(text("backend_port0", "5555"), "parameter \"backend_port0\" cannot be changed for one session");
    assert_eq!(text("prot", "5555"), "unrecognized configuration parameter \"prot\"");
    assert!(text("client_idle_limit", "-1").starts_with("-1 s is outside the valid range"));
}

#[test]
fn show_finds_single_numbered_and_grouped_parameters() {
    let config = check_read(
        "backend_hostname0 = 'a'\nbackend_hostname2 = 'c'\nbackend_weight2 = 1\nhostname0 = 'w'\nhealth_check_period2 = 3",
    );
    let names = |name: &str| -> Vec<String> {
        config::show_one(&config, name, &Viewer::operator()).unwrap().into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names("Port"), ["port"]);
    assert_eq!(names("backend_port"), ["backend_port0", "backend_port2"]);
    assert_eq!(names("backend_port2"), ["backend_port2"]);
    assert_eq!(names("backend")[..3], ["backend_hostname0", "backend_port0", "backend_weight0"]);
    assert_eq!(names("backend").len(), 20);
    assert_eq!(names("watchdog"), ["hostname0", "wd_port0", "pgpool_port0"]);
    assert!(names("heartbeat").is_empty());
    assert_eq!(names("health_check").len(), 8 * 3);
    assert_eq!(names("health_check_period"), ["health_check_period", "health_check_period0", "health_check_period2"]);
    assert_eq!(shown(&config, "health_check_period0"), "0");
    assert_eq!(shown(&config, "health_check_period2"), "3s");
    let all = names("ALL");
    assert_eq!(all.len(), config::show_all(&config, &Viewer::operator()).len());
    assert!(!all.contains(&"logdir".to_string()) && !all.contains(&"replication_mode".to_string()));
    let unknown = |name: &str| config::show_one(&config, name, &Viewer::operator()).unwrap_err().to_string();
    assert_eq!(unknown("backend_port1"), "there is no \"backend_port1\", nothing has this number");
    assert_eq!(unknown("prot"), "unrecognized configuration parameter \"prot\", did you mean \"port\"?");
    let row = &config::show_one(&config, "backend_weight2", &Viewer::operator()).unwrap()[0];
    assert_eq!((row.value.as_str(), row.source.as_str(), row.unit), ("1", "pgpool.conf:3", ""));
    let row = &config::show_one(&config, "authentication_timeout", &Viewer::operator()).unwrap()[0];
    assert_eq!((row.value.as_str(), row.source.as_str(), row.unit), ("1min", "default", "s"));
}

#[test]
fn no_view_and_no_debug_text_shows_a_secret() {
    let mut text = String::from("backend_hostname0 = 'a'\n");
    for param in params::all().filter(|param| param.is_secret()) {
        text += &format!("{} = 'hush'\n", param.name);
    }
    let config = check_read(&text);
    assert_eq!(config.check.password, "hush");
    assert!(!format!("{config:?}").contains("hush"));
    assert!(!format!("{:?}", config::show_all(&config, &Viewer::operator())).contains("hush"));
}

#[test]
fn a_command_a_key_and_a_query_are_for_operators() {
    const SIGNS: [&str; 12] =
        ["command", "cmd", "query", "passwd", "sslkey", "ssl_key", "secret", "_user", "users", "_dir", "directories", "path"];
    // Words and numbers; names that everybody may know.
    const OPEN: [&str; 1] = ["ssl_ca_cert_dir"];
    for param in params::all().filter(|param| !OPEN.contains(&param.name)) {
        let is_text = matches!(param.kind, ParamKind::Text(_) | ParamKind::List { .. } | ParamKind::Patterns { .. });
        if is_text && SIGNS.iter().any(|sign| param.name.contains(sign)) && !param.name.starts_with("user_redirect") {
            assert_ne!(param.kind.visibility(), ValueVisibility::Everyone, "{}", param.name);
        }
    }
}

#[test]
fn show_leaves_out_what_is_for_operators_and_refuses_it_by_its_name() {
    let config = check_read("backend_hostname0 = 'a'\nfailover_command = 'sh /x'\nsr_check_password = 'hush'");
    let joe = Viewer::user("joe");
    let refused = |name: &str| config::show_one(&config, name, &joe).unwrap_err().to_string();
    assert_eq!(refused("Failover_Command"), "permission denied to examine \"Failover_Command\"");
    assert_eq!(refused("follow_master_command"), "permission denied to examine \"follow_master_command\"");
    assert_eq!(refused("backend_data_directory0"), "permission denied to examine \"backend_data_directory0\"");
    assert_eq!(refused("health_check_user"), "permission denied to examine \"health_check_user\"");
    assert_eq!(config::show_one(&config, "sr_check_password", &joe).unwrap()[0].value, "*****");
    let (all, his) = (config::show_all(&config, &Viewer::operator()), config::show_all(&config, &joe));
    assert!(his.iter().all(|row| row.seen_by == ValueVisibility::Everyone) && his.len() < all.len());
    assert!(!format!("{his:?}").contains("/x") && format!("{all:?}").contains("/x"));
    let family = config::show_one(&config, "backend", &joe).unwrap();
    assert!(!family.is_empty() && family.iter().all(|row| row.name != "backend_data_directory0"));
    assert!(config::depends_on_viewer(&config, "backend") && config::depends_on_viewer(&config, "ALL"));
    assert!(!config::depends_on_viewer(&config, "port") && !config::depends_on_viewer(&config, "nothing"));
}

#[test]
fn the_sample_file_without_its_comment_signs_means_the_defaults() {
    let sample = config::sample_file();
    assert!(sample.lines().all(|line| line.is_empty() || line.starts_with('#')));
    let mut text = String::new();
    for line in sample.lines() {
        if let Some(setting) = line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase())) {
            text += &format!("{setting}\n");
        }
    }
    let shown_count = params::all().filter(|param| !param.hidden).count();
    assert_eq!(text.lines().count(), shown_count);
    let outcome = read_bytes(text.as_bytes());
    let errors: Vec<_> = outcome.problems.iter().filter(|p| p.severity == ProblemSeverity::Error).map(|p| &p.message).collect();
    assert_eq!(errors, ["no node is configured, set at least \"backend_hostname0\""]);
    let config = check_read(&format!("{text}backend_hostname0 = 'a'"));
    assert!(config.notices().is_empty(), "{:?}", config.notices());
    let default = check_read("backend_hostname0 = 'a'");
    let fields = |config: Config| format!("{:?}", Config { settings: Vec::new(), ..config });
    assert_eq!(fields(config), fields(default));
}

#[test]
fn the_reference_page_has_one_line_per_parameter() {
    let page = config::reference_page();
    assert_eq!(page, config::reference_page());
    for param in params::all() {
        let begins = |line: &str| {
            let rest = line.strip_prefix("| `").and_then(|line| line.strip_prefix(param.name));
            rest.is_some_and(|rest| ["`", "N`", "[N]`"].iter().any(|end| rest.starts_with(end)))
        };
        assert_eq!(page.lines().filter(|line| begins(line)).count(), 1, "{}", param.name);
    }
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(page.lines().filter(|line| line.starts_with('|')).all(|line| cells(line) == 7));
}

#[test]
fn random_bytes_never_panic() {
    // xorshift64: the same bytes in every run.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let names: Vec<_> = params::all().map(|param| param.name).collect();
    let pieces = [
        "=", " ", "'", "\\", "#", "\n", "0", "9", "1e9", "-", ".", "kB", "min", "(", "[", "0x", "é", "\u{0}", ";", ",", "|", "''",
    ];
    for _ in 0..3000 {
        let mut bytes = Vec::new();
        for _ in 0..random(40) {
            match random(8) {
                0 => bytes.extend(names[random(names.len())].as_bytes()),
                1 => bytes.push(u8::try_from(random(256)).unwrap()),
                _ => bytes.extend(pieces[random(pieces.len())].as_bytes()),
            }
        }
        let outcome = read_bytes(&bytes);
        for problem in &outcome.problems {
            assert!(!problem.to_string().contains('\u{0}') && problem.message.len() < 2000, "{problem}");
        }
        if let Some(config) = outcome.config {
            config::show_all(&config, &Viewer::operator());
        }
    }
}

#[test]
fn a_catalog_is_made_anew_only_for_a_change_of_what_it_is_judged_by() {
    let of = |line: &str| read_bytes(format!("backend_hostname0 = 'a'\n{line}").as_bytes()).config.unwrap().routing;
    let before = of("read_only_function_list = 'f'");
    for (line, expected) in [
        ("read_only_function_list = 'f'", true),
        ("read_only_function_list = 'f'\nstatement_level_load_balance = on", true),
        ("read_only_function_list = 'g'", false),
        ("write_function_list = 'f'", false),
        ("read_only_function_list = 'f'\ncheck_unlogged_table = off", false),
    ] {
        assert_eq!(before.judges_as(&of(line)), expected, "{line}");
    }
}
