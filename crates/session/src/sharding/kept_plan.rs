//! The plan of a text, kept with it.

use crate::sharding::copy_plan::CopyPlan;
use std::cell::RefCell;
use std::rc::Rc;
use weir_cache::{bind_holds_a_moment, says_a_moment};
use weir_shard::{AllShards, AllShardsRefusal, CopyRefusal, DefinitionEffect, EngineRefusal, ShardPlan, ShardRefusal};
use weir_sql::facts::QualifiedName;
use weir_sql::literal::LiteralGaps;

#[derive(Debug)]
pub enum TextPlan {
    /// Names nothing of the database: any server will do.
    Anywhere,
    /// Reads reference tables only: any shard will do, or the engine.
    AnyShard(Result<EngineFit, NoEngine>),
    /// Names nothing that is sharded.
    Cluster,
    /// `literals`: where the text's literals stand. `engine`: for values that belong to several shards.
    OneShard {
        plan: ShardPlan,
        literals: LiteralGaps,
        engine: Result<EngineFit, NoEngine>,
    },
    /// About rows of several shards; the engine has the answer.
    Engine(EngineFit),
    /// `COPY table TO STDOUT` of a sharded table; the engine has the answer, if the text is written anew (`copy_table`).
    CopyTable(Result<EngineFit, NoEngine>),
    /// Changes rows of several shards, each of which carries it out by itself.
    AllShards(AllShards),
    /// Changes a reference table, or the definitions of spread ones: each shard carries it out on its copy.
    EveryCopy(EveryCopy),
    /// Takes rows of several shards, each of which gets its own.
    CopyRows(Box<CopyPlan>),
    Refused(TextRefusal),
}

impl TextPlan {
    /// True if the shard of a row hangs on the order of its table's columns.
    #[inline]
    pub fn is_by_position(&self) -> bool {
        match self {
            TextPlan::OneShard { plan: ShardPlan::OneShard(one), .. } => one.is_by_position,
            TextPlan::CopyRows(plan) => plan.columns.is_some(),
            _ => false,
        }
    }
}

/// A write to a reference table, or a change of spread tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EveryCopy {
    /// All shards, in the order of the visits.
    pub shards: Box<[u16]>,
    pub work: CopyWork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWork {
    Write,
    /// It has RETURNING.
    WriteWithRows,
    Definition(DefinitionEffect),
}

/// The engine, which is ready or about to be (`engine_standing`), answers the text as one server with all rows does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFit {
    /// True if the answer may depend on the time at which the transaction began, whatever its literals and parameters are.
    pub asks_time: bool,
    /// True if it declares a cursor, which lives as long as its transaction.
    pub declares: bool,
}

impl EngineFit {
    /// True in doubt. `text`: the statement's own, or a Parse behind its name. `values`: a Bind behind its names.
    pub fn needs_transaction_time(self, text: &[u8], values: Option<&[u8]>) -> bool {
        self.asks_time || says_a_moment(text) || values.is_some_and(bind_holds_a_moment)
    }
}

/// Why the engine does not answer a text.
#[derive(Clone, Debug, PartialEq)]
pub enum NoEngine {
    /// It holds definitions only, and would answer.
    DefinesOnly,
    /// It would answer, something that it depends on has changed, and it does not follow; the reason.
    Behind(String),
    Refused(EngineRefusal),
    /// A table does not fit the engine; the reason.
    Unfit(QualifiedName, String),
    /// The function, operator, type or collation may be another one in the engine.
    Stranger(QualifiedName),
}

/// Why an UPDATE or DELETE is not one for each shard by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum NoSpread {
    Refused(AllShardsRefusal),
    /// A part of the text is computed for several rows at once, and the function depends on chance or on the time of the server.
    Chance(String),
}

/// Why a write to a reference table is not carried out on all copies.
#[derive(Clone, Debug, PartialEq)]
pub enum NoCopies {
    Refused(CopyRefusal),
    /// The function, operator, type or collation may be another one on each shard, or do something else there.
    Stranger(QualifiedName),
    /// The function depends on chance or on the time of the server.
    Chance(String),
}

/// Why a text is not carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum TextRefusal {
    Plan(ShardRefusal, NoEngine),
    /// An UPDATE or DELETE that is neither one shard's nor one for each shard by itself.
    Spread(ShardRefusal, NoSpread),
    /// A COPY; the reason.
    Copy(&'static str),
    /// A write to a reference table.
    Copies(NoCopies),
    /// A change of spread tables; the reason.
    Definition(String),
    /// The parser does not read it, or it is too long.
    Unread,
    /// It has an error of syntax, in PostgreSQL's words.
    Syntax(String),
    Many,
    /// A view or table whose definition reads sharded tables.
    Reader(QualifiedName),
    /// The definition of the sharded table cannot be used.
    Unusable(QualifiedName, String),
    /// The function may read sharded tables, all of whose rows no server has.
    Function(String),
    /// A trigger of the table calls such a function.
    Trigger(QualifiedName),
    /// A write to the relation, a view or a table with rules, may go on to a reference table.
    ReferenceView(QualifiedName),
    /// The function, operator or type may answer otherwise on each server.
    BoundToServer(QualifiedName),
    Execute,
    /// The table that the name means is not known: the session's `search_path` is not, or the table is new.
    UnknownName(QualifiedName),
}

/// The meaning of names: number of the session's place, and of the reading of the sharded tables.
pub type PlanScope = (u64, u64);

/// The last plan of a text, kept with it.
#[derive(Debug, Default)]
pub struct KeptTextPlan(RefCell<Option<(PlanScope, Rc<TextPlan>)>>);

impl KeptTextPlan {
    pub fn of(&self, scope: PlanScope) -> Option<Rc<TextPlan>> {
        self.0.borrow().as_ref().filter(|(known, _)| *known == scope).map(|(_, plan)| plan.clone())
    }

    pub fn keep(&self, scope: PlanScope, plan: Rc<TextPlan>) {
        *self.0.borrow_mut() = Some((scope, plan));
    }
}
