//! Tables over several servers (`parallel_mode`): the servers beside the cluster of shard 0.

use crate::{Config, NodeConfig};

/// Ending of the engine's database where `system_db_dbname` does not name one.
const ENGINE_ENDING: &str = "_engine";

/// The view that a read of several shards has of a commit on several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossShardReads {
    /// All of it or nothing.
    #[default]
    Snapshot,
    /// Each shard as it is.
    Latest,
}

impl CrossShardReads {
    pub const WORDS: [&'static str; 2] = ["snapshot", "latest"];

    /// Parses a word, in any case.
    pub fn of_word(word: &str) -> Option<CrossShardReads> {
        let at = CrossShardReads::WORDS.iter().position(|known| known.eq_ignore_ascii_case(word.trim()))?;
        [CrossShardReads::Snapshot, CrossShardReads::Latest].get(at).copied()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardingConfig {
    pub is_on: bool,
    pub reads: CrossShardReads,
    /// Empty: see [`ShardingConfig::engine_of`].
    pub engine_database: String,
    /// The servers of the shards above 0, ordered by id. In a usable configuration each shard has one.
    pub nodes: Vec<NodeConfig>,
}

impl ShardingConfig {
    /// The database on shard 0 that defines the sharded tables of `database`.
    pub fn engine_of(&self, database: &str) -> String {
        if self.engine_database.is_empty() { format!("{database}{ENGINE_ENDING}") } else { self.engine_database.clone() }
    }

    /// The node of a shard above 0.
    pub fn node_of(&self, shard: u16) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.shard == shard)
    }

    /// The shard of a node; 0 unless it is a server of another one.
    pub fn shard_of(&self, node: u16) -> u16 {
        self.nodes.iter().find(|other| other.id == node).map_or(0, |node| node.shard)
    }
}

/// Takes the servers of other shards out of the cluster: failover, roles and reads on standbys are about shard 0.
pub(crate) fn finish(config: &mut Config) {
    let (cluster, others) = std::mem::take(&mut config.nodes).into_iter().partition(|node| node.shard == 0);
    (config.nodes, config.sharding.nodes) = (cluster, others);
}

impl Config {
    /// All servers, those of every shard.
    pub fn all_nodes(&self) -> impl Iterator<Item = &NodeConfig> {
        self.nodes.iter().chain(&self.sharding.nodes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn read(more: &str) -> crate::ConfigReadResult {
        let conf = format!("backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\nbackend_hostname2 = 'c'\n{more}");
        crate::read(Path::new("c"), &mut |_| Ok(conf.clone().into_bytes()))
    }

    #[test]
    fn servers_of_other_shards_are_apart_from_the_cluster() {
        let config = read("parallel_mode = on\nbackend_shard2 = 1\nconnect_timeout = 7").config.expect("it is one");
        let ids = |nodes: &[crate::NodeConfig]| nodes.iter().map(|node| node.id).collect::<Vec<_>>();
        assert_eq!((ids(&config.nodes), ids(&config.sharding.nodes)), (vec![0, 1], vec![2]));
        assert_eq!((config.sharding.shard_of(1), config.sharding.shard_of(2)), (0, 1));
        assert_eq!(config.sharding.node_of(1).map(|node| node.connect_timeout_ms), Some(7));
        assert_eq!(config.all_nodes().count(), 3);
        assert_eq!(config.sharding.engine_of("shop"), "shop_engine");
        let named = read("parallel_mode = on\nsystem_db_dbname = 'parts'").config.expect("it is one");
        assert_eq!(named.sharding.engine_of("shop"), "parts");
    }

    #[test]
    fn shards_that_cannot_be_used_are_errors() {
        for (more, says) in [
            ("backend_shard1 = 1", "parallel_mode is off"),
            ("parallel_mode = on\nmemory_cache_enabled = on", "answers of shards are not cached"),
            ("parallel_mode = on\nbackend_shard1 = 1\nbackend_shard2 = 1", "both of shard 1"),
            ("parallel_mode = on\nbackend_shard0 = 1\nbackend_shard1 = 2\nbackend_shard2 = 3", "no node is of shard 0"),
        ] {
            let result = read(more);
            let errors: Vec<String> = result.problems.iter().map(|problem| problem.message.to_string()).collect();
            assert!(result.config.is_none() && errors.iter().any(|error| error.contains(says)), "{more}: {errors:?}");
        }
    }
}
