//! Parameters that all hosts of a group must have alike: names of those that differ. Pure.
//!
//! Beside each message a host tells one digest of all of them. Where that of another host differs, it is asked for a mark of each parameter, with which
//! its own ones are compared. Values never leave a host; marks are made with wd_authkey, so that who hears them cannot try values.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use weir_config::Config;
use weir_config::likeness::alike_values;
use weir_group::{GroupMs, HostNumber, MemberId};

/// Text of the act by which a host is asked for its marks.
pub const LIKENESS_ACT: &str = "parameter marks";
/// Time in which it answers.
pub const LIKENESS_LIMIT_MS: GroupMs = 3_000;
/// Time before a host that did not answer is asked again.
const AGAIN_MS: GroupMs = 10_000;
/// Names in a line; the others are counted.
const NAMES_MAX: usize = 20;

/// Stands for the name and the value of a parameter. With some hundred of them two are the same once in 100,000 groups.
type ParameterMark = [u8; 4];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a host tells marks of parameters that cannot be read")]
pub struct LikenessAnswerError;

/// Parameters of this host that all must have alike.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnParameters {
    pub digest: u64,
    marks: BTreeMap<&'static str, ParameterMark>,
}

impl OwnParameters {
    /// `key`: a secret of the group, or empty without one.
    pub fn of(config: &Config, key: &str) -> OwnParameters {
        let mark = |name: &str, value: &str| -> ParameterMark {
            let mut hash = Sha256::new();
            for part in [key, name, value] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
            let [a, b, c, d, ..]: [u8; 32] = hash.finalize().into();
            [a, b, c, d]
        };
        let marks: BTreeMap<_, _> = alike_values(config).into_iter().map(|(name, value)| (name, mark(name, &value))).collect();
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = Sha256::digest(marks.values().copied().collect::<Vec<_>>().concat()).into();
        OwnParameters { digest: u64::from_be_bytes([a, b, c, d, e, f, g, h]), marks }
    }

    /// Answer to [`LIKENESS_ACT`].
    pub fn told(&self) -> String {
        BASE64_STANDARD_NO_PAD.encode(self.marks.values().copied().collect::<Vec<_>>().concat())
    }

    /// Names of the parameters that another host has otherwise, by what it told. Marks of parameters that only another version of Weir has are passed over.
    fn differing(&self, told: &str) -> Result<Vec<&'static str>, LikenessAnswerError> {
        let bytes = BASE64_STANDARD_NO_PAD.decode(told).map_err(|_| LikenessAnswerError)?;
        let (marks, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(LikenessAnswerError);
        }
        let marks: BTreeSet<&ParameterMark> = marks.iter().collect();
        Ok(self.marks.iter().filter(|(_, mark)| !marks.contains(mark)).map(|(name, _)| *name).collect())
    }
}

/// Comparison with another host. It holds for one pair of digests.
#[derive(Debug)]
struct HostComparison {
    member: MemberId,
    own: u64,
    other: u64,
    asked_at: Option<GroupMs>,
    /// `None` until it answered.
    differing: Option<Vec<&'static str>>,
}

/// News about another host.
#[derive(Debug, PartialEq, Eq)]
pub enum LikenessNews {
    Differs(Vec<&'static str>),
    AlikeAgain,
}

/// Comparisons with all other hosts.
#[derive(Debug, Default)]
pub struct ParameterLikeness {
    own: Option<OwnParameters>,
    hosts: BTreeMap<HostNumber, HostComparison>,
    /// As last told in the log.
    told: BTreeMap<HostNumber, Vec<&'static str>>,
}

impl ParameterLikeness {
    pub fn set_own(&mut self, own: OwnParameters) {
        self.own = Some(own);
    }

    /// Answer of this host to [`LIKENESS_ACT`].
    pub fn answer(&self) -> Option<String> {
        self.own.as_ref().map(OwnParameters::told)
    }

    /// A host tells its digest. True if it is to be asked for its marks now.
    pub fn hear(&mut self, member: MemberId, other: Option<u64>, now: GroupMs) -> bool {
        let (Some(own), Some(other)) = (self.own.as_ref().map(|own| own.digest), other) else { return false };
        let new = || HostComparison { member, own, other, asked_at: None, differing: None };
        let compared = self.hosts.entry(member.host).or_insert_with(new);
        if (compared.member, compared.own, compared.other) != (member, own, other) {
            *compared = new();
        }
        if own == other {
            compared.differing = Some(Vec::new());
        }
        let is_due = compared.differing.is_none() && compared.asked_at.is_none_or(|at| now >= at + AGAIN_MS);
        if is_due {
            compared.asked_at = Some(now);
        }
        is_due
    }

    /// A host told its marks.
    pub fn compare(&mut self, host: HostNumber, told: &str) -> Result<(), LikenessAnswerError> {
        if let (Some(own), Some(compared)) = (&self.own, self.hosts.get_mut(&host)) {
            // Of parameters that were read again meanwhile nothing is known yet: the next digest tells.
            if compared.own == own.digest {
                compared.differing = Some(own.differing(told)?);
            }
        }
        Ok(())
    }

