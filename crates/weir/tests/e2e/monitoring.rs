//! Metrics over HTTP, in the format Prometheus reads, and the questions of an orchestrator.

use crate::pages::page::repository;
use crate::support::ground::cluster;
use crate::support::time::check_within;
use crate::support::{Ground, Proxy, leave_out, wait_until, wire};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_demo::{Mode, ReservedPort};

/// A port for metrics, and the lines that configure it.
fn metrics_port() -> (ReservedPort, String) {
    let port = ReservedPort::any().unwrap();
    let lines = format!("metrics_listen_addresses = '127.0.0.1'\nmetrics_port = {}\n", port.number());
    (port, lines)
}

/// Sends a request as it is and returns all that comes back.
fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Status and body of a GET.
pub fn get(port: u16, path: &str) -> (u16, String) {
    let answer = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends with an empty line");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    assert_eq!(length.parse::<usize>().unwrap(), body.len());
    (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_string())
}

/// Series by name and labels. Fails the test where a strict reader would refuse the page.
#[derive(Debug, Default)]
struct Samples {
    kinds: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

impl Samples {
    fn read(page: &str) -> Samples {
        assert!(page.ends_with('\n'), "the last line ends too");
        let mut samples = Samples::default();
        let (mut family, mut closed) = (String::new(), HashSet::new());
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let (word, rest) = rest.split_once(' ').expect("HELP or TYPE");
                let (name, text) = rest.split_once(' ').expect("a name and a text");
                if name != family {
                    assert!(closed.insert(family.clone()), "{family} comes twice");
                    family = name.to_string();
                }
                assert!(!closed.contains(name), "{name} comes twice");
                match word {
                    "HELP" => assert!(!samples.kinds.contains_key(name), "HELP before TYPE: {line}"),
                    "TYPE" => assert!(samples.kinds.insert(name.to_string(), text.to_string()).is_none(), "{line}"),
                    other => panic!("{other}: {line}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a series and a value: {line}"));
            let name = series.split('{').next().unwrap();
            let kind = samples.kinds.get(&family).unwrap_or_else(|| panic!("no TYPE before {line}"));
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} is not of {family}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}: a {kind}");
            check_labels(&series[name.len()..]);
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("a number: {line}"));
            assert!(samples.values.insert(series.to_string(), value).is_none(), "{series} comes twice");
        }
        samples.check_histograms();
        samples
    }

    /// Buckets grow, and the last one holds all.
    fn check_histograms(&self) {
        let mut last = BTreeMap::<String, (f64, f64)>::new();
        let mut buckets: Vec<(String, f64, f64)> = Vec::new();
        for (series, value) in &self.values {
            let Some((head, rest)) = series.split_once("le=\"") else { continue };
            let (limit, _) = rest.split_once('"').unwrap();
            let limit = if limit == "+Inf" { f64::INFINITY } else { limit.parse().unwrap() };
            buckets.push((head.trim_end_matches([',', '{']).to_string(), limit, *value));
        }
        buckets.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for (series, limit, value) in buckets {
            let (below, count) = last.insert(series.clone(), (limit, value)).unwrap_or((-1.0, 0.0));
            assert!(limit > below && value >= count, "{series} le={limit}: {value} after {count}");
        }
        for (series, (limit, value)) in last {
            assert_eq!(limit, f64::INFINITY, "{series}");
            let count = series.replacen("_bucket", "_count", 1);
            let count = if count.contains('{') { format!("{count}}}") } else { count };
            assert_eq!(self.values.get(&count), Some(&value), "{count}");
        }
    }

    /// The value of the series that begins so and has all these labels.
    fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("no single {name} {labels:?}"))
    }

    fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |series: &&String| {
            series.split('{').next() == Some(name)
                && labels.iter().all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")))
        };
        let found: Vec<&String> = self.values.keys().filter(fits).collect();
        let [series] = found.as_slice() else { return None };
        self.values.get(*series).copied()
    }
}

/// `{name="value",...}`, or nothing.
fn check_labels(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut rest = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_else(|| panic!("labels: {text}"));
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("a label: {rest}"));
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        let mut end = None;
        let mut chars = after.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => assert!(matches!(chars.next(), Some((_, '\\' | '"' | 'n'))), "{after}"),
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end.unwrap_or_else(|| panic!("a value ends: {after}"));
        match after[end + 1..].strip_prefix(',') {
            Some(next) => rest = next,
            None => return assert_eq!(&after[end + 1..], "", "{text}"),
        }
    }
}

fn scrape(port: u16) -> Samples {
    let (status, page) = get(port, "/metrics");
    assert_eq!(status, 200);
    Samples::read(&page)
}

