//! Conversations as text: input and output, message by message, each different one written once.
//!
//! ```text
//! "a message"                 the table: messages that occur more than once, by number
//! = 7 standbys 1              a conversation
//! > A "bytes" @12             came from a client
//! < A "bytes"                 came from the server of its connection
//! . A                         a client has closed its side
//! s node0#1 "bytes"           went to a server
//! c A "bytes"                 went to a client
//! a A gives back node0#1      an action
//! ```
//!
//! Long runs stand as `"x"*5000`.

use super::client::Client;
use super::log::{Action, Out};
use super::render::{joined, lines_of};
use super::world::World;
use std::collections::HashMap;
use std::fmt::Write as _;
use weir_wire::frame::read_header;

/// Size of a worker's buffers in conversations.
const BUFFER_BYTES: usize = 8 << 10;

/// Shorter messages are not worth a number.
const TABLED_BYTES_MIN: usize = 10;

const CONFIGS: &[&str] = &["", "memory_cache_enabled = on\n", "causal_reads = session\n", "prepared_statements_max = 2\n"];

/// Something that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    FromClient(char, Vec<u8>),
    FromServer(char, Vec<u8>),
    Closed(char),
}

/// One input of a session, and all that followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub came: Came,
    pub went: Vec<Out>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub number: usize,
    pub standbys: u16,
    pub turns: Vec<Turn>,
}

/// Two clients of one world; its configuration hangs on the number.
pub struct Stage {
    pub world: World,
    pub clients: Vec<Client>,
}

impl Stage {
    pub fn new(number: usize, standbys: u16) -> Stage {
        let world = World::new(CONFIGS[number % CONFIGS.len()], standbys, BUFFER_BYTES);
        let clients = ['A', 'B'].map(|name| Client::new(&world, name, &[("work_mem", "3MB")])).into();
        Stage { world, clients }
    }

    pub fn client(&mut self, name: char) -> &mut Client {
        let at = self.clients.iter().position(|client| client.name == name);
        &mut self.clients[at.unwrap_or(0)]
    }

    /// Something comes. Says all that follows.
    pub fn take(&mut self, came: &Came) -> Vec<Out> {
        // The standby has replayed all that came before.
        let standbys: Vec<u16> = (1..self.world.config.nodes.len() as u16).collect();
        self.world.replay(&standbys);
        match came {
            Came::FromClient(name, bytes) => self.client(*name).pipes.from_client.extend_from_slice(bytes),
            Came::FromServer(name, bytes) => self.client(*name).deliver(bytes),
            Came::Closed(name) => self.client(*name).pipes.client_closed = true,
        }
        self.clients.iter_mut().for_each(Client::run);
        while let Some(woken) = self.clients.iter_mut().find(|client| client.is_woken()) {
            woken.run();
        }
        // Connections that are to be cleaned are not used again here.
        self.world.pool.resets.take();
        joined(&self.world.log.take())
    }
}

/// Plays a conversation once more. Says how it differs.
pub fn replay(conversation: &Conversation) -> Result<(), String> {
    let mut stage = Stage::new(conversation.number, conversation.standbys);
    for turn in &conversation.turns {
        let went = stage.take(&turn.came);
        if as_text(&went) != as_text(&turn.went) {
            let (expected, happened) = (lines_of(&turn.went, '-').join("\n    "), lines_of(&went, '-').join("\n    "));
            let number = conversation.number;
            return Err(format!(
                "conversation {number}\n  {:?}\n  expected:\n    {expected}\n  happened:\n    {happened}",
                turn.came
            ));
        }
    }
    Ok(())
}

/// Streams as their bytes, actions as their words.
fn as_text(outs: &[Out]) -> Vec<(String, Vec<u8>)> {
    let stream = |out: &Out| match out {
        Out::Server { conn, client, bytes } => (format!("s {client} {conn}"), bytes.clone()),
        Out::Client { client, bytes } => (format!("c {client}"), bytes.clone()),
        Out::Action { .. } => (lines_of(std::slice::from_ref(out), '-').concat(), Vec::new()),
    };
    outs.iter().map(stream).collect()
}

