//! Failover with real servers, under a load that notes every acknowledged write. Each test has servers of its own.

mod anew;
mod another;
mod cuts;
mod faults;
mod group_clients;
mod group_configurations;
mod group_frozen;
mod group_operators;
mod group_shown;
mod group_takeovers;
pub mod grouped;
mod hosts;
mod late;
pub mod load;
mod moved;
mod names;
mod parameters;
mod promoted_twice;
mod strangers;
mod streams;
mod told;

use crate::support::faults::{Fault, Network};
use crate::support::ground::{Owned, cluster_with};
use crate::support::proxy::{Backend, pcp};
use crate::support::time::{check_never, let_pass};
use crate::support::{Proxy, Raw, has_programs, leave_out, wait_until};
use load::{Load, Outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::{Crew, Mode, Options, ReservedPort, Server, signal_process};

/// Weir promotes, looks every second, and knows the servers by their names.
const BUILTIN: &str = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
    health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nauto_failback = on\nauto_failback_interval = 0\n\
    failover_lag_max = -1\n";
const NAMES: &str = "backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\n\
    backend_application_name2 = 'standby2'\n";
/// Either standby acknowledges every commit.
const ANY: (&str, &str) = ("synchronous_standby_names", "ANY 1 (standby1, standby2)");
/// The rights that docs/failover.md names.
const RIGHTS: &str = "create role weir login replication; grant pg_monitor, pg_signal_backend to weir; \
    grant execute on function pg_promote(boolean, integer), pg_switch_wal(), pg_reload_conf(), pg_show_all_file_settings() to weir; \
    grant select on pg_file_settings to weir; \
    grant alter system on parameter primary_conninfo, default_transaction_read_only to weir";
const STREAMING: &str = "select count(*) from pg_stat_replication where state = 'streaming'";
const WHERE: &str = "select inet_server_port()";

/// Servers with a table that acknowledged writes go to.
pub fn servers(standbys: usize, conf: &[(&str, &str)]) -> Owned {
    let extra_conf = conf.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let cluster = cluster_with(Options { standbys, extra_conf, ..Options::default() });
    cluster.primary().query(weir_demo::SCHEMA).unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

fn before(cluster: &Owned, conf: &str) -> Proxy {
    let names: String = NAMES.lines().take(cluster.servers().len()).map(|line| format!("{line}\n")).collect();
    let proxy = Proxy::start(cluster, &format!("{conf}\n{names}"));
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    proxy
}

fn builtin(cluster: &Owned, more: &str) -> Proxy {
    before(cluster, &format!("{BUILTIN}{more}"))
}

/// The servers that take writes.
fn primaries(cluster: &Owned) -> Vec<&Server> {
    let is_primary = |server: &&Server| server.is_running() && server.in_recovery().is_ok_and(|recovers| !recovers);
    cluster.servers().iter().filter(is_primary).collect()
}

/// The promises of each failover: one primary, and no acknowledged write is missing but those that the log told of. Gives the primary.
fn check<'c>(name: &str, cluster: &'c Owned, proxy: &Proxy, outcome: &Outcome) -> &'c Server {
    let (gap, acknowledged) = (outcome.gap(), outcome.acknowledged.len());
    eprintln!("{name}: {} ms without writes, {acknowledged} acknowledged, {} sessions lost", gap.as_millis(), outcome.lost);
    let log = proxy.log();
    for line in log.lines().filter(|line| line.contains("is the primary after")) {
        eprintln!("  {line}");
    }
    let [new] = primaries(cluster)[..] else { panic!("{name}: one primary") };
    let missing = outcome.missing_on(new);
    assert!(missing.is_empty() || proxy.log().contains("lost: at most"), "{name}: {missing:?}");
    new
}

fn failovers(proxy: &Proxy) -> usize {
    proxy.log().matches("failover done").count()
}