#[test]
fn metrics_are_in_prometheus_format_and_count_what_happens() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let (port, lines) = metrics_port();
    let port = port.number();
    let proxy = ground.proxy(&lines);
    let mut client = ground.client(&proxy);
    let whose = [("database", ground.database.as_str()), ("user", "postgres")];
    let before = scrape(port);
    for _ in 0..10 {
        client.run("select 1");
    }
    client.run("insert into t values (1)");
    client.run("select pg_sleep(0.1)");
    client.error("select * from nothing");
    client.run("create temporary table kept (a int)");
    // The server is asked for the session state behind the statement.
    wait_until("the connection to be kept", || {
        scrape(port).find("weir_server_connections_pinned", &[("reason", "temporary object")]) == Some(1.0)
    });
    let after = scrape(port);
    let grown = |name: &str, labels: &[(&str, &str)]| after.get(name, labels) - before.get(name, labels);
    assert_eq!(grown("weir_pool_statements_total", &whose), 14.0);
    assert_eq!(grown("weir_pool_transactions_total", &whose), 14.0);
    assert_eq!(grown("weir_pool_statement_seconds_count", &whose), 14.0);
    assert_eq!(grown("weir_pool_wait_seconds_count", &whose), 14.0, "a link at hand is a wait of no time");
    let slept = grown("weir_pool_statement_seconds_sum", &whose);
    assert!((0.09..30.0).contains(&slept), "{slept}");
    assert_eq!(grown("weir_server_errors_total", &[("class", "42")]), 1.0);
    let nodes: f64 = ["0", "1", "2"].iter().map(|node| grown("weir_node_statements_total", &[("node", node)])).sum();
    assert_eq!(nodes, 14.0);
    let reads: f64 = ["1", "2"].iter().map(|node| grown("weir_node_reads_total", &[("node", node)])).sum();
    assert!(reads >= 10.0, "{reads}");
    let kind = |kind: &str| grown("weir_node_kind_statements_total", &[("node", "0"), ("kind", kind)]);
    assert_eq!([kind("insert"), kind("ddl"), kind("update")], [1.0, 1.0, 0.0]);
    let errors: f64 =
        ["0", "1", "2"].iter().map(|n| grown("weir_node_errors_total", &[("node", n), ("severity", "ERROR")])).sum();
    assert!(errors >= 1.0, "a standby may have refused it before the primary did: {errors}");
    assert!(after.find("weir_node_lag_seconds", &[("node", "1")]).is_some());
    assert_eq!(after.get("weir_node_primary", &[("node", "0")]), 1.0);
    assert_eq!(after.get("weir_node_up", &[("node", "2")]), 1.0);
    let kept = [whose[0], whose[1], ("node", "0"), ("state", "kept")];
    // After the client has its answer, the server is asked for the state on the connection.
    wait_until("the connection to be kept", || scrape(port).get("weir_pool_server_connections", &kept) == 1.0);
    assert_eq!(scrape(port).get("weir_server_connections_pinned", &[("reason", "temporary object")]), 1.0);
    assert_eq!(after.get("weir_pool_clients", &[whose[0], whose[1], ("state", "served")]), 1.0);
    assert!(grown("weir_statements_simple_total", &[]) >= 14.0);
    assert_eq!(after.get("weir_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert!(after.get("process_open_fds", &[]) > 3.0 && after.get("process_cpu_seconds_total", &[]) > 0.0);
}

#[test]
fn names_that_need_quoting_do_not_break_the_page() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let proxy = ground.primary_proxy(&lines);
    ground.prepare("drop role if exists \"we\"\"ird\\\"; create role \"we\"\"ird\\\" login");
    let mut client = crate::support::Raw::tcp(proxy.port()).log_in("we\"ird\\", &ground.database, &[]).unwrap();
    client.run("select 1");
    let samples = scrape(port.number());
    assert_eq!(samples.get("weir_pool_statements_total", &[("user", "we\\\"ird\\\\")]), 1.0);
}

#[test]
fn invented_names_leave_no_series_behind() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let proxy = ground.primary_proxy(&lines);
    for at in 0..20 {
        let name = format!("nobody_{at}");
        assert!(crate::support::Raw::tcp(proxy.port()).log_in(&name, &ground.database, &[]).is_err());
    }
    let (_, page) = get(port.number(), "/metrics");
    assert!(!page.contains("nobody_"), "{page}");
}

