//! Password prompt, and the name of the system user.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use zeroize::Zeroizing;

/// Longest password taken. Source: Pgpool-II, `MAX_USER_PASSWD_LEN`.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// Asks at the terminal without echo, or reads a line of stdin.
pub fn password(question: &str) -> std::io::Result<Zeroizing<String>> {
    if OpenOptions::new().read(true).write(true).open("/dev/tty").is_ok() {
        return rpassword::prompt_password(question).map(Zeroizing::new);
    }
    write!(std::io::stderr(), "{question}")?;
    line(&mut std::io::stdin().lock())
}

fn line(from: &mut impl BufRead) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(PASSWORD_BYTES_MAX as usize));
    std::io::Read::take(from, PASSWORD_BYTES_MAX).read_line(&mut text)?;
    let length = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(length);
    Ok(text)
}

/// Returns a number if the name is unknown.
pub fn system_user() -> String {
    let name = uzers::get_effective_username().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| rustix::process::geteuid().as_raw().to_string())
}
