//! The system identifier in PostgreSQL's control file, for all versions alike.
//!
//! Source: `ControlFileData` in pg_control.h: the identifier comes first, a CRC-32C of all before it ends the structure. The bytes after it
//! are zero.

use anyhow::{Context, Result};

/// Where a segment of WAL repeats the identifier: `xlp_sysid` of `XLogLongPageHeaderData` in xlog_internal.h, which has no checksum.
pub(crate) const IDENTIFIER_IN_SEGMENT: u64 = 24;
/// CRC-32C (Castagnoli), its bits in reverse.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The structure is never longer: `PG_CONTROL_MAX_SAFE_SIZE`, a sector of a disk.
const LENGTH_MAX: usize = 512;

/// Error: the file is too short.
pub(crate) fn identifier(control: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(*control.first_chunk().context("the control file is empty")?))
}

/// Error: no checksum of these bytes is in them.
pub(crate) fn set_identifier(control: &mut [u8], identifier: u64) -> Result<()> {
    let at = checksum_at(control).context("no checksum that fits its bytes is in the control file")?;
    control[..size_of::<u64>()].copy_from_slice(&identifier.to_ne_bytes());
    let checksum = !control[..at].iter().fold(!0, |crc, byte| crc_step(crc, *byte));
    control[at..at + size_of::<u32>()].copy_from_slice(&checksum.to_ne_bytes());
    Ok(())
}

/// Where the checksum of all bytes before it stands. Versions differ in the structure's length.
fn checksum_at(control: &[u8]) -> Option<usize> {
    let mut crc = !0;
    for (at, byte) in control.iter().enumerate().take(LENGTH_MAX) {
        let word = control[at..].first_chunk().map(|word| u32::from_ne_bytes(*word));
        if at >= size_of::<u64>() && at.is_multiple_of(size_of::<u32>()) && word == Some(!crc) {
            return Some(at);
        }
        crc = crc_step(crc, *byte);
    }
    None
}

fn crc_step(crc: u32, byte: u8) -> u32 {
    (0..u8::BITS).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, B.4: 32 bytes of zeros.
        let crc = !(0..32).fold(!0, |crc, _| crc_step(crc, 0));
        assert_eq!(crc, 0x8a91_36aa);
    }

    #[test]
    fn a_new_identifier_has_a_checksum_that_fits() {
        let mut control = vec![0; 8192];
        control[..40].copy_from_slice(&(1..=40).collect::<Vec<u8>>());
        let checksum = !control[..40].iter().fold(!0, |crc, byte| crc_step(crc, *byte));
        control[40..44].copy_from_slice(&checksum.to_ne_bytes());
        set_identifier(&mut control, 7).unwrap();
        assert_eq!((identifier(&control).unwrap(), checksum_at(&control)), (7, Some(40)));
        control[9] ^= 1;
        assert!(set_identifier(&mut control, 8).is_err(), "a damaged file is not made whole");
        assert!(identifier(&control[..7]).is_err());
    }
}
