//! Contents of certificates: names, dates, and the hash for channel binding.

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, SubjectPublicKeyInfoDer};
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::time::{Duration, SystemTime};
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{AnyRef, ContextSpecific};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{DateTime, Decode, Encode, Reader, Tag, TagNumber, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::spki::AlgorithmIdentifierOwned;

const NOTICE: Duration = Duration::from_secs(14 * 86_400);

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const RSASSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");

/// OpenSSL's short names, as in PostgreSQL's rules and maps.
const SHORT_NAMES: [(&str, &str); 14] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// Hashes for channel binding, by OID. MD5 and SHA-1 are replaced by SHA-256. Source: RFC 5929, section 4.1; PostgreSQL's
/// `be_tls_get_certificate_hash`.
const HASHES: [(&str, CertificateHash); 15] = [
    ("1.2.840.113549.1.1.4", CertificateHash::Sha256),
    ("1.2.840.113549.1.1.5", CertificateHash::Sha256),
    ("1.2.840.113549.1.1.11", CertificateHash::Sha256),
    ("1.2.840.113549.1.1.12", CertificateHash::Sha384),
    ("1.2.840.113549.1.1.13", CertificateHash::Sha512),
    ("1.2.840.10045.4.1", CertificateHash::Sha256),
    ("1.2.840.10045.4.3.2", CertificateHash::Sha256),
    ("1.2.840.10045.4.3.3", CertificateHash::Sha384),
    ("1.2.840.10045.4.3.4", CertificateHash::Sha512),
    ("1.2.840.113549.2.5", CertificateHash::Sha256),
    ("1.3.14.3.2.26", CertificateHash::Sha256),
    ("2.16.840.1.101.3.4.2.1", CertificateHash::Sha256),
    ("2.16.840.1.101.3.4.2.2", CertificateHash::Sha384),
    ("2.16.840.1.101.3.4.2.3", CertificateHash::Sha512),
    ("1.2.840.113549.1.1.14", CertificateHash::None),
];

#[derive(Clone, Copy)]
enum CertificateHash {
    Sha256,
    Sha384,
    Sha512,
    None,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// None with a zero byte, at which some programs end the name.
    pub(crate) common_name: Option<String>,
    /// As RFC 2253 and OpenSSL write it.
    pub(crate) distinguished_name: Option<String>,
}

pub fn subject(der: &CertificateDer<'_>) -> CertificateSubject {
    let Ok(certificate) = Certificate::from_der(der) else { return CertificateSubject::default() };
    let name = &certificate.tbs_certificate.subject;
    let attributes = name.0.iter().flat_map(|part| part.0.iter());
    let common_name = attributes.clone().find(|attribute| attribute.oid == COMMON_NAME).and_then(text);
    let mut parts: Vec<String> = Vec::new();
    for part in name.0.iter().rev() {
        parts.push(part.0.iter().map(attribute).collect::<Vec<_>>().join("+"));
    }
    CertificateSubject {
        common_name: common_name.filter(|name| !name.contains('\0')),
        distinguished_name: Some(parts.join(",")).filter(|name| !name.is_empty()),
    }
}

fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let bytes = attribute.value.value();
    match attribute.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => String::from_utf8(bytes.to_vec()).ok(),
        // In practice Latin 1.
        Tag::TeletexString => Some(bytes.iter().map(|&byte| char::from(byte)).collect()),
        Tag::BmpString => {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// `name=value`, or OID and encoding.
fn attribute(attribute: &AttributeTypeAndValue) -> String {
    let number = attribute.oid.to_string();
    let short = SHORT_NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    match (short, text(attribute)) {
        (Some(name), Some(value)) => format!("{name}={}", escape(&value)),
        (name, _) => {
            let encoding = attribute.value.to_der().unwrap_or_default();
            let hex: String = encoding.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("{}=#{hex}", name.unwrap_or(&number))
        }
    }
}

/// Source: RFC 2253, section 2.4; OpenSSL's `ASN1_STRFLGS_RFC2253`, which PostgreSQL uses.
fn escape(value: &str) -> String {
    let mut out = String::new();
    let last = value.len().saturating_sub(1);
    for (at, &byte) in value.as_bytes().iter().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', char::from(byte)]),
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
    out
}

/// Hash for channel binding (tls-server-end-point). `None`: the signature has no hash.
pub fn end_point(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(der).ok()?;
    let signature = &certificate.signature_algorithm;
    let number = if signature.oid == RSASSA_PSS { pss_hash(signature)? } else { signature.oid };
    let number = number.to_string();
    match HASHES.iter().find(|(known, _)| *known == number)?.1 {
        CertificateHash::Sha256 => Some(Sha256::digest(der).to_vec()),
        CertificateHash::Sha384 => Some(Sha384::digest(der).to_vec()),
        CertificateHash::Sha512 => Some(Sha512::digest(der).to_vec()),
        CertificateHash::None => None,
    }
}

/// Source: RFC 4055, section 3.1.
fn pss_hash(signature: &AlgorithmIdentifierOwned) -> Option<ObjectIdentifier> {
    let encoded = signature.parameters.as_ref()?.to_der().ok()?;
    let parameters = AnyRef::from_der(&encoded).ok()?;
    let found = parameters.sequence(|reader| {
        let hash = ContextSpecific::<AlgorithmIdentifierOwned>::decode_explicit(reader, TagNumber::N0)?;
        reader.read_slice(reader.remaining_len())?;
        Ok(hash)
    });
    // A missing hash is SHA-1.
    Some(found.ok()?.map_or(SHA1, |hash| hash.value.oid))
}

/// True if the host is the common name of a certificate that names no hosts elsewhere.
///
/// PostgreSQL's instructions make such certificates. Source: `pq_verify_peer_name_matches_certificate` in fe-secure-common.c.
pub fn is_common_name(der: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return false };
    let names = certificate.tbs_certificate.extensions.iter().flatten().find(|extension| extension.extn_id == SUBJECT_ALT_NAME);
    let names_hosts = names.is_some_and(|names| {
        SubjectAltName::from_der(names.extn_value.as_bytes())
            .map_or(true, |names| names.0.iter().any(|name| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_))))
    });
    !names_hosts && subject(der).common_name.is_some_and(|name| crate::runtime::tls_choice::is_name_of(&name, host))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidityPeriod {
    from: DateTime,
    until: DateTime,
}

