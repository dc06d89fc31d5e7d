//! An INSERT of rows of several shards by bound parameters, and RETURNING of statements on several shards.

use crate::support::driver::{self, Login};
use crate::support::ground::wait_until;
use crate::support::raw::{Message, tags};
use crate::support::spread::{Answer, How, SHARDS, Spread, ask};
use crate::support::{Raw, wire};

const TABLES: &str = "create table accounts (id int primary key, balance int not null check (balance >= 0), note text);
    create table countries (id int primary key, name text);
    create table lines (id int, of int, note text, day date)";

const ACCOUNTS: usize = 40;

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query("insert into countries select i, 'country ' || i from generate_series(1, 10) i").unwrap();
    let rows = format!("insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, {ACCOUNTS}) i");
    spread.whole().query(&rows).unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("accounts", "id", "");
    spread.shard("lines", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// Rows as the servers have them, in order.
fn rows<'s>(servers: impl Iterator<Item = &'s weir_demo::Server>) -> Vec<String> {
    let text = "select coalesce(string_agg(r, '|'), '') from (select a::text from accounts a union all select l::text from lines l) s (r)";
    let of = |server: &weir_demo::Server| server.value(text).unwrap().split('|').map(str::to_owned).collect::<Vec<_>>();
    let mut rows: Vec<String> = servers.flat_map(of).filter(|row| !row.is_empty()).collect();
    rows.sort();
    rows
}

fn rows_of_shards(spread: &Spread) -> Vec<String> {
    rows((0..SHARDS).map(|shard| spread.server(shard)))
}

/// A key of a shard that no row has.
fn free_id(spread: &Spread, shard: usize) -> String {
    let mut client = spread.client();
    let mut lies = |id: &usize| {
        let route = client.rows(&format!("show route for 'select 1 from accounts where id = {id}'"));
        route[0][1] == shard.to_string()
    };
    (1000..2000).find(|id| lies(id)).expect("each shard has many keys").to_string()
}

fn is_over(spread: &Spread) -> bool {
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    let prepared = "select count(*) from pg_prepared_xacts";
    (0..SHARDS).all(|shard| [open, prepared].iter().all(|text| spread.server(shard).value(text).unwrap() == "0"))
}

fn check_rows(spread: &Spread, case: &str) {
    wait_until("all parts to end", || is_over(spread));
    assert_eq!(rows_of_shards(spread), rows([spread.whole()].into_iter()), "{case}");
}

