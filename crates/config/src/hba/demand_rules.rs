//! The demands of two parameters on all clients, as rules.
//!
//! In: parameters and a rule of a file. Out: the rule in force.

use super::{Admits, Certificate, Connection, Method, Rule, Service};
use crate::client_demands::{ClientTls, CommonMethod};

/// The word of a rule that leaves its method to the parameter `auth_type`.
pub(super) const BY_PARAMETER: &str = "auth_type";

impl CommonMethod {
    /// Gives a rule this method. PgBouncer lets in users that it knows, whatever the method, but for those whom another one judges.
    pub(super) fn give_to(self, rule: &mut Rule) {
        let (method, admits) = match self {
            CommonMethod::ByRules => (Method::Reject, Admits::Anyone),
            CommonMethod::Trust => (Method::Trust, Admits::KnownUsers),
            CommonMethod::Plain => (Method::Password, Admits::KnownUsers),
            CommonMethod::Md5 => (Method::Md5, Admits::Anyone),
            CommonMethod::Scram => (Method::Scram, Admits::Anyone),
            // It asks for TLS, which these connections have not.
            CommonMethod::Cert if matches!(rule.connection, Connection::Local | Connection::HostNoSsl | Connection::HostGss) => {
                (Method::Reject, Admits::Anyone)
            }
            CommonMethod::Cert => {
                (rule.connection, rule.certificate) = (Connection::HostSsl, Certificate::VerifyFull);
                (Method::Cert, Admits::KnownUsers)
            }
            CommonMethod::Pam => {
                let (name, uses_host_name) = ("pgbouncer".to_string(), false);
                rule.service = Some(Service { name, uses_host_name, is_password_for_servers: true }.into());
                (Method::Pam, Admits::Anyone)
            }
        };
        (rule.method, rule.admits) = (method, admits);
    }
}

impl ClientTls {
    /// Takes clients without TLS out of a rule.
    pub(super) fn give_to(self, rule: &mut Rule) {
        match (self, rule.connection) {
            // No client has GSS encryption: a rule for such clients must not become one for others.
            (ClientTls::Any, _) | (_, Connection::Local | Connection::HostGss) => return,
            (_, Connection::HostNoSsl) => rule.method = Method::Reject,
            (_, Connection::Host | Connection::HostSsl | Connection::HostNoGss) => rule.connection = Connection::HostSsl,
        }
        if self == ClientTls::Certified && rule.certificate == Certificate::Any && rule.method != Method::Reject {
            rule.certificate = Certificate::VerifyCa;
        }
    }
}
