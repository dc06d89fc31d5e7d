//! The plan of a `COPY ... FROM STDIN` whose rows belong to several shards.

use std::sync::Arc;
use weir_shard::{RelationKind, ShardedTable, in_order};
use weir_sql::copy_from::{CopyFormat, CopyFrom, CopyObstacle, copy_from};
use weir_sql::facts::QualifiedName;

#[derive(Clone, Debug)]
pub struct CopyPlan {
    pub table: Arc<ShardedTable>,
    /// In the order of the visits.
    pub shards: Box<[u16]>,
    pub format: CopyFormat,
    pub has_header: bool,
    /// Place of the key among the values of a row. `None`: the shards draw it.
    pub key_at: Option<usize>,
    /// The number of values, where the text does not name their columns.
    pub columns: Option<usize>,
}

/// Error: why the rows cannot be given to their shards.
pub fn copy_plan<'c>(text: &str, kind: impl Fn(&QualifiedName) -> RelationKind<'c>) -> Result<CopyPlan, &'static str> {
    let copy = copy_from(text).map_err(words)?;
    let RelationKind::Sharded(table) = kind(&copy.relation) else { return Err("its table is no sharded one") };
    let CopyFrom { columns, format, has_header, .. } = copy;
    let named = if columns.is_empty() { &table.columns } else { &columns };
    let key_at = named.iter().position(|name| *name == table.key);
    if key_at.is_none() && !table.draws_keys {
        return Err("the key is not among its columns");
    }
    Ok(CopyPlan {
        shards: in_order(&table.shards).into(),
        format,
        has_header,
        key_at,
        columns: columns.is_empty().then_some(table.columns.len()),
        table: table.clone(),
    })
}

fn words(obstacle: CopyObstacle) -> &'static str {
    match obstacle {
        CopyObstacle::Otherwise => "only COPY table FROM STDIN, alone in its text, is carried out",
        CopyObstacle::Where => "it has a WHERE",
        CopyObstacle::HeaderMatch => "HEADER MATCH is not looked into",
        CopyObstacle::Forced => "FORCE_NULL and FORCE_NOT_NULL are not looked into",
        CopyObstacle::Encoding => "ENCODING is not looked into",
        CopyObstacle::Option => "one of its options is not looked into",
        CopyObstacle::Malformed => "its options are not read",
    }
}
