//! Goals of events with agents: values that must be reached, values aimed at, and the measured ones.

use serde_json::Value;

use super::page::{self, Rounds};
use crate::bench::goals::Verdict;

/// Head of the table.
pub const HEAD: &str = "\n| event | goal | measured | must | aim | verdict |\n|---|---|---|---|---|---|\n";

/// A number of all rounds of a row, the lower the better.
struct Goal {
    row: &'static str,
    what: &'static str,
    unit: Unit,
    measured: fn(&Rounds) -> u64,
    must: u64,
    aim: u64,
}

#[derive(Debug, Clone, Copy)]
enum Unit {
    Count,
    Millis,
}

impl Unit {
    fn show(self, value: u64) -> String {
        match self {
            Unit::Count => value.to_string(),
            Unit::Millis if value == u64::MAX => "no end".into(),
            Unit::Millis => page::seconds(value),
        }
    }
}

const fn none(what: &'static str, measured: fn(&Rounds) -> u64) -> Goal {
    Goal { row: "switchover", what, unit: Unit::Count, measured, must: 0, aim: 0 }
}

const fn returns(row: &'static str) -> Goal {
    let what = "longest time until the old primary streams";
    Goal { row, what, unit: Unit::Millis, measured: |rounds| rounds.longest_return_ms(), must: 30_000, aim: 15_000 }
}

const GOALS: [Goal; 7] = [
    Goal {
        row: "switchover",
        what: "longest time without an acknowledged write",
        unit: Unit::Millis,
        measured: |rounds| rounds.most("gap_ms"),
        must: 2000,
        aim: 700,
    },
    none("statements failed", |rounds| rounds.failed() + rounds.sum("failed_reads")),
    none("sessions lost", |rounds| rounds.sum("sessions_lost")),
    none("acknowledged writes missing", |rounds| rounds.sum("missing")),
    none("switchovers refused", |rounds| rounds.by("refused")),
    returns("return"),
    returns("return-copy"),
];

/// The lines of rows that were measured.
pub fn lines(entries: &[Value]) -> String {
    let mut lines = String::new();
    for goal in &GOALS {
        let entry = entries.iter().find(|entry| entry["row"] == goal.row);
        lines.extend(entry.map(|entry| goal.line(entry)));
    }
    lines
}

impl Goal {
    fn line(&self, entry: &Value) -> String {
        let measured = (self.measured)(&Rounds::of(entry));
        let [shown, must, aim] = [measured, self.must, self.aim].map(|value| self.unit.show(value));
        format!("| {} | {} | {shown} | {must} | {aim} | {} |\n", page::title(entry), self.what, self.verdict(measured).word())
    }

    fn verdict(&self, measured: u64) -> Verdict {
        if measured <= self.aim {
            Verdict::Aim
        } else if measured <= self.must {
            Verdict::Must
        } else {
            Verdict::Missed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::failover::row::ROWS;
    use serde_json::json;

    #[test]
    fn every_goal_names_an_event_with_agents() {
        for goal in &GOALS {
            assert!(ROWS.iter().any(|row| row.name == goal.row && row.has_agents()), "{}", goal.row);
        }
    }

    #[test]
    fn the_worst_round_is_held_against_the_goal() {
        let round = |gap: u64| json!({ "gap_ms": gap, "failed": {}, "failed_reads": 0, "returned_by": "start" });
        let with = |gaps: [u64; 2]| lines(&[json!({ "row": "switchover", "rounds": gaps.map(round) })]);
        let first = |lines: String| lines.lines().next().map(str::to_owned).unwrap_or_default();
        let what = "| switchover (`pcp_promote_node -s`) | longest time without an acknowledged write";
        assert_eq!(first(with([300, 700])), format!("{what} | 0.70 s | 2.00 s | 0.70 s | reaches the aim |"));
        assert_eq!(first(with([300, 1900])), format!("{what} | 1.90 s | 2.00 s | 0.70 s | reached |"));
        assert_eq!(first(with([2001, 300])), format!("{what} | 2.00 s | 2.00 s | 0.70 s | MISSED |"));
        assert_eq!(lines(&[]), "");
    }

    #[test]
    fn a_server_that_does_not_come_back_misses_the_goal() {
        let round = |returned_ms: Value| json!({ "returned_ms": returned_ms, "returned_by": "rewind" });
        let with = |last: Value| lines(&[json!({ "row": "return", "rounds": [round(json!(4000)), round(last)] })]);
        assert!(with(json!(5000)).contains("| 5.00 s | 30.00 s | 15.00 s | reaches the aim |"));
        assert!(with(json!(null)).contains("| no end | 30.00 s | 15.00 s | MISSED |"));
    }

    #[test]
    fn any_failure_of_a_switchover_misses_the_goal() {
        let failed = json!({ "failed": { "40001": 1 }, "failed_reads": 1, "returned_by": "refused" });
        let lines = lines(&[json!({ "row": "switchover", "rounds": [failed] })]);
        assert!(lines.contains("| statements failed | 2 | 0 | 0 | MISSED |"), "{lines}");
        assert!(lines.contains("| switchovers refused | 1 | 0 | 0 | MISSED |"), "{lines}");
        assert!(lines.contains("| sessions lost | 0 | 0 | 0 | reaches the aim |"), "{lines}");
    }
}
