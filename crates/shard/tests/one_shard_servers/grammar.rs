//! Makes statements that often fix their keys, and often do so in a way that does not count.

use crate::dice::Dice;

pub struct Statement {
    pub text: String,
    pub parameters: Vec<Option<String>>,
    pub writes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnType {
    Integer,
    Text,
}

/// A name in FROM and its columns.
#[derive(Clone)]
struct Visible {
    alias: String,
    columns: Vec<(String, ColumnType)>,
    key: Option<String>,
}

/// Tables, columns (those with a star are texts) and key; `ref` and `h` have none.
const RELATIONS: &[(&str, &str, Option<&str>)] = &[
    ("t", "id x name*", Some("id")),
    ("u", "id t_id y", Some("id")),
    ("w", "v k", Some("k")),
    ("s", "k* v", Some("k")),
    ("n", "id x", Some("id")),
    ("ref", "id a", None),
    ("h", "id b", None),
];
const DEPTH_MAX: usize = 3;

/// Levels of names, the innermost last.
type Levels = Vec<Vec<Visible>>;

struct Maker<'d> {
    dice: &'d mut Dice,
    /// The number that most constants are.
    focus: usize,
    uses_parameters: bool,
    parameters: Vec<Option<String>>,
    ctes: Vec<Visible>,
    aliases: usize,
}

pub fn statement(dice: &mut Dice) -> Statement {
    let focus = dice.below(8);
    let uses_parameters = dice.percent(30);
    let mut maker = Maker { dice, focus, uses_parameters, parameters: Vec::new(), ctes: Vec::new(), aliases: 0 };
    if maker.dice.percent(60) {
        let text = maker.small();
        return Statement { text, parameters: maker.parameters, writes: false };
    }
    let with = maker.with();
    let (body, writes) = match maker.dice.below(100) {
        0..60 => (maker.select(&Levels::new(), 0).0, false),
        60..70 => (maker.set_operation(&Levels::new(), 0), false),
        70..80 => (maker.update(), true),
        80..90 => (maker.delete(), true),
        _ => (maker.insert(), true),
    };
    let writes = writes || with.contains("returning");
    Statement { text: format!("{with}{body}"), parameters: maker.parameters, writes }
}

fn columns_of(names: &str) -> Vec<(String, ColumnType)> {
    let column = |name: &str| match name.strip_suffix('*') {
        Some(name) => (name.to_owned(), ColumnType::Text),
        None => (name.to_owned(), ColumnType::Integer),
    };
    names.split(' ').map(column).collect()
}

