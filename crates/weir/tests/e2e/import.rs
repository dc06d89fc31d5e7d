//! `weir import`: PgBouncer's setup, served by Weir.

use crate::support::certs::Authority;
use crate::support::driver::{self, Login};
use crate::support::proxy::Folder;
use crate::support::{Ground, Raw, leave_out, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use weir_demo::ReservedPort;

#[test]
fn an_imported_setup_serves_the_same_users_and_databases() {
    let ground = Ground::new();
    let folder = Folder::new();
    let port = ReservedPort::any().unwrap();
    let (here, server) = (folder.0.display(), ground.cluster.primary().port());
    let ini = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n{} = host=127.0.0.1 port={server} pool_size=1 dbname={}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = scram-sha-256\nauth_file = userlist.txt\n\
         admin_users = boss\npool_mode = transaction\nunix_socket_dir = {here}\npidfile = {here}/weir.pid\nserver_round_robin = 1\n",
        ground.database,
        ground.database,
        port.number()
    );
    fs::write(folder.0.join("pgbouncer.ini"), ini).unwrap();
    fs::write(folder.0.join("userlist.txt"), "\"boss\" \"se\"\"cret\"\n\"postgres\" \"other\"\n").unwrap();
    let import = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_weir")).arg("import").arg(folder.0.join("pgbouncer.ini")).args(more).output().unwrap()
    };
    let printed = import(&[]);
    assert!(printed.status.success());
    assert!(String::from_utf8_lossy(&printed.stdout).contains("pool_mode = transaction"));
    let notes = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(notes.contains("pgbouncer.ini:13: server_round_robin: no equal"), "{notes}");
    let into = folder.0.display().to_string();
    assert!(import(&["--into", &into]).status.success());
    assert!(!import(&["--into", &into]).status.success(), "nothing is overwritten");
    let mode = fs::metadata(folder.0.join("pool_passwd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let conf = folder.0.join("pgpool.conf");
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "-f"]).arg(&conf).output().unwrap();
    assert!(check.status.success() && check.stderr.is_empty(), "{}", String::from_utf8_lossy(&check.stderr));
    let check = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "--connect", "-f"]).arg(&conf).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && said.contains("1 server asked: 0 errors"), "{said}");
    let mut process = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_weir"), "-f"])
        .arg(&conf)
        .spawn()
        .expect("setpriv is installed");
    wait_until("it to accept", || Raw::try_tcp(port.number()).is_some());
    let login = |user: &str, password: &str, database: &str| Login {
        database: database.into(),
        ..Login::new(port.number(), user, password)
    };
    let one = driver::value(&login("postgres", "other", &ground.database), "select current_database()::text");
    assert_eq!(one, Ok(ground.database.clone()));
    assert!(driver::value(&login("postgres", "wrong", &ground.database), "select 1::text").unwrap_err().starts_with("28P01"));
    driver::block_on(async {
        let (console, _mover) = driver::connect(&login("boss", "se\"cret", "pgbouncer")).await.unwrap();
        let rows = console.query("SHOW DATABASES", &[]).await.unwrap();
        let ours = rows.iter().find(|row| row.get::<_, &str>("name") == ground.database).unwrap();
        assert_eq!(ours.get::<_, i32>("pool_size"), 1);
    });
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_read_replica_of_a_setup_serves_the_reads_of_its_database() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1)");
    let (folder, port, database) = (Folder::new(), ReservedPort::any().unwrap(), &ground.database);
    let (primary, standby) = (ground.cluster.primary().port(), ground.cluster.standbys()[0].port());
    let ini = format!(
        "[databases]\n{database} = host=localhost port={primary}\n{database}_again = host=127.0.0.1 port={primary} dbname={database}\n\
         {database}_ro = host=127.0.0.1 port={standby} dbname={database}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = trust\nauth_file = userlist.txt\npool_mode = transaction\n\
         unix_socket_dir = {here}\npidfile = {here}/weir.pid\n",
        port.number(),
        here = folder.0.display(),
    );
    fs::write(folder.0.join("pgbouncer.ini"), ini).unwrap();
    fs::write(folder.0.join("userlist.txt"), "\"postgres\" \"secret\"\n").unwrap();
    let more = format!("work_dir = '{}'\n", folder.0.display());
    let said = import_into(&folder.0.join("pgbouncer.ini"), &folder.0, &more);
    assert!(said.contains("\"sr_check_user\" is not set"), "two servers are asked which is the primary: {said}");
    let conf = folder.0.join("pgpool.conf").display().to_string();
    let text = fs::read_to_string(&conf).unwrap();
    assert!(!text.contains("causal_reads"), "what others wrote is shown as by default: {text}");
    let _weir = start(env!("CARGO_BIN_EXE_weir"), &["-f", &conf], &folder.0.join("log"), port.number());
    let ask = |name: String, text: &str| {
        driver::value(&Login { database: name, ..Login::new(port.number(), "postgres", "secret") }, text)
    };
    // The catalog tells that a text only reads.
    let place = "select inet_server_port()::text from t";
    wait_until("reads to go to the standby", || ask(format!("{database}_ro"), place) == Ok(standby.to_string()));
    for name in [database.clone(), format!("{database}_again")] {
        assert_eq!(ask(name.clone(), place), Ok(primary.to_string()), "{name}");
    }
    assert_eq!(
        ask(format!("{database}_ro"), "with x as (insert into t values (2) returning a) select a::text from x"),
        Ok("2".into())
    );
}

