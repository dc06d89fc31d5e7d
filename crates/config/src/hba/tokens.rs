//! Lines, fields and lists of `pg_hba.conf` and `pg_ident.conf`, with includes.
//!
//! Source: `next_token`, `next_field_expand` and `tokenize_auth_file` in PostgreSQL's hba.c. One departure: a quote not closed on its
//! line is an error; PostgreSQL closes it silently.

use super::problem;
use crate::ConfigProblem;
use std::path::{Path, PathBuf};

/// Depth of includes, as in PostgreSQL (`CONF_FILE_MAX_DEPTH`).
const DEPTH_MAX: usize = 10;
/// Limit on files: ten levels of ten includes would be 10^10.
const FILES_MAX: usize = 1000;
/// Limit on problems: a file of another kind gives one per line.
const PROBLEMS_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    NotFound,
    Other(String),
}

pub struct FileLoader<'a> {
    pub file: &'a mut dyn FnMut(&Path) -> Result<Vec<u8>, LoadError>,
    pub folder: &'a mut dyn FnMut(&Path) -> Result<Vec<PathBuf>, LoadError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HbaToken {
    pub text: String,
    /// True if the word begins with a quote, and so is no keyword.
    pub is_quoted: bool,
}

impl HbaToken {
    /// True if the word is this keyword, without quotes.
    pub fn is(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }
}

#[derive(Debug)]
pub(super) struct HbaLine {
    pub file: PathBuf,
    pub number: u32,
    pub fields: Vec<Vec<HbaToken>>,
}

/// Returns all lines of a file and its includes.
pub(super) fn lines(path: &Path, loader: &mut FileLoader<'_>, problems: &mut Vec<ConfigProblem>) -> Vec<HbaLine> {
    let mut reader = HbaReader { loader, problems, lines: Vec::new(), open: Vec::new(), files: 0 };
    reader.read_file(path, None, IfMissing::Complain);
    reader.lines
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Complain,
    Skip,
}

struct HbaReader<'a, 'b> {
    loader: &'a mut FileLoader<'b>,
    problems: &'a mut Vec<ConfigProblem>,
    lines: Vec<HbaLine>,
    /// Files being read, outermost first.
    open: Vec<PathBuf>,
    files: usize,
}

type Asked<'a> = Option<(&'a Path, u32)>;

impl HbaReader<'_, '_> {
    fn complain(&mut self, asked: Asked<'_>, path: &Path, message: String) {
        let (path, line) = asked.map_or((path, None), |(path, line)| (path, Some(line)));
        self.problems.push(problem(path, line, message));
    }

    /// Returns a file's bytes within the limits; `None` if it was reported or may be missing.
    fn load(&mut self, path: &Path, asked: Asked<'_>, missing: IfMissing) -> Option<Vec<u8>> {
        let shown = path.display();
        self.files += 1;
        let refusal = if self.open.iter().any(|open| open == path) {
            format!("file \"{shown}\" includes itself")
        } else if self.open.len() > DEPTH_MAX {
            format!("file \"{shown}\" is included {} deep, limit is {DEPTH_MAX}", self.open.len())
        } else if self.files > FILES_MAX {
            format!("file \"{shown}\" is one of more than {FILES_MAX} included files")
        } else {
            match (self.loader.file)(path) {
                Ok(bytes) => return Some(bytes),
                Err(LoadError::NotFound) if missing == IfMissing::Skip => return None,
                Err(LoadError::NotFound) => format!("could not open file \"{shown}\": no such file"),
                Err(LoadError::Other(cause)) => format!("could not open file \"{shown}\": {cause}"),
            }
        };
        self.complain(asked, path, refusal);
        None
    }

    fn read_file(&mut self, path: &Path, asked: Asked<'_>, missing: IfMissing) {
        let Some(bytes) = self.load(path, asked, missing) else { return };
        self.open.push(path.to_path_buf());
        for (number, text) in whole_lines(&bytes) {
            if self.problems.len() >= PROBLEMS_MAX {
                let message = format!("more than {PROBLEMS_MAX} problems, the rest of the file is not read");
                self.complain(Some((path, number)), path, message);
                break;
            }
            let split = text.and_then(|text| split(&text));
            match split {
                Ok(fields) if fields.is_empty() => {}
                Ok(fields) => self.take(path, number, fields),
                Err(message) => self.complain(Some((path, number)), path, message),
            }
        }
        self.open.pop();
    }

