use super::*;
use weir_config::RoutingConfig;

/// Rows as a server gives them: the part's number, then its values, `-` for none.
const ROWS: &str = "
    0 11 pg_catalog
    0 2200 public
    0 20001 app
    0 20002 joe
    1 1574 11 nextval t
    1 870 11 lower f
    1 1598 11 random t
    1 2077 11 current_setting f
    1 20010 2200 reads f
    1 20011 2200 writes t
    1 20012 2200 twice f
    1 20013 20001 twice t
    1 20014 2200 lower t
    2 20100 2200 t r p
    2 20101 2200 u r u
    2 20102 2200 f f p
    2 20103 2200 s S p
    2 20104 20001 t r u
    2 20105 2200 whole p p
    2 20106 2200 guarded r p
    2 20110 2200 v_plain v p
    2 20111 2200 v_writes v p
    2 20112 2200 v_of_view v p
    2 20113 2200 v_builtin v p
    2 20114 2200 v_volatile_reader v p
    2 20115 2200 v_locks v p
    2 20116 2200 v_catalog v p
    2 20117 2200 v_operator v p
    2 20118 2200 v_of_unlogged v p
    2 20119 2200 v_of_guarded v p
    2 20120 20002 mine r p
    2 20121 99999 elsewhere r p
    3 20200 2200 ### 20011
    3 20201 2200 @+@ 20010
    4 2200 risky 20011 e
    4 2200 fine 20010 i
    5 20105 r u
    6 20111 funcid~20011,relid~20100
    6 20112 relid~20111,relid~20112
    6 20110 relid~20100,funcid~870,opno~96
    6 20113 funcid~1574
    6 20114 funcid~1598
    6 20115 rowMarks~({,relid~20100
    6 20116 relid~1259
    6 20117 opnos~(o~20200),relid~20100
    6 20118 relid~20101
    6 20119 relid~20106
    7 20106 funcid~20011
    8 joe f app
    9 postgres \"$user\",public";

fn draft(rows: &str) -> Draft {
    let mut draft = Draft::default();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let mut words = row.split(' ');
        let part: usize = words.next().unwrap().parse().unwrap();
        let mut cells: Vec<String> = words.map(|word| word.replace('~', " ")).collect();
        if part == 8 {
            cells[1] = if cells[1] == "t" { "t" } else { "f" }.into();
        }
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells).unwrap_or_else(|error| panic!("{row}: {error}"));
    }
    draft
}

fn routing() -> RoutingConfig {
    weir_config::Config::default().routing
}

/// A line is `statement -> rule`; `read` for none.
fn check(catalog: &Catalog, path: &Path, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.rsplit_once(" -> ").unwrap();
        let rule = Names::of(&weir_sql::facts(text.as_bytes())).and_then(|names| catalog.judge(&names, path));
        assert_eq!(rule.map_or("read", Rule::name), expected, "{text}");
    }
}

fn path_of(catalog: &Catalog, user: &str, set: Option<&str>) -> Path {
    catalog.path(&Who { user, has_role: false }, set)
}

