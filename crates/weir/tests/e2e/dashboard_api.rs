//! The dashboard's interface: who gets in, what it tells, and what may be ordered by it.

use crate::cancel::{SLEEP, wait_for_sleepers};
use crate::support::certs::Authority;
use crate::support::ground::cluster;
use crate::support::time::check_within;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_demo::{ReservedPort, Server};

const LIMIT: Duration = Duration::from_secs(60);

/// An administrator with his password, a reader with an md5 hash, and one who may not look.
const PASSWORDS: &str = "boss:TEXTsecret of boss\nclerk:TEXTsecret of clerk\n";

const RIGHTS: &str = "admin_users = 'boss,verified'\nstats_users = 'watcher,ghost'\npool_passwd = 'FOLDER/pool_passwd'\n";

/// A proxy with its port for HTTP.
pub struct Stage {
    pub proxy: Proxy,
    port: ReservedPort,
}

impl Stage {
    /// `more`: lines of pgpool.conf.
    fn before(servers: &[&Server], more: &str) -> Stage {
        let primary = servers[0];
        let md5 = primary.value("select 'md5' || md5('secret of watcher' || 'watcher')").unwrap();
        let verifier = primary
            .query(
                "set password_encryption = 'scram-sha-256'; do $$ begin perform pg_advisory_xact_lock(4711); if to_regrole('verified') is null then \
                 create role verified login password 'secret of verified'; end if; end $$; \
                 select rolpassword from pg_authid where rolname = 'verified'",
            )
            .unwrap();
        let verifier = verifier.into_iter().flatten().flatten().next().expect("a verifier");
        let passwords = format!("{PASSWORDS}watcher:{md5}\nverified:{verifier}\n");
        let port = ReservedPort::any().unwrap();
        let lines = format!("metrics_port = {}\n{RIGHTS}{more}", port.number());
        let proxy = Proxy::with_files(servers, &lines, &[("pool_passwd", &passwords)], &[]);
        Stage { proxy, port }
    }

    /// With the dashboard, for clients of this machine.
    pub fn on(servers: &[&Server], more: &str) -> Stage {
        Stage::before(servers, &format!("metrics_listen_addresses = '127.0.0.1'\ndashboard = on\n{more}"))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        over(&mut connect(self.port.number()), method, path, headers, body)
    }

    fn try_login(&self, user: &str, password: &str) -> Answer {
        self.ask("POST", "/api/v1/login", &[], &json!({ "user": user, "password": password }).to_string())
    }

    pub fn login(&self, user: &str) -> Visitor<'_> {
        let answer = self.try_login(user, &format!("secret of {user}"));
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.proxy.log());
        let (cookie, csrf) = (answer.cookie(), answer.json()["csrf"].as_str().expect("a token").to_owned());
        Visitor { stage: self, cookie, csrf }
    }
}

/// Somebody who has logged in.
pub struct Visitor<'a> {
    stage: &'a Stage,
    cookie: String,
    csrf: String,
}

