//! Changes of spread tables: each shard carries them out, or none, and the engine gives no answer by columns that are not there any more.

use crate::cancel::cancel;
use crate::support::ground::wait_until;
use crate::support::proxy::show;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};

const TABLES: &str = "create table accounts (id int primary key, balance int not null check (balance >= 0), note text);
    create table countries (id int primary key, name text);
    create table plain (id int primary key, note text);
    create type mood as enum ('good', 'bad')";

const ROWS: &str = "insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, 40) i";
const COUNTRIES: &str = "insert into countries select i, 'country ' || i from generate_series(1, 10) i";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query(COUNTRIES).unwrap();
    spread.whole().query(ROWS).unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// The definitions of the spread tables on one server.
fn definitions(server: &weir_demo::Server) -> String {
    let text = "select string_agg(line, E'\\n' order by line) from (\
        select concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) \
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum where c.relname in ('accounts', 'countries') \
        union all select concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint \
        where conrelid in ('accounts'::regclass, 'countries'::regclass) and conname <> 'weir_shard_key' and contype <> 'n' \
        union all select concat_ws(' ', relname, (select string_agg(a::text, ',' order by a::text) from unnest(coalesce(relacl, acldefault('r', relowner))) a \
        where a::text not like 'weir\\_engine=%'), obj_description(oid, 'pg_class')) from pg_class where relname in ('accounts', 'countries') \
        union all select concat_ws(' ', attrelid::regclass, attname, attacl, col_description(attrelid, attnum)) from pg_attribute \
        where attrelid in ('accounts'::regclass, 'countries'::regclass) and attnum > 0 and not attisdropped \
        union all select indexdef from pg_indexes where tablename in ('accounts', 'countries')) x (line)";
    server.value(text).unwrap()
}

fn check_definitions(spread: &Spread, what: &str) {
    wait_until("all parts to end", || is_over(spread));
    let expected = definitions(spread.whole());
    for shard in 0..SHARDS {
        assert_eq!(definitions(spread.server(shard)), expected, "shard {shard}: {what}");
    }
}

