//! The children of a node that can lead to a relation, function or operator.
//!
//! The parser's own walker overflows 2 MiB of stack at about 8,000 chained operators. Left out: `WITH` and targets of
//! writes (`walk` scopes them), `FOR UPDATE OF` (aliases), type names, column lists, options; and relations of `CREATE
//! STATISTICS`, on whose queries the binding panics.

use pg_raw_parse::Node;
use pg_raw_parse::list::{CastNodeList, NodeList};

trait PushChild<'a> {
    fn push(self, stack: &mut Vec<Node<'a>>);
}

impl<'a> PushChild<'a> for Node<'a> {
    fn push(self, stack: &mut Vec<Node<'a>>) {
        if !matches!(self, Node::None) {
            stack.push(self);
        }
    }
}

impl<'a, T> PushChild<'a> for Option<&'a T>
where
    Node<'a>: From<&'a T>,
{
    fn push(self, stack: &mut Vec<Node<'a>>) {
        stack.extend(self.map(Node::from));
    }
}

impl<'a> PushChild<'a> for &'a NodeList {
    fn push(self, stack: &mut Vec<Node<'a>>) {
        self.iter().for_each(|node| node.push(stack));
    }
}

impl<'a, T: 'static> PushChild<'a> for &'a CastNodeList<T>
where
    &'a CastNodeList<T>: IntoIterator<Item = &'a T>,
    Node<'a>: From<&'a T>,
{
    fn push(self, stack: &mut Vec<Node<'a>>) {
        stack.extend(self.into_iter().map(Node::from));
    }
}

macro_rules! table {
    ($($kind:ident: $($field:ident)+;)+) => {
        /// Nodes without a row have no children that matter.
        pub(crate) fn push_children<'a>(node: Node<'a>, stack: &mut Vec<Node<'a>>) {
            match node {
                Node::NodeList(list) => list.push(stack),
                $(Node::$kind(node) => { $(node.$field().push(stack);)+ })+
                _ => {}
            }
        }
    };
}

table! {
    // Queries.
    SelectStmt: distinct_clause target_list from_clause where_clause group_clause having_clause window_clause
        values_lists sort_clause limit_offset limit_count larg rarg;
    InsertStmt: cols select_stmt on_conflict_clause returning_clause;
    UpdateStmt: target_list where_clause from_clause returning_clause;
    DeleteStmt: using_clause where_clause returning_clause;
    MergeStmt: source_relation join_condition merge_when_clauses returning_clause;
    MergeWhenClause: condition target_list values;
    ReturningClause: exprs;
    OnConflictClause: infer target_list where_clause;
    InferClause: index_elems where_clause;
    // FROM items.
    JoinExpr: larg rarg quals;
    RangeSubselect: subquery;
    RangeFunction: functions coldeflist;
    RangeTableSample: relation args repeatable;
    RangeTableFunc: docexpr rowexpr namespaces columns;
    RangeTableFuncCol: colexpr coldefexpr;
    // Expressions.
    A_Expr: lexpr rexpr;
    A_ArrayExpr: elements;
    A_Indices: lidx uidx;
    A_Indirection: arg indirection;
    BoolExpr: args;
    BooleanTest: arg;
    CaseExpr: arg args defresult;
    CaseWhen: expr result;
    CoalesceExpr: args;
    CollateClause: arg;
    ColumnRef: fields;
    FuncCall: args agg_order agg_filter over;
    GroupingFunc: args;
    GroupingSet: content;
    MinMaxExpr: args;
    MultiAssignRef: source;
    NamedArgExpr: arg;
    NullTest: arg;
    ResTarget: indirection val;
    RowExpr: args;
    SortBy: node;
    SubLink: testexpr subselect;
    TypeCast: arg;
    WindowDef: partition_clause order_clause start_offset end_offset;
    // XML and JSON.
    XmlExpr: named_args args;
    XmlSerialize: expr;
    JsonAggConstructor: output agg_filter agg_order over;
    JsonArgument: val;
    JsonArrayAgg: constructor arg;
    JsonArrayConstructor: exprs output;
    JsonArrayQueryConstructor: query output;
    JsonBehavior: expr;
    JsonFuncExpr: context_item pathspec passing output on_empty on_error;
    JsonIsPredicate: expr;
    JsonKeyValue: key value;
    JsonObjectAgg: constructor arg;
    JsonObjectConstructor: exprs output;
    JsonParseExpr: expr output;
    JsonScalarExpr: expr output;
    JsonSerializeExpr: expr output;
    JsonTable: context_item pathspec passing columns on_error;
    JsonTableColumn: pathspec columns on_empty on_error;
    JsonTablePathSpec: string;
    JsonValueExpr: raw_expr formatted_expr;
    // Statements that hold a query, an expression or relations.
    AlterObjectDependsStmt: relation;
    AlterObjectSchemaStmt: relation;
    AlterOwnerStmt: relation;
    AlterPolicyStmt: table qual with_check;
    AlterDomainStmt: def;
    AlterPublicationStmt: pubobjects;
    AlterSeqStmt: sequence;
    AlterTableCmd: def;
    AlterTableStmt: relation cmds;
    CallStmt: funccall;
    ClusterStmt: relation;
    CompositeTypeStmt: typevar;
    CopyStmt: relation query where_clause;
    CreateDomainStmt: constraints;
    CreateFunctionStmt: parameters sql_body;
    CreatePolicyStmt: table qual with_check;
    CreatePublicationStmt: pubobjects;
    CreateSchemaStmt: schema_elts;
    CreateSeqStmt: sequence;
    CreateStatsStmt: exprs;
    CreateStmt: table_elts inh_relations partbound partspec constraints;
    CreateTableAsStmt: query;
    CreateTrigStmt: relation when_clause constrrel;
    DeclareCursorStmt: query;
    ExecuteStmt: params;
    ExplainStmt: query;
    IndexStmt: relation index_params where_clause;
    LockStmt: relations;
    PrepareStmt: query;
    RefreshMatViewStmt: relation;
    ReindexStmt: relation;
    RenameStmt: relation;
    ReturnStmt: returnval;
    RuleStmt: relation where_clause actions;
    TruncateStmt: relations;
    VacuumStmt: rels;
    ViewStmt: view query;
    // Parts of statements.
    ColumnDef: raw_default constraints;
    Constraint: raw_expr exclusions where_clause pktable;
    FunctionParameter: defexpr;
    IndexElem: expr;
    PartitionBoundSpec: listdatums lowerdatums upperdatums;
    PartitionCmd: name bound;
    PartitionElem: expr;
    PartitionRangeDatum: value;
    PartitionSpec: part_params;
    PublicationObjSpec: pubtable;
    PublicationTable: relation where_clause;
    StatsElem: expr;
    TableLikeClause: relation;
    VacuumRelation: relation;
}
