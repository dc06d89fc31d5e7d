//! Tables of a run: which are spread, if their rows are those of the server with all rows, and how they become that again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Placing;
use super::client::Client;
use super::stage::{DATABASE, SHARDS, Stage};
use super::tokens;

/// Weir notices a change within a second.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);
/// A look that began before the change does not know it.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Tables that scripts make: number, schema, name, why they cannot be spread, and their key, if they can.
const ORDINARY: &str = "SELECT c.oid, n.nspname, c.relname,
    CASE WHEN c.relispartition THEN 'it is a partition' WHEN c.relhassubclass THEN 'it is inherited'
         WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid) THEN 'it inherits'
         WHEN c.relhasrules THEN 'it has rules' WHEN c.relrowsecurity THEN 'it has row security'
         WHEN c.relpersistence <> 'p' THEN 'it is temporary or unlogged' WHEN c.reloftype <> 0 THEN 'it is of a type'
         WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) THEN 'it has triggers' ELSE '' END,
    (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
     ORDER BY attnum = (SELECT indkey[0] FROM pg_index WHERE indrelid = c.oid AND indisunique ORDER BY indisprimary DESC, indexrelid LIMIT 1)
     DESC NULLS LAST, attnum LIMIT 1)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT IN ('information_schema', 'weir_shard') AND c.relname <> 'spread_first' ORDER BY c.oid";

/// Foreign keys: schema and name of the table that has one, and of the table to which it leads.
const FOREIGN_KEYS: &str = "SELECT n.nspname, c.relname, m.nspname, d.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class d ON d.oid = k.confrelid JOIN pg_namespace m ON m.oid = d.relnamespace WHERE k.contype = 'f'";

/// A table's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub schema: String,
    pub table: String,
}

impl Name {
    fn quoted(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }

    fn literal(&self) -> String {
        format!("'{}'::regclass", self.quoted().replace('\'', "''"))
    }
}

/// How a table lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lying {
    Sharded,
    Reference,
    /// On shard 0, for this reason.
    Plain(String),
}

struct Known {
    oid: String,
    lying: Lying,
}

/// The tables, and connections to all servers past Weir.
pub struct Tables<'s> {
    stage: &'s Stage,
    placing: Placing,
    shards: Vec<Client>,
    whole: Client,
    /// Asks Weir what it knows.
    asker: Client,
    known: BTreeMap<Name, Known>,
    /// Tables that were spread so far.
    count: usize,
    pub counts: SpreadCounts,
}

/// How many tables were spread.
#[derive(Debug, Default)]
pub struct SpreadCounts {
    sharded: usize,
    reference: usize,
    /// Reasons for which tables stayed on shard 0, with how often.
    plain: BTreeMap<String, usize>,
}

impl SpreadCounts {
    fn count(&mut self, lying: &Lying) {
        match lying {
            Lying::Sharded => self.sharded += 1,
            Lying::Reference => self.reference += 1,
            Lying::Plain(why) => *self.plain.entry(why.clone()).or_default() += 1,
        }
    }

    pub fn add(&mut self, other: &SpreadCounts) {
        self.sharded += other.sharded;
        self.reference += other.reference;
        other.plain.iter().for_each(|(why, count)| *self.plain.entry(why.clone()).or_default() += count);
    }

    /// In lines.
    pub fn shown(&self) -> String {
        let mut text = format!("tables: {} sharded, {} reference\n", self.sharded, self.reference);
        self.plain.iter().for_each(|(why, count)| {
            let _ = writeln!(text, "{count:6} on shard 0 only: {why}");
        });
        text
    }
}