    /// Takes one line, or the files it includes.
    fn take(&mut self, path: &Path, number: u32, fields: Vec<Vec<HbaToken>>) {
        let directive = match fields.as_slice() {
            [first, ..] if first.len() == 1 => first[0].text.as_str(),
            _ => "",
        };
        if !matches!(directive, "include" | "include_if_exists" | "include_dir") {
            let fields = fields.into_iter().map(|field| self.expand(path, number, field)).collect();
            return self.lines.push(HbaLine { file: path.to_path_buf(), number, fields });
        }
        let [_, target] = fields.as_slice() else {
            return self.complain(Some((path, number)), path, format!("\"{directive}\" needs exactly one name"));
        };
        let [target] = target.as_slice() else {
            return self.complain(Some((path, number)), path, format!("\"{directive}\" needs exactly one name"));
        };
        let target = beside(path, &target.text);
        match directive {
            "include" => self.read_file(&target, Some((path, number)), IfMissing::Complain),
            "include_if_exists" => self.read_file(&target, Some((path, number)), IfMissing::Skip),
            _ => self.read_folder(&target, path, number),
        }
    }

    /// Reads a folder's files in the order of their names: `*.conf`, not beginning with a dot.
    fn read_folder(&mut self, folder: &Path, path: &Path, number: u32) {
        let mut files = match (self.loader.folder)(folder) {
            Ok(files) => files,
            Err(LoadError::NotFound) => {
                let message = format!("could not open directory \"{}\": no such directory", folder.display());
                return self.complain(Some((path, number)), path, message);
            }
            Err(LoadError::Other(cause)) => {
                let message = format!("could not open directory \"{}\": {cause}", folder.display());
                return self.complain(Some((path, number)), path, message);
            }
        };
        let name = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.retain(|file| name(file).ends_with(".conf") && !name(file).starts_with('.'));
        files.sort();
        for file in files {
            self.read_file(&file, Some((path, number)), IfMissing::Complain);
        }
    }

    /// Replaces `@file` by the file's words.
    fn expand(&mut self, path: &Path, number: u32, field: Vec<HbaToken>) -> Vec<HbaToken> {
        let mut words = Vec::with_capacity(field.len());
        for token in field {
            match token.text.strip_prefix('@').filter(|name| !token.is_quoted && !name.is_empty()) {
                None => words.push(token),
                Some(name) => {
                    let file = beside(path, name);
                    let Some(bytes) = self.load(&file, Some((path, number)), IfMissing::Complain) else { continue };
                    self.open.push(file.clone());
                    for (line, text) in whole_lines(&bytes) {
                        match text.and_then(|text| split(&text)) {
                            Ok(fields) => {
                                let inner = fields.into_iter().flatten().collect();
                                words.extend(self.expand(&file, line, inner));
                            }
                            Err(message) => self.complain(Some((&file, line)), &file, message),
                        }
                    }
                    self.open.pop();
                }
            }
        }
        words
    }
}

/// Resolves a name relative to the file that contains it.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// Returns numbered lines; a backslash at the end continues a line.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = (u32, Result<String, String>)> {
    let mut rest = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).split(|byte| *byte == b'\n').zip(1u32..);
    std::iter::from_fn(move || {
        let (first, number) = rest.next()?;
        let mut line = first.strip_suffix(b"\r").unwrap_or(first).to_vec();
        while line.last() == Some(&b'\\') {
            line.pop();
            let Some((next, _)) = rest.next() else { break };
            line.extend_from_slice(next.strip_suffix(b"\r").unwrap_or(next));
        }
        let text = String::from_utf8(line);
        Some((number, text.map_err(|e| format!("byte {} of the line is not valid utf-8", e.utf8_error().valid_up_to() + 1))))
    })
}

/// Splits a line into fields. A comma right after a word continues its field.
fn split(text: &str) -> Result<Vec<Vec<HbaToken>>, String> {
    let mut fields: Vec<Vec<HbaToken>> = Vec::new();
    let mut goes_on = false;
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| is_blank(*c) || *c == ',').is_some() {}
        match chars.peek() {
            None | Some('#') => return Ok(fields),
            Some(_) => {}
        }
        let (token, has_comma) = next_token(&mut chars)?;
        match fields.last_mut().filter(|_| goes_on) {
            Some(field) => field.push(token),
            None => fields.push(vec![token]),
        }
        goes_on = has_comma;
    }
}

/// Takes the next word; the flag is true if a comma follows.
fn next_token(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<(HbaToken, bool), String> {
    let mut token = HbaToken { text: String::new(), is_quoted: chars.peek() == Some(&'"') };
    let mut in_quote = false;
    while let Some(&c) = chars.peek() {
        if !in_quote && (is_blank(c) || c == ',' || c == '#') {
            break;
        }
        chars.next();
        match c {
            '"' if in_quote && chars.next_if_eq(&'"').is_some() => token.text.push('"'),
            '"' => in_quote = !in_quote,
            c => token.text.push(c),
        }
    }
    if in_quote {
        return Err("a quote is not closed".into());
    }
    Ok((token, chars.next_if_eq(&',').is_some()))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}
