//! The virtual address in networks of the kernel. Each test runs itself again in a network namespace of its own, which ends with it.

use super::host_addresses::{host_addresses, host_links};
use super::{AddressError, AddressKeeper, AddressSettings, AddressTaking, EscalationCommands, ReleaseOutcome, WatchdogLog};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_io::clock::boot_now_ms as now_ms;

const MODULE: &str = "watchdog::virtual_address::namespace_tests";
/// Names the test whose process is in its namespace already.
const INSIDE: &str = "WEIR_TEST_NAMESPACE";
/// Names what another process of a test does.
const ROLE: &str = "WEIR_TEST_ROLE";
const FOUR: &str = "192.0.2.9";
const SIX: &str = "2001:db8::9";
const LEASE_MS: u64 = 2_000;
/// With a lifetime of 3 s, so that a busy machine makes no gap.
const LONG_LEASE_MS: u64 = 5_000;
const HOLD_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(20);
/// The capabilities that are enough.
const ENOUGH: &str = "--bounding-set=-all,+net_admin,+net_raw";

fn show(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// True in the process that is to do the test. In the first process it runs the other one; or tells why that cannot be.
fn is_inside(test: &str) -> bool {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return true;
    }
    let works = |flags: &&str| {
        let tried = Command::new("unshare").args([*flags, "sh", "-c", "ip link set lo up"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    // A namespace of users lets those in who are not root.
    let Some(flags) = ["-n", "-rn"].into_iter().find(works) else {
        show(format_args!("{test} is skipped: no network namespace can be made here (unshare -n), or ip is missing"));
        return false;
    };
    let mut command = Command::new("unshare");
    command.arg(flags).arg(own_program()).args(["--exact", &format!("{MODULE}::{test}"), "--nocapture"]);
    let output = command.env(INSIDE, test).output().expect("unshare worked before");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    show(said);
    false
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().expect("a program")
}

#[track_caller]
fn run(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A network with one host, this one.
fn lay_network() {
    run("ip link set lo up && ip link add eth0 type veth peer name peer0 && ip link set peer0 up && ip link set eth0 up");
    run("ip addr add 192.0.2.1/24 dev eth0 && ip addr add 2001:db8::1/64 dev eth0 nodad");
}

fn both() -> Vec<IpAddr> {
    [FOUR, SIX].iter().map(|text| text.parse().expect("an address")).collect()
}

fn netlink() -> AddressSettings {
    AddressSettings { addresses: both(), ..AddressSettings::default() }
}

/// How many of both addresses this host has.
fn present() -> usize {
    let wanted = both();
    host_addresses().expect("addresses").iter().filter(|host| wanted.contains(&host.address)).count()
}

fn in_runtime<T>(work: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work())
}

type SaidLines = Rc<RefCell<Vec<String>>>;

fn log() -> (WatchdogLog, SaidLines) {
    let lines = SaidLines::default();
    let said = lines.clone();
    (Rc::new(move |_, text| said.borrow_mut().push(text.to_string())), lines)
}

/// Calls `hold` until the condition is true.
async fn hold_until(keeper: &AddressKeeper, what: &str, condition: impl FnMut() -> bool) {
    hold_on(keeper, LEASE_MS, what, condition).await;
}

async fn hold_on(keeper: &AddressKeeper, lease_ms: u64, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    let mut next_hold = Instant::now();
    while !condition() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        if Instant::now() >= next_hold {
            keeper.hold(now_ms() + lease_ms);
            next_hold = Instant::now() + HOLD_EVERY;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Another process that holds the address. It tells the end of each lease before it holds on it.
struct OtherHolder {
    process: Child,
    last_lease_ms: std::sync::Arc<AtomicU64>,
}

impl OtherHolder {
    fn start(test: &str, before: &[&str]) -> OtherHolder {
        let mut command = Command::new("setpriv");
        if let [program, arguments @ ..] = before {
            command = Command::new(program);
            command.args(arguments).arg("setpriv");
        }
        command.arg(ENOUGH).arg(own_program()).args(["--exact", &format!("{MODULE}::{test}"), "--nocapture"]);
        command.env(INSIDE, test).env(ROLE, "holder").stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let last_lease_ms = std::sync::Arc::new(AtomicU64::new(0));
        let (said, last) = (process.stdout.take().expect("its output"), last_lease_ms.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if let Some(lease_ms) = line.strip_prefix("lease ") {
                    last.store(lease_ms.parse().expect("a time"), Ordering::Relaxed);
                }
            }
        });
        OtherHolder { process, last_lease_ms }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).expect("it is ours");
    }
}

impl Drop for OtherHolder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other side of `OtherHolder`; it ends when it is killed, or after a time.
fn be_holder_if_told() -> bool {
    if std::env::var(ROLE).is_err() {
        return false;
    }
    in_runtime(async || {
        let keeper = AddressKeeper::start(netlink(), Rc::new(|_, _| {}));
        let end = Instant::now() + LIMIT * 3;
        while Instant::now() < end {
            let until_ms = now_ms() + LEASE_MS;
            show(format_args!("lease {until_ms}"));
            keeper.hold(until_ms);
            tokio::time::sleep(HOLD_EVERY).await;
        }
    });
    true
}

#[test]
fn a_held_address_has_a_lifetime_and_no_gap() {
    if !is_inside("a_held_address_has_a_lifetime_and_no_gap") {
        return;
    }
    lay_network();
    in_runtime(async || {
        let (say, lines) = log();
        let keeper = AddressKeeper::start(netlink(), say);
        hold_on(&keeper, LONG_LEASE_MS, "the address is set", || present() == 2).await;
        hold_on(&keeper, LONG_LEASE_MS, "the keeper knows", || keeper.holds()).await;
        let shown = run("ip -o addr show dev eth0");
        let line = |address: &str| shown.lines().find(|line| line.contains(address)).expect("the address").to_owned();
        for address in ["192.0.2.9/24", "2001:db8::9/64"] {
            assert!(line(address).contains("dynamic") && !line(address).contains("valid_lft forever"), "{shown}");
        }
        assert!(line(FOUR).contains("eth0:0"), "{shown}");
        let routes = run("ip -6 route show 2001:db8::/64");
        assert!(routes.contains("eth0") && !routes.contains("expires"), "{routes}");

        let (is_over, gaps) = (std::sync::Arc::new(AtomicBool::new(false)), std::sync::Arc::new(AtomicU64::new(0)));
        let (over, counted) = (is_over.clone(), gaps.clone());
        let looks = std::thread::spawn(move || {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                looks += 1;
                counted.fetch_add(u64::from(present() != 2), Ordering::Relaxed);
                std::thread::sleep(LOOK_EVERY);
            }
            looks
        });
        let end = Instant::now() + Duration::from_secs(6);
        hold_on(&keeper, LONG_LEASE_MS, "six seconds are over", || Instant::now() >= end).await;
        is_over.store(true, Ordering::Relaxed);
        let looks = looks.join().expect("it looked");
        assert!(looks > 100 && gaps.load(Ordering::Relaxed) == 0, "{gaps:?} gaps in {looks} looks");

        assert_eq!(keeper.release().await, ReleaseOutcome::Gone);
        assert_eq!(present(), 0);
        assert!(!keeper.holds());
        let said = lines.borrow();
        let expected = [
            format!("successfully acquired the delegate IP:\"{FOUR}\""),
            format!("successfully acquired the delegate IP:\"{SIX}\""),
            format!("successfully released the delegate IP:\"{FOUR}\""),
            format!("successfully released the delegate IP:\"{SIX}\""),
        ];
        assert_eq!(*said, expected);
    });
}

#[test]
fn the_address_of_a_stopped_or_killed_process_ends_within_its_lease() {
    let test = "the_address_of_a_stopped_or_killed_process_ends_within_its_lease";
    if !is_inside(test) || be_holder_if_told() {
        return;
    }
    lay_network();
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL, rustix::process::Signal::STOP] {
        let holder = OtherHolder::start(test, &[]);
        until("the other process holds the address", || present() == 2);
        let first = holder.last_lease_ms.load(Ordering::Relaxed);
        until("it holds it for more than a lease", || holder.last_lease_ms.load(Ordering::Relaxed) > first + LEASE_MS);
        holder.signal(signal);
        let stopped_ms = now_ms();
        until("the address is gone", || present() == 0);
        let (gone_ms, lease_ms) = (now_ms(), holder.last_lease_ms.load(Ordering::Relaxed));
        show(format_args!(
            "{signal:?}: gone after {} ms, {} ms before the lease ended",
            gone_ms - stopped_ms,
            lease_ms as i64 - gone_ms as i64
        ));
        assert!(gone_ms <= lease_ms, "gone at {gone_ms}, the lease ended at {lease_ms}");
        drop(holder);
    }
}

