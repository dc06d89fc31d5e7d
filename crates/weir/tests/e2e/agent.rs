//! `weir agent` beside real servers: each deed, strangers at its door, and its death at every step.

mod debian;
mod ends;
mod logins;
mod returns;
mod shown;
pub mod stand;
mod tls;

use crate::support::ground::Owned;
use crate::support::time::{check_never, check_took, happens_within, let_pass};
use crate::support::wait_until;
use stand::{Agent, Folder, SECRET, base_backup, block_on, fast, follow, next_id, rewind, servers, start, wait_streams};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_agent::seal::{ClientHello, frame};
use weir_agent::{
    AgentAnswer, AgentOrder, AgentRequest, AgentSecret, ClusterState, DataDirectoryState, OrderAction, OrderFailureKind,
    PostmasterState, ServerStatus, ServerStopMode, write_request,
};
use weir_demo::Server;

fn failed(outcome: weir_agent::Outcome) -> OrderFailureKind {
    outcome.expect_err("it fails").kind
}

/// The primary dies, its standby is promoted and written to. The old one has written something that nobody else has.
fn replaced(cluster: &Owned) -> (&Server, &Server) {
    replaced_by(cluster, |old| old.kill9().unwrap())
}

fn replaced_by(cluster: &Owned, die: impl FnOnce(&Server)) -> (&Server, &Server) {
    let (old, new) = (cluster.primary(), &cluster.standbys()[0]);
    new.query("alter system set primary_conninfo = ''").unwrap();
    new.reload().unwrap();
    wait_until("the standby to be cut off", || new.value("select count(*) from pg_stat_wal_receiver").unwrap() == "0");
    old.query("insert into written select generate_series(1, 1000)").unwrap();
    die(old);
    new.promote().unwrap();
    new.query("insert into written values (-1)").unwrap();
    (old, new)
}

fn check_copy(old: &Server, new: &Server) {
    wait_streams(old, new);
    new.query("insert into written values (-2)").unwrap();
    // This may be the second check: the row of the first one is there already.
    let all = "select min(number), count(*) from written";
    wait_until("the standby to have all rows", || old.query(all).unwrap() == new.query(all).unwrap());
    assert_eq!(old.value("select min(number) from written").unwrap(), "-2");
    assert_eq!(old.value("select pg_is_in_recovery()").unwrap(), "t");
    assert_eq!(old.value("show port").unwrap(), old.port().to_string(), "its configuration is its own");
}

#[test]
fn a_server_is_seen_stopped_and_started() {
    let Some(cluster) = servers(0) else { return };
    let (server, agent) = (cluster.primary(), Agent::beside(cluster.primary()));
    let status = agent.status();
    let ServerStatus::Running(postmaster) = status.server else { panic!("it runs: {status:?}") };
    assert_eq!((Some(postmaster.pid), postmaster.port, postmaster.step), (server.pid(), server.port(), PostmasterState::Ready));
    let control = status.control.unwrap();
    let identifier = server.value("select system_identifier from pg_control_system()").unwrap();
    assert_eq!((control.system_identifier.to_string(), control.timeline), (identifier, 1));
    assert_eq!(
        (control.state, status.data, status.has_standby_signal),
        (ClusterState::InProduction, DataDirectoryState::Whole, false)
    );
    assert_eq!(u32::from(control.major), server.programs().major());
    assert!(control.can_rewind);

    agent.order(start()).unwrap();
    let other = OrderAction::Stop { mode: ServerStopMode::Fast, limit_ms: 60_000, started_at: Some(postmaster.started_at + 1) };
    assert_eq!(failed(agent.order(other)), OrderFailureKind::OtherServer);
    let meant = OrderAction::Stop { mode: ServerStopMode::Fast, limit_ms: 60_000, started_at: Some(postmaster.started_at) };
    agent.order(meant.clone()).unwrap();
    let status = agent.status();
    assert_eq!((status.server, status.control.unwrap().state), (ServerStatus::Stopped, ClusterState::ShutDown));
    agent.order(meant).unwrap();

    agent.order(start()).unwrap();
    assert_eq!(server.value("select count(*) from written").unwrap(), "0");
    agent.order(OrderAction::Stop { mode: ServerStopMode::Immediate, limit_ms: 60_000, started_at: None }).unwrap();
    assert_eq!(agent.status().control.unwrap().state, ClusterState::InProduction);
    agent.order(start()).unwrap();
}