/// A fence ends sessions, ours too.
fn wait_fenced(old: &Server) {
    wait_until("the old primary to be fenced", || {
        let shown = old.value("show default_transaction_read_only");
        let others =
            old.value("select count(*) from pg_stat_activity where application_name = 'weir_failover' and state = 'active'");
        shown.is_ok_and(|shown| shown == "on") && others.is_ok_and(|others| others == "0")
    });
}

fn wait_followed(primary: &Server, standbys: usize) {
    wait_until("standbys to follow the new primary", || primary.value(STREAMING).unwrap() == standbys.to_string());
}

#[test]
fn a_primary_that_is_killed_is_replaced_by_a_standby() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    let new = check("kill -9", &cluster, &proxy, &load.end());
    wait_followed(new, 1);
}

#[test]
fn with_synchronous_standbys_nothing_acknowledged_is_missing() {
    let cluster = servers(2, &[ANY]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    let new = check("kill -9, ANY 1", &cluster, &proxy, &outcome);
    assert!(outcome.missing_on(new).is_empty());
    assert!(proxy.log().contains("lost: nothing that was acknowledged"));
}

#[test]
fn a_primary_that_is_stopped_is_replaced_within_moments() {
    for mode in [Mode::Fast, Mode::Immediate] {
        let cluster = servers(2, &[]);
        let proxy = builtin(&cluster, "");
        let load = Load::begin(&proxy, 4);
        cluster.primary().stop(mode).unwrap();
        load.wait_acknowledged(100);
        let new = check(&format!("stop {mode:?}"), &cluster, &proxy, &load.end());
        wait_followed(new, 1);
    }
}

/// No client says anything, and the next look is a minute away: the connection that asks for roles tells.
#[test]
fn a_primary_that_is_stopped_without_traffic_is_replaced_at_once() {
    let slow = "health_check_period = 60\nsr_check_period = 60\n";
    for mode in [Mode::Fast, Mode::Immediate] {
        let cluster = servers(2, &[]);
        let proxy = builtin(&cluster, slow);
        // A server that goes while the roles are asked for at the start is found by the next look only.
        const ROUND: &str = "nodes are asked for their roles";
        const ASKED: &str = "select count(*) from pg_stat_activity where application_name like 'weir%' and state = 'active'";
        wait_until("the looks of the start to be over", || {
            proxy.log().matches(ROUND).count() >= 2 && cluster.primary().value(ASKED).is_ok_and(|asked| asked == "0")
        });
        let begun = std::time::Instant::now();
        cluster.primary().stop(mode).unwrap();
        wait_until("a standby to be the primary", || proxy.log().contains("is the primary after node 0"));
        eprintln!("stop {mode:?} without traffic: {} ms, the stop included", begun.elapsed().as_millis());
        assert!(begun.elapsed() < Duration::from_secs(20), "{mode:?}: it was the next look");
    }
}

/// The postmaster alone: no login is answered, and the connections that are open are as good as ever.
#[test]
fn a_primary_whose_postmaster_hangs_serves_those_who_are_connected() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    load.wait_acknowledged(50);
    let postmaster = Pid::from_raw(cluster.primary().pid().unwrap() as i32).unwrap();
    signal_process(postmaster, Signal::STOP).unwrap();
    wait_until("it to be named", || {
        proxy.log().contains("node 0 answers over open connections and no login in time when it is looked at")
    });
    let given_up = ["is given up", "quarantine", "writes wait: the primary is"];
    let begun = proxy.log().len();
    check_never("the primary is given up", Duration::from_secs(8), || {
        given_up.iter().any(|words| proxy.log()[begun..].contains(words))
    });
    load.wait_acknowledged(100);
    signal_process(postmaster, Signal::CONT).unwrap();
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert_eq!((outcome.lost, outcome.errors.len(), failovers(&proxy)), (0, 0, 0), "{:?}", outcome.errors);
    assert!(outcome.missing_on(cluster.primary()).is_empty());
}

