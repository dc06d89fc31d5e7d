//! Lines of the log about statements, and the places where they go.

use crate::support::raw::tags;
use crate::support::{Ground, Proxy, Raw, wait_for_catalog, wait_until, wire};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a log that have this text.
fn lines(log: &str, text: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(text)).map(str::to_string).collect()
}

#[test]
fn statements_of_both_protocols_are_logged_once_each() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_statement = on\nlog_line_prefix = '%u@%d '\npool_size = 1");
    let mut client = ground.client(&proxy);
    client.run("select 'simple'");
    client.extended("select 'unnamed'", &[]).unwrap();
    client.send(&[wire::parse("s", "select 'named'"), wire::run("s", &[]), wire::run("s", &[]), wire::sync()].concat());
    client.until_ready();
    client.run("SHOW pool_version");
    let mut other = ground.client(&proxy);
    client.run("begin; select 1");
    other.send(&wire::query("select 'waits'"));
    client.run("commit");
    other.until_ready();
    let log = proxy.log();
    for (text, count) in [("simple", 1), ("unnamed", 1), ("named'", 3), ("pool_version", 1), ("'waits'", 1)] {
        let found = lines(&log, text);
        assert_eq!(found.len(), count, "{text}: {found:?}");
        let begin = format!("postgres@{} LOG:  statement: ", ground.database);
        assert!(found.iter().all(|line| line.starts_with(&begin)), "{found:?}");
    }
}

#[test]
fn each_statement_is_logged_and_noticed_with_its_node() {
    let ground = Ground::new();
    let proxy = ground.proxy("log_per_node_statement = on\nnotice_per_node_statement = on\nlog_line_prefix = ''");
    let mut client = ground.client(&proxy);
    let answer = client.query("create table t (a int)");
    assert_eq!(answer[0].failure().message, "DB node id: 0 statement: create table t (a int)");
    assert_eq!(answer[0].failure().severity, "NOTICE");
    assert_eq!(tags(&answer), "CZ");
    wait_for_catalog(&mut client, &ground.database);
    let answer = client.query("select 7");
    let node = answer[0].failure().message;
    assert!(node == "DB node id: 1 statement: select 7" || node == "DB node id: 2 statement: select 7", "{node}");
    client.send(&[wire::parse("s", "select $1::int"), wire::run("s", &["5"]), wire::sync()].concat());
    let answer = client.until_ready();
    let notices: Vec<String> = answer.iter().filter(|m| m.tag == b'N').map(|m| m.failure().message).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].ends_with("statement: Execute: select $1::int"), "{notices:?}");
    let pid = client.value("select 1 from pg_backend_pid()");
    assert_eq!(pid, "1");
    let log = proxy.log();
    let first = lines(&log, "create table");
    assert!(
        first[0].starts_with("LOG:  DB node id: 0 backend pid: ") && first[0].ends_with(" statement: create table t (a int)")
    );
    for step in ["Parse", "Bind", "Execute"] {
        assert_eq!(lines(&log, &format!("statement: {step}: select $1::int")).len(), 1, "{step}");
    }
}

#[test]
fn slow_statements_are_logged_with_their_route_and_where_the_time_went() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_min_duration_statement = 200\npool_size = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select 'fast'");
    client.run("select 'slow' from pg_sleep(0.25)");
    client.extended("select 'prepared' from pg_sleep(0.25)", &[]).unwrap();
    client.run("begin; select 1");
    other.send(&wire::query("select 'waited'"));
    client.run("select pg_sleep(0.3)");
    client.run("commit");
    other.until_ready();
    let log = proxy.log();
    assert!(lines(&log, "'fast'").is_empty(), "{log}");
    let one = |text: &str| {
        let found = lines(&log, text);
        assert_eq!(found.len(), 1, "{text}: {log}");
        found[0].clone()
    };
    let number = |line: &str, after: &str| -> f64 {
        let (_, rest) = line.split_once(after).unwrap_or_else(|| panic!("no {after} in {line}"));
        rest.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number after {after} in {line}"))
    };
    for text in ["'slow'", "'prepared'"] {
        let line = one(text);
        assert!(number(&line, "(server ") >= 240.0 && number(&line, "waited ") < 200.0, "{line}");
        assert!(line.contains("node: 0") && line.contains("rule: read"), "{line}");
    }
    let line = one("'waited'");
    assert!(number(&line, "(server ") < 200.0 && number(&line, "waited ") >= 240.0, "{line}");
}

