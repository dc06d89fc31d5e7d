//! User, query and database for look-ups of a client database's users.
//!
//! From `auth_user`, `auth_query`, `auth_dbname`, and their words in `database_file`. No IO.

use crate::Config;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp<'a> {
    /// The asking user; empty: no look-ups.
    pub user: &'a str,
    pub query: &'a str,
    /// The servers' name of the database of the query.
    pub database: &'a str,
}

impl Config {
    /// Returns the look-up of a client database; `None`: that of the parameters, also for Weir's own queries.
    pub fn look_up(&self, client_database: Option<&str>) -> LookUp<'_> {
        let own = client_database.and_then(|name| self.databases.get(name)).map(|entry| &entry.look_up);
        let database = client_database.map_or(&*self.auth.ask_database, |name| self.look_up_place(name));
        LookUp {
            user: own.and_then(|own| own.user.as_deref()).unwrap_or(&self.auth.ask_user),
            query: own.and_then(|own| own.query.as_deref()).unwrap_or(&self.auth.ask_query),
            // As in PgBouncer, a database by another name is allowed.
            database: self.databases.get(database).map_or(database, |entry| entry.database(database)),
        }
    }

    /// Returns the clients' name of the database in which look-ups take place.
    pub fn look_up_place(&self, client_database: &str) -> &str {
        let own = self.databases.get(client_database).and_then(|entry| entry.look_up.database.as_deref());
        own.unwrap_or(&self.auth.ask_database)
    }

    /// Returns the group of databases that accept each other's proofs of users. A database with its own look-ups is alone: the
    /// author of its `auth_query` must not vouch for users of other databases.
    pub fn realm<'a>(&self, client_database: &'a str) -> &'a str {
        match self.databases.get(client_database) {
            Some(entry) if entry.look_up != crate::databases::OwnLookUp::default() => client_database,
            Some(_) | None => "",
        }
    }

    /// Returns names in an `auth_query` that cannot be found, since only `pg_catalog` is searched, with their database.
    pub fn unqualified_look_ups(&self) -> Vec<(Option<&str>, &str)> {
        let own = self.databases.iter().filter_map(|(name, entry)| Some((Some(&**name), entry.look_up.query.as_deref()?)));
        let all = [(None, self.auth.ask_query.as_str())].into_iter().chain(own);
        all.filter(|(database, _)| !self.look_up(*database).user.is_empty())
            .filter_map(|(database, query)| Some((database, unqualified(query)?)))
            .collect()
    }
}

/// Returns a function or table without schema that is not a system one. Queries with `WITH` are not examined.
pub fn unqualified(query: &str) -> Option<&str> {
    let mut words = query.split_whitespace();
    if words.clone().next().is_some_and(|first| first.eq_ignore_ascii_case("with")) {
        return None;
    }
    while let Some(word) = words.next() {
        if !word.eq_ignore_ascii_case("from") && !word.eq_ignore_ascii_case("join") {
            continue;
        }
        let name = words.next()?.split(['(', ',', ';', ')']).next()?;
        if !name.is_empty() && !name.contains('.') && !name.to_ascii_lowercase().starts_with("pg_") {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(conf: &str, databases: &str) -> Config {
        let conf = format!("backend_hostname0 = 'a'\ndatabase_file = 'databases'\n{conf}");
        let mut load =
            |path: &Path| Ok(if path.ends_with("databases") { databases.as_bytes().to_vec() } else { conf.clone().into() });
        let outcome = crate::read(Path::new("c"), &mut load);
        assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
        outcome.config.expect("there are no problems")
    }

    #[test]
    fn words_of_a_database_go_before_the_parameters() {
        let config = config(
            "auth_user = 'u'\nauth_query = 'q'\nauth_dbname = 'alias'",
            "alias = dbname=real\none = auth_user=own\ntwo = auth_query='select 1' auth_dbname=one\nnone = auth_user=''\nplain = dbname=x",
        );
        let found = |name| {
            let LookUp { user, query, database } = config.look_up(name);
            [user, query, database].map(str::to_owned)
        };
        for (name, expected) in [
            (None, ["u", "q", "real"]),
            (Some("plain"), ["u", "q", "real"]),
            (Some("unlisted"), ["u", "q", "real"]),
            (Some("one"), ["own", "q", "real"]),
            (Some("two"), ["u", "select 1", "one"]),
            (Some("none"), ["", "q", "real"]),
        ] {
            assert_eq!(found(name), expected, "{name:?}");
        }
        assert_eq!(["plain", "unlisted", "alias", "one", "none"].map(|name| config.realm(name)), ["", "", "", "one", "none"]);
    }

    #[test]
    fn queries_that_name_something_without_its_schema_are_told_with_their_database() {
        let databases = "one = auth_query='SELECT * FROM mine($1)'\ntwo = auth_query='SELECT * FROM s.f($1)'\n\
                         off = auth_user='' auth_query='SELECT * FROM mine($1)'";
        let of = |conf: &str| {
            config(conf, databases)
                .unqualified_look_ups()
                .iter()
                .map(|(name, word)| format!("{name:?} {word}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("auth_user = 'u'\nauth_query = 'SELECT * FROM f($1)'"), ["None f", "Some(\"one\") mine"]);
        assert_eq!(of("auth_query = 'SELECT * FROM f($1)'"), [""; 0], "nobody asks it");
    }

    #[test]
    fn nobody_is_looked_up_in_the_console() {
        let problems = |conf: &str, databases: &str| -> Vec<String> {
            let conf = format!("backend_hostname0 = 'a'\ndatabase_file = 'databases'\n{conf}");
            let mut load = |path: &Path| Ok(if path.ends_with("databases") { databases } else { &conf }.as_bytes().to_vec());
            crate::read(Path::new("c"), &mut load).problems.into_iter().map(|problem| problem.message).collect()
        };
        let what =
            "cannot be \"pgbouncer\", which is the administration console (admin_database), and no database of the servers";
        assert_eq!(problems("auth_dbname = pgbouncer", "a = user=u"), [format!("\"auth_dbname\" {what}")]);
        assert_eq!(problems("", "a = auth_dbname=pgbouncer"), [format!("auth_dbname of database \"a\" {what}")]);
        assert_eq!(problems("auth_dbname = pgbouncer\nadmin_database = console", "a = user=u"), [""; 0]);
        assert_eq!(problems("auth_dbname = mine", "mine = dbname=pgbouncer"), [""; 0]);
    }

    #[test]
    fn names_without_a_schema_are_found() {
        let cases = [
            ("SELECT usename, passwd FROM pg_shadow WHERE usename=$1", None),
            ("SELECT * FROM look_up($1)", Some("look_up")),
            ("SELECT * FROM pgbouncer.look_up($1)", None),
            ("SELECT * FROM pgbouncer.a JOIN b ON true", Some("b")),
            ("WITH x AS (SELECT 1) SELECT * FROM x", None),
            ("", None),
        ];
        for (query, expected) in cases {
            assert_eq!(unqualified(query), expected, "{query}");
        }
    }
}
