//! Names of columns to shard keys, as PostgreSQL looks names up: from the innermost query outwards. A name that might mean something else is none.
//!
//! Source: `colNameToVar`, `refnameNamespaceItem` and `setNamespaceLateralState` in `src/backend/parser`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{
    BlockId, ColumnMerge, ColumnQualifier, ColumnTerm, GroupId, KeyTerms, MergeSide, NameScope, Occurrence, OccurrenceSource,
    OutputColumn, ScopeId, ScopeParent,
};

use crate::key_reading::{KeyReading, is_same_family};
use crate::key_value::KeyKind;
use crate::sharded_table::ShardedTable;

/// Number of a `KeyNode`.
pub(crate) type NodeId = usize;

/// A column that is a shard key.
#[derive(Clone, Debug)]
pub(crate) struct KeyNode {
    /// Group whose row has it.
    pub(crate) group: GroupId,
    pub(crate) kind: KeyKind,
    pub(crate) of: KeyOwner,
}

#[derive(Clone, Debug)]
pub(crate) enum KeyOwner {
    Table(Arc<ShardedTable>),
    /// A column of a query's result that is always equal to these, or NULL.
    Result(Vec<KeyReading>),
}

/// Columns of one occurrence.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownColumns {
    /// In order, as far as they are known.
    order: Vec<(String, Option<NodeId>)>,
    by_name: BTreeMap<String, NamedColumn>,
    completeness: Completeness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedColumn {
    Once(Option<NodeId>),
    /// A name of two columns, which no text may use.
    Twice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Completeness {
    AllKnown,
    #[default]
    OthersMayBe,
}

impl KnownColumns {
    /// `renames`: new names of the first columns.
    pub(crate) fn new(columns: Vec<(String, Option<NodeId>)>, completeness: Completeness, renames: &[String]) -> KnownColumns {
        if !renames.is_empty() && completeness == Completeness::OthersMayBe {
            return KnownColumns::default();
        }
        let mut order = columns;
        order.iter_mut().zip(renames).for_each(|((name, _), new)| name.clone_from(new));
        let mut by_name = BTreeMap::new();
        for (name, node) in &order {
            by_name.entry(name.clone()).and_modify(|column| *column = NamedColumn::Twice).or_insert(NamedColumn::Once(*node));
        }
        KnownColumns { order, by_name, completeness }
    }

    fn renamed(&self, renames: &[String]) -> KnownColumns {
        KnownColumns::new(self.order.clone(), self.completeness, renames)
    }
}

/// The answer of one query to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelAnswer {
    /// `None`: a column that is no key.
    Column(Option<NodeId>),
    /// None of its names: the query around it may have it.
    Missing,
    /// It cannot be said.
    Unsure,
}

/// Names of a text.
pub(crate) struct KeyNames<'t> {
    terms: &'t KeyTerms,
    /// By block and occurrence.
    columns: Vec<Vec<KnownColumns>>,
    /// By node.
    kinds: Vec<KeyKind>,
}

