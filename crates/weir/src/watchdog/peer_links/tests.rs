//! Several hosts in one process, over loopback: each test is a story on one thread, as the product's.

use super::*;
use crate::runtime::agent_line::{read_frame, write_frame};
use crate::watchdog::heard_copies::COPY_LIMIT;
use crate::watchdog::peer_handshake::{OutgoingSeals, admit, introduce};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::LocalSet;
use tokio::time::{interval, timeout};
use weir_config::Config;
use weir_demo::ReservedPort;
use weir_group::{
    GroupLead, GroupMembers, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberIntent, MemberRow, MessagePart,
    NodeSights, RegisterMessage, StateVersion, VersionNumber,
};

/// A busy machine may take so long for what takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);
const KEY: &str = "a secret of all hosts";

fn play(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(2 * LIMIT, story).await.expect("the story ends in time") });
}

fn log() -> Arc<ProxyLog> {
    Arc::new(ProxyLog::new(&Config::default().log).unwrap())
}

/// Ports of hosts 0, 1, …; each port is both for links and for datagrams.
fn ports(count: usize) -> Vec<ReservedPort> {
    (0..count).map(|_| ReservedPort::any().unwrap()).collect()
}

fn settings(own: u8, ports: &[ReservedPort], key: &str) -> PeerSettings {
    let host = |(number, port): (usize, &ReservedPort)| PeerHostSettings {
        number: number as u8,
        name: "127.0.0.1".into(),
        port: port.number(),
        heartbeat_names: vec![],
        heartbeat_port: port.number(),
    };
    let port = ports[usize::from(own)].number();
    PeerSettings {
        host: own,
        hosts: ports.iter().enumerate().map(host).collect(),
        listen_addresses: vec!["127.0.0.1".parse().unwrap()],
        listen_port: port,
        datagram_addresses: vec!["127.0.0.1".parse().unwrap()],
        datagram_port: port,
        key: PeerKey::new(key),
    }
}

struct TestHost {
    links: PeerLinks,
    events: mpsc::Receiver<PeerEvent>,
}

fn begin(settings: PeerSettings) -> TestHost {
    let (sender, events) = mpsc::channel(64);
    TestHost { links: PeerLinks::begin(settings, log(), sender).unwrap(), events }
}

impl TestHost {
    fn view(&self, host: u8) -> PeerLinkView {
        self.links.views().into_iter().find(|view| view.host == host).expect("it is configured")
    }

    fn is_up(&self, host: u8) -> bool {
        self.view(host).paths.iter().all(|path| path.is_up)
    }

    /// Takes what is there already.
    fn drain(&mut self) -> Vec<PeerEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    async fn hears(&mut self, what: &PeerEvent) {
        self.hears_until(what).await;
    }

    /// All that came up to this event.
    async fn hears_until(&mut self, what: &PeerEvent) -> Vec<PeerEvent> {
        let mut events = Vec::new();
        let heard = async {
            while events.last() != Some(what) {
                events.push(self.events.recv().await.expect("links live"));
            }
        };
        timeout(LIMIT, heard).await.unwrap_or_else(|_| panic!("not heard: {what:?}"));
        events
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut looks = interval(Duration::from_millis(10));
    let seen = async {
        while !is_so() {
            looks.tick().await;
        }
    };
    timeout(LIMIT, seen).await.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"));
}

fn member(host: u8) -> MemberId {
    MemberId { host, incarnation: 7 }
}

fn message(from: u8, part: MessagePart) -> GroupMessage {
    GroupMessage {
        group: None,
        from: member(from),
        to: None,
        led: (0, 0),
        obeyed: VersionNumber::default(),
        intent: MemberIntent::Serves,
        sights: NodeSights::default(),
        part,
        parameters: None,
        answered: None,
    }
}

/// Goes as a datagram too.
fn ask(from: u8, round: u64) -> GroupMessage {
    message(from, MessagePart::Register(RegisterMessage::Ask { round, known: VersionNumber::default() }))
}

/// Goes over links only.
fn accepted(from: u8, attempt: u64) -> GroupMessage {
    message(from, MessagePart::Register(RegisterMessage::Accepted { attempt }))
}

fn large(from: u8, counter: u64) -> GroupMessage {
    let row = MemberRow { id: member(0), priority: 1, duty: MemberDuty::Serves };
    let state = GroupState {
        group: member(0),
        change: counter,
        members: GroupMembers::of(vec![row], HalfVotes::TooFew),
        lost: [].into(),
        lead: GroupLead::Held(member(0)),
        term: 1,
        writes: GroupWrites::Closed { epoch: 1 },
        lease_ms: 2_000,
        failover: "\n".repeat(64 * 1024),
        decisions: vec![],
        former: Vec::new(),
    };
    let version = StateVersion { number: VersionNumber { counter, by: member(0) }, state: Arc::new(state) };
    message(from, MessagePart::Propose(version))
}

fn heard(message: &GroupMessage) -> PeerEvent {
    PeerEvent::Heard(Box::new(message.clone()))
}

fn count(events: &[PeerEvent], message: &GroupMessage) -> usize {
    events.iter().filter(|event| **event == heard(message)).count()
}

type SentPayloads = dyn Fn(&mut OutgoingSeals) -> Vec<Vec<u8>>;

/// A host that the test plays itself, linked to `port`.
async fn join(port: u16, own: u8, to: u8) -> (TcpStream, OutgoingSeals) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let seals = introduce(&mut stream, PeerKey::new(KEY).as_ref(), own, to).await.unwrap();
    (stream, seals)
}

