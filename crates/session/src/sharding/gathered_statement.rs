//! A read of several shards within a transaction (`gathered_read`), as the engine is to plan it.

use crate::sharding::bound_values::BoundValues;

/// The statement whose rows are copied.
pub struct GatheredStatement {
    /// A Parse behind its name.
    pub parse: Box<[u8]>,
    /// A Bind behind its names.
    pub values: Box<[u8]>,
}

impl GatheredStatement {
    pub fn new(parse: &[u8], values: &[u8]) -> GatheredStatement {
        GatheredStatement { parse: parse.into(), values: values.into() }
    }

    /// Writes the Bind of the same values to a statement with another number of columns, behind its names. `None`: malformed.
    pub fn write_values(&self, out: &mut Vec<u8>) -> Option<()> {
        // The types count for a look at values only.
        let without_formats = BoundValues::read(&self.values, b"")?.without_result_formats(&self.values)?;
        out.extend_from_slice(without_formats);
        out.extend(0u16.to_be_bytes());
        Some(())
    }
}