#[test]
fn json_lines_have_every_value_by_its_name() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_format = json\nlog_min_duration_statement = 0\nlog_connections = on");
    let mut client = ground.client_with(&proxy, &[("application_name", "my \"app\"")]);
    client.run("select 'two\nlines\t\"quoted\"'");
    let log = proxy.log();
    let objects: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
    assert!(objects.iter().all(|object| object["time"].is_string() && object["message"].is_string()));
    let slow = objects.iter().find(|object| object["statement"].is_string()).expect("a slow statement");
    assert_eq!(slow["statement"], "select 'two\nlines\t\"quoted\"'");
    assert_eq!((slow["user"].as_str(), slow["application"].as_str()), (Some("postgres"), Some("my \"app\"")));
    assert_eq!((slow["database"].as_str(), slow["node"].as_f64()), (Some(ground.database.as_str()), Some(0.0)));
    assert!(slow["duration_ms"].as_f64().is_some_and(|ms| ms >= 0.0) && slow["rule"].is_string(), "{slow}");
    assert!(objects.iter().any(|object| object["message"].as_str().is_some_and(|text| text.contains("connection authorized"))));
    let events: Vec<&str> = objects.iter().filter_map(|object| object["event"].as_str()).collect();
    assert_eq!(events.len(), objects.len(), "each line has a name");
    for event in ["start", "writes_open", "client_in", "statement_slow"] {
        assert!(events.contains(&event), "{event}: {events:?}");
    }
}

#[test]
fn lines_of_logfmt_have_an_event_and_no_client_makes_a_line_or_value_of_its_own() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_format = logfmt\nlog_statement = on");
    let mut client = ground.client_with(&proxy, &[("application_name", "a b=c")]);
    client.run("select 'x\nlevel=PANIC event=node_down'");
    let log = proxy.log();
    let line = log
        .lines()
        .find(|line| line.contains("event=statement ") && line.contains("PANIC"))
        .unwrap_or_else(|| panic!("no statement: {log}"));
    assert!(line.contains(r#" application="a b=c" "#), "{line}");
    assert!(line.ends_with(r#"message="statement: select 'x\nlevel=PANIC event=node_down'""#), "{line}");
    for line in log.lines() {
        assert!(line.starts_with("time=") && line.contains(" level=") && line.contains(" event="), "{line}");
    }
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).map(|all| all.flatten().map(|entry| entry.path()).collect()).unwrap_or_default();
    files.sort();
    files
}

#[test]
fn the_log_goes_to_files_that_can_be_moved_away() {
    let ground = Ground::new();
    let folder = crate::support::proxy::Folder::new();
    let logs = folder.0.join("logs");
    let more =
        format!("logging_collector = on\nlog_directory = '{}'\nlog_filename = 'weir.log'\nlog_statement = on", logs.display());
    let mut proxy = ground.primary_proxy(&more);
    let mut client = ground.client(&proxy);
    client.run("select 'before'");
    let file = logs.join("weir.log");
    let has = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|log| log.contains(text));
    wait_until("the statement to be written", || has(&file, "statement: select 'before'"));
    assert_eq!(proxy.log(), "", "nothing goes to stderr");
    fs::rename(&file, logs.join("moved.log")).unwrap();
    proxy.signal(Signal::HUP);
    wait_until("the file to be made again", || file.exists());
    client.run("select 'after'");
    wait_until("the statement to be written", || has(&file, "statement: select 'after'"));
    assert!(!has(&logs.join("moved.log"), "'after'"));
    drop(client);
    proxy.signal(Signal::INT);
    assert!(proxy.wait_end().success());
    assert!(has(&file, "stopped"), "the last word is written, too");
}

#[test]
fn a_log_file_that_is_large_enough_is_followed_by_another() {
    let ground = Ground::new();
    let folder = crate::support::proxy::Folder::new();
    let more = format!(
        "logging_collector = on\nlog_directory = '{}'\nlog_filename = '%s.log'\nlog_rotation_size = 1\nlog_statement = on\n\
         log_file_mode = 0640",
        folder.0.display()
    );
    let proxy = ground.primary_proxy(&more);
    let mut client = ground.client(&proxy);
    wait_until("three files", || {
        client.run(&format!("select '{}'", "x".repeat(500)));
        files(&folder.0).len() >= 3
    });
    use std::os::unix::fs::PermissionsExt;
    let modes: Vec<u32> = files(&folder.0).iter().map(|file| fs::metadata(file).unwrap().permissions().mode() & 0o777).collect();
    assert!(modes.iter().all(|mode| mode & !0o640 == 0 && mode & 0o600 == 0o600), "{modes:?}");
}

#[test]
fn a_log_that_cannot_be_written_stops_the_start_and_says_so() {
    let ground = Ground::new();
    let backend = crate::support::proxy::Backend::tcp(ground.cluster.primary().port(), 1);
    let more = "logging_collector = on\nlog_directory = '/dev/null/logs'";
    let mut proxy = Proxy::spawn_unready(&[backend], more);
    assert!(!proxy.wait_end().success());
    assert!(proxy.log().contains("/dev/null/logs"), "{}", proxy.log());
}

#[test]
fn a_reader_of_the_log_that_hangs_holds_up_neither_clients_nor_signals() {
    let ground = Ground::new();
    let backend = crate::support::proxy::Backend::tcp(ground.cluster.primary().port(), 1);
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let (mut proxy, mut log) = Proxy::spawn_to_pipe(std::slice::from_ref(&backend), "log_statement = on");
        let mut client = ground.client(&proxy);
        // More than a pipe holds, 64 kB.
        let filler = "x".repeat(1_000);
        for number in 0..200 {
            assert_eq!(client.value(&format!("select {number} /* {filler} */")), number.to_string());
        }
        drop(client);
        proxy.signal(signal);
        proxy.wait_end();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut log, &mut said).unwrap();
        assert!(said.contains("statement: select 1 "), "the first lines are there, as far as they went");
    }
}

