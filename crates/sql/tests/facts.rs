//! The table of statements and their facts: `tests/facts.txt`.
//!
//! A line is `statement ==> facts`, where the facts that are empty are left out: the effect; `n=` statements if not one;
//! `tx=` the transaction verb; `keeps=`, `frees=`, `later=`, `prepared`, `resets=`, `defaults`, `vacates=`, `unseats=`, `sets=`, `sets_local=`, `session=`, `savepoint=`, `show=`; `locks`, `defines`, `explain`, `comment`; `hint=`; `fn=`, `rel=`, `op=`, `cast=` names by commas.

use weir_sql::facts::{
    AccessMode, BeginOptions, IsolationLevel, QualifiedName, QueryEffect, QueryFacts, ResetTarget, RoutingHint, SessionVerb,
    StatementVerb, TextProperty, TransactionVerb,
};

#[test]
fn every_statement_of_the_table_has_the_facts_beside_it() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("facts.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (text, expected) = line.split_once(" ==> ").expect("a line is `statement ==> facts`");
        let actual = shown(&weir_sql::facts(text.replace("\\n", "\n").as_bytes()));
        if actual != expected {
            wrong.push(format!("{text} ==> {actual}"));
        }
        count += 1;
    }
    assert!(count >= 250, "{count} lines");
    assert!(wrong.is_empty(), "{} lines are, as it is:\n{}", wrong.len(), wrong.join("\n"));
}

fn shown(facts: &QueryFacts) -> String {
    let mut words = vec![format!("{:?}", facts.effect).to_lowercase()];
    if facts.statements != 1 {
        words.push(format!("n={}", facts.statements));
    }
    match facts.transaction {
        TransactionVerb::None => {}
        TransactionVerb::Begin(begin) => words.push(format!("tx=begin{}", shown_begin(begin))),
        other => words.push(format!("tx={other:?}").to_lowercase()),
    }
    for (label, leaves) in [("keeps", facts.state.keeps), ("frees", facts.state.frees), ("later", facts.state.later)] {
        if !leaves.is_empty() {
            words.push(format!("{label}={leaves:?}").to_lowercase());
        }
    }
    words.extend(facts.has(TextProperty::Prepared).then(|| "prepared".to_owned()));
    words.extend(facts.parameters.resets.iter().map(|reset| match reset {
        ResetTarget::All => "resets=all".to_owned(),
        ResetTarget::Many => "resets=many".to_owned(),
        ResetTarget::Name(name) => format!("resets={name}"),
    }));
    words.extend(facts.has(TextProperty::AltersDefaults).then(|| "defaults".to_owned()));
    words.extend((!facts.vacates.is_empty()).then(|| format!("vacates={}", facts.vacates.join(","))));
    words.extend((!facts.unseats.is_empty()).then(|| format!("unseats={}", facts.unseats.join(","))));
    words.extend(facts.parameters.sets.iter().map(|(name, value)| format!("sets={name}:{value}")));
    words.extend(facts.parameters.sets_local.iter().map(|(name, value)| format!("sets_local={name}:{value}")));
    match &facts.session {
        SessionVerb::None => {}
        SessionVerb::Deallocate(name) => words.push(format!("session=deallocate({name})")),
        other => words.push(format!("session={other:?}").to_lowercase()),
    }
    words.extend(facts.savepoint.iter().map(|command| format!("savepoint={:?}({})", command.verb, command.name).to_lowercase()));
    words.extend(facts.show.iter().map(|name| format!("show={name}")));
    // A text that was not looked at may always do these.
    words.extend(facts.has(TextProperty::MakesBrief).then(|| "makes_brief".to_owned()));
    words.extend((facts.has(TextProperty::Moves) && facts.effect != QueryEffect::Refused).then(|| "moves".to_owned()));
    words.extend(facts.has(TextProperty::LocksRows).then(|| "locks".to_owned()));
    words.extend(facts.has(TextProperty::Defines).then(|| "defines".to_owned()));
    words.extend(facts.has(TextProperty::Explains).then(|| "explain".to_owned()));
    words.extend(facts.has(TextProperty::Commented).then(|| "comment".to_owned()));
    words.extend((facts.hint != RoutingHint::None).then(|| format!("hint={:?}", facts.hint).to_lowercase()));
    for (label, names) in [
        ("fn", &facts.named.functions),
        ("rel", &facts.named.relations),
        ("op", &facts.named.operators),
        ("cast", &facts.named.casts),
    ] {
        if !names.is_empty() {
            words.push(format!("{label}={}", names.iter().map(shown_name).collect::<Vec<_>>().join(",")));
        }
    }
    words.join(" ")
}

fn shown_begin(begin: BeginOptions) -> String {
    let mut words = Vec::new();
    words.extend(begin.starts.then(|| "start".to_owned()));
    words.extend((begin.access == AccessMode::ReadOnly).then(|| "read_only".to_owned()));
    words.extend((begin.access == AccessMode::ReadWrite).then(|| "read_write".to_owned()));
    words.extend(begin.deferrable.then(|| "deferrable".to_owned()));
    if begin.isolation != IsolationLevel::Unset {
        words.push(format!("{:?}", begin.isolation).to_lowercase());
    }
    if words.is_empty() { String::new() } else { format!("({})", words.join(",")) }
}

fn shown_name(name: &QualifiedName) -> String {
    if name.schema.is_empty() { name.name.clone() } else { format!("{}.{}", name.schema, name.name) }
}

#[test]
fn statements_are_of_the_kind_that_is_counted() {
    for (texts, verb) in [
        (
            &["select 1", "values (1)", "table t", "with w as (delete from t returning a) select 1", "select 1 into n"][..],
            StatementVerb::Select,
        ),
        (&["insert into t values (1)", "with c as (select 1) insert into t select * from c"], StatementVerb::Insert),
        (&["update t set a = 1"], StatementVerb::Update),
        (&["/* x */ delete from t", "delete from t; select 1"], StatementVerb::Delete),
        (
            &[
                "create table t (a int)",
                "alter table t add b int",
                "drop view v",
                "grant select on t to public",
                "create index on t (a)",
            ],
            StatementVerb::Definition,
        ),
        (
            &[
                "begin",
                "set a = 1",
                "copy t from stdin",
                "truncate t",
                "vacuum",
                "explain select 1",
                "merge into t using u on true when matched then delete",
            ],
            StatementVerb::Other,
        ),
        (&["selec", "", "call p()", "notify x", "checkpoint", "lock t"], StatementVerb::Other),
    ] {
        for text in texts {
            assert_eq!(weir_sql::facts(text.as_bytes()).verb, verb, "{text}");
        }
    }
}

#[test]
fn what_an_execute_with_constants_runs_is_told() {
    for (text, expected) in [
        ("execute p", Some("p")),
        ("EXECUTE \"P q\" (1, 'x', null, true, -2.5, B'1')", Some("P q")),
        ("execute p (1 + 1)", None),
        ("execute p ('1'::int)", None),
        ("execute p (f())", None),
        ("execute p (array[1])", None),
        ("execute p; execute p", None),
        ("select 1; execute p", None),
        ("explain execute p", None),
        ("create table t as execute p", None),
        ("select 1", None),
    ] {
        assert_eq!(weir_sql::facts(text.as_bytes()).runs.as_deref(), expected, "{text}");
    }
}
