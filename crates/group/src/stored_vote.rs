//! The promise and version that a member has on disk before an answer leaves, and their text.
//!
//! Lines of key and value, and a checksum. The file is written beside, synced and renamed: a crash never tears it. So a text that is torn, foreign or
//! unreadable is an error and never a vote; the way out is to delete the file and to be a new member.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use crate::group_state::{
    FAILOVER_TEXT_BYTES_MAX, GroupDecision, GroupId, GroupLead, GroupState, GroupWrites, StateFault, StateVersion, VersionNumber,
};
use crate::membership::{GroupMembers, HalfVotes, MemberDuty, MemberId, MemberRow, MemberSet};

/// Longest text of a stored vote; escapes may double the text of failover.
pub const VOTE_BYTES_MAX: usize = 3 * FAILOVER_TEXT_BYTES_MAX;

/// Of a short text.
const TEXT_BYTES: usize = 1024;

const VOTE_FORM: &str = "weir group state 1";
const VERSION_FORM: &str = "weir group version 1";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredVote {
    pub member: MemberId,
    /// A member follows one group only, from the first promise or proposal that named it.
    pub group: Option<GroupId>,
    pub promised: VersionNumber,
    pub accepted: Option<StateVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VoteTextError {
    #[error("{0} bytes, limit is {VOTE_BYTES_MAX}")]
    TooLong(usize),
    #[error("begins with another form than '{0}'")]
    Foreign(&'static str),
    #[error("checksum does not match: torn or damaged")]
    Torn,
    #[error("line {0} cannot be read")]
    Unreadable(usize),
    #[error(transparent)]
    State(#[from] StateFault),
}

impl StoredVote {
    pub fn new(member: MemberId) -> StoredVote {
        StoredVote { member, group: None, promised: VersionNumber::default(), accepted: None }
    }

    pub fn show(&self) -> String {
        let mut text = String::with_capacity(self.accepted.as_ref().map_or(TEXT_BYTES, text_bytes));
        let _ = writeln!(text, "{VOTE_FORM}\nmember {}\npromised {}", InText(self.member), InText(self.promised));
        if let Some(group) = self.group {
            let _ = writeln!(text, "group {}", InText(group));
        }
        if let Some(version) = &self.accepted {
            show_version(version, &mut text);
        }
        with_sum(text)
    }

    pub fn parse(bytes: &[u8]) -> Result<StoredVote, VoteTextError> {
        read_lines(VOTE_FORM, bytes)?.vote()
    }
}

impl StateVersion {
    /// For peers and for an engine outside.
    pub fn show(&self) -> String {
        let mut text = String::with_capacity(text_bytes(self));
        let _ = writeln!(text, "{VERSION_FORM}");
        show_version(self, &mut text);
        with_sum(text)
    }

    pub fn parse(bytes: &[u8]) -> Result<StateVersion, VoteTextError> {
        read_lines(VERSION_FORM, bytes)?.version()?.ok_or(MISSING)
    }
}

fn with_sum(mut text: String) -> String {
    let _ = writeln!(text, "sum {:016x}", sum(text.as_bytes()));
    text
}

fn read_lines(form: &'static str, bytes: &[u8]) -> Result<VoteDraft, VoteTextError> {
    if bytes.len() > VOTE_BYTES_MAX {
        return Err(VoteTextError::TooLong(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| VoteTextError::Torn)?;
    if !text.starts_with(form) {
        return Err(VoteTextError::Foreign(form));
    }
    let (body, last) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')).ok_or(VoteTextError::Torn)?;
    let body_bytes = body.len() + 1;
    if last != format!("sum {:016x}", sum(bytes.get(..body_bytes).unwrap_or_default())) {
        return Err(VoteTextError::Torn);
    }
    let mut draft = VoteDraft::default();
    for (at, line) in body.lines().enumerate() {
        let is_form = at == 0 && line == form;
        if !is_form {
            draft.take(line).ok_or(VoteTextError::Unreadable(at + 1))?;
        }
    }
    Ok(draft)
}

/// FNV-1a: against accidents, not against people.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A value as it stands in a text.
struct InText<T>(T);

impl fmt::Display for InText<MemberId> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{:08x}", self.0.host, self.0.incarnation)
    }
}

impl fmt::Display for InText<VersionNumber> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.0.counter, InText(self.0.by))
    }
}

