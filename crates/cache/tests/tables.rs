//! Texts and the tables behind them, from the text to the catalog's answer.

#[path = "../../catalog/src/tests/rows.rs"]
mod rows;

use rows::{ROWS, draft, path_of, routing};
use weir_cache::CacheTextFacts;
use weir_catalog::rule::RoutingRule;
use weir_catalog::{Catalog, CatalogDraft, LookupUser, PARTS, SearchPath, StatementNames, TouchedTables};
use weir_config::CacheConfig;

#[test]
fn what_types_run_is_not_kept_and_where_that_may_write_nothing_is() {
    let rows =
        "0 11 pg_catalog\n0 2200 public\n1 20020 2200 same i\n1 20021 2200 of_type i\n2 20100 2200 t r p\n2 20101 2200 typed r p
        2 20110 2200 v v p\n6 20110 relid~20100,resulttype~30000\n9 postgres public
        12 c 30000 checked\n12 c 30001 _checked\n12 f 20101\n12 p 20021\n13 f";
    let config = CacheConfig::default();
    for (more, at_all) in [("", true), ("\n12 v 0", false)] {
        let catalog = draft(&format!("{rows}{more}")).finish(&routing());
        let path = path_of(&catalog, "postgres", None);
        for (sql, expected) in [
            ("select a from t", true),
            ("select same(a) from t", true),
            ("/*FORCE QUERY CACHE*/ select a from t", true),
            ("select a from typed", false),
            ("select a from v", false),
            ("select of_type(a) from t", false),
            ("select a::checked from t", false),
            ("select '{1}'::_checked, a from t", false),
            ("select json_populate_record(t, '{}') from t", false),
        ] {
            let facts = weir_sql::facts(sql.as_bytes());
            let text = CacheTextFacts::of(&facts, sql, &config);
            assert_eq!(text.tables_read(&catalog, &path, &[]).is_some(), expected && at_all, "{sql}");
            let is_known = StatementNames::of(&facts).and_then(|names| catalog.judge(&names, &path)) != Some(RoutingRule::Cast);
            assert!(is_known, "{sql}: a standby refuses what writes");
        }
    }
}

/// Rows about tables, beside `ROWS`: 11 has a foreign key, a write of 12 may do anything, or its rows show the time.
const TABLES: &str = "
    1 2803 11 count i
    1 885 11 max f
    1 20020 2200 same i
    2 20130 2200 parent p p
    2 20131 2200 part r p
    2 20132 2200 leaf r p
    2 20140 2200 owner r p
    2 20141 2200 owned r p
    2 20142 2200 owned_more r p
    2 20150 2200 watched r p
    2 20160 2200 v_parent v p
    2 20161 2200 v_now v p
    2 20162 2200 v_stable v p
    6 20160 relid~20130,aggfnoid~2803
    6 20161 relid~20100
    6 20162 relid~20100,funcid~20010
    10 20130 20131
    10 20131 20132
    11 20140 20141
    11 20141 20142
    12 w 20150
    12 w 20102
    12 f 20161
    13 f";

/// Every statement and the numbers of the tables it reads (`-`: its answer is not to be kept) and touches (`all`).
#[test]
fn the_tables_behind_a_statement_are_known() {
    let rows: Vec<&str> = ROWS.lines().chain(TABLES.lines()).collect();
    let mut rows: Vec<&str> =
        rows.into_iter().filter(|row| !row.trim().is_empty()).filter(|row| row.trim() != "4 2200 fine 20010 i").collect();
    rows.sort_by_key(|row| row.trim().split(' ').next().unwrap().parse::<u32>().unwrap());
    let catalog = draft(&rows.join("\n").replace("    4 2200 risky 20011 e", "")).finish(&routing());
    let path = path_of(&catalog, "postgres", None);
    let config = CacheConfig::default();
    let shown = |mut oids: Vec<u32>| {
        oids.sort_unstable();
        oids.iter().map(|oid| (oid % 1000).to_string()).collect::<Vec<_>>().join(",")
    };
    let table = "
        select a from t -> 100 / nothing
        select a from parent -> 130,131,132 / nothing
        select a from part -> 131,132 / nothing
        select count(*) from v_parent join t using (a) -> 100,130,131,132,160 / nothing
        select a from v_now -> - / nothing
        select a from v_stable -> - / nothing
        select same(a) from t -> 100 / nothing
        select reads(a) from t -> - / nothing
        select max(a) from t -> - / nothing
        select writes(a) from t -> - / all
        select a from unknown -> - / all
        select * from pg_class -> - / nothing
        select a from t, u -> - / nothing
        select nextval('s') from t -> - / nothing
        insert into t values (1) -> - / 100
        insert into leaf values (1) -> - / 132
        update parent set a = 1 -> - / 130,131,132
        delete from owner where a = 1 -> - / 140,141,142
        delete from owned -> - / 141,142
        update watched set a = 1 -> - / all
        update v_parent set a = 1 -> - / 130,131,132,160
        with w as (delete from t returning a) insert into part select a from w -> - / 100,131,132
        insert into t select writes(a) from part -> - / all
        insert into f values (1) -> - / all
        insert into elsewhere values (1) -> - / all
        truncate t, leaf -> - / 100,132
        create table n (a int) -> - / all
        commit -> - / nothing";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (sql, expected) = line.split_once(" -> ").unwrap();
        let text = CacheTextFacts::of(&weir_sql::facts(sql.as_bytes()), sql, &config);
        let reads = text.tables_read(&catalog, &path, &[]).map_or("-".to_owned(), shown);
        let touches = match text.touches(Some((&catalog, &path))) {
            TouchedTables::All => "all".to_owned(),
            TouchedTables::Tables(oids) if oids.is_empty() => "nothing".to_owned(),
            TouchedTables::Tables(oids) => shown(oids),
        };
        assert_eq!(format!("{reads} / {touches}"), expected, "{sql}");
    }
    let is_kept = |sql: &str, never: &str| {
        let text = CacheTextFacts::of(&weir_sql::facts(sql.as_bytes()), sql, &config);
        text.tables_read(&catalog, &path, &[never.to_owned()]).is_some()
    };
    let behind_a_view = "select count(*) from v_parent join t using (a)";
    for (never, expected) in [("leaf", false), ("public.leaf", false), ("other.leaf", true), ("leaf2", true), ("t", false)] {
        assert_eq!(is_kept(behind_a_view, never), expected, "{never}");
    }
}

