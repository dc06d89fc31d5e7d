//! TLS with clients and with servers, as libpq and others speak it.

use super::auth::guarded;
use crate::support::certs::{Authority, Signed};
use crate::support::ground::{Owned, encrypted_cluster};
use crate::support::proxy::{Backend, Folder};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_demo::ReservedPort;

/// TLS settings of every proxy in these tests.
const TLS: &str = "ssl = on\nssl_cert = 'server.crt'\nssl_key = 'server.key'\n";

/// Before one server, with a certificate of this authority and more files beside it.
fn proxy_of(server: &weir_demo::Server, authority: &Authority, more: &str, files: &[(&str, &str)]) -> Proxy {
    let Signed { cert, key, .. } = authority.server();
    let ca = authority.pem();
    let own = [("server.crt", cert.as_str()), ("server.key", key.as_str()), ("ca.crt", ca.as_str())];
    let files: Vec<(&str, &str)> = own.into_iter().chain(files.iter().copied()).collect();
    Proxy::with_files(&[server], &format!("{TLS}{more}"), &files, &[])
}

/// Runs psql; its output, or its error. `FOLDER` stands for the proxy's folder.
fn psql(proxy: &Proxy, connection: &str, password: &str, commands: &[&str]) -> Result<String, String> {
    let folder = proxy.folder().display().to_string();
    let connection = format!("host=localhost hostaddr=127.0.0.1 port={} {connection}", proxy.port()).replace("FOLDER", &folder);
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", &connection]).env("PGPASSWORD", password).stdin(Stdio::null());
    for text in commands {
        command.args(["-c", &text.replace("FOLDER", &folder)]);
    }
    let output = command.output().expect("psql is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn check_refused(outcome: Result<String, String>, expected: &str) {
    let complaint = outcome.expect_err("psql should not get in");
    assert!(complaint.contains(expected), "expected \"{expected}\" in: {complaint}");
}

/// A TLS client that checks certificates by one authority.
type Client = StreamOwned<ClientConnection, TcpStream>;

fn over(stream: TcpStream, authority: &Authority, alpn: &[&[u8]]) -> Client {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(authority.client_config(alpn), name).unwrap(), stream)
}

/// Asks for TLS in PostgreSQL's way.
fn negotiated(proxy: &Proxy, authority: &Authority) -> Client {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    stream.write_all(&wire::ssl_request()).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"S");
    over(stream, authority, &[])
}

/// Begins with TLS at once.
fn direct(proxy: &Proxy, authority: &Authority, alpn: &[&[u8]]) -> Client {
    over(TcpStream::connect(("127.0.0.1", proxy.port())).unwrap(), authority, alpn)
}

/// One message: tag and body.
fn message(client: &mut Client) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    client.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    let mut body = vec![0; length];
    client.read_exact(&mut body).unwrap();
    (head[0], body)
}

/// Reads to ReadyForQuery; the tags, and bodies of key and rows.
fn until_ready(client: &mut Client) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    loop {
        let message = message(client);
        let is_last = message.0 == b'Z';
        messages.push(message);
        if is_last {
            return messages;
        }
    }
}

fn tags(messages: &[(u8, Vec<u8>)]) -> String {
    messages.iter().map(|(tag, _)| char::from(*tag)).collect()
}

