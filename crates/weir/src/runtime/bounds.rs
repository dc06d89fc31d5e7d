//! Bounds of what Weir gathers from servers outside of a session's relay: logins, and answers to its own queries.
//!
//! All messages of an exchange count. A query has `ANSWER` unless it names another bound. A server beyond the bound loses the
//! connection.

use weir_wire::gather::GatherBound;

/// Authentication, parameters, and notices of event triggers: each is small.
pub const LOGIN: GatherBound =
    GatherBound { thing: "what the server says in a login", count_max: 4096, bytes_max: 512 << 10, parameter: "" };

/// Requests for a proof. SCRAM has four.
pub const AUTHENTICATION: GatherBound =
    GatherBound { thing: "the authentication of a login", count_max: 8, bytes_max: 64 << 10, parameter: "" };

/// One row, or a list of things that operators made: nodes, roles, processes.
pub const ANSWER: GatherBound =
    GatherBound { thing: "the answer to a question of Weir's", count_max: 65_536, bytes_max: 8 << 20, parameter: "" };

/// Reports and notices on an idle connection, per hour.
pub const REST: GatherBound =
    GatherBound { thing: "what the server says unasked in an hour", count_max: 65_536, bytes_max: 16 << 20, parameter: "" };

/// One part of a catalog. Rows are taken in one by one; `catalog_max_size` bounds what is kept.
pub const CATALOG_PART: GatherBound =
    GatherBound { thing: "a part of the catalog", count_max: 16_000_000, bytes_max: 16 << 30, parameter: "" };

/// Rows that `weir shard` passes from one server to another. Each is gone before the next is read.
pub const COPIED_ROWS: GatherBound =
    GatherBound { thing: "a table's rows", count_max: usize::MAX, bytes_max: usize::MAX, parameter: "" };
