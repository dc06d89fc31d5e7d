//! The configurations under test: few rows in which any two values of any two columns meet.

use std::fmt;

/// Values of each column. The tables below must bring every pair of them together.
const COLUMNS: &[(&str, &[&str])] = &[
    ("weights", &["0:1:1", "1:1:1", "1:0"]),
    ("level", &["on", "off"]),
    ("causal", &["off", "tables", "global"]),
    ("cache", &["off", "proxy", "wal"]),
    ("pool", &["1", "4", "32"]),
    ("workers", &["1", "2"]),
    ("io", &["epoll", "auto"]),
    ("tls", &["on", "off"]),
];

/// Faults of the servers, in the rows that have one.
pub const FAULTS: &[&str] = &["hung", "killed", "paused", "restarted", "full", "promoted"];

/// Nothing happens to the servers. Weights of 1:5:5 are here for the shares alone.
const CALM: &str = "
    weights   level     causal    cache     pool      workers   io        tls
    0:1:1     off       global    off       4         1         epoll     on
    0:1:1     on        global    wal       1         1         epoll     on
    0:1:1     on        off       proxy     32        1         epoll     on
    0:1:1     on        tables    wal       32        2         auto      off
    1:0       off       off       wal       1         2         epoll     off
    1:0       off       tables    off       32        2         epoll     on
    1:0       on        global    proxy     32        2         epoll     on
    1:0       on        off       off       4         1         auto      off
    1:1:1     off       global    proxy     4         2         auto      off
    1:1:1     off       off       proxy     32        1         epoll     on
    1:1:1     off       tables    wal       4         1         auto      on
    1:1:1     on        global    off       1         2         epoll     off
    1:1:1     on        tables    proxy     1         1         auto      on
    1:1:1     on        tables    off       32        2         auto      off
    0:1:1     on        tables    off       4         2         auto      off
    1:5:5     on        tables    off       4         2         auto      off";

/// A fault comes while the clients are at work.
const TROUBLED: &str = "
    fault     weights   level     causal    cache     pool      workers   io        tls
    full      0:1:1     on        off       proxy     4         1         epoll     off
    full      1:0       off       tables    wal       1         2         auto      on
    full      1:1:1     on        global    off       32        2         epoll     on
    hung      0:1:1     off       global    off       1         1         auto      off
    hung      1:0       on        tables    wal       4         1         epoll     off
    hung      1:1:1     on        off       proxy     32        2         epoll     on
    hung      1:1:1     on        tables    proxy     4         2         epoll     on
    killed    0:1:1     on        tables    proxy     4         1         auto      off
    killed    1:0       off       off       off       32        2         auto      on
    killed    1:1:1     on        global    wal       1         1         epoll     off
    paused    0:1:1     off       off       proxy     32        1         auto      off
    paused    1:0       on        global    wal       1         2         auto      on
    paused    1:1:1     off       tables    off       4         2         epoll     off
    promoted  0:1:1     off       global    proxy     4         2         auto      off
    promoted  1:0       off       global    proxy     32        1         epoll     on
    promoted  1:0       on        tables    off       4         1         auto      off
    promoted  1:1:1     on        off       wal       1         2         auto      off
    restarted 0:1:1     off       tables    wal       32        1         auto      off
    restarted 0:1:1     on        global    off       4         2         epoll     on
    restarted 1:0       on        off       proxy     1         2         epoll     off
    restarted 1:1:1     on        off       proxy     4         1         auto      on";

/// Surroundings that users have, each in two unlike configurations.
pub const PLACES: &[&str] = &["defaults", "slow", "nameless", "unprivileged", "unwritable", "unread"];

/// The servers are well, and the place is not what the developers' own machines are.
const PLACED: &str = "
    place        weights   level     causal    cache     pool      workers   io        tls
    defaults     1:1:1     on        off       proxy     4         2         epoll     off
    defaults     0:1:1     off       tables    off       1         1         auto      on
    slow         1:1:1     on        tables    off       4         1         auto      off
    slow         0:1:1     off       off       proxy     32        2         epoll     off
    nameless     1:1:1     on        off       off       4         2         auto      off
    nameless     1:0       off       tables    proxy     1         1         epoll     on
    unprivileged 1:1:1     on        tables    off       4         1         epoll     off
    unprivileged 0:1:1     off       global    wal       32        2         auto      off
    unwritable   1:1:1     on        off       proxy     4         2         epoll     off
    unwritable   1:0       off       tables    off       1         1         auto      off
    unread       1:1:1     on        tables    proxy     4         2         auto      off
    unread       0:1:1     off       global    off       1         1         epoll     on";

/// Guarantee that reads do not go back in time: none, for the session with all that was written to the tables, for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causal {
    Off,
    Tables,
    Global,
}

/// One row: a configuration.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its place in the table, for `WEIR_MATRIX`.
    pub number: usize,
    cells: Vec<(String, String)>,
}

impl Row {
    pub fn cell(&self, column: &str) -> &str {
        let found = self.cells.iter().find(|(name, _)| name == column);
        &found.unwrap_or_else(|| panic!("the row has no column {column}")).1
    }

