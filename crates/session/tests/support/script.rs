//! Scripts of messages: the input from clients and servers, and all that follows.
//!
//! ```text
//! == a read goes to a standby
//! > Query "select 1"
//!     action: opens node1#1
//!     to node1#1: Query "select 1"
//! < Ready I
//!     ...
//! ```
//!
//! `>` is from the client, `<` from the server of its connection, `!` happens in the world (`events`). Neighbours of a kind come at once. Indented
//! lines are expected. `WEIR_SCRIPTS=write` writes what happened in its place, to be read before it is believed.

use super::client::Client;
use super::events::happen;
use super::notation::{Side, bytes_of};
use super::render::lines_of;
use super::world::World;
use std::fmt::Write as _;
use std::path::Path;

/// Size of a worker's buffers in these tests.
const BUFFER_BYTES: usize = 32 << 10;

/// One script.
struct Script {
    name: String,
    /// Lines before the first input, without `== name`.
    head: Vec<String>,
    steps: Vec<Step>,
}

/// Input that comes at once, and its consequences.
struct Step {
    /// Comments before it.
    comments: Vec<String>,
    kind: char,
    inputs: Vec<String>,
    expected: Vec<String>,
}

/// Plays all scripts of a file. Panics with all differences.
pub fn check_file(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let writes = std::env::var("WEIR_SCRIPTS").is_ok_and(|value| value == "write");
    let only = std::env::var("WEIR_SCRIPT").unwrap_or_default();
    let (intro, mut scripts) = read(&text);
    let mut differences = String::new();
    for script in scripts.iter_mut().filter(|script| script.name.contains(&only)) {
        differences.push_str(&play(script, writes));
    }
    if writes {
        std::fs::write(path, written(&intro, &scripts)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(differences.is_empty(), "{}\n{differences}", path.display());
    scripts.len()
}

fn read(text: &str) -> (String, Vec<Script>) {
    let (mut intro, mut scripts, mut comments) = (String::new(), Vec::<Script>::new(), Vec::new());
    let mut is_open = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            scripts.push(Script { name: name.to_owned(), head: Vec::new(), steps: Vec::new() });
            is_open = false;
            continue;
        }
        let Some(script) = scripts.last_mut() else {
            intro.push_str(line);
            intro.push('\n');
            continue;
        };
        let kind = line.chars().next();
        match (kind, script.steps.last_mut()) {
            (None, _) => is_open = false,
            (Some('#'), _) => {
                comments.push(line.to_owned());
                is_open = false;
            }
            (Some(' '), Some(step)) => {
                step.expected.push(line.trim().to_owned());
                is_open = false;
            }
            (Some(kind @ ('>' | '<' | '!')), step) => {
                let input = line[1..].trim().to_owned();
                match step {
                    Some(step) if is_open && step.kind == kind && kind != '!' => step.inputs.push(input),
                    _ => {
                        let comments = std::mem::take(&mut comments);
                        script.steps.push(Step { comments, kind, inputs: vec![input], expected: Vec::new() });
                    }
                }
                is_open = true;
            }
            (Some(_), None) => {
                script.head.append(&mut comments);
                script.head.push(line.to_owned());
            }
            (Some(_), Some(_)) => panic!("{}: a line that means nothing: {line}", script.name),
        }
    }
    (intro, scripts)
}

fn push_lines(text: &mut String, mark: &str, lines: &[String]) {
    for line in lines {
        let _ = write!(text, "\n{mark}{line}");
    }
}

fn written(intro: &str, scripts: &[Script]) -> String {
    let mut text = intro.trim_end().to_owned();
    for script in scripts {
        let _ = write!(text, "\n\n== {}", script.name);
        push_lines(&mut text, "", &script.head);
        for step in &script.steps {
            push_lines(&mut text, "", &step.comments);
            push_lines(&mut text, &format!("{} ", step.kind), &step.inputs);
            push_lines(&mut text, "    ", &step.expected);
        }
    }
    text.push('\n');
    text.trim_start().to_owned()
}

