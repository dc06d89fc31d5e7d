//! Other clients of the same pool. They take server connections away from the script's session, use the same statements under
//! other settings, fail, leave in the middle, and check that every answer they get is their own.

use crate::connection::{Connection, Stop};
use crate::dice::Dice;
use crate::message::Message;
use crate::reply::Reply;
use crate::stage::{PATIENCE, PROXIED};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Complaints told at once.
const COMPLAINTS_MAX: usize = 3;

/// Clients that run until this is dropped.
pub struct Noise {
    stop: Arc<AtomicBool>,
    complaints: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Noise {
    pub fn start(port: u16, clients: u64, seed: u64) -> Noise {
        let stop = Arc::new(AtomicBool::new(false));
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let threads = (0..clients).map(|number| {
            let (stop, complaints) = (stop.clone(), complaints.clone());
            std::thread::spawn(move || {
                let mut dice = Dice::new(seed ^ (number + 1));
                while !stop.load(Ordering::Relaxed) {
                    if let Err(complaint) = be_a_client(port, number, &mut dice, &stop) {
                        complaints.lock().unwrap().push(format!("client {number}: {complaint}"));
                    }
                }
            })
        });
        let threads = threads.collect();
        Noise { stop, complaints, threads }
    }

    /// Faults since the last call; one fault can make many complaints.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = std::mem::take(&mut *self.complaints.lock().unwrap());
        complaints.truncate(COMPLAINTS_MAX);
        complaints
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One connection with up to 30 things done on it.
fn be_a_client(port: u16, number: u64, dice: &mut Dice, stop: &AtomicBool) -> Result<(), String> {
    let name = format!("noise {number} {}", dice.below(2));
    let parameters = [("application_name", name.as_str()), ("options", "-c work_mem=7MB")];
    let is_plain = dice.once_in(2);
    let parameters = if is_plain { &parameters[..1] } else { &parameters[..] };
    let work_mem = if is_plain { "4MB" } else { "7MB" };
    let connection = Connection::open(port, PROXIED, parameters, PATIENCE);
    let mut client =
        Client { connection: connection.map_err(|stop| format!("login: {stop:?}"))?, named: Vec::new(), name, work_mem };
    for _ in 0..dice.below(30) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match dice.below(16) {
            0..=2 => client.transaction(dice)?,
            3..=6 => client.unnamed_in_two_parts(dice)?,
            7..=10 => client.named(dice)?,
            11 => client.fail_in_a_pipeline(dice)?,
            12 => client.fail_in_a_transaction()?,
            13 => client.check_settings()?,
            14 if dice.once_in(2) => client.check_settings()?,
            14 => client.forget_all()?,
            _ if dice.once_in(4) => {
                // Leaves in a transaction; its server connection must not go to anybody.
                client.check("begin", &[query("begin"), query("select 1")][..1], &[])?;
                return Ok(());
            }
            _ => {}
        }
    }
    Ok(())
}

struct Client {
    connection: Connection,
    /// Names in use.
    named: Vec<&'static str>,
    name: String,
    work_mem: &'static str,
}

/// State that a session can leave behind for others, in one value.
const LEFT: &str = "select concat_ws('/', current_setting('work_mem'), current_setting('timezone'), current_setting('datestyle'), \
    replace(current_setting('search_path'), '\"', ''), current_setting('bytea_output'), current_user, coalesce(current_setting('app.user', true), ''), \
    (select count(*) from pg_prepared_statements where from_sql), (select count(*) from pg_listening_channels()), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_cursors where is_holdable))";

fn query(text: &str) -> Message {
    Message::Query(text.into())
}

fn parse(name: &'static str, text: &str) -> Message {
    Message::Parse { name, text: text.into(), types: Vec::new() }
}

fn run(name: &'static str, parameter: Option<&str>) -> [Message; 3] {
    let parameters = parameter.map(|value| Some(value.to_string())).into_iter().collect();
    [
        Message::Bind { portal: "", name, parameters, formats: Vec::new() },
        Message::Execute { portal: "", rows_max: 0 },
        Message::Sync,
    ]
}

const COMMON: &str = "select $1::text || '-common'";

impl Client {
    /// Sends messages that get one ReadyForQuery; the rows' values must be these, and nothing may fail.
    fn check(&mut self, what: &str, messages: &[Message], values: &[&str]) -> Result<(), String> {
        let replies = self.connection.ask(messages).map_err(|stop: Stop| format!("{what}: {stop:?}"))?;
        let rows: Vec<&Reply> = replies.iter().filter(|reply| reply.tag == b'D').collect();
        let fits = rows.len() == values.len() && rows.iter().zip(values).all(|(row, value)| row.is_row(value));
        let failed = replies.iter().any(|reply| reply.tag == b'E');
        if fits && !failed { Ok(()) } else { Err(format!("{what}: expected {values:?}, got {replies:?}")) }
    }

