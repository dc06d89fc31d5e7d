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