#[test]
fn what_a_statement_names_decides() {
    let catalog = draft(ROWS).finish(&routing());
    let path = path_of(&catalog, "postgres", None);
    check(
        &catalog,
        &path,
        "select 1 -> read
         select a from t -> read
         select a from u -> unlogged_table
         select a from f -> foreign_table
         select last_value from s -> sequence
         select a from whole -> unlogged_table
         select a from app.t -> unlogged_table
         select a from mine -> unknown_relation
         select a from joe.mine -> read
         select a from nowhere.t -> unknown_relation
         select a from elsewhere -> unknown_relation
         select a from guarded -> writing_view
         select a from v_plain -> read
         select a from v_writes -> writing_view
         select a from v_of_view -> writing_view
         select a from v_builtin -> writing_view
         select a from v_volatile_reader -> read
         select a from v_locks -> locking_view
         select a from v_catalog -> catalog
         select a from v_operator -> writing_view
         select a from v_of_unlogged -> unlogged_table
         select a from v_of_guarded -> writing_view
         select reads(1), random() -> read
         select writes(1) -> function
         select public.reads(1), pg_catalog.random() -> read
         select twice(1) -> read
         select app.twice(1) -> function
         select nowhere.reads(1) -> function
         select nextval('s') -> function
         select current_setting('x') -> function
         select not_there(1) -> function
         select lower('X') -> function
         select pg_catalog.lower('X') -> read
         select 1 ### 2 -> operator
         select 1 @+@ 2 -> read
         select 1 operator(public.###) 2 -> operator
         select 1 ?? 2 -> operator
         select '[1,2]' @> '[1]' -> read
         select 1::risky -> cast
         select 1::fine, risky(1) -> function
         select cast(a as text) from t -> read",
    );
}

#[test]
fn a_name_is_looked_up_where_the_session_looks() {
    let catalog = draft(ROWS).finish(&routing());
    check(&catalog, &path_of(&catalog, "joe", None), "select a from t -> unlogged_table\nselect a from mine -> unknown_relation");
    check(&catalog, &path_of(&catalog, "joe", Some("public, app")), "select a from t -> read\nselect twice(1) -> function");
    check(&catalog, &path_of(&catalog, "joe", Some("\"$user\", app")), "select a from mine -> read\nselect lower('X') -> read");
    let as_other = Who { user: "joe", has_role: true };
    assert_eq!(catalog.path(&as_other, Some("\"$user\"")), Path::Any);
    check(&catalog, &Path::Any, "select a from t -> unlogged_table\nselect a from mine -> read\nselect reads(1) -> read");
}

#[test]
fn an_operators_lists_go_before_what_functions_say_of_themselves() {
    let mut routing = routing();
    let patterns = |list: &[&str]| list.iter().map(|pattern| regex::Regex::new(&format!("^(?:{pattern})$")).unwrap()).collect();
    routing.read_only_functions = patterns(&["wri.*", "nextval"]);
    let catalog = draft(ROWS).finish(&routing);
    let path = path_of(&catalog, "postgres", None);
    let lines = "select writes(1), nextval('s') -> read
                 select reads(1) -> function
                 select pg_catalog.lower('X') -> read
                 select 1 ### 2 -> read
                 select a from v_writes -> read
                 select a from v_plain -> read
                 select 1::risky -> read";
    check(&catalog, &path, lines);
    routing.read_only_functions = Vec::new();
    routing.write_functions = patterns(&["reads", "lower"]);
    let catalog = draft(ROWS).finish(&routing);
    let lines = "select writes(1) -> function
                 select reads(1) -> function
                 select pg_catalog.lower('X') -> function
                 select a from v_plain -> writing_view
                 select 1 -> cast";
    let path = path_of(&catalog, "postgres", None);
    check(&catalog, &path, lines.replace("select 1 -> cast", "select a from t -> cast").as_str());
}

#[test]
fn a_list_may_name_a_function_with_its_schema() {
    let patterns = |list: &[&str]| list.iter().map(|pattern| regex::Regex::new(&format!("^(?:{pattern})$")).unwrap()).collect();
    let mut routing = routing();
    routing.write_functions = patterns(&["app.twice", "pg_catalog.lower"]);
    let catalog = draft(ROWS).finish(&routing);
    let lines = "select twice(1), public.twice(1) -> read
                 select app.twice(1) -> function
                 select pg_catalog.lower('X') -> function";
    check(&catalog, &path_of(&catalog, "postgres", None), lines);
    check(&catalog, &path_of(&catalog, "joe", Some("app, public")), "select twice(1) -> function");
    routing.write_functions = Vec::new();
    routing.read_only_functions = patterns(&["public.writes", "app.reads"]);
    let catalog = draft(ROWS).finish(&routing);
    let lines = "select writes(1), public.writes(2) -> read
                 select reads(1) -> function
                 select a from v_writes -> read";
    check(&catalog, &path_of(&catalog, "postgres", None), lines);
}

#[test]
fn unlogged_tables_are_not_looked_for_if_the_operator_says_so() {
    let routing = RoutingConfig { check_unlogged: false, ..routing() };
    let catalog = draft(ROWS).finish(&routing);
    check(&catalog, &path_of(&catalog, "postgres", None), "select a from u -> read\nselect a from v_of_unlogged -> read");
}

#[test]
fn an_operator_of_a_standard_spelling_that_writes_is_feared_in_every_statement() {
    let catalog = draft(&format!("{ROWS}\n3 20202 20001 = 20011")).finish(&routing());
    check(&catalog, &path_of(&catalog, "postgres", None), "select a from t -> read");
    check(&catalog, &path_of(&catalog, "joe", Some("public, app")), "select a from v_plain -> operator");
}

#[test]
fn what_types_run_is_not_kept_and_where_that_may_write_nothing_is() {
    let rows =
        "0 11 pg_catalog\n0 2200 public\n1 20020 2200 same i\n1 20021 2200 of_type i\n2 20100 2200 t r p\n2 20101 2200 typed r p
        2 20110 2200 v v p\n6 20110 relid~20100,resulttype~30000\n9 postgres public
        12 c 30000 checked\n12 c 30001 _checked\n12 f 20101\n12 p 20021\n13 f";
    let config = weir_config::CacheConfig::default();
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
            let text = crate::cache::Text::of(&facts, sql, &config);
            assert_eq!(text.tables_read(&catalog, &path, &[]).is_some(), expected && at_all, "{sql}");
            let is_known = Names::of(&facts).and_then(|names| catalog.judge(&names, &path)) != Some(Rule::Cast);
            assert!(is_known, "{sql}: a standby refuses what writes");
        }
    }
}

