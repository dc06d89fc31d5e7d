//! Text to facts: PostgreSQL's own parser reads a query string, and a walk over its tree notes the facts for routing, pooling
//! and caching. The tree is dropped.
//!
//! Invariants: no text panics, aborts or overflows a stack (`tree_walk` keeps its own); nothing here decides anything.
//!
//! The parser assumes two things of the session, which the caller must know. The names in the text are UTF-8, as a database in
//! UTF-8 has them: in other sessions, names beyond ASCII are others than they are here (`beyond_ascii`). And
//! `standard_conforming_strings` is on: in other sessions, plain strings that hold a backslash may end elsewhere.
pub mod beyond_ascii;
pub mod body;
mod executed;
pub mod facts;
pub mod leaves;
pub mod own;
pub mod passing;
pub mod skeleton;
pub mod syntax;

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

/// The longest text that is parsed, in bytes; a longer one is `Refused` and `Unknown`.
///
/// A tree takes up to 100 bytes for every byte of text (`1+1+1...`), so this bounds one parse to about 200 MB and half a
/// second of one thread. The statements of ordinary drivers stay far below it.
pub const TEXT_BYTES_MAX: usize = 2 << 20;
