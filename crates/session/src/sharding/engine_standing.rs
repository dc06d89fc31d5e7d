//! Can the engine be asked now, and would a short wait help?
//!
//! The look at the database once a second tells (`KnownSharding`). A statement waits for the end of looks, as the first statements of a database do
//! (`catalogs::KnownDatabase::await_look`).

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::lazy_begin;
use crate::session::Session;
use crate::sharding;
use crate::sharding::known_sharding::{EngineLack, EngineStanding};
use crate::sharding::unread_readers;
use std::time::Duration;
use weir_shard::EngineReadiness;

/// Longest wait of a statement for the engine. It follows a change within a second or two, where looks are quick.
pub const ENGINE_WAIT: Duration = Duration::from_secs(10);

pub const ENGINE_BEHIND: &str = "Run the statement again: Weir has the engine follow changes of the tables. If that lasts, the log says why, and the command weir shard engine \
    makes the engine ready.";

/// Without a primary the engine is as the last look found it.
#[cold]
pub fn engine_standing(s: &Session, w: &Context) -> EngineStanding {
    match s.account.known.sharding.engine_on(w.view().primary_id()) {
        EngineStanding::Ready if lazy_begin::awaits_defaults(s) => EngineStanding::Waits(EngineLack::DefaultsUnread),
        other @ (EngineStanding::Ready | EngineStanding::Waits(_) | EngineStanding::Unready) => other,
    }
}

/// True if the catalog of a database with spread tables is being read anew.
#[cold]
pub fn awaits_catalog(s: &Session) -> bool {
    let has_tables = || s.account.known.sharding.tables().is_some_and(|tables| !tables.is_empty());
    lazy_begin::is_catalog_being_read(s) && has_tables()
}

/// True while a lack lasts.
#[cold]
pub fn lacks(s: &Session, w: &Context, lack: EngineLack) -> bool {
    let sharding = &s.account.known.sharding;
    match lack {
        EngineLack::Follows | EngineLack::NotLookedAt | EngineLack::ColumnsChange => {
            sharding.engine_on(w.view().primary_id()) == EngineStanding::Waits(lack)
        }
        EngineLack::DefaultsUnread => lazy_begin::awaits_defaults(s),
        EngineLack::CatalogUnread => awaits_catalog(s),
        EngineLack::IndexesChange => sharding.indexes.is_doubtful(),
        EngineLack::ReadersUnread => sharding.has_unread_readers(),
    }
}

/// The lack for whose end the session's statement waits (`look_wait`), while it lasts.
#[cold]
pub fn awaited_lack(s: &Session, w: &Context) -> Option<EngineLack> {
    s.sharding.look_wait.map(|wait| wait.lack).filter(|lack| lacks(s, w, *lack))
}

/// The error of a statement that has waited for so long, or cannot wait.
#[cold]
pub fn not_ready(s: &Session, lack: EngineLack) -> ErrorReport {
    let busy = |text: &str| {
        ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text)
            .detail("The statement is about several shards.")
            .hint("Run the statement again.")
    };
    match lack {
        EngineLack::Follows => {
            let tables = s.account.known.sharding.tables();
            let why = match tables.as_deref().map(|tables| tables.engine()) {
                Some(EngineReadiness::Follows(why)) => why.as_str(),
                _ => "it was behind a moment ago",
            };
            ErrorReport::error(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "the statement reads rows of several shards, and the engine is not ready",
            )
            .detail(format!("The engine is not ready: {why}"))
            .hint(ENGINE_BEHIND)
        }
        EngineLack::NotLookedAt => {
            busy("the engine was not looked at on the new primary of shard 0 yet; the statement was not sent")
        }
        EngineLack::DefaultsUnread => {
            busy("the defaults of transactions are not known while the catalog is read anew; the statement was not sent")
        }
        EngineLack::CatalogUnread => busy("the catalog is read anew; the statement was not sent"),
        EngineLack::IndexesChange => sharding::indexes_change(),
        EngineLack::ReadersUnread => unread_readers::unread(),
        EngineLack::ColumnsChange => busy(
            "columns or rights of a spread table are being changed, and the engine was not looked at since; the statement was not sent",
        ),
    }
}
