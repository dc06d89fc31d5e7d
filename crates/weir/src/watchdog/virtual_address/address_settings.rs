//! What the operator said about the virtual address.

use std::net::IpAddr;
use weir_config::Config;

/// Virtual addresses of one group.
const ADDRESSES_MAX: usize = 16;

/// Why the settings of the virtual address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressSettingsError {
    #[error("\"{0}\" in delegate_ip is no address; write addresses of IPv4 or IPv6 with commas between them")]
    NoAddress(String),
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
    /// `wd_escalation_command`.
    pub escalation_command: Option<String>,
    /// `wd_de_escalation_command`.
    pub de_escalation_command: Option<String>,
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
    pub fn of(config: &Config) -> Result<AddressSettings, AddressSettingsError> {
        let command = |name, path| with_path(&text(config, path), own_text(config, name)?);
        let taking = match (command("if_up_cmd", "if_cmd_path"), command("if_down_cmd", "if_cmd_path")) {
            (Some(up), Some(down)) => AddressTaking::Commands { up, down },
            (None, None) => AddressTaking::Netlink,
            (Some(_), None) => {
                return Err(AddressSettingsError::HalfOfCommands { set: "if_up_cmd", missing: "if_down_cmd" });
            }
            (None, Some(_)) => {
                return Err(AddressSettingsError::HalfOfCommands { set: "if_down_cmd", missing: "if_up_cmd" });
            }
        };
        Ok(AddressSettings {
            addresses: addresses(&text(config, "delegate_ip"))?,
            taking,
            arping_command: command("arping_cmd", "arping_path"),
            escalation_command: own_text(config, "wd_escalation_command"),
            de_escalation_command: own_text(config, "wd_de_escalation_command"),
        })
    }
}

/// The command for one address.
pub fn for_address(command: &str, address: IpAddr) -> String {
    command.replace("$_IP_$", &address.to_string())
}

fn addresses(list: &str) -> Result<Vec<IpAddr>, AddressSettingsError> {
    let mut addresses = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let address = word.parse().map_err(|_| AddressSettingsError::NoAddress(word.to_owned()))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.len() > ADDRESSES_MAX {
        return Err(AddressSettingsError::TooMany(addresses.len()));
    }
    Ok(addresses)
}

/// Puts the path before a command that does not begin with a slash; none is no command.
fn with_path(path: &str, command: String) -> Option<String> {
    let command = command.trim();
    match command.chars().next()? {
        '/' => Some(command.to_owned()),
        _ if path.is_empty() => Some(command.to_owned()),
        _ => Some(format!("{}/{command}", path.trim_end_matches('/'))),
    }
}

fn text(config: &Config, name: &str) -> String {
    config.setting(name, None).map(|setting| setting.raw.clone()).unwrap_or_default()
}

/// The text if somebody set it.
fn own_text(config: &Config, name: &str) -> Option<String> {
    Some(text(config, name)).filter(|text| !config.is_default(name) && !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_with_commas_between_them() {
        let parsed = addresses("192.0.2.9, 2001:db8::9,192.0.2.9").expect("addresses");
        assert_eq!(parsed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.9", "2001:db8::9"]);
        assert_eq!(addresses(""), Ok(Vec::new()));
        assert_eq!(addresses("192.0.2.9/24"), Err(AddressSettingsError::NoAddress("192.0.2.9/24".into())));
        let many = (0..17).map(|last| format!("192.0.2.{last}")).collect::<Vec<_>>().join(",");
        assert_eq!(addresses(&many), Err(AddressSettingsError::TooMany(17)));
    }

    fn settings(lines: &str) -> Result<AddressSettings, AddressSettingsError> {
        let conf = format!("backend_hostname0 = 'h'\n{lines}").into_bytes();
        let read = weir_config::read(std::path::Path::new("c"), &mut |_| Ok(conf.clone()));
        AddressSettings::of(&read.config.expect("it is right"))
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
            escalation_command: Some("escalate now".into()),
            ..unset
        };
        let lines = "delegate_ip = '192.0.2.9'\nif_cmd_path = '/opt'\nif_up_cmd = 'ip up $_IP_$'\n\
                     if_down_cmd = '/bin/ip down'\narping_cmd = 'arping $_IP_$'\nwd_escalation_command = 'escalate now'\n";
        assert_eq!(settings(lines), Ok(set));
        let half = AddressSettingsError::HalfOfCommands { set: "if_up_cmd", missing: "if_down_cmd" };
        assert_eq!(settings("if_up_cmd = 'ip up'\n"), Err(half));
    }

    #[test]
    fn a_command_has_its_path_unless_it_begins_with_a_slash() {
        let command = |text: &str| with_path("/sbin/", text.to_owned());
        assert_eq!(command("ip addr add $_IP_$/24").as_deref(), Some("/sbin/ip addr add $_IP_$/24"));
        assert_eq!(command("/usr/bin/sudo ip").as_deref(), Some("/usr/bin/sudo ip"));
        assert_eq!(command(" "), None);
        let address = "2001:db8::9".parse().expect("an address");
        assert_eq!(for_address("ip addr add $_IP_$/64 label $_IP_$", address), "ip addr add 2001:db8::9/64 label 2001:db8::9");
    }
}
