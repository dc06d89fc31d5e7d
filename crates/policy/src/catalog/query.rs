//! What a server is asked for its catalog. Sent over a connection with `search_path = pg_catalog, pg_temp`, all parts in one
//! transaction, so that they fit together.

use super::draft::{Cells, Draft, DraftError};

/// One question and what becomes of a row of its answer.
pub struct Part {
    pub sql: &'static str,
    pub(super) take: fn(&mut Draft, &Cells<'_>) -> Result<(), DraftError>,
}

/// What a stored expression uses, by the labels of its nodes: exact, since names were resolved when it was made, and complete, since
/// casts nobody wrote are calls there. Strings of users stand in it as bytes, and blanks in their names with a backslash.
/// Source: outfuncs.c.
macro_rules! used_in {
    ($tree:literal) => {
        concat!(
            "LATERAL regexp_matches(",
            $tree,
            "::text, ':((?:funcid|aggfnoid|winfnoid|opno|eqop|sortop|relid|tsmhandler) [1-9][0-9]*|opnos \\(o[0-9 ]*\\)|rowMarks \\(\\{)', 'g') AS m (found)"
        )
    };
}

/// All questions, in an order in which each row's numbers are known from rows before it.
pub const PARTS: &[Part] = &[
    Part { sql: "SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'", take: Draft::schema },
    // An aggregate is as good as its worst part; it says immutable of itself.
    Part {
        sql: "SELECT p.oid, p.pronamespace, p.proname, p.provolatile = 'v' OR EXISTS (SELECT FROM pg_aggregate a JOIN pg_proc f \
              ON f.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, \
              a.aggminvtransfn, a.aggmfinalfn) WHERE a.aggfnoid = p.oid AND f.provolatile = 'v') \
              FROM pg_proc p WHERE p.prokind <> 'p'",
        take: Draft::function,
    },
    // Other sessions' temporary tables mean nothing here, and a session's own keep it on the primary.
    Part {
        sql: "SELECT c.oid, c.relnamespace, c.relname, c.relkind, c.relpersistence FROM pg_class c \
              WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't' \
              AND c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema'))",
        take: Draft::relation,
    },
    Part { sql: "SELECT oid, oprnamespace, oprname, oprcode::oid FROM pg_operator WHERE oid >= 16384", take: Draft::operator },
    Part {
        sql: "SELECT t.typnamespace, t.typname, c.castfunc::oid, c.castcontext FROM pg_cast c JOIN pg_type t ON t.oid = c.casttarget \
              WHERE c.castfunc::oid >= 16384",
        take: Draft::cast,
    },
    // Who reads a table reads its partitions and children too.
    Part {
        sql: "WITH RECURSIVE up (oid, kind, persistence) AS (SELECT i.inhparent, c.relkind, c.relpersistence \
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
              WHERE c.relkind = 'f' OR (c.relkind IN ('r', 'p') AND c.relpersistence = 'u') \
              UNION SELECT i.inhparent, up.kind, up.persistence FROM pg_inherits i JOIN up ON up.oid = i.inhrelid) \
              SELECT oid, kind, persistence FROM up",
        take: Draft::parent,
    },
    Part {
        sql: concat!(
            "SELECT r.ev_class, string_agg(DISTINCT m.found[1], ',') FROM pg_rewrite r \
             JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v', ",
            used_in!("r.ev_action"),
            " WHERE r.ev_type = '1' AND r.ev_class >= 16384 GROUP BY r.ev_class"
        ),
        take: Draft::expression,
    },
    // Policies count for all, although a table's owner may not be bound by them.
    Part {
        sql: concat!(
            "SELECT p.polrelid, string_agg(DISTINCT m.found[1], ',') FROM pg_policy p \
             JOIN pg_class c ON c.oid = p.polrelid AND c.relrowsecurity, ",
            used_in!("p.polqual"),
            " WHERE p.polcmd IN ('r', '*') GROUP BY p.polrelid"
        ),
        take: Draft::expression,
    },
    Part {
        sql: "SELECT coalesce(r.rolname, ''), s.setdatabase <> 0, substr(c.entry, 13) \
              FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c (entry) \
              WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
              AND c.entry LIKE 'search\\_path=%' AND (s.setrole = 0 OR r.rolname IS NOT NULL)",
        take: Draft::default_path,
    },
    Part { sql: "SELECT session_user, reset_val FROM pg_settings WHERE name = 'search_path'", take: Draft::asked },
];

/// One row that is another one when something changed that `PARTS` ask for.
///
/// Of tables the columns themselves and not the row's version, which TRUNCATE changes too. One pass over these catalogs; with 100,000
/// tables and 50,000 functions that takes a quarter of a second, so it is asked the less often the longer it takes.
pub const FINGERPRINT: &str = "SELECT concat_ws(' ', \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, xmin)))) FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_proc), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', relnamespace, relkind, relpersistence, relrowsecurity, relname)))) \
     FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relpersistence <> 't'), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_operator WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_cast WHERE oid >= 16384), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(inhrelid, ' ', inhparent)))) FROM pg_inherits), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_rewrite WHERE ev_type = '1'), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(oid, ' ', xmin)))) FROM pg_policy), \
    (SELECT concat(count(*), '/', sum(hashtext(concat(setdatabase, ' ', setrole, ' ', xmin)))) FROM pg_db_role_setting), \
    (SELECT reset_val FROM pg_settings WHERE name = 'search_path'))";
