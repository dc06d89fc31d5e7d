//! `pool_passwd`: users and their secrets.
//!
//! In: the file's bytes. Out: `PoolPasswdFile`, and the lines that were left out. No IO. A line is `user:credential`; a second colon ends
//! it. A backslash escapes the next byte. Empty lines and `#` lines are skipped. The first line of a user counts. Source: Pgpool-II's
//! manual, "pool_passwd", and `pool_get_user_credentials`. Pgpool-II skips a bad line silently; Weir reports it, and refuses its user.

mod aes;

pub use aes::PasswdKey;

use aes::DecryptError;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use subtle::ConstantTimeEq;
use weir_wire::md5::Md5Secret;
use weir_wire::scram::{SaltedKeys, ScramChallenge, ScramError, ScramVerifier};
use weir_wire::startup_packet::cut_name;
use zeroize::Zeroizing;

/// Two names and two credentials; a SCRAM verifier has about 140 bytes.
pub const LINE_BYTES_MAX: usize = 8192;

const SCRAM_PREFIX: &[u8] = b"SCRAM-SHA-256$";

/// A password as far as Weir knows it. Never printed, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub enum UserSecret {
    /// Bytes: PostgreSQL does not ask for UTF-8.
    Plain(Zeroizing<Vec<u8>>),
    /// Answers a server that asks for md5.
    Md5(Md5Secret),
    /// Checks a client, cannot log in to a server.
    Scram(ScramVerifier),
    /// Keys from a client's proof: log in to servers with the same verifier. Never read from a file.
    Keys(ScramChallenge, SaltedKeys),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsualSecretKind {
    Nothing,
    Plain,
    Md5,
    Scram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordDemand {
    Cleartext,
    Md5,
    Scram,
}

impl UserSecret {
    /// Parses a credential, also of `*_password` parameters. `key` decrypts `pg_enc`.
    pub fn parse(text: &[u8], key: Option<&PasswdKey>) -> Result<UserSecret, UserSecretError> {
        if text.is_empty() {
            return Err(UserSecretError::Empty);
        }
        if let Some(md5) = Md5Secret::parse(text) {
            return Ok(UserSecret::Md5(md5));
        }
        if let Some(cipher) = text.strip_prefix(b"AES") {
            let key = key.ok_or(UserSecretError::NoKey)?;
            return Ok(UserSecret::Plain(key.decrypt(cipher)?));
        }
        if text.starts_with(SCRAM_PREFIX) {
            return Ok(UserSecret::Scram(ScramVerifier::parse(text)?));
        }
        match text.strip_prefix(b"TEXT") {
            Some(b"") => Err(UserSecretError::Empty),
            Some(password) => Ok(UserSecret::Plain(password.to_vec().into())),
            None => Ok(UserSecret::Plain(text.to_vec().into())),
        }
    }

    /// Returns why this secret cannot answer; `None` if it can.
    pub fn refusal(&self, asked: PasswordDemand) -> Option<&'static str> {
        match (self, asked) {
            (UserSecret::Plain(_), _)
            | (UserSecret::Md5(_), PasswordDemand::Md5)
            | (UserSecret::Keys(..), PasswordDemand::Scram) => None,
            (UserSecret::Md5(_), PasswordDemand::Cleartext) => Some("an md5 password cannot be sent as clear text"),
            (UserSecret::Md5(_), PasswordDemand::Scram) => Some("an md5 password cannot answer scram-sha-256"),
            (UserSecret::Scram(_) | UserSecret::Keys(..), PasswordDemand::Cleartext) => {
                Some("a scram verifier cannot be sent as clear text")
            }
            (UserSecret::Scram(_) | UserSecret::Keys(..), PasswordDemand::Md5) => Some("a scram verifier cannot answer md5"),
            (UserSecret::Scram(_), PasswordDemand::Scram) => {
                Some("no client has proved yet that it knows the password of this scram verifier")
            }
        }
    }

    /// True if these keys belong to `verifier`.
    pub fn is_of(&self, verifier: &ScramVerifier) -> bool {
        match self {
            UserSecret::Keys(challenge, keys) => {
                keys.stored_key == verifier.stored_key
                    && challenge.salt == verifier.salt
                    && challenge.iterations == verifier.iterations
            }
            UserSecret::Plain(_) | UserSecret::Md5(_) | UserSecret::Scram(_) => false,
        }
    }

    pub fn can_answer_cleartext(&self) -> bool {
        self.refusal(PasswordDemand::Cleartext).is_none()
    }

    pub fn can_answer_md5(&self) -> bool {
        self.refusal(PasswordDemand::Md5).is_none()
    }

    pub fn can_answer_scram(&self) -> bool {
        self.refusal(PasswordDemand::Scram).is_none()
    }

    /// Checks a clear text password. A verifier costs about a millisecond.
    pub fn matches(&self, user: &[u8], password: &[u8]) -> bool {
        match self {
            UserSecret::Plain(known) => known.ct_eq(password).into(),
            UserSecret::Md5(known) => known.matches(password, user),
            UserSecret::Scram(known) => known.matches(password),
            UserSecret::Keys(challenge, keys) => *keys == SaltedKeys::derive(password, &challenge.salt, challenge.iterations),
        }
    }
}

