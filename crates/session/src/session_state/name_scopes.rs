//! Places where names are looked up: a catalog and a search_path, by number.

use crate::catalogs::{Edition, UNKNOWN};
use crate::lazy_begin::transaction_place::Defaults;
use crate::session_state::client_settings::Settings;
use foldhash::HashMap;
use std::sync::Arc;
use weir_catalog::Path;

/// Places a worker remembers; beyond, all are forgotten. One is a few bytes, and texts are judged anew.
const PLACES_MAX: usize = 1024;

/// The places of one worker.
#[derive(Default)]
pub struct Places {
    numbers: HashMap<(Edition, Path), u64>,
    given: u64,
}

impl Places {
    pub fn number(&mut self, edition: Edition, path: Path) -> u64 {
        if self.numbers.len() >= PLACES_MAX {
            self.numbers.clear();
        }
        *self.numbers.entry((edition, path)).or_insert_with(|| {
            self.given += 1;
            self.given
        })
    }
}

/// Where a session's names are looked up.
pub struct Place {
    pub(crate) edition: Edition,
    pub(crate) settings: Arc<Settings>,
    pub(crate) number: u64,
    /// Defaults of the session's transactions.
    pub(crate) defaults: Defaults,
}

impl Place {
    /// Number of the catalog it belongs to.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// A catalog says what the names mean.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.edition != UNKNOWN
    }

    /// Its own number, as `place_of` gave it last.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// None yet.
    pub fn none(settings: Arc<Settings>) -> Place {
        let defaults = Defaults::of(|name| settings.get(name));
        Place { edition: UNKNOWN, settings, number: 0, defaults }
    }
}
