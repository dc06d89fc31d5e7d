//! Rules from the configuration.

use super::rules::{
    AgentPresence, BackendFlag, DeathConsensus, FailbackMode, FailoverCommands, FailoverMode, FailoverRules, GroupRole,
    HealthRules, NodeLocation, NodeRules, RejoinInitiator, ServerRelation, SuccessorFinder,
};
use weir_config::agents::RejoinAuthority;
use weir_config::{ClusteringMode, Config, NodeConfig};

impl FailoverRules {
    pub fn of(config: &Config) -> FailoverRules {
        let failover = &config.failover;
        let positive = |ms: u64| Some(ms).filter(|ms| *ms > 0);
        // Without streaming the logs are unrelated.
        let streams = config.clustering_mode == ClusteringMode::StreamingReplication;
        FailoverRules {
            mode: if streams { failover.mode() } else { FailoverMode::Off },
            servers: if streams { ServerRelation::Copies } else { ServerRelation::Unrelated },
            nodes: config.nodes.iter().map(|own| node(config, own)).collect(),
            company: failover.company,
            group: GroupRole::None,
            successors: SuccessorFinder::Sight,
            consensus: DeathConsensus::Own,
            lag_bytes_max: u64::try_from(failover.lag_bytes_max).ok(),
            lag_ms_max: positive(failover.lag_ms_max),
            role_period_ms: config.check.period_ms,
            search_ms: positive(config.search_primary_timeout_ms),
            on_error: failover.on_error,
            on_shutdown: failover.on_shutdown,
            false_primary: failover.false_primary,
            failback: if failover.auto_failback {
                FailbackMode::Auto { interval_ms: failover.auto_failback_interval_ms }
            } else {
                FailbackMode::ByOperator
            },
            transaction_limit_ms: config.recovery.agents.transaction_limit_ms,
            commands: FailoverCommands {
                failover: failover.command.clone(),
                failback: failover.failback_command.clone(),
                follow_primary: failover.follow_primary_command.clone(),
            },
            without: None,
        }
    }
}

fn node(config: &Config, node: &NodeConfig) -> NodeRules {
    let comes_back = node.agent().is_some() && config.recovery.agents.rejoin == RejoinAuthority::ByAgent;
    NodeRules {
        id: node.id,
        address: NodeLocation { hostname: node.hostname.clone(), port: node.port, data_directory: node.data_directory.clone() },
        application_name: node.application_name.clone(),
        flag: match (node.always_primary, node.allow_failover) {
            (true, _) => BackendFlag::AlwaysPrimary,
            (false, false) => BackendFlag::DisallowToFailover,
            (false, true) => BackendFlag::None,
        },
        priority: node.promote_priority,
        agent: if node.agent().is_some() { AgentPresence::There } else { AgentPresence::None },
        health: HealthRules {
            period_ms: node.health.period_ms,
            timeout_ms: node.health.timeout_ms,
            retries: node.health.retries,
            retry_delay_ms: node.health.retry_delay_ms,
        },
        returns: if comes_back { RejoinInitiator::ByAgent } else { RejoinInitiator::ByOperator },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_promotes_by_default() {
        let mut config = Config::default();
        assert_eq!(FailoverRules::of(&config).mode, FailoverMode::Follow);
        config.failover.command = "failover.sh %d".into();
        assert_eq!(FailoverRules::of(&config).mode, FailoverMode::Command);
        config.failover.mode = Some(FailoverMode::Off);
        let rules = FailoverRules::of(&config);
        assert_eq!((rules.mode, rules.lag_bytes_max, rules.search_ms), (FailoverMode::Off, Some(1 << 20), Some(300_000)));
    }

    #[test]
    fn a_node_comes_back_by_its_agent_where_it_has_one_and_that_is_not_turned_off() {
        let read = |text: &str| {
            let text = format!("backend_hostname0 = 'a'\nagent_secret_file = 'secret'\n{text}");
            let outcome = weir_config::read(std::path::Path::new("pgpool.conf"), &mut |_| Ok(text.clone().into_bytes()));
            let rules = FailoverRules::of(&outcome.config.expect("it is valid"));
            (rules.nodes[0].agent, rules.nodes[0].returns)
        };
        assert_eq!(read("backend_agent0 = 'a:9700'"), (AgentPresence::There, RejoinInitiator::ByAgent));
        assert_eq!(read("backend_agent0 = 'a:9700'\nagent_rejoin = off"), (AgentPresence::There, RejoinInitiator::ByOperator));
        assert_eq!(read(""), (AgentPresence::None, RejoinInitiator::ByOperator));
    }
}