#[test]
fn messages_arrive_both_ways_with_a_key_and_without() {
    for key in [KEY, ""] {
        play(async {
            let ports = ports(3);
            let mut hosts: Vec<TestHost> = (0..3).map(|own| begin(settings(own, &ports, key))).collect();
            until("links", || (0..3_u8).all(|own| (0..3).all(|to| to == own || hosts[usize::from(own)].is_up(to)))).await;
            for (from, to) in [(0_u8, 1_u8), (1, 0), (2, 0), (1, 2)] {
                for sent in [accepted(from, 3), large(from, 4), ask(from, 5)] {
                    hosts[usize::from(from)].links.send(to, &sent);
                    hosts[usize::from(to)].hears(&heard(&sent)).await;
                }
            }
            let asked = ask(0, 9);
            hosts[0].links.send(1, &asked);
            hosts[1].hears(&heard(&asked)).await;
            let number = VersionNumber::default();
            let shown = message(1, MessagePart::Register(RegisterMessage::Show { round: 9, number, newer: None }));
            hosts[1].links.send(0, &shown);
            hosts[0].hears(&heard(&shown)).await;
            let view = hosts[0].view(1);
            assert!(
                view.round_trip.is_some_and(|trip| trip < LIMIT) && view.heard_at.is_some() && view.incoming == 1,
                "{view:?}"
            );
            assert_eq!((view.dropped, view.refused), (0, 0));
        });
    }
}

#[test]
fn another_key_is_refused_and_both_sides_say_so() {
    play(async {
        let ports = ports(2);
        let mut one = begin(settings(0, &ports, KEY));
        let mut other = begin(settings(1, &ports, "another secret"));
        let fault = |host: &TestHost, of: u8| host.view(of).paths[0].fault.clone();
        let told = Some("it refused this host: it has another wd_authkey".to_owned());
        until("refusals", || fault(&one, 1) == told && fault(&other, 0) == told).await;
        let refusal = Some("127.0.0.1: it has another wd_authkey".to_owned());
        assert_eq!((one.links.last_refusal(), other.links.last_refusal()), (refusal.clone(), refusal));
        other.links.reconfigure(settings(1, &ports, "")).await.unwrap();
        let (needs, lacks) = ("it has a wd_authkey, and this host has none", "it has no wd_authkey, and this host has one");
        until("words", || fault(&one, 1).as_deref() == Some(lacks) && fault(&other, 0).as_deref() == Some(needs)).await;
        assert_eq!((one.drain(), other.drain()), (vec![], vec![]));
        other.links.reconfigure(settings(1, &ports, KEY)).await.unwrap();
        until("links", || one.is_up(1) && other.is_up(0)).await;
        one.links.send(1, &ask(0, 1));
        other.hears(&heard(&ask(0, 1))).await;
    });
}

