//! Messages written by hand: a line becomes bytes. `render` is the other way.
//!
//! A line is the message's name and its values: words, strings in quotes (escaped as in Rust), lists in parentheses.
//! `Raw "bytes"` is anything else. `3 * Sync` is a message three times, and `"x"*5000` a long text.

use weir_wire::frame::{back, front};
use weir_wire::write;

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(Vec<u8>),
    Open,
    Close,
}

/// The bytes of a line. Panics at one that means nothing.
pub fn bytes_of(side: Side, line: &str) -> Vec<u8> {
    let mut reader = Reader { tokens: tokens(line), at: 0, line };
    let mut out = Vec::new();
    let mut times = 1;
    if let Some(Token::Word(word)) = reader.tokens.first()
        && let Ok(number) = word.parse::<usize>()
    {
        times = number;
        reader.at = 2;
    }
    let name = reader.word();
    if name == "Raw" {
        out.extend(reader.text());
    } else if side == Side::Client {
        from_client(&mut reader, &name, &mut out);
    } else {
        from_server(&mut reader, &name, &mut out);
    }
    assert!(reader.at == reader.tokens.len(), "more than is meant: {line}");
    out.repeat(times)
}

fn tokens(line: &str) -> Vec<Token> {
    let mut chars = line.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(&first) = chars.peek() {
        match first {
            ' ' => drop(chars.next()),
            '(' => tokens.extend(chars.next().map(|_| Token::Open)),
            ')' => tokens.extend(chars.next().map(|_| Token::Close)),
            '"' => {
                chars.next();
                tokens.push(Token::Text(text(&mut chars, line)));
            }
            _ => {
                let mut word = String::new();
                while let Some(next) = chars.next_if(|c| !matches!(c, ' ' | '(' | ')' | '"')) {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    tokens
}

/// Up to the closing quote, and as often as is said behind it.
fn text(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let next = chars.next().unwrap_or_else(|| panic!("no closing quote: {line}"));
        match next {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => out.push(b'\n'),
                Some('r') => out.push(b'\r'),
                Some('t') => out.push(b'\t'),
                Some('0') => out.push(0),
                Some('x') => {
                    let digits: String = [chars.next(), chars.next()].into_iter().flatten().collect();
                    out.push(u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("\\x{digits}: {line}")));
                }
                Some(other) => out.extend(other.to_string().bytes()),
                None => panic!("a backslash at the end: {line}"),
            },
            other => out.extend(other.to_string().bytes()),
        }
    }
    if chars.next_if_eq(&'*').is_some() {
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        return out.repeat(digits.parse().unwrap_or_else(|_| panic!("*{digits}: {line}")));
    }
    out
}

struct Reader<'a> {
    tokens: Vec<Token>,
    at: usize,
    line: &'a str,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<Token> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    fn is_over(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn word(&mut self) -> String {
        match self.next() {
            Some(Token::Word(word)) => word,
            other => panic!("a word is missing, not {other:?}: {}", self.line),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        match self.next() {
            Some(Token::Text(text)) => text,
            Some(Token::Word(word)) => word.into_bytes(),
            other => panic!("a text is missing, not {other:?}: {}", self.line),
        }
    }

    fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.word();
        word.parse().unwrap_or_else(|_| panic!("no number: {word}: {}", self.line))
    }

    /// A word that need not be there.
    fn has(&mut self, word: &str) -> bool {
        let is_there = self.tokens.get(self.at) == Some(&Token::Word(word.to_owned()));
        self.at += usize::from(is_there);
        is_there
    }

    /// Values up to the end, or in parentheses; `null` is none.
    fn values(&mut self) -> Vec<Option<Vec<u8>>> {
        let in_list = self.tokens.get(self.at) == Some(&Token::Open);
        self.at += usize::from(in_list);
        let mut values = Vec::new();
        while let Some(token) = self.tokens.get(self.at).cloned() {
            match token {
                Token::Close => {
                    self.at += usize::from(in_list);
                    break;
                }
                Token::Word(word) if word == "null" => values.push(None),
                Token::Word(word) => values.push(Some(word.into_bytes())),
                Token::Text(text) => values.push(Some(text)),
                Token::Open => panic!("a list in a list: {}", self.line),
            }
            self.at += 1;
        }
        values
    }

    fn numbers<T: std::str::FromStr>(&mut self) -> Vec<T> {
        let values = self.values().into_iter().flatten();
        values.map(|text| String::from_utf8_lossy(&text).parse().unwrap_or_else(|_| panic!("no number: {}", self.line))).collect()
    }
}

