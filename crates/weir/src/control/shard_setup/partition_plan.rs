//! Which partitions a sharded table gets, and on which shard each lies: read from the command line, or taken over from another table.

use super::words::{quote_name, quote_text};
use crate::control::shard_catalog::{ShardedKind, ShardedTable};
use weir_shard::{KeyKind, PartitionBound};

/// Most partitions of one table.
pub const PARTITIONS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionStrategy {
    Hash,
    Range,
    List,
}

impl PartitionStrategy {
    pub fn word(self) -> &'static str {
        match self {
            PartitionStrategy::Hash => "HASH",
            PartitionStrategy::Range => "RANGE",
            PartitionStrategy::List => "LIST",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPlan {
    pub strategy: PartitionStrategy,
    pub partitions: Vec<PlannedPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPartition {
    pub bound: PlannedBound,
    pub shard: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedBound {
    Hash {
        modulus: u32,
        remainder: u32,
    },
    /// `FOR VALUES …` or `DEFAULT`, as SQL.
    Text(String),
}

impl PlannedBound {
    pub fn sql(&self) -> String {
        match self {
            PlannedBound::Hash { modulus, remainder } => format!("FOR VALUES WITH (MODULUS {modulus}, REMAINDER {remainder})"),
            PlannedBound::Text(text) => text.clone(),
        }
    }
}

impl PartitionPlan {
    /// As many partitions as asked for, one shard after the other.
    pub fn hash(count: usize, shards: &[u16]) -> Result<PartitionPlan, String> {
        if count == 0 || count > PARTITIONS_MAX {
            return Err(format!("--hash {count}: a table has 1 to {PARTITIONS_MAX} partitions"));
        }
        let partition = |(at, shard): (usize, &u16)| PlannedPartition {
            bound: PlannedBound::Hash { modulus: count as u32, remainder: at as u32 },
            shard: *shard,
        };
        let partitions = (0..count).zip(shards.iter().cycle()).map(partition).collect();
        Ok(PartitionPlan { strategy: PartitionStrategy::Hash, partitions })
    }

    /// Reads `from..to=shard,…`. An end that is left out is the lowest or highest value; `default=shard` takes the rest.
    pub fn range(text: &str, shards: &[u16]) -> Result<PartitionPlan, String> {
        let bound = |values: &str| {
            let (from, to) = values.split_once("..").ok_or_else(|| format!("\"{values}\" is no range: write from..to=shard"))?;
            let end = |value: &str, open: &str| if value.is_empty() { open.to_owned() } else { quote_text(value) };
            Ok(format!("FOR VALUES FROM ({}) TO ({})", end(from.trim(), "MINVALUE"), end(to.trim(), "MAXVALUE")))
        };
        Ok(PartitionPlan { strategy: PartitionStrategy::Range, partitions: partitions(text.split(','), shards, bound)? })
    }

    /// Reads `value,value=shard;…`. The word `null` is NULL; `default=shard` takes the rest.
    pub fn list(text: &str, shards: &[u16]) -> Result<PartitionPlan, String> {
        let bound = |values: &str| {
            let value = |value: &str| match value.trim() {
                "" => Err(format!("\"{values}\" has an empty value: write value,value=shard")),
                "null" => Ok("NULL".to_owned()),
                other => Ok(quote_text(other)),
            };
            let values: Result<Vec<String>, String> = values.split(',').map(value).collect();
            Ok(format!("FOR VALUES IN ({})", values?.join(", ")))
        };
        Ok(PartitionPlan { strategy: PartitionStrategy::List, partitions: partitions(text.split(';'), shards, bound)? })
    }

    /// The partitions of another table, so that rows with equal keys lie together.
    pub fn of_table(table: &ShardedTable) -> Result<PartitionPlan, String> {
        let name = format!("{}.{}", quote_name(&table.schema), quote_name(&table.name));
        let ShardedKind::Sharded { key: Some(key), partitions } = &table.kind else {
            return Err(format!("{name} is not sharded: --with names a sharded table"));
        };
        let kind = KeyKind::of_type(key.type_oid).ok_or_else(|| format!("the key of {name} has a type that is not routed by"))?;
        let mut planned = Vec::new();
        let mut strategy = None;
        for partition in partitions {
            let shard = partition.shard.ok_or_else(|| format!("{name} has a partition that lies on no shard"))?;
            let bound = PartitionBound::of_text(kind, &partition.bound).map_err(|error| error.to_string())?;
            let bound = match bound {
                PartitionBound::Hash { modulus, remainder } => {
                    strategy = Some(PartitionStrategy::Hash);
                    PlannedBound::Hash { modulus, remainder }
                }
                PartitionBound::Range { .. } => {
                    strategy = Some(PartitionStrategy::Range);
                    PlannedBound::Text(partition.bound.clone())
                }
                PartitionBound::List(_) => {
                    strategy = Some(PartitionStrategy::List);
                    PlannedBound::Text(partition.bound.clone())
                }
                PartitionBound::Default => PlannedBound::Text(partition.bound.clone()),
            };
            planned.push(PlannedPartition { bound, shard });
        }
        let strategy = strategy.ok_or_else(|| format!("{name} has no partition but a default one"))?;
        Ok(PartitionPlan { strategy, partitions: planned })
    }

    pub fn on_shard(&self, shard: u16) -> impl Iterator<Item = (usize, &PlannedPartition)> {
        self.partitions.iter().enumerate().filter(move |(_, partition)| partition.shard == shard)
    }
}

/// True if rows of both tables with equal keys lie on one shard.
pub fn are_colocated(one: &ShardedTable, other: &ShardedTable) -> bool {
    let parts = |table: &ShardedTable| match &table.kind {
        ShardedKind::Sharded { key: Some(key), partitions } => {
            let mut partitions: Vec<(String, Option<u16>)> =
                partitions.iter().map(|one| (one.bound.clone(), one.shard)).collect();
            partitions.sort();
            Some((key.type_oid, key.is_deterministic, key.is_c, partitions))
        }
        ShardedKind::Sharded { key: None, .. } | ShardedKind::Reference => None,
    };
    parts(one).is_some_and(|parts_of_one| parts(other).as_ref() == Some(&parts_of_one))
}

fn partitions<'t>(
    parts: impl Iterator<Item = &'t str>,
    shards: &[u16],
    bound: impl Fn(&str) -> Result<String, String>,
) -> Result<Vec<PlannedPartition>, String> {
    let mut found = Vec::new();
    for part in parts {
        let wrong = || format!("\"{part}\" names no shard: end it with =shard");
        let (values, shard) = part.rsplit_once('=').ok_or_else(wrong)?;
        let shard: u16 = shard.trim().parse().map_err(|_| wrong())?;
        if !shards.contains(&shard) {
            return Err(format!("\"{part}\": there is no shard {shard} (backend_shard)"));
        }
        let text = if values.trim() == "default" { "DEFAULT".to_owned() } else { bound(values)? };
        found.push(PlannedPartition { bound: PlannedBound::Text(text), shard });
    }
    if found.len() > PARTITIONS_MAX {
        return Err(format!("{} partitions: a table has 1 to {PARTITIONS_MAX}", found.len()));
    }
    if found.iter().all(|partition| partition.bound == PlannedBound::Text("DEFAULT".to_owned())) {
        return Err("there is only a default partition: leave the table on shard 0 instead".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::shard_catalog::{ShardKey, ShardedPartition};

    fn show(plan: Result<PartitionPlan, String>) -> String {
        match plan {
            Ok(plan) => {
                let parts = plan.partitions.iter().map(|partition| format!("{} {}", partition.bound.sql(), partition.shard));
                parts.collect::<Vec<_>>().join("; ")
            }
            Err(error) => error,
        }
    }

    #[test]
    fn hash_partitions_go_round_the_shards() {
        assert_eq!(
            show(PartitionPlan::hash(3, &[0, 4])),
            "FOR VALUES WITH (MODULUS 3, REMAINDER 0) 0; FOR VALUES WITH (MODULUS 3, REMAINDER 1) 4; \
             FOR VALUES WITH (MODULUS 3, REMAINDER 2) 0"
        );
        assert!(PartitionPlan::hash(0, &[0]).is_err() && PartitionPlan::hash(PARTITIONS_MAX + 1, &[0]).is_err());
    }

    #[test]
    fn ranges_are_read_and_their_values_stay_quoted() {
        let cases = [
            ("..10=0, 10..=1", "FOR VALUES FROM (MINVALUE) TO ('10') 0; FOR VALUES FROM ('10') TO (MAXVALUE) 1"),
            ("a..it's=1,default=0", "FOR VALUES FROM ('a') TO ('it''s') 1; DEFAULT 0"),
            ("1-2=0", "\"1-2\" is no range: write from..to=shard"),
            ("1..2", "\"1..2\" names no shard: end it with =shard"),
            ("1..2=7", "\"1..2=7\": there is no shard 7 (backend_shard)"),
            ("default=0", "there is only a default partition: leave the table on shard 0 instead"),
        ];
        for (text, expected) in cases {
            assert_eq!(show(PartitionPlan::range(text, &[0, 1])), expected, "{text}");
        }
    }

    #[test]
    fn lists_are_read() {
        let cases = [
            ("de,at=0;fr=1", "FOR VALUES IN ('de', 'at') 0; FOR VALUES IN ('fr') 1"),
            ("null=0;default=1", "FOR VALUES IN (NULL) 0; DEFAULT 1"),
            ("a,,b=0", "\"a,,b\" has an empty value: write value,value=shard"),
        ];
        for (text, expected) in cases {
            assert_eq!(show(PartitionPlan::list(text, &[0, 1])), expected, "{text}");
        }
    }

    fn table(type_oid: u32, bounds: &[(&str, u16)]) -> ShardedTable {
        let partition = |(bound, shard): &(&str, u16)| ShardedPartition { bound: (*bound).to_owned(), shard: Some(*shard) };
        let key = ShardKey { column: "id".to_owned(), type_oid, is_deterministic: true, is_c: true };
        let kind = ShardedKind::Sharded { key: Some(key), partitions: bounds.iter().map(partition).collect() };
        ShardedTable { schema: "a".to_owned(), name: "b".to_owned(), kind }
    }

    #[test]
    fn a_table_beside_another_has_its_partitions() {
        let halves = [("FOR VALUES WITH (modulus 2, remainder 0)", 0), ("FOR VALUES WITH (modulus 2, remainder 1)", 1)];
        assert_eq!(PartitionPlan::of_table(&table(23, &halves)), PartitionPlan::hash(2, &[0, 1]));
        let ranges = [("FOR VALUES FROM (MINVALUE) TO (5)", 1), ("DEFAULT", 0)];
        let plan = PartitionPlan::of_table(&table(23, &ranges)).unwrap();
        assert_eq!(plan.strategy, PartitionStrategy::Range);
        assert!(are_colocated(&table(23, &halves), &table(23, &[halves[1], halves[0]])));
        assert!(!are_colocated(&table(23, &halves), &table(20, &halves)));
        assert!(!are_colocated(&table(23, &halves), &table(23, &[halves[0], (halves[1].0, 0)])));
    }
}
