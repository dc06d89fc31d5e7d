//! Many seeds, played by several threads.

use weir_sim::Outcome;

/// Threads that share the seeds.
const THREADS: u64 = 2;

/// Plays seeds; gives all outcomes.
pub fn play(from: u64, to: u64, run: impl Fn(u64) -> Outcome + Sync) -> Vec<Outcome> {
    let part = |thread: u64| (from + thread..to).step_by(THREADS as usize).map(&run).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run does not panic")).collect()
    })
}

/// Fails with a command for each seed that breaks something.
pub fn check_unbroken(outcomes: &[Outcome], command: &str) {
    let broken: Vec<String> = outcomes
        .iter()
        .filter(|outcome| !outcome.broken.is_empty())
        .map(|outcome| format!("{command} --seed {}: {:?}", outcome.seed, outcome.broken))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
