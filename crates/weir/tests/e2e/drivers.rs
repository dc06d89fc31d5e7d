//! The clients people use: psql, pgbench, tokio-postgres.

use crate::support::driver::{self, Login};
use crate::support::{Ground, Proxy};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio_postgres::NoTls;

fn program(name: &str, ground: &Ground, proxy: &Proxy) -> Command {
    let mut command = Command::new(name);
    command.env("PGHOST", "127.0.0.1").env("PGPORT", proxy.port().to_string()).env("PGUSER", "postgres");
    command.env("PGDATABASE", &ground.database).env("LC_ALL", "C").env_remove("PGOPTIONS");
    command
}

/// Output of psql for a script, unaligned and without heads. Errors stop it.
fn psql(ground: &Ground, proxy: &Proxy, script: &str) -> String {
    let output = psql_with(ground, proxy, &["-v", "ON_ERROR_STOP=1"], script);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn psql_with(ground: &Ground, proxy: &Proxy, arguments: &[&str], script: &str) -> Output {
    let mut command = program("psql", ground, proxy);
    command.args(["-X", "-q", "-A", "-t"]).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("psql is installed");
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn pgbench(ground: &Ground, proxy: &Proxy, arguments: &[&str]) -> String {
    let output = program("pgbench", ground, proxy).args(arguments).output().expect("pgbench is installed");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "pgbench {arguments:?}:\n{said}{errors}");
    assert!(!errors.contains("error:") && !errors.contains("aborted"), "{errors}");
    said.into_owned()
}

#[test]
fn psql_runs_a_session_with_everything_in_it() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let script = "
        create table t (a int primary key, b text);
        begin;
        insert into t values (1, 'one'), (2, 'two');
        savepoint s;
        insert into t values (3, 'three');
        rollback to s;
        commit;
        \\copy t from stdin
5\tfive
6\tsix
\\.
        begin;
        select count(*), max(b) from t;
        declare c cursor for select a from t order by a;
        fetch 2 from c;
        close c;
        commit;
        prepare p as select $1::int + 1;
        execute p(41);
        \\set x 7
        select :x + 1;
        create temp table tmp as select 1 as one;
        select one from tmp;
        \\copy (select a from t order by a) to stdout
        set work_mem = '9MB';
        show work_mem;
        select 'gset' as v \\gset
        \\echo :v
        \\dt t
        select current_database() = :'DBNAME';
    ";
    let expected = "4|two\n1\n2\n42\n8\n1\n1\n2\n5\n6\n9MB\ngset\npublic|t|table|postgres\nt\n";
    assert_eq!(psql(&ground, &proxy, script), expected);
}

#[test]
fn psql_shows_errors_notices_and_where_they_are() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let output =
        psql_with(&ground, &proxy, &["-v", "VERBOSITY=verbose"], "select 1/0;\nselec;\ndrop table if exists nothing;\nselect 5;");
    let errors = String::from_utf8(output.stderr).unwrap();
    for part in ["22012", "42601", "LINE 1: selec", "NOTICE", "does not exist, skipping"] {
        assert!(errors.contains(part), "{part} is missing in {errors}");
    }
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "5\n");
}

#[test]
fn psql_lists_nodes_as_a_table() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let said = psql(&ground, &proxy, "show pool_nodes;\nshow pool_version;\npgpool show port;");
    assert_eq!(said.lines().count(), 5, "{said}");
    assert!(said.lines().next().unwrap().starts_with(&format!("0|127.0.0.1|{}|up|up|", ground.primary_port())), "{said}");
}

#[test]
fn pgbench_runs_in_every_protocol_with_and_without_reconnecting() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_size = 4");
    pgbench(&ground, &proxy, &["-i", "-s", "1", "-q"]);
    ground.cluster.wait_caught_up().unwrap();
    for mode in ["simple", "extended", "prepared"] {
        let said = pgbench(&ground, &proxy, &["-n", "-S", "-M", mode, "-c", "8", "-t", "200"]);
        assert!(said.contains("1600/1600"), "{said}");
        let said = pgbench(&ground, &proxy, &["-n", "-S", "-C", "-M", mode, "-c", "4", "-t", "30"]);
        assert!(said.contains("120/120"), "{said}");
    }
}

#[test]
fn pgbenchs_bank_stays_in_balance_while_standbys_take_reads() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_size = 4");
    pgbench(&ground, &proxy, &["-i", "-s", "1", "-q"]);
    ground.cluster.wait_caught_up().unwrap();
    for mode in ["simple", "extended", "prepared"] {
        pgbench(
            &ground,
            &proxy,
            &["-n", "-M", mode, "-c", "8", "-j", "8", "-t", "50", "-b", "tpcb-like@3", "-b", "select-only@2"],
        );
    }
    ground.cluster.wait_caught_up().unwrap();
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches), \
                (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history), \
                (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)";
    assert_eq!(ground.direct().rows(sums), [["t", "t", "t"]]);
    for standby in ground.cluster.standbys() {
        assert_eq!(ground.direct_to(standby).rows(sums), [["t", "t", "t"]]);
    }
    let counts = proxy.nodes("select_cnt");
    assert!(counts[1] != "0" && counts[2] != "0", "standbys took reads: {counts:?}");
}

