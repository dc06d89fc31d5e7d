//! Clients that do nothing wrong, beside those that do: their results are their own, and so is their sessions' state.

use crate::PROXIED;
use crate::support::raw::first_value;
use crate::support::{Raw, wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub struct Control {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Control {
    pub fn start(port: u16, clients: u64) -> Control {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..clients).map(|number| {
            let stop = stop.clone();
            std::thread::spawn(move || run(port, number, &stop))
        });
        let threads = threads.collect();
        Control { stop, threads }
    }

    /// Their complaints.
    pub fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let ends = self.threads.into_iter().map(|thread| thread.join());
        let complaint = |end: std::thread::Result<Result<u64, String>>| match end {
            Ok(Ok(0)) => Some("a client got no turn at all".into()),
            Ok(Ok(_)) => None,
            Ok(Err(complaint)) => Some(complaint),
            Err(_) => Some("a client lost its connection".into()),
        };
        ends.filter_map(complaint).collect()
    }
}

/// State that others could have left behind, in one value.
const STATE: &str = "select concat_ws('/', current_setting('work_mem'), current_setting('timezone'), \
    current_setting('application_name'), current_user, (select count(*) from pg_prepared_statements where from_sql), \
    (select count(*) from pg_cursors where is_holdable))";

/// Works until it is told to stop, and says how many turns it had.
fn run(port: u16, number: u64, stop: &AtomicBool) -> Result<u64, String> {
    let name = format!("control {number}");
    let settings = [("application_name", name.as_str()), ("options", "-c work_mem=7MB")];
    let mut client = Raw::tcp(port).log_in("postgres", PROXIED, &settings).map_err(|failure| format!("{failure:?}"))?;
    client.send(&[wire::parse("mine", "select $1::text || '-mine'"), wire::sync()].concat());
    client.until_ready();
    let state = format!("7MB/Etc/UTC/{name}/postgres/0/0");
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        let value = format!("{number}-{turns}");
        expect("a query", client.try_value(&format!("select '{value}'")), &value)?;
        client.send(&[wire::run("mine", &[&value]), wire::sync()].concat());
        expect("a statement prepared before", first_value(&client.until_ready()), &format!("{value}-mine"))?;
        expect("a transaction", client.try_value(&format!("begin; select '{value}'; commit")), &value)?;
        expect("what others left", client.try_value(STATE), &state)?;
        turns += 1;
    }
    Ok(turns)
}

fn expect<E: std::fmt::Debug>(what: &str, got: Result<String, E>, value: &str) -> Result<(), String> {
    match got {
        Ok(got) if got == value => Ok(()),
        other => Err(format!("{what}: expected {value}, got {other:?}")),
    }
}