#[test]
fn a_process_that_goes_on_after_its_lease_sets_nothing() {
    if !is_inside("a_process_that_goes_on_after_its_lease_sets_nothing") {
        return;
    }
    lay_network();
    in_runtime(async || {
        let keeper = AddressKeeper::start(netlink(), Rc::new(|_, _| {}));
        hold_until(&keeper, "the address is set", || present() == 2).await;
        let lease_ms = now_ms() + LEASE_MS;
        keeper.hold(lease_ms);
        // The thread stands still, as in a process that is stopped.
        until("the lease is over", || now_ms() > lease_ms);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            assert_eq!(present(), 0);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert_eq!(keeper.release().await, ReleaseOutcome::Gone);
    });
}

#[test]
fn neighbours_learn_where_the_address_is_now() {
    let test = "neighbours_learn_where_the_address_is_now";
    if !is_inside(test) || be_holder_if_told() {
        return;
    }
    // This host and another one at the neighbour's bridge.
    let (neighbour, other) = (OtherNamespace::new(), OtherNamespace::new());
    let (n, o) = (neighbour.pid(), other.pid());
    run(&format!("ip link set lo up && ip link add eth0 type veth peer name port0 netns {n}"));
    run(&format!("ip link add eth0 netns {o} type veth peer name port1 netns {n}"));
    neighbour.run("ip link add br0 type bridge && ip link set port0 master br0 && ip link set port1 master br0");
    neighbour.run("ip link set port0 up && ip link set port1 up && ip link set br0 up && ip addr add 192.0.2.100/24 dev br0");
    neighbour.run("ip addr add 2001:db8::100/64 dev br0 nodad");
    run("ip link set eth0 up && ip addr add 192.0.2.1/24 dev eth0 && ip addr add 2001:db8::1/64 dev eth0 nodad");
    other.run("ip link set eth0 up && ip addr add 192.0.2.2/24 dev eth0 && ip addr add 2001:db8::2/64 dev eth0 nodad");
    let mac = |address: &str| address.split_whitespace().nth(1).expect("a MAC").to_owned();
    let here = mac(&run("ip link show dev eth0 | grep link/ether"));
    let there = mac(&other.run("ip link show dev eth0 | grep link/ether"));
    assert_ne!(here, there);
    let knows = |mac: &str| [FOUR, SIX].iter().all(|ip| neighbour.run(&format!("ip neigh show {ip}")).contains(mac));
    // Knowledge of a neighbour whom nobody tells anything.
    for address in [FOUR, SIX] {
        neighbour.run(&format!("ip neigh add {address} lladdr 02:00:00:00:00:99 dev br0 nud stale"));
    }
    in_runtime(async || {
        let keeper = AddressKeeper::start(netlink(), Rc::new(|_, _| {}));
        // The other host stands still and has the address yet: a search for duplicates would find it.
        other.run("ip addr add 2001:db8::9/64 dev eth0 nodad");
        hold_until(&keeper, "the neighbour knows this host", || knows(&here)).await;
        let shown = run("ip -6 addr show dev eth0 to 2001:db8::9");
        assert!(shown.contains(SIX) && !shown.contains("dadfailed") && !shown.contains("tentative"), "{shown}");
        other.run("ip addr del 2001:db8::9/64 dev eth0");
        assert_eq!(keeper.release().await, ReleaseOutcome::Gone);
    });
    let target = format!("--target={o}");
    let _holder = OtherHolder::start(test, &["nsenter", &target, "--net"]);
    until("the neighbour knows the other host", || knows(&there));
}

