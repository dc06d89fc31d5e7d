//! Files of failover in `work_dir`.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use std::{fs, io};
use tokio::sync::Mutex;
use tokio::task::{spawn_blocking, spawn_local};
use weir_config::Config;
use weir_failover::{Done, DurableState, FailoverMode, FailoverRules, NodeId, status_file};
use weir_io::own_files;

const STATUS: &str = "pgpool_status";

const TEST: &str = "backend_down_request";

const TMP: &str = "/tmp";

const RETRY_PERIOD: Duration = Duration::from_secs(1);

const ADVICE: &str = "remove it, or have work_dir name a folder of Weir's own";

/// The folder used before systemd gave Weir its own, if it did.
fn old_folder(config: &Config) -> Option<PathBuf> {
    config.is_of_unit("work_dir").then(|| PathBuf::from(TMP))
}

/// Removes `pgpool_status` from all folders, and returns the removed files.
pub fn discard_status(config: &Config) -> Vec<PathBuf> {
    let folders = [Some(config.work_dir.clone()), old_folder(config)];
    let paths = folders.into_iter().flatten().map(|folder| folder.join(STATUS));
    paths.filter(|path| fs::remove_file(path).is_ok()).collect()
}

/// Returns why files of other users block Weir's own, if any do.
pub fn obstacle(config: &Config) -> Option<String> {
    let files = FailoverFiles::new(config);
    let paths = [files.state, files.folder.join(STATUS)];
    let mut refused = paths.iter().filter_map(|path| Some((path, own_files::read(path).err()?)));
    let (path, cause) = refused.find(|(_, cause)| cause.kind() == io::ErrorKind::PermissionDenied)?;
    Some(format!("{}: {cause}", path.display()))
}

pub struct FailoverFiles {
    folder: PathBuf,
    old: Option<PathBuf>,
    state: PathBuf,
    status: RefCell<Option<String>>,
    is_writing: Cell<bool>,
    is_refused: Cell<bool>,
    /// Copies are written in their order.
    copying: Mutex<()>,
    is_copy_refused: Cell<bool>,
}

impl FailoverFiles {
    /// The port is in the name: several proxies of a machine may share the folder.
    pub fn new(config: &Config) -> FailoverFiles {
        let folder = config.work_dir.clone();
        let state = folder.join(format!("weir_failover.{}", config.port));
        FailoverFiles {
            folder,
            old: old_folder(config),
            state,
            status: RefCell::default(),
            is_writing: Cell::default(),
            is_refused: Cell::default(),
            copying: Mutex::default(),
            is_copy_refused: Cell::default(),
        }
    }

