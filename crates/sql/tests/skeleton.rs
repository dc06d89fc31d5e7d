//! Equal skeletons mean equal facts, whatever the literals are.
//!
//! Texts are templates with holes: `#` an integer, `~` a decimal, `?` a string; a hole is filled with what a seeded
//! generator draws from values that have gone wrong in other people's normalisers.

use weir_sql::facts;
use weir_sql::skeleton::skeleton;

const INTEGERS: [&str; 8] = ["0", "1", "-7", "42", "00012", "999999999", "2147483647", "0000000002147483647"];
const DECIMALS: [&str; 7] = ["1.5", ".5", "5.", "2147483648", "99999999999999999999", "000.000", "3000000000"];
const STRINGS: [&str; 14] = [
    "''",
    "'a'",
    "'it''s'",
    "''''",
    "'true'",
    "'off'",
    "'; set x = 1; --'",
    "'/* x'",
    "'$a$'",
    "'for update'",
    "'\"q'",
    "'größe'",
    "'1'",
    "'a\nb'",
];

/// Where a literal stands matters more than which it is: one line for each kind of place.
const TEMPLATES: [&str; 62] = [
    "select #",
    "select ?",
    "select ~, -#, +~",
    "select * from t where a = # and b = ? or c > ~",
    "select * from t where a in (#, #, #) and b not in (?, ?)",
    "select * from t where a between # and # and b like ? escape '!'",
    "select f(#, ?, ~), s.g(?) from t",
    "select set_config(?, ?, true)",
    "select set_config(?, ?, false)",
    "select set_config(?, ?, ?)",
    "select set_config(?, ?, #)",
    "select set_config(?, ?, #::bool)",
    "select pg_advisory_lock(#), pg_advisory_xact_lock(#, #)",
    "select nextval(?), currval(?::regclass)",
    "select a from t order by #, # limit # offset #",
    "select a from t group by # having count(*) > # limit ~",
    "select a from t fetch first # rows only",
    "select interval ? day, interval ?, interval(#) ?, date ?, int ?, t.u ?",
    "select ?::interval(#), ?::timestamp(#), ?::varchar(#), ?::char(#), ?::bit(#), #::numeric(#, #), #::numeric(~)",
    "select ?::char(~)",
    "select cast(? as time(#) with time zone), ?::text[#], ?::float, #::float8",
    "select ?::float(#)",
    "select ?::FLOAT ( ~)",
    "select current_timestamp(#), localtime(#)",
    "select ?\n?",
    "select ? ?",
    "select ? \t ? ?",
    "select a?",
    "select #?",
    "select ##",
    "select ?#",
    "select #~",
    "select # as a, ? as b, ~ c",
    "select a[#], b[#:#], (c)[#].d, array[#, ?], t.#, t.~",
    "select ?.a, (?).a, #.a",
    "select $1 = #, $2::text = ?, $1#, $#",
    "select a -> ?, b ->> #, c #> ?, d @> ?, e ### #",
    "select a - #, a-#, a -#, a - -#, a+-#, a*-~",
    "select extract(? from a), substring(a from # for #), trim(? from b), a at time zone ?, position(? in c)",
    "select case a when # then ? else ~ end",
    "select * from generate_series(#, #) g, f(?) h",
    "select * from t tablesample bernoulli (#) repeatable (#)",
    "select * from t where a similar to ? and b ~ ? and c ~* ?",
    "select sum(a) over (order by b rows between # preceding and # following) from t",
    "select * from json_table(?, ? columns (a int path ?, b text path ? default ? on empty))",
    "select json_value(a, ?), json_object(?: #), xmlelement(name a, ?), xmlroot(a, version ?)",
    "select * from xmltable(? passing a columns b int path ?)",
    "values (#, ?), (~, ?)",
    "insert into t values (#, ?, ~), (#, ?, default)",
    "insert into t (a, b[#]) values (#, ?) on conflict (a) do update set b = ? returning #",
    "update t set a = #, b = ? where c = ~ returning ?",
    "delete from t where a = ? or b = # returning *",
    "merge into t using u on t.a = # when matched and t.b = ? then update set c = # when not matched then insert values (?)",
    "with a as (select # as x, ? as y) select * from a where x = #",
    "with recursive a as (select #) cycle x set y to ? default ? using z select * from a",
    "with a as (insert into t values (?) returning *) select * from a for update",
    "select # into n from t where a = ?",
    "select ? into temp n",
    "select # from \"a ?\" where \"#\" = ?;",
    "select a uescape ?, \"b\"?, \"b\" ?",
    "select ? collate \"C\", row(#, ?), not #, # is null, ? is distinct from #",
    "select * from t where a = any (?) and b = all (array[#, #]) and (c, d) = (#, ?)",
];

