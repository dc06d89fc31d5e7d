//! Hosts in network namespaces of the kernel, on one or two networks that can be cut. Takes root, and the programs `ip`, `nft`, `nsenter`.
//!
//! This machine stands at address 254 of each network: its servers and clients are outside of the hosts. All is removed when the network is
//! dropped; what a killed process left is removed when the next network is made.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};

/// Most networks of all processes of this machine at one time. Each has a place, which a lock on a file gives.
const PLACES: u8 = 32;
/// Most paths between two hosts, each a network of its own.
pub const HOST_PATHS_MAX: usize = 2;
/// Addresses begin with these; they are for tests of devices. Source: RFC 2544, appendix C.2.2.
const PREFIX: [u8; 2] = [198, 18];
const OUTSIDE: u8 = 254;
const VIRTUAL: u8 = 100;

/// The packets that do not reach or leave a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkCut {
    /// Nothing arrives and nothing leaves, on any path.
    Apart,
    /// Nothing arrives, on any path.
    Deaf,
    /// Nothing leaves, on any path.
    Mute,
    /// Nothing passes between it and other hosts; all of them reach the outside.
    FromHosts,
    /// `FromHosts` on this path only.
    FromHostsOn(usize),
    /// It does not reach the outside, and the outside not it.
    FromOutside,
    /// Nothing passes on this path.
    Path(usize),
}

/// A network with its hosts.
#[derive(Debug)]
pub struct HostNetwork {
    place: u8,
    hosts: usize,
    paths: usize,
    cuts: Mutex<Vec<(usize, NetworkCut)>>,
    /// Held as long as the place is used.
    _lock: File,
}