/// Texts with their values.
const INSERTS: [(&str, &[&str]); 25] = [
    (
        "insert into accounts values ($1, 1, 'x'), ($2, 2, 'y'), ($3, 3, 'z') returning id, repeat(note, 1000000)",
        &["171", "172", "173"],
    ),
    (
        "insert into accounts values ($1, 1, $2), ($3, 2, 'as of today'), ($4, 3, $2) returning *",
        &["151", "do it now", "152", "153"],
    ),
    ("insert into accounts values (161, 1, 'now'), (162, 2, 'as of today'), (163, 3, 'now'), (164, 4, 'x') returning note", &[]),
    (
        "insert into lines values ($1, 1, $2, $3::date), ($4, 2, 'y', date '2026-01-02'), ($5, 3, $2, '2026-01-03'), ($6, 4, 'z', $7) returning *",
        &["101", "today", "2026-01-01", "102", "103", "104", "2026-01-04"],
    ),
    (
        "insert into lines (day, id) values ($1, $2), ($3, $4), ($1, $5), ($3, $6) returning day, id",
        &["2026-02-01", "111", "2026-02-02", "112", "113", "114"],
    ),
    (
        "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9)",
        &["101", "1", "a", "102", "2", "b", "103", "3", "c"],
    ),
    (
        "insert into accounts (note, id, balance) values ('x', $1, $2), ($3, 202, $2), ('z', $4, abs($5)), ($6, $7, $2)",
        &["201", "7", "y", "203", "-3", "w", "204"],
    ),
    (
        "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9), ($10, 5, $3) returning id",
        &["301", "1", "a", "302", "2", "b", "303", "3", "c", "304"],
    ),
    (
        "insert into accounts (id, balance) values ($1, $2), ($3, $2), ($4, $2), ($5, $2), ($6, $2), ($7, $2) returning *",
        &["401", "9", "402", "403", "404", "405", "406"],
    ),
    (
        "insert into accounts values ($1, 1, 'x'), ($2, 2, 'y'), ($3, 3, 'z') returning id + 1 as next, upper(note) \"n;\", balance::text",
        &["503", "502", "501"],
    ),
    ("insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9)", &["601", "1", "a", "602", "2", "b", "1", "3", "c"]),
    (
        "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9) returning id",
        &["611", "1", "a", "612", "-2", "b", "613", "3", "c"],
    ),
    (
        "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9)",
        &["621", "1", "a", "622", "x", "b", "623", "3", "c"],
    ),
    (
        "insert into accounts values ($1, 1, $2), ($3, 1 / ($4 - 1), $5), ($6, 3, $7) returning note",
        &["631", "a", "632", "1", "b", "633", "c"],
    ),
    ("insert into accounts values ($1, 1), ($2, 2), ($3, 3) returning nothing", &["641", "642", "643"]),
    ("insert into accounts values (701, 1, 'a'), (702, 2, 'b'), (703, 3, 'c'), (704, 4, default) returning *", &[]),
    ("insert into accounts values (711, 1, 'a'), (712, 2, 'b'), (1, 3, 'c'), (714, 4, default) returning *", &[]),
    ("insert into accounts values (1, 1, 'a'), (2, 2, 'b'), (721, 3, 'c'), (722, 4, default) on conflict do nothing", &[]),
    ("insert into accounts values ($1, 1, 'a'), ($2, 2, 'b'), ($3, 3, 'c') on conflict (id) do nothing", &["1", "731", "2"]),
    (
        "insert into accounts values ($1, 1, 'a'), ($2, 2, 'b'), ($3, 3, 'c') on conflict (id) do update \
         set balance = accounts.balance + excluded.balance where accounts.note <> 'note 2' returning id, balance",
        &["1", "741", "3"],
    ),
    (
        "insert into accounts values (1, 1, 'a'), (751, 2, 'b'), (752, 3, 'c'), (1, 4, 'd') on conflict (id) do update set balance = 3",
        &[],
    ),
    (
        "insert into accounts as a (id, balance) values ($1, 1), ($2, 2), ($3, 3) returning a.id, a.balance, a.note",
        &["761", "762", "763"],
    ),
    ("update accounts set balance = balance + $1 where id % 2 = 0 returning id, balance", &["3"]),
    ("update accounts a set note = c.name from countries c where c.id = a.id returning a.*, c.name as country", &[]),
    ("delete from accounts where id > $1 returning id, note", &["30"]),
];

#[test]
fn answers_are_those_of_one_server() {
    for more in
        ["", "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\nstatement_statistics_max = 100\n"]
    {
        let spread = ground(more);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for (text, values) in INSERTS {
            for begin in [&[][..], &["begin", "update accounts set note = 'first' where id = 2"]] {
                for how in [How::Simple, How::Extended] {
                    if how == How::Simple && !values.is_empty() {
                        continue;
                    }
                    let mut both = |how: How, text: &str, values: &[&str]| {
                        let mut told = ask(&mut client, how, text, values);
                        let mut expected = ask(&mut direct, how, text, values);
                        if told.failure.is_some() {
                            // A shard before the last one has failed: the portal is not described.
                            [&mut told, &mut expected].into_iter().for_each(|answer| answer.columns.clear());
                        }
                        if text.starts_with("insert") {
                            assert_eq!(told, expected, "{more} {begin:?} {how:?} {text}");
                        } else {
                            assert_eq!(told.sorted(), expected.sorted(), "{more} {begin:?} {how:?} {text}");
                        }
                    };
                    begin.iter().for_each(|text| both(How::Simple, text, &[]));
                    both(how, text, values);
                    if !begin.is_empty() {
                        both(How::Simple, "rollback", &[]);
                    }
                    check_rows(&spread, text);
                    if begin.is_empty() {
                        both(How::Simple, "delete from accounts where id > 100", &[]);
                    }
                }
            }
        }
        // A commit of the client's own.
        let (text, values) = INSERTS[7];
        client.run("begin");
        let told = ask(&mut client, How::Extended, text, values);
        assert_eq!(told.rows.iter().flatten().flatten().collect::<Vec<_>>(), ["301", "302", "303", "304"]);
        client.run("commit");
        direct.run("begin");
        ask(&mut direct, How::Extended, text, values);
        direct.run("commit");
        check_rows(&spread, "commit");
    }
}

