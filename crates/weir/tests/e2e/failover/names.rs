//! Servers known by name, and a resolver that is away: it says nothing of a server.

use super::{BUILTIN, NAMES, failovers, servers};
use crate::support::ground::Owned;
use crate::support::proxy::{Backend, HOSTS, has_own_hosts};
use crate::support::time::check_never;
use crate::support::{Proxy, Raw, leave_out, wait_until};
use std::time::Duration;

const KNOWN: &str = "127.0.0.1 localhost db0.test db1.test db2.test\n";
const GONE: &str = "127.0.0.1 localhost\n";

/// Before servers called db0.test and so on, with this as its /etc/hosts.
fn before(cluster: &Owned, hosts: &str) -> Proxy {
    let backend =
        |(at, server): (usize, &weir_demo::Server)| Backend { host: format!("db{at}.test"), ..Backend::tcp(server.port(), 1) };
    let backends: Vec<Backend> = cluster.servers().iter().enumerate().map(backend).collect();
    // Nothing that was put out of use comes back by itself.
    let conf = format!("{BUILTIN}{NAMES}auto_failback = off\nfailover_wait = 60s\n");
    Proxy::spawn_with_files(&backends, &conf, &[(HOSTS, hosts)], &[])
}

fn log_in(proxy: &Proxy) -> Raw {
    Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap()
}

#[test]
fn nothing_is_given_up_while_names_do_not_resolve() {
    if !has_own_hosts() {
        return leave_out("a program may not have a mount namespace of its own");
    }
    let cluster = servers(2, &[]);
    let proxy = before(&cluster, KNOWN);
    proxy.wait_accepting();
    wait_until("writes to go", || proxy.log().contains("writes go to node 0"));
    wait_until("all nodes to be up", || proxy.nodes("pg_status") == ["up", "up", "up"]);
    let mut open = log_in(&proxy);
    open.run("begin");
    open.run("insert into written values (1)");
    proxy.write_file(HOSTS, GONE);
    for at in 0..3 {
        let words = format!("host name \"db{at}.test\" cannot be resolved");
        wait_until(&words, || proxy.log().contains(&words));
    }
    // New server connections, all at a time.
    let mut new: Vec<Raw> = (0..5).map(|_| log_in(&proxy)).collect();
    new.iter_mut().for_each(|session| session.run("begin"));
    new.iter_mut().for_each(|session| session.run("insert into written values (2)"));
    new.iter_mut().for_each(|session| session.run("commit"));
    let has_lost =
        |log: &str| ["is out of use:", "is given up", "writes wait: the primary"].iter().any(|words| log.contains(words));
    let begun = proxy.log().len();
    check_never("a node is given up", Duration::from_secs(5), || has_lost(&proxy.log()[begun..]));
    open.run("insert into written values (3)");
    open.run("commit");
    proxy.write_file(HOSTS, KNOWN);
    wait_until("the name to be resolved", || proxy.log().contains("host name \"db0.test\" can be resolved again"));
    assert_eq!((cluster.primary().value("select count(*) from written").unwrap(), failovers(&proxy)), ("7".to_string(), 0));
}

#[test]
fn nodes_whose_names_nobody_knows_at_the_start_are_used_once_they_resolve() {
    if !has_own_hosts() {
        return leave_out("a program may not have a mount namespace of its own");
    }
    let cluster = servers(2, &[]);
    let proxy = before(&cluster, GONE);
    wait_until("all to be asked", || (0..3).all(|at| proxy.log().contains(&format!("node {at} (db{at}.test"))));
    // As many looks as would put a node out of use.
    check_never("a node is out of use", Duration::from_secs(4), || proxy.log().contains("is out of use:"));
    proxy.write_file(HOSTS, KNOWN);
    proxy.wait_accepting();
    log_in(&proxy).run("insert into written values (1)");
    wait_until("all nodes to be used", || proxy.nodes("pg_status") == ["up", "up", "up"]);
    assert!(!proxy.log().contains("is out of use:"));
}