#[test]
fn rows_that_were_not_asked_for_are_refused() {
    let mut draft = Draft::default();
    for cells in [&[][..], &[None, None], &[Some(&b"x"[..]), Some(b"y")]] {
        for part in 0..=PARTS.len() {
            assert!(draft.row(part, cells).is_err() || part >= 8, "{part} {cells:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_tables_take_a_few_megabytes() {
    let mut draft = Draft::default();
    let mut row = |part: usize, cells: &[&str]| {
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells).unwrap();
    };
    row(0, &["2200", "public"]);
    for at in 0..100_000 {
        row(2, &[&(20_000 + at).to_string(), "2200", &format!("a_table_of_an_ordinary_name_{at}"), "r", "p"]);
    }
    for at in 0..50_000 {
        row(1, &[&(200_000 + at).to_string(), "2200", &format!("some_function_{at}"), "f"]);
    }
    row(9, &["postgres", "public"]);
    let catalog = draft.finish(&routing());
    let counts = catalog.counts();
    assert_eq!((counts.relations, counts.functions), (100_000, 50_000));
    assert!(counts.bytes < 8_000_000, "{counts:?}");
    let path = path_of(&catalog, "postgres", None);
    check(&catalog, &path, "select some_function_49999(1) from a_table_of_an_ordinary_name_77777 -> read");
}

/// Rows about tables, beside `ROWS`: 11 is one foreign key, 12 what may do anything when written, or shows the time.
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
    let config = weir_config::CacheConfig::default();
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
        let text = crate::cache::Text::of(&weir_sql::facts(sql.as_bytes()), sql, &config);
        let reads = text.tables_read(&catalog, &path, &[]).map_or("-".to_owned(), shown);
        let touches = match text.touches(Some((&catalog, &path))) {
            Touched::All => "all".to_owned(),
            Touched::Tables(oids) if oids.is_empty() => "nothing".to_owned(),
            Touched::Tables(oids) => shown(oids),
        };
        assert_eq!(format!("{reads} / {touches}"), expected, "{sql}");
    }
    let is_kept = |sql: &str, never: &str| {
        let text = crate::cache::Text::of(&weir_sql::facts(sql.as_bytes()), sql, &config);
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
        let text = crate::cache::Text::of(&facts, text, &weir_config::CacheConfig::default());
        text.tables_read(&catalog, &path, &[]).is_some()
    };
    assert!(is_kept("1 20010 2200 f i\n1 20011 2200 f i"));
    assert!(!is_kept("1 20010 2200 f i\n1 20011 2200 f f"));
    assert!(!is_kept("1 20010 2200 f f\n1 20011 2200 f i"));
    assert!(!is_kept("1 20011 2200 f i\n1 20010 2200 f f"));
}

/// Rows about a view `v` on `t`, and whether an answer from it may be kept.
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
        let text = crate::cache::Text::of(&facts, text, &weir_config::CacheConfig::default());
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
    let part = PARTS.len() - 3;
    let rows = format!(
        "{ROWS}\n2 20180 2200 m_plain m p\n2 20181 2200 m_writes m p\n2 20182 2200 m_behind m p\n13 f
         {part} 20180 relid~20100\n{part} 20181 funcid~20011\n{part} 20182 relid~20112"
    );
    let catalog = draft(&rows).finish(&routing());
    let path = path_of(&catalog, "postgres", Some("public"));
    for (view, expected) in [("m_plain", false), ("m_writes", true), ("m_behind", true)] {
        let sql = format!("refresh materialized view {view}");
        let text = crate::cache::Text::of(&weir_sql::facts(sql.as_bytes()), &sql, &weir_config::CacheConfig::default());
        assert_eq!(text.touches(Some((&catalog, &path))) == Touched::All, expected, "{view}");
    }
}

#[test]
fn a_column_may_be_a_function_of_a_row() {
    let rows = "0 11 pg_catalog\n0 2200 public\n1 20010 2200 full_name f t\n1 20011 2200 stamp t t\n1 20012 2200 fine i t\n1 20013 2200 apart f f
        1 1317 11 length i f\n2 20100 2200 t r p\n9 postgres public\n13 f";
    let catalog = draft(rows).finish(&routing());
    let path = path_of(&catalog, "postgres", None);
    let config = weir_config::CacheConfig::default();
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
        let text = crate::cache::Text::of(&facts, sql, &config);
        assert_eq!(text.tables_read(&catalog, &path, &[]).is_some(), is_kept, "{sql}");
        let rule = Names::of(&facts).and_then(|names| catalog.judge(&names, &path));
        assert_eq!(rule, (!is_read).then_some(Rule::Function), "{sql}");
        assert_eq!(text.touches(Some((&catalog, &path))) == Touched::All, !is_read, "{sql}");
    }
}