fn push_values(out: &mut Vec<u8>, values: &[Option<Vec<u8>>]) {
    out.extend((values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            Some(value) => {
                out.extend((value.len() as u32).to_be_bytes());
                out.extend(value);
            }
            None => out.extend(u32::MAX.to_be_bytes()),
        }
    }
}

fn push_words(out: &mut Vec<u8>, words: &[u16]) {
    out.extend((words.len() as u16).to_be_bytes());
    words.iter().for_each(|word| out.extend(word.to_be_bytes()));
}

fn from_client(reader: &mut Reader<'_>, name: &str, out: &mut Vec<u8>) {
    match name {
        "Query" => {
            let text = reader.text();
            write::message(out, front::QUERY, |out| write::cstr(out, &text));
        }
        "Parse" => {
            let (name, text, types) = (reader.text(), reader.text(), reader.numbers::<u32>());
            write::message(out, front::PARSE, |out| {
                write::cstr(out, &name);
                write::cstr(out, &text);
                out.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|oid| out.extend(oid.to_be_bytes()));
            });
        }
        "Bind" => {
            let (portal, name) = (reader.text(), reader.text());
            let values = if reader.tokens.get(reader.at) == Some(&Token::Open) { reader.values() } else { Vec::new() };
            let formats: Vec<u16> = if reader.has("formats") { reader.numbers() } else { Vec::new() };
            write::message(out, front::BIND, |out| {
                write::cstr(out, &portal);
                write::cstr(out, &name);
                push_words(out, &[]);
                push_values(out, &values);
                push_words(out, &formats);
            });
        }
        "Describe" | "Close" => {
            let tag = if name == "Close" { front::CLOSE } else { front::DESCRIBE };
            let (kind, name) = (reader.word(), reader.text());
            write::named(out, tag, kind.as_bytes()[0], &name);
        }
        "Execute" => {
            let (portal, rows) = (reader.text(), if reader.is_over() { 0 } else { reader.number::<u32>() });
            write::message(out, front::EXECUTE, |out| {
                write::cstr(out, &portal);
                out.extend(rows.to_be_bytes());
            });
        }
        "Flush" => write::bare(out, front::FLUSH),
        "Sync" => write::bare(out, front::SYNC),
        "Terminate" => write::bare(out, front::TERMINATE),
        "FunctionCall" => {
            let (function, values) = (reader.number::<u32>(), reader.values());
            write::message(out, front::FUNCTION_CALL, |out| {
                out.extend(function.to_be_bytes());
                push_words(out, &[]);
                push_values(out, &values);
                out.extend([0, 0]);
            });
        }
        "CopyData" => {
            let text = reader.text();
            write::message(out, front::COPY_DATA, |out| out.extend(text));
        }
        "CopyDone" => write::bare(out, front::COPY_DONE),
        "CopyFail" => {
            let text = reader.text();
            write::message(out, front::COPY_FAIL, |out| write::cstr(out, &text));
        }
        other => panic!("no message of a client: {other}"),
    }
}

