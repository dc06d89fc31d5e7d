//! Files of rules at random, and visits that may fit them.

use crate::dice::Dice;
use std::fmt::Write as _;

pub const DATABASES: [&str; 5] = ["postgres", "anna", "staff", "replication", "My db"];
/// Each with the way its password is kept; "all" is the name of a role, too.
pub const USERS: [&str; 5] = ["anna", "old", "boss", "all", "My user"];
/// Files that `@` and `include` name, with an entry of their own in each round.
pub const LISTS: [&str; 2] = ["names", "my names"];
pub const INCLUDED: &str = "more.conf";

const ADDRESSES: [[u8; 4]; 4] = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 1, 7], [127, 5, 0, 1]];
const METHODS: [&str; 5] = ["trust", "reject", "password", "md5", "scram-sha-256"];
const RULES_MAX: usize = 9;

/// Forms that the server under test knows.
#[derive(Clone, Copy)]
pub struct Known {
    /// From PostgreSQL 14.
    pub continued_lines: bool,
    /// From PostgreSQL 16: regular expressions for names, and `include`.
    pub patterns: bool,
}

impl Known {
    pub fn of(major: u32) -> Known {
        Known { continued_lines: major >= 14, patterns: major >= 16 }
    }
}

/// The files of one round.
#[derive(Clone, Debug)]
pub struct Files {
    /// Each with its end of line. A continued rule is one entry.
    pub lines: Vec<String>,
    pub beside: Vec<(&'static str, String)>,
}

/// How a client comes.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Socket,
    Tcp([u8; 4]),
    Tls,
}

#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub way: Way,
    pub user: &'static str,
    pub database: &'static str,
    /// The startup parameter `replication`.
    pub replication: Option<&'static str>,
}

pub fn visit(dice: &mut Dice) -> Visit {
    let way = match dice.below(8) {
        0 => Way::Socket,
        1 => Way::Tls,
        _ => Way::Tcp(dice.of(&ADDRESSES)),
    };
    let replication = match dice.below(8) {
        0 => Some("true"),
        1 => Some("database"),
        _ => None,
    };
    Visit { way, user: dice.of(&USERS), database: dice.of(&DATABASES), replication }
}

pub fn files(dice: &mut Dice, known: Known) -> Files {
    let mut lines = Vec::new();
    for _ in 0..=dice.below(RULES_MAX) {
        if dice.once_in(5) {
            lines.push(noise(dice));
        }
        lines.push(line(dice, known));
    }
    let list = |dice: &mut Dice| {
        let names: Vec<String> = (0..=dice.below(3)).map(|_| item(dice, &[USERS, DATABASES].concat())).collect();
        format!("# a list\n{}\n", names.join(if dice.once_in(2) { "\n" } else { ", " }))
    };
    let mut beside: Vec<(&str, String)> = LISTS.map(|name| (name, list(dice))).to_vec();
    // No include in it: what includes itself is an error with words of its own.
    let plain = Known { patterns: false, ..known };
    beside.push((INCLUDED, (0..dice.below(3)).map(|_| rule(dice, plain)).collect()));
    Files { lines, beside }
}

impl Files {
    pub fn text(&self) -> String {
        self.lines.concat()
    }
}

/// A comment or an empty line.
fn noise(dice: &mut Dice) -> String {
    dice.of(&["\n", "# host all all all trust\n", "   \t \n", "#\n", "\t# \"not closed\n"]).to_owned()
}

fn line(dice: &mut Dice, known: Known) -> String {
    if dice.once_in(60) {
        return mistake(dice);
    }
    if known.patterns && dice.once_in(12) {
        let name = dice.of(&[INCLUDED, "\"more.conf\""]);
        return if dice.once_in(3) { "include_if_exists nothing.conf\n".to_owned() } else { format!("include {name}\n") };
    }
    rule(dice, known)
}

/// A line that both must refuse, and with it the file.
fn mistake(dice: &mut Dice) -> String {
    let lines = [
        "host all all 127.0.0.1/33 trust",
        "host all all 127.0.0.1/32 magic",
        "host all all",
        "guest all all all trust",
        "host all all 127.0.0.1 trust",
        "host all all 127.0.0.1 ::1 trust",
        "host all,staff all all,samenet trust",
        "local all all 127.0.0.1/32 trust",
        "host all all all trust nothing=1",
    ];
    format!("{}\n", dice.of(&lines))
}

