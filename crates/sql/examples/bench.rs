//! Prints nanoseconds per `facts()` and per `skeleton()` for a short and a long statement; run with `--release`.

use std::hint::black_box;
use std::time::Instant;

use weir_sql::skeleton::skeleton;

const SHORT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 1234567890;";
const LONG: &str = "SELECT o.id, o.total, c.name, count(*) OVER (PARTITION BY c.id ORDER BY o.created) AS n \
    FROM orders o JOIN customers c ON c.id = o.customer_id \
    LEFT JOIN LATERAL (SELECT max(p.paid) AS last FROM payments p WHERE p.order_id = o.id) l ON true \
    WHERE o.state IN ('open', 'sent') AND o.total > 100.50 AND c.name LIKE 'A%' \
    ORDER BY o.created DESC LIMIT 20 OFFSET 40";

/// The median of 9 batches.
fn nanos(mut call: impl FnMut()) -> u128 {
    const CALLS: u32 = 20_000;
    let mut batches: Vec<u128> = (0..9)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            start.elapsed().as_nanos() / u128::from(CALLS)
        })
        .collect();
    batches.sort_unstable();
    batches[4]
}

fn main() {
    for text in [SHORT, LONG] {
        let mut out = Vec::with_capacity(1024);
        let skeleton_ns = nanos(|| {
            black_box(skeleton(black_box(text.as_bytes()), &mut out));
        });
        let facts_ns = nanos(|| {
            black_box(weir_sql::facts(black_box(text.as_bytes())));
        });
        println!("{} bytes: skeleton {skeleton_ns} ns, facts {facts_ns} ns", text.len());
    }
}
