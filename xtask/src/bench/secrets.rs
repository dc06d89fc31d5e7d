//! Passwords and certificates of clients that do not come in through the open door: made anew for each benchmark.

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use weir_demo::Cluster;

/// The password of `postgres`. The server itself asks nobody for it.
pub const PASSWORD: &str = "bench";

/// A certificate, and the password in the form that a pooler stores.
pub struct Secrets {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
    /// As PostgreSQL stores it.
    pub verifier: String,
}

impl Secrets {
    /// Sets the password on the server, which derives the verifier.
    pub fn make(cluster: &Cluster) -> Result<Self> {
        let primary = cluster.primary();
        primary.query("SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'bench'")?;
        let verifier = primary.value("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'")?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).context("cannot make a certificate")?;
        Ok(Self { certificate: cert.pem(), key: signing_key.serialize_pem(), verifier })
    }
}
