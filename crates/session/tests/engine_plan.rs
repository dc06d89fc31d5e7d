//! Texts about rows of several shards: the engine's, or refused with what stands against it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use weir_catalog::{Catalog, CatalogDraft, LookupUser};
use weir_config::Config;
use weir_session::session_state::by_sql::BySql;
use weir_session::sharding::kept_plan::{NoEngine, NoSpread, TextPlan, TextRefusal};
use weir_session::sharding::text_plan::{NameCertainty, PlanFacts, plan_of};
use weir_session::statements::StatementCache;
use weir_shard::{EngineReadiness, KeyColumn, PartitionRow, PartitionRowKind, ReaderRow, ShardTables};
use weir_sql::facts::QualifiedName;
use weir_sql::literal::literal_at;

/// The part's number, then its values.
const ROWS: &str = "
    0 11 pg_catalog
    0 2200 public
    1 2803 11 count i
    1 2108 11 sum i
    1 1299 11 now f
    1 20010 2200 twice i
    2 20100 2200 orders r p
    2 20101 2200 countries r p
    2 20102 2200 single r p
    2 20103 2200 all_orders v p
    2 20104 2200 lands v p
    9 joe \"$user\",public";

fn catalog() -> Catalog {
    let mut draft = CatalogDraft::new(usize::MAX);
    for row in ROWS.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let mut words = row.split(' ');
        let part = words.next().and_then(|part| part.parse().ok()).unwrap();
        let cells: Vec<Option<&[u8]>> = words.map(|cell| Some(cell.as_bytes())).collect();
        draft.row(part, &cells).unwrap();
    }
    draft.finish(&Config::default().routing)
}

fn tables(engine: EngineReadiness) -> ShardTables {
    let named = |name: &str| QualifiedName { schema: "public".into(), name: name.into() };
    let row = |table: &str, kind| PartitionRow { table: named(table), kind, database: "shop".into() };
    let half = |remainder: u16| {
        let key = KeyColumn { name: "id".into(), type_oid: 23, modifier: -1, is_deterministic: true, is_c: true };
        let kind = PartitionRowKind::Partition {
            key: Some(key),
            columns: vec!["id".into(), "note".into(), "day".into()],
            bound: format!("FOR VALUES WITH (modulus 2, remainder {remainder})"),
            shard: Some(remainder),
        };
        row("orders", kind)
    };
    let rows = [half(0), half(1), row("countries", PartitionRowKind::Reference)];
    let tables = ShardTables::of_rows("shop", &rows, vec![ReaderRow::View(named("all_orders"))], &[0, 1]);
    let indexes = [(named("orders_note"), named("orders"))];
    tables.with_indexes(indexes).with_reference_views([named("lands")]).with_engine(engine)
}

fn plan(text: &str, engine: EngineReadiness) -> TextPlan {
    let (catalog, tables) = (catalog(), tables(engine));
    let path = catalog.path(&LookupUser { user: "joe", has_role: false }, None);
    let facts = PlanFacts {
        tables: &tables,
        catalog: &catalog,
        path: &path,
        certainty: NameCertainty::Known,
        prepared: &BySql::default(),
    };
    let statement = StatementCache::new(Arc::new(Config::default()), 0, |_| None).of_text(text.as_bytes());
    plan_of(&statement, text.as_bytes(), &facts)
}

/// In words: where the text goes, or why not.
fn told(text: &str, engine: EngineReadiness) -> String {
    match plan(text, engine) {
        TextPlan::Anywhere => "anywhere".into(),
        TextPlan::AnyShard(engine) => format!("any shard{}", if engine.is_ok() { " or the engine" } else { "" }),
        TextPlan::Cluster => "cluster".into(),
        TextPlan::Engine(fit) => format!("engine, time {}", fit.needs_transaction_time(text.as_bytes(), None)),
        TextPlan::OneShard { plan, engine, .. } => {
            let shard = plan.shard(|ordinal| literal_at(text.as_bytes(), ordinal), |_| None);
            match (shard, engine) {
                (Ok(shard), _) => format!("shard {shard}"),
                (Err(_), Ok(_)) => "engine by its values".into(),
                (Err(refusal), Err(why)) => format!("{}, {}", refusal.name(), reason(&why)),
            }
        }
        TextPlan::EveryCopy(every) => format!("copies {:?}", every.shards),
        TextPlan::AllShards(all) => format!("shards {:?}{}", all.shards, if all.returns { " returning" } else { "" }),
        TextPlan::CopyTable(Ok(_)) => "copy of a query by the engine".into(),
        TextPlan::CopyTable(Err(why)) => format!("no copy: {}", reason(&why)),
        TextPlan::CopyRows(plan) => format!("rows by {} of {:?}", plan.key_at.unwrap_or_default(), plan.columns),
        TextPlan::Refused(TextRefusal::Copy(why)) => format!("no copy: {why}"),
        TextPlan::Refused(TextRefusal::Spread(_, NoSpread::Refused(why))) => why.name().into(),
        TextPlan::Refused(TextRefusal::Spread(_, NoSpread::Chance(function))) => format!("chance {function}"),
        TextPlan::Refused(TextRefusal::Plan(refusal, why)) => format!("{}, {}", refusal.name(), reason(&why)),
        TextPlan::Refused(refusal) => format!("{refusal:?}").split('(').next().unwrap().to_owned(),
    }
}