#[test]
fn pgbench_pipelines() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let file = proxy.folder().join("pipeline.sql");
    let mut script = String::from("\\startpipeline\n");
    for number in 0..50 {
        script += &format!("select {number};\n");
    }
    std::fs::write(&file, script + "\\endpipeline\n").unwrap();
    let file = file.to_string_lossy().into_owned();
    for mode in ["extended", "prepared"] {
        let said = pgbench(&ground, &proxy, &["-n", "-M", mode, "-f", &file, "-c", "4", "-t", "50"]);
        assert!(said.contains("200/200"), "{said}");
    }
}

#[test]
fn tokio_postgres_prepares_pipelines_copies_and_rolls_back() {
    let ground = Ground::new();
    ground.prepare("create table t (a int, b text)");
    let proxy = ground.proxy("pool_size = 2");
    // Until the catalog is known, a function is for the primary.
    drop(ground.client(&proxy));
    let login = Login { database: ground.database.clone(), ..Login::new(proxy.port(), "postgres", "") };
    driver::block_on(async {
        let (mut client, _mover) = driver::connect(&login).await.unwrap();
        let (other, _other_mover) = driver::connect(&login).await.unwrap();
        let insert = client.prepare("insert into t values ($1, $2)").await.unwrap();
        let select = client.prepare("select a, b from t where a = $1 for share").await.unwrap();
        for number in 0..50i32 {
            client.execute(&insert, &[&number, &format!("text {number}")]).await.unwrap();
            let row = client.query_one(&select, &[&number]).await.unwrap();
            assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (number, format!("text {number}").as_str()));
            assert_eq!(other.query_one("select 7", &[]).await.unwrap().get::<_, i32>(0), 7);
        }
        // Several at once on one connection: the driver pipelines them.
        let texts: Vec<String> = (0..30).map(|number| format!("select {number}::int4")).collect();
        let all = futures_all(texts.iter().map(|text| client.query_one(text.as_str(), &[])).collect()).await;
        for (number, row) in all.into_iter().enumerate() {
            assert_eq!(row.unwrap().get::<_, i32>(0), number as i32);
        }
        let transaction = client.transaction().await.unwrap();
        transaction.execute("delete from t", &[]).await.unwrap();
        let portal = transaction.bind("select generate_series(1, 10)", &[]).await.unwrap();
        assert_eq!(transaction.query_portal(&portal, 4).await.unwrap().len(), 4);
        assert_eq!(transaction.query_portal(&portal, 0).await.unwrap().len(), 6);
        transaction.rollback().await.unwrap();
        let transaction = client.build_transaction().read_only(true).start().await.unwrap();
        let in_recovery: bool = transaction.query_one("select pg_is_in_recovery()", &[]).await.unwrap().get(0);
        assert!(in_recovery, "what only reads runs on a standby");
        transaction.commit().await.unwrap();
        let error = client.execute(&insert, &[&1i64, &"x"]).await;
        assert!(error.is_err(), "a wrong type is the driver's own error");
        assert_eq!(client.query_one(&select, &[&49i32]).await.unwrap().get::<_, &str>(1), "text 49");
    });
}

/// Polls all of them together.
async fn futures_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (at, future) in futures.iter_mut().enumerate() {
            if results[at].is_none()
                && let std::task::Poll::Ready(result) = future.as_mut().poll(context)
            {
                results[at] = Some(result);
            }
        }
        if results.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[test]
fn tokio_postgres_cancels_its_own_query() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let login = Login { database: ground.database.clone(), ..Login::new(proxy.port(), "postgres", "") };
    driver::block_on(async {
        let (client, _mover) = driver::connect(&login).await.unwrap();
        let token = client.cancel_token();
        let query = client.query_one("select 1 from pg_sleep(50)", &[]);
        let cancel = async {
            let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
            while ground.direct().value(asleep) == "0" {
                tokio::task::yield_now().await;
            }
            token.cancel_query(NoTls).await.unwrap();
        };
        let (result, ()) = tokio::join!(query, cancel);
        assert!(driver::describe(&result.unwrap_err()).starts_with("57014"));
        let one: i32 =
            tokio::time::timeout(Duration::from_secs(30), client.query_one("select 1", &[])).await.unwrap().unwrap().get(0);
        assert_eq!(one, 1);
    });
}