impl ValidityPeriod {
    fn has(&self, now: SystemTime) -> bool {
        self.from.to_system_time() <= now && now <= self.until.to_system_time()
    }

    /// Seconds since 1970.
    pub fn until_s(&self) -> u64 {
        self.until.unix_duration().as_secs()
    }

    pub fn warning(&self, now: SystemTime) -> Option<String> {
        let (from, until) = (self.from, self.until);
        if now > until.to_system_time() {
            return Some(format!("the certificate expired at {until}: all who verify it refuse it"));
        }
        if now < from.to_system_time() {
            return Some(format!("the certificate is not valid before {from}: all who verify it refuse it"));
        }
        let is_near = until.to_system_time().duration_since(now).is_ok_and(|left| left < NOTICE);
        is_near.then(|| format!("the certificate expires at {until}"))
    }
}

pub fn validity(der: &CertificateDer<'_>) -> Option<ValidityPeriod> {
    let validity = Certificate::from_der(der).ok()?.tbs_certificate.validity;
    Some(ValidityPeriod { from: validity.not_before.to_date_time(), until: validity.not_after.to_date_time() })
}

pub fn is_in_force(der: &CertificateDer<'_>, now: SystemTime) -> bool {
    validity(der).is_some_and(|validity| validity.has(now))
}

/// rustls needs version 2, which RFC 5280 (section 5.1.2.1) demands.
pub fn why_unusable(der: &CertificateRevocationListDer<'_>) -> Option<String> {
    let outer = AnyRef::from_der(der).ok()?;
    // Version 1 leaves its version out and begins with an algorithm.
    let first = outer.sequence(|reader| {
        let inner: AnyRef<'_> = reader.decode()?;
        reader.read_slice(reader.remaining_len())?;
        inner.sequence(|reader| {
            let tag = reader.peek_tag()?;
            reader.read_slice(reader.remaining_len())?;
            Ok(tag)
        })
    });
    let text = "is a revocation list of version 1; version 2 is needed: name crl_extensions in openssl's configuration, or run \
                \"openssl ca -gencrl -crlexts ...\"";
    (first.ok()? == Tag::Sequence).then(|| text.into())
}

