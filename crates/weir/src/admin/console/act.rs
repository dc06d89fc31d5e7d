//! Carries out the console's commands.

use super::{AdminConsole, ConsoleOutcome, ConsoleRight};
use crate::admin::console::language::{ConsoleCommand, SetRequest, ShutdownMode, set_request};
use crate::admin::console::show_views::{self, ConsoleShowError};
use crate::control::upgrade_walk;
use crate::log::Level;
use crate::runtime::shared::{ProxyShutdown, SharedState, TerminationTarget, WorkerMessage};
use crate::runtime::worker::Worker;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;
use weir_config::{SetError, names_files, shapes_rules};
use weir_failover::{self, rolling_restart};
use weir_io::reactor::parked;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::status::{SessionActivity, SessionStatus};

const LOOK_PERIOD: Duration = Duration::from_millis(20);

impl AdminConsole<'_> {
    /// An error of severity FATAL ends the session.
    pub(super) async fn perform(&mut self, command: &ConsoleCommand) -> Result<ConsoleOutcome, ErrorReport> {
        if let ConsoleCommand::Set { name, .. } = command
            && show_views::fake(name).is_some()
        {
            let notice = ErrorReport::error("00000", format!("SET {name} has no effect in the console"));
            return Ok(ConsoleOutcome::Done { tag: "SET".into(), notice: Some(notice) });
        }
        if !command.is_show() {
            if self.right != ConsoleRight::Change {
                let text = "only users in admin_users may do this";
                return Err(ErrorReport::error(sqlstate::INSUFFICIENT_PRIVILEGE, text));
            }
            self.log(command);
        }
        match command {
            ConsoleCommand::Show(name) => self.show(name),
            ConsoleCommand::Set { name, value } => self.set(name, value).await,
            ConsoleCommand::Reload => self.reload().await,
            ConsoleCommand::Pause(database) => self.pause(database.as_deref()).await,
            ConsoleCommand::Resume(database) => self.resume(database.as_deref()),
            ConsoleCommand::Disable(database) => self.disable(database, true),
            ConsoleCommand::Enable(database) => self.disable(database, false),
            ConsoleCommand::Reconnect(database) => self.reconnect(database.as_deref()),
            ConsoleCommand::Kill(database) => self.kill(database.as_deref()),
            ConsoleCommand::KillClient(pid) => self.kill_client(*pid),
            ConsoleCommand::WaitClose(database) => self.wait_close(database.as_deref()).await,
            ConsoleCommand::Suspend => self.suspend().await,
            ConsoleCommand::Shutdown(how) => self.shutdown(*how),
            ConsoleCommand::Attach(node) => self.operate(weir_failover::OperatorRequest::Attach(*node), "ATTACH").await,
            ConsoleCommand::Detach(node) => self.operate(weir_failover::OperatorRequest::Detach(*node), "DETACH").await,
            ConsoleCommand::SwitchOver(node) => {
                self.operate(weir_failover::OperatorRequest::SwitchOver(*node), "SWITCHOVER").await
            }
            ConsoleCommand::Restart(node) => self.operate(weir_failover::OperatorRequest::Restart(*node), "RESTART").await,
            ConsoleCommand::UpgradeWalk => self.upgrade_walk().await,
            ConsoleCommand::Promote(node) => self.operate(weir_failover::OperatorRequest::Promote(*node), "PROMOTE").await,
        }
    }

    fn log(&self, command: &ConsoleCommand) {
        let status = &self.entry.status;
        let (user, host) = (&status.user, status.client_host());
        let what = command.without_values();
        self.w.shared.log.say(Level::Log, format_args!("console: {what} by user \"{user}\" from {host}"));
    }

    fn show(&self, name: &str) -> Result<ConsoleOutcome, ErrorReport> {
        if name == "help" {
            let notice = ErrorReport { detail: help(), ..ErrorReport::error("00000", "Console usage") };
            return Ok(ConsoleOutcome::Done { tag: "SHOW".into(), notice: Some(notice) });
        }
        let table = show_views::table_of(self.w, name, &self.right.viewer()).map_err(|error| match error {
            ConsoleShowError::Unknown => {
                ErrorReport::error(sqlstate::SYNTAX_ERROR, format!("invalid command \"SHOW {name}\", use SHOW HELP"))
            }
            ConsoleShowError::Hidden => {
                ErrorReport::error(sqlstate::INSUFFICIENT_PRIVILEGE, "only users in admin_users may do this")
            }
        })?;
        Ok(ConsoleOutcome::Table(table))
    }

    async fn set(&mut self, name: &str, value: &str) -> Result<ConsoleOutcome, ErrorReport> {
        let request = set_request(name, value, &self.w.shared.config.load());
        let notice = |text: String| Some(ErrorReport::error("00000", text));
        let (parameters, rest) = match request {
            SetRequest::Parameters(parameters, rest) => {
                (parameters.into_iter().map(|(name, value)| (name.to_string(), value)).collect(), rest)
            }
            SetRequest::Own => (vec![(name.to_string(), value.to_string())], None),
            SetRequest::Nothing(why) => {
                return Ok(ConsoleOutcome::Done {
                    tag: "SET".into(),
                    notice: notice(format!("SET {name} has no effect: {why}")),
                });
            }
        };
        let outcome = if parameters.iter().any(|(name, _)| names_files(name) || shapes_rules(name)) {
            self.on_thread("set", move |shared| shared.set(&parameters)).await?
        } else {
            self.w.shared.set(&parameters)
        };
        outcome.map_err(|error| {
            let code = match &error {
                SetError::Unknown(_) => sqlstate::UNDEFINED_OBJECT,
                SetError::NotPerSession(_) | SetError::AtStart(_) => sqlstate::CANNOT_CHANGE_NOW,
                SetError::Refused(_) | SetError::Value(_) => sqlstate::INVALID_VALUE,
            };
            ErrorReport::error(code, error.to_string())
        })?;
        let notice = rest.and_then(|rest| notice(format!("SET {name} changes a part only: {rest}")));
        Ok(ConsoleOutcome::Done { tag: format!("SET {name}={value}"), notice })
    }

    async fn reload(&mut self) -> Result<ConsoleOutcome, ErrorReport> {
        let outcome = self.on_thread("reload", |shared| shared.reload()).await?;
        outcome.map(|left| reloaded(&left)).map_err(|text| ErrorReport::error(sqlstate::CONFIGURATION_ERROR, text))
    }

    /// Runs `job` on a thread of its own, since reading files may block.
    async fn on_thread<T: Send + 'static>(
        &mut self,
        name: &str,
        job: impl FnOnce(&SharedState) -> T + Send + 'static,
    ) -> Result<T, ErrorReport> {
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        let (theirs, shared) = (answer.clone(), self.w.shared.clone());
        let (id, task) = (self.w.id, self.w.reactor.current_task());
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let outcome = job(&shared);
            *theirs.lock() = Some(outcome);
            shared.mailboxes[usize::from(id)].send(WorkerMessage::Wake(task));
        });
        thread.map_err(|cause| ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, format!("cannot start a thread: {cause}")))?;
        loop {
            if let Some(outcome) = answer.lock().take() {
                return Ok(outcome);
            }
            parked().await;
        }
    }

    async fn pause(&mut self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        self.check_database("pause", database)?;
        let shared = &self.w.shared;
        if shared.pause_state.is_all_paused() {
            return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, "already paused"));
        }
        self.w.pause(database);
        self.wait_until(|w| {
            !w.shared.pools.of_client_database(database).iter().any(|pool| pool.is_shared() && pool.counts().1 > 0)
        })
        .await?;
        Ok(done("PAUSE"))
    }

    /// Stops all sessions between two statements, even within transactions, and waits for running ones.
    async fn suspend(&mut self) -> Result<ConsoleOutcome, ErrorReport> {
        if self.w.shared.stop_mode() != ProxyShutdown::No {
            return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, "the proxy is shutting down"));
        }
        let Some(told) = self.w.shared.suspend() else {
            return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, "already suspended"));
        };
        let own = self.entry.status.pid;
        self.wait_until(|w| {
            let executes = |session: &Arc<SessionStatus>| session.pid != own && session.doing() == SessionActivity::Executing;
            let is_known = told.load(Ordering::SeqCst) as usize == w.shared.mailboxes.len();
            !w.shared.session_statuses.suspension.is_on() || is_known && !w.shared.session_statuses.all().iter().any(executes)
        })
        .await?;
        Ok(done("SUSPEND"))
    }

    fn resume(&self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        self.check_database("resume", database)?;
        if self.w.shared.stop_mode() != ProxyShutdown::No {
            return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, "the proxy is shutting down"));
        }
        let gates = &self.w.shared.pause_state;
        match database {
            None if self.w.resume() => return Ok(done("RESUME")),
            None => return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, "nothing is paused")),
            Some(name) if gates.own(name).paused => gates.set_paused(name, false),
            Some(name) => {
                let all = if gates.is_all_paused() { "; all are, RESUME without a name ends that" } else { "" };
                return Err(ErrorReport::error(sqlstate::NOT_IN_STATE, format!("database \"{name}\" is not paused{all}")));
            }
        }
        for pool in self.w.shared.pools.of_client_database(database) {
            if !gates.is_paused(&pool.key.client_database) {
                pool.resume(self.w);
            }
        }
        Ok(done("RESUME"))
    }

    fn disable(&self, database: &str, disabled: bool) -> Result<ConsoleOutcome, ErrorReport> {
        let verb = if disabled { "disable" } else { "enable" };
        self.check_database(verb, Some(database))?;
        self.w.shared.pause_state.set_disabled(database, disabled);
        Ok(done(&verb.to_ascii_uppercase()))
    }

    fn reconnect(&self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        self.check_database("reconnect", database)?;
        self.w.shared.pools.of_client_database(database).iter().for_each(|pool| pool.renew(self.w));
        // Ask a server again for the greetings of clients.
        self.w.shared.tell_all(|| WorkerMessage::Refresh);
        Ok(done("RECONNECT"))
    }

    fn kill(&self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        self.check_database("kill", database)?;
        // Clients that come meanwhile wait for RESUME.
        self.w.pause(database);
        self.tell_all(&database.map_or(TerminationTarget::All, |name| TerminationTarget::Database(name.into())));
        Ok(done("KILL"))
    }

    fn kill_client(&self, pid: u32) -> Result<ConsoleOutcome, ErrorReport> {
        if self.w.shared.session_statuses.get(pid).is_none() {
            return Err(ErrorReport::error(sqlstate::UNDEFINED_OBJECT, format!("there is no client {pid}, see SHOW CLIENTS")));
        }
        self.tell_all(&TerminationTarget::Client(pid));
        Ok(done("KILL_CLIENT"))
    }

    fn tell_all(&self, victim: &TerminationTarget) {
        for mailbox in &self.w.shared.mailboxes {
            mailbox.send(WorkerMessage::Kill(victim.clone()));
        }
    }

    async fn wait_close(&mut self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        self.check_database("wait for", database)?;
        self.wait_until(|w| {
            !w.shared.pools.of_client_database(database).iter().any(|pool| pool.is_shared() && pool.has_doomed())
        })
        .await?;
        Ok(done("WAIT_CLOSE"))
    }

    fn shutdown(&self, how: ShutdownMode) -> Result<ConsoleOutcome, ErrorReport> {
        match how {
            ShutdownMode::Now => self.w.shared.begin_stop(ProxyShutdown::Fast),
            ShutdownMode::WaitForClients => self.w.shared.begin_stop(ProxyShutdown::Smart),
            ShutdownMode::WaitForServers => {
                // With all databases paused, a smart stop waits for servers only.
                self.w.pause(None);
                self.w.shared.begin_stop(ProxyShutdown::Smart);
            }
        }
        Ok(done("SHUTDOWN"))
    }

    async fn operate(&mut self, request: weir_failover::OperatorRequest, tag: &str) -> Result<ConsoleOutcome, ErrorReport> {
        let answer = RefCell::new(self.w.shared.control.operate(request));
        let outcome = Cell::new(None);
        self.wait_until(|_| {
            match answer.borrow_mut().try_recv() {
                Ok(answer) => outcome.set(Some(answer)),
                Err(TryRecvError::Closed) => outcome.set(Some(Err("the proxy is stopping".into()))),
                Err(TryRecvError::Empty) => return false,
            }
            true
        })
        .await?;
        match outcome.take() {
            Some(Err(why)) => Err(ErrorReport::error(sqlstate::NOT_IN_STATE, why)),
            Some(Ok(())) | None => Ok(done(tag)),
        }
    }

    /// An interruption leaves all nodes in use; the walk may begin again.
    async fn upgrade_walk(&mut self) -> Result<ConsoleOutcome, ErrorReport> {
        let walk = upgrade_walk::plan(&self.w.shared);
        for step in &walk.steps {
            self.operate(*step, "UPGRADE_WALK").await?;
        }
        let refused = |obstacle: rolling_restart::RestartObstacle| {
            ErrorReport::error(sqlstate::NOT_IN_STATE, obstacle.to_string()).hint(obstacle.hint())
        };
        let notice = walk.end().map_err(refused)?.map(|text| ErrorReport::error("00000", text));
        Ok(ConsoleOutcome::Done { tag: "UPGRADE_WALK".into(), notice })
    }

    /// Refuses the console, and names that are neither used nor listed.
    fn check_database(&self, verb: &str, database: Option<&str>) -> Result<(), ErrorReport> {
        if let Some(name) = database
            && !show_views::is_known(self.w, name)
        {
            return Err(ErrorReport::error(sqlstate::UNDEFINED_DATABASE, format!("no such database: {name}")));
        }
        if database.is_some_and(|name| super::is_console(self.w, name)) {
            let text = format!("cannot {verb} the administration console itself");
            return Err(ErrorReport::error(sqlstate::INVALID_VALUE, text));
        }
        Ok(())
    }

    /// For conditions without a wake-up. A cancel request ends the wait only.
    async fn wait_until(&mut self, is_done: impl Fn(&Worker) -> bool) -> Result<(), ErrorReport> {
        self.entry.wait_cancelled.set(false);
        self.entry.status.set_doing(SessionActivity::WaitingForConnection);
        let outcome = loop {
            if is_done(self.w) {
                break Ok(());
            }
            if self.entry.wait_cancelled.take() {
                break Err(ErrorReport::error(sqlstate::QUERY_CANCELED, "canceling the wait due to user request"));
            }
            if self.socket.is_closed() {
                break Err(ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, "the administrator went away during a wait"));
            }
            if let Err(fault) = self.check_end() {
                break Err(fault);
            }
            self.w.reactor.wake_at(Instant::now() + LOOK_PERIOD);
            parked().await;
        };
        self.entry.status.set_doing(SessionActivity::Idle);
        outcome
    }
}

/// Parameters that need a restart are only a notice.
fn reloaded(left: &[String]) -> ConsoleOutcome {
    let text = || format!("these parameters cannot be changed without a restart: {}", left.join(", "));
    let notice = (!left.is_empty()).then(|| ErrorReport::error("00000", text()));
    ConsoleOutcome::Done { tag: "RELOAD".into(), notice }
}

fn done(tag: &str) -> ConsoleOutcome {
    ConsoleOutcome::Done { tag: tag.to_string(), notice: None }
}

fn help() -> String {
    format!(
        "\n\tSHOW {}\n\tSET name = value\n\tRELOAD\n\tPAUSE [<db>]\n\tRESUME [<db>]\n\tDISABLE <db>\n\tENABLE <db>\n\t\
         RECONNECT [<db>]\n\tKILL [<db>]\n\tKILL_CLIENT <client id>\n\tWAIT_CLOSE [<db>]\n\tSUSPEND\n\tSHUTDOWN\n\t\
         SHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS\n\tATTACH <node id>\n\tDETACH <node id>\n\tPROMOTE <node id>\n\tSWITCHOVER <node id>\n\tRESTART <node id>\n\tUPGRADE_WALK",
        show_views::names()
    )
}
