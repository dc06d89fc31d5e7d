//! The rights to see values, by every face: SHOW over SQL in both protocols, the console, PCP, metrics, the log.

use crate::support::driver::{self, Login};
use crate::support::ground::cluster;
use crate::support::proxy::{Folder, pcp};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use tokio_postgres::SimpleQueryMessage;
use weir_config::params::{self, ConfigParam, ParamIndexing};
use weir_config::visibility::ValueVisibility;
use weir_demo::ReservedPort;

/// The value of every secret.
const SECRET: &str = "hush-hush";
/// The value of every command.
const COMMAND: &str = "mark_of_operators";
/// Statement, name and address of another role's session.
const STATEMENT: &str = "select 'statement of another'";
const APPLICATION: &str = "application of another";
const ADDRESS: [u8; 4] = [127, 0, 0, 77];

/// All of it, as it must not be in what an ordinary user is shown.
const ALL: [&str; 5] = [SECRET, COMMAND, "statement of another", APPLICATION, "127.0.0.77"];

/// The part of that which a viewer over SQL sees.
#[derive(Clone, Copy)]
struct Sees {
    settings: bool,
    sessions: bool,
}

struct Scene {
    ground: Ground,
    proxy: Proxy,
    pcp: ReservedPort,
    metrics: ReservedPort,
    passfile: Folder,
    other: Raw,
}

/// A command, and nothing that Weir would run before something fails.
fn is_command(param: &ConfigParam) -> bool {
    param.name.ends_with("_command") || param.name.ends_with("_cmd")
}

fn is_listed(param: &&ConfigParam) -> bool {
    !param.hidden && param.alias_of.is_none() && !matches!(param.indexed, ParamIndexing::Watchdog | ParamIndexing::Heartbeat)
}

impl Scene {
    fn new() -> Scene {
        let ground = Ground::new();
        let name = |role: &str| format!("{}_{role}", ground.database);
        let roles = ["plain", "other", "member", "stats", "settings", "monitor", "eye", "boss"].map(name);
        let all: String = roles.iter().map(|role| format!("drop role if exists {role}; create role {role} login;")).collect();
        ground.prepare(&format!(
            "{all} grant {} to {}; grant pg_read_all_stats to {}; grant pg_read_all_settings to {}; grant pg_monitor to {}",
            name("other"),
            name("member"),
            name("stats"),
            name("settings"),
            name("monitor")
        ));
        let (pcp, metrics) = (ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
        let mut more = format!(
            "pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = 'FOLDER'\nmetrics_port = {}\nadmin_users = '{}'\n\
             stats_users = '{}'\nlog_min_messages = debug5\nlog_statement = on\nlog_connections = on\nmemory_cache_enabled = on\n",
            pcp.number(),
            metrics.number(),
            name("boss"),
            name("eye"),
        );
        for param in params::all().filter(is_listed) {
            let value = match param.kind.visibility() {
                ValueVisibility::Nobody => SECRET,
                ValueVisibility::Operators if is_command(param) => COMMAND,
                _ => continue,
            };
            more += &format!("{} = '{value}'\n", param.name);
        }
        let passwords = format!("{}:TEXTsecret\n{}:TEXTsecret\n", name("eye"), name("boss"));
        let files = [("pcp.conf", "admin:5ebe2294ecd0e0f08eab7690d2a6ee69\n"), ("pool_passwd", passwords.as_str())];
        let proxy = Proxy::with_files(&[ground.cluster.primary()], &more, &files, &[]);
        let parameters = [("application_name", APPLICATION)];
        let other = Raw::tcp_from(ADDRESS, proxy.port()).log_in(&name("other"), &ground.database, &parameters).unwrap();
        let passfile = Folder::new();
        let file = passfile.0.join("passfile");
        std::fs::write(&file, "*:*:admin:secret\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mut scene = Scene { ground, proxy, pcp, metrics, passfile, other };
        // Texts of statements are kept for somebody who looks now and then.
        scene.super_user().rows("show pool_pools");
        // In a transaction he has a server connection, on which others see him.
        scene.other.run("begin");
        scene.other.run(STATEMENT);
        scene
    }

    fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.ground.database)
    }

    fn super_user(&self) -> Raw {
        Raw::tcp(self.proxy.port()).log_in("postgres", &self.ground.database, &[]).unwrap()
    }

    fn user(&self, role: &str) -> Raw {
        Raw::tcp(self.proxy.port()).log_in(&self.name(role), &self.ground.database, &[]).unwrap()
    }

