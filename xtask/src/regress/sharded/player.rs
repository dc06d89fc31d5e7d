//! Plays scripts on two sides: Weir before the shards, and one server with all rows.
//!
//! Weir hears each statement first. If it refuses, a failing statement stands for it on the other side inside of a transaction block; outside of
//! one, a write is carried out on the other side alone, and the shards get its rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::answers::{Answer, Difference, difference};
use super::client::{Client, Heard, Lost};
use super::report::{Differing, Report, shown};
use super::script::{End, Script, Statement, Step, interpolated, joined_arguments};
use super::stage::Stage;
use super::tables::{Name, Tables};
use super::verbs::{self, SUPERUSER, Verb};

/// Of one statement. The longest of the suite takes a few seconds on one server.
const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// How long the engine may follow a change of tables.
const BEHIND_LIMIT: Duration = Duration::from_secs(10);
/// Stands on the server with all rows for a statement that Weir has refused.
const FAILING: &str = "SELECT refused FROM nothing_of_this_name";

/// A text as it is sent, with the data of a COPY.
struct Turn {
    line: usize,
    text: String,
    data: Vec<u8>,
    verb: Verb,
}

/// Both sides, and what is known of them.
pub struct Player<'s> {
    stage: &'s Stage,
    /// The suite's folders.
    input: &'s Path,
    weir: Client,
    whole: Client,
    user: String,
    status: char,
    pub tables: Tables<'s>,
    variables: BTreeMap<String, String>,
    /// Tables that the open transaction may have changed.
    written: BTreeSet<Name>,
    script: String,
    pub report: Report,
}

