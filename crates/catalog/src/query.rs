//! Catalog queries, all in one transaction, so that the parts fit together.
//!
//! Names are not qualified: only for Weir's own connections with `search_path = pg_catalog, pg_temp`
//! (`weir::auth::own_login`). The type `CatalogQuery` keeps other callers from sending them.

use super::draft::{CatalogDraft, Cells, DraftError};
use super::unseen::REACH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogQuery {
    Fingerprint,
    Defaults,
    Answers,
    /// In a sharded database (`parallel_mode`).
    ShardReaders,
    /// Index into `PARTS`.
    Part(usize),
}

impl CatalogQuery {
    pub fn all() -> impl Iterator<Item = CatalogQuery> {
        let parts = (0..PARTS.len()).map(CatalogQuery::Part);
        let single = [CatalogQuery::Fingerprint, CatalogQuery::Defaults, CatalogQuery::Answers, CatalogQuery::ShardReaders];
        single.into_iter().chain(parts)
    }

    pub fn sql(self) -> &'static str {
        match self {
            CatalogQuery::Fingerprint => FINGERPRINT,
            CatalogQuery::Defaults => DEFAULTS_FINGERPRINT,
            CatalogQuery::Answers => ANSWERS_FINGERPRINT,
            CatalogQuery::ShardReaders => SHARD_READERS,
            CatalogQuery::Part(at) => PARTS.get(at).map_or("", |part| part.sql),
        }
    }
}

