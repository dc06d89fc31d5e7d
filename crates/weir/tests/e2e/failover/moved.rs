//! One address that leads to another server now: a name or a service address that moves to the standby that was promoted. The server of before goes on as
//! a standby, so that its connections stay.

use crate::support::faults::Network;
use crate::support::ground::{Owned, cluster};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until};
use std::fs;
use std::time::Instant;
use weir_demo::{Mode, Server};

const SESSIONS: usize = 4;
/// Looks are so far apart that a refused write shows first that the address has moved.
const SELDOM: &str = "sr_check_period = 300s\nhealth_check_period = 0\n";

/// A primary behind an address, and its standby.
struct Scene {
    cluster: Owned,
    address: Network,
    proxy: Proxy,
}

impl Scene {
    fn new(conf: &str, others: &[u16]) -> Scene {
        let cluster = cluster(1);
        cluster.primary().query("create table written (a int)").unwrap();
        cluster.wait_caught_up().unwrap();
        let address = Network::to(cluster.primary().port());
        let ports = std::iter::once(address.port()).chain(others.iter().copied());
        let backends: Vec<Backend> = ports.map(|port| Backend::tcp(port, 1)).collect();
        let proxy = Proxy::spawn(&backends, &format!("pool_size = {SESSIONS}\n{conf}"));
        wait_until("a write", || {
            log_in(&proxy).is_some_and(|mut client| client.try_rows("insert into written values (0)").is_ok())
        });
        Scene { cluster, address, proxy }
    }

    fn old(&self) -> &Server {
        self.cluster.primary()
    }

    fn new_primary(&self) -> &Server {
        &self.cluster.standbys()[0]
    }

    /// The old primary is started again as a standby.
    fn demote(&self) {
        self.cluster.wait_caught_up().unwrap();
        self.old().stop(Mode::Fast).unwrap();
        fs::write(self.old().data_dir().join("standby.signal"), "").unwrap();
        self.old().start().unwrap();
    }

    /// Sessions that have a server connection each, all to the standby.
    fn sessions_on_standby(&self) -> Vec<Raw> {
        let mut sessions = Vec::new();
        wait_until("sessions", || {
            sessions.extend(log_in(&self.proxy));
            sessions.len() >= SESSIONS
        });
        for session in &mut sessions {
            wait_until("the standby to be reached", || session.try_rows("begin").is_ok() && in_recovery(session));
        }
        sessions.iter_mut().for_each(|session| session.run("commit"));
        sessions
    }

    fn move_address(&self) {
        self.new_primary().promote().unwrap();
        self.address.lead_to(self.new_primary().port());
    }

    /// Every session is on the new primary, and writes there.
    fn check_moved(&self, sessions: &mut [Raw]) {
        let before = self.new_primary().value("select count(*) from written").unwrap();
        let mut at_once: Vec<&mut Raw> = sessions.iter_mut().collect();
        at_once.iter_mut().for_each(|session| session.run("begin"));
        for session in &mut at_once {
            assert_eq!(session.value("select inet_server_port()"), self.new_primary().port().to_string());
            session.run("insert into written values (2)");
        }
        at_once.iter_mut().for_each(|session| session.run("commit"));
        let after = self.new_primary().value("select count(*) from written").unwrap();
        assert_eq!(after.parse::<usize>().unwrap(), before.parse::<usize>().unwrap() + sessions.len());
    }
}

fn log_in(proxy: &Proxy) -> Option<Raw> {
    Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).ok()
}

fn in_recovery(session: &mut Raw) -> bool {
    session.try_rows("select pg_is_in_recovery()").is_ok_and(|rows| rows == [[Some("t".to_owned())]])
}

/// One refused write is enough: connections to the server of before are left.
fn check_left_after_a_refusal(conf: &str, others: &[u16]) {
    let scene = Scene::new(&format!("{conf}{SELDOM}"), others);
    scene.demote();
    let mut sessions = scene.sessions_on_standby();
    scene.move_address();
    // A client hears of it once, and again only where it is faster than the new connection that tells of the move: each refusal closes its connection.
    let mut refusals = 0;
    while let Err(refused) = sessions[0].try_rows("insert into written values (1)") {
        assert_eq!(refused.sqlstate, "25006", "{conf}");
        refusals += 1;
        assert!(refusals <= sessions.len(), "{conf}: as many writes are refused as there were connections");
    }
    scene.check_moved(&mut sessions);
}

#[test]
fn a_server_that_is_a_standby_by_now_is_left_after_a_refused_write_in_raw_mode() {
    check_left_after_a_refusal("backend_clustering_mode = raw\n", &[]);
}