#[test]
fn a_server_that_hangs_is_stopped_and_orphans_of_a_killed_one_are_too() {
    let Some(cluster) = servers(0) else { return };
    let (server, agent) = (cluster.primary(), Agent::beside(cluster.primary()));
    server.freeze();
    let late = OrderAction::Stop { mode: ServerStopMode::Fast, limit_ms: 300, started_at: None };
    assert_eq!(failed(agent.order(late)), OrderFailureKind::Late);
    agent.order(OrderAction::Stop { mode: ServerStopMode::Immediate, limit_ms: 5_000, started_at: None }).unwrap();
    assert_eq!(agent.status().server, ServerStatus::Stopped);
    agent.order(start()).unwrap();
    // A process that does not notice the death of its postmaster.
    let mut busy = server.connect("postgres", "postgres").unwrap();
    let busy = std::thread::spawn(move || busy.query("select count(*) from generate_series(1, 100000000000)").is_ok());
    let active = "select count(*) from pg_stat_activity where query like 'select count(*) from gen%' and state = 'active'";
    wait_until("the query to run", || server.value(active).unwrap() == "1");
    let ServerStatus::Running(postmaster) = agent.status().server else { panic!("it runs") };
    let pid = rustix::process::Pid::from_raw(postmaster.pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("the postmaster to be gone", || agent.status().server == ServerStatus::Stopped);
    agent.order(fast()).unwrap();
    assert!(!busy.join().unwrap());
    agent.order(start()).unwrap();
}

#[test]
fn an_old_primary_is_rewound_and_follows_the_new_one() {
    let Some(cluster) = servers(1) else { return };
    let agent = Agent::beside(cluster.primary());
    assert_eq!(failed(agent.order(rewind(&cluster.standbys()[0]))), OrderFailureKind::Running);
    assert_eq!(failed(agent.order(follow(cluster.primary(), &cluster.standbys()[0]))), OrderFailureKind::Running);
    let (old, new) = replaced(&cluster);
    agent.order(rewind(new)).unwrap();
    assert!(agent.status().has_standby_signal);
    agent.order(rewind(new)).unwrap();
    agent.order(follow(old, new)).unwrap();
    agent.order(follow(old, new)).unwrap();
    agent.order(start()).unwrap();
    check_copy(old, new);
    agent.order(follow(old, new)).unwrap();
    let ServerStatus::Running(postmaster) = agent.status().server else { panic!("it runs") };
    assert_eq!(postmaster.step, PostmasterState::Ready);
    assert!(!agent.work("kept").exists());
}

/// As in a container whose init process collects nobody: PostgreSQL takes such a postmaster for one that runs.
#[test]
fn one_whose_postmaster_nobody_has_collected_is_rewound_too() {
    let Some(cluster) = servers(1) else { return };
    let agent = Agent::beside(cluster.primary());
    let (old, new) = replaced_by(&cluster, |old| {
        let pid = rustix::process::Pid::from_raw(old.pid().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        agent.order(fast()).unwrap();
    });
    agent.order(rewind(new)).unwrap();
    agent.order(follow(old, new)).unwrap();
    agent.order(start()).unwrap();
    check_copy(old, new);
}

#[test]
fn a_server_is_copied_anew_and_keeps_its_own_files() {
    let Some(cluster) = servers(1) else { return };
    let agent = Agent::beside(cluster.primary());
    let (old, new) = replaced(&cluster);
    std::fs::write(old.data_dir().join("notes"), "of the operator").unwrap();
    agent.order(base_backup(new)).unwrap();
    agent.order(follow(old, new)).unwrap();
    agent.order(start()).unwrap();
    check_copy(old, new);
    assert_eq!(std::fs::read_to_string(old.data_dir().join("notes")).unwrap(), "of the operator");
    assert!(!agent.work("old").exists() && !agent.work("new").exists());
    assert_eq!(failed(agent.order(base_backup(new))), OrderFailureKind::Running);
}

#[test]
fn a_configuration_that_lies_elsewhere_is_used_and_stays() {
    let Some(cluster) = servers(1) else { return };
    let data = cluster.primary().data_dir();
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let hba = read("pg_hba.conf");
    // As Debian's: the data directory has no configuration of its own, and the command line names its file.
    let conf = format!("{}\nhba_file = 'HBA'\ncluster_name = 'elsewhere'\n", read("postgresql.conf"));
    let folder = Folder::of(cluster.primary());
    let conf = conf.replace("HBA", &folder.path("hba").display().to_string());
    folder.write("hba", &hba);
    folder.write("conf", &conf);
    let agent = Agent::with(cluster.primary(), &[], &["--config-file", &folder.path("conf").display().to_string()]);
    let (old, new) = replaced(&cluster);
    for name in ["postgresql.conf", "pg_hba.conf"] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    for deed in [rewind(new), base_backup(new)] {
        agent.order(fast()).unwrap();
        agent.order(deed).unwrap();
        agent.order(follow(old, new)).unwrap();
        agent.order(start()).unwrap();
        check_copy(old, new);
        assert_eq!(old.value("show cluster_name").unwrap(), "elsewhere");
    }
}

#[test]
fn what_cannot_be_done_changes_nothing_and_says_why() {
    let Some(cluster) = servers(1) else { return };
    let Some(stranger) = servers(0) else { return };
    let agent = Agent::beside(cluster.primary());
    let (old, new) = replaced(&cluster);
    agent.order(start()).unwrap();
    agent.order(fast()).unwrap();
    assert_eq!(failed(agent.order(rewind(stranger.primary()))), OrderFailureKind::OtherCluster);
    assert_eq!(failed(agent.order(base_backup(stranger.primary()))), OrderFailureKind::OtherCluster);
    let nobody = stranger.standbys().first().unwrap_or(old);
    let failure = agent.order(rewind(nobody)).unwrap_err();
    assert_eq!(failure.kind, OrderFailureKind::Source, "{}", failure.text);
    assert!(failure.text.contains("refused") || failure.text.contains("No such"), "{}", failure.text);
    assert_eq!(failed(agent.order(base_backup(nobody))), OrderFailureKind::Source);
    new.query("create tablespace other location ''").unwrap_err();
    std::os::unix::fs::symlink("/nonexistent", old.data_dir().join("pg_tblspc/16384")).unwrap();
    assert_eq!(failed(agent.order(base_backup(new))), OrderFailureKind::Layout);
    std::fs::remove_file(old.data_dir().join("pg_tblspc/16384")).unwrap();
    let ended = agent.order(OrderAction::Start { limit_ms: 60_000 });
    ended.unwrap();
    assert_eq!(old.value("select count(*) from written").unwrap(), "1000", "all is as it was");
    agent.order(fast()).unwrap();
    std::fs::write(old.data_dir().join("postgresql.auto.conf"), "no_such_parameter = 1\n").unwrap();
    let failure = agent.order(start()).unwrap_err();
    assert!(failure.text.contains("no_such_parameter"), "{}", failure.text);
}

/// Gives an order, and does not wait for the answer.
fn send(agent: &Agent, deed: OrderAction) {
    let sent = block_on(async {
        let mut line = agent.line(SECRET).await?;
        let mut body = Vec::new();
        write_request(&mut body, &AgentRequest::Order(AgentOrder { id: next_id(), deed }));
        line.send(&body).await
    });
    sent.unwrap();
}

/// Brings a server back as Weir does.
fn rejoin(agent: &Agent, old: &Server, new: &Server) {
    agent.order(fast()).unwrap();
    if agent.status().data != DataDirectoryState::Whole || agent.order(rewind(new)).is_err() {
        agent.order(base_backup(new)).unwrap();
    }
    agent.order(follow(old, new)).unwrap();
    agent.order(start()).unwrap();
}

#[test]
fn an_agent_that_dies_at_any_step_leaves_nothing_that_the_next_one_cannot_mend() {
    let Some(cluster) = servers(1) else { return };
    let mut agent = Agent::beside(cluster.primary());
    let (old, new) = replaced(&cluster);
    // Each step is seen by a file, or by the time that has passed in it.
    let deeds: [(&str, OrderAction, &[&str]); 2] =
        [("rewind", rewind(new), &["kept", "put_back"]), ("copy", base_backup(new), &["new", "new/base", "old"])];
    for (name, deed, files) in deeds {
        for file in files {
            let seen = agent.work(file);
            let is_over = || agent.log().lines().last().is_some_and(|line| line.contains(" after "));
            send(&agent, deed.clone());
            // The step may be over before anybody sees it.
            happens_within(Duration::from_secs(20), || seen.exists() || is_over());
            eprintln!("{name}: died at {file}: {}", seen.exists());
            agent.crash_and_start();
        }
    }
    for pause_ms in [0, 5, 20, 50, 100, 200, 400, 800] {
        for deed in [rewind(new), base_backup(new)] {
            send(&agent, deed);
            let_pass(Duration::from_millis(pause_ms));
            agent.crash_and_start();
            let status = agent.status();
            if status.data == DataDirectoryState::HalfRewound {
                assert_eq!(failed(agent.order(start())), OrderFailureKind::HalfRewound);
                assert_eq!(failed(agent.order(follow(old, new))), OrderFailureKind::HalfRewound);
            }
        }
    }
    rejoin(&agent, old, new);
    check_copy(old, new);
    // An agent that dies leaves its server alone.
    agent.crash_and_start();
    assert!(matches!(agent.status().server, ServerStatus::Running(_)));
}

#[test]
fn an_order_goes_on_without_its_connection_and_its_outcome_is_kept() {
    let Some(cluster) = servers(1) else { return };
    let agent = Agent::beside(cluster.primary());
    let (_, new) = replaced(&cluster);
    let (id, deed) = (next_id(), base_backup(new));
    block_on(async {
        let mut line = agent.line(SECRET).await.unwrap();
        let mut body = Vec::new();
        write_request(&mut body, &AgentRequest::Order(AgentOrder { id, deed: deed.clone() }));
        line.send(&body).await.unwrap();
    });
    wait_until("the order to be seen", || agent.status().job.is_some_and(|job| job.id == id) || agent.status().last.is_some());
    if agent.status().job.is_some() {
        let other = agent.try_ask(&AgentRequest::Order(AgentOrder { id: next_id(), deed: start() })).unwrap();
        assert!(matches!(other, AgentAnswer::Busy(job) if job.id == id), "{other:?}");
    }
    agent.order_again(id, deed.clone()).unwrap();
    let begun = Instant::now();
    agent.order_again(id, deed).unwrap();
    check_took("an order that was done", begun, Duration::from_millis(500));
    assert_eq!(agent.log().matches("base backup: done").count(), 1);
}

#[test]
fn strangers_get_nothing_and_hold_nobody_up() {
    let Some(cluster) = servers(0) else { return };
    let mut agent = Agent::beside(cluster.primary());
    let address = ("127.0.0.1", agent.port.number());
    // Wrong secrets.
    for secret in ["0123456789-of-nobody-else", "0123456789abcdef"] {
        assert!(block_on(agent.line(secret)).is_err());
    }
    // Another protocol, and frames of all lengths.
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100], &[0, 0, 0, 65], &[0, 0, 0, 0], &[0; 500]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(words).unwrap();
        // The agent may close before it has read all.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert_eq!(heard.len(), 4 + 13 + 32, "its greeting, and nothing more");
    }
    // Many that say nothing.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(agent.status().data, DataDirectoryState::Whole);
    drop(silent);
    wait_until("a silent one to be sent away", || {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may also be sent away because there are too many.
        stream.read_to_end(&mut Vec::new()).is_ok() && agent.log().contains("it says nothing")
    });
    let log = agent.log();
    assert_eq!(log.matches("does not know the secret").count(), 1, "{log}");
    assert!(log.contains("a frame of") && log.contains("it says nothing"), "{log}");
    assert!(log.lines().count() < 20, "{log}");
    assert!(!log.contains(SECRET));
    assert!(agent.is_running());
}

