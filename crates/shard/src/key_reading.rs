//! The value of a key's constant: a literal or a bound parameter, read as PostgreSQL reads it beside a column of the key's type.

use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{KeySource, KeyTerm, Sign};
use weir_sql::literal::{LiteralClass, LiteralText, WrittenLiteral};

use crate::key_value::{KeyKind, KeyValue};
use crate::shard_refusal::ShardRefusal;

/// A value of a parameter as a client bound it. Texts are in the server's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundValue<'v> {
    /// Type that the client or the server named; 0: none did.
    pub type_oid: u32,
    pub format: ValueFormat,
    /// `None`: NULL.
    pub bytes: Option<&'v [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    Text,
    Binary,
}

/// How a constant meets a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// `column = constant`.
    Compared,
    /// A value of a row that is written.
    Written { modifier: i32 },
}

/// A constant as it is read beside a key column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyReading {
    pub(crate) term: KeyTerm,
    /// Type to which the term is cast.
    cast: Option<KeyKind>,
    /// Type of the column.
    pub(crate) kind: KeyKind,
    pub(crate) usage: KeyUse,
    /// Type that PostgreSQL finds for a parameter without one.
    pub(crate) inferred: Option<KeyKind>,
}

/// `unknown`, the type of a string that has none yet.
const UNKNOWN_OID: u32 = 705;

/// Names of the types in `pg_type`; the parser turns the standard's words into them.
const TYPE_NAMES: [(&str, KeyKind); 18] = [
    ("bool", KeyKind::Bool),
    ("bytea", KeyKind::Bytea),
    ("date", KeyKind::Date),
    ("float4", KeyKind::Float4),
    ("float8", KeyKind::Float8),
    ("int2", KeyKind::Int2),
    ("int4", KeyKind::Int4),
    ("int8", KeyKind::Int8),
    ("name", KeyKind::Name),
    ("numeric", KeyKind::Numeric),
    ("oid", KeyKind::Oid),
    ("text", KeyKind::Text),
    ("time", KeyKind::Time),
    ("timestamp", KeyKind::Timestamp),
    ("timestamptz", KeyKind::Timestamptz),
    ("uuid", KeyKind::Uuid),
    ("varchar", KeyKind::Text),
    // `bpchar` without a length only: `character` is `character(1)`, which has a modifier.
    ("bpchar", KeyKind::Bpchar),
];

fn kind_of_name(name: &QualifiedName) -> Option<KeyKind> {
    let is_own = matches!(name.schema.as_str(), "" | "pg_catalog");
    TYPE_NAMES.iter().find(|(known, _)| is_own && *known == name.name).map(|(_, kind)| *kind)
}

fn is_integer(kind: KeyKind) -> bool {
    matches!(kind, KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8)
}

/// Values of both types have one equality and one hash.
pub(crate) fn is_same_family(one: KeyKind, other: KeyKind) -> bool {
    one == other || (is_integer(one) && is_integer(other))
}

/// True if the value of `wide` is always one of `kind`, or PostgreSQL refuses it.
fn fits(kind: KeyKind, value: &KeyValue) -> bool {
    let KeyValue::Integer(value) = value else { return true };
    match kind {
        KeyKind::Int2 => i16::try_from(*value).is_ok(),
        KeyKind::Int4 => i32::try_from(*value).is_ok(),
        _ => true,
    }
}

impl KeyReading {
    /// `None`: no value of this constant is one of the column's family.
    pub(crate) fn new(term: &KeyTerm, kind: KeyKind, usage: KeyUse) -> Option<KeyReading> {
        let cast = match &term.cast {
            Some(name) => Some(kind_of_name(name).filter(|cast| is_same_family(*cast, kind))?),
            None => None,
        };
        let class = match &term.source {
            KeySource::Literal { class, .. } => Some(*class),
            KeySource::Constant { value: LiteralText::Integer(_), .. } => Some(LiteralClass::Integer),
            KeySource::Constant { value: LiteralText::Decimal(_), .. } => Some(LiteralClass::Decimal),
            KeySource::Constant { value: LiteralText::Boolean(_), .. } => {
                return (kind == KeyKind::Bool).then(|| Self::of(term, cast, kind, usage));
            }
            // `transform_null_equals` makes it `IS NULL`, which rows without a key fulfil.
            KeySource::Constant { value: LiteralText::Null, .. } if usage == KeyUse::Compared && cast.is_none() => return None,
            KeySource::Constant { .. } | KeySource::Parameter(_) => None,
        };
        let is_number = matches!(class, Some(LiteralClass::Integer | LiteralClass::Decimal));
        let takes_number = match cast.unwrap_or(kind) {
            KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 | KeyKind::Numeric => true,
            KeyKind::Oid | KeyKind::Float8 => cast.is_none(),
            _ => false,
        };
        (!is_number || takes_number).then(|| Self::of(term, cast, kind, usage))
    }

    fn of(term: &KeyTerm, cast: Option<KeyKind>, kind: KeyKind, usage: KeyUse) -> KeyReading {
        KeyReading { term: term.clone(), cast, kind, usage, inferred: None }
    }

    /// Type of a parameter of which nothing but this place says the type.
    pub(crate) fn own_type(&self) -> KeyKind {
        self.cast.unwrap_or(self.kind)
    }

