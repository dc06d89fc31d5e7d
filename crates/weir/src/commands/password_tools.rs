//! `pg_md5` and `pg_enc`. Options and output are Pgpool-II's.

use crate::commands::prompt;
use crate::runtime::operator_files::OperatorFiles;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_config::passwd::{self, PasswdKey};
use weir_wire::md5::Md5Secret;
use weir_wire::pcp_protocol::StoredDigest;
use zeroize::Zeroizing;

/// Longest password. Source: Pgpool-II, `MAX_PGPASS_LEN`.
const PASSWORD_BYTES_MAX: usize = 128;

/// Options of both.
#[derive(Args)]
struct PasswordToolArgs {
    /// Write the user's line of pool_passwd.
    #[arg(short = 'm', long = "md5auth", alias = "update-pass")]
    updates: bool,
    /// User of that line; by default the name of the system's user.
    #[arg(short = 'u', long = "username", value_name = "USER")]
    user: Option<String>,
    /// Configuration that says where pool_passwd is.
    #[arg(short = 'f', long = "config-file", value_name = "FILE", default_value = "/etc/pgpool2/pgpool.conf")]
    config: PathBuf,
    /// File with lines of user:password.
    #[arg(short = 'i', long = "input-file", value_name = "FILE", conflicts_with_all = ["password", "prompt"])]
    input: Option<PathBuf>,
    /// Ask for the password.
    #[arg(short = 'p', long = "prompt", conflicts_with = "password")]
    prompt: bool,
    /// The password; others on this machine can see it there.
    password: Option<String>,
}

/// Prints a password's md5 digest for pcp.conf, or writes it to pool_passwd.
#[derive(Args)]
pub struct PgMd5 {
    #[command(flatten)]
    common: PasswordToolArgs,
}

/// Prints a password encrypted for pool_passwd, or writes it there.
#[derive(Args)]
pub struct PgEnc {
    /// File with the key; by default $PGPOOLKEYFILE, then ~/.pgpoolkey.
    #[arg(short = 'k', long = "key-file", value_name = "FILE", conflicts_with_all = ["key", "prompt_key"])]
    key_file: Option<PathBuf>,
    /// The key; others on this machine can see it there.
    #[arg(short = 'K', long = "enc-key", value_name = "KEY", conflicts_with = "prompt_key")]
    key: Option<String>,
    /// Ask for the key.
    #[arg(short = 'P', long = "prompt-for-key")]
    prompt_key: bool,
    #[command(flatten)]
    common: PasswordToolArgs,
}

struct GivenPassword {
    user: Option<String>,
    password: Zeroizing<String>,
}

pub fn md5(options: &PgMd5) -> anyhow::Result<ExitCode> {
    let common = &options.common;
    for given in common.given("password: ")? {
        let password = given.password.as_bytes();
        if common.updates {
            let user = common.user_of(&given);
            let credential = Md5Secret::from_password(password, user.as_bytes());
            common.write(&user, credential.text())?;
        } else {
            say(&String::from_utf8_lossy(StoredDigest::of_password(password).text()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn enc(options: &PgEnc) -> anyhow::Result<ExitCode> {
    let common = &options.common;
    let key = options.read_key()?;
    for given in common.given("db password: ")? {
        let text = key.encrypt(given.password.as_bytes()).context("the password cannot be encrypted")?;
        if common.updates {
            common.write(&common.user_of(&given), format!("AES{text}").as_bytes())?;
        } else {
            say(&format!("\n{text}\npool_passwd string: AES{text}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot write to the standard output")
}

impl PgEnc {
    fn read_key(&self) -> anyhow::Result<PasswdKey> {
        let text = match &self.key {
            Some(key) => Zeroizing::new(key.clone().into_bytes()),
            None if self.prompt_key => Zeroizing::new(prompt::password("encryption key: ")?.as_bytes().to_vec()),
            None => self.read_key_file()?,
        };
        PasswdKey::new(&text).context("the encryption key does not begin with a line of 1 to 255 bytes")
    }

    fn read_key_file(&self) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        let path = OperatorFiles { key: self.key_file.clone(), ..OperatorFiles::default() }
            .key_path()
            .context("there is no home folder")?;
        let bytes = fs::read(&path).with_context(|| format!("encryption key not provided: cannot read {}", path.display()))?;
        if fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
            let text = "has group or world access; permissions should be u=rw (0600) or less";
            let _ = writeln!(std::io::stderr(), "WARNING: key file \"{}\" {text}", path.display());
        }
        Ok(Zeroizing::new(bytes))
    }
}

impl PasswordToolArgs {
    fn given(&self, question: &str) -> anyhow::Result<Vec<GivenPassword>> {
        let given = match (&self.password, &self.input) {
            (Some(password), _) => vec![GivenPassword { user: None, password: Zeroizing::new(password.clone()) }],
            (None, Some(path)) => read_pairs(path)?,
            (None, None) if self.prompt => vec![GivenPassword { user: None, password: prompt::password(question)? }],
            (None, None) => bail!("no password: give one, or --prompt, or --input-file"),
        };
        for given in &given {
            ensure!(given.password.len() <= PASSWORD_BYTES_MAX, "the password is longer than {PASSWORD_BYTES_MAX} bytes");
        }
        Ok(given)
    }

    fn user_of(&self, given: &GivenPassword) -> String {
        given.user.clone().or_else(|| self.user.clone()).unwrap_or_else(prompt::system_user)
    }

    fn write(&self, user: &str, credential: &[u8]) -> anyhow::Result<()> {
        let files = OperatorFiles { config: Some(self.config.clone()), ..OperatorFiles::default() };
        // Nodes may be missing, but the file must be readable.
        fs::metadata(&self.config).with_context(|| format!("could not open configuration file {}", self.config.display()))?;
        let path = files.passwd_path(&files.read().draft).context("pool_passwd is empty: there is no such file")?;
        let before = match fs::read(&path) {
            Ok(bytes) => Zeroizing::new(bytes),
            Err(cause) if cause.kind() == ErrorKind::NotFound => Zeroizing::default(),
            Err(cause) => return Err(anyhow::Error::new(cause).context(format!("cannot read {}", path.display()))),
        };
        let after = Zeroizing::new(passwd::with_line(&before, user.as_bytes(), credential));
        replace(&path, &after).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Names and skips other lines than `user:password`.
fn read_pairs(path: &Path) -> anyhow::Result<Vec<GivenPassword>> {
    let text = Zeroizing::new(fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?);
    let mut given = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                given.push(GivenPassword { user: Some(user.to_string()), password: Zeroizing::new(password.to_string()) });
            }
            Some(_) | None if line.trim().is_empty() => {}
            Some(_) | None => writeln!(std::io::stderr(), "LINE#{number:02}: invalid username:password pair")?,
        }
    }
    Ok(given)
}

/// Replaces a file in one step. Owner and rights stay.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let before = fs::metadata(path).ok();
    let mode = before.as_ref().map_or(0o600, |before| before.permissions().mode() & 0o777);
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)));
    let owned = written.and_then(|()| match &before {
        Some(before) => chown(&beside, Some(before.uid()), Some(before.gid())),
        None => Ok(()),
    });
    let done = owned.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done
}
