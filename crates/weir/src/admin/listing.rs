//! A list that an operator may ask for: named columns over rows with named fields. SQL, the console, PCP and HTTP show the same.
//!
//! A new column is one line of its list, wherever it stands. Lists are made of what all threads see, so that any thread can make one.

use crate::log::utc;
use crate::runtime::shared::SharedState;
use std::fmt;
use std::sync::Arc;
use weir_config::Config;
use weir_config::visibility::{ValueVisibility, Viewer};
use weir_failover::cluster::NodeIndex;
use weir_session::catalogs::KnownDatabase;
use weir_wire::write::{ColumnType, INT4, INT8, NUMERIC, TEXT};

/// A value. Numbers stay numbers, and are never negative.
#[derive(Clone, Debug, PartialEq)]
pub enum ListCell {
    Text(String),
    Number(u64),
    Decimal {
        value: f64,
        digits: u8,
    },
    /// A word in a column of texts, 0 or 1 in one of numbers.
    Truth(bool),
    /// Nothing to tell: an empty text.
    Empty,
    /// NULL, which only PgBouncer's lists have.
    Null,
}

/// The value as a text.
impl fmt::Display for ListCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListCell::Text(text) => f.write_str(text),
            ListCell::Number(number) => write!(f, "{number}"),
            ListCell::Decimal { value, digits } => write!(f, "{value:.0$}", usize::from(*digits)),
            ListCell::Truth(truth) => write!(f, "{truth}"),
            ListCell::Empty | ListCell::Null => Ok(()),
        }
    }
}

/// Values that a cell is made from.
macro_rules! cells {
    ($($of:ty => |$value:ident| $cell:expr;)*) => {
        $(impl From<$of> for ListCell {
            fn from($value: $of) -> ListCell {
                $cell
            }
        })*
    };
}

cells! {
    &str => |text| ListCell::Text(text.to_owned());
    &String => |text| ListCell::Text(text.clone());
    String => |text| ListCell::Text(text);
    &Arc<str> => |text| ListCell::Text(text.to_string());
    u64 => |number| ListCell::Number(number);
    u32 => |number| ListCell::Number(u64::from(number));
    u16 => |number| ListCell::Number(u64::from(number));
    usize => |number| ListCell::Number(number as u64);
    // With as many digits as Pgpool-II shows.
    f64 => |value| ListCell::Decimal { value, digits: 6 };
    bool => |truth| ListCell::Truth(truth);
}

impl<T: Into<ListCell>> From<Option<T>> for ListCell {
    fn from(value: Option<T>) -> ListCell {
        value.map_or(ListCell::Empty, Into::into)
    }
}

/// A time in seconds since 1970.
pub fn time(at_s: impl Into<Option<u64>>) -> ListCell {
    at_s.into().map(utc).into()
}

/// A column of a list over rows of one type.
pub struct ListColumn<R: 'static> {
    head: ColumnHead,
    cell: fn(&R) -> ListCell,
}

/// A column's name and type, and who sees its values. `ValueVisibility::Owner` in a list that is not about roles: readers of all statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnHead {
    pub(crate) name: &'static str,
    /// The type in the console. On a database all values are text, as Pgpool-II's are.
    pub(crate) kind: ColumnType,
    pub(crate) seen_by: ValueVisibility,
}

pub const fn open<R>(name: &'static str, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    of(name, TEXT, ValueVisibility::Everyone, cell)
}

/// For the row's role, and readers of all statistics.
pub const fn own<R>(name: &'static str, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    of(name, TEXT, ValueVisibility::Owner, cell)
}

pub const fn int<R>(name: &'static str, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    of(name, INT4, ValueVisibility::Everyone, cell)
}

pub const fn long<R>(name: &'static str, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    of(name, INT8, ValueVisibility::Everyone, cell)
}

pub const fn numeric<R>(name: &'static str, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    of(name, NUMERIC, ValueVisibility::Everyone, cell)
}

