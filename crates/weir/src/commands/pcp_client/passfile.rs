//! `.pcppass`: passwords by host, port and user. Lines are `host:port:user:password`; `*` fits all, `\` escapes.

use super::connection::PcpAddress;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use zeroize::Zeroizing;

const FILE: &str = ".pcppass";

/// A file that others can read is ignored.
pub fn look_up(target: &PcpAddress, user: &str) -> Option<Zeroizing<String>> {
    let named = std::env::var_os("PCPPASSFILE").map(PathBuf::from);
    let path = named.or_else(|| std::env::home_dir().map(|home| home.join(FILE)))?;
    let found = std::fs::metadata(&path).ok()?;
    if !found.is_file() {
        return None;
    }
    if found.permissions().mode() & 0o077 != 0 {
        let text = "has group or world access; permissions should be u=rw (0600) or less";
        let _ = writeln!(std::io::stderr(), "WARNING: password file \"{}\" {text}", path.display());
        return None;
    }
    let text = Zeroizing::new(std::fs::read_to_string(&path).ok()?);
    find(&text, &target.names(), target.port, user)
}

fn find(text: &str, hosts: &[String], port: u16, user: &str) -> Option<Zeroizing<String>> {
    let port = port.to_string();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = PassfileFields(line);
        let (Some(host), Some(of_port), Some(of_user)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let fits = |pattern: &PassfileField, name: &str| pattern.is_any || *pattern.text == *name;
        if hosts.iter().any(|name| fits(&host, name)) && fits(&of_port, &port) && fits(&of_user, user) {
            return fields.next().map(|field| field.text);
        }
    }
    None
}

struct PassfileField {
    text: Zeroizing<String>,
    /// True if the field is a single star.
    is_any: bool,
}

struct PassfileFields<'a>(&'a str);

impl Iterator for PassfileFields<'_> {
    type Item = PassfileField;

    fn next(&mut self) -> Option<PassfileField> {
        if self.0.is_empty() {
            return None;
        }
        let mut text = Zeroizing::new(String::with_capacity(self.0.len()));
        let mut chars = self.0.char_indices();
        let mut end = self.0.len();
        while let Some((at, c)) = chars.next() {
            match c {
                ':' => {
                    end = at + 1;
                    break;
                }
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                _ => text.push(c),
            }
        }
        let raw = &self.0[..end];
        let is_any = raw.strip_suffix(':').unwrap_or(raw) == "*";
        self.0 = &self.0[end..];
        Some(PassfileField { text, is_any })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let file = "# a comment\nnonsense\ndb:9898:admin:one\ndb:*:admin:two\n*:*:\\*:star\n/tmp:9898:admin:socket\n*:*:a\\:b:c\\:\\\\d\n*:9999:*:last\n";
        for (host, port, user, expected) in [
            ("db", 9898, "admin", Some("one")),
            ("db", 9899, "admin", Some("two")),
            ("other", 9898, "*", Some("star")),
            ("/tmp", 9898, "admin", Some("socket")),
            ("x", 1, "a:b", Some("c:\\d")),
            ("x", 9999, "anybody", Some("last")),
            ("x", 9898, "admin", None),
        ] {
            let found = find(file, &[host.to_string()], port, user);
            assert_eq!(found.as_ref().map(|found| found.as_str()), expected, "{host} {port} {user}");
        }
        assert_eq!(find("db:1:u:", &["db".into()], 1, "u").as_deref(), None, "a line without a password");
    }
}