    pub(crate) fn value<'t, 'v>(
        &self,
        literal: impl Fn(usize) -> Option<WrittenLiteral<'t>>,
        parameter: impl Fn(u32) -> Option<BoundValue<'v>>,
    ) -> Result<KeyValue, ShardRefusal> {
        let value = match &self.term.source {
            KeySource::Literal { ordinal, sign, .. } => {
                self.of_written(literal(*ordinal).ok_or(ShardRefusal::KeyValueUnread)?, *sign)?
            }
            KeySource::Constant { value, sign } => self.of_literal(value, *sign)?,
            KeySource::Parameter(number) => self.of_bound(parameter(*number).ok_or(ShardRefusal::KeyTypeUnknown)?)?,
        };
        // The cast, or the column, refuses what it cannot hold.
        let is_held =
            self.cast.is_none_or(|cast| fits(cast, &value)) && (self.usage == KeyUse::Compared || fits(self.kind, &value));
        if is_held { self.written(value) } else { Err(ShardRefusal::KeyValueUnread) }
    }

    #[inline]
    fn of_written(&self, literal: WrittenLiteral<'_>, sign: Sign) -> Result<KeyValue, ShardRefusal> {
        // Most keys: nothing is allocated for them.
        if let WrittenLiteral::Integer(value) = literal
            && is_integer(self.own_type())
        {
            let value = i64::from(value);
            return Ok(KeyValue::Integer(if sign == Sign::Minus { -value } else { value }));
        }
        self.of_literal(&literal.text().ok_or(ShardRefusal::KeyValueUnread)?, sign)
    }

    fn of_literal(&self, value: &LiteralText, sign: Sign) -> Result<KeyValue, ShardRefusal> {
        let kind = self.own_type();
        let read = match value {
            LiteralText::Null => Some(KeyValue::Null),
            LiteralText::Boolean(value) => Some(KeyValue::Integer(i64::from(*value))),
            LiteralText::String(text) => kind.of_text_bytes(text.as_bytes()),
            LiteralText::Integer(digits) => of_number(kind, digits, sign),
            // Digits that fit are a `bigint`.
            LiteralText::Decimal(digits) => of_number(kind, digits, sign),
        };
        read.ok_or(ShardRefusal::KeyValueUnread)
    }

    fn of_bound(&self, bound: BoundValue<'_>) -> Result<KeyValue, ShardRefusal> {
        let kind = match bound.type_oid {
            0 | UNKNOWN_OID => self.inferred.ok_or(ShardRefusal::KeyTypeUnknown)?,
            oid => KeyKind::of_type(oid).ok_or(ShardRefusal::KeyTypeUnknown)?,
        };
        if !is_same_family(kind, self.own_type()) {
            return Err(ShardRefusal::KeyTypeUnknown);
        }
        let Some(bytes) = bound.bytes else { return Ok(KeyValue::Null) };
        let read = match bound.format {
            ValueFormat::Binary => kind.of_binary(bytes),
            ValueFormat::Text => kind.of_text_bytes(bytes),
        };
        read.ok_or(ShardRefusal::KeyValueUnread)
    }

    /// The value that a row keeps: a column's modifier may round or cut it.
    fn written(&self, value: KeyValue) -> Result<KeyValue, ShardRefusal> {
        if is_changed(self.kind, &value, self.usage) { Err(ShardRefusal::KeyValueUnread) } else { Ok(value) }
    }
}

/// The value of a column of a row that comes as it is. `None`: an error for PostgreSQL, or a form that Weir does not read.
pub(crate) fn copied_value(kind: KeyKind, modifier: i32, format: ValueFormat, bytes: &[u8]) -> Option<KeyValue> {
    let value = match format {
        ValueFormat::Binary => kind.of_binary(bytes),
        ValueFormat::Text => kind.of_text_bytes(bytes),
    }?;
    (!is_changed(kind, &value, KeyUse::Written { modifier })).then_some(value)
}

/// True if a column's modifier may round or cut a value that is written.
fn is_changed(kind: KeyKind, value: &KeyValue, usage: KeyUse) -> bool {
    match usage {
        KeyUse::Written { modifier: 0.. } => {
            matches!(kind, KeyKind::Text | KeyKind::Numeric | KeyKind::Time | KeyKind::Timestamp | KeyKind::Timestamptz)
                && !is_within(kind, value, usage)
        }
        KeyUse::Written { .. } | KeyUse::Compared => false,
    }
}

/// True if the modifier surely leaves the value as it is: a `varchar(n)` of at most n bytes, or a NULL.
fn is_within(kind: KeyKind, value: &KeyValue, usage: KeyUse) -> bool {
    /// `atttypmod` counts the four bytes of a length word.
    const HEADER: i32 = 4;
    match (kind, value, usage) {
        (_, KeyValue::Null, _) => true,
        (KeyKind::Text, KeyValue::Bytes(bytes), KeyUse::Written { modifier }) => {
            usize::try_from(modifier - HEADER).is_ok_and(|most| bytes.len() <= most)
        }
        _ => false,
    }
}

fn of_number(kind: KeyKind, digits: &str, sign: Sign) -> Option<KeyValue> {
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let signed = || if sign == Sign::Minus { format!("-{digits}") } else { digits.to_owned() };
    match kind {
        // As wide as the literal is: a comparison with a narrower column is one of wider integers. Digits that do not fit are a `numeric`.
        KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 => {
            let value: i64 = Some(digits).filter(|_| is_whole)?.parse().ok()?;
            Some(KeyValue::Integer(if sign == Sign::Minus { -value } else { value }))
        }
        // An `integer` becomes an oid as it is; a greater one is a `bigint`.
        KeyKind::Oid if is_whole && sign == Sign::Plus => KeyKind::Oid.of_text(digits),
        KeyKind::Numeric => KeyKind::Numeric.of_text(&signed()),
        KeyKind::Float8 => KeyKind::Float8.of_text(&signed()),
        _ => None,
    }
}
