//! Demands of two parameters on all clients, applied to the rules.

use super::{AdmittedUsers, ClientCertDemand, HbaAuthMethod, HbaConnectionType, HbaRule, PamService};
use crate::client_demands::{ClientTls, CommonMethod};

/// The method of rules that leave it to `auth_type`.
pub(super) const BY_PARAMETER: &str = "auth_type";

impl CommonMethod {
    /// Gives a rule this method. PgBouncer admits only users that it knows, except for methods judged elsewhere.
    pub(super) fn give_to(self, rule: &mut HbaRule) {
        let (method, admits) = match self {
            CommonMethod::ByRules => (HbaAuthMethod::Reject, AdmittedUsers::Anyone),
            CommonMethod::Trust => (HbaAuthMethod::Trust, AdmittedUsers::KnownUsers),
            CommonMethod::Plain => (HbaAuthMethod::Password, AdmittedUsers::KnownUsers),
            CommonMethod::Md5 => (HbaAuthMethod::Md5, AdmittedUsers::Anyone),
            CommonMethod::Scram => (HbaAuthMethod::Scram, AdmittedUsers::Anyone),
            // Requires TLS, which these connections lack.
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
    /// Removes clients without TLS from a rule.
    pub(super) fn give_to(self, rule: &mut HbaRule) {
        match (self, rule.connection) {
            // GSS encryption is not supported: a rule for it must not become one for other clients.
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
