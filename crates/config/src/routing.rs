//! Values of parameters about where statements go after a write.

/// How long reads stay on the primary after a write (`disable_load_balance_on_write`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWrite {
    /// To the end of the transaction: after its first write it is on the primary as a whole, and no other server has the
    /// written rows.
    #[default]
    Transaction,
    /// To the end of the transaction, too, for this reason.
    Off,
    /// To the end of the transaction, too: only its own server has the written rows, and a session has one server at a time.
    DmlAdaptive,
    /// In all later transactions of the session as well.
    TransTransaction,
    /// To the end of the session.
    Always,
    /// All sessions see every write: positions in the WAL tell when a standby has it (`RoutingConfig::causal_reads`).
    DmlAdaptiveGlobal,
}

impl OnWrite {
    /// The mode a word of the configuration names.
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

    /// True if it matters beyond the transaction that a session has written.
    #[inline]
    pub fn remembers(self) -> bool {
        matches!(self, OnWrite::TransTransaction | OnWrite::Always)
    }
}

/// Sessions whose reads never go back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CausalReads {
    /// Nobody's.
    Off,
    /// A session's own: its writes and its earlier reads.
    Session,
    /// A session's own, and what anybody wrote to the relations that are read.
    #[default]
    Tables,
    /// Each session's reads show all that any session was told before them.
    Global,
}

impl CausalReads {
    pub const WORDS: [&'static str; 4] = ["off", "session", "tables", "global"];

    /// The mode a word names, in any case.
    pub fn of_word(word: &str) -> Option<CausalReads> {
        let all = [CausalReads::Off, CausalReads::Session, CausalReads::Tables, CausalReads::Global];
        let at = CausalReads::WORDS.iter().position(|known| known.eq_ignore_ascii_case(word.trim()))?;
        all.get(at).copied()
    }
}
