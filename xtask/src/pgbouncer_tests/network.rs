//! The network of the tests: one of their own where that can be had, in which they may drop connections by `iptables` as an ordinary user.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{self, Account};

/// Rights of the tests in a network of their own.
const RIGHTS: &str = "+net_admin,+net_raw";
/// Enters a network whose loopback works, as a user with these rights there, and becomes the rest of the line.
const ENTER: &str = "ip link set lo up && exec \"$@\"";
/// Stands in for the tests' `sudo`: they need no more rights than they have. Traffic is slowed down where the kernel can (netem); elsewhere its test
/// is left out.
pub const SUDO: &str = "#!/bin/sh\ncase $1:$WEIR_TESTS_NETEM in tc:no) exit 0 ;; esac\nexec \"$@\"\n";
const PROBE_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// That of the machine: tests that drop connections are left out.
    Shared,
    Own {
        netem: Netem,
    },
}

/// The part of the kernel that slows traffic down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Netem {
    Here,
    Missing,
}

impl Network {
    /// Only root may make one, and only with `iptables` and `ip` installed.
    pub fn find(account: Account) -> Network {
        let works = |words: &[&str]| {
            let Some(mut command) = enter(account) else { return false };
            process::run(command.args(words), PROBE_LIMIT).is_ok_and(|output| output.status.success())
        };
        if !works(&["iptables", "--append", "OUTPUT", "--protocol", "tcp", "--jump", "REJECT", "--reject-with", "tcp-reset"]) {
            return Network::Shared;
        }
        let has_netem = works(&["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]);
        Network::Own { netem: if has_netem { Netem::Here } else { Netem::Missing } }
    }

    /// The command that a program and its arguments follow, as the tests' user.
    pub fn command(self, account: Account) -> Command {
        let own = if self == Network::Shared { None } else { enter(account) };
        own.unwrap_or_else(|| {
            let mut command = Command::new("/usr/bin/env");
            account.apply(&mut command);
            command
        })
    }

    /// Variables by which the tests know what they may do.
    pub fn variables(self) -> Vec<(&'static str, &'static str)> {
        let Network::Own { netem } = self else { return Vec::new() };
        let netem = if netem == Netem::Here { "yes" } else { "no" };
        let has_ipv6 = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6").is_ok_and(|text| text.trim() == "0");
        let mut all = vec![("USE_SUDO", "1"), ("WEIR_TESTS_NETEM", netem)];
        all.extend(has_ipv6.then_some(("HAVE_IPV6_LOCALHOST", "1")));
        all
    }
}

/// `None`: we are no root.
fn enter(account: Account) -> Option<Command> {
    let Account::Other { uid, gid } = account else { return None };
    let tool =
        |name: &str| ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name)).into_iter().find(|path| path.exists());
    let mut command = Command::new(tool("unshare")?);
    command.args(["--net", "sh", "-c", ENTER, "sh"]).arg(tool("setpriv")?);
    command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
    command.args(["--inh-caps", RIGHTS, "--ambient-caps", RIGHTS]);
    Some(command)
}