/// PgBouncer, as Debian installs it.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";
/// The user and group it runs as in tests that run as root.
const NOBODY: u32 = 65534;
/// Its sample configuration.
const SAMPLE: &str = "/usr/share/doc/pgbouncer/examples/pgbouncer.ini";

/// A started program, killed at the end.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if a file is there that these tests need; says so if not.
fn is_there(path: &str) -> bool {
    let is_there = Path::new(path).exists();
    if !is_there {
        leave_out(&format!("there is no {path} (Debian: apt-get install pgbouncer)"));
    }
    is_there
}

/// Starts a program in the foreground. PgBouncer does not run as root.
fn start(program: &str, arguments: &[&str], log: &Path, port: u16) -> Started {
    let log = fs::File::create(log).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if program == PGBOUNCER && rustix::process::geteuid().is_root() {
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    command.arg(program).args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let started = Started(command.spawn().expect("setpriv is installed"));
    wait_until("it to accept", || Raw::try_tcp(port).is_some());
    started
}

/// A folder that another user may read and write.
fn open_folder() -> Folder {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Runs `weir import`, and `weir check` on the result; returns the output of `check`.
fn import_into(ini: &Path, into: &Path, more: &str) -> String {
    let weir = env!("CARGO_BIN_EXE_weir");
    let import = Command::new(weir).arg("import").arg(ini).arg("--into").arg(into).output().unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let conf = into.join("pgpool.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text + more).unwrap();
    let check = Command::new(weir).args(["check", "-f"]).arg(&conf).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.success(), "{said}");
    said
}

/// Login of a client: its way, its user, its password.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    way: &'static str,
    user: &'static str,
    password: &'static str,
    database: &'static str,
}

/// Users, by their line in `userlist.txt`: a password, its md5 hash, an empty password; no line at all (the last three). The
/// server has a password of `import_asked`.
const USERS: [&str; 6] = ["import_plain", "import_md5", "import_empty", "import_stranger", "import_asked", "postgres"];

/// User whose server connections clients of the database `forced` use.
const FORCED: &str = "import_plain";

/// Attempts that tell the setups apart. `DB` is the test's own database.
fn attempts() -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let mut add = |way, user, password, database| attempts.push(Attempt { way, user, password, database });
    for user in USERS {
        add("tcp", user, "", "DB");
        add("tls", user, "secret", "DB");
        add("tcp", user, "secret", "DB");
    }
    for way in ["tls cert", "tls other", "unix"] {
        add(way, "import_plain", "secret", "DB");
        add(way, "import_stranger", "secret", "DB");
    }
    add("tls cert", "import_plain", "", "DB");
    add("tls cert", "import_md5", "", "DB");
    add("unix", "import_empty", "", "DB");
    add("unix", "postgres", "", "DB");
    add("tcp", "import_plain", "wrong", "DB");
    add("tcp", "import_plain", "secret", "template1");
    add("tcp", "import_md5", "secret", "forced");
    add("tcp", "import_stranger", "", "forced");
    attempts
}

