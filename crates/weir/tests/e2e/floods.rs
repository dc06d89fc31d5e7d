//! Servers that say the same kind of thing without end, in a login, to a question of Weir's or to a client: it costs them the connection, and Weir
//! no memory. Others go on.

use crate::support::flooder::{Flood, Flooder, Provoked};
use crate::support::proxy::Backend;
use crate::support::time::happens_within;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::io::Write;
use std::time::Duration;

/// Memory that a flood may take, with all that a few sessions need beside it. A flood has 192 MB.
const GROWTH_KB: u64 = 30_000;

/// Log lines that one flooded attempt may leave; Weir tries again by itself, and the less often the longer it fails.
const LINES_MAX: usize = 40;

/// Begin of the words about an answer to a question of Weir's own, whichever of its limits is passed first.
const ANSWER: &str = "the answer to a question of Weir's";

const ROWS: Flood = Flood::Messages(|number| row(&["s", &format!("made.up_{number}"), "value"]));
const REPORTS: Flood = Flood::Messages(|number| wire::message(b'S', &wire::texts(&[&format!("made_up_{number}"), "value"])));
const NOTICES: Flood = Flood::Messages(|_| wire::message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mall is well\0\0"));

fn row(cells: &[&str]) -> Vec<u8> {
    let mut body = (cells.len() as u16).to_be_bytes().to_vec();
    for cell in cells {
        body.extend((cell.len() as u32).to_be_bytes());
        body.extend(cell.as_bytes());
    }
    wire::message(b'D', &body)
}

/// A proxy before one server that floods, and a client that is at work meanwhile.
struct Scene {
    ground: Ground,
    flooder: Flooder,
    proxy: Proxy,
    witness: Raw,
    before_kb: u64,
}

impl Scene {
    fn new(provoked: Provoked, flood: Flood, more: &str) -> Scene {
        Scene::with_files(provoked, flood, more, &[])
    }

    fn with_files(provoked: Provoked, flood: Flood, more: &str, files: &[(&str, &str)]) -> Scene {
        let ground = Ground::new();
        let flooder = Flooder::before(ground.cluster.primary().port(), provoked, flood);
        let proxy = Proxy::spawn_with_files(&[Backend::tcp(flooder.port(), 1)], more, files, &[]);
        proxy.wait_accepting();
        proxy.wait_for_nodes(1);
        let mut witness = ground.client(&proxy);
        witness.run("begin");
        witness.run("create temporary table mine as select 7 as a");
        let before_kb = proxy.peak_kb();
        flooder.rage();
        Scene { ground, flooder, proxy, witness, before_kb }
    }

    /// The flood was ended by Weir, which took little of it, told the log why, and goes on to serve others.
    fn check(mut self, said: &str) {
        wait_until("the flood to be refused", || self.flooder.refused() > 0 || self.flooder.swallowed() > 0);
        let log = || self.proxy.log();
        wait_until("the log to tell of it", || log().contains(said) || self.flooder.swallowed() > 0);
        assert_eq!(self.witness.value("select a from mine"), "7", "{}", log());
        self.flooder.calm();
        let growth_kb = self.proxy.peak_kb() - self.before_kb;
        assert!(growth_kb < GROWTH_KB, "{growth_kb} kB more after {} floods", self.flooder.begun());
        assert_eq!(self.flooder.swallowed(), 0, "a flood was taken to its end");
        let line = log().lines().find(|line| line.contains(said)).expect("a line").to_owned();
        assert!(line.contains("node 0") && line.contains(&self.flooder.port().to_string()), "{line}");
        let lines = log().lines().filter(|line| line.contains(said)).count();
        assert!(lines < LINES_MAX, "{lines} lines about {} floods", self.flooder.begun());
    }
}

#[test]
fn a_login_without_end_costs_its_own_connection() {
    let cases = [
        (REPORTS, "the list of parameters that the server reports has more than 256 entries"),
        (NOTICES, "what the server says in a login"),
        (Flood::Messages(|_| wire::message(b'R', &[0; 4])), "the authentication of a login has more than 8 entries"),
        (Flood::Messages(|_| wire::message(b'v', &[0; 8])), "what the server says in a login"),
        (Flood::OneMessage(b'E'), "a message of 536870913 bytes"),
    ];
    for (flood, said) in cases {
        let scene = Scene::new(Provoked::ByLogin, flood, "failover_wait = 1");
        // The witness has the only connection of its pool.
        let failure = match Raw::tcp(scene.proxy.port()).log_in("postgres", &scene.ground.database, &[]) {
            Ok(mut other) => other.error("select 1"),
            // Weir has found out already that nobody gets in there.
            Err(failure) => failure,
        };
        assert!(["57P03", "08001", "08P01"].contains(&failure.sqlstate.as_str()), "{failure:?}");
        scene.check(said);
    }
}

#[test]
fn an_answer_without_end_to_a_question_of_weirs_own_costs_its_own_connection() {
    for (provoked, flood, said) in [
        (Provoked::By("pg_is_in_recovery"), ROWS, ANSWER),
        (Provoked::By("pg_is_in_recovery"), NOTICES, ANSWER),
        (Provoked::By("pg_is_in_recovery"), Flood::OneMessage(b'D'), "a message of 536870913 bytes"),
    ] {
        Scene::new(provoked, flood, "sr_check_period = 1").check(said);
    }
}

#[test]
fn a_catalog_without_end_is_given_up_in_words_that_name_the_limit_to_raise() {
    let casts = Flood::Messages(|number| row(&["2200", &format!("a_type_{number}"), "16400", "e"]));
    let said = "the catalog takes more than 4194304 bytes (catalog_max_size, which may be raised)";
    let mut scene = Scene::new(Provoked::By("castfunc"), casts, "catalog_max_size = 4MB");
    // Weir looks at the catalog once a second, and reads it when it has changed.
    scene.ground.direct().run("create table one_more ()");
    wait_until("the flood to be refused", || scene.flooder.refused() > 0);
    wait_until("the log to tell of it", || scene.proxy.log().contains(said));
    assert_eq!(scene.witness.value("select a from mine"), "7");
    let growth_kb = scene.proxy.peak_kb() - scene.before_kb;
    assert!(growth_kb < GROWTH_KB, "{growth_kb} kB more");
    assert_eq!((scene.flooder.swallowed(), scene.proxy.log().matches(said).count()), (0, 1));
    let failing = || crate::support::proxy::show(&mut scene.proxy.console(), "pool_catalogs", "error").concat();
    assert!(failing().contains(said), "{}", failing());
}

#[test]
fn the_fingerprint_of_a_catalog_is_no_longer_than_other_answers() {
    let scene = Scene::new(Provoked::By("pg_namespace"), ROWS, "");
    wait_until("the flood to be refused", || scene.flooder.refused() > 0);
    scene.check(ANSWER);
}

#[test]
fn questions_about_users_are_answered_within_bounds() {
    let rules = "host all +nobodys_role 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n";
    let files = [("pool_hba.conf", rules)];
    let more = "enable_pool_hba = on\nauth_cache_time = 0";
    let scene = Scene::with_files(Provoked::By("WITH RECURSIVE member"), ROWS, more, &files);
    assert!(Raw::tcp(scene.proxy.port()).log_in("postgres", &scene.ground.database, &[]).is_err());
    scene.check(ANSWER);
}

#[test]
fn queries_of_the_configuration_are_answered_within_bounds() {
    let more = "server_check_query = 'select 4711'\nserver_check_delay = 0";
    let scene = Scene::new(Provoked::By("select 4711"), ROWS, more);
    let mut other = scene.ground.client(&scene.proxy);
    let _ = (other.query("select 1"), other.query("select 1"));
    scene.check(ANSWER);
}

/// State that a client's statement left is asked for behind it.
#[test]
fn an_answer_about_a_sessions_state_costs_its_own_connection_when_it_does_not_end() {
    let state = "the answer to a question for a session's state";
    for flood in [ROWS, Flood::OneMessage(b'Z')] {
        let scene = Scene::new(Provoked::By("pg_prepared_statements"), flood, "");
        let mut other = scene.ground.client(&scene.proxy);
        other.run("do $$ begin perform 1; end $$");
        let said = match flood {
            Flood::Messages(_) => state,
            Flood::OneMessage(_) => "a message \"Z\" of 536870913 bytes",
        };
        scene.check(said);
    }
}

#[test]
fn an_answer_to_a_client_that_no_server_would_give_costs_its_own_connection() {
    for (flood, said) in [
        (REPORTS, "the list of parameters that the server reports has more than 256 entries"),
        (Flood::OneMessage(b'Z'), "a message \"Z\" of 536870913 bytes"),
    ] {
        let scene = Scene::new(Provoked::By("select 'provoked'"), flood, "");
        let mut other = scene.ground.client(&scene.proxy);
        other.send(&wire::query("select 'provoked'"));
        while matches!(other.try_read(), Ok(Some(message)) if message.tag != b'Z') {}
        scene.check(said);
    }
}

#[test]
fn the_number_of_a_transaction_is_no_long_row() {
    let scene = Scene::new(Provoked::By("txid_current()"), Flood::OneMessage(b'D'), "commit_outcome = on");
    scene.ground.prepare("create table t (a int)");
    let mut other = scene.ground.client(&scene.proxy);
    other.run("begin");
    let _ = other.query("insert into t values (1)");
    scene.check("a message \"D\" of 536870913 bytes");
}

/// Weir stops to read from who does not read.
#[test]
fn a_pipeline_whose_answers_nobody_reads_is_not_taken_in() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let client = ground.client(&proxy);
    let before_kb = proxy.peak_kb();
    let mut stream = client.tcp_stream();
    stream.set_nonblocking(true).unwrap();
    let batch = wire::query("select repeat('x', 1000)").repeat(500);
    let mut sent = 0;
    // Whole messages, however much of them is taken at once.
    let mut takes_more = || match stream.write(&batch[sent % batch.len()..]) {
        Ok(bytes) => {
            sent += bytes;
            assert!(sent < 64 << 20, "all is taken in");
            true
        }
        Err(_) => false,
    };
    while happens_within(Duration::from_millis(500), &mut takes_more) {}
    let growth_kb = proxy.peak_kb() - before_kb;
    assert!(growth_kb < GROWTH_KB, "{growth_kb} kB more");
}

