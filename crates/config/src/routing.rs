//! Parameters for the nodes of reads after a write.

/// How long reads stay on the primary after a write (`disable_load_balance_on_write`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWrite {
    /// To the end of the transaction, which is on the primary from its first write; no other server has the written rows.
    #[default]
    Transaction,
    /// As `Transaction`, for the same reason.
    Off,
    /// As `Transaction`: only its own server has the written rows, and a session has one server at a time.
    DmlAdaptive,
    /// Also in all later transactions of the session.
    TransTransaction,
    /// To the end of the session.
    Always,
    /// All sessions see every write, by WAL positions of the standbys (`RoutingConfig::causal_reads`).
    DmlAdaptiveGlobal,
}

impl OnWrite {
    pub fn of_word(word: &str) -> OnWrite {
        match word {
            "trans_transaction" => OnWrite::TransTransaction,
            "always" => OnWrite::Always,
            "off" => OnWrite::Off,
            "dml_adaptive" => OnWrite::DmlAdaptive,
            "dml_adaptive_global" => OnWrite::DmlAdaptiveGlobal,
            _ => OnWrite::Transaction,
        }
    }

    /// True if a session's write matters beyond its transaction.
    #[inline]
    pub fn remembers(self) -> bool {
        matches!(self, OnWrite::TransTransaction | OnWrite::Always)
    }
}

/// Sessions whose reads never go back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CausalReads {
    /// None.
    Off,
    /// Per session: its writes and its earlier reads.
    Session,
    /// Per session, and all writes to the relations that are read.
    #[default]
    Tables,
    /// Reads show all that any session was told before.
    Global,
}

impl CausalReads {
    pub const WORDS: [&'static str; 4] = ["off", "session", "tables", "global"];

    /// Parses a word, in any case.
    pub fn of_word(word: &str) -> Option<CausalReads> {
        let all = [CausalReads::Off, CausalReads::Session, CausalReads::Tables, CausalReads::Global];
        let at = CausalReads::WORDS.iter().position(|known| known.eq_ignore_ascii_case(word.trim()))?;
        all.get(at).copied()
    }
}
