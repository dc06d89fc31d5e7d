//! TLS material from the operator's files. Read at start and at every reload.

pub mod certificate;
mod server_certificate;

use crate::runtime::tls_choice::{CertificateCheck, TlsAttempt, plan, suites};
use crate::runtime::tls_files::server_certificate::{CertificateChecker, TrustedAuthorities};
use certificate::ValidityPeriod;
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::cell::RefCell;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};
use weir_config::{Config, ConfigProblem, PeerFiles, ProblemSeverity, SslMode, TlsConfig, TlsVersion};
use weir_io::tls::{ALPN, TlsSession};
use zeroize::Zeroizing;

const PASSPHRASE_LIMIT: Duration = Duration::from_secs(60);

/// File name for no authorities.
const NO_AUTHORITIES: &str = "none";

const HTTP_ALPN: &[u8] = b"http/1.1";

/// OpenSSL names, for `ssl_ciphers`.
const SUITES: [(CipherSuite, &str); 6] = [
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
];

#[derive(Clone, Default)]
pub struct TlsFiles {
    /// None if `ssl` is off.
    pub(crate) server: Option<ServerSide>,
    /// None if no server uses TLS.
    pub(crate) client: Option<ClientSide>,
    pub(crate) store: Option<ClientSide>,
    pub agent: Option<ClientSide>,
    own: Vec<OwnCertificate>,
}

impl TlsFiles {
    /// Warns of own certificates that are not valid, or soon expire.
    pub fn warnings(&self, config: &Config, now: SystemTime) -> Vec<ConfigProblem> {
        let said = |own: &OwnCertificate| {
            let text = format!("{}: {}", own.path.display(), own.validity.warning(now)?);
            Some(ConfigProblem::of_parameter(config, ProblemSeverity::Warning, &own.parameter, &text))
        };
        self.own.iter().filter_map(said).collect()
    }

    /// Own certificates with their ends, in seconds since 1970.
    pub fn ends(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.own.iter().map(|own| (own.path.as_path(), own.validity.until_s()))
    }
}

#[derive(Clone)]
struct OwnCertificate {
    parameter: String,
    path: PathBuf,
    validity: ValidityPeriod,
}

/// Prefix of parameters, files and protocol for a kind of peer.
struct TlsPeer<'a> {
    prefix: &'static str,
    files: &'a PeerFiles,
    alpn: Option<&'static [u8]>,
}

/// Weir's side of TLS with clients.
#[derive(Clone)]
pub struct ServerSide {
    pub(crate) config: Arc<ServerConfig>,
    /// For browsers: the same certificate, another protocol, and no question for a certificate of theirs.
    pub(crate) pages: Arc<ServerConfig>,
    /// Certificate hash for channel binding.
    pub(crate) end_point: Option<Vec<u8>>,
}

/// Weir's side of TLS with servers.
#[derive(Clone)]
pub struct ClientSide {
    unchecked: Arc<ClientConfig>,
    by_authority: Arc<ClientConfig>,
    by_host_name: Arc<ClientConfig>,
    pub(crate) has_authorities: bool,
}

impl ClientSide {
    pub fn towards(&self, check: CertificateCheck, host: &str) -> io::Result<TlsSession> {
        let name = server_name(check, host)?;
        TlsSession::towards(self.config(check), name)
    }

    pub fn config(&self, check: CertificateCheck) -> Arc<ClientConfig> {
        match check {
            CertificateCheck::Nothing => self.unchecked.clone(),
            CertificateCheck::Authority => self.by_authority.clone(),
            CertificateCheck::HostName => self.by_host_name.clone(),
        }
    }
}

pub fn server_name(check: CertificateCheck, host: &str) -> io::Result<ServerName<'static>> {
    match ServerName::try_from(host.to_owned()) {
        Ok(name) => Ok(name),
        Err(_) if check == CertificateCheck::HostName => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "no certificate can have that name"))
        }
        Err(_) => Ok(ServerName::from(IpAddr::from([0, 0, 0, 0]))),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{parameter}: {what}")]
pub struct TlsFileError {
    parameter: String,
    what: String,
}

