//! Equalities that a condition asks of every row that it leaves.

use pg_raw_parse::ConstValue;
use pg_raw_parse::Node;
use pg_raw_parse::nodes::{A_Const, A_Expr, A_Expr_Kind, BoolExprType, SelectStmt, SubLink, SubLinkType, TypeCast};

use crate::facts::QualifiedName;
use crate::key_terms::{ColumnTerm, EqualTerm, KeySource, KeyTerm, Sign};
use crate::literal::{LiteralPlace, LiteralText, is_continued, literal_places};
use crate::met_names::qualified;

/// Constants of a text, which know their ordinals.
pub(crate) struct Constants<'a> {
    text: &'a str,
    /// `None`: the text's skeleton keeps its literals.
    places: Option<Vec<LiteralPlace>>,
}

impl<'a> Constants<'a> {
    pub(crate) fn of(text: &'a str) -> Constants<'a> {
        Constants { text, places: literal_places(text.as_bytes()) }
    }

    /// A literal or a parameter, perhaps with one cast.
    pub(crate) fn constant(&self, node: Node<'_>) -> Option<KeyTerm> {
        let (node, cast) = match node {
            Node::TypeCast(cast) => (cast.arg(), Some(plain_type(cast)?)),
            _ => (node, None),
        };
        let source = match node {
            Node::ParamRef(parameter) => KeySource::Parameter(u32::try_from(parameter.number).ok().filter(|number| *number > 0)?),
            Node::A_Const(constant) => self.literal(constant)?,
            _ => return None,
        };
        Some(KeyTerm { source, cast })
    }

    fn literal(&self, constant: &A_Const) -> Option<KeySource> {
        let (value, sign) = match constant.val() {
            None => (LiteralText::Null, Sign::Plus),
            Some(ConstValue::Boolean(value)) => (LiteralText::Boolean(value), Sign::Plus),
            Some(ConstValue::Integer(value)) => (LiteralText::Integer(value.unsigned_abs().to_string()), sign_if(value < 0)),
            Some(ConstValue::Float(value)) => {
                let digits = value.strip_prefix('-');
                (LiteralText::Decimal(digits.unwrap_or(value).to_owned()), sign_if(digits.is_some()))
            }
            Some(ConstValue::String(value)) => (LiteralText::String(value.to_owned()), Sign::Plus),
            Some(_) => return None,
        };
        let is_word = matches!(value, LiteralText::Null | LiteralText::Boolean(_));
        match &self.places {
            Some(places) if !is_word => self.dropped(places, constant.location),
            _ if is_word || self.is_plain(constant.location, &value) => Some(KeySource::Constant { value, sign }),
            _ => None,
        }
    }

    /// The literal at a byte of the text, or behind a minus at this byte: `-0` has no sign in the tree.
    fn dropped(&self, places: &[LiteralPlace], location: i32) -> Option<KeySource> {
        let start = usize::try_from(location).ok()?;
        let ordinal = places.partition_point(|place| place.bytes.start < start);
        let place = places.get(ordinal)?;
        let sign = match self.text.as_bytes().get(start..place.bytes.start)? {
            [] => Sign::Plus,
            [b'-', rest @ ..] if rest.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b'(') => Sign::Minus,
            _ => return None,
        };
        let is_whole = !is_continued(self.text.as_bytes(), place);
        is_whole.then_some(KeySource::Literal { ordinal, class: place.class, sign })
    }

    /// A number of digits and points: older servers read `0x1F` and `1_000` as a number and a name.
    fn is_plain(&self, location: i32, value: &LiteralText) -> bool {
        let of_number = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | 0x80..);
        match value {
            LiteralText::Integer(_) | LiteralText::Decimal(_) => {
                let rest = usize::try_from(location).ok().and_then(|at| self.text.as_bytes().get(at..)).unwrap_or_default();
                let rest = rest.strip_prefix(b"-").unwrap_or(rest).trim_ascii_start();
                let mut number = rest.iter().take_while(|byte| of_number(byte)).peekable();
                number.peek().is_some() && number.all(|byte| byte.is_ascii_digit() || *byte == b'.')
            }
            _ => true,
        }
    }
}

fn sign_if(is_minus: bool) -> Sign {
    if is_minus { Sign::Minus } else { Sign::Plus }
}

