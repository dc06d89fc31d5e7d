//! Makes SELECTs over the tables of the test: joins, subqueries, aggregates, windows, set operations, CTEs.

use crate::dice::Dice;

pub struct Query {
    pub text: String,
    /// True if ORDER BY leaves nothing open but the order of equal rows.
    pub is_ordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Number,
    Text,
    Date,
    Moment,
    Truth,
    List,
    Document,
}

const SORTABLE: [Kind; 6] = [Kind::Integer, Kind::Number, Kind::Text, Kind::Date, Kind::Moment, Kind::Truth];

#[derive(Clone)]
struct Column {
    name: String,
    kind: Kind,
}

/// An item of FROM and its columns.
#[derive(Clone)]
struct Item {
    alias: String,
    columns: Vec<Column>,
}

/// Tables and their columns: i integer, n numeric, t text, d date, m timestamp, b boolean, l integer[], j jsonb.
const TABLES: &[(&str, &str)] = &[
    ("orders", "i:id i:customer d:day n:amount t:note l:tags j:doc m:at b:paid"),
    ("items", "i:order_id i:position t:name i:quantity n:price"),
    ("logs", "t:key i:number m:at t:name"),
    ("countries", "i:id t:code n:area"),
];
/// Deeper queries have no subqueries in their conditions: the engine asks the shards anew for each row around.
const DEPTH_MAX: usize = 1;

pub fn query(dice: &mut Dice) -> Query {
    let mut maker = Maker { dice, ctes: Vec::new(), aliases: 0, depth: 0 };
    match maker.dice.below(20) {
        0 | 1 => maker.recursive(),
        2..=5 => maker.set_operation(),
        _ => maker.whole(),
    }
}

struct Maker<'d> {
    dice: &'d mut Dice,
    ctes: Vec<Item>,
    aliases: usize,
    depth: usize,
}

/// A SELECT without ORDER BY.
struct Body {
    text: String,
    kinds: Vec<Kind>,
}

