//! Ends of connections to servers: nothing of them is in PostgreSQL's log, whoever ends one and why.

use crate::support::certs::{Authority, Signed};
use crate::support::ground::{Owned, encrypted_cluster, wait_for_catalog};
use crate::support::proxy::Folder;
use crate::support::{Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use weir_demo::Server;

/// PostgreSQL's words for connections that ended otherwise than by a Terminate. Source: pqcomm.c, be-secure.c, be-secure-openssl.c, postgres.c, walsender.c.
const COMPLAINTS: [&str; 5] = ["could not receive data", "unexpected EOF", "incomplete message", "SSL error", "invalid message"];
const ASLEEP: &str = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
/// Weir's own user, for whom the server wants a proof.
const OWN: &str = "sr_check_user = 'anna'\nsr_check_password = 'secret of anna'\nhealth_check_user = 'anna'\n\
    health_check_password = 'secret of anna'\nhealth_check_period = 1\nadmin_users = 'postgres'\n";

/// Where `enable_pool_hba` is on.
const RULES: &str = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all anna 127.0.0.1/32 scram-sha-256\n";

fn server(signed: &Signed) -> Owned {
    let hba_lines = ["host all,replication postgres samehost trust", "host all anna,carl samehost scram-sha-256"];
    let cluster = encrypted_cluster(signed, &hba_lines);
    cluster.primary().query("grant pg_monitor to anna; create role carl login password 'secret of carl'").unwrap();
    cluster
}

/// A server, a Weir before it, and the length of the server's log that was looked at.
struct Scene<'s> {
    server: &'s Server,
    proxy: Proxy,
    name: String,
    seen: usize,
}

