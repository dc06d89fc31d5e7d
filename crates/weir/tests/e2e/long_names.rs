//! Names of users and databases that PostgreSQL cuts.

use super::cache::warm;
use crate::support::{Ground, Proxy, Raw, wait_for_catalog};

/// As long as a name can be.
fn longest(begin: &str) -> String {
    format!("{begin}{}", "x".repeat(63 - begin.len()))
}

fn log_in(proxy: &Proxy, user: &str, database: &str) -> Result<Raw, String> {
    Raw::tcp(proxy.port()).log_in(user, database, &[]).map_err(|failure| failure.sqlstate)
}

#[test]
fn letters_behind_a_name_pass_no_rule_no_limit_and_no_password() {
    let ground = Ground::new();
    let (rejected, limited, known) = (longest("rejected_"), longest("limited_"), longest("known_"));
    for role in [&rejected, &limited, &known] {
        ground.prepare(&format!("create role {role} login"));
    }
    let rules = format!(
        "local all all trust\nhost all {rejected} all reject\nhost {rejected} all all reject\nhost all {known} all scram-sha-256\nhost all all all trust\n"
    );
    let passwords = format!("{known}:secret\n");
    let more = format!("enable_pool_hba = on\nlimit_override_list = 'user={limited}: max_client_connections_per_user=1'\n");
    let files = [("pool_hba.conf", rules.as_str()), ("pool_passwd", passwords.as_str())];
    let proxy = Proxy::with_files(&[ground.cluster.primary()], &more, &files, &[]);
    for end in ["", "y", "yyyy"] {
        assert_eq!(log_in(&proxy, &format!("{rejected}{end}"), &ground.database).err().as_deref(), Some("28000"), "{end}");
        assert_eq!(log_in(&proxy, "postgres", &format!("{rejected}{end}")).err().as_deref(), Some("28000"), "{end}");
        let asked = {
            let mut raw = Raw::tcp(proxy.port());
            raw.send(&crate::support::wire::startup(
                crate::support::wire::V3_0,
                &[("user", &format!("{known}{end}")), ("database", &ground.database)],
            ));
            raw.read().body[..4].to_vec()
        };
        assert_eq!(asked, [0, 0, 0, 10], "{end}: a proof is asked for");
    }
    let first = log_in(&proxy, &limited, &ground.database);
    assert!(first.is_ok());
    assert_eq!(log_in(&proxy, &format!("{limited}y"), &ground.database).err().as_deref(), Some("53300"));
    drop((first, proxy));
    for role in [&rejected, &limited, &known] {
        ground.prepare(&format!("drop role {role}"));
    }
}

#[test]
fn a_name_ends_between_two_characters_and_is_one_database_to_the_cache() {
    let ground = Ground::new();
    // Created under the whole name: the server cuts it.
    let (role, database) = ("é".repeat(40), longest(&format!("{}_", ground.database)));
    let primary = ground.cluster.primary();
    primary.query(&format!("create role {role} superuser login")).unwrap();
    primary.query(&format!("create database {database}")).unwrap();
    let proxy = Proxy::before(&[primary], "memory_cache_enabled = on");
    let mut reader = log_in(&proxy, &role, &format!("{database}zz")).unwrap();
    assert_eq!(reader.value("select current_user"), "é".repeat(31));
    let mut writer = log_in(&proxy, "postgres", &database).unwrap();
    writer.run("create table t as select 1 as a");
    wait_for_catalog(&mut reader, &database);
    let read = "select count(*) from t";
    for count in 1..6 {
        warm(&proxy, &mut reader, read);
        assert_eq!(reader.value(read), count.to_string());
        writer.run("insert into t values (1)");
    }
    drop((reader, writer, proxy));
    primary.query(&format!("drop database {database} with (force)")).unwrap();
    primary.query(&format!("drop role {role}")).unwrap();
}
