//! Tasks that others of a worker wait for. A task that ends by a fault in the proxy is begun again, as its waiters would wait
//! for ever.

use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;
use weir_io::reactor::{Reactor, TaskId};

/// Time before a task is begun again: one with a fault at its begin must not keep its thread busy.
const PAUSE: Duration = Duration::from_secs(1);

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The function that begins a task, and the one that puts things in order first if it had a fault.
struct SupervisedTask {
    task: TaskId,
    name: &'static str,
    begin: Box<dyn Fn(Duration) -> Task>,
    mend: Box<dyn Fn()>,
}

/// See the module.
#[derive(Default)]
pub struct TaskSupervisor(RefCell<Vec<SupervisedTask>>);

impl TaskSupervisor {
    /// Begins a task, which is to wait for as long as it is told first. After a fault `mend` is called before anything else runs.
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

    /// A task has panicked. If it is one of these, it is begun again after a pause: says which.
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
