//! Sessions' statements: a list of steps made from a seed.

use crate::dice::Dice;
use crate::grammar::{Grammar, Standing};

/// How a text goes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One Query message.
    Simple,
    /// Parse, Bind, Describe, Execute, Sync.
    Extended,
}

/// One thing one session does.
#[derive(Clone, Debug)]
pub struct Step {
    pub session: usize,
    pub text: String,
    pub how: How,
    /// Goes on only when Weir has read the catalog again. Otherwise the next statement comes while it does.
    pub waits_for_catalog: bool,
}

/// Kind of a script.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub sessions: usize,
    /// Sessions look at each other's tables.
    pub reads_others: bool,
    pub steps: usize,
}

/// Makes a script.
pub fn make(dice: &mut Dice, kind: Kind) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut standing = vec![Standing::Alone; kind.sessions];
    while steps.len() < kind.steps {
        let session = dice.below(kind.sessions);
        // Locks of an open transaction would stop a session that looks at its tables, and the script with it.
        let is_quiet = standing.iter().all(|standing| *standing == Standing::Alone);
        let others = if kind.reads_others && is_quiet { kind.sessions } else { 0 };
        let mut grammar = Grammar::new(dice, session, others, standing[session]);
        let statement = grammar.statement();
        standing[session] = statement.leaves;
        let is_definition = statement.defines;
        let how = if statement.is_one && dice.once_in(3) { How::Extended } else { How::Simple };
        let waits_for_catalog = is_definition && dice.once_in(2);
        steps.push(Step { session, text: statement.text, how, waits_for_catalog });
    }
    for (session, _) in standing.iter().enumerate().filter(|(_, standing)| **standing != Standing::Alone) {
        steps.push(Step { session, text: "commit".into(), how: How::Simple, waits_for_catalog: false });
    }
    steps
}

/// The script as it can be read.
pub fn print(steps: &[Step]) -> String {
    let line = |step: &Step| format!("  session {} {:?}: {}\n", step.session, step.how, step.text);
    steps.iter().map(line).collect()
}

/// Scripts with less in them: first without large parts, then without each step.
pub fn smaller(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    let mut length = steps.len() / 2;
    while length > 0 {
        // From the end: the last steps show the difference, and are needed.
        for start in (0..steps.len().saturating_sub(1)).step_by(length) {
            let end = (start + length).min(steps.len() - 1);
            all.push([&steps[..start], &steps[end..]].concat());
        }
        length /= 2;
    }
    all
}
