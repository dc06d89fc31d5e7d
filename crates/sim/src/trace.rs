//! A run as lines of text.

use weir_failover::{Action, Event, Found};

/// An action as a line; `None` for what happens all the time.
pub fn action(action: &Action) -> Option<String> {
    match action {
        Action::Probe { .. } | Action::WriteStatus { .. } => None,
        Action::Store { number, .. } => Some(format!("Store {number}")),
        other => Some(format!("{other:?}")),
    }
}

/// An event as a line.
pub fn event(event: &Event) -> Option<String> {
    match event {
        Event::Timer | Event::Doubted | Event::Used { .. } => None,
        Event::Probed { node, begun_at, found: Found::Answered(facts) } => {
            Some(format!("looked at {node} (begun {begun_at}): {:?} at {}, {:?}", facts.recovery, facts.position, facts.mark))
        }
        other => Some(format!("{other:?}")),
    }
}