fn log_in(mut client: Client, database: &str) -> Client {
    client.write_all(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", database)])).unwrap();
    until_ready(&mut client);
    client
}

#[test]
fn clients_have_tls_when_they_ask_for_it() {
    let ground = Ground::new();
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let proxy = proxy_of(ground.cluster.primary(), &authority, "", &[("other.crt", &other.pem())]);
    let user = format!("user=postgres dbname={}", ground.database);
    let ask = |more: &str| psql(&proxy, &format!("{user} {more}"), "", &["select 1", "\\conninfo"]);
    assert!(!ask("sslmode=disable").unwrap().contains("SSL"));
    for mode in ["require", "prefer", "verify-ca sslrootcert=FOLDER/ca.crt", "verify-full sslrootcert=FOLDER/ca.crt"] {
        let said = ask(&format!("sslmode={mode}")).unwrap();
        assert!(said.starts_with("1\n") && said.contains("SSL connection (protocol: TLSv1.3"), "{mode}: {said}");
    }
    let older = "sslmode=verify-full sslrootcert=FOLDER/ca.crt ssl_max_protocol_version=TLSv1.2";
    assert!(ask(older).unwrap().contains("protocol: TLSv1.2"));
    check_refused(ask("sslmode=verify-full sslrootcert=FOLDER/other.crt"), "certificate verify failed");
    wait_until("the refusal to be logged", || proxy.log().contains("could not begin TLS: "));
    assert!(proxy.metric("tls_clients_total") >= 5 && proxy.metric("tls_failed_total") == 1);
    // Unix sockets have none, and GSS encryption is declined.
    let mut unix = Raw::unix(proxy.folder(), proxy.port());
    unix.send(&wire::ssl_request());
    assert_eq!(unix.read_bytes(1), b"N");
    let mut gss = Raw::tcp(proxy.port());
    gss.send(&wire::gss_request());
    assert_eq!(gss.read_bytes(1), b"N");
    gss.send(&wire::ssl_request());
    assert_eq!(gss.read_bytes(1), b"S");
}

#[test]
fn direct_tls_must_name_the_protocol() {
    let ground = Ground::new();
    let authority = Authority::new("ours");
    let proxy = proxy_of(ground.cluster.primary(), &authority, "", &[]);
    let mut client = log_in(direct(&proxy, &authority, &[b"postgresql"]), &ground.database);
    client.write_all(&wire::query("select 1")).unwrap();
    assert_eq!(tags(&until_ready(&mut client)), "TDCZ");
    let mut nameless = direct(&proxy, &authority, &[]);
    nameless.write_all(&wire::startup(wire::V3_0, &[("user", "postgres")])).unwrap();
    let (tag, body) = message(&mut nameless);
    assert!(tag == b'E' && String::from_utf8_lossy(&body).contains("ALPN"), "{}", body.escape_ascii());
    let refused = direct(&proxy, &authority, &[b"http/1.1"]).write_all(b"x").unwrap_err().to_string();
    assert!(refused.contains("NoApplicationProtocol"), "{refused}");
}

#[test]
fn pipelines_and_cancel_requests_pass_as_without_tls() {
    let ground = Ground::new();
    let authority = Authority::new("ours");
    let proxy = proxy_of(ground.cluster.primary(), &authority, "", &[]);
    let mut client = negotiated(&proxy, &authority);
    client.write_all(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", &ground.database)])).unwrap();
    let greeting = until_ready(&mut client);
    let (_, key) = greeting.iter().find(|(tag, _)| *tag == b'K').unwrap();
    let mut batch = Vec::new();
    for _ in 0..500 {
        batch.extend(wire::unnamed("select $1::text", &["x"]));
        batch.extend(wire::sync());
    }
    client.write_all(&batch).unwrap();
    for _ in 0..500 {
        assert_eq!(tags(&until_ready(&mut client)), "12DCZ");
    }
    client.write_all(&wire::query("select pg_sleep(50)")).unwrap();
    let text = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    wait_until("the query to run", || ground.direct().value(text) == "1");
    let (pid, key) = key.split_first_chunk::<4>().unwrap();
    let mut line = negotiated(&proxy, &authority);
    line.write_all(&wire::cancel(u32::from_be_bytes(*pid), key)).unwrap();
    assert_eq!(tags(&until_ready(&mut client)), "TEZ");
    client.write_all(&wire::terminate()).unwrap();
    let mut rest = Vec::new();
    // The end is announced within TLS: without that, this would be an error.
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

/// Rules that let the tests' own `postgres` in, then these.
fn rules(more: &str) -> String {
    format!("local all postgres trust\nhost all postgres 127.0.0.1/32 trust\n{more}\n")
}

#[test]
fn rules_see_encryption_and_certificates() {
    let cluster = guarded();
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let (anna, crook) = (authority.sign(&[("O", "Acme, Inc"), ("CN", "anna")], &[], 7), other.sign(&[("CN", "anna")], &[], 8));
    let (mapped, revoked) = (authority.sign(&[("CN", "worker 7")], &[], 9), authority.sign(&[("CN", "anna")], &[], 10));
    let hba = rules(
        "hostnossl all old all reject\nhostssl all old all trust\nhostssl all guest all cert map=workers\n\
         hostssl template1 anna all cert clientname=DN map=names\nhostssl all anna all cert\nhost all anna all reject\n\
         hostssl all check all trust clientcert=verify-ca",
    );
    let maps = "workers \"/^worker \\d+$\" guest\nnames \"CN=anna,O=Acme\\, Inc\" anna\n";
    let crl = authority.revoke(&[revoked.serial]);
    let mut files = vec![("pool_hba.conf", hba.as_str()), ("pool_ident.conf", maps), ("crl.pem", crl.as_str())];
    files.push(("pool_passwd", "anna:secret of anna\nold:secret of old\ncheck:secret of check\n"));
    let signed = [("anna", &anna), ("crook", &crook), ("mapped", &mapped), ("revoked", &revoked)];
    let names: Vec<[String; 2]> = signed.iter().map(|(name, _)| [format!("{name}.crt"), format!("{name}.key")]).collect();
    for ((_, signed), [cert, key]) in signed.iter().zip(&names) {
        files.extend([(cert.as_str(), signed.cert.as_str()), (key.as_str(), signed.key.as_str())]);
    }
    let more = "enable_pool_hba = on\nssl_ca_cert = 'ca.crt'\nssl_crl_file = 'crl.pem'\n";
    let proxy = proxy_of(cluster.primary(), &authority, more, &files);
    let ask = |user: &str, database: &str, certificate: &str| {
        let shown = match certificate {
            "" => "sslcert=none sslkey=none".to_string(),
            name => format!("sslcert=FOLDER/{name}.crt sslkey=FOLDER/{name}.key"),
        };
        let connection = format!("user={user} dbname={database} sslmode=require {shown}");
        psql(&proxy, &connection, "", &["select current_user"])
    };
    assert_eq!(ask("old", "postgres", ""), Ok("old".into()));
    check_refused(psql(&proxy, "user=old dbname=postgres sslmode=disable", "", &["select 1"]), "no encryption");
    assert_eq!(ask("anna", "postgres", "anna"), Ok("anna".into()));
    assert_eq!(ask("anna", "template1", "anna"), Ok("anna".into()), "by distinguished name");
    check_refused(ask("anna", "template1", "mapped"), "certificate authentication failed for user \"anna\"");
    check_refused(ask("anna", "postgres", ""), "certificate authentication failed for user \"anna\"");
    check_refused(ask("anna", "postgres", "mapped"), "certificate authentication failed for user \"anna\"");
    assert_eq!(ask("guest", "postgres", "mapped"), Ok("guest".into()));
    assert_eq!(ask("check", "postgres", "mapped"), Ok("check".into()));
    check_refused(ask("check", "postgres", ""), "certificate authentication failed for user \"check\"");
    // A client with a certificate of an unknown authority, or a revoked one, does not come as far as a login.
    check_refused(ask("old", "postgres", "crook"), "SSL error: tlsv1 alert unknown ca");
    check_refused(ask("old", "postgres", "revoked"), "alert certificate revoked");
}

#[test]
fn logins_are_bound_to_the_channel() {
    let cluster = guarded();
    let authority = Authority::new("ours");
    let proxy = proxy_of(cluster.primary(), &authority, "", &[("pool_passwd", "anna:secret of anna\n")]);
    let ask = |more: &str, password: &str| {
        psql(&proxy, &format!("user=anna dbname=postgres {more}"), password, &["select current_user"])
    };
    for more in ["sslmode=require channel_binding=require", "sslmode=require channel_binding=disable", "sslmode=disable"] {
        assert_eq!(ask(more, "secret of anna"), Ok("anna".into()), "{more}");
    }
    check_refused(ask("sslmode=disable channel_binding=require", "secret of anna"), "channel binding");
    check_refused(ask("sslmode=require channel_binding=require", "wrong"), "password authentication failed");
    // An attacker who takes the better mechanism out of the offer is found out by the client's word that it could.
    let mut line = negotiated(&proxy, &authority);
    line.write_all(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "postgres")])).unwrap();
    let (_, offer) = message(&mut line);
    assert_eq!(&offer[4..], b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let first = b"y,,n=,r=abcdefghijklmnopqrstuvwx";
    let body = [&b"SCRAM-SHA-256\0"[..], &(first.len() as u32).to_be_bytes(), first].concat();
    line.write_all(&wire::message(b'p', &body)).unwrap();
    let (tag, body) = message(&mut line);
    assert!(tag == b'E' && String::from_utf8_lossy(&body).contains("channel binding"), "{}", body.escape_ascii());
}

/// A server that takes `anna` by SCRAM over TLS only, and `postgres` in any case.
fn encrypted_server(signed: &Signed) -> Owned {
    let hba_lines =
        ["host all postgres samehost trust", "hostnossl all anna samehost reject", "hostssl all anna samehost scram-sha-256"];
    encrypted_cluster(signed, &hba_lines)
}

const IS_ENCRYPTED: &str = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";

#[test]
fn servers_are_reached_by_tls_as_backend_sslmode_says() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    // A name only where PostgreSQL's own instructions put it.
    let cluster = encrypted_server(&authority.sign(&[("CN", "127.0.0.1")], &[], 2));
    let files = [("ca.crt", authority.pem()), ("other.crt", other.pem()), ("pool_passwd", "anna:secret of anna\n".to_string())];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let proxy = Proxy::with_files(&[cluster.primary()], "pool_wait_timeout = 5\n", &files, &[]);
    let ask = || {
        let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).map_err(|failure| failure.message)?;
        Ok::<String, String>(client.value(IS_ENCRYPTED))
    };
    let anna = || psql(&proxy, "user=anna dbname=postgres", "secret of anna", &[IS_ENCRYPTED]);
    let set = |lines: &str| {
        proxy.add_conf(lines);
        proxy.reload();
    };
    assert_eq!(ask(), Ok("f".into()), "no TLS without being told");
    assert!(anna().is_err());
    let cases = [
        ("allow", "f", Ok("t")),
        ("prefer", "t", Ok("t")),
        ("require", "t", Ok("t")),
        ("disable", "f", Err(())),
        ("verify-ca'\nbackend_sslrootcert = 'ca.crt", "t", Ok("t")),
        ("verify-full", "t", Ok("t")),
    ];
    for (mode, of_postgres, of_anna) in cases {
        set(&format!("backend_sslmode = '{mode}'"));
        assert_eq!(ask().as_deref(), Ok(of_postgres), "{mode}");
        assert_eq!(anna().as_deref().map_err(|_| ()), of_anna, "{mode}");
    }
    set("backend_channel_binding = require");
    assert_eq!(anna(), Ok("t".into()));
    check_refused(psql(&proxy, "user=postgres dbname=postgres", "", &["select 1"]), "");
    set("backend_channel_binding = prefer\nbackend_sslrootcert = 'other.crt'");
    assert!(anna().is_err());
    let said = |text: &str| proxy.log().contains(text);
    wait_until("the reason to be logged", || said("no TLS connection to node 0") && said("is signed by none of the authorities"));
    set("backend_sslmode0 = 'require'\nbackend_sslrootcert = ''");
    assert_eq!(ask(), Ok("t".into()), "the node's own mode counts");
    set("ssl_ca_cert = 'other.crt'");
    assert!(anna().is_err(), "servers are checked by the authorities of clients");
    set("backend_sslrootcert = 'none'");
    assert_eq!(anna(), Ok("t".into()), "unless they are checked by none");
}

