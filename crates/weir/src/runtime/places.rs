//! Checks the places where Weir listens and writes, so that `weir check` finds what a start would fail by.
//!
//! Nothing is opened or made: the running proxy may use the same places.

use crate::runtime::operator_files::OperatorFiles;
use anyhow::Context;
use rustix::fs::{Access, access};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use weir_config::failover_settings::FailoverMode;
use weir_config::{Config, ConfigProblem, ProblemSeverity};

#[derive(Debug, PartialEq, Eq)]
pub struct PlaceProblem {
    pub severity: ProblemSeverity,
    parameter: &'static str,
    text: String,
}

impl PlaceProblem {
    fn error(parameter: &'static str, text: String) -> PlaceProblem {
        PlaceProblem { severity: ProblemSeverity::Error, parameter, text }
    }

    fn warning(parameter: &'static str, text: String) -> PlaceProblem {
        PlaceProblem { severity: ProblemSeverity::Warning, parameter, text }
    }

    pub fn problem(&self, config: &Config) -> ConfigProblem {
        ConfigProblem::of_parameter(config, self.severity, self.parameter, &self.text)
    }
}

#[derive(Clone, Copy)]
pub struct ListenPort<'a> {
    pub names: &'a [String],
    pub parameter: &'static str,
    pub number: u16,
    pub of_number: &'static str,
}

