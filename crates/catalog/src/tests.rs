pub(crate) mod rows;
mod strangers;

use super::tables::TouchedTables;
use super::*;
use rows::{ROWS, draft, empty, path_of, routing};
use weir_config::{PatternSet, RoutingConfig};

/// A line is `statement -> rule`; `read` for none.
fn check(catalog: &Catalog, path: &SearchPath, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.rsplit_once(" -> ").unwrap();
        let rule = StatementNames::of(&weir_sql::facts(text.as_bytes())).and_then(|names| catalog.judge(&names, path));
        assert_eq!(rule.map_or("read", RoutingRule::name), expected, "{text}");
    }
}

#[test]
fn the_name_that_decides_is_told() {
    let catalog = draft(ROWS).finish(&routing());
    let path = path_of(&catalog, "postgres", None);
    for (text, expected) in [
        ("select a from t", None),
        ("select * from t, u, f", Some("u")),
        ("select a from app.t", Some("app.t")),
        ("select reads(1), writes(1), random()", Some("writes()")),
        ("select not_there(1)", Some("not_there()")),
        ("select 1 ### 2", Some("operator ###")),
        ("select 1 operator(public.###) 2", Some("operator public.###")),
    ] {
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap();
        let told = catalog.accuse(&names, &path).map(|(_, name)| name.expect("a name").to_string());
        assert_eq!(told.as_deref(), expected, "{text}");
    }
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
         select a from v_new_operator -> writing_view
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
    let as_other = LookupUser { user: "joe", has_role: true };
    assert_eq!(catalog.path(&as_other, Some("\"$user\"")), SearchPath::Any);
    check(&catalog, &SearchPath::Any, "select a from t -> unlogged_table\nselect a from mine -> read\nselect reads(1) -> read");
}

#[test]
fn a_call_that_newer_servers_take_for_syntax_may_be_of_a_users_function() {
    let catalog = draft(ROWS).finish(&routing());
    let texts = ["json_value(a, '$')", "json_scalar(a)", "json_array(a)", "json(a)", "merge_action()", "json_object()"];
    let check_all = |path: &SearchPath, expected: [&str; 6]| {
        let lines: Vec<String> =
            texts.iter().zip(expected).map(|(text, rule)| format!("select {text} from t -> {rule}")).collect();
        check(&catalog, path, &lines.join("\n"));
    };
    check_all(&path_of(&catalog, "postgres", None), ["read"; 6]);
    check_all(&path_of(&catalog, "postgres", Some("public, app")), ["function", "read", "read", "read", "read", "read"]);
    check_all(&SearchPath::Any, ["unlogged_table"; 6]);
    check(&catalog, &SearchPath::Any, "select json_value('x', '$') -> function\nselect json_array('x') -> read");
    let routing = RoutingConfig { write_functions: PatternSet::new(&["json_array".into()]).unwrap(), ..routing() };
    let catalog = draft(ROWS).finish(&routing);
    check(
        &catalog,
        &path_of(&catalog, "postgres", None),
        "select json_array(a) from t -> function\nselect json(a) from t -> read",
    );
}

/// The parser says `extract`, and version 13 has `date_part` only.
#[test]
fn extract_is_what_the_server_has_for_it() {
    let texts = "select extract(day from a) from t -> read\nselect date_part('day', a) from t -> read";
    for more in ["1 1171 11 date_part f", "1 1171 11 date_part f\n1 6204 11 extract f"] {
        let catalog = draft(&format!("{ROWS}\n{more}")).finish(&routing());
        check(&catalog, &path_of(&catalog, "postgres", None), texts);
    }
    let catalog = draft(ROWS).finish(&routing());
    check(&catalog, &path_of(&catalog, "postgres", None), "select extract(day from a) from t -> function");
}

