//! A very small HTTP server: metrics for Prometheus, and two questions an orchestrator asks. No request has a body, each connection
//! serves one; time, size and number of connections are bounded, so that whoever dawdles holds nobody up.

use crate::monitor::exposition;
use crate::monitor::log::Level;
use crate::process::acceptor::{self, Caller, Door, Watched};
use crate::process::inherit::Inherited;
use crate::process::shared::{Message, Shared, Stop};
use crate::process::worker::Worker;
use parking_lot::Mutex;
use std::cell::Cell;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_io::reactor::parked;
use weir_io::socket::Socket;

/// Connections at once; more are closed as they come.
const CONNECTIONS_MAX: u32 = 32;
/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time for a request to arrive.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// Time for an answer to be taken.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Connections the kernel keeps for us.
const BACKLOG: i32 = 128;

/// Opens the listening sockets; none when `metrics_port` is 0.
pub fn open(config: &Config, inherited: &mut Inherited) -> anyhow::Result<Vec<TcpListener>> {
    let admin = &config.admin;
    if admin.metrics_port == 0 {
        return Ok(Vec::new());
    }
    acceptor::open_all(&admin.metrics_addresses, admin.metrics_port, BACKLOG, "metrics_listen_addresses", inherited)
}

/// Serves one listening socket until the proxy has stopped. Runs as a task of the first worker.
pub async fn accept(w: Rc<Worker>, listener: TcpListener) {
    let watched = match Watched::new(&w.reactor, Door::Tcp(listener)) {
        Ok(watched) => watched,
        Err(cause) => return w.shared.log.say(Level::Error, format_args!("cannot watch the socket of metrics_port: {cause}")),
    };
    let open = Rc::new(Cell::new(0));
    // Also while the proxy stops: that is when somebody looks. The socket closes with the worker.
    w.doors.borrow_mut().push(w.reactor.current_task());
    while w.shared.stop_mode() <= Stop::Fast && !w.shared.is_handed_over() {
        match watched.accept(&w.reactor) {
            Ok(Some(Caller::Tcp(stream, _))) if open.get() < CONNECTIONS_MAX => {
                let (worker, counted) = (w.clone(), Counted::new(&open));
                w.reactor.spawn(async move {
                    let _counted = counted;
                    // The reader may be gone; there is nobody else to tell.
                    let _ = receive(&worker, stream).await;
                });
            }
            Ok(Some(_)) => w.shared.log.say(Level::Debug1, format_args!("more than {CONNECTIONS_MAX} readers of metrics")),
            Ok(None) => parked().await,
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(cause) => {
                w.shared.log.say(Level::Error, format_args!("cannot accept a reader of metrics: {cause}"));
                w.reactor.sleep(Duration::from_millis(100)).await;
                watched.retry(&w.reactor);
            }
        }
    }
    watched.shut(&w.reactor);
}

/// One of the connections that are open.
struct Counted(Rc<Cell<u32>>);

