//! Sizes of structs: one with many fields, or with many bools, is several things, or hides an enum.

use crate::finding::Finding;
use crate::source::Source;

const FIELDS_MAX: usize = 15;
const BOOLS_MAX: usize = 3;

/// Structs beyond the limits: file, name, reason. A row that is not needed any more is a finding.
const LARGE: &[(&str, &str, &str)] = &[
    ("crates/config/src/lib.rs", "Config", "a field for each parameter of pgpool.conf"),
    ("crates/config/src/types.rs", "RoutingConfig", "a field for each parameter of pgpool.conf"),
    ("crates/config/src/types.rs", "CacheConfig", "a field for each parameter of pgpool.conf"),
    ("crates/config/src/types.rs", "LogConfig", "a field for each parameter of pgpool.conf"),
    ("crates/config/src/failover.rs", "FailoverConfig", "a field for each parameter of pgpool.conf"),
    ("crates/ring/src/ring.rs", "Place", "a flag for each kind of request that the kernel may hold of a socket"),
    ("crates/weir/src/commands/cli.rs", "Pgpool", "a field for each option of pgpool's command line"),
];

/// Where no limit holds: what tests build for themselves.
const TESTS: &[&str] = &["/tests/", "/benches/", "/examples/"];

/// One struct with named fields.
#[derive(Debug, PartialEq, Eq)]
struct Struct {
    name: String,
    line: usize,
    fields: usize,
    bools: usize,
}

/// Structs beyond the limits, and exceptions that are none.
pub fn check(source: &Source) -> Vec<Finding> {
    check_with(source, LARGE)
}

fn check_with(source: &Source, excepted: &[(&str, &str, &str)]) -> Vec<Finding> {
    if TESTS.iter().any(|folder| source.path.contains(folder)) {
        return Vec::new();
    }
    let all = structs_of(&source.code[..source.tests_from]);
    let is_large = |one: &&Struct| one.fields > FIELDS_MAX || one.bools > BOOLS_MAX;
    let is_excepted = |one: &&Struct| excepted.iter().any(|row| row.0 == source.path && row.1 == one.name);
    let mut findings: Vec<Finding> =
        all.iter().filter(is_large).filter(|one| !is_excepted(one)).map(|one| too_large(source, one)).collect();
    let rows = excepted.iter().filter(|row| row.0 == source.path);
    let idle = rows.filter(|row| !all.iter().filter(is_large).any(|one| one.name == row.1));
    findings.extend(idle.map(|row| Finding::new(row.0, 1, format!("{} keeps the limits: remove its row from LARGE", row.1))));
    findings
}

fn too_large(source: &Source, one: &Struct) -> Finding {
    let Struct { name, line, fields, bools } = one;
    let text = format!(
        "{name} has {fields} fields and {bools} bools, the limits are {FIELDS_MAX} and {BOOLS_MAX}: \
         split it, or make an enum of bools that belong together"
    );
    Finding::new(&source.path, *line, text)
}

fn structs_of(code: &[String]) -> Vec<Struct> {
    let starts = code.iter().enumerate().filter_map(|(index, line)| Some((index, struct_name(line)?)));
    let measured = starts.filter_map(|(index, name)| {
        let fields = fields_of(&body_of(&code[index..])?);
        let bools = fields.iter().filter(|kind| is_bool(kind)).count();
        Some(Struct { name, line: index + 1, fields: fields.len(), bools })
    });
    measured.collect()
}

fn struct_name(line: &str) -> Option<String> {
    let at = line.find("struct ").filter(|&at| at == 0 || line[..at].ends_with(' '))?;
    let name: String = line[at + "struct ".len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
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

    fn found(text: &str, excepted: &[(&str, &str, &str)]) -> Vec<(usize, String)> {
        let findings = check_with(&Source::new("crates/a/src/b.rs", text), excepted);
        findings.into_iter().map(|finding| (finding.line, finding.text)).collect()
    }

    fn of_fields(count: usize, kind: &str) -> String {
        let fields: String = (0..count).map(|at| format!("    /// One, two.\n    pub(crate) f{at}: {kind},\n")).collect();
        format!("/// A struct of {{ many.\npub struct Many<'a, T> {{\n{fields}}}\n")
    }

    #[test]
    fn a_struct_with_too_many_fields_or_bools_is_named() {
        assert_eq!(found(&of_fields(FIELDS_MAX, "HashMap<u8, Vec<(u8, u8)>>"), &[]), []);
        let fields = found(&of_fields(FIELDS_MAX + 1, "HashMap<u8, Vec<(u8, u8)>>"), &[]);
        assert!(matches!(&fields[..], [(2, text)] if text.starts_with("Many has 16 fields and 0 bools")), "{fields:?}");
        assert_eq!(found(&of_fields(BOOLS_MAX, "bool"), &[]), []);
        for kind in ["bool", "Cell<bool>", "AtomicBool", "Arc<AtomicBool>"] {
            let bools = found(&of_fields(BOOLS_MAX + 1, kind), &[]);
            assert!(matches!(&bools[..], [(2, text)] if text.starts_with("Many has 4 fields and 4 bools")), "{bools:?}");
        }
    }

    #[test]
    fn an_exception_holds_for_one_struct_and_only_as_long_as_it_is_needed() {
        let row = [("crates/a/src/b.rs", "Many", "a table")];
        assert_eq!(found(&of_fields(FIELDS_MAX + 1, "u8"), &row), []);
        assert_eq!(found(&of_fields(FIELDS_MAX + 1, "u8"), &[("crates/a/src/c.rs", "Many", "another file")]).len(), 1);
        assert_eq!(found(&of_fields(1, "u8"), &row), [(1, "Many keeps the limits: remove its row from LARGE".into())]);
    }

    #[test]
    fn types_with_commas_and_arrows_are_one_field() {
        let text =
            "#[arg(long, short)]\n    pub a: Box<dyn Fn(&A, u8) -> Result<B, C> + Send>, pub(in crate::x) b: [u8; 4],\n c: bool";
        assert_eq!(
            fields_of(text).iter().map(|kind| kind.trim()).collect::<Vec<_>>(),
            ["Box<dyn Fn(&A, u8) -> Result<B, C> + Send>", "[u8; 4]", "bool"]
        );
        let code: Vec<String> = ["struct A(u8, bool);", "struct B;", "pub struct C { a: u8 }"].map(str::to_owned).into();
        assert_eq!(structs_of(&code), [Struct { name: "C".into(), line: 3, fields: 1, bools: 0 }]);
    }

    #[test]
    fn what_tests_build_is_theirs() {
        let text = of_fields(FIELDS_MAX + 1, "u8");
        assert_eq!(check_with(&Source::new("crates/a/tests/b.rs", &text), &[]), []);
        assert_eq!(check_with(&Source::new("crates/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")), &[]), []);
    }
}
