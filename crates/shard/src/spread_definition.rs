//! May each shard carry a change of spread tables out by itself, so that all of them still have the same tables and hold what one server would?

use weir_sql::definition_terms::{DefinitionAction, DefinitionTerms, NewIndex};
use weir_sql::facts::QualifiedName;

use crate::sharded_table::RelationKind;

/// The constraint that keeps rows out which belong to other shards.
const KEY_CHECK: &str = "weir_shard_key";

/// The effect of a change of tables on the engine, which has their columns, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionEffect {
    OnShardsOnly,
    /// Indexes have names that a look must read.
    ChangesIndexes,
    /// The engine's tables have other rights than those of the shards from then on.
    ChangesRights,
    /// The engine's tables have other columns, too.
    ChangesEngine,
}

/// The effect of a change, or why it is not carried out. `lookup` knows the relations that the text's names mean, `is_plain_type` types that are
/// PostgreSQL's own.
pub fn spread_definition<'c>(
    terms: &DefinitionTerms,
    lookup: impl Fn(&QualifiedName) -> RelationKind<'c>,
    is_plain_type: impl Fn(&QualifiedName) -> bool,
) -> Result<DefinitionEffect, &'static str> {
    let mut effect = DefinitionEffect::OnShardsOnly;
    for table in &terms.tables {
        let key = match lookup(table) {
            RelationKind::Sharded(table) => Some(table.key.as_str()),
            RelationKind::Reference => None,
            RelationKind::Single => return Err("it names a table of shard 0 only, too"),
            RelationKind::Unknown => return Err("it names a view or another relation that may read sharded tables"),
        };
        for action in &terms.actions {
            if let Some(why) = refusal(action, key, &is_plain_type) {
                return Err(why);
            }
            if changes_engine(action) {
                effect = DefinitionEffect::ChangesEngine;
            } else if matches!(action, DefinitionAction::ChangeRights) {
                effect = DefinitionEffect::ChangesRights;
            } else if matches!(action, DefinitionAction::CreateIndex(_) | DefinitionAction::RenameIndex) {
                effect = DefinitionEffect::ChangesIndexes;
            }
        }
    }
    Ok(effect)
}

/// `key`: of a sharded table.
fn refusal(
    action: &DefinitionAction,
    key: Option<&str>,
    is_plain_type: &impl Fn(&QualifiedName) -> bool,
) -> Option<&'static str> {
    match action {
        DefinitionAction::Other(why) => Some(why),
        DefinitionAction::AddColumn { type_name, .. } => {
            (!is_plain_type(type_name)).then_some("the type of the new column is none of PostgreSQL's plain ones")
        }
        DefinitionAction::DropColumn(name) | DefinitionAction::RenameColumn(name) => {
            (key == Some(name.as_str())).then_some("the column is the shard key")
        }
        DefinitionAction::SetDefault(name) | DefinitionAction::DropDefault(name) if key == Some(name.as_str()) => {
            Some("the column is the shard key, whose values name the shards")
        }
        DefinitionAction::CreateIndex(index) => {
            let misses = key.is_some_and(|key| misses_key(index, key));
            misses.then_some("a unique index of a sharded table holds the shard key, or no shard could check it")
        }
        DefinitionAction::AddCheck(name) | DefinitionAction::DropConstraint(name) => {
            (name == KEY_CHECK).then_some("the constraint weir_shard_key belongs to Weir")
        }
        DefinitionAction::Truncate
        | DefinitionAction::TruncateCascade
        | DefinitionAction::DropTable
        | DefinitionAction::DropIndex
        | DefinitionAction::RenameIndex
        | DefinitionAction::SetDefault(_)
        | DefinitionAction::DropDefault(_)
        | DefinitionAction::SetNotNull(_)
        | DefinitionAction::DropNotNull(_)
        | DefinitionAction::ChangeRights
        | DefinitionAction::Comment => None,
    }
}

fn misses_key(index: &NewIndex, key: &str) -> bool {
    index.is_unique && !index.plain_columns.iter().any(|column| column == key)
}

fn changes_engine(action: &DefinitionAction) -> bool {
    match action {
        DefinitionAction::AddColumn { .. }
        | DefinitionAction::DropColumn(_)
        | DefinitionAction::RenameColumn(_)
        | DefinitionAction::SetNotNull(_)
        | DefinitionAction::DropNotNull(_)
        | DefinitionAction::DropTable => true,
        DefinitionAction::Truncate
        | DefinitionAction::TruncateCascade
        | DefinitionAction::DropIndex
        | DefinitionAction::RenameIndex
        | DefinitionAction::CreateIndex(_)
        | DefinitionAction::SetDefault(_)
        | DefinitionAction::DropDefault(_)
        | DefinitionAction::AddCheck(_)
        | DefinitionAction::DropConstraint(_)
        | DefinitionAction::ChangeRights
        | DefinitionAction::Comment
        | DefinitionAction::Other(_) => false,
    }
}
