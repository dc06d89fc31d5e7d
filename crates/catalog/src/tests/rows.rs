//! A catalog of a few rows.

use super::{Catalog, CatalogDraft, LookupUser, SearchPath};
use weir_config::{Config, RoutingConfig};

/// Rows as a server gives them: the part's number, then its values, `-` for none.
pub const ROWS: &str = "
    0 11 pg_catalog
    0 2200 public
    0 20001 app
    0 20002 joe
    1 1574 11 nextval t
    1 870 11 lower f
    1 1598 11 random t
    1 2077 11 current_setting f
    1 20010 2200 reads f
    1 20011 2200 writes t
    1 20012 2200 twice f
    1 20013 20001 twice t
    1 20014 2200 lower t
    1 20015 20001 json_value t
    1 20016 2200 json_scalar f
    2 20100 2200 t r p
    2 20101 2200 u r u
    2 20102 2200 f f p
    2 20103 2200 s S p
    2 20104 20001 t r u
    2 20105 2200 whole p p
    2 20106 2200 guarded r p
    2 20110 2200 v_plain v p
    2 20111 2200 v_writes v p
    2 20112 2200 v_of_view v p
    2 20113 2200 v_builtin v p
    2 20114 2200 v_volatile_reader v p
    2 20115 2200 v_locks v p
    2 20116 2200 v_catalog v p
    2 20117 2200 v_operator v p
    2 20118 2200 v_of_unlogged v p
    2 20119 2200 v_of_guarded v p
    2 20190 2200 v_new_operator v p
    2 20120 20002 mine r p
    2 20121 99999 elsewhere r p
    3 20200 2200 ### 20011
    3 20201 2200 @+@ 20010
    4 2200 risky 20011 e
    4 2200 fine 20010 i
    5 20105 r u
    6 20111 funcid~20011,relid~20100
    6 20112 relid~20111,relid~20112
    6 20110 relid~20100,funcid~870,opno~96
    6 20113 funcid~1574
    6 20114 funcid~1598
    6 20115 rowMarks~({,relid~20100
    6 20116 relid~1259
    6 20117 opnos~(o~20200),relid~20100
    6 20190 opno~20299,relid~20100
    6 20118 relid~20101
    6 20119 relid~20106
    7 20106 funcid~20011
    8 joe f app
    9 postgres \"$user\",public";

/// A draft of any size.
pub fn empty() -> CatalogDraft {
    CatalogDraft::new(usize::MAX)
}

pub fn draft(rows: &str) -> CatalogDraft {
    let mut draft = empty();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let mut words = row.split(' ');
        let part: usize = words.next().and_then(|part| part.parse().ok()).expect("a row begins with its part");
        let mut cells: Vec<String> = words.map(|word| word.replace('~', " ")).collect();
        if part == 8 {
            cells[1] = if cells[1] == "t" { "t" } else { "f" }.into();
        }
        let cells: Vec<Option<&[u8]>> = cells.iter().map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells).unwrap_or_else(|error| panic!("{row}: {error}"));
    }
    draft
}

pub fn routing() -> RoutingConfig {
    Config::default().routing
}

pub fn path_of(catalog: &Catalog, user: &str, set: Option<&str>) -> SearchPath {
    catalog.path(&LookupUser { user, has_role: false }, set)
}
