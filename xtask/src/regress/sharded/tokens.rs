//! Tokens of scripts: SQL as `psql` reads it, with its variables and backslashes.
//!
//! Source: PostgreSQL's psqlscan.l. Only as much of it as finds the ends of statements, the names in them, and `ORDER BY`.

/// Kind of a piece of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Space,
    Comment,
    /// A keyword or a name without quotes.
    Word,
    QuotedName,
    /// A string in any form.
    Text,
    /// `:name`, `:'name'` or `:"name"`.
    Variable,
    Backslash,
    Semicolon,
    Open,
    Close,
    Other,
}

/// One piece of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'t> {
    pub kind: Kind,
    pub text: &'t str,
}

impl Token<'_> {
    /// True for a keyword, whatever the case of its letters.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// A name as the server knows it. `None`: it is none.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::Word => Some(self.text.to_lowercase()),
            Kind::QuotedName => Some(self.text.trim_matches('"').replace("\"\"", "\"")),
            _ => None,
        }
    }
}

/// The first token of a text; `None` at its end.
pub fn first(text: &str) -> Option<Token<'_>> {
    let (kind, bytes) = measure(text)?;
    Some(Token { kind, text: &text[..bytes] })
}

/// All tokens but spaces and comments.
pub fn all(text: &str) -> Vec<Token<'_>> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(token) = first(rest) {
        rest = &rest[token.text.len()..];
        if !matches!(token.kind, Kind::Space | Kind::Comment) {
            tokens.push(token);
        }
    }
    tokens
}

fn measure(text: &str) -> Option<(Kind, usize)> {
    let begin = text.chars().next()?;
    let rest = &text[begin.len_utf8()..];
    Some(match begin {
        c if c.is_whitespace() => (Kind::Space, text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len())),
        '-' if rest.starts_with('-') => (Kind::Comment, text.find('\n').unwrap_or(text.len())),
        '/' if rest.starts_with('*') => (Kind::Comment, comment_bytes(text)),
        '\'' => (Kind::Text, quoted_bytes(text, '\'', Escapes::None)),
        'e' | 'E' if rest.starts_with('\'') => (Kind::Text, 1 + quoted_bytes(rest, '\'', Escapes::Backslash)),
        'b' | 'B' | 'x' | 'X' | 'n' | 'N' if rest.starts_with('\'') => (Kind::Text, 1 + quoted_bytes(rest, '\'', Escapes::None)),
        'u' | 'U' if rest.starts_with("&'") => (Kind::Text, 2 + quoted_bytes(&rest[1..], '\'', Escapes::None)),
        'u' | 'U' if rest.starts_with("&\"") => (Kind::QuotedName, 2 + quoted_bytes(&rest[1..], '"', Escapes::None)),
        '"' => (Kind::QuotedName, quoted_bytes(text, '"', Escapes::None)),
        '$' => dollar(text),
        ':' => colon(text),
        c if is_name_start(c) => (Kind::Word, name_bytes(text)),
        c if c.is_ascii_digit() => {
            (Kind::Other, text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_')).unwrap_or(text.len()))
        }
        '\\' => (Kind::Backslash, 1),
        ';' => (Kind::Semicolon, 1),
        '(' => (Kind::Open, 1),
        ')' => (Kind::Close, 1),
        _ => (Kind::Other, begin.len_utf8()),
    })
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn name_bytes(text: &str) -> usize {
    text.find(|c: char| !(is_name_start(c) || c.is_ascii_digit() || c == '$')).unwrap_or(text.len())
}

/// Comments nest.
fn comment_bytes(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at.min(text.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    None,
    Backslash,
}

/// Bytes of a text in quotes, which begins with the quote. Doubled quotes are its own.
fn quoted_bytes(text: &str, quote: char, escapes: Escapes) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && escapes == Escapes::Backslash {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return at + 1;
            }
        }
    }
    text.len()
}

/// A string between tags, or a parameter, or a sign.
fn dollar(text: &str) -> (Kind, usize) {
    let rest = &text[1..];
    let end = rest.find(|c: char| !(is_name_start(c) || c.is_ascii_digit())).unwrap_or(rest.len());
    let is_tag = rest[end..].starts_with('$') && !rest.starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return (Kind::Other, 1 + end);
    }
    let tag = &text[..end + 2];
    let behind = text[tag.len()..].find(tag).map_or(text.len(), |at| tag.len() + at + tag.len());
    (Kind::Text, behind)
}

fn colon(text: &str) -> (Kind, usize) {
    let rest = &text[1..];
    match rest.chars().next() {
        Some(':' | '=') => (Kind::Other, 2),
        Some(quote @ ('\'' | '"')) => {
            let inside = rest[1..].find(quote).filter(|end| *end > 0 && name_or_number(&rest[1..=*end]));
            inside.map_or((Kind::Other, 1), |end| (Kind::Variable, end + 3))
        }
        Some(c) if is_name_start(c) => (Kind::Variable, 1 + name_bytes(rest)),
        _ => (Kind::Other, 1),
    }
}

fn name_or_number(text: &str) -> bool {
    text.chars().all(|c| is_name_start(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        all(text).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn strings_and_comments_hide_what_is_in_them() {
        assert_eq!(kinds("'a;''b' -- ;\n/* ; /* */ ; */ $q$;$$;$q$"), [(Kind::Text, "'a;''b'"), (Kind::Text, "$q$;$$;$q$")]);
        assert_eq!(kinds(r"e'\';'"), [(Kind::Text, r"e'\';'")]);
        assert_eq!(kinds("\"A\"\"b;\"x"), [(Kind::QuotedName, "\"A\"\"b;\""), (Kind::Word, "x")]);
    }

    #[test]
    fn variables_are_no_casts() {
        assert_eq!(kinds(":a")[0].0, Kind::Variable);
        assert_eq!(kinds(":'a'")[0], (Kind::Variable, ":'a'"));
        assert_eq!(kinds("x::int"), [(Kind::Word, "x"), (Kind::Other, "::"), (Kind::Word, "int")]);
        assert_eq!(kinds("a[1:2]").iter().filter(|(kind, _)| *kind == Kind::Variable).count(), 0);
        assert_eq!(kinds("$1;"), [(Kind::Other, "$1"), (Kind::Semicolon, ";")]);
    }

    #[test]
    fn names_are_those_of_the_server() {
        let names: Vec<_> = all("Foo \"Bar\"\"s\" 'x'").iter().filter_map(Token::name).collect();
        assert_eq!(names, ["foo", "Bar\"s"]);
    }
}
