//! Carries out the console's commands.

use super::{AdminConsole, ConsoleOutcome, ConsoleRight};
use crate::admin::acts::node_acts::NodeOrder;
use crate::admin::acts::{self, ActError, PoolHand};
use crate::admin::console::language::{ConsoleCommand, SetRequest, ShutdownMode, set_request};
use crate::admin::console::show_views;
use crate::control::group_acts::{ActsOfMembers, ActsReport, GroupAct};
use crate::control::upgrade_walk;
use crate::log::Level;
use crate::runtime::shared::{ProxyShutdown, SharedState, WorkerMessage};
use crate::runtime::worker::Worker;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::{SetError, names_files, shapes_rules};
use weir_failover::OperatorRequest;
use weir_failover::rolling_restart::RestartObstacle;
use weir_io::reactor::parked;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::status::SessionActivity;

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
        let (shared, hand) = (&self.w.shared, PoolHand::Own(self.w));
        match command {
            ConsoleCommand::Show(name) => return self.show(name),
            ConsoleCommand::Set { name, value } => return self.set(name, value).await,
            ConsoleCommand::Reload => return self.reload().await,
            ConsoleCommand::UpgradeWalk => return self.upgrade_walk().await,
            ConsoleCommand::Pause(database) => return self.pause(database.as_deref()).await,
            ConsoleCommand::Resume(database) => return self.resume(database.as_deref()).await,
            ConsoleCommand::Disable(database) => acts::disable(shared, database)?,
            ConsoleCommand::Enable(database) => acts::enable(shared, database)?,
            ConsoleCommand::Reconnect(database) => acts::reconnect(shared, hand, database.as_deref())?,
            ConsoleCommand::Kill(database) => acts::kill(shared, hand, database.as_deref())?,
            ConsoleCommand::KillClient(pid) => acts::kill_client(shared, *pid)?,
            ConsoleCommand::CancelClient(pid) => acts::cancel_client(shared, *pid)?,
            ConsoleCommand::WaitClose(database) => self.wait_close(database.as_deref()).await?,
            ConsoleCommand::Suspend => self.suspend().await?,
            ConsoleCommand::Shutdown(ShutdownMode::Now) => shared.begin_stop(ProxyShutdown::Fast),
            ConsoleCommand::Shutdown(ShutdownMode::WaitForClients) => shared.begin_stop(ProxyShutdown::Smart),
            ConsoleCommand::Shutdown(ShutdownMode::WaitForServers) => acts::stop_drained(shared, hand),
            ConsoleCommand::Attach(node) => self.operate(OperatorRequest::Attach(*node)).await?,
            ConsoleCommand::Detach(node) => self.operate(OperatorRequest::Detach(*node)).await?,
            ConsoleCommand::SwitchOver(node) => self.operate(OperatorRequest::SwitchOver(*node)).await?,
            ConsoleCommand::Restart(node) => self.operate(OperatorRequest::Restart(*node)).await?,
            ConsoleCommand::ResetStatements => acts::reset_statements(shared),
            ConsoleCommand::Promote(node) => self.operate(OperatorRequest::Promote(*node)).await?,
        }
        // The tag of a command is its first word.
        Ok(noted(command.without_values().split(' ').next().unwrap_or_default(), None))
    }

    fn log(&self, command: &ConsoleCommand) {
        let status = &self.entry.status;
        let (user, host) = (&status.user, status.client_host());
        let what = command.without_values();
        self.w.shared.log.say(Level::Log, format_args!("console: {what} by user \"{user}\" from {host}"));
    }

    fn show(&self, name: &str) -> Result<ConsoleOutcome, ErrorReport> {
        if name == "help" {
            let notice = ErrorReport { detail: help().into(), ..ErrorReport::error("00000", "Console usage") };
            return Ok(ConsoleOutcome::Done { tag: "SHOW".into(), notice: Some(notice) });
        }
        let unknown = || ErrorReport::error(sqlstate::SYNTAX_ERROR, format!("invalid command \"SHOW {name}\", use SHOW HELP"));
        show_views::table_of(self.w, name, &self.right.viewer()).map(ConsoleOutcome::Table).ok_or_else(unknown)
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
        let outcome = self.on_thread("reload", acts::reload).await?;
        let note = outcome.map_err(|text| ErrorReport::error(sqlstate::CONFIGURATION_ERROR, text))?;
        Ok(noted("RELOAD", note))
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

    /// For all members of the group. A wait that is cancelled leaves the pause.
    async fn pause(&mut self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        acts::pause(&self.w.shared, PoolHand::Own(self.w), database)?;
        let others = RefCell::new(ActsOfMembers::begin(&self.w.shared, &GroupAct::Pause(database.map(Into::into))));
        self.wait_until(|w| !acts::has_conns(&w.shared, database) && others.borrow_mut().are_done()).await?;
        told("PAUSE", others.into_inner().report())
    }

    /// For all members of the group, also where this one is not paused.
    async fn resume(&mut self, database: Option<&str>) -> Result<ConsoleOutcome, ErrorReport> {
        let others = RefCell::new(ActsOfMembers::begin(&self.w.shared, &GroupAct::Resume(database.map(Into::into))));
        let own = acts::resume(&self.w.shared, PoolHand::Own(self.w), database);
        self.wait_until(|_| others.borrow_mut().are_done()).await?;
        own?;
        told("RESUME", others.into_inner().report())
    }

    async fn suspend(&mut self) -> Result<(), ErrorReport> {
        let (order, own) = (acts::suspend(&self.w.shared)?, self.entry.status.pid);
        self.wait_until(|w| order.is_done(&w.shared, own)).await
    }

    async fn wait_close(&mut self, database: Option<&str>) -> Result<(), ErrorReport> {
        acts::check_wait(&self.w.shared, database)?;
        self.wait_until(|w| !acts::has_doomed(&w.shared, database)).await
    }

    async fn operate(&mut self, request: OperatorRequest) -> Result<(), ErrorReport> {
        let order = RefCell::new(NodeOrder::begin(&self.w.shared, request));
        let outcome = RefCell::new(None);
        self.wait_until(|_| {
            *outcome.borrow_mut() = order.borrow_mut().outcome();
            outcome.borrow().is_some()
        })
        .await?;
        outcome.take().unwrap_or(Ok(())).map_err(|error| ErrorReport::error(sqlstate::NOT_IN_STATE, error.to_string()))
    }

    /// An interruption leaves all nodes in use; the walk may begin again.
    async fn upgrade_walk(&mut self) -> Result<ConsoleOutcome, ErrorReport> {
        let walk = upgrade_walk::plan(&self.w.shared);
        for step in &walk.steps {
            self.operate(*step).await?;
        }
        let refused =
            |obstacle: RestartObstacle| ErrorReport::error(sqlstate::NOT_IN_STATE, obstacle.to_string()).hint(obstacle.hint());
        Ok(noted("UPGRADE_WALK", walk.end().map_err(refused)?))
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

fn told(tag: &str, report: ActsReport) -> Result<ConsoleOutcome, ErrorReport> {
    let ActsReport { notes, faults } = report;
    if faults.is_empty() {
        return Ok(noted(tag, (!notes.is_empty()).then(|| notes.join("; "))));
    }
    let text = format!("{tag} is done here, and not by all members of the group: {}", faults.join("; "));
    Err(ErrorReport::error(sqlstate::NOT_IN_STATE, text))
}

/// Success, and what is to be told with it.
fn noted(tag: &str, note: Option<String>) -> ConsoleOutcome {
    ConsoleOutcome::Done { tag: tag.to_string(), notice: note.map(|text| ErrorReport::error("00000", text)) }
}

impl From<ActError> for ErrorReport {
    fn from(error: ActError) -> ErrorReport {
        let code = match error {
            ActError::NoDatabase(_) => sqlstate::UNDEFINED_DATABASE,
            ActError::ConsoleItself(_) => sqlstate::INVALID_VALUE,
            ActError::NoClient(_) => sqlstate::UNDEFINED_OBJECT,
            ActError::NothingRuns(_)
            | ActError::ShuttingDown
            | ActError::AlreadyPaused
            | ActError::AlreadySuspended
            | ActError::NothingPaused
            | ActError::NotPaused(_)
            | ActError::AllPaused(_)
            | ActError::NoCache => sqlstate::NOT_IN_STATE,
        };
        ErrorReport::error(code, error.to_string())
    }
}

fn help() -> String {
    format!(
        "\n\tSHOW {}\n\tSET name = value\n\tRELOAD\n\tPAUSE [<db>]\n\tRESUME [<db>]\n\tDISABLE <db>\n\tENABLE <db>\n\t\
         RECONNECT [<db>]\n\tKILL [<db>]\n\tKILL_CLIENT <client id>\n\tCANCEL_CLIENT <client id>\n\tWAIT_CLOSE [<db>]\n\tSUSPEND\n\tSHUTDOWN\n\t\
         SHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS\n\tATTACH <node id>\n\tDETACH <node id>\n\tPROMOTE <node id>\n\tSWITCHOVER <node id>\n\tRESTART <node id>\n\tUPGRADE_WALK\n\tRESET_STATEMENTS",
        show_views::names()
    )
}