#[test]
fn a_stranger_that_says_nothing_or_rubbish_or_half_a_frame_harms_nobody() {
    play(async {
        let ports = ports(2);
        let (one, mut other) = (begin(settings(0, &ports, KEY)), begin(settings(1, &ports, KEY)));
        until("the link", || one.is_up(1)).await;
        let place = ("127.0.0.1", ports[1].number());
        let mut silent = Vec::new();
        for at in 0..40 {
            let mut stranger = TcpStream::connect(place).await.unwrap();
            match at % 4 {
                0 => {}
                1 => stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap(),
                2 => stranger.write_all(&[0, 0, 0, 35, 1, 2]).await.unwrap(),
                _ => stranger.write_all(&[0, 0]).await.unwrap(),
            }
            silent.push(stranger);
        }
        one.links.send(1, &accepted(0, 1));
        other.hears(&heard(&accepted(0, 1))).await;
        let (_late, _) = join(ports[1].number(), 0, 1).await;
        for mut stranger in silent {
            let mut rest = Vec::new();
            // Closed or reset, but never left open.
            let _ = timeout(LIMIT, stranger.read_to_end(&mut rest)).await.expect("it is closed");
        }
        assert!(one.is_up(1), "its link was not among them");
    });
}

#[test]
fn a_host_that_sends_half_a_frame_or_of_another_host_or_a_newer_form_costs_its_link_alone() {
    play(async {
        let ports = ports(2);
        let (one, mut other) = (begin(settings(0, &ports, KEY)), begin(settings(1, &ports, KEY)));
        until("the link", || one.is_up(1)).await;
        let port = ports[1].number();
        // A newer form: the link stays.
        let (mut stream, mut seals) = join(port, 0, 1).await;
        let mut newer = ask(0, 1).to_bytes();
        newer[1] = 2;
        write_frame(&mut stream, &seals.frames.close(&newer)).await.unwrap();
        write_frame(&mut stream, &seals.frames.close(&ask(0, 2).to_bytes())).await.unwrap();
        other.hears(&heard(&ask(0, 2))).await;
        let told = other.view(0).last_error;
        assert_eq!(told.as_deref(), Some("it sent a message of form 2, the newest known here is 1: upgrade this host"));
        // A message of another host, a frame twice, a frame too long, rubbish in a frame.
        let ends: [(&str, &SentPayloads); 4] = [
            ("it sent a message of host 5", &|seals| vec![seals.frames.close(&ask(5, 3).to_bytes())]),
            ("it sent a frame that is not authentic", &|seals| vec![seals.frames.close(&ask(0, 3).to_bytes()); 2]),
            ("it sent a message ends too early", &|seals| vec![seals.frames.close(b"")]),
            ("it sent a frame that is not authentic", &|_| vec![b"rubbish".to_vec()]),
        ];
        for (expected, payloads) in ends {
            let (mut stream, mut seals) = join(port, 0, 1).await;
            for payload in payloads(&mut seals) {
                write_frame(&mut stream, &payload).await.unwrap();
            }
            assert_eq!(stream.read(&mut [0]).await.unwrap_or_default(), 0, "{expected}");
            until(expected, || other.view(0).last_error.as_deref() == Some(expected)).await;
        }
        let (mut stream, _) = join(port, 0, 1).await;
        stream.write_all(&[0xff; 4]).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_or_default(), 0, "a frame that is too long");
        let (mut half, _) = join(port, 0, 1).await;
        half.write_all(&[0, 0, 0, 99, 1]).await.unwrap();
        one.links.send(1, &accepted(0, 4));
        other.hears(&heard(&accepted(0, 4))).await;
        assert!(one.is_up(1));
        assert_eq!(half.read(&mut [0]).await.unwrap_or_default(), 0, "half a frame is not waited for without end");
    });
}

#[test]
fn a_host_that_stops_reading_loses_its_link_and_holds_up_nobody() {
    play(async {
        let mut ports = ports(3);
        let deaf = ports.remove(2);
        ports.push(ReservedPort::any().unwrap());
        let mut all = settings(0, &ports, KEY);
        all.hosts[2].port = deaf.number();
        let listener = TcpListener::bind(("127.0.0.1", deaf.number())).await.unwrap();
        let (one, mut other) = (begin(all), begin(settings(1, &ports, KEY)));
        let (mut stream, _) = listener.accept().await.unwrap();
        let _seals = admit(&mut stream, PeerKey::new(KEY).as_ref(), 2, |_| true).await.unwrap();
        until("links", || one.is_up(1) && one.is_up(2)).await;
        let mut at = 0;
        let full = "it takes no messages for 2000 ms";
        let mut looks = interval(Duration::from_millis(20));
        while one.view(2).paths[0].fault.as_deref() != Some(full) {
            at += 1;
            one.links.send(2, &large(0, at));
            one.links.send(1, &accepted(0, at));
            other.hears(&heard(&accepted(0, at))).await;
            looks.tick().await;
        }
        assert!(one.view(2).dropped > 0 && one.view(1).dropped == 0, "{:?}", one.links.views());
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seals = admit(&mut stream, PeerKey::new(KEY).as_ref(), 2, |_| true).await.unwrap();
        until("the link anew", || one.is_up(2)).await;
        one.links.send(2, &accepted(0, 1));
        let payload = read_frame(&mut stream, 1 << 20).await.unwrap();
        assert_eq!(GroupMessage::from_bytes(seals.frames.open(&payload).unwrap()), Ok(accepted(0, 1)), "nothing old is sent");
    });
}

