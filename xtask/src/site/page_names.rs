//! Commands, parameters, SHOW lists and series that a page names and that do not exist.
//!
//! The names come from the generated pages, so that nothing has to be built. `weir docs --check` holds those to the program's own tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::CommandFactory;

use super::page_text::{CodeBlock, PageText, without_code};
use crate::finding::Finding;

/// Names that begin as series do and are others: names of sessions and roles.
const NO_SERIES: &[&str] =
    &["weir_check", "weir_position", "weir_recovery", "weir_return", "weir_shard", "weir_shard_key", "weir_writes_N"];
/// Pages that speak of what was, or of the inside.
const LEFT_OUT: &[&str] = &["CHANGELOG.md", "docs/design/", "crates/"];

/// A page whose tables begin with parameters.
const FIRST_PARAMETERS: &str = "docs/parameters-first.md";

/// All that there is, by kind.
pub struct KnownNames {
    /// Options by command: `weir check` has `--connect`.
    commands: BTreeMap<String, BTreeSet<String>>,
    parameters: BTreeSet<String>,
    views: BTreeSet<String>,
    series: BTreeSet<String>,
    targets: BTreeSet<String>,
}

impl KnownNames {
    pub fn read(root: &Path) -> Result<KnownNames> {
        let text = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
        let mut known = KnownNames {
            commands: commands(&text("docs/command-line.md")?),
            parameters: first_cells(&text("docs/parameters.md")?).collect(),
            views: text("docs/show.md")?.lines().filter_map(|line| line.strip_prefix("## SHOW ")).map(str::to_owned).collect(),
            series: first_cells(&text("docs/metrics.md")?).collect(),
            targets: text("Makefile")?.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned()).collect(),
        };
        known.add_tasks();
        let all = [&known.parameters, &known.views, &known.series, &known.targets];
        ensure!(
            all.iter().all(|names| !names.is_empty()) && known.commands.contains_key("weir check"),
            "a generated page is empty"
        );
        Ok(known)
    }

    /// The tasks of this program.
    fn add_tasks(&mut self) {
        let program = crate::Arguments::command();
        for task in program.get_subcommands() {
            let options = task.get_arguments().flat_map(|argument| {
                let short = argument.get_short().map(|short| format!("-{short}"));
                short.into_iter().chain(argument.get_long().map(|long| format!("--{long}")))
            });
            let name = format!("cargo xtask {}", task.get_name());
            self.commands.insert(name, options.chain(["--help".to_owned()]).collect());
        }
        self.commands.insert("cargo xtask".to_owned(), ["--help".to_owned()].into());
    }

    fn has_parameter(&self, name: &str) -> bool {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        [name.to_owned(), format!("{stem}N"), format!("{stem}[N]")].iter().any(|form| self.parameters.contains(form))
    }

    fn has_series(&self, name: &str) -> bool {
        let stems = ["", "_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        stems.into_iter().any(|stem| self.series.contains(stem))
    }
}

/// Words in the first column of tables.
fn first_cells(page: &str) -> impl Iterator<Item = String> {
    page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
}

fn commands(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut commands = BTreeMap::<String, BTreeSet<String>>::new();
    let (mut current, mut also) = (String::new(), Vec::new());
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut current);
            commands.insert(current.clone(), ["-h".to_owned(), "--help".to_owned()].into());
        } else if let Some(aliases) = line.strip_prefix("Also called ") {
            let parent = current.rsplit_once(' ').map_or("", |(parent, _)| parent);
            // The options follow: they are those of the command itself.
            also.extend(aliases.split('`').skip(1).step_by(2).map(|alias| (format!("{parent} {alias}"), current.clone())));
        } else if let (Some(options), Some((forms, _))) =
            (commands.get_mut(&current), line.strip_prefix("| `").and_then(|rest| rest.split_once('`')))
        {
            options.extend(forms.split([' ', ',']).filter(|word| word.starts_with('-')).map(str::to_owned));
        }
    }
    for (alias, command) in also {
        commands.insert(alias, commands[&command].clone());
    }
    commands
}