/// All conversations of a text.
pub fn read(text: &str) -> Vec<Conversation> {
    let (mut table, mut all): (Vec<Vec<u8>>, Vec<Conversation>) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if all.is_empty() && line.starts_with('"') {
            table.push(bytes_in(line, &[]));
            continue;
        }
        let (kind, rest) = line.split_at(line.len().min(2));
        if kind == "= " {
            let numbers: Vec<usize> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
            let (number, standbys) = (numbers[0], numbers[1] as u16);
            all.push(Conversation { number, standbys, turns: Vec::new() });
            continue;
        }
        let Some(conversation) = all.last_mut() else { panic!("a line before all conversations: {line}") };
        let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let client = name.chars().next().unwrap_or('?');
        match kind {
            "> " => conversation.begin(Came::FromClient(client, bytes_in(more, &table))),
            "< " => conversation.begin(Came::FromServer(client, bytes_in(more, &table))),
            ". " => conversation.begin(Came::Closed(client)),
            "s " => {
                let (conn, more) = more.split_once(' ').unwrap_or((more, ""));
                let bytes = bytes_in(more, &table);
                conversation.follow(Out::Server { client, conn: conn.to_owned(), bytes });
            }
            "c " => conversation.follow(Out::Client { client, bytes: bytes_in(more, &table) }),
            "a " => {
                let client = (client != '-').then_some(client);
                conversation.follow(Out::Action { client, what: Action::Other(more.to_owned()) });
            }
            _ => panic!("a line that means nothing: {line}"),
        }
    }
    all
}

impl Conversation {
    fn begin(&mut self, came: Came) {
        self.turns.push(Turn { came, went: Vec::new() });
    }

    fn follow(&mut self, out: Out) {
        if let Some(turn) = self.turns.last_mut() {
            turn.went.push(out);
        }
    }
}

/// The text of conversations.
pub fn write(all: &[Conversation]) -> String {
    let table = Table::of(all);
    let mut text = table.text.clone();
    for conversation in all {
        let _ = writeln!(text, "= {} standbys {}", conversation.number, conversation.standbys);
        for turn in &conversation.turns {
            match &turn.came {
                Came::FromClient(client, bytes) => writeln_to(&mut text, &format!("> {client}"), &table.words(bytes)),
                Came::FromServer(client, bytes) => writeln_to(&mut text, &format!("< {client}"), &table.words(bytes)),
                Came::Closed(client) => writeln_to(&mut text, &format!(". {client}"), ""),
            }
            for out in &turn.went {
                match out {
                    Out::Server { client, conn, bytes } => {
                        writeln_to(&mut text, &format!("s {client} {conn}"), &table.words(bytes));
                    }
                    Out::Client { client, bytes } => writeln_to(&mut text, &format!("c {client}"), &table.words(bytes)),
                    Out::Action { client, .. } => {
                        let line = lines_of(std::slice::from_ref(out), client.unwrap_or('-'));
                        let words = line.concat();
                        let words = words.strip_prefix("action: ").unwrap_or(&words);
                        writeln_to(&mut text, &format!("a {}", client.unwrap_or('-')), &format!(" {words}"));
                    }
                }
            }
        }
    }
    text
}

fn writeln_to(text: &mut String, head: &str, rest: &str) {
    text.push_str(head);
    text.push_str(rest);
    text.push('\n');
}

/// Messages that occur more than once.
struct Table {
    text: String,
    numbers: HashMap<Vec<u8>, usize>,
}

impl Table {
    fn of(all: &[Conversation]) -> Table {
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut order = Vec::new();
        for turn in all.iter().flat_map(|conversation| &conversation.turns) {
            let came = match &turn.came {
                Came::FromClient(_, bytes) | Came::FromServer(_, bytes) => Some(bytes),
                Came::Closed(_) => None,
            };
            let went = turn.went.iter().filter_map(|out| match out {
                Out::Server { bytes, .. } | Out::Client { bytes, .. } => Some(bytes),
                Out::Action { .. } => None,
            });
            for frame in came.into_iter().chain(went).flat_map(|bytes| frames(bytes)) {
                let count = counts.entry(frame.to_vec()).or_insert(0);
                *count += 1;
                if *count == 2 && frame.len() >= TABLED_BYTES_MIN {
                    order.push(frame.to_vec());
                }
            }
        }
        let text = order.iter().map(|frame| format!("{}\n", quoted(frame))).collect();
        Table { text, numbers: order.into_iter().enumerate().map(|(at, frame)| (frame, at)).collect() }
    }

