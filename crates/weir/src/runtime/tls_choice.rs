//! Decisions about encryption: attempts that a mode allows, ciphers, host names of certificates.

use weir_config::SslMode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAttempt {
    Plain,
    /// Without TLS on the server the connection goes on unencrypted.
    Willing,
    Encrypted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateCheck {
    /// Encryption against listeners only.
    Nothing,
    Authority,
    /// `Authority`, and the certificate is of the intended host.
    HostName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsPlan {
    /// A later attempt follows a server's refusal.
    pub attempts: &'static [TlsAttempt],
    pub check: CertificateCheck,
}

/// Returns the plan for a server. Source: PostgreSQL manual, "SSL Support", table of modes; `auto` is Pgpool-II's `ssl` for servers.
///
/// PostgreSQL refuses encryption over Unix sockets.
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
        // With authorities it means verify-ca, as in libpq.
        SslMode::Require => TlsPlan { attempts: &[Encrypted], check },
        SslMode::VerifyCa => TlsPlan { attempts: &[Encrypted], check: CertificateCheck::Authority },
        SslMode::VerifyFull => TlsPlan { attempts: &[Encrypted], check: CertificateCheck::HostName },
    }
}

/// Indexes of the cipher suites that an OpenSSL list names, in its order.
///
/// `known`: OpenSSL names of available suites. Groups stand for their members; unknown words (`!aNULL`, `+3DES`) change nothing.
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

/// Words joined by `+` must all fit.
fn belongs(suite: &str, name: &str) -> bool {
    suite == name || name.split('+').all(|word| is_of_group(suite, word))
}

fn is_of_group(suite: &str, word: &str) -> bool {
    let has = |part: &str| suite.split('-').any(|piece| piece == part);
    match word {
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

/// A star stands for the whole first label.
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
