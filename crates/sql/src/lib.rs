//! Text to facts: PostgreSQL's parser reads it, a walk over the tree notes facts.
//!
//! Invariants: no text panics, aborts or overflows a stack (`tree_walk` keeps its own); nothing here decides. Assumes
//! names in UTF-8 (see `beyond_ascii`) and `standard_conforming_strings` on.
pub mod beyond_ascii;
pub mod body;
mod executed;
pub mod facts;
pub mod leaves;
pub mod own;
pub mod passing;
pub mod skeleton;
pub mod syntax;
pub mod without_literals;

mod children;
mod defines;
mod hint;
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
pub use parse::{facts, prepare_named};

/// Longest text that is parsed, in bytes; a longer one is `Refused` and `Unknown`. A tree takes up to 100 bytes per
/// byte (`1+1+1...`), so a parse is bounded to about 200 MB and half a second.
pub const TEXT_BYTES_MAX: usize = 2 << 20;
