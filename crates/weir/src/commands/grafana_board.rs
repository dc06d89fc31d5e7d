//! Grafana's board, made from a table of panels and the table of all series.

use crate::admin::exposition::metric_families::{MetricKind, families};
use serde_json::{Value, json};

/// Grafana's words for units.
#[derive(Clone, Copy)]
enum PanelUnit {
    Count,
    PerSecond,
    Seconds,
    Bytes,
    Ratio,
    Truth,
}

impl PanelUnit {
    fn word(self) -> &'static str {
        match self {
            PanelUnit::Count => "short",
            PanelUnit::PerSecond => "ops",
            PanelUnit::Seconds => "s",
            PanelUnit::Bytes => "bytes",
            PanelUnit::Ratio => "percentunit",
            PanelUnit::Truth => "bool",
        }
    }
}

struct BoardRow {
    title: &'static str,
    panels: &'static [BoardPanel],
}

struct BoardPanel {
    title: &'static str,
    unit: PanelUnit,
    /// Expressions with their legends; `OF` stands for the instances that the reader chose.
    curves: &'static [(&'static str, &'static str)],
}

const fn panel(title: &'static str, unit: PanelUnit, curves: &'static [(&'static str, &'static str)]) -> BoardPanel {
    BoardPanel { title, unit, curves }
}

const OF: &str = "$of";
const OF_CHOSEN: &str = "instance=~\"$instance\"";

const ROWS: &[BoardRow] = &[
    BoardRow {
        title: "Is all well?",
        panels: &[
            panel("Node takes writes", PanelUnit::Truth, &[("weir_node_primary{$of}", "{{instance}} node {{node}}")]),
            panel(
                "Node answers, and is in use",
                PanelUnit::Truth,
                &[("weir_node_up{$of} * weir_node_in_use{$of}", "{{instance}} node {{node}}")],
            ),
            panel("Lag of standbys", PanelUnit::Seconds, &[("weir_node_lag_seconds{$of}", "{{instance}} node {{node}}")]),
            panel(
                "Longest wait for a server connection now",
                PanelUnit::Seconds,
                &[("max by (instance, database) (weir_pool_longest_wait_seconds{$of})", "{{instance}} {{database}}")],
            ),
            panel(
                "Clients that were turned away",
                PanelUnit::PerSecond,
                &[
                    ("rate(weir_clients_refused_total{$of}[$__rate_interval])", "{{instance}} refused by a limit"),
                    ("rate(weir_wait_timeouts_total{$of}[$__rate_interval])", "{{instance}} waited too long"),
                    ("rate(weir_logins_failed_total{$of}[$__rate_interval])", "{{instance}} login failed"),
                ],
            ),
            panel(
                "Losses of servers, as clients heard of them",
                PanelUnit::PerSecond,
                &[
                    ("rate(weir_transactions_lost_total{$of}[$__rate_interval])", "{{instance}} 40001, may be tried again"),
                    ("rate(weir_outcomes_unknown_total{$of}[$__rate_interval])", "{{instance}} 08007, outcome unknown"),
                ],
            ),
        ],
    },
    BoardRow {
        title: "Statements",
        panels: &[
            panel(
                "Statements by node",
                PanelUnit::PerSecond,
                &[(
                    "sum by (node, address) (rate(weir_node_statements_total{$of}[$__rate_interval]))",
                    "node {{node}} {{address}}",
                )],
            ),
            panel(
                "Time of a statement: half, and 99 % are faster",
                PanelUnit::Seconds,
                &[
                    (
                        "histogram_quantile(0.5, sum by (le, node) (rate(weir_node_statement_seconds_bucket{$of}[$__rate_interval])))",
                        "node {{node}} half",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le, node) (rate(weir_node_statement_seconds_bucket{$of}[$__rate_interval])))",
                        "node {{node}} 99 %",
                    ),
                ],
            ),
            panel(
                "Statements by kind",
                PanelUnit::PerSecond,
                &[("sum by (kind) (rate(weir_node_kind_statements_total{$of}[$__rate_interval]))", "{{kind}}")],
            ),
            panel(
                "Errors of servers by class of SQLSTATE",
                PanelUnit::PerSecond,
                &[("sum by (class) (rate(weir_server_errors_total{$of}[$__rate_interval]))", "{{class}}")],
            ),
            panel(
                "Share of reads on each node",
                PanelUnit::Ratio,
                &[(
                    "sum by (node) (rate(weir_node_reads_total{$of}[$__rate_interval])) / scalar(sum(rate(weir_node_reads_total{$of}[$__rate_interval])))",
                    "node {{node}}",
                )],
            ),
            panel(
                "Answered from the query cache",
                PanelUnit::PerSecond,
                &[
                    ("rate(weir_cache_hits_total{$of}[$__rate_interval])", "{{instance}} answered"),
                    ("rate(weir_cache_stored_total{$of}[$__rate_interval])", "{{instance}} stored"),
                ],
            ),
        ],
    },
    BoardRow {
        title: "Clients and pools",
        panels: &[
            panel(
                "Clients",
                PanelUnit::Count,
                &[("weir_clients{$of}", "{{instance}}"), ("weir_clients_max{$of}", "{{instance}} allowed")],
            ),
            panel(
                "Server connections by node",
                PanelUnit::Count,
                &[
                    ("weir_node_server_connections{$of}", "{{instance}} node {{node}}"),
                    ("weir_node_links_max{$of}", "{{instance}} node {{node}} allowed"),
                ],
            ),
            panel(
                "Server connections by what they do",
                PanelUnit::Count,
                &[("sum by (state) (weir_pool_server_connections{$of})", "{{state}}")],
            ),
            panel(
                "Wait for a server connection: 99 % are shorter",
                PanelUnit::Seconds,
                &[(
                    "histogram_quantile(0.99, sum by (le, database) (rate(weir_pool_wait_seconds_bucket{$of}[$__rate_interval])))",
                    "{{database}}",
                )],
            ),
            panel(
                "Ten users and databases with most statements",
                PanelUnit::PerSecond,
                &[(
                    "topk(10, sum by (database, user) (rate(weir_pool_statements_total{$of}[$__rate_interval])))",
                    "{{user}} in {{database}}",
                )],
            ),
            panel(
                "Server connections that a client keeps",
                PanelUnit::Count,
                &[("sum by (reason) (weir_server_connections_pinned{$of})", "{{reason}}")],
            ),
        ],
    },
    BoardRow {
        title: "Group of Weirs",
        panels: &[
            panel("Leader", PanelUnit::Truth, &[("weir_watchdog_leader{$of}", "{{instance}}")]),
            panel("Time left of the lease", PanelUnit::Seconds, &[("weir_watchdog_lease_left_seconds{$of}", "{{instance}}")]),
            panel(
                "Members",
                PanelUnit::Count,
                &[("weir_watchdog_members{$of}", "{{instance}}"), ("weir_watchdog_members_lost{$of}", "{{instance}} lost")],
            ),
        ],
    },
    BoardRow {
        title: "The process",
        panels: &[
            panel("CPU", PanelUnit::Ratio, &[("rate(process_cpu_seconds_total{$of}[$__rate_interval])", "{{instance}}")]),
            panel("Memory", PanelUnit::Bytes, &[("process_resident_memory_bytes{$of}", "{{instance}}")]),
            panel(
                "File descriptors",
                PanelUnit::Count,
                &[("process_open_fds{$of}", "{{instance}}"), ("process_max_fds{$of}", "{{instance}} allowed")],
            ),
        ],
    },
];

