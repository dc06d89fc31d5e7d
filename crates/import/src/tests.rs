use super::*;
use std::path::Path;
use weir_config::hba::{FileLoader, HbaRuleSet, LoadError};
use weir_config::params;

fn run(text: &str) -> ImportedSetup {
    import(text.as_bytes(), &mut |name| Err(format!("no file {name}")))
}

/// The configuration that comes of it, which must be one without problems.
fn config_of(import: &ImportedSetup) -> weir_config::Config {
    let text = |path: &Path| {
        if path.ends_with("databases") { import.databases.clone().unwrap_or_default() } else { import.conf.clone() }
    };
    let outcome = weir_config::read(Path::new("pgpool.conf"), &mut |path| Ok(text(path).into_bytes()));
    assert!(outcome.problems.is_empty(), "{:?}\n{}", outcome.problems, import.conf);
    outcome.config.expect("there are no problems")
}

/// The rules that come of it, which must be such; without comments and with single blanks.
fn rules_of(import: &ImportedSetup) -> Vec<String> {
    let demands = config_of(import).auth.demands;
    let mut file = |_: &Path| Ok(import.rules.clone().into_bytes());
    let mut folder = |_: &Path| Err(LoadError::NotFound);
    let (hba, problems) = HbaRuleSet::read_under(
        demands,
        Path::new("pool_hba.conf"),
        None,
        &mut FileLoader { file: &mut file, folder: &mut folder },
    );
    assert!(hba.is_some(), "{problems:?}\n{}", import.rules);
    let lines = import.rules.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Rules that name their method themselves.
fn own_rules_of(import: &ImportedSetup) -> Vec<String> {
    rules_of(import).into_iter().filter(|rule| !rule.ends_with(" auth_type")).collect()
}

fn notes_of(import: &ImportedSetup) -> Vec<String> {
    import.notes.iter().map(|note| format!("{}: {}", note.line, note.text)).collect()
}

const SAMPLE: &str = "\
; a comment
[databases]
shop = host=10.0.0.1 port=5433 pool_size=50 pool_mode=transaction max_db_connections=60
old = host=10.0.0.1 port=5433 dbname=legacy user=app password='s e cret'
* = host=10.0.0.1 port=5433

[users]
joe = pool_mode=session max_user_connections=3 query_timeout=2.5

[pgbouncer]
listen_addr = *
listen_port = 6432
auth_type = scram-sha-256
auth_file = /etc/pgbouncer/userlist.txt
admin_users = boss, chief
pool_mode = transaction
default_pool_size = 25
query_wait_timeout = 10.5
server_round_robin = 1
logfile = /var/log/pgbouncer/pgbouncer.log
ignore_startup_parameters = extra_float_digits
nonsense = 1
max_db_connections = 100
max_user_connections = 7
";

#[test]
fn a_setup_becomes_a_configuration_that_says_the_same() {
    let import = run(SAMPLE);
    assert_eq!(import.auth_file.as_deref(), Some("/etc/pgbouncer/userlist.txt"));
    // The other file is read together with this one.
    let import = ImportedSetup { conf: import.conf.replace("database_file", "#"), ..import };
    let config = config_of(&import);
    assert_eq!((config.nodes.len(), config.nodes[0].port, config.port), (1, 5433, 6432));
    assert_eq!((config.pool.size, config.pool.max_clients, config.pool.wait_timeout_ms), (25, 100, 11_000));
    assert_eq!(config.admin.users, ["boss", "chief"]);
    assert!(config.log.file.is_used && !config.routing.load_balance && config.auth.use_hba);
    let of = |user: &str, database: &str| weir_config::limits::of(&config, user, database);
    assert_eq!((of("ann", "shop").pool_size, of("joe", "x").query_ms), (50, 2500));
    assert_eq!(of("joe", "x").mode, weir_config::PoolMode::Session);
    let connections = |user: &str, database: &str| (of(user, database).conns_per_database, of(user, database).conns_per_user);
    assert_eq!([connections("ann", "x"), connections("ann", "shop"), connections("joe", "x")], [(100, 7), (60, 7), (100, 3)]);
}

#[test]
fn what_has_no_equal_is_named_with_its_line() {
    let expected = [
        "19: server_round_robin: no equal: the connection used last is used first",
        "22: nonsense: is no setting of PgBouncer 1.25",
    ];
    assert_eq!(notes_of(&run(SAMPLE)), expected);
}

#[test]
fn an_empty_file_means_what_pgbouncer_does_by_default() {
    let import = run("[databases]\na = host=h\n[pgbouncer]\nlisten_addr = 127.0.0.1\n");
    let config = config_of(&import);
    assert_eq!((config.pool.mode, config.pool.size, config.port), (weir_config::PoolMode::Session, 20, 6432));
    assert_eq!(config.pool.connection_life_time_ms, 3_600_000);
    assert!(config.log.connections && config.log.disconnections);
    assert_eq!((config.pool.check_query.as_str(), config.pool.check_after_ms), (";", 30_000));
    assert_eq!(config.nodes[0].ssl_mode, weir_config::SslMode::Prefer);
    assert_eq!(import.notes, []);
    assert_eq!(
        rules_of(&import),
        ["local \"a\",\"pgbouncer\",replication all auth_type", "host \"a\",\"pgbouncer\",replication all all auth_type"]
    );
    assert_eq!(config.auth.demands.method, weir_config::client_demands::CommonMethod::Md5);
}

#[test]
fn every_auth_type_and_tls_mode_has_its_rules() {
    use weir_config::client_demands::ClientTls::*;
    use weir_config::client_demands::CommonMethod::*;
    // auth_type, client_tls_sslmode, the demands on all, the rules' own method.
    let cases = [
        ("", "", (Md5, Any), ""),
        ("md5", "disable", (Md5, Any), ""),
        ("md5", "allow", (Md5, Any), ""),
        ("md5", "prefer", (Md5, Any), ""),
        ("md5", "require", (Md5, Required), ""),
        ("scram-sha-256", "verify-ca", (Scram, Certified), ""),
        ("scram-sha-256", "verify-full", (Scram, Certified), ""),
        ("plain", "prefer", (Plain, Any), ""),
        ("trust", "verify-full", (Trust, Certified), ""),
        ("cert", "verify-full", (Cert, Certified), ""),
        ("pam", "require", (Pam, Required), ""),
        ("ldap", "require", (ByRules, Required), "ldap ldapserver=l ldapprefix=\"u=\" backend_use_passwd=1"),
        ("any", "require", (ByRules, Required), "reject"),
        ("nonsense", "", (ByRules, Any), "reject"),
    ];
    for (auth_type, tls, (method, demand), own) in cases {
        let given = |name: &str, value: &str| if value.is_empty() { String::new() } else { format!("{name} = {value}\n") };
        let text = format!(
            "[databases]\n* = host=h\n[pgbouncer]\n{}{}auth_ldap_options = ldapserver=l ldapprefix=\"u=\"\n",
            given("auth_type", auth_type),
            given("client_tls_sslmode", tls)
        );
        let import = run(&text);
        let demands = weir_config::client_demands::ClientDemands { method, tls: demand };
        assert_eq!(config_of(&import).auth.demands, demands, "{auth_type} {tls}");
        assert_eq!(rules_of(&import)[..2], ["local all,replication all auth_type", "host all,replication all all auth_type"]);
        let databases = if auth_type == "any" { "all" } else { "all,replication" };
        let expected = [format!("local {databases} all {own}"), format!("host {databases} all all {own}")];
        assert_eq!(own_rules_of(&import), if own.is_empty() { &[][..] } else { &expected }, "{auth_type} {tls}");
        assert_eq!(import.conf.contains("\nssl = on\n"), !matches!(tls, "" | "disable"), "{tls}");
        assert_eq!(import.notes.is_empty(), !matches!(auth_type, "any" | "nonsense"), "{:?}", import.notes);
    }
}

#[test]
fn rules_of_an_hba_file_let_in_whom_pgbouncer_lets_in() {
    let hba = "# comment\nlocal all all peer\nhost all all 127.0.0.1/32 trust\nhostnossl shop, \"other\" joe 10.0.0.0 255.0.0.0 md5\n\
               hostssl  all  \"all\"  0.0.0.0/0  scram-sha-256 # end\nhost all all all cert\nhost all all ::/0 password\nlocal x,y z , w reject\n";
    let run = |tls: &str, database: &str| {
        let text = format!("[databases]\n{database} = host=h\n[pgbouncer]\nauth_type = hba\nauth_hba_file = my.hba\n{tls}");
        let import = import(text.as_bytes(), &mut |name| if name == "my.hba" { Ok(hba.into()) } else { Err("gone".into()) });
        assert_eq!(import.notes, []);
        own_rules_of(&import)
    };
    let plain = [
        "local all all peer known_users=1",
        "host all all 127.0.0.1/32 trust known_users=1",
        "hostnossl shop,\"other\" joe 10.0.0.0 255.0.0.0 md5",
        "hostssl all \"all\" 0.0.0.0/0 scram-sha-256",
        "hostssl all all all cert known_users=1",
        "hostnossl all all all reject",
        "host all all ::/0 password known_users=1",
        "local x,y z,w reject",
    ];
    assert_eq!(run("", "*"), plain);
    assert_eq!(run("", "a b")[0], "local \"a b\",\"pgbouncer\" all peer known_users=1");
    assert_eq!(run("client_tls_sslmode = require", "*"), plain, "client_sslmode asks for it");
    let unreadable =
        super::import(b"[databases]\n* = host=h\n[pgbouncer]\nauth_type = hba\nauth_hba_file = x\n", &mut |_| Err("gone".into()));
    assert_eq!(own_rules_of(&unreadable), ["local all all reject", "host all all all reject"]);
    assert_eq!(unreadable.notes.len(), 1);
}

#[test]
fn a_rule_that_names_a_file_says_that_it_must_be_copied() {
    for (rule, count) in [
        ("host all @users 10.0.0.0/8 md5", 1),
        ("host all joe,@users 10.0.0.0/8 md5", 1),
        ("host all joe@home 10.0.0.0/8 md5", 0),
    ] {
        let text = "[databases]\n* = host=h\n[pgbouncer]\nauth_type = hba\nauth_hba_file = my.hba\n";
        let import = import(text.as_bytes(), &mut |_| Ok(rule.into()));
        let notes = notes_of(&import);
        assert_eq!(notes.iter().filter(|note| note.contains("copy the file after the @")).count(), count, "{rule}: {notes:?}");
    }
}

#[test]
fn settings_that_are_files_here_are_set_by_them_while_the_proxy_runs() {
    let config = weir_config::Config::default();
    for (name, word) in [("auth_file", "pool_passwd"), ("auth_hba_file", "pool_hba.conf"), ("auth_type", "enable_pool_hba")] {
        let meaning = crate::imported_settings::meaning_of(name, "x", &config);
        let is_told = matches!(&meaning, Some(crate::imported_settings::SettingMeaning::Nothing(why)) if why.contains(word));
        assert!(is_told, "{name}: {meaning:?}");
    }
}

#[test]
fn a_server_keeps_the_name_by_which_its_certificate_is_checked() {
    for (entries, name) in [
        ("a = host=localhost\nb = host=localhost\nc = host=127.0.0.1\n", "localhost"),
        ("a = host=::1\n", "::1"),
        ("a = host=localhost\nb = host=127.0.0.1\n", "127.0.0.1"),
    ] {
        let config = config_of(&run(&format!("[databases]\n{entries}[pgbouncer]\n")));
        assert_eq!((config.nodes.len(), config.nodes[0].hostname.as_str()), (1, name));
    }
}

#[test]
fn physical_replication_is_let_in_where_a_database_has_no_forced_user() {
    let rules = |entries: &str| rules_of(&run(&format!("[databases]\n{entries}[pgbouncer]\nauth_type = trust\n")));
    for entries in ["a = host=h user=app\n* = host=h\n", "a = host=h user=app\nb = host=h\n* = host=h user=app\n"] {
        let expected = ["local all,replication all auth_type", "host all,replication all all auth_type"];
        assert_eq!(rules(entries), expected, "{entries}");
    }
    let expected = ["local \"a\",\"pgbouncer\" all auth_type", "host \"a\",\"pgbouncer\" all all auth_type"];
    assert_eq!(rules("a = host=h user=app\n"), expected, "his own name would reach a server");
    assert_eq!(rules("* = host=h user=app\n"), ["local all all auth_type", "host all all all auth_type"]);
}

#[test]
fn the_entry_of_all_other_databases_goes_to_their_file() {
    let import =
        run("[databases]\na = host=h\n* = host=h user=app password=x pool_size=3 min_pool_size=2 auth_user=u\n[pgbouncer]\n");
    let text = import.databases.as_deref().unwrap_or_default();
    assert_eq!(text.lines().last(), Some("* = user='app' password='x' pool_size='3'"), "{text}");
    assert_eq!(weir_config::databases::read(text).1, []);
    assert!(import.conf.contains("auth_user = 'u'"), "{}", import.conf);
    let expected = ["3: *: limits of databases without a line of their own: set them for all"];
    assert_eq!(notes_of(&import), expected);
}

#[test]
fn peers_keep_their_places() {
    let import = run(
        "[databases]\na = host=h\n[pgbouncer]\nso_reuseport = 1\npeer_id = 1\n[peers]\n1 = host=/run/one\n2 = host=::1 port=7000\n3 = port=1\n",
    );
    assert!(import.conf.contains("\npeer_list = '/run/one:6432, [::1]:7000'\n"), "{}", import.conf);
    let config = config_of(&import);
    assert_eq!((config.reuse_port, config.peers.len()), (true, 2));
    let expected = ["5: peer_id: not needed: a cancel request goes to all of peer_list", "9: peer 3: has no host"];
    assert_eq!(notes_of(&import), expected);
}

#[test]
fn a_databases_server_lifetime_is_its_own() {
    let import = run("[databases]\na = host=h server_lifetime=2\nb = host=h server_lifetime=0\nc = host=h\n[pgbouncer]\n");
    assert_eq!(import.notes, []);
    let config = config_of(&import);
    let of = |database: &str| weir_config::limits::of(&config, "", database).on_release.conn_life_ms;
    assert_eq!(["a", "b", "c"].map(of), [2_000, 1_000, 3_600_000]);
}

#[test]
fn databases_on_other_servers_are_refused() {
    let import = run("[databases]\na = host=h1\nb = host=h2\nc = host=h1\n* = host=h1\n[pgbouncer]\n");
    assert_eq!(config_of(&import).nodes.len(), 1);
    assert!(import.conf.contains("backend_hostname0 = 'h1'"));
    assert_eq!(rules_of(&import)[..2], ["local \"b\" all reject", "host \"b\" all all reject"]);
    assert_eq!(notes_of(&import), ["3: b: refused: its server is not that of a; run one Weir for each cluster of servers"]);
    // Without an entry for all others only those listed are there.
    let import = run("[databases]\na = host=h1\nb = host=h2\n[pgbouncer]\nauth_type = plain");
    assert_eq!(rules_of(&import)[0], "local \"a\",\"pgbouncer\",replication all auth_type");
}

#[test]
fn databases_by_another_name_and_forced_users_have_a_file() {
    let import = run("[databases]\nold = host=h dbname=legacy user=app password='s e''c'\nsame = host=h dbname=same\n\
                      q = host=h connect_query='SET work_mem TO ''1MB'''\nbad = host=h dbname=x connect_query='SET search_path TO a'\n\
                      lone = host=h password=x\n[pgbouncer]\n");
    let text = import.databases.as_deref().unwrap_or_default();
    let expected = "\"old\" = dbname='legacy' user='app' password='s e''c'\n\"q\" = connect_query='SET work_mem TO ''1MB'''\n\
                    \"bad\" = dbname='x'\n";
    assert_eq!(text, expected);
    assert_eq!(weir_config::databases::read(text).1, []);
    assert!(import.conf.contains("\ndatabase_file = 'databases'"));
    let notes = notes_of(&import);
    assert!(
        notes[0].starts_with("5: bad: connect_query: no equal:") && notes[1].starts_with("6: lone: password: no equal:"),
        "{notes:?}"
    );
    assert_eq!(run("[databases]\na = host=h\n[pgbouncer]\n").databases, None);
}

#[test]
fn auth_type_any_lets_everybody_use_forced_users_and_nothing_else() {
    let import = run("[databases]\nold = host=h user=app\nown = host=h\n[pgbouncer]\nauth_type = any\n");
    assert_eq!(own_rules_of(&import), ["local \"old\" all trust", "host \"old\" all all trust"]);
}

#[test]
fn several_hosts_of_a_database_are_one_cluster_that_needs_a_user() {
    let import = run("[databases]\n* = host=h1,h2 port=5432,5433\n[pgbouncer]\n");
    let config = config_of(&import);
    assert_eq!(config.nodes.iter().map(|node| node.port).collect::<Vec<_>>(), [5432, 5433]);
    assert!(!import.conf.lines().any(|line| line.starts_with("sr_check_user")), "{}", import.conf);
    assert!(notes_of(&import)[0].contains("Set sr_check_user"));
    assert!(weir_config::unnamed_role_user(&config).is_some(), "check says so, too");
    assert_eq!(weir_config::unnamed_role_user(&config_of(&run("[databases]\n* = host=h1\n[pgbouncer]\n"))), None);
}

#[test]
fn a_database_without_a_host_is_behind_the_unix_socket() {
    for (setting, folder) in [("", "/tmp"), ("unix_socket_dir = /var/run/postgresql\n", "/var/run/postgresql")] {
        let import = run(&format!("[databases]\na =\nb = port=5432\n[pgbouncer]\n{setting}"));
        assert!(import.conf.contains(&format!("backend_hostname0 = '{folder}'")), "{}", import.conf);
        assert!(import.notes.is_empty());
    }
}

#[test]
fn values_of_settings_come_out_right() {
    // Settings, with `;` between them; a line of pgpool.conf; how the one note begins, if there is one.
    let cases = [
        ("unix_socket_dir = /tmp; unix_socket_dir = /run", "unix_socket_directories = '/run'", ""),
        ("syslog_facility = daemon", "syslog_facility = DAEMON", ""),
        ("syslog_facility = local3", "syslog_facility = LOCAL3", ""),
        ("server_lifetime = 0", "connection_life_time = 1", "4: server_lifetime = 0: no equal"),
        ("server_lifetime = 60", "connection_life_time = 60", ""),
        ("log_connections = 0", "log_connections = off", ""),
        ("client_tls_ciphers = fast", "port = 6432", ""),
        ("client_tls_ciphers = ECDHE+AESGCM", "ssl_ciphers = 'ECDHE+AESGCM'", ""),
        ("client_tls_ecdhcurve = secp384r1", "ssl_ecdh_curve = 'secp384r1'", ""),
        ("client_tls_ecdhcurve = auto", "port = 6432", ""),
        ("client_tls_protocols = secure", "port = 6432", ""),
        (
            "client_tls_protocols = tlsv1.3",
            "ssl_min_protocol_version = TLSv1.3",
            "4: client_tls_protocols = tlsv1.3: no equal: ssl_min",
        ),
        ("client_tls_protocols = tlsv1.2", "port = 6432", "4: client_tls_protocols = tlsv1.2: no equal: TLSv1.3 cannot"),
        ("server_tls_protocols = all", "port = 6432", "4: server_tls_protocols = all: no equal: versions older"),
        ("server_tls_protocols = tlsv1.3", "port = 6432", "4: server_tls_protocols = tlsv1.3: no equal: set ssl_min"),
        ("client_tls_ca_file = /ca", "backend_sslrootcert = 'none'", ""),
        ("server_tls_sslmode = require", "backend_sslmode = require", ""),
        (
            "server_tls_sslmode = require; server_tls_ca_file = /s",
            "backend_sslrootcert = 'none'",
            "4: server_tls_ca_file: not needed",
        ),
        ("server_tls_sslmode = verify-full; server_tls_ca_file = /s", "backend_sslrootcert = '/s'", ""),
        (
            "server_tls_sslmode = verify-ca",
            "backend_sslrootcert = '/etc/ssl/certs/ca-certificates.crt'",
            "4: server_tls_sslmode = verify-ca: see",
        ),
        ("server_tls_ca_file = <system default>", "backend_sslmode = prefer", ""),
        ("auth_user = u", "auth_dbname = 'a'", ""),
        ("auth_user = u; auth_dbname = b", "auth_dbname = 'b'", ""),
        (
            "auth_user = u; auth_dbname = b; auth_query = SELECT * FROM f($1)",
            "auth_dbname = 'b'",
            "4: auth_query: write \"f\" with its schema",
        ),
    ];
    for (settings, expected, note) in cases {
        let import = run(&format!("[databases]\na = host=h\n[pgbouncer]\n{}", settings.replace("; ", "\n")));
        let name = expected.split(' ').next().unwrap_or_default();
        let found: Vec<&str> = import.conf.lines().filter(|line| line.split(' ').next() == Some(name)).collect();
        assert_eq!(found, [expected], "{settings}");
        config_of(&import);
        let notes = notes_of(&import);
        assert_eq!(notes.len(), usize::from(!note.is_empty()), "{settings}: {notes:?}");
        let text = |note: &str| note.split_once(": ").map_or_else(String::new, |(_, text)| text.to_string());
        assert!(notes.first().is_none_or(|found| text(found).starts_with(&text(note))), "{settings}: {notes:?}");
    }
}

#[test]
fn every_parameter_named_here_is_one() {
    for (theirs, fate) in SETTINGS {
        if let SettingTranslation::Is(ours, _) = fate {
            assert!(params::find(ours).is_some(), "{theirs} -> {ours}");
        }
    }
    assert!(SETTINGS.is_sorted_by_key(|(name, _)| *name), "in order, so that a missing one is seen");
}

#[test]
fn look_ups_of_one_database_stay_its_own() {
    // Asked in the database itself, as by PgBouncer.
    let import = run("[databases]\na = host=h auth_user=asker dbname=x\nb = host=h\n[pgbouncer]\n");
    assert_eq!(import.databases.as_deref(), Some("\"a\" = dbname='x' auth_user='asker' auth_dbname='a'\n"));
    assert_eq!(import.notes, []);
    // A name of another entry stays that name.
    let import =
        run("[databases]\na = host=h auth_query='select * from s.f($1)' auth_dbname=authdb\nauthdb = host=h dbname=postgres\n\
                      [pgbouncer]\nauth_user = u\nauth_dbname = authdb\n");
    let expected = "\"a\" = auth_query='select * from s.f($1)' auth_dbname='authdb'\n\"authdb\" = dbname='postgres'\n";
    assert_eq!(import.databases.as_deref(), Some(expected));
    assert!(import.conf.contains("auth_dbname = 'authdb'"), "{}", import.conf);
    let import = run("[databases]\na = host=h\nb = host=h\n[pgbouncer]\nauth_user = u\n");
    assert_eq!(notes_of(&import), ["5: auth_user: auth_query is asked in one database, \"a\", not in each client's"]);
    // Databases without an entry: the parameters are theirs.
    let import =
        run("[databases]\na = host=h\nb = host=h auth_user=own\n* = host=h auth_user=star\n[pgbouncer]\nauth_dbname = a\n");
    assert_eq!(import.databases.as_deref(), Some("\"a\" = auth_user=''\n\"b\" = auth_user='own'\n"));
    assert!(import.conf.contains("auth_user = 'star'"), "{}", import.conf);
    let import = run(
        "[databases]\na = host=h auth_user=u auth_query='select * from f($1)' auth_dbname=b\nb = host=h2\nc = host=h\n[pgbouncer]\n",
    );
    let expected = [
        "2: a: auth_query: write \"f\" with its schema: only pg_catalog is searched",
        "2: auth_dbname: \"b\" is on another server, so that nobody can be looked up there",
        "3: b: refused: its server is not that of a; run one Weir for each cluster of servers",
    ];
    assert_eq!(notes_of(&import), expected);
}

#[test]
fn a_replica_of_a_database_is_a_node_of_its_cluster() {
    let import = run(
        "[databases]\nshop = host=h1\nshop_ro = host=h2 dbname=shop\nshop-replica = host=h2,h3 dbname=shop\nother = host=h1\n\
                      app = host=h1 dbname=shop\nshop_test = host=h4 dbname=shop\nlog_ro = host=h5\n[pgbouncer]\n",
    );
    let import = ImportedSetup { conf: import.conf.replace("database_file", "#"), ..import };
    let config = config_of(&import);
    let nodes: Vec<&str> = config.nodes.iter().map(|node| node.hostname.as_str()).collect();
    assert_eq!(nodes, ["h1", "h2", "h3"]);
    assert!(config.routing.load_balance && !import.conf.contains("raw"));
    let first = |name: &str| config.routing.by_database.iter().find(|one| one.pattern.is_match(name)).map(|one| one.read_target);
    use weir_config::redirect::ReadTarget::{Primary, Standby};
    let targets = ["shop_ro", "shop-replica", "shop", "other", "shop_rot"].map(first);
    assert_eq!(targets, [Standby, Standby, Primary, Primary, Primary].map(Some));
    assert_eq!(
        import.databases.as_deref(),
        Some("\"shop_ro\" = dbname='shop'\n\"shop-replica\" = dbname='shop'\n\"app\" = dbname='shop'\n")
    );
    let notes = notes_of(&import);
    assert!(notes.iter().any(|note| note.starts_with("3: shop_ro: its servers are taken for standbys")), "{notes:?}");
    // Another cluster with a database of that name, and a reader of something that is not there.
    for name in ["7: shop_test", "8: log_ro"] {
        assert!(notes.iter().any(|note| note.starts_with(&format!("{name}: refused"))), "{notes:?}");
    }
}

#[test]
fn names_of_one_server_and_lists_with_it_are_that_server() {
    let import = run(
        "[databases]\na = host=127.0.0.1\nb = host=localhost\nc = host=::1,127.0.0.1\nd = host=127.0.0.1,h2\ne = host=h3,h2\n[pgbouncer]\n",
    );
    let config = config_of(&import);
    assert_eq!((config.nodes.len(), config.nodes[0].hostname.as_str()), (1, "127.0.0.1"));
    assert_eq!(
        notes_of(&import),
        [
            "5: d: of its hosts 127.0.0.1:5432 alone serves it, as it serves the other databases",
            "6: e: refused: its server is not that of a; run one Weir for each cluster of servers",
        ]
    );
    // Where all say so, several hosts are a cluster.
    assert_eq!(config_of(&run("[databases]\na = host=h1,h2\nb = host=h1,h2\n[pgbouncer]\n")).nodes.len(), 2);
}
