//! `userlist.txt` as `pool_passwd`.

use super::ImportNote;

/// Returns the lines of `pool_passwd` for the users of a `userlist.txt`, and notes on the others.
///
/// A line is `"user" "password"`; a doubled quote is one quote; the password is plain, md5 or a SCRAM verifier.
pub fn read_users(bytes: &[u8]) -> (String, Vec<ImportNote>) {
    let (mut passwd, mut notes) = (String::new(), Vec::new());
    for (line, number) in String::from_utf8_lossy(bytes).lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let mut note = |text: &str| notes.push(ImportNote { line: number, text: text.to_string() });
        let Some((user, rest)) = quoted(line) else {
            note("is not \"user\" \"password\"");
            continue;
        };
        let Some((password, _)) = quoted(rest.trim_start()) else {
            note("is not \"user\" \"password\"");
            continue;
        };
        if user.is_empty() {
            note("has no name");
            continue;
        }
        let user = escaped(&user);
        if password.is_empty() {
            note("has no password: only rules of pool_hba.conf that ask for none let this user in");
            passwd += &format!("{user}:\n");
        } else if is_md5(&password) || password.starts_with("SCRAM-SHA-256$") {
            passwd += &format!("{user}:{password}\n");
        } else {
            passwd += &format!("{user}:TEXT{}\n", escaped(&password));
        }
    }
    (passwd, notes)
}

/// Escapes a field of `pool_passwd`: colons, and a leading `#`.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace(':', "\\:");
    if text.starts_with('#') { format!("\\{text}") } else { text }
}

fn is_md5(password: &str) -> bool {
    password.strip_prefix("md5").is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Splits a text in double quotes from the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = inside.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '"' {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == '"').is_some() {
            value.push('"');
        } else {
            return Some((value, &inside[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::passwd::{PoolPasswdFile, UserSecret};

    #[test]
    fn users_keep_their_passwords_in_whatever_form() {
        let list = b"; users\n\"joe\" \"pa\"\"ss word\"\n\"old\" \"md50123456789abcdef0123456789abcdef\"\n\
            \"a:b\" \"x:\\y\"\n\"#c\" \"z\"\n\"none\" \"\"\nbroken\n\"half\n";
        let (passwd, notes) = read_users(list);
        assert_eq!(notes.iter().map(|note| note.line).collect::<Vec<_>>(), [6, 7, 8]);
        let (passwords, bad) = PoolPasswdFile::read(passwd.as_bytes(), None);
        assert_eq!(bad.len(), 1, "the user without a password");
        assert!(passwords.is_spoiled("none"));
        assert!(passwords.get("a:b").is_some_and(|secret| secret.matches(b"a:b", b"x:\\y")));
        assert!(passwords.get("#c").is_some_and(|secret| secret.matches(b"#c", b"z")));
        assert!(passwords.get("joe").is_some_and(|secret| secret.matches(b"joe", b"pa\"ss word")));
        assert!(matches!(passwords.get("old"), Some(UserSecret::Md5(_))));
    }
}