pub struct CatalogPart {
    pub sql: &'static str,
    pub(super) take: fn(&mut CatalogDraft, &Cells<'_>) -> Result<(), DraftError>,
}

/// Objects that a stored expression uses, by the labels of its nodes (outfuncs.c). Exact and complete: names are
/// resolved, implicit casts are calls. Users' strings are bytes there. Of types only users' and those that show a name
/// (`CONTENTS`).
macro_rules! used_in {
    ($tree:literal) => {
        concat!(
            "LATERAL regexp_matches(",
            $tree,
            "::text, ':((?:funcid|aggfnoid|winfnoid|opno|eqop|sortop|relid|tsmhandler) [1-9][0-9]*|(?:const|result|funcresult)type (?:[1-9][0-9]{4,}|2205|2210|4096|4097)|opnos \\(o[0-9 ]*\\)|rowMarks \\(\\{)', 'g') AS m (found)"
        )
    };
}

/// Ordered: each row refers only to OIDs of earlier rows.
pub const PARTS: &[CatalogPart] = &[
    CatalogPart { sql: "SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'", take: CatalogDraft::schema },
    // An aggregate calls itself immutable, so its parts are judged. A stable function in C reads no tables. A function
    // that reads a sequence finds another value on a standby: seen in its source or dependencies. Defaults of arguments
    // may return the time. `regclass` and `regrole` depend on names, `time` and `timetz` on today's zone (AT TIME
    // ZONE). Last column: callable like a column, `t.f` for `f(t)`.
    CatalogPart {
        sql: "SELECT p.oid, p.pronamespace, p.proname, CASE WHEN p.oid >= 16384 AND p.provolatile <> 'v' AND (p.prosrc ~* \
              '\\m(log_cnt|is_called|pg_sequence_last_value|pg_sequences)\\M|\\mlast_value\\M(?!\\s*\\()' \
              OR EXISTS (SELECT FROM pg_depend d JOIN pg_class c ON c.oid = d.refobjid AND c.relkind = 'S' \
              WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass) \
              OR EXISTS (SELECT FROM regexp_matches(p.proargdefaults::text, ':(?:funcid|opfuncid) ([1-9][0-9]*)', 'g') AS m (f) \
              JOIN pg_proc f ON f.oid = m.f[1]::oid WHERE f.provolatile = 'v')) THEN 't' \
              ELSE CASE greatest(p.provolatile::text, CASE WHEN p.prokind = 'a' THEN (SELECT max(f.provolatile::text) FROM pg_aggregate a \
              JOIN pg_proc f ON f.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, \
              a.aggminvtransfn, a.aggmfinalfn) WHERE a.aggfnoid = p.oid) END, \
              CASE WHEN p.oid >= 16384 AND (p.proargdefaults::text ~ '\\{(SQLVALUEFUNCTION|COERCEVIAIO|NEXTVALUEEXPR)' \
              OR EXISTS (SELECT FROM regexp_matches(p.proargdefaults::text, ':(?:funcid|opfuncid) ([1-9][0-9]*)', 'g') AS m (f) \
              JOIN pg_proc f ON f.oid = m.f[1]::oid WHERE f.provolatile <> 'i') \
              OR k.of_today) OR k.of_names THEN 's' END) WHEN 'v' THEN 't' WHEN 'i' THEN 'i' \
              ELSE CASE WHEN p.prolang IN (12, 13) AND p.prokind <> 'a' AND NOT k.of_today AND NOT k.of_names THEN 'c' ELSE 'f' END END END, \
              p.oid >= 16384 AND p.pronargs > 0 AND (p.pronargs - p.pronargdefaults < 2 OR p.provariadic <> 0) \
              AND EXISTS (SELECT FROM pg_type t WHERE t.oid = p.proargtypes[0] AND (t.typtype IN ('c', 'd', 'p') \
              OR EXISTS (SELECT FROM pg_cast c JOIN pg_type s ON s.oid = c.castsource \
              WHERE c.oid >= 16384 AND c.casttarget = t.oid AND c.castcontext = 'i' AND s.typtype = 'c'))) \
              FROM pg_proc p, LATERAL (SELECT p.prorettype || p.proargtypes::oid[] || p.proallargtypes) AS a (types), \
              LATERAL (SELECT a.types && '{1083,1183,1266,1270}', a.types && '{2205,2210,4096,4097}') AS k (of_today, of_names) WHERE p.prokind <> 'p'",
        take: CatalogDraft::function,
    },
    // A session's temporary tables keep it on the primary.
    CatalogPart {
        sql: "SELECT c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence FROM pg_class c \
              WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't' \
              AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))",
        take: CatalogDraft::relation,
    },
    CatalogPart {
        sql: "SELECT oid, oprnamespace, oprname, oprcode::oid, oprleft < 16384 AND oprright < 16384 FROM pg_operator WHERE oid >= 16384",
        take: CatalogDraft::operator,
    },
    CatalogPart {
        sql: "SELECT t.typnamespace, t.typname, c.castfunc::oid, c.castcontext FROM pg_cast c JOIN pg_type t ON t.oid = c.casttarget \
              WHERE c.castfunc::oid >= 16384",
        take: CatalogDraft::cast,
    },
    CatalogPart {
        sql: "WITH RECURSIVE up (oid, kind, persistence) AS (SELECT i.inhparent, c.relkind, c.relpersistence \
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
              WHERE c.relkind = 'f' OR (c.relkind IN ('r', 'p') AND c.relpersistence = 'u') \
              UNION SELECT i.inhparent, up.kind, up.persistence FROM pg_inherits i JOIN up ON up.oid = i.inhrelid) \
              SELECT oid, kind, persistence FROM up",
        take: CatalogDraft::parent,
    },
    CatalogPart {
        sql: concat!(
            "SELECT r.ev_class, string_agg(DISTINCT m.found[1], ',') FROM pg_rewrite r \
             JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v', ",
            used_in!("r.ev_action"),
            " WHERE r.ev_type = '1' AND r.ev_class >= 16384 GROUP BY r.ev_class"
        ),
        take: CatalogDraft::expression,
    },
    // All policies count, although they may not bind the table's owner.
    CatalogPart {
        sql: concat!(
            "SELECT p.polrelid, string_agg(DISTINCT m.found[1], ',') FROM pg_policy p \
             JOIN pg_class c ON c.oid = p.polrelid AND c.relrowsecurity, ",
            used_in!("p.polqual"),
            " WHERE p.polcmd IN ('r', '*') GROUP BY p.polrelid"
        ),
        take: CatalogDraft::expression,
    },
    CatalogPart {
        sql: "SELECT coalesce(r.rolname, ''), s.setdatabase <> 0, substr(c.entry, 13) \
              FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c (entry) \
              WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
              AND c.entry LIKE 'search\\_path=%' AND (s.setrole = 0 OR r.rolname IS NOT NULL)",
        take: CatalogDraft::default_path,
    },
    CatalogPart { sql: "SELECT session_user, reset_val FROM pg_settings WHERE name = 'search_path'", take: CatalogDraft::asked },
    CatalogPart {
        sql: "SELECT i.inhparent, i.inhrelid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relkind IN ('r', 'p', 'f')",
        take: CatalogDraft::child,
    },
    CatalogPart {
        sql: "SELECT DISTINCT confrelid, conrelid FROM pg_constraint WHERE contype = 'f' \
              AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))",
        take: CatalogDraft::referring,
    },
    CatalogPart { sql: CONTENTS, take: CatalogDraft::contents },
    CatalogPart {
        sql: "SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'default_transaction_isolation' AND reset_val = 'serializable') \
              OR EXISTS (SELECT FROM pg_db_role_setting s, unnest(s.setconfig) AS c (entry) WHERE c.entry ~ '^default_transaction_isolation=')",
        take: CatalogDraft::isolation,
    },
    CatalogPart {
        sql: "SELECT coalesce(r.rolname, ''), s.setdatabase <> 0, m.part[1], m.part[2] \
              FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c (entry), \
              LATERAL regexp_matches(c.entry, '^(default_transaction_isolation|idle_in_transaction_session_timeout|transaction_timeout)=(.*)$') AS m (part) \
              WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
              AND (s.setrole = 0 OR r.rolname IS NOT NULL)",
        take: CatalogDraft::default_of_transactions,
    },
    CatalogPart {
        sql: "SELECT session_user, name, reset_val FROM pg_settings \
              WHERE name IN ('default_transaction_isolation', 'idle_in_transaction_session_timeout', 'transaction_timeout')",
        take: CatalogDraft::asked_of_transactions,
    },
    // A refresh writes rows of tables that it does not name.
    CatalogPart {
        sql: concat!(
            "SELECT r.ev_class, string_agg(DISTINCT m.found[1], ',') FROM pg_rewrite r \
             JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'm', ",
            used_in!("r.ev_action"),
            " WHERE r.ev_type = '1' GROUP BY r.ev_class"
        ),
        take: CatalogDraft::refresh,
    },
    // Only where functions may run unseen. Too long a source comes empty: it may do anything.
    CatalogPart {
        sql: "SELECT p.proname, l.lanname, CASE WHEN octet_length(p.prosrc) > 12000 THEN '' ELSE p.prosrc END \
              FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid >= 16384 AND l.lanname NOT IN ('c', 'internal') \
              AND (EXISTS (SELECT FROM pg_trigger WHERE tgenabled <> 'D' AND tgfoid >= 16384) \
              OR EXISTS (SELECT FROM pg_event_trigger WHERE evtenabled <> 'D') \
              OR EXISTS (SELECT FROM pg_depend d JOIN pg_proc f ON f.oid = d.refobjid JOIN pg_language m ON m.oid = f.prolang \
              WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid >= 16384 AND (m.lanname NOT IN ('c', 'internal') OR d.classid IN \
              ('pg_rewrite'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_policy'::regclass))) \
              OR EXISTS (SELECT FROM pg_type t WHERE t.typdefaultbin IS NOT NULL AND t.oid >= 16384) \
              OR EXISTS (SELECT FROM pg_constraint c WHERE c.contypid >= 16384 AND c.conbin IS NOT NULL) \
              OR EXISTS (SELECT FROM pg_proc f JOIN pg_language m ON m.oid = f.prolang WHERE f.oid >= 16384 AND m.lanname NOT IN ('c', 'internal') \
              AND (f.proname ~ '^(pg|txid|lo|brin|inet|has)_' OR EXISTS (SELECT FROM pg_proc o WHERE o.proname = f.proname AND o.oid < 16384) \
              OR EXISTS (SELECT FROM pg_type t WHERE t.oid = f.proargtypes[0] AND t.typtype IN ('c', 'd', 'p')))))",
        take: CatalogDraft::source,
    },
    // Functions that run with writes (w) or reads (r) of a relation, or any definition (d). Something asks for drawn
    // sequence values (s), a view draws or asks (v). PostgreSQL's own functions have no dependencies: expressions are
    // searched for those that leave something. Login triggers run before a client has the connection. Extensions'
    // functions in C (c) may act outside of the database.
    CatalogPart {
        sql: "WITH own (pattern) AS MATERIALIZED (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM pg_proc \
              WHERE oid < 16384 AND proname IN ('set_config', 'pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_try_advisory_lock', \
              'pg_try_advisory_lock_shared', 'setseed')), \
              asks (pattern) AS MATERIALIZED (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM pg_proc \
              WHERE oid < 16384 AND proname IN ('currval', 'lastval')), \
              uses (class, object, function) AS (SELECT d.classid, d.objid, p.proname FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid \
              WHERE d.refclassid = 'pg_proc'::regclass AND p.oid >= 16384), \
              draws (pattern) AS MATERIALIZED (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM pg_proc \
              WHERE oid < 16384 AND proname IN ('nextval', 'setval', 'currval', 'lastval')), \
              rules (oid, how, relation, sets, draws) AS MATERIALIZED (SELECT r.oid, \
              CASE WHEN r.ev_type = '1' AND c.relkind <> 'm' THEN 'r' ELSE 'w' END, r.ev_class, \
              r.ev_action::text ~ own.pattern, r.ev_action::text ~ draws.pattern \
              FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class, own, draws WHERE r.ev_class >= 16384), \
              checks (relation, oid) AS (SELECT conrelid, oid FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0 \
              UNION ALL SELECT a.attrelid, c.oid FROM pg_constraint c JOIN pg_attribute a ON a.atttypid = c.contypid \
              WHERE c.contypid <> 0 AND a.attnum > 0) \
              SELECT 'w', t.tgrelid, p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid \
              WHERE t.tgenabled <> 'D' AND t.tgfoid >= 16384 \
              UNION SELECT 'w', t.tgrelid, u.function FROM pg_trigger t JOIN uses u ON u.class = 'pg_trigger'::regclass AND u.object = t.oid \
              WHERE t.tgenabled <> 'D' \
              UNION SELECT 'd', 0, p.proname FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid \
              WHERE e.evtenabled <> 'D' AND e.evtevent <> 'login' \
              UNION SELECT r.how, r.relation, u.function FROM rules r JOIN uses u ON u.class = 'pg_rewrite'::regclass AND u.object = r.oid \
              UNION SELECT r.how, r.relation, 'set_config' FROM rules r WHERE r.sets \
              UNION SELECT 'w', ev_class, '' FROM pg_rewrite WHERE ev_type <> '1' AND ev_class >= 16384 \
              UNION SELECT 'w', a.adrelid, u.function FROM pg_attrdef a JOIN uses u ON u.class = 'pg_attrdef'::regclass AND u.object = a.oid \
              UNION SELECT 'w', a.adrelid, 'set_config' FROM pg_attrdef a, own WHERE a.adbin::text ~ own.pattern \
              UNION SELECT 'w', c.relation, u.function FROM checks c JOIN uses u ON u.class = 'pg_constraint'::regclass AND u.object = c.oid \
              UNION SELECT w.how, o.polrelid, u.function FROM pg_policy o JOIN uses u ON u.class = 'pg_policy'::regclass AND u.object = o.oid, \
              (VALUES ('r'), ('w')) AS w (how) \
              UNION SELECT 'c', 0, p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
              WHERE p.oid >= 16384 AND l.lanname IN ('c', 'internal') \
              UNION SELECT 's', 0, '' FROM asks WHERE EXISTS (SELECT FROM pg_proc p WHERE p.oid >= 16384 \
              AND p.pronamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname = 'weir_shard') AND (p.prosrc ~* '\\m(currval|lastval)\\M' \
              OR (p.prosrc = '' AND p.prolang = 14 AND to_jsonb(p) ->> 'prosqlbody' ~ asks.pattern))) \
              OR EXISTS (SELECT FROM pg_attrdef WHERE adbin::text ~ asks.pattern) \
              UNION SELECT 'v', 0, '' WHERE EXISTS (SELECT FROM rules WHERE draws) OR EXISTS (SELECT FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid \
              WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_policy'::regclass) AND d.refclassid = 'pg_proc'::regclass AND p.oid >= 16384 AND p.provolatile = 'v')",
        take: CatalogDraft::hidden,
    },
    CatalogPart { sql: REACH, take: CatalogDraft::reach },
];

