//! A catalog of a few relations and functions, as a server would give it.

use std::sync::Arc;
use weir_catalog::{Catalog, CatalogDraft};
use weir_config::Config;

/// The part's number, then its values.
const ROWS: &str = "
    0 11 pg_catalog
    0 2200 public
    0 2201 other
    1 1574 11 nextval t
    1 1575 11 currval t
    1 2559 11 lastval t
    1 870 11 lower f
    1 1598 11 random t
    1 2626 11 pg_sleep t
    1 2880 11 pg_advisory_lock t
    1 3055 11 generate_series i
    1 2803 11 count i
    1 2116 11 max i
    1 20010 2200 reads f
    1 20011 2200 writes t
    2 20100 2200 t r p
    2 20101 2200 u r u
    2 20102 2200 w r p
    2 20103 2200 s S p
    2 20104 2200 a r p
    2 20105 2200 b r p
    2 20110 2200 v v p
    2 20120 2201 a r p
    6 20110 relid~20100
    9 joe \"$user\",public
    13 f
    15 joe default_transaction_isolation read~committed
    15 joe idle_in_transaction_session_timeout 0
    15 joe transaction_timeout 0";

pub fn catalog(config: &Config) -> Arc<Catalog> {
    let mut draft = CatalogDraft::new(usize::MAX);
    for row in ROWS.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let mut words = row.split(' ');
        let part = words.next().and_then(|part| part.parse().ok()).expect("a row begins with its part");
        let cells: Vec<String> = words.map(|word| word.replace('~', " ")).collect();
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells).unwrap_or_else(|error| panic!("{row}: {error}"));
    }
    Arc::new(draft.finish(&config.routing))
}
