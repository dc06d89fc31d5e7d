//! Parameters of Pgpool-II that say which nodes count, as its users set them.

use super::load::Load;
use super::{ANY, BUILTIN, NAMES, before, builtin, check, failovers, primaries, servers, wait_followed, with_pcp};
use crate::support::proxy::{Backend, pcp};
use crate::support::raw::tags;
use crate::support::time::check_never;
use crate::support::wire::query;
use crate::support::{Proxy, Raw, wait_until};
use std::time::{Duration, Instant};
use weir_demo::{Crew, Mode, ReservedPort, Server};

fn admin(proxy: &Proxy) -> Raw {
    Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap()
}

fn promote_by_accident(standby: &Server) {
    standby.query("select pg_promote()").unwrap();
    wait_until("the standby to be a primary", || standby.in_recovery().is_ok_and(|recovers| !recovers));
}

#[test]
fn a_standby_that_is_promoted_by_accident_gets_no_write_and_is_detached_on_wish() {
    for (conf, expected) in [("detach_false_primary = off", "up"), ("detach_false_primary = on", "down")] {
        let cluster = servers(2, &[]);
        let proxy = builtin(&cluster, &format!("{conf}\nauto_failback = off\n"));
        let load = Load::begin(&proxy, 2);
        let false_primary = &cluster.standbys()[0];
        promote_by_accident(false_primary);
        wait_until("it to be named", || proxy.log().contains("node 1 calls itself primary, too"));
        load.wait_acknowledged(50);
        wait_until(conf, || proxy.nodes("status")[1] == expected);
        let outcome = load.end();
        assert_eq!((outcome.lost, outcome.errors.len(), failovers(&proxy)), (0, 0, 0), "{conf}: {:?}", outcome.errors);
        assert!(outcome.missing_on(cluster.primary()).is_empty(), "{conf}");
        assert_eq!(proxy.nodes("role"), ["primary", "standby", "standby"], "{conf}");
    }
}

#[test]
fn a_primary_by_configuration_is_never_replaced() {
    for flag in ["ALWAYS_PRIMARY", "DISALLOW_TO_FAILOVER", "ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER"] {
        let cluster = servers(2, &[]);
        let proxy = builtin(&cluster, &format!("failover_alone = on\nbackend_flag0 = '{flag}'\nfailover_wait = 60s\n"));
        let load = Load::begin(&proxy, 2);
        cluster.primary().kill9().unwrap();
        check_never("a standby is promoted", Duration::from_secs(4), || {
            cluster.standbys().iter().any(|standby| standby.in_recovery().is_ok_and(|recovers| !recovers))
        });
        cluster.primary().start().unwrap();
        load.wait_acknowledged(50);
        let outcome = load.end();
        assert!(outcome.missing_on(cluster.primary()).is_empty(), "{flag}");
        assert_eq!((outcome.lost, failovers(&proxy)), (0, 0), "{flag}");
    }
}

/// It is not replaced, and reads do not wait for it: those of new sessions, and those of old ones, whatever server they read at. With causal reads a
/// session that read at the primary must see as much again, which nobody may have: it waits.
#[test]
fn reads_leave_a_dead_primary_that_may_not_be_replaced() {
    for (flag, causal) in [("ALWAYS_PRIMARY", "off"), ("DISALLOW_TO_FAILOVER", "off"), ("DISALLOW_TO_FAILOVER", "session")] {
        let name = format!("{flag}, causal_reads = {causal}");
        let cluster = servers(2, &[]);
        // A read that waited for the primary would end the test.
        let conf = format!(
            "failover_alone = on\nbackend_flag0 = '{flag}'\nbackend_weight0 = 1\ncausal_reads = {causal}\nfailover_wait = 600s\n"
        );
        let proxy = builtin(&cluster, &conf);
        let log_in = || Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
        let primary = cluster.primary().port().to_string();
        let at = |client: &mut Raw| client.value("select inet_server_port() from readable");
        let (mut old, mut before): (Vec<Raw>, Vec<String>) = Default::default();
        wait_until("twelve sessions, one of them at the primary", || {
            old.push(log_in());
            before.extend(old.last_mut().map(at));
            old.len() >= 12 && before.contains(&primary)
        });
        cluster.primary().kill9().unwrap();
        for (session, before) in old.iter_mut().zip(before).filter(|(_, before)| causal == "off" || *before != primary) {
            assert_ne!(at(session), primary, "{name}: a session that read at {before}");
        }
        for _ in 0..12 {
            assert_ne!(at(&mut log_in()), primary, "{name}: a new session");
        }
        wait_until("the primary to be down", || proxy.nodes("status") == ["down", "up", "up"]);
        let mut writer = log_in();
        writer.send(&query("insert into written values (7)"));
        assert!(writer.is_silent_for(Duration::from_millis(500)), "{name}: a write waits");
        cluster.primary().start().unwrap();
        assert_eq!(tags(&writer.until_ready()), "CZ", "{name}: it goes on without an operator");
        wait_until("the primary to be read again", || (0..12).any(|_| at(&mut log_in()) == primary));
        assert_eq!(failovers(&proxy), 0, "{name}");
    }
}