/// Properties of relations and types, in one query, so that columns and types are scanned once.
///
/// - `w`: a write may do anything: users' triggers, rules, defaults, checks. Up to version 14 a partition's copies of
///   triggers count as internal, like those of foreign keys.
/// - `f`: rows depend on the user or the moment: policies; views with the time, the user, dates from texts, or system
///   columns that a row lock changes; columns of `coded` types.
/// - `t`: a column of type `time`.
/// - `c`: the type (OID, name) is `coded`: making or sorting values runs a user's function that is not immutable, by a
///   domain's check or an operator class. So are arrays, rows, ranges and domains of coded types; `timetz` (1266,
///   1270), whose text depends on today's date; `regclass` and `regrole` (2205, 4096; 2210, 4097), whose texts depend
///   on names that are not watched. Arrays and rows are looked at only if such a type is in use, which is rare.
/// - `p`: the function takes, returns or is made of a coded type.
/// - `v`: some type runs a volatile function, or any statement may run one that is not immutable, by an operator class
///   over a type of PostgreSQL's own.
///
/// Operator classes: only functions that are not immutable count, and none that takes an `internal` (2281), since it is
/// C of an access method. Stable ones count only in btree (403) and hash (405), which sort and group; other methods
/// serve operators that the text names (`%` of pg_trgm). A binary coercible type has the other type's classes:
/// `GetDefaultOpClass` in indexcmds.c.
const CONTENTS: &str = "WITH RECURSIVE columns (relation, type) AS MATERIALIZED (SELECT attrelid, atttypid FROM pg_attribute \
    WHERE attnum > 0 AND attrelid >= 16384 AND (atttypid >= 16384 OR atttypid IN (1083, 1183, 1266, 1270, 2205, 2210, 4096, 4097))), \
    domains (type, base, initial) AS MATERIALIZED (SELECT oid, typbasetype, typdefaultbin::text FROM pg_type WHERE typtype = 'd' AND oid >= 16384), \
    guarded (oid, kind, by_row) AS MATERIALIZED (SELECT oid, relkind, relrowsecurity FROM pg_class WHERE relkind = 'f' OR relrowsecurity), \
    classes (type, function, method) AS (SELECT t.type, a.function, a.method FROM (SELECT a.amproc::oid, a.amproclefttype, a.amprocrighttype, f.opfmethod \
    FROM pg_amproc a JOIN pg_opfamily f ON f.oid = a.amprocfamily WHERE a.amproc::oid >= 16384 \
    UNION ALL SELECT o.oprcode::oid, a.amoplefttype, a.amoprighttype, a.amopmethod FROM pg_amop a JOIN pg_operator o ON o.oid = a.amopopr WHERE o.oprcode::oid >= 16384) \
    AS a (function, one, other, method), LATERAL (VALUES (a.one), (a.other)) AS t (type)), \
    runs (type, volatility) AS MATERIALIZED (SELECT c.type, p.provolatile FROM classes c JOIN pg_proc p ON p.oid = c.function \
    WHERE (p.provolatile = 'v' OR (p.provolatile = 's' AND c.method IN (403, 405))) AND 2281 <> ALL (p.proargtypes::oid[]) \
    UNION SELECT d.contypid, p.provolatile FROM pg_constraint d, LATERAL regexp_matches(d.conbin::text, ':(?:funcid|opfuncid) ([0-9]{5,})', 'g') AS m (f) \
    JOIN pg_proc p ON p.oid = m.f[1]::oid WHERE d.contypid <> 0 AND p.oid >= 16384 AND p.provolatile <> 'i'), \
    sources (type) AS MATERIALIZED (SELECT type::oid FROM (VALUES (1266), (1270), (2205), (2210), (4096), (4097)) AS v (type) \
    UNION SELECT type FROM runs WHERE type >= 16384), \
    used (is_any) AS MATERIALIZED (SELECT EXISTS (SELECT FROM sources WHERE type >= 16384) OR EXISTS (SELECT FROM columns JOIN sources USING (type)) \
    OR EXISTS (SELECT FROM domains JOIN sources ON sources.type = base) OR EXISTS (SELECT FROM pg_range JOIN sources ON type = rngsubtype)), \
    alike (type, part) AS (SELECT castsource, casttarget FROM pg_cast WHERE castmethod = 'b' AND casttarget >= 16384), \
    parts (type, part) AS MATERIALIZED (SELECT type, base FROM domains UNION SELECT type, part FROM alike WHERE type >= 16384 \
    UNION SELECT oid, typelem FROM pg_type WHERE typelem >= 16384 AND (SELECT is_any FROM used) \
    UNION SELECT c.reltype, a.type FROM columns a JOIN pg_class c ON c.oid = a.relation WHERE c.reltype <> 0 AND (SELECT is_any FROM used) \
    UNION SELECT rngtypid, rngsubtype FROM pg_range \
    UNION SELECT (to_jsonb(r) ->> 'rngmultitypid')::oid, rngtypid FROM pg_range r WHERE to_jsonb(r) ? 'rngmultitypid' \
    UNION SELECT d.contypid, m.t[1]::oid FROM pg_constraint d, \
    LATERAL regexp_matches(d.conbin::text, ':resulttype ([1-9][0-9]{4,})', 'g') AS m (t) WHERE d.contypid <> 0), \
    coded (type) AS (SELECT type FROM sources UNION SELECT parts.type FROM coded k JOIN parts ON parts.part = k.type), \
    made (type) AS MATERIALIZED (SELECT type FROM coded WHERE type >= 16384), \
    called (function, type) AS (SELECT p.oid, t.type FROM pg_proc p, unnest(p.prorettype || p.proargtypes::oid[] || p.proallargtypes) AS t (type) WHERE p.oid >= 16384 AND EXISTS (SELECT FROM made) \
    UNION ALL SELECT a.aggfnoid::oid, t.type FROM pg_aggregate a, LATERAL (VALUES (a.aggtranstype), (a.aggmtranstype)) AS t (type) WHERE a.aggfnoid::oid >= 16384 AND EXISTS (SELECT FROM made) \
    UNION ALL SELECT p.oid, m.t[1]::oid FROM pg_proc p, LATERAL regexp_matches(p.proargdefaults::text, ':resulttype ([1-9][0-9]{4,})', 'g') AS m (t) WHERE p.oid >= 16384 AND EXISTS (SELECT FROM made)), \
    trees (relation, tree) AS (SELECT adrelid, adbin::text FROM pg_attrdef \
    UNION ALL SELECT conrelid, conbin::text FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0 \
    UNION ALL SELECT a.relation, d.initial FROM columns a JOIN domains d ON d.type = a.type WHERE d.initial IS NOT NULL) \
    SELECT 'w', tgrelid, NULL FROM pg_trigger WHERE tgenabled <> 'D' AND tgfoid >= 16384 \
    UNION SELECT 'w', ev_class, NULL FROM pg_rewrite WHERE ev_type <> '1' AND ev_class >= 16384 \
    UNION SELECT 'w', oid, NULL FROM guarded \
    UNION SELECT 'w', e.relation, NULL FROM trees e, LATERAL regexp_matches(e.tree, ':(?:funcid|opfuncid) ([0-9]{5,})', 'g') AS m (f) \
    JOIN pg_proc p ON p.oid = m.f[1]::oid WHERE p.oid >= 16384 AND p.provolatile = 'v' \
    UNION SELECT 'f', oid, NULL FROM guarded WHERE by_row \
    UNION SELECT 'f', ev_class, NULL FROM pg_rewrite WHERE ev_type = '1' AND ev_class >= 16384 \
    AND (ev_action::text ~ '\\{(SQLVALUEFUNCTION|TABLEFUNC|XMLEXPR|JSONEXPR|TABLESAMPLECLAUSE|NEXTVALUEEXPR)|:varattno -[1345] ' \
    OR (ev_action::text ~ '\\{COERCEVIAIO' AND ev_action::text ~ ':resulttype (1082|1083|1114|1184|1266|2202|2203|2204|2205|2206|4089|4096|24|[0-9]{5,}) ')) \
    UNION SELECT 'f', a.relation, NULL FROM columns a JOIN coded k ON k.type = a.type \
    UNION SELECT 't', relation, NULL FROM columns WHERE type IN (1083, 1183) \
    UNION SELECT 'c', k.type, (SELECT typname FROM pg_type WHERE oid = k.type) FROM coded k \
    UNION SELECT 'p', c.function, NULL FROM called c JOIN made k ON k.type = c.type \
    UNION SELECT 'v', 0, NULL WHERE EXISTS (SELECT FROM runs r WHERE r.volatility = 'v' OR r.type < 16384 \
    OR r.type IN (SELECT part FROM alike WHERE type < 16384))";