/// A namespace that lives as long as a process in it.
struct OtherNamespace(Child);

impl OtherNamespace {
    fn new() -> OtherNamespace {
        let process = Command::new("unshare").args(["-n", "sleep", "600"]).spawn().expect("it worked before");
        let namespace = OtherNamespace(process);
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let pid = namespace.pid().to_string();
        until("the process is in its namespace", || link(&pid).is_some_and(|net| Some(net) != link("self")));
        namespace
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        run(&format!("nsenter --target={} --net sh -c '{line}'", self.pid()))
    }
}

impl Drop for OtherNamespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn leftovers_go_and_the_hosts_own_address_stays() {
    if !is_inside("leftovers_go_and_the_hosts_own_address_stays") {
        return;
    }
    lay_network();
    run("ip addr add 192.0.2.9/24 dev eth0 && ip addr add 192.0.2.9/32 dev peer0 && ip addr add 2001:db8::9/64 dev eth0");
    assert_eq!(present(), 3);
    in_runtime(async || {
        let keeper = AddressKeeper::start(netlink(), Rc::new(|_, _| {}));
        assert_eq!(keeper.remove_leftovers().await, Ok(3));
        assert_eq!(keeper.remove_leftovers().await, Ok(0));
        let own: IpAddr = "192.0.2.1".parse().expect("an address");
        let keeper =
            AddressKeeper::start(AddressSettings { addresses: vec![own], ..AddressSettings::default() }, Rc::new(|_, _| {}));
        assert_eq!(keeper.remove_leftovers().await, Err(AddressError::NoNetwork { address: own }));
    });
    assert_eq!(present(), 0);
    assert!(run("ip addr show dev eth0").contains("192.0.2.1/24"));
}

