//! The fixed facts of an agent: its data directory, the programs it may run, and how its server is started. All of the operator's command line.

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_demo::Programs;

/// Folders and files of the agent beside the data directory; all are on its file system.
const WORK: &str = ".weir";

/// See the module.
pub struct ServerInstallation {
    /// The data directory, without links in its path.
    pub data: PathBuf,
    /// The agent's own folder.
    pub work: PathBuf,
    pub bin: PathBuf,
    pub major: u16,
    pub starter: StartMethod,
    /// The configuration file, if it does not lie in the data directory.
    pub config_file: Option<PathBuf>,
    /// `PGPASSFILE` of the programs, if it is not the user's own.
    pub passfile: Option<PathBuf>,
    /// Keeps other agents off the data directory, whichever folder of their own they have.
    held: Mutex<Option<File>>,
}

/// How the server is started.
pub enum StartMethod {
    /// By `pg_ctl`. The server's words go to the log.
    PgCtl { log: PathBuf },
    /// By a program with arguments.
    Command(Vec<String>),
}

/// The words of the command line that make a site.
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
        // A crash could not be recovered from without it, and a copy be made in vain.
        ensure!(
            of_data.is_none() || site.has_configuration(),
            "there is no postgresql.conf in {}: tell where it is by --config-file",
            site.data.display()
        );
        Ok(site)
    }

    /// Holds the data directory until the agent ends. False: another agent does. One that is not there yet is held once a copy is in its place.
    pub fn hold(&self) -> io::Result<bool> {
        if self.held.lock().is_some() || !self.data.exists() {
            return Ok(true);
        }
        let lock = ServerInstallation::lock(&self.data)?;
        let is_ours = lock.is_some();
        self.keep(lock);
        Ok(is_ours)
    }

    /// A lock on a folder, which goes with it if it is renamed; `None`: another agent has it.
    pub fn lock(folder: &Path) -> io::Result<Option<File>> {
        let file = File::open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(cause),
        }
    }

    /// From now on this is the lock of the data directory.
    pub fn keep(&self, lock: Option<File>) {
        *self.held.lock() = lock;
    }

    /// False if nobody knows where its configuration is. What a rewind has put aside is put back later.
    fn has_configuration(&self) -> bool {
        let is_aside = self.kept().exists() || self.put_back().exists();
        self.config_file.is_some() || is_aside || self.data.join("postgresql.conf").exists()
    }

    /// Where the server's first words go, if the agent starts it itself.
    pub fn log(&self) -> Option<&Path> {
        match &self.starter {
            StartMethod::PgCtl { log } => Some(log),
            StartMethod::Command(_) => None,
        }
    }

    /// One of PostgreSQL's programs, working in the agent's folder, with words that can be read.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        self.prepare(&mut command);
        command
    }

    /// `postgres` at this data directory, with its configuration wherever it lies.
    pub fn server_program(&self, arguments: &[&str]) -> Command {
        let mut command = self.program("postgres");
        command.args(arguments).arg("-D").arg(&self.data);
        if let Some(file) = &self.config_file {
            command.arg("-c").arg(format!("config_file={}", file.display()));
        }
        command
    }

    /// The program that starts the server, which inherits what it is given: the operator's own environment, but for logins of the operator's.
    pub fn starter_program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        clear(&mut command);
        command.current_dir(&self.work);
        if let Some(file) = &self.passfile {
            command.env("PGPASSFILE", file);
        }
        command
    }

    /// The environment and the folder of programs.
    pub fn prepare(&self, command: &mut Command) {
        clear(command);
        command.env("LC_ALL", "C").env("PGSERVICEFILE", self.service()).current_dir(&self.work);
        if let Some(file) = &self.passfile {
            command.env("PGPASSFILE", file);
        }
    }

    /// The service file of sources.
    pub fn service(&self) -> PathBuf {
        self.work.join("service")
    }

    /// A copy in the making.
    pub fn new_data(&self) -> PathBuf {
        self.work.join("new")
    }

    /// The files that a copy has replaced, until they are removed.
    pub fn old_data(&self) -> PathBuf {
        self.work.join("old")
    }

    /// Files of this server, kept while a rewind brings those of its source. As long as it is there, the data is not whole.
    pub fn kept(&self) -> PathBuf {
        self.work.join("kept")
    }

    /// The same, when the rewind has succeeded and they are being put back.
    pub fn put_back(&self) -> PathBuf {
        self.work.join("put_back")
    }

    /// The timeline of the source to which the data was rewound, until the server starts.
    pub fn rewound(&self) -> PathBuf {
        self.work.join("rewound")
    }
}

/// Takes away what leads a program to another server, or has it log in as somebody else, than files say: all that libpq reads. Debian's own names begin
/// with `PG_`, as does what the kernel's memory killer is told.
fn clear(command: &mut Command) {
    let is_libpq = |name: &str| name == "PSQLRC" || (name.starts_with("PG") && !name.starts_with("PG_"));
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_str().is_some_and(is_libpq)) {
        command.env_remove(name);
    }
}

/// The path without links; only its last part may not be there.
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

/// A path whose last part is longer.
fn beside(path: &Path, more: &str) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_os_string();
    name.push(more);
    Some(path.with_file_name(name))
}

/// Debian's clusters: `/var/lib/postgresql/15/main` has its configuration in `/etc/postgresql/15/main`. A part of that path may be a link.
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
