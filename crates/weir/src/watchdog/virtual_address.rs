//! The virtual address of a group, which its leader holds for as long as its lease.
//!
//! The kernel gets the address with a lifetime that ends within the lease: if this process is killed or stands still, the address goes by
//! itself before anybody else may take it. `weir_group::AddressPlan` decides, `host_addresses` talks to the kernel; commands of the operator may
//! stand in the kernel's place.

mod address_settings;
mod host_addresses;
mod neighbour_notice;
mod netlink_address;

use crate::log::Level;
use crate::runtime::shell_command;
use host_addresses::AddressPlace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io;
use std::pin::Pin;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use weir_group::{AddressCommand, AddressPlan, AddressRules, AddressSetting, AddressStep, AddressWish};
use weir_io::clock::boot_now_ms as now_ms;

pub use address_settings::{AddressSettings, AddressSettingsError, AddressTaking, EscalationCommands};
pub use host_addresses::{AddressError, host_links};
pub use netlink_address::HostLink;

/// The longest sleep; the clock is read again after it.
const SLEEP_MS_MAX: u64 = 60_000;
/// The longest that `if_down_cmd` may take for a leftover.
const LEFTOVER_COMMAND_MAX: Duration = Duration::from_secs(5);

/// Subjects of errors.
const TAKING: &str = "taking the virtual address";
const NOTICES: &str = "notices of the virtual address";
const REMOVAL: &str = "giving up the virtual address";

/// Writes a line to the log.
pub type WatchdogLog = Rc<dyn Fn(Level, Arguments<'_>)>;

/// How the address was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It is gone from this host, and nothing of it runs any more.
    Gone,
    /// The lease is over, so that the kernel has removed the address; the keeper still tries if a command had to.
    LeaseOver,
}

/// Holds the address while it is told to. Dropped, it lets the address end by its lifetime.
pub struct AddressKeeper {
    settings: Rc<AddressSettings>,
    say: WatchdogLog,
    order: Rc<KeeperOrder>,
    task: JoinHandle<()>,
}

/// State that a keeper's task and its owner share.
struct KeeperOrder {
    wish: Cell<AddressWish>,
    escalations: RefCell<EscalationCommands>,
    /// The end of the last lease.
    lease_until_ms: Cell<u64>,
    is_held: Cell<bool>,
    is_free: Cell<bool>,
    /// Another process goes on with the address.
    is_leaving: Cell<bool>,
    has_left: Cell<bool>,
    /// The wish changed.
    wished: Notify,
    /// The address is gone.
    freed: Notify,
}

impl AddressKeeper {
    /// Starts the keeper's task, within a `LocalSet`. It does nothing until `hold`.
    pub fn start(settings: AddressSettings, say: WatchdogLog) -> AddressKeeper {
        let plan = AddressPlan::new(rules(&settings, &settings.escalations));
        AddressKeeper::begin(settings, say, plan, AddressWish::Release)
    }

    /// Goes on with the address of a process before this one, after that one's `leave`: until the end of its lease, as if it were held.
    pub fn resume(settings: AddressSettings, say: WatchdogLog, until_ms: u64) -> AddressKeeper {
        let plan = AddressPlan::resume(rules(&settings, &settings.escalations), now_ms());
        AddressKeeper::begin(settings, say, plan, AddressWish::Hold { until_ms })
    }

    fn begin(settings: AddressSettings, say: WatchdogLog, plan: AddressPlan, wish: AddressWish) -> AddressKeeper {
        let settings = Rc::new(settings);
        let lease_until_ms = match wish {
            AddressWish::Release => 0,
            AddressWish::Hold { until_ms } => until_ms,
        };
        let order = Rc::new(KeeperOrder {
            wish: Cell::new(wish),
            escalations: RefCell::new(settings.escalations.clone()),
            lease_until_ms: Cell::new(lease_until_ms),
            is_held: Cell::new(plan.holds()),
            is_free: Cell::new(plan.is_free()),
            is_leaving: Cell::new(false),
            has_left: Cell::new(false),
            wished: Notify::new(),
            freed: Notify::new(),
        });
        let task = KeeperTask {
            settings: settings.clone(),
            say: say.clone(),
            order: order.clone(),
            plan,
            places: None,
            running: None,
            errors: BTreeMap::new(),
        };
        AddressKeeper { settings, say, order, task: tokio::task::spawn_local(task.keep()) }
    }

    /// Takes the address if it is not held, and holds it until this time of the boot clock, in ms. To be called some four times a second; each
    /// call replaces the time of before. Never waits; what fails is logged once and tried again.
    pub fn hold(&self, until_ms: u64) {
        self.order.lease_until_ms.set(until_ms);
        self.order.is_free.set(false);
        self.wish(AddressWish::Hold { until_ms });
    }

    /// Other commands, for the next time that each is due.
    pub fn set_escalations(&self, escalations: EscalationCommands) {
        *self.order.escalations.borrow_mut() = escalations;
        self.order.wished.notify_one();
    }

