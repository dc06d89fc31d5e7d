//! Texts for failed handshakes, in an operator's words, without the peer's name.

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::io;

const DAY_S: u64 = 86_400;

pub fn explain(cause: &io::Error) -> String {
    match cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(fault)) => of_certificate(fault),
        Some(Error::AlertReceived(alert)) => of_peer(*alert),
        Some(Error::PeerIncompatible(fault)) => of_versions(fault),
        Some(Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. }) => {
            "the other side does not speak TLS as it should".into()
        }
        Some(Error::NoCertificatesPresented) => "the other side shows no certificate".into(),
        Some(Error::NoApplicationProtocol) => "the other side does not know the protocol \"postgresql\" (ALPN)".into(),
        Some(Error::InvalidCertRevocationList(fault)) => format!("a revocation list cannot be used: {fault:?}"),
        Some(Error::General(text)) => text.clone(),
        Some(_) | None => cause.to_string(),
    }
}

fn of_certificate(fault: &CertificateError) -> String {
    let other_key = "the authority that the certificate names as its issuer has not signed it: \
                     the authorities here have one of that name with another key";
    match fault {
        CertificateError::UnknownIssuer => "the certificate is signed by none of the authorities".into(),
        CertificateError::BadSignature | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            other_key.into()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "the certificate, or one of its issuers, is signed with an algorithm that is not known here; SHA-256 and stronger with RSA, \
             P-256, P-384 or Ed25519 are"
                .into()
        }
        CertificateError::Expired => "the certificate has expired".into(),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("the certificate expired {} ago", days(*not_after, *time))
        }
        CertificateError::NotValidYet => "the certificate is not valid yet".into(),
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("the certificate will be valid in {} by this machine's clock", days(*time, *not_before))
        }
        CertificateError::Revoked => "the certificate is revoked".into(),
        CertificateError::UnknownRevocationStatus => {
            "there is no revocation list for the authority that signed the certificate".into()
        }
        CertificateError::ExpiredRevocationList => "the revocation list has run out".into(),
        CertificateError::ExpiredRevocationListContext { time, next_update } => {
            format!("the revocation list ran out {} ago", days(*next_update, *time))
        }
        CertificateError::NotValidForName => "the certificate is not valid for the host's name".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let others = if names.is_empty() { "and names no host".into() } else { format!("only for {}", names.join(", ")) };
            format!("the certificate is not valid for name \"{}\", {others}", expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is made for another purpose (extended key usage)".into()
        }
        CertificateError::BadEncoding => "the certificate is damaged".into(),
        CertificateError::UnhandledCriticalExtension => "the certificate has a critical extension that is not known here".into(),
        CertificateError::Other(other) => format!("the certificate cannot be checked: {other}; it must be of X.509 version 3"),
        other => format!("the certificate cannot be checked: {other}"),
    }
}

fn of_peer(alert: AlertDescription) -> String {
    let why = match alert {
        AlertDescription::UnknownCA => "it trusts none of the authorities that signed our certificate",
        AlertDescription::CertificateExpired => "our certificate has expired",
        AlertDescription::CertificateRevoked => "our certificate is revoked",
        AlertDescription::CertificateRequired => "it wants a certificate, and we have none for it",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown | AlertDescription::UnsupportedCertificate => {
            "it does not accept our certificate"
        }
        AlertDescription::ProtocolVersion => "it has none of our versions of TLS, which are 1.2 and 1.3",
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it has no version, cipher or curve in common with us, or wants a certificate"
        }
        AlertDescription::NoApplicationProtocol => "it does not know the protocol \"postgresql\" (ALPN)",
        other => return format!("the other side ended the handshake with alert {}", u8::from(other)),
    };
    format!("the other side ended the handshake: {why}")
}

fn of_versions(fault: &PeerIncompatible) -> String {
    match fault {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => {
            "the other side has no version of TLS that is allowed here (ssl_min_protocol_version, 1.2 at least)".into()
        }
        PeerIncompatible::NoCipherSuitesInCommon => "there is no cipher that both sides allow (ssl_ciphers)".into(),
        PeerIncompatible::NoKxGroupsInCommon => "there is no curve that both sides allow (ssl_ecdh_curve)".into(),
        PeerIncompatible::NoSignatureSchemesInCommon => "the other side cannot check signatures of the kind of our key".into(),
        _ => "the other side lacks a part of TLS that is needed".into(),
    }
}

fn days(from: UnixTime, to: UnixTime) -> String {
    match to.as_secs().saturating_sub(from.as_secs()) / DAY_S {
        0 => "less than a day".into(),
        1 => "1 day".into(),
        days => format!("{days} days"),
    }
}

fn bare(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(presented, |name| name.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use std::time::Duration;

    #[test]
    fn faults_are_told_without_types_and_numbers() {
        let at = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(days * DAY_S));
        let expected = ServerName::try_from("db.example").unwrap();
        let presented = vec!["DnsName(\"one.example\")".to_string(), "IpAddress(10.0.0.1)".to_string()];
        let cases: [(Error, &str); 8] = [
            (CertificateError::UnknownIssuer.into(), "the certificate is signed by none of the authorities"),
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![6, 9, 42],
                    public_key_algorithm_id: vec![6, 7],
                }
                .into(),
                "the authority that the certificate names as its issuer has not signed it: the authorities here have one of that name with \
                 another key",
            ),
            (CertificateError::ExpiredContext { time: at(10), not_after: at(7) }.into(), "the certificate expired 3 days ago"),
            (
                CertificateError::NotValidYetContext { time: at(10), not_before: at(10) }.into(),
                "the certificate will be valid in less than a day by this machine's clock",
            ),
            (
                CertificateError::NotValidForNameContext { expected, presented }.into(),
                "the certificate is not valid for name \"db.example\", only for one.example, 10.0.0.1",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the other side ended the handshake: it trusts none of the authorities that signed our certificate",
            ),
            (
                PeerIncompatible::Tls12NotOffered.into(),
                "the other side has no version of TLS that is allowed here (ssl_min_protocol_version, 1.2 at least)",
            ),
            (Error::General("in words".into()), "in words"),
        ];
        for (error, words) in cases {
            assert_eq!(explain(&io::Error::new(io::ErrorKind::InvalidData, error)), words);
        }
        assert_eq!(explain(&io::Error::other("something else")), "something else");
    }
}
