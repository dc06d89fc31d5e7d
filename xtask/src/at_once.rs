//! Parts of a task that do not need each other, done at the same time.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does all parts, as many at a time as the machine has cores. The results come in the order of the parts.
pub fn at_once<T: Sync, R: Send>(parts: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(at) else { return done };
            done.push((at, act(part)));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(parts.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_done_once_and_results_keep_their_order() {
        let done = AtomicUsize::new(0);
        let parts: Vec<usize> = (0..100).collect();
        let results = at_once(&parts, |part| {
            done.fetch_add(1, Ordering::Relaxed);
            part * 2
        });
        assert_eq!(results, parts.iter().map(|part| part * 2).collect::<Vec<_>>());
        assert_eq!(done.into_inner(), 100);
        assert!(at_once(&[0; 0], |part| *part).is_empty());
    }
}
