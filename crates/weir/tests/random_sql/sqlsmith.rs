//! Statements of Debian's `sqlsmith`: it looks at a database and makes up queries of all that is in it.
//!
//! It only prints them. Each then runs outside of a transaction on the primary and through Weir, as a role that may touch
//! nothing but its own schema. Their results depend on the moment, so only errors are compared.

use crate::support::{Ground, Raw, leave_out};
use std::collections::BTreeMap;
use std::process::Command;

/// Statements when nothing else is asked for.
const STATEMENTS: u64 = 1500;

/// Statements of one session: some functions it calls make a session keep its connection to the primary.
const OF_ONE_SESSION: usize = 20;

/// Objects that it finds. Small tables, so that none of its statements takes long.
const SCHEMA: &str = "create table items (id int primary key, name text, price numeric, at timestamptz default '2024-02-03', tags text[]);
    insert into items select i, 'item ' || i, i * 1.5, '2024-02-03'::timestamptz + i * interval '1 day', array['a', 'b'] from generate_series(1, 8) i;
    create table orders (id int primary key, item int references items, amount int, note jsonb);
    insert into orders select i, i, i * 2, '{\"a\": 1}' from generate_series(1, 8) i;
    create unlogged table drafts (id int, body text);
    insert into drafts values (1, 'one');
    create sequence numbers;
    create view cheap as select * from items where price < 5;
    create view totals as select i.name, sum(o.amount) as total from cheap i join orders o on o.item = i.id group by i.name;
    create view drafted as select * from drafts;
    create function counted(int) returns bigint language sql stable as 'select count(*) + $1 from items';
    create function noted(int) returns int language sql as 'insert into drafts values ($1, ''noted'') returning id';
    create function lies(int) returns int language sql stable as 'select noted($1)';
    create view noting as select id, noted(id) as n from items;
    create role weir_smith login;
    grant usage on schema public to weir_smith;
    grant all on all tables in schema public to weir_smith;
    grant all on all sequences in schema public to weir_smith";

/// Errors of a standby, or of one that is behind, or of a lost connection. Not if the primary says it too.
const OF_STANDBYS: &[&str] =
    &["25006", "40001", "57P01", "57P03", "58P01", "08006", "08P01", "3D000", "42P01", "42883", "42703", "lost"];

#[test]
fn what_sqlsmith_makes_up_meets_no_error_of_a_standby() {
    let ground = Ground::new();
    let Some(statements) = statements(&ground) else { return };
    let proxy = ground.proxy("causal_reads = session\n");
    let limits = [("statement_timeout", "2s"), ("client_min_messages", "error")];
    let log_in = |port: u16| Raw::tcp(port).log_in("weir_smith", &ground.database, &limits).unwrap();
    drop(ground.client(&proxy));
    let (mut direct, mut through) = (log_in(ground.cluster.primary().port()), log_in(proxy.port()));
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::<String, u32>::new());
    for (at, statement) in statements.iter().enumerate() {
        if at % OF_ONE_SESSION == 0 {
            (direct, through) = (log_in(ground.cluster.primary().port()), log_in(proxy.port()));
        }
        let (expected, got) = (state(&mut direct, statement), state(&mut through, statement));
        *counts.entry(got.0.clone()).or_default() += 1;
        let is_standbys = OF_STANDBYS.contains(&got.0.as_str()) || got.1.contains("recovery");
        if is_standbys && got.0 != expected.0 {
            wrong.push(format!("{statement}\n  direct  {expected:?}\n  through {got:?}"));
        }
        for (client, port) in [(&mut direct, ground.cluster.primary().port()), (&mut through, proxy.port())] {
            if client.try_rows("select 1").is_err() {
                *client = log_in(port);
            }
        }
    }
    let on_standbys: u64 = proxy.nodes("select_cnt").iter().skip(1).map(|count| count.parse::<u64>().unwrap()).sum();
    eprintln!("sqlsmith: {} statements, {on_standbys} reads on standbys, outcomes {counts:?}", statements.len());
    assert!(wrong.is_empty(), "{} statements:\n{}", wrong.len(), wrong.join("\n"));
    assert!(on_standbys > 0, "no statement was answered by a standby");
    drop((direct, through));
    ground.prepare("drop owned by weir_smith; drop role weir_smith");
}

/// The SQLSTATE and message of a statement; `ok` if there is none.
fn state(client: &mut Raw, statement: &str) -> (String, String) {
    match client.try_rows(statement) {
        Ok(_) => ("ok".into(), String::new()),
        Err(failure) => (failure.sqlstate, failure.message),
    }
}

/// Output of the program; none if it is not installed.
fn statements(ground: &Ground) -> Option<Vec<String>> {
    if Command::new("sqlsmith").arg("--version").output().is_err() {
        leave_out("sqlsmith is not installed (Debian's package sqlsmith)");
        return None;
    }
    ground.prepare(SCHEMA);
    let target = format!("host=127.0.0.1 port={} user=weir_smith dbname={}", ground.primary_port(), ground.database);
    let count = crate::number_of("WEIR_ROUNDS").map_or(STATEMENTS, |rounds| rounds * 100);
    let mut command = Command::new("sqlsmith");
    command.arg(format!("--target={target}")).arg(format!("--max-queries={count}")).args(["--dry-run", "--exclude-catalog"]);
    let output = command.arg(format!("--seed={}", crate::first_seed() % 1_000_000)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let statements: Vec<String> = text.split(";\n").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    assert!(statements.len() as u64 >= count / 2, "sqlsmith said:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(statements)
}
