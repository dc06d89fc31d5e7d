//! Settings and roles: each session has its own, as transactions, functions and resets leave them.

use super::{CONF, Moves, Neighbours, check, check_with};
use crate::support::Ground;

#[test]
fn a_set_is_seen_by_its_own_session_and_by_no_other() {
    check(
        Moves::Yes,
        &[
            "set work_mem = '13MB'",
            "show work_mem",
            "set work_mem to 5000",
            "show work_mem",
            "set enable_sort = off",
            "select current_setting('work_mem'), current_setting('enable_sort')",
            "set work_mem = 'much'",
            "show work_mem",
            "set timezone = 'Asia/Tokyo'",
            "select '2024-01-01 12:00+00'::timestamptz",
            "set time zone -5",
            "show timezone",
            "set datestyle = 'German'",
            "show datestyle",
            "set datestyle = 'ISO'",
            "show datestyle",
            "set work_mem = default",
            "show work_mem",
            "reset enable_sort",
            "show enable_sort",
            "set session characteristics as transaction isolation level repeatable read",
            "show transaction_isolation",
            "set statement_timeout = 0; set work_mem = '3MB'",
            "show work_mem",
            "reset all",
            "show work_mem",
            "show timezone",
            "show transaction_isolation",
        ],
    );
}

#[test]
fn the_search_path_belongs_to_its_session() {
    check(
        Moves::Yes,
        &[
            "set search_path = other, public",
            "select * from items",
            "show search_path",
            "set search_path = \"Other One\", \"$user\", public",
            "show search_path",
            "select count(*) from items",
            "set search_path to 'other'",
            "select * from items",
            "reset search_path",
            "select * from items order by a",
        ],
    );
}

#[test]
fn a_set_in_a_transaction_ends_as_the_transaction_does() {
    check(
        Moves::Yes,
        &[
            "select 1",
            "select 2",
            "set work_mem = '5MB'",
            "begin",
            "set work_mem = '6MB'",
            "show work_mem",
            "rollback",
            "show work_mem",
            "begin",
            "set work_mem = '7MB'",
            "savepoint s",
            "set work_mem = '8MB'",
            "set timezone = 'Asia/Tokyo'",
            "rollback to s",
            "show work_mem",
            "show timezone",
            "commit",
            "show work_mem",
            "begin",
            "set local work_mem = '9MB'",
            "set local timezone = 'Asia/Tokyo'",
            "show work_mem",
            "commit",
            "show work_mem",
            "show timezone",
            "begin",
            "set work_mem = '10MB'",
            "set timezone = 'Asia/Tokyo'",
            "select 1/0",
            "commit",
            "show work_mem",
            "show timezone",
            "begin; set work_mem = '11MB'; commit",
            "show work_mem",
            "set work_mem = '12MB'; select 1/0",
            "show work_mem",
            "begin",
            "reset work_mem",
            "show work_mem",
            "rollback",
            "show work_mem",
        ],
    );
}

#[test]
fn set_config_counts_like_set() {
    check(
        Moves::Yes,
        &[
            "select set_config('work_mem', '13MB', false)",
            "show work_mem",
            "select set_config('work_mem', '14MB', true)",
            "show work_mem",
            "select set_config('app.user', 'joe''s', false)",
            "select current_setting('app.user')",
            "set app.user = 'o\\ne'",
            "select current_setting('app.user')",
            "begin",
            "select set_config('app.user', 'gone', false)",
            "rollback",
            "select current_setting('app.user')",
            "reset app.user",
            "select current_setting('app.user')",
        ],
    );
}

#[test]
fn settings_by_functions_and_procedural_code_belong_to_the_session() {
    check(
        Moves::Yes,
        &[
            "select remember('joe')",
            "select current_setting('app.user'), current_setting('statement_timeout')",
            "begin",
            "select remember('sue')",
            "rollback",
            "select current_setting('app.user'), current_setting('statement_timeout')",
            "do $$ begin set work_mem = '15MB'; perform set_config('app.user', 'ann', false); end $$",
            "select current_setting('app.user'), current_setting('work_mem')",
            "do $$ begin reset work_mem; end $$",
            "show work_mem",
        ],
    );
}

