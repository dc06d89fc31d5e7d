//! Encryption towards etcd, from the operator's files.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::etcd_fault::EtcdSettingsError;

#[derive(Clone, Debug, Default)]
pub struct EtcdTlsFiles {
    /// Authorities that etcd's certificates are checked against, with the endpoint's host. Needed for https.
    pub ca_file: Option<PathBuf>,
    /// Own certificate and its key, for an etcd with `--client-cert-auth`.
    pub own: Option<OwnEtcdFiles>,
}

#[derive(Clone, Debug)]
pub struct OwnEtcdFiles {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// `None` without authorities. Reads files: at a start or reload only.
pub fn client_config(files: &EtcdTlsFiles) -> Result<Option<Arc<ClientConfig>>, EtcdSettingsError> {
    let Some(ca_file) = &files.ca_file else { return Ok(None) };
    let wrong = |path: &Path, fault: String| EtcdSettingsError::Certificate { path: path.to_owned(), fault };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(ca_file)?);
    if added == 0 {
        return Err(wrong(ca_file, "no certificate in it can be an authority".into()));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let builder = builder.map_err(|cause| wrong(ca_file, cause.to_string()))?.with_root_certificates(roots);
    let config = match &files.own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = (certificates(&own.cert_file)?, private_key(&own.key_file)?);
            builder.with_client_auth_cert(chain, key).map_err(|cause| wrong(&own.cert_file, cause.to_string()))?
        }
    };
    Ok(Some(Arc::new(config)))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, EtcdSettingsError> {
    let text = std::fs::read(path).map_err(|cause| EtcdSettingsError::File { path: path.to_owned(), cause })?;
    Ok(Zeroizing::new(text))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EtcdSettingsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let wrong = |fault: String| EtcdSettingsError::Certificate { path: path.to_owned(), fault };
    match all {
        Ok(all) if all.is_empty() => Err(wrong("holds no certificate".into())),
        Ok(all) => Ok(all),
        Err(cause) => Err(wrong(cause.to_string())),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, EtcdSettingsError> {
    let found = std::fs::metadata(path).map_err(|cause| EtcdSettingsError::File { path: path.to_owned(), cause })?;
    // As for the keys of PostgreSQL: a group may read root's.
    let forbidden = if found.uid() == 0 { 0o037 } else { 0o077 };
    if found.mode() & forbidden != 0 {
        let cause = io::Error::new(io::ErrorKind::PermissionDenied, "private key has group or world access, chmod it to 0600");
        return Err(EtcdSettingsError::File { path: path.to_owned(), cause });
    }
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|cause| {
        let fault = format!("holds no private key that is not encrypted: {cause}");
        EtcdSettingsError::Certificate { path: path.to_owned(), fault }
    })
}