#[test]
fn a_primary_that_hangs_is_replaced_and_gets_no_write_when_it_goes_on() {
    let cluster = servers(2, &[ANY]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    let old = cluster.primary();
    old.freeze();
    load.wait_acknowledged(100);
    old.thaw();
    wait_fenced(old);
    load.wait_acknowledged(100);
    let outcome = load.end();
    let log = proxy.log();
    let line = log.lines().find(|line| line.contains("is the primary after")).unwrap();
    eprintln!("SIGSTOP: {} ms without writes, {} lost\n  {line}", outcome.gap().as_millis(), outcome.lost);
    let mut both = primaries(&cluster);
    both.retain(|server| server.port() != old.port());
    let [new] = both[..] else { panic!("one new primary") };
    assert!(outcome.missing_on(new).is_empty());
    assert_eq!(proxy.console().value(&format!("begin; {WHERE}")), new.port().to_string());
}

#[test]
fn these_are_no_failovers() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    // Sessions that an administrator ends.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'insert into written%' and pid <> pg_backend_pid()";
    for _ in 0..3 {
        cluster.primary().query(end).unwrap();
        load.wait_acknowledged(50);
    }
    // A server process that is killed: the server starts anew and recovers.
    let text = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid() limit 1";
    let pid: i32 = cluster.primary().value(text).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    eprintln!(
        "crash restart: {} ms without writes, {} lost: {:?}",
        outcome.gap().as_millis(),
        outcome.lost,
        outcome.errors.first()
    );
    check_never("a failover happens", Duration::from_secs(3), || failovers(&proxy) > 0);
    assert_eq!(primaries(&cluster)[0].port(), cluster.primary().port());
    assert!(outcome.missing_on(cluster.primary()).is_empty());
}

/// Nobody is shown as what he is not when the sessions of the checks themselves are ended.
#[test]
fn sessions_of_checks_that_an_operator_ends_are_no_failover() {
    let cluster = servers(2, &[]);
    // One look decides.
    let strict = BUILTIN.replace("health_check_max_retries = 1\n", "health_check_max_retries = 0\n");
    let proxy = before(&cluster, &format!("{strict}failover_alone = on"));
    let load = Load::begin(&proxy, 4);
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    for server in cluster.servers().iter().chain(cluster.servers()) {
        server.query(end).unwrap();
        server.query(end).unwrap();
        load.wait_acknowledged(20);
    }
    let outcome = load.end();
    assert_eq!((failovers(&proxy), proxy.log().matches("is out of use: ").count()), (0, 0));
    assert!(outcome.missing_on(cluster.primary()).is_empty());
}

/// After a connection broke the primary is looked at. A server that lets no look in answers all the same.
#[test]
fn a_primary_that_lets_no_look_in_keeps_its_writes_when_a_connection_breaks() {
    let cluster = servers(2, &[]);
    let primary = cluster.primary();
    primary.query("create database checks").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = builtin(&cluster, "health_check_user = 'postgres'\nhealth_check_database = 'checks'\n");
    let mut clients = [proxy.console(), proxy.console()];
    clients.iter_mut().for_each(|client| client.run("begin; insert into written values (1)"));
    clients[1].run("commit");
    let pid = clients[0].value("select pg_backend_pid()");
    primary.query("alter database checks allow_connections false").unwrap();
    wait_until("a look to be refused", || proxy.log().contains("node 0 answers with an error when it is looked at"));
    primary.query(&format!("select pg_terminate_backend({pid})")).unwrap();
    assert_eq!(clients[0].error("select 1").sqlstate, "40001");
    for number in 0..20 {
        clients[1].run(&format!("insert into written values ({})", number + 10));
    }
    assert!(proxy.log().contains("a connection to the primary broke; it is looked at"), "writes waited for the look");
    let looks = proxy.console().rows("show pool_failover");
    assert!(looks.iter().any(|row| row[0] == "look" && row[4] == "node 0 answers with an error"), "{looks:?}");
    assert_eq!(failovers(&proxy), 0);
}

