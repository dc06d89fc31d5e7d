//! Reads SQL and PL/pgSQL sources word by word: may they leave session state, and what do they call? In doubt, they
//! leave something.

use crate::leaves::left_by_function;
use crate::set_statements::moves_names;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyFacts {
    /// May leave something, or runs text made at run time.
    Suspicious,
    Calls {
        /// Words that may be calls, lower case, each once; `copy` and `import` included.
        calls: Vec<String>,
        /// Changes rows or defines, so that triggers run.
        writes: bool,
    },
}

pub fn read_body(source: &str) -> BodyFacts {
    // Ends a string or not, depending on context and settings.
    if source.contains("\\'") {
        return BodyFacts::Suspicious;
    }
    let (mut calls, mut writes, mut names_settings) = (Vec::new(), false, false);
    let mut words = BodyScanner { text: source.as_bytes(), at: 0 };
    let mut starts = true;
    while let Some(token) = words.next_token() {
        match token {
            BodyToken::Word { word, is_call } => {
                let word = word.to_ascii_lowercase();
                if is_suspicious(&word) || (starts && matches!(word.as_str(), "set" | "reset") && !words.is_harmless_local_next())
                {
                    return BodyFacts::Suspicious;
                }
                writes |= is_writing(&word);
                // An update of this view sets parameters.
                names_settings |= word == "pg_settings";
                if names_settings && writes {
                    return BodyFacts::Suspicious;
                }
                starts = matches!(word.as_str(), "begin" | "then" | "else" | "loop" | "atomic");
                if is_call || reaches_outside(&word) {
                    if left_by_function(&word).is_some() {
                        return BodyFacts::Suspicious;
                    }
                    calls.push(word);
                }
            }
            BodyToken::End => starts = true,
            BodyToken::Other => starts = false,
        }
    }
    calls.sort_unstable();
    calls.dedup();
    BodyFacts::Calls { calls, writes }
}

/// Commands that reach files, programs or other servers count as calls.
fn reaches_outside(word: &str) -> bool {
    matches!(word, "copy" | "import")
}

/// Reads may have some of these words (`FOR UPDATE`).
fn is_writing(word: &str) -> bool {
    const WORDS: [&str; 14] = [
        "alter", "comment", "copy", "create", "delete", "drop", "grant", "import", "insert", "merge", "refresh", "revoke",
        "truncate", "update",
    ];
    WORDS.contains(&word)
}

fn is_suspicious(word: &str) -> bool {
    const WORDS: [&str; 11] = [
        "deallocate",
        "discard",
        "dblink_connect",
        "execute",
        "hold",
        "listen",
        "load",
        "pg_temp",
        "prepare",
        "temp",
        "temporary",
    ];
    WORDS.contains(&word)
}

enum BodyToken<'t> {
    Word {
        word: &'t str,
        /// A parenthesis follows.
        is_call: bool,
    },
    End,
    Other,
}

