//! The page of the command line, made from its table.

use clap::Command;
use std::fmt::Write as _;

/// All commands with their options; those that help hides are left out.
pub fn page(mut program: Command) -> String {
    let mut page = String::from(
        "# Command line\n\nGenerated from the program's own table. `weir --help` and `weir COMMAND --help` say the same; `weir man` writes manual pages.\n\n\
         Called by the names `pgpool`, `pg_md5`, `pg_enc` and `pcp_...`, the program takes the options of Pgpool-II's programs \
         ([From Pgpool-II](from-pgpool.md), [PCP](pcp.md)).\n",
    );
    program.build();
    add(&mut page, &program, "weir");
    page
}

fn add(page: &mut String, command: &Command, name: &str) {
    let _ = write!(page, "\n## {name}\n\n{}\n", sentence(command.get_about().map(ToString::to_string)));
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = writeln!(page, "\nAlso called {}.", aliases.join(", "));
    }
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set() && argument.get_id() != "help");
    if shown().next().is_some() {
        page.push_str("\n| option | meaning |\n|---|---|\n");
    }
    for argument in shown() {
        let values: Vec<String> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
        let values = if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
        let mut forms: Vec<String> = argument.get_short().map(|short| format!("-{short}")).into_iter().collect();
        forms.extend(argument.get_long().map(|long| format!("--{long}")));
        let form = format!("{} {values}", forms.join(", "));
        let meaning = sentence(argument.get_help().map(ToString::to_string)).replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {meaning} |", form.trim());
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        add(page, below, &format!("{name} {}", below.get_name()));
    }
}

fn sentence(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    if text.is_empty() || text.ends_with('.') { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    #[test]
    fn commands_below_commands_are_shown_with_their_options() {
        let below = clap::Command::new("down")
            .about("Go down")
            .visible_alias("fall")
            .arg(Arg::new("deep").short('d').long("deep").value_name("N").help("a|b."));
        let page =
            super::page(clap::Command::new("weir").about("A proxy.").subcommand(clap::Command::new("go").subcommand(below)));
        assert!(
            page.ends_with("\n## weir go down\n\nGo down.\n\nAlso called `fall`.\n\n| option | meaning |\n|---|---|\n| `-d, --deep N` | a\\|b. |\n"),
            "{page}"
        );
    }
}