impl Maker<'_> {
    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("a{}", self.aliases)
    }

    fn whole(&mut self) -> Query {
        let with = self.with();
        let body = self.body(&[], None);
        self.ordered(&with, body)
    }

    /// Sorted by all columns that have an order, or not at all. Only a sorted one is cut.
    fn ordered(&mut self, with: &str, body: Body) -> Query {
        let Body { mut text, kinds } = body;
        let is_ordered = self.dice.percent(60) && kinds.iter().all(|kind| *kind != Kind::Document);
        if is_ordered {
            let one = |maker: &mut Self, at: usize| {
                let direction = maker.dice.of(&["", " desc", " nulls first", " desc nulls last", " using <"]);
                format!("{}{direction}", at + 1)
            };
            let order: Vec<String> = (0..kinds.len()).map(|at| one(self, at)).collect();
            text += &format!(" order by {}", order.join(", "));
            if self.dice.percent(30) {
                text += &format!(" limit {}", self.dice.below(9));
                text += self.dice.of(&["", " offset 2", " offset 0"]);
            } else if self.dice.percent(10) {
                text += &format!(" fetch first {} rows with ties", self.dice.below(5) + 1);
            }
        }
        Query { text: format!("{with}{text}"), is_ordered }
    }

    fn with(&mut self) -> String {
        if !self.dice.percent(25) {
            return String::new();
        }
        let Body { text, kinds } = self.body(&[], None);
        let name = format!("c{}", self.alias());
        let columns: Vec<Column> =
            kinds.into_iter().enumerate().map(|(at, kind)| Column { name: format!("x{at}"), kind }).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let how = self.dice.of(&["", "materialized ", "not materialized "]);
        let with = format!("with {name} ({}) as {how}({text}) ", names.join(", "));
        self.ctes.push(Item { alias: name, columns });
        with
    }

    fn set_operation(&mut self) -> Query {
        let with = self.with();
        let first = self.body(&[], None);
        let mut text = first.text;
        for _ in 0..1 + self.dice.below(2) {
            let other = self.body(&[], Some(&first.kinds));
            let operation = self.dice.of(&["union", "union all", "intersect", "except", "intersect all", "except all"]);
            text = format!("({text}) {operation} ({})", other.text);
        }
        self.ordered(&with, Body { text, kinds: first.kinds })
    }

    fn recursive(&mut self) -> Query {
        let start = self.dice.below(6);
        let steps = 2 + self.dice.below(4);
        let (table, column, next) = self.dice.of(&[
            ("orders", "customer", "o.id"),
            ("items", "order_id", "o.quantity"),
            ("items", "quantity", "o.order_id"),
            ("orders", "id", "o.customer"),
        ]);
        let union = self.dice.of(&["union", "union all"]);
        let text = format!(
            "with recursive r (n, depth) as (select id, 0 from orders where id % 7 = {start} {union} \
             select {next}, r.depth + 1 from r join {table} o on o.{column} = r.n where r.depth < {steps}) \
             select n, depth, count(*) from r group by n, depth"
        );
        self.ordered("", Body { text, kinds: vec![Kind::Integer; 3] })
    }

    /// `around`: items that a subquery sees. `kinds`: what its columns must be.
    fn body(&mut self, around: &[Item], kinds: Option<&[Kind]>) -> Body {
        self.depth += 1;
        let (from, items) = self.from(around);
        let mut scope: Vec<Item> = around.to_vec();
        scope.extend(items.iter().cloned());
        let filter = if self.dice.percent(50) { format!(" where {}", self.truth(&scope)) } else { String::new() };
        let kinds: Vec<Kind> =
            kinds.map_or_else(|| (0..1 + self.dice.below(3)).map(|_| self.any_kind()).collect(), <[Kind]>::to_vec);
        let is_plain = self.depth > DEPTH_MAX + 1 || kinds.contains(&Kind::Document);
        let text = match self.dice.below(10) {
            0..=3 if !is_plain => self.grouped(&items, &kinds, &from, &filter),
            4 | 5 if !is_plain => self.with_windows(&items, &kinds, &from, &filter),
            _ => {
                let columns: Vec<String> = kinds.iter().map(|kind| self.expression(*kind, &scope)).collect();
                let distinct = if self.dice.percent(20) { "distinct " } else { "" };
                format!("select {distinct}{} from {from}{filter}", columns.join(", "))
            }
        };
        self.depth -= 1;
        Body { text, kinds }
    }

    fn any_kind(&mut self) -> Kind {
        match self.dice.below(16) {
            0..=4 => Kind::Integer,
            5..=7 => Kind::Number,
            8..=10 => Kind::Text,
            11 => Kind::Date,
            12 => Kind::Moment,
            13 => Kind::Truth,
            14 => Kind::List,
            _ => Kind::Document,
        }
    }

    fn from(&mut self, around: &[Item]) -> (String, Vec<Item>) {
        let (mut text, first) = self.item(around);
        let mut items = vec![first];
        for _ in 0..self.dice.of(&[0, 0, 1, 1, 1, 2]) {
            let is_lateral = self.depth <= DEPTH_MAX && self.dice.percent(15);
            let mut seen = around.to_vec();
            seen.extend(items.iter().cloned());
            let (other, item) = if is_lateral { self.derived("lateral ", &seen) } else { self.item(around) };
            let join = if is_lateral {
                self.dice.of(&["join", "left join"])
            } else {
                self.dice.of(&["join", "join", "left join", "right join", "full join"])
            };
            let condition = self.join_condition(&items, &item, join == "full join");
            text = format!("{text} {join} {other} on {condition}");
            items.push(item);
        }
        (text, items)
    }

    fn item(&mut self, around: &[Item]) -> (String, Item) {
        match self.dice.below(12) {
            0 | 1 if self.depth <= DEPTH_MAX => self.derived("", around),
            2 | 3 if !self.ctes.is_empty() => {
                let at = self.dice.below(self.ctes.len());
                let Item { alias: name, columns } = self.ctes[at].clone();
                let alias = self.alias();
                (format!("{name} {alias}"), Item { alias, columns })
            }
            4 => {
                let alias = self.alias();
                let columns = vec![Column { name: "n".into(), kind: Kind::Integer }];
                (format!("generate_series(0, {}) {alias} (n)", self.dice.below(6)), Item { alias, columns })
            }
            5 => {
                let alias = self.alias();
                let columns =
                    vec![Column { name: "n".into(), kind: Kind::Integer }, Column { name: "w".into(), kind: Kind::Text }];
                (format!("(values (1, 'a'), (2, null), (3, 'Ab')) {alias} (n, w)"), Item { alias, columns })
            }
            _ => {
                // A statement about the reference table alone is not the engine's.
                let tables = if self.dice.percent(50) { &TABLES[..TABLES.len() - 1] } else { TABLES };
                let (name, columns) = self.dice.of(tables);
                let alias = self.alias();
                (format!("{name} {alias}"), Item { alias, columns: columns.split(' ').map(column).collect() })
            }
        }
    }

    fn derived(&mut self, lateral: &str, seen: &[Item]) -> (String, Item) {
        let around = if lateral.is_empty() { &[][..] } else { seen };
        let body = self.body(around, None);
        let alias = self.alias();
        let columns: Vec<Column> =
            body.kinds.iter().enumerate().map(|(at, kind)| Column { name: format!("x{at}"), kind: *kind }).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        (format!("{lateral}({}) {alias} ({})", body.text, names.join(", ")), Item { alias, columns })
    }

    /// A full join needs an equality of both sides alone.
    fn join_condition(&mut self, items: &[Item], item: &Item, is_full: bool) -> String {
        let own = std::slice::from_ref(item);
        let equality = |maker: &mut Self| {
            let kind = if maker.dice.percent(80) { Kind::Integer } else { Kind::Text };
            let left = maker.column(kind, items)?;
            Some(format!("{left} = {}", maker.column(kind, own)?))
        };
        let found = equality(self).or_else(|| equality(self));
        match found {
            Some(equality) if is_full || self.dice.percent(75) => equality,
            Some(equality) => {
                let mut scope = items.to_vec();
                scope.push(item.clone());
                format!("{equality} and {}", self.comparison(&scope))
            }
            None if is_full => "false".into(),
            None => self.dice.of(&["true", "1 = 1"]).into(),
        }
    }

    fn column(&mut self, kind: Kind, scope: &[Item]) -> Option<String> {
        let fit: Vec<String> = scope
            .iter()
            .flat_map(|item| item.columns.iter().map(move |column| (item, column)))
            .filter(|(_, column)| column.kind == kind)
            .map(|(item, column)| format!("{}.{}", item.alias, column.name))
            .collect();
        (!fit.is_empty()).then(|| fit[self.dice.below(fit.len())].clone())
    }

    fn constant(&mut self, kind: Kind) -> String {
        let number = self.dice.below(12);
        match kind {
            Kind::Integer => format!("{number}"),
            Kind::Number => format!("{number}.{}", self.dice.below(4) * 25),
            Kind::Text => self.dice.of(&["'a'", "'B'", "''", "'Ab'", "'_x'", "'é'", "'a b'"]).into(),
            Kind::Date => format!("date '2024-02-{:02}'", number + 1),
            Kind::Moment => format!("timestamp '2024-02-{:02} 03:04:05'", number + 1),
            Kind::Truth => self.dice.of(&["true", "false"]).into(),
            Kind::List => format!("array[{number}, 2]"),
            Kind::Document => format!("'{{\"n\": {number}}}'::jsonb"),
        }
    }

    /// A column, or a constant where there is none.
    fn leaf(&mut self, kind: Kind, scope: &[Item]) -> String {
        let column = if self.dice.percent(85) { self.column(kind, scope) } else { None };
        column.unwrap_or_else(|| self.constant(kind))
    }

    fn expression(&mut self, kind: Kind, scope: &[Item]) -> String {
        if self.dice.percent(45) {
            return self.leaf(kind, scope);
        }
        if self.depth <= DEPTH_MAX && self.dice.percent(8) && kind != Kind::Document {
            return self.scalar(kind, scope);
        }
        if self.dice.percent(12) {
            let (condition, one, other) = (self.comparison(scope), self.leaf(kind, scope), self.leaf(kind, scope));
            return match self.dice.below(3) {
                0 => format!("case when {condition} then {one} else {other} end"),
                1 => format!("coalesce({one}, {other})"),
                _ => format!("nullif({one}, {other})"),
            };
        }
        let choice = self.dice.below(6);
        let (a, b) = (self.leaf(kind, scope), self.leaf(kind, scope));
        let number = self.leaf(Kind::Integer, scope);
        let words = self.leaf(Kind::Text, scope);
        let day = self.leaf(Kind::Date, scope);
        let moment = self.leaf(Kind::Moment, scope);
        let list = self.leaf(Kind::List, scope);
        let document = self.leaf(Kind::Document, scope);
        match (kind, choice) {
            (Kind::Integer, 0) => format!("{a} + {b}"),
            (Kind::Integer, 1) => format!("length({words})"),
            (Kind::Integer, 2) => format!("extract(day from {day})::int"),
            (Kind::Integer, 3) => format!("cardinality({list})"),
            (Kind::Integer, 4) => format!("({document} ->> 'n')::int"),
            (Kind::Integer, _) => format!("abs({a} - {b}) % 5"),
            (Kind::Number, 0 | 1) => format!("round({a} * {b}, 1)"),
            (Kind::Number, 2) => format!("{a} + {number}"),
            (Kind::Number, 3) => format!("{a} / 4"),
            (Kind::Number, 4) => format!("{number}::numeric"),
            (Kind::Number, _) => format!("greatest({a}, {b})"),
            (Kind::Text, 0) => format!("{a} || {b}"),
            (Kind::Text, 1) => format!("upper({a})"),
            (Kind::Text, 2) => format!("concat({a}, {number}, {day})"),
            (Kind::Text, 3) => format!("to_char({day}, 'Day YYYY-MM')"),
            (Kind::Text, 4) => format!("{document} ->> 'word'"),
            (Kind::Text, _) => format!("substr({a}, 1, 2) collate \"C\""),
            (Kind::Date, 0 | 1) => format!("{a} + {number}::int"),
            (Kind::Date, _) => format!("{moment}::date"),
            (Kind::Moment, 0 | 1) => format!("date_trunc('month', {a})"),
            (Kind::Moment, _) => format!("{a} + interval '36 hours'"),
            (Kind::Truth, _) => self.comparison(scope),
            (Kind::List, 0 | 1) => format!("{a} || {number}::int"),
            (Kind::List, _) => format!("array_remove({a}, {number}::int)"),
            (Kind::Document, 0) => format!("{a} || {b}"),
            (Kind::Document, 1) => format!("to_jsonb({list})"),
            (Kind::Document, _) => format!("jsonb_build_object('n', {number}, 'day', {day}, 'at', {moment})"),
        }
    }

    /// A subquery of one row, which may see the rows around.
    fn scalar(&mut self, kind: Kind, scope: &[Item]) -> String {
        self.depth += 1;
        let (from, items) = self.from(scope);
        let mut seen = scope.to_vec();
        seen.extend(items.iter().cloned());
        let condition = self.comparison(&seen);
        let value = self.aggregate(kind, &items);
        self.depth -= 1;
        format!("(select {value} from {from} where {condition})")
    }

    /// A condition, perhaps with subqueries.
    fn truth(&mut self, scope: &[Item]) -> String {
        match self.dice.below(10) {
            0 => format!("{} and {}", self.comparison(scope), self.comparison(scope)),
            1 => format!("({} or {})", self.comparison(scope), self.comparison(scope)),
            2 => format!("not ({})", self.comparison(scope)),
            3 | 4 if self.depth <= DEPTH_MAX => {
                let not = self.dice.of(&["", "not "]);
                let text = format!("{not}exists ({})", self.body(scope, None).text);
                self.or_comparison(text, scope)
            }
            5 | 6 if self.depth <= DEPTH_MAX => {
                let kind = self.dice.of(&[Kind::Integer, Kind::Text, Kind::Date]);
                let (left, body) = (self.leaf(kind, scope), self.body(scope, Some(&[kind])));
                let how = self.dice.of(&["in", "not in", "> all", "= any", "<> all"]);
                self.or_comparison(format!("{left} {how} ({})", body.text), scope)
            }
            _ => self.comparison(scope),
        }
    }

    /// With an OR it may be a condition of a join, though the subquery sees nothing around it.
    fn or_comparison(&mut self, condition: String, scope: &[Item]) -> String {
        if self.dice.percent(70) { format!("({condition} or {})", self.comparison(scope)) } else { condition }
    }

    /// Mostly about a column of the query's last item: a condition without a column of its own query is refused in a join.
    fn comparison(&mut self, scope: &[Item]) -> String {
        let last = &scope[scope.len().saturating_sub(1)..];
        let any = self.dice.of(&SORTABLE);
        let fit: Vec<Kind> = last.iter().flat_map(|item| &item.columns).map(|column| column.kind).collect();
        let fit: Vec<Kind> = fit.into_iter().filter(|kind| SORTABLE.contains(kind)).collect();
        let is_own = !fit.is_empty() && self.dice.percent(97);
        let kind = if is_own { self.dice.of(&fit) } else { any };
        let own = if is_own { self.column(kind, last) } else { None };
        let (a, b) = (own.unwrap_or_else(|| self.leaf(kind, scope)), self.leaf(kind, scope));
        let choice = self.dice.below(12);
        let has = |kind| last.iter().any(|item| item.columns.iter().any(|column| column.kind == kind));
        let is_fit = match choice {
            3 => has(Kind::Text),
            4 => has(Kind::List),
            5 => has(Kind::Document),
            _ => true,
        };
        let scope = if matches!(choice, 3..=5) && is_fit { last } else { scope };
        match if is_fit { choice } else { 0 } {
            0 => format!("{a} is null"),
            1 => format!("{a} between {b} and {}", self.leaf(kind, scope)),
            2 => format!("{a} is distinct from {b}"),
            3 => {
                let (text, pattern) = (self.leaf(Kind::Text, scope), self.dice.of(&["'%a%'", "'_b'", "'A%'"]));
                format!("{text} {} {pattern}", self.dice.of(&["like", "ilike", "not like"]))
            }
            4 => format!("{} @> array[{}::int]", self.leaf(Kind::List, scope), self.leaf(Kind::Integer, scope)),
            5 => format!("{} @> '{{\"n\": 3}}'", self.leaf(Kind::Document, scope)),
            6 => format!("{a} in ({b}, {})", self.constant(kind)),
            7 => format!("({a}, {}) < ({b}, {})", self.leaf(Kind::Integer, scope), self.leaf(Kind::Integer, scope)),
            8 => format!("{a} = any (array[{b}, {}])", self.constant(kind)),
            _ => format!("{a} {} {b}", self.dice.of(&["=", "<>", "<", ">", "<=", ">="])),
        }
    }

    /// An aggregate whose answer does not depend on the order of rows.
    fn aggregate(&mut self, kind: Kind, scope: &[Item]) -> String {
        let (number, amount, words) =
            (self.leaf(Kind::Integer, scope), self.leaf(Kind::Number, scope), self.leaf(Kind::Text, scope));
        let distinct = self.dice.of(&["", "", "distinct "]);
        let choice = self.dice.below(6);
        let text = match (kind, choice) {
            (Kind::Integer, 0) => "count(*)".into(),
            (Kind::Integer, 1) => format!("count({distinct}{words})"),
            (Kind::Integer, 2) => format!("sum({distinct}{number})"),
            (Kind::Integer, 3) => return format!("rank(3) within group (order by {number})"),
            (Kind::Integer, 4) => return format!("mode() within group (order by {number})"),
            (Kind::Integer, _) => format!("max({number})"),
            (Kind::Number, 0) => format!("avg({distinct}{amount})"),
            (Kind::Number, 1) => format!("stddev({amount})"),
            (Kind::Number, 2) => format!("var_pop({number})"),
            (Kind::Number, 3) => return format!("(percentile_cont(0.25) within group (order by {number}))::numeric"),
            (Kind::Number, 4) => return format!("percentile_disc(0.5) within group (order by {amount})"),
            (Kind::Number, _) => format!("sum({amount})"),
            (Kind::Text, 0 | 1) => format!("string_agg({words}, ',' order by {words})"),
            (Kind::Text, 2) => format!("string_agg({distinct}{words}, '-' order by {words})"),
            (Kind::Text, _) => format!("min({words})"),
            (Kind::Truth, _) => format!("bool_or({})", self.comparison(scope)),
            (Kind::List, _) => format!("array_agg({distinct}{number}::int order by {number}::int)"),
            (Kind::Document, _) => format!("jsonb_agg({number} order by {number})"),
            (Kind::Date | Kind::Moment, _) => format!("{}({})", self.dice.of(&["min", "max"]), self.leaf(kind, scope)),
        };
        if self.dice.percent(15) { format!("{text} filter (where {})", self.comparison(scope)) } else { text }
    }

    /// An aggregate of names around alone would be one of the query around: the scope is that of the query.
    fn grouped(&mut self, scope: &[Item], kinds: &[Kind], from: &str, filter: &str) -> String {
        let (mut groups, mut columns) = (Vec::new(), Vec::new());
        for kind in kinds {
            let group = if *kind != Kind::Document && self.dice.percent(45) { self.column(*kind, scope) } else { None };
            groups.extend(group.clone());
            columns.push(group.unwrap_or_else(|| self.aggregate(*kind, scope)));
        }
        let by = match (groups.len(), self.dice.below(5)) {
            (0, _) => String::new(),
            (_, 0) => format!(" group by rollup ({})", groups.join(", ")),
            (_, 1) => format!(" group by cube ({})", groups.join(", ")),
            (_, 2) => format!(" group by grouping sets (({}), ())", groups.join(", ")),
            _ => format!(" group by {}", groups.join(", ")),
        };
        let having = if self.dice.percent(25) { format!(" having count(*) > {}", self.dice.below(4)) } else { String::new() };
        format!("select {} from {from}{filter}{by}{having}", columns.join(", "))
    }

    /// Windows whose functions do not depend on the order of equal rows.
    fn with_windows(&mut self, scope: &[Item], kinds: &[Kind], from: &str, filter: &str) -> String {
        let columns: Vec<String> = kinds
            .iter()
            .map(|kind| {
                let sort = self.dice.of(&SORTABLE);
                let order = self.leaf(sort, scope);
                let part = self.leaf(Kind::Integer, scope);
                let window = match self.dice.below(3) {
                    0 => format!("(partition by {part} order by {order})"),
                    1 => format!("(order by {order} desc nulls last)"),
                    _ => format!("(partition by {part})"),
                };
                let value = self.leaf(*kind, scope);
                match (kind, self.dice.below(3)) {
                    (Kind::Integer, 0) => format!("rank() over (order by {order})"),
                    (Kind::Integer, 1) => format!("count(*) over {window}"),
                    (Kind::Integer, _) => format!("dense_rank() over (partition by {part} order by {order})"),
                    (Kind::Number, 0) => format!("avg({value}) over {window}"),
                    (Kind::Number, _) => format!("sum({value}) over {window}"),
                    (Kind::Text | Kind::Date | Kind::Moment, _) => format!("max({value}) over {window}"),
                    (Kind::Truth | Kind::List | Kind::Document, _) => value,
                }
            })
            .collect();
        format!("select {} from {from}{filter}", columns.join(", "))
    }
}

fn column(text: &str) -> Column {
    let (letter, name) = text.split_once(':').expect("a letter and a name");
    let kind = match letter {
        "i" => Kind::Integer,
        "n" => Kind::Number,
        "t" => Kind::Text,
        "d" => Kind::Date,
        "m" => Kind::Moment,
        "b" => Kind::Truth,
        "l" => Kind::List,
        _ => Kind::Document,
    };
    Column { name: name.to_owned(), kind }
}