impl Visitor<'_> {
    fn get(&self, path: &str) -> Answer {
        self.stage.ask("GET", path, &[("Cookie", &self.cookie)], "")
    }

    /// The answer of a request that succeeds.
    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}: {answer:?}");
        answer.json()
    }

    /// A stream of overviews, as an open page has one.
    pub fn open_page(&self) -> BufReader<TcpStream> {
        let mut stream = BufReader::new(connect(self.stage.port.number()));
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: weir\r\nCookie: {}\r\n\r\n", self.cookie);
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        stream
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.stage.ask("POST", path, &[("Cookie", &self.cookie), ("X-CSRF-Token", &self.csrf)], &body.to_string())
    }

    /// The values of one column of a list.
    fn column(&self, list: &str, column: &str) -> Vec<Value> {
        let shown = self.json(&format!("/api/v1/show/{list}"));
        let columns = shown["columns"].as_array().unwrap();
        let at = columns.iter().position(|known| known["name"] == column).unwrap_or_else(|| panic!("{list} has no {column}"));
        shown["rows"].as_array().unwrap().iter().map(|row| row[at].clone()).collect()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a refusal, which has all its parts.
    fn code(&self) -> String {
        let error = &self.json()["error"];
        assert!(["code", "message", "hint"].iter().all(|part| error[part].is_string()), "{self:?}");
        error["code"].as_str().unwrap().to_owned()
    }

    /// The cookie that a browser sends back.
    fn cookie(&self) -> String {
        self.header("set-cookie").and_then(|line| line.split(';').next()).expect("a cookie").to_owned()
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn over(stream: &mut (impl Read + Write), method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    // A peer that closes TLS without a word has said all.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn over_tls(port: u16, config: Arc<ClientConfig>, path: &str, address: Ipv4Addr) -> Answer {
    let stream = TcpStream::connect(SocketAddrV4::new(address, port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    over(&mut StreamOwned::new(session, stream), "GET", path, &[], "")
}

/// Percent signs for what an address cannot hold.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// An address of this machine that is not its loopback.
fn own_address() -> Option<Ipv4Addr> {
    if_addrs::get_if_addrs().ok()?.into_iter().find_map(|interface| match interface.ip() {
        std::net::IpAddr::V4(address) if !address.is_loopback() => Some(address),
        std::net::IpAddr::V4(_) | std::net::IpAddr::V6(_) => None,
    })
}

#[test]
fn the_dashboard_is_off_unless_it_is_turned_on() {
    let ground = Ground::new();
    let stage = Stage::before(&[ground.cluster.primary()], "metrics_listen_addresses = '127.0.0.1'\n");
    assert_eq!(stage.get("/metrics").status, 200);
    assert!(stage.get("/").body.starts_with("/metrics  numbers"), "the list of pages, as without a dashboard");
    let login = stage.try_login("boss", "secret of boss");
    assert_eq!((login.status, login.code().as_str()), (404, "not_found"));
    assert_eq!(stage.get("/api/v1/me").status, 404);
    stage.proxy.add_conf("dashboard = on\n");
    stage.proxy.reload();
    assert_eq!(stage.get("/api/v1/me").status, 401);
    assert_eq!(stage.ask("PUT", "/api/v1/login", &[], "").code(), "method");
    let page = stage.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let mark = page.header("etag").expect("a mark of the file");
    assert_eq!(stage.ask("GET", "/", &[("If-None-Match", mark)], "").status, 304);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
    assert_eq!((page.header("x-content-type-options"), page.header("referrer-policy")), (Some("nosniff"), Some("no-referrer")));
    assert_eq!(stage.get("/assets/../../pool_passwd").status, 404);
}

#[test]
fn passwords_of_every_kind_let_in_who_may_and_nobody_else() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    for (user, role) in [("boss", "admin"), ("verified", "admin"), ("watcher", "stats")] {
        let visitor = stage.login(user);
        let me = visitor.json("/api/v1/me");
        assert_eq!((&me["user"], &me["role"], &me["csrf"]), (&json!(user), &json!(role), &json!(visitor.csrf)));
        assert!(me["version"].is_string() && me["host"].is_string(), "{me}");
    }
    let line = stage.try_login("boss", "secret of boss").header("set-cookie").unwrap().to_owned();
    assert!(line.contains("; HttpOnly; SameSite=Strict; Path=/") && !line.contains("Secure"), "{line}");
    for (user, password) in [
        ("boss", "wrong"),
        ("boss", ""),
        ("watcher", "secret of boss"),
        ("clerk", "secret of clerk"),
        ("ghost", ""),
        ("nobody", "x"),
        ("b\0ss", "\u{1f980}"),
    ] {
        let answer = stage.try_login(user, password);
        assert_eq!((answer.status, answer.code().as_str()), (401, "28P01"), "{user}: {answer:?}");
        assert!(answer.header("set-cookie").is_none());
    }
    let log = stage.proxy.log();
    assert!(log.contains("dashboard: user \"boss\" logs in from 127.0.0.1 as admin"), "{log}");
    assert!(log.contains("dashboard: login failed for user \"clerk\" from 127.0.0.1") && !log.contains("secret of"), "{log}");
}

#[test]
fn who_guesses_passwords_is_sent_away_and_gets_in_again_later() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "login_failure_limit = 2\n");
    let mut statuses = Vec::new();
    std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..8).map(|_| scope.spawn(|| stage.try_login("boss", "a guess"))).collect();
        statuses.extend(guesses.into_iter().map(|guess| guess.join().unwrap()));
    });
    assert!(statuses.iter().all(|answer| matches!(answer.status, 401 | 429)), "{statuses:?}");
    let refused = statuses.iter().find(|answer| answer.status == 429).expect("somebody is sent away");
    assert_eq!(refused.code(), "too_many");
    assert!(refused.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok()).is_some_and(|seconds| seconds > 0));
    assert_eq!(stage.try_login("verified", "secret of verified").status, 200, "another user of the address is not touched");
    assert_eq!(stage.get("/metrics").status, 200);
    wait_until("the right password to be let in", || stage.try_login("boss", "secret of boss").status == 200);
}

