//! The definition of a table on one server, read from its catalog, as far as another shard must have the same.
//!
//! `TableDefinition::lines` is what two shards are compared by. Texts of expressions come from PostgreSQL, under a `search_path` that makes it name the
//! schema of all that is not its own.

use super::shard_servers::ShardConn;
use super::words::{TableName, quote_name, quote_text};
use anyhow::Context;
use std::fmt::Write;

/// Objects below this number are PostgreSQL's own, and equal on all servers of a version. Source: `FirstNormalObjectId` in transam.h.
const OWN_OBJECTS: &str = "16384";

/// Name of the constraint that keeps rows of other shards out, and of the trigger by which a shard draws keys of its own.
pub const KEY_CHECK: &str = "weir_shard_key";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableDefinition {
    pub oid: u32,
    pub relation: RelationFacts,
    pub columns: Vec<ColumnDefinition>,
    pub constraints: Vec<ConstraintDefinition>,
    pub indexes: Vec<IndexDefinition>,
    pub sequences: Vec<SequenceDefinition>,
    /// `GRANT` without the name of its table: rights, columns, grantee.
    pub grants: Vec<GrantLine>,
    pub triggers: Vec<TriggerDefinition>,
    /// Objects of users that columns, expressions, indexes or constraints need.
    pub needs: Vec<String>,
    /// Foreign keys of other tables that lead here.
    pub references: Vec<InboundReference>,
    /// Text of the constraint `weir_shard_key`, and whether all rows were checked.
    pub key_check: Option<(String, bool)>,
    /// Text of the trigger `weir_shard_key`.
    pub key_trigger: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelationFacts {
    pub owner: String,
    /// One letter, as in `pg_class`.
    pub kind: String,
    pub persistence: String,
    pub replica_identity: String,
    pub options: Vec<String>,
    pub comment: Option<String>,
    /// False: only the owner has rights, and all of them.
    pub has_grants: bool,
    /// Parts that a copy of the table would lack, each in words.
    pub peculiarities: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub number: i16,
    pub name: String,
    /// As `format_type` writes it.
    pub type_text: String,
    pub type_oid: u32,
    pub type_name: String,
    /// Quoted, where it is another one than the type's own.
    pub collation: Option<String>,
    /// `0`: none.
    pub collation_oid: u32,
    pub is_not_null: bool,
    pub default: Option<String>,
    /// `a`, `d` or empty, as in `pg_attribute`.
    pub identity: String,
    /// `s`, `v` or empty, as in `pg_attribute`.
    pub generated: String,
    pub comment: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConstraintDefinition {
    pub name: String,
    /// `c`, `p`, `u`, `x` or `f`, as in `pg_constraint`.
    pub kind: String,
    pub text: String,
    pub columns: Vec<i16>,
    /// Of a foreign key.
    pub target: Option<TableName>,
    /// Names of the columns in `target`, in the order of `columns`.
    pub target_columns: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexDefinition {
    pub name: String,
    pub text: String,
    pub is_unique: bool,
    pub is_valid: bool,
    pub is_of_constraint: bool,
    /// Key columns; 0 is an expression.
    pub columns: Vec<i16>,
    pub collations: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceDefinition {
    pub name: TableName,
    pub column: i16,
    pub is_identity: bool,
    pub type_text: String,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cache: i64,
    pub cycles: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantLine {
    /// Empty: the table.
    pub column: String,
    pub right: String,
    /// Quoted, or `PUBLIC`.
    pub grantee: String,
    pub is_grantable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerDefinition {
    pub name: String,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboundReference {
    pub table: TableName,
    pub constraint: String,
    /// Columns here.
    pub columns: Vec<String>,
}

/// Properties that no copy can have: `relispartition`, rules and the like, each by the words that a refusal says.
fn relation_query(table: &TableName) -> String {
    let (schema, name) = (quote_text(&table.schema), quote_text(&table.name));
    format!(
        "SELECT c.oid, pg_catalog.pg_get_userbyid(c.relowner), c.relkind, c.relpersistence, c.relreplident, \
         pg_catalog.to_json(c.reloptions), pg_catalog.obj_description(c.oid, 'pg_class'), c.relacl IS NOT NULL, \
         pg_catalog.to_json(ARRAY[CASE WHEN c.relispartition THEN 'it is a partition' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid OPERATOR(pg_catalog.=) c.oid \
         OR i.inhparent OPERATOR(pg_catalog.=) c.oid) THEN 'it inherits columns or gives them on (INHERITS)' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class OPERATOR(pg_catalog.=) c.oid) THEN 'it has rules' END, \
         CASE WHEN c.relrowsecurity OR c.relforcerowsecurity OR EXISTS (SELECT FROM pg_catalog.pg_policy AS p \
         WHERE p.polrelid OPERATOR(pg_catalog.=) c.oid) THEN 'it has row security' END, \
         CASE WHEN c.reloftype OPERATOR(pg_catalog.<>) '0'::pg_catalog.oid THEN 'it is a typed table (OF)' END, \
         CASE WHEN c.relreplident OPERATOR(pg_catalog.=) 'i' THEN 'its replica identity is an index' END, \
         CASE WHEN (SELECT a.amname FROM pg_catalog.pg_am AS a WHERE a.oid OPERATOR(pg_catalog.=) c.relam) OPERATOR(pg_catalog.<>) 'heap' \
         THEN 'its access method is not heap' END]) \
         FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE n.nspname OPERATOR(pg_catalog.=) {schema} AND c.relname OPERATOR(pg_catalog.=) {name} AND c.relkind OPERATOR(pg_catalog.<>) ALL ('{{i,I,c}}'::pg_catalog.\"char\"[])"
    )
}

fn columns_query(oid: u32) -> String {
    format!(
        "SELECT a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.atttypid, t.typname, \
         CASE WHEN a.attcollation OPERATOR(pg_catalog.<>) t.typcollation THEN (SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text) \
         OPERATOR(pg_catalog.||) '.' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(l.collname::pg_catalog.text) FROM pg_catalog.pg_collation AS l \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) l.collnamespace WHERE l.oid OPERATOR(pg_catalog.=) a.attcollation) END, \
         a.attcollation, a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, \
         pg_catalog.col_description(a.attrelid, a.attnum::pg_catalog.int4) \
         FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
         LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum \
         WHERE a.attrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
}

/// NOT NULL is a property of columns here; constraint triggers are triggers.
fn constraints_query(oid: u32) -> String {
    format!(
        "SELECT c.conname, c.contype, pg_catalog.pg_get_constraintdef(c.oid), pg_catalog.to_json(c.conkey), n.nspname, r.relname, \
         pg_catalog.to_json((SELECT pg_catalog.array_agg(a.attname ORDER BY k.at) \
         FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (number, at) JOIN pg_catalog.pg_attribute AS a \
         ON a.attrelid OPERATOR(pg_catalog.=) c.confrelid AND a.attnum OPERATOR(pg_catalog.=) k.number)), c.convalidated \
         FROM pg_catalog.pg_constraint AS c LEFT JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.confrelid \
         LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace \
         WHERE c.conrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid \
         AND c.contype OPERATOR(pg_catalog.=) ANY ('{{c,p,u,x,f}}'::pg_catalog.\"char\"[]) ORDER BY c.contype OPERATOR(pg_catalog.=) 'f', c.conname"
    )
}

fn indexes_query(oid: u32) -> String {
    format!(
        "SELECT c.relname, pg_catalog.pg_get_indexdef(i.indexrelid), i.indisunique OR i.indisexclusion, i.indisvalid, \
         EXISTS (SELECT FROM pg_catalog.pg_constraint AS o WHERE o.conindid OPERATOR(pg_catalog.=) i.indexrelid \
         AND o.conrelid OPERATOR(pg_catalog.=) i.indrelid AND o.contype OPERATOR(pg_catalog.=) ANY ('{{p,u,x}}'::pg_catalog.\"char\"[])), \
         pg_catalog.to_json((SELECT pg_catalog.array_agg(k.number ORDER BY k.at) FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) \
         WITH ORDINALITY AS k (number, at) WHERE k.at OPERATOR(pg_catalog.<=) i.indnkeyatts)), \
         pg_catalog.to_json(i.indcollation::pg_catalog.oid[]) \
         FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid \
         WHERE i.indrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid ORDER BY c.relname"
    )
}

/// Sequences of identity columns, and those that columns own.
fn sequences_query(oid: u32) -> String {
    format!(
        "SELECT n.nspname, c.relname, d.refobjsubid, d.deptype OPERATOR(pg_catalog.=) 'i', pg_catalog.format_type(s.seqtypid, NULL), \
         s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle \
         FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_sequence AS s ON s.seqrelid OPERATOR(pg_catalog.=) d.objid \
         JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) d.objid JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
         AND d.refobjid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND d.refobjsubid OPERATOR(pg_catalog.>) 0 ORDER BY d.refobjsubid, c.relname"
    )
}

fn grants_query(oid: u32) -> String {
    format!(
        "SELECT g.of_column, g.privilege_type, CASE WHEN g.grantee OPERATOR(pg_catalog.=) '0'::pg_catalog.oid THEN 'PUBLIC' \
         ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)::pg_catalog.text) END, pg_catalog.bool_or(g.is_grantable) FROM \
         (SELECT '' AS of_column, x.* FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS x \
         WHERE c.oid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid \
         UNION ALL SELECT a.attname, x.* FROM pg_catalog.pg_attribute AS a, pg_catalog.aclexplode(a.attacl) AS x \
         WHERE a.attrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND NOT a.attisdropped) AS g \
         GROUP BY 1, 2, 3 ORDER BY 1, 3, 2"
    )
}

fn triggers_query(oid: u32) -> String {
    format!(
        "SELECT t.tgname, pg_catalog.pg_get_triggerdef(t.oid), EXISTS (SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n \
         ON n.oid OPERATOR(pg_catalog.=) p.pronamespace AND n.nspname OPERATOR(pg_catalog.=) 'weir_shard' WHERE p.oid OPERATOR(pg_catalog.=) t.tgfoid) \
         FROM pg_catalog.pg_trigger AS t \
         WHERE t.tgrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND NOT t.tgisinternal ORDER BY t.tgname"
    )
}

/// Whatever else than tables of users stands behind the table: types, functions, operators, collations, sequences of others.
fn needs_query(oid: u32) -> String {
    format!(
        "WITH own AS (SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AS class, '{oid}'::pg_catalog.oid AS object \
         UNION ALL SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, d.oid FROM pg_catalog.pg_attrdef AS d \
         WHERE d.adrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid \
         UNION ALL SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, c.oid FROM pg_catalog.pg_constraint AS c \
         WHERE c.conrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND c.conname OPERATOR(pg_catalog.<>) '{KEY_CHECK}' \
         UNION ALL SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, i.indexrelid FROM pg_catalog.pg_index AS i \
         WHERE i.indrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid) \
         SELECT DISTINCT pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0) FROM pg_catalog.pg_depend AS d \
         JOIN own ON d.classid OPERATOR(pg_catalog.=) own.class AND d.objid OPERATOR(pg_catalog.=) own.object \
         WHERE d.refobjid OPERATOR(pg_catalog.>=) '{OWN_OBJECTS}'::pg_catalog.oid \
         AND d.refclassid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
         AND d.refclassid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_constraint'::pg_catalog.regclass \
         AND (d.refclassid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_class'::pg_catalog.regclass \
         OR EXISTS (SELECT FROM pg_catalog.pg_class AS s WHERE s.oid OPERATOR(pg_catalog.=) d.refobjid AND s.relkind OPERATOR(pg_catalog.=) 'S' \
         AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS o WHERE o.objid OPERATOR(pg_catalog.=) s.oid \
         AND o.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass AND o.refobjid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid \
         AND o.deptype OPERATOR(pg_catalog.=) ANY ('{{a,i}}'::pg_catalog.\"char\"[])))) ORDER BY 1"
    )
}

fn references_query(oid: u32) -> String {
    format!(
        "SELECT n.nspname, r.relname, c.conname, pg_catalog.to_json((SELECT pg_catalog.array_agg(a.attname) FROM pg_catalog.pg_attribute AS a \
         WHERE a.attrelid OPERATOR(pg_catalog.=) c.confrelid AND a.attnum OPERATOR(pg_catalog.=) ANY (c.confkey))) \
         FROM pg_catalog.pg_constraint AS c JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace \
         WHERE c.confrelid OPERATOR(pg_catalog.=) '{oid}'::pg_catalog.oid AND c.contype OPERATOR(pg_catalog.=) 'f' \
         AND c.conrelid OPERATOR(pg_catalog.<>) c.confrelid ORDER BY 1, 2, 3"
    )
}

/// One row of an answer.
struct Cells<'r>(&'r [Option<String>]);

impl Cells<'_> {
    fn text(&self, at: usize) -> String {
        self.maybe(at).unwrap_or_default()
    }

    fn maybe(&self, at: usize) -> Option<String> {
        self.0.get(at).cloned().flatten()
    }

    fn is(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|cell| cell.as_deref() == Some("t"))
    }

    fn number<N: std::str::FromStr>(&self, at: usize) -> anyhow::Result<N> {
        let text = self.text(at);
        text.parse().ok().with_context(|| format!("the server says \"{text}\" where a number belongs"))
    }

    /// An array as JSON; what is null in it is left out.
    fn list(&self, at: usize) -> Vec<String> {
        let read = self.maybe(at).and_then(|text| serde_json::from_str::<Vec<serde_json::Value>>(&text).ok()).unwrap_or_default();
        let texts = read.into_iter().filter_map(|value| match value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text),
            other => Some(other.to_string()),
        });
        texts.collect()
    }

    fn numbers<N: std::str::FromStr>(&self, at: usize) -> Vec<N> {
        self.list(at).iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// Reads a table; `None` if there is none of this name. Not cancel safe: the connection is unusable afterwards.
pub async fn read(conn: &mut ShardConn, table: &TableName) -> anyhow::Result<Option<TableDefinition>> {
    let rows = conn.query(&relation_query(table)).await?;
    let Some(row) = rows.first().map(|row| Cells(row)) else { return Ok(None) };
    let oid: u32 = row.number(0)?;
    let mut definition = TableDefinition {
        oid,
        relation: RelationFacts {
            owner: row.text(1),
            kind: row.text(2),
            persistence: row.text(3),
            replica_identity: row.text(4),
            options: row.list(5),
            comment: row.maybe(6),
            has_grants: row.is(7),
            peculiarities: row.list(8),
        },
        ..TableDefinition::default()
    };
    for row in conn.query(&columns_query(oid)).await?.iter().map(|row| Cells(row)) {
        definition.columns.push(column(&row)?);
    }
    for row in conn.query(&constraints_query(oid)).await?.iter().map(|row| Cells(row)) {
        match row.text(0) == KEY_CHECK {
            true => definition.key_check = Some((row.text(2), row.is(7))),
            false => definition.constraints.push(constraint(&row)),
        }
    }
    for row in conn.query(&sequences_query(oid)).await?.iter().map(|row| Cells(row)) {
        definition.sequences.push(sequence(&row)?);
    }
    let rows = conn.query(&indexes_query(oid)).await?;
    definition.indexes = rows.iter().map(|row| index(&Cells(row))).collect();
    let rows = conn.query(&grants_query(oid)).await?;
    definition.grants = rows.iter().map(|row| grant(&Cells(row))).collect();
    let rows = conn.query(&triggers_query(oid)).await?;
    for row in rows.iter().map(|row| Cells(row)) {
        match row.text(0) == KEY_CHECK && row.is(2) {
            true => definition.key_trigger = Some(row.text(1)),
            false => definition.triggers.push(TriggerDefinition { name: row.text(0), text: row.text(1) }),
        }
    }
    definition.needs = conn.query(&needs_query(oid)).await?.into_iter().flatten().flatten().collect();
    let rows = conn.query(&references_query(oid)).await?;
    definition.references = rows.iter().map(|row| inbound(&Cells(row))).collect();
    Ok(Some(definition))
}

fn column(row: &Cells<'_>) -> anyhow::Result<ColumnDefinition> {
    Ok(ColumnDefinition {
        number: row.number(0)?,
        name: row.text(1),
        type_text: row.text(2),
        type_oid: row.number(3)?,
        type_name: row.text(4),
        collation: row.maybe(5),
        collation_oid: row.number(6)?,
        is_not_null: row.is(7),
        default: row.maybe(8),
        identity: row.text(9),
        generated: row.text(10),
        comment: row.maybe(11),
    })
}

fn constraint(row: &Cells<'_>) -> ConstraintDefinition {
    ConstraintDefinition {
        name: row.text(0),
        kind: row.text(1),
        text: row.text(2),
        columns: row.numbers(3),
        target: row.maybe(4).map(|schema| TableName { schema, name: row.text(5) }),
        target_columns: row.list(6),
    }
}

fn index(row: &Cells<'_>) -> IndexDefinition {
    IndexDefinition {
        name: row.text(0),
        text: row.text(1),
        is_unique: row.is(2),
        is_valid: row.is(3),
        is_of_constraint: row.is(4),
        columns: row.numbers(5),
        collations: row.numbers(6),
    }
}

fn sequence(row: &Cells<'_>) -> anyhow::Result<SequenceDefinition> {
    Ok(SequenceDefinition {
        name: TableName { schema: row.text(0), name: row.text(1) },
        column: row.number(2)?,
        is_identity: row.is(3),
        type_text: row.text(4),
        increment: row.number(5)?,
        min: row.number(6)?,
        max: row.number(7)?,
        cache: row.number(8)?,
        cycles: row.is(9),
    })
}

fn grant(row: &Cells<'_>) -> GrantLine {
    GrantLine { column: row.text(0), right: row.text(1), grantee: row.text(2), is_grantable: row.is(3) }
}

fn inbound(row: &Cells<'_>) -> InboundReference {
    let table = TableName { schema: row.text(0), name: row.text(1) };
    InboundReference { table, constraint: row.text(2), columns: row.list(3) }
}

impl TableDefinition {
    pub fn column(&self, name: &str) -> Option<&ColumnDefinition> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub fn column_at(&self, number: i16) -> Option<&ColumnDefinition> {
        self.columns.iter().find(|column| column.number == number)
    }

    /// Properties that must be equal on all shards, one a line. Numbers of columns and objects are a server's own.
    pub fn lines(&self) -> Vec<String> {
        let relation = &self.relation;
        let mut lines = vec![
            format!("kind {}, persistence {}", relation.kind, relation.persistence),
            format!("owner {}", quote_name(&relation.owner)),
            format!("replica identity {}", relation.replica_identity),
            format!("storage parameters {}", relation.options.join(", ")),
        ];
        lines.extend(relation.comment.iter().map(|comment| format!("comment {}", quote_text(comment))));
        lines.extend(relation.peculiarities.iter().cloned());
        for (at, column) in self.columns.iter().enumerate() {
            lines.push(format!("column {}: {}", at + 1, column.line()));
        }
        lines.extend(self.constraints.iter().map(|one| format!("constraint {} {}", quote_name(&one.name), one.text)));
        let indexes = self.indexes.iter().filter(|index| !index.is_of_constraint);
        lines.extend(indexes.map(|index| if index.is_valid { index.text.clone() } else { format!("invalid: {}", index.text) }));
        lines.extend(self.sequences.iter().map(|one| self.sequence_line(one)));
        lines.extend(self.triggers.iter().map(|trigger| trigger.text.clone()));
        lines.extend(self.grants.iter().map(GrantLine::line));
        lines
    }

    fn sequence_line(&self, sequence: &SequenceDefinition) -> String {
        let SequenceDefinition { name, type_text, min, max, cache, .. } = sequence;
        let column = self.column_at(sequence.column).map_or("", |column| &column.name);
        format!("sequence {name} of {}: {type_text}, {min} to {max}, cache {cache}", quote_name(column))
    }
}

impl ColumnDefinition {
    fn line(&self) -> String {
        let mut line = format!("{} {}", quote_name(&self.name), self.type_text);
        // Writing to a String cannot fail.
        if let Some(collation) = &self.collation {
            let _ = write!(line, " COLLATE {collation}");
        }
        if let Some(default) = &self.default {
            let _ = write!(line, " {} {default}", if self.generated.is_empty() { "DEFAULT" } else { "GENERATED" });
        }
        match self.identity.as_str() {
            "" => {}
            "a" => line += " GENERATED ALWAYS AS IDENTITY",
            _ => line += " GENERATED BY DEFAULT AS IDENTITY",
        }
        if self.is_not_null {
            line += " NOT NULL";
        }
        if let Some(comment) = &self.comment {
            let _ = write!(line, " comment {}", quote_text(comment));
        }
        line
    }
}

impl GrantLine {
    fn line(&self) -> String {
        let column = if self.column.is_empty() { String::new() } else { format!(" ({})", quote_name(&self.column)) };
        let option = if self.is_grantable { " with grant option" } else { "" };
        format!("grant {}{column} to {}{option}", self.right, self.grantee)
    }
}

pub fn own_texts() -> Vec<String> {
    let table = TableName { schema: "public".to_owned(), name: "items".to_owned() };
    let of_oid = [
        columns_query,
        constraints_query,
        indexes_query,
        sequences_query,
        grants_query,
        triggers_query,
        needs_query,
        references_query,
    ];
    std::iter::once(relation_query(&table)).chain(of_oid.map(|query| query(16_384))).collect()
}
