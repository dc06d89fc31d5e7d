//! Maps from outside names to users. Source: PostgreSQL manual, "User Name Maps"; `check_ident_usermap` in hba.c.

use super::tokens::{self, FileLoader, HbaLine};
use super::{HbaMatch, HbaNameEntry, LoginFacts, problem};
use crate::ConfigProblem;
use crate::hba::hba_line::{pattern, user};
use regex::Regex;
use std::path::Path;

#[derive(Debug, Clone, Default)]
pub(super) struct IdentMaps(Vec<IdentMapEntry>);

/// One line: an outside name and a user.
#[derive(Debug, Clone)]
struct IdentMapEntry {
    map: String,
    outside: SystemUserName,
    inside: HbaNameEntry,
}

#[derive(Debug, Clone)]
enum SystemUserName {
    Name(String),
    Pattern(Regex),
}

pub(super) fn read(path: &Path, loader: &mut FileLoader<'_>, problems: &mut Vec<ConfigProblem>) -> IdentMaps {
    let mut maps = IdentMaps::default();
    for line in tokens::lines(path, loader, problems) {
        match entry(&line) {
            Ok(entry) => maps.0.push(entry),
            Err(message) => problems.push(problem(&line.file, Some(line.number), message)),
        }
    }
    maps
}

fn entry(line: &HbaLine) -> Result<IdentMapEntry, String> {
    let [map, outside, inside] = line.fields.as_slice() else {
        return Err("expected three fields: map name, system user name, database user name".into());
    };
    let ([map], [outside], [inside]) = (map.as_slice(), outside.as_slice(), inside.as_slice()) else {
        return Err("multiple values in an ident field".into());
    };
    let outside = match outside.text.strip_prefix('/') {
        Some(text) => SystemUserName::Pattern(pattern(text)?),
        None => SystemUserName::Name(outside.text.clone()),
    };
    let inside = match (&outside, inside.text.contains("\\1")) {
        // The text that replaces \1 is never a keyword.
        (SystemUserName::Pattern(pattern), true) if pattern.captures_len() < 2 => {
            return Err(format!("\"{}\" has \\1, but the regular expression has no subexpression", inside.text));
        }
        (SystemUserName::Pattern(_), true) => HbaNameEntry::Name(inside.text.clone()),
        _ => user(inside)?,
    };
    Ok(IdentMapEntry { map: map.text.clone(), outside, inside })
}

impl IdentMaps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, map: &str) -> bool {
        self.0.iter().any(|entry| entry.map == map)
    }

    /// Tells if the person called `outside` may be the requested user.
    pub fn fit(&self, map: &str, outside: &str, visit: &LoginFacts<'_>) -> HbaMatch {
        let mut best = HbaMatch::No;
        for entry in self.0.iter().filter(|entry| entry.map == map) {
            match entry.fit(outside, visit) {
                HbaMatch::Yes => return HbaMatch::Yes,
                HbaMatch::No => {}
                unsure @ (HbaMatch::Ask(_) | HbaMatch::InDoubt) => best = unsure,
            }
        }
        best
    }
}

impl IdentMapEntry {
    fn fit(&self, outside: &str, visit: &LoginFacts<'_>) -> HbaMatch {
        match &self.outside {
            SystemUserName::Name(name) if name == outside => self.inside.fits_user(visit),
            SystemUserName::Name(_) => HbaMatch::No,
            SystemUserName::Pattern(pattern) => match (pattern.captures(outside), &self.inside) {
                (None, _) => HbaMatch::No,
                (Some(found), HbaNameEntry::Name(name)) => {
                    let first = found.get(1).map_or("", |part| part.as_str());
                    (name.replacen("\\1", first, 1) == visit.user).into()
                }
                (Some(_), word) => word.fits_user(visit),
            },
        }
    }
}