#[test]
fn an_old_primary_that_comes_back_is_fenced_and_a_copy_of_the_new_one_is_used_again() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 2);
    let old = cluster.primary();
    old.kill9().unwrap();
    load.wait_acknowledged(100);
    let started = Instant::now();
    old.start().unwrap();
    wait_fenced(old);
    load.wait_acknowledged(200);
    // It may have those of before.
    let noted = load.noted();
    let is_late = |(_, at): &&(i64, Instant)| *at > started;
    let late = noted.acknowledged.iter().filter(is_late).count();
    assert_eq!(noted.missing_on(old).iter().filter(is_late).count(), late, "it gets no write");
    let new = primaries(&cluster).into_iter().find(|server| server.port() != old.port()).unwrap();
    old.clone_from(new).unwrap();
    wait_until("all nodes to be in use", || proxy.nodes("status") == ["up", "up", "up"]);
    wait_until("its copy to be unfenced", || old.value("show default_transaction_read_only").unwrap() == "off");
    let outcome = load.end();
    check("the old one came back", &cluster, &proxy, &outcome);
}

#[test]
fn a_second_primary_that_fails_is_replaced_too() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "failover_alone = on");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    let second = primaries(&cluster)[0];
    wait_followed(second, 1);
    wait_until("the standby to be known", || failovers(&proxy) == 1);
    second.kill9().unwrap();
    load.wait_acknowledged(100);
    check("two in a row", &cluster, &proxy, &load.end());
    assert_eq!(failovers(&proxy), 2);
}

#[test]
fn a_proxy_that_dies_in_the_middle_ends_what_it_began() {
    for after_ms in [30, 80, 150, 250] {
        let cluster = servers(2, &[ANY]);
        let mut proxy = builtin(&cluster, "");
        let load = Load::begin(&proxy, 2);
        cluster.primary().kill9().unwrap();
        let_pass(Duration::from_millis(after_ms));
        proxy.crash_and_start();
        load.wait_acknowledged(100);
        let outcome = load.end();
        let [new] = primaries(&cluster)[..] else { panic!("one primary") };
        eprintln!("Weir killed after {after_ms} ms: {} ms without writes", outcome.gap().as_millis());
        assert!(outcome.missing_on(new).is_empty());
        wait_followed(new, 1);
    }
}

/// The servers know each other by other ports than the proxy does, too.
#[test]
fn a_primary_that_only_the_proxy_does_not_reach_is_not_replaced() {
    let cluster = servers(2, &[]);
    let network = Network::to(cluster.primary().port());
    let ports = [network.port(), cluster.standbys()[0].port(), cluster.standbys()[1].port()];
    let backends: Vec<Backend> = ports.iter().map(|port| Backend::tcp(*port, 1)).collect();
    let proxy = Proxy::spawn(&backends, &format!("{BUILTIN}failover_alone = on\n{NAMES}"));
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    let load = Load::begin(&proxy, 2);
    // The primary has something to tell its standbys all the time.
    let writes = |number: i32| cluster.primary().query(&format!("insert into written values ({number})")).unwrap();
    network.set_both(Fault::BlackHole);
    let mut number = 0;
    wait_until("the primary to be quarantined", || {
        number -= 1;
        writes(number);
        proxy.log().contains("=== Starting quarantine")
    });
    check_never("a standby is promoted", Duration::from_secs(3), || {
        number -= 1;
        writes(number);
        primaries(&cluster).len() > 1
    });
    network.set_both(Fault::None);
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert!(outcome.missing_on(cluster.primary()).is_empty());
    assert_eq!((outcome.lost, failovers(&proxy)), (0, 0));
}

