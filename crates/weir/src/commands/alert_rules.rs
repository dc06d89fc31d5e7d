//! Alert rules for Prometheus, their tests for promtool, and their page, made from one table.
//!
//! The texts have no `{{ }}`: an alert bears the labels of its series, and the same text serves rules, tests and page.

use std::fmt::Write as _;

#[derive(Clone, Copy, PartialEq, Eq)]
enum AlertSeverity {
    /// Somebody is called.
    Critical,
    /// Somebody looks within a day.
    Warning,
}

impl AlertSeverity {
    fn word(self) -> &'static str {
        match self {
            AlertSeverity::Critical => "critical",
            AlertSeverity::Warning => "warning",
        }
    }
}

/// A series as promtool writes it, with values that raise the alert and values that do not.
struct AlertProof {
    series: &'static str,
    raised: &'static str,
    quiet: &'static str,
}

struct AlertRule {
    name: &'static str,
    severity: AlertSeverity,
    expression: &'static str,
    /// The expression must hold for so long. 0: at once.
    lasting_seconds: u32,
    summary: &'static str,
    action: &'static str,
    /// Page of `docs/`, without its ending, and an anchor.
    page: &'static str,
    proofs: &'static [AlertProof],
    /// Labels of the alert that the proofs raise.
    labels: &'static [(&'static str, &'static str)],
}

const fn proof(series: &'static str, raised: &'static str, quiet: &'static str) -> AlertProof {
    AlertProof { series, raised, quiet }
}

/// Time between two looks at a rule in the tests. Each rule holds for a multiple of it.
const EVALUATION_SECONDS: u32 = 15;

const INSTANCE: (&str, &str) = ("instance", "a");
const NODE: &[(&str, &str)] = &[INSTANCE, ("node", "1")];

