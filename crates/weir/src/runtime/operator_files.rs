//! The files of an operator: paths and reading. `weir_config` interprets them.

use crate::auth::access::AccessFiles;
use crate::runtime::tls_files::{self, TlsFileError, TlsFiles};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_config::environment::{self, EnvironmentSetting};
use weir_config::hba::{FileLoader, HbaRuleSet, IpNetwork, LoadError};
use weir_config::passwd::{PasswdKey, PoolPasswdFile};
use weir_config::{
    self as config, Config, ConfigProblem, ConfigReadResult, PcpUsers, ProblemSeverity, SettingSource, SubstituteDefault,
};

const HBA_FILE: &str = "pool_hba.conf";

const PCP_FILE: &str = "pcp.conf";

/// The key file in the home directory. Source: Pgpool-II, `POOLKEYFILE`.
const KEY_FILE: &str = ".pgpoolkey";

/// A commented file with all parameters has a hundredth.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, Default)]
pub struct OperatorFiles {
    pub config: Option<PathBuf>,
    /// `name = value` pairs that override the file.
    pub settings: Vec<(String, String)>,
    /// Variables such as `WEIR_PORT` override the file, and are overridden by `settings`.
    pub environment: EnvironmentUse,
    /// `pool_hba.conf`, if not beside the configuration.
    pub hba: Option<PathBuf>,
    /// `pcp.conf`, if not beside the configuration.
    pub pcp: Option<PathBuf>,
    /// Key of encrypted passwords, if neither in the environment nor in the home directory.
    pub key: Option<PathBuf>,
    pub takes_over: bool,
    pub called: ProgramName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramName {
    #[default]
    Weir,
    /// Where both differ, defaults are Pgpool-II's.
    Pgpool,
}

/// A variable that happens to have the name of a parameter changes nothing unless it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvironmentUse {
    #[default]
    Ignored,
    Parameters,
}

/// Findings of a check of the files.
#[derive(Debug, Default)]
pub struct FileFindings {
    /// In the order in which they were found.
    pub problems: Vec<ConfigProblem>,
    /// Remarks that are no problems.
    pub notes: Vec<String>,
}

impl FileFindings {
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error).count()
    }

    pub fn warn(&mut self, text: String) {
        self.add(ProblemSeverity::Warning, text);
    }

    /// A problem that no line of a file has.
    pub fn add(&mut self, severity: ProblemSeverity, message: String) {
        self.problems.push(ConfigProblem { severity, path: None, line: None, message });
    }
}

impl OperatorFiles {
    pub fn read(&self) -> ConfigReadResult {
        let mut load = |path: &Path| read_bounded(path).map_err(|cause| cause.to_string());
        let path = self.config.clone().unwrap_or_default();
        let mut stands = of_debian(&path, Path::is_dir);
        stands.extend(in_place_of_tmp(|name| std::env::var(name).ok()));
        if self.called == ProgramName::Pgpool {
            stands.push(SubstituteDefault {
                name: "pool_passwd_proof",
                value: "as_servers".into(),
                source: SettingSource::CalledPgpool,
            });
        }
        let variables = self.variables(&mut load);
        if self.config.is_none() {
            let mut empty = |_: &Path| Ok(Vec::new());
            return config::read_with_defaults(&path, &stands, &variables, &self.settings, &mut empty);
        }
        config::read_with_defaults(&path, &stands, &variables, &self.settings, &mut load)
    }

    /// Files of secrets are read again at each reload.
    fn variables(&self, load: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>) -> Vec<EnvironmentSetting> {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        match self.environment {
            EnvironmentUse::Ignored => Vec::new(),
            EnvironmentUse::Parameters => environment::settings(std::env::vars_os().filter_map(text), load),
        }
    }

    /// Reads the files of access. `None`: unusable, see the problems.
    ///
    /// At a reload `before` are those in force. A file of them that cannot be read now is an error: as empty it would lock out
    /// all its users.
    pub fn read_access(&self, config: &Config, before: Option<&AccessFiles>) -> (Option<AccessFiles>, Vec<ConfigProblem>) {
        let mut problems = Vec::new();
        let key = self.read_key(before.is_some_and(|before| before.key.is_some()), &mut problems);
        let had_passwords = before.is_some_and(|before| !before.passwords.is_empty());
        let passwords = self.read_passwords(config, key.as_ref(), had_passwords, &mut problems);
        if problems.iter().any(|problem| problem.severity == ProblemSeverity::Error) {
            return (None, problems);
        }
        let mut hba = None;
        if config.auth.use_hba {
            let had_maps = before.and_then(|before| before.hba.as_ref()).is_some_and(|hba| hba.has_maps());
            let (read, found) = self.read_hba(config, had_maps);
            problems.extend(found);
            problems.extend(read.iter().flat_map(|read| read.without_encryption(&config.tls)));
            match read {
                Some(read) => hba = Some(Arc::new(read)),
                None => return (None, problems),
            }
        }
        let auth = &config.auth;
        let keeps_proofs = auth.use_hba || auth.allow_clear_text;
        (Some(AccessFiles { passwords, hba, key, networks: networks(), keeps_proofs }), problems)
    }