/// A connection on which bytes can be sent twice.
async fn raw(agent: &Agent) -> (tokio::net::TcpStream, weir_agent::seal::FrameSeal) {
    let secret = AgentSecret::read(SECRET, None).unwrap();
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", agent.port.number())).await.unwrap();
    let mut greeting = vec![0; 4 + 13 + 32];
    stream.read_exact(&mut greeting).await.unwrap();
    let (hello, proof) = ClientHello::answer(&secret, &greeting[4..], weir::random()).unwrap();
    stream.write_all(&frame(&proof)).await.unwrap();
    let mut proof = vec![0; 4 + 32];
    stream.read_exact(&mut proof).await.unwrap();
    (stream, hello.finish(&proof[4..]).unwrap())
}

/// The bytes that come until the agent closes the connection.
async fn rest(stream: &mut tokio::net::TcpStream) -> usize {
    let mut heard = Vec::new();
    // A connection that is reset is closed, too.
    let _ = stream.read_to_end(&mut heard).await;
    heard.len()
}

#[test]
fn messages_that_are_replayed_moved_or_odd_are_not_obeyed() {
    let Some(cluster) = servers(0) else { return };
    let agent = Agent::beside(cluster.primary());
    let order = |deed| {
        let mut body = Vec::new();
        write_request(&mut body, &AgentRequest::Order(AgentOrder { id: next_id(), deed }));
        body
    };
    block_on(async {
        let (mut stream, mut seal) = raw(&agent).await;
        let first = frame(&seal.close(&order(start())));
        stream.write_all(&first).await.unwrap();
        let mut answer = vec![0; 4 + 1 + 32];
        stream.read_exact(&mut answer).await.unwrap();
        stream.write_all(&first).await.unwrap();
        assert_eq!(rest(&mut stream).await, 0, "a second time");
        let (mut stream, mut seal) = raw(&agent).await;
        stream.write_all(&first).await.unwrap();
        assert_eq!(rest(&mut stream).await, 0, "on another connection");
        drop(seal.close(b""));
        let (mut stream, mut seal) = raw(&agent).await;
        let _left_out = seal.close(&order(start()));
        stream.write_all(&frame(&seal.close(&order(fast())))).await.unwrap();
        assert_eq!(rest(&mut stream).await, 0, "one before was left out");
        // Texts that no type of ours can hold, from one who knows the secret.
        let good = order(follow(cluster.primary(), cluster.primary()));
        let at = good.windows(8).position(|bytes| bytes == b"postgres").unwrap();
        for odd in [&b"post\ngre"[..], b"post\0gre", b"-D /tmp1", b"post\rgre", b" postgre", b"\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            let mut body = good.clone();
            body[at..at + 8].copy_from_slice(odd);
            let (mut stream, mut seal) = raw(&agent).await;
            stream.write_all(&frame(&seal.close(&body))).await.unwrap();
            assert_eq!(rest(&mut stream).await, 0, "{odd:?}");
        }
        let (mut stream, mut seal) = raw(&agent).await;
        stream.write_all(&frame(&seal.close(&vec![0; 9000]))).await.unwrap();
        assert_eq!(rest(&mut stream).await, 0, "too long");
    });
    let begun = || agent.log().matches("begins").count();
    wait_until("the agent to tell of the order", || begun() > 0);
    assert_eq!(begun(), 1, "{}", agent.log());
    assert!(matches!(agent.status().server, ServerStatus::Running(_)));
}

