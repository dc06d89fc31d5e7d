//! Pgpool-II itself, to compare with. Debian has it in the package `pgpool2`.

use super::proxy::Folder;
use super::{Raw, leave_out, wait_until};
use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_demo::{ReservedPort, Server};

/// Clients it takes, a process for each.
const CHILDREN: u32 = 16;

/// Time it gets to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A running one.
pub struct Pgpool {
    process: Child,
    port: ReservedPort,
    pcp: ReservedPort,
    folder: Folder,
}

impl Pgpool {
    /// Before these servers, the first of which takes no reads if there are others. `more`: lines of its configuration, where `FOLDER`
    /// stands for its folder; `users`: its pcp.conf. `None` where there is no such program.
    pub fn start(servers: &[&Server], more: &str, users: &str) -> Option<Pgpool> {
        let program =
            ["/usr/sbin/pgpool", "/usr/bin/pgpool", "/usr/local/bin/pgpool"].into_iter().find(|at| Path::new(at).exists());
        let Some(program) = program else {
            leave_out("there is no pgpool (Debian: apt-get install pgpool2)");
            return None;
        };
        let (folder, port, pcp) = (Folder::new(), ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
        let at = folder.0.display().to_string();
        let mut conf = format!(
            "backend_clustering_mode = 'streaming_replication'\nlisten_addresses = '127.0.0.1'\nport = {}\n\
             pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\nsocket_dir = '{at}'\npcp_socket_dir = '{at}'\n\
             unix_socket_directories = '{at}'\n\
             num_init_children = {CHILDREN}\nmax_pool = 1\nenable_pool_hba = off\npool_passwd = ''\nsr_check_user = 'postgres'\n\
             sr_check_database = 'postgres'\nlogging_collector = off\nlog_min_messages = error\n\
             pid_file_name = '{at}/pgpool.pid'\nlogdir = '{at}'\nwork_dir = '{at}'\n{}",
            port.number(),
            pcp.number(),
            more.replace("FOLDER", &at)
        );
        for (number, server) in servers.iter().enumerate() {
            let (port, weight) = (server.port(), u32::from(number > 0 || servers.len() == 1));
            let _ = write!(
                conf,
                "backend_hostname{number} = '127.0.0.1'\nbackend_port{number} = {port}\nbackend_weight{number} = {weight}\n\
                 backend_data_directory{number} = '{at}'\n"
            );
        }
        let file = |name: &str, text: &str| {
            let path = folder.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (main, hba, users) = (file("pgpool.conf", &conf), file("pool_hba.conf", ""), file("pcp.conf", users));
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program, "-n", "-f"])
            .arg(main)
            .arg("-a")
            .arg(hba)
            .arg("-F")
            .arg(users)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let pgpool = Pgpool { process, port, pcp, folder };
        wait_until(&format!("Pgpool-II to answer; its log lies in {}", pgpool.folder.0.display()), || {
            TcpStream::connect(("127.0.0.1", pgpool.port.number())).is_ok()
                && Raw::tcp(pgpool.port.number())
                    .log_in("postgres", "postgres", &[])
                    .is_ok_and(|mut client| client.try_rows("select 1").is_ok())
        });
        Some(pgpool)
    }

    pub fn client(&self, database: &str) -> Raw {
        let client = Raw::tcp(self.port.number()).log_in("postgres", database, &[]);
        client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
    }

    pub fn pcp_port(&self) -> u16 {
        self.pcp.number()
    }
}

impl Drop for Pgpool {
    /// In order: it removes its shared memory, and its children end with it.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let ended = weir_demo::wait_until("Pgpool-II to end", END_LIMIT, || Ok(self.process.try_wait()?.is_some()));
        if ended.is_err() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