impl<'s> Tables<'s> {
    pub fn new(stage: &'s Stage, placing: Placing) -> Result<Tables<'s>> {
        let (shards, whole) = stage.own()?;
        let asker = stage.weir("postgres", NOTICE_LIMIT)?;
        Ok(Tables { stage, placing, shards, whole, asker, known: BTreeMap::new(), count: 0, counts: SpreadCounts::default() })
    }

    /// Spreads all tables that are new.
    pub fn discover(&mut self) -> Result<()> {
        let rows = self.shards[0].rows(ORDINARY)?;
        let cell = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        let found: Vec<(Name, String, String, String)> = rows
            .iter()
            .map(|row| (Name { schema: cell(row, 1), table: cell(row, 2) }, cell(row, 0), cell(row, 3), cell(row, 4)))
            .collect();
        let here: BTreeSet<&Name> = found.iter().map(|(name, ..)| name).collect();
        self.known.retain(|name, _| here.contains(name));
        for (name, oid, why, key) in found {
            if self.known.get(&name).is_some_and(|known| known.oid == oid) {
                continue;
            }
            let lying = if !why.is_empty() || key.is_empty() {
                Lying::Plain(if why.is_empty() { "it has no column".to_owned() } else { why })
            } else {
                self.spread(&name, &key)?
            };
            self.counts.count(&lying);
            self.known.insert(name, Known { oid, lying });
        }
        self.gather_referenced()
    }

    /// A foreign key of a table that stays on shard 0 would miss rows elsewhere: as `weir shard table` says, its table must be there, too.
    fn gather_referenced(&mut self) -> Result<()> {
        loop {
            let keys = self.shards[0].rows(FOREIGN_KEYS)?;
            let cell = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
            let name = |row: &[Option<String>], at: usize| Name { schema: cell(row, at), table: cell(row, at + 1) };
            let is_torn =
                |(from, to): &(Name, Name)| self.known.contains_key(from) && !self.is_spread(from) && self.is_spread(to);
            let Some((_, to)) = keys.iter().map(|row| (name(row, 0), name(row, 2))).find(is_torn) else { return Ok(()) };
            let oid = self.known.get(&to).map(|known| known.oid.clone()).unwrap_or_default();
            if !self.gather(&BTreeSet::from([to.clone()]))? {
                return Ok(());
            }
            let lying = Lying::Plain("a table on shard 0 refers to it".to_owned());
            self.counts.count(&lying);
            self.known.insert(to, Known { oid, lying });
        }
    }

    /// Spreads a table by the product's own command, with the rows of the server that has all.
    fn spread(&mut self, name: &Name, key: &str) -> Result<Lying> {
        let exists = self.whole.value(&format!("SELECT to_regclass('{}')", name.quoted().replace('\'', "''")))?;
        if exists.is_empty() {
            return Ok(Lying::Plain("the other side lacks it".to_owned()));
        }
        let has_rows = !self.shards[0].rows(&format!("SELECT FROM ONLY {} LIMIT 1", name.quoted()))?.is_empty();
        if has_rows {
            self.empty(name, 1)?;
        }
        let (quoted, key) = (name.quoted(), format!("\"{}\"", key.replace('"', "\"\"")));
        let node = self.count % SHARDS;
        // A list of more than the default is wanted: NULL lies beside.
        let list = format!("null={};default={node}", (node + 1) % SHARDS);
        let mut order = vec!["table", DATABASE, &quoted, "--key", &key];
        match self.placing {
            Placing::Key => {}
            Placing::Node => order.extend(["--list", &list]),
        }
        let lying = match self.stage.command(&order) {
            Ok(()) => Lying::Sharded,
            Err(error) if self.placing == Placing::Key => self.copy_everywhere(name, error.to_string()),
            Err(error) => Lying::Plain(reason(&error.to_string())),
        };
        if lying == Lying::Sharded || lying == Lying::Reference {
            self.count += 1;
            self.wait_until_known(name, true)?;
        }
        if has_rows {
            self.fill_or_empty(name, &lying)?;
        }
        Ok(lying)
    }

    /// A table that no key fits becomes a reference table, if it can.
    fn copy_everywhere(&self, name: &Name, why: String) -> Lying {
        match self.stage.command(&["reference", DATABASE, &name.quoted()]) {
            Ok(()) => Lying::Reference,
            Err(_) => Lying::Plain(reason(&why)),
        }
    }

    /// Takes tables out of the definitions, with all rows on shard 0, until they are discovered again. Returns false if one stays spread, as
    /// something on another shard depends on it.
    pub fn gather(&mut self, names: &BTreeSet<Name>) -> Result<bool> {
        for name in names {
            if !self.is_spread(name) {
                continue;
            }
            self.empty(name, SHARDS)?;
            if self.stage.command(&["drop", DATABASE, &name.quoted()]).is_err() {
                self.repair(name)?;
                return Ok(false);
            }
            self.known.remove(name);
            self.wait_until_known(name, false)?;
            self.fill_or_empty(name, &Lying::Plain(String::new()))?;
        }
        Ok(true)
    }

    pub fn is_spread(&self, name: &Name) -> bool {
        self.known.get(name).is_some_and(|known| matches!(known.lying, Lying::Sharded | Lying::Reference))
    }

    /// Spread tables of a schema.
    pub fn of_schema(&self, schema: &str) -> BTreeSet<Name> {
        self.known.keys().filter(|name| name.schema == schema && self.is_spread(name)).cloned().collect()
    }

    /// Tables whose names stand in a text, also in the strings of it, which may be code.
    pub fn named_in(&self, text: &str) -> BTreeSet<Name> {
        let mut words: BTreeSet<String> = tokens::all(text).iter().filter_map(tokens::Token::name).collect();
        let ends = |letter: char| !(letter.is_alphanumeric() || letter == '_');
        words.extend(text.split(ends).map(str::to_lowercase));
        self.known.keys().filter(|name| words.contains(&name.table)).cloned().collect()
    }

    /// All tables.
    pub fn names(&self) -> BTreeSet<Name> {
        self.known.keys().cloned().collect()
    }

    /// Weir looks at once after a defining statement. A look costs more than a question.
    fn wait_until_known(&mut self, name: &Name, is_wanted: bool) -> Result<()> {
        let until = Instant::now() + NOTICE_LIMIT;
        let (mut said, mut look_at) = (String::new(), Instant::now());
        while Instant::now() < until {
            if Instant::now() >= look_at {
                self.asker.ask("CREATE SCHEMA IF NOT EXISTS public", &[]).context("Weir")?;
                look_at = Instant::now() + LOOK_AGAIN;
            }
            let rows = self.asker.rows("SHOW pool_shard_tables")?;
            let cell = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
            let row = rows.iter().find(|row| cell(row, 0) == name.schema && cell(row, 1) == name.table);
            said = row.map(|row| cell(row, 6) + &cell(row, 7)).unwrap_or_default();
            let is_known = said == "ready" || said.starts_with("not used");
            if is_known == is_wanted && (is_wanted || row.is_none()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_wanted && !said.is_empty() {
            // The table can be used by its key, and the engine not.
            return Ok(());
        }
        bail!("Weir does not notice that {} is spread or not: {said}", name.quoted())
    }

    /// Tables of which the shards together do not have the rows of the server that has all.
    pub fn unequal(&mut self, names: &BTreeSet<Name>) -> Result<Vec<Name>> {
        let names: Vec<&Name> = names.iter().filter(|name| self.known.contains_key(name)).collect();
        let whole = all_sums(&mut self.whole, &names)?;
        // A table that the other side lacks has no rows to compare.
        let names: Vec<&Name> = names.into_iter().filter(|name| whole.contains_key(name)).collect();
        let is_plain = |name: &&Name| self.known.get(name).is_some_and(|known| matches!(known.lying, Lying::Plain(_)));
        let spread: Vec<&Name> = names.iter().copied().filter(|name| !is_plain(name)).collect();
        let mut parts = Vec::new();
        for (at, shard) in self.shards.iter_mut().enumerate() {
            parts.push(all_sums(shard, if at == 0 { &names } else { &spread })?);
        }
        let is_equal = |name: &Name| {
            let Some(lying) = self.known.get(name).map(|known| &known.lying) else { return true };
            let wanted = whole.get(name);
            let of_shards = || parts.iter().map(|part| part.get(name));
            match lying {
                Lying::Plain(_) => parts[0].get(name) == wanted,
                Lying::Reference => of_shards().all(|part| part == wanted),
                Lying::Sharded => {
                    let sum = of_shards().try_fold((0, 0), |sum, part| part.map(|part| (sum.0 + part.0, sum.1 + part.1)));
                    sum.as_ref() == wanted
                }
            }
        };
        Ok(names.into_iter().filter(|name| !is_equal(name)).cloned().collect())
    }

    /// True if rows get numbers or times that each server gives by itself.
    pub fn has_own_values(&mut self, name: &Name) -> bool {
        let text = format!(
            "SELECT EXISTS (SELECT FROM pg_attrdef WHERE adrelid = {0} AND pg_get_expr(adbin, adrelid) ~* \
             'nextval|now|current_|localtime|clock|random') OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = {0} AND attidentity <> '')",
            name.literal()
        );
        self.whole.value(&text).is_ok_and(|is| is == "t")
    }

    /// Gives the shards the rows of the server that has all.
    pub fn repair(&mut self, name: &Name) -> Result<()> {
        let Some(known) = self.known.get(name) else { return Ok(()) };
        let lying = known.lying.clone();
        let servers = if matches!(lying, Lying::Plain(_)) { 1 } else { SHARDS };
        self.empty(name, servers)?;
        self.fill_or_empty(name, &lying)
    }

    /// Rows that a server does not take again, as those of a constraint that is not valid, are lost on both sides.
    fn fill_or_empty(&mut self, name: &Name, lying: &Lying) -> Result<()> {
        if self.fill(name, lying).is_ok() {
            return Ok(());
        }
        let servers = if matches!(lying, Lying::Plain(_)) { 1 } else { SHARDS };
        self.empty(name, servers)?;
        let text = format!("BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM ONLY {}; COMMIT", name.quoted());
        self.whole.rows(&text).map(drop)
    }

    /// Carries out on the other shards what an operator makes everywhere. Objects that are there already do no harm.
    pub fn mirror(&mut self, text: &str) {
        for shard in &mut self.shards[1..] {
            let _ = shard.ask(text, &[]);
        }
    }

    fn empty(&mut self, name: &Name, servers: usize) -> Result<()> {
        let text = format!("BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM ONLY {}; COMMIT", name.quoted());
        self.shards[..servers].iter_mut().try_for_each(|shard| shard.rows(&text).map(drop))
    }

    fn fill(&mut self, name: &Name, lying: &Lying) -> Result<()> {
        let quoted = name.quoted();
        let columns = self.whole.value(&format!(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = {} AND attnum > 0 \
             AND NOT attisdropped AND attgenerated = ''",
            name.literal()
        ))?;
        let answer = self.whole.ask(&format!("COPY (SELECT {columns} FROM ONLY {quoted}) TO STDOUT"), &[])?.answer;
        let data: Vec<u8> = answer.parts.into_iter().flat_map(|part| part.copied).collect();
        let (servers, condition) = match lying {
            Lying::Sharded => (SHARDS, true),
            Lying::Reference => (SHARDS, false),
            Lying::Plain(_) => (1, false),
        };
        for shard in &mut self.shards[..servers] {
            let condition = if condition { key_check(shard, name)? } else { "true".to_owned() };
            shard.rows("BEGIN; SET LOCAL session_replication_role = replica")?;
            shard.rows(&format!("CREATE TEMP TABLE weir_rows (LIKE {quoted}) ON COMMIT DROP"))?;
            let copied = shard.ask(&format!("COPY weir_rows ({columns}) FROM STDIN"), &data)?.answer;
            if let Some(failure) = copied.failure {
                shard.ask("ROLLBACK", &[])?;
                bail!("rows of {quoted}: {failure:?}");
            }
            let filled = shard.rows(&format!(
                "INSERT INTO {quoted} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM weir_rows WHERE {condition}; COMMIT"
            ));
            if let Err(error) = filled {
                shard.ask("ROLLBACK", &[])?;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Number and sum of hashes of a table's rows.
type Sums = (i128, i128);

/// Of all tables that the server has, by one question if it has all of them. The schemas of rows differ, so that each row counts as text.
fn all_sums(server: &mut Client, names: &[&Name]) -> Result<BTreeMap<Name, Sums>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let part = |(at, name): (usize, &&Name)| {
        let quoted = name.quoted();
        format!("SELECT {at}, count(*), coalesce(sum(hashtextextended(whole_row::text, 0)), 0) FROM ONLY {quoted} whole_row")
    };
    let text = names.iter().enumerate().map(part).collect::<Vec<_>>().join(" UNION ALL ");
    let answer = server.ask(&text, &[])?.answer;
    if answer.failure.is_some() {
        let [_] = names else {
            let (one, other) = names.split_at(names.len() / 2);
            let mut all = all_sums(server, one)?;
            all.extend(all_sums(server, other)?);
            return Ok(all);
        };
        return Ok(BTreeMap::new());
    }
    let rows = answer.parts.into_iter().flat_map(|part| part.rows);
    rows.map(|row| {
        let number = |at: usize| row.get(at).cloned().flatten().and_then(|cell| cell.parse::<i128>().ok()).context("no number");
        let at = usize::try_from(number(0)?).context("no place")?;
        Ok(((*names.get(at).context("no table")?).clone(), (number(1)?, number(2)?)))
    })
    .collect()
}

/// The condition by which a shard takes rows.
fn key_check(shard: &mut Client, name: &Name) -> Result<String> {
    let text = format!(
        "SELECT pg_get_expr(conbin, conrelid) FROM pg_constraint WHERE conname = 'weir_shard_key' AND conrelid = {}",
        name.literal()
    );
    shard.value(&text)
}

/// Of an error of `weir shard`, without the names in it.
fn reason(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let behind = line.split_once(": ").map_or(line, |(_, behind)| behind);
    let words = behind.split(' ').map(|word| if word.contains('.') || word.contains('"') { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