    /// May run the operator's command for a pass phrase.
    pub fn read_tls(&self, config: &Config) -> Result<TlsFiles, TlsFileError> {
        tls_files::read(config, &self.beside(Path::new("")))
    }

    /// Reads the PCP users. `None`: no such file, a problem only if it was named. An unreadable file has no users.
    pub fn read_pcp(&self) -> (Option<PcpUsers>, Vec<ConfigProblem>) {
        let path = match (&self.pcp, &self.config) {
            (Some(path), _) => path.clone(),
            (None, Some(_)) => self.beside(Path::new(PCP_FILE)),
            (None, None) => return (None, Vec::new()),
        };
        let bytes = match read_bounded(&path) {
            Ok(bytes) => zeroize::Zeroizing::new(bytes),
            Err(cause) if cause.kind() == ErrorKind::NotFound && self.pcp.is_none() => return (None, Vec::new()),
            Err(cause) => {
                let users = (cause.kind() != ErrorKind::NotFound).then(PcpUsers::default);
                return (users, vec![warning(&path, None, format!("cannot be read, so that nobody gets in by PCP: {cause}"))]);
            }
        };
        let (users, bad) = PcpUsers::read(&bytes);
        let mut problems: Vec<ConfigProblem> =
            bad.iter().map(|bad| warning(&path, Some(bad.line), format!("{}; the line is not used", bad.why))).collect();
        if !users.is_empty() {
            problems.extend(exposed(&path));
        }
        (Some(users), problems)
    }

    pub fn beside(&self, name: &Path) -> PathBuf {
        self.config.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).join(name)
    }

    pub fn passwd_path(&self, config: &Config) -> Option<PathBuf> {
        config.auth.passwd_file.as_deref().map(|file| self.beside(file))
    }

    pub fn key_path(&self) -> Option<PathBuf> {
        let named = self.named_key();
        named.or_else(|| std::env::home_dir().map(|home| home.join(KEY_FILE)))
    }

    fn named_key(&self) -> Option<PathBuf> {
        self.key.clone().or_else(|| std::env::var_os("PGPOOLKEYFILE").map(PathBuf::from))
    }

    /// A file that never existed is no error.
    fn read_passwords(
        &self,
        config: &Config,
        key: Option<&PasswdKey>,
        was_there: bool,
        problems: &mut Vec<ConfigProblem>,
    ) -> PoolPasswdFile {
        let Some(path) = self.passwd_path(config) else { return PoolPasswdFile::default() };
        let text = match std::fs::read(&path) {
            Ok(text) => zeroize::Zeroizing::new(text),
            Err(cause) if cause.kind() == ErrorKind::NotFound && !was_there => {
                if !config.is_default("pool_passwd") {
                    let what = format!("{}: {cause}; no user has a password there", path.display());
                    problems.push(ConfigProblem::of_parameter(config, ProblemSeverity::Warning, "pool_passwd", &what));
                }
                return PoolPasswdFile::default();
            }
            Err(cause) => {
                let what = format!("{} cannot be read: {cause}; a start with pool_passwd = '' goes without", path.display());
                problems.push(ConfigProblem::of_parameter(config, ProblemSeverity::Error, "pool_passwd", &what));
                return PoolPasswdFile::default();
            }
        };
        problems.extend(exposed(&path));
        let (passwords, bad) = PoolPasswdFile::read(&text, key);
        for bad in bad {
            problems.push(warning(&path, u32::try_from(bad.line).ok(), bad.cause.to_string()));
        }
        passwords
    }

    fn read_key(&self, was_there: bool, problems: &mut Vec<ConfigProblem>) -> Option<PasswdKey> {
        let is_wanted = was_there || self.named_key().is_some();
        let path = self.key_path()?;
        let mut tell = |text: String| problems.push(if was_there { error(&path, text) } else { warning(&path, None, text) });
        let text = match std::fs::read(&path) {
            Ok(text) => zeroize::Zeroizing::new(text),
            Err(cause) if cause.kind() == ErrorKind::NotFound && !is_wanted => return None,
            Err(cause) => {
                tell(format!("key file cannot be read: {cause}"));
                return None;
            }
        };
        if std::fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
            let text = "key file has group or world access and is not used; permissions should be u=rw (0600) or less";
            tell(text.into());
            return None;
        }
        let key = PasswdKey::new(&text);
        if key.is_none() {
            tell("key file does not begin with a line of 1 to 255 bytes".into());
        }
        key
    }

    fn read_hba(&self, config: &Config, had_maps: bool) -> (Option<HbaRuleSet>, Vec<ConfigProblem>) {
        let path = self.hba.clone().unwrap_or_else(|| self.beside(Path::new(HBA_FILE)));
        if let Err(cause) = std::fs::File::open(&path) {
            let what = format!("the rules, {}, cannot be read: {cause}", path.display());
            return (None, vec![ConfigProblem::of_parameter(config, ProblemSeverity::Error, "enable_pool_hba", &what)]);
        }
        // A map file that never existed is no error; rules that name its maps are warned about.
        let ident = config.auth.ident_file.as_deref().map(|file| self.beside(file)).filter(|path| had_maps || path.exists());
        let mut file = |path: &Path| std::fs::read(path).map_err(|cause| load_error(&cause));
        let mut folder = |path: &Path| list(path).map_err(|cause| load_error(&cause));
        HbaRuleSet::read_under(
            config.auth.demands,
            &path,
            ident.as_deref(),
            &mut FileLoader { file: &mut file, folder: &mut folder },
        )
    }
}