#[test]
fn a_host_that_ends_is_reported_once_and_comes_back() {
    play(async {
        let ports = ports(2);
        let (mut one, other) = (begin(settings(0, &ports, KEY)), begin(settings(1, &ports, KEY)));
        until("the link", || other.is_up(0)).await;
        other.links.send(0, &accepted(1, 1));
        one.hears(&heard(&accepted(1, 1))).await;
        other.links.end().await;
        one.hears(&PeerEvent::LinkClosed { member: member(1) }).await;
        assert_eq!(one.view(1).incoming, 0);
        until("the loss of the link there", || !one.is_up(1)).await;
        let other = begin(settings(1, &ports, KEY));
        until("links anew", || other.is_up(0) && one.is_up(1)).await;
        other.links.send(0, &ask(1, 2));
        one.hears(&heard(&ask(1, 2))).await;
        assert!(!one.drain().contains(&PeerEvent::LinkClosed { member: member(1) }));
    });
}

#[test]
fn while_one_of_two_links_lives_no_end_is_reported() {
    play(async {
        let ports = ports(2);
        let mut one = begin(settings(0, &ports, KEY));
        let port = ports[0].number();
        let ((mut first, mut seals), (mut second, mut second_seals)) = (join(port, 1, 0).await, join(port, 1, 0).await);
        write_frame(&mut second, &second_seals.frames.close(&ask(1, 1).to_bytes())).await.unwrap();
        one.hears(&heard(&ask(1, 1))).await;
        until("links", || one.view(1).incoming == 2).await;
        drop(second);
        until("the end of one", || one.view(1).incoming == 1).await;
        write_frame(&mut first, &seals.frames.close(&ask(1, 2).to_bytes())).await.unwrap();
        assert_eq!(one.hears_until(&heard(&ask(1, 2))).await, [heard(&ask(1, 2))]);
        drop(first);
        one.hears(&PeerEvent::LinkClosed { member: member(1) }).await;
    });
}

/// Passes the bytes of links on, until it is dropped.
async fn forward(listener: TcpListener, to: u16) {
    let mut ways = tokio::task::JoinSet::new();
    loop {
        let (mut here, _) = listener.accept().await.unwrap();
        ways.spawn_local(async move {
            if let Ok(mut there) = TcpStream::connect(("127.0.0.1", to)).await {
                let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            }
        });
    }
}

#[test]
fn datagrams_alone_carry_reads_while_links_are_blocked() {
    play(async {
        let (ports, way) = (ports(2), ReservedPort::any().unwrap());
        let mut over = settings(0, &ports, KEY);
        over.hosts[1].port = way.number();
        let listener = TcpListener::bind(("127.0.0.1", way.number())).await.unwrap();
        let mut network = JoinSet::new();
        network.spawn_local(forward(listener, ports[1].number()));
        let (one, mut other) = (begin(over), begin(settings(1, &ports, KEY)));
        until("the link", || one.is_up(1)).await;
        one.links.send(1, &accepted(0, 1));
        other.hears(&heard(&accepted(0, 1))).await;
        network.shutdown().await;
        until("the loss of the link", || !one.is_up(1) && other.view(0).incoming == 0).await;
        other.drain();
        for round in 0..20 {
            one.links.send(1, &accepted(0, 2));
            one.links.send(1, &ask(0, round));
            other.hears(&heard(&ask(0, round))).await;
        }
        assert_eq!(count(&other.drain(), &accepted(0, 2)), 0, "the link was blocked indeed");
    });
}

