//! Parameters that Pgpool-II does not have.
use crate::CausalReads;
use crate::{IoMethod, PoolMode, SequenceSessions, SigintStop, UnnamedStatements};

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind, ParamLikeness};
use crate::visibility::ValueVisibility::Everyone;

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Weir, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };
const ALIKE: ConfigParam = ConfigParam { likeness: ParamLikeness::Alike, ..BUILT };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "pool_mode", kind: ParamKind::Enum { values: &["transaction", "session", "statement"], also: &[] }, default: "transaction", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.mode = PoolMode::from_word(v.word()),
        help: "When a client gives its server connection back: after each transaction, when it disconnects, or after each statement (transactions of several statements are then refused).", ..ALIKE },
    ConfigParam { name: "sequence_sessions", kind: ParamKind::Enum { values: &["prefer", "pin"], also: &[] }, default: "prefer", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.sequences = SequenceSessions::from_word(v.word()),
        help: "The connection on which a session may have drawn from a sequence: the session gets it again for its next draw, currval or lastval while it is free (prefer), or keeps it until it ends or runs DISCARD ALL (pin).", ..ALIKE },
    ConfigParam { name: "max_client_connections", kind: ParamKind::Int { min: 1, max: 1_000_000 }, default: "10000", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.max_clients = v.count(),
        help: "Clients that may be connected at once. Idle ones cost memory, not server connections.", ..BUILT },
    ConfigParam { name: "pool_size", kind: ParamKind::Int { min: 0, max: 1_000_000 }, default: "0", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.size = v.count(),
        help: "Server connections for one user and database on one node. 0: num_init_children.", ..BUILT },
    ConfigParam { name: "pool_wait_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "120", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.wait_timeout_ms = v.millis(),
        help: "Time a client waits for a server connection before it gets an error that names the limit. 0: for ever.", ..BUILT },
    ConfigParam { name: "worker_threads", kind: ParamKind::Int { min: 0, max: 1024 }, default: "0", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.worker_threads = v.count(),
        help: "Threads that move data. 0: half of the cores, at least 1.", ..BUILT },
    ConfigParam { name: "worker_scheduling", kind: ParamKind::Enum { values: &["batch", "normal"], also: &[] }, default: "batch", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.worker_yields = v.word() == "batch",
        help: "How workers get a busy processor. batch: one that is woken lets whoever runs go on, so that what comes meanwhile is served together: less work for each statement. Not while programs that compute for long make it wait. normal: it takes its turn at once. Where a processor is free there is no difference.", ..BUILT },
    ConfigParam { name: "sigint_stop", kind: ParamKind::Enum { values: &["fast", "wait_for_servers"], also: &[] }, default: "fast", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.sigint_stop = SigintStop::from_word(v.word()),
        help: "How SIGINT ends Weir. fast: clients are told and disconnected, as with Pgpool-II. wait_for_servers: transactions end first, as with PgBouncer; a second signal ends at once.", ..BUILT },
    ConfigParam { name: "io_method", kind: ParamKind::Enum { values: &["auto", "io_uring", "epoll"], also: &[] }, default: "auto", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.io_method = IoMethod::from_word(v.word()),
        help: "System calls that serve connections. auto: io_uring where the kernel has it (Linux 6.1) and allows it, else epoll. io_uring costs less.", ..BUILT },
    ConfigParam { name: "prepared_statements_max", kind: ParamKind::Int { min: 1, max: 1_000_000 }, default: "500", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.prepared_max = v.count(),
        help: "Prepared statements kept on one server connection; the one unused for longest makes room.", ..BUILT },
    ConfigParam { name: "unnamed_statements", kind: ParamKind::Enum { values: &["pass", "reuse", "reuse_plans"], also: &[] }, default: "reuse", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.unnamed = UnnamedStatements::from_word(v.word()),
        help: "Parses without a name, outside of transactions. pass: each is sent. reuse: a text that comes again is kept on the server connection, and parsed anew for each fifth set of values, so that plans are made for the values as ever. reuse_plans: the server may choose one plan for all values after five, as for a prepared statement (plan_cache_mode).", ..ALIKE },
    ConfigParam { name: "statement_analysis_max", kind: ParamKind::Bytes { min: 0, max: 1 << 30 }, default: "256kB", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.statement_analysis_bytes_max = v.bytes(),
        help: "Longest statement that is analysed; a longer one goes to the primary.", ..BUILT },
    ConfigParam { name: "statement_statistics_max", kind: ParamKind::Int { min: 0, max: 50_000 }, default: "0", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.statement_statistics_max = v.count(),
        help: "Statements that each worker counts for SHOW pool_statements, by text without literals, user and database: 300 bytes each, and the text up to 1 kB. The least used make room. 0: none are counted; 1000 is enough for most.", ..BUILT },
    ConfigParam { name: "causal_reads", kind: ParamKind::Enum { values: &CausalReads::WORDS, also: &[] }, default: "tables", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.causal = CausalReads::of_word(v.word()).unwrap_or_default(),
        help: "Which commits a read shows, whichever server answers. off: those that the standby happens to have replayed. session: also what the client wrote and has read before. tables: also what any client of this Weir was told to have written to the relations that the read shows. global: also everything that any client of this Weir was told before. A client may SET weir.causal_reads for itself.", ..ALIKE },
    ConfigParam { name: "causal_wait", kind: ParamKind::Millis { min: 0, max: 60_000 }, default: "20", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.causal_wait_ms = v.millis(),
        help: "How long a read waits for a standby to replay what its client must see, before the primary answers. A standby that has lagged for longer is not waited for.", ..ALIKE },
    ConfigParam { name: "causal_sample_period", kind: ParamKind::Millis { min: 1, max: 10_000 }, default: "10", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.causal_period_ms = v.millis(),
        help: "Time between two questions to the servers for their WAL positions, while statements run. A read that waits has them asked at once.", ..BUILT },
    ConfigParam { name: "zone", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.routing.zone = v.text(),
        help: "Where this Weir is, as backend_zone says it of nodes: reads stay with the nodes of this zone as long as one of them may answer. Empty: zones do not count.", ..BUILT },
    ConfigParam { name: "server_idle_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "600", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.pool.server_idle_timeout_ms = v.millis(),
        help: "Time after which an unused server connection is closed. 0: never.", ..BUILT },
    ConfigParam { name: "memory_buffer_size", kind: ParamKind::Bytes { min: 4096, max: 1 << 20 }, default: "32kB", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.memory_buffer_bytes = v.bytes(),
        help: "Memory that holds a message while it moves; longer messages move in parts.", ..BUILT },
];
