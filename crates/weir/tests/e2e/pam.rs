//! Passwords judged by the system's PAM: method `pam` of `pool_hba.conf`.
//!
//! Services are files in `/etc/pam.d`, so these tests need root; without, they say so and do nothing.

use super::auth::guarded;
use crate::support::driver::{self, Login};
use crate::support::proxy::Folder;
use crate::support::{Proxy, Raw, leave_out, wait_until, wire};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use weir_demo::Server;

/// Services of a test's own, removed at its end.
struct Services(Vec<PathBuf>);

impl Services {
    /// `None` where they cannot be made.
    fn make(services: &[(&str, String)]) -> Option<Services> {
        let mut made = Services(Vec::new());
        for (name, text) in services {
            let path = PathBuf::from("/etc/pam.d").join(full_name(name));
            if let Err(cause) = fs::write(&path, text) {
                leave_out(&format!("{}: {cause}", path.display()));
                return None;
            }
            made.0.push(path);
        }
        Some(made)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn full_name(name: &str) -> String {
    format!("weir-e2e-{}-{name}", std::process::id())
}

fn log_in(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

/// A program for pam_exec, and the line that has it decide over the password.
fn judge_by(folder: &Folder, name: &str, text: &str) -> String {
    let script = folder.0.join(name);
    fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    format!("auth required pam_exec.so expose_authtok quiet {}\naccount required pam_permit.so\n", script.display())
}

fn rules(service: &str) -> String {
    format!("host all postgres all trust\nhost all all all pam pamservice={}\n", full_name(service))
}

fn proxy(server: &Server, service: &str, more: &str) -> Proxy {
    let more = format!("enable_pool_hba = on\nlogin_failure_limit = 0\nauth_cache_time = 0\n{more}");
    Proxy::with_files(&[server], &more, &[("pool_hba.conf", &rules(service))], &[])
}

fn refused(user: &str) -> Result<String, String> {
    Err(format!("28000: PAM authentication failed for user \"{user}\""))
}

/// The password comes with a NUL at its end.
const READ: &str = "said=$(tr -d '\\000')";

#[test]
fn a_service_decides_over_user_password_and_host() {
    let folder = Folder::new();
    let run =
        judge_by(&folder, "judge", &format!("{READ}\n[ \"$said\" = \"right of $PAM_USER\" ] && [ \"$PAM_RHOST\" = 127.0.0.1 ]"));
    let locked = run.replace("account required pam_permit.so", "account required pam_deny.so");
    let deny = "auth required pam_deny.so\naccount required pam_permit.so\n".to_string();
    let Some(_services) = Services::make(&[("judge", run), ("locked", locked), ("deny", deny)]) else { return };
    let cluster = guarded();
    let proxy = proxy(cluster.primary(), "judge", "");
    for _ in 0..2 {
        assert_eq!(log_in(&proxy, "guest", "right of guest"), Ok("guest".into()));
        assert_eq!(log_in(&proxy, "guest", "right of other"), refused("guest"));
        assert_eq!(log_in(&proxy, "nobody", "wrong"), refused("nobody"), "as one who exists");
    }
    let mut silent = Raw::tcp(proxy.port());
    silent.send(&wire::startup(wire::V3_0, &[("user", "guest"), ("database", "postgres")]));
    assert_eq!(silent.read().body, [0, 0, 0, 3], "the password is asked for in clear text");
    silent.send(&wire::message(b'p', b"\0"));
    assert_eq!(silent.read().failure().message, "empty password returned by client");
    for service in ["locked", "deny", "missing"] {
        proxy.write_file("pool_hba.conf", &rules(service));
        proxy.reload();
        assert_eq!(log_in(&proxy, "guest", "right of guest"), refused("guest"), "{service}");
    }
    assert!(proxy.log().contains("is refused by the PAM service of"), "{}", proxy.log());
    proxy.write_file("pool_hba.conf", &rules("judge").replace("pamservice", "known_users=1 pamservice"));
    proxy.reload();
    let unknown = log_in(&proxy, "guest", "right of guest").unwrap_err();
    assert!(unknown.starts_with("28000: no pool_hba.conf entry"), "{unknown}");
    assert!(!proxy.log().contains("right of guest"), "passwords are not logged");
}

#[test]
fn a_module_that_hangs_or_crashes_costs_one_login_and_ends_with_it() {
    let folder = Folder::new();
    let pid_file = folder.0.join("pid");
    let acts = format!(
        "{READ}\ncase $said in\nhang) echo $PPID > {0}.new && mv {0}.new {0}; exec tail --pid=$PPID -f /dev/null;;\ncrash) kill -ABRT $PPID;;\nesac",
        pid_file.display()
    );
    let Some(_services) = Services::make(&[("acts", judge_by(&folder, "acts", &acts))]) else { return };
    let cluster = guarded();
    let proxy = proxy(cluster.primary(), "acts", "authentication_timeout = 5s\nworker_threads = 1\n");
    thread::scope(|scope| {
        let stuck = scope.spawn(|| log_in(&proxy, "guest", "hang"));
        wait_until("the module hangs", || pid_file.exists());
        let module = fs::read_to_string(&pid_file).unwrap();
        assert_eq!(log_in(&proxy, "guest", "right"), Ok("guest".into()), "others are asked about at the same time");
        proxy.console().run("select 1");
        let error = stuck.join().unwrap().unwrap_err();
        // Either notices first: the login, or the thread that asks.
        let ends = ["57014: the login cannot be checked now: it took too long", "57P03: the password cannot be checked now"];
        assert!(ends.contains(&error.as_str()), "{error}");
        wait_until("the module's process is gone", || !Path::new("/proc").join(module.trim()).exists());
    });
    assert_eq!(log_in(&proxy, "guest", "crash"), Err("57P03: the password cannot be checked now".into()));
    assert!(proxy.log().contains("signal: 6"), "{}", proxy.log());
    assert_eq!(log_in(&proxy, "guest", "right"), Ok("guest".into()));
}

#[test]
fn what_pam_took_is_believed_for_a_while_and_shown_to_servers_where_the_rule_says_so() {
    let folder = Folder::new();
    let count = folder.0.join("count");
    let judge = format!("{READ}\necho asked >> {}\n[ \"$said\" = \"secret of anna\" ]", count.display());
    let Some(_services) = Services::make(&[("counts", judge_by(&folder, "counts", &judge))]) else { return };
    let cluster = guarded();
    let more = "enable_pool_hba = on\nlogin_failure_limit = 0\nauth_cache_time = 3600s\n";
    let with = format!("{} backend_use_passwd=1\n", rules("counts").trim_end());
    let proxy = Proxy::with_files(&[cluster.primary()], more, &[("pool_hba.conf", &rules("counts"))], &[]);
    // The server asks for SCRAM keys of the same password.
    assert!(log_in(&proxy, "anna", "secret of anna").unwrap_err().starts_with("28P01"));
    proxy.write_file("pool_hba.conf", &with);
    proxy.reload();
    let before = fs::read_to_string(&count).unwrap().lines().count();
    for _ in 0..3 {
        assert_eq!(log_in(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), before + 1, "asked once for all");
    for _ in 0..2 {
        assert_eq!(log_in(&proxy, "anna", "wrong"), refused("anna"));
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), before + 3, "a refusal is not remembered");
}

/// A module takes its time over a wrong password: others who come with this password meanwhile hear the same answer.
#[test]
fn the_same_wrong_password_is_judged_once_for_all_who_wait() {
    const CLIENTS: usize = 8;
    let folder = Folder::new();
    let (count, gate) = (folder.0.join("count"), folder.0.join("gate"));
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    // Opening a named pipe waits for the other side: the first is held up until all are there, and those behind it pass.
    let judge =
        format!("{READ}\necho asked >> {}\n[ $(wc -l < {0}) -gt 1 ] || read go < {}\nexit 1", count.display(), gate.display());
    let Some(_services) = Services::make(&[("slow", judge_by(&folder, "slow", &judge))]) else { return };
    let cluster = guarded();
    let proxy = proxy(cluster.primary(), "slow", "worker_threads = 1\n");
    let log_in = || {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(wire::V3_0, &[("user", "guest"), ("database", "postgres")]));
        assert_eq!(client.read().body, [0, 0, 0, 3]);
        client.send(&wire::message(b'p', b"wrong\0"));
        client
    };
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| log_in()).collect();
    wait_until("the first to be judged", || count.exists());
    // The only thread has read all earlier bytes by then.
    proxy.console().run("select 1");
    fs::write(&gate, "go\n").unwrap();
    for client in &mut clients {
        assert_eq!(client.read().failure().sqlstate, "28000");
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 1);
}