/// One row that changes with everything `PARTS` ask for.
///
/// Tables count by columns, not by row version, which TRUNCATE changes too. A quarter of a second for 100,000 tables
/// and 50,000 functions, so a slow one is asked less often. Detaching a partition first gives its row a new version,
/// then removes it.
const FINGERPRINT: &str = "SELECT concat_ws(' ', \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, xmin)))) FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_proc), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', relnamespace, relkind, relpersistence, relrowsecurity, relnatts, ' ', relname)))) \
     FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relpersistence <> 't'), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_operator WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_cast WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_amproc WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_amop WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(inhrelid, ' ', inhparent, ' ', xmin)))) FROM pg_inherits), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_rewrite), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', tgenabled, ' ', tgfoid)))) FROM pg_trigger WHERE tgfoid >= 16384 OR tgqual IS NOT NULL), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(d.objid, ' ', d.objsubid, ' ', d.refobjid)))) FROM pg_depend d JOIN pg_class c ON c.oid = d.objid \
     WHERE d.refclassid IN ('pg_type'::regclass, 'pg_proc'::regclass) AND d.refobjid >= 16384 AND d.classid = 'pg_class'::regclass AND c.relpersistence <> 't'), \
    (SELECT concat(count(*), '/', sum(hashtext(indexrelid::text))) FROM pg_index WHERE (indexprs IS NOT NULL OR indpred IS NOT NULL) AND indexrelid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_event_trigger), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_constraint WHERE contype IN ('c', 'f')), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_attrdef), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_type WHERE typtype = 'd' AND oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(rngtypid, ' ', rngsubtype)))) FROM pg_range WHERE rngtypid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_policy), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(setdatabase, ' ', setrole, ' ', xmin)))) FROM pg_db_role_setting), \
    (SELECT string_agg(reset_val, ' ' ORDER BY name) FROM pg_settings \
     WHERE name IN ('search_path', 'default_transaction_isolation', 'idle_in_transaction_session_timeout', 'transaction_timeout')))";

