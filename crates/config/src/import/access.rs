//! `auth_type`, `client_tls_sslmode` and `auth_hba_file` as rules of `pool_hba.conf`.
//!
//! PgBouncer's order of checks, in `client.c`: a TCP client without TLS is refused first, if TLS is asked for; with `verify-ca`
//! and `verify-full` it has shown a certificate by then. Then the user must be in `auth_file`, or `auth_query` must know him,
//! whatever the method, except with `pam` and `ldap`. The unix socket needs no TLS.

use super::Load;
use super::databases::Listed;
use std::fmt::Write as _;

/// The settings that decide.
pub(super) struct Setup<'a> {
    pub auth_type: &'a str,
    pub tls: &'a str,
    pub hba_file: &'a str,
    pub ldap_options: &'a str,
    pub databases: &'a Listed,
    /// Databases with a forced user.
    pub forced: &'a [String],
    pub replication: PhysicalReplication,
}

/// Users with the right to open physical replication connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhysicalReplication {
    /// All databases have a forced user, who would not count for such a connection.
    OfNobody,
    /// Whoever may enter a database under his own name.
    OfUsers,
}

/// The console's database.
const CONSOLE: &str = "pgbouncer";

/// The text of `pool_hba.conf`, and notes.
pub(super) fn rules(setup: &Setup<'_>, load: &mut Load<'_>) -> (String, Vec<String>) {
    let Setup { auth_type, tls, .. } = setup;
    let tls = if tls.is_empty() { "disable" } else { tls };
    let mut text = format!(
        "# Made from pgbouncer.ini by `weir import`: auth_type = {auth_type}, client_tls_sslmode = {tls}.\n\
         # known_users=1 lets in users with a line in pool_passwd only, or those whom auth_query knows.\n\n"
    );
    let mut notes = Vec::new();
    if let Listed::AllBut(refused) = setup.databases
        && !refused.is_empty()
    {
        let names = list(refused);
        let _ = writeln!(text, "local  {names}  all  reject\nhost   {names}  all  all  reject");
    }
    if *auth_type == "hba" {
        match load(setup.hba_file) {
            Ok(bytes) => text += &translated(&bytes, setup, &mut notes),
            Err(why) => {
                notes.push(format!("auth_hba_file: {}: {why}; until pool_hba.conf is written nobody gets in", setup.hba_file));
                text += "local  all  all  reject\nhost   all  all  all  reject\n";
            }
        }
        return (text, notes);
    }
    let mut databases = databases(setup.databases);
    if *auth_type == "any" && !setup.forced.is_empty() {
        databases = list(setup.forced);
    }
    // A physical replication connection is let in as any other; Weir refuses the one that names a database with a forced user. Lines of an
    // `auth_hba_file` have the keyword themselves.
    if *auth_type != "any" && setup.replication == PhysicalReplication::OfUsers {
        databases += ",replication";
    }
    let (local, tcp) = methods(setup, &mut notes);
    let (kind, certificate) = transport(tls, &tcp);
    let _ = writeln!(text, "local  {databases}  all  {local}");
    let _ = writeln!(text, "{kind}  {databases}  all  all  {tcp}{certificate}");
    (text, notes)
}

/// The method and options for the unix socket, and for TCP.
fn methods(setup: &Setup<'_>, notes: &mut Vec<String>) -> (String, String) {
    let both = |rule: &str| (rule.to_string(), rule.to_string());
    match setup.auth_type {
        "md5" => both("md5"),
        "scram-sha-256" => both("scram-sha-256"),
        "plain" => both("password known_users=1"),
        "trust" => both("trust known_users=1"),
        // PgBouncer asks for TLS, which the unix socket has not.
        "cert" => ("reject".into(), "cert known_users=1".into()),
        "pam" => both("pam pamservice=pgbouncer backend_use_passwd=1"),
        "ldap" => both(&format!("ldap {} backend_use_passwd=1", setup.ldap_options)),
        "any" if setup.forced.is_empty() => {
            notes.push("auth_type = any: no equal: all clients are refused: no database has a forced user".into());
            both("reject")
        }
        "any" => {
            notes.push("auth_type = any: the console is refused: everybody would be an administrator".into());
            both("trust")
        }
        other => {
            notes.push(format!("auth_type = {other}: is not known: all clients are refused"));
            both("reject")
        }
    }
}

/// The type of rules for TCP, and their demand for certificates.
fn transport(tls: &str, method: &str) -> (&'static str, &'static str) {
    let is_cert = method.starts_with("cert ");
    match tls {
        _ if method == "reject" => ("host ", ""),
        "require" => ("hostssl", ""),
        _ if is_cert => ("hostssl", ""),
        "verify-ca" | "verify-full" => ("hostssl", " clientcert=verify-ca"),
        _ => ("host ", ""),
    }
}

/// The rules of an `auth_hba_file`, with PgBouncer's own checks.
fn translated(bytes: &[u8], setup: &Setup<'_>, notes: &mut Vec<String>) -> String {
    let mut text = String::new();
    let needs_tls = matches!(setup.tls, "require" | "verify-ca" | "verify-full");
    if needs_tls {
        text += "hostnossl  all  all  all  reject\n";
    }
    for line in String::from_utf8_lossy(bytes).lines() {
        let mut fields = fields(line);
        // Type, databases and users come first, and an address may.
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
        if is_tcp && matches!(setup.tls, "verify-ca" | "verify-full") && !matches!(method.as_str(), "cert" | "reject") {
            fields[0] = "hostssl".into();
            fields.push("clientcert=verify-ca".into());
        }
        if method == "cert" && is_tcp {
            fields[0] = "hostssl".into();
        }
        let _ = writeln!(text, "{}", fields.join("  "));
        if method == "cert" {
            // A client without TLS is refused here, and not by a later rule.
            let kind = if is_tcp { "hostnossl" } else { "local" };
            let _ = writeln!(text, "{kind}  {}  reject", fields[1..method_at].join("  "));
        }
    }
    text
}

/// Methods of PgBouncer's hba files.
const METHODS: [&str; 8] = ["trust", "reject", "md5", "password", "peer", "cert", "scram-sha-256", "ldap"];

/// The fields of a line as they are written; quotes may hold blanks. Words with a comma between them are one field, with blanks on either side of it,
/// of which PostgreSQL allows those behind it only.
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

/// The field of databases.
fn databases(listed: &Listed) -> String {
    match listed {
        Listed::AllBut(_) => "all".to_string(),
        Listed::Only(names) => {
            let console = (!names.iter().any(|name| name == CONSOLE)).then(|| CONSOLE.to_string());
            list(&names.iter().cloned().chain(console).collect::<Vec<_>>())
        }
    }
}

/// Names with commas between them, in quotes, which take keywords their meaning.
fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect::<Vec<_>>().join(",")
}
