//! The partition of a value. Source: `get_partition_for_tuple` in `src/backend/executor/execPartition.c`.

use crate::key_value::{KeyKind, KeyOrder, KeyValue};
use crate::partition_bound::{BoundLimit, PartitionBound};
use crate::partition_hash;
use std::cmp::Ordering;
use std::fmt;

/// Most places of a table by hash; PostgreSQL's moduli are not bounded.
const MODULUS_MAX: u32 = 1 << 16;

/// Place of a row among the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionPlace {
    /// Number of the partition, in the order in which they were given.
    At(usize),
    /// No partition takes it: an INSERT fails, and no row has the value.
    Nowhere,
}

/// Partitions that Weir cannot use. The table must not be routed by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    NoPartitions,
    /// Bounds of two strategies, which PostgreSQL's catalog never has.
    MixedStrategies,
    /// Two partitions for one value, or two default ones: two catalogs were read.
    Overlap,
    ModulusTooLarge {
        modulus: u32,
    },
    /// Ranges of texts in a collation whose order only PostgreSQL knows.
    UnknownOrder,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::NoPartitions => f.write_str("the table has no partitions"),
            MapError::MixedStrategies => f.write_str("the partitions of the table are of several strategies"),
            MapError::Overlap => f.write_str("two partitions of the table take the same value"),
            MapError::ModulusTooLarge { modulus } => write!(f, "modulus {modulus} is too large: {MODULUS_MAX} at most"),
            MapError::UnknownOrder => f.write_str(
                "ranges of texts need a key column with COLLATE \"C\": only the server knows the order of another collation",
            ),
        }
    }
}

impl std::error::Error for MapError {}

/// Partitions of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionMap {
    places: PartitionPlaces,
    default: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum PartitionPlaces {
    /// By the remainder of the greatest modulus, of which all others are factors.
    Hash(Vec<Option<usize>>),
    /// In order.
    Range(Vec<PlacedRange>),
    /// In order; NULL is apart.
    List { values: Vec<(KeyValue, usize)>, null: Option<usize> },
}

#[derive(Clone, Debug, PartialEq)]
struct PlacedRange {
    from: BoundLimit,
    to: BoundLimit,
    at: usize,
}

impl PartitionMap {
    /// `bounds`: those of all partitions of a table. `order`: that of the key column's collation.
    pub fn new(kind: KeyKind, order: KeyOrder, bounds: &[PartitionBound]) -> Result<PartitionMap, MapError> {
        let mut defaults = bounds.iter().enumerate().filter(|(_, bound)| **bound == PartitionBound::Default).map(|(at, _)| at);
        let default = defaults.next();
        if defaults.next().is_some() {
            return Err(MapError::Overlap);
        }
        let others = || bounds.iter().enumerate().filter(|(_, bound)| **bound != PartitionBound::Default);
        let places = match others().next() {
            None if default.is_some() => PartitionPlaces::List { values: Vec::new(), null: None },
            None => return Err(MapError::NoPartitions),
            Some((_, PartitionBound::Hash { .. })) => PartitionPlaces::Hash(by_remainder(others())?),
            Some((_, PartitionBound::Range { .. })) if !kind.has_order(order) => return Err(MapError::UnknownOrder),
            Some((_, PartitionBound::Range { .. })) => PartitionPlaces::Range(by_range(others())?),
            Some((_, PartitionBound::List(_) | PartitionBound::Default)) => by_value(others())?,
        };
        Ok(PartitionMap { places, default })
    }

    /// The partition of a value of the key column's type.
    #[inline]
    pub fn place_of(&self, value: &KeyValue) -> PartitionPlace {
        let own = match &self.places {
            PartitionPlaces::Hash(places) => {
                // NULL does not count, and leaves the hash of a row at 0.
                let hash = value.hash().map_or(0, partition_hash::of_row);
                places[(hash % places.len() as u64) as usize]
            }
            PartitionPlaces::Range(ranges) => {
                let after = ranges.partition_point(|range| !is_below(value, &range.from));
                after.checked_sub(1).map(|at| &ranges[at]).filter(|range| is_below(value, &range.to)).map(|range| range.at)
            }
            PartitionPlaces::List { null, .. } if *value == KeyValue::Null => *null,
            PartitionPlaces::List { values, .. } => {
                let found = values.binary_search_by(|(one, _)| one.order(value).unwrap_or(Ordering::Less));
                found.ok().map(|at| values[at].1)
            }
        };
        own.or(self.default).map_or(PartitionPlace::Nowhere, PartitionPlace::At)
    }
}

