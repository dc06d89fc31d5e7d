//! Clients and the server connections they share.
use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind};
use crate::visibility::ValueVisibility::Operators;

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Pool, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "process_management_mode", kind: ParamKind::Enum { values: &["static", "dynamic"], also: &[] }, default: "static", applies: ParamContext::OnReload, since: "4.4",
        help: "static keeps num_init_children processes, dynamic starts and ends them by need. Clients need no process of their own here.", ..ROW },
    ConfigParam { name: "process_management_strategy", kind: ParamKind::Enum { values: &["aggressive", "gentle", "lazy"], also: &[] }, default: "gentle", applies: ParamContext::OnReload, since: "4.4",
        help: "How soon idle processes end in dynamic mode: at once, after 2 minutes, after 5 minutes.", ..ROW },
    ConfigParam { name: "num_init_children", kind: ParamKind::Int { min: 1, max: INT_MAX }, default: "32", applies: ParamContext::AtStart,
        set: |c, _, v| c.pool.num_init_children = v.count(),
        help: "Bounds server connections: at most num_init_children times max_pool to each node, and pool_size if that is 0. It does not bound clients; max_client_connections does.", ..BUILT },
    ConfigParam { name: "min_spare_children", kind: ParamKind::Int { min: 1, max: INT_MAX }, default: "5", applies: ParamContext::OnReload, since: "4.4",
        help: "Fewest idle processes in dynamic mode.", ..ROW },
    ConfigParam { name: "max_spare_children", kind: ParamKind::Int { min: 1, max: INT_MAX }, default: "10", applies: ParamContext::OnReload, since: "4.4",
        help: "Most idle processes in dynamic mode.", ..ROW },
    ConfigParam { name: "connection_cache", kind: ParamKind::Bool, default: "on", applies: ParamContext::AtStart,
        help: "Keep server connections for the next client.", ..ROW },
    ConfigParam { name: "max_pool", kind: ParamKind::Int { min: 1, max: INT_MAX }, default: "4", applies: ParamContext::AtStart,
        set: |c, _, v| c.pool.max_pool = v.count(),
        help: "Bounds server connections: at most num_init_children times max_pool to each node. It does not bound clients.", ..BUILT },
    ConfigParam { name: "child_life_time", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "300", applies: ParamContext::AtStart,
        help: "Time after which an idle process is replaced. 0: never.", ..ROW },
    ConfigParam { name: "child_max_connections", kind: ParamKind::Int { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::AtStart,
        help: "Number of clients after which a process is replaced. 0: never.", ..ROW },
    ConfigParam { name: "connection_life_time", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::OnReload,
        set: |c, _, v| c.pool.connection_life_time_ms = v.millis(),
        help: "Age at which a server connection is closed when it is idle. 0: never.", ..BUILT },
    ConfigParam { name: "client_idle_limit", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::PerSession,
        set: |c, _, v| c.client_idle_limit_ms = v.millis(),
        help: "Time without a request after which a client is disconnected. 0: never.", ..BUILT },
    ConfigParam { name: "server_check_query", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.check_query = v.text(),
        help: "Query that a server must answer before a connection is given out that has rested for server_check_delay, within connect_timeout; else another one is taken. Empty: it is only looked whether the connection has ended.", ..BUILT },
    ConfigParam { name: "server_fast_close", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.fast_close = v.bool(),
        help: "Ends a session outside of transactions that keeps a server connection (pool_mode = session, a temporary table ...) which is to be closed, as after RECONNECT or changed TLS settings. off: the connection is closed when the session gives it back.", ..BUILT },
    ConfigParam { name: "server_check_delay", kind: ParamKind::Millis { min: 0, max: INT_MAX }, default: "30s", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.check_after_ms = v.millis(),
        help: "Rest of a server connection after which server_check_query is asked. 0: always.", ..BUILT },
    ConfigParam { name: "reset_query_list", kind: ParamKind::List { separator: ';', seen_by: Operators }, default: "ABORT; DISCARD ALL", applies: ParamContext::OnReload,
        set: |c, _, v| c.pool.reset_query_list = v.list(),
        help: "Statements that clean a server connection when its client leaves, with semicolons between them. Must contain ABORT.", ..BUILT },
    ConfigParam { name: "reset_query_always", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.reset_always = v.bool(),
        help: "Run reset_query_list each time that a client gives a server connection back, also after each transaction, and not only where something is known to be left. Settings follow the client all the same. It costs the server the statements of the list for each transaction, prepared statements are prepared anew, and drawn sequence values are lost. limit_override_list does it for some users or databases.", ..BUILT },
];
