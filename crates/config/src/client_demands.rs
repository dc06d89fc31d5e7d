//! Demands on all clients beside `pool_hba.conf`: PgBouncer's `auth_type` and `client_tls_sslmode`.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientDemands {
    /// Method of rules that leave it to `auth_type`.
    pub method: CommonMethod,
    pub tls: ClientTls,
}

/// PgBouncer's method for all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommonMethod {
    /// The other rules decide.
    #[default]
    ByRules,
    Trust,
    Plain,
    Md5,
    Scram,
    Cert,
    Pam,
}

/// Encryption of clients over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientTls {
    /// The rules decide.
    #[default]
    Any,
    Required,
    /// With a certificate of a trusted authority.
    Certified,
}

impl CommonMethod {
    pub fn from_word(word: &str) -> CommonMethod {
        match word {
            "trust" => CommonMethod::Trust,
            "plain" => CommonMethod::Plain,
            "md5" => CommonMethod::Md5,
            "scram-sha-256" => CommonMethod::Scram,
            "cert" => CommonMethod::Cert,
            "pam" => CommonMethod::Pam,
            _ => CommonMethod::ByRules,
        }
    }
}

impl ClientTls {
    pub fn from_word(word: &str) -> ClientTls {
        match word {
            "require" => ClientTls::Required,
            "verify-ca" => ClientTls::Certified,
            _ => ClientTls::Any,
        }
    }
}
