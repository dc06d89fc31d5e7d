//! A machine on which Weir is a service: the commands of the pages are run on it, and the unit of `packaging` starts Weir under its restrictions.
//!
//! There is no systemd here. A mount namespace has an `/etc`, `/usr/local/bin`, `/var/lib`, `/var/log` and `/run` of its own, so that the paths of the pages
//! stand as they are. Of the unit, its user, its folders, its command, `ProtectSystem`, `ProtectHome`, `PrivateTmp`, `NoNewPrivileges`, `LimitNOFILE` and the
//! variables that systemd sets are played. Notifications, the watchdog, restarts and the way to stop are not (`e2e/restart.rs` and `e2e/signals.rs` have them), nor
//! are the order of units, the journal, and what the kernel is told to refuse: system calls, namespaces, devices. Weir's log goes to a file.

use super::page::repository;
use crate::support::proxy::{Folder, check_last_words, wait_for_log_thread};
use crate::support::{leave_out, wait_until};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use weir_demo::ReservedPort;

/// Keys of the unit that are not played, with the reason above.
const NOT_PLAYED: &[&str] = &[
    "Description",
    "Documentation",
    "After",
    "Wants",
    "Type",
    "ExecReload",
    "ExecStop",
    "KillSignal",
    "TimeoutStopSec",
    "Restart",
    "WatchdogSec",
    "RuntimeDirectoryPreserve",
    "NotifyAccess",
    "WantedBy",
    "PrivateDevices",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "RemoveIPC",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RestrictAddressFamilies",
    "SystemCallArchitectures",
    "SystemCallFilter",
    "SystemCallErrorNumber",
    "CapabilityBoundingSet",
    "UMask",
];

/// The home of an operator on the machine while the service runs: its `/root` is shut.
const HOME: &str = "/tmp";

/// True if a machine can be made here; else the test is left out.
pub fn has_machine() -> bool {
    let asked = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !geteuid().is_root() || !asked.is_ok_and(|asked| asked.status.success()) {
        leave_out("pages under the unit's restrictions take root and its mount namespaces");
        return false;
    }
    let has_psql = Command::new("psql").arg("--version").output().is_ok_and(|said| said.status.success());
    if !has_psql {
        leave_out("there is no psql (Debian: in postgresql-client)");
    }
    has_psql
}

/// The work of an operator before Weir is a service: files in a folder of his own, and commands there.
pub struct Machine {
    folder: Folder,
    port: ReservedPort,
    script: String,
}

impl Machine {
    pub fn new() -> Machine {
        let folder = Folder::new();
        let work = folder.0.join("work");
        fs::create_dir_all(work.join("packaging")).unwrap();
        fs::copy(repository().join("packaging/weir.service"), work.join("packaging/weir.service")).unwrap();
        let mut script = String::from(
            "set -eu; own=\"$0/own\"; mkdir \"$own\"; mount -t tmpfs none \"$own\"\n\
             cp -a /etc \"$own/etc\"; mount --bind \"$own/etc\" /etc\n\
             mkdir \"$own/bin\"; touch \"$own/bin/weir\"; mount --bind \"$own/bin\" /usr/local/bin; mount --bind \"$1\" /usr/local/bin/weir\n\
             for folder in /var/lib /var/log /run; do mount -t tmpfs -o mode=755 none $folder; done\n\
             export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; cd \"$0/work\"\n",
        );
        // The user of another Weir on this machine is none here.
        script.push_str("if getent passwd weir > /dev/null; then userdel weir; fi\n");
        Machine { folder, port: ReservedPort::any().unwrap(), script }
    }

    pub fn port(&self) -> String {
        self.port.number().to_string()
    }

