//! Databases by another name, and forced users, from `database_file`.
//!
//! The lines are those of PgBouncer's section `[databases]`:
//! `name = dbname=shop user=app password='secret' pool_mode=session pool_size=20 connect_query='SET ...'`.
//! The name `*` means all databases without a line, except the administration console.
//! Source: PgBouncer's manual, "Section [databases]", and `parse_database` in loader.c.

use crate::PoolMode;
use crate::passwd::UserSecret;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_wire::startup_packet::cut_name;

const ENTRIES_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseEntry {
    /// `None`: the clients' name.
    pub database: Option<Arc<str>>,
    /// User of all server connections; `None`: each client's own.
    pub user: Option<Arc<str>>,
    /// `None`: the one in `pool_passwd`.
    pub password: Option<UserSecret>,
    pub mode: Option<PoolMode>,
    pub pool_size: Option<u32>,
    /// First query of new server connections; empty: none.
    pub connect_query: Arc<str>,
    pub look_up: OwnLookUp,
}

/// Look-up of users, where it differs from the parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnLookUp {
    /// `auth_user`; empty: no look-ups.
    pub user: Option<Arc<str>>,
    pub query: Option<Arc<str>>,
    /// `auth_dbname`, by the clients' name.
    pub database: Option<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseMap {
    entries: BTreeMap<Arc<str>, DatabaseEntry>,
    others: Option<DatabaseEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    #[error("there is no = behind the name of a database")]
    NoValue,
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("database \"{0}\" has two entries")]
    Twice(String),
    #[error("\"*\" takes no {0}: the parameter of this name holds for databases without an entry")]
    Star(String),
    #[error("\"{0}\" is no key=value")]
    NoPair(String),
    #[error(
        "\"{0}\" is not known here; these keys are: dbname, user, password, pool_mode, pool_size, connect_query, auth_user, auth_query, auth_dbname"
    )]
    UnknownKey(String),
    #[error("{0} needs a whole number")]
    NoNumber(String),
    #[error("pool_mode is one of session, transaction, statement")]
    BadMode,
    #[error("password needs a user: without one, each client's own user is used")]
    NobodysPassword,
    #[error("password cannot be used")]
    BadPassword,
    #[error(
        "connect_query must not change \"{0}\", which decides what a statement means: use ALTER ROLE ... IN DATABASE ... SET, or user"
    )]
    ChangesMeaning(&'static str),
    #[error("more than {ENTRIES_MAX} entries")]
    TooMany,
}

/// Words that change the meaning of statements unseen by Weir.
const MEANINGS: [&str; 4] = ["search_path", "set schema", "role", "session authorization"];

/// Name of the entry for databases without one.
pub const OTHERS: &str = "*";

impl DatabaseEntry {
    /// Returns the servers' name of a database.
    pub fn database<'a>(&'a self, name: &'a str) -> &'a str {
        self.database.as_deref().unwrap_or(name)
    }

    pub fn password_of(&self, user: &str) -> Option<&UserSecret> {
        self.password.as_ref().filter(|_| self.user.as_deref() == Some(user))
    }
}

impl DatabaseMap {
    /// Returns the name's own entry, or that of all others.
    pub fn get(&self, name: &str) -> Option<&DatabaseEntry> {
        self.named(name).or(self.others.as_ref())
    }

    pub fn named(&self, name: &str) -> Option<&DatabaseEntry> {
        self.entries.get(name)
    }

    /// Returns a forced user's password from any entry.
    pub fn password_of(&self, user: &str) -> Option<&UserSecret> {
        self.entries.values().chain(&self.others).find_map(|entry| entry.password_of(user))
    }

    /// Empty: none.
    pub fn connect_query(&self, name: &str) -> Arc<str> {
        self.get(name).map_or_else(Arc::default, |entry| entry.connect_query.clone())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &DatabaseEntry)> {
        self.entries.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.others.is_none()
    }

    /// True if another entry serves the name.
    pub fn is_changed(&self, before: &DatabaseMap, name: &str) -> bool {
        self.get(name) != before.get(name)
    }
}

/// The second value lists bad lines, from 1.
pub fn read(text: &str) -> (DatabaseMap, Vec<(u32, DatabaseError)>) {
    let (mut databases, mut wrong) = (DatabaseMap::default(), Vec::new());
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() || line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let outcome = read_line(line).and_then(|(name, entry)| {
            if databases.entries.len() >= ENTRIES_MAX {
                return Err(DatabaseError::TooMany);
            }
            let before = match name.as_str() {
                OTHERS => databases.others.replace(entry),
                _ => databases.entries.insert(name.as_str().into(), entry),
            };
            match before {
                Some(_) => Err(DatabaseError::Twice(name)),
                None => Ok(()),
            }
        });
        if let Err(error) = outcome {
            let is_end = error == DatabaseError::TooMany;
            wrong.push((number, error));
            if is_end {
                break;
            }
        }
    }
    (databases, wrong)
}

