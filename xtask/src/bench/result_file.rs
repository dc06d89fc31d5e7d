//! The files of `bench/results`.

/// One file of kept results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum ResultFile {
    /// Pooling and routing beside PgBouncer and Pgpool-II: most of the README's tables.
    Table,
    /// The query cache beside Pgpool-II's.
    Cache,
    /// One read by number of clients, and memory by number of idle clients.
    Clients,
}

/// All of them.
pub const FILES: [ResultFile; 3] = [ResultFile::Table, ResultFile::Cache, ResultFile::Clients];

impl ResultFile {
    /// Its name in `bench/results`.
    pub fn name(self) -> &'static str {
        match self {
            ResultFile::Table => "table.json",
            ResultFile::Cache => "cache.json",
            ResultFile::Clients => "clients.json",
        }
    }

    /// Rounds of its workloads. Differences from PgBouncer are small, and take more rounds than those of a cache.
    pub fn rounds(self) -> u32 {
        match self {
            ResultFile::Table | ResultFile::Clients => 9,
            ResultFile::Cache => 5,
        }
    }
}