const PANELS_A_LINE: u64 = 3;
const PANEL_WIDTH: u64 = 24 / PANELS_A_LINE;
const PANEL_HEIGHT: u64 = 8;

/// The board, as Grafana 8 and newer import it. All counters without labels stand in a last row, which is closed.
pub fn board_file() -> String {
    let mut shelf = PanelShelf::default();
    for row in ROWS {
        shelf.head(row.title);
        let panels: Vec<Value> = row.panels.iter().map(|panel| shelf.place(panel.title, panel.unit, panel.curves)).collect();
        shelf.panels.extend(panels);
        shelf.end_line();
    }
    let counters: Vec<(String, &str)> = families()
        .filter(|family| family.kind == MetricKind::Counter && family.labels.is_empty() && family.name.starts_with("weir_"))
        .map(|family| (format!("rate({}{{{OF}}}[$__rate_interval])", family.name), family.help))
        .collect();
    shelf.head("All counters");
    let closed: Vec<Value> = counters
        .iter()
        .map(|(curve, help)| shelf.place(help.trim_end_matches('.'), PanelUnit::PerSecond, &[(curve, "{{instance}}")]))
        .collect();
    if let Some(head) = shelf.panels.last_mut() {
        head["collapsed"] = Value::Bool(true);
        head["panels"] = Value::Array(closed);
    }
    let chosen = |name: &str, query: &str| {
        json!({"name": name, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"}, "query": query,
               "refresh": 2, "multi": true, "includeAll": true, "current": {"text": "All", "value": "$__all"}})
    };
    let board = json!({
        "title": "Weir",
        "uid": "weir",
        "description": "Generated by `weir docs --write docs` from crates/weir/src/commands/grafana_board.rs.",
        "tags": ["postgresql", "weir"],
        "schemaVersion": 36,
        "editable": true,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            chosen("instance", "label_values(weir_build_info, instance)"),
        ]},
        "panels": shelf.panels,
    });
    format!("{board:#}\n")
}

