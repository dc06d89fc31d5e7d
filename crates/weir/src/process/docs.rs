//! Documents made from tables, and the check that they are fresh.

use crate::monitor::views::VIEWS;
use anyhow::Context;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use weir_config as config;
use weir_session::metrics::METRICS;

/// Name and content of every generated document.
fn documents() -> [(&'static str, String); 4] {
    [
        ("parameters.md", config::reference_page()),
        ("pgpool.conf.sample", config::sample_file()),
        ("show.md", show_page()),
        ("metrics.md", metrics_page()),
    ]
}

fn show_page() -> String {
    let mut page = String::from(
        "# SHOW commands\n\nGenerated from the table in `crates/weir/src/monitor/views.rs`. All of them work in the simple and the extended \
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
        "# Metrics\n\nGenerated from the table in `crates/weir/src/monitor/metrics.rs`; `SHOW pool_metrics` lists them with their values,\n\
         `/metrics` with `weir_` before their names, beside those of [Monitoring](monitoring.md).\n\n\
         | name | meaning |\n|---|---|\n",
    );
    for row in METRICS {
        page += &format!("| `{}` | {} |\n", row.name, row.help);
    }
    page
}

/// Writes all documents into a folder.
pub fn write(folder: &Path) -> anyhow::Result<ExitCode> {
    for (name, text) in documents() {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when a document differs from its table.
pub fn check(folder: &Path) -> anyhow::Result<ExitCode> {
    let mut stale = false;
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
