//! Redis, and its own benchmark: the cost of a hit without a database's protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::metric::{Metric, Sample};
use super::run_amount::RunAmount;
use crate::process;

/// Bytes of the answer to pgbench's read, so many a GET brings.
const VALUE_BYTES: &str = "66";
/// One GET takes longer than this on no machine.
const SLOWEST: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(60);

/// Checks that it answers.
pub fn knock(port: u16) -> Result<()> {
    let mut socket = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    socket.read_exact(&mut answer)?;
    ensure!(answer == *b"+PONG\r\n", "it did not answer PING");
    Ok(())
}

/// GETs by `redis-benchmark`: how many, and their rate. It counts requests, not seconds: it runs until enough time has passed.
pub fn get(port: u16, clients: u32, amount: RunAmount) -> Result<(f64, Sample)> {
    let (seconds, requests) = match amount {
        RunAmount::Seconds(seconds) => (seconds, 20_000),
        RunAmount::Transactions(count) => (0, count),
    };
    run(port, clients, "set", 1_000)?;
    let begin = Instant::now();
    let mut done = 0.0;
    while done == 0.0 || begin.elapsed() < Duration::from_secs(seconds.into()) {
        run(port, clients, "get", requests)?;
        done += f64::from(requests);
    }
    Ok((done, vec![(Metric::Tps, done / begin.elapsed().as_secs_f64())]))
}

fn run(port: u16, clients: u32, test: &str, requests: u32) -> Result<()> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-q", "-t", test, "-d", VALUE_BYTES]);
    command.args(["-c", &clients.to_string(), "-n", &requests.to_string()]);
    let output =
        process::run(&mut command, SLOWEST * requests + LIMIT).context("redis-benchmark (Debian's package redis-tools)")?;
    if !output.status.success() {
        bail!("redis-benchmark: {}", output.stderr.trim());
    }
    Ok(())
}
