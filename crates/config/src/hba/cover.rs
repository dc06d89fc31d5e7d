//! Finds rules that never match, because an earlier rule matches the same clients first.
//!
//! Only a single covering rule is looked for, not several together.

use super::address::HbaAddress;
use super::{HbaConnectionType, HbaNameEntry, HbaRule};
use crate::ConfigProblem;

/// Limit on compared rules: each is compared with all before it.
const RULES_MAX: usize = 2_000;

/// Warns of each covered rule.
pub(super) fn warnings(rules: &[HbaRule]) -> Vec<ConfigProblem> {
    let rules = &rules[..rules.len().min(RULES_MAX)];
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        // A rule that matches no client is reported elsewhere.
        if rule.connection == HbaConnectionType::HostGss {
            continue;
        }
        if let Some(earlier) = rules[..at].iter().find(|earlier| earlier.covers(rule)) {
            let place = if earlier.file == rule.file {
                format!("in line {}", earlier.line)
            } else {
                format!("at {}:{}", earlier.file.display(), earlier.line)
            };
            found.push(rule.warning(format!("the rule never matches: the one {place} matches all that it would")));
        }
    }
    found
}

impl HbaRule {
    /// True if every client that matches `later` matches this rule.
    fn covers(&self, later: &HbaRule) -> bool {
        let all =
            |words: &[HbaNameEntry], later: &[HbaNameEntry]| later.iter().all(|word| words.iter().any(|own| own.covers(word)));
        self.connection.covers(later.connection)
            && self.address.covers(&later.address)
            && covers_databases(&self.databases, &later.databases)
            && all(&self.users, &later.users)
    }
}

/// `all` excludes physical replication.
fn covers_databases(words: &[HbaNameEntry], later: &[HbaNameEntry]) -> bool {
    later.iter().all(|word| match word {
        HbaNameEntry::Replication => words.iter().any(|own| matches!(own, HbaNameEntry::Replication)),
        word => words.iter().any(|own| own.covers(word)),
    })
}

impl HbaConnectionType {
    fn covers(self, later: HbaConnectionType) -> bool {
        match (self, later) {
            // Without GSSAPI encryption all TCP connections are `hostnogssenc`.
            (HbaConnectionType::Host | HbaConnectionType::HostNoGss, later) => later != HbaConnectionType::Local,
            (one, other) => one == other,
        }
    }
}

impl HbaNameEntry {
    fn covers(&self, later: &HbaNameEntry) -> bool {
        match (self, later) {
            (HbaNameEntry::All, _) => true,
            (HbaNameEntry::Name(one), HbaNameEntry::Name(other)) | (HbaNameEntry::Group(one), HbaNameEntry::Group(other)) => {
                one == other
            }
            (HbaNameEntry::Pattern(one), HbaNameEntry::Pattern(other)) => one.as_str() == other.as_str(),
            (HbaNameEntry::Pattern(pattern), HbaNameEntry::Name(name)) => pattern.is_match(name),
            (HbaNameEntry::SameUser, HbaNameEntry::SameUser)
            | (HbaNameEntry::SameRole, HbaNameEntry::SameRole)
            | (HbaNameEntry::Replication, HbaNameEntry::Replication) => true,
            (
                HbaNameEntry::SameUser
                | HbaNameEntry::SameRole
                | HbaNameEntry::Replication
                | HbaNameEntry::Group(_)
                | HbaNameEntry::Pattern(_)
                | HbaNameEntry::Name(_),
                _,
            ) => false,
        }
    }
}

