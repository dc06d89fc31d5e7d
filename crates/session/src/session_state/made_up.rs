//! Parameters made up by applications on a server connection over its life, roughly counted.
//!
//! A server forgets no such name, and each `SET` costs more with them: 0.2 ms became 2.8 ms with 6,000 names. A connection with
//! too many is closed at rest.

use crate::session_state::client_settings::SettingValues;

/// Applications make up a handful.
pub const NAMES_MAX: u32 = 1000;

/// At `NAMES_MAX`, one name in sixteen shares its mark with another.
const MARKS: usize = 8192;

#[derive(Debug, Default)]
pub struct MadeUpNames {
    marks: Option<Box<[u64; MARKS / 64]>>,
    count: u32,
}

impl MadeUpNames {
    pub fn note(&mut self, settings: &SettingValues) {
        for name in made_up(settings) {
            let mark = weir_sql::facts::hash_of_column(name) as usize % MARKS;
            let marks = self.marks.get_or_insert_with(|| Box::new([0; MARKS / 64]));
            let (word, bit) = (&mut marks[mark / 64], 1 << (mark % 64));
            self.count += u32::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// True if the connection is to be closed. False if the leaving session has many names itself: it would open a connection per
    /// transaction.
    #[inline]
    pub fn are_too_many(&self, now: &SettingValues) -> bool {
        self.count > NAMES_MAX && made_up(now).count() < NAMES_MAX as usize / 2
    }
}

fn made_up(settings: &SettingValues) -> impl Iterator<Item = &str> {
    settings.pairs().map(|(name, _)| name).filter(|name| name.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_always_new_are_too_many_and_the_same_ones_are_not() {
        let mut names = MadeUpNames::default();
        for _ in 0..10_000 {
            names.note(&SettingValues::default().with("app.tenant", "x").with("work_mem", "1MB"));
        }
        let few = SettingValues::default().with("app.tenant", "x");
        assert!(!names.are_too_many(&few));
        let full = |count| MadeUpNames { marks: None, count };
        assert!(!full(NAMES_MAX).are_too_many(&few) && full(NAMES_MAX + 1).are_too_many(&few));
        let many = |count| (0..count).fold(SettingValues::default(), |all, number| all.with(&format!("app.name_{number}"), "x"));
        let half = NAMES_MAX / 2;
        assert!(full(NAMES_MAX + 1).are_too_many(&many(half - 1)) && !full(NAMES_MAX + 1).are_too_many(&many(half)));
        let needed = (0..10_000).find(|number| {
            names.note(&SettingValues::default().with(&format!("app.name_{number}"), "x"));
            names.are_too_many(&few)
        });
        assert!(needed.is_some_and(|needed| (1000..1200).contains(&needed)), "{needed:?}");
        let many = (0..NAMES_MAX).fold(few, |settings, number| settings.with(&format!("a.b{number}"), "x"));
        assert!(!names.are_too_many(&many));
    }
}