/// Panels from left to right, lines from above.
#[derive(Default)]
struct PanelShelf {
    panels: Vec<Value>,
    made: u64,
    column: u64,
    top: u64,
}

impl PanelShelf {
    fn head(&mut self, title: &str) {
        self.made += 1;
        self.panels.push(json!({"id": self.made, "type": "row", "title": title, "collapsed": false, "panels": [],
                                "gridPos": {"h": 1, "w": 24, "x": 0, "y": self.top}}));
        self.top += 1;
    }

    fn place(&mut self, title: &str, unit: PanelUnit, curves: &[(&str, &str)]) -> Value {
        if self.column == PANELS_A_LINE {
            self.end_line();
        }
        let place = json!({"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": self.column * PANEL_WIDTH, "y": self.top});
        self.column += 1;
        self.made += 1;
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        let targets: Vec<Value> = curves
            .iter()
            .zip('A'..='Z')
            .map(|((curve, legend), letter)| {
                json!({"refId": letter, "datasource": source, "expr": curve.replace(OF, OF_CHOSEN), "legendFormat": legend})
            })
            .collect();
        json!({"id": self.made, "type": "timeseries", "title": title, "datasource": source, "gridPos": place, "targets": targets,
               "fieldConfig": {"defaults": {"unit": unit.word(), "min": 0}, "overrides": []}})
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.column = 0;
            self.top += PANEL_HEIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::alert_rules;
    use std::collections::BTreeSet;

    /// Names in an expression that Weir's page would have to show.
    fn series_in(expression: &str) -> impl Iterator<Item = &str> {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("weir_") || word.starts_with("process_"))
    }

    fn known() -> BTreeSet<String> {
        let of = |kind| -> &[&str] { if kind == MetricKind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] } };
        families().flat_map(|family| of(family.kind).iter().map(move |end| format!("{}{end}", family.name))).collect()
    }

    fn check_series<'a>(expressions: impl Iterator<Item = (&'a str, &'a str)>) {
        let known = known();
        for (name, expression) in expressions {
            assert!(series_in(expression).count() > 0 || expression.starts_with("up{"), "{name}: {expression}");
            for series in series_in(expression) {
                assert!(known.contains(series), "{name} names {series}, which /metrics does not show");
            }
        }
    }

    #[test]
    fn every_series_of_the_board_is_one_that_metrics_shows() {
        let curves =
            ROWS.iter().flat_map(|row| row.panels).flat_map(|panel| panel.curves.iter().map(|(curve, _)| (panel.title, *curve)));
        check_series(curves);
    }

    #[test]
    fn every_series_of_the_alerts_is_one_that_metrics_shows() {
        check_series(alert_rules::expressions());
        assert_eq!(series_in("rate(weir_a_total{x=\"y\"}[5m]) / process_b").collect::<Vec<_>>(), ["weir_a_total", "process_b"]);
    }

    #[test]
    fn panels_lie_beside_each_other_and_each_counter_has_one() {
        let board: Value = serde_json::from_str(&board_file()).unwrap();
        let panels = board["panels"].as_array().unwrap();
        let closed = panels.last().unwrap()["panels"].as_array().unwrap();
        assert_eq!(closed.len(), weir_session::metrics::METRICS.len() + usize::from(true), "and the group's changes");
        let all: Vec<&Value> = panels.iter().chain(closed).collect();
        let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len());
        let places: BTreeSet<(u64, u64)> =
            all.iter().map(|panel| (panel["gridPos"]["x"].as_u64().unwrap(), panel["gridPos"]["y"].as_u64().unwrap())).collect();
        assert_eq!(places.len(), all.len(), "two panels in one place");
        for panel in all.iter().filter(|panel| panel["type"] == "timeseries") {
            for target in panel["targets"].as_array().unwrap() {
                let curve = target["expr"].as_str().unwrap();
                assert!(curve.contains(OF_CHOSEN) && !curve.contains(OF), "{curve}");
            }
        }
    }
}