/// A Bind with formats of values and of results.
fn bind_in(statement: &str, formats: &[u16], values: &[Option<&[u8]>], results: &[u16]) -> Vec<u8> {
    let list = |numbers: &[u16]| -> Vec<u8> {
        [numbers.len() as u16].iter().chain(numbers).flat_map(|number| number.to_be_bytes()).collect()
    };
    let mut body = [wire::texts(&["", statement]), list(formats)].concat();
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        body.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    body.extend(list(results));
    wire::message(b'B', &body)
}

fn bodies(messages: &[Message], tag: u8) -> Vec<Vec<u8>> {
    messages.iter().filter(|message| message.tag == tag).map(|message| message.body.clone()).collect()
}

#[test]
fn a_named_statement_takes_other_keys_each_time_in_both_formats() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let text = "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9) returning id, note, balance";
    let both = |client: &mut Raw, direct: &mut Raw, messages: &[Vec<u8>]| {
        let ask = |client: &mut Raw| {
            client.send(&messages.concat());
            client.until_ready()
        };
        let (told, expected) = (ask(client), ask(direct));
        assert_eq!(tags(&told), tags(&expected));
        assert_eq!((bodies(&told, b'D'), bodies(&told, b'C')), (bodies(&expected, b'D'), bodies(&expected, b'C')));
        assert_eq!((bodies(&told, b't'), bodies(&told, b'Z')), (bodies(&expected, b't'), bodies(&expected, b'Z')));
        assert_eq!(Answer::of(&told), Answer::of(&expected));
        tags(&told)
    };
    assert_eq!(both(&mut client, &mut direct, &[wire::parse("s", text), wire::describe(b'S', "s"), wire::sync()]), "1tTZ");
    let all = wire::sync;
    for block in [false, true] {
        if block {
            [&mut client, &mut direct].into_iter().for_each(|client| client.run("begin"));
        }
        let shift = if block { 1000 } else { 0 };
        for (at, ids) in [[201, 202, 203], [301, 301 + 1, 302 + 2], [7, 401, 402], [501, 502, 503]].into_iter().enumerate() {
            let ids = ids.map(|id: i32| if id < 100 { id } else { id + shift });
            let numbers = ids.map(i32::to_be_bytes);
            let balance = 5_i32.to_be_bytes();
            let binary: Vec<Option<&[u8]>> = numbers
                .iter()
                .flat_map(|id| [Some(&id[..]), Some(&balance[..]), (at % 2 == 0).then_some(&b"note"[..])])
                .collect();
            let results: &[u16] = [&[][..], &[1], &[1, 0, 1], &[0]][at];
            let saves = block && ids[0] == 7;
            if saves {
                // Its error would end the block.
                continue;
            }
            both(&mut client, &mut direct, &[bind_in("s", &[1], &binary, results), wire::execute("", 0), all()]);
            let texts = ids.map(|id| (id + 50).to_string());
            let values: Vec<Option<&[u8]>> = texts.iter().flat_map(|id| [Some(id.as_bytes()), Some(&b"5"[..]), None]).collect();
            let messages = [
                bind_in("s", &[], &values, results),
                wire::describe(b'P', ""),
                wire::execute("", 0),
                wire::close(b'P', ""),
                all(),
            ];
            both(&mut client, &mut direct, &messages);
        }
        if block {
            [&mut client, &mut direct].into_iter().for_each(|client| client.run("commit"));
        }
        check_rows(&spread, "named");
    }
    // Drivers describe the statement, the portal, both or none.
    let values =
        |first: i32| -> Vec<String> { (0..3).flat_map(|at| [(first + at).to_string(), "1".into(), "d".into()]).collect() };
    for (at, name) in ["s", "t", "u", ""].into_iter().enumerate() {
        for (turn, describes) in [&b""[..], b"S", b"P", b"SP"].into_iter().enumerate() {
            let values = values(3000 + 100 * at as i32 + 10 * turn as i32);
            let values: Vec<Option<&[u8]>> = values.iter().map(|value| Some(value.as_bytes())).collect();
            let mut messages = Vec::new();
            if name != "s" {
                messages.push(wire::close(b'S', name));
                messages.push(wire::parse(name, text));
            }
            messages.extend(describes.contains(&b'S').then(|| wire::describe(b'S', name)));
            messages.push(bind_in(name, &[], &values, &[1, 0, 1]));
            messages.extend(describes.contains(&b'P').then(|| wire::describe(b'P', "")));
            messages.extend([wire::execute("", 0), wire::sync()]);
            both(&mut client, &mut direct, &messages);
        }
    }
    // The client's own unnamed statement is there yet.
    let unnamed = "insert into accounts values ($1, 1, 'u'), ($2, 1, 'u'), ($3, 1, 'u') returning id";
    let run = |ids: [&str; 3]| [wire::bind("", "", &ids), wire::execute("", 0), wire::sync()].concat();
    both(&mut client, &mut direct, &[wire::parse("", unnamed), run(["2001", "2002", "2003"])]);
    both(&mut client, &mut direct, &[run(["2011", "2012", "2013"])]);
    // All rows of one shard: the client's own messages go there.
    let of_one = spread
        .server(1)
        .value("select string_agg(id::text, ' ') from (select id from accounts where id <= 40 limit 3) s")
        .unwrap();
    both(
        &mut client,
        &mut direct,
        &[
            wire::parse("", "delete from accounts where id < 50 returning id is null"),
            wire::bind("", "", &[]),
            wire::execute("", 0),
            wire::sync(),
        ],
    );
    let ids: Vec<&str> = of_one.split(' ').collect();
    both(&mut client, &mut direct, &[wire::parse("", unnamed), run([ids[0], ids[1], ids[2]])]);
    assert_eq!(both(&mut client, &mut direct, &[run([ids[0], ids[1], "2021"])]), "2EZ");
    check_rows(&spread, "unnamed");
}