impl TlsFileError {
    pub fn problem(&self, config: &Config) -> ConfigProblem {
        ConfigProblem::of_parameter(config, ProblemSeverity::Error, &self.parameter, &self.what)
    }
}

struct ParameterFile<'a> {
    parameter: &'a str,
    path: PathBuf,
}

impl ParameterFile<'_> {
    fn wrong(&self, what: impl std::fmt::Display) -> TlsFileError {
        setting(self.parameter, format_args!("{}: {what}", self.path.display()))
    }
}

fn setting(name: &str, what: impl std::fmt::Display) -> TlsFileError {
    TlsFileError { parameter: name.to_owned(), what: what.to_string() }
}

/// Reads all files that the configuration needs. `folder`: that of the configuration file.
pub fn read(config: &Config, folder: &Path) -> Result<TlsFiles, TlsFileError> {
    let tls = &config.tls;
    let (provider, own) = (Arc::new(provider(tls)?), RefCell::default());
    let files = TlsFileReader { tls, folder, provider, versions: versions(tls), own };
    let server = if tls.enabled { Some(files.server_side()?) } else { None };
    let backend = TlsPeer { prefix: "backend", files: &tls.backend, alpn: Some(ALPN) };
    let client = files.towards(&backend, &config.all_nodes().map(|node| node.ssl_mode).collect::<Vec<_>>())?;
    let modes = config.cache.store().map(|_| tls.store_mode);
    let store = files.towards(&TlsPeer { prefix: "memqcache", files: &tls.store, alpn: None }, modes.as_slice())?;
    let agents = &config.recovery.agents;
    let has_agents = config.nodes.iter().any(|node| node.agent().is_some());
    let modes = has_agents.then_some(agents.ssl_mode.0);
    let agent = files.towards(&TlsPeer { prefix: "agent", files: &agents.tls, alpn: None }, modes.as_slice())?;
    Ok(TlsFiles { server, client, store, agent, own: files.own.into_inner() })
}

fn provider(tls: &TlsConfig) -> Result<CryptoProvider, TlsFileError> {
    let mut provider = ring::default_provider();
    let (mut chosen, rest): (Vec<_>, Vec<_>) = provider.cipher_suites.into_iter().partition(|suite| suite.tls13().is_some());
    let known: Vec<&str> = SUITES.iter().map(|(_, name)| *name).collect();
    for at in suites(&tls.ciphers, &known) {
        chosen.extend(rest.iter().find(|suite| suite.suite() == SUITES[at].0));
    }
    if tls.min_version == TlsVersion::V1_2 && chosen.iter().all(|suite| suite.tls13().is_some()) {
        let names = known.join(", ");
        return Err(setting("ssl_ciphers", format!("\"{}\" names none of the suites there are ({names})", tls.ciphers)));
    }
    provider.cipher_suites = chosen;
    let mut groups = Vec::new();
    for name in tls.curves.split(':').map(str::trim) {
        groups.push(match name.to_ascii_lowercase().as_str() {
            "x25519" => ring::kx_group::X25519,
            "prime256v1" | "secp256r1" | "p-256" => ring::kx_group::SECP256R1,
            "secp384r1" | "p-384" => ring::kx_group::SECP384R1,
            _ => return Err(setting("ssl_ecdh_curve", format!("\"{name}\" is none of X25519, prime256v1, secp384r1"))),
        });
    }
    // The default does not restrict rustls's choice.
    if tls.curves != "prime256v1" {
        provider.kx_groups = groups;
    }
    Ok(provider)
}

fn versions(tls: &TlsConfig) -> &'static [&'static SupportedProtocolVersion] {
    const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
    const NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match tls.min_version {
        TlsVersion::V1_2 => BOTH,
        TlsVersion::V1_3 => NEWEST,
    }
}

struct TlsFileReader<'a> {
    tls: &'a TlsConfig,
    folder: &'a Path,
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    own: RefCell<Vec<OwnCertificate>>,
}