/// True if the attempt gets in.
fn gets_in(attempt: Attempt, files: &Path, sockets: &Path, port: u16, database: &str) -> bool {
    let Attempt { way, user, password, .. } = attempt;
    let database = if attempt.database == "DB" { database } else { attempt.database };
    let (files, sockets) = (files.display(), sockets.display());
    let how = match way {
        "tcp" => "host=127.0.0.1 sslmode=disable".to_string(),
        "unix" => format!("host={sockets}"),
        "tls" => "host=127.0.0.1 sslmode=require sslcert=/none sslkey=/none".to_string(),
        "tls cert" => format!("host=127.0.0.1 sslmode=require sslcert={files}/client.crt sslkey={files}/client.key"),
        "tls other" => format!("host=127.0.0.1 sslmode=require sslcert={files}/other.crt sslkey={files}/other.key"),
        other => panic!("no way {other}"),
    };
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-A", "-t", "-c", "select current_user", &format!("{how} port={port} user={user} dbname={database}")]);
    psql.env("PGPASSWORD", password).env("PGCONNECT_TIMEOUT", "30").stdin(Stdio::null());
    let output = psql.output().expect("psql is installed");
    let is_in = output.status.success();
    let server_user = if database == "forced" { FORCED } else { user };
    assert!(!is_in || String::from_utf8_lossy(&output.stdout).trim() == server_user, "{attempt:?}");
    is_in
}

