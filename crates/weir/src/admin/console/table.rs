//! Tables with types: drivers read PgBouncer's columns as numbers.

use weir_wire::write::{self, ColumnType, INT4, INT8, NUMERIC, TEXT};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    pub(super) name: &'static str,
    kind: ColumnType,
}

pub const fn text(name: &'static str) -> ResultColumn {
    ResultColumn { name, kind: TEXT }
}

pub const fn int(name: &'static str) -> ResultColumn {
    ResultColumn { name, kind: INT4 }
}

pub const fn long(name: &'static str) -> ResultColumn {
    ResultColumn { name, kind: INT8 }
}

pub const fn numeric(name: &'static str) -> ResultColumn {
    ResultColumn { name, kind: NUMERIC }
}

/// Numbers are never negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultValue {
    Text(String),
    Number(u64),
    Null,
}

impl From<&str> for ResultValue {
    fn from(text: &str) -> ResultValue {
        ResultValue::Text(text.to_string())
    }
}

impl From<String> for ResultValue {
    fn from(text: String) -> ResultValue {
        ResultValue::Text(text)
    }
}

impl From<u64> for ResultValue {
    fn from(number: u64) -> ResultValue {
        ResultValue::Number(number)
    }
}

impl From<u32> for ResultValue {
    fn from(number: u32) -> ResultValue {
        ResultValue::Number(u64::from(number))
    }
}

impl From<u16> for ResultValue {
    fn from(number: u16) -> ResultValue {
        ResultValue::Number(u64::from(number))
    }
}

impl From<usize> for ResultValue {
    fn from(number: usize) -> ResultValue {
        ResultValue::Number(number as u64)
    }
}

impl From<bool> for ResultValue {
    fn from(truth: bool) -> ResultValue {
        ResultValue::Number(u64::from(truth))
    }
}

pub type Rows = Vec<Vec<ResultValue>>;

pub struct ResultTable {
    pub columns: Vec<ResultColumn>,
    pub rows: Rows,
}

impl ResultTable {
    pub fn describe(&self, out: &mut Vec<u8>, formats: &[u16]) {
        describe(out, &self.columns, formats);
    }

    pub fn write(&self, out: &mut Vec<u8>, formats: &[u16], from: usize, count: usize) {
        for row in self.rows.iter().skip(from).take(count) {
            let values: Vec<Option<Vec<u8>>> = row
                .iter()
                .zip(&self.columns)
                .enumerate()
                .map(|(at, (value, column))| encode(value, column.kind, write::format_of(formats, at)))
                .collect();
            write::data_row_of(out, values.iter().map(Option::as_deref));
        }
    }
}

pub fn describe(out: &mut Vec<u8>, columns: &[ResultColumn], formats: &[u16]) {
    write::typed_row_description(out, columns.iter().map(|column| (column.name, column.kind)), formats);
}

/// `format`: 0 is text, 1 binary.
fn encode(value: &ResultValue, kind: ColumnType, format: u16) -> Option<Vec<u8>> {
    match value {
        ResultValue::Null => None,
        ResultValue::Text(text) => Some(text.clone().into_bytes()),
        ResultValue::Number(number) if format == 0 || kind == TEXT => Some(number.to_string().into_bytes()),
        // Saturates, so that a large counter does not become a wrong small number.
        ResultValue::Number(number) if kind == INT4 => Some(i32::try_from(*number).unwrap_or(i32::MAX).to_be_bytes().to_vec()),
        ResultValue::Number(number) if kind == INT8 => Some(i64::try_from(*number).unwrap_or(i64::MAX).to_be_bytes().to_vec()),
        ResultValue::Number(number) => {
            let mut out = Vec::new();
            write::numeric(&mut out, *number);
            Some(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_the_format_asked_for() {
        for (value, kind, format, expected) in [
            (ResultValue::Number(7), INT4, 0, Some(b"7".to_vec())),
            (ResultValue::Number(7), INT4, 1, Some(vec![0, 0, 0, 7])),
            (ResultValue::Number(u64::MAX), INT4, 1, Some(vec![0x7f, 0xff, 0xff, 0xff])),
            (ResultValue::Number(7), INT8, 1, Some(vec![0, 0, 0, 0, 0, 0, 0, 7])),
            (ResultValue::Number(7), NUMERIC, 1, Some(vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 7])),
            (ResultValue::from("a"), TEXT, 1, Some(b"a".to_vec())),
            (ResultValue::Null, INT4, 1, None),
        ] {
            assert_eq!(encode(&value, kind, format), expected, "{value:?} {kind:?} {format}");
        }
    }
}