impl HbaAddress {
    fn covers(&self, later: &HbaAddress) -> bool {
        match (self, later) {
            (HbaAddress::All, _) => true,
            (HbaAddress::Network(one), HbaAddress::Network(other)) => one.covers(other),
            (HbaAddress::SameHost, HbaAddress::SameHost) | (HbaAddress::SameNet, HbaAddress::SameHost | HbaAddress::SameNet) => {
                true
            }
            (HbaAddress::Host(one), HbaAddress::Host(other)) => one.eq_ignore_ascii_case(other),
            (HbaAddress::SameHost | HbaAddress::SameNet | HbaAddress::Network(_) | HbaAddress::Host(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::hba::{FileLoader, HbaRuleSet, LoadError};
    use std::path::Path;

    /// The lines that never match, each with the one that is to blame.
    fn check(rules: &str, expected: &str) {
        let mut file = |_: &Path| Ok(rules.replace(';', "\n").into_bytes());
        let mut folder = |_: &Path| Err(LoadError::NotFound);
        let (hba, problems) = HbaRuleSet::read(Path::new("h"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
        assert!(hba.is_some(), "{rules}: {problems:?}");
        let shown = |problem: &crate::ConfigProblem| {
            let earlier = problem.message.split("in line ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            format!("{} by {earlier}", problem.line.unwrap())
        };
        assert_eq!(problems.iter().map(shown).collect::<Vec<_>>().join(", "), expected, "{rules}");
    }

    #[test]
    fn a_rule_behind_one_that_covers_it_is_named() {
        for (rules, expected) in [
            ("host all all all md5; host shop joe 10.0.0.0/8 trust", "2 by 1"),
            ("host all all 10.0.0.0/8 md5; host all all 10.1.0.0/16 trust; host all all 11.0.0.0/8 md5", "2 by 1"),
            ("host all all 10.1.0.0/16 md5; host all all 10.0.0.0/8 trust", ""),
            ("host all all 0.0.0.0/0 md5; host all all ::1/128 trust", ""),
            ("host all all 0.0.0.0/0 md5; host all all samehost trust; host all all db.example trust", ""),
            ("host all all samenet md5; host all all samehost trust", "2 by 1"),
            (
                "host all all all md5; hostssl all all all cert; hostnossl all all all reject; local all all trust",
                "2 by 1, 3 by 1",
            ),
            ("hostssl all all all md5; host all all all md5; hostnossl all all all md5", "3 by 2"),
            ("local all all md5; local replication all md5; local replication joe trust", "3 by 2"),
            ("local a,b joe,ann md5; local b ann trust; local b,c ann trust", "2 by 1"),
            ("local /^shop_ all md5; local shop_1 all trust; local /^shop_ joe trust; local shop all trust", "2 by 1, 3 by 1"),
            ("local all +staff md5; local all joe trust; local all +staff reject", "3 by 1"),
            ("local sameuser all md5; local shop all md5; local sameuser joe trust", "3 by 1"),
            ("host all all .example.com md5; host all all a.example.com trust; host all all .EXAMPLE.com trust", "3 by 1"),
        ] {
            check(rules, expected);
        }
    }

    #[test]
    fn a_rule_that_asks_for_encryption_without_it_is_named() {
        let read = |conf: &str, rules: &str| {
            let conf = format!("backend_hostname0 = 'a'\n{conf}");
            let config = crate::read(Path::new("c"), &mut |_| Ok(conf.clone().into_bytes())).draft;
            let mut file = |_: &Path| Ok(rules.replace(';', "\n").into_bytes());
            let mut folder = |_: &Path| Err(LoadError::NotFound);
            let hba = HbaRuleSet::read(Path::new("h"), None, &mut FileLoader { file: &mut file, folder: &mut folder }).0.unwrap();
            let found = hba.without_encryption(&config.tls);
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let rules = "local all all md5; hostssl all joe all md5; hostnossl all ann all md5; hostssl all all all cert";
        let off = "warning: hostssl matches no client: \"ssl\" is off";
        assert_eq!(read("", rules), format!("h:2: {off}; h:4: {off}"));
        let lacking = "h:4: warning: the rule asks for a certificate and lets nobody in: neither \"ssl_ca_cert\" nor \"ssl_ca_cert_dir\" is set";
        assert_eq!(read("ssl = on", rules), lacking);
        assert_eq!(read("ssl = on\nssl_ca_cert = 'ca'", rules), "");
    }
}