impl<'s> Scene<'s> {
    fn new(server: &'s Server, name: &str, more: &str) -> Scene<'s> {
        let seen = server.log().len();
        let proxy = Proxy::with_files(&[server], &format!("{OWN}{more}"), &[("pool_hba.conf", RULES)], &[]);
        Scene { server, proxy, name: name.to_string(), seen }
    }

    fn client(&self) -> Raw {
        self.proxy.console()
    }

    fn admin(&self) -> Raw {
        Raw::unix(self.proxy.folder(), self.proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap()
    }

    /// The server's processes whose clients are Weir.
    fn others(&self) -> String {
        self.server.value("select count(*) from pg_stat_activity where client_addr is not null").unwrap()
    }

    fn wait_gone(&self, pid: &str) {
        let here = format!("select count(*) from pg_stat_activity where pid = {pid}");
        wait_until("the server to see it off", || self.server.value(&here).unwrap() == "0");
    }

    fn check(&mut self, what: &str) {
        let log = self.server.log();
        let found: Vec<&str> =
            log[self.seen..].lines().filter(|line| COMPLAINTS.iter().any(|words| line.contains(words))).collect();
        self.seen = log.len();
        assert!(found.is_empty(), "{}, {what}: {found:#?}", self.name);
    }

    /// Ends the proxy.
    fn end(mut self, signal: Signal) {
        self.proxy.signal(signal);
        assert!(self.proxy.wait_end().success());
        wait_until("the server to see all off", || self.others() == "0");
        self.check(&format!("the end by {signal:?}"));
    }
}

/// Sends nothing more, not even a farewell.
fn vanish(client: Raw) {
    drop(client);
}

const PID: &str = "select pg_backend_pid()";

fn check_clients(scene: &mut Scene<'_>) {
    let mut client = scene.client();
    wait_for_catalog(&mut client, "postgres");
    scene.check("the start");

    let pid = client.value(PID);
    scene.admin().run("RECONNECT postgres");
    scene.wait_gone(&pid);
    scene.check("RECONNECT");

    let (mut within, mut reads) = (scene.client(), scene.client());
    within.run("begin");
    let pid = within.value(PID);
    vanish(within);
    scene.wait_gone_or_idle(&pid);
    scene.check("a client that leaves its transaction");

    reads.send(&wire::query("select repeat('x', 1000) from generate_series(1, 200000)"));
    reads.read();
    vanish(reads);
    wait_until("the result to be given up", || {
        scene.server.value("select count(*) from pg_stat_activity where query like '%generate_series%' and state = 'active' and client_addr is not null").unwrap() == "0"
    });
    scene.check("a client that leaves its result");

    let mut sleeper = scene.client();
    let (pid, key) = (sleeper.pid, sleeper.key.clone());
    sleeper.send(&wire::query("select pg_sleep(100)"));
    wait_until("it to sleep", || scene.server.value(ASLEEP).unwrap() == "1");
    Raw::tcp(scene.proxy.port()).send(&wire::cancel(pid, &key));
    let said = sleeper.until_ready();
    assert!(said.iter().any(|message| message.tag == b'E' && message.failure().sqlstate == "57014"), "{said:?}");
    scene.check("a cancel request");

    sleeper.send(&wire::query("select pg_sleep(3)"));
    wait_until("it to sleep", || scene.server.value(ASLEEP).unwrap() == "1");
    let mut admin = scene.admin();
    admin.run("KILL postgres");
    wait_until("it to end", || scene.server.value(ASLEEP).unwrap() == "0");
    admin.run("RESUME postgres");
    scene.check("KILL");

    let mut listener = scene.client();
    listener.run("listen something");
    vanish(listener);
    for kind in ["true", "database"] {
        let named = [("replication", kind), ("application_name", "streams")];
        let mut sender = Raw::tcp(scene.proxy.port()).log_in("postgres", "postgres", &named).unwrap();
        sender.send(&wire::query("IDENTIFY_SYSTEM"));
        sender.until_ready();
        vanish(sender);
        let senders = "select count(*) from pg_stat_activity where application_name = 'streams'";
        wait_until("the walsender to end", || scene.server.value(senders).unwrap() == "0");
        scene.check("a client of the replication protocol");
    }
    drop(client);
}

impl Scene<'_> {
    fn wait_gone_or_idle(&self, pid: &str) {
        let busy = format!("select count(*) from pg_stat_activity where pid = {pid} and state <> 'idle'");
        wait_until("its transaction to end", || self.server.value(&busy).unwrap() == "0");
    }
}

#[test]
fn no_end_of_a_server_connection_is_worth_a_line_to_its_server() {
    let authority = Authority::new("ours");
    let cluster = server(&authority.server());
    let server = cluster.primary();
    for (io, mode) in [("auto", "require"), ("epoll", "require"), ("auto", "disable")] {
        let ways = format!("io_method = {io}\nbackend_sslmode = {mode}\n");
        let folder = Folder::new();
        let with_door = format!("{ways}listen_addresses = '*'\ntakeover_socket = '{}/way'\n", folder.0.display());
        let mut scene = Scene::new(server, &format!("{io}, {mode}"), &with_door);
        check_clients(&mut scene);
        let resting = scene.client();
        let mut old = scene.proxy.restart("log2");
        drop(resting);
        assert!(old.wait_end().success());
        scene.check("a takeover");
        scene.end(Signal::INT);

        let mut scene = Scene::new(
            server,
            &format!("{io}, {mode}, refused"),
            &format!("{ways}reset_query_always = on\nreset_query_list = 'ABORT; select 1/0'\nconnection_life_time = 1\n"),
        );
        let pid = scene.client().value(PID);
        scene.wait_gone(&pid);
        scene.check("a reset that failed");
        scene.end(Signal::TERM);

        let mut scene = Scene::new(
            server,
            &format!("{io}, {mode}, asked"),
            &format!("{ways}server_check_query = 'select 1/0'\nserver_check_delay = 0\n"),
        );
        let pid = scene.client().value(PID);
        scene.client().run("select 1");
        scene.wait_gone(&pid);
        scene.check("a question that failed");
        scene.end(Signal::TERM);

        // Nobody has told Weir the second one's password, for which the server asks.
        for asker in ["postgres", "carl"] {
            let asks = format!(
                "enable_pool_hba = on\nauth_user = '{asker}'\nauth_query = 'select usename, passwd from pg_catalog.pg_shadow where usename = $1'\n"
            );
            let mut scene = Scene::new(server, &format!("{io}, {mode}, asked by {asker}"), &format!("{ways}{asks}"));
            let mut asked = Raw::tcp(scene.proxy.port());
            asked.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")]));
            asked.read();
            scene.check("a question about a user");
            scene.end(Signal::INT);
        }

        let mut scene =
            Scene::new(server, &format!("{io}, {mode}, full"), &format!("{ways}max_server_connections_per_node = 1\n"));
        let pid = scene.client().value(PID);
        Raw::tcp(scene.proxy.port()).log_in("postgres", "template1", &[]).unwrap().run("select 1");
        scene.wait_gone(&pid);
        scene.check("a place that another database took");
        scene.end(Signal::INT);
    }
}