/// A space before each.
impl fmt::Display for InText<&MemberSet> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|id| write!(out, " {}", InText(*id)))
    }
}

/// On one line.
impl fmt::Display for InText<&str> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.0.split_inclusive(['\\', '\n', '\r']) {
            let (plain, escape) = match piece.as_bytes().last() {
                Some(b'\\') => (&piece[..piece.len() - 1], "\\\\"),
                Some(b'\n') => (&piece[..piece.len() - 1], "\\n"),
                Some(b'\r') => (&piece[..piece.len() - 1], "\\r"),
                _ => (piece, ""),
            };
            out.write_str(plain)?;
            out.write_str(escape)?;
        }
        Ok(())
    }
}

pub(crate) fn show_member(id: MemberId) -> String {
    InText(id).to_string()
}

pub(crate) fn parse_member(text: &str) -> Option<MemberId> {
    let (host, incarnation) = text.split_once(':')?;
    Some(MemberId { host: host.parse().ok()?, incarnation: u32::from_str_radix(incarnation, 16).ok()? })
}

pub(crate) fn show_number(number: VersionNumber) -> String {
    InText(number).to_string()
}

pub(crate) fn parse_number(text: &str) -> Option<VersionNumber> {
    let (counter, by) = text.split_once(' ')?;
    Some(VersionNumber { counter: counter.parse().ok()?, by: parse_member(by)? })
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            out.push(next);
            continue;
        }
        match chars.next()? {
            '\\' => out.push('\\'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            _ => return None,
        }
    }
    Some(out)
}

/// Room for a version's text, as a guess.
fn text_bytes(version: &StateVersion) -> usize {
    let texts = version.state.decisions.iter().map(|decision| decision.text.len() + 32);
    TEXT_BYTES + version.state.failover.len() + version.state.failover.len() / 8 + texts.sum::<usize>()
}

fn show_version(version: &StateVersion, text: &mut String) {
    let state = &version.state;
    let _ = writeln!(text, "version {}", InText(version.number));
    let _ = writeln!(text, "change {} {}", state.change, InText(state.group));
    let half = match state.members.half_votes {
        HalfVotes::TooFew => "no",
        HalfVotes::LowestCasts => "lowest",
    };
    let _ = writeln!(text, "half_votes {half}");
    for row in &state.members.rows {
        let duty = match row.duty {
            MemberDuty::Serves => "serves",
            MemberDuty::Witness => "witness",
        };
        let _ = writeln!(text, "row {} {} {duty}", InText(row.id), row.priority);
    }
    let _ = writeln!(text, "voters{}", InText(&state.members.voters));
    if let Some(next) = &state.members.next {
        let _ = writeln!(text, "next{}", InText(next));
    }
    let _ = writeln!(text, "lost{}", InText(&state.lost));
    let _ = match state.lead {
        GroupLead::Held(id) => writeln!(text, "lead {} held {}", state.term, InText(id)),
        GroupLead::Taken { from: Some(from), to } => {
            writeln!(text, "lead {} taken {} {}", state.term, InText(to), InText(from))
        }
        GroupLead::Taken { from: None, to } => writeln!(text, "lead {} taken {}", state.term, InText(to)),
    };
    let _ = match state.writes {
        GroupWrites::Open { epoch, node } => writeln!(text, "writes open {epoch} {node}"),
        GroupWrites::Closed { epoch } => writeln!(text, "writes closed {epoch}"),
    };
    let _ = writeln!(text, "lease {}\nfailover {}", state.lease_ms, InText(state.failover.as_str()));
    if !state.former.is_empty() {
        text.push_str("former");
        for id in &state.former {
            let _ = write!(text, " {}", InText(*id));
        }
        text.push('\n');
    }
    for decision in &state.decisions {
        let _ = writeln!(text, "decision {} {}", decision.term, InText(decision.text.as_str()));
    }
}

