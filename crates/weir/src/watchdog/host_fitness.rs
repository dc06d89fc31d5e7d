//! The judgement whether this host is fit to lead: it reaches a trusted server, and one of its monitored interfaces is up.

use crate::log::Level;
use crate::runtime::shell_command;
use crate::watchdog::virtual_address::{HostLink, WatchdogLog, host_links};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use weir_config::watchdog_settings::{MonitoredInterfaces, WatchdogSettings};

/// The longest that one try to reach a trusted server may take; `ping -c3` takes two seconds.
const TRUSTED_SERVER_LIMIT: Duration = Duration::from_secs(5);
const TRUSTED_SERVERS_MAX: usize = 16;
/// Time between two looks at the interfaces.
const INTERFACE_PERIOD: Duration = Duration::from_millis(500);
/// Shortest time between two rounds of tries.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// Conditions of the operator for the host's fitness. Empty: the host is always fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitnessSettings {
    /// Of `trusted_servers`.
    pub trusted_servers: Vec<String>,
    /// `trusted_server_command`, or Pgpool's ping, where `%h` stands for a server.
    pub command: String,
    /// `wd_interval`: time from the end of one round of tries to the next.
    pub period: Duration,
    pub interfaces: MonitoredInterfaces,
}

/// The judgement whether this host may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostFitness {
    Fit,
    Unfit(UnfitReason),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitReason {
    #[error("none of the trusted servers can be reached: {servers}")]
    NoTrustedServer { servers: String },
    #[error("none of the monitored interfaces is up: {interfaces}")]
    InterfacesDown { interfaces: String },
}

impl FitnessSettings {
    pub fn of(watchdog: &WatchdogSettings) -> FitnessSettings {
        FitnessSettings {
            trusted_servers: watchdog.trusted_servers.iter().take(TRUSTED_SERVERS_MAX).cloned().collect(),
            command: watchdog.trusted_command.clone(),
            period: Duration::from_millis(watchdog.interval_ms).max(PERIOD_MIN),
            interfaces: watchdog.interfaces.clone(),
        }
    }
}

/// Returns why no monitored interface is up, if so. An interface that does not exist is down; a host without any besides loopback has lost all.
fn judge(interfaces: &MonitoredInterfaces, links: &[HostLink]) -> Option<UnfitReason> {
    let is_down = |interfaces: &str| Some(UnfitReason::InterfacesDown { interfaces: interfaces.to_owned() });
    match interfaces {
        MonitoredInterfaces::Unwatched => None,
        MonitoredInterfaces::Any if links.iter().any(|link| !link.is_loopback && link.is_running) => None,
        MonitoredInterfaces::Any => is_down("any"),
        MonitoredInterfaces::Named(names) => {
            let is_up = links.iter().any(|link| link.is_running && names.contains(&link.name));
            if is_up { None } else { is_down(&names.join(", ")) }
        }
    }
}

/// Watches the host while it exists. A host is fit until a look says otherwise.
pub struct FitnessWatch {
    fitness: watch::Receiver<HostFitness>,
    command: Rc<RefCell<String>>,
    task: JoinHandle<()>,
}

impl FitnessWatch {
    /// Starts the watch's task, within a `LocalSet`. A change is logged.
    pub fn start(settings: FitnessSettings, say: WatchdogLog) -> FitnessWatch {
        let (published, fitness) = watch::channel(HostFitness::Fit);
        let command = Rc::new(RefCell::new(settings.command.clone()));
        let task = tokio::task::spawn_local(watch_host(settings, command.clone(), say, published));
        FitnessWatch { fitness, command, task }
    }

    /// Another `trusted_server_command`, from the next round of tries on.
    pub fn set_command(&self, command: String) {
        *self.command.borrow_mut() = command;
    }

    pub fn fitness(&self) -> HostFitness {
        self.fitness.borrow().clone()
    }

