//! Tasks of the control thread. A task that panics is restarted and ends no other.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_local};

/// A task that panics at once must not keep the thread busy.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that is aborted on drop.
#[must_use = "the task ends at once"]
pub struct TaskGuard(JoinHandle<()>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task, and restarts it after a panic; `mend` repairs the state before.
pub fn keep<F: Future<Output = ()> + 'static>(
    c: &Rc<ControlContext>,
    name: String,
    begin: impl Fn() -> F + 'static,
    mend: impl Fn() + 'static,
) -> TaskGuard {
    let own = c.clone();
    let fault = move || {
        tell(&own, &name);
        mend();
    };
    TaskGuard(spawn_local(survive(begin, fault)))
}

/// Starts a task that ends by itself. After a panic and a pause, `order` may start another.
pub fn run<F: Future<Output = ()> + 'static>(c: &Rc<ControlContext>, name: String, task: F, order: impl FnOnce() + 'static) {
    let own = c.clone();
    spawn_local(async move {
        let mut task = TaskGuard(spawn_local(task));
        if (&mut task.0).await.is_err_and(|error| error.is_panic()) {
            tell(&own, &name);
            tokio::time::sleep(PAUSE).await;
            order();
        }
    });
}

fn tell(c: &ControlContext, name: &str) {
    c.shared.log.say(Level::Error, format_args!("the task for {name} ended by a fault in the proxy; it is begun again"));
}

/// Runs a task until it ends by itself, calling `fault` after each panic. Cancel safe: the task ends, too.
async fn survive<F: Future<Output = ()> + 'static>(begin: impl Fn() -> F, fault: impl Fn()) {
    loop {
        let mut task = TaskGuard(spawn_local(begin()));
        match (&mut task.0).await {
            Err(error) if error.is_panic() => fault(),
            Ok(()) | Err(_) => return,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::Notify;
    use tokio::task::LocalSet;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_task_with_a_fault_is_mended_and_begun_again_and_others_go_on() {
        let (begun, mended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (count, times) = (begun.clone(), mended.clone());
        LocalSet::new().block_on(&runtime(), async move {
            let over = Rc::new(Notify::new());
            let waits = over.clone();
            let other = spawn_local(async move {
                waits.notified().await;
                7
            });
            let own = count.clone();
            let begin = move || {
                let count = own.clone();
                async move {
                    count.set(count.get() + 1);
                    assert!(count.get() == 3, "a fault, as it is meant to be");
                }
            };
            survive(begin, || times.set(times.get() + 1)).await;
            assert_eq!((count.get(), times.get()), (3, 2));
            over.notify_one();
            assert_eq!(other.await.unwrap(), 7, "it is another task's fault");
        });
        assert_eq!((begun.get(), mended.get()), (3, 2));
    }

    #[test]
    fn a_task_that_is_dropped_ends_with_all_that_it_holds() {
        let held = Rc::new(());
        let theirs = held.clone();
        LocalSet::new().block_on(&runtime(), async move {
            let begin = move || {
                let held = theirs.clone();
                async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                }
            };
            let kept = TaskGuard(spawn_local(survive(begin, || {})));
            let running = Rc::strong_count(&held);
            while Rc::strong_count(&held) == running {
                tokio::task::yield_now().await;
            }
            drop(kept);
            while Rc::strong_count(&held) > 1 {
                tokio::task::yield_now().await;
            }
        });
    }
}
