//! `pool_hba.conf` and the maps of names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_config::hba::{
    ClientOrigin, ClientTlsFacts, FileLoader, HbaFact, HbaRuleSet, HbaVerdict, LoadError, LoginFacts, ReplicationRequest,
};

/// Reads the bytes as rules, as maps and as included files, and lets some clients in.
pub fn run(bytes: &[u8]) {
    let mut file = |path: &Path| match path.to_str() {
        Some("nothing") => Err(LoadError::NotFound),
        _ => Ok(bytes.to_vec()),
    };
    let mut folder = |_: &Path| Ok(vec![PathBuf::from("a.conf"), PathBuf::from("b")]);
    let mut loader = FileLoader { file: &mut file, folder: &mut folder };
    let (hba, problems) = HbaRuleSet::read(Path::new("hba"), Some(Path::new("ident")), &mut loader);
    assert!(problems.iter().all(|problem| problem.path.is_some() && problem.line != Some(0)));
    let Some(hba) = hba.or_else(|| only_rules(bytes)) else { return };
    let groups = BTreeSet::from(["joe".to_string(), "staff".to_string()]);
    let origins = [
        ClientOrigin::Local,
        ClientOrigin::Address([10, 0, 0, 1].into()),
        ClientOrigin::Address([0u16, 0, 0, 0, 0, 0, 0, 1].into()),
    ];
    for origin in origins {
        for groups in [HbaFact::NotAsked, HbaFact::Nothing, HbaFact::Is(&groups)] {
            let visit = LoginFacts {
                user: "joe",
                database: "db",
                replication: ReplicationRequest::No,
                origin,
                tls: Some(ClientTlsFacts { common_name: Some("joe"), distinguished_name: None }),
                system_user: Some("joe"),
                networks: &[],
                groups,
                host: HbaFact::Is("app.example.com"),
            };
            if let HbaVerdict::Apply(rule) = hba.decide(&visit) {
                let _ = hba.accepts_outside_name(rule, &visit);
            }
        }
    }
}

/// The bytes as rules alone.
fn only_rules(bytes: &[u8]) -> Option<HbaRuleSet> {
    let mut file = |path: &Path| if path == Path::new("hba") { Ok(bytes.to_vec()) } else { Err(LoadError::NotFound) };
    let mut folder = |_: &Path| Err(LoadError::NotFound);
    HbaRuleSet::read(Path::new("hba"), None, &mut FileLoader { file: &mut file, folder: &mut folder }).0
}
