//! A primary and its standbys, from nothing to streaming, and back to nothing.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::conf::{self, Auth, WalLevel};
use crate::folder::{Folder, copy_tree, make_private, tree_bytes, write_private};
use crate::making::{ClusterStage, StageHearer};
use crate::port::ReservedPort;
use crate::process::Launch;
use crate::programs::Programs;
use crate::server::Server;
use crate::template::{Template, init_data};
use crate::wait::wait_until;

/// A standby connects within 0.2 s of its start.
const STREAM_LIMIT: Duration = Duration::from_secs(60);
/// Replay of a test's writes; a bulk load of a benchmark may take most of this.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

/// The cluster to make. The default is one trusting server in a temporary folder.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where; created if missing, must be empty. `None`: a temporary folder.
    pub dir: Option<PathBuf>,
    /// How many standbys.
    pub standbys: usize,
    /// Version of PostgreSQL. `None`: see [`Programs::find`].
    pub programs: Option<Programs>,
    /// Begin with a copy of this, and with its programs, in place of `initdb`.
    pub template: Option<Arc<Template>>,
    /// The primary's port; the standbys get the ones after it. `None`: any free ports.
    pub base_port: Option<u16>,
    /// Also logical replication?
    pub wal_level: WalLevel,
    /// Lines of postgresql.conf for all servers: name and value. They override ours.
    pub extra_conf: Vec<(String, String)>,
    /// Files for every data folder, for example a certificate and its key: name and contents.
    pub extra_files: Vec<(String, Vec<u8>)>,
    /// Access rules of the servers.
    pub auth: Auth,
    /// Leave the folder and its contents when the cluster is dropped. The servers stop all the same.
    pub keep: bool,
    /// Set, for example by a signal, when the cluster is not wanted any more: making it ends soon, with an error.
    pub stop: Option<Arc<AtomicBool>>,
    /// Hears how far the making is.
    pub hearer: StageHearer,
}

impl Options {
    fn go_on(&self) -> Result<()> {
        let is_stopped = self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire));
        if is_stopped { bail!("stopped before the servers were ready") } else { Ok(()) }
    }
}

/// Running servers. Dropping it stops them and removes their folder.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: servers first, then their folder.
    servers: Vec<Server>,
    folder: Folder,
}

impl Cluster {
    /// Makes and starts a cluster, and returns when all standbys stream.
    ///
    /// Error: no PostgreSQL, a port or folder that cannot be used, a server that does not start (with the end of its
    /// log). Nothing is left behind then.
    pub fn start(options: Options) -> Result<Cluster> {
        let launch = Launch::new()?;
        let programs = options.template.as_ref().map(|template| template.programs()).or(options.programs.as_ref());
        let programs = programs.cloned().map_or_else(Programs::find, Ok)?;
        let folder = match &options.dir {
            Some(path) => Folder::at(path, launch.run_as)?,
            None => Folder::temporary(launch.run_as)?,
        };
        let mut cluster = Cluster { servers: Vec::new(), folder };
        for number in 0..=options.standbys {
            let server = cluster.new_server(number, &options, programs.clone(), launch)?;
            cluster.servers.push(server);
        }
        cluster.write_primary(&options)?;
        cluster.write_standbys(&options)?;
        cluster.start_all(&options)?;
        options.go_on()?;
        options.hearer.tell(ClusterStage::Made);
        if options.keep {
            cluster.folder.keep();
        }
        Ok(cluster)
    }

    /// The server that was made as the primary, also after another one was promoted.
    pub fn primary(&self) -> &Server {
        &self.servers[0]
    }

    /// The servers that were made as standbys.
    pub fn standbys(&self) -> &[Server] {
        &self.servers[1..]
    }

    /// All servers, the primary first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The folder of everything: data folders, logs, unix sockets.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Asks all servers for a fast shutdown without waiting, so that several clusters stop at the same time.
    pub fn begin_stop(&self) {
        for server in &self.servers {
            server.begin_stop();
        }
    }

    /// The first running server that is not a standby now, whoever started it.
    pub fn writable(&self) -> Result<&Server> {
        let found = self.servers.iter().find(|server| matches!(server.in_recovery(), Ok(false)));
        found.context("no server of the cluster accepts writes")
    }

    /// Waits until `count` standbys stream from the server that accepts writes.
    pub fn wait_streaming(&self, count: usize) -> Result<()> {
        let primary = self.writable()?;
        let text = "select count(*) from pg_stat_replication where state = 'streaming'";
        wait_until(&format!("{count} standbys to stream"), STREAM_LIMIT, || Ok(primary.value(text)?.parse::<usize>()? >= count))
    }