#[test]
fn what_one_server_would_not_answer_so_is_refused() {
    let spread = ground("");
    spread.everywhere("create type mood as enum ('good', 'bad')");
    let before = rows_of_shards(&spread);
    let rows = "values ($1, $2, 'a'), ($3, $2, 'b'), ($4, $2, 'c')";
    let ids = [0, 1, 2].map(|shard| free_id(&spread, shard));
    let values: &[&str] = &[&ids[0], "1", &ids[1], &ids[2]];
    let large = "update accounts set balance = balance + 1 returning id, repeat('x', case when balance > 0 then 200000 end)";
    let large_on = |shard: usize| {
        let id = spread.server(shard).value("select min(id) from accounts").unwrap();
        format!(
            "update accounts set balance = balance + 1 where id % 1 = 0 returning repeat('x', case id when {id} then 5000000 end)"
        )
    };
    for (text, values, why) in [
        (format!("insert into accounts {rows} returning now()"), values, "time of the transaction"),
        (format!("insert into accounts {rows} returning ctid"), values, "ctid"),
        (format!("insert into accounts {rows} returning nextval('x')"), values, "may answer otherwise"),
        (format!("insert into accounts {rows} returning (select count(*) from countries)"), values, "several shards"),
        (format!("insert into accounts {rows} returning $2"), values, "outside of its rows"),
        (format!("insert into accounts {rows} returning accounts"), values, "PostgreSQL does not bring"),
        (format!("insert into accounts {rows} returning id, 'good'::mood"), values, "PostgreSQL does not bring"),
        ("insert into accounts values ($1, $2, 'a'), ($3, $2 + 1, 'b'), ($4, $2, 'c')".to_owned(), values, "declared type"),
        ("insert into lines values ($1, $2, 'a'), ($3, $2, 'b'), ($4, generate_series(1, 3), 'c')".to_owned(), values, "VALUES"),
        (
            format!("insert into accounts {rows} returning note::timestamptz"),
            &[&ids[0], "now", &ids[1], &ids[2]],
            "time of the transaction",
        ),
        (
            "insert into lines (id, day) values ($1, $2), ($3, $2), ($4, $2)".to_owned(),
            &[&ids[0], "today", &ids[1], &ids[2]],
            "time of the transaction",
        ),
        (
            "insert into lines (id, note) values ($1, $2::date), ($3, $2::date), ($4, $2::date)".to_owned(),
            &[&ids[0], "today", &ids[1], &ids[2]],
            "type",
        ),
        (
            "insert into lines (id, day) values ($1, 'today'), ($2, 'now'), ($3, '2026-01-01')".to_owned(),
            &[&ids[0], &ids[1], &ids[2]],
            "time of the transaction",
        ),
        (
            "insert into lines (id, note) values ($1, current_date::text), ($2, 'now'), ($3, 'x')".to_owned(),
            &[&ids[0], &ids[1], &ids[2]],
            "time of the transaction",
        ),
        ("update accounts set balance = 1 returning 'good'::mood".to_owned(), &[], "PostgreSQL does not bring"),
        (large.to_owned(), &[], "more than 4194304 bytes"),
        (large_on(1), &[], "more than 4194304 bytes"),
        (large_on(0), &[], "more than 4194304 bytes"),
    ] {
        for is_block in [false, true] {
            let mut client = spread.client();
            if is_block {
                client.run("begin");
                client.run("update accounts set note = 'own' where id = 1");
            }
            client.send(&How::Extended.messages(&text, values));
            let messages = client.until_ready();
            let failure = messages.iter().find(|message| message.tag == b'E').map(Message::failure);
            let failure = failure.unwrap_or_else(|| panic!("{text}: {messages:?}"));
            let told = format!("{} {} {}", failure.message, failure.detail, failure.hint);
            assert!(failure.sqlstate == "0A000" && told.contains(why), "{is_block} {text}: {failure:?}");
            let status = messages.last().map(|message| message.body.clone());
            assert_eq!(status.as_deref(), Some(if is_block { &b"E"[..] } else { b"I" }), "{text}");
            assert!(messages.iter().all(|message| message.tag != b'C' && message.tag != b'D'), "{text}");
            if is_block {
                assert_eq!(client.error("select 1").sqlstate, "25P02", "{text}");
                client.run("rollback");
            }
            client.run("select 1");
            wait_until("all parts to end", || is_over(&spread));
            assert_eq!(rows_of_shards(&spread), before, "{is_block} {text}");
        }
    }
    // By the messages of the extended protocol.
    let text = format!("insert into accounts {rows} returning id");
    let bind = || wire::bind("", "s", values);
    for (messages, failure) in [
        (vec![bind(), wire::execute("", 0), bind(), wire::execute("", 0)], Some("23505")),
        (vec![bind(), wire::execute("", 2)], Some("0A000")),
        (vec![bind(), wire::flush(), wire::execute("", 0)], Some("0A000")),
        (vec![wire::bind("p", "s", values), wire::execute("p", 0)], Some("0A000")),
        (vec![bind(), wire::execute("", 0)], None),
    ] {
        let mut client = spread.client();
        client.send(&[wire::parse("s", &text), wire::sync(), messages.concat(), wire::sync()].concat());
        client.until_ready();
        let told = Answer::of(&client.until_ready());
        assert_eq!(told.failure.as_deref(), failure, "{messages:?}");
        client.run("select 1");
        wait_until("all parts to end", || is_over(&spread));
    }
    assert_eq!(rows_of_shards(&spread).len(), before.len() + 3);
}

