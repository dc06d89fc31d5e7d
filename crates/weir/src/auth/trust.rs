//! Warns of servers that let this machine in without a password: every client could be anyone while Weir asks for none, and
//! nobody gets in where such servers judge passwords.
//!
//! Asks each server once, at the start and in `weir check`, for the proof it wants. Blocks: runs on its own thread.

use crate::auth::access::AccessFiles;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use weir_config::{Config, NodeConfig, PasswdProof};
use weir_wire::startup_packet::ProtocolVersion;
use weir_wire::write;

/// Time for each step of a query.
const STEP_LIMIT: Duration = Duration::from_secs(2);

const READ_BYTES_MAX: u64 = 1 << 16;

const OK: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrustConsequence {
    /// Clients on other machines get in without any proof.
    Open(&'static str),
    /// Passwords are left to the servers, and refused.
    Unjudged(&'static str),
}

pub fn warning(config: &Config, access: &AccessFiles) -> Option<String> {
    let consequence = consequence(config, access)?;
    let (user, _) = access.checker(&config.check);
    let node = config.nodes.iter().find(|node| trusts(node, user, &config.check.database).unwrap_or(false))?;
    let server = format!(
        "node {} ({}:{}) lets user \"{user}\" in from this machine without a password",
        node.id, node.hostname, node.port
    );
    Some(match consequence {
        TrustConsequence::Open(why) => format!(
            "{server}, and {why}: whoever reaches Weir gets in as such a user, superusers too. Have the server ask (pg_hba.conf), or set \
             enable_pool_hba = on with rules that ask"
        ),
        TrustConsequence::Unjudged(why) => format!(
            "{server}, and {why} leaves passwords to the servers to judge: users without a line in pool_passwd are refused, whatever their \
             password, where the server asks for none. Have the server ask (pg_hba.conf), or set auth_user"
        ),
    })
}

/// Returns the consequence of a server's trust, the worse first.
fn consequence(config: &Config, access: &AccessFiles) -> Option<TrustConsequence> {
    let asks_servers = !config.auth.ask_user.is_empty();
    let is_left_to_servers = config.auth.passwd_proof == PasswdProof::AsServers && !access.passwords.is_empty();
    let is_open = match &access.hba {
        Some(hba) => hba.trusts_hosts(),
        None => (!access.keeps_proofs && !asks_servers) || is_left_to_servers,
    };
    match &access.hba {
        Some(_) if is_open && config.listens_to_others() => {
            Some(TrustConsequence::Open("pool_hba.conf has a rule with method trust for other hosts"))
        }
        None if is_left_to_servers && config.listens_to_others() => Some(TrustConsequence::Open(
            "Weir asks nobody for a password whom the servers do not ask (pool_passwd_proof = as_servers)",
        )),
        None if is_open && config.listens_to_others() => {
            Some(TrustConsequence::Open("Weir asks nobody for a password who has no line in pool_passwd"))
        }
        Some(hba) if !asks_servers && hba.passes_passwords_on() => {
            Some(TrustConsequence::Unjudged("a rule of pool_hba.conf with method password"))
        }
        None if !asks_servers && config.auth.allow_clear_text => {
            Some(TrustConsequence::Unjudged("allow_clear_text_frontend_auth"))
        }
        Some(_) | None => None,
    }
}

/// True if a server demands no proof of this user from here.
fn trusts(node: &NodeConfig, user: &str, database: &str) -> io::Result<bool> {
    if node.hostname.starts_with('/') {
        let stream = UnixStream::connect(format!("{}/.s.PGSQL.{}", node.hostname, node.port))?;
        stream.set_read_timeout(Some(STEP_LIMIT))?;
        return ask(stream, user, database);
    }
    let address = (node.hostname.as_str(), node.port).to_socket_addrs()?.next();
    let address = address.ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, STEP_LIMIT)?;
    stream.set_read_timeout(Some(STEP_LIMIT))?;
    ask(stream, user, database)
}

/// Avoids log lines: a server logs a Terminate in the middle of a login, and a close with unread data.
fn ask(mut stream: impl Read + Write, user: &str, database: &str) -> io::Result<bool> {
    let mut packet = Vec::new();
    write::startup(&mut packet, ProtocolVersion::V3_0, [("user", user), ("database", database)].into_iter());
    stream.write_all(&packet)?;
    let mut answer = OK.map(|_| 0);
    stream.read_exact(&mut answer)?;
    let rest_bytes = if answer == OK {
        let mut farewell = Vec::new();
        write::bare(&mut farewell, weir_wire::frame::front::TERMINATE);
        let _ = stream.write_all(&farewell);
        READ_BYTES_MAX
    } else {
        // Rest of the server's question. A close here causes no log line.
        let [_, a, b, c, d, ..] = answer;
        u64::from(u32::from_be_bytes([a, b, c, d])).saturating_sub(8).min(READ_BYTES_MAX)
    };
    // A close with unread data is a reset, which the server logs.
    let _ = io::copy(&mut stream.take(rest_bytes), &mut io::sink());
    Ok(answer == OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use weir_config::hba::{FileLoader, HbaRuleSet, LoadError};

    /// Checks the consequences of a configuration (`;` for line ends) with these rules.
    fn check(conf: &str, rules: Option<&str>, expected: &str) {
        let conf = format!("backend_hostname0 = 'a'\n{}", conf.replace(';', "\n"));
        let config = weir_config::read(Path::new("c"), &mut |_| Ok(conf.clone().into_bytes())).config.unwrap();
        let hba = rules.map(|rules| {
            let mut file = |_: &Path| Ok(rules.replace(';', "\n").into_bytes());
            let mut folder = |_: &Path| Err(LoadError::NotFound);
            Arc::new(HbaRuleSet::read(Path::new("h"), None, &mut FileLoader { file: &mut file, folder: &mut folder }).0.unwrap())
        });
        let keeps_proofs = hba.is_some() || config.auth.allow_clear_text;
        let found = match consequence(&config, &AccessFiles { hba, keeps_proofs, ..AccessFiles::default() }) {
            Some(TrustConsequence::Open(_)) => "open",
            Some(TrustConsequence::Unjudged(_)) => "unjudged",
            None => "nothing",
        };
        assert_eq!(found, expected, "{conf} {rules:?}");
    }

    #[test]
    fn a_server_that_trusts_is_a_way_in_or_judges_no_password() {
        let all = "listen_addresses = '*'";
        check(all, None, "open");
        check("", None, "nothing");
        check("allow_clear_text_frontend_auth = on", None, "unjudged");
        check("allow_clear_text_frontend_auth = on; auth_user = 'a'", None, "nothing");
        check(all, Some("host all all all scram-sha-256"), "nothing");
        check(all, Some("host all all all trust; local all all password"), "open");
        check("", Some("host all all all trust; local all all password"), "unjudged");
        check(all, Some("host all all all password"), "unjudged");
        check(all, Some("host all all all password known_users=1"), "nothing");
        check("auth_user = 'a'", Some("host all all all password"), "nothing");
    }

    /// A server that says this, and notes what it is told.
    struct Server<'a> {
        says: &'a [u8],
        told: &'a mut Vec<u8>,
    }

    impl Read for Server<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.says.read(buffer)
        }
    }

    impl Write for Server<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.told.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_that_a_server_says_is_left_unread() {
        let cases: [(&[u8], bool, bool); 3] = [
            (b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0", false, false),
            (b"R\0\0\0\x08\0\0\0\0S\0\0\0\x08a\0b\0Z\0\0\0\x05I", true, true),
            (b"E\0\0\0\x13Mno such user\0\0", false, false),
        ];
        for (says, is_let_in, says_farewell) in cases {
            let mut told = Vec::new();
            let mut server = Server { says, told: &mut told };
            assert_eq!(ask(&mut server, "a", "b").unwrap(), is_let_in);
            assert!(server.says.is_empty(), "{}", server.says.escape_ascii());
            assert_eq!(told.ends_with(b"X\0\0\0\x04"), says_farewell);
        }
    }
}
