//! Wishes of operators for the whole group: to its leader, or to each member. `admin::acts::heard_acts` does them there.

use crate::runtime::group_seat::GroupSeat;
use crate::runtime::shared::{ProxyShutdown, SharedState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::{self, error::TryRecvError};
use weir_failover::{NodeCopyStage, OperatorRequest};
use weir_group::{ActAnswer, HostNumber, MemberDuty};

/// A leader that restarts a server has half an hour for it, and more for what comes before and after.
const RESTART_LIMIT: Duration = Duration::from_secs(3600);
const LEADER_LIMIT: Duration = Duration::from_secs(300);
/// For what a member does by itself. Connections come back for a pause when their transactions end.
pub const MEMBER_LIMIT: Duration = Duration::from_secs(30);
pub const PAUSE_LIMIT: Duration = Duration::from_secs(3600);

const NO_LEADER: &str = "the group has no leader now: try again";
const NO_ANSWER: &str = "no answer came, and it may have been done or be done yet: look before you ask again";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAct {
    /// To the leader.
    Node(OperatorRequest),
    /// To the leader: another host is to lead.
    Lead(HostNumber),
    /// To the leader: a host is to be a member, and no member.
    Add(HostNumber),
    Remove(HostNumber),
    /// To each member.
    Reload,
    RotateLog,
    Stop(ProxyShutdown),
    /// A database, or all.
    Pause(Option<String>),
    Resume(Option<String>),
}

impl GroupAct {
    /// A word, and what it is about.
    pub fn text(&self) -> String {
        let named = |word: &str, database: &Option<String>| match database {
            Some(name) => format!("{word} {name}"),
            None => word.to_owned(),
        };
        match self {
            GroupAct::Node(request) => format!("{} {}", request_word(*request), request.node()),
            GroupAct::Lead(host) => format!("lead {host}"),
            GroupAct::Add(host) => format!("add {host}"),
            GroupAct::Remove(host) => format!("remove {host}"),
            GroupAct::Reload => "reload".into(),
            GroupAct::RotateLog => "rotate-log".into(),
            GroupAct::Stop(mode) => format!("stop {}", stop_word(*mode)),
            GroupAct::Pause(database) => named("pause", database),
            GroupAct::Resume(database) => named("resume", database),
        }
    }

    /// `None`: of a later program.
    pub fn parse(text: &str) -> Option<GroupAct> {
        let (word, rest) = text.split_once(' ').map_or((text, None), |(word, rest)| (word, Some(rest)));
        let host = || rest.and_then(|rest| rest.parse::<HostNumber>().ok());
        Some(match (word, rest) {
            ("lead", _) => GroupAct::Lead(host()?),
            ("add", _) => GroupAct::Add(host()?),
            ("remove", _) => GroupAct::Remove(host()?),
            ("reload", None) => GroupAct::Reload,
            ("rotate-log", None) => GroupAct::RotateLog,
            ("stop", Some(mode)) => GroupAct::Stop(STOPS.into_iter().find(|stop| stop_word(*stop) == mode)?),
            ("pause", name) => GroupAct::Pause(name.map(str::to_owned)),
            ("resume", name) => GroupAct::Resume(name.map(str::to_owned)),
            (word, Some(node)) => {
                let node = node.parse().ok()?;
                let requests = [
                    OperatorRequest::Attach(node),
                    OperatorRequest::Detach(node),
                    OperatorRequest::Promote(node),
                    OperatorRequest::SwitchOver(node),
                    OperatorRequest::Restart(node),
                    OperatorRequest::Recover(node, NodeCopyStage::Begins),
                    OperatorRequest::Recover(node, NodeCopyStage::Ends),
                ];
                GroupAct::Node(requests.into_iter().find(|request| request_word(*request) == word)?)
            }
            (_, None) => return None,
        })
    }

    fn limit(&self) -> Duration {
        match self {
            GroupAct::Node(OperatorRequest::Restart(_)) => RESTART_LIMIT,
            GroupAct::Pause(_) => PAUSE_LIMIT,
            GroupAct::Node(_) | GroupAct::Lead(_) | GroupAct::Add(_) | GroupAct::Remove(_) => LEADER_LIMIT,
            GroupAct::Reload | GroupAct::RotateLog | GroupAct::Stop(_) | GroupAct::Resume(_) => MEMBER_LIMIT,
        }
    }
}

const STOPS: [ProxyShutdown; 3] = [ProxyShutdown::Smart, ProxyShutdown::Fast, ProxyShutdown::Immediate];

fn stop_word(mode: ProxyShutdown) -> &'static str {
    match mode {
        ProxyShutdown::No => "no",
        ProxyShutdown::Smart => "smart",
        ProxyShutdown::Fast => "fast",
        ProxyShutdown::Immediate => "immediate",
    }
}

fn request_word(request: OperatorRequest) -> &'static str {
    match request {
        OperatorRequest::Attach(_) => "attach",
        OperatorRequest::Detach(_) => "detach",
        OperatorRequest::Promote(_) => "promote",
        OperatorRequest::SwitchOver(_) => "switchover",
        OperatorRequest::Restart(_) => "restart",
        OperatorRequest::Recover(_, NodeCopyStage::Begins) => "recover",
        OperatorRequest::Recover(_, NodeCopyStage::Ends) => "recovered",
    }
}