const RULES: &[AlertRule] = &[
    AlertRule {
        name: "WeirDown",
        severity: AlertSeverity::Critical,
        expression: "up{job=\"weir\"} == 0",
        lasting_seconds: 60,
        summary: "Weir does not answer Prometheus.",
        action: "Look if the process runs, and at the end of its log.",
        page: "operations",
        proofs: &[proof("up{job=\"weir\",instance=\"a\"}", "0x40", "1x40")],
        labels: &[INSTANCE, ("job", "weir")],
    },
    AlertRule {
        name: "WeirNoPrimary",
        severity: AlertSeverity::Critical,
        expression: "sum by (instance) (weir_node_primary) == 0 and on (instance) weir_stopping == 0",
        lasting_seconds: 15,
        summary: "No node takes writes: statements that write wait for failover_wait, then fail.",
        action: "SHOW pool_failover says why no standby is promoted, and how to go on.",
        page: "failover",
        proofs: &[
            proof("weir_node_primary{instance=\"a\",node=\"0\"}", "0x40", "1x40"),
            proof("weir_node_primary{instance=\"a\",node=\"1\"}", "0x40", "0x40"),
            proof("weir_stopping{instance=\"a\"}", "0x40", "0x40"),
        ],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirNodeDown",
        severity: AlertSeverity::Warning,
        expression: "weir_node_up == 0",
        lasting_seconds: 60,
        summary: "A server does not answer.",
        action: "Look at the server. If it was the primary and another one was promoted, bring it back as a standby.",
        page: "failover",
        proofs: &[proof("weir_node_up{instance=\"a\",node=\"1\"}", "0x40", "1x40")],
        labels: NODE,
    },
    AlertRule {
        name: "WeirNodeOutOfUse",
        severity: AlertSeverity::Warning,
        expression: "weir_node_in_use == 0 and weir_node_up == 1",
        lasting_seconds: 600,
        summary: "A server answers, and no session may use it.",
        action: "SHOW pool_nodes and SHOW pool_failover say why. pcp_attach_node or ATTACH takes it in again.",
        page: "failover",
        proofs: &[
            proof("weir_node_in_use{instance=\"a\",node=\"1\"}", "0x100", "1x100"),
            proof("weir_node_up{instance=\"a\",node=\"1\"}", "1x100", "1x100"),
        ],
        labels: NODE,
    },
    AlertRule {
        name: "WeirStandbyLags",
        severity: AlertSeverity::Warning,
        expression: "weir_node_lag_seconds > 30",
        lasting_seconds: 300,
        summary: "A standby has lacked something of the primary for more than 30 s.",
        action: "Look at pg_stat_replication on the primary and at long queries on the standby.",
        page: "routing",
        proofs: &[proof("weir_node_lag_seconds{instance=\"a\",node=\"1\"}", "31x80", "30x80")],
        labels: NODE,
    },
    AlertRule {
        name: "WeirClientsWait",
        severity: AlertSeverity::Critical,
        expression: "weir_pool_longest_wait_seconds > 5",
        lasting_seconds: 60,
        summary: "A client has waited for a server connection for more than 5 s.",
        action: "SHOW pool_pools names what the connections do. Raise pool_size, or find what holds them.",
        page: "pooling",
        proofs: &[proof("weir_pool_longest_wait_seconds{instance=\"a\",database=\"shop\",user=\"joe\"}", "6x40", "5x40")],
        labels: &[("database", "shop"), INSTANCE, ("user", "joe")],
    },
    AlertRule {
        name: "WeirWaitsTimeOut",
        severity: AlertSeverity::Critical,
        expression: "increase(weir_wait_timeouts_total[5m]) > 0",
        lasting_seconds: 0,
        summary: "Statements failed, since no server connection was free within pool_wait_timeout.",
        action: "As for WeirClientsWait.",
        page: "pooling",
        proofs: &[proof("weir_wait_timeouts_total{instance=\"a\"}", "0+1x80", "3x80")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirClientsNearLimit",
        severity: AlertSeverity::Warning,
        expression: "weir_clients / weir_clients_max > 0.9",
        lasting_seconds: 300,
        summary: "More than 90 % of the client connections allowed are in use.",
        action: "Raise max_client_connections, or find the program that opens so many.",
        page: "limits",
        proofs: &[
            proof("weir_clients{instance=\"a\"}", "91x80", "90x80"),
            proof("weir_clients_max{instance=\"a\"}", "100x80", "100x80"),
        ],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirClientsRefused",
        severity: AlertSeverity::Warning,
        expression: "increase(weir_clients_refused_total[5m]) > 0",
        lasting_seconds: 0,
        summary: "Clients were refused by a limit.",
        action: "The log names the limit and the client's address.",
        page: "limits",
        proofs: &[proof("weir_clients_refused_total{instance=\"a\"}", "0+1x80", "3x80")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirServerConnectionsNearLimit",
        severity: AlertSeverity::Warning,
        expression: "weir_node_server_connections / weir_node_links_max > 0.9",
        lasting_seconds: 600,
        summary: "More than 90 % of the server connections allowed at a node are open.",
        action: "Compare pool_size and the number of users and databases with the server's max_connections.",
        page: "pooling",
        proofs: &[
            proof("weir_node_server_connections{instance=\"a\",node=\"1\"}", "91x100", "90x100"),
            proof("weir_node_links_max{instance=\"a\",node=\"1\"}", "100x100", "100x100"),
        ],
        labels: NODE,
    },
    AlertRule {
        name: "WeirLoginsFail",
        severity: AlertSeverity::Warning,
        expression: "rate(weir_logins_failed_total[5m]) > 1",
        lasting_seconds: 300,
        summary: "More than one login a second fails.",
        action: "The log has user, address and reason: a wrong password somewhere, or somebody who guesses.",
        page: "authentication",
        proofs: &[proof("weir_logins_failed_total{instance=\"a\"}", "0+30x100", "0+15x100")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirOutcomesUnknown",
        severity: AlertSeverity::Critical,
        expression: "increase(weir_outcomes_unknown_total[10m]) > 0",
        lasting_seconds: 0,
        summary: "A server was lost, and clients heard 08007: nobody knows what their last statements did.",
        action: "Have the applications look at their data. commit_outcome = on answers most of these cases.",
        page: "commit-outcome",
        proofs: &[proof("weir_outcomes_unknown_total{instance=\"a\"}", "0+1x80", "3x80")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirAgentDown",
        severity: AlertSeverity::Warning,
        expression: "weir_node_agent_up == 0",
        lasting_seconds: 120,
        summary: "The agent beside a server does not answer: the server cannot come back by itself after a failover.",
        action: "Start weir agent there. SHOW pool_agents has its last words.",
        page: "agent",
        proofs: &[proof("weir_node_agent_up{instance=\"a\",node=\"1\"}", "0x80", "1x80")],
        labels: NODE,
    },
    AlertRule {
        name: "WeirCertificateEnds",
        severity: AlertSeverity::Warning,
        expression: "weir_certificate_end_time_seconds - time() < 14 * 86400",
        lasting_seconds: 3600,
        summary: "A certificate of Weir's own ends within 14 days.",
        action: "Put a new one in its place, and reload.",
        page: "tls",
        proofs: &[proof("weir_certificate_end_time_seconds{instance=\"a\",file=\"f\"}", "1000000x300", "2000000x300")],
        labels: &[("file", "f"), INSTANCE],
    },
    AlertRule {
        name: "WeirPaused",
        severity: AlertSeverity::Warning,
        expression: "weir_paused == 1",
        lasting_seconds: 600,
        summary: "All databases have been paused for 10 minutes.",
        action: "RESUME on the console.",
        page: "admin-console",
        proofs: &[proof("weir_paused{instance=\"a\"}", "1x80", "0x80")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirDescriptorsNearLimit",
        severity: AlertSeverity::Critical,
        expression: "process_open_fds{job=\"weir\"} / process_max_fds{job=\"weir\"} > 0.9",
        lasting_seconds: 300,
        summary: "More than 90 % of the file descriptors are in use: new connections will fail.",
        action: "Raise LimitNOFILE of the unit, or lower max_client_connections.",
        page: "limits",
        proofs: &[
            proof("process_open_fds{job=\"weir\",instance=\"a\"}", "91x80", "90x80"),
            proof("process_max_fds{job=\"weir\",instance=\"a\"}", "100x80", "100x80"),
        ],
        labels: &[INSTANCE, ("job", "weir")],
    },
    AlertRule {
        name: "WeirGroupLead",
        severity: AlertSeverity::Critical,
        expression: "sum by (job) (weir_watchdog_leader) != 1",
        lasting_seconds: 30,
        summary: "The group of Weirs has no leader, or Prometheus does not reach all of its hosts.",
        action: "SHOW pool_watchdog on each host: a majority must reach each other. With several groups give each a job of its own.",
        page: "watchdog",
        proofs: &[
            proof("weir_watchdog_leader{job=\"weir\",instance=\"a\"}", "0x40", "1x40"),
            proof("weir_watchdog_leader{job=\"weir\",instance=\"b\"}", "0x40", "0x40"),
        ],
        labels: &[("job", "weir")],
    },
    AlertRule {
        name: "WeirGroupMajorityLost",
        severity: AlertSeverity::Critical,
        expression: "weir_watchdog_has_lease == 0",
        lasting_seconds: 30,
        summary: "A host of the group reaches no majority: writes through it wait.",
        action: "Look at the network between the hosts, and at SHOW pool_watchdog.",
        page: "watchdog",
        proofs: &[proof("weir_watchdog_has_lease{instance=\"a\"}", "0x40", "1x40")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirGroupMemberLost",
        severity: AlertSeverity::Warning,
        expression: "weir_watchdog_members_lost > 0",
        lasting_seconds: 300,
        summary: "The group has marked a host lost: one more loss may cost the majority.",
        action: "Start Weir on that host.",
        page: "watchdog",
        proofs: &[proof("weir_watchdog_members_lost{instance=\"a\"}", "1x80", "0x80")],
        labels: &[INSTANCE],
    },
    AlertRule {
        name: "WeirGroupParametersDiffer",
        severity: AlertSeverity::Warning,
        expression: "weir_watchdog_parameters_differ > 0",
        lasting_seconds: 600,
        summary: "Hosts of the group have different values of parameters that must be the same.",
        action: "SHOW pool_watchdog names the parameters. Copy the file to all hosts, and reload.",
        page: "watchdog",
        proofs: &[proof("weir_watchdog_parameters_differ{instance=\"a\",host=\"2\"}", "1x80", "0x80")],
        labels: &[("host", "2"), INSTANCE],
    },
];

/// The rules, as Prometheus reads them.
pub fn rules_file() -> String {
    let mut file = String::from(
        "# Generated by `weir docs --write docs` from crates/weir/src/commands/alert_rules.rs. The job of Prometheus must be called weir.\n\
         groups:\n  - name: weir\n    rules:\n",
    );
    for rule in RULES {
        let _ = write!(
            file,
            "      - alert: {}\n        expr: {}\n        for: {}s\n        labels:\n          severity: {}\n        annotations:\n",
            rule.name,
            quoted(rule.expression),
            rule.lasting_seconds,
            rule.severity.word(),
        );
        annotations(&mut file, rule, "          ");
    }
    file
}

fn annotations(file: &mut String, rule: &AlertRule, margin: &str) {
    for (name, text) in [("summary", rule.summary), ("action", rule.action), ("page", &format!("docs/{}.md", rule.page))] {
        let _ = writeln!(file, "{margin}{name}: {}", quoted(text));
    }
}

/// In YAML's single quotes, where only they themselves mean something.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Each alert is raised by the values that raise it, not before its time, and not by the quiet ones.
pub fn tests_file() -> String {
    let mut file = String::from(
        "# Generated by `weir docs --write docs` from crates/weir/src/commands/alert_rules.rs: promtool test rules weir-alerts.test.yml\n\
         rule_files:\n  - weir-alerts.yml\nevaluation_interval: 15s\ntests:\n",
    );
    for rule in RULES {
        series_of(&mut file, rule, "raised", |proof| proof.raised);
        if rule.lasting_seconds > 0 {
            let early = rule.lasting_seconds - EVALUATION_SECONDS;
            let _ = write!(file, "      - eval_time: {early}s\n        alertname: {}\n        exp_alerts: []\n", rule.name);
        }
        let _ = write!(
            file,
            "      - eval_time: {}s\n        alertname: {}\n        exp_alerts:\n          - exp_labels:\n              severity: {}\n",
            eval_time(rule),
            rule.name,
            rule.severity.word(),
        );
        for (label, value) in rule.labels {
            let _ = writeln!(file, "              {label}: {}", quoted(value));
        }
        file.push_str("            exp_annotations:\n");
        annotations(&mut file, rule, "              ");
        series_of(&mut file, rule, "quiet", |proof| proof.quiet);
        let _ =
            write!(file, "      - eval_time: {}s\n        alertname: {}\n        exp_alerts: []\n", eval_time(rule), rule.name);
    }
    file
}

/// A time at which the alert must be there, in seconds: a rate over 5 minutes takes those before it is whole.
fn eval_time(rule: &AlertRule) -> u32 {
    rule.lasting_seconds + 300
}

fn series_of(file: &mut String, rule: &AlertRule, name: &str, values: fn(&AlertProof) -> &'static str) {
    let _ = write!(file, "  - name: {} {name}\n    interval: 15s\n    input_series:\n", rule.name);
    for proof in rule.proofs {
        let _ = write!(file, "      - series: {}\n        values: {}\n", quoted(proof.series), quoted(values(proof)));
    }
    file.push_str("    alert_rule_test:\n");
}

pub fn page() -> String {
    let mut page = String::from(
        "# Alerts\n\nPrometheus reads these rules from [weir-alerts.yml](../deploy/prometheus/weir-alerts.yml). Its job for Weir must be called `weir`; \
         [Monitoring](monitoring.md) shows how.\n\n\
         - **critical**: clients fail or wait now. Somebody must act at once.\n\
         - **warning**: nothing fails yet. Somebody must look within a day.\n",
    );
    for rule in RULES {
        let lasting = match rule.lasting_seconds {
            0 => "at once".to_string(),
            seconds if seconds % 60 == 0 => format!("after {} min", seconds / 60),
            seconds => format!("after {seconds} s"),
        };
        let _ = write!(
            page,
            "\n## {}\n\n{}, {lasting}. {}\n\nRemedy: {} More: [{page}]({page}.md).\n\n```promql\n{}\n```\n",
            rule.name,
            rule.severity.word(),
            rule.summary,
            rule.action,
            rule.expression,
            page = rule.page,
        );
    }
    page
}

/// Expressions with the name of what has them, for the test that their series exist.
#[cfg(test)]
pub fn expressions() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().flat_map(|rule| rule.proofs.iter().map(|proof| (rule.name, proof.series)).chain([(rule.name, rule.expression)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_texts_need_no_template() {
        let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
        for rule in RULES {
            assert!(![rule.summary, rule.action].iter().any(|text| text.contains("{{")), "{}", rule.name);
            assert!(rule.name.starts_with("Weir") && !rule.proofs.is_empty(), "{}", rule.name);
            assert_eq!(rule.lasting_seconds % EVALUATION_SECONDS, 0, "{}", rule.name);
        }
    }

    #[test]
    fn quotes_are_those_of_yaml() {
        assert_eq!(quoted("the server's"), "'the server''s'");
    }
}
