//! Progress of long commands on a terminal, and nothing of it anywhere else.

use super::shard_command::Shards;
use crate::support::proxy::Folder;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use weir_demo::ReservedPort;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A command's output for programs, and all that its terminal got.
struct Seen {
    success: bool,
    output: String,
    terminal: String,
}

/// Runs a command whose standard error is a terminal. `heed` gets the standard output as it comes.
fn run_at_terminal(command: &mut Command, mut heed: impl FnMut(&str, Pid)) -> Seen {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let terminal = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(terminal).spawn().unwrap();
    // The command holds the other end, too: reading ends with the process only without it.
    command.stderr(Stdio::null());
    let reader = thread::spawn(move || read_to_end(File::from(controller)));
    let (mut pipe, mut output, mut piece) = (child.stdout.take().unwrap(), String::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        output.push_str(&String::from_utf8_lossy(&piece[..count]));
        heed(&output, Pid::from_child(&child));
    }
    let success = child.wait().unwrap().success();
    Seen { success, output, terminal: reader.join().unwrap() }
}

/// A terminal whose last user has gone answers with an error.
fn read_to_end(mut from: File) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

type Change = fn(&mut Command) -> &mut Command;

/// At an ordinary terminal, whatever the tests' own is.
fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.args(arguments).env("TERM", "xterm").env_remove("NO_COLOR");
    command
}

/// Two servers that are not there.
fn check_of_nobody(folder: &Folder) -> Vec<String> {
    let file = folder.0.join("pgpool.conf");
    let node = |at: u16| {
        let port = ReservedPort::any().unwrap();
        format!("backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\n", port.number())
    };
    fs::write(&file, format!("{}{}work_dir = '{}'\n", node(0), node(1), folder.0.display())).unwrap();
    ["check", "--connect", "-f", &file.to_string_lossy()].map(str::to_owned).to_vec()
}

#[test]
fn a_check_of_servers_tells_a_terminal_which_one_is_asked() {
    let folder = Folder::new();
    let words = check_of_nobody(&folder);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let seen = run_at_terminal(&mut weir(&words), |_, _| {});
    assert!(seen.terminal.contains("asking node 0 [") && seen.terminal.contains("] 0 of 2 servers, "), "{:?}", seen.terminal);
    let last = seen.terminal.rsplit(['\r', '\n']).find(|line| !line.is_empty()).unwrap();
    assert!(!last.contains("servers"), "the line is gone at the end: {last:?}");

    let plain = weir(&words).output().unwrap();
    let problems = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(!problems.contains('\u{1b}') && !problems.contains("asking"), "{problems:?}");
    assert_eq!(seen.output, String::from_utf8_lossy(&plain.stdout), "the output for programs is the same");
    assert!(!seen.success && !plain.status.success());

    let of_others: [(&str, Change); 4] = [
        ("--quiet", |command| command.arg("--quiet")),
        ("NO_COLOR", |command| command.env("NO_COLOR", "1")),
        ("TERM=dumb", |command| command.env("TERM", "dumb")),
        ("no TERM", |command| command.env_remove("TERM")),
    ];
    for (name, change) in of_others {
        let mut command = weir(&words);
        let seen = run_at_terminal(change(&mut command), |_, _| {});
        assert!(!seen.terminal.contains("asking") && !seen.terminal.contains('\u{1b}'), "{name}: {:?}", seen.terminal);
    }
}

#[test]
fn a_demo_tells_a_terminal_how_much_of_a_server_is_copied() {
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    let dir = folder.0.join("demo");
    let mut command = weir(&["demo", "--standbys", "1", "--port", &port.number().to_string(), "--dir", &dir.to_string_lossy()]);
    let seen = run_at_terminal(&mut command, |output, pid| {
        if output.contains("Ctrl-C ends it") || output.contains("failed") {
            // It may have had the signal.
            let _ = kill_process(pid, Signal::INT);
        }
    });
    assert!(seen.success && !seen.output.contains('\u{1b}'), "{:?}", seen.output);
    for expected in ["initialising primary, ", "copying standby1 [", " MiB, ", "starting [", " of 2 servers, "] {
        assert!(seen.terminal.contains(expected), "no {expected:?} in {:?}", seen.terminal);
    }
}

#[test]
fn a_copy_of_a_reference_table_tells_a_terminal_its_rows() {
    let shards = Shards::start();
    shards.on(0, "create table items as select i, repeat('x', 100) as filler from generate_series(1, 200000) i");
    let mut command = shards.command("reference items");
    let seen = run_at_terminal(command.env("TERM", "xterm").env_remove("NO_COLOR"), |_, _| {});
    assert!(seen.success && seen.output.contains("200000 rows on each of 3 shards"), "{:?} {:?}", seen.output, seen.terminal);
    let counts: Vec<&str> = seen.terminal.split(" rows, ").filter_map(|before| before.rsplit(' ').next()).collect();
    assert!(seen.terminal.contains("copying \"public\".\"items\" to shard 1 ("), "{:?}", seen.terminal);
    assert!(counts.iter().any(|count| count.contains(',')), "more than a thousand were counted: {counts:?}");
}