#[test]
fn texts_with_quotes_and_blanks_stay_values() {
    let Some(cluster) = servers(1) else { return };
    let server = &cluster.standbys()[0];
    let agent = Agent::beside(server);
    cluster.primary().query("create role \"o'neil \\ port=1 \"\"x\"\" # ;\" login replication").unwrap();
    agent.order(fast()).unwrap();
    let OrderAction::Follow(plain) = follow(server, cluster.primary()) else { panic!("it is one") };
    let user = weir_agent::UserName::new("o'neil \\ port=1 \"x\" # ;").unwrap();
    agent.order(OrderAction::Follow(weir_agent::StandbyUpstream { user: user.clone(), ..plain })).unwrap();
    agent.order(start()).unwrap();
    let shown = server.value("show primary_conninfo").unwrap();
    let conninfo = weir_failover::conninfo::Conninfo::parse(&shown).unwrap();
    let port = cluster.primary().port().to_string();
    assert_eq!((conninfo.get("user"), conninfo.get("port")), (Some(user.as_str()), Some(port.as_str())));
    cluster.wait_streaming(1).unwrap();
}

/// The words of an agent that is not to run here, beside this server's programs.
fn refusal(server: &Server, secret: &Path, data: &Path, more: &[&str]) -> String {
    let mut command = Command::new(crate::support::proxy::program_for_others());
    command.args(["agent", "--listen", "127.0.0.1:1", "-D"]).arg(data).arg("--secret-file").arg(secret);
    command.arg("--bin-dir").arg(server.programs().bin()).args(more);
    let owner = std::fs::metadata(server.data_dir()).unwrap();
    if rustix::process::geteuid().is_root() && data != Path::new("/") {
        std::os::unix::process::CommandExt::uid(&mut command, std::os::unix::fs::MetadataExt::uid(&owner));
    }
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_data_directory_has_one_agent_whichever_folder_it_works_in() {
    let Some(cluster) = servers(1) else { return };
    let server = &cluster.standbys()[0];
    let agent = Agent::beside(server);
    let (secret, other) = (agent.folder().join("secret"), agent.folder().join("other"));
    let another = || refusal(server, &secret, server.data_dir(), &["--work-dir", other.to_str().unwrap()]);
    let text = another();
    assert!(text.contains("another agent runs"), "{text}");
    agent.order(fast()).unwrap();
    agent.order(base_backup(cluster.primary())).unwrap();
    let text = another();
    assert!(text.contains("another agent runs"), "the data directory is another one now: {text}");
}

#[test]
fn an_agent_is_not_started_where_it_could_do_harm() {
    let Some(cluster) = servers(0) else { return };
    let agent = Agent::beside(cluster.primary());
    let secret = agent.folder().join("secret");
    let run = |secret: &Path, data: &Path| refusal(cluster.primary(), secret, data, &[]);
    let data = cluster.primary().data_dir();
    let text = run(&secret, data);
    assert!(text.contains("another agent runs"), "{text}");
    if rustix::process::geteuid().is_root() {
        let text = run(&secret, Path::new("/"));
        assert!(text.contains("must not run as root"), "{text}");
    }
    let open = agent.folder().join("open");
    std::fs::write(&open, SECRET).unwrap();
    let text = run(&open, data);
    assert!(text.contains("has group or world access"), "{text}");
    let (conf, elsewhere) = (data.join("postgresql.conf"), data.join("elsewhere.conf"));
    std::fs::rename(&conf, &elsewhere).unwrap();
    let text = run(&secret, data);
    std::fs::rename(&elsewhere, &conf).unwrap();
    assert!(text.contains("tell where it is by --config-file"), "{text}");
    check_never("the agent that runs is disturbed", Duration::from_millis(100), || {
        agent.status().data != DataDirectoryState::Whole
    });
}
