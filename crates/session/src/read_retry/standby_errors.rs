//! Errors of a standby after which the primary is asked.

/// Meaning of a standby's error for a read unseen by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyErrorMeaning {
    /// The primary would answer the same.
    Stands,
    Passing,
    /// The primary may answer; a standby never, unless definitions change.
    Remembered,
    Lost,
}

/// Errors of a standby or of lag.
///
/// Class 42: names, types and rights perhaps not replayed yet. 40001: a recovery conflict (`ProcessInterrupts` in postgres.c). 57014, a
/// cancel request or timeout, must end the statement. Errors such as division by zero are about the data.
const PASSING: [&[u8]; 8] = [b"22P02", b"3D000", b"3F000", b"40001", b"40P01", b"55000", b"58P01", b"XX000"];

/// A write in a read-only transaction; an unlogged or temporary relation.
const REMEMBERED: [&[u8]; 2] = [b"25006", b"0A000"];

/// Judges an error by untranslated severity and SQLSTATE.
pub fn judge(severity: &[u8], sqlstate: &[u8]) -> StandbyErrorMeaning {
    if matches!(severity, b"FATAL" | b"PANIC") {
        return StandbyErrorMeaning::Lost;
    }
    if REMEMBERED.contains(&sqlstate) {
        return StandbyErrorMeaning::Remembered;
    }
    if PASSING.contains(&sqlstate) || sqlstate.starts_with(b"42") {
        StandbyErrorMeaning::Passing
    } else {
        StandbyErrorMeaning::Stands
    }
}

/// Errors raised only in recovery, known by routine since messages may be translated. Source: utility.c, plancat.c, varsup.c, lock.c.
const OF_RECOVERY: [(&[u8], &[u8]); 4] = [
    (b"25006", b"PreventCommandDuringRecovery"),
    (b"0A000", b"get_relation_info"),
    (b"XX000", b"GetNewTransactionId"),
    (b"55000", b"LockAcquireExtended"),
];

pub fn is_of_recovery(sqlstate: &[u8], routine: &[u8]) -> bool {
    OF_RECOVERY.contains(&(sqlstate, routine))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryStanding {
    Primary,
    /// By the operator's word, whatever the server reports.
    PrimaryByConfiguration,
    /// Was the primary when the statement was sent.
    GivenUp,
}

/// A write refused by the server that was its primary.
#[derive(Clone, Copy, Debug)]
pub struct RefusedWrite<'a> {
    pub sqlstate: &'a [u8],
    pub routine: &'a [u8],
    /// Raised within a function: something may have run.
    pub is_within: bool,
    pub is_in_recovery: bool,
    pub standing: PrimaryStanding,
    /// The session asked for read-only transactions.
    pub is_wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRemedy {
    None,
    /// Refused before it ran, for the server's role.
    AnotherPrimary,
    /// The operator names the node; its address may have moved.
    AnotherConnection,
}

pub fn is_by_standby(sqlstate: &[u8], routine: &[u8], is_in_recovery: bool) -> bool {
    sqlstate == b"25006" && (is_in_recovery || is_of_recovery(sqlstate, routine))
}

/// Read-only transactions of client or operator are refused in the same words, but by a server neither in recovery nor given up.
pub fn remedy(refused: &RefusedWrite<'_>) -> RefusalRemedy {
    let RefusedWrite { sqlstate, routine, is_within, is_in_recovery, standing, is_wanted } = *refused;
    let is_by_standby = is_by_standby(sqlstate, routine, is_in_recovery);
    match standing {
        _ if sqlstate != b"25006" || is_within => RefusalRemedy::None,
        PrimaryStanding::PrimaryByConfiguration if is_by_standby => RefusalRemedy::AnotherConnection,
        PrimaryStanding::GivenUp if is_by_standby || !is_wanted => RefusalRemedy::AnotherPrimary,
        PrimaryStanding::Primary if is_by_standby => RefusalRemedy::AnotherPrimary,
        PrimaryStanding::Primary | PrimaryStanding::PrimaryByConfiguration | PrimaryStanding::GivenUp => RefusalRemedy::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_the_primary_only_if_its_server_is_none() {
        use PrimaryStanding::{GivenUp, Primary, PrimaryByConfiguration};
        use RefusalRemedy::{AnotherConnection, AnotherPrimary, None};
        const RECOVERY: &str = "PreventCommandDuringRecovery";
        const READ_ONLY: &str = "PreventCommandIfReadOnly";
        // sqlstate, routine, within a function, in recovery, standing, wanted by the session -> remedy
        for (sqlstate, routine, is_within, is_in_recovery, standing, is_wanted, expected) in [
            ("25006", RECOVERY, false, false, Primary, false, AnotherPrimary),
            ("25006", RECOVERY, false, false, Primary, true, AnotherPrimary),
            ("25006", RECOVERY, true, false, Primary, false, None),
            ("25006", READ_ONLY, false, true, Primary, false, AnotherPrimary),
            ("25006", READ_ONLY, false, true, PrimaryByConfiguration, false, AnotherConnection),
            ("25006", RECOVERY, false, false, PrimaryByConfiguration, true, AnotherConnection),
            ("25006", RECOVERY, true, true, PrimaryByConfiguration, false, None),
            ("25006", READ_ONLY, false, false, PrimaryByConfiguration, false, None),
            ("25006", READ_ONLY, false, false, Primary, false, None),
            ("25006", READ_ONLY, false, false, Primary, true, None),
            ("25006", READ_ONLY, false, false, GivenUp, false, AnotherPrimary),
            ("25006", READ_ONLY, true, false, GivenUp, false, None),
            ("25006", READ_ONLY, false, false, GivenUp, true, None),
            ("40001", RECOVERY, false, true, GivenUp, false, None),
        ] {
            let (sqlstate, routine) = (sqlstate.as_bytes(), routine.as_bytes());
            let refused = RefusedWrite { sqlstate, routine, is_within, is_in_recovery, standing, is_wanted };
            assert_eq!(remedy(&refused), expected, "{refused:?}");
        }
    }

    #[test]
    fn a_write_is_refused_alike_in_a_transaction_that_only_reads() {
        assert!(is_of_recovery(b"25006", b"PreventCommandDuringRecovery"));
        assert!(!is_of_recovery(b"25006", b"PreventCommandIfReadOnly"));
        assert!(!is_of_recovery(b"0A000", b"PreventCommandDuringRecovery"));
    }

    #[test]
    fn what_only_a_standby_says_is_asked_of_the_primary() {
        for (severity, sqlstate, verdict) in [
            ("ERROR", "25006", StandbyErrorMeaning::Remembered),
            ("ERROR", "0A000", StandbyErrorMeaning::Remembered),
            ("ERROR", "40001", StandbyErrorMeaning::Passing),
            ("ERROR", "42P01", StandbyErrorMeaning::Passing),
            ("ERROR", "42501", StandbyErrorMeaning::Passing),
            ("ERROR", "57014", StandbyErrorMeaning::Stands),
            ("ERROR", "22012", StandbyErrorMeaning::Stands),
            ("ERROR", "P0001", StandbyErrorMeaning::Stands),
            ("FATAL", "57P01", StandbyErrorMeaning::Lost),
            ("FATAL", "40001", StandbyErrorMeaning::Lost),
        ] {
            assert_eq!(judge(severity.as_bytes(), sqlstate.as_bytes()), verdict, "{severity} {sqlstate}");
        }
    }
}
