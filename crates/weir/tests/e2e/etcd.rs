//! etcd as the engine of a group: servers of etcd on this machine, and programs that are none.
//!
//! Without etcd (Debian: package `etcd-server`) the tests that need it are left out.

pub mod etcd_servers;

use crate::support::certs::Authority;
use crate::support::faults::{Fault, Network, Toward};
use crate::support::ground::LIMIT;
use crate::support::proxy::Folder;
use crate::support::time::{check_within, let_pass};
use crate::support::wait_until;
use etcd_servers::{EtcdServers, encoded};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use weir::watchdog::etcd_engine::{EtcdChange, EtcdEngine, EtcdSettings, EtcdSight, EtcdUser};
use weir::watchdog::etcd_fault::{EndpointFault, EtcdError};
use weir::watchdog::etcd_tls::{EtcdTlsFiles, OwnEtcdFiles};
use weir_group::{
    GroupLead, GroupMembers, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberRow, MemberSet, StateVersion,
    VersionNumber,
};

const KEY: &str = "/weir/shop";
/// Of tests that are not about time: a busy machine is waited for.
const LEASE_MS: u64 = 20_000;
/// As in the product.
const SHORT_LEASE_MS: u64 = 2_000;
/// A read of three endpoints with the short lease ends within a quarter of it and two sixteenths.
const READ_LIMIT: Duration = Duration::from_millis(750);

fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000 + u64::try_from(now.tv_nsec).unwrap() / 1_000_000
}

fn settings(endpoints: Vec<String>) -> EtcdSettings {
    let tls = EtcdTlsFiles::default();
    EtcdSettings { endpoints, user: None, key: KEY.into(), tls, lease_ms: LEASE_MS, now: boot_ms }
}

fn engine(endpoints: Vec<String>) -> EtcdEngine {
    EtcdEngine::new(settings(endpoints)).unwrap()
}

fn quick_engine(endpoints: Vec<String>) -> EtcdEngine {
    EtcdEngine::new(EtcdSettings { lease_ms: SHORT_LEASE_MS, ..settings(endpoints) }).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, work)
}

fn state(change: u64) -> GroupState {
    let id = MemberId { host: 0, incarnation: 7 };
    let row = MemberRow { id, priority: 1, duty: MemberDuty::Serves };
    GroupState {
        group: id,
        change,
        members: GroupMembers::of(vec![row], HalfVotes::TooFew),
        lost: MemberSet::new(),
        lead: GroupLead::Taken { from: None, to: id },
        term: 0,
        writes: GroupWrites::Closed { epoch: 0 },
        lease_ms: LEASE_MS,
        failover: "weir 1\nnode \"ä\" \\ 2\n".into(),
        decisions: vec![],
        former: vec![],
    }
}

/// A read that must succeed.
async fn sight(engine: &EtcdEngine) -> EtcdSight {
    engine.read().await.unwrap_or_else(|error| panic!("{error}"))
}

/// The version of a read that is repeated until it succeeds, as the caller of an engine does.
async fn settled(engine: &EtcdEngine) -> Option<StateVersion> {
    let begun = Instant::now();
    loop {
        match engine.read().await {
            Ok(sight) => return sight.version,
            Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
        }
    }
}

fn made(change: Result<EtcdChange, EtcdError>) -> StateVersion {
    match change {
        Ok(EtcdChange::Made(version)) => version,
        other => panic!("{other:?}"),
    }
}

fn refused(change: Result<EtcdChange, EtcdError>) -> Option<StateVersion> {
    match change {
        Ok(EtcdChange::Refused(present)) => present,
        other => panic!("{other:?}"),
    }
}

/// Faults of a read that fails at each endpoint; the text names all of them, and the key.
async fn faults(engine: &EtcdEngine) -> Vec<EndpointFault> {
    let error = engine.read().await.expect_err("no endpoint is fit");
    let text = error.to_string();
    let EtcdError::Unanswered { failures, .. } = error else { panic!("{text}") };
    assert!(text.contains(KEY) && failures.iter().all(|failure| text.contains(&failure.endpoint)), "{text}");
    failures.into_iter().map(|failure| failure.fault).collect()
}

