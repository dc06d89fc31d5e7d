//! Decisions about encryption: which attempts to reach a server a mode allows, which ciphers a list names, which name a certificate fits.
//!
//! In: words of the configuration and of certificates. Out: plain values. Keys, files and handshakes are the caller's.

use weir_config::SslMode;

/// One way to open a server connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAttempt {
    /// Without encryption.
    Plain,
    /// Encrypted; if the server has no TLS, the same connection goes on without.
    Willing,
    /// Encrypted, or not at all.
    Encrypted,
}

/// How much of a server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateCheck {
    /// Nothing: encryption against listeners only.
    Nothing,
    /// An authority that we trust has signed it.
    Authority,
    /// That, and that it is of the host we meant.
    HostName,
}

/// Meaning of a mode for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsPlan {
    /// In order; a later one is tried when the server refused the one before.
    pub attempts: &'static [TlsAttempt],
    /// Holds for every encrypted attempt.
    pub check: CertificateCheck,
}

/// The plan for a server. Source: PostgreSQL manual, "SSL Support", table of modes; `auto` is the meaning of Pgpool-II's `ssl`
/// for servers.
///
/// Unix sockets are never encrypted: PostgreSQL refuses it, and nobody can listen.
pub fn plan(mode: SslMode, ssl: bool, has_authorities: bool, is_unix: bool) -> TlsPlan {
    use TlsAttempt::{Encrypted, Plain, Willing};
    let check = if has_authorities { CertificateCheck::Authority } else { CertificateCheck::Nothing };
    if is_unix {
        return TlsPlan { attempts: &[Plain], check: CertificateCheck::Nothing };
    }
    match mode {
        SslMode::Disable => TlsPlan { attempts: &[Plain], check: CertificateCheck::Nothing },
        SslMode::Auto if !ssl => TlsPlan { attempts: &[Plain], check: CertificateCheck::Nothing },
        SslMode::Auto => TlsPlan { attempts: &[Willing], check },
        SslMode::Allow => TlsPlan { attempts: &[Plain, Encrypted], check: CertificateCheck::Nothing },
        SslMode::Prefer => TlsPlan { attempts: &[Willing, Plain], check: CertificateCheck::Nothing },
        // With authorities at hand it means verify-ca, as in libpq.
        SslMode::Require => TlsPlan { attempts: &[Encrypted], check },
        SslMode::VerifyCa => TlsPlan { attempts: &[Encrypted], check: CertificateCheck::Authority },
        SslMode::VerifyFull => TlsPlan { attempts: &[Encrypted], check: CertificateCheck::HostName },
    }
}

/// Numbers of the cipher suites that a list in OpenSSL's notation names, in the list's order.
///
/// `known` are OpenSSL's names of the suites there are. Words for groups of suites stand for those of `known` that belong to
/// them; unknown words (`!aNULL`, `+3DES`) change nothing.
pub fn suites(list: &str, known: &[&str]) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut banned: Vec<usize> = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (sign, name) = match word.split_at_checked(1) {
            Some((sign @ ("!" | "-" | "+"), name)) => (sign, name),
            Some(_) | None => ("", word),
        };
        let named: Vec<usize> = (0..known.len()).filter(|&at| belongs(known[at], name)).collect();
        match sign {
            "!" | "-" => {
                chosen.retain(|at| !named.contains(at));
                if sign == "!" {
                    banned.extend(named);
                }
            }
            "+" => {
                // Moves suites to the end that are chosen already.
                let (moved, kept): (Vec<usize>, Vec<usize>) = chosen.iter().partition(|at| named.contains(at));
                chosen = [kept, moved].concat();
            }
            _ => {
                let new: Vec<usize> = named.into_iter().filter(|at| !chosen.contains(at) && !banned.contains(at)).collect();
                chosen.extend(new);
            }
        }
    }
    chosen
}

/// True if a suite is the named one or of the named group; `+` between words means all of them.
fn belongs(suite: &str, name: &str) -> bool {
    suite == name || name.split('+').all(|word| is_of_group(suite, word))
}

fn is_of_group(suite: &str, word: &str) -> bool {
    let has = |part: &str| suite.split('-').any(|piece| piece == part);
    match word {
        // Everything a modern library has is in OpenSSL's highest class.
        "HIGH" | "ALL" | "DEFAULT" | "TLSv1.2" => true,
        "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" => has("ECDHE"),
        "RSA" | "aRSA" => has("RSA"),
        "ECDSA" | "aECDSA" => has("ECDSA"),
        "AES" => has("AES128") || has("AES256"),
        "AESGCM" => has("GCM"),
        "CHACHA20" => has("CHACHA20"),
        "AES128" | "AES256" | "SHA256" | "SHA384" => has(word),
        _ => false,
    }
}

/// True if a name in a certificate is that of the host. A star stands for the whole first label and nothing else.
///
/// Source: `wildcard_certificate_match` in PostgreSQL's fe-secure-common.c.
pub fn is_name_of(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let (Some(rest), Some((label, domain))) = (pattern.strip_prefix("*."), host.split_once('.')) else { return false };
    !label.is_empty() && rest.contains('.') && rest.eq_ignore_ascii_case(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"];

    fn check_suites(list: &str, expected: &[usize]) {
        assert_eq!(suites(list, KNOWN), expected, "{list}");
    }

    #[test]
    fn a_cipher_list_is_read_as_openssl_reads_it() {
        check_suites("HIGH:MEDIUM:+3DES:!aNULL", &[0, 1, 2]);
        check_suites("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384", &[2, 0]);
        check_suites("!CHACHA20:HIGH", &[0, 2]);
        check_suites("HIGH:+AES256", &[1, 2, 0]);
        check_suites("ECDHE+aRSA", &[2]);
        check_suites("HIGH:-ECDSA:CHACHA20", &[2, 1]);
        check_suites("DES-CBC3-SHA", &[]);
        check_suites("", &[]);
    }

    #[test]
    fn a_star_stands_for_one_label() {
        assert!(is_name_of("db.example.com", "DB.example.com"));
        assert!(is_name_of("*.example.com", "db.example.com"));
        assert!(!is_name_of("*.example.com", "a.db.example.com"));
        assert!(!is_name_of("*.example.com", "example.com"));
        assert!(!is_name_of("*.com", "example.com"));
        assert!(!is_name_of("d*.example.com", "db.example.com"));
    }

    #[test]
    fn no_mode_falls_back_that_promises_encryption() {
        for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
            assert_eq!(plan(mode, false, true, false).attempts, [TlsAttempt::Encrypted], "{mode:?}");
            assert_ne!(plan(mode, false, true, false).check, CertificateCheck::Nothing, "{mode:?}");
        }
        assert_eq!(plan(SslMode::Auto, false, true, false).attempts, [TlsAttempt::Plain]);
        assert_eq!(
            plan(SslMode::Auto, true, true, false),
            TlsPlan { attempts: &[TlsAttempt::Willing], check: CertificateCheck::Authority }
        );
        assert_eq!(plan(SslMode::VerifyFull, true, true, true).attempts, [TlsAttempt::Plain]);
    }
}
