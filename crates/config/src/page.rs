//! A sample `pgpool.conf`, and the reference page of all parameters, made from the table.
use crate::params::{self, ConfigParam, ParamEffect, ParamIndexing};
use crate::visibility::ValueVisibility;

const WIDTH: usize = 100;

/// Returns a configuration file of comments that explains every parameter.
pub fn sample_file() -> String {
    let mut text = String::from(
        "# Configuration of Weir, in the syntax of pgpool.conf: name = value, # begins a comment.\n\
         # Every parameter is here with its default; take the # away to change it. A later line wins.\n\
         # include = 'file' reads another file, relative to this one.\n\
         # Sizes take B kB MB GB TB, times take us ms s min h d.\n",
    );
    for (group, rows) in params::groups() {
        text += &format!("\n# ---- {} ----\n", group.title());
        for param in rows.iter().filter(|param| !param.hidden) {
            text += "\n";
            text += &comment(param.help);
            text += &comment(&notes(param));
            text += &format!("#{} = {}\n", written_name(param, "0"), written_default(param));
        }
    }
    text
}

/// A parameter as pages show it.
pub struct ParameterEntry {
    /// With N for a number.
    pub name: String,
    pub values: String,
    pub default: &'static str,
    /// Act that a change needs.
    pub applies: &'static str,
    pub help: String,
}

/// Returns all parameters, each group with its title.
pub fn parameter_entries() -> impl Iterator<Item = (&'static str, Vec<ParameterEntry>)> {
    let entry = |param: &ConfigParam| ParameterEntry {
        name: written_name(param, "N"),
        values: param.kind.describe(),
        default: param.default,
        applies: param.applies.describe(),
        help: format!("{}{}{}", no_effect(param), param.help, shown_to(param)),
    };
    params::groups().map(move |(group, rows)| (group.title(), rows.iter().filter(|param| !param.hidden).map(entry).collect()))
}

/// Returns the reference page in Markdown.
pub fn reference_page() -> String {
    let mut text = String::from(
        "# Parameters\n\n\
         Made from the parameter table; do not edit. N stands for a number from 0. A parameter with [N] holds for all \
         nodes without a number and for one node with it.\n",
    );
    for (group, rows) in params::groups() {
        text += &format!("\n## {}\n\n", group.title());
        text += "| name | values | default | a change needs | since | meaning |\n|---|---|---|---|---|---|\n";
        for param in rows {
            let default = if param.default.is_empty() { "empty".into() } else { format!("`{}`", param.default) };
            let cells = [
                format!("`{}`", written_name(param, "N")),
                param.kind.describe(),
                default,
                param.applies.describe().into(),
                param.since.into(),
                format!("{}{}{}", no_effect(param), param.help, shown_to(param)),
            ];
            text += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    text
}

fn no_effect(param: &ConfigParam) -> &'static str {
    match (param.alias_of, param.effect) {
        (None, ParamEffect::NotYet) => "*No effect yet.* ",
        (Some(_), _) | (_, ParamEffect::Built | ParamEffect::Needless) => "",
    }
}

/// Says who sees the value, unless everyone does.
fn shown_to(param: &ConfigParam) -> &'static str {
    match param.kind.visibility() {
        ValueVisibility::Everyone | ValueVisibility::Owner => "",
        ValueVisibility::Operators => " *Shown to operators only.*",
        ValueVisibility::Nobody => " *Never shown.*",
    }
}

/// Formats the line below the meaning in the sample file.
fn notes(param: &ConfigParam) -> String {
    let mut notes = format!("Allowed: {}. A change needs a {}.", param.kind.describe(), param.applies.describe());
    if param.indexed == ParamIndexing::NodeOrDefault {
        notes += &format!(" For node 0 alone: {}0.", param.name);
    }
    if param.effect == ParamEffect::NotYet {
        notes += " No effect yet.";
    }
    notes
}

/// Returns the numbered name. In the sample, parameters for all nodes have no number.
fn written_name(param: &ConfigParam, number: &str) -> String {
    match (param.indexed, number) {
        (ParamIndexing::No, _) => param.name.to_string(),
        (ParamIndexing::NodeOrDefault, "N") => format!("{}[N]", param.name),
        (ParamIndexing::NodeOrDefault, _) => param.name.to_string(),
        (ParamIndexing::Node | ParamIndexing::Watchdog | ParamIndexing::Heartbeat, _) => format!("{}{number}", param.name),
    }
}

fn written_default(param: &ConfigParam) -> String {
    if param.kind.is_quoted() {
        return format!("'{}'", param.default.replace('\\', "\\\\").replace('\'', "''"));
    }
    param.kind.show(param.default)
}

fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH && line.len() > 1 {
            lines += &line;
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_between_words_and_short_ones_stay_whole() {
        let text = "word ".repeat(60);
        let lines = comment(&text);
        assert!(lines.lines().all(|line| line.starts_with("# word") && line.len() <= WIDTH), "{lines}");
        assert!(lines.lines().rev().skip(1).all(|line| line.len() + " word".len() > WIDTH), "no room is left over: {lines}");
        assert_eq!(comment("two words"), "# two words\n");
        let long = "x".repeat(2 * WIDTH);
        assert_eq!(comment(&format!("{long} a")), format!("# {long}\n# a\n"), "no line is empty");
    }
}