#[test]
fn connections_that_end_leave_no_complaint_in_the_servers_log() {
    let authority = Authority::new("ours");
    let cluster = encrypted_server(&authority.server());
    let server = cluster.primary();
    let more = "backend_sslmode = require\nsr_check_period = 1\nhealth_check_period = 1\nhealth_check_user = 'postgres'\n\
                connection_life_time = 1\nclient_idle_limit = 1\nadmin_users = 'postgres'\n";
    let mut proxy = Proxy::with_files(&[server], more, &[], &[]);
    let ask = || {
        let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
        (client.value(IS_ENCRYPTED), client.value("select pg_backend_pid()"))
    };
    let (is_encrypted, first) = ask();
    assert_eq!(is_encrypted, "t");
    // The server connection is old enough, and another one takes its place.
    wait_until("the connection to be closed", || ask().1 != first);
    let looks = || proxy.console().rows("SHOW pool_health_check_stats")[0][7].parse::<u32>().unwrap_or_default();
    wait_until("some looks", || looks() > 3);
    proxy.signal(rustix::process::Signal::INT);
    assert!(proxy.wait_end().success());
    let others = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
    wait_until("the server to see all off", || server.value(others).unwrap() == "0");
    let log = server.log();
    assert!(!log.contains("could not receive data"), "{log}");
    assert!(!log.contains("SSL error"), "{log}");
}

