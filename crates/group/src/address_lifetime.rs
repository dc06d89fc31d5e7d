//! Lifetimes that a virtual address gets in the kernel, so that it ends within the lease whatever becomes of the process that set it.

/// The latest an address ends after its lifetime, if nothing else happens to the host's addresses: the kernel rounds its timer up by less than
/// a quarter of a second. Source: `ADDRCONF_TIMER_FUZZ`. Measured: 0.00 to 0.24 s.
const LATE_MS: u64 = 300;
/// Lateness if another address is set, changed or ends just before: the kernel looks again a second later at the earliest.
/// Source: `ADDRCONF_TIMER_FUZZ_MAX`. Measured: 0.84 s, where another address was set 0.2 s before the end.
const LATE_MAX_MS: u64 = 1050;
/// Time for the kernel to set an address. An address that took longer is removed.
const CALL_MS: u64 = 100;
/// Part of a lease that must be left for an address to be set.
pub const ADDRESS_LEFT_MS_MIN: u64 = 1000 + LATE_MS + CALL_MS;

/// Returns the lifetime to give to an address, in seconds, so that it ends within `left_ms`; none if no whole second fits.
///
/// From 2.15 s on it certainly does. Below, one second is given if it fits as long as no other address changes in that very second, since with
/// a lease of 2 s there would be no address at all else. Where a process dies or stops in such a second, the address ends up to 0.65 s after
/// the lease: before a successor that waited for half a lease of silence, yet perhaps not before one that saw a closed link.
pub fn address_lifetime_s(left_ms: u64) -> Option<u32> {
    let seconds = left_ms.saturating_sub(late_ms(left_ms) + CALL_MS) / 1000;
    u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// True if an address may outlive the lease that the kernel had set by `set_at_ms` at the latest, with a lifetime for `left_ms`.
pub fn may_outlive_lease(set_at_ms: u64, lifetime_s: u32, left_ms: u64, lease_until_ms: u64) -> bool {
    set_at_ms + u64::from(lifetime_s) * 1000 + late_ms(left_ms) > lease_until_ms
}

/// The lateness that is to be reckoned with.
fn late_ms(left_ms: u64) -> u64 {
    if left_ms >= 1000 + LATE_MAX_MS + CALL_MS { LATE_MAX_MS } else { LATE_MS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_ends_within_what_is_left_of_the_lease() {
        let cases =
            [(0, None), (1399, None), (1400, Some(1)), (2000, Some(1)), (2900, Some(1)), (3150, Some(2)), (5000, Some(3))];
        for (left_ms, expected) in cases {
            assert_eq!(address_lifetime_s(left_ms), expected, "{left_ms} ms");
        }
        for left_ms in 0..20_000 {
            let Some(seconds) = address_lifetime_s(left_ms) else { continue };
            let late_ms = if left_ms < 2150 { LATE_MS } else { LATE_MAX_MS };
            assert!(u64::from(seconds) * 1000 + late_ms + CALL_MS <= left_ms, "{left_ms} ms");
            assert!(!may_outlive_lease(CALL_MS, seconds, left_ms, left_ms));
        }
    }
}
