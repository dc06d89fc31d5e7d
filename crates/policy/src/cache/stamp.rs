//! What stands in a store for a slot, so that several Weirs agree on what is true; and an answer as it is kept there.
//!
//! A stamp is a number that never was before, its *base*, and marks: of members (a worker of some Weir) that have writers about to
//! commit, and of those that have just made it. Who reads a stamp with marks trusts nothing that hangs on it. An answer carries the
//! bases it was made under. So a store may lose or forget what it likes: what is missing is untrue, and what is made anew has another base.

use super::versions::{Deps, Slot};

/// A worker of a Weir, or what tells for it of changes that are none of its writers'; the lowest byte says which.
pub type Member = u32;

/// The lowest byte of the member that marks what others write past its Weir. Its marks count for that Weir alone.
pub const FOLLOWER: u8 = u8::MAX;

/// The lowest byte of the member that marks what has changed for good before it is marked: nothing of it is under way.
pub const PAST: u8 = u8::MAX - 1;

/// Whether a member's marks stand for no write that a server may still carry out: whoever finds them may give the stamp another base.
pub(super) fn is_brief(member: Member) -> bool {
    matches!(member.to_le_bytes()[0], FOLLOWER | PAST)
}

/// Longer stamps are not read: some member left marks behind again and again.
const MARKS_MAX: usize = 512;
const BASE_DIGITS: usize = 16;
const MEMBER_DIGITS: usize = 8;
/// A comma, the member, the kind.
const MARK_BYTES: usize = 1 + MEMBER_DIGITS + 1;

/// Why nothing that hangs on a slot is trusted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Some writer is about to commit.
    Writer,
    /// The stamp was made anew: writers may have marked the one that was lost.
    Young,
}

/// A member's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    pub member: Member,
    pub kind: Kind,
}

impl Mark {
    /// As it is appended to a stamp.
    pub fn text(self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Writer => 'w',
            Kind::Young => 'y',
        };
        format!(",{:0MEMBER_DIGITS$x}{kind}", self.member).into_bytes()
    }

    fn parse(text: &[u8]) -> Option<Mark> {
        let (kind, rest) = text.split_last()?;
        let digits = rest.strip_prefix(b",").filter(|digits| digits.len() == MEMBER_DIGITS)?;
        let kind = match kind {
            b'w' => Kind::Writer,
            b'y' => Kind::Young,
            _ => return None,
        };
        Some(Mark { member: u32::try_from(hex(digits)?).ok()?, kind })
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub base: u64,
    marks: Vec<Mark>,
}

impl Stamp {
    /// One that is made anew by a member; it may have writers about to commit.
    pub fn made(fresh: u64, member: Member, has_writers: bool) -> Stamp {
        let mark = |kind| Mark { member, kind };
        let marks = if has_writers { vec![mark(Kind::Young), mark(Kind::Writer)] } else { vec![mark(Kind::Young)] };
        Stamp { base: fresh, marks }
    }

    /// Reads one. `None`: nobody wrote that.
    pub fn parse(text: &[u8]) -> Option<Stamp> {
        let (base, marks) = text.split_at_checked(BASE_DIGITS)?;
        if marks.len() > MARKS_MAX * MARK_BYTES || !marks.len().is_multiple_of(MARK_BYTES) {
            return None;
        }
        let marks = marks.chunks(MARK_BYTES).map(Mark::parse).collect::<Option<Vec<Mark>>>()?;
        Some(Stamp { base: hex(base)?, marks })
    }

    pub fn text(&self) -> Vec<u8> {
        let mut text = format!("{:0BASE_DIGITS$x}", self.base).into_bytes();
        self.marks.iter().for_each(|mark| text.extend(mark.text()));
        text
    }

    /// Whether nothing is about to change.
    pub fn is_quiet(&self) -> bool {
        self.marks.is_empty()
    }

    pub fn has(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    /// Whose marks it has.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.marks.iter().map(|mark| mark.member)
    }

    /// The marks of writers through some Weir, who may commit yet.
    pub fn writers(&self) -> Vec<Mark> {
        self.marks.iter().filter(|mark| mark.kind == Kind::Writer && !is_brief(mark.member)).copied().collect()
    }

    /// As it is with a mark more.
    #[must_use]
    pub fn with(mut self, mark: Mark) -> Stamp {
        self.marks.push(mark);
        self
    }

    /// As it is without these marks.
    #[must_use]
    pub fn without(mut self, goes: impl Fn(Mark) -> bool) -> Stamp {
        self.marks.retain(|mark| !goes(*mark));
        self
    }

    /// As it is after a change.
    #[must_use]
    pub fn rebased(mut self, fresh: u64) -> Stamp {
        self.base = fresh;
        self
    }
}

