//! Encryption settings of a [`Config`](super::Config). Only the setters of the parameter table write them.
use std::path::PathBuf;

/// Encryption of both sides. Files are relative to the directory of the configuration file.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// Offered to clients, and used with servers that have it.
    pub enabled: bool,
    /// File of the private key.
    pub key: Option<PathBuf>,
    /// File of the certificates shown to clients.
    pub cert: Option<PathBuf>,
    /// File of the authorities that are trusted.
    pub ca_cert: Option<PathBuf>,
    /// Directory of such files.
    pub ca_cert_dir: Option<PathBuf>,
    /// File of revocation lists.
    pub crl_file: Option<PathBuf>,
    /// Ciphers for TLS 1.2, in OpenSSL's notation.
    pub ciphers: String,
    /// Our order of ciphers counts, not the client's.
    pub prefer_server_ciphers: bool,
    /// Curves for the key exchange.
    pub curves: String,
    /// Prints the pass phrase of a key.
    pub passphrase_command: String,
    /// Oldest version spoken.
    pub min_version: TlsVersion,
    /// Towards servers; when, is a node's.
    pub backend: PeerFiles,
    /// Channel binding of logins to servers.
    pub binding: ChannelBinding,
    /// Towards memcached or Redis.
    pub store: PeerFiles,
    /// When connections to these are encrypted: no mode that would also do without.
    pub store_mode: SslMode,
}

/// Files for connections in which we are the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerFiles {
    /// File of the authorities for the other side, if not those for clients.
    pub root_cert: Option<PathBuf>,
    /// File of revocation lists.
    pub crl_file: Option<PathBuf>,
    /// File of the certificate shown to the other side.
    pub cert: Option<PathBuf>,
    /// File of its key.
    pub key: Option<PathBuf>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2.
    V1_2,
    /// 1.3.
    V1_3,
}

/// When server connections are encrypted. Source: libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SslMode {
    /// By `ssl`, as in Pgpool-II.
    Auto,
    /// Never.
    Disable,
    /// When the server insists.
    Allow,
    /// When the server can.
    Prefer,
    /// Always.
    Require,
    /// Always, with a certificate of an authority we trust.
    VerifyCa,
    /// Always, with such a certificate of that very host.
    VerifyFull,
}

/// Binding of logins by SCRAM to the TLS channel. Source: libpq's `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// If the server offers it.
    Prefer,
    /// Never.
    Disable,
    /// Always.
    Require,
}

impl TlsConfig {
    /// All zero: the table sets every field.
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
    /// From a word of the table.
    pub(crate) fn from_word(word: &str) -> TlsVersion {
        match word {
            "TLSv1.3" => TlsVersion::V1_3,
            _ => TlsVersion::V1_2,
        }
    }
}

impl SslMode {
    /// From a word of the table.
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
    /// From a word of the table.
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
