//! Development tasks: `cargo xtask bench`, `failover`, `spread`, `tpch`, `watchdog`, `check`, `test`, `regress`, `pgpool-tests`, `pgbouncer-tests`,
//! `driver-suites`, `transparency`, `mutants`, `bare`, `dist`, `packages`, `release`, `pages`, `site`, `pg`, `layers`, `tidy`, `own-sql`,
//! `house`.

mod at_once;
mod bare;
mod bench;
mod cargo;
mod check;
mod children;
mod date;
mod debian;
mod dist;
mod driver_suites;
mod finding;
mod house;
mod layers;
mod memory;
mod mutants;
mod own_sql;
mod packages;
mod pg;
mod pg_task;
mod pgbouncer_tests;
mod pgpool_tests;
mod process;
mod proxy;
mod reasons;
mod regress;
mod release;
mod site;
mod source;
mod test;
mod tidy;
mod transparency;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Checks, tests and measures this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure Weir beside PgBouncer, Pgpool-II, a bare relay and no proxy
    Bench(bench::Arguments),
    /// Measure failovers under load, with Weir and with Pgpool-II
    Failover(bench::failover::Arguments),
    /// Measure commits and COPY over several shards
    Spread(bench::spread::Arguments),
    /// Measure the queries of TPC-H over three shards, beside one server
    Tpch(bench::tpch::Arguments),
    /// Measure faults of a group's leader in network namespaces, with Weir and with Pgpool-II; needs root
    Watchdog(bench::watchdog::Arguments),
    /// Format, layers, habits, clippy, tests without servers, generated documents
    Check,
    /// The checks and all tests; with --all a second version, PostgreSQL's own suite, the fuzz targets for some seconds
    Test(test::Arguments),
    /// Fetch PostgreSQL of these major versions and print the folders of their programs
    Pg(pg_task::Arguments),
    /// PostgreSQL's regression suite, direct and through Weir: the answers must be the same
    Regress(regress::Arguments),
    /// Pgpool-II's own regression tests about nodes, with Weir under Pgpool-II's names
    PgpoolTests(pgpool_tests::Arguments),
    /// PgBouncer's own tests, with Weir in its place
    PgbouncerTests(pgbouncer_tests::Arguments),
    /// The own test suites of asyncpg and pgx, direct and through Weir: a test that passes direct must pass through Weir
    DriverSuites(driver_suites::Arguments),
    /// Compares a session through Weir with a direct connection, on PostgreSQL 13 to 18; writes docs/transparency.md
    Transparency(transparency::Arguments),
    /// The README's commands on a bare Debian in a folder, from a clone; needs root and mmdebstrap
    Bare(bare::Arguments),
    /// Packages, a tarball, an image's context, the list of components and checksums, in target/dist
    Dist(dist::Arguments),
    /// The packages of target/dist on a bare Debian in a folder, by the commands of docs/install.md; needs root and mmdebstrap
    Packages(packages::Arguments),
    /// Sets the number and date of a new version, or checks that packages, pages and changelog agree
    Release(release::Arguments),
    /// Changes the pure crates at random places and tells which changes no test notices
    Mutants(mutants::Arguments),
    /// The modules' uses of each other, against the tables in xtask/src/layers.rs
    Layers,
    /// Banned words, changing statics, waits of tests
    Tidy,
    /// Measures how the code reads: names, comments, circles, sizes. No number is a limit
    House,
    /// Finds SQL for servers that the list of Weir's own texts does not know
    OwnSql,
    /// Dead links of the pages, and commands, parameters, lists and series that they name and that do not exist
    Pages,
    /// The pages as a site in target/site/book, by mdBook
    Site(site::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Failover(arguments) => bench::failover::run(&arguments, root()),
        Task::Spread(arguments) => bench::spread::run(&arguments),
        Task::Tpch(arguments) => bench::tpch::run(&arguments),
        Task::Watchdog(arguments) => bench::watchdog::run(&arguments, root()),
        Task::Check => check::run(root()),
        Task::Test(arguments) => memory::move_into().and_then(|()| test::run(&arguments, root())),
        Task::Pg(arguments) => pg_task::run(&arguments),
        Task::Regress(arguments) => memory::move_into().and_then(|()| regress::run(&arguments)),
        Task::PgpoolTests(arguments) => {
            memory::move_into()?;
            pgpool_tests::run(&arguments, &target_folder()?, &cargo::build_proxy()?)
        }
        Task::PgbouncerTests(arguments) => {
            memory::move_into()?;
            let target = target_folder()?;
            let program = if arguments.peer {
                bench::build_peers()?;
                pgbouncer_tests::Program::PgBouncer(target.join("peers/pgbouncer"))
            } else {
                pgbouncer_tests::Program::Weir(cargo::build_proxy()?)
            };
            pgbouncer_tests::run(&arguments, &target, program)
        }
        Task::DriverSuites(arguments) => driver_suites::run(&arguments),
        Task::Transparency(arguments) => transparency::run(&arguments, root()),
        Task::Bare(arguments) => bare::run(&arguments, root()),
        Task::Dist(arguments) => dist::run(&arguments, root()),
        Task::Packages(arguments) => packages::run(&arguments, root()),
        Task::Release(arguments) => release::run(&arguments, root()),
        Task::Mutants(arguments) => mutants::run(&arguments, root(), &target_folder()?),
        Task::Layers => layers::run(root()),
        Task::Tidy => tidy::run(root()),
        Task::House => house::run(root()),
        Task::OwnSql => own_sql::run(root()),
        Task::Pages => site::check(root()),
        Task::Site(arguments) => site::build(&arguments, root(), &target_folder()?),
    }
}

/// The workspace's folder.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo's folder for its output: this program lies in its folder `debug` or `release`.
fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).context("not in a target folder")?.to_owned())
}