#[test]
fn a_server_that_is_a_standby_by_now_is_left_after_a_refused_write_where_the_operator_names_the_primary() {
    check_left_after_a_refusal("backend_flag0 = 'ALWAYS_PRIMARY'\n", &[]);
}

#[test]
fn a_write_that_can_be_sent_again_reaches_the_new_server_by_itself() {
    // Where there are several nodes, messages are kept until a server answers.
    let scene = Scene::new(&format!("backend_clustering_mode = raw\n{SELDOM}"), &[1]);
    scene.demote();
    let mut sessions = scene.sessions_on_standby();
    scene.move_address();
    sessions[0].run("insert into written values (1)");
    scene.check_moved(&mut sessions);
}

#[test]
fn writes_on_a_server_that_stays_a_standby_close_no_connection_of_others() {
    let scene = Scene::new(&format!("backend_clustering_mode = raw\n{SELDOM}"), &[]);
    scene.demote();
    let mut sessions = scene.sessions_on_standby();
    let (opened, begun) = (scene.proxy.metric("server_connections_opened_total"), Instant::now());
    for _ in 0..200 {
        assert_eq!(sessions[0].error("insert into written values (1)").sqlstate, "25006");
        assert!(in_recovery(&mut sessions[1]));
    }
    // Once a second a refused write has two connections closed: its own one, and one in the place of which another is opened.
    let seconds = begun.elapsed().as_secs() + 2;
    assert!(scene.proxy.metric("server_connections_opened_total") - opened <= 2 * seconds);
}

/// Nobody writes: looks show that the address has moved.
#[test]
fn reads_leave_a_server_that_a_look_does_not_find_any_more() {
    let scene = Scene::new("backend_clustering_mode = raw\n", &[]);
    scene.demote();
    let mut sessions = scene.sessions_on_standby();
    scene.move_address();
    wait_until("reads to move", || !in_recovery(&mut sessions[0]));
    scene.check_moved(&mut sessions);
}

/// Lines of the log that a move may take. A step that repeats itself writes thousands a second.
const LINES_MAX: usize = 100;

#[test]
fn one_service_name_that_moves_to_the_promoted_standby_gets_writes_again_in_every_mode() {
    for mode in ["follow", "off", "command", "builtin"] {
        let command = if mode == "command" { "failover_command = '/bin/true'\n" } else { "" };
        let conf = format!("{command}failover_mode = {mode}\nfailover_alone = on\nhealth_check_period = 1\n");
        let scene = Scene::new(&conf, &[]);
        let mut client = log_in(&scene.proxy).unwrap();
        scene.demote();
        wait_until("the standby to be seen", || scene.proxy.log().contains("writes wait"));
        let lines = scene.proxy.log().lines().count();
        scene.move_address();
        wait_until("a write to go on", || client.try_rows("insert into written values (1)").is_ok());
        assert_eq!(scene.new_primary().value("select count(*) from written where a = 1").unwrap(), "1", "{mode}");
        let mut others: Vec<Raw> = (0..SESSIONS).map(|_| log_in(&scene.proxy).unwrap()).collect();
        scene.check_moved(&mut others);
        let said = scene.proxy.log().lines().count() - lines;
        assert!(said < LINES_MAX, "{mode}: {said} lines: {}", scene.proxy.log());
    }
}

/// As in Kubernetes: one name leads to the primary, the other one to the standby.
#[test]
fn two_service_names_that_change_places_lead_writes_and_reads_to_the_right_servers() {
    let cluster = cluster(1);
    let (old, new) = (cluster.primary(), &cluster.standbys()[0]);
    old.query("create table written (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let names = [Network::to(old.port()), Network::to(new.port())];
    let backends = names.each_ref().map(|name| Backend::tcp(name.port(), 1));
    let proxy = Proxy::spawn(&backends, "backend_weight0 = 0\ncausal_reads = off\n");
    let mut client = proxy.console();
    let place = "select inet_server_port() from (select count(*) from written) as x";
    wait_until("a read at the standby", || client.value(place) == new.port().to_string());
    client.run("insert into written values (1)");
    cluster.wait_caught_up().unwrap();
    old.stop(Mode::Fast).unwrap();
    new.promote().unwrap();
    old.follow(new).unwrap();
    old.start().unwrap();
    names[0].lead_to(new.port());
    names[1].lead_to(old.port());
    names.iter().for_each(Network::cut);
    wait_until("a write to go on", || client.try_rows("insert into written values (2)").is_ok());
    assert_eq!(new.value("select count(*) from written").unwrap(), "2");
    wait_until("roles to be seen", || proxy.nodes("role") == ["primary", "standby"]);
    wait_until("reads to go to the standby of now", || {
        client.try_rows(place).is_ok_and(|rows| rows == [[Some(old.port().to_string())]])
    });
}
