//! The foreign servers of the engine, and the login by which they read the shards.

use super::shard_servers::ShardServer;
use super::words::{quote_name, quote_text};
use crate::control::shard_catalog::{REFERENCE_SERVER, SERVER_BEGIN};
use weir_config::{Config, SslMode};

/// Name by which servers show the engine's sessions.
const APPLICATION: &str = "weir_engine";

/// Rows that a shard gives at once: with the 100 of `postgres_fdw`, round trips take most of the time.
const FETCH_ROWS: &str = "10000";

/// Seconds after which a shard that does not answer is an error.
const CONNECT_SECONDS: &str = "10";

/// Chosen by Weir on the shard, whatever its owner set. A table with row security is an error and never a part of its rows. Arrays hold NULL as `postgres_fdw` writes it.
const SESSION: &str = "-c row_security=off -c array_nulls=on";

/// First version whose `postgres_fdw` has the options `truncatable` and `async_capable`.
const LATER_OPTIONS_SINCE: u32 = 14;

pub const SERVER_OPTIONS: &str =
    "SELECT s.srvname, COALESCE(pg_catalog.to_json(s.srvoptions), '[]'::pg_catalog.json) FROM pg_catalog.pg_foreign_server AS s";

/// Logins at the servers of the engine: server, role (NULL: everyone), options. Only superusers see options.
pub const MAPPINGS: &str = "SELECT m.srvname, CASE WHEN m.umuser OPERATOR(pg_catalog.<>) '0'::pg_catalog.oid THEN m.usename END, \
    COALESCE(pg_catalog.to_json(m.umoptions), '[]'::pg_catalog.json) FROM pg_catalog.pg_user_mappings AS m";

/// Names and values, in the order in which they are written.
pub type Options = Vec<(String, String)>;

/// The address by which the engine reaches a server, where it is another than Weir's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detour {
    pub shard: u16,
    pub host: String,
    pub port: u16,
}

impl Detour {
    /// Reads `1=host:port`.
    pub fn parse(text: &str) -> Result<Detour, String> {
        let read = || {
            let (shard, address) = text.split_once('=')?;
            let (host, port) = address.rsplit_once(':')?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let (shard, port): (u16, u16) = (shard.parse().ok()?, port.parse().ok()?);
            (!host.is_empty() && shard > 0 && port > 0).then(|| Detour { shard, host: host.to_owned(), port })
        };
        read().ok_or_else(|| format!("\"{text}\" is no address: write shard=host:port for a shard above 0, as in 1=db1.lan:5432"))
    }
}

/// Where the engine's own server listens, by its answer to `engine_place`.
pub fn own_address(place: &str) -> Option<(String, u16)> {
    let (folders, port) = place.rsplit_once(' ')?;
    let folder = first_folder(folders).filter(|folder| folder.starts_with('/')).unwrap_or_else(|| "localhost".to_owned());
    Some((folder, port.parse().ok()?))
}

/// The first of a list of folders, which may be quoted. Source: `SplitDirectoriesString` in varlena.c.
fn first_folder(list: &str) -> Option<String> {
    let Some(mut rest) = list.trim_start().strip_prefix('"') else {
        return list.split(',').next().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    };
    let mut found = String::new();
    while let Some((part, after)) = rest.split_once('"') {
        found += part;
        match after.strip_prefix('"') {
            Some(more) => {
                found.push('"');
                rest = more;
            }
            None => return Some(found),
        }
    }
    None
}

/// Options of all servers of the engine, by name. `own`: the address of the engine's own server.
pub fn wanted(
    config: &Config,
    servers: &[ShardServer],
    database: &str,
    (own, detours): (&(String, u16), &[Detour]),
    major: u32,
) -> Vec<(String, Options)> {
    let options = |host: &str, port: u16, tls: Options| {
        let mut options: Vec<(&str, String)> = vec![
            ("host", host.to_owned()),
            ("port", port.to_string()),
            ("dbname", database.to_owned()),
            ("fetch_size", FETCH_ROWS.to_owned()),
            ("updatable", "false".to_owned()),
            ("options", SESSION.to_owned()),
            ("application_name", APPLICATION.to_owned()),
            ("connect_timeout", CONNECT_SECONDS.to_owned()),
        ];
        if major >= LATER_OPTIONS_SINCE {
            // A rescan of an Append left a request of its shards pending: "another command is already in progress", now and then. Seen with 18.4.
            // Mended in PostgreSQL in August 2026 ("Drain pending asynchronous requests during ExecReScanAppend").
            options.extend(["truncatable", "async_capable"].map(|name| (name, "false".to_owned())));
        }
        options.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(tls).collect::<Options>()
    };
    let of_server = |server: &ShardServer| {
        let name = format!("{SERVER_BEGIN}{}", server.shard);
        if server.shard == 0 {
            return (name, options(&own.0, own.1, Vec::new()));
        }
        let detour = detours.iter().find(|detour| detour.shard == server.shard);
        let (host, port) = detour.map_or((&server.hostname, server.port), |detour| (&detour.host, detour.port));
        (name, options(host, port, tls_options(config, server.node)))
    };
    let every = (REFERENCE_SERVER.to_owned(), options(&own.0, own.1, Vec::new()));
    servers.iter().map(of_server).chain([every]).collect()
}