fn read_line(line: &str) -> Result<(String, DatabaseEntry), DatabaseError> {
    let mut rest = line.trim();
    let name = if rest.starts_with('"') {
        take_quoted(&mut rest, '"')?
    } else {
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        rest = behind;
        name.to_string()
    };
    rest = rest.trim_start().strip_prefix('=').ok_or(DatabaseError::NoValue)?.trim_start();
    // Clients and servers cut names to this length.
    let name = cut_name(&name).to_owned();
    if name.is_empty() {
        return Err(DatabaseError::NoValue);
    }
    let mut entry = DatabaseEntry {
        database: None,
        user: None,
        password: None,
        mode: None,
        pool_size: None,
        connect_query: "".into(),
        look_up: OwnLookUp::default(),
    };
    while !rest.is_empty() {
        let (key, value) = take_pair(&mut rest)?;
        if name == OTHERS && key.starts_with("auth_") {
            return Err(DatabaseError::Star(key));
        }
        set(&mut entry, &key, value)?;
    }
    if entry.password.is_some() && entry.user.is_none() {
        return Err(DatabaseError::NobodysPassword);
    }
    Ok((name, entry))
}

/// Takes one `key=value` and the blanks after it.
fn take_pair(rest: &mut &str) -> Result<(String, String), DatabaseError> {
    let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
    let (key, behind) = rest.split_at(end);
    let no_pair = || DatabaseError::NoPair(key.to_string());
    *rest = behind.trim_start().strip_prefix('=').ok_or_else(no_pair)?.trim_start();
    let value = if rest.starts_with('\'') {
        take_quoted(rest, '\'')?
    } else {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (value, behind) = rest.split_at(end);
        *rest = behind;
        value.to_string()
    };
    *rest = rest.trim_start();
    Ok((key.to_ascii_lowercase(), value))
}

/// Takes the text between quotes; a doubled quote is one quote.
fn take_quoted(rest: &mut &str, quote: char) -> Result<String, DatabaseError> {
    let (mut text, mut chars) = (String::new(), rest.char_indices().skip(1).peekable());
    while let Some((at, c)) = chars.next() {
        if c != quote {
            text.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            *rest = &rest[at + quote.len_utf8()..];
            return Ok(text);
        }
    }
    Err(DatabaseError::OpenQuote)
}

fn set(entry: &mut DatabaseEntry, key: &str, value: String) -> Result<(), DatabaseError> {
    let number = || value.parse::<u32>().map_err(|_| DatabaseError::NoNumber(key.to_string()));
    match key {
        "dbname" if !value.is_empty() => entry.database = Some(cut_name(&value).into()),
        "user" if !value.is_empty() => entry.user = Some(cut_name(&value).into()),
        "dbname" | "user" => return Err(DatabaseError::NoPair(key.to_string())),
        "password" => entry.password = Some(secret(value)?),
        "pool_mode" => {
            let word = ["session", "transaction", "statement"].into_iter().find(|word| value.eq_ignore_ascii_case(word));
            entry.mode = Some(PoolMode::from_word(word.ok_or(DatabaseError::BadMode)?));
        }
        "pool_size" => entry.pool_size = Some(number()?),
        "connect_query" => {
            let words: Vec<&str> = value.split_ascii_whitespace().collect();
            let text = words.join(" ").to_ascii_lowercase();
            if let Some(word) = MEANINGS.into_iter().find(|word| text.contains(word)) {
                return Err(DatabaseError::ChangesMeaning(word));
            }
            entry.connect_query = value.into();
        }
        "auth_user" => entry.look_up.user = Some(cut_name(&value).into()),
        "auth_query" if !value.is_empty() => entry.look_up.query = Some(value.into()),
        "auth_dbname" if !value.is_empty() => entry.look_up.database = Some(cut_name(&value).into()),
        "auth_query" | "auth_dbname" => return Err(DatabaseError::NoPair(key.to_string())),
        other => return Err(DatabaseError::UnknownKey(other.to_string())),
    }
    Ok(())
}

