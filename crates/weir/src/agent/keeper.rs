//! `weir agent`: does beside a PostgreSQL server what SQL cannot, on orders of a Weir that knows the secret.
//!
//! One data directory, a fixed list of deeds, no shell. Network input never reaches a command line or an environment variable: it selects
//! fixed words, or is written to a file.

mod deeds;
mod look;
mod order_connections;
mod order_desk;
mod processes;
mod program;
mod site;
pub mod source;
mod synced_files;

use crate::agent::keeper::order_connections::{AgentTls, CertificateDemand, OrderListener};
use crate::agent::keeper::order_desk::OrderExecutor;
use crate::log::{Level, ProxyLog};
use crate::runtime::tls_files;
use anyhow::{Context, bail, ensure};
use clap::Args;
use site::{ServerInstallation, SiteOptions};
use std::fs::{File, TryLockError};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use weir_agent::{AgentSecret, FILE_BYTES_MAX};
use weir_config::Config;
use weir_config::hba::IpNetwork;
use zeroize::Zeroizing;

/// Options of the agent. All that it may do is in them.
#[derive(Args)]
pub struct AgentOptions {
    /// Data directory of the server.
    #[arg(short = 'D', long = "data", value_name = "DIRECTORY")]
    data: PathBuf,
    /// Folder of PostgreSQL's programs; by default where Debian and the PostgreSQL project's packages have those of the data's version.
    #[arg(long, value_name = "DIRECTORY")]
    bin_dir: Option<PathBuf>,
    /// Address and port to listen on.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// File with the secret that Weir knows too; only its owner may read it.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Addresses that may connect; by default all. May be given several times.
    #[arg(long, value_name = "ADDRESS[/BITS]", value_parser = network)]
    allow: Vec<IpNetwork>,
    /// Certificate for TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities: those who connect must show a certificate of one of them.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// The agent's own folder, on the file system of the data; by default beside it, with ".weir" behind its name.
    #[arg(long, value_name = "DIRECTORY")]
    work_dir: Option<PathBuf>,
    /// postgresql.conf, if it is not in the data directory; found by itself for Debian's clusters.
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// File for what the server says before it has a log of its own; by default server.log in the agent's folder.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Program with arguments that starts the server, in place of pg_ctl. No shell: blanks separate.
    #[arg(long, value_name = "COMMAND", conflicts_with = "log_file")]
    start_command: Option<String>,
    /// File of passwords for pg_rewind, pg_basebackup and the standby; by default the user's ~/.pgpass.
    #[arg(long, value_name = "FILE")]
    passfile: Option<PathBuf>,
}

fn network(text: &str) -> Result<IpNetwork, String> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_| format!("\"{address}\" is no address"))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = if prefix.is_empty() { Ok(width) } else { prefix.parse().map_err(|_| format!("\"{prefix}\" is no number")) };
    IpNetwork::with_prefix(address, bits?).ok_or_else(|| format!("an address has at most {width} bits"))
}

/// Runs until a signal, which interrupts orders; the next agent cleans up.
pub fn run(options: &AgentOptions) -> anyhow::Result<ExitCode> {
    ensure!(!rustix::process::geteuid().is_root(), "the agent must not run as root: run it as the user of the server");
    let secret = read_secret(&options.secret_file, None)?;
    let site = ServerInstallation::new(&SiteOptions {
        data: &options.data,
        work: options.work_dir.as_deref(),
        bin: options.bin_dir.as_deref(),
        config_file: options.config_file.as_deref(),
        log: options.log_file.as_deref(),
        start_command: options.start_command.as_deref(),
        passfile: options.passfile.as_deref(),
    })?;
    check_owner(&site)?;
    let tls = tls(options)?;
    synced_files::make_folder(&site.work)
        .with_context(|| format!("cannot make {} (--work-dir names another place)", site.work.display()))?;
    let _lock = lock(&site)?;
    hold(&site)?;
    deeds::clean_up(&site).with_context(|| format!("cannot put {} in order", site.work.display()))?;
    // Only now may the data directory be in place.
    hold(&site)?;
    let config = Config::default();
    let log = Arc::new(ProxyLog::new(&config.log).context("cannot open the log")?);
    log.say(Level::Log, format_args!("agent of {} listens on {}", site.data.display(), options.listen));
    let door = OrderListener { desk: OrderExecutor::new(site, log.clone()), secret, tls, allowed: options.allow.clone(), log };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot create the event loop")?;
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind(options.listen.as_str()).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
        door.serve(listener).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// PostgreSQL's programs demand the data's owner.
fn check_owner(site: &ServerInstallation) -> anyhow::Result<()> {
    let Ok(found) = std::fs::metadata(&site.data) else { return Ok(()) };
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    ensure!(owner == own, "{} belongs to user {owner}, the agent runs as user {own}", site.data.display());
    Ok(())
}

/// One agent per data directory, whatever the work folders.
fn hold(site: &ServerInstallation) -> anyhow::Result<()> {
    let shown = site.data.display();
    let is_ours = site.hold().with_context(|| format!("cannot lock {shown}"))?;
    ensure!(is_ours, "another agent runs for {shown}, with another --work-dir");
    Ok(())
}

fn lock(site: &ServerInstallation) -> anyhow::Result<File> {
    let path = site.work.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another agent runs for {}", site.data.display()),
        Err(TryLockError::Error(cause)) => Err(cause).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Reads a file private to its owner. `place`: one agent; `None`: all.
pub fn read_secret(path: &Path, place: Option<&str>) -> anyhow::Result<AgentSecret> {
    let shown = || format!("the file of the agent's secret, {}", path.display());
    let file = File::open(path).with_context(shown)?;
    let mode = file.metadata().with_context(shown)?.mode();
    ensure!(mode & 0o077 == 0, "{} has group or world access: it must have permissions u=rw (0600) or less", shown());
    let mut text = Zeroizing::new(String::new());
    let bytes = file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).with_context(shown)?;
    ensure!(bytes <= FILE_BYTES_MAX, "{} has more than {FILE_BYTES_MAX} bytes", shown());
    AgentSecret::read(&text, place).with_context(shown)
}

fn tls(options: &AgentOptions) -> anyhow::Result<Option<AgentTls>> {
    if options.tls_cert.is_none() {
        return Ok(None);
    }
    let mut config = Config::default();
    config.tls.enabled = true;
    config.tls.cert = options.tls_cert.clone();
    config.tls.key = options.tls_key.clone();
    config.tls.ca_cert = options.tls_ca.clone();
    config.nodes.clear();
    let side = tls_files::read(&config, Path::new("."))?.server.context("no certificate")?;
    let certificates = if options.tls_ca.is_some() { CertificateDemand::Demanded } else { CertificateDemand::NotAsked };
    Ok(Some(AgentTls { acceptor: TlsAcceptor::from(side.config), certificates }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_nonsense_is_not() {
        let contains = |text: &str, address: &str| network(text).unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.1.2.3") && !contains("10.0.0.0/8", "11.1.2.3"));
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("fe80::/10", "fe80::1") && !contains("fe80::/10", "10.0.0.1"));
        for wrong in ["", "a", "10.0.0.1/33", "10.0.0.1/x", "/8"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
