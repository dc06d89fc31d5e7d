//! Finds texts that read the same in every client and database encoding.
//!
//! In PostgreSQL's encodings no quote, `*`, `/`, `-` or line break is a later byte of a character: plain strings and
//! comments end alike. Names differ (UTF-8 `é` is `Ã©` in LATIN1), and their folding. A backslash may be a second byte
//! (SJIS, BIG5, GBK).

/// True if bytes beyond ASCII may be anywhere but in plain strings and comments.
pub fn names_beyond_ascii(text: &[u8]) -> bool {
    (!text.is_ascii() || has_escapes(text)) && stands_in_names(text)
}

fn has_escapes(text: &[u8]) -> bool {
    text.contains(&b'\\') && text.windows(2).any(|pair| pair == b"&\"")
}

fn stands_in_names(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        let part = match byte {
            0x80.. => return true,
            // Unicode escapes may give a name beyond ASCII.
            b'"' if at > 0 && text[at - 1] == b'&' => return true,
            b'"' => after_identifier(rest),
            // A prefix may make it a string with escapes.
            b'\'' if at == 0 || !is_prefix(text[at - 1]) => after_string(rest),
            b'-' if rest.starts_with(b"--") => Some(rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len())),
            b'/' if rest.starts_with(b"/*") => after_comment(rest),
            // Possibly a dollar quote, whose contents are a text of their own.
            b'$' if !rest.get(1).is_some_and(u8::is_ascii_digit) => None,
            b'\'' => None,
            _ => Some(1),
        };
        match part {
            Some(bytes) => at += bytes,
            None => return !rest.is_ascii(),
        }
    }
    false
}

fn is_prefix(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'&' | 0x80..)
}

/// `None`: not ASCII, or no end.
fn after_identifier(text: &[u8]) -> Option<usize> {
    // The second of two quotes begins the next name.
    let inner = text[1..].iter().position(|b| *b == b'"')?;
    text[1..=inner].is_ascii().then_some(inner + 2)
}

/// `None`: a backslash, or no end.
fn after_string(text: &[u8]) -> Option<usize> {
    let inner = text[1..].iter().position(|b| matches!(b, b'\'' | b'\\'))?;
    // The second of two quotes begins the next string.
    (text[1 + inner] == b'\'').then_some(inner + 2)
}

/// Comments nest.
fn after_comment(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0u32, 0);
    loop {
        let bytes = match text.get(at..at + 2)? {
            b"/*" => {
                depth += 1;
                2
            }
            b"*/" => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += bytes;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strings_and_comments_read_alike_in_all_encodings() {
        for (text, expected) in [
            ("select * from t where a = 'x'", false),
            ("select 'ü', 'it''s ü', '' from t", false),
            ("select 1 -- ü\n, 2 /* ü /* ü */ ü */ from t where a = $1", false),
            ("select \"a'\" from \"ü\"", true),
            ("select 1 from ü", true),
            ("select \"a'ü'\"", true),
            ("select \"a'\"\"\", 'ü'", false),
            ("select 'a'ü", true),
            ("select 'ü' from t -- \n ü", true),
            ("select e'a\\'' , 'ü'", true),
            ("select 'a\\', 'ü'", true),
            ("select 'ü', 'a\\'", false),
            ("select $$ü$$", true),
            ("select U&'ü'", true),
            ("select U&\"\\00e9\" from t", true),
            ("select 1 &\"a\" from t", false),
            ("select 'ü", true),
            ("select /* ü", true),
            ("select 'ü'/* ü */'a' - 1 / 2", false),
        ] {
            assert_eq!(names_beyond_ascii(text.as_bytes()), expected, "{text}");
        }
        assert!(!names_beyond_ascii(b"select '\xe9', '\x83a' from t"));
        assert!(names_beyond_ascii(b"select '\xe9' from \xe9"));
    }
}