#[test]
fn nothing_is_told_without_a_login_and_nothing_done_without_the_pages_token() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    let paths = [
        "me",
        "show",
        "show/pool_nodes",
        "overview",
        "history?span=hour",
        "events",
        "log",
        "configuration",
        "check",
        "route?database=a&statement=b",
        "act?act=reload",
        "nonsense",
    ];
    for path in paths {
        for headers in [&[][..], &[("Cookie", "weir_session=x")], &[("Cookie", "a=b; weir_session_1=; c")]] {
            let answer = stage.ask("GET", &format!("/api/v1/{path}"), headers, "");
            assert_eq!((answer.status, answer.code().as_str()), (401, "28000"), "{path}");
        }
    }
    for path in ["logout", "act", "me", "nonsense"] {
        assert_eq!(stage.ask("POST", &format!("/api/v1/{path}"), &[], "{}").status, 401, "{path}");
    }
    let boss = stage.login("boss");
    let reload = json!({ "act": "reload" }).to_string();
    let other = stage.login("boss");
    let wrong = boss.csrf.replace(|_: char| true, "0");
    for csrf in [None, Some(""), Some(wrong.as_str()), Some(&boss.csrf[1..]), Some(other.csrf.as_str())] {
        let cookie = ("Cookie", boss.cookie.as_str());
        let headers: Vec<(&str, &str)> = std::iter::once(cookie).chain(csrf.map(|csrf| ("X-CSRF-Token", csrf))).collect();
        let answer = stage.ask("POST", "/api/v1/act", &headers, &reload);
        assert_eq!((answer.status, answer.code().as_str()), (403, "csrf"), "{csrf:?}");
    }
    for (origin, status) in [("http://evil", 403), ("null", 403), ("http://weir", 200)] {
        let headers = [("Cookie", boss.cookie.as_str()), ("X-CSRF-Token", &boss.csrf), ("Origin", origin)];
        assert_eq!(stage.ask("POST", "/api/v1/act", &headers, &reload).status, status, "{origin}");
    }
    assert_eq!(stage.ask("POST", "/api/v1/login", &[("Origin", "http://evil")], "{}").status, 403);
    assert_eq!(boss.get("/api/v1/nonsense").status, 404);
    assert_eq!(boss.post("/api/v1/logout", &json!({})).status, 204);
    assert_eq!(boss.get("/api/v1/me").status, 401);
    assert_eq!(other.get("/api/v1/me").status, 200, "another login of the user goes on");
}

#[test]
fn requests_that_make_no_sense_or_are_too_large_are_refused() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    for body in ["", "[]", "{", "{\"user\": 1, \"password\": \"\"}", "{\"user\": \"boss\"}", "\u{0}"] {
        assert_eq!(stage.ask("POST", "/api/v1/login", &[], body).status, 400, "{body}");
    }
    let large = json!({ "user": "boss", "password": "x".repeat(20_000) }).to_string();
    assert_eq!(stage.ask("POST", "/api/v1/login", &[], &large).status, 400);
    assert_eq!(stage.try_login(&"x".repeat(64), "x").status, 400);
    let boss = stage.login("boss");
    for path in [
        "act?act=explode",
        "act?act=attach",
        "act?act=attach&node=x",
        "act?act=attach&node=-1",
        "history?span=year",
        "log?after=x",
        "route?database=a",
    ] {
        let answer = boss.get(&format!("/api/v1/{path}"));
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_request"), "{path}");
    }
    for path in ["show/nothing", "show/console_", "show/%00", "show/..%2f..%2fetc"] {
        assert_eq!(boss.get(&format!("/api/v1/{path}")).status, 404, "{path}");
    }
    for act in ["attach", "detach", "promote", "switchover", "restart", "recover"] {
        let answer = boss.post("/api/v1/act", &json!({ "act": act, "node": 77 }));
        assert_eq!((answer.status, answer.code().as_str()), (409, "55000"), "{act}: {answer:?}");
    }
    let recovery = boss.post("/api/v1/act", &json!({ "act": "recover", "node": 0 }));
    assert!(recovery.status == 409 && recovery.body.contains("the node has no agent"), "{recovery:?}");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "kill_client", "client": 1 })).code(), "42704");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "cancel_client", "client": 1 })).code(), "42704");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "pause", "database": "no such" })).code(), "3D000");
}

#[test]
fn readers_see_all_but_the_log_and_order_nothing() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    let watcher = stage.login("watcher");
    for path in ["show/pool_nodes", "show/console_clients", "overview", "history"] {
        assert_eq!(watcher.get(&format!("/api/v1/{path}")).status, 200, "{path}");
    }
    for path in ["log", "check", "act?act=detach&node=0"] {
        let answer = watcher.get(&format!("/api/v1/{path}"));
        assert_eq!((answer.status, answer.code().as_str()), (403, "42501"), "{path}");
    }
    for act in [
        "attach",
        "detach",
        "promote",
        "switchover",
        "recover",
        "restart",
        "reload",
        "pause",
        "resume",
        "kill_client",
        "cancel_client",
    ] {
        assert_eq!(watcher.post("/api/v1/act", &json!({ "act": act, "node": 0, "client": 1 })).status, 403, "{act}");
    }
    let configuration = watcher.json("/api/v1/configuration");
    let listed = |name: &str| configuration["parameters"].as_array().unwrap().iter().find(|row| row["name"] == name);
    assert!(listed("admin_users").is_none() && listed("metrics_port").is_some_and(|row| row["source"]["file"].is_null()));
    let names = watcher.column("pool_status", "item");
    assert!(!names.contains(&json!("admin_users")) && names.contains(&json!("port")), "{names:?}");
    assert!(stage.login("boss").column("pool_status", "item").contains(&json!("admin_users")));
}

