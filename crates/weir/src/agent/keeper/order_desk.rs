//! Orders, one at a time. An order outlives its connection, and its outcome is kept for a repeated question.

use super::deeds;
use super::look;
use super::site::ServerInstallation;
use crate::log::{Level, ProxyLog};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::watch;
use weir_agent::{
    AgentOrder, AgentStatus, FinishedOrder, JobView, OrderAction, OrderFailure, OrderFailureKind, OrderId, OrderKind,
    OrderProgress, Outcome, ServerStopMode,
};

pub struct OrderExecutor {
    site: ServerInstallation,
    log: Arc<ProxyLog>,
    board: Mutex<OrderSlots>,
    /// Changes with each finished order.
    over: watch::Sender<u64>,
}

#[derive(Default)]
struct OrderSlots {
    running: Option<RunningOrder>,
    last: Option<FinishedOrder>,
}

struct RunningOrder {
    order: AgentOrder,
    begun: Instant,
    progress: OrderProgress,
    /// Set when an immediate stop is wanted during an orderly one.
    is_outrun: Arc<AtomicBool>,
}

pub enum OrderReceipt {
    /// Begun now or before; see `OrderExecutor::outcome`.
    UnderWay,
    /// Another order is under way.
    Busy(JobView),
    Over(Outcome),
}

impl RunningOrder {
    fn view(&self) -> JobView {
        JobView {
            id: self.order.id,
            kind: OrderKind::of(&self.order.deed),
            since_ms: self.begun.elapsed().as_millis() as u64,
            progress: self.progress,
        }
    }
}

impl OrderSlots {
    /// `None`: the order begins.
    fn take(&mut self, order: &AgentOrder) -> Option<OrderReceipt> {
        match (&self.running, &self.last) {
            (Some(running), _) if running.order == *order => Some(OrderReceipt::UnderWay),
            (Some(running), _) => {
                if outruns(&order.deed, &running.order.deed) {
                    running.is_outrun.store(true, Ordering::Relaxed);
                }
                Some(OrderReceipt::Busy(running.view()))
            }
            (None, Some(last)) if last.id == order.id && last.kind == OrderKind::of(&order.deed) => {
                Some(OrderReceipt::Over(last.outcome.clone()))
            }
            (None, Some(_) | None) => {
                let begun = Instant::now();
                self.running = Some(RunningOrder {
                    order: order.clone(),
                    begun,
                    progress: OrderProgress::default(),
                    is_outrun: Arc::default(),
                });
                None
            }
        }
    }
}

/// True if `deed` need not wait for the end of `running`.
fn outruns(deed: &OrderAction, running: &OrderAction) -> bool {
    let (wanted, under_way) = (ServerStopMode::Immediate, ServerStopMode::Fast);
    matches!(deed, OrderAction::Stop { mode, .. } if *mode == wanted)
        && matches!(running, OrderAction::Stop { mode, .. } if *mode == under_way)
}

impl OrderExecutor {
    pub fn new(site: ServerInstallation, log: Arc<ProxyLog>) -> Arc<OrderExecutor> {
        Arc::new(OrderExecutor { site, log, board: Mutex::default(), over: watch::Sender::new(0) })
    }

    /// Blocks.
    pub fn status(&self) -> AgentStatus {
        let seen = look::look(&self.site);
        let board = self.board.lock();
        AgentStatus { job: board.running.as_ref().map(RunningOrder::view), last: board.last.clone(), ..seen }
    }

    /// Begins an order that is new, if none is under way.
    pub fn take(self: &Arc<Self>, order: &AgentOrder, who: &str) -> OrderReceipt {
        let is_outrun = {
            let mut board = self.board.lock();
            if let Some(taken) = board.take(order) {
                return taken;
            }
            board.running.as_ref().map(|running| running.is_outrun.clone()).unwrap_or_default()
        };
        let kind = OrderKind::of(&order.deed).name();
        self.log.say(Level::Log, format_args!("{kind}, ordered by {who}: begins"));
        let (own, deed) = (self.clone(), order.deed.clone());
        let work = move || {
            let tell = |progress| own.tell(progress);
            // A panic must not leave an order that never ends.
            let outcome = catch_unwind(AssertUnwindSafe(|| deeds::perform(&own.site, &deed, &tell, &is_outrun)));
            own.finish(outcome.unwrap_or_else(|_| Err(OrderFailure::new(OrderFailureKind::Other, "a fault in the agent"))));
        };
        if let Err(cause) = std::thread::Builder::new().name(kind.into()).spawn(work) {
            self.finish(Err(OrderFailure::new(OrderFailureKind::Other, cause.to_string())));
        }
        OrderReceipt::UnderWay
    }

