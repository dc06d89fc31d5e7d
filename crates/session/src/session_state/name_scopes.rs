//! Places where names are looked up: a catalog and a search_path, by number.

use crate::catalogs::{Edition, UNKNOWN};
use crate::lazy_begin::transaction_place::TransactionDefaults;
use crate::session_state::client_settings::SettingValues;
use foldhash::HashMap;
use std::sync::Arc;
use weir_catalog::SearchPath;

/// Beyond these places, all are forgotten and texts are judged again.
const PLACES_MAX: usize = 1024;

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

pub struct NameScope {
    pub(crate) edition: Edition,
    pub(crate) settings: Arc<SettingValues>,
    pub(crate) number: u64,
    pub(crate) defaults: TransactionDefaults,
}

impl NameScope {
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// True if a catalog tells what names mean.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.edition != UNKNOWN
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn none(settings: Arc<SettingValues>) -> NameScope {
        let defaults = TransactionDefaults::of(|name| settings.get(name));
        NameScope { edition: UNKNOWN, settings, number: 0, defaults }
    }
}