    /// Waits until every running standby has replayed all that the writable server has written up to now.
    pub fn wait_caught_up(&self) -> Result<()> {
        let primary = self.writable()?;
        let written = primary.value("select pg_current_wal_lsn()")?;
        let text = format!("select coalesce(pg_last_wal_replay_lsn() >= '{written}', false)");
        for server in &self.servers {
            if !server.is_running() || !server.in_recovery()? {
                continue;
            }
            let what = format!("server {} to replay up to {written}", server.name());
            wait_until(&what, CATCH_UP_LIMIT, || Ok(server.value(&text)? == "t"))?;
        }
        Ok(())
    }

    fn new_server(&self, number: usize, options: &Options, programs: Programs, launch: Launch) -> Result<Server> {
        let name = if number == 0 { "primary".to_owned() } else { format!("standby{number}") };
        let port = match options.base_port {
            Some(base) => {
                let port = u16::try_from(number).ok().and_then(|number| base.checked_add(number));
                let port = port.with_context(|| format!("no port {number} after {base}"))?;
                ReservedPort::exactly(port).with_context(|| format!("cannot use base port {base}, choose another"))?
            }
            None => ReservedPort::any()?,
        };
        let sockets = self.folder.path().to_owned();
        let data = sockets.join(&name);
        Ok(Server { name, data, sockets, port, programs, launch, process: Mutex::new(None) })
    }

    /// The primary's data folder, without the files that only the primary has.
    fn write_primary(&self, options: &Options) -> Result<()> {
        let primary = self.primary();
        let run_as = primary.launch.run_as;
        match &options.template {
            Some(template) => {
                let mut heed = options.hearer.copy(&primary.name, tree_bytes(&template.data())?);
                template.copy_to(&primary.data, run_as, &mut heed)?;
            }
            None => {
                options.hearer.tell(ClusterStage::Initialising { server: &primary.name });
                init_data(&primary.programs, run_as, &primary.sockets, &primary.data)?;
            }
        }
        let shared = conf::shared_settings(&primary.sockets, options.wal_level, &options.auth, &options.extra_conf);
        append(&primary.data.join("postgresql.conf"), &shared)?;
        write_private(&primary.data.join("pg_hba.conf"), conf::hba(&options.auth).as_bytes(), run_as)?;
        for (name, contents) in &options.extra_files {
            write_private(&primary.data.join(name), contents, run_as)?;
        }
        Ok(())
    }

    /// Copies the primary, which has never run, to all standbys; then each server gets its own settings.
    fn write_standbys(&self, options: &Options) -> Result<()> {
        let primary = self.primary();
        let bytes = tree_bytes(&primary.data)?;
        for standby in self.standbys() {
            options.go_on()?;
            let run_as = standby.launch.run_as;
            make_private(&standby.data, run_as)?;
            let mut heed = options.hearer.copy(&standby.name, bytes);
            copy_tree(&primary.data, &standby.data, run_as, &|_| false, &mut heed)?;
            write_private(&standby.data.join("standby.signal"), b"", run_as)?;
            let upstream = conf::upstream_setting(&standby.name, primary.port());
            append(&standby.data.join("postgresql.conf"), &upstream)?;
        }
        for server in &self.servers {
            let own = conf::own_settings(&server.name, server.port());
            append(&server.data.join("postgresql.conf"), &own)?;
        }
        Ok(())
    }

    fn start_all(&self, options: &Options) -> Result<()> {
        options.go_on()?;
        for server in &self.servers {
            server.spawn()?;
        }
        for (ready, server) in self.servers.iter().enumerate() {
            options.go_on()?;
            options.hearer.tell(ClusterStage::Starting { ready, servers: self.servers.len() });
            server.wait_ready()?;
        }
        options.hearer.tell(ClusterStage::Starting { ready: self.servers.len(), servers: self.servers.len() });
        options.go_on()?;
        for user in &options.auth.users {
            let name = conf::quote_name(&user.name);
            let verb = if user.name == "postgres" { "alter" } else { "create" };
            let password = conf::quote_text(&user.password);
            self.primary().query(&format!("{verb} role {name} login password {password}"))?;
        }
        self.wait_streaming(self.standbys().len())?;
        self.wait_caught_up()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.begin_stop();
    }
}

fn append(path: &Path, text: &str) -> Result<()> {
    let mut file = File::options().append(true).open(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
