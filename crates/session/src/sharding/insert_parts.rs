//! An INSERT of rows of several shards, as one statement for each shard.

use crate::sharding::bound_values::BoundValues;
use crate::sharding::text_plan::PlanFacts;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use weir_cache::{bind_holds_a_moment, says_a_moment};
use weir_shard::{InsertedKeys, ShardRefusal, in_order};
use weir_sql::insert_rows::{InsertRows, RowParameter};
use weir_sql::key_terms;
use weir_sql::key_terms::{KeyTerms, TermProperty};
use weir_sql::literal::LiteralGaps;
use weir_wire::frame::front;
use weir_wire::write;

const TOGETHER: &str =
    "comments, dollar quotes, strings with prefixes or backslashes, and parameters outside of its rows keep them together";

const TYPES: &str = "a parameter without a declared type has several rows, and not as the value of one column";

/// Most bytes of the statements for all shards.
const BYTES_MAX: usize = 16 << 20;

/// `text`, the type of parameters that a part does not use.
const UNUSED_TYPE: u32 = 25;

pub struct InsertParts {
    /// In the order of the visits.
    pub parts: Vec<InsertPart>,
    /// The part of each row, in the order of the text.
    pub part_of_row: Vec<usize>,
    /// True if the statement has RETURNING.
    pub returns: bool,
    /// True if it may ask for the time of the transaction, which each server has for itself.
    pub asks_time: bool,
}

pub struct InsertPart {
    pub shard: u16,
    pub text: String,
    pub rows: u64,
    /// Sorted.
    parameters: Vec<u32>,
}

/// The rows of an INSERT by shard, where literals and parameters give all keys. Error: why they stay together.
#[cold]
pub fn insert_parts(text: &str, facts: &PlanFacts<'_>, values: Option<&BoundValues<'_>>) -> Result<InsertParts, String> {
    let words = |refusal: ShardRefusal| refusal.to_string();
    let terms = key_terms(text).map_err(|_| words(ShardRefusal::KeyOfManyShards))?;
    let keys = InsertedKeys::of(&terms, |name| facts.kind(name)).map_err(words)?;
    let rows = InsertRows::of(text).ok_or(TOGETHER)?;
    let gaps = LiteralGaps::of(text.as_bytes(), keys.literals());
    let reader = gaps.reader(text.as_bytes());
    let value = |number| values.and_then(|values| values.get(number));
    let shards = keys.shards(|ordinal| reader.get(ordinal), value).map_err(words)?;
    if shards.len() != rows.count() {
        return Err(TOGETHER.to_owned());
    }
    if !keeps_types(rows.parameters(), |number| value(number).is_some_and(|value| value.type_oid != 0)) {
        return Err(TYPES.to_owned());
    }
    let asks_time = asks_time(text, facts, &rows, (&terms, values));
    let order = in_order(&shards);
    let part_of = |shard: &u16| order.iter().position(|of| of == shard).unwrap_or(0);
    let part_of_row: Vec<usize> = shards.iter().map(part_of).collect();
    let parts = order.iter().enumerate().map(|(part, shard)| {
        let of_part = || part_of_row.iter().enumerate().filter(|(_, of)| **of == part).map(|(row, _)| row);
        let used = rows.parameters().iter().filter(|used| part_of_row.get(used.row) == Some(&part));
        let mut parameters: Vec<u32> = used.map(|used| used.number).collect();
        parameters.sort_unstable();
        InsertPart { shard: *shard, text: rows.with_rows(text, of_part()), rows: of_part().count() as u64, parameters }
    });
    let parts = parts.collect();
    Ok(InsertParts { parts, part_of_row, returns: terms.properties.has(TermProperty::Returning), asks_time })
}

/// True in doubt. Texts that are values of columns without a time, as of a note, are not read as moments, nor are dates that a cast gives.
fn asks_time(
    text: &str,
    facts: &PlanFacts<'_>,
    rows: &InsertRows,
    (terms, values): (&KeyTerms, Option<&BoundValues<'_>>),
) -> bool {
    let write = terms.writes.first();
    let names = write.map(|write| facts.inserted_columns(write)).unwrap_or_default();
    let computes = rows.computes_behind(text);
    let is_timeless = |column: usize| {
        let of = write.zip(names.get(column));
        !computes && of.is_some_and(|(write, name)| facts.is_timeless(&write.relation, name))
    };
    let mut timed: Vec<u32> =
        rows.parameters().iter().filter(|used| !used.column.is_some_and(is_timeless)).map(|used| used.number).collect();
    timed.sort_unstable();
    let holds = |values: &BoundValues<'_>| {
        let mut bind = Vec::new();
        values.write_some(&mut bind, |number| timed.binary_search(&number).is_ok());
        bind_holds_a_moment(&bind)
    };
    terms.properties.has(TermProperty::TransactionTime)
        || says_a_moment(rows.without_strings(text, is_timeless).as_bytes())
        || values.is_some_and(holds)
}

