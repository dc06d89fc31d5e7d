//! Three servers that are shards behind one proxy, and a fourth one that has all rows: what it answers, the proxy must answer.

use super::certs::Authority;
use super::ground::{Owned, cluster_with, wait_until};
use super::proxy::Backend;
use super::raw::Message;
use super::{Proxy, Raw, wire};
use std::process::Command;
use weir_demo::{CopiedRows, Options, Server};

pub const SHARDS: usize = 3;

/// All tables lie here, and the engine's in `postgres_engine`.
const DATABASE: &str = "postgres";
/// Reads the shards for the engine.
const ENGINE_USER: &str = "weir_engine";

/// The configurations that a test goes through: the first one and one that its name chooses. Each takes seconds to set up, and all tests together try
/// each one often. `WEIR_MATRIX=all`: all of them; `few`, for a second version of PostgreSQL: another one.
pub fn configs<'a>(all: &'a [&'a str]) -> Vec<&'a str> {
    let chosen = |step: usize| all.get(1 + (number_of_test() + step) % all.len().saturating_sub(1).max(1)).copied();
    match std::env::var("WEIR_MATRIX").as_deref() {
        Ok("all") => all.to_vec(),
        Ok("few") => vec![chosen(1).unwrap_or(all[0])],
        _ => std::iter::once(all[0]).chain(chosen(0)).collect(),
    }
}

/// A number that hangs on the name of the test alone.
fn number_of_test() -> usize {
    let thread = std::thread::current();
    thread.name().unwrap_or_default().bytes().map(usize::from).sum()
}

fn proxy_of(shards: &[Owned], more: &str) -> Proxy {
    let backends: Vec<Backend> = shards.iter().map(|shard| Backend::tcp(shard.primary().port(), 1)).collect();
    Proxy::spawn(&backends, &format!("parallel_mode = on\nbackend_shard1 = 1\nbackend_shard2 = 2\n{more}"))
}

pub struct Spread {
    shards: Vec<Owned>,
    whole: Owned,
    pub proxy: Proxy,
}

impl Spread {
    /// `more`: lines of pgpool.conf.
    pub fn start(more: &str) -> Spread {
        Spread::of_servers(more, Options::default())
    }

    /// The servers can encrypt connections.
    pub fn encrypting(more: &str) -> Spread {
        let signed = Authority::new("ours").server();
        let conf = [("ssl", "on"), ("ssl_cert_file", "weir.crt"), ("ssl_key_file", "weir.key")];
        let files = [("weir.crt", &signed.cert), ("weir.key", &signed.key)];
        let options = Options {
            extra_conf: conf.map(|(name, value)| (name.to_string(), value.to_string())).into(),
            extra_files: files.map(|(name, text)| (name.into(), text.clone().into_bytes())).into(),
            ..Options::default()
        };
        Spread::of_servers(more, options)
    }

    fn of_servers(more: &str, options: Options) -> Spread {
        let prepared = ("max_prepared_transactions".to_owned(), "10".to_owned());
        let extra_conf: Vec<_> = options.extra_conf.iter().cloned().chain([prepared]).collect();
        let one = || cluster_with(Options { extra_conf: extra_conf.clone(), ..options.clone() });
        let shards: Vec<Owned> = (0..SHARDS).map(|_| one()).collect();
        let proxy = proxy_of(&shards, more);
        let spread = Spread { shards, whole: one(), proxy };
        spread.everywhere(&format!("create role {ENGINE_USER} login"));
        spread
    }

    /// Another proxy before the shards.
    pub fn other_proxy(&self, more: &str) -> Proxy {
        proxy_of(&self.shards, more)
    }

    pub fn server(&self, shard: usize) -> &Server {
        self.shards[shard].primary()
    }

    /// The server with all rows.
    pub fn whole(&self) -> &Server {
        self.whole.primary()
    }

    /// Runs a text on shard 0, and on the server with all rows.
    pub fn define(&self, text: &str) {
        for server in [self.server(0), self.whole()] {
            server.query(text).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        }
    }

    pub fn everywhere(&self, text: &str) {
        let shards = (0..SHARDS).map(|shard| self.server(shard));
        shards.chain([self.whole()]).for_each(|server| drop(server.query(text).unwrap()));
    }

    /// Runs `weir shard` as an operator would.
    pub fn command(&self, arguments: &str) {
        let (is_done, words) = self.run_command(arguments);
        assert!(is_done, "{arguments}: {words}");
    }

    /// The words of `weir shard` where it fails.
    pub fn failing(&self, arguments: &str) -> String {
        let (is_done, words) = self.run_command(arguments);
        assert!(!is_done, "{arguments}: {words}");
        words
    }

    fn run_command(&self, arguments: &str) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("shard").args(arguments.split(' ')).arg("-f").arg(self.proxy.conf_path());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    pub fn reference(&self, tables: &[&str]) {
        tables.iter().for_each(|table| self.command(&format!("reference {DATABASE} public.{table}")));
    }

    /// Shards a table by a column; `rest`: further options.
    pub fn shard(&self, table: &str, key: &str, rest: &str) {
        self.command(format!("table {DATABASE} public.{table} --key {key} {rest}").trim_end());
    }

    /// Gives shard 0 all rows of tables that become reference tables.
    pub fn fill_first(&self, tables: &[&str]) {
        self.server(0).copy_rows(self.whole(), tables, CopiedRows::All).unwrap();
    }

    /// Gives each shard its rows.
    pub fn fill(&self, tables: &[&str]) {
        for shard in 0..SHARDS {
            self.server(shard).copy_rows(self.whole(), tables, CopiedRows::OfShard).unwrap();
        }
        for table in tables {
            let count = |server: &Server| server.value(&format!("select count(*) from public.{table}")).unwrap();
            let counts: Vec<u64> = (0..SHARDS).map(|shard| count(self.server(shard)).parse().unwrap()).collect();
            assert!(counts.iter().filter(|count| **count > 0).count() > 1, "{table}: one shard has all rows: {counts:?}");
            assert_eq!(counts.iter().sum::<u64>().to_string(), count(self.whole()), "{table}: {counts:?}");
        }
    }

    /// Has statements over several shards answered, and waits until they are.
    pub fn make_ready(&self, probe: &str) {
        self.command(&format!("engine {DATABASE} --user {ENGINE_USER}"));
        self.wait_ready(probe);
    }

    /// Waits until a statement over several shards is answered.
    pub fn wait_ready(&self, probe: &str) {
        let mut failure = None;
        wait_until("the engine to be ready", || {
            failure =
                Raw::tcp(self.proxy.port()).log_in("postgres", DATABASE, &[]).and_then(|mut client| client.try_rows(probe)).err();
            failure.is_none()
        });
    }

    /// Waits until the proxy knows that a table is spread.
    pub fn wait_known(&self, table: &str) {
        let mut client = self.client();
        wait_until("the table to be known", || {
            client.rows("show pool_shard_tables").iter().any(|row| row.get(1).is_some_and(|name| name == table))
        });
    }

    pub fn client(&self) -> Raw {
        self.client_of("postgres")
    }

    pub fn client_of(&self, user: &str) -> Raw {
        Raw::tcp(self.proxy.port()).log_in(user, DATABASE, &[]).unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
    }

    /// A client of the server with all rows.
    pub fn direct(&self) -> Raw {
        self.direct_of("postgres")
    }

    pub fn direct_of(&self, user: &str) -> Raw {
        let client = Raw::tcp(self.whole().port()).log_in(user, DATABASE, &[]);
        client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
    }
}

/// One column of an answer, without the numbers of tables, which differ between servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub modifier: i32,
}