#[test]
fn a_state_is_created_read_and_changed_if_it_is_still_the_version_expected() {
    let Some(servers) = EtcdServers::start(3, &[]) else { return };
    run(async {
        let engine = engine(servers.urls_from(0));
        let before = boot_ms();
        let nothing = sight(&engine).await;
        assert!(nothing.version.is_none() && (before..=boot_ms()).contains(&nothing.asked_at));

        let first = made(engine.create(state(0)).await);
        assert_eq!((first.number.by, &*first.state), (MemberId::default(), &state(0)));
        assert!(first.number.counter > 0);
        assert_eq!(refused(engine.create(state(9)).await), Some(first.clone()));
        let second = made(engine.change(first.number, state(1)).await);
        assert!(second.number > first.number);
        assert_eq!(refused(engine.change(first.number, state(2)).await), Some(second.clone()));
        for at in 0..3 {
            let other = self::engine(vec![servers.url(at)]);
            assert_eq!(sight(&other).await.version, Some(second.clone()), "at etcd{at}");
        }

        servers.delete(KEY);
        assert_eq!(sight(&engine).await.version, None);
        assert_eq!(refused(engine.change(second.number, state(2)).await), None);
        let anew = made(engine.create(state(0)).await);
        assert!(anew.number > second.number, "a number never comes again");
    });
}

#[test]
fn changes_at_the_same_time_make_one_line() {
    const WRITERS: usize = 3;
    const EACH: usize = 20;
    let Some(servers) = EtcdServers::start(3, &[]) else { return };
    let mut all: BTreeMap<VersionNumber, u64> = BTreeMap::new();
    run(async {
        let mut present = made(engine(servers.urls_from(0)).create(state(0)).await);
        let writer = |at: usize, mut present: StateVersion| {
            let engine = engine(servers.urls_from(at));
            async move {
                let mut made = Vec::new();
                while made.len() < EACH {
                    let next = state(present.state.change + 1);
                    present = match engine.change(present.number, next).await {
                        Ok(EtcdChange::Made(version)) => {
                            made.push((version.number, version.state.change));
                            version
                        }
                        Ok(EtcdChange::Refused(version)) => version.unwrap(),
                        Ok(EtcdChange::Unknown(_)) | Err(_) => settled(&engine).await.unwrap(),
                    };
                }
                made
            }
        };
        let (one, two, three) = tokio::join!(writer(0, present.clone()), writer(1, present.clone()), writer(2, present.clone()));
        let made: Vec<_> = [one, two, three].concat();
        assert_eq!(made.len(), WRITERS * EACH);
        for (number, change) in made {
            assert_eq!(all.insert(number, change), None, "two changes are {number:?}");
        }
        present = settled(&engine(servers.urls_from(1))).await.unwrap();
        assert!(present.state.change >= (WRITERS * EACH) as u64);
    });
    let changes: Vec<u64> = all.into_values().collect();
    assert!(changes.is_sorted_by(|one, next| one < next), "each was made from the one before: {changes:?}");
}

#[test]
fn reads_go_on_while_the_leader_of_etcd_is_stopped_and_it_shows_nothing_old_when_it_goes_on() {
    let Some(servers) = EtcdServers::start(3, &[]) else { return };
    let leader = servers.leader();
    run(async {
        let engine = engine(servers.urls_from(leader));
        let quick = quick_engine(servers.urls_from(leader));
        let alone = quick_engine(vec![servers.url(leader)]);
        let first = made(engine.create(state(0)).await);
        assert_eq!(settled(&alone).await, Some(first.clone()));
        assert_eq!(settled(&quick).await, Some(first.clone()));

        servers.signal(leader, Signal::STOP);
        assert!(matches!(faults(&alone).await[..], [EndpointFault::Late { .. }]));
        // Its question lies before the stopped one until that goes on.
        let long = EtcdSettings { lease_ms: 480_000, ..settings(vec![servers.url(leader)]) };
        let patient = tokio::task::spawn_local(async move { EtcdEngine::new(long).unwrap().read().await });
        // The others elect a leader first.
        assert_eq!(settled(&quick).await, Some(first.clone()));
        let begun = Instant::now();
        assert_eq!(settled(&quick).await, Some(first.clone()));
        check_within("a read that passes over the stopped one", begun, READ_LIMIT);
        let mut present = first;
        while present.state.change < 5 {
            let next = state(present.state.change + 1);
            present = match engine.change(present.number, next).await {
                Ok(EtcdChange::Made(version)) => version,
                Ok(EtcdChange::Refused(version)) => version.unwrap(),
                Ok(EtcdChange::Unknown(_)) | Err(_) => settled(&engine).await.unwrap(),
            };
        }

        let stopped_until = boot_ms();
        servers.signal(leader, Signal::CONT);
        match patient.await.unwrap() {
            Ok(shown) => {
                assert_eq!(shown.version, Some(present.clone()), "asked while it was stopped");
                assert!(shown.asked_at <= stopped_until, "a lease counts from the question");
            }
            // etcd may know already that another one leads: it then refuses what waits for it.
            Err(error) => assert!(error.to_string().contains("etcdserver:"), "{error}"),
        }
        let mut shown = 0;
        let begun = Instant::now();
        while shown < 20 {
            match alone.read().await {
                Ok(sight) => {
                    assert_eq!(sight.version, Some(present.clone()), "after it went on");
                    shown += 1;
                }
                Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
            }
        }
    });
}

