//! Servers of etcd of a test's own, on free ports and in a folder of its own.

use crate::support::proxy::Folder;
use crate::support::{leave_out, wait_until};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_demo::{ReservedPort, signal_process};

/// Longest time for an answer to a test's own question: etcd without a quorum says so after 7 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

pub struct EtcdServers {
    servers: Vec<EtcdServer>,
    /// Options of all command lines.
    more: Vec<String>,
    scheme: &'static str,
    /// Another address of this machine that clients reach them at.
    outside: Option<String>,
    pub folder: Folder,
}

struct EtcdServer {
    client: ReservedPort,
    peer: ReservedPort,
    process: Option<Child>,
}

impl EtcdServers {
    /// `None` where there is no etcd: the test is left out.
    pub fn start(count: usize, more: &[&str]) -> Option<EtcdServers> {
        EtcdServers::spawn("http", count, Folder::new(), more, None)?.when_serving()
    }

    /// `start_encrypted` for clients that are elsewhere, and reach this machine at an address.
    pub fn start_encrypted_at(outside: &str, count: usize, more: &[&str]) -> Option<EtcdServers> {
        EtcdServers::spawn("https", count, Folder::new(), more, Some(outside.to_owned()))
    }

    /// `start` for clients that are elsewhere, and reach this machine at an address.
    pub fn start_at(outside: &str, count: usize) -> Option<EtcdServers> {
        EtcdServers::spawn("http", count, Folder::new(), &[], Some(outside.to_owned()))?.when_serving()
    }

    fn when_serving(self) -> Option<EtcdServers> {
        wait_until("etcd to serve", || (0..self.servers.len()).all(|at| self.is_serving(at)));
        Some(self)
    }

    /// One server that serves https only; `more` names its files. Its readiness is for the caller to find out.
    pub fn start_encrypted(folder: Folder, more: &[&str]) -> Option<EtcdServers> {
        EtcdServers::spawn("https", 1, folder, more, None)
    }

    fn spawn(scheme: &'static str, count: usize, folder: Folder, more: &[&str], outside: Option<String>) -> Option<EtcdServers> {
        if !["/usr/bin", "/usr/local/bin"].iter().any(|folder| Path::new(folder).join("etcd").exists()) {
            leave_out("there is no etcd (Debian: apt-get install etcd-server)");
            return None;
        }
        let port = || ReservedPort::any().unwrap();
        let servers = (0..count).map(|_| EtcdServer { client: port(), peer: port(), process: None }).collect();
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let mut servers = EtcdServers { servers, more, scheme, outside, folder };
        (0..count).for_each(|at| servers.begin(at));
        Some(servers)
    }

    /// Begins a server that does not run, on the data that it has.
    pub fn begin(&mut self, at: usize) {
        let peer_url = |server: &EtcdServer| format!("http://127.0.0.1:{}", server.peer.number());
        let all: Vec<String> =
            self.servers.iter().enumerate().map(|(at, server)| format!("etcd{at}={}", peer_url(server))).collect();
        let (client_url, peer_url) = (self.url(at), peer_url(&self.servers[at]));
        let log = File::create(self.folder.0.join(format!("etcd{at}.log"))).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd", "--name", &format!("etcd{at}")]);
        command.arg("--data-dir").arg(self.folder.0.join(format!("etcd{at}")));
        let listen: Vec<String> = [client_url.clone()].into_iter().chain(self.outside_url(at)).collect();
        command.args(["--listen-client-urls", &listen.join(","), "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", &client_url_of_first(&self.servers)]);
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]).args(&self.more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.servers[at].process = Some(command.spawn().unwrap());
    }

    pub fn port(&self, at: usize) -> u16 {
        self.servers[at].client.number()
    }

    pub fn url(&self, at: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port(at))
    }

    fn outside_url(&self, at: usize) -> Option<String> {
        self.outside.as_ref().map(|host| format!("{}://{host}:{}", self.scheme, self.port(at)))
    }

    /// Of all servers, as clients elsewhere reach them.
    pub fn outside_urls(&self) -> Vec<String> {
        (0..self.servers.len()).filter_map(|at| self.outside_url(at)).collect()
    }

    /// Of all servers, those from `first` on before the others.
    pub fn urls_from(&self, first: usize) -> Vec<String> {
        let count = self.servers.len();
        (0..count).map(|at| self.url((first + at) % count)).collect()
    }

    pub fn post(&self, at: usize, path: &str, body: &Value, token: Option<&str>) -> Option<(u16, Value)> {
        post(self.port(at), path, &body.to_string(), token)
    }

    /// A question that must succeed.
    pub fn must(&self, path: &str, body: &Value, token: Option<&str>) -> Value {
        let (status, answer) = self.post(0, path, body, token).unwrap();
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    fn is_serving(&self, at: usize) -> bool {
        let answer = self.post(at, "/v3/kv/range", &json!({ "key": encoded("weir") }), None);
        answer.is_some_and(|(status, _)| status == 200)
    }

    pub fn leader(&self) -> usize {
        let of = |at: usize| self.post(at, "/v3/maintenance/status", &json!({}), None).map(|(_, status)| status);
        let mut leader = None;
        // There is none in the midst of an election.
        wait_until("etcd to have a leader", || {
            let known = of(0).map(|status| status["leader"].clone());
            leader =
                (0..self.servers.len()).find(|at| of(*at).is_some_and(|own| known.as_ref() == Some(&own["header"]["member_id"])));
            leader.is_some()
        });
        leader.unwrap()
    }

    pub fn put(&self, key: &str, value: &[u8]) {
        self.must("/v3/kv/put", &json!({ "key": encoded(key), "value": BASE64_STANDARD.encode(value) }), None);
    }

    pub fn value(&self, key: &str) -> Vec<u8> {
        let answer = self.must("/v3/kv/range", &json!({ "key": encoded(key) }), None);
        BASE64_STANDARD.decode(answer["kvs"][0]["value"].as_str().unwrap()).unwrap()
    }

    pub fn delete(&self, key: &str) {
        self.must("/v3/kv/deleterange", &json!({ "key": encoded(key) }), None);
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        let child = self.servers[at].process.as_ref().unwrap();
        signal_process(Pid::from_child(child), signal).unwrap();
    }

    pub fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.servers[at].process.take() {
            let _ = process.kill();
            process.wait().unwrap();
        }
    }
}

impl Drop for EtcdServers {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|at| self.kill(at));
    }
}

pub fn encoded(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// Makes clusters of tests differ: the numbers of clusters are made of it.
fn client_url_of_first(servers: &[EtcdServer]) -> String {
    format!("etcd-{}", servers[0].client.number())
}

/// `None`: the server does not answer.
fn post(port: u16, path: &str, body: &str, token: Option<&str>) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: etcd\r\n{token}Content-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).unwrap_or(Value::Null)))
}