/// A small generator (xorshift), so that a failure is a seed and not a story.
struct Dice(u64);

impl Dice {
    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        of[(self.0 % of.len() as u64) as usize]
    }

    fn fill(&mut self, template: &str) -> String {
        let mut text = String::new();
        for letter in template.chars() {
            match letter {
                '#' => text.push_str(self.pick(&INTEGERS)),
                '~' => text.push_str(self.pick(&DECIMALS)),
                '?' => text.push_str(self.pick(&STRINGS)),
                _ => text.push(letter),
            }
        }
        text
    }
}

fn check_pair(one: &str, other: &str, seed: u64) -> bool {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let both = skeleton(one.as_bytes(), &mut first) && skeleton(other.as_bytes(), &mut second);
    if !both || first != second {
        return false;
    }
    assert_eq!(facts(one.as_bytes()), facts(other.as_bytes()), "seed {seed}:\n{one}\n{other}");
    true
}

#[test]
fn equal_skeletons_have_equal_facts() {
    let (mut pairs, mut equal) = (0, 0);
    for seed in 1_000..1_400 {
        let mut dice = Dice(seed);
        for template in TEMPLATES {
            let (one, other) = (dice.fill(template), dice.fill(template));
            pairs += 1;
            equal += u32::from(check_pair(&one, &other, seed));
        }
    }
    assert!(equal > pairs / 2, "only {equal} of {pairs} pairs have one skeleton: the test has lost its subject");
}

#[test]
fn literals_of_one_class_have_one_skeleton() {
    assert!(check_pair("select * from t where a = 1 and b = 'x'", "select * from t where a = 77 and b = 'it''s'", 0));
    assert!(check_pair("insert into t values (1.5, '')", "insert into t values (99999999999, 'größe')", 0));
    assert!(!check_pair("select 1", "select '1'", 0));
    assert!(!check_pair("select 1", "select 1.0", 0));
    assert!(!check_pair("select 1", "select 2147483648", 0));
}

/// Texts whose literals decide about facts: none may have a skeleton.
#[test]
fn texts_whose_literals_mean_more_than_a_value_are_exact() {
    for text in [
        "set x = 'a'",
        "set local x = 1",
        "set transaction_isolation = 'serializable'",
        "set standard_conforming_strings = 'off'",
        "explain (analyze 0) delete from t",
        "explain (analyze 1) delete from t",
        "explain (analyze 'off') delete from t",
        "copy t to '/tmp/x'",
        "copy (select 1) to stdout (format 'csv')",
        "prepare p as select 1",
        "execute p(1)",
        "deallocate p",
        "prepare transaction 'x'",
        "notify c, 'x'",
        "load 'x'",
        "do 'begin end'",
        "declare c cursor for select 1",
        "fetch 5 from c",
        "savepoint a1",
        "show a",
        "listen a",
        "call p(1)",
        "create table t (a varchar(10))",
        "select 1; set x = 'a'",
        "begin; select 1",
    ] {
        let mut out = Vec::new();
        assert!(!skeleton(text.as_bytes(), &mut out), "{text}");
        assert_eq!(out, text.as_bytes());
    }
}