/// The name of a type without modifiers.
fn plain_type(cast: &TypeCast) -> Option<QualifiedName> {
    let kind = cast.type_name()?;
    let is_plain = kind.typmods().is_empty() && kind.array_bounds().is_empty() && !kind.setof && !kind.pct_type;
    let (schema, name) = qualified(kind.names().iter().map(Node::from));
    is_plain.then(|| QualifiedName { schema: schema.to_owned(), name: name.to_owned() })
}

/// A column by its name, without a database.
pub(crate) fn column_of(node: Node<'_>) -> Option<ColumnTerm> {
    let Node::ColumnRef(column) = node else { return None };
    let parts: Vec<&str> = column.fields().iter().map(|part| part.as_str()).collect::<Option<_>>()?;
    let of = |schema: &str, name: &str| Some(QualifiedName { schema: schema.to_owned(), name: name.to_owned() });
    let (of, name) = match parts[..] {
        [name] => (None, name),
        [relation, name] => (of("", relation), name),
        [schema, relation, name] => (of(schema, relation), name),
        _ => return None,
    };
    Some(ColumnTerm { of, name: name.to_owned() })
}

/// Pairs that are equal in every row for which the condition is true, up to `limit`.
pub(crate) fn equal_pairs(condition: Node<'_>, constants: &Constants<'_>, limit: usize) -> Vec<(EqualTerm, EqualTerm)> {
    let mut pairs = Vec::new();
    let mut stack = vec![condition];
    while let Some(node) = stack.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == BoolExprType::AND_EXPR => stack.extend(all.args().iter()),
            Node::A_Expr(expression) => add_pairs(expression, constants, &mut pairs),
            _ => {}
        }
        if pairs.len() > limit {
            pairs.truncate(limit);
            return pairs;
        }
    }
    pairs
}

/// Subqueries of `columns IN (SELECT ...)` that are true of every row for which the condition is, each with the columns.
pub(crate) fn member_queries<'a>(condition: Node<'a>) -> Vec<(&'a SelectStmt, Vec<Option<ColumnTerm>>)> {
    let mut found = Vec::new();
    let mut stack = vec![condition];
    while let Some(node) = stack.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == BoolExprType::AND_EXPR => stack.extend(all.args().iter()),
            Node::SubLink(link) => found.extend(member_query(link)),
            _ => {}
        }
    }
    found
}

fn member_query(link: &SubLink) -> Option<(&SelectStmt, Vec<Option<ColumnTerm>>)> {
    let is_equality = matches!(qualified(link.oper_name().iter()), ("", "") | ("" | "pg_catalog", "="));
    let Node::SelectStmt(select) = link.subselect() else { return None };
    let columns = match link.testexpr() {
        Node::RowExpr(row) => row.args().iter().map(column_of).collect(),
        other => vec![column_of(other)],
    };
    (link.sub_link_type == SubLinkType::ANY_SUBLINK && is_equality).then_some((select, columns))
}

fn add_pairs(expression: &A_Expr, constants: &Constants<'_>, pairs: &mut Vec<(EqualTerm, EqualTerm)>) {
    if !matches!(qualified(expression.name().iter()), ("" | "pg_catalog", "=")) {
        return;
    }
    let term =
        |node: Node<'_>| column_of(node).map(EqualTerm::Column).or_else(|| constants.constant(node).map(EqualTerm::Constant));
    let mut add = |left: Node<'_>, right: Node<'_>| pairs.extend(term(left).zip(term(right)));
    let (left, right) = (expression.lexpr(), expression.rexpr());
    match (expression.kind, left, right) {
        (A_Expr_Kind::AEXPR_OP, Node::RowExpr(left), Node::RowExpr(right)) if left.args().len() == right.args().len() => {
            left.args().iter().zip(right.args().iter()).for_each(|(left, right)| add(left, right));
        }
        (A_Expr_Kind::AEXPR_OP, ..) => add(left, right),
        (A_Expr_Kind::AEXPR_IN, _, Node::NodeList(list)) if list.len() == 1 => {
            list.first().into_iter().for_each(|only| add(left, only));
        }
        (A_Expr_Kind::AEXPR_OP_ANY, _, Node::A_ArrayExpr(array)) if array.elements().len() == 1 => {
            // A string or a parameter in an array has the type of the array, not of the column.
            array.elements().first().filter(|only| has_type(*only)).into_iter().for_each(|only| add(left, only));
        }
        _ => {}
    }
}

fn has_type(node: Node<'_>) -> bool {
    match node {
        Node::TypeCast(_) => true,
        Node::A_Const(constant) => matches!(constant.val(), Some(ConstValue::Integer(_))),
        _ => false,
    }
}