/// Parses a secret. `TEXT` and `AES` have no meaning here.
fn secret(value: String) -> Result<UserSecret, DatabaseError> {
    if value.is_empty() {
        return Err(DatabaseError::BadPassword);
    }
    let is_plain = value.starts_with("AES") || value.starts_with("TEXT");
    if is_plain {
        return Ok(UserSecret::Plain(value.into_bytes().into()));
    }
    match UserSecret::parse(value.as_bytes(), None) {
        // A verifier cannot log in to a server.
        Ok(UserSecret::Scram(_)) | Err(_) => Err(DatabaseError::BadPassword),
        Ok(secret) => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_pgbouncer_reads_its_databases() {
        let (databases, wrong) = read(
            "# a comment\n; another\n\nshop =\n a=dbname=b\n\"we \"\" ird\" = dbname='it''s' user=joe password='x y' pool_mode=Session \
             pool_size = 3 connect_query='select ''a=b'' ; set timezone to utc'",
        );
        assert_eq!(wrong, []);
        let names: Vec<&str> = databases.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "shop", "we \" ird"]);
        assert_eq!(databases.get("shop").expect("shop").database("shop"), "shop");
        assert_eq!(databases.get("a").expect("a").database("a"), "b");
        let entry = databases.get("we \" ird").expect("the third");
        assert_eq!((entry.database("x"), entry.user.as_deref(), entry.mode), ("it's", Some("joe"), Some(PoolMode::Session)));
        assert_eq!(entry.pool_size, Some(3));
        assert_eq!(&*entry.connect_query, "select 'a=b' ; set timezone to utc");
        assert_eq!(entry.password, Some(UserSecret::Plain(b"x y".to_vec().into())));
        assert!(!format!("{databases:?}").contains("x y"), "a password is not printed");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_named_and_the_others_are_read() {
        for (line, expected) in [
            ("a", "there is no = behind the name of a database"),
            ("\"a", "a quote is not closed"),
            ("a = dbname='b", "a quote is not closed"),
            ("a = dbname", "\"dbname\" is no key=value"),
            ("a = user=", "\"user\" is no key=value"),
            ("* = auth_user=x", "\"*\" takes no auth_user"),
            ("good = ", "database \"good\" has two entries"),
            ("a = host=h", "\"host\" is not known here"),
            ("a = pool_size=many", "pool_size needs a whole number"),
            ("a = pool_mode=some", "pool_mode is one of"),
            ("a = password=x", "password needs a user"),
            ("a = user=b password='SCRAM-SHA-256$'", "password cannot be used"),
            ("a = connect_query='set Search_Path to x'", "connect_query must not change \"search_path\""),
            ("a = connect_query='set  Schema ''x'''", "connect_query must not change \"set schema\""),
        ] {
            let (databases, wrong) = read(&format!("good = dbname=x\n{line}"));
            assert!(databases.get("good").is_some());
            assert_eq!(wrong.len(), 1, "{line}");
            assert_eq!(wrong[0].0, 2, "{line}");
            assert!(wrong[0].1.to_string().starts_with(expected), "{line}: {}", wrong[0].1);
        }
    }

    #[test]
    fn entries_that_came_went_or_changed_are_told_apart_from_those_that_stayed() {
        let (old, _) = read("a = dbname=x\nb = dbname=y\nc = dbname=z");
        let (new, _) = read("b = dbname=y\nc = dbname=other\nd =");
        assert_eq!(["a", "b", "c", "d", "e"].map(|name| new.is_changed(&old, name)), [true, false, true, true, false]);
        let (others, _) = read("b = dbname=y\nc = dbname=other\nd =\n* = user=u");
        assert_eq!(["b", "c", "d", "e"].map(|name| others.is_changed(&new, name)), [false, false, false, true]);
    }

    #[test]
    fn the_star_serves_all_names_without_an_entry() {
        let (databases, wrong) = read("a = dbname=b\n* = user=app password=secret pool_size=3\n");
        assert_eq!(wrong, []);
        assert_eq!(databases.get("a").expect("its own").user, None);
        let other = databases.get("x").expect("that of all others");
        assert_eq!((other.database("x"), other.user.as_deref(), other.pool_size), ("x", Some("app"), Some(3)));
        assert!(databases.named("x").is_none());
        assert!(databases.password_of("app").is_some());
        let names: Vec<&str> = databases.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a"], "it is no database");
        let (all_in_one, _) = read("* = dbname=one");
        assert_eq!(all_in_one.get("x").expect("the star").database("x"), "one");
        assert!(!all_in_one.is_empty());
    }
}