/// A standby that floods takes no reads, and the others do.
#[test]
fn reads_go_on_elsewhere_when_a_standby_floods_every_login() {
    let ground = Ground::new();
    let standby = ground.cluster.standbys()[0].port();
    let flooder = Flooder::before(standby, Provoked::ByLogin, REPORTS);
    flooder.rage();
    let backends = [Backend::tcp(ground.cluster.primary().port(), 1), Backend::tcp(flooder.port(), 1)];
    let proxy = Proxy::spawn(&backends, "");
    let mut client = ground.client(&proxy);
    for number in 0..50 {
        assert_eq!(client.value(&format!("select {number}")), number.to_string());
    }
    wait_until("the standby to be looked at", || flooder.refused() > 0);
    assert_eq!(flooder.swallowed(), 0);
}

#[test]
fn statements_prepared_without_end_do_not_fill_the_memory() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1");
    let mut client = ground.client(&proxy);
    let before_kb = proxy.peak_kb();
    let text = format!("select 1 -- {}", "x".repeat(250_000));
    let refused = (0..1_000).find_map(|number| {
        client.send(&[wire::parse(&format!("name_{number}"), &text), wire::sync()].concat());
        client.until_ready().into_iter().find(|message| message.tag == b'E').map(|message| (number, message.failure()))
    });
    let (number, failure) = refused.expect("a limit");
    assert_eq!(failure.sqlstate, "54000", "{failure:?}");
    assert!((250..300).contains(&number), "{number}");
    let growth_kb = proxy.peak_kb() - before_kb;
    assert!(growth_kb < 120_000, "{growth_kb} kB more");
    client.send(&[wire::close(b'S', "name_0"), wire::parse("another", &text), wire::sync()].concat());
    assert_eq!(client.tags(), "31Z");
}
