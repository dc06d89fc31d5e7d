//! Starts the thread of the group with all that it needs, before any client is served.

use crate::log::{Level, ProxyLog};
use crate::runtime::group_seat::{GroupOrder, GroupSeat, HandedMember};
use crate::watchdog::etcd_engine::{EtcdEngine, EtcdSettings, EtcdUser};
use crate::watchdog::etcd_tls::{EtcdTlsFiles, OwnEtcdFiles};
use crate::watchdog::group_driver::{self, DriveEnd, DriverParts, GroupPorts, ProcessesBeside, removals_of};
use crate::watchdog::host_fitness::{FitnessSettings, FitnessWatch};
use crate::watchdog::peer_links::{PeerKey, PeerLinks, PeerSettings};
use crate::watchdog::peer_settings::PeerHostSettings;
use crate::watchdog::state_store::{OpenedState, StateStore};
use crate::watchdog::successor_line;
use crate::watchdog::virtual_address::{AddressKeeper, AddressSettings};
use crate::watchdog::vote_file::FormerMark;
use anyhow::{Context as _, ensure};
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use weir_config::Config;
use weir_config::watchdog_settings::{EtcdEndpoint, EtcdScheme, WatchdogEngine, WatchdogSettings};
use weir_group::{
    EngineKind, GroupMember, GroupMs, GroupSettings, HalfVotes, MemberDuty, MemberHandover, MemberRights, RemovalSettings,
};
use weir_group_failover::WritingParty;
use weir_io::clock::boot_now_ms;
use zeroize::Zeroizing;

const NAME: &str = "weir-group";
/// Messages of peers that wait for the thread.
const PEER_EVENTS_MAX: usize = 1024;
/// Name lookups, kernel calls of the address.
const BLOCKING_MAX: usize = 32;
/// Time to open sockets, and to remove an address that a dead process left.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Between two tries to be a member again, after a process that was to take over has failed. Its file and ports are free once the kernel has ended it.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);

/// `LeaseGrant` on its way to the thread.
pub type SendableGrant = Box<dyn Fn(GroupMs, Option<(u64, u16)>) + Send>;

/// `ParametersInForce` on its way to the thread.
pub type SendableParameters = Box<dyn Fn() -> Option<Arc<Config>> + Send>;

/// Differences between a proxy and a witness.
pub struct GroupHost {
    pub duty: MemberDuty,
    pub log: Arc<ProxyLog>,
    pub grant: SendableGrant,
    pub parameters: SendableParameters,
    /// Rings the control thread.
    pub news: Box<dyn Fn() + Send>,
}

/// The running thread. It ends after `leave`.
pub struct GroupThread {
    pub seat: Arc<GroupSeat>,
    thread: JoinHandle<()>,
}

impl GroupThread {
    /// Hands the lead over if this member has it, and ends the thread. Blocks for as long as a lease.
    pub fn leave(self, limit: Duration) {
        let (left, has_left) = oneshot::channel();
        if self.seat.order(GroupOrder::Leave { left }) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                let _ = runtime.block_on(async { tokio::time::timeout(limit, has_left).await });
            }
        }
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

fn settings_of(watchdog: &WatchdogSettings, duty: MemberDuty) -> GroupSettings {
    let RemovalSettings { no_show_ms, lost_removal_ms, shutdowns } = removals_of(watchdog);
    GroupSettings {
        host: watchdog.own_number,
        hosts: watchdog.hosts.iter().map(|host| host.number).collect(),
        priority: watchdog.priority,
        duty,
        half_votes: if watchdog.half_is_enough { HalfVotes::LowestCasts } else { HalfVotes::TooFew },
        lease_ms: watchdog.lease_ms,
        no_show_ms,
        lost_removal_ms,
        shutdowns,
        engine: engine_of(watchdog),
        without: None,
    }
}

fn engine_of(watchdog: &WatchdogSettings) -> EngineKind {
    match watchdog.engine {
        WatchdogEngine::Builtin => EngineKind::Builtin,
        WatchdogEngine::Etcd => EngineKind::Outside,
    }
}

fn open_state(watchdog: &WatchdogSettings) -> anyhow::Result<OpenedState> {
    let own = watchdog.own().context("the own host is not among the hosts of the watchdog")?;
    let incarnation = u32::from_le_bytes(crate::random());
    StateStore::open(&watchdog.state_dir, own.pgpool_port, watchdog.own_number, incarnation)
        .context("the watchdog cannot keep its state")
}

fn check_member(watchdog: &WatchdogSettings, opened: &OpenedState, before: &MemberHandover) -> anyhow::Result<()> {
    ensure!(
        opened.vote.member == before.member && engine_of(watchdog) == before.engine,
        "the running proxy is another member of the group: pgpool_node_id, wd_state_dir, wd_engine and the port must not change by --takeover"
    );
    Ok(())
}

