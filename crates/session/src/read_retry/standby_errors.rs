//! Errors of a standby that say nothing about the statement: the primary is asked then.

/// Meaning of a standby's error for a read of which the client has seen nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyErrorMeaning {
    /// The primary would say the same: the client hears it.
    Stands,
    /// The primary may answer; the next time a standby may.
    Passing,
    /// The primary may answer, and no standby ever will, as long as nothing is defined anew.
    Remembered,
    /// The connection ends with it.
    Lost,
}

/// Errors that come from being a standby, or from being behind.
///
/// Class 42 is about names, types and rights, which may not have been replayed yet. A recovery conflict is 40001 (`ProcessInterrupts` in
/// postgres.c); 57014 is a cancel request or a limit on time, and must end the statement. Others, like a division by zero, are
/// about the data read, and a read on a standby has the data of its moment.
const PASSING: [&[u8]; 8] = [b"22P02", b"3D000", b"3F000", b"40001", b"40P01", b"55000", b"58P01", b"XX000"];

/// A write in a read-only transaction; an unlogged or temporary relation.
const REMEMBERED: [&[u8]; 2] = [b"25006", b"0A000"];

/// Judges an error by its severity, not translated, and SQLSTATE.
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

/// Errors that only a server in recovery raises, also in a transaction that only reads. They are known by the function that
/// raises them, as the words may be translated. Source: utility.c, plancat.c, varsup.c, lock.c.
const OF_RECOVERY: [(&[u8], &[u8]); 4] = [
    (b"25006", b"PreventCommandDuringRecovery"),
    (b"0A000", b"get_relation_info"),
    (b"XX000", b"GetNewTransactionId"),
    (b"55000", b"LockAcquireExtended"),
];

/// True if only a standby says so.
pub fn is_of_recovery(sqlstate: &[u8], routine: &[u8]) -> bool {
    OF_RECOVERY.contains(&(sqlstate, routine))
}

/// The standing of the server that refused a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryStanding {
    /// It counts as the primary.
    Primary,
    /// The same, and so the operator says, whatever the server says of itself.
    PrimaryByConfiguration,
    /// It counted as the primary when the statement was sent, and does not any more.
    GivenUp,
}

/// A statement that writes, refused with an error by the server that it was sent to as the primary.
#[derive(Clone, Copy, Debug)]
pub struct RefusedWrite<'a> {
    pub sqlstate: &'a [u8],
    pub routine: &'a [u8],
    /// The error was raised within a function: something may have run before.
    pub is_within: bool,
    /// The server reports `in_hot_standby`.
    pub is_in_recovery: bool,
    pub standing: PrimaryStanding,
    /// The session asked for transactions that only read.
    pub is_wanted: bool,
}

/// The treatment of a refused statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRemedy {
    /// Its client hears of it.
    None,
    /// It was refused for its server's role, before it ran, and waits for another primary.
    AnotherPrimary,
    /// The same, and the operator names the node as the primary. Its address may lead to another server than when the connection was opened.
    AnotherConnection,
}

/// True if a server in recovery refused a write.
pub fn is_by_standby(sqlstate: &[u8], routine: &[u8], is_in_recovery: bool) -> bool {
    sqlstate == b"25006" && (is_in_recovery || is_of_recovery(sqlstate, routine))
}

/// Judges a refused statement. A transaction that only reads by its client's wish, or by an operator's, is refused in the same words: then the server
/// neither is in recovery nor was given up.
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