#[test]
fn a_server_with_another_name_passes_verify_ca_but_not_verify_full() {
    let authority = Authority::new("ours");
    let cluster = encrypted_server(&authority.sign(&[("CN", "127.0.0.1")], &["elsewhere.example"], 3));
    let files = [("ca.crt", authority.pem()), ("pool_passwd", "anna:secret of anna\n".to_string())];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let more = "backend_sslmode = 'verify-ca'\nbackend_sslrootcert = 'ca.crt'\npool_wait_timeout = 2\n";
    let proxy = Proxy::with_files(&[cluster.primary()], more, &files, &[]);
    let anna = || psql(&proxy, "user=anna dbname=postgres", "secret of anna", &[IS_ENCRYPTED]);
    assert_eq!(anna(), Ok("t".into()));
    proxy.add_conf("backend_sslmode = 'verify-full'");
    proxy.reload();
    assert!(anna().is_err());
    wait_until("the reason to be logged", || proxy.log().contains("not valid for name \"127.0.0.1\""));
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_in_words_with_advice_that_helps() {
    let authority = Authority::new("ours");
    let cluster = encrypted_server(&authority.server());
    let server = cluster.primary();
    for (ca, words) in [
        (Authority::new("theirs"), "the certificate is signed by none of the authorities"),
        (Authority::new("ours"), "the authority that the certificate names as its issuer has not signed it"),
    ] {
        let more =
            "backend_sslmode = 'verify-ca'\nbackend_sslrootcert = 'ca.crt'\nfailover_wait = 1\nsr_check_user = 'postgres'\n";
        let backends = [Backend::tcp(server.port(), 1)];
        let proxy = Proxy::spawn_with_files(&backends, more, &[("ca.crt", &ca.pem())], &[]);
        proxy.wait_accepting();
        let place = format!("node 0 (127.0.0.1:{})", server.port());
        wait_until("the reason to be logged", || proxy.log().contains(&format!("{place} is down: no TLS connection: {words}")));
        let refused = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap_err();
        let body = format!("{refused:?}");
        assert!(!body.contains("node 0: node 0"), "{body}");
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", "--connect", "-f"]).arg(proxy.conf_path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said
            .lines()
            .find(|line| line.starts_with("node 0: error: no login as sr_check_user: "))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(words) && line.contains("; look at backend_sslmode") && !line.contains("firewall"), "{line}");
    }
}