#[test]
fn two_proxies_before_the_same_servers_agree() {
    for sync in [&[][..], &[ANY]] {
        let cluster = servers(2, sync);
        let (one, other) = (builtin(&cluster, ""), builtin(&cluster, ""));
        let loads = [Load::begin(&one, 2), Load::begin(&other, 2)];
        cluster.primary().kill9().unwrap();
        loads.iter().for_each(|load| load.wait_acknowledged(100));
        for (load, proxy) in loads.into_iter().zip([&one, &other]) {
            let outcome = load.end();
            let new = check("two proxies", &cluster, proxy, &outcome);
            assert!(sync.is_empty() || outcome.missing_on(new).is_empty());
            assert_eq!(proxy.console().value(&format!("begin; {WHERE}")), new.port().to_string());
        }
    }
}

#[test]
fn a_user_with_no_more_than_the_documented_rights_promotes_and_fences() {
    let cluster = servers(2, &[]);
    if cluster.primary().programs().major() < 15 {
        return leave_out("ALTER SYSTEM by others than superusers needs PostgreSQL 15");
    }
    cluster.primary().query(RIGHTS).unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = builtin(&cluster, "health_check_user = 'weir'");
    let load = Load::begin(&proxy, 2);
    let old = cluster.primary();
    old.kill9().unwrap();
    load.wait_acknowledged(100);
    let new = check("a user with few rights", &cluster, &proxy, &load.end());
    wait_followed(new, 1);
    old.start().unwrap();
    wait_fenced(old);
}

#[test]
fn the_forecast_and_the_history_are_shown() {
    let cluster = servers(2, &[ANY]);
    let proxy = builtin(&cluster, "");
    let shown = || proxy.console().rows("show pool_failover");
    wait_until("the forecast to name a standby", || shown()[0][4].contains("would be promoted"));
    assert!(shown()[0][4].ends_with("lost: nothing that was acknowledged"), "{:?}", shown());
    cluster.primary().kill9().unwrap();
    wait_until("the failover to be shown", || shown().iter().any(|row| row[0] == "failover"));
    let rows: Vec<Vec<String>> = shown().into_iter().filter(|row| row[0] != "look").collect();
    assert_eq!((rows[1][0].as_str(), rows[1][2].as_str(), rows[2][0].as_str()), ("failover", "0", "start"), "{rows:?}");
    // A killed server ends connections first, and refuses them then: either may be what the check meets.
    let is_told = ["refuses connections", "ended the connection", "cannot be reached"].iter().any(|why| rows[1][4].contains(why));
    assert!(is_told, "{rows:?}");
    wait_until("the lost node to be shown as down", || proxy.nodes("status")[0] == "down");
    wait_until("its last look to be shown", || {
        shown().iter().any(|row| row[0] == "look" && row[4] == "node 0 refuses connections")
    });
}

#[test]
fn a_client_that_asks_is_shown_the_nodes_as_they_are_then() {
    let cluster = servers(1, &[]);
    // Nobody looks by itself in time.
    let calm = BUILTIN.replace("health_check_period = 1\n", "health_check_period = 600\nsr_check_period = 600\n");
    let proxy = before(&cluster, &format!("{calm}failover_alone = on"));
    let standby = &cluster.servers()[1];
    standby.stop(Mode::Fast).unwrap();
    // Nobody but who asks has them looked at. On a busy machine the answer may not wait long enough.
    wait_until("the standby to be shown as down", || proxy.nodes("status") == ["up", "down"]);
    standby.start().unwrap();
    wait_until("the standby to be used again", || proxy.nodes("status") == ["up", "up"]);
    wait_followed(cluster.primary(), 1);
    cluster.primary().stop(Mode::Fast).unwrap();
    wait_until("the new primary to be shown", || proxy.nodes("role") == ["standby", "primary"]);
    assert_eq!(proxy.nodes("status"), ["down", "up"]);
}

#[test]
fn without_looks_at_roles_none_is_claimed() {
    let cluster = servers(1, &[]);
    let proxy = before(&cluster, "sr_check_period = 0");
    assert_eq!((proxy.nodes("role"), proxy.nodes("pg_role")), (texts(["primary", "standby"]), texts(["unknown", "unknown"])));
}

fn texts<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_string).to_vec()
}