#[test]
fn a_dead_endpoint_is_passed_over_and_without_a_quorum_an_error_comes_soon() {
    let Some(mut servers) = EtcdServers::start(3, &[]) else { return };
    let (leader, first) = (servers.leader(), state(0));
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    run(async {
        let (engine, quick) = (engine(servers.urls_from(one)), quick_engine(servers.urls_from(one)));
        let version = made(engine.create(first).await);
        assert_eq!(settled(&quick).await, Some(version.clone()));
        servers.kill(one);
        let begun = Instant::now();
        assert_eq!(settled(&quick).await, Some(version.clone()));
        check_within("a read past a dead endpoint", begun, READ_LIMIT);
        assert_eq!(sight(&engine).await.version, Some(version.clone()));
        let version = made(engine.change(version.number, state(1)).await);
        let dead = faults(&self::engine(vec![servers.url(one)])).await;
        assert!(matches!(dead[..], [EndpointFault::Unreachable(_)]), "{dead:?}");
        let change = self::engine(vec![servers.url(one)]).change(version.number, state(2)).await;
        assert!(matches!(change, Err(EtcdError::Unanswered { .. })), "nothing was sent: {change:?}");

        servers.kill(other);
        wait_until("the last server to know that it is alone", || {
            let status = servers.post(leader, "/v3/maintenance/status", &json!({}), None).unwrap().1;
            status.get("leader").is_none()
        });
        let begun = Instant::now();
        let alone = faults(&quick).await;
        check_within("an error without a quorum", begun, READ_LIMIT);
        assert_eq!(alone.len(), 3);
        let begun = Instant::now();
        match quick.change(version.number, state(2)).await {
            Ok(EtcdChange::Unknown(_)) | Err(EtcdError::Unanswered { .. }) => {}
            other => panic!("{other:?}"),
        }
        check_within("the end of a change without a quorum", begun, Duration::from_millis(3 * SHORT_LEASE_MS / 4));

        servers.begin(one);
        let present = settled(&engine).await.unwrap();
        assert!(present == version || present.state.change == 2, "the change may have been made later: {present:?}");
    });
}

#[test]
fn a_change_whose_answer_is_lost_is_unknown_and_a_read_tells() {
    let Some(servers) = EtcdServers::start(1, &[]) else { return };
    let network = Network::to(servers.port(0));
    run(async {
        let direct = engine(vec![servers.url(0)]);
        let distant = engine(vec![format!("http://127.0.0.1:{}", network.port())]);
        let first = made(direct.create(state(0)).await);
        assert_eq!(sight(&distant).await.version, Some(first.clone()));
        network.set(Toward::Client, Fault::BlackHole);
        let change = distant.change(first.number, state(1)).await;
        assert!(matches!(change, Ok(EtcdChange::Unknown(_))), "{change:?}");
        assert_eq!(sight(&direct).await.version.unwrap().state.change, 1, "it was made");
        network.set(Toward::Client, Fault::None);
        let present = settled(&distant).await.unwrap();
        network.refuse();
        let change = distant.change(present.number, state(2)).await;
        let is_lost = matches!(change, Ok(EtcdChange::Unknown(_)) | Err(EtcdError::Unanswered { .. }));
        assert!(is_lost, "a reset may meet the question on its way: {change:?}");
        let change = distant.change(present.number, state(2)).await;
        assert!(matches!(change, Err(EtcdError::Unanswered { .. })), "nobody takes it: {change:?}");
        assert_eq!(sight(&direct).await.version, Some(present));
    });
}