#[test]
fn rows_that_a_trigger_drops_are_not_returned() {
    let spread = Spread::start("");
    spread.define(TABLES);
    spread.whole().query("insert into accounts select i, 100, '' from generate_series(1, 40) i").unwrap();
    spread.everywhere("create function drops() returns trigger language plpgsql as $$ begin return case when new.balance < 50 then new end; end $$");
    spread.shard("lines", "id", "");
    spread.define("create trigger first before insert on accounts for each row execute function drops()");
    spread.shard("accounts", "id", "--local-triggers");
    for shard in 0..SHARDS {
        spread.server(shard).query("alter table accounts disable trigger first").unwrap();
    }
    spread.fill(&["accounts"]);
    for shard in 0..SHARDS {
        spread.server(shard).query("alter table accounts enable trigger first").unwrap();
    }
    spread.make_ready("select count(*) from accounts");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let text = "insert into accounts values ($1, $2, 'a'), ($3, $4, 'b'), ($5, $6, 'c'), ($7, $8, 'd') returning id";
    for values in [["101", "1", "102", "99", "103", "3", "104", "4"], ["111", "91", "112", "99", "113", "93", "114", "94"]] {
        let (told, expected) = (ask(&mut client, How::Extended, text, &values), ask(&mut direct, How::Extended, text, &values));
        assert_eq!(told.sorted(), expected.sorted());
    }
    check_rows(&spread, "a trigger");
}

