//! Documents made from tables, and the check that they are fresh.

use crate::admin::views::VIEWS;
use crate::commands::own_sql::{CATALOG, PLACES, SentOver};
use anyhow::Context;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use weir_config as config;
use weir_session::metrics::METRICS;
use weir_sql::own;

fn documents() -> [(&'static str, String); 5] {
    [
        ("parameters.md", config::reference_page()),
        ("pgpool.conf.sample", config::sample_file()),
        ("show.md", show_page()),
        ("metrics.md", metrics_page()),
        ("own-sql.md", own_sql_page()),
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
        "# Metrics\n\nGenerated from the table in `crates/session/src/metrics.rs`; `SHOW pool_metrics` lists them with their values,\n\
         `/metrics` with `weir_` before their names, beside those of [Monitoring](monitoring.md).\n\n\
         | name | meaning |\n|---|---|\n",
    );
    for row in METRICS {
        page += &format!("| `{}` | {} |\n", row.name, row.help);
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

pub fn write(folder: &Path) -> anyhow::Result<ExitCode> {
    for (name, text) in documents() {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when a document differs from its table.
pub fn check(folder: &Path) -> anyhow::Result<ExitCode> {
    let bent = bent_texts();
    bent.iter().for_each(|bent| drop(writeln!(std::io::stderr(), "names without a schema: {bent}")));
    let mut stale = !bent.is_empty();
    for (name, text) in documents() {
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