    /// Gives the address up, and returns once it is gone or the lease is over. Cancel safe: the keeper goes on.
    pub async fn release(&self) -> ReleaseOutcome {
        self.wish(AddressWish::Release);
        while !self.order.is_free.get() {
            let left_ms = self.order.lease_until_ms.get().saturating_sub(now_ms());
            if left_ms == 0 {
                return ReleaseOutcome::LeaseOver;
            }
            let _ = tokio::time::timeout(Duration::from_millis(left_ms), self.order.freed.notified()).await;
        }
        ReleaseOutcome::Gone
    }

    /// Leaves the address to another process of this host, and returns once nothing here touches it any more. Cancel safe: the keeper still ends.
    pub async fn leave(&self) {
        self.order.is_leaving.set(true);
        self.order.wished.notify_one();
        while !self.order.has_left.get() {
            self.order.freed.notified().await;
        }
    }

    /// True while the address is on this host by our doing.
    pub fn holds(&self) -> bool {
        self.order.is_held.get()
    }

    /// Removes addresses that a process before us left, also with a lifetime without end, and returns how many there were. To be called before
    /// the first `hold`, and not while another process of this host holds the address by right. Not cancel safe.
    ///
    /// Errors: no other network of an interface contains the address, so that it seems to be the host's own; or it cannot be removed.
    pub async fn remove_leftovers(&self) -> Result<usize, AddressError> {
        let addresses = self.settings.addresses.clone();
        let AddressTaking::Commands { down, .. } = &self.settings.taking else {
            return blocking(move || host_addresses::remove_leftovers(&addresses)).await;
        };
        let hosts = blocking(host_addresses::host_addresses).await?;
        let found = || addresses.iter().filter(|address| hosts.iter().any(|host| host.address == **address));
        for address in found() {
            let line = address_settings::for_address(down, *address);
            let say = |text: Arguments<'_>| (self.say)(Level::Log, format_args!("if_down_cmd: {text}"));
            // The look that follows tells the outcome.
            let _ = tokio::time::timeout(LEFTOVER_COMMAND_MAX, shell_command::run(&line, &say)).await;
        }
        let count = found().count();
        blocking(move || host_addresses::remove_all(&addresses)).await?;
        Ok(count)
    }

    fn wish(&self, wish: AddressWish) {
        self.order.wish.set(wish);
        self.order.wished.notify_one();
    }
}

impl Drop for AddressKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn rules(settings: &AddressSettings, escalations: &EscalationCommands) -> AddressRules {
    AddressRules {
        addresses: settings.addresses.len(),
        has_up_and_down: matches!(settings.taking, AddressTaking::Commands { .. }),
        has_arping: settings.arping_command.is_some(),
        has_escalation: escalations.escalation.is_some(),
        has_de_escalation: escalations.de_escalation.is_some(),
    }
}

type CommandRun = Pin<Box<dyn Future<Output = io::Result<ExitStatus>>>>;

struct KeeperTask {
    settings: Rc<AddressSettings>,
    say: WatchdogLog,
    order: Rc<KeeperOrder>,
    plan: AddressPlan,
    /// Found anew each time the address is taken.
    places: Option<Vec<AddressPlace>>,
    running: Option<(AddressCommand, CommandRun)>,
    /// The last error of each subject: one that stays is logged once.
    errors: BTreeMap<&'static str, String>,
}

impl KeeperTask {
    async fn keep(mut self) {
        while !self.order.is_leaving.get() {
            self.plan.obey(rules(&self.settings, &self.order.escalations.borrow()));
            self.plan.wish(self.order.wish.get());
            let step = self.plan.next(now_ms());
            self.publish();
            self.take(step).await;
        }
        self.order.is_held.set(self.plan.holds());
        self.order.has_left.set(true);
        self.order.freed.notify_waiters();
    }

    async fn take(&mut self, step: AddressStep) {
        match step {
            AddressStep::Wait { until_ms } => self.wait(until_ms).await,
            AddressStep::Start(command) => self.start(command),
            AddressStep::Kill(command) => {
                self.running = None;
                self.say_error(name(command), "it was killed: its time or the lease is over".to_owned());
            }
            AddressStep::Set { lease_until_ms } => {
                let outcome = self.set(lease_until_ms).await;
                match &outcome {
                    Ok(_) => drop(self.errors.remove(TAKING)),
                    Err(AddressError::TooLate { .. }) => {}
                    Err(error) => self.say_error(TAKING, error.to_string()),
                }
                if outcome.is_err() {
                    self.places = None;
                }
                let was_held = self.plan.holds();
                let setting = outcome.map_or_else(|error| error.setting(), |ends_ms| AddressSetting::Done { ends_ms });
                self.plan.was_set(setting, now_ms());
                if !was_held && self.plan.holds() {
                    self.say_all("successfully acquired the delegate IP");
                }
            }
            AddressStep::Announce { lease_until_ms } => {
                let addresses = self.settings.addresses.clone();
                match blocking(move || host_addresses::announce_all(&addresses, lease_until_ms)).await {
                    Ok(()) => drop(self.errors.remove(NOTICES)),
                    Err(error) => self.say_error(NOTICES, error.to_string()),
                }
            }
            AddressStep::Remove => {
                let addresses = self.settings.addresses.clone();
                let outcome = blocking(move || host_addresses::remove_all(&addresses)).await;
                self.places = None;
                match &outcome {
                    Ok(_) => self.say_all("successfully released the delegate IP"),
                    Err(error) => self.say_error(REMOVAL, error.to_string()),
                }
                self.plan.was_removed(outcome.is_ok(), now_ms());
            }
            AddressStep::SkipDeEscalation => {
                (self.say)(Level::Warning, format_args!("wd_de_escalation_command was not run: the lease is over"));
            }
        }
    }

