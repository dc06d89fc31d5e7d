//! This process after another one has taken its member's place: it keeps its sessions on rights that are passed to it, and votes and asks nothing.
//!
//! Without news its rights end by themselves. If the other process ends before it serves clients, the member comes back here, restarted.

use crate::log::Level;
use crate::runtime::group_seat::{GroupOrder, GroupView, WritesObedience};
use crate::watchdog::group_driver::GroupPorts;
use crate::watchdog::lease_line::LeaseLine;
use crate::watchdog::vote_file::FormerMark;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use weir_group::{FormerMember, GroupMs, MemberHandover, MemberRights, PassedRights, VersionNumber};
use weir_io::clock::boot_now_ms;

/// Time until the end of rights is noticed. Workers look at it themselves.
const TICK: Duration = Duration::from_millis(50);

/// This process as a former one of its member, with its end of the line to the newer one.
pub struct FollowingProcess {
    pub line: LeaseLine,
    pub member: FormerMember,
    /// Held until this process ends, or is the member again.
    pub _mark: FormerMark,
}

/// Clients of the process that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuccessorStage {
    /// This process serves new clients, too.
    Begins,
    Serves,
    Ended,
}

/// Follows the other process. `None`: this process ends. Otherwise it is to be the member again, with these rights. Not cancel safe: rights that were
/// passed may be lost.
pub async fn follow(
    mut former: FollowingProcess,
    orders: &mut mpsc::Receiver<GroupOrder>,
    ports: &GroupPorts,
) -> Option<MemberHandover> {
    let mut stage = SuccessorStage::Begins;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    former.show(ports);
    loop {
        tokio::select! {
            biased;
            Some(order) = orders.recv() => match order {
                GroupOrder::WritesObeyed(number) => former.obey(number, ports),
                GroupOrder::Relieved => stage = SuccessorStage::Serves,
                GroupOrder::HandOver { answer } => {
                    let _ = answer.send(Err("another process has this one's place in the group".into()));
                }
                GroupOrder::Leave { left } => {
                    (ports.grant)(0, None);
                    let _ = left.send(());
                    return None;
                }
                // Nobody is answered: this process is no member. An act that waits for the lead to go is done when it is dropped.
                GroupOrder::Request { .. }
                | GroupOrder::Form { .. }
                | GroupOrder::Reload(_)
                | GroupOrder::StepDown(_)
                | GroupOrder::Intent(_)
                | GroupOrder::Sights(_)
                | GroupOrder::Founding { .. }
                | GroupOrder::Act { .. }
                | GroupOrder::Acted { .. }
                | GroupOrder::LeadGivenUp => {}
            },
            passed = former.line.next(), if stage != SuccessorStage::Ended => match (passed, stage) {
                (Some(text), _) => match PassedRights::parse(&text) {
                    Ok(passed) => former.take(passed, ports),
                    Err(error) => (ports.say)(Level::Warning, format_args!("watchdog: {error}")),
                },
                (None, SuccessorStage::Begins) => return Some(former.member.back()),
                (None, SuccessorStage::Serves | SuccessorStage::Ended) => {
                    let text = "watchdog: the process that took over has ended: clients of this one cannot write any more, and should connect again";
                    (ports.say)(Level::Warning, format_args!("{text}"));
                    stage = SuccessorStage::Ended;
                }
            },
            _ = ticks.tick() => {}
        }
        former.show(ports);
    }
}

impl FollowingProcess {
    fn take(&mut self, passed: PassedRights, ports: &GroupPorts) {
        let answer = self.member.take(passed);
        self.answer(answer);
        self.grant(ports);
    }

    fn obey(&mut self, number: VersionNumber, ports: &GroupPorts) {
        let answer = self.member.obey(number);
        if answer.is_some() {
            self.grant(ports);
            self.answer(answer);
        }
    }

    /// Asked again with the next rights if the line is full.
    fn answer(&self, number: Option<VersionNumber>) {
        if let Some(number) = number {
            let _ = self.line.send(&number.show());
        }
    }

    fn grant(&self, ports: &GroupPorts) {
        if let Some(rights) = self.member.granted() {
            (ports.grant)(rights.until, rights.writes);
        }
    }

    fn show(&self, ports: &GroupPorts) {
        let now = boot_now_ms();
        let view = self.view(now);
        let shown = ports.seat.view();
        let is_news = shown.version != view.version
            || (shown.rights.leads, shown.rights.writes) != (view.rights.leads, view.rights.writes)
            || (shown.obedience, shown.stopped_epoch) != (view.obedience, view.stopped_epoch);
        if is_news {
            ports.seat.show(view);
            (ports.news)();
        } else {
            ports.seat.show_times(view);
        }
    }

