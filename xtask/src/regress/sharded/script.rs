//! A script of the suite, read as `psql` does: statement by statement, with the commands between them.
//!
//! Source: PostgreSQL's psqlscan.l and mainloop.c. Data behind `COPY ... FROM STDIN` stand in the script, too; whether they do is known
//! only once the server asked for them, so that they are looked at and then passed over.

use std::collections::BTreeMap;

use super::tokens::{self, Kind};

/// Commands that end a statement, and send it.
const SENDING: [&str; 8] = ["g", "gx", "gset", "gexec", "gdesc", "crosstabview", "watch", "parse"];

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Statement(Statement),
    /// `\set` and its kin: the name, and the rest of the line.
    Command {
        name: String,
        rest: String,
    },
}

/// A text for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Number of its first line.
    pub line: usize,
    pub text: String,
    pub end: End,
}

/// How a statement ends, and with that what becomes of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Plain,
    /// The row becomes variables, whose names begin so.
    Gset(String),
    /// By a command that does more than send it.
    Other(String),
}

/// A script with the place up to which it is read.
pub struct Script<'t> {
    text: &'t str,
    at: usize,
    /// Number of the line of that place.
    here: usize,
    /// Begin of a statement whose end is not read yet, and the number of its first line.
    buffer: String,
    line: usize,
}

/// Where a statement's end may be.
#[derive(Default)]
struct Nesting {
    parens: u32,
    /// Of `BEGIN ATOMIC` and `CASE` in a function's body.
    begins: u32,
    /// The first words.
    words: Vec<String>,
}

impl<'t> Script<'t> {
    pub fn new(text: &'t str) -> Script<'t> {
        Script { text, at: 0, here: 1, buffer: String::new(), line: 1 }
    }

    /// The next thing to do; `None` at the end. A statement without an end is left out, as its answer would be nobody's.
    pub fn step(&mut self) -> Option<Step> {
        let mut nesting = Nesting::of(&self.buffer);
        while let Some(token) = tokens::first(&self.text[self.at..]) {
            let here = self.here;
            self.pass(token.text.len());
            match token.kind {
                Kind::Backslash => match self.command() {
                    Some((name, _)) if name == ";" => self.buffer.push(';'),
                    Some((name, rest)) if SENDING.contains(&name.as_str()) && !self.buffer.trim().is_empty() => {
                        return Some(self.statement(End::of(&name, &rest)));
                    }
                    Some((name, rest)) => return Some(Step::Command { name, rest }),
                    None => {}
                },
                Kind::Semicolon if nesting.is_end() => {
                    if self.buffer.trim().is_empty() {
                        continue;
                    }
                    return Some(self.statement(End::Plain));
                }
                Kind::Comment => self.buffer.push(' '),
                kind => {
                    if self.buffer.trim().is_empty() && kind != Kind::Space {
                        self.line = here;
                    }
                    nesting.take(&token);
                    self.buffer.push_str(token.text);
                }
            }
        }
        None
    }

    fn statement(&mut self, end: End) -> Step {
        let text = std::mem::take(&mut self.buffer);
        Step::Statement(Statement { line: self.line, text: text.trim().to_owned(), end })
    }

    /// The command behind a backslash, up to the end of the line or the next backslash of a `\gset`.
    fn command(&mut self) -> Option<(String, String)> {
        let rest = &self.text[self.at..];
        if let Some(sign) = rest.chars().next().filter(|c| matches!(c, ';' | ':')) {
            self.pass(1);
            return Some((sign.to_string(), String::new()));
        }
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "?!+_".contains(c))).unwrap_or(line.len());
        let name = &line[..name_end];
        // Behind some commands another one may stand on the line.
        let end = if matches!(name, "gset" | "if" | "else" | "endif" | "gexec") {
            line.find('\\').unwrap_or(line.len())
        } else {
            line.len()
        };
        self.pass(end);
        Some((name.to_owned(), line[name_end.min(end)..end].trim().to_owned()))
    }

    fn pass(&mut self, bytes: usize) {
        self.here += self.text[self.at..self.at + bytes].matches('\n').count();
        self.at += bytes;
    }

    /// Lines behind the statement that was read last, if they are data of a COPY: up to a line with `\.`.
    pub fn data_ahead(&self) -> Option<&'t str> {
        let rest = &self.text[self.at..];
        let begin = rest.find('\n')? + 1;
        let end = rest[begin..].find("\n\\.").map(|at| begin + at + 1);
        let end = if rest[begin..].starts_with("\\.") { Some(begin) } else { end };
        end.map(|end| &rest[begin..end])
    }

    /// True if the lines that might be data of a COPY hold statements.
    pub fn is_code_ahead(&self) -> bool {
        let starts = |line: &str| {
            let first = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
            line.trim_end().ends_with(';')
                && matches!(first.as_str(), "copy" | "select" | "insert" | "drop" | "create" | "begin" | "rollback")
        };
        self.data_ahead().is_none_or(|data| data.lines().any(starts))
    }

    /// Passes over the data.
    pub fn skip_data(&mut self) {
        if let Some(data) = self.data_ahead() {
            let rest = &self.text[self.at..];
            let behind = rest.find('\n').map_or(0, |line| line + 1) + data.len();
            let line = rest[behind..].find('\n').map_or(rest.len(), |line| behind + line);
            self.pass(line);
        }
    }
}

