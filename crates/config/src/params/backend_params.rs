//! The PostgreSQL servers and how they are kept equal.
use crate::ClusteringMode;

use super::{ConfigParam, ParamContext, ParamEffect, ParamGroup, ParamIndexing, ParamKind, ParamLikeness};
use crate::visibility::ValueVisibility::{Everyone, Operators};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Backend, likeness: ParamLikeness::Alike, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "backend_clustering_mode", kind: ParamKind::Enum { values: &["streaming_replication", "native_replication", "logical_replication", "snapshot_isolation", "raw"], also: &[] }, default: "streaming_replication", applies: ParamContext::AtStart,
        set: |c, _, v| c.clustering_mode = ClusteringMode::from_word(v.word()),
        help: "How the servers are kept equal. streaming_replication: PostgreSQL does it, reads may go to standbys. raw: nobody does, everything goes to the first server in use. One that its health check finds dead is out of use until it is attached, and the next one has everything; without a health check it is waited for. The others are refused for now.", ..BUILT },
    ConfigParam { name: "backend_hostname", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).hostname = v.text(),
        help: "Host name or address of a node, or the directory of its unix socket if it begins with a slash. Empty: there is no such node.", ..BUILT },
    ConfigParam { name: "backend_port", kind: ParamKind::Int { min: 1, max: 65535 }, default: "5432", applies: ParamContext::OnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).port = v.port(),
        help: "Port of a node.", ..BUILT },
    ConfigParam { name: "backend_weight", kind: ParamKind::Float { min: 0.0, max: 100_000_000.0 }, default: "0", applies: ParamContext::OnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).weight = v.float(),
        help: "Share of the balanced reads that goes to a node, relative to the weights of the others. 0: none.", ..BUILT },
    ConfigParam { name: "backend_zone", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, indexed: ParamIndexing::Node, since: "Weir 0.1",
        set: |c, n, v| c.node(n).zone = v.text(),
        help: "Where a node is: a name that zone is compared with.", ..BUILT },
    ConfigParam { name: "backend_data_directory", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::NewNodeOnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).data_directory = v.text(),
        help: "Data directory of a node, handed to failover and recovery commands.", ..BUILT },
    ConfigParam { name: "backend_flag", kind: ParamKind::Words { separator: '|', values: &["ALLOW_TO_FAILOVER", "DISALLOW_TO_FAILOVER", "ALWAYS_PRIMARY"] }, default: "", applies: ParamContext::OnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).set_flags(&v.list()),
        help: "Properties of a node, with bars between them. DISALLOW_TO_FAILOVER: never detach it because it failed (ALLOW_TO_FAILOVER is the default). ALWAYS_PRIMARY: take it for the primary without asking it. Neither is used while it does not answer: writes wait for such a primary, and reads go to standbys.", ..BUILT },
    ConfigParam { name: "backend_application_name", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, indexed: ParamIndexing::Node,
        set: |c, n, v| c.node(n).application_name = v.text(),
        help: "Name under which a standby appears in pg_stat_replication of the primary.", ..BUILT },
    ConfigParam { name: "backend_promote_priority", kind: ParamKind::Int { min: 0, max: 1000 }, default: "100", applies: ParamContext::OnReload, indexed: ParamIndexing::Node, since: "Weir 0.1",
        set: |c, n, v| c.node(n).promote_priority = v.count(),
        help: "With failover_mode = builtin: among standbys that have received equally much, the one with the highest number becomes the primary. 0: never this one.", ..BUILT },
    ConfigParam { name: "backend_agent", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, indexed: ParamIndexing::Node, since: "Weir 0.1",
        set: |c, n, v| c.node(n).agent = v.text(),
        help: "Host and port of the weir agent beside a node (port 9797 if none is named). Empty: there is none.", ..BUILT },
    ConfigParam { name: "replication_mode", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart, hidden: true,
        help: "Left over from files older than Pgpool-II 4.2; backend_clustering_mode replaced it.", ..ROW },
    ConfigParam { name: "replication_stop_on_mismatch", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        help: "Native replication: detach the nodes in the minority when nodes answer with different messages. off: end the session only.", ..ROW },
    ConfigParam { name: "failover_if_affected_tuples_mismatch", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        help: "Native replication: detach the nodes in the minority when a write changed another number of rows there. off: fail the transaction.", ..ROW },
    ConfigParam { name: "replicate_select", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        help: "Native replication: send reads to all nodes too.", ..ROW },
    ConfigParam { name: "insert_lock", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload,
        help: "Native replication: lock a table that fills a column from a sequence before inserting into it.", ..ROW },
    ConfigParam { name: "lobj_lock_table", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        help: "Native replication: table to lock while a large object is made. Empty: large objects are not replicated.", ..ROW },
];