    /// Writes a file of the operator's folder, as an editor does.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// The place of such a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.0.join("work").join(name)
    }

    /// Runs commands of a page there, as root, but for commands of systemd.
    pub fn run(&mut self, commands: &str) {
        let is_played = |line: &&str| !line.starts_with("systemctl ") && !line.starts_with("journalctl ");
        for line in commands.lines().filter(is_played) {
            self.script.push_str(line);
            self.script.push('\n');
        }
    }

    /// Systemd makes the folders of the unit when it starts it for the first time.
    pub fn make_folders(&mut self) {
        for (_, path, mode) in &Unit::read().folders {
            self.script.push_str(&format!("install -d -o weir -g weir -m {mode} {path}\n"));
        }
    }

    /// Starts the unit. `Service` tells of it when clients can connect.
    pub fn start(mut self) -> Service {
        self.make_folders();
        let unit = Unit::read();
        self.script.push_str(&unit.restrictions());
        self.script.push_str(&unit.command());
        let service = self.begin();
        service.check_restrictions();
        service
    }

    /// Starts the unit of Debian's package `pgpool2`, whose command a file that the page wrote replaces. Its other words are its user and the way to stop.
    pub fn start_pgpool2(mut self) -> Service {
        self.script.push_str(
            "cd /\ncommand=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/pgpool2.service.d/weir.conf | tail -n 1)\n\
             exec env -i PATH=$PATH LANG=C.UTF-8 USER=postgres LOGNAME=postgres HOME=/var/lib/postgresql \
             setpriv --reuid postgres --regid postgres --clear-groups --pdeathsig KILL $command\n",
        );
        self.begin()
    }

    fn begin(self) -> Service {
        let log = File::create(self.folder.0.join("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", &self.script]);
        command.arg(&self.folder.0).arg(env!("CARGO_BIN_EXE_weir"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap();
        let mut service = Service { process, folder: self.folder, port: self.port };
        wait_until("the unit to take clients, or to end", || {
            service.process.try_wait().unwrap().is_some()
                || std::net::TcpStream::connect(("127.0.0.1", service.port.number())).is_ok()
        });
        assert!(service.process.try_wait().unwrap().is_none(), "it has ended:\n{}", service.log());
        service
    }
}

/// The words of `packaging/weir.service`.
struct Unit {
    /// Variable, path and mode.
    folders: Vec<(&'static str, String, String)>,
    restrictions: Vec<(String, String)>,
    user: String,
    files_max: String,
    command: String,
}

impl Unit {
    fn read() -> Unit {
        let text = fs::read_to_string(repository().join("packaging/weir.service")).unwrap();
        let words: Vec<(&str, &str)> =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect();
        let value = |key: &str| words.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
        let wanted = |key: &str| value(key).unwrap_or_else(|| panic!("the unit has no {key}"));
        let mut unit = Unit {
            folders: Vec::new(),
            restrictions: Vec::new(),
            user: wanted("User"),
            files_max: wanted("LimitNOFILE"),
            command: wanted("ExecStart"),
        };
        for (key, value) in &words {
            let folder = match *key {
                "StateDirectory" => ("STATE_DIRECTORY", format!("/var/lib/{value}")),
                "RuntimeDirectory" => ("RUNTIME_DIRECTORY", format!("/run/{value}")),
                "LogsDirectory" => ("LOGS_DIRECTORY", format!("/var/log/{value}")),
                // Its files belong to root, and it stays as it is.
                "ConfigurationDirectory" | "StateDirectoryMode" | "User" | "LimitNOFILE" | "ExecStart" => continue,
                "ProtectSystem" | "ProtectHome" | "PrivateTmp" | "NoNewPrivileges" => {
                    unit.restrictions.push(((*key).to_owned(), (*value).to_owned()));
                    continue;
                }
                other if NOT_PLAYED.contains(&other) => continue,
                other => panic!("a word of the unit that this test does not know: {other}"),
            };
            let mode = wanted_mode(&words, key);
            unit.folders.push((folder.0, folder.1, mode));
        }
        unit
    }

    fn restrictions(&self) -> String {
        let mut script = String::from("cd /\n");
        for (_, path, _) in &self.folders {
            script.push_str(&format!("mount --bind {path} {path}\n"));
        }
        for (key, value) in &self.restrictions {
            script.push_str(match (key.as_str(), value.as_str()) {
                ("ProtectSystem", "strict") => {
                    "while read -r _ _ _ _ place _; do case $place in\n\
                     /proc|/proc/*|/sys|/sys/*|/dev|/dev/*|/var/lib/weir|/run/weir|/var/log/weir) ;;\n\
                     *) mount -o remount,bind,ro \"$place\" 2> /dev/null || true ;;\n\
                     esac; done < /proc/self/mountinfo\n"
                }
                ("ProtectHome", "yes") => {
                    "for place in /home /root /run/user; do if [ -d $place ]; then mount -t tmpfs -o ro,mode=000 none $place; fi; done\n"
                }
                ("PrivateTmp", "yes") => "for place in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 none $place; done\n",
                // `command` has it.
                ("NoNewPrivileges", "yes") => "",
                other => panic!("a restriction that this test does not know: {other:?}"),
            });
        }
        script
    }

    fn command(&self) -> String {
        let folders: Vec<String> = self.folders.iter().map(|(name, path, _)| format!("{name}={path}")).collect();
        format!(
            "ulimit -n {} 2> /dev/null || echo 'LimitNOFILE is above what this machine grants'\n\
             exec env -i PATH=$PATH LANG=C.UTF-8 USER={user} LOGNAME={user} HOME=/nonexistent SHELL=/usr/sbin/nologin \
             CONFIGURATION_DIRECTORY=/etc/weir {} setpriv --reuid {user} --regid {user} --clear-groups \
             --no-new-privs --pdeathsig KILL {}\n",
            self.files_max,
            folders.join(" "),
            self.command,
            user = self.user,
        )
    }
}

fn wanted_mode(words: &[(&str, &str)], key: &str) -> String {
    let of = format!("{key}Mode");
    words.iter().find(|(name, _)| *name == of).map_or("0755", |(_, mode)| mode).to_owned()
}

/// Weir as a service. Dropping it ends it; a test that fails prints its log first.
pub struct Service {
    process: Child,
    folder: Folder,
    port: ReservedPort,
}

impl Service {
    pub fn log(&self) -> String {
        wait_for_log_thread(self.process.id());
        fs::read_to_string(self.folder.0.join("log")).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A path of its machine.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.process.id()))
    }

    /// A command of a page, on Weir's machine or another one, with a password typed where one is asked for.
    pub fn shell(&self, command: &str, password: &str) -> Output {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .env("PGPASSWORD", password)
            .env("PSQLRC", "/dev/null")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        shell.output().unwrap()
    }

    /// A command of a page on Weir's machine, as root. Its home is `HOME` there.
    pub fn inside(&self, command: &str) -> Output {
        self.enter(&["sh", "-eu", "-c", command]).output().unwrap()
    }

    /// The words of a command of a page that must succeed.
    pub fn said(&self, command: &str) -> String {
        let said = self.inside(command);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (words, complaints) = (text(said.stdout), text(said.stderr));
        assert!(said.status.success(), "{command}: {words}{complaints}\n{}", self.log());
        words
    }

    /// A process that goes on beside the unit's, and ends with this.
    pub fn begin_inside(&self, command: &str) -> Begun {
        let log = File::create(self.folder.0.join("log.2")).unwrap();
        let mut process = self.enter(&["setpriv", "--pdeathsig", "KILL", "sh", "-c", &format!("exec {command}")]);
        Begun(process.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap(), self.folder.0.join("log.2"))
    }

    fn enter(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.process.id().to_string()]).args(words);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command.env_clear().env("PATH", path).env("HOME", HOME).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// The code with which the unit's process has ended, if it has.
    pub fn end(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().unwrap()
    }

    /// A user's psql in the database shop: lines without heads, fields with `|` between. Error: the words of psql.
    pub fn psql(&self, user: &str, password: &str, statement: &str) -> Result<String, String> {
        self.psql_at("127.0.0.1", user, password, statement)
    }

    /// A client over a unix socket in this folder, or at another host.
    pub fn psql_at(&self, host: &str, user: &str, password: &str, statement: &str) -> Result<String, String> {
        self.psql_to(&format!("host={host} user={user} dbname=shop"), password, statement)
    }

    /// A client with a connection string.
    pub fn psql_to(&self, target: &str, password: &str, statement: &str) -> Result<String, String> {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", target, "-c", statement]);
        psql.env("PGPORT", self.port.number().to_string()).env("PGPASSWORD", password).env("LC_ALL", "C").stdin(Stdio::null());
        let said = psql.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        if said.status.success() { Ok(text(said.stdout)) } else { Err(text(said.stderr)) }
    }

    /// The restrictions hold for the process: else a test of them would show nothing.
    fn check_restrictions(&self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        assert!(!field("Uid:").split_whitespace().any(|uid| uid == "0"), "{status}");
        assert_eq!((field("NoNewPrivs:").as_str(), field("CapEff:").as_str()), ("1", "0000000000000000"));
        for place in ["/etc/weir", "/etc", "/usr/local/bin", "/var/lib", "/var/log", "/run", "/home", "/root"] {
            let written = fs::write(self.path(place).join("written"), "");
            assert!(written.is_err(), "{place} can be written");
        }
        for place in ["/var/lib/weir", "/run/weir", "/var/log/weir", "/tmp"] {
            let file = self.path(place).join("written");
            fs::write(&file, "").unwrap_or_else(|error| panic!("{place}: {error}"));
            fs::remove_file(file).unwrap();
        }
    }
}

/// See `Service::begin_inside`.
pub struct Begun(Child, PathBuf);

impl Begun {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }

    pub fn end(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        check_last_words(self.port.number(), &self.log());
    }
}
