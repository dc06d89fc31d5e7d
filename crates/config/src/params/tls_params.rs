//! Encryption.
use std::path::PathBuf;

use super::{Applies, Effect, Group, Indexed, Kind, Param, Value};
use crate::visibility::Visibility::{Everyone, Operators};
use crate::{ChannelBinding, SslMode, TlsVersion};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Tls, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };
/// A row that does what its help says, of a parameter that Pgpool-II does not have.
const OURS: Param = Param { since: "Weir 0.1", ..BUILT };

fn file(value: &Value) -> Option<PathBuf> {
    Some(value.text()).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "ssl", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        set: |c, _, v| c.tls.enabled = v.bool(),
        help: "Offer TLS to clients, also direct TLS, and use it with servers that have it (backend_sslmode = auto). Files are named relative to the directory of the configuration file and read again at a reload.", ..BUILT },
    Param { name: "ssl_key", kind: Kind::Text(Operators), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.key = file(v),
        help: "File of the private key (PEM: PKCS#8, PKCS#1 or SEC1). Nobody but its owner may read it; if root owns it, its group may.", ..BUILT },
    Param { name: "ssl_cert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.cert = file(v),
        help: "File of the certificate shown to clients, followed by those of intermediate authorities.", ..BUILT },
    Param { name: "ssl_ca_cert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.ca_cert = file(v),
        help: "File of the authorities that certificates of clients, and of servers without backend_sslrootcert, are checked against. With it, clients are asked for a certificate.", ..BUILT },
    Param { name: "ssl_ca_cert_dir", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.ca_cert_dir = file(v),
        help: "Directory of such files; every file in it that holds PEM certificates counts, whatever its name.", ..BUILT },
    Param { name: "ssl_crl_file", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.crl_file = file(v),
        help: "File of revocation lists (PEM). With it, a client's certificate is refused if it is revoked, or if no list in force is there for its authority.", ..BUILT },
    Param { name: "ssl_ciphers", kind: Kind::Text(Everyone), default: "HIGH:MEDIUM:+3DES:!aNULL", applies: Applies::OnReload,
        set: |c, _, v| c.tls.ciphers = v.text(),
        help: "Ciphers allowed with TLS 1.2, in the notation of OpenSSL. There are ECDHE suites with AES-GCM and ChaCha20 only; other words change nothing. All suites of TLS 1.3 are always allowed.", ..BUILT },
    Param { name: "ssl_prefer_server_ciphers", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        set: |c, _, v| c.tls.prefer_server_ciphers = v.bool(),
        help: "Choose the cipher by our order, not the client's.", ..BUILT },
    Param { name: "ssl_ecdh_curve", kind: Kind::Text(Everyone), default: "prime256v1", applies: Applies::OnReload,
        set: |c, _, v| c.tls.curves = v.text(),
        help: "Curves for the key exchange, with colons between them: X25519, prime256v1, secp384r1. The default allows all of them.", ..BUILT },
    Param { name: "ssl_dh_params_file", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        help: "File of Diffie-Hellman parameters. There are no suites that would use them.", ..ROW },
    Param { name: "ssl_passphrase_command", kind: Kind::Text(Operators), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.passphrase_command = v.text(),
        help: "Shell command that prints the pass phrase of an encrypted private key (PKCS#8) within a minute; %p becomes the prompt, %% a percent sign. Run at start and at every reload.", ..BUILT },
    Param { name: "ssl_min_protocol_version", kind: Kind::Enum { values: &["TLSv1.2", "TLSv1.3"], also: &[("TLSv1", "TLSv1.2"), ("TLSv1.1", "TLSv1.2")] }, default: "TLSv1.2", applies: Applies::OnReload,
        set: |c, _, v| c.tls.min_version = TlsVersion::from_word(v.word()),
        help: "Oldest version of TLS spoken with clients and servers. Older ones than 1.2 are never spoken.", ..OURS },
    Param { name: "backend_sslmode", kind: Kind::Enum { values: &["auto", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"], also: &[] }, default: "auto", applies: Applies::OnReload, indexed: Indexed::NodeOrDefault,
        set: |c, n, v| c.node(n).ssl_mode = SslMode::from_word(v.word()),
        help: "Encryption of connections to servers, in libpq's words. auto: disable if ssl is off; else TLS where the server has it, and its certificate is checked if there are authorities. New connections only. Unix sockets are never encrypted.", ..OURS },
    Param { name: "backend_sslrootcert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.backend.root_cert = file(v),
        help: "File of the authorities that servers' certificates are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir. none: no authorities, so that only verify-ca and verify-full check certificates, and need a file.", ..OURS },
    Param { name: "backend_sslcrl", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.backend.crl_file = file(v),
        help: "File of revocation lists that servers' certificates are checked against.", ..OURS },
    Param { name: "backend_sslcert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.backend.cert = file(v),
        help: "File of the certificate shown to servers that ask for one.", ..OURS },
    Param { name: "backend_sslkey", kind: Kind::Text(Operators), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.backend.key = file(v),
        help: "File of its private key.", ..OURS },
    Param { name: "backend_channel_binding", kind: Kind::Enum { values: &["prefer", "disable", "require"], also: &[] }, default: "prefer", applies: Applies::OnReload,
        set: |c, _, v| c.tls.binding = ChannelBinding::from_word(v.word()),
        help: "Binds logins to servers by SCRAM to the server's certificate. require: a server is not used unless it proves over TLS that it knows the user's keys.", ..OURS },
    Param { name: "memqcache_sslmode", kind: Kind::Enum { values: &["disable", "require", "verify-ca", "verify-full"], also: &[] }, default: "disable", applies: Applies::AtStart,
        set: |c, _, v| c.tls.store_mode = SslMode::from_word(v.word()),
        help: "Encryption of connections to memcached or Redis, in libpq's words; all hosts of the store must have it then. require: as verify-ca if there are authorities. Unix sockets are never encrypted.", ..OURS },
    Param { name: "memqcache_sslrootcert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.store.root_cert = file(v),
        help: "File of the authorities that the certificates of memcached or Redis are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir. none: no authorities.", ..OURS },
    Param { name: "memqcache_sslcrl", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.store.crl_file = file(v),
        help: "File of revocation lists that the certificates of memcached or Redis are checked against.", ..OURS },
    Param { name: "memqcache_sslcert", kind: Kind::Text(Everyone), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.store.cert = file(v),
        help: "File of the certificate shown to memcached or Redis where they ask for one, as Redis does unless its tls-auth-clients is no.", ..OURS },
    Param { name: "memqcache_sslkey", kind: Kind::Text(Operators), default: "", applies: Applies::OnReload,
        set: |c, _, v| c.tls.store.key = file(v),
        help: "File of its private key.", ..OURS },
];
