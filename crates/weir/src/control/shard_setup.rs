//! Makes, shows and checks the definitions of tables that lie over several servers, and the engine that reads them: the work of `weir shard`.

pub mod check;
pub mod create;
mod ddl;
pub mod engine;
pub mod engine_alike;
pub mod engine_columns;
pub mod engine_probe;
pub mod engine_reader;
pub mod engine_servers;
pub mod key_draw;
mod partition_plan;
pub mod refusals;
mod row_copy;
pub mod shard_servers;
pub mod shards_alike;
pub mod show;
pub mod table_definition;
pub mod withdraw;
pub mod words;
