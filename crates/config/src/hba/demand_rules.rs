//! The demands of two parameters on all clients, as rules.
//!
//! In: parameters and a rule of a file. Out: the rule in force.

use super::{AdmittedUsers, ClientCertDemand, HbaAuthMethod, HbaConnectionType, HbaRule, PamService};
use crate::client_demands::{ClientTls, CommonMethod};

/// The word of a rule that leaves its method to the parameter `auth_type`.
pub(super) const BY_PARAMETER: &str = "auth_type";

impl CommonMethod {
    /// Gives a rule this method. PgBouncer lets in users that it knows, whatever the method, but for those whom another one judges.
    pub(super) fn give_to(self, rule: &mut HbaRule) {
        let (method, admits) = match self {
            CommonMethod::ByRules => (HbaAuthMethod::Reject, AdmittedUsers::Anyone),
            CommonMethod::Trust => (HbaAuthMethod::Trust, AdmittedUsers::KnownUsers),
            CommonMethod::Plain => (HbaAuthMethod::Password, AdmittedUsers::KnownUsers),
            CommonMethod::Md5 => (HbaAuthMethod::Md5, AdmittedUsers::Anyone),
            CommonMethod::Scram => (HbaAuthMethod::Scram, AdmittedUsers::Anyone),
            // It asks for TLS, which these connections have not.
            CommonMethod::Cert
                if matches!(
                    rule.connection,
                    HbaConnectionType::Local | HbaConnectionType::HostNoSsl | HbaConnectionType::HostGss
                ) =>
            {
                (HbaAuthMethod::Reject, AdmittedUsers::Anyone)
            }
            CommonMethod::Cert => {
                (rule.connection, rule.certificate) = (HbaConnectionType::HostSsl, ClientCertDemand::VerifyFull);
                (HbaAuthMethod::Cert, AdmittedUsers::KnownUsers)
            }
            CommonMethod::Pam => {
                let (name, uses_host_name) = ("pgbouncer".to_string(), false);
                rule.service = Some(PamService { name, uses_host_name, is_password_for_servers: true }.into());
                (HbaAuthMethod::Pam, AdmittedUsers::Anyone)
            }
        };
        (rule.method, rule.admits) = (method, admits);
    }
}

impl ClientTls {
    /// Takes clients without TLS out of a rule.
    pub(super) fn give_to(self, rule: &mut HbaRule) {
        match (self, rule.connection) {
            // No client has GSS encryption: a rule for such clients must not become one for others.
            (ClientTls::Any, _) | (_, HbaConnectionType::Local | HbaConnectionType::HostGss) => return,
            (_, HbaConnectionType::HostNoSsl) => rule.method = HbaAuthMethod::Reject,
            (_, HbaConnectionType::Host | HbaConnectionType::HostSsl | HbaConnectionType::HostNoGss) => {
                rule.connection = HbaConnectionType::HostSsl
            }
        }
        if self == ClientTls::Certified && rule.certificate == ClientCertDemand::Any && rule.method != HbaAuthMethod::Reject {
            rule.certificate = ClientCertDemand::VerifyCa;
        }
    }
}