    fn view(&self, now: GroupMs) -> GroupView {
        let FormerMember { version, rights, obeying, before, .. } = &self.member;
        let writes = rights.writes.filter(|_| now < rights.until);
        GroupView {
            own: before.member,
            version: version.clone(),
            rights: MemberRights { until: rights.until, leads: None, writes },
            obedience: obeying.map_or(WritesObedience::Done, WritesObedience::Awaited),
            stopped_epoch: None,
            peers: Vec::new(),
            sights_of_others: Vec::new(),
            fault: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::group_seat::{GroupSeat, HandedMember};
    use crate::watchdog::lease_line;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;
    use tokio::sync::oneshot;
    use weir_group::{EngineKind, MemberId, RightsTaken};
    use weir_group_failover::WritingParty;

    const OWN: MemberId = MemberId { host: 0, incarnation: 0xA0 };
    /// Of the boot clock: none of these rights is ever over.
    /// Of a wait that is over at once.
    const LIMIT: Duration = Duration::from_secs(10);
    const LONG: GroupMs = u64::MAX / 2;

    type Granted = Rc<RefCell<Vec<(GroupMs, Option<(u64, u16)>)>>>;

    struct Stage {
        new: LeaseLine,
        seat: Arc<GroupSeat>,
        granted: Granted,
        ports: GroupPorts,
        orders: mpsc::Receiver<GroupOrder>,
        former: Option<FollowingProcess>,
    }

    fn stage() -> Stage {
        let (ours, theirs) = lease_line::pair().unwrap();
        let (seat, orders) = GroupSeat::new(OWN);
        let granted = Granted::default();
        let log = granted.clone();
        let ports = GroupPorts {
            seat: seat.clone(),
            party: WritingParty::Workers,
            grant: Box::new(move |until, writes| log.borrow_mut().push((until, writes))),
            parameters: Box::new(|| None),
            news: Box::new(|| {}),
            say: Rc::new(|_, _| {}),
        };
        let rights = MemberRights { until: LONG, leads: Some(4), writes: Some((3, 2)) };
        let before = MemberHandover {
            member: OWN,
            engine: EngineKind::Builtin,
            known: None,
            is_decided: false,
            rights,
            taken: RightsTaken::Nothing,
            holds_address: true,
            former_until: Vec::new(),
        };
        let line = LeaseLine::new(ours).unwrap();
        let member = FormerMember { version: None, rights, obeying: None, obeyed: None, before };
        let folder = std::env::temp_dir().join(format!("weir-former-{:032x}", u128::from_le_bytes(crate::random())));
        std::fs::create_dir(&folder).unwrap();
        let _mark = FormerMark::set(&folder.join("weir_group.1")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let former = Some(FollowingProcess { line, member, _mark });
        Stage { new: LeaseLine::new(theirs).unwrap(), seat, granted, ports, orders, former }
    }

    fn number(counter: u64) -> VersionNumber {
        VersionNumber { counter, by: OWN }
    }

    fn passed(until: GroupMs, writes: Option<(u64, u16)>, obey: Option<VersionNumber>) -> String {
        PassedRights { until, writes, obey, version: None }.show()
    }

    #[tokio::test]
    async fn rights_that_are_taken_are_answered_once_the_control_thread_is_done() {
        let Stage { new, seat, granted, ports, mut orders, former } = stage();
        let script = async {
            new.send(&passed(LONG + 1, Some((3, 2)), None));
            new.send(&passed(LONG + 2, None, Some(number(8))));
            let mut views = seat.watch();
            let is_asked = |view: &Arc<GroupView>| view.obedience == WritesObedience::Awaited(number(8));
            let view = views.wait_for(is_asked).await.unwrap().clone();
            assert_eq!((view.rights.leads, view.rights.writes), (None, None));
            assert_eq!(*granted.borrow(), [(LONG + 1, Some((3, 2)))], "open transactions keep what they had");
            seat.deliver(GroupOrder::WritesObeyed(number(7))).await;
            seat.deliver(GroupOrder::WritesObeyed(number(8))).await;
            assert_eq!(new.next().await, Some(number(8).show()));
            assert_eq!(granted.borrow().last(), Some(&(LONG + 2, None)));
            // As the process after the new one does, which did not hear the answer.
            new.send(&passed(LONG + 3, None, Some(number(8))));
            assert_eq!(new.next().await, Some(number(8).show()));
            let (left, has_left) = oneshot::channel();
            seat.deliver(GroupOrder::Leave { left }).await;
            has_left.await.unwrap();
            assert_eq!(granted.borrow().last(), Some(&(0, None)));
        };
        let (back, ()) = tokio::join!(follow(former.unwrap(), &mut orders, &ports), script);
        assert_eq!(back, None);
    }

    #[tokio::test]
    async fn a_process_that_ends_before_it_serves_gives_the_member_back_without_the_lead() {
        let Stage { new, seat, ports, mut orders, former, .. } = stage();
        let script = async {
            new.send(&passed(LONG + 1, Some((3, 2)), None));
            // Nobody wakes for a time alone.
            let is_told = async {
                while seat.view().rights.until != LONG + 1 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, is_told).await.unwrap();
            let (answer, answered) = oneshot::channel::<Result<HandedMember, String>>();
            seat.deliver(GroupOrder::HandOver { answer }).await;
            assert!(answered.await.unwrap().is_err(), "it is with another process");
            drop(new);
        };
        let (back, ()) = tokio::join!(follow(former.unwrap(), &mut orders, &ports), script);
        let back = back.expect("it is back");
        let rights = MemberRights { until: LONG + 1, leads: None, writes: Some((3, 2)) };
        assert_eq!((back.member, back.rights, back.taken, back.holds_address), (OWN, rights, RightsTaken::Nothing, false));
    }

    #[tokio::test]
    async fn a_process_that_ends_once_it_serves_takes_the_member_with_it() {
        let Stage { new, seat, granted, ports, mut orders, former } = stage();
        let script = async {
            seat.deliver(GroupOrder::Relieved).await;
            new.send(&passed(5, Some((3, 2)), None));
            drop(new);
            let mut views = seat.watch();
            views.wait_for(|view| view.rights.until == 5 && view.rights.writes.is_none()).await.unwrap();
            let (left, has_left) = oneshot::channel();
            seat.deliver(GroupOrder::Leave { left }).await;
            has_left.await.unwrap();
        };
        let (back, ()) = tokio::join!(follow(former.unwrap(), &mut orders, &ports), script);
        assert_eq!(back, None);
        assert_eq!(*granted.borrow(), [(5, Some((3, 2))), (0, None)], "its last rights are over");
    }
}
