//! A checked value on its way into `Config`, and the errors of a text.
use crate::pattern::PatternSet;

/// A value that fits its parameter's kind.
///
/// Accessors return an empty or zero value for another form. A row whose kind and setter disagree fails the test that compares
/// `Config::default()` with the table, never at an operator's site.
#[derive(Debug, Clone)]
pub enum ParamValue {
    Bool(bool),
    /// A whole number, in milliseconds or bytes where the kind has a unit.
    Int(i64),
    Float(f64),
    Text(String),
    /// The table's spelling.
    Word(&'static str),
    /// Trimmed entries, without empty ones.
    List(Vec<String>),
    /// Compiled patterns that match whole texts.
    Patterns(PatternSet),
}

impl ParamValue {
    pub fn bool(&self) -> bool {
        matches!(self, ParamValue::Bool(true))
    }

    pub fn int(&self) -> i64 {
        if let ParamValue::Int(number) = self { *number } else { 0 }
    }

    /// Milliseconds.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.int()).unwrap_or(0)
    }

    /// The row's range keeps it within 32 bits.
    pub fn count(&self) -> u32 {
        u32::try_from(self.int()).unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        usize::try_from(self.int()).unwrap_or(0)
    }

    /// The row's range keeps it within 16 bits.
    pub fn port(&self) -> u16 {
        u16::try_from(self.int()).unwrap_or(0)
    }

    pub fn float(&self) -> f64 {
        if let ParamValue::Float(number) = self { *number } else { 0.0 }
    }

    pub fn text(&self) -> String {
        if let ParamValue::Text(text) = self { text.clone() } else { String::new() }
    }

    pub fn word(&self) -> &'static str {
        if let ParamValue::Word(word) = self { word } else { "" }
    }

    pub fn list(&self) -> Vec<String> {
        if let ParamValue::List(list) = self { list.clone() } else { Vec::new() }
    }

    pub fn patterns(&self) -> PatternSet {
        if let ParamValue::Patterns(patterns) = self { patterns.clone() } else { PatternSet::default() }
    }
}

/// Error of a parameter's text, by the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("invalid value for parameter \"{name}\": \"{value}\" (allowed: {wanted})")]
    Wrong { name: String, value: String, wanted: String },
    #[error("{value} is outside the valid range for parameter \"{name}\" ({min} .. {max})")]
    OutOfRange { name: String, value: String, min: String, max: String },
    #[error("invalid regular expression \"{pattern}\" in parameter \"{name}\": {cause}")]
    BadPattern { name: String, pattern: String, cause: String },
}
