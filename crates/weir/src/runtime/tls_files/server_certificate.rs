//! Checks of servers' certificates as `backend_sslmode` demands.

use super::certificate;
use crate::runtime::tls_choice::CertificateCheck;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub struct TrustedAuthorities {
    pub(super) verifier: Arc<WebPkiServerVerifier>,
    /// A server's own certificate may be among them.
    pub(super) trusted: Vec<CertificateDer<'static>>,
}

/// Possession of the certificate's key is always checked.
#[derive(Debug)]
pub struct CertificateChecker {
    pub(super) check: CertificateCheck,
    pub(super) authorities: Option<Arc<TrustedAuthorities>>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl TrustedAuthorities {
    fn vouch(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<HostNameMatch, Error> {
        if self.trusted.iter().any(|trusted| trusted == own) {
            // Trusted by itself, as most hand-made certificates of PostgreSQL servers are.
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
            if !certificate::is_in_force(own, time) {
                return Err(CertificateError::Expired.into());
            }
            let verified = rustls::server::ParsedCertificate::try_from(own)
                .and_then(|parsed| rustls::client::verify_server_name(&parsed, name));
            return Ok(verified.map_or_else(HostNameMatch::Other, |()| HostNameMatch::Host));
        }
        // Names are checked last: all else is right.
        match self.verifier.verify_server_cert(own, others, name, &[], now) {
            Ok(_) => Ok(HostNameMatch::Host),
            Err(
                other @ Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                ),
            ) => Ok(HostNameMatch::Other(other)),
            Err(other) => Err(other),
        }
    }
}

enum HostNameMatch {
    Host,
    Other(Error),
}

impl ServerCertVerifier for CertificateChecker {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.check == CertificateCheck::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(authorities) = &self.authorities else {
            return Err(Error::General("there are no authorities to check the certificate against".into()));
        };
        match authorities.vouch(own, others, name, now)? {
            HostNameMatch::Other(error)
                if self.check == CertificateCheck::HostName && !certificate::is_common_name(own, &name.to_str()) =>
            {
                Err(error)
            }
            HostNameMatch::Host | HostNameMatch::Other(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, own, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let verified = verify_tls13_signature(message, own, signed, algorithms);
        match (&verified, certificate::public_key(own)) {
            // rustls cannot read version 1 certificates, which PostgreSQL's instructions make, but can use their keys.
            (Err(Error::InvalidCertificate(CertificateError::Other(_))), Some(key)) => {
                verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
            }
            _ => verified,
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
