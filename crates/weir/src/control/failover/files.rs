//! The files of failover in `work_dir`: the state that must survive this process, and Pgpool's `pgpool_status`.

use crate::control::context::Control;
use crate::monitor::log::Level;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::task::{spawn_blocking, spawn_local};
use weir_config::Config;
use weir_policy::failover::{Done, Durable, Mode, NodeId, Rules, status_file};

/// Pgpool's file.
pub const STATUS: &str = "pgpool_status";

const TEST: &str = "backend_down_request";

/// See the module.
pub struct Files {
    folder: PathBuf,
    state: PathBuf,
    /// The text that is to be in `pgpool_status`, and if somebody is writing.
    status: RefCell<Option<String>>,
    is_writing: Cell<bool>,
}

impl Files {
    /// Several proxies of one machine may share the folder, which is `/tmp` unless it is set: the port is theirs alone.
    pub fn new(config: &Config) -> Files {
        let folder = config.work_dir.clone();
        let state = folder.join(format!("weir_failover.{}", config.port));
        Files { folder, state, status: RefCell::default(), is_writing: Cell::new(false) }
    }

    /// True if there is anything to remember: where somebody else decides, he is asked again.
    pub fn keeps_state(&self, rules: &Rules) -> bool {
        matches!(rules.mode, Mode::Builtin | Mode::Command)
    }

    /// The stored state, and the nodes that `pgpool_status` keeps out of use. Blocks for the time of a small file.
    pub fn read(&self, c: &Control, rules: &Rules) -> (Option<Durable>, BTreeSet<NodeId>) {
        let mut stored = self.keeps_state(rules).then(|| self.read_state(c)).flatten();
        let path = self.folder.join(STATUS);
        let status = fs::read_to_string(&path);
        if let (Some(stored), Err(cause)) = (&mut stored, &status)
            && cause.kind() == io::ErrorKind::NotFound
        {
            // It was discarded (-D), and with it all that kept nodes out of use.
            stored.detached.clear();
        }
        let down = status.map(|text| status_file::parse(&text)).unwrap_or_default();
        let shown: Vec<String> = down.iter().map(ToString::to_string).collect();
        if !down.is_empty() {
            let text = format_args!("{} keeps these nodes out of use: {}", path.display(), shown.join(", "));
            c.shared.log.say(Level::Log, text);
        }
        (stored, down)
    }

    /// Nodes that the file of `health_check_test` says are down. Blocks for the time of a small file: it is for tests.
    pub fn read_test(&self) -> BTreeSet<NodeId> {
        fs::read_to_string(self.folder.join(TEST)).map(|text| status_file::parse_test(&text)).unwrap_or_default()
    }

    fn read_state(&self, c: &Control) -> Option<Durable> {
        let text = match read_own(&self.state) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return None,
            Err(cause) => {
                c.shared.log.say(Level::Error, format_args!("{} cannot be read: {cause}", self.state.display()));
                return None;
            }
        };
        let read = Durable::parse(&text);
        if read.is_none() {
            let path = self.state.display();
            c.shared.log.say(Level::Error, format_args!("{path} is broken; what it held is found again from the servers"));
        }
        read
    }

    /// Puts the state on disk. Cancel safe: it may be there.
    pub async fn store(&self, c: &Control, text: String) -> Done {
        let path = self.state.clone();
        let written = spawn_blocking(move || replace(&path, &text)).await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        match written {
            Ok(()) => Done::Yes,
            Err(cause) => {
                let path = self.state.display();
                c.shared.log.say(Level::Error, format_args!("{path} cannot be written, so that no failover goes on: {cause}"));
                Done::No
            }
        }
    }

    /// Has `pgpool_status` written. Texts that come while it is written are written after, the newest only.
    pub fn write_status(self: &Rc<Files>, c: &Rc<Control>, text: String) {
        self.status.replace(Some(text));
        if self.is_writing.replace(true) {
            return;
        }
        let (own, c) = (self.clone(), c.clone());
        spawn_local(async move {
            while let Some(text) = own.status.take() {
                let path = own.folder.join(STATUS);
                let shown = path.display().to_string();
                let written = spawn_blocking(move || replace(&path, &text)).await;
                if let Ok(Err(cause)) = written {
                    c.shared.log.say(Level::Warning, format_args!("{shown} cannot be written: {cause}"));
                }
            }
            own.is_writing.set(false);
        });
    }
}

/// Reads a file that nobody else can have written: the folder may be everybody's.
fn read_own(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others may have written it"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file so that after a crash it is the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    // One that somebody else put there is not followed.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_nothing_beside() {
        let folder = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("weir_failover.5432");
        for text in ["one\n", "another, which is longer\n", "x"] {
            replace(&path, text).unwrap();
            assert_eq!(read_own(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read_own(&path).is_err(), "anybody may have written it");
        fs::remove_dir_all(&folder).unwrap();
    }
}