/// Lines read so far.
#[derive(Default)]
struct VoteDraft {
    member: Option<MemberId>,
    group: Option<GroupId>,
    promised: Option<VersionNumber>,
    number: Option<VersionNumber>,
    change: Option<(u64, GroupId)>,
    half_votes: Option<HalfVotes>,
    rows: Vec<MemberRow>,
    voters: Option<MemberSet>,
    next: Option<MemberSet>,
    lost: Option<MemberSet>,
    lead: Option<(u64, GroupLead)>,
    writes: Option<GroupWrites>,
    lease_ms: Option<u64>,
    failover: Option<String>,
    decisions: Vec<GroupDecision>,
    former: Vec<GroupId>,
}

fn word<T: FromStr>(words: &mut std::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

impl VoteDraft {
    /// `None`: a line of no known form.
    fn take(&mut self, line: &str) -> Option<()> {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ');
        let set = || -> Option<MemberSet> {
            let ids = rest.split(' ').filter(|text| !text.is_empty());
            ids.map(parse_member).collect::<Option<BTreeSet<MemberId>>>()
        };
        match key {
            "member" => self.member = Some(parse_member(rest)?),
            "group" => self.group = Some(parse_member(rest)?),
            "promised" | "version" => {
                let number = parse_number(rest)?;
                let slot = if key == "version" { &mut self.number } else { &mut self.promised };
                *slot = Some(number);
            }
            "change" => self.change = Some((word(&mut words)?, parse_member(words.next()?)?)),
            "half_votes" => self.half_votes = Some(if rest == "lowest" { HalfVotes::LowestCasts } else { HalfVotes::TooFew }),
            "row" => {
                let (id, priority) = (parse_member(words.next()?)?, word(&mut words)?);
                let duty = if words.next()? == "witness" { MemberDuty::Witness } else { MemberDuty::Serves };
                self.rows.push(MemberRow { id, priority, duty });
            }
            "voters" => self.voters = Some(set()?),
            "next" => self.next = Some(set()?),
            "lost" => self.lost = Some(set()?),
            "lead" => {
                let (term, word, to) = (word(&mut words)?, words.next()?, parse_member(words.next()?)?);
                let from = words.next().map(|text| parse_member(text).ok_or(())).transpose().ok()?;
                self.lead = Some((term, if word == "held" { GroupLead::Held(to) } else { GroupLead::Taken { from, to } }));
            }
            "writes" => {
                let (kind, epoch) = (words.next()?, word(&mut words)?);
                let node = words.next();
                self.writes = Some(match (kind, node) {
                    ("open", Some(node)) => GroupWrites::Open { epoch, node: node.parse().ok()? },
                    ("closed", None) => GroupWrites::Closed { epoch },
                    _ => return None,
                });
            }
            "lease" => self.lease_ms = Some(rest.parse().ok()?),
            "failover" => self.failover = Some(unescape(rest)?),
            "former" => self.former = rest.split(' ').map(parse_member).collect::<Option<_>>()?,
            "decision" => {
                let (term, text) = rest.split_once(' ')?;
                self.decisions.push(GroupDecision { term: term.parse().ok()?, text: unescape(text)? });
            }
            _ => return None,
        }
        Some(())
    }

    fn vote(self) -> Result<StoredVote, VoteTextError> {
        let (member, promised) = (self.member.ok_or(MISSING)?, self.promised.ok_or(MISSING)?);
        let group = self.group;
        let accepted = self.version()?;
        let fits = accepted.as_ref().is_none_or(|version| group == Some(version.state.group) && version.number <= promised);
        if fits { Ok(StoredVote { member, group, promised, accepted }) } else { Err(MISSING) }
    }

    fn version(self) -> Result<Option<StateVersion>, VoteTextError> {
        let Some(number) = self.number else { return Ok(None) };
        let (change, group) = self.change.ok_or(MISSING)?;
        let (term, lead) = self.lead.ok_or(MISSING)?;
        let half_votes = self.half_votes.ok_or(MISSING)?;
        let voters = self.voters.ok_or(MISSING)?;
        let state = GroupState {
            group,
            change,
            members: GroupMembers { rows: self.rows, voters, next: self.next, half_votes },
            lost: self.lost.ok_or(MISSING)?,
            lead,
            term,
            writes: self.writes.ok_or(MISSING)?,
            lease_ms: self.lease_ms.ok_or(MISSING)?,
            failover: self.failover.ok_or(MISSING)?,
            decisions: self.decisions,
            former: self.former,
        };
        state.check()?;
        Ok(Some(StateVersion { number, state: Arc::new(state) }))
    }
}

/// A line that must be there is not.
const MISSING: VoteTextError = VoteTextError::Unreadable(0);

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> StoredVote {
        let id = |host| MemberId { host, incarnation: 0xAB00 + u32::from(host) };
        let row = |host, duty| MemberRow { id: id(host), priority: host + 1, duty };
        let three = [row(0, MemberDuty::Serves), row(1, MemberDuty::Serves), row(2, MemberDuty::Witness)];
        let members = GroupMembers::of(three.to_vec(), HalfVotes::LowestCasts).joined_by(three.get(1..).expect("three"));
        let mut state = GroupState {
            group: id(0),
            change: 7,
            members,
            lost: [id(1)].into(),
            lead: GroupLead::Taken { from: Some(id(0)), to: id(1) },
            term: 4,
            writes: GroupWrites::Open { epoch: 3, node: 2 },
            lease_ms: 2_000,
            failover: "weir 1\nterm \\ 2\r\n".into(),
            decisions: vec![],
            former: vec![id(2), id(0)],
        };
        state.decide("node 2 promoted\nafter node 0");
        let number = VersionNumber { counter: 9, by: id(1) };
        let promised = VersionNumber { counter: 11, by: id(0) };
        StoredVote {
            member: id(0),
            group: Some(id(0)),
            promised,
            accepted: Some(StateVersion { number, state: Arc::new(state) }),
        }
    }

    #[test]
    fn a_vote_is_read_as_it_was_written() {
        let promise_only = StoredVote { accepted: None, ..full() };
        for vote in [full(), promise_only, StoredVote::new(MemberId { host: 3, incarnation: 5 })] {
            assert_eq!(StoredVote::parse(vote.show().as_bytes()), Ok(vote));
        }
        let version = full().accepted.expect("a version");
        assert_eq!(StateVersion::parse(version.show().as_bytes()).as_ref(), Ok(&version));
        assert_eq!(StateVersion::parse(full().show().as_bytes()), Err(VoteTextError::Foreign(VERSION_FORM)));
    }

    #[test]
    fn a_text_torn_or_changed_at_any_byte_is_an_error() {
        let text = full().show().into_bytes();
        for at in 0..text.len() {
            assert!(StoredVote::parse(text.get(..at).expect("within")).is_err(), "torn at {at}");
            for flip in [1, 0x20, 0x80] {
                let mut changed = text.clone();
                changed[at] ^= flip;
                assert!(StoredVote::parse(&changed).is_err(), "byte {at} with {flip:#x}");
            }
        }
    }

    #[test]
    fn a_text_that_is_foreign_or_too_large_is_told_apart() {
        let sealed = |text: &str| format!("{text}sum {:016x}\n", sum(text.as_bytes()));
        assert_eq!(StoredVote::parse(b"weir failover state 1\n"), Err(VoteTextError::Foreign(VOTE_FORM)));
        assert_eq!(StoredVote::parse(&vec![b'x'; VOTE_BYTES_MAX + 1]), Err(VoteTextError::TooLong(VOTE_BYTES_MAX + 1)));
        assert_eq!(StoredVote::parse(sealed(&format!("{VOTE_FORM}\nstrange 1\n")).as_bytes()), Err(VoteTextError::Unreadable(2)));
        let body = full().show().replace("lease 2000", "lease 1");
        let body = body.rsplit_once("sum ").expect("a sum").0.to_owned();
        assert_eq!(StoredVote::parse(sealed(&body).as_bytes()), Err(VoteTextError::State(StateFault::Lease(1))));
    }
}
