//! Files that others may have put where Weir has its own, in folders of all such as `/tmp`.

use crate::support::proxy::{Backend, Folder};
use crate::support::{Ground, Proxy};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A folder that everybody may write in.
fn shared_folder() -> Folder {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// Puts a file there as another user would; without the right to do so, as one that others may write.
fn put_as_another_user(path: &Path, text: &str) -> &'static str {
    fs::write(path, text).unwrap();
    if std::os::unix::fs::chown(path, Some(65_534), None).is_ok() {
        return "it belongs to user 65534";
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    "others may write it (mode 0666)"
}

#[test]
fn another_users_pgpool_status_keeps_no_node_out_of_use() {
    let (ground, folder) = (Ground::new(), shared_folder());
    let status = folder.0.join("pgpool_status");
    let why = put_as_another_user(&status, "up\ndown\ndown\n");
    let more = format!("work_dir = '{}'\nfailover_mode = builtin\nhealth_check_period = 1\n", folder.0.display());
    // It waits until all nodes are in use.
    let proxy = Proxy::start(&ground.cluster, &more);
    let log = proxy.log();
    assert!(log.contains(&format!("{} is not read: {why}", status.display())), "{log}");
    assert!(log.contains("work_dir"), "and what to do: {log}");
    assert!(!log.contains("keeps these nodes out of use"), "{log}");
    let check =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "--connect", "-f"]).arg(proxy.conf_path()).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
    assert!(said.contains(&format!("{}: {why}", status.display())), "{said}");
}

#[test]
fn a_weir_that_cannot_store_its_state_lets_writes_through_and_says_so() {
    let (ground, folder) = (Ground::new(), Folder::new());
    let work = folder.0.join("work");
    let more = format!("work_dir = '{}'\nfailover_mode = builtin\nhealth_check_period = 1\n", work.display());
    let proxy = Proxy::start(&ground.cluster, &more);
    ground.client(&proxy).run("create table t (a int)");
    let said = "cannot be written, so that no failover is decided until it can: ";
    assert_eq!(proxy.log().matches(said).count(), 1, "{}", proxy.log());
    let forecast = || format!("{:?}", proxy.console().rows("SHOW pool_failover")[0]);
    assert!(forecast().contains("work_dir cannot be written"), "{}", forecast());
    fs::create_dir(&work).unwrap();
    crate::support::wait_until("the state to be stored", || proxy.log().contains("weir_failover"));
    crate::support::wait_until("the log to say so", || proxy.log().contains(" is written again"));
    ground.client(&proxy).run("insert into t values (1)");
}

#[test]
fn another_users_request_of_a_test_takes_no_node_down() {
    let (ground, folder) = (Ground::new(), shared_folder());
    put_as_another_user(&folder.0.join("backend_down_request"), "1\tdown\n2\tdown\n");
    let more = format!("work_dir = '{}'\nhealth_check_test = on\nhealth_check_period = 1\n", folder.0.display());
    let proxy = Proxy::start(&ground.cluster, &more);
    let looked =
        || proxy.console().rows("SHOW pool_health_check_stats").iter().all(|row| row[7].parse::<u32>().is_ok_and(|n| n > 2));
    crate::support::wait_until("some looks", looked);
    assert_eq!(proxy.nodes("status"), ["up", "up", "up"]);
}

#[test]
fn a_link_in_a_folder_of_all_leads_to_no_file_of_ours() {
    let (ground, folder, private) = (Ground::new(), shared_folder(), Folder::new());
    let precious = private.0.join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, folder.0.join("link")).unwrap();
    let shown = folder.0.display();
    for more in [
        format!("pid_file_name = '{shown}/link'"),
        format!("logging_collector = on\nlog_directory = '{shown}'\nlog_filename = 'link'"),
    ] {
        let backends = [Backend::tcp(ground.cluster.primary().port(), 1)];
        let mut proxy = Proxy::spawn_with_files(&backends, &more, &[], &[]);
        assert!(!proxy.wait_end().success(), "{more}");
        let log = proxy.log();
        assert!(log.contains("it is a symbolic link in a folder that others may write in"), "{more}: {log}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious", "{more}");
    }
}

#[test]
fn under_systemd_the_folders_of_the_unit_stand_for_tmp() {
    let folder = Folder::new();
    let conf = folder.0.join("pgpool.conf");
    fs::write(&conf, "backend_hostname0 = 'a'\npcp_socket_dir = '/srv'\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["show-config", "-f"]).arg(&conf).env("STATE_DIRECTORY", "/var/lib/weir").env("RUNTIME_DIRECTORY", "/run/weir");
    let shown = command.output().unwrap().stdout;
    let shown = String::from_utf8_lossy(&shown);
    let line = |name: &str| {
        let line =
            shown.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{name} in {shown}"));
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("work_dir"), "/var/lib/weir systemd");
    assert_eq!(line("unix_socket_directories"), "/run/weir systemd");
    assert!(line("pcp_socket_dir").starts_with("/srv") && !line("pcp_socket_dir").contains("systemd"), "the file goes before");
}