/// True if PostgreSQL finds the types of parameters in each part as it does in the whole: at the first use in the text.
fn keeps_types(parameters: &[RowParameter], is_declared: impl Fn(u32) -> bool) -> bool {
    let mut first: BTreeMap<u32, RowParameter> = BTreeMap::new();
    parameters.iter().all(|used| match first.entry(used.number) {
        Entry::Vacant(entry) => {
            entry.insert(*used);
            true
        }
        Entry::Occupied(entry) => {
            let before = entry.get();
            let is_alike = before.row == used.row || (before.column.is_some() && before.column == used.column);
            is_alike || is_declared(used.number)
        }
    })
}

impl InsertParts {
    /// True if the statements for all shards take less memory than the limit, each with so many parameters.
    pub fn are_short(&self, bind_bytes: usize, parameters: usize) -> bool {
        // A type, and the length of a value.
        let each = 8 * parameters;
        self.parts.iter().map(|part| part.text.len() + each).sum::<usize>() + bind_bytes <= BYTES_MAX
    }
}

impl InsertPart {
    /// Writes a Parse and a Bind without names. Parameters keep their numbers, so that errors tell the client's; other rows' are NULL.
    pub fn write_bound(&self, out: &mut Vec<u8>, values: &BoundValues<'_>) {
        let is_used = |number: u32| self.parameters.binary_search(&number).is_ok();
        write::message(out, front::PARSE, |out| {
            out.push(0);
            write::cstr(out, self.text.as_bytes());
            let types = values.declared().max(values.count());
            out.extend(types.to_be_bytes());
            for at in 0..types {
                let declared = values.type_of(usize::from(at));
                let is_unused = declared == 0 && !is_used(u32::from(at) + 1);
                out.extend((if is_unused { UNUSED_TYPE } else { declared }).to_be_bytes());
            }
        });
        write::message(out, front::BIND, |out| {
            out.extend([0; 2]);
            values.write_some(out, is_used);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_of_several_rows_keeps_its_type_as_the_value_of_one_column() {
        for (text, expected) in [
            ("insert into a values ($1, $2), ($3, $4)", true),
            ("insert into a values ($1, $2), ($3, $2)", true),
            ("insert into a values ($1, f($1)), ($1, $2)", true),
            ("insert into a values ($1, $2), ($2, $3)", false),
            ("insert into a values ($1, $2::int), ($3, $2::int)", false),
            ("insert into a values (f($1), $1), ($2, $1)", false),
        ] {
            let rows = InsertRows::of(text).unwrap();
            assert_eq!(keeps_types(rows.parameters(), |_| false), expected, "{text}");
            assert!(keeps_types(rows.parameters(), |_| true), "{text}");
        }
    }

    #[test]
    fn a_part_has_the_values_of_its_own_rows() {
        let part = InsertPart { shard: 1, text: "insert into a values ($2)".to_owned(), rows: 1, parameters: vec![2] };
        let bind = [&[0, 0, 0, 3][..], &[0, 0, 0, 1, b'7'], &[0, 0, 0, 1, b'8'], &[0, 0, 0, 1, b'9'], &[0, 1, 0, 1]].concat();
        let types = [0, 1, 0, 0, 0, 23];
        let mut out = Vec::new();
        part.write_bound(&mut out, &BoundValues::read(&bind, &types).unwrap());
        let parse = [b"\0insert into a values ($2)\0".as_slice(), &[0, 3, 0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, 25]].concat();
        let null = [0xff; 4];
        let bound = [&[0, 0, 0, 0, 0, 3][..], &null, &[0, 0, 0, 1, b'8'], &null, &[0, 1, 0, 1]].concat();
        let mut expected = Vec::new();
        write::message(&mut expected, front::PARSE, |out| out.extend(parse));
        write::message(&mut expected, front::BIND, |out| out.extend(bound));
        assert_eq!(out, expected);
    }
}