#[test]
fn a_reload_that_takes_rights_or_changes_a_password_ends_sessions() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    let (boss, verified) = (stage.login("boss"), stage.login("verified"));
    stage.proxy.add_conf("admin_users = 'boss'\nstats_users = 'verified'\n");
    stage.proxy.reload();
    assert_eq!(verified.json("/api/v1/me")["role"], "stats");
    assert_eq!(verified.post("/api/v1/act", &json!({ "act": "reload" })).status, 403);
    stage.proxy.add_conf("stats_users = ''\n");
    stage.proxy.reload();
    assert_eq!((verified.get("/api/v1/me").status, boss.get("/api/v1/me").status), (401, 200));
    stage.proxy.write_file("pool_passwd", "boss:TEXTanother secret\n");
    stage.proxy.reload();
    assert_eq!(boss.get("/api/v1/me").status, 401);
    assert_eq!(stage.try_login("boss", "secret of boss").status, 401);
    assert_eq!(stage.try_login("boss", "another secret").status, 200);
}

#[test]
fn every_list_has_its_columns_and_texts_of_clients_stay_texts() {
    let ground = Ground::new();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let stage = Stage::on(&servers, "memory_cache_enabled = on\n");
    let evil = "<script>alert(1)</script>\"";
    let mut client = ground.client_with(&stage.proxy, &[("application_name", evil)]);
    client.rows("select 1");
    let boss = stage.login("boss");
    let described = boss.json("/api/v1/show");
    let views = described["views"].as_array().unwrap();
    let names: BTreeSet<&str> = views.iter().map(|view| view["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), views.len());
    for name in ["pool_nodes", "pool_failover", "pool_status", "console_pools", "console_clients", "console_servers"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    for view in views {
        let name = view["name"].as_str().unwrap();
        assert!(view["help"].as_str().is_some_and(|help| help.ends_with('.')), "{view}");
        let shown = boss.json(&format!("/api/v1/show/{name}?database={}", ground.database));
        assert_eq!(shown["view"], name);
        assert!(shown["at"].as_str().is_some_and(|at| at.len() == 20 && at.ends_with('Z')), "{name}: {}", shown["at"]);
        let columns = shown["columns"].as_array().unwrap();
        let of = |list: &Value| list.as_array().unwrap().iter().map(|column| column["name"].clone()).collect::<Vec<_>>();
        assert_eq!(of(&view["columns"]), of(&shown["columns"]), "{name}");
        for row in shown["rows"].as_array().unwrap() {
            let cells = row.as_array().unwrap();
            assert_eq!(cells.len(), columns.len(), "{name}");
            for (cell, column) in cells.iter().zip(columns) {
                let is_right = match column["type"].as_str() {
                    Some("number") => cell.is_number() || cell.is_null(),
                    Some("text") => cell.as_str().is_some_and(|text| !text.is_empty()) || cell.is_null(),
                    _ => false,
                };
                assert!(is_right, "{name}: {column} {cell}");
            }
        }
    }
    assert_eq!(boss.column("pool_nodes", "node_id"), [json!(0), json!(1), json!(2)]);
    assert!(boss.column("console_clients", "application_name").contains(&json!(evil)));
    let answer = boss.get("/api/v1/show/console_clients");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn nodes_are_detached_and_attached_and_each_order_is_foretold_and_logged() {
    let ground = Ground::new();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let stage = Stage::on(&servers, "");
    let boss = stage.login("boss");
    let status = || boss.column("pool_nodes", "status");
    let foretold = boss.json("/api/v1/act?act=detach&node=1");
    assert_eq!((&foretold["act"], &foretold["clients"]), (&json!("detach"), &json!(0)));
    assert!(foretold["does"].as_str().is_some_and(|text| text.contains("node 1")));
    assert_eq!(status()[1], "up");
    let answer = boss.post("/api/v1/act", &json!({ "act": "detach", "node": 1 }));
    assert_eq!((answer.status, answer.json()), (200, json!({ "done": true, "notices": [] })));
    assert_eq!(status(), ["up", "down", "up"]);
    let attention = &boss.json("/api/v1/overview")["attention"];
    let is_told = |what: &str| attention.as_array().unwrap().iter().any(|point| point["what"].as_str().unwrap().contains(what));
    assert!(is_told("Node 1 is"), "{attention}");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "attach", "node": 1 })).status, 200);
    assert_eq!(status(), ["up", "up", "up"]);
    let log = stage.proxy.log();
    for act in ["detach node 1", "attach node 1"] {
        assert!(log.contains(&format!("dashboard: {act} by user \"boss\" from 127.0.0.1")), "{log}");
    }
    let lines = boss.json("/api/v1/log?contains=DETACH%20NODE%201%20by");
    let texts: Vec<&str> = lines["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["dashboard: detach node 1 by user \"boss\" from 127.0.0.1"]);
    let next = lines["next"].as_u64().unwrap();
    assert!(next > 0 && boss.json(&format!("/api/v1/log?after={next}"))["lines"].as_array().unwrap().is_empty());
}