#[test]
fn a_standby_that_streams_again_waits_for_the_operator_and_the_log_says_so() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "auto_failback = off\n");
    wait_until("all to be up", || proxy.nodes("status") == ["up", "up", "up"]);
    cluster.standbys()[1].kill9().unwrap();
    wait_until("the standby to be given up", || proxy.log().contains("node 2 is out of use"));
    cluster.standbys()[1].start().unwrap();
    let told = || proxy.log().matches("node 2: it streams from the primary and is out of use: attach it").count();
    wait_until("the log to say what is to be done", || told() > 0);
    assert_eq!(proxy.nodes("status"), ["up", "up", "down"]);
    admin(&proxy).run("attach 2");
    wait_until("the standby to be used", || proxy.nodes("status") == ["up", "up", "up"]);
    assert_eq!(told(), 1);
}

#[test]
fn a_node_that_was_detached_stays_so_over_a_restart_unless_the_status_is_discarded() {
    let cluster = servers(2, &[]);
    let mut proxy = builtin(&cluster, "");
    admin(&proxy).run("detach 2");
    wait_until("the node to be detached", || proxy.nodes("status") == ["up", "up", "down"]);
    proxy.crash_and_start();
    proxy.wait_accepting();
    check_never("it is used", Duration::from_secs(2), || proxy.nodes("status")[2] != "down");
    let status = proxy.folder().join("pgpool_status");
    let text = std::fs::read_to_string(&status).unwrap();
    assert_eq!(text, "up\nup\ndown\n");
    // As `-D` does.
    std::fs::remove_file(status).unwrap();
    proxy.crash_and_start();
    proxy.wait_accepting();
    wait_until("the node to be used", || proxy.nodes("status") == ["up", "up", "up"]);
    // Another Weir has the file only.
    let backends: Vec<Backend> = cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect();
    let files = [("pgpool_status", text.as_str())];
    let next = Proxy::spawn_with_files(&backends, &format!("{BUILTIN}{NAMES}auto_failback = off\n"), &files, &[]);
    next.wait_accepting();
    wait_until("the node to be kept out", || next.nodes("status") == ["up", "up", "down"]);
}

/// The script hangs. Pgpool's own tools go on, and so do reads.
#[test]
fn pcp_is_served_while_a_command_hangs() {
    let cluster = servers(2, &[]);
    let conf = BUILTIN.replace("failover_mode = builtin\n", "");
    let port = ReservedPort::any().unwrap();
    let (proxy, passfile) = with_pcp(
        &cluster,
        &format!("{conf}backend_weight0 = 0\nfailover_wait = 5s\nfailover_command = 'exec sleep 300'\n"),
        &port,
    );
    // Sessions that spoke to the primary last wait for the next one.
    wait_until("reads to go to standbys", || {
        let port = proxy.console().value("select inet_server_port() from readable");
        cluster.standbys().iter().any(|standby| standby.port().to_string() == port)
    });
    let load = Load::with(&proxy, Crew { writers: 1, readers: 2, ..Crew::default() });
    cluster.primary().kill9().unwrap();
    wait_until("the command to run", || proxy.log().contains("execute command: exec sleep 300"));
    let begun = Instant::now();
    for arguments in [&["node-count"][..], &["node-info", "-n", "1"], &["detach-node", "-n", "2"], &["attach-node", "-n", "2"]] {
        let asked = pcp(port.number(), &passfile, arguments);
        assert!(asked.status.success(), "{arguments:?}: {asked:?}");
    }
    let reads = load.noted().reads;
    wait_until("reads to go on", || load.noted().reads > reads + 100);
    eprintln!("reads went on after {} ms", begun.elapsed().as_millis());
    assert!(begun.elapsed() < Duration::from_secs(60));
    let outcome = load.end();
    assert_eq!((outcome.failed_reads.len(), failovers(&proxy)), (0, 0), "{:?}", outcome.failed_reads);
}

