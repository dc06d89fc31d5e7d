//! Settings that a session may have and may not make: a function with more rights has made them, or the right is gone since.

use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until};

/// Weir before the primary, with a user who is no superuser and a superuser's functions that set parameters beyond his rights.
struct Scene {
    ground: Ground,
    user: String,
    proxy: Proxy,
}

impl Scene {
    fn new(pool_size: u32) -> Scene {
        let ground = Ground::new();
        let user = format!("{}_plain", ground.database);
        ground.prepare(&format!(
            "drop role if exists {user}; create role {user} login; grant all on schema public to {user};
             create function logs(v text) returns text language sql security definer
                 as $$ select set_config('log_min_duration_statement', v, false) $$;
             create function blinks() returns text language plpgsql security definer as $$
                 declare before text := current_setting('log_min_duration_statement');
                 begin
                     perform set_config('log_min_duration_statement', '7min', false);
                     return set_config('log_min_duration_statement', before, false);
                 end $$"
        ));
        let proxy = ground.primary_proxy(&format!("pool_size = {pool_size}\npool_wait_timeout = 2"));
        Scene { ground, user, proxy }
    }

    fn client(&self) -> Raw {
        Raw::tcp(self.proxy.port()).log_in(&self.user, &self.ground.database, &[]).unwrap()
    }

    fn reasons(&self) -> Vec<String> {
        let states = show(&mut self.proxy.console(), "pool_pools", "status");
        states.into_iter().filter(|state| state.contains("kept")).collect()
    }
}

const SHOWN: &str = "select current_setting('log_min_duration_statement')";

/// Runs a query in both protocols.
fn ask(client: &mut Raw, text: &str) -> [String; 2] {
    [client.value(text), client.extended(text, &[]).unwrap_or_else(|failure| panic!("{text}: {failure:?}"))]
}

#[test]
fn a_function_that_sets_what_its_caller_may_not_set_and_puts_it_back_harms_nobody() {
    for pool_size in [1, 4] {
        let scene = Scene::new(pool_size);
        let (mut one, mut two) = (scene.client(), scene.client());
        for turn in 0..4 {
            assert_eq!(ask(&mut one, "select blinks()"), ["-1", "-1"]);
            two.run(&format!("set timezone = 'Etc/GMT-{turn}'"));
            assert_eq!(ask(&mut two, SHOWN), ["-1", "-1"]);
            assert_eq!(ask(&mut one, SHOWN), ["-1", "-1"]);
            // A session that sets nothing, too.
            assert_eq!(ask(&mut scene.client(), SHOWN), ["-1", "-1"]);
        }
        assert_eq!(scene.reasons(), [""; 0], "nobody keeps a connection");
        assert!(scene.proxy.metric("server_connections_opened_total") <= u64::from(pool_size) + 4);
    }
}

#[test]
fn what_a_function_sets_beyond_the_rights_of_its_caller_keeps_the_connection_and_leaves_with_it() {
    let scene = Scene::new(4);
    let (mut one, mut two) = (scene.client(), scene.client());
    assert_eq!(one.value("select logs('7min')"), "7min");
    for _ in 0..4 {
        assert_eq!(ask(&mut two, SHOWN), ["-1", "-1"]);
        assert_eq!(ask(&mut one, SHOWN), ["7min", "7min"]);
    }
    assert!(scene.reasons().concat().starts_with("Idle (kept: setting beyond the user's rights) for "), "{:?}", scene.reasons());
    one.run("reset all");
    wait_until("the connection to be free", || scene.reasons().is_empty());
    assert_eq!(ask(&mut one, SHOWN), ["-1", "-1"]);

    assert_eq!(one.value("select logs('7min')"), "7min");
    drop(one);
    wait_until("the connection to be free", || scene.reasons().is_empty());
    for _ in 0..8 {
        two.run("begin");
        assert_eq!(two.value(SHOWN), "-1");
        assert_eq!(scene.client().value(SHOWN), "-1");
        two.run("commit");
    }
}

#[test]
fn with_one_connection_the_next_client_has_it_once_the_setting_is_gone() {
    let scene = Scene::new(1);
    let (mut one, mut two) = (scene.client(), scene.client());
    assert_eq!(one.value("select logs('7min')"), "7min");
    drop(one);
    assert_eq!(ask(&mut two, SHOWN), ["-1", "-1"]);
    two.run("set work_mem = '5MB'");
    assert_eq!(ask(&mut scene.client(), "select current_setting('work_mem')"), ["4MB", "4MB"]);
    assert_eq!(two.value("select current_setting('work_mem')"), "5MB");
}

#[test]
fn a_connection_whose_settings_may_not_be_taken_back_any_more_serves_the_next_client() {
    for pool_size in [1, 4] {
        let scene = Scene::new(pool_size);
        if scene.ground.direct().value("select current_setting('server_version_num')::int >= 150000") == "f" {
            // Nobody can be allowed to set such a parameter there.
            return;
        }
        let grant = format!("grant set on parameter log_min_duration_statement to {}", scene.user);
        scene.ground.prepare(&grant);
        let (mut one, mut two) = (scene.client(), scene.client());
        one.run("set log_min_duration_statement = '7min'");
        assert_eq!(one.value(SHOWN), "7min");
        scene.ground.prepare(&grant.replace("grant set", "revoke set").replace(" to ", " from "));
        for text in ["create table t (a int)", "insert into t values (1)"] {
            assert_eq!(two.query(text).last().unwrap().text(), "I", "{text}");
        }
        assert_eq!(ask(&mut two, "select count(*) from t"), ["1", "1"]);
        assert_eq!(ask(&mut two, SHOWN), ["-1", "-1"]);
    }
}

#[test]
fn a_role_or_a_configuration_that_is_gone_ends_no_other_session() {
    for pool_size in [1, 4] {
        let scene = Scene::new(pool_size);
        let (user, role) = (&scene.user, format!("{}_role", scene.user));
        scene.ground.prepare(&format!(
            "drop role if exists {role}; create role {role}; grant {role} to {user};
             create text search configuration mine (copy = pg_catalog.simple)"
        ));
        let (mut one, mut two, mut three) = (scene.client(), scene.client(), scene.client());
        one.run(&format!("set role {role}"));
        three.run("set default_text_search_config = 'public.mine'");
        scene.ground.prepare(&format!("revoke {role} from {user}; drop text search configuration mine"));
        for _ in 0..8 {
            two.run("begin");
            assert_eq!(two.value("select current_user"), *user);
            two.run("commit");
            assert_eq!(ask(&mut two, "select current_setting('default_text_search_config')"), ["pg_catalog.english"; 2]);
            assert_eq!(scene.client().value("select current_user"), *user);
        }
    }
}