#[test]
fn a_question_that_comes_over_a_link_and_as_a_datagram_is_heard_once() {
    play(async {
        let ports = ports(2);
        let (one, mut other) = (begin(settings(0, &ports, KEY)), begin(settings(1, &ports, KEY)));
        until("the link", || one.is_up(1)).await;
        let mut events = Vec::new();
        for round in 0..50 {
            one.links.send(1, &ask(0, round));
            events.extend(other.hears_until(&heard(&ask(0, round))).await);
        }
        // A copy that is late counts as news.
        assert!(events.len() < 75, "most of them once: {events:?}");
    });
}

#[test]
fn a_second_path_carries_all_when_the_first_is_gone() {
    play(async {
        let ports = ports(2);
        let mut two = settings(0, &ports, KEY);
        // The first name has nobody behind it.
        two.hosts[1].name = "127.0.0.9".into();
        two.hosts[1].heartbeat_names = vec!["127.0.0.9".into(), "127.0.0.1".into()];
        let (one, mut other) = (begin(two), begin(settings(1, &ports, KEY)));
        until("one link", || one.view(1).paths.iter().map(|path| path.is_up).eq([false, true])).await;
        for sent in [accepted(0, 1), ask(0, 2), large(0, 3)] {
            one.links.send(1, &sent);
            other.hears(&heard(&sent)).await;
        }
        let refused = one.view(1).paths[0].fault.clone().unwrap_or_default();
        assert!(refused.contains("refused"), "{refused}");
    });
}

#[test]
fn datagrams_that_are_repeated_sent_back_or_changed_are_refused() {
    for key in [KEY, ""] {
        play(async {
            let (ports, ear) = (ports(2), UdpSocket::bind("127.0.0.1:0").await.unwrap());
            let mut over = settings(0, &ports, key);
            over.hosts[1].heartbeat_port = ear.local_addr().unwrap().port();
            let (mut one, mut other) = (begin(over), begin(settings(1, &ports, key)));
            until("the link", || one.is_up(1)).await;
            let place = |host: usize| SocketAddr::from(([127, 0, 0, 1], ports[host].number()));
            let mut caught = Vec::new();
            for round in 0..3 {
                one.links.send(1, &ask(0, round));
                other.hears(&heard(&ask(0, round))).await;
                let mut datagram = vec![0; 2000];
                let bytes = ear.recv(&mut datagram).await.unwrap();
                datagram.truncate(bytes);
                caught.push(datagram);
            }
            let heard_at = Instant::now();
            until("copies to be news again", || heard_at.elapsed() > COPY_LIMIT).await;
            other.drain();
            let mut changed = caught[1].clone();
            let last = changed.len() - 1;
            changed[last] ^= 1;
            if key.is_empty() {
                // Without a key nothing tells a change from the original.
                changed.truncate(10);
            }
            // Loopback keeps the order: the last one says that all before it were looked at.
            for datagram in [&caught[0], &caught[0], &changed, &caught[1], &caught[1], &caught[0], &vec![0; 3], &caught[2]] {
                ear.send_to(datagram, place(1)).await.unwrap();
                ear.send_to(datagram, place(0)).await.unwrap();
            }
            let got = other.hears_until(&heard(&ask(0, 2))).await;
            assert_eq!(got, [0, 1, 2].map(|round| heard(&ask(0, round))), "nothing twice");
            assert_eq!(other.view(0).refused, u64::from(!key.is_empty()));
            // A datagram of the other side after the reflected ones.
            until("the link back", || other.is_up(0)).await;
            other.links.send(0, &ask(1, 7));
            let got = one.hears_until(&heard(&ask(1, 7))).await;
            assert_eq!(got, [heard(&ask(1, 7))], "none of its own came back");
        });
    }
}

#[test]
fn two_hosts_with_one_number_are_refused_and_both_say_so() {
    play(async {
        let ports = ports(2);
        let mut twin = settings(0, &ports, KEY);
        // A copy of pgpool_node_id on another machine, which takes the first host for another one.
        twin.listen_port = ports[1].number();
        twin.datagram_port = ports[1].number();
        twin.hosts = vec![PeerHostSettings { number: 1, port: ports[0].number(), ..twin.hosts[0].clone() }];
        let (mut one, mut other) = (begin(settings(0, &ports, KEY)), begin(twin));
        let told = "it refused this host: both have one number in their file pgpool_node_id";
        until("refusals", || {
            let fault = |host: &TestHost| host.view(1).paths[0].fault.clone();
            fault(&one).as_deref() == Some(told) && fault(&other).as_deref() == Some(told)
        })
        .await;
        let refusal = "127.0.0.1: it is host 0 too: two hosts have one number in their file pgpool_node_id";
        assert_eq!(one.links.last_refusal().as_deref(), Some(refusal));
        assert_eq!((one.drain(), other.drain()), (vec![], vec![]));
    });
}