#[test]
fn what_is_asked_otherwise_gets_its_status() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let port = port.number();
    let proxy = ground.primary_proxy(&lines);
    assert_eq!(get(port, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(port, "/readyz?verbose"), (200, "ok\n".into()));
    assert_eq!(get(port, "/").0, 200);
    assert_eq!(get(port, "/nothing").0, 404);
    let head = ask(port, "HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nConnection: close\r\n\r\n".to_string(), "405"),
        ("nonsense\r\n\r\n".to_string(), "400"),
        ("GET /metrics HTTP/2\r\n\r\n".to_string(), "400"),
    ] {
        let answer = ask(port, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let mut long = String::from("GET / HTTP/1.1\r\n");
    while long.len() <= 9 << 10 {
        let _ = write!(long, "X: {}\r\n", "y".repeat(100));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(long.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Bytes after the limit may turn the close into a reset.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", answer.escape_ascii());
    assert_eq!(get(port, "/healthz").0, 200);
    drop(proxy);
}

/// Reads one answer with a body, and leaves the bytes behind it.
fn read_answer(stream: &mut TcpStream) -> (String, String) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn a_connection_is_kept_for_more_requests_and_ends_with_a_bad_one() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let proxy = ground.primary_proxy(&lines);
    let mut stream = TcpStream::connect(("127.0.0.1", port.number())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for path in ["/healthz", "/readyz", "/nothing", "/healthz"] {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let (head, body) = read_answer(&mut stream);
        assert_eq!(body == "ok\n", path != "/nothing", "{path}: {head}{body}");
    }
    // Both at once: answers come in the order of their questions.
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut stream).1, "ok\n");
    Samples::read(&read_answer(&mut stream).1);
    stream.write_all(b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n").unwrap();
    let (head, body) = read_answer(&mut stream);
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: GET"), "{head}");
    assert_eq!(body, "only GET and HEAD\n");
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 400 "), "{rest}");
    assert_eq!(get(port.number(), "/healthz").0, 200, "others are served");
    drop(proxy);
}

#[test]
fn readers_who_dawdle_hold_nobody_up_for_long() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let port = port.number();
    let proxy = ground.primary_proxy(&lines);
    let mut client = ground.client(&proxy);
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for stream in &mut slow {
        // Connections above the limit are closed already.
        let _ = stream.write_all(b"GET /metrics HT");
    }
    assert_eq!(client.value("select 1"), "1", "clients are served meanwhile");
    wait_until("a place to be free", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut answer = String::new();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains("200 OK")
    });
    // A request has 5 s to arrive.
    check_within("a place to be free", began, Duration::from_secs(5));
    let mut answer = String::new();
    let _ = slow[0].read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn readiness_follows_the_primary_the_pause_and_the_stop() {
    let cluster = cluster(0);
    let (port, lines) = metrics_port();
    let port = port.number();
    let mut proxy = Proxy::before(&[cluster.primary()], &lines);
    let mut client = crate::support::Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    client.run("select 1");
    assert_eq!(get(port, "/readyz").0, 200);
    let mut console = crate::support::Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("PAUSE");
    assert_eq!(get(port, "/readyz"), (503, "all databases are paused\n".into()));
    console.run("RESUME");
    cluster.primary().stop(Mode::Fast).unwrap();
    wait_until("the loss to be seen", || get(port, "/readyz") == (503, "no primary server is known\n".into()));
    assert_eq!(get(port, "/healthz").0, 200, "the process is fine");
    cluster.primary().start().unwrap();
    wait_until("the return to be seen", || get(port, "/readyz").0 == 200);
    client.send(&wire::query("begin"));
    client.until_ready();
    proxy.signal(rustix::process::Signal::TERM);
    wait_until("the stop to be seen", || get(port, "/readyz") == (503, "the proxy is shutting down\n".into()));
    assert_eq!(get(port, "/healthz").0, 200);
    assert_eq!(scrape(port).get("weir_stopping", &[]), 1.0);
    drop(console);
    drop(client);
    assert!(proxy.wait_end().success());
}

/// The folder of the rules, or nothing without promtool.
fn rules() -> Option<std::path::PathBuf> {
    if Command::new("promtool").arg("--version").output().is_err() {
        leave_out("there is no promtool (Debian: in prometheus)");
        return None;
    }
    Some(repository().join("deploy/prometheus"))
}

fn promtool(folder: &std::path::Path, words: &[&str], input: &str) {
    let mut child = Command::new("promtool");
    child.args(words).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    let words = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(said.status.success(), "{words}");
}

#[test]
fn each_alert_is_raised_when_it_must_be_and_only_then() {
    let Some(folder) = rules() else { return };
    promtool(&folder, &["check", "rules", "weir-alerts.yml"], "");
    promtool(&folder, &["test", "rules", "weir-alerts.test.yml"], "");
}

#[test]
fn prometheus_own_checker_reads_the_page() {
    let Some(folder) = rules() else { return };
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let _proxy = ground.primary_proxy(&lines);
    let page = get(port.number(), "/metrics").1;
    promtool(&folder, &["check", "metrics"], &page);
}

#[test]
fn a_reader_that_asks_for_open_metrics_gets_it() {
    let ground = Ground::new();
    let (port, lines) = metrics_port();
    let _proxy = ground.primary_proxy(&lines);
    let asks = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nConnection: close\r\n\r\n";
    let answer = ask(port.number(), asks);
    assert!(answer.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{answer}");
    assert!(answer.ends_with("\n# EOF\n") && answer.contains("\n# TYPE weir_waits counter\nweir_waits_total "), "{answer}");
}