/// Opens the state file and the sockets, removes a left address, and starts the thread. Blocks until it serves. `handed`: the member of the process that
/// this one takes over from; after an error that one is to have it back.
pub fn start(watchdog: &WatchdogSettings, host: GroupHost, handed: Option<HandedMember>) -> anyhow::Result<GroupThread> {
    let opened = open_state(watchdog)?;
    if let Some(handed) = &handed {
        check_member(watchdog, &opened, &handed.before)?;
    }
    for notice in &opened.notices {
        host.log.say(Level::Warning, format_args!("watchdog: {notice}"));
    }
    let (seat, mut orders) = GroupSeat::new(opened.vote.member);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()
        .context("cannot create the event loop of the watchdog")?;
    let (ready, started) = std::sync::mpsc::channel();
    let (watchdog, own_seat) = (watchdog.clone(), seat.clone());
    let work = move || {
        // A few microseconds late are nothing, but busy workers must not make a peer look silent.
        let _ = weir_ring::yield_when_woken(false);
        let tasks = LocalSet::new();
        tasks.block_on(&runtime, async move {
            let thread = RunningGroup::new(watchdog, host, own_seat);
            match thread.begin(opened, handed).await {
                Ok(parts) => {
                    let _ = ready.send(Ok(()));
                    thread.run(parts, &mut orders).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        drop(tasks);
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name(NAME.into()).spawn(work).context("cannot start the thread of the watchdog")?;
    started.recv_timeout(START_LIMIT).context("the watchdog did not start in time")??;
    Ok(GroupThread { seat, thread })
}

fn peer_settings_of(watchdog: &WatchdogSettings) -> anyhow::Result<PeerSettings> {
    let listed = |texts: Vec<&str>| -> anyhow::Result<Vec<IpAddr>> {
        let all = texts.into_iter().filter(|text| *text != "*").map(addresses_of).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(all.concat())
    };
    let (address, port) = watchdog.listen_place();
    Ok(PeerSettings {
        host: watchdog.own_number,
        hosts: watchdog
            .hosts
            .iter()
            .map(|host| PeerHostSettings {
                number: host.number,
                name: host.hostname.clone(),
                port: host.port,
                heartbeat_names: host.heartbeat_paths.iter().map(|path| path.hostname.clone()).collect(),
                heartbeat_port: host.heartbeat_port,
            })
            .collect(),
        listen_addresses: listed(vec![address])?,
        listen_port: port,
        datagram_addresses: listed(watchdog.heartbeat_listen_addresses())?,
        datagram_port: watchdog.heartbeat_listen_port(),
        key: PeerKey::new(watchdog.authkey.expose()),
    })
}

fn etcd_settings_of(watchdog: &WatchdogSettings) -> EtcdSettings {
    let etcd = &watchdog.etcd;
    let place = |endpoint: &EtcdEndpoint| {
        let scheme = match endpoint.scheme {
            EtcdScheme::Http => "http",
            EtcdScheme::Https => "https",
        };
        let host = if endpoint.host.contains(':') { format!("[{}]", endpoint.host) } else { endpoint.host.clone() };
        format!("{scheme}://{host}:{}", endpoint.port)
    };
    let password = Zeroizing::new(etcd.password.expose().to_owned());
    EtcdSettings {
        endpoints: etcd.endpoints.iter().map(place).collect(),
        user: (!etcd.user.is_empty()).then(|| EtcdUser { name: etcd.user.clone(), password }),
        key: etcd.key.clone(),
        tls: EtcdTlsFiles {
            ca_file: etcd.tls.root_cert.clone(),
            own: etcd
                .tls
                .cert
                .clone()
                .zip(etcd.tls.key.clone())
                .map(|(cert_file, key_file)| OwnEtcdFiles { cert_file, key_file }),
        },
        lease_ms: watchdog.lease_ms,
        now: boot_now_ms,
    }
}

/// An address, or those of a name. Blocks for the name server.
fn addresses_of(text: &str) -> anyhow::Result<Vec<IpAddr>> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let found = (text, 0).to_socket_addrs().with_context(|| format!("the watchdog cannot listen on \"{text}\""))?;
    Ok(found.map(|place| place.ip()).collect())
}

/// The thread, with all that outlives a handover.
struct RunningGroup {
    watchdog: WatchdogSettings,
    duty: MemberDuty,
    log: Arc<ProxyLog>,
    ports: Rc<GroupPorts>,
}

impl RunningGroup {
    fn new(watchdog: WatchdogSettings, host: GroupHost, seat: Arc<GroupSeat>) -> RunningGroup {
        let GroupHost { duty, log, grant, parameters, news } = host;
        let own_log = log.clone();
        let party = if duty == MemberDuty::Witness { WritingParty::Nobody } else { WritingParty::Workers };
        let say = Rc::new(move |level, text: std::fmt::Arguments<'_>| own_log.say(level, text));
        RunningGroup { watchdog, duty, log, ports: Rc::new(GroupPorts { seat, party, grant, parameters, news, say }) }
    }

    /// Plays the member until it leaves, or until another process of this host plays it and this one ends.
    async fn run(&self, mut parts: DriverParts, orders: &mut mpsc::Receiver<GroupOrder>) {
        loop {
            let before = match group_driver::drive(parts, &self.ports, orders).await {
                DriveEnd::Left => return,
                DriveEnd::HandedOver(former) => successor_line::follow(former, orders, &self.ports).await,
                DriveEnd::NotTaken(before) => Some(before),
            };
            let Some(before) = before else { return };
            let Some(again) = self.rejoin(before, orders).await else { return };
            parts = again;
        }
    }

    /// Is the member again, restarted, that another process did not take after all. `None`: this process ends.
    async fn rejoin(&self, before: MemberHandover, orders: &mut mpsc::Receiver<GroupOrder>) -> Option<DriverParts> {
        let rights = MemberRights { leads: None, ..before.rights };
        let before = MemberHandover { rights, holds_address: false, is_decided: false, ..before };
        let mut told = String::new();
        loop {
            match self.open_again(&before).await {
                Ok(parts) => {
                    (self.ports.say)(Level::Log, format_args!("watchdog: this process goes on as a member of its group"));
                    return Some(parts);
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if told != text {
                        (self.ports.say)(
                            Level::Warning,
                            format_args!("watchdog: this process is no member of its group yet: {text}"),
                        );
                    }
                    told = text;
                }
            }
            tokio::select! {
                Some(order) = orders.recv() => if let GroupOrder::Leave { left } = order {
                    (self.ports.grant)(0, None);
                    let _ = left.send(());
                    return None;
                },
                () = tokio::time::sleep(REJOIN_PAUSE) => {}
            }
        }
    }

    async fn open_again(&self, before: &MemberHandover) -> anyhow::Result<DriverParts> {
        let opened = open_state(&self.watchdog)?;
        check_member(&self.watchdog, &opened, before)?;
        self.begin(opened, Some(HandedMember { before: before.clone(), lines: Vec::new() })).await
    }

    /// Cancel safe: sockets are closed.
    async fn begin(&self, opened: OpenedState, handed: Option<HandedMember>) -> anyhow::Result<DriverParts> {
        let (watchdog, say) = (&self.watchdog, &self.ports.say);
        let (events, peer_events) = mpsc::channel(PEER_EVENTS_MAX);
        let links = PeerLinks::begin(peer_settings_of(watchdog)?, self.log.clone(), events)?;
        let mut address = AddressSettings::of(watchdog)?;
        if self.duty == MemberDuty::Witness {
            address = AddressSettings::default();
        }
        let held = handed.as_ref().map(|handed| &handed.before).filter(|before| before.holds_address);
        let address = match held {
            Some(before) => AddressKeeper::resume(address, say.clone(), before.rights.leads.map_or(0, |_| before.rights.until)),
            None => {
                let keeper = AddressKeeper::start(address, say.clone());
                match keeper.remove_leftovers().await {
                    Ok(0) => {}
                    Ok(count) => {
                        say(
                            Level::Log,
                            format_args!("watchdog: {count} virtual addresses that a former process left are removed"),
                        );
                    }
                    Err(error) => say(Level::Warning, format_args!("watchdog: {error}")),
                }
                keeper
            }
        };
        let engine = match watchdog.engine {
            WatchdogEngine::Builtin => None,
            WatchdogEngine::Etcd => Some(EtcdEngine::new(etcd_settings_of(watchdog))?),
        };
        let OpenedState { store, vote, outcomes, .. } = opened;
        let has_lines = handed.as_ref().is_some_and(|handed| !handed.lines.is_empty());
        let is_beside = !has_lines && FormerMark::is_set(store.path());
        let beside = if is_beside { ProcessesBeside::Since(boot_now_ms()) } else { ProcessesBeside::None };
        let first_number = u64::from_le_bytes(crate::random()) >> 2;
        let mut member = GroupMember::new(settings_of(watchdog, self.duty), vote, first_number, boot_now_ms());
        if let Some(handed) = &handed {
            member.take_over(&handed.before, boot_now_ms());
        }
        if is_beside {
            member.begin_beside_former();
            let text = "watchdog: a former process of this host still has clients: what the group takes counts as given up once their lease is over";
            say(Level::Log, format_args!("{text}"));
        }
        let fitness = FitnessWatch::start(FitnessSettings::of(watchdog), say.clone());
        let lease_ms = watchdog.lease_ms;
        Ok(DriverParts { member, links, peer_events, store, outcomes, engine, address, fitness, handed, beside, lease_ms })
    }
}