const fn of<R>(name: &'static str, kind: ColumnType, seen_by: ValueVisibility, cell: fn(&R) -> ListCell) -> ListColumn<R> {
    ListColumn { head: ColumnHead { name, kind, seen_by }, cell }
}

/// The subject of a list's rows, which says who sees what of them.
enum RowSubject<R: 'static> {
    /// No role.
    Plain,
    /// Parameters, of which each says who sees it.
    Parameters,
    /// The role at the servers that this gives.
    Role(fn(&R) -> &str),
}

/// A list: its columns, in groups that lists may share, and its rows.
pub struct Listing<R: 'static> {
    columns: &'static [&'static [ListColumn<R>]],
    subject: RowSubject<R>,
    rows: fn(&ListSnapshot<'_>) -> Vec<R>,
}

/// A list of these rows, which are about no role.
pub const fn listing<R>(rows: fn(&ListSnapshot<'_>) -> Vec<R>) -> Listing<R> {
    Listing { columns: &[], subject: RowSubject::Plain, rows }
}

/// All that a list is made of.
pub struct ListSnapshot<'a> {
    pub(crate) shared: &'a SharedState,
    pub(crate) config: Arc<Config>,
    /// In milliseconds since the start of the proxy.
    pub(crate) now_ms: u64,
    pub(crate) viewer: &'a Viewer,
    pub(crate) asker: ListAsker<'a>,
}

/// The session's own part of a list. Other askers have none of it.
#[derive(Clone, Copy, Default)]
pub struct ListAsker<'a> {
    /// The database that lists by database are about; without one they are empty.
    pub(crate) database: Option<&'a KnownDatabase>,
    /// The node that its reads go to, by its place.
    pub(crate) favourite: Option<NodeIndex>,
    /// Buffers at rest with its worker: nobody else knows.
    pub(crate) spare_buffers: usize,
}

impl<'a> ListSnapshot<'a> {
    pub fn new(shared: &'a SharedState, viewer: &'a Viewer, asker: ListAsker<'a>) -> ListSnapshot<'a> {
        let (config, now_ms) = (shared.config.load_full(), shared.begun.elapsed().as_millis() as u64);
        ListSnapshot { shared, config, now_ms, viewer, asker }
    }
}

/// PostgreSQL's words for hidden values (`pg_stat_activity`).
const NOT_YOURS: &str = "<insufficient privilege>";

impl<R> Listing<R> {
    pub const fn columns(self, columns: &'static [&'static [ListColumn<R>]]) -> Listing<R> {
        Listing { columns, ..self }
    }

    pub const fn about_parameters(self) -> Listing<R> {
        Listing { subject: RowSubject::Parameters, ..self }
    }

    pub const fn about_roles(self, owner: fn(&R) -> &str) -> Listing<R> {
        Listing { subject: RowSubject::Role(owner), ..self }
    }

    fn all_columns(&self) -> impl Iterator<Item = &'static ListColumn<R>> {
        self.columns.iter().copied().flatten()
    }

    /// All of a row, as texts.
    pub fn texts(&self, row: &R) -> Vec<String> {
        self.all_columns().map(|column| (column.cell)(row).to_string()).collect()
    }

    /// A row as a viewer sees it.
    fn seen(&self, viewer: &Viewer, row: &R) -> Vec<ListCell> {
        let owner = match self.subject {
            RowSubject::Plain | RowSubject::Parameters => None,
            RowSubject::Role(of) => Some(of(row)),
        };
        let cell = |column: &ListColumn<R>| {
            if viewer.sees(column.head.seen_by, owner) { (column.cell)(row) } else { NOT_YOURS.into() }
        };
        self.all_columns().map(cell).collect()
    }
}

/// A list, whatever its rows are.
pub trait AnyListing: Sync {
    fn heads(&self) -> Vec<ColumnHead>;

    /// True if users see different rows or values.
    fn depends_on_viewer(&self) -> bool;

    /// Its rows now, as far as the viewer may see them.
    fn rows(&self, of: &ListSnapshot<'_>) -> Vec<Vec<ListCell>>;
}

impl<R> ListColumn<R> {
    pub fn head(&self) -> ColumnHead {
        self.head
    }
}

impl<R> AnyListing for Listing<R> {
    fn heads(&self) -> Vec<ColumnHead> {
        self.all_columns().map(|column| column.head).collect()
    }

