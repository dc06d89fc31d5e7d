//! The administration console and the endpoint of monitoring.
use std::path::PathBuf;

use weir_wire::pcp_protocol::PcpLayout;

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind};
use crate::visibility::ValueVisibility::{Everyone, Operators};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Admin, since: "Weir 0.1", effect: ParamEffect::Built, ..super::ROW };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "admin_database", kind: ParamKind::Text(Everyone), default: "pgbouncer", applies: ParamContext::OnReload,
        set: |c, _, v| c.admin.database = v.text(),
        help: "Name of the database that is no database but the administration console. Empty: no console.", ..ROW },
    ConfigParam { name: "admin_users", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.admin.users = v.list(),
        help: "Users who may look at everything in the console and change it, with commas between them. They must have an entry in pool_passwd.", ..ROW },
    ConfigParam { name: "stats_users", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.admin.stats_users = v.list(),
        help: "Users who may use the console's SHOW commands, with commas between them.", ..ROW },
    ConfigParam { name: "stats_period", kind: ParamKind::Seconds { min: 1, max: INT_MAX }, default: "60", applies: ParamContext::OnReload,
        set: |c, _, v| c.admin.stats_period_ms = v.millis(),
        help: "Time over which the console's averages are taken.", ..ROW },
    ConfigParam { name: "metrics_listen_addresses", kind: ParamKind::List { separator: ',', seen_by: Everyone }, default: "localhost", applies: ParamContext::AtStart,
        set: |c, _, v| c.admin.metrics_addresses = v.list(),
        help: "Addresses on which metrics are served over HTTP, with commas between them. * stands for all. Anybody who reaches them may read.", ..ROW },
    ConfigParam { name: "metrics_port", kind: ParamKind::Int { min: 0, max: 65535 }, default: "0", applies: ParamContext::AtStart,
        set: |c, _, v| c.admin.metrics_port = v.port(),
        help: "Port of that: /metrics for Prometheus, /healthz and /readyz, and more for load balancers; with `dashboard` also pages for people. 0: not served.", ..ROW },
    ConfigParam { name: "dashboard", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.admin.dashboard.is_on = v.bool(),
        help: "Serves the dashboard and its interface /api/v1 on metrics_port, to admin_users and stats_users with their passwords of pool_passwd. Without `ssl` to clients on this machine only.", ..ROW },
    ConfigParam { name: "dashboard_insecure", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.admin.dashboard.allows_plain = v.bool(),
        help: "Serves the dashboard also to clients elsewhere whose connections are not encrypted: whoever listens on the way reads their passwords.", ..ROW },
    ConfigParam { name: "pcp_protocol_version", kind: ParamKind::Enum { values: &PcpLayout::WORDS, also: &[] }, default: "4.7", applies: ParamContext::OnReload,
        set: |c, _, v| c.pcp.layout = PcpLayout::of_word(v.word()).unwrap_or_default(),
        help: "Release of Pgpool-II whose PCP clients are used: they have the layout of answers compiled in. 4.3 is that of 4.3.1 and later; those of 4.3.0 need 4.3.0. Weir's own clients read all of them.", ..ROW },
    ConfigParam { name: "takeover_socket", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart,
        set: |c, _, v| c.admin.takeover_socket = PathBuf::from(v.text()),
        help: "Unix socket over which a new process started with --takeover gets the listening sockets, so that a restart refuses no client. Empty: none.", ..ROW },
    ConfigParam { name: "takeover_drain_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::OnReload,
        set: |c, _, v| c.admin.takeover_drain_ms = v.millis(),
        help: "Time after which the old process disconnects the clients it still has. 0: it waits until they have left.", ..ROW },
];
