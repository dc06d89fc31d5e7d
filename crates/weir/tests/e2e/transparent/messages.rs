//! How messages follow one another: several statements in one, pipelines, COPY, versions of the protocol.

use super::{CONF, Moves, check, check_messages};
use crate::support::raw::tags;
use crate::support::{Ground, Raw, wire};

#[test]
fn many_statements_in_one_message_are_one_transaction() {
    check(
        Moves::Yes,
        &[
            "select 1; select 2; select 3",
            "insert into items values (3, 'three'); select count(*) from items; select 1/0",
            "select count(*) from items",
            "begin; set work_mem = '5MB'; savepoint s; set work_mem = '6MB'; rollback to s; commit; show work_mem",
            "show work_mem",
            "set timezone = 'Asia/Tokyo'; prepare p as select current_setting('timezone'); reset timezone",
            "execute p",
        ],
    );
}

#[test]
fn a_pipeline_with_an_error_in_the_middle_goes_on_after_its_sync() {
    let sync = wire::sync();
    let rounds = [
        [
            wire::unnamed("set work_mem = '5MB'", &[]),
            wire::unnamed("select 1/0", &[]),
            wire::unnamed("set work_mem = '6MB'", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
        ]
        .concat(),
        wire::query("show work_mem"),
        [
            wire::unnamed("set work_mem = '7MB'", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
            wire::unnamed("reset work_mem", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
        ]
        .concat(),
        [wire::query("set work_mem = '8MB'"), wire::query("select 1/0"), wire::query("show work_mem")].concat(),
        wire::query("show work_mem"),
        [wire::query("reset all"), wire::query("show work_mem"), wire::query("set application_name = 'x'")].concat(),
        wire::query("show application_name"),
    ];
    check_messages(&rounds, &[2, 1, 4, 3, 1, 3, 1]);
}

#[test]
fn copy_works_both_ways() {
    let rounds = [
        wire::query("copy items to stdout"),
        [wire::query("copy items from stdin"), wire::copy_data(b"7\tseven\n8\teight\n"), wire::copy_done()].concat(),
        wire::query("delete from items where a > 6"),
        [wire::query("copy items from stdin"), wire::copy_data(b"9\tn"), wire::copy_fail("no")].concat(),
        wire::query("select * from items order by a"),
        [wire::query("copy items from stdin"), wire::copy_data(b"x\tn\n"), wire::copy_done()].concat(),
        wire::query("select * from items order by a"),
    ];
    check_messages(&rounds, &[1; 7]);
}

#[test]
fn any_protocol_a_client_asks_for_is_served() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    for version in [wire::V3_0, wire::V3_2] {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(version, &[("user", "postgres"), ("database", &ground.database)]));
        client.finish_login().unwrap();
        client.run("set work_mem = '13MB'");
        assert_eq!(tags(&client.query("show work_mem")), "TDCZ");
        assert_eq!(client.key.len(), if version == wire::V3_2 { 32 } else { 4 });
    }
}
