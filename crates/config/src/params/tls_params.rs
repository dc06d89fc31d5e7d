//! Encryption.
use std::path::PathBuf;

use super::{ConfigParam, ParamContext, ParamEffect, ParamGroup, ParamIndexing, ParamKind, ParamValue};
use crate::visibility::ValueVisibility::{Everyone, Operators};
use crate::{ChannelBinding, SslMode, TlsVersion};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Tls, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };
/// A row of Weir's own.
const OURS: ConfigParam = ConfigParam { since: "Weir 0.1", ..BUILT };

fn file(value: &ParamValue) -> Option<PathBuf> {
    Some(value.text()).filter(|name| !name.is_empty()).map(PathBuf::from)
}

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "ssl", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.enabled = v.bool(),
        help: "Offer TLS to clients, also direct TLS, and use it with servers that have it (backend_sslmode = auto). Files are named relative to the directory of the configuration file and read again at a reload.", ..BUILT },
    ConfigParam { name: "ssl_key", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.key = file(v),
        help: "File of the private key (PEM: PKCS#8, PKCS#1 or SEC1). Nobody but its owner may read it; if root owns it, its group may.", ..BUILT },
    ConfigParam { name: "ssl_cert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.cert = file(v),
        help: "File of the certificate shown to clients, followed by those of intermediate authorities.", ..BUILT },
    ConfigParam { name: "ssl_ca_cert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.ca_cert = file(v),
        help: "File of the authorities that certificates of clients, and of servers without backend_sslrootcert, are checked against. With it, clients are asked for a certificate.", ..BUILT },
    ConfigParam { name: "ssl_ca_cert_dir", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.ca_cert_dir = file(v),
        help: "Directory of such files; every file in it that holds PEM certificates counts, whatever its name.", ..BUILT },
    ConfigParam { name: "ssl_crl_file", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.crl_file = file(v),
        help: "File of revocation lists (PEM). With it, a client's certificate is refused if it is revoked, or if no list in force is there for its authority.", ..BUILT },
    ConfigParam { name: "ssl_ciphers", kind: ParamKind::Text(Everyone), default: "HIGH:MEDIUM:+3DES:!aNULL", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.ciphers = v.text(),
        help: "Ciphers allowed with TLS 1.2, in the notation of OpenSSL. There are ECDHE suites with AES-GCM and ChaCha20 only; other words change nothing. All suites of TLS 1.3 are always allowed.", ..BUILT },
    ConfigParam { name: "ssl_prefer_server_ciphers", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.prefer_server_ciphers = v.bool(),
        help: "Choose the cipher by our order, not the client's.", ..BUILT },
    ConfigParam { name: "ssl_ecdh_curve", kind: ParamKind::Text(Everyone), default: "prime256v1", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.curves = v.text(),
        help: "Curves for the key exchange, with colons between them: X25519, prime256v1, secp384r1. The default allows all of them.", ..BUILT },
    ConfigParam { name: "ssl_dh_params_file", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        help: "File of Diffie-Hellman parameters. There are no suites that would use them.", ..ROW },
    ConfigParam { name: "ssl_passphrase_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.passphrase_command = v.text(),
        help: "Shell command that prints the pass phrase of an encrypted private key (PKCS#8) within a minute; %p becomes the prompt, %% a percent sign. Run at start and at every reload.", ..BUILT },
    ConfigParam { name: "ssl_min_protocol_version", kind: ParamKind::Enum { values: &["TLSv1.2", "TLSv1.3"], also: &[("TLSv1", "TLSv1.2"), ("TLSv1.1", "TLSv1.2")] }, default: "TLSv1.2", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.min_version = TlsVersion::from_word(v.word()),
        help: "Oldest version of TLS spoken with clients and servers. Older ones than 1.2 are never spoken.", ..OURS },
    ConfigParam { name: "backend_sslmode", kind: ParamKind::Enum { values: &["auto", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"], also: &[] }, default: "auto", applies: ParamContext::OnReload, indexed: ParamIndexing::NodeOrDefault,
        set: |c, n, v| c.node(n).ssl_mode = SslMode::from_word(v.word()),
        help: "Encryption of connections to servers, in libpq's words. auto: disable if ssl is off; else TLS where the server has it, and its certificate is checked if there are authorities. New connections only. Unix sockets are never encrypted.", ..OURS },
    ConfigParam { name: "backend_sslrootcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.backend.root_cert = file(v),
        help: "File of the authorities that servers' certificates are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir. none: no authorities, so that only verify-ca and verify-full check certificates, and need a file.", ..OURS },
    ConfigParam { name: "backend_sslcrl", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.backend.crl_file = file(v),
        help: "File of revocation lists that servers' certificates are checked against.", ..OURS },
    ConfigParam { name: "backend_sslcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.backend.cert = file(v),
        help: "File of the certificate shown to servers that ask for one.", ..OURS },
    ConfigParam { name: "backend_sslkey", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.backend.key = file(v),
        help: "File of its private key.", ..OURS },
    ConfigParam { name: "backend_channel_binding", kind: ParamKind::Enum { values: &["prefer", "disable", "require"], also: &[] }, default: "prefer", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.binding = ChannelBinding::from_word(v.word()),
        help: "Binds logins to servers by SCRAM to the server's certificate. require: a server is not used unless it proves over TLS that it knows the user's keys.", ..OURS },
    ConfigParam { name: "memqcache_sslmode", kind: ParamKind::Enum { values: &["disable", "require", "verify-ca", "verify-full"], also: &[] }, default: "disable", applies: ParamContext::AtStart,
        set: |c, _, v| c.tls.store_mode = SslMode::from_word(v.word()),
        help: "Encryption of connections to memcached or Redis, in libpq's words; all hosts of the store must have it then. require: as verify-ca if there are authorities. Unix sockets are never encrypted.", ..OURS },
    ConfigParam { name: "memqcache_sslrootcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.store.root_cert = file(v),
        help: "File of the authorities that the certificates of memcached or Redis are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir. none: no authorities.", ..OURS },
    ConfigParam { name: "memqcache_sslcrl", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.store.crl_file = file(v),
        help: "File of revocation lists that the certificates of memcached or Redis are checked against.", ..OURS },
    ConfigParam { name: "memqcache_sslcert", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.store.cert = file(v),
        help: "File of the certificate shown to memcached or Redis where they ask for one, as Redis does unless its tls-auth-clients is no.", ..OURS },
    ConfigParam { name: "memqcache_sslkey", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| c.tls.store.key = file(v),
        help: "File of its private key.", ..OURS },
];