impl TlsFileReader<'_> {
    fn server_side(&self) -> Result<ServerSide, TlsFileError> {
        let tls = self.tls;
        let (Some(cert), Some(key)) = (&tls.cert, &tls.key) else {
            return Err(setting("ssl", "\"ssl_cert\" and \"ssl_key\" must be set"));
        };
        let own = self.certified(&self.named("ssl_cert", cert), &self.named("ssl_key", key))?;
        let end_point = own.cert.first().and_then(certificate::end_point);
        let builder = ServerConfig::builder_with_provider(self.provider.clone()).with_protocol_versions(self.versions);
        let builder = builder.map_err(|cause| setting("ssl_min_protocol_version", cause))?;
        let (pages, trusted) = (builder.clone(), self.trusted_by_all()?);
        let builder = if trusted.is_empty() {
            builder.with_no_client_auth()
        } else {
            let roots = Arc::new(store("ssl_ca_cert", &trusted)?);
            let lists = self.revocations("ssl_crl_file", tls.crl_file.as_deref())?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, self.provider.clone());
            // pool_hba.conf decides if a certificate is needed.
            let verifier = verifier.with_crls(lists).enforce_revocation_expiration().allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|cause| setting("ssl_ca_cert", cause))?)
        };
        let own = Arc::new(SingleCertAndKey::from(own));
        let finished = |mut config: ServerConfig, protocol: &[u8]| {
            config.ignore_client_order = tls.prefer_server_ciphers;
            config.alpn_protocols = vec![protocol.to_vec()];
            // As PostgreSQL: a resumed session would outlive a reload of these files.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Arc::new(config)
        };
        let pages = finished(pages.with_no_client_auth().with_cert_resolver(own.clone()), HTTP_ALPN);
        Ok(ServerSide { config: finished(builder.with_cert_resolver(own), ALPN), pages, end_point })
    }

    /// `None`: no connection of these modes is encrypted.
    fn towards(&self, peer: &TlsPeer<'_>, modes: &[SslMode]) -> Result<Option<ClientSide>, TlsFileError> {
        let prefix = peer.prefix;
        if modes.iter().all(|mode| plan(*mode, self.tls.enabled, false, false).attempts == [TlsAttempt::Plain]) {
            return Ok(None);
        }
        let side = self.client_side(peer)?;
        if !side.has_authorities && modes.iter().any(|mode| matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull)) {
            let what = format!("verify-ca and verify-full need {prefix}_sslrootcert or ssl_ca_cert");
            return Err(setting(&format!("{prefix}_sslmode"), what));
        }
        Ok(Some(side))
    }

    fn client_side(&self, peer: &TlsPeer<'_>) -> Result<ClientSide, TlsFileError> {
        let TlsPeer { prefix, files, alpn } = peer;
        let root = format!("{prefix}_sslrootcert");
        let trusted = match &files.root_cert {
            Some(path) if path.as_os_str() == NO_AUTHORITIES => Vec::new(),
            Some(path) => certificates(&self.named(&root, path))?,
            None => self.trusted_by_all()?,
        };
        let authorities = if trusted.is_empty() {
            None
        } else {
            let roots = Arc::new(store(if files.root_cert.is_some() { &root } else { "ssl_ca_cert" }, &trusted)?);
            let lists = self.revocations(&format!("{prefix}_sslcrl"), files.crl_file.as_deref())?;
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone());
            let verifier = verifier.with_crls(lists).enforce_revocation_expiration().build();
            let verifier = verifier.map_err(|cause| setting(&root, cause))?;
            Some(Arc::new(TrustedAuthorities { verifier, trusted }))
        };
        let own = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let (of_cert, of_key) = (format!("{prefix}_sslcert"), format!("{prefix}_sslkey"));
                let own = self.certified(&self.named(&of_cert, cert), &self.named(&of_key, key))?;
                Some(Arc::new(SingleCertAndKey::from(own)))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let what = format!("must be set together with {prefix}_sslkey");
                return Err(setting(&format!("{prefix}_sslcert"), what));
            }
        };
        let config = |check| -> Result<Arc<ClientConfig>, TlsFileError> {
            let builder = ClientConfig::builder_with_provider(self.provider.clone()).with_protocol_versions(self.versions);
            let builder = builder.map_err(|cause| setting("ssl_min_protocol_version", cause))?;
            let checker = CertificateChecker { check, authorities: authorities.clone(), provider: self.provider.clone() };
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(checker));
            let mut config = match &own {
                Some(own) => builder.with_client_cert_resolver(own.clone()),
                None => builder.with_no_client_auth(),
            };
            config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
            config.resumption = Resumption::disabled();
            Ok(Arc::new(config))
        };
        Ok(ClientSide {
            unchecked: config(CertificateCheck::Nothing)?,
            by_authority: config(CertificateCheck::Authority)?,
            by_host_name: config(CertificateCheck::HostName)?,
            has_authorities: authorities.is_some(),
        })
    }

    fn named<'n>(&self, parameter: &'n str, file: &Path) -> ParameterFile<'n> {
        ParameterFile { parameter, path: self.folder.join(file) }
    }

    fn certified(&self, cert: &ParameterFile<'_>, key: &ParameterFile<'_>) -> Result<CertifiedKey, TlsFileError> {
        let chain = certificates(cert)?;
        if let Some(validity) = chain.first().and_then(certificate::validity) {
            let (parameter, path) = (cert.parameter.to_owned(), cert.path.clone());
            self.own.borrow_mut().push(OwnCertificate { parameter, path, validity });
        }
        let private = self.private_key(key)?;
        let signer = self.provider.key_provider.load_private_key(private).map_err(|cause| key.wrong(cause))?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(key.wrong(format_args!("is not the key of the certificate in {}", cert.path.display())))
            }
            // Version 1 certificates cannot be compared.
            Ok(()) | Err(_) => Ok(certified),
        }
    }

    fn private_key(&self, file: &ParameterFile<'_>) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        let found = std::fs::metadata(&file.path).map_err(|cause| file.wrong(cause))?;
        // Source: `check_ssl_key_file_permissions` in PostgreSQL's be-secure-common.c.
        let forbidden = if found.uid() == 0 { 0o037 } else { 0o077 };
        if found.mode() & forbidden != 0 {
            let text = "private key has group or world access; it must have permissions u=rw (0600) or less if owned by \
                        another user than root, or u=rw,g=r (0640) or less if owned by root";
            return Err(file.wrong(text));
        }
        let text = Zeroizing::new(std::fs::read(&file.path).map_err(|cause| file.wrong(cause))?);
        let has = |mark: &str| text.windows(mark.len()).any(|window| window == mark.as_bytes());
        if has("Proc-Type: 4,ENCRYPTED") {
            return Err(file.wrong("is encrypted in OpenSSL's old format; convert it with \"openssl pkcs8 -topk8\""));
        }
        if has("BEGIN ENCRYPTED PRIVATE KEY") {
            return self.decrypt(file, &text);
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|cause| file.wrong(format!("holds no private key: {cause}")))
    }

    fn decrypt(&self, file: &ParameterFile<'_>, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        let command = &self.tls.passphrase_command;
        if command.is_empty() {
            return Err(file.wrong("is encrypted and ssl_passphrase_command is not set"));
        }
        let text = std::str::from_utf8(text).map_err(|cause| file.wrong(cause))?;
        let (_, document) = pkcs8::SecretDocument::from_pem(text).map_err(|cause| file.wrong(cause))?;
        let sealed = EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(|cause| file.wrong(cause))?;
        let phrase = passphrase(command)?;
        let opened =
            sealed.decrypt(&*phrase).map_err(|_| file.wrong("cannot be decrypted with what ssl_passphrase_command printed"))?;
        Ok(PrivatePkcs8KeyDer::from(opened.as_bytes().to_vec()).into())
    }

    fn trusted_by_all(&self) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
        let mut trusted = Vec::new();
        if let Some(file) = &self.tls.ca_cert {
            trusted.extend(certificates(&self.named("ssl_ca_cert", file))?);
        }
        if let Some(folder) = &self.tls.ca_cert_dir {
            let folder = self.named("ssl_ca_cert_dir", folder);
            for entry in std::fs::read_dir(&folder.path).map_err(|cause| folder.wrong(cause))? {
                let path = entry.map_err(|cause| folder.wrong(cause))?.path();
                // OpenSSL's folders also have lists, notes and dangling links.
                if path.is_file() {
                    trusted.extend(certificates(&ParameterFile { parameter: folder.parameter, path }).unwrap_or_default());
                }
            }
            if trusted.is_empty() {
                return Err(folder.wrong("no file in it holds a certificate"));
            }
        }
        Ok(trusted)
    }

    fn revocations(
        &self,
        parameter: &str,
        file: Option<&Path>,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
        let Some(file) = file else { return Ok(Vec::new()) };
        let file = self.named(parameter, file);
        let text = std::fs::read(&file.path).map_err(|cause| file.wrong(cause))?;
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
        let lists = match lists {
            Ok(lists) if lists.is_empty() => return Err(file.wrong("holds no revocation list")),
            Ok(lists) => lists,
            Err(cause) => return Err(file.wrong(pem_fault(&cause))),
        };
        match lists.iter().find_map(certificate::why_unusable) {
            Some(why) => Err(file.wrong(why)),
            None => Ok(lists),
        }
    }
}

