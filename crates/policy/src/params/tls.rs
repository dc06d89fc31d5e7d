//! Encryption.
use super::{Applies, Group, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Tls, ..super::ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "ssl", kind: Kind::Bool, default: "off", applies: Applies::AtStart,
        help: "Use TLS with clients and with servers.", ..ROW },
    Param { name: "ssl_key", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "File of the private key.", ..ROW },
    Param { name: "ssl_cert", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "File of the certificate shown to clients.", ..ROW },
    Param { name: "ssl_ca_cert", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "File of the authorities that certificates of servers and clients are checked against.", ..ROW },
    Param { name: "ssl_ca_cert_dir", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Directory of such files.", ..ROW },
    Param { name: "ssl_crl_file", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "File of revoked certificates.", ..ROW },
    Param { name: "ssl_ciphers", kind: Kind::Text, default: "HIGH:MEDIUM:+3DES:!aNULL", applies: Applies::OnReload,
        help: "Ciphers allowed up to TLS 1.2, in the notation of OpenSSL.", ..ROW },
    Param { name: "ssl_prefer_server_ciphers", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Choose the cipher by our order, not the client's.", ..ROW },
    Param { name: "ssl_ecdh_curve", kind: Kind::Text, default: "prime256v1", applies: Applies::OnReload,
        help: "Curve for the key exchange.", ..ROW },
    Param { name: "ssl_dh_params_file", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "File of Diffie-Hellman parameters.", ..ROW },
    Param { name: "ssl_passphrase_command", kind: Kind::Text, default: "", applies: Applies::OnReload,
        help: "Command that prints the pass phrase of the private key; %p becomes the prompt.", ..ROW },
];
