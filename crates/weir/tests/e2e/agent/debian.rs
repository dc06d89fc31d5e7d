//! Agents beside servers as Debian makes them: `pg_createcluster` puts configuration, data and log in folders of their own.

use super::stand::{Agent, Folder, bin, copy_of, fast, follow_as, rewind_to, servers, start};
use crate::support::{leave_out, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_agent::{ServerStatus, ServerStopMode};
use weir_demo::{ReservedPort, Sql};

/// Settings behind those that `pg_createcluster` writes.
const CONF: &str = "listen_addresses = '127.0.0.1'\nwal_log_hints = on\nwal_keep_size = 256MB\nfsync = off\nssl = off\n";
const HBA: &str = "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n";

/// One cluster of Debian's in a folder that goes with it.
struct Debians {
    name: &'static str,
    port: ReservedPort,
    home: Folder,
    bin: PathBuf,
    major: u32,
}

impl Debians {
    fn create(name: &'static str, owner: &Path, bin: &Path, major: u32) -> Debians {
        let made =
            Debians { name, port: ReservedPort::any().unwrap(), home: Folder::owned_as(owner), bin: bin.to_path_buf(), major };
        for folder in ["etc", "run", "data"] {
            let mut command = made.command("mkdir");
            assert!(command.arg(made.home.path(folder)).status().unwrap().success());
        }
        let (data, run, log) = (made.data(), made.home.path("run"), made.home.path("log"));
        let mut command = made.command("pg_createcluster");
        command.args([&major.to_string(), name, "-p", &made.port.number().to_string(), "--start-conf", "manual"]);
        command.arg("-d").arg(data).arg("-s").arg(run).arg("-l").arg(log).args(["--", "-U", "postgres"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let append = |file: &str, more: &str| {
            let path = made.conf_folder().join(file);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, if file == "pg_hba.conf" { format!("{more}{text}") } else { format!("{text}{more}") }).unwrap();
        };
        append("postgresql.conf", CONF);
        append("pg_hba.conf", HBA);
        made
    }

    /// A program as the owner, with Debian's tools at this folder.
    fn command(&self, program: &str) -> Command {
        let owner = fs::metadata(self.home.path("")).unwrap();
        let mut command = Command::new(program);
        command.env("PG_CLUSTER_CONF_ROOT", self.home.path("etc")).env("LC_ALL", "C.UTF-8").current_dir(self.home.path(""));
        if rustix::process::geteuid().is_root() {
            command.uid(owner.uid()).gid(owner.gid());
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.home.path("data").join(self.name)
    }

    fn conf_folder(&self) -> PathBuf {
        self.home.path("etc").join(self.major.to_string()).join(self.name)
    }

    /// Its agent, with more arguments.
    fn agent(&self, more: &[&str]) -> Agent {
        let conf = self.conf_folder().join("postgresql.conf").display().to_string();
        let arguments: Vec<&str> = ["--config-file", &conf].iter().chain(more).copied().collect();
        Agent::at(&self.data(), &self.bin, &[], &arguments)
    }

    fn value(&self, text: &str) -> anyhow::Result<String> {
        let rows = Sql::connect_tcp("127.0.0.1", self.port.number(), "postgres", "postgres")?.query(text)?;
        Ok(rows.into_iter().flatten().next().flatten().unwrap_or_default())
    }

    fn run(&self, text: &str) {
        self.value(text).unwrap();
    }

    fn wait_streams_from(&self, primary: &Debians) {
        let text =
            format!("select count(*) from pg_stat_replication where state = 'streaming' and application_name = '{}'", self.name);
        wait_until("the server to stream", || primary.value(&text).is_ok_and(|count| count == "1"));
        assert_eq!(self.value("show config_file").unwrap(), self.conf_folder().join("postgresql.conf").display().to_string());
        assert_eq!(self.value("show port").unwrap(), self.port.number().to_string());
        let count = "select count(*) from written";
        wait_until("it to have all", || self.value(count).is_ok_and(|own| own == primary.value(count).unwrap()));
    }
}

#[test]
fn servers_of_debians_layout_are_stopped_started_copied_and_rewound() {
    let Some(cluster) = servers(0) else { return };
    let programs = cluster.primary().programs();
    let major = programs.major();
    let is_debians = programs.bin() == Path::new(&format!("/usr/lib/postgresql/{major}/bin"));
    if !is_debians || !Path::new("/usr/bin/pg_createcluster").exists() {
        return leave_out("these servers are none of Debian's (Debian: apt-get install postgresql-common)");
    }
    let create = |name| Debians::create(name, cluster.primary().data_dir(), bin(cluster.primary()), major);
    let (one, two) = (create("one"), create("two"));
    let by_ctl = format!("env PG_CLUSTER_CONF_ROOT={} pg_ctlcluster {major} two start", two.home.path("etc").display());
    let (first, second) = (one.agent(&[]), two.agent(&["--start-command", &by_ctl]));
    for deed in [start(), fast(), start()] {
        [&first, &second].into_iter().for_each(|agent| agent.order(deed.clone()).unwrap());
    }
    one.run("create table written (number int8)");
    one.run("insert into written values (1)");
    let postmaster = |agent: &Agent| match agent.status().server {
        ServerStatus::Running(known) => known,
        ServerStatus::Stopped => panic!("it runs"),
    };
    assert_eq!(postmaster(&first).port, one.port.number());

    // Another cluster is not overwritten; an empty folder is filled.
    second.order(fast()).unwrap();
    let refused = second.order(copy_of(one.port.number())).unwrap_err();
    assert!(refused.text.contains("the source is system"), "{}", refused.text);
    fs::remove_dir_all(two.data()).unwrap();
    second.order(copy_of(one.port.number())).unwrap();
    second.order(follow_as("two", one.port.number())).unwrap();
    second.order(start()).unwrap();
    two.wait_streams_from(&one);

    // The first one crashes, has something that nobody else has, and comes back.
    two.run("alter system set primary_conninfo = ''");
    two.run("select pg_reload_conf()");
    wait_until("the standby to be cut off", || two.value("select count(*) from pg_stat_wal_receiver").unwrap() == "0");
    one.run("insert into written select generate_series(1, 1000)");
    first.order(weir_agent::OrderAction::Stop { mode: ServerStopMode::Immediate, limit_ms: 60_000, started_at: None }).unwrap();
    two.run("select pg_promote()");
    two.run("insert into written values (2)");
    first.order(rewind_to(two.port.number())).unwrap();
    first.order(follow_as("one", two.port.number())).unwrap();
    first.order(start()).unwrap();
    one.wait_streams_from(&two);

    // And the other way round, with the program that Debian starts servers by.
    one.run("select pg_promote()");
    one.run("insert into written values (3)");
    two.run("insert into written values (4), (5)");
    second.order(weir_agent::OrderAction::Stop { mode: ServerStopMode::Immediate, limit_ms: 60_000, started_at: None }).unwrap();
    one.run("checkpoint");
    second.order(rewind_to(one.port.number())).unwrap();
    second.order(follow_as("two", one.port.number())).unwrap();
    second.order(start()).unwrap();
    two.wait_streams_from(&one);

    // The slot is named in the file outside of the data directory.
    second.order(fast()).unwrap();
    let conf = two.conf_folder().join("postgresql.conf");
    fs::write(&conf, format!("{}primary_slot_name = 'of_two'\n", fs::read_to_string(&conf).unwrap())).unwrap();
    assert_eq!(second.status().slot.map(|slot| slot.as_str().to_string()).as_deref(), Some("of_two"));
    let started_at = postmaster(&first).started_at;
    first.order(weir_agent::OrderAction::Restart { limit_ms: 60_000, started_at }).unwrap();
    assert_ne!(postmaster(&first).pid, 0);
    [&first, &second].into_iter().for_each(|agent| agent.order(fast()).unwrap());
}