fn reason(why: &NoEngine) -> String {
    match why {
        NoEngine::DefinesOnly => "defines only".into(),
        NoEngine::Behind(why) => format!("behind: {why}"),
        NoEngine::Refused(refusal) => refusal.name().into(),
        NoEngine::Unfit(name, _) => format!("unfit {name}"),
        NoEngine::Stranger(name) => format!("stranger {name}"),
    }
}

#[test]
fn a_change_of_several_shards_goes_to_each_of_them() {
    for (text, expected) in [
        ("update orders set note = 'x'", "shards [1, 0]"),
        ("update orders set note = random()::text where id in (1, 2, 3)", "shards [1, 0]"),
        ("delete from orders using countries c where c.id = day", "shards [1, 0]"),
        ("update orders set note = 'x' from countries where random() < 0.5", "chance random"),
        ("update orders set note = 'x' returning id", "shards [1, 0] returning"),
        ("update orders set note = (select note from single)", "single_relation"),
        ("delete from orders where id = 1", "shard 0"),
        ("update orders set id = 1 where id = 2", "key_changed, not_one_query"),
    ] {
        assert_eq!(told(text, EngineReadiness::Ready { node: 0 }), expected, "{text}");
    }
}

#[test]
fn a_query_of_several_shards_is_the_engines_if_nothing_stands_against_it() {
    for (text, expected) in [
        ("select count(*) from orders", "engine, time false"),
        ("select note from public.orders o join countries c on c.id = o.id order by 1", "engine, time false"),
        ("explain select * from orders", "engine, time false"),
        ("select note from orders where id in (1, 2, 3, 4)", "engine, time false"),
        ("select note from orders where id = 1", "shard 0"),
        // Two shards, by the values that a text has.
        ("select a.note from orders a, orders b where a.id = 1 and b.id = 3", "engine by its values"),
        ("select note from orders where id = $1", "engine by its values"),
        ("select * from countries", "any shard or the engine"),
        ("select * from countries for update", "cluster"),
        ("select 1", "anywhere"),
        ("select * from single", "cluster"),
        ("select count(*) from orders, single", "key_not_fixed, single_relation"),
        ("select count(*) from orders where note = 'x' for update", "key_not_fixed, locks_rows"),
        ("select twice(id) from orders", "key_not_fixed, stranger twice"),
        ("select id::mood from orders", "key_not_fixed, stranger mood"),
        ("with d as (delete from orders returning id) select count(*) from d", "key_not_fixed, writes"),
        ("select ctid from orders", "system_columns, system_columns"),
        ("select * from all_orders, orders", "Reader"),
        ("select count(*) from orders; select 1", "Many"),
        ("select orders from orders", "key_not_fixed, whole_row"),
        ("copy orders to stdout", "copy of a query by the engine"),
        ("copy orders (note, ctid) to stdout", "no copy: system_columns"),
        ("copy countries to stdout", "anywhere"),
        ("copy single to stdout", "cluster"),
        ("copy (select note from orders order by 1) to stdout csv header", "engine, time false"),
        ("copy (select note from orders where day < now()) to stdout", "engine, time true"),
        ("copy (select note from orders where id = 1) to stdout", "shard 0"),
        ("copy (select count(*) from orders, single) to stdout", "key_not_fixed, single_relation"),
        ("copy (delete from orders returning id) to stdout", "copy, not_one_query"),
        ("copy orders to '/tmp/orders'", "copy, not_one_query"),
    ] {
        assert_eq!(told(text, EngineReadiness::Ready { node: 0 }), expected, "{text}");
    }
}