#[test]
fn a_primary_is_detached_and_a_standby_promoted_in_its_place() {
    let servers = cluster(1);
    let builtin = "failover_mode = builtin\nfailover_alone = on\nfailover_lag_max = -1\nhealth_check_period = 1\nhealth_check_timeout = 5\n\
        backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\n";
    let all: Vec<&Server> = servers.servers().iter().collect();
    let stage = Stage::on(&all, builtin);
    wait_until("the proxy to let writes through", || stage.proxy.log().contains("writes go to node 0"));
    let (boss, mut client) = (stage.login("boss"), stage.proxy.console());
    client.run("create table t (a int)");
    let foretold = |act: &str| boss.json(&format!("/api/v1/act?{act}"));
    assert!(foretold("act=promote&node=1")["does"].as_str().unwrap().starts_with("Promotes node 1"));
    let early = boss.post("/api/v1/act", &json!({ "act": "promote", "node": 1 }));
    assert!(early.status == 409 && early.body.contains("the primary works"), "{early:?}");
    client.run("begin");
    client.run("insert into t values (1)");
    let detach = foretold("act=detach&node=0");
    assert_eq!((&detach["clients"], &detach["in_group"]), (&json!(1), &json!(false)), "{detach}");
    assert!(detach["does"].as_str().unwrap().contains("It is the primary: writes wait"), "{detach}");
    client.run("commit");
    for (act, node) in [("detach", 0), ("promote", 1)] {
        let answer = boss.post("/api/v1/act", &json!({ "act": act, "node": node }));
        assert_eq!(
            (answer.status, answer.json()["done"].clone()),
            (200, json!(true)),
            "{act}: {answer:?}\n{}",
            stage.proxy.log()
        );
        assert!(stage.proxy.log().contains(&format!("dashboard: {act} node {node} by user \"boss\" from 127.0.0.1")));
    }
    wait_until("the new primary to be shown", || boss.column("pool_nodes", "role") == ["standby", "primary"]);
    let mut later = stage.proxy.console();
    later.run("insert into t values (2)");
    assert_eq!(later.value("select inet_server_port() from t where a = 2 for update"), all[1].port().to_string());
}

#[test]
fn databases_are_paused_and_clients_ended() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    let mut client = ground.client(&stage.proxy);
    client.rows("select 1");
    let boss = stage.login("boss");
    let (database, state) = (&ground.database, || boss.json("/api/v1/overview")["state"].clone());
    assert_eq!(boss.json(&format!("/api/v1/act?act=pause&database={database}"))["clients"], 1);
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "pause", "database": database })).status, 200);
    wait_until("the pause to be told", || {
        let told = boss.json("/api/v1/overview")["attention"].clone();
        told.as_array().unwrap().iter().any(|point| point["what"].as_str().unwrap().contains("is paused"))
    });
    assert_eq!(state(), "running", "one database is not all");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "resume", "database": database })).status, 200);
    // The order is mail to a worker: it has come when the client goes on.
    assert_eq!(client.rows("select 2"), [["2"]]);
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "resume" })).code(), "55000");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "pause" })).status, 200);
    wait_until("the state to be told", || state() == "paused");
    assert_eq!(stage.get("/primary").status, 503);
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "resume" })).status, 200);
    let ids = boss.column("console_clients", "id");
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "kill_client", "client": ids[0] })).status, 200);
    wait_until("the client to be gone", || boss.column("console_clients", "id").is_empty());
}

#[test]
fn one_statement_is_cancelled_and_its_client_stays() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "pool_size = 1\n");
    let (mut busy, mut waiting) = (ground.client(&stage.proxy), ground.client(&stage.proxy));
    let boss = stage.login("boss");
    let act = |client: &Raw| json!({ "act": "cancel_client", "client": client.pid });
    let foretold = |client: &Raw| boss.json(&format!("/api/v1/act?act=cancel_client&client={}", client.pid))["clients"].clone();
    let idle = boss.post("/api/v1/act", &act(&busy));
    assert_eq!((idle.status, idle.code().as_str()), (409, "55000"), "{idle:?}");
    assert_eq!(foretold(&busy), 0);
    busy.send(&wire::query(SLEEP));
    wait_for_sleepers(&ground, 1);
    waiting.send(&wire::query("select 'waits'"));
    wait_until("the second client to wait", || {
        foretold(&waiting) == 1 && boss.column("console_pools", "cl_waiting").contains(&json!(1))
    });
    assert_eq!(stage.login("watcher").post("/api/v1/act", &act(&busy)).status, 403);
    assert_eq!(foretold(&busy), 1);
    for client in [&mut waiting, &mut busy] {
        assert_eq!(boss.post("/api/v1/act", &act(client)).status, 200);
        assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').expect("an error").failure().sqlstate, "57014");
    }
    wait_for_sleepers(&ground, 0);
    for client in [&mut busy, &mut waiting] {
        assert_eq!(client.value("select 1"), "1");
        let line = format!("dashboard: cancel_client {} by user \"boss\" from 127.0.0.1", client.pid);
        assert!(stage.proxy.log().contains(&line), "{line}");
    }
}