fn is_over(spread: &Spread) -> bool {
    let text = "select (select count(*) from pg_prepared_xacts) \
        + (select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = 'postgres')";
    (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
}

/// Tag, or SQLSTATE.
fn said(answer: &Answer) -> String {
    answer.failure.clone().unwrap_or_else(|| answer.said.join(","))
}

const CHANGES: [&str; 30] = [
    "alter table accounts add column more int default 7",
    "alter table accounts add column at timestamptz, add column kind varchar(9) not null default 'x' check (kind <> '')",
    "alter table accounts add column more int",
    "alter table accounts drop column at",
    "alter table accounts rename column more to less",
    "alter table accounts alter column less set default -3, alter column note set default 'none'",
    "alter table accounts alter column note set not null",
    "alter table accounts alter column note drop not null, alter column note drop default",
    "alter table accounts add constraint small check (balance < 1000)",
    "alter table accounts add constraint wrong check (balance > 1000)",
    "alter table accounts drop constraint small",
    "alter table accounts alter column id set not null",
    "create index accounts_note on accounts (note)",
    "create index accounts_note on accounts (note)",
    "create unique index accounts_both on public.accounts (lower(note), id) where note <> ''",
    "alter table countries add column if not exists code char(2)",
    "alter table countries rename name to title",
    "create unique index countries_title on countries (title)",
    "alter table countries add column number numeric(9, 2) default 1.50 not null",
    "alter table countries drop code",
    "grant select, insert (id, note) on accounts to clerk with grant option",
    "grant all on accounts, countries to public",
    "revoke update, delete on countries from public",
    "revoke grant option for insert (id) on accounts from clerk cascade",
    "grant select on accounts to nobody_knows",
    "comment on table accounts is 'what is owed'",
    "comment on column public.countries.title is 'its name'",
    "comment on column accounts.nothing is 'x'",
    "truncate countries",
    "truncate table accounts, countries",
];

#[test]
fn all_shards_change_their_tables_as_one_server_would() {
    for (more, how) in [("", How::Simple), ("commit_outcome = on\nworker_threads = 1\npool_size = 1\n", How::Extended)] {
        let spread = ground(more);
        spread.everywhere("create role clerk");
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for text in CHANGES {
            let (told, expected) = (ask(&mut client, how, text, &[]), ask(&mut direct, how, text, &[]));
            assert_eq!(said(&told), said(&expected), "{how:?} {text}");
            check_definitions(&spread, text);
        }
        let count = |shard: usize| spread.server(shard).value("select count(*) from accounts").unwrap();
        assert!((0..SHARDS).all(|shard| count(shard) == "0"));
        // Rows come and go by the new columns.
        for text in ["insert into accounts (id, balance, less) values (1, 5, 6)", "insert into countries values (1, 'one', 3)"] {
            let (told, expected) = (ask(&mut client, how, text, &[]), ask(&mut direct, how, text, &[]));
            assert_eq!(said(&told), said(&expected), "{text}");
        }
        spread.wait_ready("select a.less, c.title, c.number from accounts a join countries c on c.id = a.id");
        for text in [
            "select * from accounts order by id",
            "select a.less, c.title, c.number from accounts a join countries c on c.id = a.id",
        ] {
            assert_eq!(ask(&mut client, how, text, &[]), ask(&mut direct, how, text, &[]), "{text}");
        }
        spread.command("check postgres");
    }
}

/// Asks again while Weir reads the names of new indexes.
fn settled(client: &mut Raw, text: &str) -> String {
    let mut told = String::new();
    wait_until("the statement to have an answer", || {
        told = said(&ask(client, How::Simple, text, &[]));
        told != "57P03"
    });
    told
}

#[test]
fn an_index_of_a_spread_table_is_dropped_on_all_shards() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for text in [
        "create index accounts_note on accounts (note)",
        "drop index public.accounts_note",
        "create index accounts_note on accounts (balance)",
        "drop index if exists public.accounts_note restrict",
        "create index accounts_note on accounts (note)",
        "create index countries_name on countries (name)",
        "drop index public.accounts_note, public.countries_name",
        "drop index public.accounts_pkey",
        "create index accounts_note on accounts (note)",
        "create index plain_note on plain (note)",
    ] {
        assert_eq!(settled(&mut client, text), said(&ask(&mut direct, How::Simple, text, &[])), "{text}");
        check_definitions(&spread, text);
    }
    for text in [
        "drop index concurrently public.accounts_note",
        "drop index public.accounts_note, public.plain_note",
        "alter index public.accounts_note set (fillfactor = 70)",
    ] {
        assert_eq!(settled(&mut client, text), "0A000", "{text}");
        check_definitions(&spread, text);
    }
    assert_eq!(settled(&mut client, "drop index plain_note"), "DROP INDEX");
    spread.command("check postgres");
}

#[test]
fn statements_over_several_shards_wait_until_the_engine_has_the_new_columns() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\npool_size = 1\ncross_shard_reads = latest\n"]) {
        the_engine_is_waited_for(&ground(more));
    }
}