#[test]
fn the_command_of_the_operator_promotes() {
    let cluster = servers(2, &[]);
    let bin = cluster.primary().programs().bin().display().to_string();
    let script = format!(
        "#!/bin/sh\necho \"lost $1, new $2 at $3:$4\"\n\
         exec setpriv --reuid=$(stat -c %u $5) --regid=$(stat -c %g $5) --clear-groups {bin}/pg_ctl -D $5 promote\n"
    );
    let folder = cluster.dir().join("promote.sh");
    std::fs::write(&folder, script).unwrap();
    let mut conf = BUILTIN.replace("failover_mode = builtin\n", "");
    conf += &format!("failover_command = 'sh {} %d %m %H %r %R'\n", folder.display());
    for (at, server) in cluster.servers().iter().enumerate() {
        conf += &format!("backend_data_directory{at} = '{}'\n", server.data_dir().display());
    }
    let proxy = before(&cluster, &conf);
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    check("command", &cluster, &proxy, &outcome);
    let log = proxy.log();
    for words in [
        "=== Starting degeneration. shutdown host 127.0.0.1",
        "execute command: sh",
        "failover_command: lost 0, new",
        "failover done",
    ] {
        assert!(log.contains(words), "{words}");
    }
}

/// Weir with PCP, and the file of the password for it.
fn with_pcp(cluster: &Owned, conf: &str, port: &ReservedPort) -> (Proxy, PathBuf) {
    let passfile = cluster.dir().join("pcppass");
    std::fs::write(&passfile, "*:*:admin:secret\n").unwrap();
    std::fs::set_permissions(&passfile, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let number = port.number();
    let conf = format!("{conf}{NAMES}pcp_listen_addresses = '127.0.0.1'\npcp_port = {number}\npcp_socket_dir = ''\n");
    let all: Vec<&Server> = cluster.servers().iter().collect();
    let users = "admin:5ebe2294ecd0e0f08eab7690d2a6ee69\n";
    let proxy = Proxy::with_files(&all, &conf, &[("pcp.conf", users)], &[]);
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    (proxy, passfile)
}

#[test]
fn a_command_that_fails_gives_the_writes_back_to_the_primary_that_made_room() {
    let cluster = servers(2, &[]);
    let mut conf = BUILTIN.replace("failover_mode = builtin\n", "");
    conf += "failover_command = 'echo no %d %m; exit 3'\n";
    let port = ReservedPort::any().unwrap();
    let (proxy, passfile) = with_pcp(&cluster, &conf, &port);
    let load = Load::begin(&proxy, 4);
    let begun = Instant::now();
    let asked = pcp(port.number(), &passfile, &["promote-node", "-s", "-n", "2"]);
    let told = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && told.contains("failover_command failed, and node 0 is attached again"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(60), "it is no limit that ran out");
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert_eq!((failovers(&proxy), outcome.lost), (0, 0));
    assert_eq!(proxy.nodes("role"), ["primary", "standby", "standby"]);
}

/// Scripts in the way of Pgpool-II's: one promotes, the other rewinds each other node and has it follow.
#[test]
fn the_commands_of_the_operator_move_a_working_primary_and_nothing_fails() {
    let cluster = servers(2, &[("wal_log_hints", "on"), ("full_page_writes", "on")]);
    if !has_programs(cluster.primary(), &["pg_rewind", "psql"]) {
        return;
    }
    let bin = cluster.primary().programs().bin().display().to_string();
    let port = ReservedPort::any().unwrap();
    let own = |place: &str| format!("setpriv --reuid=$(stat -c %u {place}) --regid=$(stat -c %g {place}) --clear-groups");
    let promote = format!("#!/bin/sh\nexec {} {bin}/pg_ctl -D $1 -w promote\n", own("$1"));
    let follow = format!(
        "#!/bin/sh\nset -e\nas=\"{}\"\nfrom=\"host=127.0.0.1 port=$4 user=postgres\"\n{bin}/psql \"$from dbname=postgres\" -c checkpoint\n\
         $as {bin}/pg_ctl -D $3 -w -m fast stop\n$as {bin}/pg_rewind -D $3 --source-server=\"$from dbname=postgres\"\n\
         echo \"port = $2\nprimary_conninfo = '$from application_name=node$1'\" >> $3/postgresql.auto.conf\n\
         $as touch $3/standby.signal\n$as {bin}/pg_ctl -D $3 -w -l /dev/null start\n\
         PCPPASSFILE=$5 {} pcp attach-node -h 127.0.0.1 -p {} -U admin -w -n $1\n",
        own("$3"),
        env!("CARGO_BIN_EXE_weir"),
        port.number()
    );
    let place = |name: &str| cluster.dir().join(name).display().to_string();
    for (name, text) in [("promote.sh", &*promote), ("follow.sh", &*follow)] {
        std::fs::write(place(name), text).unwrap();
    }
    let mut conf = BUILTIN.replace("failover_mode = builtin\n", "").replace("auto_failback = on", "auto_failback = off");
    conf += &format!("failover_command = 'sh {} %R'\n", place("promote.sh"));
    conf += "switchover_transaction_limit = 1h\n";
    conf += &format!("follow_primary_command = 'sh {} %d %p %D %r {}'\n", place("follow.sh"), place("pcppass"));
    for (at, server) in cluster.servers().iter().enumerate() {
        conf += &format!("backend_data_directory{at} = '{}'\n", server.data_dir().display());
    }
    let (proxy, passfile) = with_pcp(&cluster, &conf, &port);
    let load = Load::with(&proxy, Crew { writers: 4, transactions: 4, readers: 4, idle: 4, ..Crew::default() });
    // A long read on a standby holds nobody up, whatever open transactions are given.
    let mut reader = proxy.console();
    reader.run("set weir.route = 'node=2'");
    reader.run("begin isolation level repeatable read read only");
    assert_eq!(reader.value("select pg_is_in_recovery()"), "t");
    let number = port.number();
    let asked = thread::spawn(move || pcp(number, &passfile, &["promote-node", "-s", "-n", "1"]));
    wait_until("the switchover", || asked.is_finished());
    let asked = asked.join().unwrap();
    assert!(asked.status.success(), "{asked:?}\n{}", proxy.log());
    load.wait_acknowledged(100);
    wait_until("all nodes to be in use", || proxy.nodes("status").iter().all(|status| status == "up"));
    let outcome = load.end();
    eprintln!("by commands: {:?}", outcome.gap());
    let none: [(String, String); 0] = [];
    assert_eq!((&outcome.errors[..], &outcome.failed_reads[..]), (&none[..], &none[..]), "{}", proxy.log());
    assert_eq!((outcome.disconnected, proxy.nodes("role")[1].as_str()), (0, "primary"));
    let [new] = primaries(&cluster)[..] else { panic!("one primary") };
    assert!(outcome.missing_on(new).is_empty());
}

#[test]
fn with_one_standby_the_proxy_that_is_alone_promotes_it() {
    let cluster = servers(1, &[]);
    let proxy = builtin(&cluster, "failover_alone = on");
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(100);
    check("one standby", &cluster, &proxy, &load.end());
}

#[test]
fn idle_clients_and_their_sessions_outlive_a_failover() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "");
    let mut idle: Vec<Raw> = (0..20).map(|_| proxy.console()).collect();
    for client in &mut idle {
        client.run("set application_name = 'kept'");
        client.run("insert into written values (0)");
    }
    cluster.primary().kill9().unwrap();
    wait_until("the failover to be done", || failovers(&proxy) == 1);
    for client in &mut idle {
        client.run("insert into written values (1)");
        assert_eq!(client.value("begin; show application_name"), "kept");
        client.run("commit");
    }
    is_one_primary(&cluster);
}

fn is_one_primary(cluster: &Owned) {
    assert_eq!(primaries(cluster).len(), 1);
}
