//! Pace of the steps: a step that causes the next one would otherwise take a whole core.
//!
//! A step is delayed, never left out: the state moves on as without a pause.

use super::event::Ms;

/// Unpaused steps in a second: enough for some looks a second at each of a hundred nodes.
const STEPS_MAX: u32 = 2_000;
/// Of these, due ones. The driver polls once in a millisecond, so a loop makes 500 to 1,000; all due work takes one step, and the most
/// frequent is a look every 20 ms.
const DUE_MAX: u32 = 300;
/// Unpaused steps in a second while slowed.
const SLOWED_MAX: u32 = 100;
pub const PAUSE_MS: Ms = 10;
const SECOND_MS: Ms = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCause {
    Due,
    Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPause {
    None,
    /// Named in the log: the first pause of this process.
    Named {
        /// The exceeded limit, in steps a second.
        steps_max: u32,
    },
    Unnamed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StepSpeed {
    #[default]
    Full,
    /// A limit was exceeded, and no quiet second followed.
    Slowed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PauseNotice {
    #[default]
    Due,
    Done,
}

#[derive(Debug, Default)]
pub struct StepPace {
    since: Ms,
    steps: u32,
    due: u32,
    speed: StepSpeed,
    naming: PauseNotice,
}

impl StepPace {
    /// Counts a step, and returns the pause before it.
    pub fn step(&mut self, cause: StepCause, now: Ms) -> StepPause {
        if now.saturating_sub(self.since) >= SECOND_MS {
            let was_few = self.steps <= SLOWED_MAX;
            self.speed = if was_few { StepSpeed::Full } else { self.speed };
            (self.since, self.steps, self.due) = (now, 0, 0);
        }
        self.steps = self.steps.saturating_add(1);
        self.due = self.due.saturating_add(u32::from(cause == StepCause::Due));
        let exceeded = match self.speed {
            StepSpeed::Full => [(self.steps, STEPS_MAX), (self.due, DUE_MAX)].into_iter().find(|(steps, max)| steps > max),
            StepSpeed::Slowed => Some((self.steps, SLOWED_MAX)).filter(|(steps, max)| steps > max),
        };
        let Some((_, steps_max)) = exceeded else { return StepPause::None };
        self.speed = StepSpeed::Slowed;
        match std::mem::replace(&mut self.naming, PauseNotice::Done) {
            PauseNotice::Due => StepPause::Named { steps_max },
            PauseNotice::Done => StepPause::Unnamed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of a driver whose steps each cause the next one, within so many milliseconds: how many it makes, and the pauses that were named.
    fn circle(pace: &mut StepPace, cause: StepCause, begin: Ms, lasts: Ms, steps_per_ms: u32) -> (u32, Vec<StepPause>) {
        let (mut now, mut of_ms, mut made, mut named) = (begin, 0, 0, Vec::new());
        while now < begin + lasts {
            match pace.step(cause, now) {
                StepPause::None => {}
                StepPause::Unnamed => now += PAUSE_MS,
                pause @ StepPause::Named { .. } => {
                    named.push(pause);
                    now += PAUSE_MS;
                }
            }
            made += 1;
            of_ms += 1;
            if of_ms >= steps_per_ms {
                (now, of_ms) = (now + 1, 0);
            }
        }
        (made, named)
    }

    #[test]
    fn a_circle_of_steps_is_slowed_and_named_once() {
        let mut pace = StepPace::default();
        let (made, named) = circle(&mut pace, StepCause::Event, 5_000, 60_000, 50);
        assert_eq!(named, [StepPause::Named { steps_max: 2_000 }]);
        // 2,000 in the first second, then 100 and one for each pause.
        assert!((10_000..=2_000 + 60 * 200).contains(&made), "{made}");
    }

    #[test]
    fn a_circle_of_what_is_due_is_slowed_though_the_driver_rests_between_its_steps() {
        let mut pace = StepPace::default();
        let (made, named) = circle(&mut pace, StepCause::Due, 0, 60_000, 1);
        assert_eq!(named, [StepPause::Named { steps_max: 300 }]);
        assert!((10_000..=300 + 60 * 200).contains(&made), "{made}");
    }

    #[test]
    fn many_steps_of_an_ordinary_second_are_made_at_once() {
        let mut pace = StepPace::default();
        for second in 0..60 {
            for step in 0..2_000 {
                let cause = if step % 7 == 0 { StepCause::Due } else { StepCause::Event };
                assert_eq!(pace.step(cause, second * 1_000 + step / 2), StepPause::None, "step {step} of second {second}");
            }
        }
    }

    #[test]
    fn steps_are_made_at_once_again_after_a_second_with_few() {
        let mut pace = StepPace::default();
        let (_, named) = circle(&mut pace, StepCause::Event, 0, 10_000, 50);
        assert_eq!(named.len(), 1);
        // The circle has ended. The second that it ended in had many.
        (0..10).for_each(|step| _ = pace.step(StepCause::Event, 11_000 + step));
        let at_once = (0..2_000).filter(|_| pace.step(StepCause::Event, 12_000) == StepPause::None).count();
        assert_eq!(at_once, 2_000);
        // Another circle is slowed, too, and was named already.
        assert_eq!(pace.step(StepCause::Event, 12_000), StepPause::Unnamed);
        let (_, named) = circle(&mut pace, StepCause::Event, 12_000, 10_000, 50);
        assert_eq!(named, []);
    }

    #[test]
    fn a_circle_stays_slowed_while_its_seconds_have_many() {
        let mut pace = StepPace::default();
        let (_, _) = circle(&mut pace, StepCause::Event, 0, 10_000, 50);
        let at_once = (0..1_000).filter(|_| pace.step(StepCause::Event, 10_500) == StepPause::None).count();
        assert!(at_once <= 100, "{at_once}");
    }
}
