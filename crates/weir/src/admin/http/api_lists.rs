//! Lists of SHOW as JSON: those of SQL on a database, and the console's with `console_` before their names.

use super::api_error::ApiError;
use super::dashboard::{ApiQuery, Dashboard, answer};
use super::dashboard_access::DashboardUser;
use crate::admin::console::CONSOLE_VIEWS;
use crate::admin::listing::{AnyListing, ListAsker, ListCell, ListSnapshot};
use crate::admin::views::VIEWS;
use crate::log::rfc3339;
use crate::runtime::shared::seconds;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;
use weir_config::visibility::Viewer;
use weir_wire::write::TEXT;

const CONSOLE_PREFIX: &str = "console_";

fn list_of(name: &str) -> Option<&'static dyn AnyListing> {
    if let Some(name) = name.strip_prefix(CONSOLE_PREFIX) {
        return CONSOLE_VIEWS.iter().find(|(known, _)| *known == name).map(|(_, list)| *list);
    }
    VIEWS.iter().find(|view| view.name == name).map(|view| view.list)
}

/// All lists and their columns.
pub async fn lists() -> Response {
    let described = |name: &str, help: &str, list: &dyn AnyListing| {
        let columns: Vec<Value> = list.heads().iter().map(|head| json!({ "name": head.name })).collect();
        json!({ "name": name, "help": help, "columns": columns })
    };
    let of_databases = VIEWS.iter().map(|view| described(view.name, view.help, view.list));
    let of_console = CONSOLE_VIEWS.iter().map(|(name, list)| {
        let help = format!("SHOW {} of the console.", name.to_ascii_uppercase());
        described(&format!("{CONSOLE_PREFIX}{name}"), &help, *list)
    });
    answer(&json!({ "views": of_databases.chain(of_console).collect::<Vec<_>>() }))
}

/// The rows of a list now. Lists by database are about the one that the request names.
pub async fn list(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(user): Extension<DashboardUser>,
    Path(name): Path<String>,
    query: ApiQuery,
) -> Result<Response, ApiError> {
    let list = list_of(&name)
        .ok_or_else(|| ApiError::not_found(format!("there is no list \"{name}\"")).hint("/api/v1/show names all."))?;
    let (database, viewer) = (query.get("database").map(str::to_owned), user.role.viewer());
    dashboard.job(move |own| answer(&shown(own, &name, list, &viewer, database.as_deref()))).await
}

fn shown(dashboard: &Dashboard, name: &str, list: &dyn AnyListing, viewer: &Viewer, database: Option<&str>) -> Value {
    let known = dashboard.shared.catalogs.all();
    let database = known.iter().find(|known| database == Some(&*known.name));
    let asker = ListAsker { database: database.map(|known| &**known), ..ListAsker::default() };
    let (heads, rows) = (list.heads(), list.rows(&ListSnapshot::new(&dashboard.shared, viewer, asker)));
    let is_number = |at: usize| {
        let mut there = rows.iter().filter_map(|row| row.get(at)).filter(|cell| !is_nothing(cell)).peekable();
        heads[at].kind != TEXT
            || (there.peek().is_some() && there.all(|cell| matches!(cell, ListCell::Number(_) | ListCell::Decimal { .. })))
    };
    let are_numbers: Vec<bool> = (0..heads.len()).map(is_number).collect();
    let column = |(head, is_number): (&crate::admin::listing::ColumnHead, &bool)| json!({ "name": head.name, "type": if *is_number { "number" } else { "text" } });
    let columns: Vec<Value> = heads.iter().zip(&are_numbers).map(column).collect();
    let cells = |row: &Vec<ListCell>| row.iter().zip(&are_numbers).map(|(cell, is)| value_of(cell, *is)).collect::<Vec<_>>();
    let rows: Vec<Vec<Value>> = rows.iter().map(cells).collect();
    json!({ "view": name, "at": rfc3339(seconds(SystemTime::now())), "columns": columns, "rows": rows })
}

fn is_nothing(cell: &ListCell) -> bool {
    match cell {
        ListCell::Empty | ListCell::Null => true,
        ListCell::Text(text) => text.is_empty(),
        ListCell::Number(_) | ListCell::Decimal { .. } | ListCell::Truth(_) => false,
    }
}

/// A column of numbers has numbers, one of texts has texts; null where there is nothing, or nothing to be seen.
fn value_of(cell: &ListCell, is_number: bool) -> Value {
    match cell {
        _ if is_nothing(cell) => Value::Null,
        ListCell::Number(number) if is_number => json!(number),
        ListCell::Decimal { .. } if is_number => cell.to_string().parse::<f64>().map_or(Value::Null, |number| json!(number)),
        ListCell::Truth(truth) if is_number => json!(u8::from(*truth)),
        ListCell::Text(_) if is_number => Value::Null,
        ListCell::Text(_)
        | ListCell::Number(_)
        | ListCell::Decimal { .. }
        | ListCell::Truth(_)
        | ListCell::Empty
        | ListCell::Null => {
            json!(cell.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_type_of_their_column() {
        for (cell, is_number, expected) in [
            (ListCell::Number(7), true, json!(7)),
            (ListCell::Number(7), false, json!("7")),
            (ListCell::Decimal { value: 0.5, digits: 2 }, true, json!(0.5)),
            (ListCell::Truth(true), true, json!(1)),
            (ListCell::Truth(true), false, json!("true")),
            (ListCell::from("<script>"), false, json!("<script>")),
            (ListCell::from("<insufficient privilege>"), true, Value::Null),
            (ListCell::from(""), false, Value::Null),
            (ListCell::Empty, true, Value::Null),
            (ListCell::Null, false, Value::Null),
        ] {
            assert_eq!(value_of(&cell, is_number), expected, "{cell:?}");
        }
    }

    #[test]
    fn every_list_has_a_name_of_its_own() {
        assert!(
            list_of("pool_nodes").is_some() && list_of("console_pool_nodes").is_some() && list_of("console_clients").is_some()
        );
        assert!(["", "clients", "console_", "console_console_clients", "POOL_NODES"].iter().all(|name| list_of(name).is_none()));
    }
}
