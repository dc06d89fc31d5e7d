//! The fixed facts of an agent, from its command line: data directory, programs, and how its server is started.

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_demo::Programs;

/// Suffix of the agent's folder, on the data's file system.
const WORK: &str = ".weir";

pub struct ServerInstallation {
    /// Without links.
    pub data: PathBuf,
    pub work: PathBuf,
    pub bin: PathBuf,
    pub major: u16,
    pub starter: StartMethod,
    /// Set if outside of the data directory.
    pub config_file: Option<PathBuf>,
    /// `PGPASSFILE` of the programs; `None`: the user's own.
    pub passfile: Option<PathBuf>,
    /// Lock against other agents, whatever their folders.
    held: Mutex<Option<File>>,
}

pub enum StartMethod {
    /// The server's first output goes to `log`.
    PgCtl {
        log: PathBuf,
    },
    Command(Vec<String>),
}

pub struct SiteOptions<'a> {
    pub data: &'a Path,
    pub work: Option<&'a Path>,
    pub bin: Option<&'a Path>,
    pub config_file: Option<&'a Path>,
    pub log: Option<&'a Path>,
    pub start_command: Option<&'a str>,
    pub passfile: Option<&'a Path>,
}

impl ServerInstallation {
    pub fn new(words: &SiteOptions<'_>) -> anyhow::Result<ServerInstallation> {
        let data = resolve(words.data)?;
        let version = std::fs::read_to_string(data.join("PG_VERSION")).ok();
        let of_data: Option<u32> = version.and_then(|text| text.trim().parse().ok());
        let programs = match (words.bin, of_data) {
            (Some(bin), _) => Programs::in_folder(bin)?,
            (None, Some(major)) => Programs::of_major(major).context("give the folder of its programs by --bin-dir")?,
            (None, None) => bail!("{} is empty: give the folder of PostgreSQL's programs by --bin-dir", data.display()),
        };
        let major = programs.major();
        if let Some(of_data) = of_data {
            ensure!(of_data == major, "{} is of PostgreSQL {of_data}, the programs are of {major}", data.display());
        }
        let work = match words.work {
            Some(work) => work.to_path_buf(),
            None => beside(&data, WORK).context("the data directory has no name: give --work-dir")?,
        };
        ensure!(!work.starts_with(&data), "--work-dir must not lie in the data directory");
        let starter = match words.start_command {
            Some(text) => {
                let command: Vec<String> = text.split_whitespace().map(str::to_string).collect();
                ensure!(!command.is_empty(), "--start-command is empty");
                StartMethod::Command(command)
            }
            None => StartMethod::PgCtl { log: words.log.map_or_else(|| work.join("server.log"), Path::to_path_buf) },
        };
        let config_file = words.config_file.map(Path::to_path_buf).or_else(|| debian_config(words.data, &data));
        if let Some(file) = &config_file {
            let text = file.to_str().unwrap_or("'");
            let is_plain = text.starts_with('/') && text.chars().all(|c| c.is_alphanumeric() || "/._+-@ ".contains(c));
            ensure!(
                is_plain,
                "--config-file must be a whole path of letters, digits, blanks and \"/._+-@\": it goes through a shell"
            );
        }
        let bin = programs.bin().to_path_buf();
        let passfile = words.passfile.map(Path::to_path_buf);
        let site = ServerInstallation {
            data,
            work,
            bin,
            major: u16::try_from(major)?,
            starter,
            config_file,
            passfile,
            held: Mutex::default(),
        };
        // Without a configuration crash recovery fails, and a copy is made in vain.
        ensure!(
            of_data.is_none() || site.has_configuration(),
            "there is no postgresql.conf in {}: tell where it is by --config-file",
            site.data.display()
        );
        Ok(site)
    }

    /// Locks the data directory for the agent's life. False: another agent has it. An absent directory is locked after its copy.
    pub fn hold(&self) -> io::Result<bool> {
        if self.held.lock().is_some() || !self.data.exists() {
            return Ok(true);
        }
        let lock = ServerInstallation::lock(&self.data)?;
        let is_ours = lock.is_some();
        self.keep(lock);
        Ok(is_ours)
    }

