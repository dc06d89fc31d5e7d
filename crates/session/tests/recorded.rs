//! Conversations with a real server, recorded once and replayed since: all bytes both ways, and all that is done with connections.
//!
//! They are the scripts of the differential suite, played by two clients in turn; one real server stands for the primary and the standby.
//! A change that changes a byte must say why. Then this command records them anew:
//! `WEIR_RECORD=/path/of/the/socket cargo test -p weir-session --test recorded -- --ignored`.
//! The server needs a user `joe` who may log in without a password, and his database `db`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "scripts can do more than is recorded")]

#[path = "../../weir/tests/differential/dice.rs"]
mod dice;
#[path = "../../weir/tests/differential/message.rs"]
mod message;
#[path = "../../weir/tests/differential/script.rs"]
mod script;
mod support;
#[path = "../../weir/tests/differential/texts.rs"]
mod texts;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::log::{Action, Out};
use support::record::{Came, Conversation, Stage, Turn, read, replay, write};

const CONVERSATIONS: usize = 500;

/// A server that says nothing for so long has said all.
const SILENCE: Duration = Duration::from_millis(8);

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded.txt")
}

#[test]
fn recorded_conversations_are_what_they_were() {
    let all = read(&std::fs::read_to_string(file()).unwrap());
    assert_eq!(all.len(), CONVERSATIONS);
    let failed: Vec<String> = all.iter().filter_map(|conversation| replay(conversation).err()).collect();
    assert!(failed.is_empty(), "{} of {} differ\n{}", failed.len(), all.len(), failed[..failed.len().min(3)].join("\n"));
}

#[test]
#[ignore = "records, with a server"]
fn record() {
    let socket = PathBuf::from(std::env::var_os("WEIR_RECORD").expect("WEIR_RECORD names the server's socket"));
    let all: Vec<Conversation> = (0..CONVERSATIONS).map(|number| Recorder::new(&socket, number).play()).collect();
    let text = write(&all);
    assert!(read(&text) == as_read(&all), "what is written is read as it was");
    std::fs::write(file(), text).unwrap();
}

/// Actions are read as their words.
fn as_read(all: &[Conversation]) -> Vec<Conversation> {
    let mut all = all.to_vec();
    for out in all.iter_mut().flat_map(|conversation| &mut conversation.turns).flat_map(|turn| &mut turn.went) {
        if let Out::Action { client, what } = out {
            let name = client.unwrap_or('-');
            let line = support::render::lines_of(&[Out::Action { client: *client, what: what.clone() }], name).concat();
            *what = Action::Other(line.strip_prefix("action: ").unwrap_or(&line).to_owned());
        }
    }
    all
}

/// Brings a database back to where all scripts begin.
const RESET: &str = "set client_min_messages = warning; drop schema if exists public cascade; create schema public;
    drop schema if exists other cascade; drop schema if exists wide cascade;
    create table t (a int primary key, b text); insert into t values (1, 'one'), (2, 'two'), (3, 'three'), (4, null);
    create table w (a int primary key, b text); insert into w values (2, 'two');
    create table late (a int references t deferrable initially deferred); create schema other; create table other.t (x int);
    create schema wide; create table wide.wide (a int, b int)";

struct Recorder {
    socket: PathBuf,
    stage: Stage,
    conns: BTreeMap<String, UnixStream>,
    units: Vec<script::Unit>,
    conversation: Conversation,
}

impl Recorder {
    fn new(socket: &Path, number: usize) -> Recorder {
        let standbys = u16::from(!number.is_multiple_of(3));
        let mut dice = dice::Dice::new(1000 + number as u64);
        let units = script::make(&mut dice, script::Limits { with_standby: standbys > 0 });
        let mut admin = connect(socket);
        admin.write_all(&support::notation::bytes_of(support::notation::Side::Client, &format!("Query \"{RESET}\""))).unwrap();
        until_ready(&mut admin);
        let conversation = Conversation { number, standbys, turns: Vec::new() };
        Recorder { socket: socket.to_owned(), stage: Stage::new(number, standbys), conns: BTreeMap::new(), units, conversation }
    }

    fn play(mut self) -> Conversation {
        for (at, unit) in std::mem::take(&mut self.units).into_iter().enumerate() {
            // The second client comes in between: it uses the same connections.
            let name = if at % 4 == 3 { 'B' } else { 'A' };
            let mut bytes = Vec::new();
            unit.messages.iter().for_each(|message| message.write(&mut bytes));
            self.take(Came::FromClient(name, bytes));
            self.hear();
        }
        for name in ['A', 'B'] {
            self.take(Came::Closed(name));
            self.hear();
        }
        self.conversation
    }

    fn take(&mut self, came: Came) {
        let went = self.stage.take(&came);
        for out in &went {
            match out {
                Out::Server { conn, bytes, .. } => drop(self.conns.get_mut(conn).map(|stream| stream.write_all(bytes))),
                Out::Action { what: Action::Opened(conn), .. } => {
                    self.conns.insert(conn.clone(), connect(&self.socket));
                }
                Out::Action { what: Action::Closed(conn) | Action::Reset(conn), .. } => drop(self.conns.remove(conn)),
                Out::Client { .. } | Out::Action { .. } => {}
            }
        }
        self.conversation.turns.push(Turn { came, went });
    }

    /// All that servers say, until they say nothing more.
    fn hear(&mut self) {
        let mut is_silent = false;
        while !is_silent {
            is_silent = true;
            for name in ['A', 'B'] {
                let Some(conn) = self.stage.client(name).conn_name() else { continue };
                let Some(bytes) = self.conns.get_mut(&conn).map(available).filter(|bytes| !bytes.is_empty()) else { continue };
                is_silent = false;
                self.take(Came::FromServer(name, bytes));
            }
        }
    }
}

/// The bytes that a server sends before it is silent.
fn available(stream: &mut UnixStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
    }
    all
}

fn connect(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut packet = Vec::new();
    let parameters = [("user", "joe"), ("database", "db"), ("TimeZone", "UTC"), ("application_name", "")];
    weir_wire::write::startup(&mut packet, weir_wire::startup_packet::ProtocolVersion::V3_0, parameters.into_iter());
    stream.write_all(&packet).unwrap();
    until_ready(&mut stream);
    stream
}

fn until_ready(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        stream.read_exact(&mut body).unwrap();
        assert!(head[0] != b'E', "{}", body.escape_ascii());
        if head[0] == b'Z' {
            return;
        }
    }
}