    /// Returns when the judgement is another one than at the last call. Cancel safe.
    pub async fn changed(&mut self) {
        if self.fitness.changed().await.is_err() {
            // Nothing to watch, so that nothing changes.
            std::future::pending().await
        }
    }
}

impl Drop for FitnessWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_host(
    settings: FitnessSettings,
    command: Rc<RefCell<String>>,
    say: WatchdogLog,
    published: watch::Sender<HostFitness>,
) {
    let mut tries = JoinSet::new();
    let mut next_try = Instant::now();
    let mut unreached: Option<UnfitReason> = None;
    let mut links_error: Option<String> = None;
    // Each failure is logged when it begins.
    let mut failed: BTreeSet<String> = BTreeSet::new();
    let watches_interfaces = settings.interfaces != MonitoredInterfaces::Unwatched;
    if settings.trusted_servers.is_empty() && !watches_interfaces {
        return;
    }
    loop {
        let mut down = None;
        if watches_interfaces {
            match tokio::task::spawn_blocking(host_links).await {
                Ok(Ok(links)) => down = judge(&settings.interfaces, &links),
                // A look that failed says nothing about the interfaces.
                Ok(Err(error)) if links_error.as_ref() != Some(&error.to_string()) => {
                    say(Level::Error, format_args!("monitored interfaces: {error}"));
                    links_error = Some(error.to_string());
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        publish(down.or_else(|| unreached.clone()), &say, &published);
        let has_servers = !settings.trusted_servers.is_empty();
        if has_servers && tries.is_empty() && Instant::now() >= next_try {
            for server in &settings.trusted_servers {
                tries.spawn_local(reach(server.clone(), command.borrow().replace("%h", server)));
            }
        }
        tokio::select! {
            Some(outcome) = tries.join_next() => {
                let is_reached = match outcome {
                    Ok((server, Ok(()))) => {
                        failed.remove(&server);
                        true
                    }
                    Ok((server, Err(failure))) => {
                        // Pgpool's words, for which scripts look.
                        if !failed.contains(&server) {
                            say(Level::Warning, format_args!("watchdog failed to ping host:\"{server}\": {failure}"));
                            failed.insert(server);
                        }
                        false
                    }
                    Err(_) => false,
                };
                if is_reached || tries.is_empty() {
                    tries.abort_all();
                    while tries.join_next().await.is_some() {}
                    next_try = Instant::now() + settings.period;
                    let servers = settings.trusted_servers.join(", ");
                    unreached = if is_reached { None } else { Some(UnfitReason::NoTrustedServer { servers }) };
                }
            }
            () = tokio::time::sleep(INTERFACE_PERIOD), if watches_interfaces => {}
            () = tokio::time::sleep_until(next_try), if has_servers && tries.is_empty() => {}
        }
    }
}

fn publish(reason: Option<UnfitReason>, say: &WatchdogLog, published: &watch::Sender<HostFitness>) {
    let fitness = reason.map_or(HostFitness::Fit, HostFitness::Unfit);
    if *published.borrow() == fitness {
        return;
    }
    match &fitness {
        HostFitness::Fit => say(Level::Log, format_args!("this host is fit to lead again")),
        HostFitness::Unfit(reason) => say(Level::Warning, format_args!("this host is unfit to lead: {reason}")),
    }
    published.send_replace(fitness);
}

/// Tries to reach one server, and returns its name with the failure, if any. Cancel safe: the command is killed.
async fn reach(server: String, line: String) -> (String, Result<(), String>) {
    // The command's own words would fill the log.
    let silence = |_: Arguments<'_>| {};
    let outcome = match timeout(TRUSTED_SERVER_LIMIT, shell_command::run(&line, &silence)).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(cause)) => Err(cause.to_string()),
        Err(_) => Err(format!("no end after {} s", TRUSTED_SERVER_LIMIT.as_secs())),
    };
    (server, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, is_running: bool) -> HostLink {
        HostLink { interface: 1, name: name.into(), is_loopback: name == "lo", is_running, mac: None }
    }

    #[track_caller]
    fn check_interfaces(list: &str, links: &[HostLink], down: Option<&str>) {
        let reason = judge(&settings(&format!("wd_monitoring_interfaces_list = '{list}'\n")).interfaces, links);
        let expected = down.map(|interfaces| UnfitReason::InterfacesDown { interfaces: interfaces.into() });
        assert_eq!(reason, expected, "{list}");
    }

    fn settings(lines: &str) -> FitnessSettings {
        let conf = format!("backend_hostname0 = 'h'\nuse_watchdog = on\nhostname0 = 'localhost'\n{lines}").into_bytes();
        let read = weir_config::read(std::path::Path::new("c"), &mut |path| {
            Ok(if path.ends_with("pgpool_node_id") { b"0".to_vec() } else { conf.clone() })
        });
        FitnessSettings::of(&read.config.expect("it is right").watchdog.expect("it is on"))
    }

    #[test]
    fn a_host_is_unfit_if_all_its_monitored_interfaces_are_down() {
        let links = [link("lo", true), link("eth0", false), link("eth1", true)];
        check_interfaces("", &[], None);
        check_interfaces("any", &links, None);
        check_interfaces("any", &links[..2], Some("any"));
        check_interfaces("eth0, eth1", &links, None);
        check_interfaces("eth0", &links, Some("eth0"));
        check_interfaces("eth0,eth9", &links, Some("eth0, eth9"));
    }

    #[test]
    fn pgpools_ping_is_the_command_unless_the_file_has_one() {
        let none =
            FitnessSettings { command: "ping -q -c3 %h".into(), period: Duration::from_secs(10), ..FitnessSettings::default() };
        assert_eq!(settings(""), none);
        let own = FitnessSettings {
            trusted_servers: vec!["a".into(), "192.0.2.1".into()],
            command: "try %h".into(),
            period: PERIOD_MIN,
            interfaces: MonitoredInterfaces::Any,
        };
        let conf = "trusted_servers = 'a, 192.0.2.1'\ntrusted_server_command = 'try %h'\n\
                    wd_interval = 0\nwd_monitoring_interfaces_list = 'any'\n";
        assert_eq!(settings(conf), own);
    }

    #[test]
    fn a_host_that_reaches_no_trusted_server_is_unfit_until_it_reaches_one() {
        let folder = std::env::temp_dir().join(format!("weir_fitness_{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let settings = FitnessSettings {
            trusted_servers: vec!["first".into(), "second".into()],
            // The first never answers, and must not delay the second.
            command: format!("test %h = first && sleep 600; test -e {}/%h", folder.display()),
            period: Duration::from_millis(20),
            ..FitnessSettings::default()
        };
        let lines = Rc::new(RefCell::new(Vec::new()));
        let said = lines.clone();
        let say: WatchdogLog = Rc::new(move |_, text| said.borrow_mut().push(text.to_string()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let limit = Duration::from_secs(30);
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut watch = FitnessWatch::start(settings, say);
            assert_eq!(watch.fitness(), HostFitness::Fit, "until a round says otherwise");
            timeout(limit, watch.changed()).await.expect("a judgement");
            let servers = "first, second".to_owned();
            assert_eq!(watch.fitness(), HostFitness::Unfit(UnfitReason::NoTrustedServer { servers }));
            std::fs::write(folder.join("second"), "").expect("a file");
            timeout(limit, watch.changed()).await.expect("a judgement");
            assert_eq!(watch.fitness(), HostFitness::Fit);
            watch.set_command("false".into());
            timeout(limit, watch.changed()).await.expect("a judgement");
            assert_ne!(watch.fitness(), HostFitness::Fit, "after a reload");
        });
        assert!(lines.borrow().iter().any(|line| line.starts_with("watchdog failed to ping host:\"first\"")));
        std::fs::remove_dir_all(folder).expect("it was ours");
    }
}