#[test]
fn links_and_datagrams_go_over_ipv6_and_by_name() {
    play(async {
        let ports = ports(2);
        let six = |own: u8| {
            let mut six = settings(own, &ports, KEY);
            six.hosts.iter_mut().for_each(|host| host.name = "::1".into());
            six.listen_addresses = vec!["::1".parse().unwrap()];
            six.datagram_addresses = six.listen_addresses.clone();
            six
        };
        let (one, mut other) = (begin(six(0)), begin(six(1)));
        until("the link", || one.is_up(1)).await;
        assert_eq!(one.view(1).paths[0].place, format!("[::1]:{}", ports[1].number()));
        for sent in [accepted(0, 1), ask(0, 2)] {
            one.links.send(1, &sent);
            other.hears(&heard(&sent)).await;
        }
        // All of loopback without a key, by a name that the system looks up.
        let named = |own: u8| {
            let mut named = settings(own, &ports, "");
            named.hosts.iter_mut().for_each(|host| host.name = "localhost".into());
            (named.listen_addresses, named.datagram_addresses) = (vec![], vec![]);
            named
        };
        one.links.reconfigure(named(0)).await.unwrap();
        other.links.reconfigure(named(1)).await.unwrap();
        until("links by name", || one.is_up(1) && other.is_up(0)).await;
        one.links.send(1, &ask(0, 3));
        other.hears(&heard(&ask(0, 3))).await;
    });
}

#[test]
fn without_a_key_nobody_beyond_loopback_is_spoken_to_or_listened_to() {
    play(async {
        let ports = ports(2);
        let mut outside = settings(0, &ports, "");
        outside.hosts[1].name = "192.0.2.1".into();
        let one = begin(outside.clone());
        let told = "without wd_authkey only loopback addresses are used: set it on all hosts";
        until("the refusal", || one.view(1).paths[0].fault.as_deref() == Some(told)).await;
        outside.listen_addresses = vec!["0.0.0.0".parse().unwrap()];
        let refused = one.links.reconfigure(outside).await.err().map(|error| error.to_string());
        let place = format!("0.0.0.0:{}", ports[0].number());
        assert_eq!(
            refused,
            Some(format!("without wd_authkey the watchdog listens on loopback only, not on {place}: set wd_authkey"))
        );
        let other = begin(settings(1, &ports, ""));
        until("the link to what it listens on still", || other.is_up(0)).await;
    });
}

#[test]
fn a_reload_keeps_links_that_stay_the_same_and_ends_others() {
    play(async {
        let ports = ports(3);
        let (one, other) = (begin(settings(0, &ports, KEY)), begin(settings(1, &ports, KEY)));
        let third = begin(settings(2, &ports, KEY));
        until("links", || one.is_up(1) && one.is_up(2) && other.view(0).incoming == 1 && third.view(0).incoming == 1).await;
        let fewer = |own: u8| {
            let mut fewer = settings(own, &ports, KEY);
            fewer.hosts.truncate(2);
            fewer
        };
        one.links.reconfigure(fewer(0)).await.unwrap();
        let told = "it refused this host: this host is not configured there";
        until("the refusal", || third.view(0).paths[0].fault.as_deref() == Some(told)).await;
        assert!(one.is_up(1) && one.links.views().len() == 1);
        until("the end there", || third.view(0).incoming == 0).await;
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let holder = TcpListener::bind(taken).await.unwrap();
        let busy = PeerSettings { listen_port: taken.port(), ..fewer(0) };
        let refused = one.links.reconfigure(busy).await;
        assert!(matches!(refused, Err(PeerLinkError::Listen { place, .. }) if place == taken), "{refused:?}");
        drop(holder);
        one.links.reconfigure(settings(0, &ports, KEY)).await.unwrap();
        until("links anew", || one.is_up(2) && third.is_up(0)).await;
        one.links.end().await;
        TcpListener::bind(("127.0.0.1", ports[0].number())).await.map(drop).expect("the port is free");
    });
}