#[test]
fn a_query_whose_answer_depends_on_the_begin_of_the_transaction_is_known() {
    for (text, expected) in [
        ("select count(*) from orders where day < 'today'", "engine, time true"),
        ("select count(*) from orders where day < date '2024-02-03'", "engine, time false"),
        ("select count(*) from orders where day < now()", "engine, time true"),
        ("select count(*) from orders where day < current_date", "engine, time true"),
        ("select note::timestamp from orders", "engine, time true"),
        ("select count(*) from orders where day < e'n\\x6fw'", "engine, time true"),
    ] {
        assert_eq!(told(text, EngineReadiness::Ready { node: 0 }), expected, "{text}");
    }
    let TextPlan::Engine(fit) = plan("select count(*) from orders where day < $1", EngineReadiness::Ready { node: 0 }) else {
        panic!("a plan")
    };
    let bind = |value: &[u8]| [&[0, 0, 0, 1][..], &(value.len() as u32).to_be_bytes(), value, &[0, 0]].concat();
    let asks = |value: &[u8]| fit.needs_transaction_time(b"select count(*) from orders where day < $1", Some(&bind(value)));
    assert!(asks(b"Tomorrow") && !asks(b"2024-02-03"));
}

#[test]
fn an_engine_that_is_not_ready_is_named_only_where_it_would_answer() {
    let behind = || EngineReadiness::Behind("rights have changed".into());
    // A statement waits for one that follows.
    assert_eq!(told("select count(*) from orders", EngineReadiness::Follows("rights have changed".into())), "engine, time false");
    for (text, defines_only, is_behind) in [
        ("select count(*) from orders", "key_not_fixed, defines only", "key_not_fixed, behind: rights have changed"),
        ("select count(*) from orders, single", "key_not_fixed, single_relation", "key_not_fixed, single_relation"),
        ("select note from orders where id = 1", "shard 0", "shard 0"),
    ] {
        assert_eq!(told(text, EngineReadiness::DefinesOnly), defines_only, "{text}");
        assert_eq!(told(text, behind()), is_behind, "{text}");
    }
}

#[test]
fn rows_of_a_copy_are_told_apart() {
    for (text, expected) in [
        ("copy orders from stdin", "rows by 0 of Some(3)"),
        ("copy public.orders (note, id) from stdin (format csv, header)", "rows by 1 of None"),
        ("copy orders from stdin csv quote '''' escape '\\'", "rows by 0 of Some(3)"),
        ("copy orders (note) from stdin", "no copy: the key is not among its columns"),
        ("copy orders from stdin where id > 3", "no copy: it has a WHERE"),
        ("copy orders from stdin (freeze)", "no copy: one of its options is not looked into"),
        ("copy orders to stdout", "copy of a query by the engine"),
        ("copy countries from stdin", "Copies"),
        ("copy single from stdin", "cluster"),
    ] {
        assert_eq!(told(text, EngineReadiness::Ready { node: 0 }), expected, "{text}");
    }
}

#[test]
fn a_definition_goes_to_all_shards_or_to_the_one_that_has_the_tables_that_it_defines() {
    for (text, expected) in [
        ("drop table orders, countries cascade", "copies [1, 0]"),
        ("truncate orders restart identity cascade", "copies [1, 0]"),
        ("alter table orders drop column note cascade", "copies [1, 0]"),
        ("drop index orders_note", "copies [1, 0]"),
        ("drop index public.orders_note cascade", "copies [1, 0]"),
        ("drop index other.orders_note", "cluster"),
        ("drop index orders_note, single_note", "Definition"),
        ("alter index orders_note rename to orders_text", "copies [1, 0]"),
        ("alter index orders_note set (fillfactor = 70)", "Definition"),
        ("comment on index orders_note is 'x'", "copies [1, 0]"),
        ("comment on index single_note is 'x'", "cluster"),
        ("comment on constraint c on countries is 'x'", "copies [1, 0]"),
        ("create table places (id int, country int references countries)", "cluster"),
        ("create table places (like countries)", "cluster"),
        ("create table places as select * from countries", "cluster"),
        ("select * into places from countries", "cluster"),
        ("create view places as select * from countries", "cluster"),
        ("alter table single add foreign key (note) references countries", "cluster"),
        ("create table places () inherits (countries)", "writes_reference, not_one_query"),
        ("create table places (id int references orders)", "definition, not_one_query"),
        ("create table places as select * from orders", "definition, not_one_query"),
        ("create trigger t before insert on countries for each row execute function f()", "writes_reference, not_one_query"),
        ("create rule r as on insert to countries do nothing", "writes_reference, not_one_query"),
        ("drop table countries, single", "Definition"),
        ("insert into lands values (1)", "ReferenceView"),
        ("delete from public.lands", "ReferenceView"),
        ("select * from lands", "cluster"),
    ] {
        assert_eq!(told(text, EngineReadiness::Ready { node: 0 }), expected, "{text}");
    }
}
