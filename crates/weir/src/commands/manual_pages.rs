//! Manual pages and completions, made from the command line's table and the parameters'.

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::path::Path;
use std::process::ExitCode;
use weir_config as config;

/// Writes a page of each command, and that of the parameters, into the sections of a folder that man(1) searches. Pages of before are replaced.
pub fn write(program: Command, folder: &Path) -> anyhow::Result<ExitCode> {
    let cannot = || format!("cannot write manual pages into {}", folder.display());
    let (commands, files) = (folder.join("man1"), folder.join("man5"));
    for section in [&commands, &files] {
        std::fs::create_dir_all(section).with_context(cannot)?;
    }
    clap_mangen::generate_to(program, commands).with_context(cannot)?;
    std::fs::write(files.join("pgpool.conf.5"), parameters_page()).with_context(cannot)?;
    Ok(ExitCode::SUCCESS)
}

pub fn completions(mut program: Command, shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, "weir", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Sections and requests as man(7) has them.
fn parameters_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["pgpool.conf", "5", "", "Weir", ""]);
    section(&mut page, "NAME", "pgpool.conf - configuration of weir(1), in the format of Pgpool-II");
    section(
        &mut page,
        "DESCRIPTION",
        "A line is a name, = and a value; # begins a comment; a later line wins. include = 'file' reads another file, relative to this one. \
         N stands for a number from 0. A parameter with [N] holds for all nodes without a number and for one node with it. \
         Sizes take B kB MB GB TB, times take us ms s min h d.",
    );
    for (title, entries) in config::parameter_entries() {
        page.control("SH", [title.to_uppercase().as_str()]);
        for entry in entries {
            page.control("TP", []);
            page.text([bold(entry.name), roman(format!(" ({})", entry.values))]);
            let default = if entry.default.is_empty() { "empty" } else { entry.default };
            page.text(meaning(&entry.help, default, entry.applies));
        }
    }
    section(&mut page, "SEE ALSO", "weir(1), weir-check(1), weir-show-config(1)");
    page.to_roff()
}

fn section(page: &mut Roff, title: &str, text: &str) {
    page.control("SH", [title]);
    page.text([roman(text)]);
}

fn meaning(help: &str, default: &str, applies: &str) -> Vec<Inline> {
    // The table's emphasis is that of Markdown.
    let help = help.replace('*', "");
    vec![roman(format!("{help} Default: ")), italic(default), roman(format!(". A change needs a {applies}."))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_parameter_has_an_entry() {
        let page = parameters_page();
        for (_, entries) in config::parameter_entries() {
            for entry in entries {
                let name = entry.name.replace('-', "\\-");
                assert!(page.contains(&format!("\\fB{name}\\fR")), "{}", entry.name);
            }
        }
    }

    #[test]
    fn each_shell_completes_a_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let program = Command::new("weir").subcommand(Command::new("check").arg(Arg::new("connect").long("connect")));
            let text = completions(program, shell);
            assert!(text.contains("check") && text.contains("connect"), "{shell}: {text}");
        }
    }
}