struct BodyScanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> BodyScanner<'t> {
    fn next_token(&mut self) -> Option<BodyToken<'t>> {
        self.skip_blanks();
        let &first = self.text.get(self.at)?;
        if first.is_ascii_alphabetic() || first == b'_' || !first.is_ascii() {
            return Some(self.word());
        }
        match first {
            b'"' => Some(self.quoted()),
            b'\'' => {
                self.skip_string();
                Some(BodyToken::Other)
            }
            b'$' => {
                self.skip_dollar();
                Some(BodyToken::Other)
            }
            b';' => {
                self.at += 1;
                Some(BodyToken::End)
            }
            b'>' if self.text.get(self.at + 1) == Some(&b'>') => {
                self.at += 2;
                Some(BodyToken::End)
            }
            _ => {
                self.at += 1;
                Some(BodyToken::Other)
            }
        }
    }

    fn word(&mut self) -> BodyToken<'t> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$') || !b.is_ascii()) {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.text[start..self.at]).unwrap_or("");
        BodyToken::Word { word, is_call: self.is_open_next() }
    }

    fn quoted(&mut self) -> BodyToken<'t> {
        let start = self.at + 1;
        let length = self.text[start..].iter().position(|b| *b == b'"').unwrap_or(self.text.len() - start);
        self.at = (start + length + 1).min(self.text.len());
        let word = std::str::from_utf8(&self.text[start..start + length]).unwrap_or("");
        BodyToken::Word { word, is_call: self.is_open_next() }
    }

    fn is_open_next(&mut self) -> bool {
        self.skip_blanks();
        self.text.get(self.at) == Some(&b'(')
    }

    /// True before a `LOCAL` that does not change the meaning of names.
    fn is_harmless_local_next(&mut self) -> bool {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        if !(rest.len() > 5 && rest[..5].eq_ignore_ascii_case(b"local") && rest[5].is_ascii_whitespace()) {
            return false;
        }
        let mut ahead = BodyScanner { text: self.text, at: self.at + 5 };
        match ahead.next_token() {
            Some(BodyToken::Word { word, .. }) => {
                let word = word.to_ascii_lowercase();
                !(moves_names(&word) || matches!(word.as_str(), "schema" | "session" | "names"))
            }
            Some(BodyToken::End | BodyToken::Other) | None => false,
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.text[self.at.min(self.text.len())..];
            if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.at += 1;
            } else if rest.starts_with(b"--") {
                self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                self.at += comment_bytes(rest);
            } else {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            if byte == b'\'' {
                if self.text.get(self.at) != Some(&b'\'') {
                    return;
                }
                self.at += 1;
            }
        }
    }

    fn skip_dollar(&mut self) {
        let rest = &self.text[self.at..];
        let tag = 1 + rest[1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if rest.get(tag) != Some(&b'$') || rest[1].is_ascii_digit() {
            self.at += tag;
            return;
        }
        let mark = &rest[..=tag];
        let end = rest[mark.len()..].windows(mark.len()).position(|piece| piece == mark);
        self.at += end.map_or(rest.len(), |end| mark.len() + end + mark.len());
    }
}

/// Bytes of the comment that a text begins with. Comments nest, and an open one reaches to the end.
pub(crate) fn comment_bytes(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `!`: suspicious; else the calls, and `+` if it writes.
    fn check_body(source: &str, expected: &str) {
        let read = match read_body(source) {
            BodyFacts::Suspicious => "!".to_owned(),
            BodyFacts::Calls { calls, writes } => calls.join(" ") + if writes { " +" } else { "" },
        };
        assert_eq!(read, expected, "{source}");
    }

    #[test]
    fn what_a_source_calls_is_known() {
        check_body("select count(*), app.f(a) from t where b in (1, 2)", "count f in");
        check_body("begin update t set a = g (1) where b = 'set x'; return 'execute'; end", "g +");
        check_body("begin -- set x\n /* ; set /* y */ */ set local work_mem = '1MB'; end", "");
        check_body(
            "begin if a then insert into t values (1) on conflict (a) do update set b = 2; end if; end",
            "conflict values +",
        );
        check_body("select \"Odd\"(1), $1, $a$ ; set x $a$", "odd");
        check_body("", "");
    }

    #[test]
    fn what_may_leave_something_is_suspicious() {
        for source in [
            "begin set work_mem = '1MB'; end",
            "begin\n/* x */ set\n timezone to 'UTC'; end",
            "begin if a then reset all; end if; end",
            "begin <<label>> set x = 1; end",
            "set x = 1",
            "begin execute 'anything'; end",
            "begin perform set_config('a.b', 'c', false); end",
            "begin perform pg_catalog . pg_advisory_lock (1); end",
            "begin create temp table x (a int); end",
            "select E'\\'' , a",
            "begin perform \"set_config\"('a', 'b', false); end",
            "begin set local search_path = b; end",
            "begin if a then SET LOCAL /* x */ Role joe; end if; end",
            "begin set local schema 'b'; end",
            "begin set local session authorization joe; end",
            "begin set local \"search_path\" = b; end",
            "update pg_settings set setting = 'x' where name = 'role'",
        ] {
            check_body(source, "!");
        }
    }
}
