//! Which shard keys of a text are fixed, and by which constants.
//!
//! A row of an occurrence matters only if it is part of a combined row in which the groups above it are present. There every equality holds whose groups
//! are all present; and since none is true of a NULL, the groups of its columns are present, too. Removing rows that contradict these equalities changes
//! no answer, so an occurrence whose key is equal to a constant needs the rows of one shard only.

use std::sync::Arc;

use weir_sql::key_terms::{BlockId, BlockShape, EqualTerm, GroupId, KeyTerms, OccurrenceSource, QueryBlock};

use crate::key_names::{Completeness, KeyNames, KeyNode, KeyOwner, KnownColumns, NodeId};
use crate::key_reading::{KeyReading, KeyUse, is_same_family};
use crate::sharded_table::ShardedTable;

/// An equality of keys, or of a key and a constant.
struct SolvedEquality<'t> {
    needs: &'t [GroupId],
    key: NodeId,
    other: OtherSide,
}

enum OtherSide {
    Key(NodeId),
    Constant(KeyReading),
}

pub(crate) struct KeySolver<'t> {
    terms: &'t KeyTerms,
    names: KeyNames<'t>,
    nodes: Vec<KeyNode>,
    tables: Vec<TableKey>,
}

/// The key of a sharded occurrence.
struct TableKey {
    block: BlockId,
    occurrence: usize,
    node: NodeId,
}

/// A sharded occurrence, and all constants that its key equals; none if it is not fixed.
pub(crate) struct FixedOccurrence {
    pub(crate) table: Arc<ShardedTable>,
    pub(crate) constants: Vec<KeyReading>,
}

impl<'t> KeySolver<'t> {
    /// `table`: the sharded table of an occurrence, by block and place; `Err`: another relation, whose columns are not known.
    pub(crate) fn new(terms: &'t KeyTerms, table: impl Fn(BlockId, usize) -> Option<Arc<ShardedTable>>) -> KeySolver<'t> {
        let mut solver = KeySolver { terms, names: KeyNames::new(terms), nodes: Vec::new(), tables: Vec::new() };
        for (block, of) in terms.blocks.iter().enumerate() {
            for (at, occurrence) in of.occurrences.iter().enumerate() {
                if let Some(table) = table(block, at) {
                    solver.add_table(block, at, occurrence.group, table);
                }
            }
        }
        for block in blocks_inside_out(terms) {
            solver.add_results(block);
        }
        solver
    }

    fn add_table(&mut self, block: BlockId, at: usize, group: GroupId, table: Arc<ShardedTable>) {
        let node = self.nodes.len();
        let column = |name: &String| (name.clone(), (*name == table.key).then_some(node));
        let columns = KnownColumns::new(table.columns.iter().map(column).collect(), Completeness::AllKnown, &[]);
        self.names.set_columns(block, at, &columns);
        self.names.add_kind(table.kind);
        self.nodes.push(KeyNode { group, kind: table.kind, of: KeyOwner::Table(table) });
        self.tables.push(TableKey { block, occurrence: at, node });
    }

    /// Gives the subqueries and CTEs of a block's FROM their columns. Those of their own are known already.
    fn add_results(&mut self, block: BlockId) {
        for (at, occurrence) in self.terms.blocks[block].occurrences.iter().enumerate() {
            let (inner, is_merged) = match occurrence.source {
                OccurrenceSource::Derived(inner) => (inner, self.terms.blocks[inner].shape == BlockShape::Flat),
                OccurrenceSource::Cte(inner) => (inner, false),
                OccurrenceSource::Relation(_) | OccurrenceSource::Unknown => continue,
            };
            if self.terms.blocks[inner].shape == BlockShape::Unknown {
                continue;
            }
            let outputs = self.names.outputs(inner);
            // Of a flat subquery a column is the column of its table. Of others only its constants are known.
            let columns = if is_merged { outputs } else { self.constant_outputs(inner, &outputs, occurrence.group) };
            self.names.set_columns(block, at, &columns);
        }
    }

    fn constant_outputs(&mut self, inner: BlockId, outputs: &KnownColumns, group: GroupId) -> KnownColumns {
        let equalities = self.equalities();
        let classes = self.classes(self.terms.blocks[inner].root, &equalities);
        drop(equalities);
        let (nodes, names) = (&mut self.nodes, &mut self.names);
        outputs.with_nodes(|node| {
            let constants = classes.constants_of(node);
            if constants.is_empty() {
                return None;
            }
            let kind = nodes[node].kind;
            names.add_kind(kind);
            nodes.push(KeyNode { group, kind, of: KeyOwner::Result(constants.to_vec()) });
            Some(nodes.len() - 1)
        })
    }

    /// All equalities of the text that speak of keys.
    fn equalities(&self) -> Vec<SolvedEquality<'t>> {
        let mut solved = Vec::new();
        for equality in &self.terms.equalities {
            let side = |term: &EqualTerm| match term {
                EqualTerm::Column(column) => self.names.resolve(equality.scope, column),
                EqualTerm::Constant(_) => None,
            };
            let (key, other) = match (&equality.left, &equality.right) {
                (EqualTerm::Constant(constant), column) | (column, EqualTerm::Constant(constant)) => {
                    let Some(key) = side(column) else { continue };
                    let reading = KeyReading::new(constant, self.nodes[key].kind, KeyUse::Compared);
                    (key, reading.map(OtherSide::Constant))
                }
                (left, right) => {
                    let Some((key, other)) = side(left).zip(side(right)) else { continue };
                    (key, self.other_key(key, other))
                }
            };
            if let Some(other) = other {
                solved.push(SolvedEquality { needs: &equality.needs, key, other });
            }
        }
        self.add_memberships(&mut solved);
        for (block, of) in self.terms.blocks.iter().enumerate() {
            for merge in &of.merges {
                for (key, other) in self.names.merged(block, merge) {
                    let other = self.other_key(key, other);
                    solved.extend(other.map(|other| SolvedEquality { needs: &merge.needs, key, other }));
                }
            }
        }
        solved
    }