#[test]
fn commands_run_in_order_and_end_with_the_lease() {
    if !is_inside("commands_run_in_order_and_end_with_the_lease") {
        return;
    }
    lay_network();
    let folder = std::env::temp_dir().join(format!("weir_address_{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("log").display().to_string();
    let command = |text: &str| format!("echo {text} >> {file}");
    let said = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let settings = AddressSettings {
        addresses: both(),
        taking: AddressTaking::Commands {
            up: format!("ip addr add $_IP_$ dev eth0; {}", command("up $_IP_$")),
            down: format!("ip addr del $_IP_$ dev eth0; {}", command("down $_IP_$")),
        },
        arping_command: Some(command("arping $_IP_$")),
        escalations: EscalationCommands {
            escalation: Some(command("escalation")),
            de_escalation: Some(format!("{}; echo $$ > {file}.pid; exec sleep 600", command("de-escalation"))),
        },
    };
    in_runtime(async || {
        let (say, lines) = log();
        let keeper = AddressKeeper::start(settings, say);
        hold_until(&keeper, "the commands ran", || said().lines().count() == 5).await;
        assert_eq!(present(), 2);
        let lease_ms = now_ms() + LEASE_MS;
        keeper.hold(lease_ms);
        assert_eq!(keeper.release().await, ReleaseOutcome::Gone);
        assert!(now_ms() <= lease_ms);
        let killed = "wd_de_escalation_command: it was killed: its time or the lease is over";
        assert!(lines.borrow().iter().any(|line| line == killed), "{:?}", lines.borrow());
    });
    assert_eq!(present(), 0);
    let expected = "escalation\nup 192.0.2.9\nup 2001:db8::9\narping 192.0.2.9\narping 2001:db8::9\nde-escalation\n\
                    down 192.0.2.9\ndown 2001:db8::9\n";
    assert_eq!(said(), expected);
    let pid = std::fs::read_to_string(format!("{file}.pid")).expect("its number");
    until("the command is dead", || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    std::fs::remove_dir_all(folder).expect("it was ours");
}

#[test]
fn commands_of_a_reload_run_from_then_on() {
    let folder = std::env::temp_dir().join(format!("weir_escalation_{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let command = |text: &str| Some(format!("echo {text} >> {}/log", folder.display()));
    let escalations = EscalationCommands { escalation: command("first"), de_escalation: None };
    in_runtime(async || {
        let settings = AddressSettings { escalations, ..AddressSettings::default() };
        let keeper = AddressKeeper::start(settings, Rc::new(|_, _| {}));
        hold_until(&keeper, "it holds", || keeper.holds()).await;
        keeper.set_escalations(EscalationCommands { escalation: None, de_escalation: command("second") });
        keeper.hold(now_ms() + LEASE_MS);
        assert_eq!(keeper.release().await, ReleaseOutcome::Gone);
        hold_until(&keeper, "it holds again", || keeper.holds()).await;
    });
    assert_eq!(std::fs::read_to_string(folder.join("log")).expect("a log"), "first\nsecond\n");
    std::fs::remove_dir_all(folder).expect("it was ours");
}

#[test]
fn without_capabilities_the_error_names_them() {
    let test = "without_capabilities_the_error_names_them";
    if !is_inside(test) {
        return;
    }
    if std::env::var(ROLE).is_err() {
        lay_network();
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-net_admin,-net_raw").arg(own_program());
        command.args(["--exact", &format!("{MODULE}::{test}"), "--nocapture"]).env(INSIDE, test).env(ROLE, "weak");
        let output = command.output().expect("setpriv");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(host_links().is_ok_and(|links| links.iter().any(|link| link.name == "eth0" && link.is_running)));
    in_runtime(async || {
        let (say, lines) = log();
        let keeper = AddressKeeper::start(netlink(), say);
        let began = Instant::now();
        hold_until(&keeper, "it was tried twice", || began.elapsed() > Duration::from_millis(1_500)).await;
        let _ = keeper.release().await;
        let lines = lines.borrow();
        let refusals: Vec<_> = lines.iter().filter(|line| line.contains("not permitted")).collect();
        assert_eq!(refusals.len(), 1, "logged once: {lines:?}");
        assert!(refusals[0].contains("setting 192.0.2.9/24 on eth0") && refusals[0].contains("CAP_NET_ADMIN"), "{lines:?}");
    });
}