/// Runs openssl in a folder.
fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().expect("openssl is installed");
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// As PostgreSQL's manual makes it, section "Creating Certificates".
#[test]
fn a_server_is_trusted_by_its_own_certificate() {
    let folder = Folder::new();
    openssl(&folder.0, "req -new -x509 -days 10 -nodes -out self.crt -keyout self.key -subj /CN=127.0.0.1");
    let (cert, key) = (read(&folder.0, "self.crt"), read(&folder.0, "self.key"));
    let cluster = encrypted_server(&Signed { cert: cert.clone(), key, serial: 0 });
    let more = "backend_sslmode = 'verify-full'\nbackend_sslrootcert = 'self.crt'\n";
    let proxy = Proxy::with_files(&[cluster.primary()], more, &[("self.crt", &cert)], &[]);
    let ask = || psql(&proxy, "user=postgres dbname=postgres sslmode=disable", "", &[IS_ENCRYPTED]);
    assert_eq!(ask(), Ok("t".into()));
    // An equal name and issuer, another key.
    openssl(&folder.0, "req -new -x509 -days 10 -nodes -out other.crt -keyout other.key -subj /CN=127.0.0.1");
    proxy.write_file("self.crt", &read(&folder.0, "other.crt"));
    proxy.add_conf("pool_wait_timeout = 2");
    proxy.reload();
    assert!(ask().is_err());
    wait_until("the reason to be logged", || proxy.log().contains("no TLS connection to node 0"));
}

