//! SQL text: the shard that it belongs to, by plans that all texts of one skeleton share.

use std::sync::{Arc, LazyLock};

use weir_shard::{
    BoundValue, KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardedTable, ValueFormat, engine_takes, plan,
};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms;
use weir_sql::literal::{LiteralGaps, literal_at};
use weir_sql::skeleton::skeleton;

/// Two sets of literals for the skeleton's placeholders: integer, string, decimal.
const LITERALS: [[&str; 3]; 3] = [["0", "''", "0.5"], ["2147483647", "'it''s'", "99999999999"], ["08", "'\u{e9};'", "7.25"]];

/// Names of tables, each with its key.
const TABLES: [(&str, &str, KeyKind); 4] =
    [("t", "id", KeyKind::Int4), ("u", "id", KeyKind::Int8), ("s", "k", KeyKind::Text), ("n", "k", KeyKind::Numeric)];

/// Types that a client may name.
const TYPES: [u32; 6] = [0, 23, 20, 25, 1700, 16];

static SHARDED: LazyLock<Vec<Arc<ShardedTable>>> = LazyLock::new(|| TABLES.iter().map(sharded).collect());

fn sharded((_, key, kind): &(&str, &str, KeyKind)) -> Arc<ShardedTable> {
    let bounds = ["FOR VALUES WITH (modulus 2, remainder 0)", "FOR VALUES WITH (modulus 2, remainder 1)"];
    let bounds: Vec<PartitionBound> =
        bounds.iter().map(|bound| PartitionBound::of_text(*kind, bound).expect("a bound of a hash")).collect();
    Arc::new(ShardedTable {
        key: (*key).to_owned(),
        kind: *kind,
        order: KeyOrder::Known,
        modifier: -1,
        map: PartitionMap::new(*kind, KeyOrder::Known, &bounds).expect("two partitions"),
        shards: vec![0, 1],
        columns: [*key, "x", "y"].map(str::to_owned).to_vec(),
        draws_keys: false,
        colocation: 0,
    })
}

/// Any text has a shard or a reason, and its siblings of the same skeleton have the same terms.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(terms) = key_terms(text) else { return };
    let lookup = |name: &QualifiedName| match TABLES.iter().position(|(known, ..)| *known == name.name) {
        Some(at) => RelationKind::Sharded(&SHARDED[at]),
        None if name.name.len() == 3 => RelationKind::Reference,
        None => RelationKind::Single,
    };
    if let Ok(plan) = plan(&terms, lookup) {
        let parameter = |number: u32| {
            let number = number as usize;
            let format = if number.is_multiple_of(2) { ValueFormat::Text } else { ValueFormat::Binary };
            Some(BoundValue { type_oid: TYPES[number % TYPES.len()], format, bytes: bytes.get(..number) })
        };
        if let Ok(shard) = plan.shard(|ordinal| literal_at(bytes, ordinal), parameter) {
            assert!(shard < 2);
        }
    }
    // The engine takes statements that only read.
    assert!(engine_takes(&terms, lookup).is_err() || terms.writes.is_empty());
    let mut reduced = Vec::new();
    if !skeleton(bytes, &mut reduced) {
        return;
    }
    for literals in LITERALS {
        let sibling = fill(&reduced, literals);
        let mut again = Vec::new();
        if !skeleton(&sibling, &mut again) || again != reduced {
            continue;
        }
        check_literals(bytes, &sibling);
        let Ok(sibling) = std::str::from_utf8(&sibling) else { continue };
        assert_eq!(key_terms(sibling).as_ref(), Ok(&terms), "{sibling}");
    }
}

/// The gaps of one text show the literals of its sibling.
fn check_literals(bytes: &[u8], sibling: &[u8]) {
    const LITERALS_MAX: usize = 64;
    let gaps = LiteralGaps::of(bytes, LITERALS_MAX);
    let reader = gaps.reader(sibling);
    for ordinal in 0..LITERALS_MAX {
        assert_eq!(reader.get(ordinal), literal_at(sibling, ordinal), "{ordinal} of {}", String::from_utf8_lossy(sibling));
    }
}

fn fill(reduced: &[u8], literals: [&str; 3]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in reduced {
        match byte {
            1..=3 => text.extend_from_slice(literals[usize::from(*byte) - 1].as_bytes()),
            _ => text.push(*byte),
        }
    }
    text
}