    /// Of a query whose rows are those of its relations, the rows that do not equal the columns around it may as well be left out.
    fn add_memberships(&self, solved: &mut Vec<SolvedEquality<'t>>) {
        for of in &self.terms.memberships {
            let QueryBlock { shape, root, .. } = &self.terms.blocks[of.block];
            if !matches!(shape, BlockShape::Flat | BlockShape::Computed) {
                continue;
            }
            for (at, column) in of.columns.iter().enumerate() {
                let around = column.as_ref().and_then(|column| self.names.resolve(of.scope, column));
                let Some((key, other)) = self.names.output_at(of.block, at).zip(around) else { continue };
                let other = self.other_key(key, other);
                solved.extend(other.map(|other| SolvedEquality { needs: std::slice::from_ref(root), key, other }));
            }
        }
    }

    fn other_key(&self, key: NodeId, other: NodeId) -> Option<OtherSide> {
        is_same_family(self.nodes[key].kind, self.nodes[other].kind).then_some(OtherSide::Key(other))
    }

    /// Keys that are equal in rows that matter to this group.
    fn classes(&self, group: GroupId, equalities: &[SolvedEquality<'_>]) -> KeyClasses {
        let mut present = PresentGroups::new(self.terms);
        present.add(group);
        let mut in_force = vec![false; equalities.len()];
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for (at, equality) in equalities.iter().enumerate() {
                if in_force[at] || !equality.needs.iter().all(|group| present.has(*group)) {
                    continue;
                }
                (in_force[at], is_settled) = (true, false);
                present.add(self.nodes[equality.key].group);
                if let OtherSide::Key(other) = equality.other {
                    present.add(self.nodes[other].group);
                }
            }
        }
        let mut classes = KeyClasses::new(&self.nodes);
        for (equality, _) in equalities.iter().zip(in_force).filter(|(_, in_force)| *in_force) {
            match &equality.other {
                OtherSide::Key(other) => classes.join(equality.key, *other),
                OtherSide::Constant(reading) => classes.add(equality.key, reading),
            }
        }
        classes
    }

    pub(crate) fn occurrences(&self) -> Vec<FixedOccurrence> {
        let equalities = self.equalities();
        let tables = self.nodes.iter().enumerate().filter_map(|(at, node)| match &node.of {
            KeyOwner::Table(table) => Some((at, node.group, table)),
            KeyOwner::Result(_) => None,
        });
        let fixed = tables.map(|(at, group, table)| {
            let constants = self.classes(group, &equalities).constants_of(at).to_vec();
            FixedOccurrence { table: Arc::clone(table), constants }
        });
        fixed.collect()
    }

    /// True if sharded tables occur more than once.
    pub(crate) fn has_several_tables(&self) -> bool {
        self.tables.len() > 1
    }

    /// The key of a sharded occurrence.
    pub(crate) fn key_of(&self, block: BlockId, occurrence: usize) -> Option<NodeId> {
        let is_it = |key: &&TableKey| (key.block, key.occurrence) == (block, occurrence);
        self.tables.iter().find(is_it).map(|key| key.node)
    }