#[test]
fn a_value_that_is_no_state_is_an_error_that_names_the_key() {
    let Some(servers) = EtcdServers::start(1, &[]) else { return };
    run(async {
        let engine = engine(vec![servers.url(0)]);
        let version = made(engine.create(state(0)).await);
        let whole = servers.value(KEY);
        let strange: [(&[u8], &str); 5] = [
            (b"", "begins with another form"),
            (b"{\"leader\": \"patroni\"}", "begins with another form"),
            (b"\xff\xfe", "torn or damaged"),
            (&whole[..whole.len() - 2], "torn or damaged"),
            (&vec![b'x'; 200 << 10], "limit is"),
        ];
        for (value, why) in strange {
            servers.put(KEY, value);
            let changed = engine.change(version.number, state(1)).await.expect_err("a change");
            for error in [engine.read().await.expect_err("a read"), changed] {
                let text = error.to_string();
                assert!(matches!(error, EtcdError::Foreign { .. }), "{text}");
                assert!(text.contains(KEY) && text.contains(why) && text.contains("delete the key"), "{text}");
            }
        }
        servers.put(KEY, &vec![b'x'; 1 << 20]);
        assert!(matches!(faults(&engine).await[..], [EndpointFault::TooLong]));
        servers.put(KEY, &whole);
        assert_eq!(*sight(&engine).await.version.unwrap().state, state(0));
    });
}

#[test]
fn users_log_in_and_again_when_their_token_is_too_old() {
    let Some(servers) = EtcdServers::start(1, &["--auth-token-ttl", "1", "--bcrypt-cost", "4"]) else { return };
    let user = |name: &str, password: &str| Some(EtcdUser { name: name.to_owned(), password: password.to_owned().into() });
    let with =
        |user, key: &str| EtcdEngine::new(EtcdSettings { user, key: key.into(), ..settings(vec![servers.url(0)]) }).unwrap();
    run(async {
        let early = with(user("weir", "secret"), KEY);
        assert!(sight(&early).await.version.is_none(), "users are not asked for yet");
        enable_users(&servers);
        let version = made(early.create(state(0)).await);

        let engine = with(user("weir", "secret"), KEY);
        assert_eq!(sight(&engine).await.version, Some(version.clone()));
        let mut token = String::new();
        wait_until("a token to be used before it is too old", || {
            token = log_in(&servers);
            status_of_range(&servers, &token) == 200
        });
        wait_until("a token of that age to be refused", || {
            let_pass(Duration::from_secs(4));
            status_of_range(&servers, &token) == 401
        });
        assert_eq!(sight(&engine).await.version, Some(version.clone()));
        let_pass(Duration::from_secs(4));
        let version = made(engine.change(version.number, state(1)).await);
        assert_eq!(sight(&engine).await.version, Some(version));

        let wrong = with(user("weir", "guess"), KEY);
        for _ in 0..2 {
            let wrong = faults(&wrong).await;
            assert!(matches!(&wrong[..], [EndpointFault::Login(text)] if text.contains("authentication failed")), "{wrong:?}");
        }
        let nobody = faults(&with(None, KEY)).await;
        assert!(matches!(nobody[..], [EndpointFault::Login(_)]), "{nobody:?}");
        let foreign = faults(&with(user("weir", "secret"), KEY_OF_OTHERS)).await;
        assert!(matches!(foreign[..], [EndpointFault::Forbidden(_)]), "{foreign:?}");
        let change = with(user("weir", "secret"), KEY_OF_OTHERS).create(state(0)).await;
        assert!(matches!(change, Err(EtcdError::Unanswered { .. })), "nothing was made: {change:?}");
    });
}

/// Names the key of all tests, so that `faults` finds it.
const KEY_OF_OTHERS: &str = "/others/weir/shop";

fn enable_users(servers: &EtcdServers) {
    servers.must("/v3/auth/user/add", &json!({ "name": "root", "password": "root" }), None);
    servers.must("/v3/auth/role/add", &json!({ "name": "root" }), None);
    servers.must("/v3/auth/user/grant", &json!({ "user": "root", "role": "root" }), None);
    servers.must("/v3/auth/user/add", &json!({ "name": "weir", "password": "secret" }), None);
    servers.must("/v3/auth/role/add", &json!({ "name": "weir" }), None);
    let permission = json!({ "permType": "READWRITE", "key": encoded(KEY) });
    servers.must("/v3/auth/role/grant", &json!({ "name": "weir", "perm": permission }), None);
    servers.must("/v3/auth/user/grant", &json!({ "user": "weir", "role": "weir" }), None);
    servers.must("/v3/auth/enable", &json!({}), None);
}

fn log_in(servers: &EtcdServers) -> String {
    let answer = servers.must("/v3/auth/authenticate", &json!({ "name": "weir", "password": "secret" }), None);
    answer["token"].as_str().unwrap().to_owned()
}

