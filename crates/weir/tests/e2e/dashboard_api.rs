//! The dashboard's interface: who gets in, what it tells, and what may be ordered by it.

use crate::support::certs::Authority;
use crate::support::ground::cluster;
use crate::support::time::check_within;
use crate::support::{Ground, Proxy, wait_until};
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
struct Stage {
    proxy: Proxy,
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
    fn on(servers: &[&Server], more: &str) -> Stage {
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

    fn login(&self, user: &str) -> Visitor<'_> {
        let answer = self.try_login(user, &format!("secret of {user}"));
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.proxy.log());
        let (cookie, csrf) = (answer.cookie(), answer.json()["csrf"].as_str().expect("a token").to_owned());
        Visitor { stage: self, cookie, csrf }
    }
}

/// Somebody who has logged in.
struct Visitor<'a> {
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
    for path in ["log", "act?act=detach&node=0"] {
        let answer = watcher.get(&format!("/api/v1/{path}"));
        assert_eq!((answer.status, answer.code().as_str()), (403, "42501"), "{path}");
    }
    for act in ["attach", "detach", "promote", "switchover", "recover", "restart", "reload", "pause", "resume", "kill_client"] {
        assert_eq!(watcher.post("/api/v1/act", &json!({ "act": act, "node": 0, "client": 1 })).status, 403, "{act}");
    }
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
    assert_eq!(boss.post("/api/v1/act", &json!({ "act": "resume" })).code(), "55000");
    assert_eq!(client.rows("select 2"), [["2"]]);
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
    let mut stream = BufReader::new(connect(stage.port.number()));
    let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: weir\r\nCookie: {}\r\n\r\n", boss.cookie);
    stream.get_mut().write_all(request.as_bytes()).unwrap();
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
        let mut stream = BufReader::new(connect(stage.port.number()));
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: weir\r\nCookie: {}\r\n\r\n", boss.cookie);
        stream.get_mut().write_all(request.as_bytes()).unwrap();
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

#[test]
fn a_statement_is_routed_as_a_new_session_would() {
    let ground = Ground::new();
    ground.prepare("create table items (id int); create function counts() returns int volatile language sql as 'select 1'");
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let stage = Stage::on(&servers, "");
    let mut client = ground.client(&stage.proxy);
    client.rows("select 1");
    let boss = stage.login("boss");
    for statement in [
        "select * from items",
        "select counts()",
        "insert into items values (1)",
        "select * from items for update",
        "begin",
        "nonsense",
    ] {
        let path = format!("/api/v1/route?database={}&user=postgres&statement={}", ground.database, escaped(statement));
        let routed = boss.json(&path);
        let shown = client.rows(&format!("show route for '{statement}'"));
        assert_eq!((&routed["kind"], &routed["rule"]), (&json!(shown[0][0]), &json!(shown[0][2])), "{statement}: {routed}");
        assert!(routed["reason"].is_string() && routed["node"].is_array(), "{routed}");
    }
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
