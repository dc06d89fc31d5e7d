//! Descriptions of prepared statements on their way. `traffic::shapes` works with them.

use crate::client::statements::Prepared;
use std::rc::Rc;
use weir_policy::prepared::Shape;

/// A description on its way.
pub struct Described {
    pub prepared: Rc<Prepared>,
    pub is_unnamed: bool,
    pub shape: Shape,
    pub parameters: Option<Rc<[u8]>>,
}

impl Described {
    pub fn new(prepared: Rc<Prepared>, is_unnamed: bool) -> Described {
        Described { prepared, is_unnamed, shape: Shape::UNKNOWN, parameters: None }
    }
}
