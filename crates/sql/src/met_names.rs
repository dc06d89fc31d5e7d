//! Names met on a walk: each once, in order of appearance, also when there are a hundred thousand.

use pg_raw_parse::Node;

use crate::facts::QualifiedName;

/// One sight of a name; ordered by name and then by place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NameOccurrence<'a> {
    schema: &'a str,
    name: &'a str,
    /// Byte offset in the text, then the order in which the walk came by, as some nodes have no place of their own.
    place: (i32, u32),
}

/// A growing set of names that borrows from the tree.
#[derive(Default)]
pub(crate) struct NameCollector<'a> {
    seen: Vec<NameOccurrence<'a>>,
}

impl<'a> NameCollector<'a> {
    /// Notes a name at its byte offset in the text.
    pub(crate) fn add(&mut self, (schema, name): (&'a str, &'a str), location: i32) {
        let turn = self.seen.len() as u32; // at most one name per byte of a text of limited length
        self.seen.push(NameOccurrence { schema, name, place: (location, turn) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Each name once, where it appeared first.
    pub(crate) fn into_names(mut self) -> Vec<QualifiedName> {
        if self.seen.len() > 1 {
            self.seen.sort_unstable();
            self.seen.dedup_by_key(|seen| (seen.schema, seen.name));
            self.seen.sort_unstable_by_key(|seen| seen.place);
        }
        self.seen.iter().map(|seen| QualifiedName { schema: seen.schema.to_owned(), name: seen.name.to_owned() }).collect()
    }
}

/// Schema and name of a dotted name, given as the parser's list of strings; a database name before them is dropped.
pub(crate) fn qualified<'a>(parts: impl Iterator<Item = Node<'a>>) -> (&'a str, &'a str) {
    let (mut schema, mut name) = ("", "");
    for part in parts {
        schema = name;
        name = part.as_str().unwrap_or_default();
    }
    (schema, name)
}

/// True if a schema is the session's own for temporary objects: `pg_temp` itself or `pg_temp_3`.
pub(crate) fn is_temporary_schema(schema: &str) -> bool {
    schema.strip_prefix("pg_temp").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}