fn status_of_range(servers: &EtcdServers, token: &str) -> u16 {
    let question: Value = json!({ "key": encoded(KEY) });
    servers.post(0, "/v3/kv/range", &question, Some(token)).unwrap().0
}

#[test]
fn endpoints_of_two_clusters_are_told_apart() {
    let (Some(mut one), Some(other)) = (EtcdServers::start(1, &[]), EtcdServers::start(1, &[])) else { return };
    run(async {
        let engine = engine(vec![one.url(0), other.url(0)]);
        made(engine.create(state(0)).await);
        one.kill(0);
        let faults = faults(&engine).await;
        // The connection of before may take the question and end with it.
        let is_told =
            matches!(faults[..], [EndpointFault::Unreachable(_) | EndpointFault::Lost(_), EndpointFault::OtherCluster { .. }]);
        assert!(is_told, "{faults:?}");
    });
}

#[test]
fn encrypted_servers_are_checked_against_the_authority_and_their_host() {
    let (folder, authority, stranger) = (Folder::new(), Authority::new("etcd"), Authority::new("another"));
    let (server, elsewhere) = (authority.server(), authority.sign(&[("CN", "etcd9")], &["etcd9.example"], 2));
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let [ca, other_ca] = [file("ca.pem", &authority.pem()), file("other.pem", &stranger.pem())];
    let [cert, key] = [file("server.pem", &server.cert), file("server.key", &server.key)];
    let [far_cert, far_key] = [file("far.pem", &elsewhere.cert), file("far.key", &elsewhere.key)];
    let own = OwnEtcdFiles { cert_file: cert.clone(), key_file: key.clone() };
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let start = |cert: &std::path::Path, key: &std::path::Path, more: &[&str]| {
        let files = [text(cert), text(key)];
        let mut options = vec!["--cert-file", files[0].as_str(), "--key-file", files[1].as_str()];
        options.extend(more);
        EtcdServers::start_encrypted(Folder::new(), &options)
    };
    let with = |endpoint: String, ca_file: &std::path::Path, own: Option<OwnEtcdFiles>| {
        let tls = EtcdTlsFiles { ca_file: Some(ca_file.to_owned()), own };
        EtcdEngine::new(EtcdSettings { tls, ..settings(vec![endpoint]) }).unwrap()
    };
    let Some(plain) = start(&cert, &key, &[]) else { return };
    let authorities = text(&ca);
    let Some(strict) = start(&cert, &key, &["--client-cert-auth", "--trusted-ca-file", &authorities]) else { return };
    let Some(far) = start(&far_cert, &far_key, &[]) else { return };
    run(async {
        let engine = with(plain.url(0), &ca, None);
        assert_eq!(settled(&engine).await, None);
        let version = made(engine.create(state(0)).await);
        assert_eq!(sight(&engine).await.version, Some(version));
        let by_name = with(plain.url(0).replace("127.0.0.1", "localhost"), &ca, None);
        assert!(sight(&by_name).await.version.is_some());

        let unknown = faults(&with(plain.url(0), &other_ca, None)).await;
        let says =
            |faults: &[EndpointFault], word: &str| matches!(faults, [EndpointFault::Encryption(text)] if text.contains(word));
        assert!(says(&unknown, "authorities"), "{unknown:?}");
        wait_until("the other server to listen", || TcpStream::connect(("127.0.0.1", far.port(0))).is_ok());
        let wrong_host = faults(&with(far.url(0), &ca, None)).await;
        assert!(says(&wrong_host, "etcd9.example"), "{wrong_host:?}");
        let plain_http = faults(&self::engine(vec![plain.url(0).replace("https", "http")])).await;
        assert!(matches!(plain_http[..], [EndpointFault::Lost(_) | EndpointFault::Foreign(_) | EndpointFault::Refused { .. }]));

        assert_eq!(settled(&with(strict.url(0), &ca, Some(own.clone()))).await, None);
        let unknown = faults(&with(strict.url(0), &ca, None)).await;
        assert!(matches!(unknown[..], [EndpointFault::Encryption(_) | EndpointFault::Lost(_)]), "{unknown:?}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let tls = EtcdTlsFiles { ca_file: Some(ca.clone()), own: Some(own) };
        let open = EtcdEngine::new(EtcdSettings { tls, ..settings(vec![strict.url(0)]) });
        assert!(open.err().unwrap().to_string().contains("group or world access"));
        let none = EtcdEngine::new(settings(vec![plain.url(0)])).err().unwrap().to_string();
        assert!(none.contains("authority must be named"), "{none}");
    });
}

/// A program on a port that is not etcd: says something to each that comes, for ever or once, or nothing.
#[derive(Clone, Copy)]
enum NoEtcd {
    Says(&'static str),
    SaysWithoutEnd(&'static str),
    Silent,
    HangsUp,
}

impl NoEtcd {
    /// Returns its endpoint. Its threads end with their connections.
    fn start(self) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || self.converse(stream));
            }
        });
        format!("http://127.0.0.1:{port}")
    }

    fn converse(self, mut stream: TcpStream) {
        let mut question = [0; 4096];
        let asked = stream.read(&mut question);
        match self {
            NoEtcd::HangsUp => return,
            NoEtcd::Silent => {}
            NoEtcd::Says(text) => drop(stream.write_all(text.as_bytes())),
            NoEtcd::SaysWithoutEnd(text) => {
                let _ = stream.write_all(text.as_bytes());
                let piece = [b' '; 16 << 10];
                while stream.write_all(&piece).is_ok() {}
            }
        }
        if asked.is_ok() {
            while stream.read(&mut question).is_ok_and(|bytes| bytes > 0) {}
        }
    }
}