pub fn find(pages: &[PageText], known: &KnownNames) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| !LEFT_OUT.iter().any(|begin| page.path.starts_with(begin))) {
        let mut report = |line: usize, faults: Vec<String>| {
            findings.extend(faults.into_iter().map(|fault| Finding::new(&page.path, line, fault)));
        };
        for (number, line) in &page.lines {
            if page.path == FIRST_PARAMETERS {
                let unknown = first_cells(line).filter(|name| !known.parameters.contains(name) && !known.has_parameter(name));
                report(*number, unknown.map(|name| format!("there is no parameter {name}")).collect());
            }
            for span in without_code(line).1 {
                report(*number, check_command(span, known).err().into_iter().collect());
                report(*number, check_words(span, known));
            }
        }
        for block in &page.blocks {
            let is_configuration = is_configuration(block, known);
            for (at, line) in block.lines.iter().enumerate() {
                let is_shell = ["", "sh", "console"].contains(&block.language.as_str());
                if is_shell {
                    report(block.line + at, parts(line).filter_map(|part| check_command(part, known).err()).collect());
                }
                if let Some(name) = assigned(line).filter(|name| is_configuration && !known.has_parameter(name)) {
                    report(block.line + at, vec![format!("there is no parameter {name}")]);
                }
                report(block.line + at, check_words(line, known));
            }
        }
    }
    findings
}

/// SHOW lists and series in a piece of code.
fn check_words(code: &str, known: &KnownNames) -> Vec<String> {
    let mut faults = Vec::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, begin) in code.match_indices("SHOW pool_").chain(code.match_indices("show pool_")) {
        let view: String = code[at + begin.len() - "pool_".len()..].chars().take_while(|c| is_name(*c)).collect();
        if view != "pool_" && !known.views.contains(&view) && !known.has_parameter(&view) {
            faults.push(format!("there is no SHOW {view}"));
        }
    }
    let whole = code.chars().all(is_name) || code.contains('{') || code.contains("weir_node_");
    let words = code.split(|c: char| !is_name(c)).filter(|word| whole && word.starts_with("weir_") && !word.ends_with('_'));
    let is_crate =
        |word: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(word[5..].replace('_', "-")).is_dir();
    let unknown = words.filter(|word| !known.has_series(word) && !NO_SERIES.contains(word) && !is_crate(word));
    faults.extend(unknown.map(|word| format!("there is no series {word}")));
    faults
}

/// True for a block whose lines are parameters: at least one is known, and there is no section of another format.
fn is_configuration(block: &CodeBlock, known: &KnownNames) -> bool {
    let is_ours = ["", "ini", "conf"].contains(&block.language.as_str()) && !block.lines.iter().any(|line| line.starts_with('['));
    is_ours && block.lines.iter().filter_map(|line| assigned(line)).any(|name| known.has_parameter(name))
}

/// The name in `name = value`.
fn assigned(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    is_name.then_some(name)
}

/// Commands of one line of a shell, without comments.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split_once(" #").map_or(line, |(line, _)| line);
    line.split([';', '|', '&', '(', ')']).map(str::trim)
}

