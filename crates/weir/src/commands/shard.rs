//! `weir shard`: makes, shows and checks the definitions of tables that lie over several servers (`parallel_mode`).
//!
//! A shard is a primary with its standbys. The definitions lie in the *engine*, a database on shard 0 (`control::shard_catalog` reads them). Every shard has
//! the ordinary table, with a constraint that keeps rows of other shards out, whoever writes.

use crate::commands::config_files::ConfigFileArgs;
use crate::commands::progress_option::ProgressOption;
use crate::control::shard_setup::create::{self, PlanSource, TableOrder};
use crate::control::shard_setup::engine::{self, EngineOrder, ReaderRights};
use crate::control::shard_setup::engine_servers::Detour;
use crate::control::shard_setup::refusals::LocalTriggers;
use crate::control::shard_setup::shard_servers::ShardServers;
use crate::control::shard_setup::words::{self, TableName};
use crate::control::shard_setup::{check, show, withdraw};
use crate::runtime::operator_files::OperatorFiles;
use anyhow::Context;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use weir_config::Config;
use weir_progress::ProgressLine;

#[derive(Subcommand)]
pub enum ShardCommand {
    /// Spread an empty table over the shards by the values of one column.
    Table(ShardTableArgs),
    /// Copy a table to all shards, so that each has all its rows.
    Reference(ShardReferenceArgs),
    /// Print which tables of a database are spread, and how.
    Show(ShardDatabaseArgs),
    /// Compare all shards with the definitions and with each other, and name what differs. Nothing is changed.
    Check(ShardDatabaseArgs),
    /// Let the engine answer statements over several shards: its servers, login, rights and settings. Run it again after they changed.
    Engine(ShardEngineArgs),
    /// Take a table's definition out again, if all its rows lie on shard 0.
    Drop(ShardDropArgs),
}

#[derive(Args)]
pub struct ShardTableArgs {
    #[command(flatten)]
    name: ShardTableName,
    /// The column whose value says where a row lies.
    #[arg(long, value_name = "COLUMN", value_parser = words::parse_name)]
    key: String,
    /// Partitions by the key's hash; without any choice one for each shard.
    #[arg(long, value_name = "NUMBER", group = "partitions")]
    hash: Option<usize>,
    /// Partitions by ranges: from..to=shard,from..to=shard. An end left out is the lowest or highest value; default=shard takes the rest.
    #[arg(long, value_name = "RANGES", group = "partitions")]
    range: Option<String>,
    /// Partitions by lists: value,value=shard;value=shard. default=shard takes the rest.
    #[arg(long, value_name = "LISTS", group = "partitions")]
    list: Option<String>,
    /// The partitions of another table: rows with equal keys lie on one shard.
    #[arg(long, value_name = "TABLE", group = "partitions", value_parser = TableName::parse)]
    with: Option<TableName>,
    #[command(flatten)]
    triggers: ShardTriggers,
    #[command(flatten)]
    progress: ProgressOption,
}

#[derive(Args)]
pub struct ShardReferenceArgs {
    #[command(flatten)]
    name: ShardTableName,
    #[command(flatten)]
    triggers: ShardTriggers,
    #[command(flatten)]
    progress: ProgressOption,
}

#[derive(Args)]
pub struct ShardDropArgs {
    #[command(flatten)]
    name: ShardTableName,
}

#[derive(Args)]
pub struct ShardDatabaseArgs {
    /// Database of the tables.
    database: String,
    #[command(flatten)]
    login: ShardLogin,
}

#[derive(Args)]
pub struct ShardEngineArgs {
    /// Database of the tables.
    database: String,
    #[command(flatten)]
    place: ConfigFileArgs,
    /// Role that reads the tables of all shards for the engine; its password comes from pool_passwd.
    #[arg(long = "user", value_name = "ROLE")]
    role: String,
    /// Address by which the engine reaches a shard's server, if it is not Weir's: shard=host:port.
    #[arg(long = "address", value_name = "ADDRESS", value_parser = Detour::parse)]
    detours: Vec<Detour>,
    /// Superuser on the servers, in place of sr_check_user; the password comes from pool_passwd.
    #[arg(short = 'U', long, value_name = "USER")]
    login: Option<String>,
}

#[derive(Args)]
struct ShardTableName {
    /// Database of the table.
    database: String,
    /// The table, as schema.table; without a schema it is public.
    #[arg(value_parser = TableName::parse)]
    table: TableName,
    #[command(flatten)]
    login: ShardLogin,
}

