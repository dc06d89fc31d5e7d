//! Tables with types: drivers read PgBouncer's columns as numbers.

use crate::admin::listing::{ColumnHead, ListCell};
use weir_wire::write::{self, ColumnType, INT4, INT8, TEXT};

pub struct ResultTable {
    pub columns: Vec<ColumnHead>,
    pub rows: Vec<Vec<ListCell>>,
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

pub fn describe(out: &mut Vec<u8>, columns: &[ColumnHead], formats: &[u16]) {
    write::typed_row_description(out, columns.iter().map(|column| (column.name, column.kind)), formats);
}

/// `format`: 0 is text, 1 binary.
fn encode(value: &ListCell, kind: ColumnType, format: u16) -> Option<Vec<u8>> {
    let number = match value {
        ListCell::Null => return None,
        ListCell::Text(_) | ListCell::Decimal { .. } | ListCell::Empty => return Some(value.to_string().into_bytes()),
        ListCell::Truth(truth) if kind == TEXT => return Some(truth.to_string().into_bytes()),
        ListCell::Truth(truth) => u64::from(*truth),
        ListCell::Number(number) => *number,
    };
    Some(if format == 0 || kind == TEXT {
        number.to_string().into_bytes()
    // Saturates, so that a large counter does not become a wrong small number.
    } else if kind == INT4 {
        i32::try_from(number).unwrap_or(i32::MAX).to_be_bytes().to_vec()
    } else if kind == INT8 {
        i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes().to_vec()
    } else {
        let mut out = Vec::new();
        write::numeric(&mut out, number);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::write::NUMERIC;

    #[test]
    fn values_are_written_in_the_format_asked_for() {
        for (value, kind, format, expected) in [
            (ListCell::Number(7), INT4, 0, Some(b"7".to_vec())),
            (ListCell::Number(7), INT4, 1, Some(vec![0, 0, 0, 7])),
            (ListCell::Number(u64::MAX), INT4, 1, Some(vec![0x7f, 0xff, 0xff, 0xff])),
            (ListCell::Number(7), INT8, 1, Some(vec![0, 0, 0, 0, 0, 0, 0, 7])),
            (ListCell::Number(7), NUMERIC, 1, Some(vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 7])),
            (ListCell::from("a"), TEXT, 1, Some(b"a".to_vec())),
            (ListCell::Truth(true), INT4, 1, Some(vec![0, 0, 0, 1])),
            (ListCell::Truth(true), TEXT, 1, Some(b"true".to_vec())),
            (ListCell::Empty, TEXT, 0, Some(Vec::new())),
            (ListCell::Null, INT4, 1, None),
        ] {
            assert_eq!(encode(&value, kind, format), expected, "{value:?} {kind:?} {format}");
        }
    }
}