fn the_engine_is_waited_for(spread: &Spread) {
    let (mut client, mut other) = (spread.client(), spread.client());
    let text = "select * from accounts order by id limit 1";
    for (change, name, count) in [
        ("alter table accounts add column more int default 7", "more", 4),
        ("alter table accounts rename column note to old", "old", 4),
        ("alter table accounts drop column more", "balance", 3),
    ] {
        assert_eq!(client.rows("select count(*) from accounts"), [["40"]]);
        client.run(change);
        // Rows of one shard are read all the while.
        client.run(&format!("select {name} from accounts where id = 3"));
        other.send(&How::Extended.messages(text, &[]));
        // In a block whose transaction has not begun.
        client.run("begin");
        assert_eq!(client.rows(text)[0].len(), count, "{change}");
        client.run("commit");
        let answer = Answer::of(&other.until_ready());
        assert_eq!((answer.failure, answer.columns.len(), answer.rows.len()), (None, count, 1), "{change}");
        client.run(&format!("select {name} from accounts order by {name}"));
    }
    assert!(spread.proxy.log().contains("the tables of database \"postgres\" have changed: the engine of \"postgres\" is ready"));
    // One that fails, and one that changes no columns, leave the engine ready a moment later.
    assert_eq!(client.error("alter table accounts add column balance int").sqlstate, "42701");
    assert_eq!(client.rows("select count(*) from accounts"), [["40"]]);
    // A change past Weir.
    let holder = hold_engine(spread);
    (0..SHARDS).for_each(|shard| drop(spread.server(shard).query("alter table accounts rename column old to older").unwrap()));
    wait_until("the change to be seen", || engine_words(&mut client).iter().any(|words| words.starts_with("behind: ")));
    client.send(&wire::query("select older from accounts order by id"));
    drop(holder);
    assert_eq!(Answer::of(&client.until_ready()).rows.len(), 40);
    client.run("alter table accounts rename column older to old");
    client.run("create index accounts_old on accounts (old)");
    assert_eq!(client.rows("select count(*) from accounts"), [["40"]]);
}

#[test]
fn writes_on_several_shards_wait_until_the_catalog_is_read_behind_a_definition() {
    for more in ["", "io_method = epoll\nworker_threads = 1\npool_size = 2\ncross_shard_reads = latest\n"] {
        let spread = ground(more);
        let (mut client, mut other) = (spread.client(), spread.client());
        for change in [
            "alter table accounts add column more int",
            "create table newer (id int)",
            "create index accounts_note on accounts (note)",
        ] {
            // Nobody has looked at the database since the definition.
            let texts = [
                change,
                "update accounts set balance = balance + 1 where id <> 1",
                "insert into accounts (id, balance) values (101, 1), (102, 1), (103, 1), (104, 1)",
                "insert into countries values (100, 'one')",
                "delete from accounts where balance = 1",
                "delete from countries where id = 100",
            ];
            client.send(&texts.map(wire::query).concat());
            for text in texts {
                assert_eq!(Answer::of(&client.until_ready()).failure, None, "{change}: {text}");
            }
            // In a transaction that has a server connection.
            other.run("begin");
            other.run("update accounts set balance = balance + 1 where id = 1");
            client.run("create table passing (id int)");
            other.run("update accounts set balance = balance + 1 where id in (2, 3, 4, 5, 6)");
            other.run("commit");
            client.run("drop table passing");
        }
        client.send(
            &["create index accounts_more on accounts (more)", "drop index public.accounts_more"].map(wire::query).concat(),
        );
        assert_eq!([(); 2].map(|()| said(&Answer::of(&client.until_ready()))), ["CREATE INDEX", "DROP INDEX"]);
    }
}

#[test]
fn a_row_by_the_order_of_columns_waits_until_the_engine_has_the_new_ones() {
    let spread = ground("");
    spread.define("create table notes (line text, id int primary key, more text)");
    spread.shard("notes", "id", "");
    spread.wait_known("notes");
    spread.wait_ready("select count(*) from notes");
    let mut client = spread.client();
    let rows: Vec<String> = (10..30).map(|id| format!("({id}, 'y')")).collect();
    let many = format!("insert into notes values {}", rows.join(","));
    client.send(&[wire::query("alter table notes drop column line"), wire::query(&many)].concat());
    client.send(&How::Extended.messages("insert into notes values ($1, $2)", &["50", "z"]));
    for tag in ["ALTER TABLE", "INSERT 0 20", "INSERT 0 1"] {
        assert_eq!(said(&Answer::of(&client.until_ready())), tag);
    }
    assert_eq!(client.rows("select count(*), sum(id) from notes"), [["21", "440"]]);
}