    fn tell(&self, progress: OrderProgress) {
        if let Some(running) = &mut self.board.lock().running {
            running.progress = progress;
        }
    }

    fn finish(&self, outcome: Outcome) {
        let mut board = self.board.lock();
        let Some(running) = board.running.take() else { return };
        let (kind, took_ms) = (OrderKind::of(&running.order.deed), running.begun.elapsed().as_millis());
        match &outcome {
            Ok(()) => self.log.say(Level::Log, format_args!("{}: done after {took_ms} ms", kind.name())),
            Err(failure) => {
                self.log.say(Level::Warning, format_args!("{}: failed after {took_ms} ms: {}", kind.name(), failure.text));
            }
        }
        board.last = Some(FinishedOrder { id: running.order.id, kind, outcome });
        drop(board);
        self.over.send_modify(|count| *count += 1);
    }

    pub fn over(&self) -> watch::Receiver<u64> {
        self.over.subscribe()
    }

    /// `Err`: progress so far.
    pub fn outcome(&self, id: OrderId) -> Result<Outcome, OrderProgress> {
        let board = self.board.lock();
        match (&board.running, &board.last) {
            (Some(running), _) if running.order.id == id => Err(running.progress),
            (_, Some(last)) if last.id == id => Ok(last.outcome.clone()),
            _ => Ok(Err(OrderFailure::new(OrderFailureKind::Other, "another order has come since"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn one_order_is_done_at_a_time_and_the_same_one_is_done_once() {
        let mut board = OrderSlots::default();
        let order = |id, limit_ms| AgentOrder { id: OrderId(id), deed: OrderAction::Start { limit_ms } };
        assert!(board.take(&order(1, 5)).is_none(), "it is begun");
        assert!(matches!(board.take(&order(1, 5)), Some(OrderReceipt::UnderWay)));
        assert!(matches!(board.take(&order(1, 6)), Some(OrderReceipt::Busy(_))), "another one of the same number");
        let Some(OrderReceipt::Busy(job)) = board.take(&order(2, 5)) else { panic!("one at a time") };
        assert_eq!((job.id, job.kind), (OrderId(1), OrderKind::Start));
        let is_outrun =
            |board: &OrderSlots| board.running.as_ref().is_some_and(|running| running.is_outrun.load(Ordering::Relaxed));
        let stop = |mode| AgentOrder { id: OrderId(3), deed: OrderAction::Stop { mode, limit_ms: 5, started_at: None } };
        assert!(
            matches!(board.take(&stop(ServerStopMode::Immediate)), Some(OrderReceipt::Busy(_))) && !is_outrun(&board),
            "a start"
        );
        board.running = None;
        assert!(board.take(&stop(ServerStopMode::Fast)).is_none());
        let other = AgentOrder { id: OrderId(4), ..stop(ServerStopMode::Fast) };
        assert!(matches!(board.take(&other), Some(OrderReceipt::Busy(_))) && !is_outrun(&board));
        let other = AgentOrder { id: OrderId(4), ..stop(ServerStopMode::Immediate) };
        assert!(matches!(board.take(&other), Some(OrderReceipt::Busy(_))) && is_outrun(&board), "a stop in order makes room");
        board.running = None;
        board.last = Some(FinishedOrder { id: OrderId(1), kind: OrderKind::Start, outcome: Ok(()) });
        assert!(matches!(board.take(&order(1, 5)), Some(OrderReceipt::Over(Ok(())))));
        assert!(board.take(&order(2, 5)).is_none());
    }
}
