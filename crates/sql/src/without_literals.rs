//! A text with `$n` in place of its constants and without comments, as statistics show it.
//!
//! For texts that the parser accepts: where one string ends is then known. Numbers follow the text's own parameters, as in
//! pg_stat_statements. A list of constants behind `IN` is one constant, or each length of it would be a text of its own.

use crate::body::comment_bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    /// Whitespace or a comment.
    Blank,
    Constant,
    Parameter,
    Other,
}

/// Where a list of constants behind `IN` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPlace {
    Elsewhere,
    BehindIn,
    Opened,
    /// `is_cut`: constants behind the first were left out.
    BehindConstant {
        is_cut: bool,
    },
    BehindComma {
        is_cut: bool,
    },
}

/// Returns the text with `$n` for strings and numbers, blanks as single spaces, no comments and no semicolon at its end.
pub fn without_literals(text: &str) -> String {
    let mut next = 1 + tokens(text).filter_map(|(kind, token)| number_of(kind, token)).max().unwrap_or(0);
    let mut out = String::with_capacity(text.len());
    let mut place = ListPlace::Elsewhere;
    let mut is_apart = false;
    for (kind, token) in tokens(text) {
        if kind == TokenKind::Blank {
            is_apart = true;
            continue;
        }
        let before = place;
        place = place_behind(before, kind, token);
        match (before, place) {
            // Written later, if anything but a constant follows.
            (_, ListPlace::BehindComma { .. }) => continue,
            (ListPlace::BehindComma { .. }, ListPlace::BehindConstant { .. }) => {
                is_apart = false;
                continue;
            }
            (ListPlace::BehindComma { is_cut }, _) => {
                out.push_str(if is_cut { ", ...," } else { "," });
                is_apart = true;
            }
            (ListPlace::BehindConstant { is_cut: true }, _) => {
                out.push_str(", ...");
                is_apart = false;
            }
            _ => {}
        }
        if is_apart && !out.is_empty() {
            out.push(' ');
        }
        is_apart = false;
        if kind == TokenKind::Constant {
            out.push('$');
            out.push_str(&next.to_string());
            next = next.saturating_add(1);
        } else {
            out.push_str(token);
        }
    }
    let end = out.trim_end_matches([' ', ';']).len();
    out.truncate(end);
    out
}

fn place_behind(place: ListPlace, kind: TokenKind, token: &str) -> ListPlace {
    match (place, kind) {
        (_, TokenKind::Other) if token.eq_ignore_ascii_case("in") => ListPlace::BehindIn,
        (ListPlace::BehindIn, TokenKind::Other) if token == "(" => ListPlace::Opened,
        (ListPlace::Opened, TokenKind::Constant) => ListPlace::BehindConstant { is_cut: false },
        (ListPlace::BehindComma { .. }, TokenKind::Constant) => ListPlace::BehindConstant { is_cut: true },
        (ListPlace::BehindConstant { is_cut }, TokenKind::Other) if token == "," => ListPlace::BehindComma { is_cut },
        _ => ListPlace::Elsewhere,
    }
}

fn number_of(kind: TokenKind, token: &str) -> Option<u32> {
    (kind == TokenKind::Parameter).then(|| token[1..].parse().unwrap_or(u32::MAX - 1))
}

/// Splits a text by the rules of scan.l. Every byte is in one token.
fn tokens(text: &str) -> impl Iterator<Item = (TokenKind, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (kind, bytes) = first_token(rest.as_bytes())?;
        let (token, behind) = rest.split_at(bytes.min(rest.len()));
        rest = behind;
        Some((kind, token))
    })
}

fn first_token(text: &[u8]) -> Option<(TokenKind, usize)> {
    let next_is_digit = text.get(1).is_some_and(u8::is_ascii_digit);
    Some(match text {
        [] => return None,
        [b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C, ..] => (TokenKind::Blank, 1),
        [b'-', b'-', ..] => (TokenKind::Blank, count_while(text, |byte| !matches!(byte, b'\n' | b'\r'))),
        [b'/', b'*', ..] => (TokenKind::Blank, comment_bytes(text)),
        [b'\'', ..] => (TokenKind::Constant, quoted_bytes(text, 1, false)),
        [b'e' | b'E', b'\'', ..] => (TokenKind::Constant, quoted_bytes(text, 2, true)),
        [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] => (TokenKind::Constant, quoted_bytes(text, 2, false)),
        [b'u' | b'U', b'&', b'\'', ..] => (TokenKind::Constant, quoted_bytes(text, 3, false)),
        [b'u' | b'U', b'&', b'"', ..] => (TokenKind::Other, quoted_bytes(text, 3, false)),
        [b'"', ..] => (TokenKind::Other, quoted_bytes(text, 1, false)),
        [b'$', ..] if next_is_digit => (TokenKind::Parameter, 1 + count_while(&text[1..], |byte| byte.is_ascii_digit())),
        [b'$', ..] => dollar_quote_bytes(text).map_or((TokenKind::Other, 1), |bytes| (TokenKind::Constant, bytes)),
        [b'0'..=b'9', ..] => (TokenKind::Constant, number_bytes(text)),
        [b'.', ..] if next_is_digit => (TokenKind::Constant, number_bytes(text)),
        [first, ..] if is_of_word(*first) => (TokenKind::Other, count_while(text, is_of_word)),
        _ => (TokenKind::Other, 1),
    })
}

