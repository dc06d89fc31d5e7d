//! Text to facts: PostgreSQL's parser reads it, a walk over the tree notes facts.
//!
//! Invariants: no text panics, aborts or overflows a stack (`tree_walk` keeps its own); nothing here decides. Assumes
//! names in UTF-8 (see `beyond_ascii`) and `standard_conforming_strings` on.
pub mod beyond_ascii;
pub mod body;
pub mod copy_from;
pub mod copy_to;
pub mod defined_names;
pub mod definition_terms;
mod executed;
pub mod facts;
pub mod insert_rows;
pub mod key_terms;
pub mod leaves;
pub mod literal;
pub mod own;
pub mod passing;
pub mod skeleton;
pub mod syntax;
pub mod without_literals;

mod children;
mod defines;
mod hint;
mod key_aggregates;
mod key_conditions;
mod key_gates;
mod key_sets;
mod key_walk;
mod met_names;
mod parse;
mod refused_text;
mod set_statements;
mod statement;
mod statement_changes;
mod tree_walk;
mod verb;

pub use crate::set_statements::{SetParameterNames, names_set};
pub use executed::prepared_query;
pub use key_walk::key_terms;
pub use parse::{facts, prepare_named, syntax_error};

/// The parser's version, to be shown. It is that of `pg_raw_parse`, which holds PostgreSQL's sources.
pub const PARSER: &str = "PostgreSQL 18.4 (pg_raw_parse 0.1.0)";

/// Longest text that is parsed, in bytes; a longer one is `Refused` and `Unknown`. A tree takes up to 100 bytes per
/// byte (`1+1+1...`), so a parse is bounded to about 200 MB and half a second.
pub const TEXT_BYTES_MAX: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::PARSER;

    /// Another release may have the parser of another version: its `libpg_query/pg_query.h` says which.
    #[test]
    fn the_named_parser_is_the_one_that_is_built_in() {
        let lock = include_str!("../../../Cargo.lock");
        let version = lock.split("name = \"pg_raw_parse\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
        let version = version.expect("the lock file names the parser");
        assert!(PARSER.ends_with(&format!("(pg_raw_parse {version})")), "{PARSER}: {version}");
    }
}
