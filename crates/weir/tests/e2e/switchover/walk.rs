//! All servers are started anew, one after the other.

use super::*;

#[test]
fn all_servers_are_started_anew_and_no_statement_fails() {
    let Some(stand) = Stand::new("") else { return };
    check_walk(&stand, || {
        walk(stand.proxy.folder(), stand.proxy.port()).unwrap_or_else(|why| panic!("{why}\n{}", stand.proxy.log()));
    });
}

#[test]
fn the_program_does_so_and_answers_at_the_end() {
    let Some(mut stand) = Stand::new("") else { return };
    let port = stand.serve_pcp("");
    check_walk(&stand, || {
        let output = pcp(port.number(), &stand.passfile(), &["upgrade-walk"]);
        assert_eq!(said(&output), (0, "pcp_upgrade_walk -- Command Successful\n".into(), String::new()), "{}", stand.proxy.log());
    });
    assert!(stand.proxy.log().contains("PCP: upgrade walk by user \"admin\" from 127.0.0.1: done"), "{}", stand.proxy.log());
}

/// Has all servers started anew under load.
fn check_walk(stand: &Stand, walk: impl FnOnce()) {
    let before = starts(stand);
    let load = Load::with(&stand.proxy, crew());
    walk();
    let after = starts(stand);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    load.wait_acknowledged(20);
    let outcome = load.end();
    assert_eq!(stand.check("upgrade walk", &outcome), 1);
    check_none_failed(&outcome);
    wait_until("all nodes to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
}

/// Exit code, output and errors of a program.
fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The answer to UPGRADE_WALK. Error: the text that the operator reads.
fn walk(folder: &Path, port: u16) -> Result<(), String> {
    let outcome = admin(folder, port).try_rows("upgrade_walk");
    outcome.map(drop).map_err(|failure| format!("{} {}", failure.message, failure.hint))
}

/// Walks on another thread.
fn walk_aside(proxy: &Proxy) -> JoinHandle<Result<(), String>> {
    let (folder, port) = (proxy.folder().to_path_buf(), proxy.port());
    thread::spawn(move || walk(&folder, port))
}

pub fn starts(stand: &Stand) -> Vec<String> {
    (0..3).map(|node| stand.server(node).value(START).unwrap()).collect()
}

fn wait_restart(agent: &Agent) {
    wait_until("an agent to begin a restart", || agent.log().contains("restart, ordered by"));
}

#[test]
fn without_agents_a_walk_waits_for_the_operator_at_each_standby_and_leaves_the_primary() {
    let Some(stand) = Stand::without_agents("") else { return };
    let load = Load::with(&stand.proxy, crew());
    let walked = walk_aside(&stand.proxy);
    for node in [1, 2] {
        wait_until("the log to ask for a restart", || {
            stand.proxy.log().contains(&format!("node {node} is out of use and has no agent: start its server anew now"))
        });
        wait_until("it to be shown out of use", || stand.proxy.nodes("status")[node] == "down");
        stand.server(node).stop(Mode::Fast).unwrap();
        stand.server(node).start().unwrap();
    }
    let answer = walked.join().unwrap().unwrap_err();
    let expected = "all standbys were started anew; node 0 is the primary and has no agent Switch over in another way, and start its server anew.";
    assert_eq!(answer, expected);
    assert_eq!(stand.primary(), 0);
    wait_until("all nodes to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    load.wait_acknowledged(20);
    let outcome = load.end();
    stand.check("upgrade walk without agents", &outcome);
    check_none_failed(&outcome);
}

#[test]
fn a_proxy_that_dies_in_a_walk_leaves_all_servers_running() {
    let Some(mut stand) = Stand::new("") else { return };
    let before = starts(&stand);
    let walked = walk_aside(&stand.proxy);
    wait_restart(&stand.agents[1]);
    stand.proxy.crash_and_start();
    stand.proxy.wait_accepting();
    assert!(walked.join().unwrap().is_err());
    wait_until("the agent to go on", || stand.server(1).value(START).is_ok_and(|start| start != before[1]));
    wait_until("all nodes to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    stand.wait_streaming(0, 2);
    walk(stand.proxy.folder(), stand.proxy.port()).unwrap();
    assert_eq!(stand.primary(), 1);
    wait_until("the old primary to be in use again", || stand.proxy.nodes("status") == ["up", "up", "up"]);
}

#[test]
fn a_walk_ends_with_its_caller_after_the_server_under_way() {
    let Some(stand) = Stand::new("") else { return };
    let mut caller = admin(stand.proxy.folder(), stand.proxy.port());
    check_ends_with_its_caller(&stand, || {
        caller.send(&wire::query("upgrade_walk"));
        wait_restart(&stand.agents[1]);
        drop(caller);
    });
}

#[test]
fn a_walk_ends_with_the_program_after_the_server_under_way() {
    let Some(mut stand) = Stand::new("") else { return };
    let port = stand.serve_pcp("");
    check_ends_with_its_caller(&stand, || {
        let mut program = pcp_command(port.number(), &stand.passfile(), &["upgrade-walk"]).spawn().unwrap();
        wait_restart(&stand.agents[1]);
        program.kill().unwrap();
        program.wait().unwrap();
        wait_until("the log to tell it", || stand.proxy.log().contains("by user \"admin\" from 127.0.0.1: the client went away"));
    });
}

/// Asks for a walk, and goes away while the first server is started anew.
fn check_ends_with_its_caller(stand: &Stand, ask: impl FnOnce()) {
    let before = starts(stand);
    ask();
    wait_until("all nodes to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"] && starts(stand)[1] != before[1]);
    // Nothing is under way: this would be refused otherwise.
    admin(stand.proxy.folder(), stand.proxy.port()).run("restart 1");
    let after = starts(stand);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    walk(stand.proxy.folder(), stand.proxy.port()).unwrap();
    assert_eq!(stand.primary(), 1);
}

#[test]
fn a_walk_stops_at_a_server_that_does_not_come_back() {
    let Some(stand) = Stand::new("") else { return };
    let before = starts(&stand);
    let load = Load::with(&stand.proxy, crew());
    let conf = stand.server(1).data_dir().join("postgresql.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nmax_connections = many\n")).unwrap();
    let answer = walk(stand.proxy.folder(), stand.proxy.port()).unwrap_err();
    assert!(answer.contains("the agent of node 1 could not start its server anew"), "{answer}");
    wait_until("the log to tell the reason", || stand.proxy.log().contains("restart failed: agent"));
    let row = |column| show(&mut admin(stand.proxy.folder(), stand.proxy.port()), "pool_agents", column)[1].clone();
    wait_until("SHOW to tell it, too", || row("last_order").contains("max_connections") && row("server") == "stopped");
    assert_eq!(
        (stand.server(0).value(START).unwrap(), stand.server(2).value(START).unwrap()),
        (before[0].clone(), before[2].clone())
    );
    wait_until("it to be out of use", || stand.proxy.nodes("status") == ["up", "down", "up"]);
    load.wait_acknowledged(20);
    std::fs::write(&conf, text).unwrap();
    stand.agents[1].order(start()).unwrap();
    wait_until("it to be used again", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    let outcome = load.end();
    stand.check("a server that does not come back", &outcome);
    check_none_failed(&outcome);
}

/// The texts of the notices to UPGRADE_WALK, which succeeds.
fn notices(stand: &Stand) -> Vec<String> {
    let mut admin = admin(stand.proxy.folder(), stand.proxy.port());
    let answer = admin.query("upgrade_walk");
    assert!(!answer.iter().any(|message| message.tag == b'E'), "{answer:?}\n{}", stand.proxy.log());
    answer.iter().filter(|message| message.tag == b'N').map(|message| message.failure().message).collect()
}

#[test]
fn a_walk_hands_over_to_a_standby_that_may_be_promoted() {
    let Some(stand) = Stand::new("backend_promote_priority1 = 0\n") else { return };
    let before = starts(&stand);
    assert_eq!(notices(&stand), [""; 0]);
    let after = starts(&stand);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    assert_eq!(stand.primary(), 2);
}

#[test]
fn a_walk_leaves_a_detached_node_out_and_says_so() {
    let Some(stand) = Stand::new("") else { return };
    let before = starts(&stand);
    admin(stand.proxy.folder(), stand.proxy.port()).run("detach 1");
    assert_eq!(notices(&stand), ["node 1 is out of use: it was left out"]);
    let after = starts(&stand);
    assert_eq!((stand.primary(), &after[1]), (2, &before[1]));
    assert!(before[0] != after[0] && before[2] != after[2], "{before:?} {after:?}");
}

#[test]
fn a_walk_without_a_standby_that_may_be_promoted_leaves_the_primary() {
    let Some(stand) = Stand::new("backend_promote_priority1 = 0\nbackend_promote_priority2 = 0\n") else { return };
    let before = starts(&stand);
    let answer = walk(stand.proxy.folder(), stand.proxy.port()).unwrap_err();
    let expected =
        "all standbys were started anew; node 0 is the primary, and none of them may be promoted (backend_promote_priority)";
    assert!(answer.contains(expected), "{answer}");
    let after = starts(&stand);
    assert!(before[0] == after[0] && before[1] != after[1] && before[2] != after[2], "{before:?} {after:?}");
}

#[test]
fn the_program_tells_what_was_left_out_and_what_is_left() {
    let Some(mut stand) = Stand::new("") else { return };
    let port = stand.serve_pcp("");
    let run = |arguments: &[&str]| said(&pcp(port.number(), &stand.passfile(), arguments));
    let before = starts(&stand);
    let done = |name: &str, errors: &str| (0, format!("{name} -- Command Successful\n"), errors.to_string());
    assert_eq!(run(&["restart-node", "-n", "2"]), done("pcp_restart_node", ""), "{}", stand.proxy.log());
    let after = starts(&stand);
    assert!(before[..2] == after[..2] && before[2] != after[2], "{before:?} {after:?}");
    let refused =
        (1, String::new(), "ERROR:  restarting a node failed\nDETAIL:  node 0 is the primary: switch over first\n\n".to_string());
    assert_eq!(run(&["restart-node", "-n", "0"]), refused);
    admin(stand.proxy.folder(), stand.proxy.port()).run("detach 1");
    let notice = "NOTICE:  node 1 is out of use: it was left out\n";
    assert_eq!(run(&["upgrade-walk"]), done("pcp_upgrade_walk", notice), "{}", stand.proxy.log());
    assert_eq!((stand.primary(), &starts(&stand)[1]), (2, &before[1]));
}

#[test]
fn the_program_ends_with_an_error_if_the_primary_is_left() {
    let Some(mut stand) = Stand::new("") else { return };
    let port = stand.serve_pcp("backend_promote_priority1 = 0\nbackend_promote_priority2 = 0\n");
    let before = starts(&stand);
    let expected = "ERROR:  upgrade walk failed\nDETAIL:  all standbys were started anew; node 0 is the primary, and none of them may be promoted \
        (backend_promote_priority). Start the server of the primary anew by hand: writes wait meanwhile.\n\n";
    let walked = said(&pcp(port.number(), &stand.passfile(), &["upgrade-walk"]));
    assert_eq!(walked, (1, String::new(), expected.into()));
    let after = starts(&stand);
    assert!(before[0] == after[0] && before[1] != after[1] && before[2] != after[2], "{before:?} {after:?}");
    stand.proxy.write_file("pcppass", "*:*:admin:guess\n");
    let (code, out, errors) = said(&pcp(port.number(), &stand.passfile(), &["upgrade-walk"]));
    assert!(code == 1 && out.is_empty() && errors.starts_with("FATAL:  authentication failed for user \"admin\"\n"), "{errors}");
    assert_eq!(starts(&stand), after, "nobody else has servers started anew");
}
