//! The command line: weir's own, and pgpool's when called by that name.

use crate::support::proxy::{Backend, Folder, configuration};
use crate::support::{Ground, Raw, leave_out, wait_until, wire};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use weir_demo::ReservedPort;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `weir check` on a file of these lines: success, standard output, standard error with the file's path as FILE.
fn check(lines: &str) -> (bool, String, String) {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, lines).unwrap();
    let output = run(Path::new(WEIR), &["check", "-f", &file.to_string_lossy()]);
    let errors = text(&output.stderr).replace(&file.display().to_string(), "FILE");
    (output.status.success(), text(&output.stdout), errors)
}

const NODE: &str = "backend_hostname0 = 'localhost'\nbackend_weight0 = 1\n";

#[test]
fn a_right_file_is_said_to_be_valid() {
    let (success, said, errors) = check(NODE);
    assert!(success, "{errors}");
    assert!(said.contains("valid") && said.contains("1 node,"), "{said}");
}

/// Commands that the help of `weir` lists.
fn listed_commands() -> Vec<String> {
    let help = text(&run(Path::new(WEIR), &["--help"]).stdout);
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1).take_while(|line| !line.trim().is_empty());
    lines.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(first_word).collect()
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_string)
}

#[test]
fn each_command_has_a_manual_page_and_completions() {
    let folder = Folder::new();
    let pages = folder.0.join("man");
    let output = run(Path::new(WEIR), &["man", &pages.to_string_lossy()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let commands = listed_commands();
    assert!(commands.len() > 10, "{commands:?}");
    for name in commands.iter().filter(|name| *name != "help") {
        let page = fs::read_to_string(pages.join(format!("man1/weir-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(fs::read_to_string(pages.join("man5/pgpool.conf.5")).unwrap().contains("load_balance_mode"));
    for shell in ["bash", "zsh", "fish"] {
        let words = text(&run(Path::new(WEIR), &["completions", shell]).stdout);
        let missing: Vec<&String> = commands.iter().filter(|name| !words.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{shell}: {missing:?}");
    }
    let refused = run(Path::new(WEIR), &["man", "/proc/no/such/place"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("/proc/no/such/place"), "{}", text(&refused.stderr));
}

#[test]
fn the_line_that_sets_the_older_default_of_causal_reads_is_named() {
    let two = format!("{NODE}backend_hostname1 = 'localhost'\nbackend_port1 = 5434\n");
    let (success, _, errors) = check(&format!("{two}causal_reads = session\n"));
    let notes: Vec<&str> = errors.lines().filter(|line| line.contains("causal_reads")).collect();
    assert!(success && notes.len() == 1, "{errors}");
    assert!(
        notes[0].starts_with("FILE:5: note: causal_reads = session shows a client its own writes only; tables, the default"),
        "{errors}"
    );
    for line in ["", "causal_reads = tables\n", "causal_reads = session\ndisable_load_balance_on_write = dml_adaptive_global\n"] {
        let (success, _, errors) = check(&format!("{two}{line}"));
        assert!(success && !errors.contains("causal_reads"), "{line}: {errors}");
    }
}

#[test]
fn what_a_start_would_fail_by_is_said_before_it() {
    let folder = Folder::new();
    let at = folder.0.display().to_string();
    fs::create_dir(folder.0.join("dir")).unwrap();
    fs::write(folder.0.join("file"), "").unwrap();
    let ports = "port = 9999\nlisten_addresses = '127.0.0.1'\n";
    for (lines, expected) in [
        (
            "listen_addresses = '[::1]'",
            "error: listen_addresses: cannot resolve \"[::1]\": an address stands here without brackets",
        ),
        (
            &format!("{ports}metrics_port = 9999\nmetrics_listen_addresses = '*'"),
            "FILE:5: error: metrics_port: 9999 is that of port, too, at address 0.0.0.0",
        ),
        (
            "metrics_port = 9\nmetrics_listen_addresses = 'no.such.name.invalid'",
            "error: metrics_listen_addresses: cannot resolve",
        ),
        ("listen_addresses = '192.0.2.1'", "FILE:3: error: listen_addresses: 192.0.2.1 is no address of this machine: "),
        (
            "unix_socket_directories = 'AT/missing'",
            "FILE:3: error: unix_socket_directories: AT/missing: No such file or directory",
        ),
        ("unix_socket_group = 'nobody knows it'", "error: unix_socket_group: there is no group \"nobody knows it\""),
        ("takeover_socket = 'AT/dir'", "error: takeover_socket: AT/dir: is a folder, and the socket is to be a file"),
        ("logging_collector = on\nlog_directory = 'AT/file/logs'", "error: log_directory: AT/file: is not a folder"),
        ("failover_mode = builtin\nwork_dir = 'AT/missing'", "error: work_dir: AT/missing: No such file or directory"),
        ("backend_hostname0 = '[::1]'", "\"backend_hostname0\" is \"[::1]\": an address stands there without brackets"),
    ] {
        let (success, said, errors) = check(&format!("{NODE}{}\n", lines.replace("AT", &at)));
        assert!(errors.contains(&expected.replace("AT", &at)), "{lines}: {errors}");
        assert!(!success, "{lines}: {said}");
    }
    for (lines, expected) in [
        ("listen_addresses = 'localhost,localhost'", "warning: listen_addresses: \"localhost\" is listened on already"),
        ("listen_addresses = '*,127.0.0.1'", "warning: listen_addresses: \"127.0.0.1\" is listened on already"),
        ("unix_socket_directories = 'AT,AT'", "warning: unix_socket_directories: AT is named twice"),
        ("work_dir = 'AT/missing'", "warning: work_dir: AT/missing: No such file or directory"),
    ] {
        let (success, _, errors) = check(&format!("{NODE}{}\n", lines.replace("AT", &at)));
        assert!(errors.contains(&expected.replace("AT", &at)), "{lines}: {errors}");
        assert!(success, "{lines}: {errors}");
    }
}

#[test]
fn an_address_and_a_folder_that_are_named_twice_are_listened_on_once() {
    let ground = Ground::new();
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let more = "listen_addresses = '127.0.0.1,127.0.0.1,localhost'\nunix_socket_directories = 'FOLDER,FOLDER'";
    let proxy = crate::support::Proxy::spawn_with_files(&[backend], more, &[], &[]);
    proxy.wait_accepting();
    proxy.wait_for_nodes(1);
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
    for said in ["\"127.0.0.1\" is listened on already", "is named twice"] {
        assert!(proxy.log().contains(said), "{}", proxy.log());
    }
}

#[test]
fn half_a_certificate_is_said_to_be_half() {
    let folder = Folder::new();
    let signed = crate::support::certs::Authority::new("Authority").server();
    let (cert, key) = (folder.0.join("cert"), folder.0.join("key"));
    fs::write(&cert, &signed.cert[..signed.cert.len() / 2]).unwrap();
    fs::write(&key, &signed.key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (success, _, errors) =
        check(&format!("{NODE}ssl = on\nssl_cert = '{}'\nssl_key = '{}'\n", cert.display(), key.display()));
    let said = format!("FILE:4: error: ssl_cert: {}: a section has no \"-----END\" line: the file is not whole", cert.display());
    assert!(!success && errors.contains(&said), "{errors}");
}

#[test]
fn the_version_names_the_commit_and_comes_with_a_number_of_pgpool_for_its_exporters() {
    let page = text(&run(Path::new(WEIR), &["--version"]).stdout);
    let lines: Vec<&str> = page.lines().collect();
    let [version, features, parser] = lines[..] else { panic!("{page}") };
    assert!(features.starts_with("features: ") && features.contains("io_uring"), "{page}");
    assert!(parser.starts_with("parser: PostgreSQL 1"), "{page}");
    assert_eq!(text(&run(Path::new(WEIR), &["-V"]).stdout).trim(), version);
    let number = env!("CARGO_PKG_VERSION");
    let commit = version.trim().strip_prefix(&format!("weir {number}")).unwrap_or_else(|| panic!("{version}"));
    // Without git there is none.
    assert!(commit.is_empty() || commit.len() > 7 && commit[1..].chars().all(|c| c.is_ascii_hexdigit()), "{version}");
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let shown = ground.client(&proxy).value("SHOW pool_version");
    assert_eq!(shown, format!("4.7.0 (Weir {number}{commit})"));
}

#[test]
fn the_configuration_can_be_shown_without_a_node() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, "port = 5555\n").unwrap();
    let output = run(Path::new(WEIR), &["show-config", "-f", &file.to_string_lossy()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).lines().any(|line| line.starts_with("port ") && line.contains("5555")));
    assert!(!run(Path::new(WEIR), &["check", "-f", &file.to_string_lossy()]).status.success());
}

#[test]
fn a_limit_of_open_files_below_the_number_of_clients_is_named_by_check() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{NODE}max_client_connections = 900\nnum_init_children = 1\n")).unwrap();
    for (limit, expected) in [(600, true), (1200, false)] {
        let command = format!("ulimit -n {limit}; exec {WEIR} check -f {}", file.display());
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let errors = text(&output.stderr);
        let named = errors.contains(&format!("warning: the limit of open files (ulimit -n, LimitNOFILE) is {limit}, but"));
        assert!(output.status.success() && named == expected, "{limit}: {errors}");
    }
}

#[test]
fn a_password_file_that_everybody_can_read_is_named_by_check() {
    let folder = Folder::new();
    let (file, passwords) = (folder.0.join("pgpool.conf"), folder.0.join("pool_passwd"));
    fs::write(&file, NODE).unwrap();
    fs::write(&passwords, "joe:secret\n").unwrap();
    for (mode, expected) in [(0o644, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&passwords, fs::Permissions::from_mode(mode)).unwrap();
        let output = run(Path::new(WEIR), &["check", "-f", &file.to_string_lossy()]);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(errors.contains("every user of this machine can read it (mode 0644)"), expected, "{mode:o}: {errors}");
    }
}

#[test]
fn servers_that_trust_this_machine_are_named_where_clients_are_not_asked_either() {
    let ground = Ground::new();
    let port = ground.cluster.primary().port();
    let said = "lets user \"postgres\" in from this machine without a password";
    let (open, unjudged) = ("whoever reaches Weir gets in as such a user", "users without a line in pool_passwd are refused");
    let node = format!("backend_hostname0 = '127.0.0.1'\nbackend_port0 = {port}\nsr_check_user = 'postgres'\n");
    for (lines, expected) in [
        ("listen_addresses = '*'\n", Some(open)),
        ("listen_addresses = 'localhost'\n", None),
        ("listen_addresses = '*'\nallow_clear_text_frontend_auth = on\n", Some(unjudged)),
        ("listen_addresses = 'localhost'\nallow_clear_text_frontend_auth = on\n", Some(unjudged)),
        ("listen_addresses = '*'\nallow_clear_text_frontend_auth = on\nauth_user = 'joe'\n", None),
    ] {
        let (success, _, errors) = check(&format!("{node}{lines}"));
        assert!(success, "{errors}");
        let found = [open, unjudged].into_iter().find(|consequence| errors.contains(consequence));
        assert_eq!((found, errors.contains(said)), (expected, expected.is_some()), "{lines}: {errors}");
        assert!(
            !errors.contains("or allow_clear_text_frontend_auth"),
            "no advice to have passwords judged by such a server: {errors}"
        );
    }
    let proxy = ground.primary_proxy("listen_addresses = '0.0.0.0'");
    wait_until("the start to warn too", || proxy.log().contains(said));
}

#[test]
fn what_is_wrong_is_named_with_file_line_value_and_range() {
    let cases: [(&str, &[&str]); 8] = [
        ("port = 99", &["FILE:3: error: ", "99", "1024", "65535"]),
        ("port = many", &["FILE:3: error: ", "many"]),
        ("load_balance_mode = maybe", &["FILE:3: error: ", "maybe"]),
        ("backend_clustering_mode = 'snapshot'", &["FILE:3: error: ", "snapshot", "streaming_replication"]),
        ("pool_mode = transactional", &["FILE:3: error: ", "transactional", "session"]),
        ("pool_wait_timeout = 5kB", &["FILE:3: error: ", "5kB"]),
        ("num_init_children = 0", &["FILE:3: error: ", "0", "1"]),
        ("port = 9999 9998", &["FILE:3: error: "]),
    ];
    for (line, parts) in cases {
        let (success, said, errors) = check(&format!("{NODE}{line}\n"));
        assert!(!success, "{line} is accepted: {said}");
        for part in parts {
            assert!(errors.contains(part), "{line}: {part} is missing in {errors}");
        }
        assert!(said.contains("configuration has 1 error\n"), "{said}");
    }
}

#[test]
fn an_unknown_parameter_is_a_warning_with_the_nearest_known_name() {
    let (success, _, errors) = check(&format!("{NODE}num_init_childs = 5\n"));
    assert!(success, "{errors}");
    assert!(
        errors.contains("FILE:3: warning: ") && errors.contains("num_init_childs") && errors.contains("\"num_init_children\""),
        "{errors}"
    );
}

#[test]
fn a_file_that_is_missing_or_has_no_node_is_an_error() {
    let output = run(Path::new(WEIR), &["check", "-f", "/nowhere/pgpool.conf"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/nowhere/pgpool.conf"), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("no node"), "{}", text(&output.stderr));
    let output = run(Path::new(WEIR), &["check", "-f", "/dev/zero"]);
    assert!(!output.status.success() && text(&output.stderr).contains("more than"), "{}", text(&output.stderr));
    let (success, _, errors) = check("port = 9999\n");
    assert!(!success && errors.contains("backend_hostname"), "{errors}");
}

#[test]
fn a_proxy_does_not_start_with_a_wrong_file() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{NODE}port = none\n")).unwrap();
    let output = run(Path::new(WEIR), &["-f", &file.to_string_lossy()]);
    assert!(!output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains(":3: error: ") && errors.contains("not started"), "{errors}");
}

#[test]
fn a_port_in_use_is_said_so() {
    let folder = Folder::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::write(folder.0.join("pgpool.conf"), configuration(&folder.0, port, &[Backend::tcp(5432, 1)], "")).unwrap();
    let output = run(Path::new(WEIR), &["-f", &folder.0.join("pgpool.conf").to_string_lossy()]);
    assert!(!output.status.success());
    let said = format!("port: cannot listen on 127.0.0.1:{port}: Address already in use");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
}

#[test]
fn a_missing_file_is_told_with_its_line_and_parameter() {
    let folder = Folder::new();
    let signed = crate::support::certs::Authority::new("Authority").server();
    for (name, text) in [("cert", &signed.cert), ("key", &signed.key)] {
        fs::write(folder.0.join(name), text).unwrap();
        fs::set_permissions(folder.0.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let at = folder.0.display().to_string();
    let own = "ssl = on\nssl_cert = 'AT/cert'\nssl_key = 'AT/key'\n";
    // The last line is the fifth behind both of the node and these three.
    for (lines, line, parameter) in [
        ("ssl = on\nssl_cert = 'AT/none'\nssl_key = 'AT/key'", 4, "ssl_cert"),
        ("ssl = on\nssl_cert = 'AT/cert'\nssl_key = 'AT/none'", 5, "ssl_key"),
        (&format!("{own}ssl_ca_cert = 'AT/none'"), 6, "ssl_ca_cert"),
        (&format!("{own}ssl_ca_cert_dir = 'AT/none'"), 6, "ssl_ca_cert_dir"),
        (&format!("{own}ssl_ca_cert = 'AT/cert'\nssl_crl_file = 'AT/none'"), 7, "ssl_crl_file"),
        (&format!("{own}backend_sslrootcert = 'AT/none'"), 6, "backend_sslrootcert"),
        (&format!("{own}backend_sslrootcert = 'AT/cert'\nbackend_sslcrl = 'AT/none'"), 7, "backend_sslcrl"),
        (&format!("{own}backend_sslcert = 'AT/none'\nbackend_sslkey = 'AT/key'"), 6, "backend_sslcert"),
        (&format!("{own}backend_sslcert = 'AT/cert'\nbackend_sslkey = 'AT/none'"), 7, "backend_sslkey"),
        ("enable_pool_hba = on", 3, "enable_pool_hba"),
    ] {
        let (success, _, errors) = check(&format!("{NODE}{}\n", lines.replace("AT", &at)));
        let begin = format!("FILE:{line}: error: {parameter}: ");
        let is_told = errors.lines().any(|line| line.starts_with(&begin) && line.contains("No such file"));
        assert!(!success && is_told, "{lines}: {errors}");
    }
    for (lines, parameter) in [
        ("pool_passwd = 'AT/none'", "pool_passwd"),
        ("agent_secret_file = 'AT/none'\nbackend_agent0 = 'localhost:9000'", "agent_secret_file"),
    ] {
        let (success, _, errors) = check(&format!("{NODE}{}\n", lines.replace("AT", &at)));
        let begin = format!("FILE:3: warning: {parameter}: {at}/none: No such file");
        assert!(success && errors.lines().any(|line| line.starts_with(&begin)), "{lines}: {errors}");
    }
    // A folder in its place cannot be read by anybody, root included.
    let (success, _, errors) = check(&format!("{NODE}pool_passwd = '{at}'\n"));
    let said = format!("FILE:3: error: pool_passwd: {at} cannot be read: ");
    assert!(!success && errors.contains(&said), "{errors}");
}

#[test]
fn rules_that_nobody_can_match_are_named_by_check_and_in_the_log() {
    let ground = Ground::new();
    let rules = "local all all trust\nhost all all all trust\nhost shop joe 10.0.0.0/8 reject\nhostssl all all all md5\n";
    let backend = Backend::tcp(ground.cluster.primary().port(), 1);
    let proxy = crate::support::Proxy::spawn_with_files(&[backend], "enable_pool_hba = on\n", &[("pool_hba.conf", rules)], &[]);
    proxy.wait_accepting();
    let output = run(Path::new(WEIR), &["check", "-f", &proxy.conf_path().to_string_lossy()]);
    for said in [
        "pool_hba.conf:3: warning: the rule never matches: the one in line 2 matches all that it would",
        "pool_hba.conf:4: warning: hostssl matches no client: \"ssl\" is off",
    ] {
        assert!(output.status.success() && text(&output.stderr).contains(said), "{}", text(&output.stderr));
        let logged = said.replace(" warning:", "");
        assert!(
            proxy.log().contains(&logged) && !proxy.log().contains(said),
            "the log has the severity in front: {}",
            proxy.log()
        );
    }
}

#[test]
fn a_start_as_root_is_warned_of_and_no_check_as_root() {
    let ground = Ground::new();
    let proxy = crate::support::Proxy::start(&ground.cluster, "");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(proxy.log().contains("the process runs as root"), is_root, "{}", proxy.log());
    let output = run(Path::new(WEIR), &["check", "-f", &proxy.conf_path().to_string_lossy()]);
    assert!(!text(&output.stderr).contains("root"), "{}", text(&output.stderr));
}

#[test]
fn show_config_prints_value_source_and_unit() {
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, format!("{NODE}pool_wait_timeout = 2min\n")).unwrap();
    let output = run(Path::new(WEIR), &["show-config", "-f", &file.to_string_lossy(), "-c", "pool_size=7"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    let line = |name: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {shown}")).to_string()
    };
    assert!(line("pool_wait_timeout").contains("pgpool.conf:3"), "{}", line("pool_wait_timeout"));
    assert!(line("pool_size").contains('7') && !line("pool_size").contains("default"), "{}", line("pool_size"));
    assert!(line("num_init_children").contains("32") && line("num_init_children").contains("default"));
}

#[test]
fn the_sample_configuration_is_valid() {
    let sample = text(&run(Path::new(WEIR), &["sample-config"]).stdout);
    assert!(sample.lines().count() > 300, "every parameter has its comment");
    let (success, _, errors) = check(&format!("{sample}\n{NODE}"));
    assert!(success, "{errors}");
    assert!(!errors.contains("unrecognized"), "{errors}");
}

#[test]
fn help_and_version_are_told() {
    for (arguments, word) in [(&["--help"][..], "Usage"), (&["--version"], "weir"), (&["check", "--help"], "Usage")] {
        let output = run(Path::new(WEIR), arguments);
        assert!(output.status.success() && text(&output.stdout).contains(word), "{arguments:?}");
    }
    let output = run(Path::new(WEIR), &[]);
    assert!(!output.status.success() && text(&output.stderr).contains("-f FILE"), "{}", text(&output.stderr));
    let output = run(Path::new(WEIR), &["--no-such-option"]);
    assert!(!output.status.success());
    for command in ["check", "show-config", "agent-status"] {
        let help = text(&run(Path::new(WEIR), &[command, "--help"]).stdout);
        assert!(help.contains("--config") && !help.contains("--takeover"), "{command}: {help}");
    }
}

/// A server connection `pgpool` to Weir, its configuration, and the daemon it may have left.
struct Pgpool {
    folder: Folder,
    port: ReservedPort,
}

impl Pgpool {
    fn new(ground: &Ground) -> Pgpool {
        let folder = Folder::new();
        symlink(WEIR, folder.0.join("pgpool")).unwrap();
        let port = ReservedPort::any().unwrap();
        let backends = [Backend::tcp(ground.cluster.primary().port(), 1)];
        fs::write(folder.0.join("pgpool.conf"), configuration(&folder.0, port.number(), &backends, "")).unwrap();
        Pgpool { folder, port }
    }

    fn conf(&self) -> PathBuf {
        self.folder.0.join("pgpool.conf")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let conf = self.conf();
        run(&self.folder.0.join("pgpool"), &[&["-f", &conf.to_string_lossy()], arguments].concat())
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.0.join("weir.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Drop for Pgpool {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended on its own by now.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn scripts_of_pgpool_start_weir_by_either_name_and_hear_what_is_discarded() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let status = pgpool.folder.0.join("pgpool_status");
    let conf = fs::read_to_string(pgpool.conf()).unwrap();
    fs::write(pgpool.conf(), format!("{conf}work_dir = '{}'\npool_passwd = 'users'\n", pgpool.folder.0.display())).unwrap();
    fs::write(pgpool.folder.0.join("users"), "postgres:TEXTnobody knows it\n").unwrap();
    for (program, asks) in [(Path::new(WEIR), true), (&*pgpool.folder.0.join("pgpool"), false)] {
        fs::write(&status, "up\ndown\ndown\n").unwrap();
        let mut command = Command::new(program);
        command.args(["-D", "-n", "-f"]).arg(pgpool.conf()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let words = BufReader::new(child.stderr.take().unwrap());
        let mut log = words.lines().map(Result::unwrap);
        let said = format!("{} is discarded (-D): the nodes that it keeps out of use are taken in again", status.display());
        assert!(log.by_ref().any(|line| line == said), "{program:?}");
        assert!(log.by_ref().any(|line| line.contains("starts: port")), "{program:?}");
        let reader = std::thread::spawn(move || log.count());
        // Users of pool_passwd are asked as by Pgpool-II where that is the name.
        let first_answer = || {
            let mut client = Raw::tcp(pgpool.port.number());
            client.send(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", &ground.database)]));
            client.read()
        };
        // Before the server is known the answer may be an error.
        let mut answer = first_answer();
        wait_until("the login to be decided", || {
            answer = first_answer();
            answer.tag == b'R'
        });
        assert_eq!(answer.body[..4] != [0; 4], asks, "{program:?}: {answer:?}");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(child.wait().unwrap().success());
        reader.join().unwrap();
    }
}

#[test]
fn called_pgpool_it_becomes_a_daemon_reloads_and_stops() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let output = pgpool.run(&["-D", "-C", "-F", "/nowhere/pcp.conf", "-a", "/nowhere/pool_hba.conf", "-k", "/nowhere/key"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // It accepts as soon as the command is back.
    let login = || Raw::tcp(pgpool.port.number()).log_in("postgres", &ground.database, &[]).unwrap();
    let mut client = login();
    assert_eq!(client.value("select 1"), "1");
    let pid = pgpool.pid().expect("a pid file");
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let session: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(session[3], pid.as_raw_nonzero().to_string(), "it leads a session of its own");

    let output = pgpool.run(&[]);
    assert!(!output.status.success() && text(&output.stderr).contains("already running"), "{}", text(&output.stderr));

    let conf = fs::read_to_string(pgpool.conf()).unwrap();
    fs::write(pgpool.conf(), format!("{conf}pool_size = 9\n")).unwrap();
    assert!(pgpool.run(&["reload"]).status.success());
    wait_until("the reload", || login().value("pgpool show pool_size") == "9");

    client.run("begin");
    let output = pgpool.run(&["-m", "fast", "stop"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(client.until_end()[0].failure().sqlstate, "57P01");
    assert!(pgpool.pid().is_none(), "the pid file is gone when the command is back");
    let output = pgpool.run(&["-m", "fast", "stop"]);
    assert!(!output.status.success());
    let output = pgpool.run(&["reload"]);
    assert!(!output.status.success());
}

#[test]
fn pgpools_modes_have_their_short_names_and_smart_waits() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    assert!(pgpool.run(&[]).status.success());
    assert!(pgpool.run(&["-m", "i", "stop"]).status.success());
    wait_until("the pid file to be gone", || pgpool.pid().is_none());
    assert!(pgpool.run(&["-d"]).status.success(), "it starts again on the same port");
    let mut client = Raw::tcp(pgpool.port.number()).log_in("postgres", &ground.database, &[]).unwrap();
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| pgpool.run(&["-m", "s", "stop"]));
        wait_until("new clients to be refused", || std::net::TcpStream::connect(("127.0.0.1", pgpool.port.number())).is_err());
        assert_eq!(client.value("select 1"), "1");
        drop(client);
        assert!(stop.join().unwrap().status.success());
    });
}

#[test]
fn a_daemon_that_cannot_start_is_told_by_the_command() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let conf = fs::read_to_string(pgpool.conf()).unwrap();
    fs::write(pgpool.conf(), format!("{conf}port = 1\n")).unwrap();
    assert!(!pgpool.run(&[]).status.success());
    let _listener = std::net::TcpListener::bind(("127.0.0.1", pgpool.port.number())).unwrap();
    fs::write(pgpool.conf(), conf).unwrap();
    let output = pgpool.run(&[]);
    let errors = text(&output.stderr);
    assert!(!output.status.success() && errors.contains("cannot listen on") && errors.contains("did not start"), "{errors}");
}

#[test]
fn a_daemon_is_ready_wherever_it_listens_and_without_a_pid_file() {
    let ground = Ground::new();
    for lines in ["listen_addresses = '127.0.0.2'\nunix_socket_directories = ''\n", "pid_file_name = ''\n"] {
        let pgpool = Pgpool::new(&ground);
        let conf = fs::read_to_string(pgpool.conf()).unwrap();
        fs::write(pgpool.conf(), format!("{conf}{lines}")).unwrap();
        let output = pgpool.run(&[]);
        let daemon = process_with(&pgpool.conf().to_string_lossy()).expect("it runs");
        kill_process(daemon, Signal::QUIT).unwrap();
        assert!(output.status.success(), "{lines}: {}", text(&output.stderr));
        wait_until("the daemon to end", || process_with(&pgpool.conf().to_string_lossy()).is_none());
    }
}

/// The process that has this word on its command line.
fn process_with(word: &str) -> Option<Pid> {
    let has_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(has_it).find_map(Pid::from_raw)
}

#[test]
fn a_daemon_that_logs_nowhere_says_so_where_it_was_started() {
    let ground = Ground::new();
    for (lines, expected) in [("", true), ("logging_collector = on\nlog_directory = 'FOLDER/logs'\n", false)] {
        let pgpool = Pgpool::new(&ground);
        let conf = fs::read_to_string(pgpool.conf()).unwrap();
        let lines = lines.replace("FOLDER", &pgpool.folder.0.to_string_lossy());
        fs::create_dir_all(pgpool.folder.0.join("logs")).unwrap();
        fs::write(pgpool.conf(), format!("{conf}{lines}")).unwrap();
        let output = pgpool.run(&[]);
        assert!(pgpool.run(&["-m", "fast", "stop"]).status.success());
        let said = text(&output.stderr);
        assert_eq!(said.contains("nothing keeps the log: a daemon has no terminal"), expected, "{lines}: {said}");
    }
}

#[test]
fn a_pid_file_that_names_another_process_harms_nobody() {
    let ground = Ground::new();
    let pgpool = Pgpool::new(&ground);
    let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
    let path = pgpool.folder.0.join("weir.pid");
    fs::write(&path, format!("{}\n", bystander.id())).unwrap();
    let outputs = [&["reload"][..], &["stop"], &["-m", "immediate", "stop"]].map(|arguments| pgpool.run(arguments));
    let starts = pgpool.run(&[]);
    let own = pgpool.pid();
    // Somebody writes there while the proxy runs: the kernel knows the owner of the lock.
    fs::write(&path, format!("{}\n", bystander.id())).unwrap();
    let stopped = pgpool.run(&["-m", "fast", "stop"]);
    let survives = bystander.try_wait().unwrap().is_none();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert!(survives);
    for output in outputs {
        assert!(!output.status.success() && text(&output.stderr).contains("no running proxy"), "{}", text(&output.stderr));
    }
    assert!(starts.status.success(), "a stale file keeps nobody from starting: {}", text(&starts.stderr));
    assert_ne!(own, Some(Pid::from_child(&bystander)));
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(!path.exists());
}

#[test]
fn two_proxies_do_not_share_a_pid_file() {
    let ground = Ground::new();
    let (first, second) = (Pgpool::new(&ground), Pgpool::new(&ground));
    assert!(first.run(&[]).status.success());
    let path = first.folder.0.join("weir.pid");
    let before = fs::read_to_string(&path).unwrap();
    let conf = fs::read_to_string(second.conf()).unwrap();
    fs::write(second.conf(), format!("{conf}pid_file_name = '{}'\n", path.display())).unwrap();
    let output = second.run(&["-n"]);
    let errors = text(&output.stderr);
    assert!(!output.status.success() && errors.contains(&format!("process {}", before.trim())), "{errors}");
    assert!(!errors.contains("starts"), "nothing is announced that fails: {errors}");
    let socket = second.folder.0.join(format!(".s.PGSQL.{}", second.port.number()));
    assert!(!socket.exists(), "its unix socket is gone");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert!(first.run(&["-m", "fast", "stop"]).status.success());
}

#[test]
fn a_pid_file_that_cannot_be_written_is_named_by_check_and_at_the_start() {
    let folder = Folder::new();
    let port = ReservedPort::any().unwrap();
    let lines = "pid_file_name = '/dev/null/weir.pid'\nrecovery_2nd_stage_command = 'r'\n";
    fs::write(folder.0.join("pgpool.conf"), configuration(&folder.0, port.number(), &[Backend::tcp(5432, 1)], lines)).unwrap();
    let conf = folder.0.join("pgpool.conf").to_string_lossy().into_owned();
    let output = run(Path::new(WEIR), &["-f", &conf]);
    assert!(!output.status.success() && text(&output.stderr).contains("/dev/null"), "{}", text(&output.stderr));
    assert!(!folder.0.join(format!(".s.PGSQL.{}", port.number())).exists(), "its unix socket is gone");
    let output = run(Path::new(WEIR), &["check", "-f", &conf]);
    let errors = text(&output.stderr);
    assert!(errors.contains("recovery_2nd_stage_command is set, but online recovery has one stage"), "{errors}");
    assert!(
        !output.status.success() && errors.contains("error: pid_file_name: /dev/null/weir.pid cannot be written"),
        "{errors}"
    );
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Command::new(WEIR).arg("sample-config").stdout(full()).stderr(Stdio::null()).status().unwrap();
    assert!(!status.success());
}

#[test]
fn the_demo_shows_where_a_write_and_reads_went_and_leaves_nothing_behind() {
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    let dir = folder.0.join("demo");
    let mut demo = Command::new(WEIR)
        .args(["demo", "--port", &port.number().to_string(), "--dir", &dir.to_string_lossy()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    for line in lines {
        let is_last = line.contains("Ctrl-C ends it") || line.contains("failed");
        said.push(line);
        if is_last {
            break;
        }
    }
    let ports = |label: &str| -> Vec<&str> {
        said.iter().filter(|line| line.starts_with(label)).filter_map(|line| line.rsplit("port ").next()).collect()
    };
    let servers: Vec<&str> = ports("  node ").iter().filter_map(|port| Some(port.split_once(", ")?.0)).collect();
    assert_eq!(servers.len(), 3, "{said:?}");
    assert_eq!(ports("  write"), [servers[0]], "{said:?}");
    let reads = ports("  read");
    assert!(servers[1..].iter().all(|standby| reads.contains(standby)), "{said:?}");
    assert!(!reads.contains(&servers[0]), "{said:?}");
    let mut client = Raw::tcp(port.number()).log_in("postgres", "postgres", &[]).unwrap();
    assert_eq!(client.value("select count(*) from visits"), "1");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    assert!(demo.wait().unwrap().success());
    assert!(!dir.exists(), "its folder is gone");
    let is_there = |port: &str| TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok();
    assert!(!servers.iter().any(|port| is_there(port)) && !is_there(&port.number().to_string()), "its servers are gone");
}

/// Ports in a row. Which ones are free is not known before.
fn ports_in_a_row(count: u16) -> Vec<ReservedPort> {
    for _ in 0..100 {
        let first = ReservedPort::any().unwrap();
        let more = (1..count).map(|at| ReservedPort::exactly(first.number() + at));
        if let Ok(more) = more.collect::<Result<Vec<_>, _>>() {
            return std::iter::once(first).chain(more).collect();
        }
    }
    panic!("no {count} free ports in a row");
}

#[test]
fn a_demo_of_a_group_gets_over_its_killed_leader_and_leaves_nothing_behind() {
    let (folder, ports) = (Folder::new(), ports_in_a_row(3));
    let dir = folder.0.join("demo");
    let mut demo = Command::new(WEIR)
        .args([
            "demo",
            "--weirs",
            "3",
            "--standbys",
            "0",
            "--port",
            &ports[0].number().to_string(),
            "--dir",
            &dir.to_string_lossy(),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said_until = |end: &str| -> Vec<String> {
        let mut said = Vec::new();
        for line in lines.by_ref() {
            let is_last = line.contains(end) || line.contains("failed");
            said.push(line);
            if is_last {
                break;
            }
        }
        said
    };
    let said = said_until("Ctrl-C ends it");
    let pids = |said: &[String]| -> Vec<(String, String)> {
        let rows = said.iter().filter(|line| line.starts_with("  weir ") && line.contains(", pid "));
        let rows = rows.filter_map(|line| line.split_once("pid ")?.1.split_once(", "));
        rows.map(|(pid, state)| (pid.to_owned(), state.to_owned())).collect()
    };
    let proxies = pids(&said);
    assert_eq!(proxies.iter().map(|(_, state)| state.as_str()).collect::<Vec<_>>(), ["LEADER", "STANDBY", "STANDBY"], "{said:?}");
    for port in &ports {
        let mut client = Raw::tcp(port.number()).log_in("postgres", "postgres", &[]).unwrap();
        assert_eq!(client.value("select count(*) from visits"), "1");
    }
    let asks = said.iter().find(|line| line.contains(" watchdog status ")).unwrap();
    let status = Command::new("sh").arg("-c").arg(asks).output().unwrap();
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.status.success() && shown.contains("LEADER") && shown.matches("STANDBY").count() == 2, "{shown}");
    let kill = said.iter().find(|line| line.starts_with("  kill -9 ")).unwrap();
    assert_eq!(kill.trim(), format!("kill -9 {}", proxies[0].0));
    assert!(Command::new("sh").arg("-c").arg(kill).status().unwrap().success());
    let said = said_until("  weir 2: ");
    let after = pids(&said);
    assert!(after.len() == 3 && after[0].1 == "STANDBY" && after[0].0 != proxies[0].0, "{said:?}");
    assert_eq!(after.iter().filter(|(_, state)| state == "LEADER").count(), 1, "{said:?}");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    assert!(demo.wait().unwrap().success());
    assert!(!dir.exists(), "its folder is gone");
    for (pid, _) in &after {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its proxies are gone");
    }
}

#[test]
fn a_demo_that_is_stopped_while_it_makes_servers_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
        let dir = folder.0.join("demo");
        let mut demo = Command::new(WEIR)
            .args(["demo", "--port", &port.number().to_string(), "--dir", &dir.to_string_lossy()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("a server to be made", || dir.join("primary").exists());
        kill_process(Pid::from_child(&demo), signal).unwrap();
        demo.wait().unwrap();
        assert!(!dir.exists(), "{signal:?} leaves its folder");
    }
}

#[test]
fn a_demo_ends_with_its_terminal() {
    let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
    let dir = folder.0.join("demo");
    let mut demo = Command::new(WEIR)
        .args(["demo", "--standbys", "0", "--port", &port.number().to_string(), "--dir", &dir.to_string_lossy()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the proxy to accept", || TcpStream::connect(("127.0.0.1", port.number())).is_ok());
    kill_process(Pid::from_child(&demo), Signal::HUP).unwrap();
    assert!(demo.wait().unwrap().success());
    assert!(!dir.exists(), "its folder is gone");
}

#[test]
fn a_demo_that_cannot_run_says_so_before_it_makes_servers() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().port().to_string();
    let odd = folder.0.join("it's").to_string_lossy().into_owned();
    let plain = folder.0.join("demo").to_string_lossy().into_owned();
    for (port, dir, word) in [("80", &plain, "1024"), ("0", &plain, "1024"), (&*taken, &plain, "--port"), ("", &odd, "it's")] {
        let free = ReservedPort::any().unwrap();
        let free = free.number().to_string();
        let output = run(Path::new(WEIR), &["demo", "--port", if port.is_empty() { &free } else { port }, "--dir", dir]);
        assert!(!output.status.success() && text(&output.stderr).contains(word), "{port}: {}", text(&output.stderr));
        assert!(!Path::new(dir).exists());
    }
}

#[test]
fn what_is_easily_written_wrong_has_a_hint() {
    for (line, word) in [
        ("pool_wait_timeout = 5 min", "quotes"),
        ("listen_addresses = localhost, foo", "quotes"),
        ("include_dir = 'conf.d'", "\"include\""),
        ("include_if_exists = 'more.conf'", "\"include\""),
    ] {
        let (success, _, errors) = check(&format!("{NODE}{line}\n"));
        assert!(!success && errors.contains("FILE:3: error: ") && errors.contains(word), "{line}: {errors}");
    }
    let folder = Folder::new();
    let file = folder.0.join("pgpool.conf");
    fs::write(&file, NODE).unwrap();
    let output = run(Path::new(WEIR), &["check", "-f", &file.to_string_lossy(), "-c", "port=many"]);
    assert!(!output.status.success() && text(&output.stderr).contains("on the command line"), "{}", text(&output.stderr));
}

#[test]
fn pgpools_version_is_said_in_its_words_by_its_own_name() {
    let ground = Ground::new();
    let output = Pgpool::new(&ground).run(&["-v"]);
    let said = text(&output.stdout);
    assert!(output.status.success() && said.starts_with("pgpool-II version 4.7 ") && said.contains("weir"), "{said}");
}

#[test]
fn check_names_the_line_that_this_machines_own_clients_need() {
    let said = Command::new("/usr/sbin/pcp_node_info").arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned());
    if !said.is_ok_and(|said| said.contains("(pgpool-II) 4.3.")) {
        leave_out("there are no clients of Pgpool-II 4.3 (Debian 12: package pgpool2)");
        return;
    }
    let folder = Folder::new();
    let conf = folder.0.join("pgpool.conf");
    let check = |lines: &str| {
        fs::write(&conf, format!("backend_hostname0 = '127.0.0.1'\npid_file_name = ''\n{lines}")).unwrap();
        let output = Command::new(WEIR).args(["check", "-f"]).arg(&conf).output().unwrap();
        text(&output.stderr)
    };
    let line = "/usr/sbin/pcp_node_info is of Pgpool-II 4.3.";
    assert!(!check("").contains(line), "PCP is not served");
    fs::write(folder.0.join("pcp.conf"), "admin:5ebe2294ecd0e0f08eab7690d2a6ee69\n").unwrap();
    let told = check("");
    assert!(told.contains(line) && told.contains("set pcp_protocol_version = 4.3, if it is used"), "{told}");
    assert!(!check("pcp_protocol_version = 4.3\n").contains(line));
}
