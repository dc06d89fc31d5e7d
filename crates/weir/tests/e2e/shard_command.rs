//! `weir shard`: definitions of tables over three servers, made, shown, checked and taken out again.

use crate::support::ground::{Owned, cluster_with, wait_until};
use crate::support::proxy::{Backend, Folder, configuration};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use weir_demo::{Auth, Options, Server};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// The database of all tables here; the engine is `postgres_engine`.
const DATABASE: &str = "postgres";

/// Servers with nothing in common, each a shard.
pub(crate) struct Shards {
    clusters: Vec<Owned>,
    pub(crate) folder: Folder,
}

impl Shards {
    pub(crate) fn start() -> Shards {
        Shards::with(Auth::default())
    }

    pub(crate) fn with(auth: Auth) -> Shards {
        let extra = ("max_prepared_transactions".to_owned(), "10".to_owned());
        let one = || cluster_with(Options { extra_conf: vec![extra.clone()], auth: auth.clone(), ..Options::default() });
        let clusters: Vec<Owned> = (0..3).map(|_| one()).collect();
        let folder = Folder::new();
        let backends: Vec<Backend> = clusters.iter().map(|cluster| Backend::tcp(cluster.primary().port(), 1)).collect();
        let conf = configuration(&folder.0, 9999, &backends, "parallel_mode = on\nbackend_shard1 = 1\nbackend_shard2 = 2\n");
        fs::write(folder.0.join("pgpool.conf"), conf).unwrap();
        Shards { clusters, folder }
    }

    pub(crate) fn server(&self, shard: usize) -> &Server {
        self.clusters[shard].primary()
    }

    /// Runs a text on one shard.
    pub(crate) fn on(&self, shard: usize, text: &str) {
        self.server(shard).query(text).unwrap();
    }

    pub(crate) fn value(&self, shard: usize, text: &str) -> String {
        self.server(shard).value(text).unwrap()
    }

