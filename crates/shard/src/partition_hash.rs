//! PostgreSQL's hash functions with a seed, as partitions use them. Sources: `src/common/hashfn.c`, `compute_partition_hash_value` in
//! `src/backend/partitioning/partbounds.c`.

/// `HASH_PARTITION_SEED` in `src/include/catalog/partition.h`.
pub const SEED: u64 = 0x7A5B_2236_7996_DCFD;

const START: u32 = 0x9e37_79b9;
const ADDED: u32 = 3_923_095;

/// The three words under way.
struct HashWords {
    a: u32,
    b: u32,
    c: u32,
}

impl HashWords {
    fn begin(length: u32, seed: u64) -> HashWords {
        let word = START.wrapping_add(length).wrapping_add(ADDED);
        let mut words = HashWords { a: word, b: word, c: word };
        if seed != 0 {
            words.a = words.a.wrapping_add((seed >> 32) as u32);
            words.b = words.b.wrapping_add(seed as u32);
            words.mix();
        }
        words
    }

    /// The macro `mix`.
    fn mix(&mut self) {
        let HashWords { a, b, c } = self;
        for (rot_a, rot_b, rot_c) in [(4, 6, 8), (16, 19, 4)] {
            *a = a.wrapping_sub(*c) ^ c.rotate_left(rot_a);
            *c = c.wrapping_add(*b);
            *b = b.wrapping_sub(*a) ^ a.rotate_left(rot_b);
            *a = a.wrapping_add(*c);
            *c = c.wrapping_sub(*b) ^ b.rotate_left(rot_c);
            *b = b.wrapping_add(*a);
        }
    }

    /// The macro `final`.
    fn finish(self) -> u64 {
        let HashWords { mut a, mut b, mut c } = self;
        c = (c ^ b).wrapping_sub(b.rotate_left(14));
        a = (a ^ c).wrapping_sub(c.rotate_left(11));
        b = (b ^ a).wrapping_sub(a.rotate_left(25));
        c = (c ^ b).wrapping_sub(b.rotate_left(16));
        a = (a ^ c).wrapping_sub(c.rotate_left(4));
        b = (b ^ a).wrapping_sub(a.rotate_left(14));
        c = (c ^ b).wrapping_sub(b.rotate_left(24));
        u64::from(b) << 32 | u64::from(c)
    }
}

/// `hash_bytes_extended`, on the little-endian machines that Weir runs on.
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut words = HashWords::begin(bytes.len() as u32, seed);
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        words.a = words.a.wrapping_add(word(&chunk[..4]));
        words.b = words.b.wrapping_add(word(&chunk[4..8]));
        words.c = words.c.wrapping_add(word(&chunk[8..]));
        words.mix();
    }
    let rest = chunks.remainder();
    let part = |from: usize| rest.get(from..).map_or(0, |rest| word(&rest[..rest.len().min(4)]));
    words.a = words.a.wrapping_add(part(0));
    words.b = words.b.wrapping_add(part(4));
    // The lowest byte is the length's.
    words.c = words.c.wrapping_add(part(8) << 8);
    words.finish()
}

/// Up to four bytes as a little-endian number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// `hashint8extended`, which gives for a narrower integer what that type's function gives.
pub fn hash_integer(value: i64, seed: u64) -> u64 {
    let (low, high) = (value as u32, (value >> 32) as u32);
    let mut words = HashWords::begin(4, seed);
    words.a = words.a.wrapping_add(low ^ if value >= 0 { high } else { !high });
    words.finish()
}

/// The hash of a row from that of its only column: `hash_combine64` with nothing before.
pub fn of_row(hash: u64) -> u64 {
    hash.wrapping_add(0x49a0_f4dd_15e5_a8e3)
}
