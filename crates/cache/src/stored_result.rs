//! A result as a store keeps it. Stores are not trusted: old, foreign, cut or garbled bytes are a miss.

use super::proof::ResultProof;
use super::versions::{ResultDependencies, Slot};
use std::hash::{BuildHasher, Hasher};

/// First byte; changes with the format, and with the way slots are found.
const FORM: u8 = 2;

const OF_WORDS: u8 = 0;
const OF_POSITION: u8 = 1;

/// Fixed: Weirs of one version must agree.
const CHECKSUM_SEED: u64 = 0x7765_6972;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultValidity {
    /// Stamps of its tables in the asking Weir's memory. `round` began after all it shows was visible.
    Words { deps: ResultDependencies, round: u64 },
    /// A proof, for these tables.
    Position { slots: Vec<Slot>, proof: ResultProof },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResult<'a> {
    pub took_us: u64,
    pub why: ResultValidity,
    pub key: &'a [u8],
    pub bytes: &'a [u8],
}

impl<'a> StoredResult<'a> {
    pub fn write(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 + self.key.len() + self.bytes.len());
        body.extend(self.took_us.to_le_bytes());
        match &self.why {
            ResultValidity::Words { deps, round } => {
                body.push(OF_WORDS);
                body.extend(round.to_le_bytes());
                body.extend((deps.pairs().len() as u32).to_le_bytes());
                for (slot, word) in deps.pairs() {
                    body.extend(slot.to_le_bytes());
                    body.extend(word.to_le_bytes());
                }
            }
            ResultValidity::Position { slots, proof } => {
                body.push(OF_POSITION);
                body.extend(proof.system.to_le_bytes());
                body.extend(proof.timeline.to_le_bytes());
                body.extend(proof.position.to_le_bytes());
                body.extend((slots.len() as u32).to_le_bytes());
                slots.iter().for_each(|slot| body.extend(slot.to_le_bytes()));
            }
        }
        body.extend((self.key.len() as u32).to_le_bytes());
        body.extend_from_slice(self.key);
        body.extend_from_slice(self.bytes);
        let mut out = Vec::with_capacity(1 + size_of::<u64>() + body.len());
        out.push(FORM);
        out.extend(checksum(&body).to_le_bytes());
        out.append(&mut body);
        out
    }

    pub fn read(mut from: &'a [u8]) -> Option<StoredResult<'a>> {
        if take::<1>(&mut from)? != [FORM] || u64::from_le_bytes(take(&mut from)?) != checksum(from) {
            return None;
        }
        let took_us = u64::from_le_bytes(take(&mut from)?);
        let why = match take::<1>(&mut from)? {
            [OF_WORDS] => read_words(&mut from)?,
            [OF_POSITION] => read_position(&mut from)?,
            _ => return None,
        };
        let key_bytes = u32::from_le_bytes(take(&mut from)?) as usize;
        let (key, bytes) = from.split_at_checked(key_bytes)?;
        Some(StoredResult { took_us, why, key, bytes })
    }
}

fn read_words(from: &mut &[u8]) -> Option<ResultValidity> {
    let round = u64::from_le_bytes(take(from)?);
    let count = u32::from_le_bytes(take(from)?);
    let pair = |_| Some((Slot::from_le_bytes(take(from)?), u64::from_le_bytes(take(from)?)));
    let pairs = (0..count).map(pair).collect::<Option<Vec<_>>>()?;
    Some(ResultValidity::Words { deps: ResultDependencies::of_pairs(pairs), round })
}

fn read_position(from: &mut &[u8]) -> Option<ResultValidity> {
    let system = u64::from_le_bytes(take(from)?);
    let timeline = u32::from_le_bytes(take(from)?);
    let position = u64::from_le_bytes(take(from)?);
    let count = u32::from_le_bytes(take(from)?);
    let slots = (0..count).map(|_| Some(Slot::from_le_bytes(take(from)?))).collect::<Option<Vec<_>>>()?;
    Some(ResultValidity::Position { slots, proof: ResultProof { system, timeline, position } })
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(CHECKSUM_SEED).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_no_part_or_change_of_it_is() {
        let proof = ResultProof { system: 7, timeline: 3, position: u64::MAX };
        let words = ResultValidity::Words { deps: ResultDependencies::of_pairs(vec![(1, 2), (3, u64::MAX)]), round: 5 };
        for why in [words, ResultValidity::Position { slots: vec![1, 9], proof }] {
            let kept = StoredResult { took_us: 9, why, key: b"key", bytes: b"bytes" };
            let written = kept.write();
            assert_eq!(StoredResult::read(&written), Some(kept));
            for end in 0..written.len() {
                assert_eq!(StoredResult::read(&written[..end]), None, "{end} bytes");
            }
            for at in 0..written.len() {
                let mut garbled = written.clone();
                garbled[at] ^= 1;
                assert_eq!(StoredResult::read(&garbled), None, "byte {at}");
            }
        }
    }

    /// A checksum that fits is no reason to believe a count.
    #[test]
    fn counts_that_lie_are_not_believed() {
        for kind in [OF_WORDS, OF_POSITION, 2] {
            let mut body = vec![0; 8];
            body.push(kind);
            body.resize(body.len() + if kind == OF_WORDS { 8 } else { 20 }, 0);
            body.extend(u32::MAX.to_le_bytes());
            let whole = [&[FORM], checksum(&body).to_le_bytes().as_slice(), &body].concat();
            assert_eq!(StoredResult::read(&whole), None, "kind {kind}");
        }
    }
}
