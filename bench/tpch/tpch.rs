//! The benchmark TPC-H: its tables over shards, rows by its rules, its queries. For a test and for a measurement.

pub const SCHEMA: &str = include_str!("schema.sql");

/// On each shard.
pub const REFERENCE: &[&str] = &["region", "nation"];

/// Tables, their keys, and the tables they lie beside. So each query but a few joins across shards.
pub const SHARDED: &[(&str, &str, Option<&str>)] = &[
    ("supplier", "s_suppkey", None),
    ("customer", "c_custkey", None),
    ("part", "p_partkey", None),
    ("partsupp", "ps_partkey", Some("part")),
    ("orders", "o_orderkey", None),
    ("lineitem", "l_orderkey", Some("orders")),
];

/// Statements that make all rows; `suppliers` 100 is the benchmark's scale 0.01, with 60,000 lines of orders.
pub fn rows(suppliers: u32) -> String {
    include_str!("rows.sql").replace("SCALE", &suppliers.to_string())
}

/// The 22 queries in their order.
pub fn queries() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in include_str!("queries.sql").lines() {
        match line.strip_prefix("-- ") {
            Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => found.push(String::new()),
            Some(_) => {}
            None => found.last_mut().expect("a number comes first").extend([line, "\n"]),
        }
    }
    found
}
