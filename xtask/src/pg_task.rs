//! `cargo xtask pg`: fetches servers before the tests need them.

use anyhow::Result;

use crate::pg;

/// Choice of versions.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Major versions, 13 to 18
    versions: Vec<u32>,
    /// Also psql and pgbench of the newest version
    #[arg(long)]
    clients: bool,
}

/// Fetches missing versions and prints one folder a line.
pub fn run(arguments: &Arguments) -> Result<()> {
    for &version in &arguments.versions {
        println!("{}", pg::fetch(version)?.display());
    }
    if arguments.clients {
        println!("{}", pg::fetch_clients()?.display());
    }
    Ok(())
}
