//! Circles among modules that use each other, the strongly connected parts of the graph of uses.

use std::collections::{BTreeMap, BTreeSet};

/// All circles of two modules or more, the largest first; modules in order of their names.
///
/// In: the uses of each module. A part holds the modules that reach each other: simple, and quick enough for a hundred modules.
pub fn find(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|name| (name.as_str(), reached_from(name, uses))).collect();
    let mut circles = Vec::new();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    for (name, reach) in &reached {
        if placed.contains(name) {
            continue;
        }
        let is_back = |other: &&&str| reached.get(**other).is_some_and(|reach| reach.contains(name));
        let circle: Vec<String> = reach.iter().filter(is_back).map(|other| other.to_string()).collect();
        if circle.len() > 1 {
            placed.extend(reach.iter().filter(is_back));
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Modules that a module uses, directly or through others; itself only if a way leads back.
fn reached_from<'a>(name: &str, uses: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = uses.get(name).into_iter().flatten().map(String::as_str).collect();
    while let Some(name) = next.pop() {
        if reached.insert(name) {
            next.extend(uses.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_circles(uses: &[(&str, &[&str])], circles: &[&str]) {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let uses = uses.iter().map(|(name, used)| (name.to_string(), set(used))).collect();
        let found: Vec<String> = find(&uses).iter().map(|circle| circle.join(" ")).collect();
        assert_eq!(found, circles);
    }

    #[test]
    fn circles_are_found_and_ways_without_return_are_none() {
        check_circles(&[("a", &["b"]), ("b", &["c"]), ("c", &[])], &[]);
        check_circles(&[("a", &["b"]), ("b", &["a", "c"]), ("c", &["d"]), ("d", &["c"])], &["a b", "c d"]);
        check_circles(&[("x", &["y"]), ("y", &["x"]), ("a", &["b"]), ("b", &["c"]), ("c", &["a", "x"])], &["a b c", "x y"]);
        check_circles(&[("a", &["b"]), ("b", &["c", "d"]), ("c", &["b"]), ("d", &["a"])], &["a b c d"]);
        check_circles(&[("a", &["a", "gone"])], &[]);
    }
}
