//! Functions, structs and types of a file.

use crate::source::Source;

/// One function: its name, its first line, how many lines it has, and its head.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
    head: String,
}

impl Function {
    /// True if a parameter has this type, by whatever reference.
    pub fn takes(&self, name: &str) -> bool {
        let parameters =
            self.head.split_once('(').map_or("", |(_, rest)| rest.rsplit_once(')').map_or(rest, |(inside, _)| inside));
        parameters.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
    }
}

/// All functions with a body, inner ones too; brackets are counted, which is exact because texts are blanked.
pub fn functions_of(code: &[String]) -> Vec<Function> {
    let starts = code.iter().enumerate().filter_map(|(index, line)| Some((index, function_name(line)?)));
    let measured = starts.filter_map(|(index, name)| {
        let lines = body_end(&code[index..])? + 1;
        let head = code[index..index + lines].join(" ");
        let head = head.split('{').next().unwrap_or_default().to_owned();
        Some(Function { name, line: index + 1, lines, head })
    });
    measured.collect()
}

fn function_name(line: &str) -> Option<String> {
    let at = line.match_indices("fn ").map(|(at, _)| at).find(|&at| at == 0 || line[..at].ends_with([' ', '(']))?;
    let name = word_at(&line[at + 3..]);
    (!name.is_empty()).then_some(name)
}

fn word_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The index of the line where the body that begins in `lines` ends; `None` for a declaration without a body.
fn body_end(lines: &[String]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        let from = if index == 0 { line.find("fn ").unwrap_or(0) } else { 0 };
        for c in line[from..].chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => return Some(index),
                '}' => depth = depth.checked_sub(1)?,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Fields of a session that code assigns, as `intake.skip`: those behind `s.`.
pub fn fields_written(code: &[String]) -> Vec<String> {
    let of_line = |line: &String| {
        let starts = line.match_indices("s.").map(|(at, _)| at);
        let starts = starts.filter(|&at| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.'));
        let written = starts.filter_map(|at| {
            let path: String = line[at + 2..].chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect();
            let rest = line[at + 2 + path.len()..].trim_start();
            (rest.starts_with("= ") && !path.is_empty()).then_some(path)
        });
        written.collect::<Vec<_>>()
    };
    code.iter().flat_map(of_line).collect()
}

/// A struct, an enum or a trait.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    pub name: String,
}

impl Type {
    /// Words of its name.
    pub fn words(&self) -> usize {
        self.name.chars().filter(|c| c.is_uppercase()).count()
    }
}

/// All types that a file defines.
pub fn types_of(code: &[String]) -> Vec<Type> {
    let named = code.iter().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| rest.trim_start_matches(|c| c != ' ').trim_start());
        let rest = ["struct ", "enum ", "trait "].iter().find_map(|kind| line.strip_prefix(kind))?;
        Some(Type { name: word_at(rest) })
    });
    named.filter(|one| one.name.starts_with(char::is_uppercase)).collect()
}

/// A struct with named fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Struct {
    /// Its name, file and line.
    pub place: String,
    pub fields: usize,
    pub bools: usize,
}

/// All structs with named fields before a file's tests.
pub fn structs_of(source: &Source) -> Vec<Struct> {
    let code = &source.code[..source.tests_from];
    let starts = code.iter().enumerate().filter_map(|(index, line)| Some((index, struct_name(line)?)));
    let measured = starts.filter_map(|(index, name)| {
        let fields = fields_of(&body_of(&code[index..])?);
        let bools = fields.iter().filter(|kind| is_bool(kind)).count();
        Some(Struct { place: format!("{name} ({}:{})", source.path, index + 1), fields: fields.len(), bools })
    });
    measured.collect()
}

fn struct_name(line: &str) -> Option<String> {
    let at = line.find("struct ").filter(|&at| at == 0 || line[..at].ends_with(' '))?;
    let name = word_at(&line[at + "struct ".len()..]);
    (!name.is_empty()).then_some(name)
}

/// The text between the brackets; none for a tuple or for nothing.
fn body_of(lines: &[String]) -> Option<String> {
    let text = lines.join("\n");
    let open = text.find(['{', ';', '('])?;
    let body = text[open..].strip_prefix('{')?;
    let mut depth = 1_usize;
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(body[..at].to_owned());
        }
    }
    None
}

/// The types of all fields.
fn fields_of(body: &str) -> Vec<String> {
    let (mut kinds, mut kind, mut depth, mut before) = (Vec::new(), None::<String>, 0_usize, ' ');
    let mut rest = body.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, &mut kind) {
            (',', kind) if depth == 0 => kinds.extend(kind.take()),
            (':', None) if depth == 0 && rest.peek() != Some(&':') => kind = Some(String::new()),
            (c, Some(kind)) => kind.push(c),
            (_, None) => {}
        }
        before = c;
    }
    kinds.extend(kind);
    kinds
}

/// True for a bool and for a cell of one.
fn is_bool(kind: &str) -> bool {
    let mut kind = kind.trim();
    while let Some(inside) = ["Cell<", "Arc<", "Rc<"].iter().find_map(|cell| kind.strip_prefix(cell)?.strip_suffix('>')) {
        kind = inside;
    }
    matches!(kind, "bool" | "AtomicBool")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_function_is_from_its_name_to_its_last_bracket() {
        let text = "fn short() {}\nfn longer(\n    a: [u8; 4],\n) -> u8 {\n    \"}\"\n}\ntrait T { fn declared(&self);\n fn next() {} }\n";
        let source = Source::new("a.rs", text);
        let found: Vec<_> = functions_of(&source.code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("short".into(), 1, 1), ("longer".into(), 2, 5), ("next".into(), 8, 1)]);
    }

    #[test]
    fn parameters_are_told_by_their_types() {
        let code: Vec<String> = ["fn f(s: &mut Session, w: &Context) -> Sessions {}".to_owned()].into();
        let function = &functions_of(&code)[0];
        assert!(function.takes("Session") && function.takes("Context") && !function.takes("Sessions"));
    }

    #[test]
    fn fields_and_bools_are_counted_whatever_their_types() {
        let text = "pub struct Many<'a, T> {\n    /// One, two.\n    pub(crate) a: HashMap<u8, Vec<(u8, u8)>>,\n    pub b: Box<dyn Fn(&A, u8) -> Result<B, C>>,\n\
                    c: Arc<AtomicBool>,\n    d: Cell<bool>,\n}\nstruct A(u8, bool);\nstruct B;\n";
        assert_eq!(structs_of(&Source::new("a.rs", text)), [Struct { place: "Many (a.rs:1)".into(), fields: 4, bools: 2 }]);
        assert_eq!(structs_of(&Source::new("a.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n"))), []);
    }

    #[test]
    fn fields_of_a_session_are_written_where_they_are_assigned() {
        let code: Vec<String> =
            ["s.intake.skip = Skip::No;", "if s.skip == No {", "self.s.up = x;", "let a = s.b;", "words.up = 1;"]
                .map(str::to_owned)
                .into();
        assert_eq!(fields_written(&code), ["intake.skip"]);
    }

    #[test]
    fn types_are_those_that_a_file_defines() {
        let code: Vec<String> =
            ["pub(crate) struct ConfigLine {", "enum State {", "    pub trait Host: Any {", "impl Line {", "fn structure() {}"]
                .map(str::to_owned)
                .into();
        let found: Vec<_> = types_of(&code).into_iter().map(|one| (one.words(), one.name)).collect();
        assert_eq!(found, [(2, "ConfigLine".into()), (1, "State".into()), (1, "Host".into())]);
    }
}
