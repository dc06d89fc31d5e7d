//! Places where names are looked up: a catalog and a search_path, by number.

use crate::catalogs::{Edition, UNKNOWN};
use crate::lazy_begin::transaction_place::TransactionDefaults;
use crate::session_state::client_settings::SettingValues;
use foldhash::HashMap;
use std::sync::Arc;
use weir_catalog::SearchPath;

/// Places a worker remembers; beyond, all are forgotten. One is a few bytes, and texts are judged anew.
const PLACES_MAX: usize = 1024;

/// The places of one worker.
#[derive(Default)]
pub struct NameScopeNumbers {
    numbers: HashMap<(Edition, SearchPath), u64>,
    given: u64,
}

impl NameScopeNumbers {
    pub fn number(&mut self, edition: Edition, path: SearchPath) -> u64 {
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
pub struct NameScope {
    pub(crate) edition: Edition,
    pub(crate) settings: Arc<SettingValues>,
    pub(crate) number: u64,
    /// Defaults of the session's transactions.
    pub(crate) defaults: TransactionDefaults,
}

impl NameScope {
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
    pub fn none(settings: Arc<SettingValues>) -> NameScope {
        let defaults = TransactionDefaults::of(|name| settings.get(name));
        NameScope { edition: UNKNOWN, settings, number: 0, defaults }
    }
}
