//! Scans a text too long to be parsed for state that no query shows: libraries, seeds, backups, made-up parameters.
//!
//! Looks at words outside of strings and comments (scan.l), not into the string of `DO`. Assumes
//! `standard_conforming_strings` on.

use crate::leaves::StateKinds;
use crate::leaves::left_by_function;

const WORD_BYTES_MAX: usize = 128;

/// Made-up parameters of one text.
const NAMES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LongTextFacts {
    /// Servers show what it left, if asked for these made-up parameters.
    Told { names: Vec<String>, defines: DefinitionCertainty },
    /// May have left what no server shows.
    Untold,
}

/// Definitions in a text, apart from those by functions called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionCertainty {
    /// Statements concern only rows and transactions.
    Nothing,
    Perhaps,
}

const PLAIN: [&[u8]; 13] = [
    b"insert",
    b"update",
    b"delete",
    b"merge",
    b"copy",
    b"begin",
    b"start",
    b"commit",
    b"end",
    b"rollback",
    b"abort",
    b"savepoint",
    b"release",
];

/// Commands that define nothing without an INTO.
const READS: [&[u8]; 4] = [b"select", b"with", b"values", b"table"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScannerState {
    Text,
    Word,
    /// Within quotes; `escapes` behind an E.
    String {
        escapes: bool,
        is_escaped: bool,
    },
    Name,
    Line,
    Comment {
        depth: u32,
    },
    /// Behind a dollar that may begin a string.
    Tag,
    Dollar {
        matched: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenRole {
    First,
    Parameter,
    /// Behind the name of a parameter.
    Value,
    Argument,
    Comma,
    Other,
}

#[derive(Debug)]
pub struct LongTextScan {
    at: ScannerState,
    next: TokenRole,
    last: u8,
    word: Vec<u8>,
    tag: Vec<u8>,
    names: Vec<String>,
    is_untold: bool,
    defines: DefinitionCertainty,
    /// True if an INTO makes a table.
    is_read: bool,
    /// True behind the final zero; a Parse continues with other fields.
    is_over: bool,
}

impl Default for LongTextScan {
    fn default() -> LongTextScan {
        LongTextScan {
            at: ScannerState::Text,
            next: TokenRole::First,
            last: 0,
            word: Vec::new(),
            tag: Vec::new(),
            names: Vec::new(),
            is_untold: false,
            defines: DefinitionCertainty::Nothing,
            is_read: false,
            is_over: false,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$') || byte >= 0x80
}

fn is_of_tag(byte: u8, is_first: bool) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 || (byte.is_ascii_digit() && !is_first)
}

impl LongTextScan {
    pub fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_untold || self.is_over {
                return;
            }
            self.is_over = byte == 0;
            let last = std::mem::replace(&mut self.last, byte);
            self.step(last, byte);
        }
    }

    pub fn end(mut self) -> LongTextFacts {
        if self.at == ScannerState::Word {
            self.word_is_over();
        }
        if self.is_untold { LongTextFacts::Untold } else { LongTextFacts::Told { names: self.names, defines: self.defines } }
    }

    fn step(&mut self, last: u8, byte: u8) {
        match self.at {
            ScannerState::Text => self.in_text(last, byte),
            ScannerState::Word if is_word(byte) => self.push(byte),
            ScannerState::Word => {
                let (is_escaping, is_coded) = (self.is_word(b"e"), self.is_word(b"u"));
                if byte == b'\'' && is_escaping {
                    self.word.clear();
                    return self.at = ScannerState::String { escapes: true, is_escaped: false };
                }
                // A name in Unicode escapes.
                self.is_untold |= byte == b'&' && is_coded;
                self.word_is_over();
                self.at = ScannerState::Text;
                self.in_text(last, byte);
            }
            ScannerState::String { is_escaped: true, escapes } => self.at = ScannerState::String { escapes, is_escaped: false },
            ScannerState::String { escapes: true, .. } if byte == b'\\' => {
                self.at = ScannerState::String { escapes: true, is_escaped: true }
            }
            ScannerState::String { .. } if byte == b'\'' => {
                self.string_is_over();
                self.at = ScannerState::Text;
            }
            ScannerState::String { .. } => self.push(byte),
            ScannerState::Name if byte == b'"' => {
                self.word_is_over();
                self.at = ScannerState::Text;
            }
            ScannerState::Name => self.push(byte),
            ScannerState::Line if matches!(byte, b'\n' | b'\r') => self.at = ScannerState::Text,
            ScannerState::Line => {}
            ScannerState::Comment { depth } => self.in_comment(last, byte, depth),
            ScannerState::Tag if byte == b'$' => self.at = ScannerState::Dollar { matched: 0 },
            ScannerState::Tag if is_of_tag(byte, self.tag.is_empty()) => self.tag.push(byte),
            ScannerState::Tag => {
                self.at = ScannerState::Text;
                self.in_text(last, byte);
            }
            ScannerState::Dollar { matched } => self.in_dollar(byte, matched),
        }
        self.is_untold |= self.tag.len() > WORD_BYTES_MAX;
    }

    fn in_text(&mut self, last: u8, byte: u8) {
        // The parameter's name continues behind a blank.
        self.is_untold |= self.next == TokenRole::Value && byte == b'.';
        // A concatenated name could be any.
        self.is_untold |= self.next == TokenRole::Comma && !matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r');
        match byte {
            b'\'' => {
                self.word.clear();
                self.at = ScannerState::String { escapes: false, is_escaped: false };
            }
            b'"' => {
                self.word.clear();
                self.at = ScannerState::Name;
            }
            b'-' if last == b'-' => self.at = ScannerState::Line,
            b'*' if last == b'/' => {
                self.at = ScannerState::Comment { depth: 1 };
                // The star in `/*/` does not close the comment.
                self.last = 0;
            }
            b'$' => {
                self.tag.clear();
                self.at = ScannerState::Tag;
            }
            b';' => self.next = TokenRole::First,
            b'(' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b'-' | b'/' => {}
            _ if is_word(byte) => {
                self.word.clear();
                self.push(byte);
                self.at = ScannerState::Word;
            }
            _ => self.other(),
        }
    }

    fn other(&mut self) {
        // A computed name could be any.
        self.is_untold |= self.next == TokenRole::Argument;
        if self.next == TokenRole::First {
            self.defines = DefinitionCertainty::Perhaps;
        }
        self.next = TokenRole::Other;
    }

    fn in_comment(&mut self, last: u8, byte: u8, depth: u32) {
        match (last, byte) {
            (b'/', b'*') => self.at = ScannerState::Comment { depth: depth.saturating_add(1) },
            (b'*', b'/') if depth == 1 => self.at = ScannerState::Text,
            (b'*', b'/') => self.at = ScannerState::Comment { depth: depth - 1 },
            _ => return,
        }
        // Neither byte is part of the next mark.
        self.last = 0;
    }

    fn in_dollar(&mut self, byte: u8, matched: usize) {
        let expected = if matched == 0 { Some(b'$') } else { self.tag.get(matched - 1).copied().or(Some(b'$')) };
        self.at = if Some(byte) != expected {
            ScannerState::Dollar { matched: usize::from(byte == b'$') }
        } else if matched == self.tag.len() + 1 {
            self.other();
            ScannerState::Text
        } else {
            ScannerState::Dollar { matched: matched + 1 }
        };
    }

    fn push(&mut self, byte: u8) {
        if self.word.len() <= WORD_BYTES_MAX {
            self.word.push(byte.to_ascii_lowercase());
        }
    }

    fn is_word(&self, word: &[u8]) -> bool {
        self.word == word
    }

    fn string_is_over(&mut self) {
        match self.next {
            TokenRole::Argument => {
                self.name_parameter();
                self.next = TokenRole::Comma;
            }
            TokenRole::First | TokenRole::Parameter | TokenRole::Value | TokenRole::Comma | TokenRole::Other => {
                self.next = TokenRole::Other
            }
        }
    }

    fn word_is_over(&mut self) {
        // The last word of a qualified name counts.
        let last = self.word.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        let keeps = std::str::from_utf8(last).ok().and_then(left_by_function);
        self.is_untold |= keeps.is_some_and(|kind| StateKinds::UNTOLD.has(kind));
        let is_setting = last == b"set_config";
        self.judge_definition();
        self.next = match (self.next, self.word.as_slice()) {
            (TokenRole::First, b"do" | b"load") => {
                self.is_untold = true;
                TokenRole::Other
            }
            (TokenRole::First, b"set" | b"reset") | (TokenRole::Parameter, b"session" | b"local") => TokenRole::Parameter,
            (TokenRole::Parameter, _) => {
                self.name_parameter();
                TokenRole::Value
            }
            (TokenRole::Argument, _) => {
                self.is_untold = true;
                TokenRole::Other
            }
            (TokenRole::First | TokenRole::Value | TokenRole::Comma | TokenRole::Other, _) if is_setting => TokenRole::Argument,
            (TokenRole::First | TokenRole::Value | TokenRole::Comma | TokenRole::Other, _) => TokenRole::Other,
        };
        self.word.clear();
    }

    fn judge_definition(&mut self) {
        let word = self.word.as_slice();
        let is_plain = match self.next {
            TokenRole::First => {
                self.is_read = READS.contains(&word);
                self.is_read || PLAIN.contains(&word)
            }
            _ => !(self.is_read && word == b"into"),
        };
        if !is_plain {
            self.defines = DefinitionCertainty::Perhaps;
        }
    }

    fn name_parameter(&mut self) {
        let Ok(name) = std::str::from_utf8(&self.word) else { return self.is_untold = true };
        if !name.contains('.') || self.names.iter().any(|known| known == name) {
            return;
        }
        let is_part = name.starts_with('.') || name.ends_with('.');
        self.is_untold |= is_part || name.len() > WORD_BYTES_MAX || self.names.len() == NAMES_MAX;
        self.names.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece, and byte by byte.
    fn check(text: &str, names: Option<&[&str]>) {
        let expected = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let (whole, pieces) = passed(text);
        let names = match &whole {
            LongTextFacts::Told { names, .. } => Some(names.clone()),
            LongTextFacts::Untold => None,
        };
        assert_eq!((names, whole), (expected, pieces), "{text}");
    }

    fn passed(text: &str) -> (LongTextFacts, LongTextFacts) {
        let mut whole = LongTextScan::default();
        whole.feed(text.as_bytes());
        let mut pieces = LongTextScan::default();
        text.as_bytes().chunks(1).for_each(|piece| pieces.feed(piece));
        (whole.end(), pieces.end())
    }

    #[test]
    fn rows_that_are_read_and_written_define_nothing() {
        for (text, expected) in [
            ("insert into t select 'create table x ()' from u; commit", DefinitionCertainty::Nothing),
            ("BEGIN; Update t set a = $$; drop table t$$; DELETE from t; end", DefinitionCertainty::Nothing),
            (
                "/* create */ ((select 1)); values (1); with a as (table t) select * from a -- ; drop",
                DefinitionCertainty::Nothing,
            ),
            ("copy t from stdin", DefinitionCertainty::Nothing),
            ("insert into t values (1); create table x ()", DefinitionCertainty::Perhaps),
            ("select 1 as a into x", DefinitionCertainty::Perhaps),
            ("with a as (insert into t values (1) returning a) select * from a", DefinitionCertainty::Perhaps),
            ("select 1; drop table t", DefinitionCertainty::Perhaps),
            ("explain analyze create table x as select 1", DefinitionCertainty::Perhaps),
            ("\"insert\" into t values (1)", DefinitionCertainty::Nothing),
            ("set search_path = a; insert into t values (1)", DefinitionCertainty::Perhaps),
            ("; + create table x ()", DefinitionCertainty::Perhaps),
        ] {
            let told = |passed| matches!(passed, LongTextFacts::Told { defines, .. } if defines == expected);
            let (whole, pieces) = passed(text);
            assert!(told(whole) && told(pieces), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_asked_for_unless_it_may_leave_what_no_server_tells() {
        check("insert into t values ('load setseed', E'a\\'; load x', $$do; load$$, $a$;load $ $b$ x$a$)", Some(&[]));
        check("insert into t values (1) on conflict do update set a = 'app.x'", Some(&[]));
        check("/* ; load /* x */ do */ select 1 -- ; load\n; create table x (load int)", Some(&[]));
        check("select 'it''s'; LOAD 'x'", None);
        check("select 1 / 2 - 3; (load 'x')", None);
        check("do $$ begin end $$", None);
        check("select public.setseed(.1)", None);
        check("select \"setseed\"(.1)", None);
        check("select U&\"!0073etseed\" uescape '!' (.1)", None);
        check("select pg_backup_start('x')", None);
        check("select pg_advisory_lock(1); listen x; create temp table y (a int); prepare z as select 1", Some(&[]));
        check("select '\\'; load 'x'", None);
        check("select 1 $1; load 'x'", None);
        check("select a$b$c; load 'x'", None);
        check("select $1$ $1; load 'x'", None);
        check("select 1 /*/ ' */; load 'x' /* ' */", None);
        check("select 1 /***/; load 'x'", None);
        check("select 1\0\0\x01; load 'x'", Some(&[]));
        check("select 1 /* / */ - -1 --- ; load\r; select 2", Some(&[]));
    }

    #[test]
    fn parameters_that_a_long_text_makes_up_are_named() {
        check("SET statement_timeout = 0; set App.Tenant = 'x'; set session b.c to 1", Some(&["app.tenant", "b.c"]));
        check("select pg_catalog.set_config('search_path', '', false), set_config ( 'My.One', a.b, false)", Some(&["my.one"]));
        check("select set_config('my.' || x, '', false)", None);
        check("select set_config('my.'\n'x', '', false)", None);
        check("select set_config(x, '', false)", None);
        check("select set_config(($$a.b$$), '', false)", None);
        check("set \"a.b\" = 1; reset c.d", Some(&["a.b", "c.d"]));
        check("set \"a\".b = 1", None);
        check("set a . b = 1", None);
        check("set a.\"b\" = 1", None);
        check("set a = .5; set b to c.d", Some(&[]));
        let many: String = (0..100).map(|number| format!("set a.b{number} = 1;")).collect();
        check(&many, None);
    }
}
