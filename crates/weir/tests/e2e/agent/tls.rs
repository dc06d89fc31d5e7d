//! Agents over TLS, and secrets of their own.

use super::stand::{Agent, SECRET, servers};
use crate::support::certs::Authority;
use crate::support::time::happens_within;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Asks the agent of the only node, by the program. True for an answer, and its words.
fn ask(folder: &Path, agent: &Agent, lines: &str, files: &[(&str, &str)]) -> (bool, String) {
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let port = agent.port.number();
    let conf = format!(
        "backend_hostname0 = '127.0.0.1'\nbackend_port0 = 5432\nbackend_agent0 = '127.0.0.1:{port}'\nagent_secret_file = 'shared'\n{lines}\n"
    );
    let file = folder.join("pgpool.conf");
    std::fs::write(&file, conf).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["agent-status", "-f"]).arg(&file).output().unwrap();
    let words = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), words)
}

#[test]
fn only_those_with_a_certificate_and_the_secret_get_in() {
    let Some(cluster) = servers(0) else { return };
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (server, client, stranger) =
        (ours.server(), ours.sign(&[("CN", "weir")], &[], 2), theirs.sign(&[("CN", "weir")], &[], 3));
    let agent = Agent::with(
        cluster.primary(),
        &[("cert", &server.cert), ("key", &server.key), ("ca", &ours.pem())],
        &["--tls-cert", "FOLDER/cert", "--tls-key", "FOLDER/key", "--tls-ca", "FOLDER/ca"],
    );
    let folder = agent.folder().join("client");
    std::fs::create_dir(&folder).unwrap();
    let (ca, other) = (ours.pem(), theirs.pem());
    let files = |cert: &str, key: &str, ca: &str| {
        [("shared", SECRET), ("cert", cert), ("key", key), ("ca", ca)].map(|(n, t)| (n, t.to_string()))
    };
    let full = "agent_sslmode = verify-full\nagent_sslrootcert = 'ca'\n";
    let both = format!("{full}agent_sslcert = 'cert'\nagent_sslkey = 'key'\n");
    let cases: [(&str, &str, [(&str, String); 4], bool); 5] = [
        ("all is right", &both, files(&client.cert, &client.key, &ca), true),
        ("no certificate", full, files(&client.cert, &client.key, &ca), false),
        ("a stranger's certificate", &both, files(&stranger.cert, &stranger.key, &ca), false),
        ("an agent of another authority", &both, files(&client.cert, &client.key, &other), false),
        ("no TLS", "", files(&client.cert, &client.key, &ca), false),
    ];
    for (name, lines, files, expected) in cases {
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let (done, words) = ask(&folder, &agent, lines, &files);
        assert_eq!(done, expected, "{name}: {words}");
        assert_eq!(words.contains("primary on port"), expected, "{name}: {words}");
    }
    let log = agent.log();
    assert!(happens_within(Duration::from_secs(10), || agent.log().contains("shows no certificate")), "{log}");
}

#[test]
fn a_secret_may_be_an_agents_own() {
    let Some(cluster) = servers(0) else { return };
    let agent = Agent::beside(cluster.primary());
    let folder = agent.folder().join("client");
    std::fs::create_dir(&folder).unwrap();
    let own = format!("of-nobody-0123456789\n127.0.0.1:{} {SECRET}\n", agent.port.number());
    let (done, words) = ask(&folder, &agent, "", &[("shared", &own)]);
    assert!(done && words.contains("primary on port"), "{words}");
    let (done, words) = ask(&folder, &agent, "", &[("shared", "of-nobody-0123456789")]);
    assert!(!done && words.contains("does not know the secret"), "{words}");
    std::fs::set_permissions(folder.join("shared"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let conf = folder.join("pgpool.conf");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["agent-status", "-f"]).arg(&conf).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.contains("has group or world access"), "{words}");
}
