//! Names that may mean something else in the engine.

use super::rows::{draft, path_of, routing};
use crate::{Catalog, SearchPath, StatementNames, UsedNames};

const ROWS: &str = "
    0 11 pg_catalog
    0 2200 public
    0 20001 app
    1 870 11 lower i
    1 2108 11 sum i
    1 1299 11 now f
    1 1770 11 to_char f
    1 1598 11 random t
    1 3745 11 to_tsvector i
    1 861 11 current_database c
    1 1079 11 regclass f
    1 1574 11 nextval t
    1 3204 11 json_to_record c
    1 20010 2200 twice i
    1 20011 20001 lower i
    1 20012 20001 fresh i
    2 20100 2200 t r p
    3 20200 2200 ### 870 t
    3 20201 20001 + 870 t
    3 20202 2200 = 870 f
    3 20203 2200 -> 870 t
    9 postgres \"$user\",public";

/// The name of a text that is refused.
fn stranger(catalog: &Catalog, path: &SearchPath, text: &str) -> String {
    let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap_or_default();
    let terms = weir_sql::key_terms(text).unwrap();
    let used = UsedNames { operators: &terms.operators, collations: &terms.collations };
    catalog.engine_stranger(&names, used, path).map_or_else(String::new, ToString::to_string)
}

fn check(catalog: &Catalog, path: &SearchPath, expected: &[(&str, &str)]) {
    for (text, expected) in expected {
        assert_eq!(stranger(catalog, path, text), *expected, "{text}");
    }
}

#[test]
fn what_postgresql_brings_and_each_database_has_alike_is_no_stranger() {
    let catalog = draft(ROWS).finish(&routing());
    check(
        &catalog,
        &path_of(&catalog, "postgres", None),
        &[
            ("select * from t", ""),
            ("select sum(a), lower(b), pg_catalog.lower(c), now(), to_char(d, 'x'), random() from t", ""),
            ("select a + 1, b || 'x' from t where c = 1 and d between 1 and 2 and e like 'x'", ""),
            ("select a::int, b::date, c::numeric(3, 1), d::text[], e::jsonb, f::pg_catalog.int4 from t", ""),
            ("select a collate \"C\", b collate \"de_DE.utf8\", c collate \"de-x-icu\", d collate pg_catalog.\"any\" from t", ""),
            ("select json_value(a, '$') from t", ""),
        ],
    );
}

#[test]
fn objects_of_users_and_what_tells_of_a_database_are_strangers() {
    let catalog = draft(ROWS).finish(&routing());
    check(
        &catalog,
        &path_of(&catalog, "postgres", None),
        &[
            ("select twice(a) from t", "twice"),
            ("select public.twice(a) from t", "public.twice"),
            ("select not_there(a) from t", "not_there"),
            ("select * from t, twice(1)", "twice"),
            ("select app.lower(a) from t", "app.lower"),
            ("select to_tsvector('english', a) from t", "to_tsvector"),
            ("select current_database() from t", "current_database"),
            ("select regclass('t') from t", "regclass"),
            ("select nextval('s') from t", "nextval"),
            // In PostgreSQL, but not on this server.
            ("select upper(a) from t", "upper"),
            ("select a ### 1 from t", "###"),
            ("select a operator(public.=) 1 from t", "public.="),
            ("select a -> 'x' from t", "->"),
            ("select a @@ 'x' from t", "@@"),
            ("select a::mood from t", "mood"),
            ("select a::public.date from t", "public.date"),
            ("select a::regclass from t", "regclass"),
            ("select a::money from t", "money"),
            ("select null::t from t", "t"),
            ("select * from json_to_record('{}') as j (a mood)", "mood"),
            ("select a collate mine from t", "mine"),
            ("select a collate public.\"C\" from t", "public.C"),
        ],
    );
}

#[test]
fn a_path_may_find_a_users_object_before_or_beside_postgresqls() {
    let catalog = draft(ROWS).finish(&routing());
    check(
        &catalog,
        &path_of(&catalog, "postgres", Some("app, public")),
        &[("select lower(a) from t", "lower"), ("select pg_catalog.lower(a) from t", ""), ("select a + 1 from t", "+")],
    );
    let first = path_of(&catalog, "postgres", Some("pg_catalog, public"));
    check(&catalog, &first, &[("select a::date from t", ""), ("select a collate \"C\" from t", "")]);
    let last = path_of(&catalog, "postgres", Some("public, pg_catalog"));
    for path in [last, SearchPath::Any] {
        let expected =
            [("select a::date from t", "date"), ("select a collate \"C\" from t", "C"), ("select a::int, sum(a) from t", "")];
        check(&catalog, &path, &expected);
    }
    check(&catalog, &SearchPath::Any, &[("select lower(a) from t", "lower"), ("select a + 1 from t", "+")]);
}