fn count_while(text: &[u8], is_one: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_one(**byte)).count()
}

/// `ident_cont`.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// `open_bytes`: up to the opening quote, which ends the text too unless it is doubled. An open string reaches to the end.
fn quoted_bytes(text: &[u8], open_bytes: usize, has_escapes: bool) -> usize {
    let quote = text[open_bytes - 1];
    let mut at = open_bytes;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' if has_escapes => at += 2,
            _ if byte == quote && text.get(at + 1) == Some(&quote) => at += 2,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// `None`: no dollar quote begins here. An open one reaches to the end.
fn dollar_quote_bytes(text: &[u8]) -> Option<usize> {
    let tag = count_while(&text[1..], |byte| is_of_word(byte) && byte != b'$');
    let open = text.get(..tag + 2).filter(|open| open.ends_with(b"$"))?;
    let end = text[open.len()..].windows(open.len()).position(|part| part == open);
    Some(end.map_or(text.len(), |end| end + 2 * open.len()))
}

/// A number, with what the scanner would refuse behind it.
fn number_bytes(text: &[u8]) -> usize {
    let is_decimal = !matches!(text, [b'0', b'x' | b'X', ..]);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let ends_mantissa = is_decimal && at > 0 && text[at - 1].eq_ignore_ascii_case(&b'e');
        match byte {
            b'+' | b'-' if ends_mantissa && text.get(at + 1).is_some_and(u8::is_ascii_digit) => at += 1,
            b'.' if text.get(at + 1) == Some(&b'.') => return at,
            b'.' => at += 1,
            _ if is_of_word(byte) => at += 1,
            _ => return at,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(without_literals(text), expected, "{text}");
    }

    #[test]
    fn constants_become_numbered_parameters() {
        check("SELECT 1", "SELECT $1");
        check("select 'secret' , \"a 'b'\", a1 from t where b=-12.5e-3;", "select $1 , \"a 'b'\", a1 from t where b=-$2");
        check("select $2, 'a', $1 , .5", "select $2, $3, $1 , $4");
        check("select e'a\\'secret', b'01', X'1f', n'x', U&'\\0041', U&\"a'b\"", "select $1, $2, $3, $4, $5, U&\"a'b\"");
        check("select $$a 'b' secret$$, $x$ $y$ secret $$ $x$, a$b", "select $1, $2, a$b");
        check("select 'it''s', 'secret -- no comment /*', 0x1F, 1_000, 1e5, a[1:2]", "select $1, $2, $3, $4, $5, a[$6:$7]");
        check("set x = 'secret'", "set x = $1");
        check("do 'begin perform secret(); end'", "do $1");
        check("create role joe password 'secret' valid until 'x'", "create role joe password $1 valid until $2");
    }

    #[test]
    fn comments_and_blanks_are_left_out() {
        check("/* secret /* 'x' */ */ select -- 'secret'\n  1 /* a */ + 2;  -- secret", "select $1 + $2");
        check("\n\tselect\r\n a\n", "select a");
        check("-- secret", "");
        check("select 1 /* secret", "select $1");
    }

    #[test]
    fn a_list_of_constants_is_one() {
        check("select a from t where b in (1, 2,3) and c IN('x')", "select a from t where b in ($1, ...) and c IN($2)");
        check("where a in (1, 2, b, 3)", "where a in ($1, ..., b, $2)");
        check("where a in (1, $1, 2)", "where a in ($2, $1, $3)");
        check("values (1, 2), (3, 4)", "values ($1, $2), ($3, $4)");
        check("where a in (select 1, 2)", "where a in (select $1, $2)");
    }

    #[test]
    fn no_text_is_too_broken_to_be_cut() {
        for text in ["'", "e'\\", "$a$", "$", "\"", "1e+", "..", "ä'ö", "$99999999999", "U&'", "e'\\ä", "1..2"] {
            without_literals(text);
        }
        check("select 'open secret", "select $1");
        check("select e'open \\", "select $1");
    }
}
