//! Rights of an ordinary client in SHOW: as much as servers would show of their own.

use super::{InquiryError, InquiryTurn, NAME_BYTES_MAX, Row};
use crate::log::Level;
use crate::runtime::worker::Worker;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_config::visibility::Viewer;
use weir_session::account::Account;

/// Roles whose privileges the user $1 has (`has_privs_of_role`). A superuser has those of all: only roles that matter are asked for.
pub(super) const PRIVILEGES_QUERY: &str = "SELECT r.rolname FROM pg_catalog.pg_roles r, pg_catalog.pg_roles me \
    WHERE me.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
    AND pg_catalog.pg_has_role(me.oid, r.oid, 'USAGE'::pg_catalog.text) \
    AND (NOT me.rolsuper OR r.rolname OPERATOR(pg_catalog.=) 'pg_read_all_settings'::pg_catalog.name \
    OR r.rolname OPERATOR(pg_catalog.=) 'pg_read_all_stats'::pg_catalog.name) \
    LIMIT 10000";

const WAIT_MAX: Duration = Duration::from_secs(1);

/// `None`: a server must be asked.
pub fn known(w: &Worker, account: &Account) -> Option<Viewer> {
    let config = w.peek_config();
    let is_in = |list: &[String]| list.iter().any(|name| **name == *account.client_user);
    if is_in(&config.admin.users) {
        return Some(Viewer::operator());
    }
    if account.user.len() > NAME_BYTES_MAX {
        return Some(Viewer::user(&account.user));
    }
    let lifetime = Duration::from_millis(config.auth.cache_ms);
    let told = w.shared.access.privileges.get(&account.user, lifetime)?;
    Some(viewer(&account.user, told.as_deref(), is_in(&config.admin.stats_users)))
}

/// Returns a server's answer, or else the earlier rights, or every user's. Cancel safe.
pub async fn ask(w: &Worker, account: &Account) -> Viewer {
    if let Some(known) = known(w, account) {
        return known;
    }
    let (is_monitor, deadline) = {
        let config = w.peek_config();
        let is_monitor = config.admin.stats_users.iter().any(|name| **name == *account.client_user);
        (is_monitor, Instant::now() + Duration::from_millis(config.auth.ask_timeout_ms).min(WAIT_MAX))
    };
    let user = &account.user;
    let privileges = &w.shared.access.privileges;
    let told = match roles(w, user, deadline).await {
        Ok(roles) => {
            let roles = Arc::new(roles);
            privileges.learn(user, roles.clone());
            Some(roles)
        }
        Err(error) => {
            let told = privileges.note_failure(user);
            let instead = if told.is_some() { "what counted before does" } else { "he is shown what everybody may see" };
            w.shared.log.say(Level::Log, format_args!("cannot ask what user \"{user}\" may see, {instead}: {error}"));
            told
        }
    };
    viewer(user, told.as_deref(), is_monitor)
}

fn viewer(user: &str, roles: Option<&BTreeSet<String>>, is_monitor: bool) -> Viewer {
    let viewer = roles.map_or_else(|| Viewer::user(user), |roles| Viewer::with_roles(user, roles.clone()));
    if is_monitor { viewer.and_statistics() } else { viewer }
}

async fn roles(w: &Worker, user: &str, deadline: Instant) -> Result<BTreeSet<String>, InquiryError> {
    // SHOW must work while no server is up.
    if !(0..w.view().nodes.len()).any(|at| w.view().is_up(at)) {
        return Err(InquiryError::NoServer);
    }
    let mut turn = InquiryTurn::take(w, None, deadline).await?;
    let rows = turn.ask(&[PRIVILEGES_QUERY], &[user], deadline).await?.pop().unwrap_or_default();
    let name = |row: Row| row.into_iter().next().flatten().map(|name| String::from_utf8_lossy(&name).into_owned());
    Ok(rows.into_iter().filter_map(name).collect())
}
