//! Values of parameters about where statements go after a write.

/// How long reads stay on the primary after a write (`disable_load_balance_on_write`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnWrite {
    /// To the end of the transaction: after its first write it is on the primary as a whole, and nowhere else would its reads see what it wrote.
    #[default]
    Transaction,
    /// The same, for the same reason.
    Off,
    /// The same: only the transaction's own server has what it wrote, and a session has one at a time.
    DmlAdaptive,
    /// In all later transactions of the session as well.
    TransTransaction,
    /// To the end of the session.
    Always,
    /// What anybody has written is seen by all: positions in the WAL know when a standby has it (`RoutingConfig::causal_reads`).
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

/// Whose reads never go back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CausalReads {
    /// Nobody's.
    Off,
    /// A session's own: what it wrote and what it read.
    #[default]
    Session,
    /// What anybody was told is seen by all who ask later.
    Global,
}

impl CausalReads {
    pub const WORDS: [&'static str; 3] = ["off", "session", "global"];

    /// The mode a word names, in any case.
    pub fn of_word(word: &str) -> Option<CausalReads> {
        let all = [CausalReads::Off, CausalReads::Session, CausalReads::Global];
        let at = CausalReads::WORDS.iter().position(|known| known.eq_ignore_ascii_case(word.trim()))?;
        all.get(at).copied()
    }
}
