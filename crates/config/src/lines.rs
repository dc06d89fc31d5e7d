//! Syntax of a configuration file: `name [=] value  # comment`, one per line, as in PostgreSQL's guc-file.l.
//!
//! One difference: in quotes, `\` stays unless before `\` or `'`. Existing files write the same regular expression as `'\d'` and as
//! `'\\d'`: both mean `\d`.

#[derive(Debug, PartialEq, Eq)]
pub struct ConfigLine {
    /// From 1.
    pub number: u32,
    pub name: String,
    /// Value without quotes.
    pub value: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BadConfigLine {
    /// From 1.
    pub number: u32,
    pub message: String,
}

/// Reads the lines, without empty ones and comments.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<ConfigLine, BadConfigLine>> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    bytes.split(|byte| *byte == b'\n').zip(1..).filter_map(|(line, number)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let read = match std::str::from_utf8(line) {
            Ok(text) => read_line(text),
            Err(cause) => Err(format!("byte {} of the line is not valid utf-8", cause.valid_up_to() + 1)),
        };
        match read {
            Ok(None) => None,
            Ok(Some((name, value))) => Some(Ok(ConfigLine { number, name, value })),
            Err(message) => Some(Err(BadConfigLine { number, message })),
        }
    })
}

/// Reads one line; `None` if it sets nothing.
fn read_line(text: &str) -> Result<Option<(String, String)>, String> {
    let text = text.trim_matches(is_blank);
    if is_end(text) {
        return Ok(None);
    }
    let (name, rest) = split_where(text, |c| !is_name_char(c));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(near(text));
    }
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start_matches(is_blank);
    if is_end(rest) {
        return Err(format!("parameter \"{name}\" has no value; an empty one is written ''"));
    }
    let is_quoted = rest.starts_with('\'');
    let (value, rest) = match rest.strip_prefix('\'') {
        Some(quoted) => read_quoted(quoted).ok_or_else(|| format!("the quote after \"{name}\" is not closed"))?,
        None => {
            let (value, rest) = split_where(rest, |c| !is_value_char(c));
            (value.to_string(), rest)
        }
    };
    if value.is_empty() && !text.contains('\'') {
        return Err(format!("{}; such a value needs quotes", near(rest)));
    }
    let rest = rest.trim_start_matches(is_blank);
    match is_end(rest) {
        true => Ok(Some((name.to_string(), value))),
        false if is_quoted => Err(near(rest)),
        false => Err(format!("{}; a value of more than one word needs quotes", near(rest))),
    }
}

/// Reads up to the closing quote; returns the text and the rest, `None` if the quote is not closed.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, chars.peek().map(|(_, next)| *next)) {
            ('\'', Some('\'')) => {
                chars.next();
                value.push('\'');
            }
            ('\'', _) => return Some((value, &text[at + 1..])),
            ('\\', Some(next @ ('\'' | '\\'))) => {
                chars.next();
                value.push(next);
            }
            _ => value.push(c),
        }
    }
    None
}

fn split_where(text: &str, ends: impl FnMut(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

fn is_end(text: &str) -> bool {
    text.is_empty() || text.starts_with('#')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0B' | '\x0C')
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.') || !c.is_ascii()
}

fn is_value_char(c: char) -> bool {
    is_name_char(c) || matches!(c, '-' | '+' | ':' | '/')
}

/// Shows the first word of a fault, cut short.
fn near(text: &str) -> String {
    let word: String = text.chars().take_while(|c| !is_blank(*c)).take(40).collect();
    format!("syntax error near \"{}\"", word.escape_debug())
}
