//! The definition of a reference table, as far as writes to its copies ask.

/// Columns of a reference table on shard 0, and why its copies might not stay equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceTable {
    /// Names of all columns, in order.
    pub columns: Vec<String>,
    /// Columns whose default each server computes by itself: the time, a number of a sequence.
    pub unsteady_defaults: Vec<String>,
    /// A trigger, a rule or the like, by which each copy might change otherwise.
    pub obstacle: Option<String>,
}
