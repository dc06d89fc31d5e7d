//! Setups in which clients get in without a proof, as far as the files say so.
//!
//! Servers that trust this machine are not covered: they must be asked.

use crate::hba::{AdmittedUsers, HbaRuleSet};
use crate::{Config, ConfigProblem, PasswdProof, ProblemSeverity};

/// Warns of each way in. `rules`: those in force; `users`: usable lines of `pool_passwd`.
pub fn warnings(config: &Config, rules: Option<&HbaRuleSet>, users: usize) -> Vec<ConfigProblem> {
    match rules {
        Some(rules) if config.listens_to_others() => rules
            .unasked()
            .map(|rule| {
                let who = match rule.admits {
                    AdmittedUsers::Anyone => "clients of other machines",
                    AdmittedUsers::KnownUsers => "clients of other machines that name a user of pool_passwd",
                };
                let message = format!("{who} get in by method trust and are asked for no password");
                ConfigProblem {
                    severity: ProblemSeverity::Warning,
                    path: Some(rule.file.clone()),
                    line: Some(rule.line),
                    message,
                }
            })
            .collect(),
        Some(_) => Vec::new(),
        None => without_rules(config, users).into_iter().collect(),
    }
}

/// With `enable_pool_hba = off` the servers decide about users without a known secret.
fn without_rules(config: &Config, users: usize) -> Option<ConfigProblem> {
    let auth = &config.auth;
    // A clear text password that no server asks for is refused: no open way in.
    if !auth.ask_user.is_empty() || auth.allow_clear_text {
        return None;
    }
    let is_left_to_servers = users == 0 || auth.passwd_proof == PasswdProof::AsServers;
    let who = if is_left_to_servers { "no client" } else { "no client whose user has no entry in pool_passwd" };
    let message = format!(
        "{who} is asked for a password, and where a server trusts this machine all of them get in, as any user; \
         set enable_pool_hba = on with rules that ask, or auth_user"
    );
    Some(ConfigProblem { severity: ProblemSeverity::Warning, path: None, line: None, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hba::{FileLoader, LoadError};
    use std::path::Path;

    /// The warnings of a configuration (`;` for line ends) with these rules, and this many users.
    fn check(conf: &str, rules: &str, users: usize, expected: &str) {
        let conf = format!("backend_hostname0 = 'a'\n{}", conf.replace(';', "\n"));
        let outcome = crate::read(Path::new("c"), &mut |_| Ok(conf.clone().into_bytes()));
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems));
        let mut file = |_: &Path| Ok(rules.replace(';', "\n").into_bytes());
        let mut folder = |_: &Path| Err(LoadError::NotFound);
        let hba = (!rules.is_empty()).then(|| {
            let (hba, problems) =
                HbaRuleSet::read(Path::new("h"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
            hba.unwrap_or_else(|| panic!("{problems:?}"))
        });
        let found: Vec<String> = warnings(&config, hba.as_ref(), users)
            .iter()
            .map(|problem| {
                format!("{}: {}", problem.line.unwrap_or(0), problem.message.split(" and ").next().unwrap_or_default())
            })
            .collect();
        assert_eq!(found.join("; "), expected, "{conf} {rules}");
    }

    #[test]
    fn every_way_in_without_a_question_is_named() {
        let trusted = "clients of other machines get in by method trust";
        let all = "listen_addresses = '*'";
        check(all, "host all all all trust", 0, &format!("1: {trusted}"));
        check(all, "host all all 0.0.0.0/0 trust; hostssl all all samenet trust", 9, &format!("1: {trusted}; 2: {trusted}"));
        check(all, "host all all app.example.com trust", 0, &format!("1: {trusted}"));
        check(
            all,
            "host all all all trust known_users=1",
            9,
            "1: clients of other machines that name a user of pool_passwd get in by method trust",
        );
        for rules in [
            "local all all trust; host all all 127.0.0.1/32 trust; host all all ::1/128 trust; host all all samehost trust",
            "hostssl all all all trust clientcert=verify-full",
            "host all all all scram-sha-256",
        ] {
            check(all, rules, 0, "");
        }
        check("listen_addresses = 'localhost,127.0.0.1,::1'", "host all all all trust", 0, "");
        check("listen_addresses = ''", "host all all all trust", 0, "");
        check("", "", 0, "0: no client is asked for a password,");
        check("", "", 3, "0: no client whose user has no entry in pool_passwd is asked for a password,");
        check("pool_passwd_proof = as_servers", "", 3, "0: no client is asked for a password,");
        check("auth_user = 'a'", "", 0, "");
        check("allow_clear_text_frontend_auth = on", "", 0, "");
    }
}
