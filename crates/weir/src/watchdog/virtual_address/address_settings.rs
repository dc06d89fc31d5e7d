//! Settings of the virtual address.

use std::net::IpAddr;
use weir_config::watchdog_settings::WatchdogSettings;

/// Virtual addresses of one group.
const ADDRESSES_MAX: usize = 16;

/// Why the settings of the virtual address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressSettingsError {
    #[error("delegate_ip has {0} addresses, at most {ADDRESSES_MAX} are possible")]
    TooMany(usize),
    #[error("{set} is set and {missing} is not; set both, or none to have Weir set the address itself")]
    HalfOfCommands { set: &'static str, missing: &'static str },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSettings {
    /// Of `delegate_ip`, each once. Empty: only the two commands of escalation run.
    pub addresses: Vec<IpAddr>,
    pub taking: AddressTaking,
    /// `arping_cmd` with its path, if the file sets it.
    pub arping_command: Option<String>,
    pub escalations: EscalationCommands,
}

/// Commands beside the address, which a reload changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EscalationCommands {
    /// `wd_escalation_command`.
    pub escalation: Option<String>,
    /// `wd_de_escalation_command`.
    pub de_escalation: Option<String>,
}

impl EscalationCommands {
    pub fn of(watchdog: &WatchdogSettings) -> EscalationCommands {
        let command = |text: &String| Some(text.clone()).filter(|text| !text.trim().is_empty());
        EscalationCommands {
            escalation: command(&watchdog.escalation_command),
            de_escalation: command(&watchdog.de_escalation_command),
        }
    }
}

/// How an address is taken and given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressTaking {
    /// Over netlink, with a lifetime in the kernel.
    #[default]
    Netlink,
    /// `if_up_cmd` and `if_down_cmd` with their path. A process that stands still keeps the address.
    Commands { up: String, down: String },
}

impl AddressSettings {
    pub fn of(watchdog: &WatchdogSettings) -> Result<AddressSettings, AddressSettingsError> {
        let commands = &watchdog.address_commands;
        let taking = match (commands.up.clone(), commands.down.clone()) {
            (Some(up), Some(down)) => AddressTaking::Commands { up, down },
            (None, None) => AddressTaking::Netlink,
            (Some(_), None) => {
                return Err(AddressSettingsError::HalfOfCommands { set: "if_up_cmd", missing: "if_down_cmd" });
            }
            (None, Some(_)) => {
                return Err(AddressSettingsError::HalfOfCommands { set: "if_down_cmd", missing: "if_up_cmd" });
            }
        };
        if watchdog.addresses.len() > ADDRESSES_MAX {
            return Err(AddressSettingsError::TooMany(watchdog.addresses.len()));
        }
        Ok(AddressSettings {
            addresses: watchdog.addresses.clone(),
            taking,
            arping_command: commands.announce.clone(),
            escalations: EscalationCommands::of(watchdog),
        })
    }
}

/// The command for one address.
pub fn for_address(command: &str, address: IpAddr) -> String {
    command.replace("$_IP_$", &address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lines: &str) -> Result<AddressSettings, AddressSettingsError> {
        let conf = format!("backend_hostname0 = 'h'\nuse_watchdog = on\nhostname0 = 'localhost'\n{lines}").into_bytes();
        let read = weir_config::read(std::path::Path::new("c"), &mut |path| {
            Ok(if path.ends_with("pgpool_node_id") { b"0".to_vec() } else { conf.clone() })
        });
        AddressSettings::of(&read.config.expect("it is right").watchdog.expect("it is on"))
    }

    #[test]
    fn commands_count_only_if_the_file_sets_them() {
        let address: IpAddr = "192.0.2.9".parse().expect("an address");
        let unset = AddressSettings { addresses: vec![address], ..AddressSettings::default() };
        assert_eq!(settings("delegate_ip = '192.0.2.9'\n"), Ok(unset.clone()));
        assert_eq!(settings("delegate_IP = '192.0.2.9'\n"), Ok(unset.clone()), "its old name");
        let set = AddressSettings {
            taking: AddressTaking::Commands { up: "/opt/ip up $_IP_$".into(), down: "/bin/ip down".into() },
            arping_command: Some("/usr/sbin/arping $_IP_$".into()),
            escalations: EscalationCommands { escalation: Some("escalate now".into()), ..EscalationCommands::default() },
            ..unset
        };
        let lines = "delegate_ip = '192.0.2.9'\nif_cmd_path = '/opt'\nif_up_cmd = 'ip up $_IP_$'\n\
                     if_down_cmd = '/bin/ip down'\narping_cmd = 'arping $_IP_$'\nwd_escalation_command = 'escalate now'\n";
        assert_eq!(settings(lines), Ok(set));
        let half = AddressSettingsError::HalfOfCommands { set: "if_up_cmd", missing: "if_down_cmd" };
        assert_eq!(settings("if_up_cmd = 'ip up'\n"), Err(half));
    }

    #[test]
    fn an_address_stands_in_each_of_its_places() {
        let address = "2001:db8::9".parse().expect("an address");
        assert_eq!(for_address("ip addr add $_IP_$/64 label $_IP_$", address), "ip addr add 2001:db8::9/64 label 2001:db8::9");
    }
}
