//! Runs cargo, and other programs whose output the caller of a task should see.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that runs us, in the workspace's folder.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root());
    command
}

/// Runs a command that writes to our own output. Error: it fails.
pub fn run_to_end(command: &mut Command) -> Result<()> {
    let line = describe(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Builds the proxy as tests of the whole workspace do: another choice of packages has other features, and cargo would build everything
/// again. Returns the program.
pub fn build_proxy() -> Result<PathBuf> {
    run_to_end(&mut cargo(&["test", "--quiet", "--workspace", "--no-run", "--test=no_alloc"]))?;
    Ok(crate::target_folder()?.join("debug/weir"))
}

/// The command as one would type it.
pub fn describe(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