#[test]
fn certificates_of_version_1_serve_where_nobody_has_to_check_them() {
    let folder = Folder::new();
    openssl(&folder.0, "req -new -x509 -days 10 -nodes -out ca.crt -keyout ca.key -subj /CN=authority");
    openssl(&folder.0, "req -new -nodes -out v1.csr -keyout v1.key -subj /CN=localhost");
    // Without extensions the version is 1; newer programs add some unless they are told not to.
    fs::write(folder.0.join("none"), "").unwrap();
    openssl(&folder.0, "x509 -req -in v1.csr -days 10 -CA ca.crt -CAkey ca.key -CAcreateserial -extfile none -out v1.crt");
    let (cert, key, ca) = (read(&folder.0, "v1.crt"), read(&folder.0, "v1.key"), read(&folder.0, "ca.crt"));
    let cluster = encrypted_server(&Signed { cert: cert.clone(), key: key.clone(), serial: 0 });
    let files = [("server.crt", cert.as_str()), ("server.key", key.as_str()), ("ca.crt", ca.as_str())];
    let more = format!("{TLS}backend_sslmode = 'require'\npool_wait_timeout = 2\n");
    let proxy = Proxy::with_files(&[cluster.primary()], &more, &files, &[]);
    let ask = || {
        let connection = "user=postgres dbname=postgres sslmode=verify-full sslrootcert=FOLDER/ca.crt";
        psql(&proxy, connection, "", &[IS_ENCRYPTED])
    };
    assert_eq!(ask(), Ok("t".into()));
    proxy.add_conf("backend_sslrootcert = 'ca.crt'");
    proxy.reload();
    assert!(ask().is_err());
    wait_until("the reason to be logged", || proxy.log().contains("it must be of X.509 version 3"));
}

#[test]
fn much_is_copied_both_ways_over_tls_on_both_sides() {
    let authority = Authority::new("ours");
    let cluster = encrypted_server(&authority.server());
    let more = "backend_sslmode = 'verify-full'\nssl_ca_cert = 'ca.crt'\n";
    let proxy = proxy_of(cluster.primary(), &authority, more, &[]);
    let row = "x".repeat(999);
    let text: String = (0..50_000).map(|_| row.clone() + "\n").collect();
    proxy.write_file("in", &text);
    let commands = ["create table t (a text)", "\\copy t from 'FOLDER/in'", "\\copy t to 'FOLDER/out'", "select count(*) from t"];
    let connection = "user=postgres dbname=postgres sslmode=verify-full sslrootcert=FOLDER/ca.crt";
    assert_eq!(psql(&proxy, connection, "", &commands), Ok("50000".into()));
    assert!(fs::read_to_string(proxy.folder().join("out")).unwrap() == text, "what came back is not what was sent");
    assert_eq!(psql(&proxy, connection, "", &[IS_ENCRYPTED]), Ok("t".into()));
}

#[test]
fn a_slow_reader_over_tls_fills_no_memory() {
    let ground = Ground::new();
    let authority = Authority::new("ours");
    let proxy = proxy_of(ground.cluster.primary(), &authority, "", &[]);
    let mut client = log_in(negotiated(&proxy, &authority), &ground.database);
    let before = proxy.rss_kb();
    client.write_all(&wire::query("select repeat('x', 1000) from generate_series(1, 200000)")).unwrap();
    assert_eq!(message(&mut client).0, b'T');
    // The server stops because nobody takes its rows.
    let text = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'";
    wait_until("the server to wait", || ground.direct().value(text) == "1");
    assert!(proxy.rss_kb() < before + 8_000, "{} kB before, {} kB now", before, proxy.rss_kb());
    assert_eq!(until_ready(&mut client).iter().filter(|(tag, _)| *tag == b'D').count(), 200_000);
    assert!(proxy.peak_kb() < before + 12_000, "{} kB before, {} kB at most", before, proxy.peak_kb());
}

