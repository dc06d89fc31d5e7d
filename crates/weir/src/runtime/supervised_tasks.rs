//! Tasks on which others of a worker wait. After a panic they are started again, or their waiters would wait for ever.

use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;
use weir_io::reactor::{Reactor, TaskId};

/// A task that fails at its start must not keep its thread busy.
const PAUSE: Duration = Duration::from_secs(1);

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct SupervisedTask {
    task: TaskId,
    name: &'static str,
    begin: Box<dyn Fn(Duration) -> Task>,
    mend: Box<dyn Fn()>,
}

#[derive(Default)]
pub struct TaskSupervisor(RefCell<Vec<SupervisedTask>>);

impl TaskSupervisor {
    /// Starts a task; `begin` gets the time to wait first. After a panic `mend` runs before anything else.
    pub fn keep<F>(
        &self,
        reactor: &Reactor,
        name: &'static str,
        begin: impl Fn(Duration) -> F + 'static,
        mend: impl Fn() + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let begin = Box::new(move |pause| -> Task { Box::pin(begin(pause)) });
        let task = reactor.spawn(begin(Duration::ZERO));
        self.0.borrow_mut().push(SupervisedTask { task, name, begin, mend: Box::new(mend) });
    }

    /// Restarts a supervised task after a pause. Returns its name.
    pub fn after_panic(&self, reactor: &Reactor, task: TaskId) -> Option<&'static str> {
        let mut tenants = self.0.borrow_mut();
        let tenant = tenants.iter_mut().find(|tenant| tenant.task == task)?;
        (tenant.mend)();
        tenant.task = reactor.spawn((tenant.begin)(PAUSE));
        Some(tenant.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use weir_io::buffers::BufferPool;
    use weir_io::reactor::parked;

    #[test]
    fn a_task_with_a_fault_is_mended_and_begun_again_and_others_are_not() {
        let (poll, _waker) = Reactor::parts().unwrap();
        let reactor = Rc::new(Reactor::new(poll, BufferPool::new(4096), true, std::time::Instant::now()).unwrap());
        let (begun, mended, house) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), TaskSupervisor::default());
        let (count, times) = (begun.clone(), mended.clone());
        let clock = reactor.clone();
        let begin = move |pause| {
            let (count, clock) = (count.clone(), clock.clone());
            async move {
                clock.sleep(pause).await;
                count.set(count.get() + 1);
                assert!(count.get() == 3, "a fault, as it is meant to be");
                // The loop would wait for events for ever once there is nothing left to do.
                loop {
                    clock.wake(clock.current_task());
                    parked().await;
                }
            }
        };
        house.keep(&reactor, "one", begin, move || times.set(times.get() + 1));
        let stranger = reactor.spawn(async { panic!("a session's fault, as it is meant to be") });
        let mut named = Vec::new();
        while begun.get() < 3 {
            reactor.turn().unwrap();
            named.extend(reactor.take_panicked().into_iter().map(|task| (task == stranger, house.after_panic(&reactor, task))));
            assert_eq!(mended.get(), named.iter().filter(|(_, name)| name.is_some()).count(), "at once");
        }
        assert_eq!(named, [(true, None), (false, Some("one")), (false, Some("one"))]);
    }
}
