//! A checked value on its way from the file into `Config`, and why a text is not one.
use crate::pattern::PatternSet;

/// A value that fits its parameter's kind.
///
/// The accessors give an empty or zero value when asked for another form than the row's kind has. A row whose kind and setter
/// disagree fails the test that compares `Config::default()` with the table. It never fails at an operator's site.
#[derive(Debug, Clone)]
pub enum ParamValue {
    /// on or off.
    Bool(bool),
    /// A whole number; in milliseconds or bytes where the kind has a unit.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// The spelling of the table, whatever the file had.
    Word(&'static str),
    /// Entries without surrounding blanks, empty ones left out.
    List(Vec<String>),
    /// Compiled patterns that match whole texts.
    Patterns(PatternSet),
}

impl ParamValue {
    /// The switch.
    pub fn bool(&self) -> bool {
        matches!(self, ParamValue::Bool(true))
    }

    /// The whole number.
    pub fn int(&self) -> i64 {
        if let ParamValue::Int(number) = self { *number } else { 0 }
    }

    /// The time in milliseconds.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.int()).unwrap_or(0)
    }

    /// The number of things; the row's range keeps it within 32 bits.
    pub fn count(&self) -> u32 {
        u32::try_from(self.int()).unwrap_or(0)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.int()).unwrap_or(0)
    }

    /// The port; the row's range keeps it within 16 bits.
    pub fn port(&self) -> u16 {
        u16::try_from(self.int()).unwrap_or(0)
    }

    /// The number with a fraction.
    pub fn float(&self) -> f64 {
        if let ParamValue::Float(number) = self { *number } else { 0.0 }
    }

    /// The text.
    pub fn text(&self) -> String {
        if let ParamValue::Text(text) = self { text.clone() } else { String::new() }
    }

    /// The word.
    pub fn word(&self) -> &'static str {
        if let ParamValue::Word(word) = self { word } else { "" }
    }

    /// The entries.
    pub fn list(&self) -> Vec<String> {
        if let ParamValue::List(list) = self { list.clone() } else { Vec::new() }
    }

    /// The patterns.
    pub fn patterns(&self) -> PatternSet {
        if let ParamValue::Patterns(patterns) = self { patterns.clone() } else { PatternSet::default() }
    }
}

/// Why a text is not a value of a parameter; always the operator's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not of the right form.
    #[error("invalid value for parameter \"{name}\": \"{value}\" (allowed: {wanted})")]
    Wrong {
        /// Parameter.
        name: String,
        /// Text in the file.
        value: String,
        /// Allowed values.
        wanted: String,
    },
    /// A number outside of the limits.
    #[error("{value} is outside the valid range for parameter \"{name}\" ({min} .. {max})")]
    OutOfRange {
        /// Parameter.
        name: String,
        /// Number with its unit.
        value: String,
        /// Smallest.
        min: String,
        /// Largest.
        max: String,
    },
    /// A regular expression that does not compile.
    #[error("invalid regular expression \"{pattern}\" in parameter \"{name}\": {cause}")]
    BadPattern {
        /// Parameter.
        name: String,
        /// Entry of the list.
        pattern: String,
        /// Message of the compiler of patterns.
        cause: String,
    },
}