/// An answer as a client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Option<String>>>,
    /// Tags of commands.
    pub said: Vec<String>,
    /// SQLSTATE of the first error.
    pub failure: Option<String>,
}

impl Answer {
    pub fn of(messages: &[Message]) -> Answer {
        let mut answer = Answer::default();
        for message in messages {
            match message.tag {
                b'T' => answer.columns = columns(&message.body),
                b'D' => answer.rows.push(message.row()),
                b'C' => answer.said.push(message.text()),
                b'E' => answer.failure = answer.failure.or(Some(message.failure().sqlstate)),
                _ => {}
            }
        }
        answer
    }

    /// With rows in an order of their own.
    pub fn sorted(mut self) -> Answer {
        self.rows.sort();
        self
    }
}

fn columns(body: &[u8]) -> Vec<Column> {
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let name = String::from_utf8_lossy(&rest[..end]).into_owned();
        let number = |from: usize| *rest[end + 1 + from..].first_chunk::<4>().expect("a column has 18 bytes behind its name");
        columns.push(Column { name, type_oid: u32::from_be_bytes(number(6)), modifier: i32::from_be_bytes(number(12)) });
        rest = &rest[end + 1 + 18..];
    }
    columns
}

/// How a text goes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One Query message.
    Simple,
    /// Parse, Bind, Describe, Execute, Sync.
    Extended,
}

impl How {
    pub fn messages(self, text: &str, values: &[&str]) -> Vec<u8> {
        match self {
            How::Simple => wire::query(text),
            How::Extended => {
                [wire::parse("", text), wire::bind("", "", values), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()]
                    .concat()
            }
        }
    }
}

pub fn ask(client: &mut Raw, how: How, text: &str, values: &[&str]) -> Answer {
    client.send(&how.messages(text, values));
    let mut messages = Vec::new();
    while messages.last().is_none_or(|last: &Message| last.tag != b'Z') {
        match client.try_read() {
            Ok(Some(message)) => messages.push(message),
            ended => panic!("{text}: {ended:?} behind {messages:?}"),
        }
    }
    Answer::of(&messages)
}
