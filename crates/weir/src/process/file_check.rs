//! All that `weir check` says of an operator's files, without asking a server for more than its way of login.

use crate::auth::access::AccessFiles;
use crate::auth::trust;
use crate::process::{pcp_programs, pid_file};
use crate::runtime::operator_files::{FileFindings, OperatorFiles};
use crate::runtime::places;
use crate::runtime::tls_files::TlsFiles;
use std::time::SystemTime;
use weir_config::{self as config, Config, ProblemSeverity};

/// Files that a start could use.
pub struct UsableFiles {
    pub config: Config,
    pub access: AccessFiles,
    pub tls: TlsFiles,
}

/// Blocks: reads files, and asks each server how it lets clients in. `descriptors_max`: files that the process may open.
///
/// The second value is there if no problem is an error.
pub fn check(files: &OperatorFiles, descriptors_max: u64) -> (FileFindings, Option<UsableFiles>) {
    let outcome = files.read();
    let mut found = FileFindings { problems: outcome.problems, notes: Vec::new() };
    let Some(config) = outcome.config else { return (found, None) };
    let (access, problems) = files.read_access(&config, None);
    found.problems.extend(problems);
    if let Some(access) = &access {
        found.problems.extend(config::unasked::warnings(&config, access.hba.as_deref(), access.passwords.len()));
    }
    let tls = files.read_tls(&config);
    match &tls {
        Ok(tls) => found.problems.extend(tls.warnings(&config, SystemTime::now())),
        Err(cause) => found.problems.push(cause.problem(&config)),
    }
    let (users, warnings) = files.read_pcp();
    found.problems.extend(warnings);
    found.problems.extend(users.filter(|users| !users.is_empty()).and_then(|_| pcp_programs::warning(&config)));
    found.problems.extend(config::unnamed_role_user(&config));
    config.notices().into_iter().chain(config.descriptors_notice(descriptors_max)).for_each(|notice| found.warn(notice));
    found.notes.extend(config.older_causal_reads());
    look_at_pid_file(&config, &mut found);
    found.problems.extend(places::findings(files, &config).iter().map(|place| place.problem(&config)));
    if let Some(warning) = access.as_ref().and_then(|access| trust::warning(&config, access)) {
        found.warn(warning);
    }
    let usable = match (access, tls) {
        (Some(access), Ok(tls)) if found.errors() == 0 => Some(UsableFiles { config, access, tls }),
        _ => None,
    };
    (found, usable)
}

fn look_at_pid_file(config: &Config, found: &mut FileFindings) {
    let Err(cause) = pid_file::try_path(&config.pid_file) else { return };
    if config.is_default("pid_file_name") {
        return found.warn(format!("{cause}; without pid_file_name only a proxy in the foreground starts"));
    }
    found.add(ProblemSeverity::Error, cause);
}
