//! Cache of query results.
use super::{Applies, Effect, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Cache, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "memory_cache_enabled", kind: Kind::Bool, default: "off", applies: Applies::AtStart,
        set: |c, _, v| c.cache.enabled = v.bool(),
        help: "Answer repeated queries from memory, as long as what they read has not changed.", ..BUILT },
    Param { name: "memqcache_method", kind: Kind::Enum { values: &["shmem", "memcached"], also: &[] }, default: "shmem", applies: Applies::AtStart,
        set: |c, _, v| c.cache.in_memory = v.word() == "shmem",
        help: "Where results are kept: in our memory. memcached is not built yet: with it nothing is kept.", ..BUILT },
    Param { name: "memqcache_memcached_host", kind: Kind::Text, default: "localhost", applies: Applies::AtStart,
        help: "Host of memcached.", ..ROW },
    Param { name: "memqcache_memcached_port", kind: Kind::Int { min: 0, max: 65535 }, default: "11211", applies: Applies::AtStart,
        help: "Port of memcached.", ..ROW },
    Param { name: "memqcache_total_size", kind: Kind::Bytes { min: 0, max: i64::MAX }, default: "64MB", applies: Applies::AtStart,
        set: |c, _, v| c.cache.total_bytes = v.bytes(),
        help: "Memory for results.", ..BUILT },
    Param { name: "memqcache_max_num_cache", kind: Kind::Int { min: 0, max: INT_MAX }, default: "1000000", applies: Applies::AtStart,
        set: |c, _, v| c.cache.answers_max = v.count(),
        help: "Most results kept.", ..BUILT },
    Param { name: "memqcache_expire", kind: Kind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: Applies::AtStart,
        set: |c, _, v| c.cache.expire_ms = v.millis(),
        help: "Life of a result. 0: until one of its tables changes.", ..BUILT },
    Param { name: "memqcache_auto_cache_invalidation", kind: Kind::Bool, default: "on", applies: Applies::OnReload,
        set: |c, _, v| c.cache.follows_writes = v.bool(),
        help: "Drop the results of a table that changes.", ..BUILT },
    Param { name: "memqcache_invalidation", kind: Kind::Enum { values: &["proxy", "wal"], also: &[] }, default: "proxy", applies: Applies::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.cache.follows_wal = v.word() == "wal",
        help: "Which writes make results untrue. proxy: those through this Weir. wal: all that the primary commits, which Weir then follows by logical replication; wal_level must be logical, and sr_check_user must have REPLICATION.", ..BUILT },
    Param { name: "memqcache_publication", kind: Kind::Text, default: "", applies: Applies::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.cache.publication = v.text(),
        help: "Publication FOR ALL TABLES by which the plugin pgoutput tells of writes. Empty: the plugin test_decoding does, which needs none. With a publication, PostgreSQL refuses UPDATE and DELETE on tables without a primary key or other replica identity.", ..BUILT },
    Param { name: "memqcache_freshness", kind: Kind::Enum { values: &["causal", "primary"], also: &[] }, default: "causal", applies: Applies::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.cache.is_exact = v.word() == "primary",
        help: "With memqcache_invalidation = wal: what a result from memory must show of writes past this Weir. causal: what causal_reads says. primary: all that the primary had when the statement came; each such statement waits about a millisecond until Weir knows.", ..BUILT },
    Param { name: "memqcache_lag_max", kind: Kind::Millis { min: 10, max: 3_600_000 }, default: "1000", applies: Applies::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.cache.lag_ms_max = v.millis(),
        help: "With memqcache_invalidation = wal: no result from memory is older than this, whatever is written past this Weir. When the log is taken in more slowly, servers answer.", ..BUILT },
    Param { name: "memqcache_maxcache", kind: Kind::Bytes { min: 0, max: INT_MAX }, default: "400kB", applies: Applies::AtStart,
        set: |c, _, v| c.cache.answer_bytes_max = v.bytes(),
        help: "Largest result that is kept.", ..BUILT },
    Param { name: "memqcache_cache_block_size", kind: Kind::Bytes { min: 512, max: INT_MAX }, default: "1MB", applies: Applies::AtStart,
        help: "Size of the blocks results are kept in.", ..ROW },
    Param { name: "memqcache_oiddir", kind: Kind::Text, default: "/var/log/pgpool/oiddir", applies: Applies::AtStart,
        help: "Directory of the files that say which result reads which table.", ..ROW },
    Param { name: "cache_safe_memqcache_table_list", kind: Kind::List { separator: ',' }, default: "", applies: Applies::OnReload,
        set: |c, _, v| c.cache.safe_tables = v.list(),
        help: "Unlogged and foreign tables, and views on such, whose results may be kept all the same, with commas between them.", ..BUILT },
    Param { name: "cache_unsafe_memqcache_table_list", kind: Kind::List { separator: ',' }, default: "", applies: Applies::OnReload,
        set: |c, _, v| c.cache.unsafe_tables = v.list(),
        help: "Tables whose results are never kept, with commas between them; goes before the safe list.", ..BUILT },
];
