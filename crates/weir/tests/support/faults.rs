//! A network that fails: stands between two programs and delays, cuts, swallows or trickles their bytes.

use super::ground::wait_until;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Source: `TCP_ESTABLISHED` in Linux' tcp_states.h.
const ESTABLISHED: &str = "01";

/// One of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    Server,
    Client,
}

/// Treatment of the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Each piece arrives so much later.
    Delay(Duration),
    /// Nothing arrives, nobody is told.
    BlackHole,
    /// Every byte travels alone.
    ByteByByte,
    /// After so many more bytes both ends see a reset.
    CutAfter(u64),
    /// After so many more bytes the receiver sees a proper end, the sender nothing.
    EndAfter(u64),
    /// After so many more bytes nothing arrives any more, nobody is told.
    StopAfter(u64),
}

/// Longest time a thread sleeps before it looks if it is still wanted.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

struct Plan {
    /// The port that connections made from now on lead to.
    target: AtomicU16,
    toward_server: Mutex<Fault>,
    toward_client: Mutex<Fault>,
    /// Connections made before this changes are reset.
    cuts: AtomicU64,
    /// Connections made so far; each has its number.
    made: AtomicU64,
    /// Connections with these numbers carry nothing in these directions, as if the server's process were stopped.
    stalled: Mutex<(Range<u64>, Vec<Toward>)>,
    /// Pieces of connections from this number on arrive so much later, both ways.
    late: Mutex<Option<(u64, Duration)>>,
    /// Nobody listens, as behind a firewall that refuses.
    refuses: AtomicBool,
    over: AtomicBool,
}

impl Plan {
    fn is_stalled(&self, born: Born, toward: Toward) -> bool {
        let stalled = lock(&self.stalled);
        stalled.0.contains(&born.number) && stalled.1.contains(&toward)
    }

    fn fault(&self, toward: Toward) -> &Mutex<Fault> {
        match toward {
            Toward::Server => &self.toward_server,
            Toward::Client => &self.toward_client,
        }
    }
}

/// A port that leads to another one, through a network we can break.
pub struct Network {
    port: u16,
    plan: Arc<Plan>,
}