/// Clients are asked to leave, which those of Weir do not: their sessions on the server end with the failover.
#[test]
fn a_primary_that_stops_once_its_clients_leave_is_replaced() {
    let cluster = servers(2, &[ANY]);
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 4);
    cluster.primary().stop(Mode::Smart).unwrap();
    load.wait_acknowledged(100);
    let outcome = load.end();
    let new = check("stop Smart", &cluster, &proxy, &outcome);
    assert!(outcome.missing_on(new).is_empty());
    wait_followed(new, 1);
}

#[test]
fn slots_of_standbys_are_made_on_the_new_primary() {
    let cluster = servers(2, &[]);
    for (at, standby) in cluster.standbys().iter().enumerate() {
        let slot = format!("slot_{at}");
        cluster.primary().query(&format!("select pg_create_physical_replication_slot('{slot}')")).unwrap();
        standby.query(&format!("alter system set primary_slot_name = '{slot}'")).unwrap();
        standby.query("select pg_reload_conf()").unwrap();
    }
    wait_until("the slots to be used", || {
        cluster.primary().value("select count(*) from pg_replication_slots where active").is_ok_and(|count| count == "2")
    });
    let proxy = builtin(&cluster, "");
    let load = Load::begin(&proxy, 2);
    cluster.primary().kill9().unwrap();
    load.wait_acknowledged(50);
    let new = check("with slots", &cluster, &proxy, &load.end());
    wait_followed(new, 1);
    assert_eq!(new.value("select string_agg(active::text, ' ') from pg_replication_slots").unwrap(), "true");
}

/// The rule names its standbys as users do.
#[test]
fn synchronous_standbys_are_found_by_any_spelling_of_the_rule() {
    for rule in ["FIRST 1 (\"standby1\", STANDBY2)", "2 (standby1, standby2)", "standby2, standby1"] {
        let cluster = servers(2, &[("synchronous_standby_names", rule)]);
        let proxy = builtin(&cluster, "");
        let load = Load::begin(&proxy, 2);
        cluster.primary().kill9().unwrap();
        wait_until("a standby to be promoted", || !primaries(&cluster).is_empty());
        let new = primaries(&cluster)[0];
        // The rule names the new primary, too, which acknowledges nothing.
        new.query("alter system set synchronous_standby_names = ''").unwrap();
        new.query("select pg_reload_conf()").unwrap();
        load.wait_acknowledged(50);
        let outcome = load.end();
        check(rule, &cluster, &proxy, &outcome);
        assert!(outcome.missing_on(new).is_empty(), "{rule}");
        assert!(proxy.log().contains("lost: nothing that was acknowledged"), "{rule}");
    }
}

#[test]
fn the_file_for_tests_takes_a_node_out_and_gives_it_back() {
    let cluster = servers(2, &[]);
    let proxy = builtin(&cluster, "health_check_test = on\n");
    let load = Load::begin(&proxy, 2);
    proxy.write_file("backend_down_request", "2\tdown\n");
    wait_until("the node to be out of use", || proxy.nodes("status") == ["up", "up", "down"]);
    load.wait_acknowledged(50);
    std::fs::remove_file(proxy.folder().join("backend_down_request")).unwrap();
    wait_until("the node to be used again", || proxy.nodes("status") == ["up", "up", "up"]);
    let outcome = load.end();
    assert_eq!((outcome.lost, outcome.errors.len()), (0, 0), "{:?}", outcome.errors);
}

/// Broken connections say nothing then: only checks do.
#[test]
fn connections_that_break_do_not_count_where_they_are_not_to() {
    let cluster = servers(2, &[]);
    let calm = BUILTIN.replace("failover_on_backend_shutdown = on\n", "failover_on_backend_shutdown = off\n");
    let calm = calm.replace("health_check_max_retries = 1\n", "health_check_max_retries = 30\n");
    let proxy = before(&cluster, &format!("{calm}failover_on_backend_error = off\nfailover_wait = 60s\n"));
    let load = Load::begin(&proxy, 2);
    cluster.primary().stop(Mode::Fast).unwrap();
    check_never("a standby is promoted", Duration::from_secs(3), || !primaries(&cluster).is_empty());
    cluster.primary().start().unwrap();
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert_eq!((outcome.lost, failovers(&proxy)), (0, 0), "{:?}", outcome.errors);
    assert!(outcome.missing_on(cluster.primary()).is_empty());
}
