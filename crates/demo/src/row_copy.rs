//! Rows of servers that are shards, from one server that has all of them.

use anyhow::{Context, Result};

use crate::Server;

/// Rows that a table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedRows {
    /// All, for tables that every shard has.
    All,
    /// Rows that the constraint `weir_shard_key` lets in. PostgreSQL judges, so that a fault of the map shows.
    OfShard,
}

impl Server {
    /// Copies rows of tables in `public` from another server, which has them under the same names. Needs `postgres_fdw`, and leaves nothing of it.
    pub fn copy_rows(&self, from: &Server, tables: &[&str], rows: CopiedRows) -> Result<()> {
        self.query(&format!(
            "create extension postgres_fdw; create server source foreign data wrapper postgres_fdw \
             options (host '127.0.0.1', port '{}', dbname 'postgres', fetch_size '10000'); \
             create user mapping for public server source options (user 'postgres'); \
             create schema source; import foreign schema public from server source into source",
            from.port()
        ))?;
        for table in tables {
            self.copy_table(table, rows).with_context(|| format!("rows of {table}"))?;
        }
        self.query("drop schema source cascade; drop extension postgres_fdw cascade")?;
        Ok(())
    }

    fn copy_table(&self, table: &str, rows: CopiedRows) -> Result<()> {
        let columns = self.value(&format!(
            "select string_agg(quote_ident(attname), ', ') from pg_attribute where attrelid = 'public.{table}'::regclass \
             and attnum > 0 and not attisdropped and attgenerated = ''"
        ))?;
        let condition = match rows {
            CopiedRows::All => "true".to_owned(),
            CopiedRows::OfShard => self.value(&format!(
                "select pg_get_expr(conbin, conrelid) from pg_constraint where conname = 'weir_shard_key' and conrelid = 'public.{table}'::regclass"
            ))?,
        };
        // The fence keeps the condition here: the other server lacks what it names.
        self.query(&format!(
            "insert into public.{table} ({columns}) select {columns} from (select * from source.{table} offset 0) as rows where {condition}; \
             analyze public.{table}"
        ))?;
        Ok(())
    }
}