const DEFAULTS_FINGERPRINT: &str = "SELECT concat(count(*), '/', sum(hashtext(concat(setdatabase, ' ', setrole, ' ', xmin)))) FROM pg_db_role_setting \
     WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// Count and sum of row versions. While the count stays, a changed row is younger than all, so the sum grows.
macro_rules! versions {
    ($of:literal) => {
        concat!("(SELECT concat(count(*), '/', sum(xmin::text::bigint)) FROM ", $of, ")")
    };
}

/// One row for the query cache: the users' types of columns, which belong to `FINGERPRINT`; and versions of all else
/// that results depend on: columns, rights, types, text search, roles, configured defaults.
///
/// Temporary tables and roles without rights come and go and are left out. Costs some times `FINGERPRINT`: 0.17 s with
/// 20,000 tables of 10 columns.
const ANSWERS_FINGERPRINT: &str = concat!(
    "SELECT a.kinds, concat_ws(' ', a.versions, \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', relowner, ' ', relforcerowsecurity, ' ', relname, ' ', reloptions, ' ', relacl)))) \
     FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'c') AND relpersistence <> 't'), ",
    versions!(
        "pg_type WHERE typrelid = 0 AND oid >= 16384 AND typnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_temp')"
    ),
    ", ",
    versions!("pg_enum"),
    ", ",
    versions!("pg_collation WHERE oid >= 16384"),
    ", ",
    versions!("pg_ts_config"),
    ", ",
    versions!("pg_ts_config_map"),
    ", ",
    versions!("pg_ts_dict"),
    ", ",
    versions!("pg_auth_members"),
    ", (SELECT sum(hashtext(concat(oid, ' ', rolsuper, rolinherit, rolbypassrls))) FROM pg_roles \
     WHERE rolsuper OR rolbypassrls OR oid IN (SELECT member FROM pg_auth_members)), pg_conf_load_time()) \
     FROM (SELECT concat(count(*), '/', sum(a.xmin::text::bigint)) AS versions, \
     coalesce(sum(hashtext(concat(a.attrelid, ' ', a.attnum, ' ', a.atttypid))) FILTER (WHERE a.atttypid >= 16384), 0) AS kinds \
     FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE a.attnum > 0 AND a.attrelid >= 16384 \
     AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'c') AND c.relpersistence <> 't') AS a"
);

