//! `weir probe`: asks the proxy of this machine over HTTP if it is ready or alive, for orchestrators whose image has no HTTP client.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use weir_config::Config;

/// Of each step; orchestrators ask every few seconds.
const STEP_LIMIT: Duration = Duration::from_secs(3);

/// Of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

const ANSWER_BYTES_MAX: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeQuestion {
    /// Clients can be served.
    Ready,
    /// The process does its work.
    Alive,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub is_good: bool,
    /// The reason, or that all is well.
    pub text: String,
}

/// Error: `metrics_port` is off, or nobody answers there.
pub fn ask(config: &Config, question: ProbeQuestion) -> anyhow::Result<ProbeAnswer> {
    let (host, port) = place(config);
    ensure!(port != 0, "metrics_port is 0: set it, since the answer comes over HTTP");
    let shown = || format!("no answer from {host}:{port} (metrics_listen_addresses, metrics_port)");
    let mut stream = connect(host, port).with_context(shown)?;
    stream.set_read_timeout(Some(STEP_LIMIT)).and(stream.set_write_timeout(Some(STEP_LIMIT)))?;
    let page = match question {
        ProbeQuestion::Ready => "/readyz",
        ProbeQuestion::Alive => "/healthz",
    };
    stream
        .write_all(format!("GET {page} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .with_context(shown)?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).with_context(shown)?;
    read(&String::from_utf8_lossy(&bytes)).with_context(|| format!("{host}:{port} speaks no HTTP"))
}

/// An address for all is reached at this machine's own, by its number: an image may lack `/etc/hosts`.
fn place(config: &Config) -> (&str, u16) {
    let first = config.admin.metrics_addresses.first().map_or("localhost", String::as_str);
    let host = match first {
        "*" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        named => named,
    };
    (host, config.admin.metrics_port)
}

fn connect(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()?.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, STEP_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

/// `None`: no answer of HTTP.
fn read(answer: &str) -> Option<ProbeAnswer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.1 ").or_else(|| head.strip_prefix("HTTP/1.0 "))?.split_whitespace().next()?;
    Some(ProbeAnswer { is_good: code == "200", text: body.trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_is_the_answer() {
        let of = |is_good, text: &str| Some(ProbeAnswer { is_good, text: text.to_owned() });
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"), of(true, "ok"));
        assert_eq!(read("HTTP/1.1 503 Service Unavailable\r\n\r\nno primary\n"), of(false, "no primary"));
        assert_eq!(read("SSH-2.0\r\n\r\n"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn an_address_for_all_is_asked_at_this_machines_own() {
        let mut config = Config::default();
        for (listed, asked) in [("*", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1")] {
            config.admin.metrics_addresses = vec![listed.to_owned()];
            assert_eq!(place(&config).0, asked);
        }
        config.admin.metrics_port = 0;
        assert!(ask(&config, ProbeQuestion::Ready).unwrap_err().to_string().contains("metrics_port is 0"));
    }
}