    /// A lock stays with a renamed folder. `None`: another agent has it.
    pub fn lock(folder: &Path) -> io::Result<Option<File>> {
        let file = File::open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(cause),
        }
    }

    /// Replaces the lock of the data directory.
    pub fn keep(&self, lock: Option<File>) {
        *self.held.lock() = lock;
    }

    /// True also for a configuration that a rewind has put aside.
    fn has_configuration(&self) -> bool {
        let is_aside = self.kept().exists() || self.put_back().exists();
        self.config_file.is_some() || is_aside || self.data.join("postgresql.conf").exists()
    }

    /// `None` if another program starts the server.
    pub fn log(&self) -> Option<&Path> {
        match &self.starter {
            StartMethod::PgCtl { log } => Some(log),
            StartMethod::Command(_) => None,
        }
    }

    /// PostgreSQL's program in the agent's folder, with output in English.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        self.prepare(&mut command);
        command
    }

    pub fn server_program(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("postgres");
        command.args(arguments).arg("-D").arg(&self.data);
        if let Some(file) = &self.config_file {
            command.arg("-c").arg(format!("config_file={}", file.display()));
        }
        command
    }

    /// A starter has the operator's environment without libpq's variables.
    pub fn starter_program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        clear(&mut command);
        command.current_dir(&self.work);
        if let Some(file) = &self.passfile {
            command.env("PGPASSFILE", file);
        }
        command
    }

    pub fn prepare(&self, command: &mut Command) {
        clear(command);
        command.env("LC_ALL", "C").env("PGSERVICEFILE", self.service()).current_dir(&self.work);
        if let Some(file) = &self.passfile {
            command.env("PGPASSFILE", file);
        }
    }

    pub fn service(&self) -> PathBuf {
        self.work.join("service")
    }

    pub fn new_data(&self) -> PathBuf {
        self.work.join("new")
    }

    pub fn old_data(&self) -> PathBuf {
        self.work.join("old")
    }

    /// The server's own files during a rewind; while present, the data is not whole.
    pub fn kept(&self) -> PathBuf {
        self.work.join("kept")
    }

    /// `kept` after a successful rewind, until put back.
    pub fn put_back(&self) -> PathBuf {
        self.work.join("put_back")
    }

    /// The source's timeline after a rewind, until the server starts.
    pub fn rewound(&self) -> PathBuf {
        self.work.join("rewound")
    }
}

/// Removes libpq's variables, which override server and login. Names with `PG_` are Debian's, and those for the kernel's OOM killer.
fn clear(command: &mut Command) {
    let is_libpq = |name: &str| name == "PSQLRC" || (name.starts_with("PG") && !name.starts_with("PG_"));
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_str().is_some_and(is_libpq)) {
        command.env_remove(name);
    }
}

/// Resolves links; only the last part may be missing.
fn resolve(data: &Path) -> anyhow::Result<PathBuf> {
    let shown = || format!("{} cannot be found", data.display());
    match data.canonicalize() {
        Ok(path) => Ok(path),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            let (parent, name) = data.parent().zip(data.file_name()).with_context(shown)?;
            Ok(parent.canonicalize().with_context(shown)?.join(name))
        }
        Err(cause) => Err(cause).with_context(shown),
    }
}

fn beside(path: &Path, more: &str) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_os_string();
    name.push(more);
    Some(path.with_file_name(name))
}

/// Debian's `/var/lib/postgresql/15/main` has `/etc/postgresql/15/main`. Parts of the path may be links.
fn debian_config(given: &Path, data: &Path) -> Option<PathBuf> {
    let cluster = [given, data].into_iter().find_map(|path| path.strip_prefix("/var/lib/postgresql").ok())?;
    let file = Path::new("/etc/postgresql").join(cluster).join("postgresql.conf");
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_agent_lies_beside_the_data() {
        assert_eq!(beside(Path::new("/a/15/main"), WORK), Some(PathBuf::from("/a/15/main.weir")));
        assert_eq!(beside(Path::new("/"), WORK), None);
    }
}