/// Error: a command of Weir or of this workspace that does not exist, or has no such option.
fn check_command(text: &str, known: &KnownNames) -> Result<(), String> {
    let mut words = text.trim_start_matches("$ ").split_whitespace().peekable();
    loop {
        match words.peek().copied() {
            Some("sudo" | "exec" | "env" | "nohup" | "time" | "then" | "do" | "!") => drop(words.next()),
            Some("runuser") => drop(words.by_ref().take_while(|word| *word != "--").count()),
            Some(word) if word.contains('=') && !word.starts_with('-') && assigned_variable(word) => drop(words.next()),
            _ => break,
        }
    }
    let program = words.next().unwrap_or_default();
    let mut name = match program.rsplit('/').next() {
        Some("weir") if program == "weir" || program.contains('/') => "weir".to_owned(),
        Some("cargo") if words.next_if_eq(&"xtask").is_some() => "cargo xtask".to_owned(),
        Some("make") => {
            let targets = words.take_while(|word| !word.starts_with('-') && !word.contains('='));
            let unknown = targets.map(|word| word.trim_end_matches(['.', ','])).find(|word| !known.targets.contains(*word));
            return unknown.map_or(Ok(()), |word| Err(format!("make has no target {word}")));
        }
        _ => return Ok(()),
    };
    while let Some(word) = words.peek() {
        let longer = format!("{name} {word}");
        if !known.commands.contains_key(&longer) {
            break;
        }
        (name, _) = (longer, words.next());
    }
    let has_commands = known.commands.keys().any(|command| command.starts_with(&format!("{name} ")));
    if let Some(word) = words.peek().filter(|word| has_commands && word.starts_with(|c: char| c.is_ascii_lowercase())) {
        return Err(format!("there is no command {name} {word}"));
    }
    let options = &known.commands[&name];
    let all = words
        .take_while(|word| *word != "--" && !word.starts_with(['>', '<']))
        .filter(|word| word.starts_with('-') && word.len() > 1);
    for word in all {
        let option = word.split(['=', ',', '\'', '"']).next().unwrap_or(word);
        // A short option may have its value behind it.
        let option = if option.starts_with("--") { option } else { option.get(..2).unwrap_or(option) };
        if !options.contains(option) {
            return Err(format!("{name} has no option {option}"));
        }
    }
    Ok(())
}

fn assigned_variable(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownNames {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let page = "## weir\n| `-f, --config FILE` | x |\n## weir check\n| `-f, --config FILE` | x |\n| `--connect` | x |\n## weir pcp\n## weir pcp pcp_node_info\n\nx\n\nAlso called `node_info`, `node-info`.\n\n| `-h, --host HOST` | x |\n";
        let mut known = KnownNames {
            commands: commands(page),
            parameters: set(&["port", "backend_hostnameN", "health_check_period[N]"]),
            views: set(&["pool_nodes"]),
            series: set(&["weir_clients", "weir_node_seconds"]),
            targets: set(&["demo"]),
        };
        known.add_tasks();
        known
    }

    #[test]
    fn commands_that_do_not_exist_are_found() {
        let known = known();
        for fine in [
            "weir",
            "weir -f a.conf",
            "sudo A=b weir check --connect -f a.conf",
            "runuser -u weir -- weir check -f a",
            "target/release/weir --config=a",
            "weir pcp pcp_node_info -h x 0",
            "weir pcp node-info -h x 0",
            "make demo ARGS='--kill'",
            "cargo xtask check",
            "cargo build --weird",
            "install -o weir -g weir",
            "weir --help",
        ] {
            assert_eq!(check_command(fine, &known), Ok(()), "{fine}");
        }
        for (wrong, fault) in [
            ("weir chekc", "there is no command weir chekc"),
            ("weir check --conect", "weir check has no option --conect"),
            ("weir -x", "weir has no option -x"),
            ("weir pcp node-inof", "there is no command weir pcp node-inof"),
            ("make demos", "make has no target demos"),
            ("cargo xtask chekc", "there is no command cargo xtask chekc"),
            ("cargo xtask bare --foldr x", "cargo xtask bare has no option --foldr"),
        ] {
            assert_eq!(check_command(wrong, &known), Err(fault.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn parameters_lists_and_series_that_do_not_exist_are_found() {
        let text = "`SHOW pool_nodes` `SHOW pool_nods` `weir_clients` `weir_client` `weir_node_seconds_bucket` `weir_node_`\n\
            ```\nport = 1\nprot = 2\nbackend_hostname0 = 'a' # x\nhealth_check_period = 1\n```\n\
            ```ini\n[unit]\nport = 1\nprot = 2\n```\n\
            ```sh\nweir check | weir chekc\n```\n```text\nweir chekc\n```\n";
        let found = find(&[PageText::new("docs/a.md", text)], &known());
        let found: Vec<(usize, &str)> = found.iter().map(|finding| (finding.line, finding.text.as_str())).collect();
        assert_eq!(
            found,
            [
                (1, "there is no SHOW pool_nods"),
                (1, "there is no series weir_client"),
                (4, "there is no parameter prot"),
                (14, "there is no command weir chekc")
            ]
        );
    }
}
