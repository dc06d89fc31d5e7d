//! Temporary relations of a session: their names hide others', wherever the `search_path` leads.
//!
//! Until the server has answered, any name without a schema may mean one.

use std::collections::BTreeSet;
use weir_sql::facts::QualifiedName;

/// With more, any name may mean a temporary relation. The server is asked for one more (`state_question::PARTS`).
const NAMES_MAX: usize = 256;

/// Longer names are cut. Source: `NAMEDATALEN`; a cut within a character drops up to three bytes more.
const NAME_BYTES_MAX: usize = 60;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemporaryList {
    names: BTreeSet<String>,
    /// Types, functions and the like.
    has_others: bool,
    has_view: bool,
    is_cut: bool,
}

impl TemporaryList {
    /// As in `pg_class`; other objects have no name.
    pub fn add(&mut self, name: String, kind: &str) {
        self.has_view |= kind == "v";
        self.has_others |= name.is_empty();
        if self.names.len() == NAMES_MAX {
            self.is_cut = true;
        } else if !name.is_empty() {
            self.names.insert(name);
        }
    }
}

#[derive(Debug, Default)]
pub struct TemporaryObjects {
    listed: TemporaryList,
    /// True if relations may have changed since the server was asked.
    is_new: bool,
    /// True if relations had changed before a question not yet answered.
    is_asked: bool,
}

impl TemporaryObjects {
    pub fn may_have_changed(&mut self) {
        self.is_new = true;
    }

    /// True if the server should be asked about a session that keeps its connection.
    pub fn is_due(&self) -> bool {
        self.is_new
    }

    pub fn asked(&mut self) {
        self.is_asked |= std::mem::take(&mut self.is_new);
    }

    /// `None`: the answer could not be read.
    pub fn told(&mut self, listed: Option<TemporaryList>) {
        self.is_asked = false;
        self.listed = listed.unwrap_or_else(|| TemporaryList { is_cut: true, ..TemporaryList::default() });
    }

    #[inline]
    pub fn gone(&mut self) {
        (self.is_new, self.is_asked) = (false, false);
        if self.listed.is_cut || !self.listed.names.is_empty() {
            self.listed = TemporaryList::default();
        }
    }

    #[inline]
    pub fn may_be(&self) -> bool {
        self.is_unsure() || !self.listed.names.is_empty()
    }

    /// True if the name may mean a temporary relation. A name behind `pg_temp` is unambiguous.
    pub fn hide(&self, name: &QualifiedName) -> bool {
        name.schema.is_empty() && (self.is_unsure() || self.listed.names.contains(&name.name))
    }

    /// True if a text may name a relation of the last list.
    pub fn may_be_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let is_named = |name: &String| names(&text, &name.to_lowercase());
        // A name may be escaped.
        let is_coded = || text.contains("u&") || text.contains("pg_temp");
        self.listed.is_cut || self.listed.has_others || is_coded() || self.listed.names.iter().any(is_named)
    }

    /// True if reading may do anything: a view may call functions.
    pub fn have_views(&self) -> bool {
        self.listed.has_view
    }

    fn is_unsure(&self) -> bool {
        self.is_new | self.is_asked | self.listed.is_cut
    }
}

/// Both in lower case.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    text.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + name.len()..]);
        let ends = name.len() >= NAME_BYTES_MAX || !behind.starts_with(is_part);
        !before.ends_with(is_part) && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(schema: &str, name: &str) -> QualifiedName {
        QualifiedName { schema: schema.into(), name: name.into() }
    }

    fn listed(rows: &[(&str, &str)]) -> TemporaryList {
        let mut listed = TemporaryList::default();
        rows.iter().for_each(|(name, kind)| listed.add((*name).to_owned(), kind));
        listed
    }

    #[test]
    fn until_the_server_has_told_any_name_may_be_hidden() {
        let mut temporaries = TemporaryObjects::default();
        assert!(!temporaries.may_be() && !temporaries.hide(&name("", "t")));
        temporaries.may_have_changed();
        assert!(temporaries.hide(&name("", "t")) && !temporaries.hide(&name("public", "t")));
        temporaries.asked();
        assert!(temporaries.hide(&name("", "t")) && !temporaries.is_due());
        temporaries.told(Some(listed(&[("x", "r"), ("", "")])));
        assert!(temporaries.hide(&name("", "x")) && !temporaries.hide(&name("", "t")) && !temporaries.have_views());
        temporaries.gone();
        assert!(!temporaries.may_be());
    }

    #[test]
    fn what_comes_behind_the_question_is_not_in_its_answer() {
        let mut temporaries = TemporaryObjects::default();
        temporaries.may_have_changed();
        temporaries.asked();
        temporaries.may_have_changed();
        temporaries.told(Some(listed(&[("x", "v")])));
        assert!(temporaries.hide(&name("", "t")) && temporaries.is_due() && temporaries.have_views());
    }

    #[test]
    fn a_text_that_names_none_is_about_none() {
        let mut temporaries = TemporaryObjects::default();
        let long = "a".repeat(63);
        temporaries.told(Some(listed(&[("mine", "r"), ("Other", "r"), ("t", "r"), (&long, "r")])));
        for (text, expected) in [
            ("prepare p as select 1 from it, t_1, mine2, xmine", false),
            ("prepare p as select 1 from t", true),
            (&format!("prepare p as select 1 from {long}b"), true),
            ("prepare p as select * from MINE", true),
            ("prepare p (mine) as select $1", true),
            ("prepare p as select 1 from \"Other\"", true),
            ("prepare p as select * from U&\"m!0069ne\" uescape '!'", true),
            ("prepare p as select pg_temp.f()", true),
        ] {
            assert_eq!(temporaries.may_be_in(text), expected, "{text}");
        }
        temporaries.told(Some(listed(&[("mine", "r"), ("", "")])));
        assert!(temporaries.may_be_in("prepare p as select 'a'::t"), "a type is not listed by its name");
    }

    #[test]
    fn an_answer_that_cannot_be_read_or_is_cut_says_nothing() {
        let mut temporaries = TemporaryObjects::default();
        temporaries.told(None);
        assert!(temporaries.hide(&name("", "t")));
        let mut many = TemporaryList::default();
        (0..=NAMES_MAX).for_each(|at| many.add(format!("t{at}"), "r"));
        temporaries.told(Some(many));
        assert!(temporaries.hide(&name("", "t")));
    }
}
