//! The most that is gathered of what servers say outside of a session's relay: in a login, in answers to questions of Weir's own.
//!
//! A connection counts all messages against the bound of the exchange under way. A question has `ANSWER`, unless it names another bound
//! (`Conn::ask_for`, `Talk::ask_for`). A server that says more loses the connection.

use weir_wire::gather::GatherBound;

/// Messages of a login: authentication, parameters, and notices of event triggers. Each is small.
pub const LOGIN: GatherBound =
    GatherBound { thing: "what the server says in a login", count_max: 4096, bytes_max: 512 << 10, parameter: "" };

/// Requests for a proof in one login. SCRAM has four.
pub const AUTHENTICATION: GatherBound =
    GatherBound { thing: "the authentication of a login", count_max: 8, bytes_max: 64 << 10, parameter: "" };

/// The answer to a question of Weir's, or to a query of the configuration: one row, or a list of things that operators made, such as nodes, roles
/// and processes.
pub const ANSWER: GatherBound =
    GatherBound { thing: "the answer to a question of Weir's", count_max: 65_536, bytes_max: 8 << 20, parameter: "" };

/// Reports and notices on a connection that owes nothing, in an hour.
pub const REST: GatherBound =
    GatherBound { thing: "what the server says unasked in an hour", count_max: 65_536, bytes_max: 16 << 20, parameter: "" };

/// One part of a catalog. Its rows are taken in one by one, and `catalog_max_size` bounds what is kept of them.
pub const CATALOG_PART: GatherBound =
    GatherBound { thing: "a part of the catalog", count_max: 16_000_000, bytes_max: 16 << 30, parameter: "" };
