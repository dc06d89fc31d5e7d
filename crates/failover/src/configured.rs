//! Rules from the configuration.

use super::rules::{Address, Agent, Commands, Failback, Flag, HealthRules, Mode, NodeRules, Returns, Rules, Servers};
use weir_config::agents::Rejoin;
use weir_config::{ClusteringMode, Config, NodeConfig};

impl Rules {
    pub fn of(config: &Config) -> Rules {
        let failover = &config.failover;
        let positive = |ms: u64| Some(ms).filter(|ms| *ms > 0);
        // Without streaming, one server's log says nothing of another's.
        let streams = config.clustering_mode == ClusteringMode::StreamingReplication;
        Rules {
            mode: if streams { failover.mode() } else { Mode::Off },
            servers: if streams { Servers::Copies } else { Servers::Unrelated },
            nodes: config.nodes.iter().map(|own| node(config, own)).collect(),
            company: failover.company,
            lag_bytes_max: u64::try_from(failover.lag_bytes_max).ok(),
            lag_ms_max: positive(failover.lag_ms_max),
            role_period_ms: config.check.period_ms,
            search_ms: positive(config.search_primary_timeout_ms),
            on_error: failover.on_error,
            on_shutdown: failover.on_shutdown,
            false_primary: failover.false_primary,
            failback: if failover.auto_failback {
                Failback::Auto { interval_ms: failover.auto_failback_interval_ms }
            } else {
                Failback::ByOperator
            },
            transaction_limit_ms: config.recovery.agents.transaction_limit_ms,
            commands: Commands {
                failover: failover.command.clone(),
                failback: failover.failback_command.clone(),
                follow_primary: failover.follow_primary_command.clone(),
            },
            without: None,
        }
    }
}

fn node(config: &Config, node: &NodeConfig) -> NodeRules {
    let comes_back = node.agent().is_some() && config.recovery.agents.rejoin == Rejoin::ByAgent;
    NodeRules {
        id: node.id,
        address: Address { hostname: node.hostname.clone(), port: node.port, data_directory: node.data_directory.clone() },
        application_name: node.application_name.clone(),
        flag: match (node.always_primary, node.allow_failover) {
            (true, _) => Flag::AlwaysPrimary,
            (false, false) => Flag::DisallowToFailover,
            (false, true) => Flag::None,
        },
        priority: node.promote_priority,
        agent: if node.agent().is_some() { Agent::There } else { Agent::None },
        health: HealthRules {
            period_ms: node.health.period_ms,
            timeout_ms: node.health.timeout_ms,
            retries: node.health.retries,
            retry_delay_ms: node.health.retry_delay_ms,
        },
        returns: if comes_back { Returns::ByAgent } else { Returns::ByOperator },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_promotes_by_default() {
        let mut config = Config::default();
        assert_eq!(Rules::of(&config).mode, Mode::Follow);
        config.failover.command = "failover.sh %d".into();
        assert_eq!(Rules::of(&config).mode, Mode::Command);
        config.failover.mode = Some(Mode::Off);
        let rules = Rules::of(&config);
        assert_eq!((rules.mode, rules.lag_bytes_max, rules.search_ms), (Mode::Off, Some(1 << 20), Some(300_000)));
    }

    #[test]
    fn a_node_comes_back_by_its_agent_where_it_has_one_and_that_is_not_turned_off() {
        let read = |text: &str| {
            let text = format!("backend_hostname0 = 'a'\nagent_secret_file = 'secret'\n{text}");
            let outcome = weir_config::read(std::path::Path::new("pgpool.conf"), &mut |_| Ok(text.clone().into_bytes()));
            let rules = Rules::of(&outcome.config.expect("it is valid"));
            (rules.nodes[0].agent, rules.nodes[0].returns)
        };
        assert_eq!(read("backend_agent0 = 'a:9700'"), (Agent::There, Returns::ByAgent));
        assert_eq!(read("backend_agent0 = 'a:9700'\nagent_rejoin = off"), (Agent::There, Returns::ByOperator));
        assert_eq!(read(""), (Agent::None, Returns::ByOperator));
    }
}