/// Code of a database that may read its sharded tables on one server only: views and tables with policies over them (`v`), functions with their
/// definitions (`f`), tables whose triggers call functions (`t`). Sharded tables have the check `weir_shard_key`.
const SHARD_READERS: &str = "WITH RECURSIVE uses (reader, read) AS ( \
    SELECT r.ev_class, d.refobjid FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid \
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND r.ev_class <> d.refobjid \
    UNION SELECT p.polrelid, d.refobjid FROM pg_depend d JOIN pg_policy p ON p.oid = d.objid \
    WHERE d.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass AND p.polrelid <> d.refobjid), \
    readers (oid) AS (SELECT u.reader FROM pg_constraint c JOIN uses u ON u.read = c.conrelid WHERE c.conname = 'weir_shard_key' \
    UNION SELECT u.reader FROM readers JOIN uses u ON u.read = readers.oid) \
    SELECT 'v', n.nspname, c.relname, '' FROM readers JOIN pg_class c ON c.oid = readers.oid JOIN pg_namespace n ON n.oid = c.relnamespace \
    UNION ALL SELECT 'f', n.nspname, p.proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
    JOIN pg_language l ON l.oid = p.prolang WHERE p.oid >= 16384 AND p.prokind IN ('f', 'p') AND l.lanname NOT IN ('c', 'internal') AND n.nspname <> 'weir_shard' \
    UNION ALL SELECT 't', n.nspname, c.relname, p.proname FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid \
    JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_proc p ON p.oid = g.tgfoid \
    WHERE NOT g.tgisinternal AND g.tgenabled <> 'D' AND p.oid >= 16384";
