//! Changes by a text, and dependence of its result on more than its tables. A line is `statement ==> changes`: `nothing`, `rows
//! of` some relations, `database` or `cluster`, then `fleeting`.

use weir_sql::facts::{ChangeScope, TextProperty};

const TABLE: &str = "
    select a from t ==> nothing
    select 1; select 2 ==> nothing
    insert into t values (1) ==> rows t
    insert into s.t select * from u ==> rows s.t
    update t set a = 1 from u where t.b = u.b ==> rows t
    delete from t using u where true ==> rows t
    merge into t using u on t.a = u.a when matched then delete ==> rows t
    with w as (delete from t returning *), v as (insert into u select * from w) select * from w ==> rows t,u
    with t as (select 1) insert into t select * from t ==> rows t
    truncate t, s.u ==> rows t,s.u
    truncate t cascade ==> database
    copy t from stdin ==> rows t
    copy t to stdout ==> nothing
    copy (insert into t values (1) returning a) to stdout ==> rows t
    refresh materialized view m ==> rows m
    explain insert into t values (1) ==> nothing
    explain analyze insert into t values (1) ==> rows t
    explain analyze select * from t ==> nothing
    explain (analyze) create table n as select 1 ==> database
    prepare p as insert into t values (1) ==> nothing
    execute p ==> database
    explain analyze execute p ==> database
    call p() ==> database
    do $$ begin end $$ ==> database
    select * into n from t ==> database
    select * into temp n from t ==> nothing
    create temp table n (a int) ==> nothing
    create temp table n as select * from t ==> nothing
    create table n (a int) ==> database
    alter table t add column b int ==> database
    drop table t ==> database
    create trigger g before insert on t for each row execute function h() ==> database
    grant select on t to r ==> database
    revoke select on t from r ==> database
    grant r to q ==> cluster
    alter role r set datestyle = 'German' ==> cluster
    alter database d set datestyle = 'German' ==> cluster
    drop role r ==> cluster
    create index i on t (a) ==> nothing
    vacuum t ==> database
    begin; insert into t values (1); commit ==> rows t
    commit ==> nothing
    commit prepared 'x' ==> cluster
    set a = 1 ==> nothing
    listen c ==> nothing
    declare c cursor for select * from t ==> nothing
    selct 1 ==> database
    alter role r frobnicate ==> cluster
    selct 1; ( /* new */ grant r to q by a new way ==> cluster
    select from where a = '; grant r to q' ==> database
    select current_date ==> nothing fleeting
    select a from t where b < current_timestamp ==> nothing fleeting
    select user ==> nothing fleeting
    select a from t tablesample system (10) ==> nothing fleeting
    select a::timestamp from t ==> nothing fleeting
    select a::text, b::int, cast(c as numeric(10, 2)), d::varchar(3), e::double precision from t ==> nothing
    select a from t where b > '2020-01-01'::date and c < $1::timestamptz and d = timestamp '2020-01-01' ==> nothing
    select 't'::regclass ==> nothing fleeting
    select a::mine from t ==> nothing fleeting
    select 'x'::mine from t ==> nothing
    select xmlelement(name a) from t ==> nothing fleeting
    select a from t where xmax = '0' ==> nothing fleeting
    select u.ctid, (t).cmin from t, u ==> nothing fleeting
    select xmin, t.tableoid, a as xmax from t ==> nothing
";

#[test]
fn every_statement_of_the_table_changes_what_stands_beside_it() {
    let mut wrong = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.split_once(" ==> ").unwrap();
        let facts = weir_sql::facts(text.as_bytes());
        let names = facts.named.written.iter().map(|name| match name.schema.as_str() {
            "" => name.name.clone(),
            schema => format!("{schema}.{}", name.name),
        });
        let mut shown = match facts.changes {
            ChangeScope::Nothing => "nothing".to_owned(),
            ChangeScope::Rows => format!("rows {}", names.collect::<Vec<_>>().join(",")),
            ChangeScope::Database => "database".to_owned(),
            ChangeScope::Cluster => "cluster".to_owned(),
        };
        if facts.has(TextProperty::Fleeting) {
            shown.push_str(" fleeting");
        }
        if shown != expected {
            wrong.push(format!("{text} ==> {shown}"));
        }
    }
    assert!(wrong.is_empty(), "as it is:\n{}", wrong.join("\n"));
}