#[test]
fn of_overloads_the_least_steady_counts_in_whatever_order_they_come() {
    let text = "select f(a) from t";
    let is_kept = |rows: &str| {
        let catalog = draft(&format!("0 11 pg_catalog\n0 2200 public\n{rows}\n2 20100 2200 t r p\n9 postgres public\n13 f"))
            .finish(&routing());
        let path = path_of(&catalog, "postgres", None);
        let facts = weir_sql::facts(text.as_bytes());
        let text = CacheTextFacts::of(&facts, text, &CacheConfig::default());
        text.tables_read(&catalog, &path, &[]).is_some()
    };
    assert!(is_kept("1 20010 2200 f i\n1 20011 2200 f i"));
    assert!(!is_kept("1 20010 2200 f i\n1 20011 2200 f f"));
    assert!(!is_kept("1 20010 2200 f f\n1 20011 2200 f i"));
    assert!(!is_kept("1 20011 2200 f i\n1 20010 2200 f f"));
}

/// Rows about a view `v` on `t`, and true if a result from it may be cached.
#[test]
fn a_view_is_as_steady_as_its_operators() {
    let is_kept = |uses: &str| {
        let rows = format!(
            "0 11 pg_catalog\n0 2200 public\n1 20010 2200 same i\n1 20011 2200 reads f\n2 20100 2200 t r p\n2 20110 2200 v v p
             3 20200 2200 ### 20010\n3 20201 2200 @+@ 20011\n6 20110 relid~20100,{uses}\n9 postgres public\n13 f"
        );
        let catalog = draft(&rows).finish(&routing());
        let text = "select a from v";
        let facts = weir_sql::facts(text.as_bytes());
        let text = CacheTextFacts::of(&facts, text, &CacheConfig::default());
        text.tables_read(&catalog, &path_of(&catalog, "postgres", None), &[]).is_some()
    };
    for (uses, expected) in [
        ("opno~96", true),
        ("opno~20200", true),
        ("opnos~(o~96~20200)", true),
        ("opno~20201", false),
        ("opnos~(o~96~20201)", false),
        ("eqop~20201", false),
        ("sortop~20201", false),
        ("opno~20999", false),
    ] {
        assert_eq!(is_kept(uses), expected, "{uses}");
    }
}

#[test]
fn a_refresh_that_calls_what_writes_may_change_anything() {
    let part = PARTS.len() - 4;
    let rows = format!(
        "{ROWS}\n2 20180 2200 m_plain m p\n2 20181 2200 m_writes m p\n2 20182 2200 m_behind m p\n13 f
         {part} 20180 relid~20100\n{part} 20181 funcid~20011\n{part} 20182 relid~20112"
    );
    let catalog = draft(&rows).finish(&routing());
    let path = path_of(&catalog, "postgres", Some("public"));
    for (view, expected) in [("m_plain", false), ("m_writes", true), ("m_behind", true)] {
        let sql = format!("refresh materialized view {view}");
        let text = CacheTextFacts::of(&weir_sql::facts(sql.as_bytes()), &sql, &CacheConfig::default());
        assert_eq!(text.touches(Some((&catalog, &path))) == TouchedTables::All, expected, "{view}");
    }
}

#[test]
fn a_column_may_be_a_function_of_a_row() {
    let rows = "0 11 pg_catalog\n0 2200 public\n1 20010 2200 full_name f t\n1 20011 2200 stamp t t\n1 20012 2200 fine i t\n1 20013 2200 apart f f
        1 1317 11 length i f\n2 20100 2200 t r p\n9 postgres public\n13 f";
    let catalog = draft(rows).finish(&routing());
    let path = path_of(&catalog, "postgres", None);
    let config = CacheConfig::default();
    for (sql, is_read, is_kept) in [
        ("select t.a from t", true, true),
        ("select t.fine from t", true, true),
        ("select t.apart from t", true, true),
        ("select full_name from t", true, true),
        ("select x.full_name from t x", true, false),
        ("select (x).full_name from t x", true, false),
        ("select 1 from t where length(public.t.full_name) > 1", true, false),
        ("select t.stamp from t", false, false),
        ("select (row(1)::t).stamp", false, false),
    ] {
        let facts = weir_sql::facts(sql.as_bytes());
        let text = CacheTextFacts::of(&facts, sql, &config);
        assert_eq!(text.tables_read(&catalog, &path, &[]).is_some(), is_kept, "{sql}");
        let rule = StatementNames::of(&facts).and_then(|names| catalog.judge(&names, &path));
        assert_eq!(rule, (!is_read).then_some(RoutingRule::Function), "{sql}");
        assert_eq!(text.touches(Some((&catalog, &path))) == TouchedTables::All, !is_read, "{sql}");
    }
}