#[test]
fn a_server_that_is_lost_or_a_statement_that_is_cancelled_leaves_nothing() {
    let spread = ground("");
    let text = "insert into accounts values ($1, 1, 'a'), ($2, 2, 'b'), ($3, 3, 'c') returning id";
    let ids = [0, 1, 2].map(|shard| free_id(&spread, shard));
    let values: [&str; 3] = [&ids[0], &ids[1], &ids[2]];
    let mut direct = spread.direct();
    direct.run("begin");
    let expected = ask(&mut direct, How::Extended, text, &values);
    direct.run("rollback");
    // A row that another transaction inserts, too, makes the shard wait.
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    for shard in [1, 2, 0] {
        let id = values[shard];
        let before = rows_of_shards(&spread);
        let hold = || {
            let mut holder = Raw::tcp(spread.server(shard).port()).log_in("postgres", "postgres", &[]).unwrap();
            holder.run("begin");
            holder.run(&format!("insert into accounts values ({id}, 0, 'held')"));
            holder
        };
        // Cancelled.
        let mut holder = hold();
        let mut client = spread.client();
        client.run("set statement_timeout = 200");
        assert_eq!(ask(&mut client, How::Extended, text, &values).failure.as_deref(), Some("57014"), "{shard}");
        holder.run("rollback");
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(rows_of_shards(&spread), before);
        // Lost.
        let holder = hold();
        let mut client = spread.client();
        client.send(&How::Extended.messages(text, &values));
        wait_until("the statement to wait", || spread.server(shard).value(waits).unwrap() != "0");
        spread.server(shard).kill9().unwrap();
        drop(holder);
        let told = if shard == 1 {
            // The transaction has begun nowhere else: it begins anew, and returns each row once.
            spread.server(shard).start().unwrap();
            Answer::of(&client.until_ready())
        } else {
            let told = Answer::of(&client.until_ready());
            spread.server(shard).start().unwrap();
            told
        };
        spread.wait_ready("select count(*) from accounts");
        wait_until("all parts to end", || is_over(&spread));
        if shard == 1 {
            assert_eq!(told, expected);
            client.run("delete from accounts where id > 100");
        } else {
            assert_eq!(told.failure.as_deref(), Some("40001"), "{shard}");
        }
        assert_eq!(rows_of_shards(&spread), before, "{shard}");
        let told = ask(&mut client, How::Extended, text, &values);
        assert_eq!(told, expected, "{shard}: the session goes on");
        client.run("delete from accounts where id > 100");
    }
}

#[test]
fn a_driver_inserts_many_rows_and_gets_their_numbers() {
    let spread = ground("");
    let login = Login::new(spread.proxy.port(), "postgres", "");
    driver::block_on(async {
        let (mut client, _mover) = driver::connect(&login).await.unwrap();
        let rows: Vec<String> = (0..50).map(|row| format!("(${}, ${}, ${})", 3 * row + 1, 3 * row + 2, 3 * row + 3)).collect();
        let text = format!("insert into accounts (id, balance, note) values {} returning id, note", rows.join(", "));
        let statement = client.prepare(&text).await.unwrap();
        for first in [1000, 2000] {
            let values: Vec<(i32, i32, String)> = (0..50).map(|at| (first + (7 * at) % 50, at, format!("row {at}"))).collect();
            let parameters: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                values.iter().flat_map(|(id, balance, note)| [id as _, balance as _, note as _]).collect();
            let transaction = client.transaction().await.unwrap();
            let told = transaction.query(&statement, &parameters).await.unwrap();
            transaction.rollback().await.unwrap();
            let again = client.query(&statement, &parameters).await.unwrap();
            for told in [told, again] {
                let told: Vec<(i32, String)> = told.iter().map(|row| (row.get(0), row.get(1))).collect();
                let expected: Vec<(i32, String)> = values.iter().map(|(id, _, note)| (*id, note.clone())).collect();
                assert_eq!(told, expected);
            }
            let error = client.query(&statement, &parameters).await.unwrap_err();
            assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("23505"));
        }
        let told = client.query("delete from accounts where id >= $1 returning id", &[&1000]).await.unwrap();
        assert_eq!(told.len(), 100);
    });
    wait_until("all parts to end", || is_over(&spread));
}