#[test]
fn certificates_are_read_again_at_a_reload_and_wrong_ones_change_nothing() {
    let ground = Ground::new();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let Signed { cert, key, .. } = new.server();
    let metrics = ReservedPort::any().unwrap();
    let more = format!("metrics_listen_addresses = '127.0.0.1'\nmetrics_port = {}\n", metrics.number());
    let proxy = proxy_of(ground.cluster.primary(), &old, &more, &[("new.crt", &new.pem())]);
    let file = proxy.folder().join("server.crt");
    let until = || {
        super::monitoring::get(metrics.number(), "/metrics").1.lines().find_map(|line| {
            let rest = line.strip_prefix(&format!("weir_certificate_end_time_seconds{{file=\"{}\"}} ", file.display()))?;
            rest.parse::<u64>().ok()
        })
    };
    let end = format!("@{}", until().expect("the end of the certificate is a metric"));
    let said = Command::new("openssl").args(["x509", "-noout", "-enddate", "-in"]).arg(&file).output().unwrap();
    let by_date = Command::new("date").args(["-u", "-d", &end, "+notAfter=%b %e %T %Y GMT"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&by_date.stdout));
    let ask = |root: &str| {
        let connection = format!("user=postgres dbname={} sslmode=verify-full sslrootcert=FOLDER/{root}.crt", ground.database);
        psql(&proxy, &connection, "", &["select 1"])
    };
    let mut earlier = log_in(negotiated(&proxy, &old), &ground.database);
    assert_eq!(ask("ca"), Ok("1".into()));
    proxy.write_file("server.crt", &cert);
    proxy.reload();
    assert!(proxy.log().contains("is not the key of the certificate in"), "{}", proxy.log());
    assert_eq!(ask("ca"), Ok("1".into()), "a wrong file changes nothing");
    proxy.write_file("server.key", &key);
    proxy.reload();
    assert_eq!(ask("new"), Ok("1".into()));
    check_refused(ask("ca"), "certificate verify failed");
    fs::set_permissions(proxy.folder().join("server.key"), fs::Permissions::from_mode(0o644)).unwrap();
    proxy.reload();
    assert!(proxy.log().contains("private key has group or world access"), "{}", proxy.log());
    assert_eq!(ask("new"), Ok("1".into()));
    earlier.write_all(&wire::query("select 1")).unwrap();
    assert_eq!(tags(&until_ready(&mut earlier)), "TDCZ", "who is in stays in");
}

#[test]
fn the_console_turns_tls_on_and_off() {
    let ground = Ground::new();
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let proxy = proxy_of(ground.cluster.primary(), &authority, "", &[("other.crt", &other.pem())]);
    let mut console = crate::support::Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let ask = |how: &str| psql(&proxy, &format!("user=postgres dbname={} {how}", ground.database), "", &["select 1"]);
    console.run("SET client_tls_sslmode = disable");
    check_refused(ask("sslmode=require"), "server does not support SSL");
    console.run("SET client_tls_sslmode = allow");
    // Certificates are read again, and a wrong one changes nothing.
    let failure = console.error("SET client_tls_cert_file = 'none.crt'");
    assert!(failure.sqlstate == "22023" && failure.message.contains("none.crt"), "{failure:?}");
    assert_eq!(ask("sslmode=verify-full sslrootcert=FOLDER/ca.crt"), Ok("1".into()));
    // Towards the server, which has no TLS.
    console.run("SET server_tls_sslmode = require");
    assert!(ask("connect_timeout=5").is_err(), "the server has no TLS");
    console.run("SET server_tls_sslmode = disable");
    assert_eq!(ask("sslmode=require"), Ok("1".into()));
    let answer = console.query("SET client_tls_sslmode = verify-full");
    assert!(String::from_utf8_lossy(&answer[0].body).contains("enable_pool_hba is off"), "{answer:?}");
}