/// What an answer hangs on, if all of it stands in the store and nothing of it is about to change.
pub fn settled(slots: &[Slot], stamps: &[Option<Stamp>]) -> Option<Deps> {
    let quiet = |stamp: &Option<Stamp>| stamp.as_ref().filter(|stamp| stamp.is_quiet()).map(|stamp| stamp.base);
    let pairs = slots.iter().zip(stamps).map(|(slot, stamp)| Some((*slot, quiet(stamp)?))).collect::<Option<Vec<_>>>()?;
    (pairs.len() == slots.len()).then(|| Deps::of_pairs(pairs))
}

/// Digits in hexadecimal, small letters.
fn hex(digits: &[u8]) -> Option<u64> {
    let is_hex = !digits.is_empty() && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u64::from_str_radix(text, 16).ok()
}

/// First byte of a kept answer: another one after each change of the form.
const FORM: u8 = 1;

/// An answer as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// What the server took for it.
    pub took_us: u64,
    pub deps: Deps,
    /// All of it: under the short key of the store another one may lie.
    pub key: &'a [u8],
    pub bytes: &'a [u8],
}

impl<'a> Kept<'a> {
    /// What the store gets.
    pub fn write(&self) -> Vec<u8> {
        let pairs = self.deps.pairs();
        let mut out = Vec::with_capacity(32 + pairs.len() * 12 + self.key.len() + self.bytes.len());
        out.push(FORM);
        out.extend(self.took_us.to_le_bytes());
        out.extend((pairs.len() as u32).to_le_bytes());
        for (slot, base) in pairs {
            out.extend(slot.to_le_bytes());
            out.extend(base.to_le_bytes());
        }
        out.extend((self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.bytes);
        out
    }

    /// Reads what a store gave. `None`: nobody of us wrote that.
    pub fn read(mut from: &'a [u8]) -> Option<Kept<'a>> {
        if take::<1>(&mut from)? != [FORM] {
            return None;
        }
        let took_us = u64::from_le_bytes(take(&mut from)?);
        let count = u32::from_le_bytes(take(&mut from)?) as usize;
        // Each takes 12 bytes: a count that lies makes nobody set room aside.
        let mut pairs = Vec::with_capacity(count.min(from.len() / 12));
        for _ in 0..count {
            pairs.push((Slot::from_le_bytes(take(&mut from)?), u64::from_le_bytes(take(&mut from)?)));
        }
        let key_bytes = u32::from_le_bytes(take(&mut from)?) as usize;
        let (key, bytes) = from.split_at_checked(key_bytes)?;
        Some(Kept { took_us, deps: Deps::of_pairs(pairs), key, bytes })
    }
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
    fn a_stamp_is_read_as_it_was_written_and_nothing_else_is() {
        let writer = Mark { member: 0xabc, kind: Kind::Writer };
        let stamp = Stamp::made(7, 1, true).with(writer);
        assert_eq!(stamp.text(), b"0000000000000007,00000001y,00000001w,00000abcw");
        assert_eq!(Stamp::parse(&stamp.text()), Some(stamp.clone()));
        assert!(stamp.has(writer) && !stamp.is_quiet());
        let quiet = stamp.without(|_| true).rebased(u64::MAX);
        assert_eq!((quiet.text().as_slice(), quiet.is_quiet()), (b"ffffffffffffffff".as_slice(), true));
        for text in ["", "7", "000000000000000g", "0000000000000007,", "0000000000000007,00000001x", "0000000000000007x00000001w"]
        {
            assert_eq!(Stamp::parse(text.as_bytes()), None, "{text}");
        }
        let vast = [b"0000000000000007".as_slice(), &writer.text().repeat(MARKS_MAX + 1)].concat();
        assert_eq!(Stamp::parse(&vast), None);
    }

    #[test]
    fn an_answer_hangs_on_stamps_that_are_there_and_quiet() {
        let quiet = Stamp::made(5, 1, false).without(|_| true);
        assert_eq!(settled(&[3], &[Some(quiet.clone())]), Some(Deps::of_pairs(vec![(3, 5)])));
        assert_eq!(settled(&[3, 4], &[Some(quiet.clone()), None]), None);
        assert_eq!(settled(&[3, 4], &[Some(quiet.clone())]), None);
        assert_eq!(settled(&[3], &[Some(quiet.with(Mark { member: 2, kind: Kind::Writer }))]), None);
    }

    #[test]
    fn a_kept_answer_is_read_as_it_was_written_and_no_part_of_it_is() {
        let deps = Deps::of_pairs(vec![(1, 2), (3, u64::MAX)]);
        let kept = Kept { took_us: 9, deps, key: b"key", bytes: b"bytes" };
        let written = kept.write();
        assert_eq!(Kept::read(&written), Some(kept));
        // Bytes of the answer are what is left; the rest is counted.
        for end in 0..written.len() - b"bytes".len() {
            assert_eq!(Kept::read(&written[..end]), None, "{end} bytes");
        }
        let mut lies = written.clone();
        lies[9..13].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Kept::read(&lies), None);
        lies[0] = FORM + 1;
        assert_eq!(Kept::read(&lies), None);
    }
}