/// True if the value lies before the limit. NULL lies before none.
#[inline]
fn is_below(value: &KeyValue, limit: &BoundLimit) -> bool {
    match limit {
        BoundLimit::Lowest => false,
        BoundLimit::At(limit) => value.order(limit) == Some(Ordering::Less),
        BoundLimit::Highest => *value != KeyValue::Null,
    }
}

type NumberedBound<'b> = (usize, &'b PartitionBound);

fn by_remainder<'b>(bounds: impl Iterator<Item = NumberedBound<'b>> + Clone) -> Result<Vec<Option<usize>>, MapError> {
    let of_hash = |(at, bound): NumberedBound<'_>| match bound {
        PartitionBound::Hash { modulus, remainder } => Ok((at, *modulus, *remainder)),
        _ => Err(MapError::MixedStrategies),
    };
    let bounds: Vec<(usize, u32, u32)> = bounds.map(of_hash).collect::<Result<_, _>>()?;
    let greatest = bounds.iter().map(|(_, modulus, _)| *modulus).max().unwrap_or(0);
    if greatest > MODULUS_MAX {
        return Err(MapError::ModulusTooLarge { modulus: greatest });
    }
    let mut places = vec![None; greatest as usize];
    for (at, modulus, remainder) in bounds {
        if !greatest.is_multiple_of(modulus) {
            return Err(MapError::Overlap);
        }
        for place in places.iter_mut().skip(remainder as usize).step_by(modulus as usize) {
            if place.replace(at).is_some() {
                return Err(MapError::Overlap);
            }
        }
    }
    Ok(places)
}

fn by_range<'b>(bounds: impl Iterator<Item = NumberedBound<'b>>) -> Result<Vec<PlacedRange>, MapError> {
    let of_range = |(at, bound): NumberedBound<'_>| match bound {
        PartitionBound::Range { from, to } => Ok(PlacedRange { from: from.clone(), to: to.clone(), at }),
        _ => Err(MapError::MixedStrategies),
    };
    let mut ranges: Vec<PlacedRange> = bounds.map(of_range).collect::<Result<_, _>>()?;
    ranges.sort_by(|one, other| limits(&one.from, &other.from));
    let is_apart = |pair: &[PlacedRange]| limits(&pair[0].to, &pair[1].from) != Ordering::Greater;
    if ranges.windows(2).all(is_apart) { Ok(ranges) } else { Err(MapError::Overlap) }
}

fn limits(one: &BoundLimit, other: &BoundLimit) -> Ordering {
    let rank = |limit: &BoundLimit| match limit {
        BoundLimit::Lowest => 0,
        BoundLimit::At(_) => 1,
        BoundLimit::Highest => 2,
    };
    match (one, other) {
        (BoundLimit::At(one), BoundLimit::At(other)) => one.order(other).unwrap_or(Ordering::Equal),
        _ => rank(one).cmp(&rank(other)),
    }
}