impl Maker<'_> {
    fn alias(&mut self) -> String {
        self.aliases += 1;
        // Names of outer queries are hidden at times.
        if self.dice.percent(15) { self.dice.of(&["t", "u", "w", "a1"]).to_owned() } else { format!("a{}", self.aliases) }
    }

    fn with(&mut self) -> String {
        let mut parts = Vec::new();
        while self.dice.percent(15) && parts.len() < 3 {
            let name = if self.dice.percent(20) { "t".to_owned() } else { format!("c{}", parts.len()) };
            let (query, columns) = if self.dice.percent(20) {
                let (text, columns) = self.delete_of("t");
                (text, columns)
            } else {
                self.select(&Levels::new(), 1)
            };
            parts.push(format!("{name} as {}({query})", self.dice.of(&["", "materialized ", "not materialized "])));
            self.ctes.push(Visible { alias: name, key: key_of(&columns), columns });
        }
        if parts.is_empty() { String::new() } else { format!("with {} ", parts.join(", ")) }
    }

    /// A query and its columns.
    fn select(&mut self, outer: &Levels, depth: usize) -> (String, Vec<(String, ColumnType)>) {
        let (from, visible) = self.from(outer, depth);
        let mut levels = outer.clone();
        levels.push(visible);
        let condition = self.conditions(&levels, depth, 85);
        let mut columns = Vec::new();
        let mut targets = Vec::new();
        for at in 0..1 + self.dice.below(3) {
            let (column, kind) = self.column(&levels);
            let name = if self.dice.percent(50) { "id".to_owned() } else { format!("o{at}") };
            if columns.iter().any(|(known, _)| *known == name) {
                continue;
            }
            targets.push(format!("{column} as {name}"));
            columns.push((name, kind));
        }
        if depth > 0 && self.dice.percent(10) && levels.last().is_some_and(|level| level.len() == 1) {
            let only = &levels[levels.len() - 1][0];
            (targets, columns) = (vec!["*".to_owned()], only.columns.clone());
        }
        if depth == 0 && self.dice.percent(20) && depth < DEPTH_MAX {
            let subquery = self.scalar(&levels, depth + 1);
            targets.push(format!("({subquery}) as sub"));
            columns.push(("sub".to_owned(), ColumnType::Integer));
        }
        let targets = targets.join(", ");
        let text = format!("select {targets} from {from}{condition}");
        let ordinals: Vec<String> = (1..=columns.len()).map(|at| at.to_string()).collect();
        let ordinals = ordinals.join(", ");
        let text = match self.dice.below(12) {
            0 if targets != "*" => format!("{text} order by {ordinals} limit {}", 1 + self.dice.below(3)),
            1 => text.replacen("select", "select distinct", 1),
            2 if targets != "*" && !targets.contains("as sub") => format!("{text} group by {ordinals}"),
            3 if targets != "*" && !targets.contains("as sub") => format!("{text} group by rollup ({ordinals})"),
            _ => text,
        };
        (text, columns)
    }

    /// A query of one number.
    fn scalar(&mut self, outer: &Levels, depth: usize) -> String {
        let (from, visible) = self.from(outer, depth);
        let mut levels = outer.clone();
        levels.push(visible);
        let condition = self.conditions(&levels, depth, 85);
        let column = self.integer(&levels);
        format!("select {}({column}) from {from}{condition}", self.dice.of(&["max", "count", "min"]))
    }

    fn set_operation(&mut self, outer: &Levels, depth: usize) -> String {
        let (one, other) = (self.scalar(outer, depth), self.scalar(outer, depth));
        let (third, _) = self.numbers(outer, depth);
        let operation = self.dice.of(&["union", "union all", "except", "intersect"]);
        format!("{one} {operation} ({other} union all {third})")
    }

    /// A query of one column of numbers.
    fn numbers(&mut self, outer: &Levels, depth: usize) -> (String, ColumnType) {
        let (from, visible) = self.from(outer, depth);
        let mut levels = outer.clone();
        levels.push(visible);
        let condition = self.conditions(&levels, depth, 85);
        (format!("select {} from {from}{condition}", self.integer(&levels)), ColumnType::Integer)
    }

    fn from(&mut self, outer: &Levels, depth: usize) -> (String, Vec<Visible>) {
        let (mut text, first) = self.item(outer, &[], depth);
        let mut visible = vec![first];
        while visible.len() < 4 && self.dice.percent(35) {
            let (item, right) = self.item(outer, &visible, depth);
            if self.dice.percent(20) {
                text = format!("{text}, {item}");
                visible.push(right);
                continue;
            }
            let join = self.dice.of(&["join", "join", "left join", "left join", "right join", "full join"]);
            // Items before a comma are not seen in a condition: then the server says so, to both.
            let has_id = |of: &Visible| of.columns.iter().any(|(name, kind)| name == "id" && *kind == ColumnType::Integer);
            let condition = if has_id(&right) && visible.iter().filter(|of| has_id(of)).count() == 1 && self.dice.percent(30) {
                " using (id)".to_owned()
            } else {
                let mut levels = outer.clone();
                levels.push([&visible[..], std::slice::from_ref(&right)].concat());
                format!(" on {}", self.conjunction(&levels, depth, &right))
            };
            text = format!("{text} {join} {item}{condition}");
            visible.push(right);
        }
        (text, visible)
    }

    /// One item of FROM. `before`: those to its left.
    fn item(&mut self, outer: &Levels, before: &[Visible], depth: usize) -> (String, Visible) {
        let choice = self.dice.below(100);
        if choice < 12 && depth < DEPTH_MAX {
            let is_lateral = self.dice.percent(50);
            let mut levels = outer.clone();
            if is_lateral {
                levels.push(before.to_vec());
            }
            let (query, columns) = self.select(&levels, depth + 1);
            let alias = self.alias();
            let text = format!("{}({query}) as {alias}", if is_lateral { "lateral " } else { "" });
            return (text, Visible { alias, key: key_of(&columns), columns });
        }
        if choice < 30 && !self.ctes.is_empty() {
            let at = self.dice.below(self.ctes.len());
            let cte = self.ctes[at].clone();
            let alias = self.alias();
            return (format!("{} as {alias}", cte.alias), Visible { alias, ..cte });
        }
        let most = if self.dice.percent(5) { RELATIONS.len() } else { RELATIONS.len() - 1 };
        let (name, columns, key) = RELATIONS[self.dice.below(most)];
        let mut of = Visible { alias: name.to_owned(), columns: columns_of(columns), key: key.map(str::to_owned) };
        if self.dice.percent(8) {
            let alias = self.alias();
            // New names, among them that of another column.
            of.columns[0].0 = "x".to_owned();
            of.key = key.map(|key| if columns.starts_with(key) { "x".to_owned() } else { key.to_owned() });
            of.alias.clone_from(&alias);
            return (format!("{name} as {alias} (x)"), of);
        }
        if self.dice.percent(75) {
            of.alias = self.alias();
            return (format!("{name} as {}", of.alias), of);
        }
        (name.to_owned(), of)
    }

    fn conditions(&mut self, levels: &Levels, depth: usize, percent: usize) -> String {
        if !self.dice.percent(percent) {
            return String::new();
        }
        let last = levels.last().cloned().unwrap_or_default();
        let mut parts: Vec<String> = Vec::new();
        for of in &last {
            if self.dice.percent(80) {
                parts.push(self.about_key(levels, of));
            }
        }
        while parts.is_empty() || self.dice.percent(30) {
            parts.push(self.condition(levels, depth));
        }
        format!(" where {}", parts.join(" and "))
    }

    fn conjunction(&mut self, levels: &Levels, depth: usize, right: &Visible) -> String {
        let mut parts = vec![self.about_key(levels, right)];
        while self.dice.percent(30) {
            parts.push(self.condition(levels, depth));
        }
        parts.join(" and ")
    }

    /// A condition that may fix the key of an item, or make it equal to another one.
    fn about_key(&mut self, levels: &Levels, of: &Visible) -> String {
        let Some(key) = of.key.clone() else { return self.condition(levels, DEPTH_MAX) };
        let kind = of.columns.iter().find(|(name, _)| *name == key).map_or(ColumnType::Integer, |(_, kind)| *kind);
        let column = if self.dice.percent(15) { key } else { format!("{}.{key}", of.alias) };
        if self.dice.percent(35) {
            let other = self.key(levels, kind);
            return format!("{column} = {other}");
        }
        let constant = self.constant(kind);
        match self.dice.below(12) {
            0 => format!("{constant} = {column}"),
            1 => format!("{column} in ({constant})"),
            2 => format!("({column}, 1) = ({constant}, 1)"),
            _ => format!("{column} = {constant}"),
        }
    }

    fn condition(&mut self, levels: &Levels, depth: usize) -> String {
        match self.dice.below(if depth < DEPTH_MAX { 14 } else { 9 }) {
            0 => format!("({} or {})", self.comparison(levels), self.comparison(levels)),
            1 => format!("not ({})", self.comparison(levels)),
            2 => format!("{} is {}null", self.integer(levels), self.dice.of(&["", "not "])),
            3 => format!("{} between 0 and {}", self.integer(levels), self.focus),
            4 => format!("{} > {}", self.integer(levels), self.dice.below(3)),
            5 => format!("coalesce({}, true)", self.comparison(levels)),
            6..9 => self.comparison(levels),
            9 | 10 => {
                let (query, _) = self.select(levels, depth + 1);
                format!("{}exists ({query})", self.dice.of(&["", "not "]))
            }
            11 => {
                let (query, _) = self.numbers(levels, depth + 1);
                format!("{} {}in ({query})", self.integer(levels), self.dice.of(&["", "not "]))
            }
            _ => {
                let query = self.scalar(levels, depth + 1);
                format!("{} = ({query})", self.integer(levels))
            }
        }
    }

    fn comparison(&mut self, levels: &Levels) -> String {
        let (column, kind) = self.column(levels);
        let other = if self.dice.percent(50) { self.constant(kind) } else { self.key(levels, kind) };
        format!("{column} = {other}")
    }

    /// A column, mostly a key, of this type.
    fn key(&mut self, levels: &Levels, kind: ColumnType) -> String {
        for _ in 0..20 {
            let (column, found) = self.column(levels);
            if found == kind {
                return column;
            }
        }
        self.constant(kind)
    }

    fn integer(&mut self, levels: &Levels) -> String {
        self.key(levels, ColumnType::Integer)
    }

    fn column(&mut self, levels: &Levels) -> (String, ColumnType) {
        let levels: Vec<&Vec<Visible>> = levels.iter().filter(|level| !level.is_empty()).collect();
        let level = match levels.len() {
            0 => return ("1".to_owned(), ColumnType::Integer),
            count if count > 1 && self.dice.percent(35) => levels[self.dice.below(count)],
            count => levels[count - 1],
        };
        let of = &level[self.dice.below(level.len())];
        let (name, kind) = match of.columns.iter().find(|(name, _)| of.key.as_ref() == Some(name)) {
            Some(key) if self.dice.percent(55) => key.clone(),
            _ => of.columns[self.dice.below(of.columns.len())].clone(),
        };
        if self.dice.percent(12) { (name, kind) } else { (format!("{}.{name}", of.alias), kind) }
    }

    fn constant(&mut self, kind: ColumnType) -> String {
        let number = if self.dice.percent(92) { self.focus } else { self.dice.below(10) };
        let letter = char::from(b'a' + number as u8);
        if self.uses_parameters && self.dice.percent(50) {
            let value = if kind == ColumnType::Integer { number.to_string() } else { letter.to_string() };
            let at = self.parameters.iter().position(|known| known.as_ref() == Some(&value) && self.dice.percent(30));
            let at = at.unwrap_or_else(|| {
                self.parameters.push(if self.dice.percent(4) { None } else { Some(value) });
                self.parameters.len() - 1
            });
            return format!("${}", at + 1);
        }
        match (kind, self.dice.below(14)) {
            (ColumnType::Text, 0) => "null".to_owned(),
            (ColumnType::Text, 1) => format!("'{letter}'::text"),
            (ColumnType::Text, _) => format!("'{letter}'"),
            (ColumnType::Integer, 0) => "null".to_owned(),
            (ColumnType::Integer, 1) => format!("'{number}'"),
            (ColumnType::Integer, 2) => format!("{number}::int8"),
            (ColumnType::Integer, 3) => format!("'{number}'::int"),
            (ColumnType::Integer, 4) => format!("-{number}"),
            (ColumnType::Integer, 5) => format!("{number}.0"),
            (ColumnType::Integer, _) => number.to_string(),
        }
    }

    /// A sharded table of numbers with its key and another column.
    fn table(&mut self) -> (&'static str, &'static str, &'static str) {
        self.dice.of(&[("t", "id", "x"), ("u", "id", "y"), ("w", "k", "v"), ("n", "id", "x")])
    }

    fn perhaps(&mut self, percent: usize, text: String) -> String {
        if self.dice.percent(percent) { text } else { String::new() }
    }

    /// A statement of few parts, in which a single one decides.
    fn small(&mut self) -> String {
        let (one, k1, x1) = self.table();
        let (two, k2, x2) = self.table();
        let focus = self.constant(ColumnType::Integer);
        match self.dice.below(6) {
            0 | 1 => self.outer_join((one, k1, x1), (two, k2, x2)),
            2 => {
                let inner = self.perhaps(30, format!(" where {k1} = {focus}"));
                let end = self.dice.of(&["", " order by 2, 1 limit 1", " order by 2, 1 offset 1", " group by 1, 2"]);
                let distinct = self.dice.of(&["", "", "distinct ", "distinct on (x) "]);
                let end = if distinct.ends_with("(x) ") { " order by 2, 1" } else { end };
                let query = format!("select {distinct}{k1} as id, {x1} as x from {one}{inner}{end}");
                let join = self.perhaps(50, format!(" join {two} b on b.{k2} = d.id"));
                let outside = self.perhaps(70, format!(" where d.id = {focus}"));
                format!("select * from ({query}) d{join}{outside}")
            }
            3 => {
                let inner = self.perhaps(60, format!(" where {k1} = {focus}"));
                let of = self.dice.of(&["c1", "c2"]);
                let outside = self.perhaps(50, format!(" and c1.id = {focus}"));
                let query = format!("select {k1} as id, {x1} as x from {one}{inner}");
                format!("with c as ({query}) select * from c c1, c c2, {two} b where b.{k2} = {of}.id{outside}")
            }
            4 => {
                let reference = self.dice.of(&["", ", ref r", ", ref"]);
                let column = self.dice.of(&["id", "a.id", "b.id", k2, "r.id", "ref.id"]);
                let also = self.perhaps(30, format!(" and b.{k2} = {focus}"));
                let mode = self.dice.of(&["exists", "not exists"]);
                let link = self.dice.of(&["and", "and", "or"]);
                if self.dice.percent(50) {
                    let inner = format!("select count(*) from {two} b{reference} where b.{k2} = {column}{also}");
                    return format!("select a.*, ({inner}) from {one} a where a.{k1} = {focus}");
                }
                let inner = format!("select 1 from {two} b{reference} where b.{k2} = {column}{also}");
                format!("select a.* from {one} a where a.{k1} = {focus} {link} {mode} ({inner})")
            }
            _ => {
                let aggregate = self.dice.of(&["count(*)", "max(b.{x})", "b.{x}"]).replace("{x}", x2);
                let condition = self.dice.of(&["b.{k} = a.{j}", "b.{k} = {c}", "b.{x} = 1"]);
                let condition = condition.replace("{k}", k2).replace("{j}", k1).replace("{c}", &focus).replace("{x}", x2);
                let join = self.dice.of(&["cross join lateral", "left join lateral"]);
                let on = self.dice.of(&["true", "a.{k} = {c}", "d.o = 1"]).replace("{k}", k1).replace("{c}", &focus);
                let on = if join.starts_with("left") { format!(" on {on}") } else { String::new() };
                let outside = self.perhaps(60, format!(" where a.{k1} = {focus}"));
                format!("select * from {one} a {join} (select {aggregate} as o from {two} b where {condition}) d{on}{outside}")
            }
        }
    }

    fn outer_join(&mut self, (one, k1, x1): (&str, &str, &str), (two, k2, x2): (&str, &str, &str)) -> String {
        let keys = [format!("a.{k1}"), format!("b.{k2}")];
        let join = self.dice.of(&["join", "left join", "right join", "full join"]);
        let mut on = vec![format!("{} = {}", keys[0], keys[1])];
        if self.dice.percent(20) {
            on.clear();
        }
        for key in &keys {
            if self.dice.percent(35) && (join != "full join" || !on.is_empty()) {
                let constant = self.constant(ColumnType::Integer);
                on.push(format!("{key} = {constant}"));
            }
        }
        // FULL JOIN needs a condition by which it can merge.
        let on = if on.is_empty() { format!("{} = {}", keys[0], keys[1]) } else { on.join(" and ") };
        let mut parts = Vec::new();
        for key in &keys {
            match self.dice.below(8) {
                0..3 => {
                    let constant = self.constant(ColumnType::Integer);
                    parts.push(format!("{key} = {constant}"));
                }
                3 => parts.push(format!("{key} is null")),
                4 => parts.push(format!("(a.{x1} = 1 or b.{x2} is null)")),
                _ => {}
            }
        }
        let third = if self.dice.percent(30) {
            let (three, k3, _) = self.table();
            let join = self.dice.of(&["join", "left join", "full join"]);
            let key = &keys[self.dice.below(2)];
            format!(" {join} {three} c on c.{k3} = {key}")
        } else {
            String::new()
        };
        let condition = if parts.is_empty() { String::new() } else { format!(" where {}", parts.join(" and ")) };
        format!("select * from {one} a {join} {two} b on {on}{third}{condition}")
    }

    fn target(&mut self) -> (&'static str, Visible) {
        let (name, columns, key) = RELATIONS[self.dice.below(5)];
        (name, Visible { alias: name.to_owned(), columns: columns_of(columns), key: key.map(str::to_owned) })
    }

    fn update(&mut self) -> String {
        let (name, of) = self.target();
        let (from, mut visible) = if self.dice.percent(40) {
            let (text, visible) = self.from(&Levels::new(), 1);
            (format!(" from {text}"), visible)
        } else {
            (String::new(), Vec::new())
        };
        visible.push(of.clone());
        let levels = vec![visible];
        let set = match name {
            "t" => "x",
            "u" => "y",
            "n" => "x",
            _ => "v",
        };
        let value = if self.dice.percent(30) { format!("({})", self.scalar(&levels, 2)) } else { self.dice.below(5).to_string() };
        let condition = self.conditions(&levels, 1, 95);
        let returning = match self.dice.below(3) {
            0 => format!("{name}.*, (select max(id) from ref where ref.id = {name}.{set})"),
            1 => format!("{name}.*, (select max(u2.id) from u u2 where u2.id = {name}.{set})"),
            _ => format!("{name}.*"),
        };
        format!("update {name} set {set} = {value}{from}{condition} returning {returning}")
    }

    fn delete(&mut self) -> String {
        let (name, _) = self.target();
        self.delete_of(name).0
    }

    fn delete_of(&mut self, name: &str) -> (String, Vec<(String, ColumnType)>) {
        let (_, columns, key) = RELATIONS.iter().find(|(known, ..)| *known == name).unwrap_or(&RELATIONS[0]);
        let of = Visible { alias: name.to_owned(), columns: columns_of(columns), key: key.map(str::to_owned) };
        let (using, mut visible) = if self.dice.percent(40) {
            let (text, visible) = self.from(&Levels::new(), 1);
            (format!(" using {text}"), visible)
        } else {
            (String::new(), Vec::new())
        };
        visible.push(of.clone());
        let condition = self.conditions(&vec![visible], 1, 95);
        (format!("delete from {name}{using}{condition} returning {name}.*"), of.columns)
    }

    fn insert(&mut self) -> String {
        let (name, of) = self.target();
        let mut rows = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            let values: Vec<String> = of.columns.iter().map(|(column, kind)| self.inserted(&of, column, *kind)).collect();
            rows.push(format!("({})", values.join(", ")));
        }
        format!("insert into {name} values {} returning *", rows.join(", "))
    }

    fn inserted(&mut self, of: &Visible, column: &str, kind: ColumnType) -> String {
        if of.key.as_deref() != Some(column) && kind == ColumnType::Integer && self.dice.percent(15) {
            return format!("({})", self.scalar(&Levels::new(), 2));
        }
        if self.dice.percent(3) { "default".to_owned() } else { self.constant(kind) }
    }
}

/// The column by which a query's rows may be joined.
fn key_of(columns: &[(String, ColumnType)]) -> Option<String> {
    columns.first().map(|(name, _)| name.clone())
}