    /// The key that a column of a query's result is, if each row of the result has a row of the key's table, which no outer join leaves out.
    pub(crate) fn output_key(&self, block: BlockId, at: usize) -> Option<(NodeId, &Arc<ShardedTable>)> {
        let node = self.names.output_at(block, at)?;
        match &self.nodes[node] {
            KeyNode { group, of: KeyOwner::Table(table), .. } if *group == self.terms.blocks[block].root => Some((node, table)),
            _ => None,
        }
    }

    /// True if each row of a sharded table that counts beside a row of `anchor` has its key, and lies on its shard.
    pub(crate) fn all_follow(&self, anchor: NodeId) -> bool {
        let group_of = |node: NodeId| match &self.nodes[node].of {
            KeyOwner::Table(table) => Some(table.colocation),
            KeyOwner::Result(_) => None,
        };
        let equalities = self.equalities();
        self.tables.iter().filter(|key| key.node != anchor).all(|key| {
            let classes = self.classes(self.nodes[key.node].group, &equalities);
            group_of(key.node) == group_of(anchor) && classes.head(key.node) == classes.head(anchor)
        })
    }

    /// Places of parameters beside keys: each says the type of one use.
    pub(crate) fn constants(&self) -> Vec<KeyReading> {
        let constant = |equality: SolvedEquality<'_>| match equality.other {
            OtherSide::Constant(reading) => Some(reading),
            OtherSide::Key(_) => None,
        };
        self.equalities().into_iter().filter_map(constant).collect()
    }
}

struct PresentGroups<'t> {
    terms: &'t KeyTerms,
    is_present: Vec<bool>,
}

impl<'t> PresentGroups<'t> {
    fn new(terms: &'t KeyTerms) -> PresentGroups<'t> {
        PresentGroups { terms, is_present: vec![false; terms.groups.len()] }
    }

    fn has(&self, group: GroupId) -> bool {
        self.is_present[group]
    }

    /// With all groups above.
    fn add(&mut self, group: GroupId) {
        let mut at = Some(group);
        while let Some(group) = at.filter(|group| !self.is_present[*group]) {
            self.is_present[group] = true;
            at = self.terms.groups[group].above;
        }
    }
}

/// Sets of keys that are equal, each with its constants.
struct KeyClasses {
    /// Another member of the set; itself at its head.
    toward_head: Vec<NodeId>,
    constants: Vec<Vec<KeyReading>>,
}

impl KeyClasses {
    fn new(nodes: &[KeyNode]) -> KeyClasses {
        let own = |node: &KeyNode| match &node.of {
            KeyOwner::Table(_) => Vec::new(),
            KeyOwner::Result(constants) => constants.clone(),
        };
        KeyClasses { toward_head: (0..nodes.len()).collect(), constants: nodes.iter().map(own).collect() }
    }

    fn head(&self, node: NodeId) -> NodeId {
        let mut at = node;
        while self.toward_head[at] != at {
            at = self.toward_head[at];
        }
        at
    }

    fn join(&mut self, one: NodeId, other: NodeId) {
        let (one, other) = (self.head(one), self.head(other));
        if one != other {
            self.toward_head[other] = one;
            let moved = std::mem::take(&mut self.constants[other]);
            self.constants[one].extend(moved);
        }
    }

    fn add(&mut self, node: NodeId, reading: &KeyReading) {
        let head = self.head(node);
        self.constants[head].push(reading.clone());
    }

    fn constants_of(&self, node: NodeId) -> &[KeyReading] {
        &self.constants[self.head(node)]
    }
}

/// Each block behind those in its FROM; of a recursive CTE in any order.
fn blocks_inside_out(terms: &KeyTerms) -> Vec<BlockId> {
    let inner = |block: BlockId| {
        terms.blocks[block].occurrences.iter().filter_map(|occurrence| match occurrence.source {
            OccurrenceSource::Derived(inner) | OccurrenceSource::Cte(inner) => Some(inner),
            OccurrenceSource::Relation(_) | OccurrenceSource::Unknown => None,
        })
    };
    let mut order = Vec::new();
    let mut is_met = vec![false; terms.blocks.len()];
    for first in 0..terms.blocks.len() {
        let mut stack = vec![(first, false)];
        while let Some((block, is_done)) = stack.pop() {
            if is_done {
                order.push(block);
            } else if !std::mem::replace(&mut is_met[block], true) {
                stack.push((block, true));
                stack.extend(inner(block).map(|inner| (inner, false)));
            }
        }
    }
    order
}