#[derive(Args)]
struct ShardTriggers {
    /// Vouch that the table's triggers read and write rows of their own shard only.
    #[arg(long)]
    local_triggers: bool,
}

#[derive(Args)]
struct ShardLogin {
    #[command(flatten)]
    place: ConfigFileArgs,
    /// User on the servers, in place of sr_check_user; the password comes from pool_passwd.
    #[arg(short = 'U', long, value_name = "USER")]
    user: Option<String>,
}

impl ShardTriggers {
    fn choice(&self) -> LocalTriggers {
        if self.local_triggers { LocalTriggers::Vouched } else { LocalTriggers::Unknown }
    }
}

impl ShardTableArgs {
    fn source(&self) -> PlanSource {
        match (&self.range, &self.list, &self.with) {
            (Some(text), _, _) => PlanSource::Range(text.clone()),
            (_, Some(text), _) => PlanSource::List(text.clone()),
            (_, _, Some(table)) => PlanSource::With(table.clone()),
            (None, None, None) => PlanSource::Hash(self.hash),
        }
    }
}

impl ShardCommand {
    /// Database, files, and the user of the login.
    fn place(&self) -> (&str, &ConfigFileArgs, Option<&str>) {
        match self {
            ShardCommand::Table(ShardTableArgs { name, .. })
            | ShardCommand::Reference(ShardReferenceArgs { name, .. })
            | ShardCommand::Drop(ShardDropArgs { name }) => (&name.database, &name.login.place, name.login.user.as_deref()),
            ShardCommand::Show(ShardDatabaseArgs { database, login })
            | ShardCommand::Check(ShardDatabaseArgs { database, login }) => (database, &login.place, login.user.as_deref()),
            ShardCommand::Engine(of) => (&of.database, &of.place, of.login.as_deref()),
        }
    }

    pub fn files(&self) -> OperatorFiles {
        self.place().1.files()
    }

    /// The line of the commands that may take long.
    pub fn line(&self) -> ProgressLine {
        match self {
            ShardCommand::Table(ShardTableArgs { progress, .. })
            | ShardCommand::Reference(ShardReferenceArgs { progress, .. }) => progress.line(),
            ShardCommand::Show(_) | ShardCommand::Check(_) | ShardCommand::Engine(_) | ShardCommand::Drop(_) => {
                ProgressLine::hidden()
            }
        }
    }
}

/// Lines to print, and the exit code. Error: nothing was found out, or not all was done.
pub fn run(
    files: &OperatorFiles,
    config: &Config,
    command: &ShardCommand,
    line: &ProgressLine,
) -> anyhow::Result<(String, ExitCode)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot make a runtime")?;
    let outcome = runtime.block_on(obey(files, config, command, line));
    line.rest();
    outcome
}

/// Not cancel safe: shards may have parts of what was to be made.
async fn obey(
    files: &OperatorFiles,
    config: &Config,
    command: &ShardCommand,
    line: &ProgressLine,
) -> anyhow::Result<(String, ExitCode)> {
    let (database, _, login) = command.place();
    let servers = ShardServers::find(files, config, login, database).await?;
    let mut text = match command {
        ShardCommand::Table(of) => {
            let (table, key, triggers) = (of.name.table.clone(), of.key.clone(), of.triggers.choice());
            let order = TableOrder { table, key, source: of.source(), triggers };
            create::table(&servers, database, &order, line).await?
        }
        ShardCommand::Reference(of) => create::reference(&servers, database, &of.name.table, of.triggers.choice(), line).await?,
        ShardCommand::Show(_) => show::show(&servers, database).await?,
        ShardCommand::Drop(of) => withdraw::withdraw(&servers, database, &of.name.table).await?,
        ShardCommand::Engine(of) => {
            let (role, password) = (of.role.clone(), servers.password_of(&of.role)?);
            let order = EngineOrder { role, password, detours: of.detours.clone(), rights: ReaderRights::Given };
            engine::make(&servers, database, &order).await?
        }
        ShardCommand::Check(_) => {
            let found = check::check(&servers, database).await?;
            return Ok((found.text, if found.differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }));
        }
    };
    match command {
        ShardCommand::Table(_) | ShardCommand::Reference(_) | ShardCommand::Drop(_) => {
            let again = engine::again(&servers, database, ReaderRights::Given).await;
            let done = text.trim_end();
            text += &again.with_context(|| format!("{done}\nThe engine is behind until weir shard engine {database} runs"))?;
        }
        ShardCommand::Show(_) | ShardCommand::Check(_) | ShardCommand::Engine(_) => {}
    }
    Ok((text, ExitCode::SUCCESS))
}