/// Folders that systemd makes for this service, in place of `/tmp`. Source: systemd.exec(5).
const OF_UNIT: [(&str, &[&str]); 2] =
    [("STATE_DIRECTORY", &["work_dir"]), ("RUNTIME_DIRECTORY", &["unix_socket_directories", "pcp_socket_dir"])];

/// Of Debian's package `pgpool2`.
const DEBIAN_FOLDER: &str = "/etc/pgpool2";

/// Defaults built into Debian's program, and the folder each needs. Source: `debian/patches/pgpool2-debian-config.patch`, the
/// same in Debian 12 (4.3) and 13 (4.6).
const OF_DEBIAN: [(&str, &str, &str); 4] = [
    ("unix_socket_directories", "/var/run/postgresql", "/var/run/postgresql"),
    ("pcp_socket_dir", "/var/run/postgresql", "/var/run/postgresql"),
    ("pid_file_name", "/var/run/postgresql/pgpool.pid", "/var/run/postgresql"),
    ("work_dir", "/var/log/postgresql", "/var/log/postgresql"),
];

/// Replaces defaults if the file is Debian's: clients and scripts look there.
fn of_debian(file: &Path, is_folder: impl Fn(&Path) -> bool) -> Vec<SubstituteDefault> {
    if file.parent() != Some(Path::new(DEBIAN_FOLDER)) {
        return Vec::new();
    }
    let is_there = |folder: &str| is_folder(Path::new(folder));
    let there = OF_DEBIAN.iter().filter(|(_, _, folder)| is_there(folder));
    there
        .map(|(name, value, _)| SubstituteDefault { name, value: (*value).to_owned(), source: SettingSource::DebianPackage })
        .collect()
}

/// Replaces defaults under systemd. Of several folders the first counts.
fn in_place_of_tmp(variable: impl Fn(&str) -> Option<String>) -> Vec<SubstituteDefault> {
    let mut values = Vec::new();
    for (name, parameters) in OF_UNIT {
        let folders = variable(name).unwrap_or_default();
        let folder = folders.split(':').next().filter(|folder| folder.starts_with('/') && !folder.contains(','));
        let stand =
            |name: &&'static str, folder: &str| SubstituteDefault { name, value: folder.to_owned(), source: SettingSource::Unit };
        values.extend(folder.into_iter().flat_map(|folder| parameters.iter().map(move |name| stand(name, folder))));
    }
    values
}

fn warning(path: &Path, line: Option<u32>, message: String) -> ConfigProblem {
    ConfigProblem { severity: ProblemSeverity::Warning, path: Some(path.to_path_buf()), line, message }
}

fn error(path: &Path, message: String) -> ConfigProblem {
    ConfigProblem { severity: ProblemSeverity::Error, path: Some(path.to_path_buf()), line: None, message }
}