impl<'t> KeyNames<'t> {
    pub(crate) fn new(terms: &'t KeyTerms) -> KeyNames<'t> {
        let columns = terms.blocks.iter().map(|block| vec![KnownColumns::default(); block.occurrences.len()]).collect();
        KeyNames { terms, columns, kinds: Vec::new() }
    }

    /// Tells the type of the next node.
    pub(crate) fn add_kind(&mut self, kind: KeyKind) {
        self.kinds.push(kind);
    }

    /// The key that a column of the text is.
    pub(crate) fn resolve(&self, scope: ScopeId, column: &ColumnTerm) -> Option<NodeId> {
        let mut at = self.terms.scopes.get(scope)?;
        loop {
            let answer = match &column.of {
                Some(of) => self.qualified(at, of, &column.name),
                None => self.unqualified(at.block, &at.occurrences, &column.name),
            };
            match answer {
                LevelAnswer::Column(node) => return node,
                LevelAnswer::Unsure => return None,
                LevelAnswer::Missing => {}
            }
            at = match at.around {
                ScopeParent::Scope(scope) => self.terms.scopes.get(scope)?,
                ScopeParent::Nothing | ScopeParent::Unknown => return None,
            };
        }
    }

    fn occurrences(&self, block: BlockId, range: &Range<usize>) -> impl Iterator<Item = (&'t Occurrence, &KnownColumns)> {
        let occurrences = self.terms.blocks[block].occurrences[range.clone()].iter();
        occurrences.zip(&self.columns[block][range.clone()])
    }

    fn qualified(&self, scope: &NameScope, of: &ColumnQualifier, name: &str) -> LevelAnswer {
        let mut found = LevelAnswer::Missing;
        for (occurrence, columns) in self.occurrences(scope.block, &scope.occurrences) {
            match is_named(occurrence, of) {
                NameMatch::No => {}
                NameMatch::Unsure => return LevelAnswer::Unsure,
                NameMatch::Yes if found != LevelAnswer::Missing || is_hidden(occurrence, &scope.occurrences) => {
                    return LevelAnswer::Unsure;
                }
                NameMatch::Yes => {
                    found = match columns.by_name.get(name) {
                        Some(NamedColumn::Once(node)) => LevelAnswer::Column(*node),
                        Some(NamedColumn::Twice) | None => LevelAnswer::Unsure,
                    }
                }
            }
        }
        found
    }

    fn unqualified(&self, block: BlockId, range: &Range<usize>, name: &str) -> LevelAnswer {
        let merges = || self.merges_within(block, range).filter(|merge| may_merge(merge, name));
        if merges().any(|merge| merge.side == MergeSide::Outer) {
            return LevelAnswer::Unsure;
        }
        let is_merged = merges().next().is_some();
        let (mut found, mut is_complete) = (LevelAnswer::Missing, true);
        for (occurrence, columns) in self.occurrences(block, range) {
            if is_hidden(occurrence, range) {
                return LevelAnswer::Unsure;
            }
            is_complete &= columns.completeness == Completeness::AllKnown;
            match (columns.by_name.get(name), found) {
                (None, _) => {}
                (Some(NamedColumn::Once(node)), LevelAnswer::Missing) => found = LevelAnswer::Column(*node),
                // Inner joins that merge keys of one family make them equal. Another column might give the merged one its type, and without a merge the
                // name is ambiguous.
                (Some(NamedColumn::Once(Some(node))), LevelAnswer::Column(Some(first)))
                    if is_merged && is_same_family(self.kinds[first], self.kinds[*node]) => {}
                (Some(_), _) => return LevelAnswer::Unsure,
            }
        }
        let is_sure = is_complete || (found != LevelAnswer::Missing && !is_merged);
        if is_sure { found } else { LevelAnswer::Unsure }
    }

    fn merges_within(&self, block: BlockId, range: &Range<usize>) -> impl Iterator<Item = &'t ColumnMerge> {
        let range = range.clone();
        let is_within = move |merge: &&ColumnMerge| range.start <= merge.left.start && merge.right.end <= range.end;
        self.terms.blocks[block].merges.iter().filter(is_within)
    }

    /// Keys that a join makes equal.
    pub(crate) fn merged(&self, block: BlockId, merge: &ColumnMerge) -> Vec<(NodeId, NodeId)> {
        let all_names = || {
            let names = self.occurrences(block, &merge.left).flat_map(|(_, columns)| columns.by_name.keys().cloned());
            names.collect::<Vec<String>>()
        };
        let key = |range: &Range<usize>, name: &str| match self.unqualified(block, range, name) {
            LevelAnswer::Column(node) => node,
            LevelAnswer::Missing | LevelAnswer::Unsure => None,
        };
        let names = merge.names.clone().unwrap_or_else(all_names);
        names.iter().filter_map(|name| key(&merge.left, name).zip(key(&merge.right, name))).collect()
    }