/// The servers of the engine that lead to a shard.
pub fn names_of(shard: u16) -> Vec<String> {
    let own = format!("{SERVER_BEGIN}{shard}");
    if shard == 0 { vec![own, REFERENCE_SERVER.to_owned()] } else { vec![own] }
}

/// The engine demands the encryption of a server that Weir demands.
fn tls_options(config: &Config, node: u16) -> Options {
    let mode = config.all_nodes().find(|known| known.id == node).map_or(SslMode::Auto, |known| known.ssl_mode);
    let (word, checks) = match mode {
        SslMode::Auto | SslMode::Prefer => return Vec::new(),
        SslMode::Disable => ("disable", false),
        SslMode::Allow => ("allow", false),
        SslMode::Require => ("require", false),
        SslMode::VerifyCa => ("verify-ca", true),
        SslMode::VerifyFull => ("verify-full", true),
    };
    let mut options = vec![("sslmode".to_owned(), word.to_owned())];
    let file = config.tls.backend.root_cert.as_ref().or(config.tls.ca_cert.as_ref()).filter(|_| checks);
    options.extend(file.map(|file| ("sslrootcert".to_owned(), file.display().to_string())));
    options
}

/// From `name=value`, as catalogs have options.
pub fn options_of(json: &str) -> Options {
    let texts: Vec<String> = serde_json::from_str(json).unwrap_or_default();
    texts.iter().filter_map(|text| text.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// `None`: the server is as wanted. `there`: its options, if it exists.
pub fn server_statement(name: &str, there: Option<&Options>, wanted: &Options) -> Option<String> {
    match there {
        None => {
            Some(format!("CREATE SERVER {} FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({})", quote_name(name), list("", wanted)))
        }
        Some(there) => changes(there, wanted).map(|changes| format!("ALTER SERVER {} OPTIONS ({changes})", quote_name(name))),
    }
}

/// As `server_statement`, of the login for everyone.
pub fn mapping_statement(server: &str, there: Option<&Options>, wanted: &Options) -> Option<String> {
    let of = format!("USER MAPPING FOR PUBLIC SERVER {}", quote_name(server));
    match there {
        None => Some(format!("CREATE {of} OPTIONS ({})", list("", wanted))),
        Some(there) => changes(there, wanted).map(|changes| format!("ALTER {of} OPTIONS ({changes})")),
    }
}

/// `password`: none where the shards let the user in without.
pub fn mapping(user: &str, password: Option<&str>) -> Options {
    let mut options = vec![("user".to_owned(), user.to_owned()), ("password_required".to_owned(), "false".to_owned())];
    options.extend(password.map(|password| ("password".to_owned(), password.to_owned())));
    options
}

fn list(verb: &str, options: &[(String, String)]) -> String {
    let one = |(name, value): &(String, String)| format!("{verb}{} {}", quote_name(name), quote_text(value));
    options.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn changes(there: &Options, wanted: &Options) -> Option<String> {
    let value = |options: &Options, name: &str| options.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    let (mut set, mut add) = (Vec::new(), Vec::new());
    for (name, wanted) in wanted {
        match value(there, name) {
            None => add.push((name.clone(), wanted.clone())),
            Some(value) if value != *wanted => set.push((name.clone(), wanted.clone())),
            Some(_) => {}
        }
    }
    let dropped =
        there.iter().filter(|(name, _)| value(wanted, name).is_none()).map(|(name, _)| format!("DROP {}", quote_name(name)));
    let parts: Vec<String> =
        [list("SET ", &set), list("ADD ", &add)].into_iter().filter(|part| !part.is_empty()).chain(dropped).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub fn own_texts() -> Vec<String> {
    [SERVER_OPTIONS, MAPPINGS].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_own_server_is_reached_by_its_first_socket_or_by_localhost() {
        for (place, expected) in [
            ("/var/run/postgresql, /tmp 5432", Some(("/var/run/postgresql", 5432))),
            ("\"/a \"\"b, c\",/tmp 5433", Some(("/a \"b, c", 5433))),
            (" 5432", Some(("localhost", 5432))),
            ("@abstract 5432", Some(("localhost", 5432))),
            ("/tmp", None),
            ("/tmp x", None),
        ] {
            assert_eq!(own_address(place), expected.map(|(host, port)| (host.to_owned(), port)), "{place}");
        }
    }

    #[test]
    fn addresses_are_read_and_shard_0_has_none() {
        let detour = |shard, host: &str, port| Some(Detour { shard, host: host.to_owned(), port });
        for (text, expected) in [
            ("1=db1:5432", detour(1, "db1", 5432)),
            ("12=[::1]:1", detour(12, "::1", 1)),
            ("2=/tmp:5432", detour(2, "/tmp", 5432)),
            ("0=db0:5432", None),
            ("1=db1", None),
            ("1=:5432", None),
            ("db1:5432", None),
            ("1=db1:0", None),
        ] {
            assert_eq!(Detour::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn only_options_that_differ_are_changed() {
        let there = options(&[("host", "a"), ("port", "1"), ("use_remote_estimate", "true")]);
        let wanted = options(&[("host", "b'"), ("port", "1"), ("dbname", "d")]);
        assert_eq!(
            server_statement("shard_1", Some(&there), &wanted).as_deref(),
            Some("ALTER SERVER \"shard_1\" OPTIONS (SET \"host\" 'b''', ADD \"dbname\" 'd', DROP \"use_remote_estimate\")")
        );
        assert_eq!(server_statement("shard_1", Some(&wanted), &wanted), None);
        assert_eq!(
            mapping_statement("shard_1", None, &mapping("it's", Some("p'"))).as_deref(),
            Some(
                "CREATE USER MAPPING FOR PUBLIC SERVER \"shard_1\" OPTIONS (\"user\" 'it''s', \"password_required\" 'false', \"password\" 'p''')"
            )
        );
        assert_eq!(options_of("[\"host=b'\",\"port=1\",\"dbname=d\"]"), wanted);
    }

    #[test]
    fn shards_above_0_are_reached_as_configured_or_by_their_detour_with_the_encryption_that_weir_demands() {
        let conf = "backend_hostname0 = 'a'\nbackend_hostname1 = 'b'\nbackend_hostname2 = 'c'\nbackend_shard1 = 1\nbackend_shard2 = 2\n\
            parallel_mode = on\nbackend_sslmode = verify-full\nbackend_sslrootcert = '/x/ca'\nbackend_sslmode2 = require\n";
        let config = weir_config::read(std::path::Path::new("/x/c"), &mut |_| Ok(conf.as_bytes().to_vec())).config.unwrap();
        let server = |shard: u16, host: &str| ShardServer { shard, node: shard, hostname: host.to_owned(), port: 5432 };
        let servers = [server(0, "a"), server(1, "b"), server(2, "c")];
        let detours = [Detour { shard: 2, host: "far".to_owned(), port: 7 }];
        let found = wanted(&config, &servers, "shop", (&("/tmp".to_owned(), 5433), &detours), 15);
        let words = |at: usize| {
            let (name, options) = &found[at];
            let value = |name: &str| options.iter().find(|(other, _)| other == name).map_or("-", |(_, value)| value.as_str());
            [name.as_str(), value("host"), value("port"), value("sslmode"), value("sslrootcert"), value("async_capable")]
                .join(" ")
        };
        assert_eq!(words(0), "shard_0 /tmp 5433 - - false");
        assert_eq!(words(1), "shard_1 b 5432 verify-full /x/ca false");
        assert_eq!(words(2), "shard_2 far 7 require - false");
        assert_eq!(words(3), "every_shard /tmp 5433 - - false");
        let old = wanted(&config, &servers, "shop", (&("/tmp".to_owned(), 5433), &detours), 13);
        assert!(old.iter().flat_map(|(_, options)| options).all(|(name, _)| name != "async_capable" && name != "truncatable"));
    }
}