impl<'a> ListenPort<'a> {
    pub fn of_clients(config: &'a Config) -> ListenPort<'a> {
        ListenPort { names: &config.listen_addresses, parameter: "listen_addresses", number: config.port, of_number: "port" }
    }

    pub fn of_metrics(config: &'a Config) -> ListenPort<'a> {
        let admin = &config.admin;
        let (parameter, of_number) = ("metrics_listen_addresses", "metrics_port");
        ListenPort { names: &admin.metrics_addresses, parameter, number: admin.metrics_port, of_number }
    }

    pub fn of_pcp(config: &'a Config) -> ListenPort<'a> {
        let pcp = &config.pcp;
        ListenPort { names: &pcp.addresses, parameter: "pcp_listen_addresses", number: pcp.port, of_number: "pcp_port" }
    }

    pub fn to_blame(&self, cause: &io::Error) -> &'static str {
        match cause.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => self.of_number,
            _ => self.parameter,
        }
    }
}

/// Returns all problems. A start fails by those that are errors.
pub fn findings(files: &OperatorFiles, config: &Config) -> Vec<PlaceProblem> {
    let mut found = Vec::new();
    let admin = &config.admin;
    let has_pcp = files.read_pcp().0.is_some();
    let mut ports = vec![ListenPort::of_clients(config)];
    if admin.metrics_port != 0 {
        ports.push(ListenPort::of_metrics(config));
    }
    let mut folders: Vec<(&Path, &'static str, u16)> = Vec::new();
    folders.extend(config.unix_socket_directories.iter().map(|folder| (&**folder, "unix_socket_directories", config.port)));
    if has_pcp {
        let pcp = &config.pcp;
        ports.push(ListenPort::of_pcp(config));
        folders.extend(pcp.socket_directories.iter().map(|folder| (&**folder, "pcp_socket_dir", pcp.port)));
    }
    look_at_ports(&ports, &mut found);
    look_at_sockets(&folders, &mut found);
    let group = &config.unix_socket_group;
    if !group.is_empty()
        && let Err(cause) = group_id(group)
    {
        found.push(PlaceProblem::error("unix_socket_group", format!("{cause:#}")));
    }
    let takeover = &admin.takeover_socket;
    if !takeover.as_os_str().is_empty() {
        found.extend(why_no_socket(takeover).map(|why| why.of("takeover_socket")));
    }
    let log = &config.log.file;
    if log.is_used {
        found.extend(why_no_file_in(&log.directory).map(|why| why.of("log_directory")));
    }
    if let Some(why) = why_no_file(&config.work_dir) {
        let (FileObstacle { severity, text }, parameter) = (why, "work_dir");
        found.push(match config.failover.mode() {
            FailoverMode::Builtin | FailoverMode::Command => {
                PlaceProblem { severity, parameter, text: format!("{text}; a failover must find its state there again") }
            }
            FailoverMode::Follow | FailoverMode::Off => {
                PlaceProblem::warning(parameter, format!("{text}; nodes out of use are forgotten at a restart"))
            }
        });
    }
    let failover = &config.failover;
    for (parameter, command) in [
        ("failover_command", &failover.command),
        ("failback_command", &failover.failback_command),
        ("follow_primary_command", &failover.follow_primary_command),
    ] {
        found.extend(why_not_run(command).map(|text| PlaceProblem::warning(parameter, text)));
    }
    let secret = config.recovery.agents.secret_file.as_deref().map(|file| files.beside(file));
    if config.nodes.iter().any(|node| node.agent().is_some())
        && let Some(file) = secret
        && let Err(cause) = std::fs::File::open(&file)
    {
        let text = format!("{}: {cause}; no agent can be asked without", file.display());
        found.push(PlaceProblem::warning("agent_secret_file", text));
    }
    found
}

fn look_at_ports(ports: &[ListenPort<'_>], found: &mut Vec<PlaceProblem>) {
    let mut taken: Vec<(SocketAddr, &ListenPort<'_>)> = Vec::new();
    for port in ports {
        let resolved = match resolve(port.names, port.number) {
            Ok(resolved) => resolved,
            Err((name, cause)) => {
                found.push(PlaceProblem::error(port.parameter, format!("cannot resolve \"{name}\": {cause}")));
                continue;
            }
        };
        let ListenAddresses { kept, needless } = resolved;
        for name in needless {
            let text = format!("\"{name}\" is listened on already by another of these addresses");
            found.push(PlaceProblem::warning(port.parameter, text));
        }
        for address in kept {
            if let Some(cause) = why_not_here(address.ip()) {
                let text = format!("{} is no address of this machine: {cause}", address.ip());
                found.push(PlaceProblem::error(port.parameter, text));
            }
            if let Some((_, other)) = taken.iter().find(|(known, _)| meet(*known, address)) {
                let text = format!("{} is that of {}, too, at address {}", port.number, other.of_number, address.ip());
                found.push(PlaceProblem::error(port.of_number, text));
            }
            taken.push((address, port));
        }
    }
}

fn look_at_sockets(folders: &[(&Path, &'static str, u16)], found: &mut Vec<PlaceProblem>) {
    let mut seen: Vec<PathBuf> = Vec::new();
    for (folder, parameter, port) in folders {
        let path = socket_path(folder, *port);
        if seen.contains(&path) {
            found.push(PlaceProblem::warning(parameter, format!("{} is named twice", folder.display())));
            continue;
        }
        found.extend(why_no_socket(&path).map(|why| why.of(parameter)));
        seen.push(path);
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListenAddresses {
    pub kept: Vec<SocketAddr>,
    pub needless: Vec<String>,
}

/// Resolves names, each address once. Fails with the name that does not resolve.
pub fn resolve(names: &[String], port: u16) -> Result<ListenAddresses, (String, io::Error)> {
    let mut all = Vec::new();
    for name in names {
        all.push((name.as_str(), addresses(name, port).map_err(|cause| (name.clone(), cause))?));
    }
    Ok(distinct(&all))
}

/// Leaves out addresses covered by another one: a port can be bound once.
fn distinct(all: &[(&str, Vec<SocketAddr>)]) -> ListenAddresses {
    let mut found = ListenAddresses::default();
    let is_wild = |address: &SocketAddr| address.ip().is_unspecified();
    let wild: Vec<SocketAddr> = all.iter().flat_map(|(_, addresses)| addresses).copied().filter(is_wild).collect();
    for (name, addresses) in all {
        let before = found.kept.len();
        for address in addresses {
            let is_covered = !is_wild(address) && wild.iter().any(|wild| meet(*wild, *address));
            if !is_covered && !found.kept.contains(address) {
                found.kept.push(*address);
            }
        }
        if found.kept.len() == before {
            found.needless.push((*name).to_owned());
        }
    }
    found
}

/// True if both cannot be bound at once.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = |ip: IpAddr| ip.is_unspecified();
    let are_alike = one.ip() == other.ip() || is_any(one.ip()) || is_any(other.ip());
    one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && are_alike
}

fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name == "*" {
        let v6 = SocketAddr::from(([0u16; 8], port));
        // Fails without IPv6.
        let has_v6 = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, Some(socket2::Protocol::TCP)).is_ok();
        let v4 = SocketAddr::from(([0, 0, 0, 0], port));
        return Ok(if has_v6 { vec![v4, v6] } else { vec![v4] });
    }
    if name.starts_with('[') {
        return Err(io::Error::other("an address stands here without brackets"));
    }
    let mut found: Vec<SocketAddr> = (name, port).to_socket_addrs()?.collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns why an address cannot be bound on any port. Binds a free port briefly, without listening.
fn why_not_here(ip: IpAddr) -> Option<io::Error> {
    let socket = socket2::Socket::new(socket2::Domain::for_address((ip, 0).into()), socket2::Type::STREAM, None).ok()?;
    let bound = socket.bind(&SocketAddr::from((ip, 0)).into());
    bound.err().filter(|cause| cause.kind() == io::ErrorKind::AddrNotAvailable)
}

pub fn socket_path(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

pub fn group_id(group: &str) -> anyhow::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(group));
    let number = line.and_then(|line| line.split(':').nth(2)).and_then(|number| number.parse().ok());
    number.with_context(|| format!("there is no group \"{group}\""))
}

#[derive(Debug, PartialEq, Eq)]
pub struct FileObstacle {
    /// `Warning`: may change by the start.
    severity: ProblemSeverity,
    text: String,
}

impl FileObstacle {
    fn error(place: &Path, what: &dyn std::fmt::Display) -> FileObstacle {
        FileObstacle { severity: ProblemSeverity::Error, text: format!("{}: {what}", place.display()) }
    }

    fn of(self, parameter: &'static str) -> PlaceProblem {
        PlaceProblem { severity: self.severity, parameter, text: self.text }
    }
}

fn why_no_socket(path: &Path) -> Option<FileObstacle> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Some(FileObstacle::error(path, &"is a folder, and the socket is to be a file"));
    }
    why_no_file(folder)
}

fn why_no_file_in(folder: &Path) -> Option<FileObstacle> {
    let nearest = folder.ancestors().find(|place| place.exists() || place.as_os_str().is_empty()).unwrap_or(folder);
    why_no_file(if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest })
}

fn why_no_file(folder: &Path) -> Option<FileObstacle> {
    match std::fs::metadata(folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound && of_system(folder) => {
            let text = format!(
                "{} is not there now; the unit makes it at its start (RuntimeDirectory, StateDirectory, LogsDirectory)",
                folder.display()
            );
            Some(FileObstacle { severity: ProblemSeverity::Warning, text })
        }
        Err(cause) => Some(FileObstacle::error(folder, &cause)),
        Ok(about) if !about.is_dir() => Some(FileObstacle::error(folder, &"is not a folder")),
        Ok(_) => access(folder, Access::WRITE_OK | Access::EXEC_OK).err().map(|cause| {
            let user = rustix::process::geteuid().as_raw();
            FileObstacle::error(folder, &format_args!("user {user}, who runs this, cannot write there: {cause}"))
        }),
    }
}

fn why_not_run(command: &str) -> Option<String> {
    let program = command.split_whitespace().next().filter(|word| word.starts_with('/') && word.chars().all(is_plain))?;
    let cause = access(program, Access::EXEC_OK).err()?;
    Some(format!("{program}: {cause}; the command would fail when it is needed"))
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+')
}

/// True for folders that the service manager makes at the start of a service.
fn of_system(folder: &Path) -> bool {
    ["/run", "/var/run", "/var/lib", "/var/log"].iter().any(|parent| folder.parent() == Some(Path::new(parent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_that_another_one_has_with_it_is_listened_on_once() {
        let wild = ("*", at(&["0.0.0.0:5432", "[::]:5432"]));
        let loopback = ("localhost", at(&["127.0.0.1:5432", "[::1]:5432"]));
        let found = distinct(&[loopback.clone(), wild.clone(), wild.clone()]);
        assert_eq!(found.kept, wild.1);
        assert_eq!(found.needless, ["localhost", "*"]);
        let found = distinct(&[loopback.clone(), ("127.0.0.1", at(&["127.0.0.1:5432"])), ("::", at(&["[::]:5432"]))]);
        assert_eq!(found.kept, at(&["127.0.0.1:5432", "[::]:5432"]));
        assert_eq!(found.needless, ["127.0.0.1"]);
    }

    #[test]
    fn a_port_is_for_one_purpose() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (clients, metrics) = (names(&["127.0.0.1"]), names(&["*"]));
        let port =
            |number| ListenPort { names: &metrics, parameter: "metrics_listen_addresses", number, of_number: "metrics_port" };
        let listen = || ListenPort { names: &clients, parameter: "listen_addresses", number: 9999, of_number: "port" };
        let mut found = Vec::new();
        look_at_ports(&[listen(), port(9998)], &mut found);
        assert_eq!(found, []);
        look_at_ports(&[listen(), port(9999)], &mut found);
        assert_eq!(found, [PlaceProblem::error("metrics_port", "9999 is that of port, too, at address 0.0.0.0".into())]);
        let mut found = Vec::new();
        let bracketed = names(&["[::1]"]);
        look_at_ports(&[ListenPort { names: &bracketed, ..listen() }], &mut found);
        let said = "cannot resolve \"[::1]\": an address stands here without brackets";
        assert_eq!(found, [PlaceProblem::error("listen_addresses", said.into())]);
        let (mut found, elsewhere) = (Vec::new(), names(&["127.0.0.1", "192.0.2.1"]));
        look_at_ports(&[ListenPort { names: &elsewhere, ..listen() }], &mut found);
        assert!(found.len() == 1 && found[0].text.starts_with("192.0.2.1 is no address of this machine: "), "{found:?}");
    }

    #[test]
    fn folders_are_looked_at_and_not_made() {
        let folder = std::env::temp_dir().join(format!("weir-places-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("dir")).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
        assert_eq!(why_no_file_in(&folder.join("new/newer")), None);
        assert!(!folder.join("new").exists());
        assert!(why_no_file(&folder.join("new")).unwrap().text.contains("No such file"));
        assert!(why_no_file_in(&folder.join("file/new")).unwrap().text.ends_with("file: is not a folder"));
        assert!(why_no_socket(&folder.join("dir")).unwrap().text.ends_with("is a folder, and the socket is to be a file"));
        assert_eq!(why_no_socket(&folder.join("dir/socket")), None);
        assert_eq!(why_not_run("/bin/sh -c 'exit 0' %d"), None);
        assert_eq!(why_not_run("promote.sh %d"), None, "a shell finds it");
        let missing = why_not_run(&format!("{}/none.sh %d %h", folder.display())).unwrap();
        assert!(missing.contains("/none.sh: No such file"), "{missing}");
        let plain = why_not_run(&format!("{}/file", folder.display())).unwrap();
        assert!(plain.contains("ermission denied"), "{plain}");
        let twice = [(folder.as_path(), "unix_socket_directories", 1), (folder.as_path(), "unix_socket_directories", 1)];
        let mut found = Vec::new();
        look_at_sockets(&twice, &mut found);
        assert_eq!(found, [PlaceProblem::warning("unix_socket_directories", format!("{} is named twice", folder.display()))]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
