//! Encryption settings of a [`Config`](super::Config), written only by the setters of the parameter table.
use std::path::PathBuf;

/// Encryption of both sides. Paths are relative to the configuration's directory.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// Offered to clients, and used with servers that support it.
    pub enabled: bool,
    pub key: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    /// Trusted authorities, also for servers without `root_cert`.
    pub ca_cert: Option<PathBuf>,
    /// Directory of trusted authorities.
    pub ca_cert_dir: Option<PathBuf>,
    pub crl_file: Option<PathBuf>,
    /// Ciphers for TLS 1.2, in OpenSSL's notation.
    pub ciphers: String,
    /// True if the proxy's order of ciphers counts, not the client's.
    pub prefer_server_ciphers: bool,
    pub curves: String,
    /// Command that prints a key's pass phrase.
    pub passphrase_command: String,
    pub min_version: TlsVersion,
    /// Files towards servers; the mode belongs to each node.
    pub backend: PeerFiles,
    pub binding: ChannelBinding,
    /// Files towards memcached or Redis.
    pub store: PeerFiles,
    /// Mode towards the stores: none that may go unencrypted.
    pub store_mode: SslMode,
}

/// Files for connections on which the proxy is the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerFiles {
    /// Authorities for the other side, if not those for clients.
    pub root_cert: Option<PathBuf>,
    pub crl_file: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

/// When server connections are encrypted. Source: libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SslMode {
    /// By `ssl`, as in Pgpool-II.
    Auto,
    Disable,
    /// If the server insists.
    Allow,
    /// If the server can.
    Prefer,
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// Always, with a trusted certificate of the host.
    VerifyFull,
}

/// Binding of SCRAM logins to the TLS channel. Source: libpq's `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// If the server offers it.
    Prefer,
    Disable,
    Require,
}

impl TlsConfig {
    pub(super) fn empty() -> TlsConfig {
        TlsConfig {
            enabled: false,
            key: None,
            cert: None,
            ca_cert: None,
            ca_cert_dir: None,
            crl_file: None,
            ciphers: String::new(),
            prefer_server_ciphers: false,
            curves: String::new(),
            passphrase_command: String::new(),
            min_version: TlsVersion::V1_2,
            backend: PeerFiles::default(),
            binding: ChannelBinding::Prefer,
            store: PeerFiles::default(),
            store_mode: SslMode::Disable,
        }
    }
}

impl TlsVersion {
    pub(crate) fn from_word(word: &str) -> TlsVersion {
        match word {
            "TLSv1.3" => TlsVersion::V1_3,
            _ => TlsVersion::V1_2,
        }
    }
}

impl SslMode {
    pub(crate) fn from_word(word: &str) -> SslMode {
        match word {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => SslMode::Auto,
        }
    }
}

impl ChannelBinding {
    pub(crate) fn from_word(word: &str) -> ChannelBinding {
        match word {
            "disable" => ChannelBinding::Disable,
            "require" => ChannelBinding::Require,
            _ => ChannelBinding::Prefer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_the_table_has_its_meaning() {
        for (word, meaning) in
            [("disable", ChannelBinding::Disable), ("prefer", ChannelBinding::Prefer), ("require", ChannelBinding::Require)]
        {
            assert_eq!(ChannelBinding::from_word(word), meaning, "{word}");
        }
    }
}