#[test]
fn an_operators_lists_go_before_what_functions_say_of_themselves() {
    let mut routing = routing();
    let patterns = |list: &[&str]| PatternSet::new(&list.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
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
    routing.read_only_functions = PatternSet::default();
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
    let patterns = |list: &[&str]| PatternSet::new(&list.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    let mut routing = routing();
    routing.write_functions = patterns(&["app.twice", "pg_catalog.lower"]);
    let catalog = draft(ROWS).finish(&routing);
    let lines = "select twice(1), public.twice(1) -> read
                 select app.twice(1) -> function
                 select pg_catalog.lower('X') -> function";
    check(&catalog, &path_of(&catalog, "postgres", None), lines);
    check(&catalog, &path_of(&catalog, "joe", Some("app, public")), "select twice(1) -> function");
    routing.write_functions = PatternSet::default();
    routing.read_only_functions = patterns(&["public.writes", "app.reads"]);
    let catalog = draft(ROWS).finish(&routing);
    let lines = "select writes(1), public.writes(2) -> read
                 select reads(1) -> function
                 select a from v_writes -> read";
    check(&catalog, &path_of(&catalog, "postgres", None), lines);
}

#[test]
fn a_name_in_two_schemas_is_two_tables() {
    let catalog = draft(ROWS).finish(&routing());
    let expected = [("public", Some(20100)), ("app", Some(20104)), ("joe", None), ("nowhere", None)];
    for (schema, number) in expected {
        assert_eq!(catalog.number_of(schema, "t"), number, "{schema}");
    }
}

#[test]
fn all_relations_are_told_with_schema_name_and_number() {
    let catalog = draft(ROWS).finish(&routing());
    let told: Vec<(&str, &str, u32)> = catalog.tables().collect();
    for one in [("public", "t", 20100), ("app", "t", 20104), ("joe", "mine", 20120), ("public", "v_plain", 20110)] {
        assert!(told.contains(&one), "{one:?} in {told:?}");
    }
    assert_eq!(told.len(), catalog.counts().relations);
}

#[test]
fn a_write_of_a_name_that_many_schemas_have_touches_all_of_them_up_to_a_limit() {
    for (count, expected) in [(64, TouchedTables::Tables((30_000..30_064).collect())), (65, TouchedTables::All)] {
        let rows = (0..count).map(|at| format!("0 {0} schema_{at}\n2 {0} {0} many r p", 30_000 + at));
        let catalog = draft(&format!("0 11 pg_catalog\n{}", rows.collect::<Vec<_>>().join("\n"))).finish(&routing());
        let facts = weir_sql::facts(b"delete from many");
        let names = StatementNames::of(&facts).unwrap();
        assert_eq!(catalog.touches(&names, &facts.named.written, &SearchPath::Any), expected, "{count}");
    }
}

#[test]
fn an_answer_is_kept_only_if_all_functions_of_its_names_are_steady() {
    // A cast of ROWS that runs unasked makes all answers unsteady.
    let rows: Vec<&str> = ROWS.lines().filter(|line| !line.trim().starts_with("4 ")).collect();
    let catalog = draft(&rows.join("\n")).finish(&routing());
    let reads = |text: &str, path: &str| {
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap();
        catalog.reads(&names, &[], &path_of(&catalog, "postgres", Some(path)))
    };
    assert_eq!(reads("select json_array(a) from t", "public"), Some(vec![20100]));
    assert_eq!(reads("select json_scalar(a) from t", "public"), None, "public.json_scalar is not known to be steady");
    assert_eq!(reads("select json_scalar(a) from public.t", "app"), Some(vec![20100]), "it is not in the path");
    assert_eq!(reads("select pg_catalog.json_array(a) from t", "public"), Some(vec![20100]));
    assert_eq!(reads("select public.json_scalar(a) from t", "app"), None);
}

#[test]
fn a_time_of_day_taken_to_another_zone_and_a_view_that_may_change_by_itself_are_each_enough_to_keep_no_answer() {
    let rows: Vec<&str> = ROWS.lines().filter(|line| !line.trim().starts_with("4 ")).collect();
    let catalog = draft(&rows.join("\n")).finish(&routing());
    let reads = |text: &str| {
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap();
        catalog.reads(&names, &[], &path_of(&catalog, "postgres", Some("public")))
    };
    assert_eq!(reads("select a from t"), Some(vec![20100]));
    assert_eq!(reads("select a from u"), None, "the log says nothing of an unlogged table");
    assert_eq!(reads("select a from f"), None, "nor of a foreign one");
}

#[test]
fn an_answer_that_is_kept_because_its_author_says_so_knows_the_tables_it_comes_from() {
    let catalog = draft(ROWS).finish(&routing());
    let reads = |text: &str| {
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap();
        catalog.reads_at_least(&names, &path_of(&catalog, "postgres", Some("public")))
    };
    assert_eq!(reads("select random() from t"), Some(vec![20100]));
    assert_eq!(reads("select random()"), Some(vec![]));
}

#[test]
fn a_time_of_day_moved_to_a_zone_and_rows_made_of_texts_hang_on_more_than_tables() {
    let contents = PARTS.iter().position(|part| part.sql.contains("WITH RECURSIVE columns (relation, type)")).expect("a part");
    let rows: Vec<&str> = ROWS.lines().filter(|line| !line.trim().starts_with("4 ")).collect();
    let rows = format!("{}\n1 2069 11 timezone f\n1 3960 11 json_populate_record i", rows.join("\n"));
    let with_time = draft(&format!("{rows}\n{contents} t 20100")).finish(&routing());
    let with_type = draft(&format!("{rows}\n{contents} c 30000 moody")).finish(&routing());
    let of = |catalog: &Catalog, text: &str| {
        let names = StatementNames::of(&weir_sql::facts(text.as_bytes())).unwrap();
        let path = path_of(catalog, "postgres", Some("public"));
        (catalog.reads(&names, &[], &path), catalog.shows(&names, &path))
    };
    let table = Some(vec![20100]);
    assert_eq!(of(&with_time, "select a from t"), (table.clone(), table.clone()));
    assert_eq!(of(&with_time, "select a at time zone 'UTC' from t"), (None, table.clone()));
    assert_eq!(of(&with_type, "select a at time zone 'UTC' from t"), (table.clone(), table.clone()));
    let made = "select json_populate_record(null, a) from t";
    assert_eq!(of(&with_type, made), (None, None), "reading the values in may run what the type wants");
    assert_eq!(of(&with_time, made), (table.clone(), table), "no type does");
}

#[test]
fn a_default_of_transactions_is_that_of_its_own_parameter() {
    let part = |named: &str| PARTS.iter().position(|part| part.sql.contains(named)).expect("a part");
    let (set, asked) =
        (part("regexp_matches(c.entry, '^(default_transaction_isolation"), part("SELECT session_user, name, reset_val"));
    let mut draft = draft(ROWS);
    let mut row = |part: usize, cells: [&str; 4], count: usize| {
        let cells: Vec<Option<&[u8]>> = cells[..count].iter().map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells)
    };
    row(set, ["joe", "f", "transaction_timeout", "5s"], 4).unwrap();
    row(set, ["joe", "f", "default_transaction_isolation", "serializable"], 4).unwrap();
    assert!(row(set, ["joe", "f", "work_mem", "1MB"], 4).is_err());
    row(asked, ["ann", "idle_in_transaction_session_timeout", "9s", ""], 3).unwrap();
    let catalog = draft.finish(&routing());
    assert_eq!(catalog.of_transactions("joe", "transaction_timeout"), Some("5s"));
    assert_eq!(catalog.of_transactions("joe", "default_transaction_isolation"), Some("serializable"));
    assert_eq!(catalog.of_transactions("ann", "idle_in_transaction_session_timeout"), Some("9s"));
    assert_eq!(catalog.of_transactions("ann", "transaction_timeout"), None);
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
fn rows_that_were_not_asked_for_are_refused() {
    let mut draft = empty();
    for cells in [&[][..], &[None, None], &[Some(&b"x"[..]), Some(b"y")]] {
        for part in 0..=PARTS.len() {
            assert!(draft.row(part, cells).is_err() || part >= 8, "{part} {cells:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_tables_take_a_few_megabytes() {
    let mut draft = empty();
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
    let views = |reads: &str| {
        let view = |at: usize| format!("2 {0} 2200 v{at} v p{1}", 30_000 + at, reads.replace('v', &(30_000 + at).to_string()));
        let views: Vec<String> = (0..1000).map(view).collect();
        rows::draft(&format!("0 2200 public\n2 20100 2200 t r p\n{}", views.join("\n"))).finish(&routing()).counts().bytes
    };
    assert!(views("\n6 v relid~20100") >= views("") + 1000 * size_of::<(u32, u32)>(), "each table that a view reads counts");
    let path = path_of(&catalog, "postgres", None);
    check(&catalog, &path, "select some_function_49999(1) from a_table_of_an_ordinary_name_77777 -> read");
}

#[test]
fn a_large_catalog_stays_far_below_what_is_taken_in_by_default_and_a_huge_one_fits() {
    let filled = |tables: usize, functions: usize| {
        let mut draft = CatalogDraft::new(routing().catalog_bytes_max);
        let mut row = |part: usize, cells: &[&str]| {
            let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
            draft.row(part, &cells).unwrap();
        };
        row(0, &["2200", "public"]);
        for at in 0..tables {
            row(2, &[&(20_000 + at).to_string(), "2200", &format!("a_table_of_an_ordinary_name_{at}"), "r", "p"]);
        }
        for at in 0..functions {
            row(1, &[&(2_000_000 + at).to_string(), "2200", &format!("some_function_{at}"), "f"]);
        }
        draft.gathered_bytes()
    };
    let limit = routing().catalog_bytes_max;
    assert!(filled(100_000, 50_000) < limit / 5, "{} of {limit}", filled(100_000, 50_000));
    assert!(filled(1_000_000, 0) < limit);
    assert!(filled(2_000, 0) > filled(1_000, 0) && filled(1_000, 1_000) > filled(1_000, 0), "each row counts");
}

#[test]
fn rows_without_end_are_refused_in_words_that_name_the_limit_whatever_they_tell() {
    let source = "select f1(f2(f3(f4(f5(f6(f7()))))))";
    let rows: [(usize, &[&str]); 6] = [
        (0, &["1", ""]),
        (4, &["1", "", "1", "i"]),
        (6, &["1", ""]),
        (PARTS.len() - 3, &["f", "sql", source]),
        (PARTS.len() - 2, &["w", "1", ""]),
        (PARTS.len() - 1, &["w", "1", "", ""]),
    ];
    for (part, cells) in rows {
        let mut draft = CatalogDraft::new(1 << 20);
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
        let error = (0..20_000).find_map(|_| draft.row(part, &cells).err()).expect("a limit");
        assert_eq!(error.to_string(), "the catalog takes more than 1048576 bytes (catalog_max_size, which may be raised)");
    }
}