fn certificates(file: &ParameterFile<'_>) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = std::fs::read(&file.path).map_err(|cause| file.wrong(cause))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(file.wrong("holds no certificate")),
        Ok(all) => Ok(all),
        Err(cause) => Err(file.wrong(pem_fault(&cause))),
    }
}

/// The parser's own words show bytes.
fn pem_fault(cause: &pem::Error) -> String {
    match cause {
        pem::Error::MissingSectionEnd { .. } => "a section has no \"-----END\" line: the file is not whole".into(),
        pem::Error::IllegalSectionStart { .. } => "a line begins with \"-----BEGIN\" and does not end as it must".into(),
        pem::Error::Base64Decode(_) => "a section is not in base64: the file is damaged".into(),
        other => other.to_string(),
    }
}

fn store(parameter: &str, trusted: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsFileError> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(trusted.iter().cloned());
    // A server's version 1 certificate may be trusted by itself.
    if added == 0 {
        return Err(setting(parameter, "no certificate in the named files can be an authority"));
    }
    Ok(store)
}

/// Returns the output's first line. Source: `run_ssl_passphrase_command` in PostgreSQL's be-secure-common.c.
fn passphrase(command: &str) -> Result<Zeroizing<Vec<u8>>, TlsFileError> {
    let failed = |what: String| setting("ssl_passphrase_command", what);
    let mut shell = Command::new("sh");
    shell.args(["-c", &with_prompt(command)]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = shell.spawn().map_err(|cause| failed(cause.to_string()))?;
    let Some(mut stdout) = child.stdout.take() else { return Err(failed("it has no output".into())) };
    let (sender, receiver) = mpsc::channel();
    // A command that hangs must not hold up signals.
    std::thread::spawn(move || {
        let mut said = Zeroizing::new(Vec::with_capacity(1024));
        let read = stdout.by_ref().take(1024).read_to_end(&mut said);
        let _ = sender.send(read.map(|_| said));
    });
    let Ok(said) = receiver.recv_timeout(PASSPHRASE_LIMIT) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("it printed nothing within {} s", PASSPHRASE_LIMIT.as_secs())));
    };
    let status = child.wait().map_err(|cause| failed(cause.to_string()))?;
    if !status.success() {
        return Err(failed(format!("it failed: {status}")));
    }
    let mut said = said.map_err(|cause| failed(cause.to_string()))?;
    let end = said.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(said.len());
    said.truncate(end);
    Ok(said)
}

fn with_prompt(command: &str) -> String {
    let mut out = String::new();
    let mut rest = command;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = match after.chars().next() {
            Some('p') => {
                out.push_str("Enter PEM pass phrase:");
                &after[1..]
            }
            Some('%') => {
                out.push('%');
                &after[1..]
            }
            _ => {
                out.push('%');
                after
            }
        };
    }
    out + rest
}