fn by_value<'b>(bounds: impl Iterator<Item = NumberedBound<'b>>) -> Result<PartitionPlaces, MapError> {
    let (mut values, mut null) = (Vec::new(), None);
    for (at, bound) in bounds {
        let PartitionBound::List(list) = bound else { return Err(MapError::MixedStrategies) };
        for value in list {
            if *value != KeyValue::Null {
                values.push((value.clone(), at));
            } else if null.replace(at).is_some() {
                return Err(MapError::Overlap);
            }
        }
    }
    values.sort_by(|(one, _), (other, _)| one.order(other).unwrap_or(Ordering::Equal));
    let is_once = |pair: &[(KeyValue, usize)]| pair[0].0.order(&pair[1].0) == Some(Ordering::Less);
    if values.windows(2).all(is_once) { Ok(PartitionPlaces::List { values, null }) } else { Err(MapError::Overlap) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(kind: KeyKind, bounds: &[&str]) -> Result<PartitionMap, MapError> {
        let bounds: Vec<PartitionBound> = bounds.iter().map(|bound| PartitionBound::of_text(kind, bound).unwrap()).collect();
        PartitionMap::new(kind, KeyOrder::ByCollation, &bounds)
    }

    #[test]
    fn ranges_have_their_lower_end_and_null_is_in_none() {
        let bounds = ["FOR VALUES FROM (10) TO (20)", "FOR VALUES FROM (MINVALUE) TO (0)", "FOR VALUES FROM (20) TO (MAXVALUE)"];
        let places = map(KeyKind::Int4, &bounds).unwrap();
        let at = |value| places.place_of(&KeyValue::Integer(value));
        let found = [i64::MIN, -1, 0, 9, 10, 19, 20, i64::MAX].map(at);
        let (one, nowhere) = (PartitionPlace::At, PartitionPlace::Nowhere);
        assert_eq!(found, [one(1), one(1), nowhere, nowhere, one(0), one(0), one(2), one(2)]);
        assert_eq!(places.place_of(&KeyValue::Null), nowhere);
        let with_default = map(KeyKind::Int4, &[&bounds[..], &["DEFAULT"]].concat()).unwrap();
        assert_eq!(with_default.place_of(&KeyValue::Null), one(3));
        assert_eq!(with_default.place_of(&KeyValue::Integer(5)), one(3));
    }

    #[test]
    fn lists_name_their_values() {
        let places = map(KeyKind::Text, &["FOR VALUES IN ('b', 'a')", "FOR VALUES IN ('c', NULL)"]).unwrap();
        let at = |text: &str| places.place_of(&KeyKind::Text.of_text(text).unwrap());
        let (one, nowhere) = (PartitionPlace::At, PartitionPlace::Nowhere);
        assert_eq!(["a", "b", "c", "d", ""].map(at), [one(0), one(0), one(1), nowhere, nowhere]);
        assert_eq!(places.place_of(&KeyValue::Null), one(1));
        assert_eq!(map(KeyKind::Text, &["DEFAULT"]).unwrap().place_of(&KeyValue::Null), one(0));
    }

    #[test]
    fn bounds_that_no_table_has_are_errors() {
        for (bounds, error) in [
            (&[][..], MapError::NoPartitions),
            (&["DEFAULT", "DEFAULT"], MapError::Overlap),
            (&["FOR VALUES IN (1)", "FOR VALUES IN (1)"], MapError::Overlap),
            (&["FOR VALUES FROM (1) TO (5)", "FOR VALUES FROM (4) TO (9)"], MapError::Overlap),
            (&["FOR VALUES FROM (1) TO (5)", "FOR VALUES FROM (4) TO (MAXVALUE)"], MapError::Overlap),
            (&["FOR VALUES IN (1)", "FOR VALUES FROM (4) TO (9)"], MapError::MixedStrategies),
            (&["FOR VALUES WITH (modulus 4, remainder 1)", "FOR VALUES WITH (modulus 2, remainder 1)"], MapError::Overlap),
            (&["FOR VALUES WITH (modulus 4, remainder 1)", "FOR VALUES WITH (modulus 3, remainder 1)"], MapError::Overlap),
            (&["FOR VALUES WITH (modulus 70000, remainder 1)"], MapError::ModulusTooLarge { modulus: 70_000 }),
        ] {
            assert_eq!(map(KeyKind::Int4, bounds).unwrap_err(), error, "{bounds:?}");
        }
        let ranges = map(KeyKind::Text, &["FOR VALUES FROM ('a') TO ('b')"]);
        assert_eq!(ranges.unwrap_err(), MapError::UnknownOrder);
    }

    #[test]
    fn moduli_of_two_sizes_share_the_values() {
        let bounds = [
            "FOR VALUES WITH (modulus 2, remainder 0)",
            "FOR VALUES WITH (modulus 4, remainder 1)",
            "FOR VALUES WITH (modulus 4, remainder 3)",
        ];
        let places = map(KeyKind::Int4, &bounds).unwrap();
        let mut found = [0; 3];
        for value in 0..1_000 {
            let PartitionPlace::At(at) = places.place_of(&KeyValue::Integer(value)) else { panic!("{value}") };
            found[at] += 1;
        }
        assert!(found[0] > 400 && found[1] > 150 && found[2] > 150, "{found:?}");
    }
}