    /// Sends messages of which one must fail.
    fn check_fails(&mut self, what: &str, messages: &[Message]) -> Result<(), String> {
        let replies = self.connection.ask(messages).map_err(|stop| format!("{what}: {stop:?}"))?;
        let errors = replies.iter().filter(|reply| reply.tag == b'E').count();
        if errors == 1 { Ok(()) } else { Err(format!("{what}: expected one error, got {replies:?}")) }
    }

    fn transaction(&mut self, dice: &mut Dice) -> Result<(), String> {
        let value = format!("{} {}", self.name, dice.next());
        self.check("begin", &[query("begin")], &[])?;
        for _ in 0..dice.below(4) {
            self.check("in a transaction", &[query(&format!("select '{value}'"))], &[&value])?;
        }
        self.check("commit", &[query("commit")], &[])
    }

    fn unnamed_in_two_parts(&mut self, dice: &mut Dice) -> Result<(), String> {
        let value = format!("{}-{}", self.name, dice.next());
        self.check("parse", &[parse("", COMMON), Message::Sync], &[])?;
        self.check("bind what was parsed before", &run("", Some(&value)), &[&format!("{value}-common")])
    }

    fn named(&mut self, dice: &mut Dice) -> Result<(), String> {
        let value = format!("{}-{}", self.name, dice.next());
        let name = dice.of(&["a", "b", "n"]);
        if !self.named.contains(&name) {
            self.check("parse a name", &[parse(name, COMMON), Message::Sync], &[])?;
            self.named.push(name);
        }
        self.check("bind a name", &run(name, Some(&value)), &[&format!("{value}-common")])
    }

    fn fail_in_a_pipeline(&mut self, dice: &mut Dice) -> Result<(), String> {
        let mut messages = vec![parse("", "select 1/0"), parse("", COMMON), query("select 1")];
        messages.swap(0, dice.below(2));
        messages.insert(dice.below(2), Message::DescribeStatement("nosuch"));
        messages.push(Message::Sync);
        self.check_fails("an error in a pipeline", &messages)
    }

    fn fail_in_a_transaction(&mut self) -> Result<(), String> {
        self.check("begin", &[query("begin")], &[])?;
        self.check_fails("divide", &[query("select 1/0")])?;
        self.check_fails("parse in a failed transaction", &[parse("failed", COMMON), Message::Sync])?;
        self.check_fails("parse in a failed transaction", &[parse("", "select 1"), Message::Sync])?;
        self.check("rollback", &[query("rollback")], &[])
    }

    fn check_settings(&mut self) -> Result<(), String> {
        let name = self.name.clone();
        self.check("settings", &[query("show application_name")], &[&name])?;
        let clean = format!("{}/Etc/UTC/ISO, MDY/$user, public/hex/postgres//0/0/0/0", self.work_mem);
        self.check("what others left", &[query(LEFT)], &[&clean])
    }

    fn forget_all(&mut self) -> Result<(), String> {
        self.named.clear();
        self.check("deallocate", &[query("deallocate all")], &[])
    }
}
