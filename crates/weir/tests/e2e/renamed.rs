//! Roles that are renamed or dropped: a server process goes on as the role that logged in, so that nobody else may get it.

use crate::support::{Ground, Proxy, Raw, wait_until};

/// A role for this test, which may read `secret`.
fn joe(ground: &Ground) -> String {
    let joe = format!("joe_of_{}", ground.database);
    ground.prepare("create table secret (a int); insert into secret values (7); grant usage on schema public to public");
    ground.prepare(&format!("create role {joe} login; grant select on secret to {joe}"));
    joe
}

fn client(ground: &Ground, proxy: &Proxy, user: &str) -> Raw {
    Raw::tcp(proxy.port()).log_in(user, &ground.database, &[]).unwrap()
}

/// Another role gets the name.
fn replacing(joe: &str) -> String {
    format!("alter role {joe} rename to {joe}_old; create role {joe} login")
}

fn clean(ground: &Ground, joe: &str) {
    ground.prepare(&format!("drop owned by {joe}_old; drop role {joe}, {joe}_old"));
}

/// The user of a new client, and its result of a read that the role before was allowed.
fn seen_by_new(ground: &Ground, proxy: &Proxy, user: &str) -> (String, String) {
    let mut new = client(ground, proxy, user);
    let sqlstate = new.try_value("select a from secret").unwrap_or_else(|failure| failure.sqlstate);
    (new.value("select current_user"), sqlstate)
}

#[test]
fn who_gets_a_name_through_weir_gets_no_connection_of_the_role_that_had_it() {
    let ground = Ground::new();
    let joe = joe(&ground);
    let proxy = ground.primary_proxy("");
    assert_eq!(client(&ground, &proxy, &joe).value("select a from secret"), "7");
    ground.client(&proxy).run(&replacing(&joe));
    assert_eq!(seen_by_new(&ground, &proxy, &joe), (joe.clone(), "42501".into()));
    clean(&ground, &joe);
}

#[test]
fn who_gets_a_name_in_a_transaction_gets_no_connection_of_the_role_that_had_it() {
    let ground = Ground::new();
    let joe = joe(&ground);
    let proxy = ground.primary_proxy("");
    assert_eq!(client(&ground, &proxy, &joe).value("select a from secret"), "7");
    let mut admin = ground.client(&proxy);
    for text in
        ["begin", &format!("drop owned by {joe}"), &format!("drop role {joe}"), &format!("create role {joe} login"), "commit"]
    {
        admin.run(text);
    }
    assert_eq!(seen_by_new(&ground, &proxy, &joe), (joe.clone(), "42501".into()));
    ground.prepare(&format!("drop role {joe}"));
}

#[test]
fn who_gets_a_name_past_weir_soon_gets_no_connection_of_the_role_that_had_it() {
    let ground = Ground::new();
    let joe = joe(&ground);
    // The second one looks at no catalogs.
    for more in ["", "pool_mode = session"] {
        let proxy = ground.primary_proxy(more);
        assert_eq!(client(&ground, &proxy, &joe).value("select a from secret"), "7");
        ground.prepare(&replacing(&joe));
        wait_until("the new role to be served as such", || seen_by_new(&ground, &proxy, &joe) == (joe.clone(), "42501".into()));
        drop(proxy);
        ground.prepare(&format!("drop role {joe}; alter role {joe}_old rename to {joe}"));
    }
    ground.prepare(&format!("drop owned by {joe}; drop role {joe}"));
}

#[test]
fn a_session_of_a_renamed_role_does_not_go_on_as_who_has_its_name() {
    let ground = Ground::new();
    let joe = joe(&ground);
    let proxy = ground.primary_proxy("");
    let mut old = client(&ground, &proxy, &joe);
    assert_eq!(old.value("select a from secret"), "7");
    let mut admin = ground.client(&proxy);
    admin.run(&replacing(&joe));
    assert_eq!(seen_by_new(&ground, &proxy, &joe).0, joe);
    assert_eq!(old.error("select 1").sqlstate, "57P01");
    clean(&ground, &joe);
}

#[test]
fn connections_of_a_dropped_role_are_closed() {
    let ground = Ground::new();
    let joe = joe(&ground);
    let proxy = ground.primary_proxy("");
    let mut other = ground.client(&proxy);
    assert_eq!(client(&ground, &proxy, &joe).value("select a from secret"), "7");
    let oid = ground.direct().value(&format!("select '{joe}'::regrole::oid"));
    ground.prepare(&format!("drop owned by {joe}; drop role {joe}"));
    let text = format!("select count(*) from pg_stat_activity where usesysid = {oid}");
    wait_until("its connections to go", || other.value(&text) == "0");
    let refused = Raw::tcp(proxy.port()).log_in(&joe, &ground.database, &[]).unwrap_err();
    assert_eq!(refused.sqlstate, "28000");
}
