//! Demands of two parameters on all clients, beside the rules of `pool_hba.conf`: PgBouncer's `auth_type` and `client_tls_sslmode`.

/// Demands on all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientDemands {
    /// The method of rules that leave it to `auth_type`.
    pub method: CommonMethod,
    /// The encryption of clients over TCP.
    pub tls: ClientTls,
}

/// A method for all, as PgBouncer means it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommonMethod {
    /// None: the other rules decide.
    #[default]
    ByRules,
    Trust,
    Plain,
    Md5,
    Scram,
    Cert,
    Pam,
}

/// Demand on the encryption of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientTls {
    /// None: the rules decide.
    #[default]
    Any,
    Required,
    /// With a certificate by an authority we trust.
    Certified,
}

impl CommonMethod {
    /// The meaning of a word that the parameter allows.
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
    /// The meaning of a word that the parameter allows.
    pub fn from_word(word: &str) -> ClientTls {
        match word {
            "require" => ClientTls::Required,
            "verify-ca" => ClientTls::Certified,
            _ => ClientTls::Any,
        }
    }
}
