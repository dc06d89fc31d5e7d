//! Names met on a walk, each once, in order of appearance; fast for a hundred thousand.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::Alias;

use crate::facts::QualifiedName;

/// Ordered by name, then place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NameOccurrence<'a> {
    schema: &'a str,
    name: &'a str,
    /// Byte offset, then order of the walk: some nodes have no offset.
    place: (i32, u32),
}

#[derive(Default)]
pub(crate) struct NameCollector<'a> {
    seen: Vec<NameOccurrence<'a>>,
}

impl<'a> NameCollector<'a> {
    pub(crate) fn add(&mut self, (schema, name): (&'a str, &'a str), location: i32) {
        let turn = self.seen.len() as u32; // at most one name per byte of a text of limited length
        self.seen.push(NameOccurrence { schema, name, place: (location, turn) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    pub(crate) fn into_names(mut self) -> Vec<QualifiedName> {
        if self.seen.len() > 1 {
            self.seen.sort_unstable();
            self.seen.dedup_by_key(|seen| (seen.schema, seen.name));
            self.seen.sort_unstable_by_key(|seen| seen.place);
        }
        self.seen.iter().map(|seen| QualifiedName { schema: seen.schema.to_owned(), name: seen.name.to_owned() }).collect()
    }
}

/// Schema and name of a dotted name; a database name is dropped.
pub(crate) fn qualified<'a>(parts: impl Iterator<Item = Node<'a>>) -> (&'a str, &'a str) {
    let (mut schema, mut name) = ("", "");
    for part in parts {
        schema = name;
        name = part.as_str().unwrap_or_default();
    }
    (schema, name)
}

/// True for `pg_temp` and `pg_temp_3`.
pub(crate) fn is_temporary_schema(schema: &str) -> bool {
    schema.strip_prefix("pg_temp").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Alias and name of an item in FROM that is no relation and no query.
pub(crate) fn function_names(item: Node<'_>) -> (Option<&Alias>, Option<&str>) {
    match item {
        Node::RangeFunction(of) => {
            let call = of.functions().iter().find_map(|part| match part {
                Node::NodeList(list) => list.first(),
                _ => None,
            });
            let name = match call {
                Some(Node::FuncCall(call)) => Some(qualified(call.funcname().iter()).1),
                _ => None,
            };
            (of.alias(), name)
        }
        Node::RangeTableFunc(of) => (of.alias(), Some("xmltable")),
        Node::JsonTable(of) => (of.alias(), Some("json_table")),
        _ => (None, None),
    }
}

pub(crate) fn strings<'a>(nodes: impl Iterator<Item = Node<'a>>) -> Vec<String> {
    nodes.map(|node| node.as_str().unwrap_or_default().to_owned()).collect()
}