    /// Names of the parameters in which a host differs, as far as known.
    pub fn differing(&self, host: HostNumber) -> &[&'static str] {
        self.hosts.get(&host).and_then(|compared| compared.differing.as_deref()).unwrap_or_default()
    }

    /// News of a host since the last call.
    pub fn news(&mut self, host: HostNumber) -> Option<LikenessNews> {
        let now = self.hosts.get(&host)?.differing.clone()?;
        let before = self.told.insert(host, now.clone()).unwrap_or_default();
        match (now.is_empty(), before.is_empty()) {
            (true, true) => None,
            (true, false) => Some(LikenessNews::AlikeAgain),
            (false, _) => (now != before).then_some(LikenessNews::Differs(now)),
        }
    }
}

/// Names with commas; those beyond a bound are counted.
pub fn listed(names: &[&'static str]) -> String {
    let shown = names.get(..NAMES_MAX).unwrap_or(names).join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_group::ACT_BYTES_MAX;

    fn own(text: &str) -> OwnParameters {
        let text = format!("backend_hostname0 = 'a'\n{text}");
        let outcome = weir_config::read(Path::new("/etc/weir/pgpool.conf"), &mut |_| Ok(text.as_bytes().to_vec()));
        OwnParameters::of(&outcome.config.expect("it is a configuration"), "key")
    }

    fn likeness(text: &str) -> ParameterLikeness {
        ParameterLikeness { own: Some(own(text)), ..ParameterLikeness::default() }
    }

    const OTHER: MemberId = MemberId { host: 1, incarnation: 7 };

    #[test]
    fn names_of_what_differs_are_told_once_and_again_when_they_change() {
        let mut here = likeness("");
        let there = own("backend_weight0 = 3\nfailover_command = 'x'");
        assert!(here.hear(OTHER, Some(there.digest), 0) && !here.hear(OTHER, Some(there.digest), 50), "it is asked once");
        assert_eq!((here.news(1), here.differing(1)), (None, &[][..]));
        here.compare(1, &there.told()).unwrap();
        assert_eq!(here.news(1), Some(LikenessNews::Differs(vec!["backend_weight", "failover_command"])));
        assert_eq!((here.news(1), here.differing(1)), (None, &["backend_weight", "failover_command"][..]));
        assert!(!here.hear(OTHER, Some(there.digest), 1_000_000));
        let there = own("backend_weight0 = 3");
        assert!(here.hear(OTHER, Some(there.digest), 1_000_050));
        here.compare(1, &there.told()).unwrap();
        assert_eq!(here.news(1), Some(LikenessNews::Differs(vec!["backend_weight"])));
        here.set_own(own("backend_weight0 = 3"));
        assert!(!here.hear(OTHER, Some(there.digest), 1_000_100));
        assert_eq!((here.news(1), here.news(1), here.differing(1)), (Some(LikenessNews::AlikeAgain), None, &[][..]));
    }

    #[test]
    fn a_host_that_does_not_answer_is_asked_again_later_and_one_that_tells_nothing_never() {
        let mut here = likeness("");
        assert!(here.hear(OTHER, Some(1), 0) && !here.hear(OTHER, Some(1), AGAIN_MS - 1) && here.hear(OTHER, Some(1), AGAIN_MS));
        assert!(here.hear(MemberId { incarnation: 8, ..OTHER }, Some(1), AGAIN_MS + 1), "it was started anew without its file");
        assert!(!here.hear(MemberId { host: 2, ..OTHER }, None, 0));
        assert!(!ParameterLikeness::default().hear(OTHER, Some(1), 0), "a witness compares nothing");
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_an_error_and_one_of_another_version_names_what_is_known() {
        let mut here = likeness("");
        here.hear(OTHER, Some(1), 0);
        assert_eq!(here.compare(1, "*"), Err(LikenessAnswerError));
        assert_eq!(here.compare(1, "AAAAAAA"), Err(LikenessAnswerError));
        assert_eq!(here.news(1), None);
        let later = BASE64_STANDARD_NO_PAD.decode(own("pool_mode = session").told()).unwrap();
        here.compare(1, &BASE64_STANDARD_NO_PAD.encode([&later[..], b"more"].concat())).unwrap();
        assert_eq!(here.differing(1), ["pool_mode"]);
    }

    #[test]
    fn marks_fit_into_an_answer_and_need_the_key() {
        let text = "backend_hostname0 = 'a'";
        let outcome = weir_config::read(Path::new("/etc/weir/pgpool.conf"), &mut |_| Ok(text.as_bytes().to_vec()));
        let config = outcome.config.expect("it is a configuration");
        let [one, other] = ["key", "other"].map(|key| OwnParameters::of(&config, key));
        assert!(one.told().len() <= ACT_BYTES_MAX && one.marks.len() > 40, "{}", one.told().len());
        assert_eq!(one.differing(&other.told()).unwrap().len(), one.marks.len());
    }

    #[test]
    fn many_names_are_counted() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert!(listed(&["a"; NAMES_MAX + 3]).ends_with("a, a and 3 more"));
    }
}