/// Sends a command to a console, as `import_plain`.
fn order(port: u16, command: &str) {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-c", command, &format!("host=127.0.0.1 port={port} user=import_plain dbname=pgbouncer")]);
    let output = psql.env("PGPASSWORD", "secret").env("PGCONNECT_TIMEOUT", "30").output().expect("psql is installed");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Starts both with one setup; which attempts end differently. Words of the first database stand before a `|`, a command for both consoles behind a `>`.
fn differences(ground: &Ground, certificates: &Folder, setup: &str) -> Vec<String> {
    let (theirs, ours) = (open_folder(), open_folder());
    let (their_port, our_port) = (ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
    let files = certificates.0.display().to_string();
    let (setup, command) = setup.split_once(" > ").unwrap_or((setup, ""));
    let (own_words, settings) = setup.split_once('|').unwrap_or(("", setup));
    for (folder, port) in [(&theirs, &their_port), (&ours, &our_port)] {
        let here = folder.0.display();
        let text = format!(
            "[databases]\n{0} = host=127.0.0.1 port={1} {own_words}\nforced = host=127.0.0.1 port={1} dbname={0} user={FORCED}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {2}\nauth_file = {files}/userlist.txt\nunix_socket_dir = {here}\npidfile = {here}/pid\n\
             server_tls_sslmode = disable\nadmin_users = import_plain\n{3}",
            ground.database,
            ground.cluster.primary().port(),
            port.number(),
            settings.replace("; ", "\n").replace("FILES", &files)
        );
        fs::write(folder.0.join("pgbouncer.ini"), text).unwrap();
    }
    let ini = |folder: &Folder| folder.0.join("pgbouncer.ini");
    import_into(&ini(&ours), &ours.0, "login_failure_limit = 0\n");
    let conf = ours.0.join("pgpool.conf").display().to_string();
    let _weir = start(env!("CARGO_BIN_EXE_weir"), &["-f", &conf], &ours.0.join("log"), our_port.number());
    let _pgbouncer = start(PGBOUNCER, &["-q", &ini(&theirs).display().to_string()], &theirs.0.join("log"), their_port.number());
    if !command.is_empty() {
        [our_port.number(), their_port.number()].into_iter().for_each(|port| order(port, command));
    }
    let (mut different, mut is_open) = (Vec::new(), false);
    let offers_tls = setup.contains("client_tls_sslmode");
    for attempt in attempts().into_iter().filter(|attempt| offers_tls || !attempt.way.starts_with("tls")) {
        let of =
            |folder: &Folder, port: &ReservedPort| gets_in(attempt, &certificates.0, &folder.0, port.number(), &ground.database);
        let (their_answer, our_answer) = (of(&theirs, &their_port), of(&ours, &our_port));
        is_open |= their_answer;
        if their_answer != our_answer {
            different.push(format!("{setup} {command}: {attempt:?}: PgBouncer {their_answer}, Weir {our_answer}"));
        }
    }
    if !is_open {
        different.push(format!("{setup}: nobody gets in, so that nothing was compared"));
    }
    different
}

/// Certificates of the proxies and of the client `import_plain`, one of another authority, and `userlist.txt`.
fn files_of_both(ground: &Ground) -> Folder {
    let folder = open_folder();
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let subject = [("CN", "import_plain")];
    let [server, client, stranger] = [authority.server(), authority.sign(&subject, &[], 2), other.sign(&subject, &[], 3)];
    let primary = ground.cluster.primary();
    let md5 = primary.value("select 'md5' || md5('secret' || 'import_md5')").unwrap();
    let users = format!("\"import_plain\" \"secret\"\n\"import_md5\" \"{md5}\"\n\"import_empty\" \"\"\n");
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 cert\nhost all import_plain 127.0.0.1/32 md5\n\
                 host all all 127.0.0.1/32 trust\n";
    let texts = [
        ("ca.crt", authority.pem()),
        ("server.crt", server.cert),
        ("server.key", server.key),
        ("client.crt", client.cert),
        ("client.key", client.key),
        ("other.crt", stranger.cert),
        ("other.key", stranger.key),
        ("userlist.txt", users),
        ("hba", rules.to_string()),
    ];
    for (name, text) in texts {
        let path = folder.0.join(name);
        fs::write(&path, text).unwrap();
        // psql and Weir take no key that others may read; PgBouncer reads its own as another user, by its group.
        let is_root = rustix::process::geteuid().is_root();
        let mode = match name {
            "server.key" if is_root => 0o640,
            "server.key" | "client.key" | "other.key" => 0o600,
            _ => 0o644,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if is_root && mode == 0o640 {
            std::os::unix::fs::chown(&path, None, Some(NOBODY)).unwrap();
        }
    }
    for user in &USERS[..5] {
        primary.query(&format!("create role {user} login")).unwrap();
    }
    primary.query("alter role import_asked password 'secret'").unwrap();
    folder
}

/// Common settings of the setups that offer TLS.
const TLS: &str =
    "client_tls_cert_file = FILES/server.crt; client_tls_key_file = FILES/server.key; client_tls_ca_file = FILES/ca.crt";

#[test]
fn who_gets_in_is_decided_as_by_pgbouncer() {
    if !is_there(PGBOUNCER) {
        return;
    }
    let ground = Ground::new();
    let files = files_of_both(&ground);
    let mut setups: Vec<String> =
        ["any", "trust", "plain", "md5", "scram-sha-256"].iter().map(|word| format!("auth_type = {word}")).collect();
    for (auth_type, mode) in [
        ("md5", "allow"),
        ("trust", "require"),
        ("plain", "verify-ca"),
        ("trust", "verify-full"),
        ("cert", "verify-full"),
        ("hba; auth_hba_file = FILES/hba", "verify-full"),
    ] {
        setups.push(format!("auth_type = {auth_type}; client_tls_sslmode = {mode}; {TLS}"));
    }
    setups.push(
        "auth_type = md5; auth_user = postgres; auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename = $1".into(),
    );
    // Users without a password, whom the query knows nevertheless, get in where nobody asks for one.
    let query = "auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename = $1";
    setups.push(format!("auth_type = trust; auth_user = postgres; {query}"));
    setups.push(format!(
        "auth_type = hba; auth_hba_file = FILES/hba; client_tls_sslmode = verify-full; {TLS}; auth_user = postgres; {query}"
    ));
    // One database looks up its users, and the other does not.
    setups.push(format!("auth_user=postgres|auth_type = md5; {query}"));
    setups.push(format!("auth_user=postgres|auth_type = trust; {query}"));
    // A SET counts as with PgBouncer.
    for (before, after) in [("trust", "md5"), ("md5", "trust"), ("md5", "plain"), ("plain", "scram-sha-256")] {
        setups.push(format!("auth_type = {before} > SET auth_type = '{after}'"));
    }
    for (before, after) in [("allow", "require"), ("require", "allow"), ("require", "verify-full")] {
        setups.push(format!("auth_type = md5; client_tls_sslmode = {before}; {TLS} > SET client_tls_sslmode = '{after}'"));
    }
    let (ground, files) = (&ground, &files);
    let mut different = Vec::new();
    // A few at a time: starts of programs take the time.
    for some in setups.chunks(4) {
        thread::scope(|scope| {
            let compared: Vec<_> = some.iter().map(|setup| scope.spawn(move || differences(ground, files, setup))).collect();
            different.extend(compared.into_iter().flat_map(|compared| compared.join().unwrap()));
        });
    }
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn the_sample_with_every_line_uncommented_becomes_a_setup_that_starts() {
    if !is_there(SAMPLE) {
        return;
    }
    let (ground, folder) = (Ground::new(), open_folder());
    let (primary, port, here) = (ground.cluster.primary(), ReservedPort::any().unwrap(), folder.0.display());
    let uncommented = |line: &str| match line.strip_prefix(';') {
        Some(rest) if !rest.starts_with([';', ' ']) || (!rest.starts_with(';') && rest.contains('=')) => rest.to_string(),
        _ => line.to_string(),
    };
    let sample = fs::read_to_string(SAMPLE).unwrap();
    let text = sample.lines().map(uncommented).collect::<Vec<_>>().join("\n");
    let server = format!("port={}", primary.port());
    let text = text
        .replace("foodb = auth_user", &format!("foodb = {server} auth_user"))
        .replace("nondefaultdb = ", &format!("nondefaultdb = {server} "))
        .replace("/var/run/postgresql/pgbouncer.pid", &format!("{here}/pid"))
        .replace("/var/run/postgresql", &primary.socket_dir().display().to_string())
        .replace("/var/log/postgresql", &here.to_string())
        .replace("/etc/pgbouncer/userlist.txt", "userlist.txt")
        .replace("listen_port = 6432", &format!("listen_port = {}", port.number()));
    assert!(
        text.contains("\nclient_tls_ciphers = fast") && text.contains("\nforcedb = ") && text.contains("\n%include"),
        "{text}"
    );
    fs::write(folder.0.join("pgbouncer.ini"), text).unwrap();
    fs::write(folder.0.join("userlist.txt"), "\"postgres\" \"secret\"\n").unwrap();
    let said = import_into(&folder.0.join("pgbouncer.ini"), &folder.0, "");
    assert_eq!(said, "", "nothing is wrong with it");
    primary.query("create database nondefaultdb").unwrap();
    let conf = folder.0.join("pgpool.conf").display().to_string();
    let _weir = start(env!("CARGO_BIN_EXE_weir"), &["-f", &conf], &folder.0.join("log"), port.number());
    let login = |database: &str| Login { database: database.into(), ..Login::new(port.number(), "postgres", "secret") };
    let found = driver::value(&login("nondefaultdb"), "select current_database()::text");
    assert_eq!(found, Ok("nondefaultdb".into()));
    // Its server is another one.
    assert!(driver::value(&login("bardb"), "select 1::text").unwrap_err().starts_with("28000"));
}

#[test]
fn a_trust_rule_for_other_machines_is_warned_of() {
    let folder = open_folder();
    let check = |conf: &str, rules: &str| {
        let here = folder.0.display();
        fs::write(folder.0.join("pool_hba.conf"), rules).unwrap();
        let text = format!("backend_hostname0 = '127.0.0.1'\npid_file_name = '{here}/pid'\nlisten_addresses = '*'\n{conf}");
        fs::write(folder.0.join("pgpool.conf"), text).unwrap();
        let check = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "-f"]).arg(folder.0.join("pgpool.conf")).output();
        let check = check.unwrap();
        assert!(check.status.success());
        String::from_utf8_lossy(&check.stderr).into_owned()
    };
    let said = check("enable_pool_hba = on\n", "local all all trust\nhost all all all trust\n");
    assert!(said.contains("pool_hba.conf:2: warning: clients of other machines get in by method trust"), "{said}");
    assert_eq!(check("enable_pool_hba = on\n", "host all all all md5\n"), "");
    assert!(check("", "").contains("warning: no client is asked for a password"));
}
