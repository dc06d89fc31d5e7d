//! The length of a run.

/// How long a run goes on.
#[derive(Debug, Clone, Copy)]
pub enum RunAmount {
    /// Until this many seconds have passed.
    Seconds(u32),
    /// Until about this many transactions (statements, results) are done.
    Transactions(u32),
}