impl fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UserSecret::Plain(_) => "Plain(*****)",
            UserSecret::Md5(_) => "Md5(*****)",
            UserSecret::Scram(_) => "Scram(*****)",
            UserSecret::Keys(..) => "Keys(*****)",
        })
    }
}

/// The text never shows the credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserSecretError {
    #[error("password is empty")]
    Empty,
    /// A malformed verifier. Taken as a password, no user would know it.
    #[error("bad scram verifier: {0}")]
    Verifier(#[from] ScramError),
    #[error("password is encrypted by pg_enc (AES) and there is no key file")]
    NoKey,
    /// Encrypted with another key, or damaged.
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPasswdLine {
    pub line: usize,
    pub cause: PasswdLineError,
}

impl fmt::Display for BadPasswdLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.cause)
    }
}

/// Hides user names: without a colon the "name" may be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswdLineError {
    #[error("{bytes} bytes long, limit is {LINE_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("no colon between user and password")]
    NoColon,
    #[error("no user name before the colon")]
    NoUser,
    #[error(transparent)]
    Secret(#[from] UserSecretError),
    #[error("user has an earlier line, at {earlier}; this one is not used")]
    Duplicate { earlier: usize },
}

#[derive(Debug, Clone, Default)]
pub struct PoolPasswdFile {
    by_user: HashMap<Vec<u8>, PasswdEntry>,
    /// Users whose only lines have unreadable credentials.
    spoiled: HashSet<Vec<u8>>,
    counts: SecretCounts,
    iterations: BTreeMap<u32, usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SecretCounts {
    plain: usize,
    md5: usize,
    scram: usize,
}

#[derive(Debug, Clone)]
struct PasswdEntry {
    line: usize,
    secret: UserSecret,
}

impl PoolPasswdFile {
    /// The second value lists unusable lines.
    pub fn read(text: &[u8], key: Option<&PasswdKey>) -> (PoolPasswdFile, Vec<BadPasswdLine>) {
        let mut passwords = PoolPasswdFile::default();
        let mut bad = Vec::new();
        for (index, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = index + 1;
            if let Err(cause) = passwords.add(line, bytes.strip_suffix(b"\r").unwrap_or(bytes), key) {
                bad.push(BadPasswdLine { line, cause });
            }
        }
        (passwords, bad)
    }

    /// Names are compared byte by byte.
    pub fn get(&self, user: impl AsRef<[u8]>) -> Option<&UserSecret> {
        self.by_user.get(user.as_ref()).map(|known| &known.secret)
    }

    /// True if the user has only unusable lines. Such a user must not count as one without a line.
    pub fn is_spoiled(&self, user: impl AsRef<[u8]>) -> bool {
        self.spoiled.contains(user.as_ref())
    }

    /// Returns the most frequent kind. Unknown users are asked likewise, and do not learn that they are unknown.
    pub fn usual(&self) -> UsualSecretKind {
        let SecretCounts { plain, md5, scram } = self.counts;
        match () {
            () if plain + md5 + scram == 0 => UsualSecretKind::Nothing,
            () if scram > plain.max(md5) => UsualSecretKind::Scram,
            () if md5 > plain => UsualSecretKind::Md5,
            () => UsualSecretKind::Plain,
        }
    }

    /// Returns the most frequent iteration count, also for unknown users.
    pub fn usual_iterations(&self) -> Option<u32> {
        // A tie goes to the lower count.
        self.iterations.iter().rev().max_by_key(|(_, count)| **count).map(|(iterations, _)| *iterations)
    }

    pub fn len(&self) -> usize {
        self.by_user.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_user.is_empty()
    }

