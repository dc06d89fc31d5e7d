//! Waits for several answers at once, within one task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

enum JoinedFuture<F: Future> {
    Runs(Pin<Box<F>>),
    Over(F::Output),
}

/// Runs all futures to their ends and returns what they gave, in their order. The reactor wakes tasks, not futures: each wake polls all that still run.
///
/// Cancel safe if the futures are.
pub async fn all_of<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut joined: Vec<JoinedFuture<F>> = futures.into_iter().map(|future| JoinedFuture::Runs(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut is_over = true;
        for one in &mut joined {
            if let JoinedFuture::Runs(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *one = JoinedFuture::Over(output),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let outputs = joined.into_iter().filter_map(|one| match one {
        JoinedFuture::Over(output) => Some(output),
        JoinedFuture::Runs(_) => None,
    });
    outputs.collect()
}

/// Runs `main` to its end, and `ring` once if `alarm` is over before. Cancel safe if both futures are.
pub async fn with_alarm<F: Future>(main: F, alarm: impl Future<Output = ()>, ring: impl FnOnce()) -> F::Output {
    let (mut main, mut alarm, mut ring) = (pin!(main), pin!(alarm), Some(ring));
    poll_fn(|context| {
        let done = main.as_mut().poll(context);
        if done.is_pending()
            && ring.is_some()
            && alarm.as_mut().poll(context).is_ready()
            && let Some(ring) = ring.take()
        {
            ring();
        }
        done
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::task::{Context, Waker};

    #[test]
    fn all_run_together_and_their_outputs_keep_their_order() {
        let ended = Cell::new(0);
        let ended = &ended;
        // Each ends at the poll of its number.
        let futures = [3, 1, 2].map(|polls| {
            let mut left = polls;
            poll_fn(move |_| {
                left -= 1;
                if left > 0 {
                    return Poll::Pending;
                }
                ended.set(ended.get() + 1);
                Poll::Ready(polls)
            })
        });
        let mut all = Box::pin(all_of(futures));
        let mut context = Context::from_waker(Waker::noop());
        for expected in [1, 2] {
            assert!(all.as_mut().poll(&mut context).is_pending());
            assert_eq!(ended.get(), expected);
        }
        assert_eq!(all.as_mut().poll(&mut context), Poll::Ready(vec![3, 1, 2]));
        let mut none = Box::pin(all_of(Vec::<std::future::Ready<()>>::new()));
        assert!(none.as_mut().poll(&mut context).is_ready());
    }
}