impl Counted {
    fn new(open: &Rc<Cell<u32>>) -> Counted {
        open.set(open.get() + 1);
        Counted(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Reads one request and answers it.
async fn receive(w: &Rc<Worker>, stream: TcpStream) -> io::Result<()> {
    let socket = Socket::accepted_tcp(&w.reactor, stream)?;
    let answer = match read_head(w, &socket).await {
        Ok(Some(head)) => answer(w, &head).await,
        Ok(None) => Answer::new(431, "the head of the request is too long\n"),
        Err(cause) if cause.kind() == io::ErrorKind::TimedOut => Answer::new(408, "no request came in time\n"),
        Err(cause) => return Err(cause),
    };
    let sent = socket.write_all(&w.reactor, &answer.bytes(), Some(Instant::now() + WRITE_LIMIT)).await;
    socket.close(&w.reactor);
    sent
}

/// The request up to its empty line. `None`: it is too long.
async fn read_head(w: &Worker, socket: &Socket) -> io::Result<Option<Vec<u8>>> {
    let deadline = Some(Instant::now() + READ_LIMIT);
    let mut head = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let bytes = socket.read(&w.reactor, &mut piece, deadline).await?;
        head.extend_from_slice(&piece[..bytes]);
        if head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n") {
            return Ok(Some(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// What is said back.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u16,
    body: String,
    /// A HEAD request: everything but the body.
    without_body: bool,
    is_metrics: bool,
}

impl Answer {
    fn new(code: u16, body: impl Into<String>) -> Answer {
        Answer { code, body: body.into(), without_body: false, is_metrics: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let reason = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let version = if self.is_metrics { "; version=0.0.4" } else { "" };
        let allow = if self.code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain{version}; charset=utf-8\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\n\r\n",
            self.code,
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        if !self.without_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    path: String,
    without_body: bool,
}

/// Reads the first line. Error: what is answered instead.
fn read_request(head: &[u8]) -> Result<Request, Answer> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Answer::new(400, "not a request\n"))?;
    let mut words = line.trim_end_matches('\r').split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err(Answer::new(400, "not a request\n"));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(Answer::new(400, "not a request of HTTP/1\n"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Answer::new(405, "only GET and HEAD\n"));
    }
    let path = target.split('?').next().unwrap_or_default();
    Ok(Request { path: path.to_string(), without_body: method == "HEAD" })
}

async fn answer(w: &Rc<Worker>, head: &[u8]) -> Answer {
    let request = match read_request(head) {
        Ok(request) => request,
        Err(answer) => return answer,
    };
    let said = |outcome: Result<(), String>| match outcome {
        Ok(()) => Answer::new(200, "ok\n"),
        Err(why) => Answer::new(503, format!("{why}\n")),
    };
    let answer = match request.path.as_str() {
        "/" => {
            Answer::new(200, "/metrics  numbers for Prometheus\n/healthz  the process works\n/readyz   clients can be served\n")
        }
        "/metrics" => match metrics(w).await {
            Ok(page) => Answer { is_metrics: true, ..Answer::new(200, page) },
            Err(cause) => Answer::new(503, format!("cannot start a thread: {cause}\n")),
        },
        "/healthz" => said(exposition::health(&w.shared)),
        "/readyz" => said(exposition::readiness(&w.shared)),
        _ => Answer::new(404, "there is /metrics, /healthz and /readyz\n"),
    };
    Answer { without_body: request.without_body, ..answer }
}

/// Makes the page on a thread of its own: with many pools it takes longer than a session should wait.
async fn metrics(w: &Rc<Worker>) -> io::Result<String> {
    let page: Arc<Mutex<Option<String>>> = Arc::default();
    let (theirs, shared) = (page.clone(), w.shared.clone());
    let (id, task) = (usize::from(w.id), w.reactor.current_task());
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        let made = make(&shared);
        *theirs.lock() = Some(made);
        shared.mailboxes[id].send(Message::Wake(task));
    })?;
    loop {
        if let Some(page) = page.lock().take() {
            return Ok(page);
        }
        parked().await;
    }
}

fn make(shared: &Shared) -> String {
    // A fault in counting must not leave the reader waiting; the panic hook has told the log.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exposition::page(shared))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_by_their_first_line() {
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Ok(("/metrics", false))),
            ("GET /metrics?a=b HTTP/1.0\n\n", Ok(("/metrics", false))),
            ("HEAD /healthz HTTP/1.1\r\n\r\n", Ok(("/healthz", true))),
            ("POST /metrics HTTP/1.1\r\n\r\n", Err(405)),
            ("GET /metrics\r\n\r\n", Err(400)),
            ("GET /metrics HTTP/2\r\n\r\n", Err(400)),
            ("\r\n\r\n", Err(400)),
        ] {
            let read = read_request(head.as_bytes());
            let read = read.as_ref().map(|r| (r.path.as_str(), r.without_body)).map_err(|answer| answer.code);
            assert_eq!(read, expected, "{head:?}");
        }
        assert_eq!(read_request(b"\xff\r\n\r\n").unwrap_err().code, 400);
    }

    #[test]
    fn an_answer_says_its_length_even_without_its_body() {
        let answer = Answer { without_body: true, ..Answer::new(200, "ok\n") };
        let text = String::from_utf8(answer.bytes()).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"));
    }
}
