//! Limits on counts and times.
use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind};
use crate::visibility::ValueVisibility::Operators;

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Limit, since: "Weir 0.1", effect: ParamEffect::Built, ..super::ROW };

/// Clients or server connections; 0: no limit.
const COUNT: ParamKind = ParamKind::Int { min: 0, max: 1_000_000 };
/// 0: no limit.
const TIME: ParamKind = ParamKind::Millis { min: 0, max: INT_MAX };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "max_client_connections_per_user", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.clients_per_user = v.count(),
        help: "Clients of one user. 0: no limit but max_client_connections.", ..ROW },
    ConfigParam { name: "max_client_connections_per_database", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.clients_per_database = v.count(),
        help: "Clients of one database. 0: no limit but max_client_connections.", ..ROW },
    ConfigParam { name: "max_client_connections_per_address", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.clients_per_address = v.count(),
        help: "Clients from one address; does not count those of unix sockets. 0: no limit but max_client_connections.", ..ROW },
    ConfigParam { name: "max_server_connections", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.conns = v.count(),
        help: "Server connections over all nodes, users and databases. 0: no limit but those of the nodes.", ..ROW },
    ConfigParam { name: "max_server_connections_per_node", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.conns_per_node = v.count(),
        help: "Server connections to one node, over all users and databases. 0: num_init_children times max_pool.", ..ROW },
    ConfigParam { name: "max_db_connections", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.conns_per_database = v.count(),
        help: "Server connections of one database to one node, over all users. 0: no limit but those of the node.", ..ROW },
    ConfigParam { name: "max_user_connections", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.conns_per_user = v.count(),
        help: "Server connections of one user to one node, over all databases. 0: no limit but those of the node.", ..ROW },
    ConfigParam { name: "min_pool_size", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.pool_min = v.count(),
        help: "Server connections that are kept open for a user and database on each node used, while a client of theirs is connected; for a database with a forced user always, on the primary.", ..ROW },
    ConfigParam { name: "reserve_pool_size", kind: COUNT, default: "0",
        set: |c, _, v| c.limits.reserve = v.count(),
        help: "Server connections beyond pool_size for clients that waited longer than reserve_pool_timeout.", ..ROW },
    ConfigParam { name: "reserve_pool_timeout", kind: TIME, default: "5s",
        set: |c, _, v| c.limits.reserve_after_ms = v.millis(),
        help: "Time a client waits before it may use the reserve.", ..ROW },
    ConfigParam { name: "query_timeout", kind: TIME, default: "0",
        set: |c, _, v| c.limits.query_ms = v.millis(),
        help: "Time a statement may take on a server. Then it is cancelled and fails with SQLSTATE 57014. 0: no limit.", ..ROW },
    ConfigParam { name: "transaction_timeout", kind: TIME, default: "0",
        set: |c, _, v| c.limits.transaction_ms = v.millis(),
        help: "Time a transaction may take. Then the client is disconnected with SQLSTATE 25P04. 0: no limit.", ..ROW },
    ConfigParam { name: "idle_transaction_timeout", kind: TIME, default: "0",
        set: |c, _, v| c.limits.idle_transaction_ms = v.millis(),
        help: "Time a client may do nothing within a transaction, a message or a series without a Sync. Then it is disconnected with SQLSTATE 25P03. 0: no limit.", ..ROW },
    ConfigParam { name: "limit_override_list", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.limits.overrides = crate::limits::read_overrides(&v.text()).unwrap_or_default(),
        help: "Other limits for some users and databases, with semicolons between them: 'user=joe: pool_size=2 query_timeout=30s; database=shop: pool_size=50; user=joe database=shop: pool_size=5'. A user's go before a database's, those of both before either's.", ..ROW },
];
