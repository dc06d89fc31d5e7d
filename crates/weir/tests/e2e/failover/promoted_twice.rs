//! Two servers that are promoted from one log begin the same timeline, and pg_rewind finds nothing to do between them.

use super::*;
use crate::support::proxy::show;
use std::process::Command;

/// Longer than two looks, and than a stream needs to begin.
const LOOKS: Duration = Duration::from_secs(4);

#[test]
fn a_server_that_was_promoted_beside_the_primary_is_used_again_after_a_copy_only() {
    let cluster = servers(2, &[("wal_log_hints", "on"), ("full_page_writes", "on")]);
    let [one, two] = cluster.standbys() else { panic!("two standbys") };
    if !has_programs(one, &["pg_rewind"]) {
        return leave_out("pg_rewind is not there");
    }
    let port = ReservedPort::any().unwrap();
    let (mut proxy, passfile) = with_pcp(&cluster, &format!("{BUILTIN}failover_alone = on\n"), &port);
    let act = |act: &str| pcp(port.number(), &passfile, &[act, "2"]);
    // The second standby is away while the first one is promoted, and follows an order to promote that comes too late.
    two.freeze();
    cluster.primary().kill9().unwrap();
    wait_until("the first standby to be promoted", || proxy.log().contains("failover done"));
    proxy.signal(Signal::KILL);
    proxy.wait_end();
    two.thaw();
    two.promote().unwrap();
    let timeline = "select timeline_id from pg_control_checkpoint()";
    one.query("checkpoint").unwrap();
    two.query("checkpoint").unwrap();
    assert_eq!([one, two].map(|server| server.value(timeline).unwrap()), ["2", "2"]);
    one.query("insert into readable select generate_series(1, 10000)").unwrap();
    proxy.crash_and_start();
    wait_until("it to be found", || is_apart(&proxy));
    assert_eq!(proxy.nodes("status")[1..], ["up", "down"]);
    let why = proxy.log();
    assert!(why.contains("only a copy of all files of the primary brings it back, not pg_rewind"), "{why}");
    // An operator knows no better.
    two.stop(Mode::Fast).unwrap();
    let rewound = rewind(two, one);
    assert!(rewound.contains("no rewind required"), "{rewound}");
    two.follow(one).unwrap();
    two.start().unwrap();
    assert!(two.in_recovery().unwrap());
    check_never("it is used", LOOKS, || proxy.nodes("status")[2] == "up");
    let refused = act("attach_node");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("copy it anew"), "{words}");
    assert!(is_apart(&proxy));
    two.clone_from(one).unwrap();
    wait_followed(one, 1);
    check_never("it is used before anybody vouched for it", LOOKS, || proxy.nodes("status")[2] == "up");
    for word in ["detach_node", "attach_node"] {
        let said = act(word);
        assert!(said.status.success(), "{said:?}");
    }
    wait_until("it to be used", || proxy.nodes("status")[1..] == ["up", "up"]);
    assert!(!is_apart(&proxy));
}

fn is_apart(proxy: &Proxy) -> bool {
    show(&mut proxy.console(), "pool_failover", "event").iter().any(|event| event == "apart")
}

fn rewind(target: &Server, source: &Server) -> String {
    let from = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", source.port());
    let mut command = Command::new(target.programs().bin().join("pg_rewind"));
    command.arg("--target-pgdata").arg(target.data_dir()).args(["--source-server", &from]);
    let said = as_owner_of(target, command).output().unwrap();
    String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout)
}

/// PostgreSQL's programs refuse root.
fn as_owner_of(server: &Server, mut command: Command) -> Command {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let owner = std::fs::metadata(server.data_dir()).unwrap();
    command.uid(owner.uid()).gid(owner.gid()).current_dir("/");
    command
}