/// Works for certificates of any version.
pub fn public_key(der: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(SubjectPublicKeyInfoDer::from(certificate.tbs_certificate.subject_public_key_info.to_der().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use std::process::Command;

    /// Runs openssl in a folder of its own. Result: the last argument's file, or openssl's output.
    struct Shop(std::path::PathBuf);

    impl Shop {
        fn new(name: &str) -> Shop {
            let folder = std::env::temp_dir().join(format!("weir-certificates-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Shop(folder)
        }

        fn run(&self, arguments: &[&str]) -> String {
            let output = Command::new("openssl").args(arguments).current_dir(&self.0).output().expect("openssl is installed");
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim().to_string()
        }

        /// A certificate that signs itself, made with these words.
        fn certificate(&self, words: &[&str]) -> CertificateDer<'static> {
            let fixed = ["req", "-x509", "-nodes", "-days", "10", "-utf8", "-keyout", "key", "-out", "cert"];
            self.run(&[&fixed, words].concat());
            CertificateDer::from_pem_file(self.0.join("cert")).unwrap()
        }
    }

    impl Drop for Shop {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_written_as_openssl_writes_them() {
        let shop = Shop::new("names");
        let subjects = [
            "/CN=joe",
            "/C=AT/O=Acme, Inc/OU=a\\+b/CN= joe ",
            "/O=\u{fc}nï \u{5bc6}/CN=\\\\back\"slash<>;#",
            "/CN=#first/emailAddress=joe@example.com/UID=7/DC=example/DC=com/street=x/serialNumber=9/title=Dr/GN=J/SN=D/ST=s/L=l",
            "/O=many/CN=one/CN=two",
        ];
        for words in subjects {
            let der = shop.certificate(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", words]);
            let shown = shop.run(&["x509", "-in", "cert", "-noout", "-subject", "-nameopt", "RFC2253"]);
            let names = subject(&der);
            assert_eq!(Some(shown.strip_prefix("subject=").unwrap()), names.distinguished_name.as_deref(), "{words}");
            let first = words.split("CN=").nth(1).map(|rest| rest.split('/').next().unwrap());
            assert_eq!(first.map(|name| name.replace("\\\\", "\\")), names.common_name, "{words}");
        }
    }

    #[test]
    fn the_hash_to_bind_to_is_that_of_the_signature() {
        let shop = Shop::new("hashes");
        let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=a"];
        let rsa = ["-newkey", "rsa:2048", "-subj", "/CN=a"];
        let pss = ["-sigopt", "rsa_padding_mode:pss"];
        let digest = |name: &str| shop.run(&["x509", "-in", "cert", "-noout", "-fingerprint", name]).to_lowercase();
        for hash in ["sha256", "sha384", "sha512", "sha1"] {
            let option = format!("-{hash}");
            for more in [ec.to_vec(), rsa.to_vec(), [&rsa[..], &pss].concat()] {
                let words = [&more[..], &[option.as_str()]].concat();
                let der = shop.certificate(&words);
                let expected = digest(if hash == "sha1" { "-sha256" } else { &option });
                let expected = expected.split('=').nth(1).unwrap().replace(':', "");
                let found: String =
                    end_point(&der).unwrap_or_else(|| panic!("{words:?}")).iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(found, expected, "{words:?}");
            }
        }
        assert_eq!(end_point(&shop.certificate(&["-newkey", "ed25519", "-subj", "/CN=a"])), None);
    }

    #[test]
    fn the_end_of_a_certificate_is_told_two_weeks_before_and_after_it() {
        let shop = Shop::new("validity");
        let der =
            shop.certificate(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=a", "-days", "100"]);
        let validity = validity(&der).unwrap();
        let days = |days: u64| Duration::from_secs(days * 86_400);
        let said = |now: SystemTime| validity.warning(now).unwrap_or_default();
        assert_eq!(said(validity.until.to_system_time() - days(15)), "");
        assert!(said(validity.until.to_system_time() - days(13)).starts_with("the certificate expires at 20"));
        assert!(said(validity.until.to_system_time() + days(1)).starts_with("the certificate expired at 20"));
        assert!(said(validity.from.to_system_time() - days(1)).starts_with("the certificate is not valid before 20"));
    }

    #[test]
    fn a_revocation_list_of_version_1_is_named_as_such() {
        let shop = Shop::new("crl");
        shop.certificate(&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=a"]);
        std::fs::write(shop.0.join("index"), "").unwrap();
        std::fs::write(shop.0.join("number"), "01\n").unwrap();
        let conf =
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ndefault_md=sha256\ncrlnumber=number\n[e]\nauthorityKeyIdentifier=keyid\n";
        for (number, version, more) in [("", 1, &[][..]), ("crlnumber=number\n", 2, &["-crlexts", "e"])] {
            std::fs::write(shop.0.join("conf"), conf.replace("crlnumber=number\n", number)).unwrap();
            let fixed = ["ca", "-gencrl", "-config", "conf", "-cert", "cert", "-keyfile", "key", "-crldays", "9", "-out", "crl"];
            shop.run(&[&fixed, more].concat());
            let list = CertificateRevocationListDer::from_pem_file(shop.0.join("crl")).unwrap();
            assert_eq!(why_unusable(&list).is_some(), version == 1, "{version}");
        }
    }

    #[test]
    fn a_common_name_counts_where_no_host_is_named_otherwise() {
        let shop = Shop::new("hosts");
        let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=db.example"];
        let plain = shop.certificate(&ec);
        assert!(is_common_name(&plain, "db.example") && !is_common_name(&plain, "other.example"));
        let mail = shop.certificate(&[&ec[..], &["-addext", "subjectAltName=email:joe@example.com"]].concat());
        assert!(is_common_name(&mail, "db.example"));
        let named = shop.certificate(&[&ec[..], &["-addext", "subjectAltName=DNS:other.example"]].concat());
        assert!(!is_common_name(&named, "db.example"));
        assert!(is_in_force(&plain, SystemTime::now()));
        assert!(!is_in_force(&plain, SystemTime::now() + std::time::Duration::from_secs(20 * 86_400)));
        let garbage = CertificateDer::from(vec![0x30, 0x80, 1]);
        assert!(
            end_point(&garbage).is_none() && subject(&garbage) == CertificateSubject::default() && !is_common_name(&garbage, "x")
        );
    }
}
