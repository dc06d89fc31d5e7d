//! `docs/sharding.md` as a recipe, from its servers to its engine: the blocks and options of the page, as they stand. Only hosts, ports and addresses are
//! others. The reader's are the tables, the password of the engine's role, and the superuser `postgres` whom Weir logs in as.

use crate::pages::page::{Page, with};
use crate::support::ground::{Owned, cluster_with};
use crate::support::{Proxy, Raw, wait_until};
use std::path::Path;
use std::process::Command;
use weir_demo::{Auth, Options, Server};

const SHARDS: usize = 3;
const PASSWORD: &str = "its own";
const HERE: &str = "127.0.0.1/32";
/// Ways of the role of the engine that no line of the page names.
const SHUT: [&str; 2] = ["local all weir_engine reject", "host all weir_engine all reject"];

/// Servers with the lines of the page in `pg_hba.conf`, and the page's configuration before them.
struct Recipe {
    page: Page,
    clusters: Vec<Owned>,
    proxy: Proxy,
}

/// The lines for shard 0, and for the others.
fn hba_lines(page: &Page, shard: usize) -> Vec<String> {
    let block = with(&page.block("Make the engine ready", ""), &[("192.0.2.10/32", HERE)]);
    let kind = if shard == 0 { "local" } else { "host" };
    let own: Vec<String> = block.lines().filter(|line| line.starts_with(kind)).map(str::to_owned).collect();
    assert_eq!((own.len(), block.lines().count()), (1, 2), "{block}");
    own.into_iter().chain(SHUT.map(str::to_owned)).collect()
}

impl Recipe {
    fn begin() -> Recipe {
        let page = Page::read("sharding.md");
        let prepared = ("max_prepared_transactions".to_owned(), "100".to_owned());
        page.says("set `max_prepared_transactions`");
        let one = |shard| {
            let auth = Auth { hba_lines: hba_lines(&page, shard), ..Auth::default() };
            cluster_with(Options { extra_conf: vec![prepared.clone()], auth, ..Options::default() })
        };
        let clusters: Vec<Owned> = (0..SHARDS).map(one).collect();
        let mut conf = page.block("Servers", "");
        for (shard, cluster) in clusters.iter().enumerate() {
            cluster.primary().query("create database shop").unwrap();
            conf = with(&conf, &[(&format!("'db{shard}'"), "'127.0.0.1'")]);
            conf += &format!("backend_port{shard} = {}\n", cluster.primary().port());
        }
        let proxy = Proxy::spawn_with_files(&[], &conf, &[("pool_passwd", &format!("weir_engine:{PASSWORD}\n"))], &[]);
        proxy.wait_accepting();
        Recipe { page, clusters, proxy }
    }

    fn server(&self, shard: usize) -> &Server {
        self.clusters[shard].primary()
    }

    fn on(&self, shard: usize, text: &str) -> Vec<Vec<Option<String>>> {
        let mut sql = self.server(shard).connect("postgres", "shop").unwrap();
        sql.query(text).unwrap_or_else(|error| panic!("{text}: {error:#}"))
    }

