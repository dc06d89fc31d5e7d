//! Many clients on one thread, each of which asks again as soon as it is answered.
//!
//! pgbench takes more time for a hit than a cache does, so that its rate is pgbench's own. This client writes, reads, and
//! checks nothing but the length of the answer.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::client::{Client, query};
use super::metric::{Metric, Sample};
use super::pgbench::READ_OF_ROW;
use super::run_amount::RunAmount;
use super::workload::HIT_ROWS;

/// ReadyForQuery outside a transaction: the end of every answer. No row of these workloads has it in its middle.
const READY: &[u8] = b"Z\0\0\0\x05I";
/// An ErrorResponse.
const ERROR: u8 = b'E';
const ANSWER_BYTES_MAX: usize = 4096;
/// Longer nobody waits for any answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How many rows on the next question is: without a common factor with their number, so that all are asked for.
const STRIDE: usize = 379;

struct Asker {
    socket: TcpStream,
    /// The part of the answer that has arrived.
    answer: Vec<u8>,
    row: usize,
}

impl Asker {
    fn ask(&mut self, questions: &[Vec<u8>]) -> Result<()> {
        self.row = (self.row + STRIDE) % questions.len();
        self.answer.clear();
        // The last one was read: there is room for a question.
        self.socket.write_all(&questions[self.row]).context("cannot send")
    }

    /// Reads; true if the answer is whole.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool> {
        match self.socket.read(buffer) {
            Ok(0) => bail!("connection closed"),
            Ok(read) => self.answer.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error).context("no answer"),
        }
        ensure!(self.answer.first() != Some(&ERROR), "refused: {}", String::from_utf8_lossy(&self.answer));
        ensure!(self.answer.len() <= ANSWER_BYTES_MAX, "an answer that is longer than any here");
        Ok(self.answer.ends_with(READY))
    }
}

/// Reads of the `HIT_ROWS` rows: how many, and their rate.
pub fn run(port: u16, database: &str, clients: u32, amount: RunAmount) -> Result<(f64, Sample)> {
    let mut buffer = [0; ANSWER_BYTES_MAX];
    let questions: Vec<Vec<u8>> = (1..=HIT_ROWS).map(|row| query(&format!("{READ_OF_ROW} {row};"))).collect();
    let mut poll = Poll::new()?;
    let mut askers = Vec::new();
    for at in 0..clients as usize {
        let socket = Client::login(port, database, &mut buffer)?.into_socket();
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(at), Interest::READABLE)?;
        askers.push(Asker { socket, answer: Vec::new(), row: at * questions.len() / clients as usize });
    }
    let begin = Instant::now();
    askers.iter_mut().try_for_each(|asker| asker.ask(&questions))?;
    let (mut events, mut done) = (Events::with_capacity(askers.len()), 0_u32);
    let is_enough = |done| match amount {
        RunAmount::Seconds(seconds) => begin.elapsed() >= Duration::from_secs(seconds.into()),
        RunAmount::Transactions(count) => done >= count,
    };
    while !is_enough(done) {
        poll.poll(&mut events, Some(ANSWER_LIMIT))?;
        ensure!(!events.is_empty(), "no answer for {ANSWER_LIMIT:?}");
        for event in &events {
            let asker = &mut askers[event.token().0];
            if asker.read(&mut buffer)? {
                done += 1;
                asker.ask(&questions)?;
            }
        }
    }
    let done = f64::from(done);
    Ok((done, vec![(Metric::Tps, done / begin.elapsed().as_secs_f64())]))
}