    pub(crate) fn engine(&self, text: &str) -> Vec<Vec<Option<String>>> {
        self.server(0).connect("postgres", "postgres_engine").unwrap().query(text).unwrap()
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut words = arguments.split(' ');
        let mut command = Command::new(WEIR);
        command.arg("shard").args(words.next()).arg("-f").arg(self.folder.0.join("pgpool.conf")).arg(DATABASE).args(words);
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> (bool, String) {
        said(&self.command(arguments).output().unwrap())
    }

    fn begin(&self, arguments: &str) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn done(&self, arguments: &str) -> String {
        let (success, text) = self.run(arguments);
        assert!(success, "{arguments}: {text}");
        text
    }

    pub(crate) fn check_refused(&self, arguments: &str, reason: &str) {
        let (success, text) = self.run(arguments);
        assert!(!success && text.contains(reason), "{arguments}: no \"{reason}\" in: {text}");
    }

    pub(crate) fn check_alike(&self) {
        let (success, text) = self.run("check");
        assert!(success && text.contains(": 0 differences"), "{text}");
    }
}

fn said(output: &Output) -> (bool, String) {
    let text = [&*output.stderr, &*output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    (output.status.success(), text)
}

/// Every shard is offered rows with these keys. Each key is taken by one.
pub(crate) fn check_one_takes(shards: &Shards, table: &str, column: &str, keys: &[&str]) {
    for key in keys {
        let takes = |shard: &usize| match shards.server(*shard).query(&format!("insert into {table} ({column}) values ({key})")) {
            Ok(_) => true,
            Err(error) => {
                assert!(format!("{error:#}").contains("weir_shard_key"), "{table} {key}: {error:#}");
                false
            }
        };
        let takers: Vec<usize> = (0..3).filter(takes).collect();
        assert_eq!(takers.len(), 1, "{table}, {column} = {key}: {takers:?}");
    }
}

#[test]
fn a_table_is_the_same_on_all_shards_and_each_row_has_one() {
    let shards = Shards::start();
    for shard in 0..3 {
        shards.on(shard, "create role app; create role \"Clerk's\"");
    }
    let define = "create schema \"S\" authorization app; \
        create table \"S\".countries (code char(2) primary key, name text not null); \
        insert into \"S\".countries select chr(65 + i / 26) || chr(65 + i % 26), e'tab\\tback\\\\' || i from generate_series(0, 99) i; \
        insert into \"S\".countries values ('ZZ', ''); \
        create table \"S\".\"it's\" (id bigint not null, number serial, own int generated always as identity (cache 2), \
            name varchar(20) collate \"C\" default 'it''s', country char(2) default 'AA' references \"S\".countries, \
            price numeric(10, 2) default 1 check (price > 0), twice numeric generated always as (price * 2) stored, \
            primary key (id), unique (name, id)) with (fillfactor = 70); \
        create index lower on \"S\".\"it's\" (lower(name)) where price > 5; \
        alter table \"S\".\"it's\" owner to app, replica identity full; \
        grant select (id), update on \"S\".\"it's\" to \"Clerk's\" with grant option; grant select on \"S\".\"it's\" to public; \
        comment on table \"S\".\"it's\" is 'the ''items'''; comment on column \"S\".\"it's\".id is '\"'; \
        create table \"S\".lines (item bigint references \"S\".\"it's\", no int default 1, primary key (item, no)); \
        select setval('\"S\".\"it''s_number_seq\"', 1000)";
    shards.on(0, define);
    shards.check_refused("table \"S\".\"it's\" --key id", "make that a reference table first");
    let said = shards.done("reference \"S\".countries");
    assert!(said.contains("101 rows on each of 3 shards"), "{said}");
    let said = shards.done("table \"S\".\"it's\" --key id");
    assert!(said.contains("until then its foreign key \"lines_item_fkey\" finds rows of shard 0 only"), "{said}");
    shards.check_refused("table \"S\".lines --key item --hash 2", "whose rows lie elsewhere");
    shards.done("table \"S\".lines --key item --with \"S\".\"it's\"");
    shards.check_alike();
    shards.check_refused("table \"S\".lines --key item --with \"S\".\"it's\"", "is sharded already");
    shards.check_refused("reference \"S\".countries", "is a reference table already");

    let keys: Vec<String> = (-20..40).map(|key| key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    check_one_takes(&shards, "\"S\".\"it's\"", "id", &keys);
    // No number was drawn twice, also by sessions that keep some, and the first is above what was drawn before.
    let numbers = |column: &str| -> Vec<i64> {
        let of_shard = |shard| shards.server(shard).query(&format!("select {column} from \"S\".\"it's\"")).unwrap();
        (0..3).flat_map(of_shard).map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect()
    };
    for (column, above) in [("number", 1000), ("own", 0)] {
        let drawn = numbers(column);
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{column}: {drawn:?}");
        assert!(drawn.iter().all(|number| *number > above), "{column}: {drawn:?}");
    }
    // Foreign keys hold where the rows lie.
    for shard in 0..3 {
        shards.on(shard, "insert into \"S\".lines select id from \"S\".\"it's\"");
        let lost = shards.server(shard).query("delete from \"S\".countries where code = 'AA'").unwrap_err();
        let lost = format!("{lost:#}");
        assert!(lost.contains("it's_country_fkey"), "{lost}");
        assert_eq!(shards.value(shard, "select name from \"S\".countries where code = 'AB'"), "tab\tback\\1");
    }
    let rights = "select has_column_privilege('Clerk''s', '\"S\".\"it''s\"', 'id', 'select with grant option') \
        and not has_table_privilege('Clerk''s', '\"S\".\"it''s\"', 'insert')";
    assert_eq!(shards.value(2, rights), "t");
    shards.check_refused("drop \"S\".lines", "has rows of");
}

#[test]
fn ranges_lists_and_more_partitions_than_shards_have_each_value_on_one_shard() {
    let shards = Shards::start();
    shards.on(
        0,
        "create table events (at timestamptz, note text); create table towns (name text collate \"C\"); \
         create table marks (id int); create table thirds (id uuid); create table names (name varchar(10) collate \"C\" not null)",
    );
    shards.done("table events --key at --range ..2020-01-01=0,2020-01-01..2021-01-01=2,2021-01-01..2022-01-01=0,default=1");
    shards.done("table towns --key name --list Bonn,it's=1;null=2;Rom=1;default=0");
    shards.done("table marks --key id --list 1,2=0;3=1;4=2");
    shards.done("table thirds --key id --hash 7");
    shards.done("table names --key name --hash 2");
    shards.check_alike();
    let times = ["'2019-05-05'", "'2020-01-01 00:00 UTC'", "'2020-12-31'", "'2021-07-01'", "'2022-01-01'", "'infinity'", "null"];
    check_one_takes(&shards, "events", "at", &times);
    check_one_takes(&shards, "towns", "name", &["'Bonn'", "'it''s'", "null", "'Rom'", "'x'", "''"]);
    check_one_takes(&shards, "marks", "id", &["1", "2", "3", "4"]);
    check_one_takes(&shards, "names", "name", &["'a'", "'b'", "'c'", "'d'", "''"]);
    let random: Vec<String> = (0..20).map(|at| format!("md5('{at}')::uuid")).collect();
    check_one_takes(&shards, "thirds", "id", &random.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(shards.value(2, "select count(*) from names"), "0", "a shard without partitions takes nothing");
    assert_eq!(
        shards.value(2, "select string_agg(at::text, ' ') from events where at < '2021-01-01'").matches("2020").count(),
        2
    );

    shards.on(1, "analyze towns");
    let shown = shards.done("show");
    for line in [
        "\"public\".\"towns\": sharded by \"name\", 4 partitions\n  FOR VALUES IN ('Bonn', 'it''s') on shard 1\n  FOR VALUES IN (NULL) on shard 2\n",
        "  FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2021-01-01 00:00:00+00') on shard 2\n",
        "  shard 1: about 3 rows\n",
        "\"public\".\"thirds\": sharded by \"id\", 7 partitions\n  FOR VALUES WITH (modulus 7, remainder 0) on shard 0\n",
    ] {
        assert!(shown.contains(line), "no \"{line}\" in:\n{shown}");
    }
    let rows = shards.engine(weir::control::shard_catalog::SHARDED_TABLES);
    let tables = weir::control::shard_catalog::tables(&rows);
    assert_eq!(tables.len(), 5);
    let row = rows.iter().find(|row| row[1].as_deref() == Some("towns")).unwrap();
    let cells: Vec<&str> = row[..10].iter().map(|cell| cell.as_deref().unwrap_or("-")).collect();
    assert_eq!(cells, ["public", "towns", "s", "name", "25", "t", "t", "[\"name\"]", "FOR VALUES IN ('Bonn', 'it''s')", "1"]);
}

#[test]
fn what_cannot_be_spread_is_refused_with_the_reason_and_leaves_nothing() {
    let shards = Shards::start();
    shards.on(
        0,
        "create table full_one (id int); insert into full_one values (1); create unlogged table unlogged (id int); \
         create table parted (id int) partition by hash (id); create view seen as select 1 as id; \
         create table base (id int); create table derived () inherits (base); \
         create table ruled (id int); create rule r as on insert to ruled do instead nothing; \
         create table guarded (id int); alter table guarded enable row level security; \
         create type mood as enum ('a'); create table typed (id int, m mood); create domain d as int; create table domained (id d); \
         create function f(int) returns int immutable language sql as 'select $1'; create table called (id int, check (f(id) > 0)); \
         create index on called (id); create table indexed (id int); create index on indexed (f(id)); \
         create table serial_key (id serial primary key); create table identity_key (id int generated always as identity); \
         create table generated_key (a int, id int generated always as (a + 1) stored); \
         create table other_unique (id int, name text unique); create table point_key (id point); \
         create sequence free; create table freely (id int, n int default nextval('free')); \
         create table excluded (id int, r int4range, exclude using gist (r with &&)); \
         create table loop (id int, n serial); alter sequence loop_n_seq cycle; \
         create table small (id int, n smallserial); select setval('small_n_seq', 32700); \
         create function t() returns trigger language plpgsql as 'begin return new; end'; create table triggered (id int); \
         create trigger tr before insert on triggered for each row execute function t(); \
         create table numbered (code int, n serial); create table target (id int primary key); create table pointing (id int references target); \
         create table fit (id int, at date); create table texts (name text collate \"C.utf8\")",
    );
    let before = shards.value(1, "select count(*) from pg_class");
    for (arguments, reason) in [
        ("table full_one --key id", "only empty tables can be spread for now"),
        ("table unlogged --key id", "it is unlogged"),
        ("table parted --key id", "a partitioned table of its own"),
        ("table seen --key id", "it is a view"),
        ("table base --key id", "it inherits columns or gives them on"),
        ("table derived --key id", "it inherits columns or gives them on"),
        ("table ruled --key id", "it has rules"),
        ("table guarded --key id", "it has row security"),
        ("table typed --key id", "it needs type public.mood"),
        ("table domained --key id", "it needs type public.d"),
        ("table called --key id", "it needs function public.f(integer)"),
        ("table indexed --key id", "it needs function public.f(integer)"),
        ("table serial_key --key id --range ..5=0,5..=1", "takes its value from a sequence, and these are spread by hash only"),
        (
            "table identity_key --key id --list 1=0;default=1",
            "takes its value from a sequence, and these are spread by hash only",
        ),
        ("table generated_key --key id", "its key \"id\" is generated"),
        ("table other_unique --key id", "its unique index \"other_unique_name_key\" does not hold the key"),
        ("table point_key --key id", "has no default operator class for access method \"hash\""),
        ("table freely --key id", "it needs sequence public.free"),
        ("table excluded --key id", "does not hold the key"),
        ("table loop --key id", "begins anew at its end"),
        ("table small --key id", "has no numbers left for all shards"),
        ("table triggered --key id", "--local-triggers"),
        ("table triggered --key id --local-triggers", "function public.t() does not exist"),
        ("table pointing --key id", "make that a reference table first"),
        ("table target --key id --with fit", "is not sharded"),
        ("reference numbered", "every shard would draw its own"),
        ("reference pointing", "which is no reference table"),
        ("reference seen", "it is a view"),
        ("table nowhere --key id", "has no table \"public\".\"nowhere\""),
        ("table fit --key nothing", "has no column \"nothing\""),
        ("table fit --key id --hash 0", "a table has 1 to 1024 partitions"),
        ("table fit --key id --range 1..2=0,1..9=1", "would overlap"),
        ("table fit --key id --range 1..2=3", "there is no shard 3"),
        ("table fit --key id --range a..=1", "invalid input syntax for type integer"),
        ("table fit --key at --list 2020-01-01=0;2020-01-01=1", "would overlap"),
        ("table fit --key id --hash 2 --list 1=0", "cannot be used with"),
        ("table a.b.c --key id", "is no name of a table"),
        ("table texts --key name --range a..b=0,b..=1", "ranges of texts need a key column with COLLATE \"C\""),
        ("drop fit", "neither sharded nor a reference table"),
    ] {
        shards.check_refused(arguments, reason);
    }
    assert_eq!(shards.value(1, "select count(*) from pg_class"), before, "something is left on shard 1");
    assert_eq!(shards.value(0, "select count(*) from pg_constraint where conname = 'weir_shard_key'"), "0");
    assert!(shards.engine(weir::control::shard_catalog::SHARDED_TABLES).is_empty());
    assert_eq!(shards.done("show"), "no table of database \"postgres\" is spread\n");
}

#[test]
fn a_run_that_was_interrupted_routes_nothing_and_the_next_one_goes_on() {
    let shards = Shards::start();
    shards.on(0, "create schema s; create table s.items (id int primary key, n serial); create table s.names (name text); insert into s.names values ('a')");
    for (victim, arguments) in [(2, "table s.items --key id"), (0, "table s.items --key id"), (2, "reference s.names")] {
        // The run waits on shard 2 for whoever makes a table of that name, after shard 1 has got its own.
        let mut blocker = shards.server(2).connect("postgres", DATABASE).unwrap();
        let name = arguments.split(' ').nth(1).unwrap();
        blocker.query(&format!("create schema if not exists s; begin; create table {name} (a int)")).unwrap();
        let run = shards.begin(arguments);
        let waits = "select count(*) from pg_stat_activity where application_name = 'weir_shard' and wait_event_type = 'Lock'";
        wait_until("the run to wait on shard 2", || shards.value(2, waits) == "1");
        assert_eq!(shards.value(1, &format!("select count(*) from pg_class where oid = to_regclass('{name}')")), "1");
        shards.server(victim).kill9().unwrap();
        let _ = blocker.query("rollback");
        let (success, text) = said(&run.wait_with_output().unwrap());
        assert!(!success && text.contains(&format!("shard {victim} (node {victim}")), "{text}");
        shards.server(victim).start().unwrap();
        assert!(
            shards
                .engine(weir::control::shard_catalog::SHARDED_TABLES)
                .iter()
                .all(|row| row[1].as_deref() != name.split('.').nth(1))
        );
    }
    let (_, text) = shards.run("check");
    assert!(text.contains("shard 1 (node 1") && text.contains("the engine does not know it"), "{text}");
    assert_eq!(
        shards.value(0, "select count(*) from pg_constraint where conname = 'weir_shard_key'"),
        "0",
        "shard 0 must go on as before"
    );
    shards.on(0, "insert into s.items (id) values (1), (2); delete from s.items");
    shards.done("table s.items --key id --range ..5=1,5..=2");
    shards.done("reference s.names");
    shards.check_alike();
    check_one_takes(&shards, "s.items", "id", &["1", "2", "5", "6"]);
    let last = "select min(n) from s.items";
    assert!(
        (1..3).all(|shard| shards.value(shard, last).parse::<i64>().unwrap() > 128),
        "numbers that shard 0 drew meanwhile are drawn again"
    );

    shards.on(0, "create table other (id int); create table full_one (id int)");
    shards.on(1, "create table other (id text); create table full_one (id int); insert into full_one values (1)");
    shards.check_refused("table other --key id", "has another table \"public\".\"other\": it has \"column 1: \"id\" text\"");
    shards.check_refused("table full_one --key id", "with rows, of which the engine knows nothing");
}

#[test]
fn differences_between_shards_are_named_and_a_definition_goes_only_without_rows() {
    let shards = Shards::start();
    shards.on(
        0,
        "create table items (id int not null, n serial); create table names (name text); insert into names values ('a'), ('b')",
    );
    shards.done("table items --key id");
    shards.done("reference names");
    shards.check_alike();
    let check = "check (satisfies_hash_partition('weir_shard.int4'::regclass, 3, 2, id))";
    for (shard, harm, mend, finding) in [
        (
            1,
            "alter table items add x int",
            "alter table items drop x",
            "\"public\".\"items\": shard 0 lacks \"column 3: \"x\" integer\"",
        ),
        (0, "alter table items alter id drop not null", "alter table items alter id set not null", "NOT NULL) in the engine"),
        (0, "create unique index u on items (n)", "drop index u", "its unique index \"u\" does not hold the key"),
        (2, "create index i on items (n)", "drop index i", "shard 0 lacks \"CREATE INDEX i ON public.items"),
        (2, "alter table items drop constraint weir_shard_key", "", "lacks the constraint weir_shard_key"),
        (2, "alter table items add constraint weir_shard_key check (true) not valid", "", "is not validated"),
        (
            2,
            "alter table items drop constraint weir_shard_key",
            &format!("alter table items add constraint weir_shard_key {check}"),
            "lacks the",
        ),
        (
            1,
            "alter table items alter n set default 7",
            "alter table items alter n set default nextval('items_n_seq')",
            "DEFAULT 7",
        ),
        (
            1,
            "alter sequence items_n_seq increment 1",
            "alter sequence items_n_seq increment 128",
            "draws numbers of other shards",
        ),
        (1, "alter sequence items_n_seq restart 1", "alter sequence items_n_seq restart 2", "draws numbers of other shards"),
        (
            2,
            "update names set name = 'c' where name = 'a'",
            "update names set name = 'a' where name = 'c'",
            "has other rows than on shard 0",
        ),
        (
            1,
            "insert into names values ('a')",
            "delete from names where ctid = (select max(ctid) from names)",
            "(3 here, 2 there)",
        ),
        (
            1,
            "create table stray (id int constraint weir_shard_key check (true))",
            "drop table stray",
            "the engine does not know it",
        ),
        (1, "alter table names rename to other", "alter table other rename to names", "there is no table \"public\".\"names\""),
        (2, "alter table items owner to pg_monitor", "alter table items owner to postgres", "owner \"pg_monitor\""),
    ] {
        shards.on(shard, harm);
        let (success, text) = shards.run("check");
        assert!(
            !success && text.lines().any(|line| line.starts_with(&format!("shard {shard} (")) && line.contains(finding)),
            "{harm}: {text}"
        );
        if !mend.is_empty() {
            shards.on(shard, mend);
        }
    }
    shards.check_alike();

    check_one_takes(&shards, "items", "id", &["1", "2", "3", "4", "5"]);
    shards.check_refused("drop items", "has rows of \"public\".\"items\"");
    shards.on(1, "truncate items");
    shards.on(2, "truncate items");
    shards.on(1, "insert into names values ('x')");
    shards.check_refused("drop names", "has other rows");
    shards.on(1, "delete from names where name = 'x'");
    shards.done("drop items");
    shards.done("drop names");
    assert_eq!(shards.done("show"), "no table of database \"postgres\" is spread\n");
    shards.check_alike();
    shards.on(0, "insert into items select generate_series(10, 20)");
    assert_eq!(shards.value(1, "select count(*) from pg_tables where schemaname = 'public'"), "0");
    assert_eq!(shards.value(0, "select count(*) from names"), "2");
}

#[test]
fn shards_that_are_not_alike_or_not_there_are_named() {
    let shards = Shards::start();
    shards.on(0, "create database latin encoding latin1 lc_collate 'C' lc_ctype 'C' template template0");
    shards.on(1, "create database latin encoding latin1 lc_collate 'C' lc_ctype 'C' template template0");
    shards.on(2, "create database latin encoding utf8 lc_collate 'C' lc_ctype 'C' template template0");
    shards.server(0).connect("postgres", "latin").unwrap().query("create table t (id text)").unwrap();
    let conf = shards.folder.0.join("pgpool.conf");
    let run = |arguments: &[&str]| said(&Command::new(WEIR).arg("shard").args(arguments).arg("-f").arg(&conf).output().unwrap());
    let (success, text) = run(&["table", "latin", "t", "--key", "id"]);
    assert!(
        !success && text.contains("shard 2 (node 2") && text.contains("the encoding is \"UTF8\", and \"LATIN1\" on shard 0"),
        "{text}"
    );
    let (success, text) = run(&["table", "postgres", "t", "--key", "id", "-U", "nobody"]);
    assert!(!success && text.contains("role \"nobody\" does not exist"), "{text}");
    shards.server(1).stop(weir_demo::Mode::Fast).unwrap();
    let (success, text) = run(&["show", "postgres"]);
    assert!(!success && text.contains("shard 1 (node 1") && text.contains("could not connect"), "{text}");
    let off = format!("{}\nparallel_mode = off\nbackend_shard1 = 0\nbackend_shard2 = 0\n", fs::read_to_string(&conf).unwrap());
    fs::write(&conf, off).unwrap();
    let (success, text) = run(&["show", "postgres"]);
    assert!(!success && text.contains("parallel_mode is off"), "{text}");
}
