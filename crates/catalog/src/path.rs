//! `search_path`, and defaults of session parameters.

use super::Catalog;

/// Indices of the schemas in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SearchPath {
    Listed(Box<[u32]>),
    /// A name may mean any object of that name.
    Any,
}

impl SearchPath {
    pub(super) fn holds(&self, schema: u32) -> bool {
        match self {
            SearchPath::Listed(schemas) => schemas.contains(&schema),
            SearchPath::Any => true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LookupUser<'a> {
    pub user: &'a str,
    /// True if statements run as another user, so that `"$user"` is unknown.
    pub has_role: bool,
}

/// One parameter's default for new sessions.
#[derive(Debug, Default)]
pub(super) struct DbRoleSettings {
    /// Role (empty: all), true if for this database only, value.
    pub(super) set: Vec<(String, bool, String)>,
    /// User who asked the server, and that user's default.
    pub(super) asked: Option<(String, String)>,
}

impl DbRoleSettings {
    /// Returns a user's initial value. Source: `process_settings` in postinit.c.
    pub(super) fn of(&self, user: &str) -> Option<&str> {
        let find = |role: &str, here: bool| self.set.iter().find(|(r, h, _)| r == role && *h == here).map(|(_, _, v)| v.as_str());
        let own = |user: &str| find(user, true).or_else(|| find(user, false));
        own(user).or_else(|| find("", true)).or_else(|| find("", false)).or_else(|| {
            // The asking user's own setting does not hold for others.
            let (asked, value) = self.asked.as_ref()?;
            own(asked).is_none().then_some(value.as_str())
        })
    }
}

pub(super) fn resolve(catalog: &Catalog, who: &LookupUser<'_>, value: Option<&str>) -> SearchPath {
    let Some(names) = value.and_then(split) else { return SearchPath::Any };
    let mut schemas = Vec::new();
    for name in &names {
        let name = match name.as_str() {
            "$user" if who.has_role => return SearchPath::Any,
            "$user" => who.user,
            name => name,
        };
        // Missing schemas are skipped; temporary objects keep their session on the primary.
        schemas.extend(catalog.schema(name).filter(|schema| !schemas.contains(schema)));
    }
    SearchPath::Listed(schemas.into())
}

/// Source: `SplitIdentifierString` in varlena.c.
fn split(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim_start();
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_name(quoted)?,
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_ascii_whitespace()).unwrap_or(rest.len());
                (rest[..end].to_ascii_lowercase(), &rest[end..])
            }
        };
        if name.is_empty() {
            return None;
        }
        names.push(name);
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Some(names),
            None => return None,
        }
    }
}

/// Returns the name, and the text behind the closing quote.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_schemas_is_read_as_postgresql_reads_it() {
        let check = |list: &str, expected: Option<&str>| {
            assert_eq!(split(list).map(|names| names.join("|")).as_deref(), expected, "{list}");
        };
        check("\"$user\", public", Some("$user|public"));
        check("  A ,\"B c\",\"d\"\"e\"  ", Some("a|B c|d\"e"));
        check("", Some(""));
        for wrong in [",", "a,", "a b", "\"a", "\"\"", "\"a\" b"] {
            check(wrong, None);
        }
    }

    #[test]
    fn the_narrowest_default_wins() {
        let row = |role: &str, here, value: &str| (role.to_owned(), here, value.to_owned());
        let asked = Some(("asker".to_owned(), "server".to_owned()));
        let mut defaults =
            DbRoleSettings { set: vec![row("joe", true, "1"), row("joe", false, "2"), row("ann", false, "3")], asked };
        assert_eq!(["joe", "ann", "eve"].map(|user| defaults.of(user)), [Some("1"), Some("3"), Some("server")]);
        defaults.set.push(row("", true, "4"));
        assert_eq!(["joe", "ann", "eve"].map(|user| defaults.of(user)), [Some("1"), Some("3"), Some("4")]);
        defaults.set = vec![row("asker", false, "5")];
        assert_eq!(["asker", "eve"].map(|user| defaults.of(user)), [Some("5"), None]);
    }
}
