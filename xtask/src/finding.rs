//! Findings of a check.

use std::fmt;

use anyhow::{Result, bail};

/// One thing to mend.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the workspace's folder.
    pub path: String,
    /// Its line, from 1.
    pub line: usize,
    /// The fault, and its repair.
    pub text: String,
}

impl Finding {
    /// A finding at a line.
    pub fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// Prints all findings. Error: there is one.
pub fn report(check: &str, findings: &[Finding]) -> Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{check}: {} to mend", findings.len());
    }
    println!("{check}: all in order");
    Ok(())
}