/// Has the leader do it, if it is this host, too; gives what is to be told of it. Cancel safe, but what was begun goes on.
pub async fn ask_leader(seat: &GroupSeat, act: &GroupAct) -> Result<String, String> {
    match seat.act(None, act.text(), act.limit()).await {
        Ok(ActAnswer::Done(note)) => Ok(note),
        Ok(ActAnswer::Refused(why)) => Err(why),
        Ok(ActAnswer::NotLeader) => Err(NO_LEADER.into()),
        Ok(ActAnswer::Unknown) => Err(NO_ANSWER.into()),
        Err(_) => Err("this host leaves its group".into()),
    }
}

/// An act under way at all other members.
#[derive(Default)]
pub struct ActsOfMembers {
    waiting: Vec<(HostNumber, oneshot::Receiver<ActAnswer>)>,
    answers: Vec<(HostNumber, ActAnswer)>,
    /// Not asked.
    lost: Vec<HostNumber>,
}

/// Lines to tell: of what went well, and of what did not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ActsReport {
    pub notes: Vec<String>,
    pub faults: Vec<String>,
}

impl ActsOfMembers {
    /// Nothing without a group.
    pub fn begin(shared: &SharedState, act: &GroupAct) -> ActsOfMembers {
        let mut acts = ActsOfMembers::default();
        let Some(seat) = shared.group.get() else { return acts };
        let view = seat.view();
        let Some(state) = view.version.as_ref().map(|version| version.state.clone()) else { return acts };
        let others = state.members.rows.iter().filter(|row| row.id != view.own && row.duty == MemberDuty::Serves);
        for row in others {
            if state.lost.contains(&row.id) {
                acts.lost.push(row.id.host);
            } else {
                acts.waiting.push((row.id.host, seat.act(Some(row.id), act.text(), act.limit())));
            }
        }
        acts
    }

    /// True once each has answered, or will not.
    pub fn are_done(&mut self) -> bool {
        let answers = &mut self.answers;
        self.waiting.retain_mut(|(host, answer)| {
            let answer = match answer.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Closed) => ActAnswer::Unknown,
                Err(TryRecvError::Empty) => return true,
            };
            answers.push((*host, answer));
            false
        });
        self.waiting.is_empty()
    }

    /// Hosts without an answer count as if none came.
    pub fn report(mut self) -> ActsReport {
        self.are_done();
        let mut report = ActsReport::default();
        self.answers.extend(self.waiting.drain(..).map(|(host, _)| (host, ActAnswer::Unknown)));
        self.answers.sort_by_key(|(host, _)| *host);
        for (host, answer) in self.answers {
            match answer {
                ActAnswer::Done(note) if note.is_empty() => {}
                ActAnswer::Done(note) => report.notes.push(format!("host {host}: {note}")),
                ActAnswer::Refused(why) => report.faults.push(format!("host {host}: {why}")),
                ActAnswer::NotLeader => report.faults.push(format!("host {host} could not be asked")),
                ActAnswer::Unknown => report.faults.push(format!("host {host}: {NO_ANSWER}")),
            }
        }
        report.notes.extend(self.lost.iter().map(|host| format!("host {host} is lost, and was not asked")));
        report
    }
}

/// The seat, if this host is in a group.
pub fn seat(shared: &SharedState) -> Result<Arc<GroupSeat>, String> {
    shared.group.get().cloned().ok_or_else(|| "use_watchdog is off: there is no group".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_read_as_it_was_written_and_an_unknown_one_is_none() {
        let database = Some("a b".to_owned());
        let acts = [
            GroupAct::Node(OperatorRequest::Attach(1)),
            GroupAct::Node(OperatorRequest::Detach(2)),
            GroupAct::Node(OperatorRequest::Promote(3)),
            GroupAct::Node(OperatorRequest::SwitchOver(4)),
            GroupAct::Node(OperatorRequest::Restart(5)),
            GroupAct::Node(OperatorRequest::Recover(6, NodeCopyStage::Begins)),
            GroupAct::Node(OperatorRequest::Recover(7, NodeCopyStage::Ends)),
            GroupAct::Lead(1),
            GroupAct::Add(2),
            GroupAct::Remove(3),
            GroupAct::Reload,
            GroupAct::RotateLog,
            GroupAct::Stop(ProxyShutdown::Smart),
            GroupAct::Stop(ProxyShutdown::Fast),
            GroupAct::Stop(ProxyShutdown::Immediate),
            GroupAct::Pause(None),
            GroupAct::Pause(database.clone()),
            GroupAct::Resume(None),
            GroupAct::Resume(database),
        ];
        for act in acts {
            assert_eq!(GroupAct::parse(&act.text()), Some(act));
        }
        for text in ["", "attach", "attach x", "attach 99999", "lead 256", "stop no", "reload now", "dance 1"] {
            assert_eq!(GroupAct::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_report_tells_of_each_host_that_did_not_do_it() {
        let mut acts = ActsOfMembers { lost: vec![4], ..ActsOfMembers::default() };
        let mut askers = Vec::new();
        for (host, answer) in
            [(3, None), (2, Some(ActAnswer::Refused("no file".into()))), (1, Some(ActAnswer::Done("a note".into())))]
        {
            let (asker, answered) = oneshot::channel();
            acts.waiting.push((host, answered));
            match answer {
                Some(answer) => drop(asker.send(answer)),
                None => askers.push(asker),
            }
        }
        assert!(!acts.are_done());
        let ActsReport { notes, faults } = acts.report();
        assert_eq!(notes, ["host 1: a note", "host 4 is lost, and was not asked"]);
        assert_eq!(faults[0], "host 2: no file");
        assert!(faults[1].starts_with("host 3: no answer came") && faults.len() == 2, "{faults:?}");
    }
}
