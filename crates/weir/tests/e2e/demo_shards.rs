//! `weir demo --shards`: all that it proposes runs as it stands, rows lie where they belong, and nothing is left behind.

use crate::support::proxy::Folder;
use crate::support::{Raw, leave_out, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use weir_demo::{Programs, ReservedPort};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A running demonstration, and its output up to the last line of its tour.
struct Demo {
    child: Child,
    dir: PathBuf,
    port: ReservedPort,
    said: Vec<String>,
    _folder: Folder,
}

fn begin(dir: &Path, port: &ReservedPort, more: &[&str], out: Stdio) -> Child {
    let mut command = Command::new(WEIR);
    command.args(["demo", "--port", &port.number().to_string(), "--dir"]).arg(dir).args(more);
    command.stdout(out).stderr(Stdio::null()).spawn().unwrap()
}

impl Demo {
    fn start(more: &[&str]) -> Demo {
        let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
        let dir = folder.0.join("a demo");
        let mut child = begin(&dir, &port, more, Stdio::piped());
        let mut said = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            let is_last = line.contains("Ctrl-C ends it") || line.contains("failed");
            said.push(line);
            if is_last {
                break;
            }
        }
        assert!(said.last().is_some_and(|line| line.contains("Ctrl-C ends it")), "{said:#?}");
        Demo { child, dir, port, said, _folder: folder }
    }

    fn client(&self) -> Raw {
        self.client_of(self.port.number())
    }

    fn client_of(&self, port: u16) -> Raw {
        Raw::tcp(port).log_in("postgres", "postgres", &[]).unwrap()
    }

    /// Ports of the servers, by their roles.
    fn ports(&self, role: &str) -> Vec<u16> {
        let of_node = |line: &String| line.strip_prefix("  node ")?.split_once("port ")?.1.split_once(", ").map(own);
        let own = self.said.iter().filter_map(of_node);
        own.filter(|(_, of)| of.starts_with(role)).map(|(port, _)| port.parse().unwrap()).collect()
    }

    /// The only proposed command with these words.
    fn proposed(&self, words: &str) -> &str {
        let found: Vec<&String> = self.said.iter().filter(|line| line.starts_with("  ") && line.contains(words)).collect();
        assert_eq!(found.len(), 1, "commands with \"{words}\" in {:#?}", self.said);
        found[0].trim()
    }

    /// The output of a proposed command.
    fn does(&self, words: &str) -> String {
        let command = self.proposed(words);
        let output = shell(command);
        assert!(output.status.success(), "{command}: {}", text_of(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn end(mut self) {
        let ports: Vec<u16> = self.ports("").into_iter().chain([self.port.number()]).collect();
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert!(!self.dir.exists(), "its folder is gone");
        assert!(ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_err()), "its servers are gone");
    }
}

impl Drop for Demo {
    /// A test that fails ends it as well.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

fn own((port, role): (&str, &str)) -> (String, String) {
    (port.to_owned(), role.to_owned())
}

/// Runs a command with PostgreSQL's own clients.
fn shell(command: &str) -> Output {
    let path = format!("{}:{}", Programs::find().unwrap().bin().display(), std::env::var("PATH").unwrap_or_default());
    Command::new("sh").args(["-c", command]).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap()
}

fn text_of(output: &Output) -> String {
    [&*output.stdout, &*output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Rows of a table that psql prints.
fn rows(printed: &str) -> Vec<Vec<&str>> {
    let rows = printed.lines().skip(2).take_while(|line| line.contains('|') || !line.starts_with('('));
    rows.filter(|line| !line.is_empty()).map(|line| line.split('|').map(str::trim).collect()).collect()
}

/// Transactions that pgbench counts, none of which failed.
fn processed(printed: &str) -> u64 {
    let of =
        |label: &str| printed.lines().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()).unwrap_or_default();
    assert_eq!(of("number of failed transactions: "), "0", "{printed}");
    of("number of transactions actually processed: ").parse().unwrap()
}

#[test]
fn all_that_a_demo_of_shards_proposes_works_and_nothing_is_left_behind() {
    let bin = Programs::find().unwrap().bin().to_owned();
    if !["psql", "pgbench"].iter().all(|program| bin.join(program).exists()) {
        return leave_out("there is no psql or pgbench of the server's version (Debian: in postgresql and postgresql-client)");
    }
    let demo = Demo::start(&["--shards", "3"]);
    let servers: Vec<u16> = [demo.ports("primary"), demo.ports("shard 1"), demo.ports("shard 2")].concat();
    assert_eq!(servers.len(), 3, "{:#?}", demo.said);
    for (statement, place) in
        [("WHERE aid = 100001 ", "-> shard 1"), ("  SELECT sum(abalance) ", "-> engine"), ("  UPDATE ", "-> shards 0,1,2")]
    {
        assert!(demo.proposed(statement).contains(place), "{statement}: {:#?}", demo.said);
    }

    let payments = processed(&demo.does("payment.sql"));
    assert!(payments > 0 && processed(&demo.does(" -S ")) > 0);
    let updates = processed(&demo.does(" -N "));
    let branches = demo.does("GROUP BY bid");
    let counts: Vec<(&str, &str)> = rows(&branches).iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(counts, [("1", "100000"), ("2", "100000"), ("3", "100000")], "{branches}");
    let balances = demo.does("AS history");
    assert!(matches!(rows(&balances).as_slice(), [row] if row[0] == row[1] && row[0].parse::<i64>().is_ok()), "{balances}");
    let mut client = demo.client();
    assert_eq!(client.value("select count(*) from pgbench_history"), (payments + updates).to_string());
    let both = "select (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)";
    assert_eq!(client.value(both), "t");
    for (shard, port) in servers.iter().enumerate() {
        let mut server = demo.client_of(*port);
        let strange = format!(
            "select (select count(*) from pgbench_accounts where (aid - 1) / 100000 <> {shard}) \
             + (select count(*) from pgbench_history where (aid - 1) / 100000 <> {shard})"
        );
        assert_eq!(server.value(&strange), "0");
        let own = "select concat_ws(' ', (select count(*) from pgbench_branches), (select count(*) from pgbench_tellers), \
            (select count(*) from pgbench_accounts))";
        assert_eq!(server.value(own), "1 10 100000");
    }

    let shards = demo.does("SHOW pool_shards\"");
    let listed: Vec<String> = rows(&shards).iter().map(|row| format!("{} {}", row[0], row[3])).collect();
    assert_eq!(listed, (0..).zip(&servers).map(|(shard, port)| format!("{shard} {port}")).collect::<Vec<_>>());
    let tables = demo.does("SHOW pool_shard_tables");
    let last: Vec<(&str, Option<&str>)> = rows(&tables).iter().map(|row| (row[4], row.last().copied())).collect();
    assert_eq!(last, [("0,1,2", Some("ready")); 4], "{tables}");
    assert!(demo.does("SHOW route FOR").contains("shard 1"));
    assert!(demo.does(" shard check ").contains(" 0 differences"));
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
    assert_eq!(demo.client().value(sums), "t");
    // This one empties the history.
    let uncleaned = shell(&demo.proposed(" -S ").replace(" -n ", " ").replace("-T 3", "-t 10"));
    assert!(uncleaned.status.success() && text_of(&uncleaned).contains("definitions are not carried out on sharded tables"));
    assert_eq!(demo.client().value("select count(*) from pgbench_history"), "0");
    let before: i64 = demo.client().value("select sum(abalance) from pgbench_accounts").parse().unwrap();
    assert!(processed(&demo.does("tpcb-like")) > 0);
    let sums =
        format!("select (select sum(abalance) from pgbench_accounts) - {before} = (select sum(delta) from pgbench_history)");
    assert_eq!(demo.client().value(&sums), "t");
    demo.end();
}

#[test]
fn shard_0_of_a_demo_may_have_a_standby() {
    let demo = Demo::start(&["--shards", "2", "--standbys", "1"]);
    assert_eq!((demo.ports("standby").len(), demo.ports("shard 1").len()), (1, 1), "{:#?}", demo.said);
    assert_eq!(demo.client().value("select count(*) from pgbench_accounts"), "200000");
    demo.end();
}

#[test]
fn a_demo_of_shards_that_is_stopped_early_leaves_nothing_behind() {
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    let dir = folder.0.join("demo");
    let mut demo = begin(&dir, &port, &["--shards", "2"], Stdio::null());
    wait_until("the last server to be made", || dir.join("shard1/primary").exists());
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    assert!(!demo.wait().unwrap().success());
    assert!(!dir.exists());
}

#[test]
fn a_demo_of_shards_refuses_options_that_do_not_fit() {
    for (more, word) in [
        (&["--shards", "1"] as &[&str], "2..=9"),
        (&["--shards", "10"], "2..=9"),
        (&["--shards", "2", "--weirs", "2"], "--weirs"),
        (&["--shards", "2", "--kill-primary", "--standbys", "1"], "--kill-primary"),
    ] {
        let folder = Folder::new();
        let output = Command::new(WEIR).arg("demo").args(more).arg("--dir").arg(folder.0.join("demo")).output().unwrap();
        assert!(!output.status.success() && text_of(&output).contains(word), "{more:?}: {}", text_of(&output));
        assert!(!folder.0.join("demo").exists());
    }
}