impl HostNetwork {
    /// Returns why there can be none on this machine, if so.
    pub fn lacks() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces take root".to_owned());
        }
        for (program, package) in [("ip", "iproute2"), ("nft", "nftables"), ("nsenter", "util-linux")] {
            let there = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
            if !there {
                return Some(format!("there is no {program} (Debian: apt-get install {package})"));
            }
        }
        run("ip netns add weir-probe-$$ && ip netns del weir-probe-$$").err().map(|error| format!("{error:#}"))
    }

    /// Makes hosts with an address on each of the paths. Error: see [`HostNetwork::lacks`], or all places are in use.
    pub fn make(hosts: usize, paths: usize) -> Result<HostNetwork> {
        ensure!(
            hosts < usize::from(VIRTUAL) && (1..=HOST_PATHS_MAX).contains(&paths),
            "{hosts} hosts on {paths} paths are no network"
        );
        let (place, lock) = take_place()?;
        let network = HostNetwork { place, hosts, paths, cuts: Mutex::default(), _lock: lock };
        run(&network.script())?;
        network.set_cuts(&[])?;
        Ok(network)
    }

    fn script(&self) -> String {
        let place = self.place;
        let mut script = String::from("set -e\n");
        for path in 0..self.paths {
            let bridge = bridge_name(place, path);
            script += &format!(
                "ip link add {bridge} type bridge forward_delay 0 mcast_snooping 0\nip addr add {}/24 dev {bridge}\nip link set {bridge} up\n",
                self.outside(path)
            );
        }
        for host in 0..self.hosts {
            let name = self.name(host);
            script += &format!("ip netns add {name}\nip -n {name} link set lo up\n");
            for path in 0..self.paths {
                let port = port_name(place, host, path);
                script += &format!(
                    "ip link add {port} type veth peer name eth{path} netns {name}\nip link set {port} master {} up\n\
                     ip -n {name} addr add {}/24 dev eth{path}\nip -n {name} link set eth{path} up\n",
                    bridge_name(place, path),
                    self.address(host, path)
                );
            }
        }
        script
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Number of paths between two hosts.
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// Name of a host's namespace, as `ip netns` knows it.
    pub fn name(&self, host: usize) -> String {
        host_name(self.place, host)
    }

    /// Address of a host on a path.
    pub fn address(&self, host: usize, path: usize) -> Ipv4Addr {
        self.on_path(path, host as u8 + 1)
    }

    /// Address of this machine on a path.
    pub fn outside(&self, path: usize) -> Ipv4Addr {
        self.on_path(path, OUTSIDE)
    }

    /// An address on the first path that no host has.
    pub fn virtual_address(&self) -> Ipv4Addr {
        self.on_path(0, VIRTUAL)
    }

    /// All addresses of all networks, as pg_hba.conf writes them.
    pub fn all_addresses() -> &'static str {
        "198.18.0.0/16"
    }

    fn on_path(&self, path: usize, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(PREFIX[0], PREFIX[1], self.place * HOST_PATHS_MAX as u8 + path as u8, last)
    }

    /// A program on a host. It gets the number of the process that is begun, and ends with the thread that begins it.
    pub fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]).arg(format!("--net=/run/netns/{}", self.name(host))).arg(program);
        command
    }

    /// Adds a cut to those of before.
    pub fn cut(&self, host: usize, cut: NetworkCut) -> Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.push((host, cut));
        self.set_cuts(&cuts)
    }

    /// Takes all cuts of all hosts away.
    pub fn mend(&self) -> Result<()> {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.clear();
        self.set_cuts(&cuts)
    }

    /// One transaction of the kernel's, so that packets meet the old cuts or the new ones.
    fn set_cuts(&self, cuts: &[(usize, NetworkCut)]) -> Result<()> {
        let (mut arriving, mut passing, mut leaving) = (String::new(), String::new(), String::new());
        for (host, cut) in cuts {
            for path in 0..self.paths {
                let port = port_name(self.place, *host, path);
                let (says, hears) = (format!("iifname \"{port}\" drop\n"), format!("oifname \"{port}\" drop\n"));
                match cut {
                    NetworkCut::Path(gone) | NetworkCut::FromHostsOn(gone) if *gone != path => {}
                    NetworkCut::Apart | NetworkCut::Path(_) => {
                        arriving += &says;
                        leaving += &hears;
                    }
                    NetworkCut::Mute => arriving += &says,
                    NetworkCut::Deaf => leaving += &hears,
                    NetworkCut::FromHosts | NetworkCut::FromHostsOn(_) => passing += &(says + &hears),
                    NetworkCut::FromOutside => {
                        let outside = self.outside(path);
                        arriving += &format!("iifname \"{port}\" ip daddr {outside} drop\n");
                        leaving += &format!("oifname \"{port}\" ip saddr {outside} drop\n");
                    }
                }
            }
        }
        let table = table_name(self.place);
        let chain = |name: &str, hook: &str, rules: &str| {
            format!("chain {name} {{ type filter hook {hook} priority 0; policy accept;\n{rules}}}\n")
        };
        let rules = format!(
            "add table bridge {table}\ndelete table bridge {table}\ntable bridge {table} {{\n{}{}{}}}\n",
            chain("arriving", "prerouting", &arriving),
            chain("passing", "forward", &passing),
            chain("leaving", "postrouting", &leaving)
        );
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        nft.stdin.take().context("a pipe")?.write_all(rules.as_bytes())?;
        let output = nft.wait_with_output()?;
        ensure!(output.status.success(), "nft: {}\n{rules}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The kernel's table of a host's addresses. It can be read while the host exists.
    pub(crate) fn address_table(&self, host: usize) -> Result<File> {
        let mut inside =
            self.command(host, "sh").args(["-c", "echo; read end"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        // Its first word tells that it is inside.
        BufReader::new(inside.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let table = File::open(format!("/proc/{}/net/fib_trie", inside.id()));
        drop(inside.stdin.take());
        inside.wait()?;
        table.with_context(|| format!("no table of addresses of {}", self.name(host)))
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        remove(self.place);
    }
}

fn host_name(place: u8, host: usize) -> String {
    format!("weir-net{place}-{host}")
}

/// At most 15 letters, as all names of devices.
fn port_name(place: u8, host: usize, path: usize) -> String {
    format!("wnet{place}h{host}p{path}")
}

fn bridge_name(place: u8, path: usize) -> String {
    format!("wnet{place}b{path}")
}

fn table_name(place: u8) -> String {
    format!("weir_net{place}")
}

/// A place that nobody uses. All that others left in theirs is removed.
fn take_place() -> Result<(u8, File)> {
    // One at a time, so that nobody sees a place as used that is only looked at.
    let choice = lock_file("choice")?;
    flock(&choice, FlockOperation::LockExclusive)?;
    let mut free = None;
    for place in 0..PLACES {
        let file = lock_file(&place.to_string())?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(place);
            free = free.or(Some((place, file)));
        }
    }
    free.context("all places for networks are in use")
}

/// The lock ends with the process: programs that it begins do not inherit the file. Networks are of the whole machine, and so is the file: folders of TMPDIR
/// are not.
fn lock_file(name: &str) -> Result<File> {
    let path = Path::new("/run").join(format!("weir-network-{name}.lock"));
    File::options().create(true).append(true).open(&path).with_context(|| path.display().to_string())
}

/// Removes all of a place. The kernel ends the other half of each pair of devices.
fn remove(place: u8) {
    let names = |folder: &str, beginning: &str| -> Vec<String> {
        let all = fs::read_dir(folder).into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(beginning)).collect()
    };
    let mut script = String::new();
    for port in
        names("/sys/class/net", &format!("wnet{place}h")).into_iter().chain(names("/sys/class/net", &format!("wnet{place}b")))
    {
        script += &format!("ip link del {port}\n");
    }
    for name in names("/run/netns", &format!("weir-net{place}-")) {
        script += &format!("ip netns del {name}\n");
    }
    if !script.is_empty() {
        script += &format!("nft delete table bridge {} 2>/dev/null\ntrue\n", table_name(place));
        // A network that cannot be removed cannot be made either, and that is told.
        let _ = run(&script);
    }
}

fn run(script: &str) -> Result<()> {
    let output = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("{}: {}", script.lines().next().unwrap_or_default(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