fn rule(dice: &mut Dice, known: Known) -> String {
    let kind = dice.of(&["local", "host", "host", "host", "hostssl", "hostnossl", "hostnogssenc"]);
    let mut fields = vec![kind.to_owned(), list(dice, known, database), list(dice, known, user)];
    if kind != "local" {
        fields.extend(address(dice));
    }
    fields.push(dice.of(&METHODS).to_owned());
    let mut text = String::new();
    for (at, field) in fields.iter().enumerate() {
        let gap = match dice.below(12) {
            0 => "\t",
            1 => "   ",
            2 if known.continued_lines => "\\\n ",
            _ => " ",
        };
        let _ = write!(text, "{}{field}", if at > 0 { gap } else { "" });
    }
    text + dice.of(&["\n", "\n", " # a comment\n", "#comment\n", " \t\n", "\r\n"])
}

/// A list of things, each from `one`.
fn list(dice: &mut Dice, known: Known, one: fn(&mut Dice, Known) -> String) -> String {
    let count = if dice.once_in(3) { 2 + dice.below(2) } else { 1 };
    let items: Vec<String> = (0..count).map(|_| one(dice, known)).collect();
    items.join(dice.of(&[",", ",", ", "]))
}

fn database(dice: &mut Dice, known: Known) -> String {
    match dice.below(12) {
        0..5 => "all".into(),
        5 => "sameuser".into(),
        6 => "samerole".into(),
        7 => "replication".into(),
        8 => at_file(dice),
        9 if known.patterns => pattern(dice),
        _ => item(dice, &DATABASES),
    }
}

fn user(dice: &mut Dice, known: Known) -> String {
    match dice.below(10) {
        0..4 => "all".into(),
        4 => dice.of(&["+staff", "+inner", "+\"staff\"", "\"+staff\"", "+anna", "+nobody"]).to_owned(),
        5 => at_file(dice),
        6 if known.patterns => pattern(dice),
        _ => item(dice, &USERS),
    }
}

fn at_file(dice: &mut Dice) -> String {
    dice.of(&["@names", "@\"my names\"", "\"@names\""]).to_owned()
}

/// Both kinds of regular expressions read these alike.
fn pattern(dice: &mut Dice) -> String {
    dice.of(&["/^an", "/a$", "\"/^My (db|user)$\"", "/^(old|staff)$", "/o", "\"/^all$\""]).to_owned()
}

/// A name, or a keyword in quotes, which is a name then.
fn item(dice: &mut Dice, names: &[&str]) -> String {
    let name = match dice.below(6) {
        0 => dice.of(&["nothing", "sameuser", "ANNA"]),
        _ => dice.of(names),
    };
    if name.contains(' ') || dice.once_in(3) { format!("\"{name}\"") } else { name.to_owned() }
}

/// One field, or two with a mask.
fn address(dice: &mut Dice) -> Vec<String> {
    let one = |text: &str| vec![text.to_owned()];
    match dice.below(8) {
        0 | 1 => one("all"),
        2 => one("samehost"),
        3 => one("samenet"),
        4 => {
            let mask = dice.of(&["255.255.255.255", "255.255.255.0", "255.0.0.0", "255.0.255.0", "0.0.0.0", "255.255.254.0"]);
            vec![numbers(dice), mask.to_owned()]
        }
        5 => one(dice.of(&["::1/128", "::/0", "::ffff:127.0.0.1/128", "127.1/32", "0/0", "\"127.0.0.1/32\"", "\"all\""])),
        _ => vec![format!("{}/{}", numbers(dice), dice.of(&[0, 8, 15, 16, 23, 24, 25, 30, 31, 32]))],
    }
}

fn numbers(dice: &mut Dice) -> String {
    let [a, b, c, d] = if dice.once_in(4) { [10, 0, 0, 1] } else { dice.of(&ADDRESSES) };
    format!("{a}.{b}.{c}.{d}")
}
