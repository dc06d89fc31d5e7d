//! Files of fields: lines, fields and lists as `pg_hba.conf` and `pg_ident.conf` write them, with everything they include.
//!
//! Source: `next_token`, `next_field_expand` and `tokenize_auth_file` in PostgreSQL's hba.c. One departure: a quote that is not
//! closed on its line is an error here, PostgreSQL closes it silently.

use super::problem;
use crate::ConfigProblem;
use std::path::{Path, PathBuf};

/// Includes inside includes, as in PostgreSQL (`CONF_FILE_MAX_DEPTH`).
const DEPTH_MAX: usize = 10;
/// Files read in all: ten levels of ten includes each would be 10^10.
const FILES_MAX: usize = 1000;
/// Problems kept: a file of another kind would give one per line.
const PROBLEMS_MAX: usize = 1000;

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// There is none.
    NotFound,
    /// Anything else, in words.
    Other(String),
}

/// How files are read.
pub struct FileLoader<'a> {
    /// The bytes of a file.
    pub file: &'a mut dyn FnMut(&Path) -> Result<Vec<u8>, LoadError>,
    /// The files in a folder.
    pub folder: &'a mut dyn FnMut(&Path) -> Result<Vec<PathBuf>, LoadError>,
}

/// One word of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HbaToken {
    pub text: String,
    /// Begins with a quote, so that it is no keyword.
    pub is_quoted: bool,
}

impl HbaToken {
    /// True if this is the keyword, which quotes would make an ordinary name.
    pub fn is(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }
}

/// One line that says something: its fields, each a list of words.
#[derive(Debug)]
pub(super) struct HbaLine {
    pub file: PathBuf,
    pub number: u32,
    pub fields: Vec<Vec<HbaToken>>,
}

/// All lines of a file and of those it includes.
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
    /// Files being read, the including ones first.
    open: Vec<PathBuf>,
    files: usize,
}

/// The line that asks for another file.
type Asked<'a> = Option<(&'a Path, u32)>;

impl HbaReader<'_, '_> {
    fn complain(&mut self, asked: Asked<'_>, path: &Path, message: String) {
        let (path, line) = asked.map_or((path, None), |(path, line)| (path, Some(line)));
        self.problems.push(problem(path, line, message));
    }

    /// The text of a file, within the limits; `None` if it was complained about or may be missing.
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

    /// Every file of a folder whose name ends in `.conf` and does not begin with a dot, in the order of the names.
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

    /// Puts the words of a file in place of `@file`.
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

/// A name in a file means a place beside that file.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// Lines with their numbers; one that ends in a backslash goes on in the next.
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

/// The fields of a line. A comma right behind a word lets its field go on in the next one.
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

/// The word that begins here, and true if a comma follows it.
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
