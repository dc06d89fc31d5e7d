//! Stores of answers that are reached by TLS.

use super::cache::{is_hit, warm};
use super::store_cluster::Cluster;
use super::store_faults::wait_said;
use super::stores::{BOTH, Kind, Store};
use crate::support::certs::Authority;
use crate::support::proxy::Folder;
use crate::support::{Ground, Raw};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const READ: &str = "select count(*) from t";

/// The files of a store and of Weir, which have one authority.
struct Files {
    folder: Folder,
}

impl Files {
    /// The store's certificate is of this host.
    fn of(host: &str) -> Files {
        let (files, authority) = (Files { folder: Folder::new() }, Authority::new("the store's"));
        let put = |name: &str, text: &str, mode: u32| {
            fs::write(files.path(name), text).unwrap();
            fs::set_permissions(files.path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let (server, client) = (authority.sign(&[("CN", "store")], &[host], 1), authority.sign(&[("CN", "weir")], &[], 2));
        put("ca.crt", &authority.pem(), 0o644);
        put("other.crt", &Authority::new("another").pem(), 0o644);
        put("store.crt", &server.cert, 0o644);
        // memcached gives up root's rights before it reads.
        put("store.key", &server.key, 0o644);
        put("revoked.crl", &authority.revoke(&[server.serial]), 0o644);
        put("weir.crt", &client.cert, 0o644);
        put("weir.key", &client.key, 0o600);
        files
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    /// For the command line of Redis.
    fn redis(&self) -> Vec<String> {
        let file = |word: &str, name| [word.to_string(), self.path(name)];
        let all = [("--tls-cert-file", "store.crt"), ("--tls-key-file", "store.key"), ("--tls-ca-cert-file", "ca.crt")];
        all.iter().flat_map(|(word, name)| file(word, name)).collect()
    }

    /// A store that speaks nothing but TLS, with clients that have a certificate of its authority.
    fn start(&self, kind: Kind) -> Option<Store> {
        let (cert, key, ca) = (self.path("store.crt"), self.path("store.key"), self.path("ca.crt"));
        let files = format!("ssl_chain_cert={cert},ssl_key={key},ssl_ca_cert={ca},ssl_verify_mode=2");
        let own = self.redis();
        let words: Vec<&str> = match kind {
            Kind::Memcached => vec!["-Z", "-o", &files],
            Kind::Redis => ["--port", "0", "--tls-port", "PORT"].into_iter().chain(own.iter().map(String::as_str)).collect(),
        };
        Store::start_with(kind, &words)
    }

    /// Lines of a configuration; the name of a file stands for its path.
    fn lines(&self, lines: &[(&str, &str)]) -> String {
        let value = |value: &str| if value.contains('.') { self.path(value) } else { value.to_string() };
        lines.iter().map(|(name, word)| format!("memqcache_{name} = '{}'\n", value(word))).collect()
    }
}

const OWN: [(&str, &str); 2] = [("sslcert", "weir.crt"), ("sslkey", "weir.key")];

fn conf(mode: &'static str) -> Vec<(&'static str, &'static str)> {
    [&OWN[..], &[("sslmode", mode), ("sslrootcert", "ca.crt")]].concat()
}

#[test]
fn answers_are_kept_and_changed_behind_tls() {
    for kind in BOTH {
        let files = Files::of("127.0.0.1");
        let Some(store) = files.start(kind) else { return };
        let ground = Ground::new();
        // Longer than a record of TLS.
        ground.prepare("create table t as select 1 as a; create table wide as select repeat('x', 90000) as w");
        let of = |mode| ground.primary_proxy(&(store.own_conf() + &files.lines(&conf(mode))));
        for (mode, count) in [("verify-full", 1), ("require", 2)] {
            let proxy = of(mode);
            let (mut reader, mut writer): (Raw, Raw) = (ground.client(&proxy), ground.client(&proxy));
            assert_eq!(warm(&proxy, &mut reader, READ)[0][0], count.to_string());
            writer.run("insert into t values (2)");
            assert_eq!(reader.value(READ), (count + 1).to_string());
            assert_eq!(warm(&proxy, &mut reader, "select w from wide")[0][0].len(), 90_000);
        }
    }
}

#[test]
fn a_store_that_cannot_be_trusted_or_does_not_trust_us_is_missed_and_said_so() {
    for kind in BOTH {
        let files = Files::of("elsewhere");
        let Some(store) = files.start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let cases = [
            // It is in plain text that we would speak.
            (vec![("sslmode", "disable")], "speaks TLS or not as memqcache_sslmode says"),
            (
                [&OWN[..], &[("sslmode", "verify-ca"), ("sslrootcert", "other.crt")]].concat(),
                "is signed by none of the authorities",
            ),
            (conf("verify-full"), "elsewhere"),
            ([&conf("verify-ca")[..], &[("sslcrl", "revoked.crl")]].concat(), "the certificate is revoked"),
            // Without a certificate of ours.
            (vec![("sslmode", "require")], "does not serve as a store of answers: "),
        ];
        for (lines, said) in cases {
            let proxy = ground.primary_proxy(&(store.own_conf() + &files.lines(&lines)));
            let mut client = ground.client(&proxy);
            wait_said(&proxy, said);
            assert_eq!(client.value(READ), "1", "{lines:?}");
            assert!(!is_hit(&proxy, &mut client, READ), "{lines:?}");
        }
        // Nobody asked for the right name.
        let proxy = ground.primary_proxy(&(store.own_conf() + &files.lines(&conf("verify-ca"))));
        warm(&proxy, &mut ground.client(&proxy), READ);
    }
}

#[test]
fn a_cluster_is_reached_by_tls_at_all_its_masters() {
    let files = Files::of("127.0.0.1");
    let own = files.redis();
    let words = ["--tls-cluster", "yes", "--tls-replication", "yes"].into_iter().chain(own.iter().map(String::as_str));
    let Some(cluster) = Cluster::start_with(&words.collect::<Vec<_>>()) else { return };
    let ground = Ground::new();
    let tables: Vec<String> = (0..6).map(|at| format!("t{at}")).collect();
    tables.iter().for_each(|table| ground.prepare(&format!("create table {table} as select 1 as a")));
    let proxy = ground.primary_proxy(&(cluster.safe_conf() + &files.lines(&conf("verify-full"))));
    let mut client = ground.client(&proxy);
    for table in &tables {
        let read = format!("select count(*) from {table}");
        warm(&proxy, &mut client, &read);
        client.run(&format!("insert into {table} values (2)"));
        assert_eq!(client.value(&read), "2");
    }
    cluster.fill(&proxy, &mut client, "t0");
}
