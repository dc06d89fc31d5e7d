//! How long a text takes that was never seen: it is parsed, classed, judged by a catalog and remembered. Prints microseconds, the median
//! over some rounds; `cargo xtask bench` runs it.
//!
//! Texts are those of `pgbench -S` in other letters, so that each is new and none is longer.

use std::sync::Arc;
use std::time::Instant;
use weir_catalog::{Catalog, CatalogDraft, DraftError, LookupUser};
use weir_config::{Config, RoutingConfig};
use weir_session::statements::StatementCache;

/// Texts of one round; each is another choice of capitals in the table's name.
const TEXTS: usize = 2_000;
const ROUNDS: usize = 15;
const TABLE: &[u8] = b"pgbench_accounts";

fn main() -> Result<(), DraftError> {
    let config = Arc::new(Config::default());
    let catalog = catalog(&config.routing)?;
    let path = catalog.path(&LookupUser { user: "postgres", has_role: false }, Some("public"));
    let mut micros: Vec<f64> = Vec::new();
    let mut reads = 0;
    for round in 0..ROUNDS {
        let texts: Vec<Vec<u8>> = (0..TEXTS).map(|number| text(round * TEXTS + number)).collect();
        let mut statements = StatementCache::new(config.clone(), 0, |_| None);
        let begin = Instant::now();
        for text in &texts {
            let statement = statements.of_text(text);
            let judged = statement.objects.names.as_ref().and_then(|names| catalog.judge(names, &path));
            reads += usize::from(judged.is_none());
        }
        micros.push(begin.elapsed().as_secs_f64() * 1e6 / TEXTS as f64);
        assert_eq!(statements.parsed, TEXTS as u64, "a text was not new");
    }
    assert_eq!(reads, TEXTS * ROUNDS, "the catalog does not know the table");
    micros.sort_by(f64::total_cmp);
    println!("{:.3}", micros[ROUNDS / 2]);
    Ok(())
}

/// The text of `pgbench -S` with the letters of the table's name as the bits of a number say.
fn text(number: usize) -> Vec<u8> {
    let mut text = b"SELECT abalance FROM ".to_vec();
    let mut bits = number;
    for letter in TABLE {
        let is_capital = letter.is_ascii_alphabetic() && bits & 1 == 1;
        text.push(if is_capital { letter.to_ascii_uppercase() } else { *letter });
        bits >>= u32::from(letter.is_ascii_alphabetic());
    }
    text.extend(b" WHERE aid = 4711;");
    text
}

/// A server's catalog of a database with pgbench's tables.
fn catalog(routing: &RoutingConfig) -> Result<Catalog, DraftError> {
    let mut draft = CatalogDraft::new(usize::MAX);
    for (number, name) in [(&b"11"[..], &b"pg_catalog"[..]), (b"2200", b"public")] {
        draft.row(0, &[Some(number), Some(name)])?;
    }
    draft.row(2, &[Some(b"16384"), Some(b"2200"), Some(TABLE), Some(b"r"), Some(b"p")])?;
    Ok(draft.finish(routing))
}