    /// Runs a command of the page in the folder of the configuration.
    fn run(&self, command: &str) -> String {
        let folder = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-euc", command]).env("PATH", path).current_dir(self.proxy.folder());
        let output = shell.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{command}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn run_block(&self, heading: &str) -> String {
        self.run(&self.page.block(heading, "sh"))
    }

    /// Runs a command that stands in a line of the page; `-f` is said once for all of them.
    fn run_in_line(&self, command: &str) -> String {
        self.page.says(&format!("`{command}`"));
        self.run(&format!("{command} -f pgpool.conf"))
    }

    fn client(&self) -> Raw {
        Raw::tcp(self.proxy.port()).log_in("postgres", "shop", &[]).unwrap()
    }

    /// Waits until Weir says `ready` of so many tables.
    fn wait_ready(&self, count: usize) {
        let mut seen = Vec::new();
        wait_until("all tables to be ready", || {
            seen = self.client().rows("SHOW pool_shard_tables");
            seen.len() == count && seen.iter().all(|table| table.last().is_some_and(|engine| engine == "ready"))
        });
    }
}

#[test]
fn tables_are_spread_and_the_engine_made_ready_as_the_page_says() {
    let recipe = Recipe::begin();
    recipe.on(
        0,
        "create table orders (id int not null, customer int not null, country text default 'de', primary key (customer, id)); \
         create table countries (code text primary key, name text); insert into countries values ('de', 'Germany'), ('jp', 'Japan')",
    );
    recipe.run_block("A sharded table");
    recipe.run_block("A reference table");
    let role = with(&recipe.page.block("Make the engine ready", "sql"), &[("…", PASSWORD)]);
    for shard in 0..SHARDS {
        recipe.on(shard, &role);
    }
    let said = recipe.run_block("Make the engine ready");
    assert!(said.contains("ready: 2 tables on 3 shards"), "{said}");
    recipe.wait_ready(2);

    let mut client = recipe.client();
    for customer in 1..=30 {
        client.query(&format!("insert into orders values ({customer} * 10, {customer})"));
    }
    assert_eq!(client.rows("select count(*), sum(id) from orders"), [["30", "4650"]]);
    let named = "select name, count(*) from orders join countries on code = country group by name";
    assert_eq!(client.rows(named), [["Germany", "30"]]);
    let counts: Vec<u32> = (0..SHARDS)
        .map(|shard| recipe.on(shard, "select count(*) from orders")[0][0].as_deref().unwrap().parse().unwrap())
        .collect();
    assert!(counts.iter().all(|count| (1..30).contains(count)) && counts.iter().sum::<u32>() == 30, "{counts:?}");
    let shown = recipe.run_in_line("weir shard show shop");
    assert!(shown.contains("orders") && shown.contains("countries"), "{shown}");
    let checked = recipe.run_in_line("weir shard check shop");
    assert!(checked.contains("2 tables checked on 3 shards: 0 differences"), "{checked}");
}

#[test]
fn each_choice_of_partitions_on_the_page_spreads_a_table() {
    let recipe = Recipe::begin();
    recipe.on(
        0,
        "create table customers (customer int); create table orders (customer int); create table twelve (customer int); \
         create table spans (customer int); create table words (customer text)",
    );
    let command = recipe.page.block("A sharded table", "sh");
    let of = |table: &str, option: &str| {
        if !option.is_empty() {
            recipe.page.says(&format!("`{option}`"));
        }
        let command =
            if table == "orders" { command.clone() } else { with(&command, &[("public.orders", &format!("public.{table}"))]) };
        recipe.run(&with(&command, &[(" -f ", &format!(" {option} -f "))]));
    };
    for (table, option) in [
        ("customers", ""),
        ("orders", "--with public.customers"),
        ("twelve", "--hash 12"),
        ("spans", "--range '..1000=0,1000..2000=1,default=2'"),
        ("words", "--list 'de,at=0;fr=1;null=1;default=2'"),
    ] {
        of(table, option);
    }
    for (table, key, shard) in
        [("spans", "999", 0), ("spans", "1000", 1), ("spans", "2000", 2), ("words", "'at'", 0), ("words", "null", 1)]
    {
        recipe.on(shard, &format!("insert into {table} values ({key})"));
    }
    let partitions = |table: &str| {
        let mut engine = recipe.server(0).connect("postgres", "shop_engine").unwrap();
        engine
            .query(&format!("select count(*) from pg_inherits where inhparent = '{table}'::regclass"))
            .unwrap()
            .remove(0)
            .remove(0)
    };
    assert_eq!(["customers", "orders", "twelve"].map(partitions), ["3", "3", "12"].map(|count| Some(count.to_owned())));
    recipe.on(0, "delete from spans; delete from words");
    recipe.run_in_line("weir shard drop shop public.orders");
    recipe.on(0, "insert into orders select generate_series(1, 10)");
}
