//! Output of `pg_controldata` with `LC_ALL=C`, which reads its own version's control file only.

use crate::answer::{ClusterState, ControlFile};

/// `major`: that of the program. `None`: incomplete.
pub fn read(text: &str, major: u16) -> Option<ControlFile> {
    let word = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let checksums: u32 = word("Data page checksum version")?.parse().ok()?;
    Some(ControlFile {
        system_identifier: word("Database system identifier")?.parse().ok()?,
        state: ClusterState::of_name(word("Database cluster state")?),
        major,
        timeline: word("Latest checkpoint's TimeLineID")?.parse().ok()?,
        checkpoint: position(word("Latest checkpoint location")?)?,
        redo: position(word("Latest checkpoint's REDO location")?)?,
        recovery_end: position(word("Minimum recovery ending location")?)?,
        recovery_timeline: word("Min recovery ending loc's timeline")?.parse().ok()?,
        can_rewind: checksums > 0 || word("wal_log_hints setting")? == "on",
    })
}

fn position(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |text| u32::from_str_radix(text, 16).ok().map(u64::from);
    Some(part(high)? << 32 | part(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pg_control version number:            1300\n\
        Database system identifier:           7306839521330281498\n\
        Database cluster state:               in production\n\
        Latest checkpoint location:           1/2000060\n\
        Latest checkpoint's REDO location:    1/2000028\n\
        Latest checkpoint's TimeLineID:       3\n\
        Latest checkpoint's PrevTimeLineID:   2\n\
        Minimum recovery ending location:     0/0\n\
        Min recovery ending loc's timeline:   0\n\
        wal_log_hints setting:                off\n\
        Data page checksum version:           1\n";

    #[test]
    fn the_words_of_pg_controldata_are_read() {
        let expected = ControlFile {
            system_identifier: 7_306_839_521_330_281_498,
            state: ClusterState::InProduction,
            major: 15,
            timeline: 3,
            checkpoint: 0x1_0200_0060,
            redo: 0x1_0200_0028,
            recovery_end: 0,
            recovery_timeline: 0,
            can_rewind: true,
        };
        assert_eq!(read(TEXT, 15), Some(expected));
        let plain = TEXT.replace("version:           1", "version:           0");
        assert_eq!(read(&plain, 15), Some(ControlFile { can_rewind: false, ..expected }));
        let hints = plain.replace("off", "on");
        assert_eq!(read(&hints, 15), Some(expected));
        assert_eq!(read(&TEXT.replace("1/2000060", "x"), 15), None);
        assert_eq!(read("", 15), None);
    }
}