    fn depends_on_viewer(&self) -> bool {
        let is_hidden = |column: &ListColumn<R>| column.head.seen_by != ValueVisibility::Everyone;
        matches!(self.subject, RowSubject::Parameters) || self.all_columns().any(is_hidden)
    }

    fn rows(&self, of: &ListSnapshot<'_>) -> Vec<Vec<ListCell>> {
        (self.rows)(of).iter().map(|row| self.seen(of.viewer, row)).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::auth::access::AccessFiles;
    use crate::log::ProxyLog;
    use crate::runtime::tls_files::TlsFiles;
    use std::collections::BTreeSet;
    use weir_session::status::{ClientEndpoints, ClientIdentity, SessionPid, SessionStatus};

    /// A proxy with two nodes, and one client: `ann`, who is `joe` at the servers.
    pub fn shared() -> SharedState {
        let conf = b"backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\n";
        let config = weir_config::read(std::path::Path::new("c"), &mut |_| Ok(conf.to_vec())).config.expect("it is one");
        let log = ProxyLog::new(&config.log).unwrap();
        let shared = SharedState::new(config, None, AccessFiles::default(), TlsFiles::default(), Vec::new(), [7; 32], log);
        let [user, server_user, database, server_database] = ["ann", "joe", "shop", "shop"].map(Arc::from);
        let whose = Arc::new(ClientIdentity { user, database, server_user, server_database });
        let (number, ends) = (SessionPid { pid: 7, worker: 0 }, ClientEndpoints { client: None, local: None });
        shared.session_statuses.add(Arc::new(SessionStatus::new(number, whose, "psql".into(), ends, 60)));
        shared
    }

    /// Checks a list as an operator sees it, and as a stranger and its owner do. Returns the number of its rows.
    pub fn check_list(name: &str, list: &dyn AnyListing) -> usize {
        let (shared, heads) = (shared(), list.heads());
        let database = shared.catalogs.database(&"shop".into(), std::time::Instant::now());
        let rows_for = |viewer: Viewer| {
            let asker = ListAsker { database: Some(&database), favourite: Some(1), spare_buffers: 0 };
            list.rows(&ListSnapshot::new(&shared, &viewer, asker))
        };
        assert_eq!(heads.iter().map(|head| head.name).collect::<BTreeSet<_>>().len(), heads.len(), "{name}: columns");
        let all = rows_for(Viewer::operator());
        let hides = |rows: &[Vec<ListCell>]| rows.iter().flatten().any(|cell| *cell == NOT_YOURS.into());
        assert!(!hides(&all) && all.iter().all(|row| row.len() == heads.len()), "{name}: {all:?}");
        for row in rows_for(Viewer::user("stranger")) {
            for (head, cell) in heads.iter().zip(&row) {
                assert_eq!(head.seen_by != ValueVisibility::Everyone, *cell == NOT_YOURS.into(), "{name}: {head:?} {cell:?}");
            }
        }
        // Rows are of `joe`, or of no role.
        let is_of_role =
            heads.iter().any(|head| head.seen_by == ValueVisibility::Owner) && !hides(&rows_for(Viewer::user("joe")));
        assert_eq!(is_of_role && !all.is_empty(), name == "pool_processes", "{name}");
        all.len()
    }

    #[test]
    fn values_are_texts_as_pgpool_writes_them() {
        for (cell, expected) in [
            (ListCell::from("a"), "a"),
            (7_u64.into(), "7"),
            (0.5.into(), "0.500000"),
            (ListCell::Decimal { value: 0.5, digits: 2 }, "0.50"),
            (true.into(), "true"),
            (None::<u64>.into(), ""),
            (time(60), "1970-01-01 00:01:00"),
            (time(None), ""),
        ] {
            assert_eq!(cell.to_string(), expected, "{cell:?}");
        }
    }
}