    /// Waits for the time, another wish, or the end of the command.
    async fn wait(&mut self, until_ms: u64) {
        let sleep = Duration::from_millis(until_ms.saturating_sub(now_ms()).min(SLEEP_MS_MAX));
        let order = self.order.clone();
        let ended = async {
            match &mut self.running {
                Some((command, run)) => (*command, run.await),
                None => std::future::pending().await,
            }
        };
        let (command, outcome) = tokio::select! {
            () = order.wished.notified() => return,
            () = tokio::time::sleep(sleep) => return,
            ended = ended => ended,
        };
        self.running = None;
        let is_success = matches!(&outcome, Ok(status) if status.success());
        match outcome {
            Ok(_) if is_success => drop(self.errors.remove(name(command))),
            Ok(status) => self.say_error(name(command), format!("it failed: {status}")),
            Err(cause) => self.say_error(name(command), format!("it could not be run: {cause}")),
        }
        let was_held = self.plan.holds();
        self.plan.ended(is_success, now_ms());
        if !was_held && self.plan.holds() {
            self.say_all("successfully acquired the delegate IP");
        }
    }

    fn start(&mut self, command: AddressCommand) {
        let Some(line) = self.line(command) else { return };
        (self.say)(Level::Log, format_args!("execute command: {line}"));
        let say = self.say.clone();
        let run = async move {
            let say_line = |text: Arguments<'_>| say(Level::Log, format_args!("{}: {text}", name(command)));
            shell_command::run(&line, &say_line).await
        };
        self.running = Some((command, Box::pin(run)));
    }

    fn line(&self, command: AddressCommand) -> Option<String> {
        let settings = &self.settings;
        let (line, at) = match (command, &settings.taking) {
            (AddressCommand::Escalation, _) => return self.order.escalations.borrow().escalation.clone(),
            (AddressCommand::DeEscalation, _) => return self.order.escalations.borrow().de_escalation.clone(),
            (AddressCommand::Arping(at), _) => (settings.arping_command.as_deref()?, at),
            (AddressCommand::Up(at), AddressTaking::Commands { up, .. }) => (up.as_str(), at),
            (AddressCommand::Down(at), AddressTaking::Commands { down, .. }) => (down.as_str(), at),
            (AddressCommand::Up(_) | AddressCommand::Down(_), AddressTaking::Netlink) => return None,
        };
        Some(address_settings::for_address(line, *settings.addresses.get(at)?))
    }

    async fn set(&mut self, lease_until_ms: u64) -> Result<u64, AddressError> {
        let addresses = self.settings.addresses.clone();
        let known = self.places.take();
        let (places, outcome) = blocking(move || {
            let places = known.map_or_else(|| host_addresses::find_places(&addresses), Ok)?;
            let outcome = host_addresses::set_all(&places, lease_until_ms);
            Ok((places, outcome))
        })
        .await?;
        self.places = Some(places);
        outcome
    }

    fn publish(&self) {
        self.order.is_held.set(self.plan.holds());
        self.order.is_free.set(self.plan.is_free());
        if self.plan.is_free() {
            self.order.freed.notify_waiters();
        }
    }

    fn say_all(&self, text: &str) {
        for address in &self.settings.addresses {
            (self.say)(Level::Log, format_args!("{text}:\"{address}\""));
        }
    }

    fn say_error(&mut self, subject: &'static str, text: String) {
        if self.errors.get(subject) != Some(&text) {
            (self.say)(Level::Error, format_args!("{subject}: {text}"));
            self.errors.insert(subject, text);
        }
    }
}

fn name(command: AddressCommand) -> &'static str {
    match command {
        AddressCommand::Escalation => "wd_escalation_command",
        AddressCommand::Up(_) => "if_up_cmd",
        AddressCommand::Arping(_) => "arping_cmd",
        AddressCommand::DeEscalation => "wd_de_escalation_command",
        AddressCommand::Down(_) => "if_down_cmd",
    }
}

/// Runs a call of the kernel on another thread: the kernel's lock of its network settings may be taken.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, AddressError> + Send + 'static) -> Result<T, AddressError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(AddressError::Thread),
    }
}

#[cfg(test)]
mod namespace_tests;