    /// True if the state is stored: in other modes others decide, and are asked again.
    pub fn keeps_state(&self, rules: &FailoverRules) -> bool {
        matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command)
    }

    /// Blocks briefly.
    pub fn read(&self, c: &ControlContext, rules: &FailoverRules) -> (Option<DurableState>, BTreeSet<NodeId>) {
        self.bring_over(c);
        let mut stored = self.keeps_state(rules).then(|| self.read_state(c)).flatten();
        let path = self.folder.join(STATUS);
        let status = own_files::read(&path);
        if let Err(cause) = &status
            && cause.kind() != io::ErrorKind::NotFound
        {
            c.shared.log.say(Level::Warning, format_args!("{} is not read: {cause}; {ADVICE}", path.display()));
        }
        if let (Some(stored), Err(cause)) = (&mut stored, &status)
            && cause.kind() == io::ErrorKind::NotFound
        {
            // Discarded (-D), and with it what kept nodes out of use.
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

    /// For tests only. Blocks briefly.
    pub fn read_test(&self) -> BTreeSet<NodeId> {
        own_files::read(&self.folder.join(TEST)).map(|text| status_file::parse_test(&text)).unwrap_or_default()
    }

    /// Moves own files from the old folder unless the new one has them.
    fn bring_over(&self, c: &ControlContext) {
        let Some(old) = &self.old else { return };
        for path in [self.state.clone(), self.folder.join(STATUS)] {
            let Some(before) = path.file_name().map(|name| old.join(name)) else { continue };
            let Ok(text) = own_files::read(&before) else { continue };
            if fs::symlink_metadata(&path).is_ok() || own_files::replace(&path, &text).is_err() {
                continue;
            }
            let _ = fs::remove_file(&before);
            c.shared.log.say(Level::Log, format_args!("{} is {} now", before.display(), path.display()));
        }
    }

    fn read_state(&self, c: &ControlContext) -> Option<DurableState> {
        let text = match own_files::read(&self.state) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return None,
            Err(cause) => {
                c.shared.log.say(Level::Error, format_args!("{} is not read: {cause}; {ADVICE}", self.state.display()));
                return None;
            }
        };
        let read = DurableState::parse(&text);
        if read.is_none() {
            let path = self.state.display();
            c.shared.log.say(Level::Error, format_args!("{path} is broken; what it held is found again from the servers"));
        }
        read
    }

    /// Cancel safe: the write may happen.
    pub async fn store(&self, c: &ControlContext, text: String) -> Done {
        let path = self.state.clone();
        let written =
            spawn_blocking(move || own_files::replace(&path, &text)).await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        match written {
            Ok(()) => {
                if self.is_refused.replace(false) {
                    c.shared.log.say(Level::Log, format_args!("{} is written again", self.state.display()));
                }
                Done::Yes
            }
            Err(cause) => {
                if !self.is_refused.replace(true) {
                    let (path, folder) = (self.state.display(), self.folder.display());
                    let text = format_args!(
                        "{path} cannot be written, so that no failover is decided until it can: {cause}; work_dir ({folder}) must be a folder \
                         that Weir may write to"
                    );
                    c.shared.log.say(Level::Error, text);
                }
                Done::No
            }
        }
    }

    /// Writes a copy of what a group stored, which decides nothing. Cancel safe: the write may happen.
    pub async fn copy(&self, c: &ControlContext, text: String) {
        let _one = self.copying.lock().await;
        let path = self.state.clone();
        let written =
            spawn_blocking(move || own_files::replace(&path, &text)).await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        let is_new = self.is_copy_refused.replace(written.is_err()) != written.is_err();
        if let Err(cause) = written
            && is_new
        {
            let text = "a start without the group would not know what it decided";
            c.shared.log.say(Level::Warning, format_args!("{} cannot be written: {cause}; {text}", self.state.display()));
        }
    }

    /// Of texts that arrive during a write only the newest is written.
    pub fn write_status(self: &Rc<FailoverFiles>, c: &Rc<ControlContext>, text: String) {
        self.status.replace(Some(text));
        if self.is_writing.replace(true) {
            return;
        }
        let (own, c) = (self.clone(), c.clone());
        spawn_local(async move {
            let path = own.folder.join(STATUS);
            let mut is_behind = false;
            while let Some(text) = own.status.take() {
                let (place, copy) = (path.clone(), text.clone());
                match spawn_blocking(move || own_files::replace(&place, &copy)).await {
                    Ok(Ok(())) if is_behind => {
                        is_behind = false;
                        c.shared.log.say(Level::Log, format_args!("{} is written again", path.display()));
                    }
                    Ok(Err(cause)) => {
                        if !std::mem::replace(&mut is_behind, true) {
                            let text = "a restart would forget which nodes are out of use; it is tried again until it succeeds";
                            c.shared.log.say(Level::Error, format_args!("{} cannot be written: {cause}; {text}", path.display()));
                        }
                        // Keeps a newer text that came meanwhile.
                        own.status.borrow_mut().get_or_insert(text);
                        tokio::time::sleep(RETRY_PERIOD).await;
                    }
                    Ok(Ok(())) | Err(_) => {}
                }
            }
            own.is_writing.set(false);
        });
    }
}
