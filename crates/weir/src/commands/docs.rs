//! Documents made from tables, and the check that they are fresh.

use crate::admin::exposition::metric_families::families;
use crate::admin::views::VIEWS;
use crate::commands::alert_rules;
use crate::commands::command_pages;
use crate::commands::grafana_board;
use crate::commands::own_sql::{CATALOG, PLACES, SentOver};
use crate::log::events;
use anyhow::Context;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use weir_config as config;
use weir_sql::own;

/// Paths are relative to the folder of the pages, beside which `deploy` lies.
fn documents(program: clap::Command) -> [(&'static str, String); 11] {
    [
        ("parameters.md", config::reference_page()),
        ("pgpool.conf.sample", config::sample_file()),
        ("show.md", show_page()),
        ("log.md", events::page()),
        ("metrics.md", metrics_page()),
        ("own-sql.md", own_sql_page()),
        ("command-line.md", command_pages::page(program)),
        ("alerts.md", alert_rules::page()),
        ("../deploy/prometheus/weir-alerts.yml", alert_rules::rules_file()),
        ("../deploy/prometheus/weir-alerts.test.yml", alert_rules::tests_file()),
        ("../deploy/grafana/weir-board.json", grafana_board::board_file()),
    ]
}

fn show_page() -> String {
    let mut page = String::from(
        "# SHOW commands\n\nGenerated from the table in `crates/weir/src/admin/views.rs`. All of them work in the simple and the extended \
         protocol. `PGPOOL SHOW <parameter>`, `PGPOOL SHOW backend` (a group) and `PGPOOL SHOW ALL` show parameters;\n\
         `PGPOOL SET` and `PGPOOL RESET` change some for one session ([Routing](routing.md)).\n",
    );
    for view in VIEWS {
        page += &format!("\n## SHOW {}\n\n{}\n\nColumns: {}\n", view.name, view.help, columns(view.columns()));
        if view.hidden_columns().next().is_some() {
            page += &format!("\nNot for everyone ([Who sees what](visibility.md)): {}\n", columns(view.hidden_columns()));
        }
    }
    page
}

fn columns(names: impl Iterator<Item = &'static str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nAll series of `/metrics`. [Monitoring](monitoring.md) says which of them to watch first, [Alerts](alerts.md) which to be called for.\n\
         `SHOW pool_metrics` has the counters without labels, without `weir_` before their names.\n\n\
         A histogram has `_bucket`, `_sum` and `_count` behind its name. Series of `weir_watchdog_` are there with `use_watchdog` only,\n\
         those of `weir_pool_` for the 500 users and databases with most statements.\n\n\
         | name | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        page += &format!("| `{}` | {} | {} | {} |\n", family.name, family.kind.word(), labels.join(", "), family.help);
    }
    page
}

fn own_sql_page() -> String {
    let mut page = String::from(
        "# SQL of Weir's own\n\nGenerated from the list in `crates/weir/src/commands/own_sql.rs`: every statement that Weir sends to servers beside those of clients, \
         by the place that sends it.\nValues are examples. Texts that the configuration gives (`auth_query`, `server_check_query`, `reset_query_list`, the \
         functions of online recovery) are the operator's.\n\nConnections of Weir's own have settings that no role and no database can change: \
         `search_path = pg_catalog, pg_temp` and more, in the startup packet\n([Security](security.md#weirs-own-statements)). A text that goes over a client's \
         connection names the schema of everything in it.\n",
    );
    for place in PLACES {
        let over = match place.over {
            SentOver::Own => "a connection of Weir's own",
            SentOver::Clients => "a connection of a client's pool",
        };
        page += &format!("\n## {}\n\n`{}`, over {over}, as {}.\n\n```sql\n", place.purpose, place.file, place.user);
        for text in (place.texts)() {
            page += &text.split_whitespace().collect::<Vec<_>>().join(" ");
            page += ";\n";
        }
        page += "```\n";
    }
    page
}

/// Returns texts that a `search_path` could bend. Texts of the catalog run with Weir's path only.
fn bent_texts() -> Vec<String> {
    let places = PLACES.iter().filter(|place| place.file != CATALOG);
    let texts = places.flat_map(|place| (place.texts)().into_iter().map(|text| (place.file, text)));
    let bent = texts.map(|(file, text)| (file, own::unqualified(&text), text)).filter(|(_, names, _)| !names.is_empty());
    bent.map(|(file, names, text)| format!("{file}: {names:?} in \"{text}\"")).collect()
}

pub fn write(program: clap::Command, folder: &Path) -> anyhow::Result<ExitCode> {
    for (name, text) in documents(program) {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when a document differs from its table.
pub fn check(program: clap::Command, folder: &Path) -> anyhow::Result<ExitCode> {
    let bent = bent_texts();
    bent.iter().for_each(|bent| drop(writeln!(std::io::stderr(), "names without a schema: {bent}")));
    let mut stale = !bent.is_empty();
    for (name, text) in documents(program) {
        let path = folder.join(name);
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        if found != text {
            stale = true;
            let _ = writeln!(
                std::io::stderr(),
                "{} is stale: run `cargo run -p weir -- docs --write {}`",
                path.display(),
                folder.display()
            );
        }
    }
    Ok(if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