#[test]
fn an_encrypted_key_is_opened_by_what_a_command_prints() {
    let ground = Ground::new();
    let authority = Authority::new("ours");
    let folder = Folder::new();
    let Signed { cert, key, .. } = authority.server();
    let (plain, sealed): (PathBuf, PathBuf) = (folder.0.join("plain"), folder.0.join("sealed"));
    fs::write(&plain, key).unwrap();
    let arguments = ["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-passout", "pass:open sesame", "-in"];
    let status = Command::new("openssl").args(arguments).arg(&plain).arg("-out").arg(&sealed).status().unwrap();
    assert!(status.success());
    let sealed = fs::read_to_string(&sealed).unwrap();
    let files = [("server.crt", cert.as_str()), ("server.key", sealed.as_str())];
    let more = format!("{TLS}ssl_passphrase_command = 'printf \"open %%s\\n\" sesame # %p'\n");
    let proxy = Proxy::with_files(&[ground.cluster.primary()], &more, &files, &[]);
    let connection = format!("user=postgres dbname={} sslmode=require", ground.database);
    assert_eq!(psql(&proxy, &connection, "", &["select 1"]), Ok("1".into()));
    proxy.add_conf("ssl_passphrase_command = 'echo wrong'");
    proxy.reload();
    assert!(proxy.log().contains("cannot be decrypted with what ssl_passphrase_command printed"), "{}", proxy.log());
    assert_eq!(psql(&proxy, &connection, "", &["select 1"]), Ok("1".into()));
}

/// Bytes that the proxy sends until it closes, or fails.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    // A reset counts as an end: some bytes were not read any more.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn garbage_and_half_handshakes_harm_nobody() {
    let ground = Ground::new();
    let authority = Authority::new("ours");
    let proxy = proxy_of(ground.cluster.primary(), &authority, "authentication_timeout = 2\n", &[]);
    let connect = || TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(authority.client_config(&[b"postgresql"]), ServerName::try_from("localhost").unwrap())
        .unwrap()
        .write_tls(&mut hello)
        .unwrap();
    // Garbage within a handshake, garbage for records, a record of every length, a hello that is cut off, one twice.
    let mut twice = hello.clone();
    twice.extend(&hello);
    let mut bent = hello.clone();
    bent[hello.len() / 2] ^= 0xff;
    let long = [&[0x16, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat();
    for bytes in [&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0][..], &[0x16; 600], &[0x16, 0, 0, 0, 0], &long, &twice, &bent] {
        let mut stream = connect();
        // It may be closed before all is sent.
        let _ = stream.write_all(bytes);
        rest(stream);
    }
    let mut cut = connect();
    cut.write_all(&hello[..hello.len() / 2]).unwrap();
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(rest(cut).len() < 20);
    // Slow ones end at the timeout, byte by byte or silent.
    let started = Instant::now();
    let (mut silent, mut slow) = (connect(), connect());
    silent.write_all(&wire::ssl_request()).unwrap();
    for byte in &hello[..hello.len() / 2] {
        slow.write_all(&[*byte]).unwrap();
    }
    assert_eq!(rest(silent), b"S");
    rest(slow);
    assert!(started.elapsed() >= Duration::from_secs(1) && started.elapsed() < Duration::from_secs(30));
    // Plain text behind the request would have been sent by somebody in between.
    let mut injected = connect();
    injected.write_all(&[wire::ssl_request(), wire::startup(wire::V3_0, &[("user", "postgres")])].concat()).unwrap();
    assert!(String::from_utf8_lossy(&rest(injected)).contains("unencrypted data"));
    // And others go on.
    let mut client = log_in(direct(&proxy, &authority, &[b"postgresql"]), &ground.database);
    client.write_all(&wire::query("select 1")).unwrap();
    assert_eq!(tags(&until_ready(&mut client)), "TDCZ");
    // Garbage in the middle of a session ends it, with an alert.
    client.sock.write_all(&[0x17, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]).unwrap();
    let mut byte = [0];
    assert!(client.read(&mut byte).is_err());
}
