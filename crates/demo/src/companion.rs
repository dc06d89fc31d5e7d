//! A program beside the servers, such as a proxy. Like a server it does not outlive us.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use crate::process::{Launch, signal_child};
use crate::wait::wait_until;

/// Time to end at a signal; a killed one takes none.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct Companion {
    // A look at the end of a process writes it down.
    child: Mutex<Child>,
    pid: u32,
}

impl Companion {
    /// Starts a program as our own user. Its output is appended to `log`.
    pub fn start(program: &Path, arguments: &[&OsStr], log: &Path) -> Result<Companion> {
        let child = Launch::new()?.companion(program, arguments, log)?;
        Ok(Companion { pid: child.id(), child: Mutex::new(child) })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True if it ended, in whichever way.
    pub fn has_ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }

    /// Has it begin its end (SIGINT). A program that has ended is no error.
    pub fn begin_stop(&self) {
        if !self.has_ended() {
            let child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = signal_child(&child, Signal::INT);
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.begin_stop();
        if wait_until("a program to end", END_LIMIT, || Ok(self.has_ended())).is_err() {
            let mut child = self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Nobody can act on an error here.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_companion_has_ended_and_its_words_are_kept() {
        let folder = crate::folder::Folder::temporary(crate::programs::RunAs::Ourselves).unwrap();
        let log = folder.path().join("log");
        let arguments = ["-c", "trap 'echo bye; exit' INT; echo hello; while :; do sleep 0.01; done"].map(OsStr::new);
        let companion = Companion::start(Path::new("sh"), &arguments, &log).unwrap();
        let words = || std::fs::read_to_string(&log).unwrap();
        wait_until("its first words", END_LIMIT, || Ok(words() == "hello\n")).unwrap();
        assert!(!companion.has_ended());
        let pid = companion.pid();
        drop(companion);
        assert!(words() == "hello\nbye\n" && !Path::new(&format!("/proc/{pid}")).exists(), "{}", words());
    }
}