fn check_no_etcd(lease_ms: u64, what: NoEtcd, expected: fn(&EndpointFault) -> bool) {
    run(async {
        let engine = EtcdEngine::new(EtcdSettings { lease_ms, ..settings(vec![what.start()]) }).unwrap();
        let begun = Instant::now();
        let faults = faults(&engine).await;
        check_within("an error", begun, Duration::from_millis(lease_ms / 4));
        assert!(matches!(&faults[..], [fault] if expected(fault)), "{faults:?}");
        match engine.change(VersionNumber { counter: 5, by: MemberId::default() }, state(1)).await {
            Ok(EtcdChange::Unknown(_)) | Err(EtcdError::Unanswered { .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn programs_that_are_not_etcd_are_told_by_what_they_say() {
    let is_foreign = |fault: &EndpointFault| matches!(fault, EndpointFault::Foreign(_));
    check_no_etcd(LEASE_MS, NoEtcd::Says("SSH-2.0-OpenSSH_9.2\r\n"), is_foreign);
    check_no_etcd(LEASE_MS, NoEtcd::Says("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"), is_foreign);
    check_no_etcd(LEASE_MS, NoEtcd::Says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), is_foreign);
    check_no_etcd(LEASE_MS, NoEtcd::Says("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"), is_foreign);
    check_no_etcd(LEASE_MS, NoEtcd::Says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), |fault| {
        matches!(fault, EndpointFault::NoGateway { .. })
    });
    check_no_etcd(SHORT_LEASE_MS, NoEtcd::Silent, |fault| matches!(fault, EndpointFault::Late { limit_ms: 500 }));
    check_no_etcd(LEASE_MS, NoEtcd::HangsUp, |fault| matches!(fault, EndpointFault::Lost(_)));
    check_no_etcd(SHORT_LEASE_MS, NoEtcd::Says("HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{"), |fault| {
        matches!(fault, EndpointFault::Late { .. })
    });
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{";
    check_no_etcd(LEASE_MS, NoEtcd::SaysWithoutEnd(endless), |fault| matches!(fault, EndpointFault::TooLong));
    let endless_head = "HTTP/1.1 200 OK\r\nX-More: ";
    check_no_etcd(LEASE_MS, NoEtcd::SaysWithoutEnd(endless_head), is_foreign);
}

#[test]
fn a_silent_endpoint_costs_a_read_a_short_while_and_later_reads_nothing() {
    let Some(servers) = EtcdServers::start(1, &[]) else { return };
    let long = |silent: String| EtcdSettings { lease_ms: 60_000, ..settings(vec![silent, servers.url(0)]) };
    run(async {
        let engine = EtcdEngine::new(long(NoEtcd::Silent.start())).unwrap();
        let begun = Instant::now();
        sight(&engine).await;
        assert!(begun.elapsed() >= Duration::from_millis(3_750), "a sixteenth of the lease: {:?}", begun.elapsed());
        check_within("an answer of the other endpoint", begun, Duration::from_millis(3_750));
        let begun = Instant::now();
        for _ in 0..20 {
            let before = boot_ms();
            assert!(sight(&engine).await.asked_at >= before, "the time of the question that was answered");
        }
        check_within("reads that ask the other endpoint at once", begun, Duration::ZERO);
        made(engine.create(state(0)).await);
    });
}