    /// Each message as a word, with a blank before it. Short neighbours are one word.
    fn words(&self, bytes: &[u8]) -> String {
        let (mut words, mut short) = (String::new(), Vec::new());
        for frame in frames(bytes) {
            match self.numbers.get(frame) {
                Some(at) => {
                    if !short.is_empty() {
                        let _ = write!(words, " {}", quoted(&std::mem::take(&mut short)));
                    }
                    let _ = write!(words, " @{at}");
                }
                None => short.extend_from_slice(frame),
            }
        }
        if !short.is_empty() {
            let _ = write!(words, " {}", quoted(&short));
        }
        words
    }
}

/// Messages, and the bytes at the end that are none.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let here = read_header(bytes).ok().flatten().map_or(bytes.len(), |header| header.frame_bytes());
        let (frame, rest) = bytes.split_at(here.min(bytes.len()));
        all.push(frame);
        bytes = rest;
    }
    all
}

/// Longest unit of which a run is looked for, and the shortest run.
const UNIT_BYTES_MAX: usize = 4;
const RUN_BYTES_MIN: usize = 64;

/// In quotes, with runs as `"x"*9`.
fn quoted(bytes: &[u8]) -> String {
    for unit in 1..=UNIT_BYTES_MAX {
        let mut at = 0;
        while at + RUN_BYTES_MIN < bytes.len() {
            let run = bytes[at..].iter().zip(&bytes[at + unit..]).take_while(|(one, other)| one == other).count() + unit;
            if run >= RUN_BYTES_MIN {
                let times = run / unit;
                let (head, tail) = (&bytes[..at], &bytes[at + times * unit..]);
                let head = if head.is_empty() { String::new() } else { format!("{}+", quoted(head)) };
                let tail = if tail.is_empty() { String::new() } else { format!("+{}", quoted(tail)) };
                return format!("{head}\"{}\"*{times}{tail}", escaped(&bytes[at..at + unit]));
            }
            at += 1;
        }
    }
    format!("\"{}\"", escaped(bytes))
}

/// As short as can be, and printable.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let is_digit_next = bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit);
        match byte {
            b'"' => text.push_str("\\q"),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            0..=9 if !is_digit_next => drop(write!(text, "\\{byte}")),
            0x20..0x7f => text.push(char::from(*byte)),
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text
}

fn bytes_in(words: &str, table: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = words.trim_start();
    while !rest.is_empty() {
        if let Some(number) = rest.strip_prefix('@') {
            let end = number.find(' ').unwrap_or(number.len());
            out.extend_from_slice(&table[number[..end].parse::<usize>().unwrap()]);
            rest = number[end..].trim_start();
            continue;
        }
        let (piece, after) = rest[1..].split_once('"').unwrap_or_else(|| panic!("no closing quote: {words}"));
        let piece = unescaped(piece);
        rest = after;
        let mut times = 1;
        if let Some(number) = rest.strip_prefix('*') {
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            times = number[..end].parse().unwrap();
            rest = &number[end..];
        }
        out.extend(piece.repeat(times));
        rest = rest.trim_start_matches(['+', ' ']);
    }
    out
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, mut chars) = (Vec::new(), text.bytes());
    while let Some(byte) = chars.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match chars.next() {
            Some(b'q') => out.push(b'"'),
            Some(b'n') => out.push(b'\n'),
            Some(digit @ b'0'..=b'9') => out.push(digit - b'0'),
            Some(b'x') => {
                let digits = [chars.next().unwrap(), chars.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            Some(other) => out.push(other),
            None => panic!("a backslash at the end: {text}"),
        }
    }
    out
}
