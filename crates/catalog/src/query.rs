//! Questions to a server about its catalog, all parts in one transaction, so that they fit together.
//!
//! They name things without a schema, and are for connections only that Weir opens for itself with `search_path = pg_catalog, pg_temp`
//! (`weir::auth::own_login`): `CatalogQuery` is a type of its own, so that no other place can send them.

use super::draft::{CatalogDraft, Cells, DraftError};
use super::unseen::REACH;

/// One of the questions of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogQuery {
    /// One row that changes with everything that the parts ask for.
    Fingerprint,
    /// The part of it about the defaults of sessions.
    Defaults,
    /// Facts beside it that answers of the query cache hang on.
    Answers,
    /// One of `PARTS`, by its place.
    Part(usize),
}

impl CatalogQuery {
    /// Every one of them.
    pub fn all() -> impl Iterator<Item = CatalogQuery> {
        let parts = (0..PARTS.len()).map(CatalogQuery::Part);
        [CatalogQuery::Fingerprint, CatalogQuery::Defaults, CatalogQuery::Answers].into_iter().chain(parts)
    }

    /// Its text; empty for a part that there is not.
    pub fn sql(self) -> &'static str {
        match self {
            CatalogQuery::Fingerprint => FINGERPRINT,
            CatalogQuery::Defaults => DEFAULTS_FINGERPRINT,
            CatalogQuery::Answers => ANSWERS_FINGERPRINT,
            CatalogQuery::Part(at) => PARTS.get(at).map_or("", |part| part.sql),
        }
    }
}

