//! Conversations a client may have, one message after the other: mutations begin with these.

use crate::dice::Dice;
use crate::support::wire;

type Pieces = Vec<Vec<u8>>;

/// Number of `abs(integer)`: it has been the same in all versions.
const ABS: u32 = 1397;

/// Messages of a client that has logged in. None leaves anything in the database, or depends on the time of its run.
pub fn session(dice: &mut Dice) -> Pieces {
    let mut pieces = Vec::new();
    for _ in 0..1 + dice.below(4) {
        pieces.extend(part(dice));
    }
    if dice.once_in(4) {
        pieces.push(wire::terminate());
    }
    pieces
}

fn part(dice: &mut Dice) -> Pieces {
    let query = |text: &str| wire::query(text);
    match dice.below(16) {
        0 => vec![query("select 1"), query("begin"), query("select 2"), query("commit")],
        1 => vec![query("select 1; select 2; select 1/0; select 3"), query(""), query(";;")],
        2 => vec![
            wire::parse("s", "select $1::int + 1"),
            wire::describe(b'S', "s"),
            wire::bind("", "s", &["41"]),
            wire::describe(b'P', ""),
            wire::execute("", 0),
            wire::sync(),
        ],
        3 => vec![
            query("begin"),
            wire::parse("", "select generate_series(1, 9)"),
            wire::bind("p", "", &[]),
            wire::execute("p", 2),
            wire::flush(),
            wire::execute("p", 0),
            wire::close(b'P', "p"),
            wire::sync(),
            query("rollback"),
        ],
        4 => vec![
            wire::unnamed("select 'a'", &[]),
            wire::unnamed("select 1/0", &[]),
            wire::unnamed("select 'never'", &[]),
            wire::sync(),
            wire::unnamed("select $1::text", &["b"]),
            wire::sync(),
        ],
        5 => copy_in(),
        6 => vec![query("copy (select generate_series(1, 50)) to stdout"), query("select 5")],
        7 => vec![query("set work_mem = '9MB'"), query("show work_mem"), query("reset work_mem"), query("show work_mem")],
        8 => vec![query("prepare q as select 7"), query("execute q"), query("deallocate q"), query("execute q")],
        9 => vec![wire::function_call(ABS, &["-5"]), wire::function_call(ABS, &["x"]), wire::function_call(1, &[])],
        10 => vec![query("select repeat('x', 3000) from generate_series(1, 100)")],
        11 => vec![
            wire::close(b'S', "nothing"),
            wire::close(b'P', "nothing"),
            wire::describe(b'S', "nothing"),
            wire::sync(),
            wire::execute("nothing", 0),
            wire::sync(),
        ],
        12 => vec![
            query("begin"),
            query("savepoint a"),
            query("select 1/0"),
            query("rollback to a"),
            wire::unnamed("select 3", &[]),
            wire::sync(),
            query("commit"),
        ],
        13 => vec![
            wire::parse("t", "select 'one'"),
            wire::sync(),
            wire::run("t", &[]),
            wire::sync(),
            wire::close(b'S', "t"),
            wire::parse("t", "select 'two'"),
            wire::run("t", &[]),
            wire::sync(),
        ],
        14 => vec![query("begin; declare c cursor for select generate_series(1, 5)"), query("fetch 2 from c"), query("end")],
        _ => vec![query("discard all"), wire::unnamed("set time zone 'UTC'", &[]), wire::sync(), query("show time zone")],
    }
}

fn copy_in() -> Pieces {
    let begin = "begin read write; create temp table mine (a int) on commit drop";
    vec![
        wire::query(begin),
        wire::query("copy mine from stdin"),
        wire::copy_data(b"1\n2\n"),
        wire::copy_data(b"3\n"),
        wire::copy_done(),
        wire::query("copy mine from stdin"),
        wire::copy_data(b"not a number\n"),
        wire::copy_fail("no more"),
        wire::sync(),
        wire::query("rollback"),
    ]
}

/// Messages of a client from its first byte on, without waiting for answers.
pub fn login(dice: &mut Dice) -> Pieces {
    let mut pieces = Vec::new();
    for _ in 0..dice.below(3) {
        pieces.push(if dice.once_in(2) { wire::ssl_request() } else { wire::gss_request() });
    }
    if dice.once_in(8) {
        let key = dice.next().to_be_bytes();
        pieces.push(wire::cancel(dice.next() as u32, &key[..dice.below(9)]));
        return pieces;
    }
    let user = dice.of(&["postgres", "anna", "berta", "clara", "nobody", "", "a\nb\u{1b}[31m"]);
    let version = dice.of(&[wire::V3_0, wire::V3_0, wire::V3_2, (3 << 16) | 9999, 2 << 16, 4 << 16, 0]);
    let mut parameters = vec![("user", user), ("database", crate::PROXIED)];
    for _ in 0..dice.below(4) {
        parameters.push(dice.of(&[
            ("application_name", "hostile\r\nLOG:  a line that is none"),
            ("options", "-c work_mem=1MB -c nonsense"),
            ("options", "-c work_mem=8MB"),
            ("client_encoding", "KLINGON"),
            ("client_encoding", "LATIN1"),
            ("replication", "true"),
            ("replication", "database"),
            ("_pq_.made_up", "1"),
            ("database", "none of that name"),
            ("search_path", "\"; drop table x; --"),
            ("", "no name"),
            ("TimeZone", "Mars/Phobos"),
        ]));
    }
    pieces.push(wire::startup(version, &parameters));
    match dice.below(5) {
        0 => pieces.push(wire::message(b'p', b"secret of clara\0")),
        1 => pieces.push(wire::message(b'p', b"md50123456789abcdef0123456789abcdef\0")),
        2 => {
            pieces.push(wire::message(b'p', &sasl_initial(b"n,,n=,r=0123456789")));
            pieces.push(wire::message(b'p', b"c=biws,r=0123456789,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="));
        }
        _ => {}
    }
    pieces.push(wire::query("select 1"));
    pieces.push(wire::terminate());
    pieces
}

fn sasl_initial(first: &[u8]) -> Vec<u8> {
    [wire::texts(&["SCRAM-SHA-256"]).as_slice(), &(first.len() as u32).to_be_bytes(), first].concat()
}
