//! `weir demo --weirs N`: several proxies as one group, each a process of its own, so that one can be killed.

use crate::commands::demo::{DemoArgs, configuration, say};
use anyhow::Context;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_demo::{Cluster, Companion, ReservedPort, Sql, wait_until};
use weir_wire::pcp_protocol::StoredDigest;

/// A group of new proxies forms in 2 s, and gets over a killed leader in 4 s.
const LEADER_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// User of PCP, and the password.
const OPERATOR: &str = "postgres";

struct GroupProxy {
    port: u16,
    folder: PathBuf,
    process: Companion,
}

/// Running proxies. Dropping it ends them.
pub struct DemoGroup {
    program: PathBuf,
    proxies: Vec<GroupProxy>,
    pcp_ports: Vec<ReservedPort>,
    /// Of the proxies among themselves.
    _peer_ports: Vec<ReservedPort>,
    passwords: PathBuf,
}

fn start(program: &Path, folder: &Path) -> anyhow::Result<Companion> {
    let file = folder.join("pgpool.conf");
    Companion::start(program, &[OsStr::new("-f"), file.as_os_str()], &folder.join("weir.log"))
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

impl DemoGroup {
    /// Starts all proxies, and returns when one of them leads and each serves clients.
    pub fn start(demo: &DemoArgs, cluster: &Cluster, stop: &AtomicBool) -> anyhow::Result<DemoGroup> {
        let count = usize::from(demo.weirs);
        let reserve = || (0..count).map(|_| ReservedPort::any()).collect::<anyhow::Result<Vec<_>>>();
        let passwords = cluster.dir().join("pcppass");
        let mut group = DemoGroup {
            program: std::env::current_exe().context("cannot find the own program")?,
            proxies: Vec::new(),
            pcp_ports: reserve()?,
            _peer_ports: reserve()?,
            passwords,
        };
        let mut hosts = String::from("use_watchdog = on\n");
        for (host, (port, peer)) in (demo.port..).zip(&group._peer_ports).enumerate() {
            let peer = peer.number();
            let _ = write!(
                hosts,
                "hostname{host} = 'localhost'\nwd_port{host} = {peer}\npgpool_port{host} = {port}\n\
                 heartbeat_hostname{host} = 'localhost'\nheartbeat_port{host} = {peer}\n"
            );
        }
        let digest = StoredDigest::of_password(OPERATOR.as_bytes());
        let users = format!("{OPERATOR}:{}\n", String::from_utf8_lossy(digest.text()));
        write(&group.passwords, &format!("*:*:{OPERATOR}:{OPERATOR}\n"))?;
        std::fs::set_permissions(&group.passwords, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        for (host, port) in (demo.port..).take(count).enumerate() {
            let folder = cluster.dir().join(format!("weir{host}"));
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            let place = folder.display();
            let own = format!(
                "pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = '{place}'\nwd_state_dir = '{place}'\n",
                group.pcp_ports[host].number()
            );
            let text = configuration((port, &folder), demo.standbys(), cluster) + &own + &hosts;
            write(&folder.join("pgpool.conf"), &text)?;
            write(&folder.join("pgpool_node_id"), &format!("{host}\n"))?;
            write(&folder.join("pcp.conf"), &users)?;
            let process = start(&group.program, &folder)?;
            group.proxies.push(GroupProxy { port, folder, process });
        }
        wait_until("the proxies to form a group", LEADER_LIMIT, || {
            if stop.load(Ordering::Acquire) {
                anyhow::bail!("stopped before the proxies were ready");
            }
            if let Some(ended) = group.proxies.iter().find(|proxy| proxy.process.has_ended()) {
                let log = std::fs::read_to_string(ended.folder.join("weir.log")).unwrap_or_default();
                anyhow::bail!("the proxy on port {} ended:\n{log}", ended.port);
            }
            Ok(group.proxies.iter().all(|proxy| proxy.state().is_some()) && group.leader().is_some())
        })?;
        Ok(group)
    }

    fn leader(&self) -> Option<usize> {
        self.proxies.iter().position(|proxy| proxy.state().as_deref() == Some("LEADER"))
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for (host, proxy) in self.proxies.iter().enumerate() {
            let state = proxy.state().unwrap_or_else(|| "ended".into());
            let _ = writeln!(text, "  weir {host}: port {}, pid {}, {state}", proxy.port, proxy.process.pid());
        }
        text
    }

    /// The proxies and their states.
    pub fn introduction(&self) -> String {
        format!("The proxies are one group:\n{}", self.list())
    }

    /// Things to try with a group.
    pub fn proposals(&self) -> String {
        let pid = self.leader().map_or(0, |leader| self.proxies[leader].process.pid());
        let ports: Vec<String> = self.proxies.iter().map(|proxy| proxy.port.to_string()).collect();
        let hosts = vec!["127.0.0.1"; ports.len()].join(",");
        let last = self.pcp_ports.last().map_or(0, ReservedPort::number);
        format!(
            "\nThrough whichever proxy is there:\n  psql 'host={hosts} port={} user=postgres dbname=postgres'\n\n\
             Ask one of them for its group:\n  PCPPASSFILE={} {} watchdog status -h 127.0.0.1 -p {last} -U {OPERATOR} -w\n\n\
             Kill the leader, and look again. It is started anew when another one leads:\n  kill -9 {pid}\n",
            ports.join(","),
            self.passwords.display(),
            self.program.display(),
        )
    }

    /// Tells of proxies that end and starts them again, until `stop`.
    pub fn look_after(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        while !stop.load(Ordering::Acquire) {
            if let Some(host) = self.proxies.iter().position(|proxy| proxy.process.has_ended()) {
                self.replace(host, stop)?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        for proxy in &self.proxies {
            proxy.process.begin_stop();
        }
        Ok(())
    }

    fn replace(&mut self, host: usize, stop: &AtomicBool) -> anyhow::Result<()> {
        let ended_at = Instant::now();
        say(&format!("\nweir {host} has ended.\n"));
        let leads =
            wait_until("another proxy to lead", LEADER_LIMIT, || Ok(stop.load(Ordering::Acquire) || self.leader().is_some()));
        match (leads, self.leader()) {
            (Ok(()), Some(leader)) => {
                say(&format!("  weir {leader} leads, {} ms later. weir {host} starts again.\n", ended_at.elapsed().as_millis()))
            }
            (Ok(()), None) => return Ok(()),
            (Err(error), _) => say(&format!("  {error:#}. weir {host} starts again.\n")),
        }
        let folder = self.proxies[host].folder.clone();
        self.proxies[host].process = start(&self.program, &folder)?;
        let back = wait_until("it to be back", LEADER_LIMIT, || {
            let is_there = self.proxies[host].state().is_some_and(|state| state == "STANDBY" || state == "LEADER");
            Ok(stop.load(Ordering::Acquire) || is_there)
        });
        match back {
            Ok(()) => say(&self.list()),
            Err(error) => say(&format!("  {error:#}: see {}\n", folder.join("weir.log").display())),
        }
        Ok(())
    }
}

impl GroupProxy {
    /// The proxy's own state, by its own word; none if it does not answer.
    fn state(&self) -> Option<String> {
        if self.process.has_ended() {
            return None;
        }
        let mut sql = Sql::connect_tcp("127.0.0.1", self.port, "postgres", "postgres").ok()?;
        // Columns as docs/watchdog.md has them.
        let is_asked = |row: &weir_demo::Row| row.get(6).cloned().flatten().as_deref() == Some("true");
        sql.query("SHOW pool_watchdog").ok()?.into_iter().find(is_asked)?.into_iter().nth(4)?
    }
}