/// One question, and the function that takes a row of its result.
pub struct CatalogPart {
    pub sql: &'static str,
    pub(super) take: fn(&mut CatalogDraft, &Cells<'_>) -> Result<(), DraftError>,
}

/// Objects that a stored expression uses, by the labels of its nodes. Exact, since names were resolved when it was made.
/// Complete, since casts that nobody wrote are calls there. Users' strings stand in it as bytes, and blanks in their names with
/// a backslash. Of types it gives only those of users, and those that show a name (`CONTENTS`).
/// Source: outfuncs.c.
macro_rules! used_in {
    ($tree:literal) => {
        concat!(
            "LATERAL regexp_matches(",
            $tree,
            "::text, ':((?:funcid|aggfnoid|winfnoid|opno|eqop|sortop|relid|tsmhandler) [1-9][0-9]*|(?:const|result|funcresult)type (?:[1-9][0-9]{4,}|2205|2210|4096|4097)|opnos \\(o[0-9 ]*\\)|rowMarks \\(\\{)', 'g') AS m (found)"
        )
    };
}

/// All questions, in an order in which each row's numbers are known from rows before it.
pub const PARTS: &[CatalogPart] = &[
    CatalogPart { sql: "SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'", take: CatalogDraft::schema },
    // An aggregate is as good as its worst part, though it calls itself immutable. A stable function in C reads memory and no
    // tables.
    // A function that reads a sequence finds another value on a standby, whatever its own volatility: found by its source, or
    // by its dependencies if its source was parsed when it was made. Functions in defaults of arguments run with the call, and
    // one of them may return the time.
    // A function with a `regclass` or `regrole` hangs on names. A user's function with a `time` or `time with time zone` hangs
    // on today's zone, as it may stand before AT TIME ZONE.
    // The last column tells whether a function may be called like a column: it takes one row, `t.f` for `f(t)`.
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
    // Other sessions' temporary tables mean nothing here, and a session's own keep it on the primary.
    CatalogPart {
        sql: "SELECT c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence FROM pg_class c \
              WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't' \
              AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))",
        take: CatalogDraft::relation,
    },
    CatalogPart {
        sql: "SELECT oid, oprnamespace, oprname, oprcode::oid FROM pg_operator WHERE oid >= 16384",
        take: CatalogDraft::operator,
    },
    CatalogPart {
        sql: "SELECT t.typnamespace, t.typname, c.castfunc::oid, c.castcontext FROM pg_cast c JOIN pg_type t ON t.oid = c.casttarget \
              WHERE c.castfunc::oid >= 16384",
        take: CatalogDraft::cast,
    },
    // A read of a table reads its partitions and children too.
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
    // Policies count for all, although a table's owner may not be bound by them.
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
    // Tables that are read with a table, and tables that are written with it.
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
    // Objects used by the query of a refresh: it writes rows of tables that it does not name.
    CatalogPart {
        sql: concat!(
            "SELECT r.ev_class, string_agg(DISTINCT m.found[1], ',') FROM pg_rewrite r \
             JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'm', ",
            used_in!("r.ev_action"),
            " WHERE r.ev_type = '1' GROUP BY r.ev_class"
        ),
        take: CatalogDraft::refresh,
    },
    // Only where functions may run that texts do not show. A longer source may do anything.
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
    // Functions that run with a use of a relation: with its writes (w), its reads (r), or any definition (d). Uses of
    // sequences: something asks for a drawn value (s), a view may draw or ask (v). Functions of PostgreSQL's own have no
    // dependencies; those that leave something are looked for in the expressions themselves. Login triggers run before a
    // connection belongs to anybody. Functions in C that are not PostgreSQL's own (c) may act outside of the database.
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
              UNION SELECT 's', 0, '' FROM asks WHERE EXISTS (SELECT FROM pg_proc p WHERE p.oid >= 16384 AND (p.prosrc ~* '\\m(currval|lastval)\\M' \
              OR (p.prosrc = '' AND p.prolang = 14 AND to_jsonb(p) ->> 'prosqlbody' ~ asks.pattern))) \
              OR EXISTS (SELECT FROM pg_attrdef WHERE adbin::text ~ asks.pattern) \
              UNION SELECT 'v', 0, '' WHERE EXISTS (SELECT FROM rules WHERE draws) OR EXISTS (SELECT FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid \
              WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_policy'::regclass) AND d.refclassid = 'pg_proc'::regclass AND p.oid >= 16384 AND p.provolatile = 'v')",
        take: CatalogDraft::hidden,
    },
    CatalogPart { sql: REACH, take: CatalogDraft::reach },
];

/// Properties of relations and types, in one question, so that columns and types, which are the most rows, are gone through
/// once.
///
/// - `w`: a write of the relation may do anything, as functions of users run that the text does not name: triggers, rules,
///   defaults, checks. Up to version 14 a partition's copies of its parent's triggers count as internal, like those of
///   foreign keys, which call functions of PostgreSQL's own.
/// - `f`: the rows of the relation hang on the asker or on the moment. That is so for policies, and for views that return the
///   time or the user, or read dates from texts. It is also so for views of system columns that a row lock or a rollback
///   changes, and for columns of `coded` types.
/// - `t`: it has a column of type `time`.
/// - `c`: the type, by its number and name, is `coded`: making or sorting its values runs a user's function that is not
///   immutable. A domain is coded by its check, any type by an operator class. So is a type that holds a coded one: an array,
///   a row, a range, a domain over it. A text of `time with time zone` (1266, its array 1270) hangs on today's date. The text
///   of a `regclass` or `regrole` (2205, 4096; arrays 2210, 4097) hangs on names of indexes, roles and temporary tables,
///   whose changes are not looked for. Arrays and rows are only looked at if anything of this is used, which is rare.
/// - `p`: the function takes or returns a coded type, or is made of one.
/// - `v`: some type runs a volatile function. Or any statement may run a function that is not immutable, as it is in an
///   operator class over a type of PostgreSQL's own, or over one that such a type counts as. No search tells these statements
///   apart.
///
/// Of the functions of operator classes, only those count that are not immutable. One that takes an `internal` (2281) does not,
/// since it is written in C for an access method. Stable ones count only in btree (403) and hash (405), by which values
/// are sorted and grouped. Classes of other methods look into an index for an operator that the text names, as `%` of
/// pg_trgm. A type that counts as another one without a function has that one's classes. Source: `GetDefaultOpClass` in
/// indexcmds.c.
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

/// One row that changes with everything that `PARTS` ask for.
///
/// Of tables it has the columns, and the users' types of those, and not the row's version, which TRUNCATE changes too. It is one pass over these catalogs.
/// With 100,000 tables and 50,000 functions that takes a quarter of a second, so the longer it takes, the less often it is
/// asked. A partition that is being detached first gets a new version of its row, then loses it.
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

/// The part of `FINGERPRINT` about the defaults of sessions.
const DEFAULTS_FINGERPRINT: &str = "SELECT concat(count(*), '/', sum(hashtext(concat(setdatabase, ' ', setrole, ' ', xmin)))) FROM pg_db_role_setting \
     WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// Count and sum of the versions of a catalog's rows. If the count stays, rows change only if one is younger than all, and then
/// the sum grows.
macro_rules! versions {
    ($of:literal) => {
        concat!("(SELECT concat(count(*), '/', sum(xmin::text::bigint)) FROM ", $of, ")")
    };
}

/// One row for the query cache, in two parts. The first has the users' types of columns, and belongs to `FINGERPRINT`. The
/// second changes with other things that results hang on: columns, owners and rights, types, text search, roles, and the
/// server's configured defaults.
///
/// Temporary tables are left out, as they come and go. It reads `pg_attribute`, so it costs some times as much as
/// `FINGERPRINT`: 0.17 s with 20,000 tables of 10 columns. Of roles it has the public part, without roles that have no rights
/// of their own, as those come and go.
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
