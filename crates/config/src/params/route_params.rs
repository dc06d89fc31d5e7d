//! Routing of statements to nodes.
use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind, ParamLikeness, ParamValue};
use crate::OnWrite;
use crate::redirect::{RedirectPreference, read_redirects};
use crate::visibility::ValueVisibility::{Everyone, Operators};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Route, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };
const ALIKE: ConfigParam = ConfigParam { likeness: ParamLikeness::Alike, ..BUILT };
/// A row without a meaning in Weir, as its help says.
const NEEDLESS: ConfigParam = ConfigParam { effect: ParamEffect::Needless, ..ROW };

/// Reads a redirect list; `config::check` reports wrong entries.
fn redirects(value: &ParamValue) -> Vec<RedirectPreference> {
    read_redirects(&value.text()).unwrap_or_default()
}

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "load_balance_mode", kind: ParamKind::Bool, default: "on", applies: ParamContext::AtStart,
        set: |c, _, v| c.routing.load_balance = v.bool(),
        help: "Spread reads over the nodes by weight.", ..ALIKE },
    ConfigParam { name: "statement_level_load_balance", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.statement_level = v.bool(),
        help: "Choose the node for every read anew. off: once per session.", ..ALIKE },
    ConfigParam { name: "read_only_function_list", kind: ParamKind::Patterns { separator: ',', seen_by: Everyone }, default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.read_only_functions = v.patterns(),
        help: "Functions that write nothing, as regular expressions for whole names, f or public.f, with commas between them; all others count as writing. Not together with write_function_list.", ..ALIKE },
    ConfigParam { name: "write_function_list", kind: ParamKind::Patterns { separator: ',', seen_by: Everyone }, default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.write_functions = v.patterns(),
        help: "Functions that write, as regular expressions for whole names, f or public.f, with commas between them; all others count as reading. If both lists are empty, volatile functions count as writing.", ..ALIKE },
    ConfigParam { name: "primary_routing_query_pattern_list", kind: ParamKind::Patterns { separator: ';', seen_by: Operators }, default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.primary_patterns = v.patterns(),
        help: "Regular expressions for whole statements, with semicolons between them; a statement that matches one goes to the primary. Capital and small letters are the same.", ..ALIKE },
    ConfigParam { name: "white_function_list", kind: ParamKind::Patterns { separator: ',', seen_by: Everyone }, default: "", applies: ParamContext::OnReload, hidden: true, alias_of: Some("read_only_function_list"),
        help: "Old name of read_only_function_list, up to Pgpool-II 4.1.", ..ROW },
    ConfigParam { name: "black_function_list", kind: ParamKind::Patterns { separator: ',', seen_by: Everyone }, default: "", applies: ParamContext::OnReload, hidden: true, alias_of: Some("write_function_list"),
        help: "Old name of write_function_list, up to Pgpool-II 4.1.", ..ROW },
    ConfigParam { name: "black_query_pattern_list", kind: ParamKind::Patterns { separator: ';', seen_by: Operators }, default: "", applies: ParamContext::OnReload, hidden: true, alias_of: Some("primary_routing_query_pattern_list"),
        help: "Old name of primary_routing_query_pattern_list, up to Pgpool-II 4.1.", ..ROW },
    ConfigParam { name: "user_redirect_preference_list", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, since: "4.5",
        set: |c, _, v| c.routing.by_user = redirects(v),
        help: "Nodes preferred for reads of certain users: user:node(ratio), with commas between them. A user is a regular expression for the whole name, a node is a number, primary or standby. The ratio is the part of the reads that goes there, from 0 to 1; without it, all.", ..ALIKE },
    ConfigParam { name: "database_redirect_preference_list", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.by_database = redirects(v),
        help: "Nodes preferred for reads in certain databases: database:node(ratio). Goes before the list by user.", ..ALIKE },
    ConfigParam { name: "app_name_redirect_preference_list", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.by_application = redirects(v),
        help: "Nodes preferred for reads of certain applications: application_name:node(ratio). Goes before the other two lists. The name is the session's of the moment, also if it was changed by SET.", ..ALIKE },
    ConfigParam { name: "ignore_leading_white_space", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload,
        help: "Skip blanks before a statement. The parser always does.", ..NEEDLESS },
    ConfigParam { name: "allow_sql_comments", kind: ParamKind::Bool, default: "off", applies: ParamContext::PerSession,
        set: |c, _, v| c.routing.allow_comments = v.bool(),
        help: "off: a comment before a statement sends it to the primary, unless it is a hint that names a node. on: only hints count.", ..ALIKE },
    ConfigParam { name: "disable_load_balance_on_write", kind: ParamKind::Enum { values: &["off", "transaction", "trans_transaction", "always", "dml_adaptive", "dml_adaptive_global"], also: &[] }, default: "transaction", applies: ParamContext::OnReload,
        set: |c, _, v| c.routing.on_write = OnWrite::of_word(v.word()),
        help: "How long reads stay on the primary after a write: to the end of the transaction (transaction, off, dml_adaptive: nowhere else would they see what it wrote), in later transactions too, to the end of the session. dml_adaptive_global: reads show what anybody has written to the relations that they show, as with causal_reads = tables.", ..ALIKE },
    ConfigParam { name: "dml_adaptive_object_relationship_list", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        help: "For dml_adaptive: which objects change together. Needed for nothing: after its first write all reads of a transaction are on the primary.", ..NEEDLESS },
    ConfigParam { name: "track_table_mutation_ttl_factor", kind: ParamKind::Float { min: 1.0, max: 100.0 }, default: "5", applies: ParamContext::OnReload, since: "next",
        help: "For dml_adaptive_global: how long reads of a written table stay on the primary, in lags. Needed for nothing: positions in the WAL say when a standby has what was written.", ..NEEDLESS },
    ConfigParam { name: "track_table_mutation_max_staleness", kind: ParamKind::Millis { min: 0, max: 3_600_000 }, default: "60000", applies: ParamContext::OnReload, since: "next",
        help: "For dml_adaptive_global: longest time a written table keeps its reads on the primary. Needed for nothing, see track_table_mutation_ttl_factor.", ..NEEDLESS },
    ConfigParam { name: "track_table_mutation_cold_start_duration", kind: ParamKind::Millis { min: 0, max: 60_000 }, default: "2000", applies: ParamContext::OnReload, since: "next",
        help: "For dml_adaptive_global: time after a start in which all reads go to the primary. Needed for nothing: after a start no standby counts before it is known to have what the primary has.", ..NEEDLESS },
    ConfigParam { name: "track_table_mutation_table_buckets", kind: ParamKind::Int { min: 64, max: 65_536 }, default: "1024", applies: ParamContext::AtStart, since: "next",
        help: "For dml_adaptive_global: hash buckets of the table of written tables. Needed for nothing: there is no such table.", ..NEEDLESS },
    ConfigParam { name: "track_table_mutation_table_size", kind: ParamKind::Int { min: 128, max: 131_072 }, default: "2048", applies: ParamContext::AtStart, since: "next",
        help: "For dml_adaptive_global: most tables that are remembered. Needed for nothing: there is no such table.", ..NEEDLESS },
    ConfigParam { name: "check_temp_table", kind: ParamKind::Enum { values: &["catalog", "trace", "none"], also: &[("on", "catalog"), ("true", "catalog"), ("yes", "catalog"), ("1", "catalog"), ("off", "none"), ("false", "none"), ("no", "none"), ("0", "none")] }, default: "catalog", applies: ParamContext::OnReload,
        help: "How temporary tables are recognised: by asking the catalog, by watching CREATE and DROP, or not. Needed for nothing: a session that has temporary tables keeps its connection to the primary as long as they exist.", ..NEEDLESS },
    ConfigParam { name: "check_unlogged_table", kind: ParamKind::Bool, default: "on", applies: ParamContext::PerSession,
        set: |c, _, v| c.routing.check_unlogged = v.bool(),
        help: "Send reads of unlogged tables to the primary.", ..ALIKE },
    ConfigParam { name: "relcache_query_target", kind: ParamKind::Enum { values: &["primary", "load_balance_node"], also: &[] }, default: "primary", applies: ParamContext::OnReload,
        help: "Node that is asked for the catalog. Needed for nothing: the primary is asked, once for all sessions, and not by statements.", ..NEEDLESS },
    ConfigParam { name: "relcache_size", kind: ParamKind::Int { min: 0, max: INT_MAX }, default: "256", applies: ParamContext::AtStart,
        help: "Entries of the catalog cache. Needed for nothing: the whole catalog is kept, 12 bytes and a name for each object.", ..NEEDLESS },
    ConfigParam { name: "relcache_expire", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::AtStart,
        set: |c, _, v| c.routing.catalog_expire_ms = v.millis(),
        help: "Longest time what is known of a database is believed without being read anew. 0: as long as nothing changes.", ..BUILT },
    ConfigParam { name: "catalog_max_size", kind: ParamKind::Bytes { min: 1 << 20, max: 4 << 30 }, default: "128MB", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.catalog_bytes_max = v.bytes(),
        help: "Most memory that the rows of one database's catalog may take while they are read: about 100 bytes for each table and function, and more for views and triggers. The catalog of a larger database is not read, so that statements that name anything go to the primary; the log says so.", ..BUILT },
    ConfigParam { name: "enable_shared_relcache", kind: ParamKind::Bool, default: "on", applies: ParamContext::AtStart,
        help: "Share the catalog cache between processes. Needed for nothing: there is one process.", ..NEEDLESS },
];