    fn pcp(&self, arguments: &[&str]) -> String {
        let out = pcp(self.pcp.number(), &self.passfile.0.join("passfile"), arguments);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

/// All values that a statement returns in one of the protocols, or the code of its error.
fn answer(client: &mut Raw, text: &str, is_extended: bool) -> Result<String, String> {
    let sent = if is_extended { [wire::unnamed(text, &[]), wire::sync()].concat() } else { wire::query(text) };
    client.send(&sent);
    let messages = client.until_ready();
    if let Some(error) = messages.iter().find(|message| message.tag == b'E') {
        return Err(error.failure().sqlstate);
    }
    let values = messages.iter().filter(|message| message.tag == b'D').flat_map(|message| message.row()).flatten();
    Ok(values.collect::<Vec<_>>().join("|"))
}

/// Walks all SHOW commands and all parameters as one user, in one protocol.
fn check_sql(client: &mut Raw, who: &str, is_extended: bool, sees: Sees) {
    let mut all = String::new();
    let views: Vec<String> = client.rows("show pool_help").into_iter().map(|row| row[0].clone()).collect();
    assert!(views.len() > 15, "{views:?}");
    let views = views.iter().filter(|view| !view.contains("FOR"));
    let lists = ["pgpool show all", "pgpool show backend", "pgpool show health_check", "pgpool show watchdog"];
    for text in views.map(String::as_str).chain(lists) {
        all += &answer(client, text, is_extended).unwrap_or_else(|code| panic!("{who}: {text}: {code}"));
    }
    for param in params::all().filter(is_listed) {
        let number = if param.indexed == ParamIndexing::Node { "0" } else { "" };
        let shown = answer(client, &format!("PGPOOL SHOW {}{number}", param.name), is_extended);
        let is_refused = param.kind.visibility() == ValueVisibility::Operators && !sees.settings;
        assert_eq!(shown.as_ref().err().map(String::as_str), is_refused.then_some("42501"), "{who}: {}", param.name);
        all += &shown.unwrap_or_default();
    }
    let sessions = [("statement of another", sees.sessions), ("127.0.0.77", sees.sessions)];
    for (part, is_seen) in sessions.into_iter().chain([(SECRET, false), (APPLICATION, false), (COMMAND, sees.settings)]) {
        assert_eq!(all.contains(part), is_seen, "{who}, extended: {is_extended}: {part} in {all}");
    }
}

#[test]
fn sql_shows_a_role_its_own_and_operators_and_readers_of_statistics_all() {
    let scene = Scene::new();
    for (role, settings, sessions) in [
        ("plain", false, false),
        ("other", false, true),
        ("member", false, true),
        ("stats", false, true),
        ("settings", true, false),
        ("monitor", true, true),
    ] {
        let mut client = scene.user(role);
        for is_extended in [false, true] {
            check_sql(&mut client, role, is_extended, Sees { settings, sessions });
        }
    }
    check_sql(&mut scene.super_user(), "superuser", false, Sees { settings: true, sessions: true });
}

#[test]
fn what_is_hidden_is_said_to_be_and_rights_that_are_given_count() {
    let scene = Scene::new();
    let mut plain = scene.user("plain");
    let refused = plain.error("PGPOOL SHOW ssl_passphrase_command");
    assert_eq!(refused.sqlstate, "42501");
    assert_eq!(refused.message, "permission denied to examine \"ssl_passphrase_command\"");
    assert!(refused.detail.contains("pg_read_all_settings"), "{refused:?}");
    let rows = plain.rows("show pool_processes");
    let other = rows.iter().find(|row| row[4] == scene.name("other")).expect("that there is a session is no secret");
    assert_eq!((other[3].as_str(), other[7].as_str()), (scene.ground.database.as_str(), "<insufficient privilege>"));
    let own = rows.iter().find(|row| row[4] == scene.name("plain")).expect("his own");
    assert_ne!(own[7], "<insufficient privilege>");
    scene.ground.prepare(&format!("grant {} to {}", scene.name("other"), scene.name("plain")));
    wait_until("the new right to count", || {
        let rows = plain.rows("show pool_pools");
        rows.iter().any(|row| row[6] == scene.name("other") && row[18] == "127.0.0.77")
    });
}

#[test]
fn without_a_server_to_ask_everybody_is_shown_what_all_may_see() {
    let ground = Ground::new();
    // There is no such database.
    let proxy = Proxy::before(&[ground.cluster.primary()], "auth_dbname = 'nothing'\nfailover_command = 'mark_of_operators'\n");
    let mut client = ground.client(&proxy);
    let rows = client.rows("pgpool show all");
    assert!(rows.iter().any(|row| row[0] == "port") && rows.iter().all(|row| row[0] != "failover_command"), "{rows:?}");
    assert_eq!(client.error("PGPOOL SHOW failover_command").sqlstate, "42501");
    assert!(proxy.log().contains("cannot ask what user \"postgres\" may see"), "{}", proxy.log());
    assert!(!client.rows("show pool_nodes").is_empty());
}

#[test]
fn an_operator_goes_on_to_see_all_while_no_server_answers() {
    let cluster = cluster(0);
    let more = "auth_cache_time = 0\nfailover_command = 'mark_of_operators'\nfailover_mode = off\n";
    let proxy = Proxy::before(&[cluster.primary()], more);
    let mut client = proxy.console();
    assert_eq!(client.value("PGPOOL SHOW failover_command"), COMMAND);
    cluster.primary().freeze();
    assert_eq!(client.value("PGPOOL SHOW failover_command"), COMMAND, "the answer before counts on");
    assert!(proxy.log().contains("what counted before does"), "{}", proxy.log());
    cluster.primary().thaw();
}

/// All that a user of the console is shown by all of its lists.
fn console(scene: &Scene, role: &str) -> String {
    let mut admin = Raw::unix(scene.proxy.folder(), scene.proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let help = admin.query("SHOW HELP");
    let help = help.iter().find(|message| message.tag == b'N').expect("a notice").failure().detail;
    let lists = help.lines().find_map(|line| line.trim().strip_prefix("SHOW ")).expect("a line of lists");
    let lists: Vec<String> = lists.split('|').filter(|list| *list != "HELP").map(str::to_string).collect();
    assert!(lists.len() > 15, "{lists:?}");
    let login = Login { database: "pgbouncer".into(), ..Login::new(scene.proxy.port(), &scene.name(role), "secret") };
    driver::block_on(async {
        let (client, _mover) = driver::connect(&login).await.unwrap();
        let mut all = String::new();
        for list in lists {
            for message in client.simple_query(&format!("SHOW {list}")).await.unwrap() {
                if let SimpleQueryMessage::Row(row) = message {
                    all.extend((0..row.len()).map(|at| format!("{}|", row.get(at).unwrap_or_default())));
                }
            }
        }
        for row in client.query("SHOW CONFIG", &[]).await.unwrap() {
            all += &format!("{}={};{}\n", row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, &str>(2));
        }
        all
    })
}

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn show_config(file: &Path) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_weir")).args(["show-config", "-f"]).arg(file).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Checks which of the hidden things a text has, in the order of `ALL`.
fn check_parts(face: &str, text: &str, expected: [bool; 5]) {
    assert!(text.len() > 100, "{face} shows something: {text}");
    for (part, is_seen) in ALL.iter().zip(expected) {
        assert_eq!(text.contains(part), is_seen, "{face}: {part} in {text}");
    }
}

#[test]
fn every_other_face_shows_each_what_is_for_him_and_a_secret_to_nobody() {
    let mut scene = Scene::new();
    check_parts("the console to stats_users", &console(&scene, "eye"), [false, false, false, true, true]);
    check_parts("the console to admin_users", &console(&scene, "boss"), [false, true, false, true, true]);
    scene.other.run(STATEMENT);
    let told = scene.pcp(&["pool-status"]) + &scene.pcp(&["proc-info", "-a"]);
    check_parts("PCP", &told, [false, true, true, false, true]);
    check_parts("metrics", &metrics(scene.metrics.number()), [false; 5]);
    check_parts("show-config", &show_config(&scene.proxy.conf_path()), [false, true, false, false, false]);
    let changed = scene.proxy.conf().replace(SECRET, &format!("{SECRET}-again"));
    std::fs::write(scene.proxy.conf_path(), changed).unwrap();
    scene.proxy.reload();
    assert!(!scene.proxy.log().contains(SECRET), "a secret in the log:\n{}", scene.proxy.log());
}

#[test]
fn lists_of_the_console_count_over_sql_too() {
    let scene = Scene::new();
    for (role, settings, sessions) in [("eye", false, true), ("boss", true, true)] {
        let login =
            Login { database: scene.ground.database.clone(), ..Login::new(scene.proxy.port(), &scene.name(role), "secret") };
        let refused = driver::value(&login, "PGPOOL SHOW failover_command").err();
        assert_eq!(refused.as_deref().map(|error| &error[..5]), (!settings).then_some("42501"), "{role}");
        let value = driver::block_on(async {
            let (client, _mover) = driver::connect(&login).await.unwrap();
            let rows = client.simple_query("SHOW pool_pools").await.unwrap();
            rows.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(18) == Some("127.0.0.77")))
        });
        assert_eq!(value, sessions, "{role}");
    }
}