    /// Weights of the nodes, the primary first.
    pub fn weights(&self) -> Vec<u32> {
        self.cell("weights").split(':').map(|weight| weight.parse().unwrap()).collect()
    }

    pub fn causal(&self) -> Causal {
        match self.cell("causal") {
            "off" => Causal::Off,
            "tables" => Causal::Tables,
            "global" => Causal::Global,
            other => panic!("causal_reads = {other}"),
        }
    }

    pub fn is_on(&self, column: &str) -> bool {
        self.cell(column) == "on"
    }

    pub fn keeps_results(&self) -> bool {
        self.cell("cache") != "off"
    }

    /// Its lines of pgpool.conf; all they do not name has its default.
    pub fn configuration(&self) -> String {
        let cache = match self.cell("cache") {
            "off" => "memory_cache_enabled = off".to_string(),
            invalidation => format!("memory_cache_enabled = on\nmemqcache_invalidation = {invalidation}"),
        };
        let tls = if self.is_on("tls") {
            "ssl = on\nssl_cert = 'server.crt'\nssl_key = 'server.key'\nbackend_sslmode = 'require'"
        } else {
            "ssl = off"
        };
        let [level, causal, pool, workers, io] = ["level", "causal", "pool", "workers", "io"].map(|column| self.cell(column));
        format!(
            "statement_level_load_balance = {level}\ncausal_reads = {causal}\npool_size = {pool}\nworker_threads = {workers}\n\
             io_method = {io}\n{cache}\n{tls}\npool_wait_timeout = 2min\nlog_min_messages = log\n"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "row {}", self.number)?;
        self.cells.iter().try_for_each(|(name, value)| write!(out, " {name}={value}"))
    }
}

/// The rows without a fault.
pub fn calm() -> Vec<Row> {
    chosen(read(CALM))
}

/// The rows with one.
pub fn troubled() -> Vec<Row> {
    chosen(read(TROUBLED))
}

/// The rows in unusual surroundings.
pub fn placed() -> Vec<Row> {
    chosen(read(PLACED))
}

fn read(table: &str) -> Vec<Row> {
    let mut lines = table.lines().filter(|line| !line.trim().is_empty());
    let names: Vec<&str> = lines.next().expect("a table has a heading").split_whitespace().collect();
    let row = |(number, line): (usize, &str)| {
        let values: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(values.len(), names.len(), "{line}");
        let cells = names.iter().zip(values).map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Row { number, cells }
    };
    lines.enumerate().map(row).collect()
}

/// `WEIR_MATRIX=3,7` runs these rows only, `few` a part that has every value, `all` all.
fn chosen(rows: Vec<Row>) -> Vec<Row> {
    let wanted = std::env::var("WEIR_MATRIX").unwrap_or_else(|_| "all".to_owned());
    match wanted.as_str() {
        "all" => rows,
        "few" => few(rows),
        numbers => {
            let numbers: Vec<usize> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
            rows.into_iter().filter(|row| numbers.contains(&row.number)).collect()
        }
    }
}

/// The rows that bring a value which no row above them has: for a second run of the pairs, on other servers.
fn few(rows: Vec<Row>) -> Vec<Row> {
    let mut seen: Vec<(String, String)> = Vec::new();
    let brings_a_value = |row: &Row| {
        let known = seen.len();
        for cell in &row.cells {
            if !seen.contains(cell) {
                seen.push(cell.clone());
            }
        }
        seen.len() > known
    };
    rows.into_iter().filter(brings_a_value).collect()
}

#[test]
fn the_few_rows_have_every_value_and_are_less_than_half() {
    for table in [CALM, TROUBLED] {
        let (all, few) = (read(table), few(read(table)));
        assert!(few.len() * 2 < all.len(), "{} of {}", few.len(), all.len());
        for (name, value) in all.iter().flat_map(|row| &row.cells) {
            assert!(few.iter().any(|row| row.cell(name) == value), "none of the few rows has {name} = {value}");
        }
    }
}

#[test]
fn every_place_is_seen_in_two_unlike_configurations() {
    let rows = read(PLACED);
    for place in PLACES {
        let [one, other] = &rows.iter().filter(|row| row.cell("place") == *place).collect::<Vec<_>>()[..] else {
            panic!("{place} has two rows")
        };
        for column in ["weights", "level", "causal", "pool", "io"] {
            assert_ne!(one.cell(column), other.cell(column), "{place}: {column}");
        }
    }
}

#[test]
fn any_two_values_meet_in_some_row() {
    check_pairs(CALM, COLUMNS);
    let with_fault: Vec<(&str, &[&str])> = [("fault", FAULTS)].into_iter().chain(COLUMNS.iter().copied()).collect();
    check_pairs(TROUBLED, &with_fault);
}

fn check_pairs(table: &str, columns: &[(&str, &[&str])]) {
    let rows = read(table);
    for (at, (one, ones)) in columns.iter().enumerate() {
        for (other, others) in &columns[at + 1..] {
            for value in *ones {
                for beside in *others {
                    let meet = rows.iter().any(|row| row.cell(one) == *value && row.cell(other) == *beside);
                    assert!(meet, "no row with {one} = {value} and {other} = {beside}");
                }
            }
        }
    }
}