#[test]
fn a_role_belongs_to_its_session() {
    check(
        Moves::Yes,
        &[
            "set role pg_monitor",
            "select current_user, session_user",
            "set work_mem = '5MB'",
            "select current_user, current_setting('work_mem')",
            "reset role",
            "select current_user, session_user",
            "begin",
            "set role pg_monitor",
            "rollback",
            "select current_user",
            "set session authorization pg_monitor",
            "select current_user, session_user",
            "set role none",
            "reset session authorization",
            "select current_user, session_user",
            "begin",
            "set local role pg_monitor",
            "select current_user",
            "commit",
            "select current_user",
        ],
    );
}

#[test]
fn startup_parameters_are_there_and_come_again_after_a_reset() {
    let parameters = [
        ("application_name", "my app"),
        ("options", "-c work_mem=17MB -c app.user=startup -c timezone=Asia/Tokyo"),
        ("search_path", "other,public"),
    ];
    check_with(
        &parameters,
        Moves::Yes,
        &[
            "select * from items",
            "select current_setting('work_mem'), current_setting('app.user'), current_setting('application_name')",
            "set work_mem = '18MB'",
            "set timezone = 'UTC'",
            "show work_mem",
            "reset work_mem",
            "show work_mem",
            "reset timezone",
            "show timezone",
            "set timezone = 'UTC'; set application_name = 'other'",
            "reset all",
            "select current_setting('work_mem'), current_setting('timezone'), current_setting('application_name')",
            "begin",
            "set work_mem = '19MB'",
            "reset work_mem",
            "show work_mem",
            "set application_name = 'within'",
            "rollback",
            "show work_mem",
            "set work_mem = '20MB'",
            "begin",
            "reset all",
            "show work_mem",
            "rollback",
            "show work_mem",
            "reset all; select 1",
            "show work_mem",
            "set search_path = public",
            "set application_name = 'third'",
            "discard all",
            "select current_setting('work_mem'), current_setting('timezone'), current_setting('application_name')",
            "select * from items",
            "set search_path to default",
        ],
    );
}

#[test]
fn a_reset_within_a_function_takes_back_to_the_startup_parameters_too() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let parameters = [("search_path", "other,public"), ("TimeZone", "Asia/Tokyo"), ("application_name", "my app")];
    let mut client = ground.client_with(&proxy, &parameters);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    client.run("set timezone = 'UTC'");
    client.run("do $$ begin reset all; end $$");
    neighbours.shuffle("a reset");
    for (name, value) in parameters {
        assert_eq!(client.value(&format!("select current_setting('{name}')")).replace(' ', ""), value.replace(' ', ""));
    }
    assert_eq!(client.parameter("TimeZone"), Some("Asia/Tokyo"));
    assert_eq!(client.parameter("application_name"), Some("my app"));
}

#[test]
fn a_parameter_that_a_session_made_up_is_reset_with_all_others() {
    const SHOW: &str = "select current_setting('app.x'), current_setting('timezone')";
    const SETS: [&str; 2] = ["set app.x = 'mine'", "select set_config('app.x', 'mine', false)"];
    let ways: [&[&str]; 9] = [
        &["reset all"],
        &["begin", "reset all", "commit"],
        &["begin", "reset all", "rollback"],
        &["begin; reset all", "commit"],
        &["select 1; reset all"],
        &["begin", "select 1; reset all", "set timezone = 'UTC'", "commit"],
        &["begin", "savepoint a", "reset all", "rollback to a", "commit and chain", "commit"],
        &["begin", "savepoint a", "reset all", "release a", "commit"],
        &["do $$ begin reset all; end $$"],
    ];
    let stories = SETS.iter().flat_map(|set| ways.map(|way| [&[*set, SHOW][..], way, &[SHOW, "select 1", SHOW]].concat()));
    check(Moves::Yes, &stories.flatten().collect::<Vec<&str>>());
    check(Moves::Yes, &["set app.x = 'mine'", "set timezone = 'UTC'", "begin", "reset all", "rollback", SHOW]);
}