impl Network {
    /// To `port` on this machine.
    pub fn to(port: u16) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let plan = Arc::new(Plan {
            target: AtomicU16::new(port),
            toward_server: Mutex::new(Fault::None),
            toward_client: Mutex::new(Fault::None),
            cuts: AtomicU64::new(0),
            made: AtomicU64::new(0),
            stalled: Mutex::new((0..0, Vec::new())),
            late: Mutex::new(None),
            refuses: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let shared = plan.clone();
        thread::spawn(move || accept(listener, &shared));
        Network { port: own, plan }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Leads to another port from now on, as a service address that moves. Connections that are there stay.
    pub fn lead_to(&self, port: u16) {
        self.plan.target.store(port, Ordering::SeqCst);
    }

    /// From now on, also for connections that are there.
    pub fn set(&self, toward: Toward, fault: Fault) {
        *lock(self.plan.fault(toward)) = fault;
    }

    pub fn set_both(&self, fault: Fault) {
        self.set(Toward::Server, fault);
        self.set(Toward::Client, fault);
    }

    /// Connections that are there carry nothing more in these directions; those made from now on do.
    pub fn stall_present(&self, toward: &[Toward]) {
        *lock(&self.plan.stalled) = (0..self.plan.made.load(Ordering::SeqCst), toward.to_vec());
    }

    /// The first connection that was made carries nothing more in these directions.
    pub fn stall_first(&self, toward: &[Toward]) {
        *lock(&self.plan.stalled) = (0..1, toward.to_vec());
    }

    /// Connections made from now on carry nothing; those that are there go on.
    pub fn stall_new(&self) {
        let both = vec![Toward::Server, Toward::Client];
        *lock(&self.plan.stalled) = (self.plan.made.load(Ordering::SeqCst)..u64::MAX, both);
    }

    /// Whatever connections made from now on carry arrives so much later; those that are there are as fast as before.
    pub fn delay_new(&self, by: Duration) {
        *lock(&self.plan.late) = Some((self.plan.made.load(Ordering::SeqCst), by));
    }

    /// No connection carries anything.
    pub fn stall_all(&self) {
        *lock(&self.plan.stalled) = (0..u64::MAX, vec![Toward::Server, Toward::Client]);
    }

    /// Bytes that were held up go on.
    pub fn go_on(&self) {
        *lock(&self.plan.stalled) = (0..0, Vec::new());
    }

    /// Connections of this machine's to it, as the system sees them.
    pub fn connections(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let remote = format!(":{:04X}", self.port);
        let is_one = |fields: &[&str]| fields.len() > 3 && fields[2].ends_with(&remote) && fields[3] == ESTABLISHED;
        table.lines().filter(|line| is_one(&line.split_whitespace().collect::<Vec<_>>())).count()
    }

    /// Resets all connections and refuses new ones, as a firewall may, until `accept_again`.
    pub fn refuse(&self) {
        self.plan.refuses.store(true, Ordering::SeqCst);
        self.cut();
        // The first of these wakes the thread that accepts.
        wait_until("the network to refuse", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    /// Ends `refuse`.
    pub fn accept_again(&self) {
        self.plan.refuses.store(false, Ordering::SeqCst);
        wait_until("the network to accept", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Resets all connections.
    pub fn cut(&self) {
        self.plan.cuts.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.plan.over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts; if it is gone already there is nothing to wake.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(mut listener: TcpListener, plan: &Arc<Plan>) {
    loop {
        let client = listener.accept();
        if plan.over.load(Ordering::SeqCst) {
            return;
        }
        if plan.refuses.load(Ordering::SeqCst) {
            let own = listener.local_addr().unwrap();
            drop((client, listener));
            while plan.refuses.load(Ordering::SeqCst) {
                if plan.over.load(Ordering::SeqCst) {
                    return;
                }
                thread::sleep(LOOK_PERIOD);
            }
            listener = TcpListener::bind(own).unwrap();
            continue;
        }
        let Ok((client, _)) = client else { continue };
        let target = plan.target.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
            reset(&client);
            continue;
        };
        for socket in [&client, &server] {
            socket.set_nodelay(true).unwrap();
            socket.set_read_timeout(Some(LOOK_PERIOD)).unwrap();
        }
        let born = Born { cuts: plan.cuts.load(Ordering::SeqCst), number: plan.made.fetch_add(1, Ordering::SeqCst) };
        let (client_twin, server_twin) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let (one, other) = (plan.clone(), plan.clone());
        thread::spawn(move || carry(&client, &server, &one, Toward::Server, born));
        thread::spawn(move || carry(&server_twin, &client_twin, &other, Toward::Client, born));
    }
}

/// The socket's next close sends a reset and no proper end.
fn reset(socket: &TcpStream) {
    // A socket that is closed already needs none.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}

/// When a connection was made.
#[derive(Clone, Copy)]
struct Born {
    cuts: u64,
    number: u64,
}

/// Carries bytes one way until an end, a cut, or the network is gone.
fn carry(mut from: &TcpStream, mut to: &TcpStream, plan: &Plan, toward: Toward, born: Born) {
    let mut piece = [0u8; 16 << 10];
    loop {
        if plan.cuts.load(Ordering::SeqCst) != born.cuts {
            return cut(from, to);
        }
        if plan.is_stalled(born, toward) {
            thread::sleep(LOOK_PERIOD);
            continue;
        }
        let count = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(_) => return cut(from, to),
        };
        while plan.is_stalled(born, toward) && plan.cuts.load(Ordering::SeqCst) == born.cuts {
            thread::sleep(LOOK_PERIOD);
        }
        if plan.cuts.load(Ordering::SeqCst) != born.cuts {
            return cut(from, to);
        }
        // Nobody else waits meanwhile for the lock.
        let late = *lock(&plan.late);
        if let Some((_, by)) = late.filter(|(from, _)| born.number >= *from) {
            thread::sleep(by);
        }
        let fault = *lock(plan.fault(toward));
        let sent = match fault {
            Fault::None => to.write_all(&piece[..count]),
            Fault::Delay(by) => {
                thread::sleep(by);
                to.write_all(&piece[..count])
            }
            Fault::BlackHole => Ok(()),
            Fault::ByteByByte => piece[..count].iter().try_for_each(|byte| {
                thread::sleep(Duration::from_micros(20));
                to.write_all(&[*byte])
            }),
            Fault::CutAfter(left) | Fault::EndAfter(left) if count as u64 >= left => {
                // Bytes before the fault still arrive.
                let _ = to.write_all(&piece[..left as usize]);
                if matches!(fault, Fault::CutAfter(_)) {
                    return cut(from, to);
                }
                let _ = to.shutdown(Shutdown::Write);
                continue;
            }
            Fault::StopAfter(left) => {
                let passed = left.min(count as u64);
                *lock(plan.fault(toward)) = Fault::StopAfter(left - passed);
                to.write_all(&piece[..passed as usize])
            }
            Fault::CutAfter(left) => {
                *lock(plan.fault(toward)) = Fault::CutAfter(left - count as u64);
                to.write_all(&piece[..count])
            }
            Fault::EndAfter(left) => {
                *lock(plan.fault(toward)) = Fault::EndAfter(left - count as u64);
                to.write_all(&piece[..count])
            }
        };
        if sent.is_err() {
            return cut(from, to);
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn cut(from: &TcpStream, to: &TcpStream) {
    reset(from);
    reset(to);
}
