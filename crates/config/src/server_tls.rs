//! Compares server connections with the TLS settings of a configuration.

use crate::{Config, SslMode};

impl Config {
    /// True if open server connections are encrypted and checked as `other` requires. Ignores file contents.
    pub fn reaches_servers_as(&self, other: &Config) -> bool {
        fn modes(config: &Config) -> impl Iterator<Item = (u16, SslMode)> + '_ {
            config.all_nodes().map(|node| (node.id, node.ssl_mode))
        }
        let (ours, theirs) = (&self.tls, &other.tls);
        let follows = self.all_nodes().any(|node| node.ssl_mode == SslMode::Auto);
        let has_node = |(id, _): &(u16, SslMode)| self.all_nodes().any(|node| node.id == *id);
        let is_own_root = ours.backend.root_cert.is_some();
        (!follows || ours.enabled == theirs.enabled)
            && ours.backend == theirs.backend
            && (is_own_root || (ours.ca_cert == theirs.ca_cert && ours.ca_cert_dir == theirs.ca_cert_dir))
            && (ours.min_version == theirs.min_version && ours.ciphers == theirs.ciphers)
            // New and removed nodes change nothing for the others.
            && modes(other).filter(has_node).all(|known| modes(self).any(|mode| mode == known))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn config(more: &str) -> crate::Config {
        let conf = format!("backend_hostname0 = 'a'\nbackend_sslmode = prefer\nbackend_sslrootcert = 'none'\n{more}");
        crate::read(Path::new("c"), &mut |_| Ok(conf.clone().into_bytes())).config.expect("it is one")
    }

    #[test]
    fn a_change_of_the_encryption_towards_servers_is_seen_and_no_other_one() {
        let plain = config("");
        for other in [
            "backend_sslmode = require",
            "backend_sslrootcert = 'ca'",
            "ssl_min_protocol_version = TLSv1.3",
            "backend_sslmode0 = disable",
        ] {
            assert!(!config(other).reaches_servers_as(&plain), "{other}");
        }
        for same in ["pool_size = 3", "ssl_ca_cert = 'ca'", "backend_hostname1 = 'b'\nbackend_sslmode1 = disable"] {
            assert!(config(same).reaches_servers_as(&plain), "{same}");
            assert!(plain.reaches_servers_as(&config(same)), "{same}");
        }
        assert!(
            !config("backend_sslmode = auto\nssl_ca_cert = 'ca'\nssl = on\nssl_cert = 'c'\nssl_key = 'k'")
                .reaches_servers_as(&plain)
        );
    }
}
