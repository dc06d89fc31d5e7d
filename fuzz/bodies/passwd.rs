//! The `pool_passwd` file.

use weir_config::passwd::{PasswdKey, PoolPasswdFile, UserSecret};

/// Reads the bytes as a file, and as one credential.
pub fn run(bytes: &[u8]) {
    let key = PasswdKey::new(b"key");
    let (passwords, bad) = PoolPasswdFile::read(bytes, key.as_ref());
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(passwords.len() + bad.len() <= lines);
    assert!(bad.iter().all(|bad| (1..=lines).contains(&bad.line)));
    let again = PoolPasswdFile::read(bytes, key.as_ref());
    assert_eq!(again.1, bad);
    if let Ok(secret) = UserSecret::parse(bytes, key.as_ref()) {
        assert!(!secret.can_answer_cleartext() || secret.can_answer_md5() && secret.can_answer_scram());
    }
}