#[test]
fn the_overview_counts_and_is_sent_to_open_pages_each_second() {
    let ground = Ground::new();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let stage = Stage::on(&servers, "");
    let mut client = ground.client(&stage.proxy);
    let boss = stage.login("boss");
    let overview = boss.json("/api/v1/overview");
    assert_eq!((&overview["state"], &overview["group"]), (&json!("running"), &Value::Null));
    assert!(overview["clients"]["connected"].as_u64().is_some_and(|count| count >= 1), "{overview}");
    let nodes = overview["nodes"].as_array().unwrap();
    let roles: Vec<&str> = nodes.iter().map(|node| node["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["primary", "standby", "standby"]);
    for (part, keys) in [
        (
            &overview,
            &["at", "version", "host", "uptime_s", "state", "clients", "servers", "nodes", "group", "rates", "attention"][..],
        ),
        (&overview["clients"], &["connected", "active", "waiting", "max"]),
        (&overview["servers"], &["active", "idle", "max"]),
        (&overview["rates"], &["statements_s", "transactions_s", "errors_s", "p50_us", "p99_us", "cache_hit_ratio"]),
        (
            &nodes[0],
            &["node", "host", "port", "role", "status", "why", "lag_bytes", "lag_ms", "connections", "statements_s", "weight"],
        ),
    ] {
        let there: BTreeSet<&str> = part.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(there, keys.iter().copied().collect());
    }
    let mut stream = boss.open_page();
    let mut next = || loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ends");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    let first = next();
    assert!(first["nodes"].is_array(), "{first}");
    let (begun, mut seen) = (Instant::now(), BTreeSet::new());
    while seen.len() < 3 {
        client.rows("select 1");
        seen.insert(next()["at"].as_str().unwrap().to_owned());
    }
    check_within("three overviews", begun, Duration::from_secs(10));
    wait_until("statements to be counted", || {
        next()["rates"]["statements_s"].as_f64().is_some_and(|rate| {
            client.rows("select 1");
            rate > 0.0
        })
    });
    assert_eq!(boss.post("/api/v1/logout", &json!({})).status, 204);
    wait_until("the stream to end with the login", || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap() == 0 || line == "0\r\n"
    });
}

#[test]
fn five_pages_are_served_and_too_many_leave_room_for_monitoring() {
    let ground = Ground::new();
    let mut stage = Stage::on(&[ground.cluster.primary()], "");
    let boss = stage.login("boss");
    let open = || {
        let mut stream = boss.open_page();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        (stream, line.split(' ').nth(1).unwrap_or_default().to_owned())
    };
    let mut pages: Vec<_> = (0..18).map(|_| open()).collect();
    let statuses: Vec<&str> = pages.iter().map(|(_, status)| status.as_str()).collect();
    assert_eq!((&statuses[..16], &statuses[16..]), (&["200"; 16][..], &["429", "429"][..]));
    assert_eq!(stage.get("/metrics").status, 200);
    pages.truncate(5);
    for (stream, _) in &mut pages {
        let (mut line, mut events) = (String::new(), 0);
        while events < 2 {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0);
            events += u32::from(line.starts_with("event: overview"));
        }
    }
    wait_until("places of pages that left to be free", || open().1 == "200");
    stage.proxy.signal(Signal::TERM);
    assert!(stage.proxy.wait_end().success(), "open pages hold up no stop");
}

#[test]
fn curves_grow_while_nobody_looks() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "");
    let boss = stage.login("boss");
    let mut client = ground.client(&stage.proxy);
    let points = |name: &str| boss.json("/api/v1/history?span=hour")["series"][name].as_array().unwrap().clone();
    wait_until("statements to be in the curves", || {
        client.rows("select 1");
        points("statements_s").iter().any(|point| point.as_f64().is_some_and(|rate| rate > 0.0))
    });
    let history = boss.json("/api/v1/history?span=hour");
    assert_eq!(history["step_s"], 5);
    assert!(history["first_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{history}");
    let series = history["series"].as_object().unwrap();
    let names: BTreeSet<&str> = series.keys().map(String::as_str).collect();
    let expected = ["statements_s", "transactions_s", "clients", "waiting", "p99_us", "lag_bytes", "errors_s", "cache_hit_ratio"];
    assert_eq!(names, expected.into());
    let lengths: BTreeSet<usize> = series.values().map(|line| line.as_array().unwrap().len()).collect();
    assert_eq!(lengths.len(), 1, "all of one length");
    assert_eq!(boss.json("/api/v1/history?span=day")["step_s"], 60);
}