#[test]
fn a_slow_reader_of_the_log_gets_every_line_once_it_reads() {
    let ground = Ground::new();
    let backend = crate::support::proxy::Backend::tcp(ground.cluster.primary().port(), 1);
    let (mut proxy, mut log) = Proxy::spawn_to_pipe(&[backend], "log_statement = on");
    let mut client = ground.client(&proxy);
    let filler = "x".repeat(1_000);
    for number in 0..200 {
        client.run(&format!("select {number} /* {filler} */"));
    }
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut log, &mut said).unwrap();
        said
    });
    drop(client);
    proxy.signal(Signal::INT);
    assert!(proxy.wait_end().success());
    let said = reader.join().unwrap();
    assert!((0..200).all(|number| lines(&said, &format!("statement: select {number} ")).len() == 1), "{said}");
    assert!(said.contains("stopped") && !said.contains("lines of the log are missing"));
}

#[test]
fn a_server_that_was_never_up_is_named_with_its_cause_in_the_log_and_to_clients() {
    let port = weir_demo::ReservedPort::any().unwrap();
    let proxy = Proxy::spawn(&[crate::support::proxy::Backend::tcp(port.number(), 1)], "pool_wait_timeout = 1");
    let said = format!("node 0 (127.0.0.1:{}) is down: could not connect", port.number());
    wait_until("the node to be named", || proxy.log().contains(&said));
    let mut client = Raw::tcp(proxy.port());
    client.send(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", "postgres")]));
    let refusal = client.until_end().pop().unwrap();
    assert_eq!((refusal.failure().sqlstate.as_str(), refusal.failure().message.as_str()), ("57P03", "no server can be reached"));
    let body = String::from_utf8_lossy(&refusal.body);
    assert!(body.contains(&format!("\0Dnode 0 (127.0.0.1:{}): could not connect: ", port.number())), "{body:?}");
    wait_until("the refusal to be logged", || {
        lines(&proxy.log(), "no server can be reached")
            .iter()
            .any(|line| line.ends_with("(user \"postgres\", database \"postgres\", from 127.0.0.1)"))
    });
    let lines = proxy.log().matches(&said).count();
    assert_eq!(lines, 1, "once for each cause: {}", proxy.log());
}