#[test]
fn looks_go_on_while_others_hold_the_tables_of_the_engine_and_of_a_shard() {
    for more in ["", "io_method = epoll\nworker_threads = 1\npool_size = 2\ncross_shard_reads = latest\n"] {
        let spread = ground(more);
        let (mut client, mut other) = (spread.client(), spread.client());
        // The answers need looks behind these definitions.
        let mut work = |what: &str| {
            other.run("begin");
            other.run("update accounts set balance = balance + 1 where id = 1");
            client.run("create table passing (id int)");
            for shard in [0, 2] {
                let id = spread.server(shard).value("select max(id) from accounts").unwrap();
                other.run(&format!("update accounts set balance = balance + 1 where id = {id}"));
            }
            other.run("rollback");
            client.run("drop table passing");
            assert_eq!(client.rows("select count(*) from plain"), [["0"]], "{what}");
        };
        let mut engine = Raw::tcp(spread.server(0).port()).log_in("postgres", "postgres_engine", &[]).unwrap();
        engine.run("begin");
        engine.run("lock table accounts");
        // The first time a look may have ended before the lock.
        (0..2).for_each(|_| work("the engine's table is locked"));
        engine.run("rollback");
        // The engine follows a change, and waits for a client's lock on a shard.
        let holder = hold_engine(&spread);
        (0..SHARDS).for_each(|shard| drop(spread.server(shard).query("alter table accounts add column more int").unwrap()));
        let mut direct = Raw::tcp(spread.server(1).port()).log_in("postgres", "postgres", &[]).unwrap();
        direct.run("begin");
        direct.run("lock table accounts");
        drop(holder);
        wait_until("the engine to wait for the lock", || {
            let waits =
                "select count(*) from pg_stat_activity where application_name = 'weir_engine' and wait_event_type = 'Lock'";
            spread.server(1).value(waits).unwrap() == "1"
        });
        (0..2).for_each(|_| work("a shard's table is locked"));
        direct.run("commit");
        assert_eq!(spread.client().rows("select count(more), count(*) from accounts"), [["0", "40"]]);
    }
}

#[test]
fn rights_that_are_said_in_an_open_transaction_hold_no_reads_up() {
    let spread = ground("");
    spread.everywhere("create role reader login");
    let (mut client, mut owner, mut reader) = (spread.client(), spread.client(), spread.client_of("reader"));
    client.run("grant select on accounts to reader");
    spread.wait_ready("select count(*) from accounts");
    wait_until("the right to count", || reader.try_rows("select count(*) from accounts").is_ok());
    // The first role may give nothing, and is told so by a warning.
    for (who, text, end) in [
        (&mut reader, "grant select on accounts to public", "rollback"),
        (&mut owner, "revoke select on accounts from reader", "commit"),
    ] {
        who.run("begin");
        who.run(text);
        // Behind a wait of ten seconds it would fail.
        assert_eq!(client.rows("select count(*) from accounts"), [["40"]]);
        who.run(end);
    }
    wait_until("the right to be gone", || {
        reader.try_rows("select count(*) from accounts").is_err_and(|failure| failure.sqlstate == "42501")
    });
    assert_eq!(client.rows("select count(*) from accounts"), [["40"]]);
}

/// The column `engine` of all tables.
fn engine_words(client: &mut Raw) -> Vec<String> {
    client.rows("show pool_shard_tables").into_iter().filter_map(|row| row.last().cloned()).collect()
}

/// Keeps the engine from following a change until it is dropped.
fn hold_engine(spread: &Spread) -> Raw {
    let mut holder = Raw::tcp(spread.server(0).port()).log_in("postgres", "postgres_engine", &[]).unwrap();
    // The lock of all who change the engine.
    holder.run("select pg_advisory_lock(8391462)");
    holder
}

