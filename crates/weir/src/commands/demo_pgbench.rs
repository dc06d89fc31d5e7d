//! pgbench's tables over several servers: the rows of each shard, and the texts that make them.
//!
//! A shard has one branch with its tellers and accounts. So a payment at a branch by an account of its own concerns one shard.

/// The database of the tables.
pub const DATABASE: &str = "postgres";

enum Placing {
    /// Each shard has so many keys, in a row. `row`: values of the row with the key `key`.
    Ranges { keys_of_shard: u32, row: &'static str },
    /// Rows lie with those of another table that have their key. There are none at first.
    With(&'static str),
}

/// A table as `pgbench -i` makes it, with as many branches as shards.
pub struct PgbenchTable {
    pub name: &'static str,
    key: &'static str,
    columns: &'static str,
    placing: Placing,
}

pub const TABLES: [PgbenchTable; 4] = [
    PgbenchTable {
        name: "pgbench_branches",
        key: "bid",
        columns: "bid int PRIMARY KEY, bbalance int, filler char(88)",
        placing: Placing::Ranges { keys_of_shard: 1, row: "key, 0" },
    },
    PgbenchTable {
        name: "pgbench_tellers",
        key: "tid",
        columns: "tid int PRIMARY KEY, bid int, tbalance int, filler char(84)",
        placing: Placing::Ranges { keys_of_shard: 10, row: "key, (key - 1) / 10 + 1, 0" },
    },
    PgbenchTable {
        name: "pgbench_accounts",
        key: "aid",
        columns: "aid int PRIMARY KEY, bid int, abalance int, filler char(84)",
        placing: Placing::Ranges { keys_of_shard: 100_000, row: "key, (key - 1) / 100000 + 1, 0, ''" },
    },
    PgbenchTable {
        name: "pgbench_history",
        key: "aid",
        columns: "tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)",
        placing: Placing::With("pgbench_accounts"),
    },
];

impl PgbenchTable {
    pub fn create(&self) -> String {
        format!("CREATE TABLE {} ({})", self.name, self.columns)
    }

    /// The words behind `weir shard` that spread the table.
    pub fn command(&self, shards: u16) -> String {
        let Self { name, key, placing, .. } = self;
        let option = match placing {
            Placing::Ranges { keys_of_shard, .. } => format!("--range {}", ranges(*keys_of_shard, shards)),
            Placing::With(other) => format!("--with public.{other}"),
        };
        format!("table {DATABASE} public.{name} --key {key} {option}")
    }

    /// Inserts the rows of one shard, if there are any.
    pub fn fill(&self, shard: u16) -> Option<String> {
        match self.placing {
            Placing::Ranges { keys_of_shard, row } => {
                let (first, next) = (first_key(keys_of_shard, shard), first_key(keys_of_shard, shard + 1));
                Some(format!("INSERT INTO {} SELECT {row} FROM generate_series({first}, {}) AS key", self.name, next - 1))
            }
            Placing::With(_) => None,
        }
    }
}

fn first_key(keys_of_shard: u32, shard: u16) -> u32 {
    1 + keys_of_shard * u32::from(shard)
}

/// "..11=0,11..21=1,21..=2". The ends are open, so that each key has a shard.
fn ranges(keys_of_shard: u32, shards: u16) -> String {
    let range = |shard: u16| {
        let end = |at: u16| if at == 0 || at == shards { String::new() } else { first_key(keys_of_shard, at).to_string() };
        format!("{}..{}={shard}", end(shard), end(shard + 1))
    };
    (0..shards).map(range).collect::<Vec<_>>().join(",")
}

/// pgbench's own transaction, where teller and account are of the branch.
pub fn payment_script(shards: u16) -> String {
    format!(
        "-- A payment at a branch by an account of its own: all rows lie on one shard.\n\
         \\set bid random(1, {shards})\n\
         \\set tid (:bid - 1) * 10 + random(1, 10)\n\
         \\set aid (:bid - 1) * 100000 + random(1, 100000)\n\
         \\set delta random(-5000, 5000)\n\
         BEGIN;\n\
         UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
         UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\n\
         UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;\n\
         INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);\n\
         END;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_a_branch_with_its_tellers_and_accounts() {
        let commands = TABLES.map(|table| table.command(3));
        let options = commands.each_ref().map(|command| command.split_once(" --key ").map(|(_, options)| options));
        assert_eq!(
            options,
            [
                Some("bid --range ..2=0,2..3=1,3..=2"),
                Some("tid --range ..11=0,11..21=1,21..=2"),
                Some("aid --range ..100001=0,100001..200001=1,200001..=2"),
                Some("aid --with public.pgbench_accounts"),
            ]
        );
        let from =
            |shard: u16| TABLES.map(|table| table.fill(shard).and_then(|text| Some(text.split_once(" FROM ")?.1.to_owned())));
        let series = |text: &str| Some(format!("generate_series({text}) AS key"));
        assert_eq!(from(0), [series("1, 1"), series("1, 10"), series("1, 100000"), None]);
        assert_eq!(from(2), [series("3, 3"), series("21, 30"), series("200001, 300000"), None]);
    }
}