impl<'s> Player<'s> {
    pub fn new(stage: &'s Stage, input: &'s Path, tables: Tables<'s>) -> Result<Player<'s>> {
        Ok(Player {
            stage,
            input,
            weir: stage.weir(SUPERUSER, STATEMENT_LIMIT)?,
            whole: stage.whole(SUPERUSER, STATEMENT_LIMIT)?,
            user: SUPERUSER.to_owned(),
            status: 'I',
            tables,
            variables: BTreeMap::new(),
            written: BTreeSet::new(),
            script: String::new(),
            report: Report::default(),
        })
    }

    /// Plays a script to its end, or to the time `until`. Returns false at that time. Error: the harness cannot go on.
    pub fn play(&mut self, name: &str, until: Instant) -> Result<bool> {
        let path = self.input.join("sql").join(format!("{name}.sql"));
        let text = String::from_utf8_lossy(&fs::read(&path).with_context(|| path.display().to_string())?).into_owned();
        name.clone_into(&mut self.script);
        self.variables.clear();
        self.connect(SUPERUSER)?;
        let mut script = Script::new(&text);
        let mut branches = Vec::new();
        while let Some(step) = script.step() {
            if Instant::now() >= until {
                return Ok(false);
            }
            match step {
                Step::Command { name, .. } if matches!(name.as_str(), "q" | "quit") && !branches.contains(&false) => break,
                Step::Command { name, rest } => self.command(&name, &rest, &mut branches, &mut script)?,
                Step::Statement(_) if branches.contains(&false) => {}
                Step::Statement(statement) => self.statement(statement, &mut script)?,
            }
        }
        self.end_script()?;
        self.report.scripts.insert(name.to_owned());
        Ok(true)
    }

    /// Ends what is open, compares all rows.
    fn end_script(&mut self) -> Result<()> {
        self.connect(SUPERUSER)?;
        self.tables.discover()?;
        let turn = Turn { line: 0, text: format!("-- rows at the end of {}", self.script), data: Vec::new(), verb: Verb::Write };
        let names = self.tables.names();
        self.compare_tables(&turn, names)
    }

    fn connect(&mut self, user: &str) -> Result<()> {
        self.weir = self.stage.weir(user, STATEMENT_LIMIT)?;
        self.whole = self.stage.whole(user, STATEMENT_LIMIT)?;
        user.clone_into(&mut self.user);
        self.status = 'I';
        self.written.clear();
        Ok(())
    }

    /// A user who cannot log in is not played.
    fn connect_or_stay(&mut self, user: &str) -> Result<()> {
        let _ = write!(self.report.story, "\n{}: as {user}\n", self.script);
        if self.connect(user).is_err() {
            self.report.leave_out("a user who cannot log in");
            self.connect(SUPERUSER)?;
        }
        Ok(())
    }

    fn command(&mut self, name: &str, rest: &str, branches: &mut Vec<bool>, script: &mut Script<'_>) -> Result<()> {
        let is_true = |variables: &BTreeMap<String, String>| {
            matches!(
                interpolated(rest, variables).trim_matches('\'').to_ascii_lowercase().as_str(),
                "t" | "true" | "1" | "on" | "yes"
            )
        };
        match name {
            "if" => branches.push(is_true(&self.variables)),
            "elif" => {
                let was = branches.pop().unwrap_or(true);
                branches.push(!was && is_true(&self.variables));
            }
            "else" => {
                let was = branches.pop().unwrap_or(true);
                branches.push(!was);
            }
            "endif" => drop(branches.pop()),
            _ if branches.contains(&false) => {}
            "set" => {
                let (variable, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let value = joined_arguments(value, &self.variables);
                self.variables.insert(variable.to_owned(), value);
            }
            "getenv" => self.get_environment(rest),
            "c" | "connect" => {
                let user = rest.split_whitespace().nth(1).unwrap_or(SUPERUSER).to_owned();
                self.connect_or_stay(&user)?;
            }
            "copy" => {
                self.report.leave_out("a command of psql");
                if rest.to_ascii_lowercase().contains("from stdin") {
                    script.skip_data();
                }
            }
            _ => self.report.leave_out("a command of psql"),
        }
        Ok(())
    }

    /// Variables by which the suite's driver tells its folders.
    fn get_environment(&mut self, rest: &str) {
        let Some((variable, name)) = rest.split_once(char::is_whitespace) else { return };
        let value = match name.trim() {
            "PG_ABS_SRCDIR" | "PG_ABS_BUILDDIR" => self.input.display().to_string(),
            "PG_LIBDIR" => self.stage.libraries.display().to_string(),
            "PG_DLSUFFIX" => ".so".to_owned(),
            _ => return,
        };
        self.variables.insert(variable.to_owned(), value);
    }

    fn statement(&mut self, statement: Statement, script: &mut Script<'_>) -> Result<()> {
        if let End::Other(_) = &statement.end {
            self.report.leave_out("an answer that psql goes on with");
            return Ok(());
        }
        let text = interpolated(&statement.text, &self.variables);
        if let Some(user) = verbs::session_user(&text).filter(|_| self.status == 'I') {
            return self.connect_or_stay(&user);
        }
        let is_copy = verbs::is_copy_from_client(&text);
        let data = if is_copy { script.data_ahead().unwrap_or_default().as_bytes().to_vec() } else { Vec::new() };
        let Some(turn) = self.turn(statement.line, text, data) else {
            if is_copy && !script.is_code_ahead() {
                script.skip_data();
            }
            return Ok(());
        };
        let _ = write!(self.report.story, "\n{}:{} {}\n", self.script, turn.line, turn.text);
        let (answer, took_data) = self.both(&turn)?;
        if is_copy && (took_data || !script.is_code_ahead()) {
            script.skip_data();
        }
        if let (End::Gset(prefix), Some(answer)) = (&statement.end, answer) {
            self.keep_variables(prefix, &answer);
        }
        Ok(())
    }

    /// `None`: it is left out.
    fn turn(&mut self, line: usize, text: String, data: Vec<u8>) -> Option<Turn> {
        if let Some(why) = verbs::left_out_reason(&text) {
            self.report.leave_out(why);
            return None;
        }
        let text = verbs::without_temporary(&text).unwrap_or(text);
        let (text, data) = match verbs::copy_from_file(&text) {
            None => (text, data),
            Some((changed, file)) => match fs::read(&file) {
                Ok(data) => (changed, data),
                Err(_) => {
                    self.report.leave_out("a file of the server");
                    return None;
                }
            },
        };
        let verb = verbs::verb(&text);
        Some(Turn { line, text, data, verb })
    }

    fn keep_variables(&mut self, prefix: &str, answer: &Answer) {
        let Some(part) = answer.parts.last() else { return };
        let Some(row) = part.rows.first() else { return };
        for (column, cell) in part.columns.iter().zip(row) {
            self.variables.insert(format!("{prefix}{}", column.name), cell.clone().unwrap_or_default());
        }
    }

    /// Plays a text on both sides. Returns the answer of the server with all rows, if it was asked, and if a side took the data.
    fn both(&mut self, turn: &Turn) -> Result<(Option<Answer>, bool)> {
        self.report.played += 1;
        self.gather_dropped(turn)?;
        let was_open = self.status != 'I';
        let heard = match self.ask_weir(turn)? {
            Ok(heard) => heard,
            Err(lost) => return self.lost(turn, &lost).map(|()| (None, true)),
        };
        if let Some(reason) = heard.answer.refusal() {
            return self.refused(turn, &reason, &heard, was_open);
        }
        let whole = self.ask_whole(turn)?;
        let took_data = heard.took_data || whole.took_data;
        self.judge(turn, &heard.answer, &whole.answer)?;
        self.settle(turn, &heard.answer, &whole.answer)?;
        Ok((Some(whole.answer), took_data))
    }

    /// A schema is dropped on shard 0 only: its tables must be there.
    fn gather_dropped(&mut self, turn: &Turn) -> Result<()> {
        match verbs::dropped_schema(&turn.text) {
            Some(schema) if self.status == 'I' => {
                let names = self.tables.of_schema(&schema);
                self.tables.gather(&names).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Asks Weir, again while the engine follows a change.
    fn ask_weir(&mut self, turn: &Turn) -> Result<Result<Heard, Lost>> {
        let until = Instant::now() + BEHIND_LIMIT;
        loop {
            let heard = self.weir.ask(&turn.text, &turn.data);
            match &heard {
                Ok(heard) if heard.answer.is_engine_behind() && self.status == 'I' && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                _ => return Ok(heard),
            }
        }
    }

    fn ask_whole(&mut self, turn: &Turn) -> Result<Heard> {
        self.whole.ask(&turn.text, &turn.data).with_context(|| format!("{}:{}: {}", self.script, turn.line, turn.text))
    }

    fn judge(&mut self, turn: &Turn, weir: &Answer, whole: &Answer) -> Result<()> {
        match difference(&turn.text, weir, whole) {
            None => self.report.equal += 1,
            Some(kind) => {
                self.differ(turn, kind, shown(weir), shown(whole));
                if !self.written.is_empty() || turn.verb != Verb::Read {
                    let names = self.tables.named_in(&turn.text);
                    self.written.extend(names);
                }
                if weir.status != whole.status {
                    self.end_transactions()?;
                }
            }
        }
        Ok(())
    }

    fn differ(&mut self, turn: &Turn, kind: Difference, weir: String, whole: String) {
        let differing = Differing { script: self.script.clone(), line: turn.line, text: turn.text.clone(), kind, weir, whole };
        self.report.story += &differing.shown();
        self.report.differing.push(differing);
    }

    fn end_transactions(&mut self) -> Result<()> {
        let ended = [self.weir.ask("ROLLBACK", &[]), self.whole.ask("ROLLBACK", &[])];
        self.status = 'I';
        if ended.iter().any(Result::is_err) {
            let user = self.user.clone();
            self.connect(&user)?;
        }
        Ok(())
    }

    /// After a statement that both sides have heard.
    fn settle(&mut self, turn: &Turn, weir: &Answer, whole: &Answer) -> Result<()> {
        if turn.verb != Verb::Read {
            let names = self.tables.named_in(&turn.text);
            self.written.extend(names);
        }
        if weir.status == whole.status {
            self.status = weir.status;
        }
        if self.status != 'I' {
            return Ok(());
        }
        if turn.verb == Verb::Everywhere && weir.failure.is_none() {
            self.tables.mirror(&turn.text);
        }
        if matches!(turn.verb, Verb::Code | Verb::Make | Verb::Redefine | Verb::Everywhere) && weir.failure.is_none() {
            self.tables.discover()?;
        }
        let written = std::mem::take(&mut self.written);
        self.compare_tables(turn, written)
    }

    /// Compares rows of tables, and makes them equal again.
    fn compare_tables(&mut self, turn: &Turn, names: BTreeSet<Name>) -> Result<()> {
        for name in self.tables.unequal(&names)? {
            if self.tables.has_own_values(&name) {
                self.report.renumbered += 1;
            } else {
                let text = format!("rows of {}.{}\n", name.schema, name.table);
                self.differ(turn, Difference::Table, text.clone(), text);
            }
            self.repair(&name);
        }
        Ok(())
    }

    fn repair(&mut self, name: &Name) {
        if let Err(error) = self.tables.repair(name) {
            let _ = writeln!(self.report.story, "   cannot be repaired: {error:#}");
        }
    }

    /// Weir has refused a text.
    fn refused(&mut self, turn: &Turn, reason: &str, heard: &Heard, was_open: bool) -> Result<(Option<Answer>, bool)> {
        if was_open || heard.answer.status != 'I' {
            return self.refused_in_block(turn, reason, heard);
        }
        match turn.verb {
            Verb::Redefine | Verb::Make => {
                let names = self.tables.named_in(&turn.text);
                if names.iter().any(|name| self.tables.is_spread(name)) && self.tables.gather(&names)? {
                    let both = self.both(turn)?;
                    if self.status == 'I' {
                        // They are spread again, also if the statement fails on both sides.
                        self.tables.discover()?;
                    }
                    return Ok(both);
                }
                self.count_refusal(reason);
                Ok((None, heard.took_data))
            }
            Verb::Write => {
                self.count_refusal(reason);
                let whole = self.ask_whole(turn)?;
                // Rules, triggers and foreign keys change tables that the text does not name.
                let names = self.tables.names();
                self.tables.unequal(&names)?.iter().for_each(|name| self.repair(name));
                Ok((None, heard.took_data || whole.took_data))
            }
            Verb::Read | Verb::Code | Verb::Everywhere | Verb::Other => {
                self.count_refusal(reason);
                Ok((None, heard.took_data))
            }
        }
    }

    fn refused_in_block(&mut self, turn: &Turn, reason: &str, heard: &Heard) -> Result<(Option<Answer>, bool)> {
        self.count_refusal(reason);
        let whole = self.whole.ask(FAILING, &[])?;
        if whole.answer.status != heard.answer.status {
            // A text of several statements was refused as a whole, or in its middle.
            let _ = writeln!(self.report.story, "   [{}] and [{}]", heard.answer.status, whole.answer.status);
            self.end_transactions()?;
            let written = std::mem::take(&mut self.written);
            self.compare_tables(turn, written)?;
        } else {
            self.status = heard.answer.status;
        }
        Ok((None, heard.took_data))
    }

    fn count_refusal(&mut self, reason: &str) {
        let _ = writeln!(self.report.story, "   refused: {reason}");
        self.report.refuse(reason);
    }

    /// Weir gave no answer.
    fn lost(&mut self, turn: &Turn, lost: &Lost) -> Result<()> {
        let whole = match self.whole.ask(&turn.text, &turn.data) {
            Ok(heard) => shown(&heard.answer),
            Err(lost) => format!("   {lost}\n"),
        };
        self.differ(turn, Difference::Lost, format!("   {lost}\n"), whole);
        let user = self.user.clone();
        self.connect(&user)?;
        let names = self.tables.named_in(&turn.text);
        self.compare_tables(turn, names)
    }
}