#[test]
fn a_statement_that_waits_for_the_engine_ends_by_a_cancel_the_loss_of_its_client_or_a_limit() {
    let spread = ground("pool_size = 2\nadmin_users = 'postgres'\n");
    let mut client = spread.client();
    client.run("select count(*) from accounts");
    let holder = hold_engine(&spread);
    client.run("alter table accounts add column more int default 7");
    let text = "select more from accounts order by id limit 1";
    let waiting = |spread: &Spread| {
        let mut console = Raw::unix(spread.proxy.folder(), spread.proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
        show(&mut console, "clients", "state").iter().filter(|state| *state == "waiting").count()
    };
    client.send(&wire::query(text));
    wait_until("the statement to wait", || waiting(&spread) == 1);
    let mut others: Vec<Raw> = (0..5).map(|_| spread.client()).collect();
    others.iter_mut().for_each(|other| other.send(&wire::query(text)));
    wait_until("all to wait", || waiting(&spread) == 6);
    // Nobody else is held up.
    assert_eq!(spread.client().rows("select more from accounts where id = 3"), [["7"]]);
    cancel(&spread.proxy, client.pid, &client.key.clone());
    assert_eq!(said(&Answer::of(&client.until_ready())), "57014");
    drop(others.pop());
    wait_until("the client to be gone", || waiting(&spread) == 4);
    for mut other in others {
        let failure = Answer::of(&other.until_ready()).failure;
        assert!(matches!(failure.as_deref(), Some("0A000" | "57P03")), "{failure:?}");
        other.run("select 1");
    }
    drop(holder);
    assert_eq!(client.rows(text), [["7"]]);
}

#[test]
fn a_change_of_columns_that_waits_for_a_lock_has_statements_over_several_shards_wait() {
    let spread = ground("");
    let (mut client, mut other) = (spread.client(), spread.client());
    let mut holder = Raw::tcp(spread.server(1).port()).log_in("postgres", "postgres", &[]).unwrap();
    holder.run("begin");
    holder.run("select count(*) from accounts");
    client.send(&wire::query("alter table accounts add column more int default 7"));
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    wait_until("the statement to wait", || spread.server(1).value(waits).unwrap() != "0");
    other.send(&wire::query("select * from accounts order by id limit 1"));
    holder.run("commit");
    assert_eq!(said(&Answer::of(&client.until_ready())), "ALTER TABLE");
    assert_eq!(Answer::of(&other.until_ready()).columns.len(), 4);
}

#[test]
fn a_grant_counts_in_the_engine_with_the_next_statement() {
    let spread = ground("");
    spread.everywhere("create role reader login");
    let (mut client, mut reader) = (spread.client(), spread.client_of("reader"));
    for (text, sqlstate) in [
        ("grant select on accounts to reader", None),
        ("revoke select on accounts from reader", Some("42501")),
        ("grant select (id) on accounts to reader", None),
        ("revoke all on accounts, countries from reader", Some("42501")),
    ] {
        client.run(text);
        let answer = ask(&mut reader, How::Simple, "select count(id) from accounts", &[]);
        assert_eq!(answer.failure.as_deref(), sqlstate, "{text}: {answer:?}");
    }
    let failure = spread.client_of("reader").error("grant select on accounts to weir_engine");
    assert_eq!(failure.sqlstate, "42501");
    check_definitions(&spread, "rights");
}

#[test]
fn the_engine_follows_rights_and_takes_none() {
    let spread = ground("");
    spread.everywhere("create role reporter login");
    assert_eq!(spread.client_of("reporter").error("select count(*) from accounts").sqlstate, "42501");
    spread.everywhere("grant select on accounts to reporter");
    wait_until("the engine to follow", || spread.client_of("reporter").try_value("select count(*) from accounts").is_ok());
    // A right that is taken from the role of the engine stays taken.
    let may = "select has_table_privilege('weir_engine', 'accounts', 'select')";
    spread.server(0).query("revoke select on accounts from weir_engine").unwrap();
    wait_until("the log", || spread.proxy.log().contains("\"weir_engine\" may not read all spread tables"));
    let failure = spread.client().error("select count(*) from accounts");
    assert!(failure.sqlstate == "0A000" && failure.hint.contains("the log says why"), "{failure:?}");
    assert_eq!(spread.server(0).value(may).unwrap(), "f");
    spread.client().run("select balance from accounts where id = 3");
    spread.server(0).query("grant select on accounts to weir_engine").unwrap();
    spread.wait_ready("select count(*) from accounts");
}

#[test]
fn an_error_or_the_loss_of_one_shard_changes_nothing() {
    let spread = ground("");
    let text = "alter table accounts add column more int";
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    for shard in 0..SHARDS {
        spread.server(shard).query("alter table accounts add column more text").unwrap();
        for how in [How::Simple, How::Extended] {
            assert_eq!(said(&ask(&mut spread.client(), how, text, &[])), "42701", "{shard}");
        }
        spread.server(shard).query("alter table accounts drop column more").unwrap();
        check_definitions(&spread, "an error");
        if shard == 1 {
            continue;
        }
        let mut holder = Raw::tcp(spread.server(shard).port()).log_in("postgres", "postgres", &[]).unwrap();
        holder.run("begin");
        holder.run("select count(*) from accounts");
        let mut client = spread.client();
        client.send(&wire::query("truncate accounts"));
        wait_until("the statement to wait", || spread.server(shard).value(waits).unwrap() != "0");
        spread.server(shard).kill9().unwrap();
        assert_eq!(said(&Answer::of(&client.until_ready())), "40001", "{shard}");
        assert_ne!(said(&ask(&mut client, How::Simple, "truncate accounts", &[])), "TRUNCATE TABLE", "a shard is down");
        spread.server(shard).start().unwrap();
        drop(holder);
        spread.wait_ready("select count(*) from accounts");
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(spread.client().rows("select count(*) from accounts"), [["40"]], "{shard}");
    }
}

#[test]
fn changes_that_shards_cannot_keep_are_refused() {
    let spread = ground("");
    let mut client = spread.client();
    for (text, why) in [
        ("alter table accounts drop column id", "shard key"),
        ("alter table accounts rename id to number", "shard key"),
        ("alter table accounts alter id type bigint", "not carried out on several servers"),
        ("alter table accounts rename to others", "only columns are renamed"),
        ("alter table accounts add unique (note)", "keys, exclusion constraints"),
        ("alter table accounts add foreign key (balance) references countries", "keys, exclusion constraints"),
        ("alter table accounts add column more int references countries", "without keys"),
        ("alter table accounts add column more serial", "plain ones"),
        ("alter table accounts add column more mood", "plain ones"),
        ("alter table accounts add column at timestamptz default now()", "constant"),
        ("alter table countries alter name set default random()", "constant"),
        ("alter table accounts drop constraint weir_shard_key", "belongs to Weir"),
        ("alter table accounts owner to postgres", "not carried out on several servers"),
        ("create unique index i on accounts (note)", "holds the shard key"),
        ("create index concurrently i on accounts (note)", "CONCURRENTLY"),
        ("create index on accounts (note)", "name it"),
        ("truncate accounts, plain", "shard 0 only"),
        ("drop table accounts, plain", "shard 0 only"),
        (
            "create trigger t before insert on accounts for each row execute function suppress_redundant_updates_trigger()",
            "definitions are not carried out",
        ),
        ("alter table accounts add column at timestamptz default 'now'", "time of the transaction"),
    ] {
        let failure = client.error(text);
        let told = format!("{} {} {}", failure.message, failure.detail, failure.hint);
        assert!(failure.sqlstate == "0A000" && told.contains(why), "{text}: {told}");
    }
    client.run("begin isolation level repeatable read");
    let failure = client.error("alter table accounts add column more int");
    assert!(failure.sqlstate == "0A000" && failure.message.contains("not READ COMMITTED"), "{failure:?}");
    client.run("rollback");
    check_definitions(&spread, "nothing");
    let route = client.rows("show route for 'truncate accounts'");
    assert_eq!(route[0][..3], ["shards 0,1,2", "0,1,2", "all_shards"]);
}
