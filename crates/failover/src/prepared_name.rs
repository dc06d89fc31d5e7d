//! Names of prepared transactions: parts of a transaction that has written on several shards.
//!
//! One server commits first, and so decides. The parts on the others are prepared before under names that hold that server's number of the
//! transaction: whoever finds one asks the server that decides what became of it (`commit_outcome`). There is no other record.

use crate::commit_outcome::{LogLineage, TransactionNumber};
use std::fmt;
use std::num::NonZeroU64;

/// Begins each name.
pub const BEGIN: &str = "weir_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedName {
    /// The part's own shard: names are unique on a server.
    pub shard: u16,
    /// The transaction on the server that decides.
    pub decides: TransactionNumber,
}

impl PreparedName {
    /// `None`: another program's name.
    pub fn of_text(text: &str) -> Option<PreparedName> {
        let mut numbers = text.strip_prefix(BEGIN)?.split('_').map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next()?;
        let (shard, node, system, timeline, xid, said_ms) = (next()?, next()?, next()?, next()?, next()?, next()?);
        let line = LogLineage { system, timeline: timeline.try_into().ok()? };
        let decides = TransactionNumber { xid: NonZeroU64::new(xid)?, node: node.try_into().ok()?, line, said_ms };
        let name = PreparedName { shard: shard.try_into().ok()?, decides };
        // Nothing but what `Display` writes: no sign, no leading zero, no more words.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for PreparedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransactionNumber { xid, node, line: LogLineage { system, timeline }, said_ms } = self.decides;
        write!(f, "{BEGIN}{}_{node}_{system}_{timeline}_{xid}_{said_ms}", self.shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_no_other() {
        let line = LogLineage { system: u64::MAX, timeline: u32::MAX };
        let decides = TransactionNumber { xid: NonZeroU64::MAX, node: u16::MAX, line, said_ms: u64::MAX };
        let name = PreparedName { shard: u16::MAX, decides };
        let text = name.to_string();
        assert_eq!(PreparedName::of_text(&text), Some(name));
        // Source: GIDSIZE in twophase.h.
        assert!(text.len() < 200, "{text}");
        let small = "weir_1_0_7_1_768_5";
        assert_eq!(PreparedName::of_text(small).map(|name| name.to_string()).as_deref(), Some(small));
        for other in [
            "weir_1_0_7_1_0_5",
            "weir_1_0_7_1_768",
            "weir_1_0_7_1_768_5_6",
            "weir_01_0_7_1_768_5",
            "weir_+1_0_7_1_768_5",
            "weir_70000_0_7_1_768_5",
            "weir_1_0_7_5000000000_768_5",
            "weir_",
            "other_1_0_7_1_768_5",
            "",
        ] {
            assert_eq!(PreparedName::of_text(other), None, "{other}");
        }
    }
}