fn exposed(path: &Path) -> Option<ConfigProblem> {
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777);
    let verb = match mode & 0o006 {
        0 => return None,
        0o004 => "read",
        _ => "write",
    };
    let text = format!("every user of this machine can {verb} it (mode {mode:04o}), it has passwords: chmod 0600");
    Some(warning(path, None, text))
}

/// Reads a configuration file. Fails for endless ones, such as devices.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn load_error(cause: &std::io::Error) -> LoadError {
    match cause.kind() {
        ErrorKind::NotFound => LoadError::NotFound,
        _ => LoadError::Other(cause.to_string()),
    }
}

fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Networks of this machine when the files were read, for `samehost` and `samenet`.
fn networks() -> Vec<IpNetwork> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let network = |interface: &if_addrs::Interface| match &interface.addr {
        if_addrs::IfAddr::V4(v4) => IpNetwork::new(v4.ip.into(), v4.netmask.into()),
        if_addrs::IfAddr::V6(v6) => IpNetwork::new(v6.ip.into(), v6.netmask.into()),
    };
    interfaces.iter().filter_map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_pcp_that_cannot_be_read_are_none_until_they_can() {
        let read = |pcp: PathBuf| OperatorFiles { pcp: Some(pcp), ..OperatorFiles::default() }.read_pcp();
        let (users, problems) = read(std::env::temp_dir());
        assert!(users.is_some_and(|users| users.is_empty()) && problems.len() == 1, "a folder stands for a file without rights");
        let (users, problems) = read("/nowhere/pcp.conf".into());
        assert!(users.is_none() && problems.len() == 1);
    }

    #[test]
    fn a_file_of_debians_package_is_read_with_the_defaults_of_its_program() {
        let read = |path: &str, more: &[SubstituteDefault], text: &str| {
            let stands: Vec<SubstituteDefault> =
                of_debian(Path::new(path), |_| true).into_iter().chain(more.iter().cloned()).collect();
            let mut file = |_: &Path| Ok(text.as_bytes().to_vec());
            config::read_with_defaults(Path::new(path), &stands, &[], &[], &mut file).draft
        };
        let config = read("/etc/pgpool2/pgpool.conf", &[], "");
        assert_eq!(config.unix_socket_directories, [Path::new("/var/run/postgresql")]);
        assert_eq!(
            (config.pid_file.as_path(), config.work_dir.as_path()),
            (Path::new("/var/run/postgresql/pgpool.pid"), Path::new("/var/log/postgresql"))
        );
        assert!(config.is_default("pid_file_name"), "nobody has chosen it");
        assert_eq!(read("/etc/pgpool2/pgpool.conf", &[], "socket_dir = '/srv'").unix_socket_directories, [Path::new("/srv")]);
        let unit = in_place_of_tmp(|_| Some("/run/weir".to_owned()));
        assert_eq!(read("/etc/pgpool2/pgpool.conf", &unit, "").unix_socket_directories, [Path::new("/run/weir")]);
        assert_eq!(read("/etc/weir/pgpool.conf", &[], "").unix_socket_directories, [Path::new("/tmp")]);
        let without_logs = of_debian(Path::new("/etc/pgpool2/pgpool.conf"), |folder| folder != Path::new("/var/log/postgresql"));
        assert!(without_logs.len() == 3 && without_logs.iter().all(|stand| stand.name != "work_dir"));
    }

    #[test]
    fn under_systemd_folders_of_the_unit_stand_for_tmp() {
        let values = |state: &str, runtime: &str| {
            in_place_of_tmp(|name| Some(if name == "STATE_DIRECTORY" { state } else { runtime }.to_owned()))
        };
        assert!(values("", "").is_empty() && in_place_of_tmp(|_| None).is_empty());
        let both = values("/var/lib/weir:/var/lib/other", "/run/weir");
        let expected = [("work_dir", "/var/lib/weir"), ("unix_socket_directories", "/run/weir"), ("pcp_socket_dir", "/run/weir")];
        assert_eq!(
            both,
            expected.map(|(name, value)| SubstituteDefault { name, value: value.to_owned(), source: SettingSource::Unit })
        );
        let mut file = |_: &Path| Ok(b"backend_hostname0 = 'a'\nunix_socket_directories = '/srv'\n".to_vec());
        let config = config::read_with_defaults(Path::new("x"), &both, &[], &[], &mut file).draft;
        assert_eq!(config.work_dir, Path::new("/var/lib/weir"));
        assert_eq!(config.unix_socket_directories, [Path::new("/srv")], "the file goes before");
        assert!(config.is_of_unit("work_dir") && !config.is_of_unit("unix_socket_directories") && !config.is_default("work_dir"));
    }
}