fn from_server(reader: &mut Reader<'_>, name: &str, out: &mut Vec<u8>) {
    match name {
        "RowDescription" => {
            let columns = reader.values();
            write::message(out, back::ROW_DESCRIPTION, |out| push_columns(out, &columns));
        }
        "DataRow" => {
            let values = reader.values();
            write::message(out, back::DATA_ROW, |out| push_values(out, &values));
        }
        "CommandComplete" => {
            let tag = reader.text();
            write::message(out, back::COMMAND_COMPLETE, |out| write::cstr(out, &tag));
        }
        "Error" | "Notice" => {
            let tag = if name == "Error" { back::ERROR } else { back::NOTICE };
            push_report(reader, tag, out);
        }
        "Ready" => {
            let status = reader.word();
            write::ready(out, status.as_bytes()[0]);
        }
        "ParameterDescription" => {
            let types = reader.numbers::<u32>();
            write::message(out, back::PARAMETER_DESCRIPTION, |out| {
                out.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|oid| out.extend(oid.to_be_bytes()));
            });
        }
        "ParameterStatus" => {
            let (name, value) = (reader.text(), reader.text());
            write::parameter_status(out, &String::from_utf8_lossy(&name), &String::from_utf8_lossy(&value));
        }
        "Notification" => {
            let (pid, channel, payload) = (reader.number::<u32>(), reader.text(), reader.text());
            write::message(out, back::NOTIFICATION, |out| {
                out.extend(pid.to_be_bytes());
                write::cstr(out, &channel);
                write::cstr(out, &payload);
            });
        }
        "CopyIn" | "CopyOut" | "CopyBoth" => {
            let tag = match name {
                "CopyIn" => back::COPY_IN,
                "CopyOut" => back::COPY_OUT,
                _ => back::COPY_BOTH,
            };
            write::message(out, tag, |out| out.extend([0, 0, 1, 0, 0]));
        }
        "CopyData" => {
            let text = reader.text();
            write::message(out, back::COPY_DATA, |out| out.extend(text));
        }
        "FunctionResult" => {
            let text = reader.text();
            write::message(out, back::FUNCTION_RESULT, |out| {
                out.extend((text.len() as u32).to_be_bytes());
                out.extend(text);
            });
        }
        other => write::bare(out, bare_of(other)),
    }
}

fn bare_of(name: &str) -> u8 {
    match name {
        "ParseComplete" => back::PARSE_COMPLETE,
        "BindComplete" => back::BIND_COMPLETE,
        "CloseComplete" => back::CLOSE_COMPLETE,
        "NoData" => back::NO_DATA,
        "EmptyQuery" => back::EMPTY_QUERY,
        "PortalSuspended" => back::PORTAL_SUSPENDED,
        "CopyDone" => back::COPY_DONE,
        other => panic!("no message of a server: {other}"),
    }
}

/// Columns by name; `name/23` is of another type than text.
fn push_columns(out: &mut Vec<u8>, columns: &[Option<Vec<u8>>]) {
    out.extend((columns.len() as u16).to_be_bytes());
    for column in columns.iter().flatten() {
        let column = String::from_utf8_lossy(column);
        let (name, oid) = column.rsplit_once('/').unwrap_or((&column, "25"));
        write::cstr(out, name.as_bytes());
        out.extend([0; 6]);
        out.extend(oid.parse::<u32>().unwrap_or_else(|_| panic!("no type: {column}")).to_be_bytes());
        out.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    }
}

fn push_report(reader: &mut Reader<'_>, tag: u8, out: &mut Vec<u8>) {
    let (severity, code, message) = (reader.word(), reader.word(), reader.text());
    let mut more = Vec::new();
    while !reader.is_over() {
        let field = match reader.word().as_str() {
            "detail" => b'D',
            "hint" => b'H',
            "routine" => b'R',
            other => panic!("no field of a report: {other}"),
        };
        more.push((field, reader.text()));
    }
    write::message(out, tag, |out| {
        for (field, value) in
            [(b'S', severity.as_bytes()), (b'V', severity.as_bytes()), (b'C', code.as_bytes()), (b'M', &message)]
        {
            out.push(field);
            write::cstr(out, value);
        }
        for (field, value) in more {
            out.push(field);
            write::cstr(out, &value);
        }
        out.push(0);
    });
}
