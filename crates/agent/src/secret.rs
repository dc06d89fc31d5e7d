//! The file of shared secrets.
//!
//! A line is a secret for all agents, or `HOST:PORT SECRET` for one, which then accepts no order redirected from another agent.

use zeroize::Zeroizing;

/// Limit against guessing.
pub const SECRET_BYTES_MIN: usize = 16;
pub const SECRET_BYTES_MAX: usize = 1024;
pub const FILE_BYTES_MAX: usize = 64 << 10;

#[derive(Clone)]
pub struct AgentSecret(Zeroizing<Vec<u8>>);

/// No text shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentSecretError {
    #[error("line {line}: the secret has {bytes} bytes, at least {SECRET_BYTES_MIN} are needed")]
    Short { line: usize, bytes: usize },
    #[error("line {line}: the secret has {bytes} bytes, the limit is {SECRET_BYTES_MAX}")]
    Long { line: usize, bytes: usize },
    #[error("line {line}: expected a secret, or HOST:PORT and a secret")]
    Shape { line: usize },
    #[error("line {line}: a second secret for the same agents")]
    Twice { line: usize },
    #[error("there is no secret for {place}")]
    Missing { place: String },
}

impl AgentSecret {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn new(line: usize, text: &str) -> Result<AgentSecret, AgentSecretError> {
        match text.len() {
            bytes if bytes < SECRET_BYTES_MIN => Err(AgentSecretError::Short { line, bytes }),
            bytes if bytes > SECRET_BYTES_MAX => Err(AgentSecretError::Long { line, bytes }),
            _ => Ok(AgentSecret(Zeroizing::new(text.as_bytes().to_vec()))),
        }
    }

    /// `place` `None`: the general secret.
    pub fn read(text: &str, place: Option<&str>) -> Result<AgentSecret, AgentSecretError> {
        let (mut general, mut own) = (None, None);
        for (at, line) in text.lines().enumerate() {
            let (number, line) = (at + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut parts = line.split_whitespace();
            let (found, secret) = match (parts.next(), parts.next(), parts.next()) {
                (Some(secret), None, None) => (&mut general, AgentSecret::new(number, secret)?),
                (Some(named), Some(secret), None) => {
                    let secret = AgentSecret::new(number, secret)?;
                    if place != Some(named) {
                        continue;
                    }
                    (&mut own, secret)
                }
                _ => return Err(AgentSecretError::Shape { line: number }),
            };
            if found.replace(secret).is_some() {
                return Err(AgentSecretError::Twice { line: number });
            }
        }
        own.or(general).ok_or_else(|| AgentSecretError::Missing { place: place.unwrap_or("all agents").to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, place: Option<&str>) -> Result<String, AgentSecretError> {
        AgentSecret::read(text, place).map(|secret| String::from_utf8_lossy(secret.bytes()).into_owned())
    }

    #[test]
    fn a_secret_is_for_all_agents_or_for_one() {
        let text = "# of the test\n  0123456789abcdef \n\ndb1:9797 of-its-own-0123456\n";
        assert_eq!(read(text, None).as_deref(), Ok("0123456789abcdef"));
        assert_eq!(read(text, Some("db2:9797")).as_deref(), Ok("0123456789abcdef"));
        assert_eq!(read(text, Some("db1:9797")).as_deref(), Ok("of-its-own-0123456"));
        assert_eq!(read("", None), Err(AgentSecretError::Missing { place: "all agents".into() }));
        assert_eq!(read("db1:9797 of-its-own-0123456", Some("x")), Err(AgentSecretError::Missing { place: "x".into() }));
        assert_eq!(read("short", None), Err(AgentSecretError::Short { line: 1, bytes: 5 }));
        assert_eq!(read(&"x".repeat(1025), None), Err(AgentSecretError::Long { line: 1, bytes: 1025 }));
        assert_eq!(read("\na b c", None), Err(AgentSecretError::Shape { line: 2 }));
        assert_eq!(read("0123456789abcdef\n0123456789abcdef", None), Err(AgentSecretError::Twice { line: 2 }));
    }
}