    /// Columns of a query's result.
    pub(crate) fn outputs(&self, block: BlockId) -> KnownColumns {
        let of = &self.terms.blocks[block];
        let mut columns = Vec::new();
        let mut completeness = Completeness::AllKnown;
        for output in &of.outputs {
            match output {
                OutputColumn::Column { name, of: column } => columns.push((name.clone(), self.resolve(of.scope, column))),
                OutputColumn::Other { name } if name.is_empty() => {
                    completeness = Completeness::OthersMayBe;
                    columns.push((String::new(), None));
                }
                OutputColumn::Other { name } => columns.push((name.clone(), None)),
                OutputColumn::Star { of: star } => match self.star(block, star.as_ref()) {
                    Some(of_star) => columns.extend(of_star),
                    None => completeness = Completeness::OthersMayBe,
                },
            }
        }
        KnownColumns::new(columns, completeness, &of.output_aliases)
    }

    /// The key that a column of a query's result is, by its place.
    pub(crate) fn output_at(&self, block: BlockId, at: usize) -> Option<NodeId> {
        let outputs = self.outputs(block);
        let has_star = self.terms.blocks[block].outputs.iter().any(|output| matches!(output, OutputColumn::Star { .. }));
        // A star of unknown columns hides the places of those behind it.
        if has_star && outputs.completeness == Completeness::OthersMayBe {
            return None;
        }
        outputs.order.get(at).and_then(|(_, node)| *node)
    }

    /// `None`: its columns are not known.
    fn star(&self, block: BlockId, of: Option<&QualifiedName>) -> Option<Vec<(String, Option<NodeId>)>> {
        let all = 0..self.terms.blocks[block].occurrences.len();
        if !self.terms.blocks[block].merges.is_empty() {
            return None;
        }
        let mut columns = Vec::new();
        let mut count = 0;
        for (occurrence, known) in self.occurrences(block, &all) {
            let is_meant = match of.map(|of| is_named(occurrence, of)) {
                None | Some(NameMatch::Yes) => true,
                Some(NameMatch::No) => false,
                Some(NameMatch::Unsure) => return None,
            };
            if is_meant {
                if is_hidden(occurrence, &all) || known.completeness == Completeness::OthersMayBe {
                    return None;
                }
                columns.extend(known.order.iter().cloned());
                count += 1;
            }
        }
        // `t.*` of a query further out is a row of constants.
        (count == 1 || of.is_none()).then_some(columns)
    }

    /// Columns under the names that an occurrence gives them.
    pub(crate) fn set_columns(&mut self, block: BlockId, occurrence: usize, columns: &KnownColumns) {
        let renames = &self.terms.blocks[block].occurrences[occurrence].column_aliases;
        self.columns[block][occurrence] = columns.renamed(renames);
    }
}

impl KnownColumns {
    /// `change` gives another node for each.
    pub(crate) fn with_nodes(&self, mut change: impl FnMut(NodeId) -> Option<NodeId>) -> KnownColumns {
        let columns = self.order.iter().map(|(name, node)| (name.clone(), node.and_then(&mut change))).collect();
        KnownColumns::new(columns, self.completeness, &[])
    }
}

enum NameMatch {
    Yes,
    No,
    Unsure,
}

fn is_named(occurrence: &Occurrence, of: &ColumnQualifier) -> NameMatch {
    if of.schema.is_empty() {
        return match &occurrence.source {
            _ if occurrence.alias == of.name => NameMatch::Yes,
            // PostgreSQL makes up a name of its own.
            OccurrenceSource::Unknown if occurrence.alias.is_empty() => NameMatch::Unsure,
            _ => NameMatch::No,
        };
    }
    // A name with a schema means the relation, which the search path may find under its name alone.
    match &occurrence.source {
        OccurrenceSource::Relation(name) if !occurrence.is_renamed && name == of => NameMatch::Yes,
        OccurrenceSource::Relation(name) if !occurrence.is_renamed && name.name == of.name => NameMatch::Unsure,
        _ => NameMatch::No,
    }
}

/// True if the alias of a join stands for the occurrence in this range.
fn is_hidden(occurrence: &Occurrence, range: &Range<usize>) -> bool {
    let is_within = |within: &Range<usize>| within.start <= range.start && range.end <= within.end;
    occurrence.seen_within.as_ref().is_some_and(|within| !is_within(within))
}

fn may_merge(merge: &ColumnMerge, name: &str) -> bool {
    merge.names.as_ref().is_none_or(|names| names.iter().any(|merged| merged == name))
}