impl End {
    fn of(name: &str, rest: &str) -> End {
        match name {
            "g" | "gx" if !rest.contains(['|', '/', ':', '(']) => End::Plain,
            "gset" => End::Gset(rest.to_owned()),
            _ => End::Other(name.to_owned()),
        }
    }
}

impl Nesting {
    fn of(buffer: &str) -> Nesting {
        let mut nesting = Nesting::default();
        tokens::all(buffer).iter().for_each(|token| nesting.take(token));
        nesting
    }

    fn is_end(&self) -> bool {
        self.parens == 0 && self.begins == 0
    }

    fn take(&mut self, token: &tokens::Token<'_>) {
        match token.kind {
            Kind::Open => self.parens += 1,
            Kind::Close => self.parens = self.parens.saturating_sub(1),
            Kind::Word => self.take_word(&token.text.to_ascii_lowercase()),
            _ => {}
        }
    }

    fn take_word(&mut self, word: &str) {
        if self.words.len() < 4 {
            self.words.push(word.to_owned());
        }
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let makes_function = matches!(
            words.as_slice(),
            ["create", "function" | "procedure", ..] | ["create", "or", "replace", "function" | "procedure"]
        );
        match word {
            _ if !makes_function || self.parens > 0 => {}
            "begin" => self.begins += 1,
            "case" if self.begins > 0 => self.begins += 1,
            "end" => self.begins = self.begins.saturating_sub(1),
            _ => {}
        }
    }
}

/// A text with the values of its variables. One without a value stays as it is.
pub fn interpolated(text: &str, variables: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(token) = tokens::first(rest) {
        rest = &rest[token.text.len()..];
        let name = token.text.trim_start_matches(':').trim_matches(['\'', '"']);
        let value = variables.get(name).filter(|_| token.kind == Kind::Variable);
        match (value, token.text.chars().nth(1)) {
            (None, _) => out.push_str(token.text),
            (Some(value), Some('\'')) => out += &format!("'{}'", value.replace('\'', "''")),
            (Some(value), Some('"')) => out += &format!("\"{}\"", value.replace('"', "\"\"")),
            (Some(value), _) => out.push_str(value),
        }
    }
    out
}

/// The value that `\set` gives: its arguments one behind the other.
pub fn joined_arguments(rest: &str, variables: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), rest);
    while let Some(token) = tokens::first(rest) {
        rest = &rest[token.text.len()..];
        match token.kind {
            Kind::Space | Kind::Comment => {}
            Kind::Text => out += &token.text.trim_matches('\'').replace("''", "'"),
            Kind::Variable => out += &interpolated(token.text, variables),
            _ => out.push_str(token.text),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        let mut script = Script::new(script);
        let mut texts = Vec::new();
        while let Some(step) = script.step() {
            texts.push(match step {
                Step::Statement(Statement { line, text, end: End::Plain }) => format!("{line} {text}"),
                Step::Statement(Statement { line, text, end }) => format!("{line} {text} {end:?}"),
                Step::Command { name, rest } => format!("\\{name} {rest}"),
            });
        }
        texts
    }

    #[test]
    fn statements_end_as_in_psql() {
        assert_eq!(
            texts("select 1; -- x;\n\nselect\n (2;3); select 4 \\; select 5;;\n\\set a 'b'\nselect 6 \\gset p_\n"),
            ["1 select 1", "3 select\n (2;3)", "4 select 4 ; select 5", "\\set a 'b'", "6 select 6 Gset(\"p_\")"]
        );
    }

    #[test]
    fn a_body_in_sql_is_one_statement() {
        let text = "create function f() returns int begin atomic select case when true then 1 end; select 2; end; select 3;";
        assert_eq!(texts(text).len(), 2);
    }

    #[test]
    fn data_of_a_copy_stand_behind_it() {
        let mut script = Script::new("copy t from stdin;\n1;\ta\n\\.\nselect 1;\ncopy t from stdin;\nselect 2;\n");
        script.step().unwrap();
        assert_eq!((script.data_ahead(), script.is_code_ahead()), (Some("1;\ta\n"), false));
        script.skip_data();
        assert!(matches!(script.step(), Some(Step::Statement(Statement { line: 4, .. }))));
        script.step().unwrap();
        assert!(script.data_ahead().is_none() && script.is_code_ahead());
    }

    #[test]
    fn variables_get_their_values() {
        let variables = BTreeMap::from([("a".to_owned(), "it's".to_owned())]);
        assert_eq!(interpolated("select :'a', :a, :b, x::a, ':a'", &variables), "select 'it''s', it's, :b, x::a, ':a'");
        assert_eq!(joined_arguments(":a '/x' y", &variables), "it's/xy");
    }
}