/// Statements, and what decides about each.
const ROUTED: &[(&str, &str)] = &[
    ("select * from items", "goes to one of the nodes 0, 1, 2 because it only reads"),
    ("select counts()", "goes to the primary because counts() is VOLATILE, or not known to only read"),
    ("select not_there()", "goes to the primary because not_there() is VOLATILE, or not known to only read"),
    ("insert into items values (1)", "goes to the primary because it writes to items"),
    ("select * from items for update", "goes to the primary because it locks rows of items"),
    (
        "select * from drafts",
        "goes to the primary because drafts is unlogged or has an unlogged table behind it, of which standbys have no rows",
    ),
    (
        "select * from missing",
        "goes to the primary because missing does not exist, is outside of search_path, or was made just now",
    ),
    ("select last_value from numbers", "goes to the primary because numbers is a sequence, of which standbys are ahead"),
    ("select * from counted", "goes to the primary because a view or policy of counted calls what may write"),
    (
        "select * from pg_class",
        "goes to the primary because pg_class is a system catalog or shows one, and tells of the server that is asked",
    ),
    ("select 4711", "goes to the primary because \"select 47.*\" of primary_routing_query_pattern_list fits it"),
    ("select pg_advisory_lock(1)", "goes to the primary because it leaves state (advisory lock) behind in the session"),
    ("/* weir: primary */ select 1", "goes to the primary because its comment asks for the primary"),
    ("/* weir: node=2 */ select 1", "goes to node 2 because it reads, and its comment asks for node 2"),
    ("/* from the shop */ select 1", "goes to the primary because a comment stands before it, and allow_sql_comments is off"),
    ("begin", "goes to the primary because it begins, ends or divides a transaction"),
    ("vacuum", "goes to the primary because it writes to the server"),
    ("show work_mem", "goes to the primary because a statement of its kind is not known to only read"),
    ("nonsense", "goes to the primary because PostgreSQL's parser refuses it, and the primary names the error"),
];

#[test]
fn a_statement_is_routed_as_a_new_session_would_and_the_reason_names_what_decides() {
    let ground = Ground::new();
    ground.prepare(
        "create table items (id int); create unlogged table drafts (id int); create sequence numbers; \
         create function counts() returns int volatile language sql as 'select 1'; create view counted as select counts()",
    );
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let lines = "primary_routing_query_pattern_list = 'select 47.*'\nbackend_weight0 = 1\n";
    let stage = Stage::on(&servers, lines);
    let mut client = ground.client(&stage.proxy);
    client.rows("select 1");
    let boss = stage.login("boss");
    let route = |statement: &str| {
        boss.json(&format!("/api/v1/route?database={}&user=postgres&statement={}", ground.database, escaped(statement)))
    };
    for (statement, reason) in ROUTED {
        let routed = route(statement);
        let shown = client.rows(&format!("show route for '{}'", statement.replace('\'', "''")));
        assert_eq!((&routed["kind"], &routed["rule"]), (&json!(shown[0][0]), &json!(shown[0][2])), "{statement}: {routed}");
        let nodes: Vec<String> = routed["node"].as_array().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(nodes.join(","), shown[0][1], "{statement}: {routed}");
        assert_eq!(routed["reason"], *reason, "{statement}");
    }
    stage.proxy.add_conf(&format!("database_redirect_preference_list = '{}:1'\n", ground.database));
    stage.proxy.reload();
    let reason = "goes to node 1 because it reads, and database_redirect_preference_list prefers this node";
    assert_eq!(route("select * from items")["reason"], reason);
    let unknown = boss.json("/api/v1/route?database=nobodys&statement=select%201");
    assert_eq!(
        unknown["reason"],
        "goes to the primary because the objects of database \"nobodys\" are not known yet, or have just changed"
    );
}