    fn add(&mut self, line: usize, bytes: &[u8], key: Option<&PasswdKey>) -> Result<(), PasswdLineError> {
        if bytes.len() > LINE_BYTES_MAX {
            return Err(PasswdLineError::TooLong { bytes: bytes.len() });
        }
        if bytes.starts_with(b"#") || bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        let (user, rest) = read_field(bytes);
        let Some(rest) = rest else { return Err(PasswdLineError::NoColon) };
        if user.is_empty() {
            return Err(PasswdLineError::NoUser);
        }
        // Logins cut names likewise.
        let user = std::str::from_utf8(&user).map_or(user.to_vec(), |name| cut_name(name).as_bytes().to_vec());
        let secret = match UserSecret::parse(&read_credential(rest), key) {
            Ok(secret) => secret,
            Err(cause) => {
                if !self.by_user.contains_key(user.as_slice()) {
                    self.spoiled.insert(user.to_vec());
                }
                return Err(cause.into());
            }
        };
        match self.by_user.entry(user.to_vec()) {
            Entry::Occupied(earlier) => Err(PasswdLineError::Duplicate { earlier: earlier.get().line }),
            Entry::Vacant(place) => {
                self.spoiled.remove(user.as_slice());
                match &secret {
                    UserSecret::Plain(_) => self.counts.plain += 1,
                    UserSecret::Md5(_) => self.counts.md5 += 1,
                    UserSecret::Scram(ScramVerifier { iterations, .. })
                    | UserSecret::Keys(ScramChallenge { iterations, .. }, _) => {
                        self.counts.scram += 1;
                        *self.iterations.entry(*iterations).or_insert(0) += 1;
                    }
                }
                place.insert(PasswdEntry { line, secret });
                Ok(())
            }
        }
    }
}

/// Reads the credential. A SCRAM verifier's colons need no backslash, so it can be copied from `pg_authid`; Pgpool-II cuts there.
fn read_credential(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let (mut credential, mut rest) = read_field(bytes);
    if credential.starts_with(SCRAM_PREFIX) {
        while let Some(more) = rest.filter(|_| credential.iter().filter(|byte| **byte == b':').count() < 2) {
            let (field, behind) = read_field(more);
            // Within the capacity: the parts were cut out of `bytes`.
            credential.push(b':');
            credential.extend_from_slice(&field);
            rest = behind;
        }
    }
    credential
}

/// Replaces the user's first line, or adds one.
pub fn with_line(text: &[u8], user: &[u8], credential: &[u8]) -> Vec<u8> {
    let mut own = Vec::with_capacity(user.len() + credential.len() + 2);
    for byte in user {
        if matches!(byte, b':' | b'\\') {
            own.push(b'\\');
        }
        own.push(*byte);
    }
    own.push(b':');
    own.extend_from_slice(credential);
    own.push(b'\n');
    let (mut out, mut is_there) = (Vec::with_capacity(text.len() + own.len() + 1), false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (name, rest) = read_field(line);
        let is_users = !line.starts_with(b"#") && rest.is_some() && *name == *user;
        out.extend_from_slice(if is_users && !is_there { &own } else { line });
        is_there |= is_users;
    }
    if !is_there {
        if out.last().is_some_and(|byte| *byte != b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(&own);
    }
    out
}

/// Reads up to an unescaped colon.
fn read_field(bytes: &[u8]) -> (Zeroizing<Vec<u8>>, Option<&[u8]>) {
    // Full capacity at once: a growing vector would leave copies of a password behind.
    let mut field = Zeroizing::new(Vec::with_capacity(bytes.len()));
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b':', _) => return (field, Some(after)),
            (b'\\', [escaped, behind @ ..]) => {
                field.push(*escaped);
                rest = behind;
            }
            (b'\\', []) => {}
            _ => field.push(*first),
        }
    }
    (field, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "md5ff193827f67bab881badb54115e0da72";
    const SCRAM: &str = "SCRAM-SHA-256$4096:leQdBXsGN0raNXQe+oUl7w==$M5tTfGCGEtfnRAtc2TwAZvXIiy6vC0nqx+XZkXhQTPM=:4d4wVdgCVIEAoMp37qG30iu1OBhWgwmSHyaupBApu4E=";

    fn plain(text: &str) -> Option<UserSecret> {
        Some(UserSecret::Plain(text.as_bytes().to_vec().into()))
    }

    /// Reads one line and returns the secret of user `u`.
    fn check_line(line: &str) -> Result<Option<UserSecret>, String> {
        let (passwords, bad) = PoolPasswdFile::read(line.as_bytes(), None);
        match bad.first() {
            Some(bad) => Err(bad.to_string()),
            None => Ok(passwords.get("u").cloned()),
        }
    }

    #[test]
    fn every_form_of_a_credential_is_recognised() {
        let cases = [
            ("u:secret", plain("secret")),
            ("u:TEXTsecret", plain("secret")),
            ("u:TEXTTEXTsecret", plain("TEXTsecret")),
            ("u:TEXTmd5ff193827f67bab881badb54115e0da72", plain(MD5)),
            ("u:text", plain("text")),
            ("u: two  words ", plain(" two  words ")),
            ("u:\"quoted\"", plain("\"quoted\"")),
            ("u:md5short", plain("md5short")),
            ("u:md5ff193827f67bab881badb54115e0da7z", plain("md5ff193827f67bab881badb54115e0da7z")),
            ("u:SCRAM-SHA-1$x", plain("SCRAM-SHA-1$x")),
            ("u:secret\r", plain("secret")),
            ("u:secret:backend_user:backend_secret", plain("secret")),
            ("u:secret:", plain("secret")),
            ("u:a\\:b\\\\c\\d\\", plain("a:b\\cd")),
            ("\\u:secret", plain("secret")),
            ("other:secret", None),
            ("U:secret", None),
            (" u:secret", None),
            ("#u:secret", None),
            ("", None),
            (" \t\r", None),
        ];
        for (line, expected) in cases {
            assert!(check_line(line).as_ref() == Ok(&expected), "{line}");
        }
        assert!(matches!(check_line(&format!("u:{MD5}")), Ok(Some(UserSecret::Md5(_)))));
        assert!(matches!(check_line(&format!("u:{MD5}:x")), Ok(Some(UserSecret::Md5(_)))));
    }

    #[test]
    fn a_scram_verifier_needs_no_backslash_before_its_colons() {
        let escaped = SCRAM.replace(':', "\\:");
        for line in [format!("u:{SCRAM}"), format!("u:{escaped}"), format!("u:{SCRAM}:backend:secret")] {
            assert!(check_line(&line) == Ok(Some(UserSecret::Scram(ScramVerifier::parse(SCRAM.as_bytes()).unwrap()))), "{line}");
        }
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_never_shown() {
        let cases = [
            ("hunter2", "line 1: no colon between user and password"),
            ("hunter2\\:x", "line 1: no colon between user and password"),
            (":hunter2", "line 1: no user name before the colon"),
            ("u:", "line 1: password is empty"),
            ("u::hunter2", "line 1: password is empty"),
            ("u:TEXT", "line 1: password is empty"),
            ("u:AEShunter2", "line 1: password is encrypted by pg_enc (AES) and there is no key file"),
            (
                "u:SCRAM-SHA-256$hunter2",
                "line 1: bad scram verifier: malformed scram message: verifier does not have three parts",
            ),
            ("\n# comment\nx:1\nx:2", "line 4: user has an earlier line, at 3; this one is not used"),
        ];
        for (text, expected) in cases {
            assert_eq!(check_line(text).map(|_| ()), Err(expected.to_owned()), "{text}");
        }
        let long = format!("u:{}", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(check_line(&long).map(|_| ()), Err("line 1: 8194 bytes long, limit is 8192".to_owned()));
    }

    #[test]
    fn a_bad_line_leaves_the_other_users_alone_and_the_first_of_two_lines_counts() {
        let (passwords, bad) = PoolPasswdFile::read(b"a:1\nnonsense\nb:\nb:2\na:3\n\xff\xfe:4\n", None);
        assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(passwords.len(), 3);
        assert!(passwords.get("a") == plain("1").as_ref());
        assert!(passwords.get("b") == plain("2").as_ref());
        assert!(passwords.get(b"\xff\xfe") == plain("4").as_ref());
        assert!(PoolPasswdFile::read(b"", None).0.is_empty());
    }

    #[test]
    fn a_users_line_is_replaced_or_added() {
        for (before, user, expected) in [
            ("", "u", "u:new\n"),
            ("a:1\nu:2\nb:3\n", "u", "a:1\nu:new\nb:3\n"),
            ("a:1", "u", "a:1\nu:new\n"),
            ("#u:1\nu:2\nu:3\n", "u", "#u:1\nu:new\nu:3\n"),
            ("a\\:b:1\n", "a:b", "a\\:b:new\n"),
            ("u\n", "u", "u\nu:new\n"),
        ] {
            let after = with_line(before.as_bytes(), user.as_bytes(), b"new");
            assert_eq!(String::from_utf8(after).unwrap(), expected, "{before}");
        }
    }

    #[test]
    fn a_user_whose_line_cannot_be_read_is_not_one_without_a_line() {
        let (passwords, _) = PoolPasswdFile::read(b"a:AESxyz==\nb:SCRAM-SHA-256$x\nc:\nd:1\nd:\ne:\ne:1\n", None);
        for (user, expected) in [("a", true), ("b", true), ("c", true), ("d", false), ("e", false), ("f", false)] {
            assert_eq!(passwords.is_spoiled(user), expected, "{user}");
        }
    }

    #[test]
    fn an_unknown_user_is_asked_as_most_users_are() {
        let cases = [
            ("", UsualSecretKind::Nothing),
            ("a:", UsualSecretKind::Nothing),
            ("a:1", UsualSecretKind::Plain),
            ("a:MD5", UsualSecretKind::Md5),
            ("a:SCRAM", UsualSecretKind::Scram),
            ("a:MD5\nb:MD5\nc:1", UsualSecretKind::Md5),
            ("a:MD5\nb:1", UsualSecretKind::Plain),
            ("a:MD5\nb:1\nc:SCRAM\nd:SCRAM", UsualSecretKind::Scram),
        ];
        for (text, expected) in cases {
            let text = text.replace("MD5", MD5).replace("SCRAM", SCRAM);
            assert_eq!(PoolPasswdFile::read(text.as_bytes(), None).0.usual(), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_user_is_asked_for_as_many_iterations_as_most_users_are() {
        let more = SCRAM.replace("$4096:", "$5000:");
        for (text, expected) in [
            ("a:1\nb:MD5", None),
            ("a:1\nb:SCRAM\na:MORE", Some(4096)),
            ("a:MORE\nb:SCRAM", Some(4096)),
            ("a:MORE\nb:SCRAM\nc:MORE", Some(5000)),
        ] {
            let text = text.replace("MD5", MD5).replace("SCRAM", SCRAM).replace("MORE", &more);
            assert_eq!(PoolPasswdFile::read(text.as_bytes(), None).0.usual_iterations(), expected, "{text}");
        }
    }

    #[test]
    fn what_a_secret_can_answer() {
        let cases = [
            ("u:secret", [true, true, true]),
            (&format!("u:{MD5}"), [false, true, false]),
            (&format!("u:{SCRAM}"), [false, false, false]),
        ];
        for (line, expected) in cases {
            let secret = check_line(line).unwrap().unwrap();
            let found = [secret.can_answer_cleartext(), secret.can_answer_md5(), secret.can_answer_scram()];
            assert_eq!(found, expected, "{secret:?}");
        }
        let verifier = UserSecret::parse(SCRAM.as_bytes(), None).unwrap();
        assert!(verifier.refusal(PasswordDemand::Md5).unwrap().contains("scram verifier"));
    }

    #[test]
    fn a_clear_text_password_is_checked_against_every_form() {
        for credential in ["secret word", MD5] {
            let secret = UserSecret::parse(credential.as_bytes(), None).unwrap();
            assert!(secret.matches(b"m", b"secret word"), "{secret:?}");
            assert!(!secret.matches(b"m", b"secret wore") && !secret.matches(b"m", b""), "{secret:?}");
        }
        assert!(UserSecret::parse(SCRAM.as_bytes(), None).unwrap().matches(b"a", b"pencil"));
    }

    #[test]
    fn secrets_are_never_printed() {
        let text = format!("u:hunter2\nv:{MD5}\nw:{SCRAM}\nx:AEShunter2");
        let printed = format!("{:?}", PoolPasswdFile::read(text.as_bytes(), None));
        for word in ["hunter2", "104, 117", "ff1938", "M5tT"] {
            assert!(!printed.contains(word), "{printed}");
        }
    }

    #[test]
    fn keys_are_those_of_a_verifier_with_the_same_salt_and_rounds() {
        let verifier = ScramVerifier::from_password(b"secret", b"a salt");
        let (salt, iterations) = (verifier.salt.clone(), verifier.iterations);
        let keys =
            UserSecret::Keys(ScramChallenge { salt: salt.clone(), iterations }, SaltedKeys::derive(b"secret", &salt, iterations));
        assert!(keys.is_of(&verifier));
        for other in [
            ScramVerifier::from_password(b"another", b"a salt"),
            ScramVerifier { salt: b"another".to_vec(), ..verifier.clone() },
            ScramVerifier { iterations: iterations + 1, ..verifier.clone() },
        ] {
            assert!(!keys.is_of(&other), "{other:?}");
        }
        assert!(!UserSecret::Plain(b"secret".to_vec().into()).is_of(&verifier));
    }
}
