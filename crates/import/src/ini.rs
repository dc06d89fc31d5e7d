//! The syntax of `pgbouncer.ini`: sections, `name = value`, comments with `;` and `#`, `%include`.

use super::ImportNote;

/// Limit on included files.
const FILES_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniLine {
    pub section: String,
    pub number: u32,
    pub name: String,
    pub value: String,
}

/// Reads the settings of a file and its includes, and the unreadable lines. Lines of an included file have the number of the include.
pub fn read(bytes: &[u8], include: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>) -> (Vec<IniLine>, Vec<ImportNote>) {
    let mut reader = IniReader { include, section: String::new(), lines: Vec::new(), notes: Vec::new(), files: 0 };
    reader.file(bytes, None);
    (reader.lines, reader.notes)
}

struct IniReader<'a> {
    include: &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    section: String,
    lines: Vec<IniLine>,
    notes: Vec<ImportNote>,
    files: usize,
}

impl IniReader<'_> {
    fn file(&mut self, bytes: &[u8], included_at: Option<u32>) {
        for (line, number) in String::from_utf8_lossy(bytes).lines().zip(1..) {
            let number = included_at.unwrap_or(number);
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                self.section = section.trim().to_ascii_lowercase();
            } else if let Some(path) = line.strip_prefix("%include") {
                self.include(path.trim(), number);
            } else if let Some((name, value)) = split(line) {
                let name = if self.section == "pgbouncer" { name.to_ascii_lowercase() } else { name };
                self.lines.push(IniLine { section: self.section.clone(), number, name, value });
            } else {
                self.notes.push(ImportNote { line: number, text: "is no setting".to_string() });
            }
        }
    }

    fn include(&mut self, path: &str, number: u32) {
        self.files += 1;
        let read = if self.files > FILES_MAX { Err(format!("more than {FILES_MAX} files")) } else { (self.include)(path) };
        match read {
            Ok(bytes) => self.file(&bytes, Some(number)),
            Err(why) => self.notes.push(ImportNote { line: number, text: format!("%include {path}: {why}") }),
        }
    }
}

/// Splits name and value; a name may be in double quotes.
fn split(line: &str) -> Option<(String, String)> {
    let (name, rest) = match line.strip_prefix('"') {
        Some(quoted) => {
            let end = quoted.find('"')?;
            (quoted[..end].to_string(), quoted[end + 1..].trim_start())
        }
        None => {
            let end = line.find('=')?;
            (line[..end].trim().to_string(), &line[end..])
        }
    };
    let value = rest.strip_prefix('=')?.trim();
    (!name.is_empty()).then(|| (name, value.to_string()))
}

/// Splits a connect string; values in single quotes may hold blanks, a doubled quote is one quote.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, ()> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(())?;
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('\'') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = after.find(char::is_whitespace).unwrap_or(after.len());
                (after[..end].to_string(), &after[end..])
            }
        };
        pairs.push((name.trim().to_ascii_lowercase(), value));
        rest = next.trim_start();
    }
    Ok(pairs)
}

fn quoted_value(text: &str) -> Result<(String, &str), ()> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c != '\'' {
            value.push(c);
        } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
            value.push('\'');
        } else {
            return Ok((value, &text[at + 1..]));
        }
    }
    Err(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_strings_are_pairs() {
        let found = pairs("host=a port = 5 password='it''s a secret' user=b").unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("host", "a"), ("port", "5"), ("password", "it's a secret"), ("user", "b")]);
        assert!(pairs("host").is_err() && pairs("a='b").is_err());
        assert_eq!(pairs(" "), Ok(vec![]));
    }

    #[test]
    fn included_files_are_read_where_they_stand() {
        let mut include =
            |name: &str| if name == "more.ini" { Ok(b"b = 2\n%include more.ini".to_vec()) } else { Err("gone".into()) };
        let (lines, notes) = read(b"[pgbouncer]\nA = 1\n%include more.ini\n%include x\nnothing\n\"x y\" = 3", &mut include);
        let found: Vec<(u32, &str, &str)> = lines.iter().map(|l| (l.number, l.name.as_str(), l.value.as_str())).take(2).collect();
        assert_eq!(found, [(2, "a", "1"), (3, "b", "2")]);
        assert_eq!(lines.last().map(|l| (l.name.as_str(), l.value.as_str())), Some(("x y", "3")));
        let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
        assert_eq!(texts, ["%include more.ini: more than 100 files", "%include x: more than 100 files", "is no setting"]);
    }
}