#[test]
fn a_changed_file_is_told_before_it_counts() {
    let ground = Ground::new();
    let stage = Stage::on(&[ground.cluster.primary()], "pool_size = 7\n");
    let boss = stage.login("boss");
    let parameter = |name: &str| {
        let all = boss.json("/api/v1/configuration");
        let found = all["parameters"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("no {name} in {all}"))
    };
    let before = parameter("pool_size");
    assert_eq!((&before["value"], &before["waiting"], &before["source"]["kind"]), (&json!("7"), &Value::Null, &json!("file")));
    let (file, line) =
        (before["source"]["file"].as_str().expect("a file").to_owned(), before["source"]["line"].as_u64().unwrap() as usize);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().nth(line - 1), Some("pool_size = 7"), "{file}:{line}");
    assert_eq!(parameter("authentication_timeout")["source"], json!({ "kind": "default", "file": null, "line": null }));
    stage.proxy.add_conf("pool_size = 9\nlisten_backlog_multiplier = 3\n");
    let waits = |name: &str| {
        let waiting = &parameter(name)["waiting"];
        (waiting["until"].clone(), waiting["value"].clone())
    };
    assert_eq!(waits("pool_size"), (json!("reload"), json!("9")));
    assert_eq!(waits("listen_backlog_multiplier"), (json!("restart"), json!("3")));
    let done = boss.post("/api/v1/act", &json!({ "act": "reload" }));
    assert!(done.status == 200 && done.body.contains("listen_backlog_multiplier"), "{done:?}");
    let after = parameter("pool_size");
    assert_eq!((&after["value"], &after["waiting"]), (&json!("9"), &Value::Null));
    assert_eq!(waits("listen_backlog_multiplier"), (json!("restart"), json!("3")), "a reload does not end that");
    let found = boss.json("/api/v1/check");
    assert_eq!(found["errors"], 0, "{found}");
    stage.proxy.add_conf("pool_size = many\n");
    let found = boss.json("/api/v1/check");
    let problem = &found["problems"].as_array().unwrap().iter().find(|problem| problem["level"] == "error").expect("an error");
    assert_eq!((&found["errors"], &problem["file"]), (&json!(1), &json!(file)));
    assert!(problem["what"].as_str().unwrap().contains("pool_size") && problem["line"].as_u64() > Some(line as u64), "{problem}");
    assert_eq!(boss.json("/api/v1/configuration")["file_errors"], 1);
    let refused = boss.post("/api/v1/act", &json!({ "act": "reload" }));
    assert_eq!((refused.status, refused.code().as_str()), (409, "F0000"), "{refused:?}");
    assert_eq!(parameter("pool_size")["value"], "9", "a wrong file changes nothing");
}

#[test]
fn other_hosts_are_served_over_tls_only_unless_told_otherwise() {
    let Some(address) = own_address() else {
        eprintln!("left out: this machine has no address beside its loopback");
        return;
    };
    let (ground, authority) = (Ground::new(), Authority::new("ours"));
    let stage = Stage::before(&[ground.cluster.primary()], "metrics_listen_addresses = '*'\ndashboard = on\n");
    let port = stage.port.number();
    let plain = |path: &str| over(&mut TcpStream::connect(SocketAddrV4::new(address, port)).unwrap(), "GET", path, &[], "");
    assert_eq!(plain("/metrics").status, 200);
    assert_eq!((plain("/api/v1/me").status, plain("/api/v1/me").code().as_str()), (403, "not_encrypted"));
    assert_eq!((plain("/").status, stage.get("/api/v1/me").status), (403, 401));
    let signed = authority.server();
    stage.proxy.write_file("server.crt", &signed.cert);
    stage.proxy.write_file("server.key", &signed.key);
    stage.proxy.add_conf("ssl = on\nssl_cert = 'server.crt'\nssl_key = 'server.key'\n");
    stage.proxy.reload();
    let config = authority.client_config(&[b"h2", b"http/1.1"]);
    assert_eq!(over_tls(port, config.clone(), "/api/v1/me", address).status, 401, "{}", stage.proxy.log());
    assert_eq!(over_tls(port, config.clone(), "/metrics", address).status, 200);
    assert_eq!(plain("/api/v1/me").status, 403, "TLS for others changes nothing for those without");
    let mut stream = TcpStream::connect(SocketAddrV4::new(address, port)).unwrap();
    let session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let body = json!({ "user": "boss", "password": "secret of boss" }).to_string();
    let answer = over(&mut StreamOwned::new(session, &mut stream), "POST", "/api/v1/login", &[], &body);
    assert!(answer.status == 200 && answer.header("set-cookie").is_some_and(|line| line.ends_with("; Secure")), "{answer:?}");
    stage.proxy.add_conf("dashboard_insecure = on\n");
    stage.proxy.reload();
    assert_eq!(plain("/api/v1/me").status, 401);
}

#[test]
fn load_balancers_are_told_where_a_primary_and_standbys_are() {
    let servers = cluster(1);
    let all: Vec<&Server> = servers.servers().iter().collect();
    let stage = Stage::before(&all, "metrics_listen_addresses = '127.0.0.1'\nsr_check_period = 1\n");
    let statuses = || ["/primary", "/standby", "/leader"].map(|path| stage.get(path).status);
    wait_until("all to be there", || statuses() == [200, 200, 200]);
    servers.standbys()[0].stop(weir_demo::Mode::Fast).unwrap();
    wait_until("the standby to be missed", || statuses() == [200, 503, 200]);
    servers.primary().stop(weir_demo::Mode::Fast).unwrap();
    wait_until("the primary to be missed", || statuses() == [503, 503, 503]);
}
