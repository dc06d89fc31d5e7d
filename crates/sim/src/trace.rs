//! A run as lines of text.

use weir_failover::{FailoverAction, FailoverEvent, ProbeResult};

/// An action as a line; `None` for what happens all the time.
pub fn action(action: &FailoverAction) -> Option<String> {
    match action {
        FailoverAction::Probe { .. } | FailoverAction::WriteStatus { .. } => None,
        FailoverAction::Store { number, .. } => Some(format!("Store {number}")),
        other => Some(format!("{other:?}")),
    }
}

/// An event as a line.
pub fn event(event: &FailoverEvent) -> Option<String> {
    match event {
        FailoverEvent::Timer | FailoverEvent::Doubted | FailoverEvent::Used { .. } => None,
        FailoverEvent::Probed { node, begun_at, found: ProbeResult::Answered(facts) } => {
            Some(format!("looked at {node} (begun {begun_at}): {:?} at {}, {:?}", facts.recovery, facts.position, facts.mark))
        }
        other => Some(format!("{other:?}")),
    }
}
