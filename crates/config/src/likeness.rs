//! Values that all hosts of a group (`use_watchdog`) must have alike.
use std::collections::BTreeMap;

use crate::Config;
use crate::params::ParamLikeness;

/// Returns the values in force by the parameter's name, one text for all its numbers. Secrets are left out.
pub fn alike_values(config: &Config) -> BTreeMap<&'static str, String> {
    let mut values: BTreeMap<&'static str, String> = BTreeMap::new();
    for setting in &config.settings {
        match setting.param.likeness {
            ParamLikeness::Alike if !setting.param.is_secret() => {
                let text = values.entry(setting.param.name).or_default();
                text.push_str(&format!("{:?} {:?}\n", setting.index, setting.shown()));
            }
            ParamLikeness::Alike | ParamLikeness::OwnToHost => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::params;

    fn values(text: &str) -> BTreeMap<&'static str, String> {
        let outcome = crate::read(Path::new("/etc/weir/pgpool.conf"), &mut |_| Ok(text.as_bytes().to_vec()));
        alike_values(&outcome.config.expect("it is a configuration"))
    }

    fn check_differing(added: &str, expected: &[&str]) {
        const OWN: &str = "backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\nbackend_weight1 = 2\nfailover_wait = 10s\n";
        let (own, other) = (values(OWN), values(&format!("{OWN}{added}")));
        let names: Vec<&str> = own.keys().filter(|name| own.get(*name) != other.get(*name)).copied().collect();
        assert_eq!(names, expected, "{added}");
    }

    #[test]
    fn values_are_compared_and_not_their_spelling() {
        check_differing("failover_wait = 10000ms", &[]);
        check_differing("backend_weight0 = 0\nport = 7000\npool_size = 3\nwork_dir = '/var'", &[]);
        check_differing("backend_weight0 = 2", &["backend_weight"]);
        check_differing(
            "pool_mode = session\nfailover_command = 'x'\nsr_check_password = 'y'",
            &["failover_command", "pool_mode"],
        );
        let more = "backend_hostname2 = 'c'";
        let numbered =
            params::all().filter(|row| row.likeness == ParamLikeness::Alike && row.indexed == params::ParamIndexing::Node);
        let mut names: Vec<&str> = numbered.map(|row| row.name).collect();
        names.sort_unstable();
        check_differing(more, &names);
    }

    #[test]
    fn no_secret_is_among_them() {
        let secrets: Vec<&str> = params::all().filter(|row| row.is_secret()).map(|row| row.name).collect();
        let text = "backend_hostname0 = 'a'\nsr_check_password = 'hunter2'\nhealth_check_password = 'hunter2'\nrecovery_password = 'hunter2'";
        let values = values(text);
        assert!(secrets.len() > 4 && !secrets.iter().any(|name| values.contains_key(name)));
        assert!(values.values().all(|value| !value.contains("hunter2")));
    }
}
