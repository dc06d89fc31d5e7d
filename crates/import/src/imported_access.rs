//! `auth_type`, `client_tls_sslmode` and `auth_hba_file` as rules of `pool_hba.conf`, with the parameters they need.
//!
//! PgBouncer's order of checks (`client.c`): first TLS for TCP clients if required, with a certificate for `verify-ca` and `verify-full`.
//! Then the user must be known by `auth_file` or `auth_query`, except with `pam` and `ldap`. The unix socket needs no TLS.

use super::Load;
use crate::imported_databases::{PhysicalReplication, ReachableDatabases};
use std::fmt::Write as _;
use weir_config::params::{self, ConfigParam, ParamKind};

pub(super) struct AccessSettings<'a> {
    pub auth_type: &'a str,
    pub tls: &'a str,
    pub hba_file: &'a str,
    pub ldap_options: &'a str,
    pub databases: &'a ReachableDatabases,
    /// Databases with a forced user.
    pub forced: &'a [String],
    pub replication: PhysicalReplication,
}

const CONSOLE: &str = "pgbouncer";

/// Returns the text of `pool_hba.conf`, and notes.
pub(super) fn rules(setup: &AccessSettings<'_>, load: &mut Load<'_>) -> (String, Vec<String>) {
    let AccessSettings { auth_type, tls, .. } = setup;
    let tls = if tls.is_empty() { "disable" } else { tls };
    let mut text = format!(
        "# Made from pgbouncer.ini by `weir import`: auth_type = {auth_type}, client_tls_sslmode = {tls}.\n\
         # auth_type stands for the method that the parameter of that name names; if that is hba, such rules do not count.\n\
         # known_users=1 lets in users with a line in pool_passwd only, or those whom auth_query knows.\n\n"
    );
    let mut notes = Vec::new();
    if let ReachableDatabases::AllBut(refused) = setup.databases
        && !refused.is_empty()
    {
        let names = list(refused);
        let _ = writeln!(text, "local  {names}  all  reject\nhost   {names}  all  all  reject");
    }
    let mut databases = databases(setup.databases);
    let all = databases.clone();
    // Weir refuses physical replication connections to databases with a forced user. Lines of an `auth_hba_file` contain the keyword
    // themselves.
    if setup.replication == PhysicalReplication::OfUsers {
        databases += ",replication";
    }
    // Also present beside other rules: a SET of auth_type applies to it.
    let _ = writeln!(text, "local  {databases}  all  auth_type\nhost   {databases}  all  all  auth_type");
    match *auth_type {
        _ if is_by_parameter(auth_type) && setup.hba_file.is_empty() => {}
        "hba" => match load(setup.hba_file) {
            Ok(bytes) => text += &translated(&bytes, setup, &mut notes),
            Err(why) => {
                notes.push(format!("auth_hba_file: {}: {why}; until pool_hba.conf is written nobody gets in", setup.hba_file));
                text += "local  all  all  reject\nhost   all  all  all  reject\n";
            }
        },
        // Counts once auth_type is hba.
        _ if is_by_parameter(auth_type) => {
            let bytes = load(setup.hba_file).unwrap_or_default();
            text += &translated(&bytes, setup, &mut notes);
        }
        "any" if !setup.forced.is_empty() => {
            notes.push("auth_type = any: the console is refused: everybody would be an administrator".into());
            let forced = list(setup.forced);
            let _ = writeln!(text, "local  {forced}  all  trust\nhost   {forced}  all  all  trust");
        }
        _ => {
            let method = method(setup, &mut notes);
            let databases = if *auth_type == "any" { &all } else { &databases };
            let _ = writeln!(text, "local  {databases}  all  {method}\nhost   {databases}  all  all  {method}");
        }
    }
    (text, notes)
}

/// True if the parameter `auth_type` has this method.
pub(super) fn is_by_parameter(auth_type: &str) -> bool {
    let is_one = |param: &ConfigParam| matches!(param.kind, ParamKind::Enum { values, .. } if values.contains(&auth_type));
    auth_type != "hba" && params::find("auth_type").is_some_and(is_one)
}

/// Returns method and options of rules with an explicit method.
fn method(setup: &AccessSettings<'_>, notes: &mut Vec<String>) -> String {
    match setup.auth_type {
        "ldap" => format!("ldap {} backend_use_passwd=1", setup.ldap_options),
        "any" => {
            notes.push("auth_type = any: no equal: all clients are refused: no database has a forced user".into());
            "reject".into()
        }
        other => {
            notes.push(format!("auth_type = {other}: is not known: all clients are refused"));
            "reject".into()
        }
    }
}

/// Translates an `auth_hba_file`, with PgBouncer's own checks.
fn translated(bytes: &[u8], setup: &AccessSettings<'_>, notes: &mut Vec<String>) -> String {
    let mut text = String::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        let mut fields = fields(line);
        // Type, databases and users come first, then maybe an address.
        let is_method = |(at, field): (usize, &String)| at >= 3 && METHODS.contains(&field.as_str());
        let Some(method_at) = fields.iter().enumerate().position(is_method) else {
            if !fields.is_empty() {
                notes.push(format!("auth_hba_file: \"{}\": no method that is known; `weir check` says more", line.trim()));
                let _ = writeln!(text, "{}", fields.join("  "));
            }
            continue;
        };
        if fields.iter().any(|field| field.starts_with('@') || field.contains(",@")) {
            notes.push(format!("auth_hba_file: \"{}\": copy the file after the @ to where pool_hba.conf is", line.trim()));
        }
        let method = fields[method_at].clone();
        if fields[1] == "all" {
            fields[1] = databases(setup.databases);
        }
        if matches!(method.as_str(), "trust" | "password" | "cert" | "peer") {
            fields.push("known_users=1".into());
        }
        let is_tcp = fields[0] != "local";
        if method == "cert" && is_tcp {
            fields[0] = "hostssl".into();
        }
        let _ = writeln!(text, "{}", fields.join("  "));
        if method == "cert" {
            // Refuses a client without TLS before later rules.
            let kind = if is_tcp { "hostnossl" } else { "local" };
            let _ = writeln!(text, "{kind}  {}  reject", fields[1..method_at].join("  "));
        }
    }
    text
}

const METHODS: [&str; 8] = ["trust", "reject", "md5", "password", "peer", "cert", "scram-sha-256", "ldap"];

/// Splits a line into raw fields; quotes may hold blanks. Words around a comma are one field, with blanks on either side;
/// PostgreSQL allows blanks only after the comma.
fn fields(line: &str) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    let (mut in_quote, mut is_open) = (false, false);
    for c in line.chars() {
        match c {
            '#' if !in_quote => break,
            c if c.is_whitespace() && !in_quote => is_open = fields.last().is_some_and(|field| is_open && field.ends_with(',')),
            c => {
                in_quote ^= c == '"';
                match fields.last_mut().filter(|_| is_open || c == ',') {
                    Some(field) => field.push(c),
                    None => fields.push(c.to_string()),
                }
                is_open = true;
            }
        }
    }
    fields
}

fn databases(listed: &ReachableDatabases) -> String {
    match listed {
        ReachableDatabases::AllBut(_) => "all".to_string(),
        ReachableDatabases::Only(names) => {
            let console = (!names.iter().any(|name| name == CONSOLE)).then(|| CONSOLE.to_string());
            list(&names.iter().cloned().chain(console).collect::<Vec<_>>())
        }
    }
}

/// Joins names with commas, in quotes, which remove the meaning of keywords.
fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect::<Vec<_>>().join(",")
}
