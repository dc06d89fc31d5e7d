//! Progress of long commands, for a person at a terminal: one line on the standard error, drawn over as the work goes on and removed at its end.
//!
//! Nothing is written where nobody looks: not to a file or a pipe, not to a terminal that cannot draw over a line, not with `NO_COLOR` or `--quiet`.
//! Output for programs stays as it is.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The clock of a line whose work stands still goes on.
const TICK_PERIOD: Duration = Duration::from_millis(250);

/// Wish of the one who gave the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressWish {
    Shown,
    /// `--quiet`.
    Quiet,
}

impl ProgressWish {
    pub fn of_quiet(is_quiet: bool) -> ProgressWish {
        if is_quiet { ProgressWish::Quiet } else { ProgressWish::Shown }
    }
}

/// Facts that decide about a line.
#[derive(Clone, Debug)]
struct TerminalFacts {
    is_terminal: bool,
    /// `NO_COLOR`, as <https://no-color.org> has it: an empty value does not count.
    no_color: Option<String>,
    term: Option<String>,
}

impl TerminalFacts {
    fn of_standard_error() -> TerminalFacts {
        let value = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        TerminalFacts { is_terminal: std::io::stderr().is_terminal(), no_color: value("NO_COLOR"), term: value("TERM") }
    }

    fn can_show(&self) -> bool {
        let is_plain = self.no_color.as_deref().is_some_and(|value| !value.is_empty());
        let draws_over = self.term.as_deref().is_some_and(|term| !term.is_empty() && term != "dumb");
        self.is_terminal && !is_plain && draws_over
    }
}

/// The amount of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkAmount {
    Bytes {
        total: u64,
    },
    /// `unit`: a word in the plural.
    Count {
        total: u64,
        unit: &'static str,
    },
    /// Nobody knows how much there is.
    Open {
        unit: &'static str,
    },
    /// Nobody knows how much of it is done.
    Unknown,
}

impl WorkAmount {
    fn total(self) -> Option<u64> {
        match self {
            WorkAmount::Bytes { total } | WorkAmount::Count { total, .. } => Some(total),
            WorkAmount::Open { .. } | WorkAmount::Unknown => None,
        }
    }

    fn template(self) -> String {
        match self {
            WorkAmount::Bytes { .. } => "{msg} [{bar:24}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left".to_owned(),
            WorkAmount::Count { unit, .. } => format!("{{msg}} [{{bar:24}}] {{pos}} of {{len}} {unit}, {{elapsed}}"),
            WorkAmount::Open { unit } => format!("{{msg}} {{human_pos}} {unit}, {{rate}}, {{elapsed}}"),
            WorkAmount::Unknown => "{msg}, {elapsed}".to_owned(),
        }
    }

    fn style(self) -> ProgressStyle {
        let style = ProgressStyle::with_template(&self.template()).unwrap_or_else(|_| ProgressStyle::default_bar());
        style.progress_chars("=> ").with_key("rate", write_rate)
    }
}

/// Whole numbers: parts of a row say nothing.
fn write_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A line that cannot be put together is left out.
    let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
}

/// The line of a command. It goes when it is dropped.
#[derive(Debug)]
pub struct ProgressLine {
    bar: ProgressBar,
}

impl ProgressLine {
    /// No line is drawn before the first piece of work.
    pub fn new(wish: ProgressWish) -> ProgressLine {
        let is_shown = wish == ProgressWish::Shown && TerminalFacts::of_standard_error().can_show();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        ProgressLine { bar: ProgressBar::with_draw_target(None, target) }
    }

    /// A line that is never drawn.
    pub fn hidden() -> ProgressLine {
        ProgressLine { bar: ProgressBar::hidden() }
    }

    /// Begins a piece of work, named in the present: "copying standby1".
    pub fn begin(&self, work: &str, amount: WorkAmount) {
        if self.bar.is_hidden() {
            return;
        }
        // At rest it is not drawn between two changes.
        self.rest();
        self.bar.set_style(amount.style());
        self.bar.set_message(work.to_owned());
        match amount.total() {
            Some(total) => self.bar.set_length(total),
            None => self.bar.unset_length(),
        }
        self.bar.reset();
        self.bar.enable_steady_tick(TICK_PERIOD);
    }

    /// Names what is at hand, within the piece of work.
    pub fn name(&self, work: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(work.to_owned());
        }
    }

    /// So much of the piece of work is done.
    pub fn reach(&self, done: u64) {
        self.bar.set_position(done);
    }

    pub fn advance(&self, more: u64) {
        self.bar.inc(more);
    }

    /// Prints something beside the line, which comes back below it.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Removes the line until the next piece of work.
    pub fn rest(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{InMemoryTerm, TermLike};

    #[test]
    fn a_line_is_drawn_where_a_person_looks_and_nowhere_else() {
        let facts = |is_terminal, no_color: Option<&str>, term: Option<&str>| TerminalFacts {
            is_terminal,
            no_color: no_color.map(str::to_owned),
            term: term.map(str::to_owned),
        };
        for (facts, expected) in [
            (facts(true, None, Some("xterm-256color")), true),
            (facts(true, Some(""), Some("linux")), true),
            (facts(false, None, Some("xterm")), false),
            (facts(true, Some("1"), Some("xterm")), false),
            (facts(true, None, Some("dumb")), false),
            (facts(true, None, Some("")), false),
            (facts(true, None, None), false),
        ] {
            assert_eq!(facts.can_show(), expected, "{facts:?}");
        }
    }

    fn shown_on(terminal: &InMemoryTerm) -> ProgressLine {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()) as Box<dyn TermLike>, 255);
        ProgressLine { bar: ProgressBar::with_draw_target(None, target) }
    }

    #[test]
    fn a_line_tells_the_work_and_how_much_of_it_is_done() {
        let terminal = InMemoryTerm::new(4, 120);
        let line = shown_on(&terminal);
        line.begin("copying standby1", WorkAmount::Bytes { total: 4 << 20 });
        line.reach(1 << 20);
        line.bar.force_draw();
        let shown = terminal.contents();
        assert!(shown.starts_with("copying standby1 [======>") && shown.contains("1.00 MiB of 4.00 MiB, "), "{shown}");
        line.begin("asking", WorkAmount::Count { total: 12, unit: "servers" });
        line.name("asking node 3");
        line.advance(3);
        line.bar.force_draw();
        let shown = terminal.contents();
        assert!(shown.starts_with("asking node 3 [") && shown.contains("] 3 of 12 servers, "), "{shown}");
        line.begin("copying items", WorkAmount::Open { unit: "rows" });
        line.reach(12_345);
        line.bar.force_draw();
        let shown = terminal.contents();
        assert!(shown.starts_with("copying items 12,345 rows, "), "{shown}");
        line.rest();
        assert_eq!(terminal.contents(), "", "nothing is left of it");
        line.begin("initialising primary", WorkAmount::Unknown);
        line.bar.force_draw();
        assert_eq!(terminal.contents(), "initialising primary, 0s");
        line.aside(|| assert_eq!(terminal.contents(), "", "room for other words"));
        drop(line);
        assert_eq!(terminal.contents(), "", "nothing is left of it");
    }
}
