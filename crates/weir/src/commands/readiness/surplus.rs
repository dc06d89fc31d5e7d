//! Rights that Weir's own users do not need, and a thief of their passwords would gain.

use super::{ALTER_VERSION, FindingLevel, FindingList, NodeAnswers};
use weir_failover::{FailoverMode, FailoverRules};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeirUserPurpose {
    /// `health_check_user`, who also carries out failovers.
    Failover,
    /// `sr_check_user`.
    Looks,
    /// `auth_user`.
    Logins,
}

impl WeirUserPurpose {
    fn parameter(self, of_health: &'static str) -> &'static str {
        match self {
            WeirUserPurpose::Failover => of_health,
            WeirUserPurpose::Looks => "sr_check_user",
            WeirUserPurpose::Logins => "auth_user",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnUser {
    pub errand: WeirUserPurpose,
    pub name: String,
    /// `SUPERUSER` alone, or other attributes and predefined roles.
    pub surplus: Vec<String>,
}

/// In the order of the answer's columns.
pub const ATTRIBUTES: [&str; 4] = ["SUPERUSER", "CREATEROLE", "CREATEDB", "BYPASSRLS"];

/// Predefined roles whose members reach data or the machine. Source: PostgreSQL manual, "Predefined Roles".
pub const ROLES: [&str; 5] =
    ["pg_read_all_data", "pg_write_all_data", "pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"];

/// `roles`: separated by commas. A superuser has all else too.
pub fn of_answer(attributes: [bool; 4], roles: &str) -> Vec<String> {
    if attributes[0] {
        return vec![ATTRIBUTES[0].to_owned()];
    }
    let has = ATTRIBUTES.iter().zip(attributes).filter(|(_, has)| *has).map(|(name, _)| (*name).to_owned());
    has.chain(roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned)).collect()
}

/// One warning for each user, however many parameters name him.
pub(super) fn look(rules: &FailoverRules, version: u32, asked: &NodeAnswers, notes: &mut FindingList<'_>) {
    let mut named: Vec<&str> = Vec::new();
    for user in asked.own_users.iter().filter(|user| !user.surplus.is_empty()) {
        // Before version 15 only superusers may change a failover's settings.
        let needs_superuser =
            rules.mode == FailoverMode::Builtin && version < ALTER_VERSION && user.errand == WeirUserPurpose::Failover;
        if needs_superuser {
            named.push(&user.name);
        }
        if named.contains(&user.name.as_str()) {
            continue;
        }
        named.push(&user.name);
        let text = format!(
            "{} \"{}\" has more rights than Weir needs: {}",
            user.errand.parameter(asked.user_parameter),
            user.name,
            user.surplus.join(", ")
        );
        let advice = match user.errand {
            WeirUserPurpose::Failover | WeirUserPurpose::Looks => {
                "give Weir a role of its own with the rights that docs/security.md lists"
            }
            WeirUserPurpose::Logins => {
                "have auth_query call a SECURITY DEFINER function, as docs/authentication.md shows, and take the rights away"
            }
        };
        notes.add(FindingLevel::Warning, text, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superuser_has_nothing_else_to_be_told() {
        assert_eq!(of_answer([true, true, false, true], "pg_read_all_data"), ["SUPERUSER"]);
        assert_eq!(
            of_answer([false, true, false, true], "pg_read_all_data,x"),
            ["CREATEROLE", "BYPASSRLS", "pg_read_all_data", "x"]
        );
        assert!(of_answer([false; 4], "").is_empty());
    }
}