/// The settings that the head of a script names.
fn begin(script: &Script) -> (World, Vec<(String, String)>) {
    let (mut lines, mut standbys, mut startup) = (String::new(), 1, Vec::new());
    for line in script.head.iter().filter(|line| !line.starts_with('#')) {
        match line.split_once(": ") {
            Some(("config", more)) => {
                lines.push_str(more);
                lines.push('\n');
            }
            Some(("standbys", count)) => standbys = count.parse().unwrap_or_else(|_| panic!("{line}")),
            Some(("startup", pair)) => {
                let (name, value) = pair.split_once('=').unwrap_or_else(|| panic!("{line}"));
                startup.push((name.to_owned(), value.to_owned()));
            }
            _ => panic!("{}: a line that means nothing: {line}", script.name),
        }
    }
    (World::new(&lines, standbys, BUFFER_BYTES), startup)
}

struct Stage {
    world: World,
    startup: Vec<(String, String)>,
    clients: Vec<Client>,
    current: usize,
    /// Messages of clients come in pieces of so many bytes.
    piece_bytes: usize,
}

impl Stage {
    fn enter(&mut self, name: char) {
        self.current = self.clients.iter().position(|client| client.name == name).unwrap_or_else(|| {
            let startup: Vec<(&str, &str)> = self.startup.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            self.clients.push(Client::new(&self.world, name, &startup));
            self.clients.len() - 1
        });
    }

    fn input(&mut self, kind: char, inputs: &[String]) {
        match kind {
            '!' => self.event(&inputs[0]),
            '>' => {
                let bytes: Vec<u8> = inputs.iter().flat_map(|line| bytes_of(Side::Client, line)).collect();
                for piece in bytes.chunks(self.piece_bytes) {
                    self.clients[self.current].pipes.from_client.extend_from_slice(piece);
                    self.run();
                }
            }
            _ => {
                let bytes: Vec<u8> = inputs.iter().flat_map(|line| bytes_of(Side::Server, line)).collect();
                if self.clients[self.current].conn_name().is_none() {
                    return self.world.log.other(None, "there is no server connection to say it".into());
                }
                for piece in bytes.chunks(self.piece_bytes) {
                    self.clients[self.current].deliver(piece);
                    self.run();
                }
            }
        }
    }

    fn event(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("session ") {
            self.enter(name.chars().next().unwrap_or('A'));
        } else if let Some(bytes) = line.strip_prefix("pieces of ") {
            self.piece_bytes = bytes.parse().unwrap_or_else(|_| panic!("{line}"));
        } else {
            happen(&self.world, &mut self.clients[self.current], line);
        }
        self.run();
    }

    fn run(&mut self) {
        self.clients[self.current].run();
        while let Some(woken) = self.clients.iter_mut().find(|client| client.is_woken()) {
            woken.run();
        }
    }
}

/// Plays a script. Says how it differs; if `writes`, the real events are put in place of the expected ones.
fn play(script: &mut Script, writes: bool) -> String {
    let (world, startup) = begin(script);
    let mut stage = Stage { world, startup, clients: Vec::new(), current: 0, piece_bytes: usize::MAX };
    stage.enter('A');
    let mut difference = String::new();
    for step in &mut script.steps {
        stage.input(step.kind, &step.inputs);
        let mut happened = lines_of(&stage.world.log.take(), 'A');
        if happened.is_empty() && step.kind != '!' {
            happened.push("nothing".to_owned());
        }
        if writes {
            step.expected = happened;
        } else if happened != step.expected {
            let _ = writeln!(difference, "== {}\n{} {}", script.name, step.kind, step.inputs.join(&format!("\n{} ", step.kind)));
            difference.push_str(&diff(&step.expected, &happened));
            // The rest is of no use then.
            break;
        }
    }
    difference
}

/// Lines as in a unified diff.
fn diff(expected: &[String], happened: &[String]) -> String {
    let mut text = String::new();
    let (mut left, mut right) = (expected, happened);
    while let (Some(one), Some(other)) = (left.first(), right.first()) {
        if one == other {
            push_lines(&mut text, "      ", &left[..1]);
            (left, right) = (&left[1..], &right[1..]);
        } else if let Some(at) = right.iter().position(|line| line == one) {
            push_lines(&mut text, "    + ", &right[..at]);
            right = &right[at..];
        } else {
            push_lines(&mut text, "    - ", &left[..1]);
            left = &left[1..];
        }
    }
    push_lines(&mut text, "    - ", left);
    push_lines(&mut text, "    + ", right);
    text.push('\n');
    text
}
