//! Passwords typed by a human, and the name of the human.

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use zeroize::Zeroizing;

/// Longest password taken. Source: Pgpool-II, `MAX_USER_PASSWD_LEN`.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// Asks for a password at the terminal, without showing it. Without a terminal it is a line of the standard input.
pub fn password(question: &str) -> std::io::Result<Zeroizing<String>> {
    match OpenOptions::new().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => hidden(&terminal, question),
        Err(_) => {
            write!(std::io::stderr(), "{question}")?;
            line(&mut std::io::stdin().lock())
        }
    }
}

fn hidden(terminal: &File, question: &str) -> std::io::Result<Zeroizing<String>> {
    let before = tcgetattr(terminal)?;
    let mut silent = before.clone();
    silent.local_modes -= LocalModes::ECHO;
    (&*terminal).write_all(question.as_bytes())?;
    tcsetattr(terminal, OptionalActions::Flush, &silent)?;
    let said = line(&mut BufReader::new(terminal));
    // Whatever was said: the terminal must show again what is typed.
    tcsetattr(terminal, OptionalActions::Flush, &before)?;
    (&*terminal).write_all(b"\n")?;
    said
}

fn line(from: &mut impl BufRead) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(PASSWORD_BYTES_MAX as usize));
    std::io::Read::take(from, PASSWORD_BYTES_MAX).read_line(&mut text)?;
    let length = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(length);
    Ok(text)
}

/// The name of the user this process runs as; its number if the system knows none.
pub fn system_user() -> String {
    let number = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).map_or(number.clone(), str::to_string)
}
