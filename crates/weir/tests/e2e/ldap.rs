//! Passwords judged by a directory: method `ldap` of `pool_hba.conf`, before OpenLDAP's own server.
//!
//! Without `slapd` (Debian: slapd) these tests are left out.

use super::auth::guarded;
use crate::support::certs::Authority;
use crate::support::driver::{self, Login};
use crate::support::proxy::Folder;
use crate::support::time::check_within;
use crate::support::{Proxy, Raw, leave_out, wait_until, wire};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::ReservedPort;

const PROGRAM: &str = "/usr/sbin/slapd";

/// Entries of the directory. Both twins have one address.
const ENTRIES: &str = "\
dn: dc=example,dc=org\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n
dn: ou=people,dc=example,dc=org\nobjectClass: organizationalUnit\nou: people\n
dn: uid=anna,ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: anna\ncn: Anna A\nsn: A\nmail: a@example.org
userPassword: secret of anna\n
dn: uid=guest,ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: guest\ncn: guest\nsn: G\nmail: twin@example.org
userPassword: pässwörd 密\n
dn: uid=other,ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: other\ncn: other\nsn: O\nmail: twin@example.org
userPassword: other\n
dn: cn=finder,dc=example,dc=org\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: finder
userPassword: found\n";

/// A directory of a test's own.
struct Slapd {
    process: Child,
    plain: ReservedPort,
    tls: ReservedPort,
    authority: Authority,
    _folder: Folder,
}

impl Slapd {
    /// `None` where there is no such program.
    fn start() -> Option<Slapd> {
        if !Path::new(PROGRAM).exists() {
            leave_out(&format!("there is no {PROGRAM} (Debian: apt-get install slapd)"));
            return None;
        }
        let folder = Folder::new();
        let (plain, tls) = (ReservedPort::any().unwrap(), ReservedPort::any().unwrap());
        let authority = Authority::new("directory");
        let signed = authority.server();
        let write = |name: &str, text: &str| fs::write(folder.0.join(name), text).unwrap();
        write("cert.pem", &signed.cert);
        write("key.pem", &signed.key);
        write("entries.ldif", ENTRIES);
        fs::create_dir(folder.0.join("data")).unwrap();
        let at = folder.0.display();
        let schemas: String =
            ["core", "cosine", "inetorgperson"].map(|name| format!("include /etc/ldap/schema/{name}.schema\n")).concat();
        write(
            "slapd.conf",
            &format!(
                "{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {at}/pid\nargsfile {at}/args\n\
                 TLSCertificateFile {at}/cert.pem\nTLSCertificateKeyFile {at}/key.pem\ndatabase mdb\nmaxsize 10485760\n\
                 suffix \"dc=example,dc=org\"\nrootdn \"cn=admin,dc=example,dc=org\"\ndirectory {at}/data\n\
                 access to attrs=userPassword by anonymous auth by * none\n\
                 access to * by dn.exact=\"cn=finder,dc=example,dc=org\" read by anonymous auth by * none\n"
            ),
        );
        let conf = folder.0.join("slapd.conf");
        let conf = conf.to_str().unwrap();
        let entries = folder.0.join("entries.ldif");
        let tool = |arguments: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", PROGRAM]).args(arguments).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(fs::File::create(folder.0.join("slapd.log")).unwrap());
            command
        };
        let added = tool(&["-T", "add", "-f", conf, "-l", entries.to_str().unwrap()]).status().unwrap();
        assert!(added.success(), "{}", fs::read_to_string(folder.0.join("slapd.log")).unwrap_or_default());
        let urls = format!("ldap://127.0.0.1:{}/ ldaps://127.0.0.1:{}/", plain.number(), tls.number());
        let process = tool(&["-d", "0", "-f", conf, "-h", &urls]).spawn().unwrap();
        wait_until("the directory to listen", || TcpStream::connect(("127.0.0.1", tls.number())).is_ok());
        Some(Slapd { process, plain, tls, authority, _folder: folder })
    }

    fn freeze(&self, signal: rustix::process::Signal) {
        weir_demo::signal_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Weir with one rule for all but the tests' own user. Authorities to trust are named as for OpenLDAP's programs.
fn proxy(server: &weir_demo::Server, slapd: &Slapd, rule: &str, more: &str) -> Proxy {
    let rules = format!("local all postgres trust\nhost all postgres all trust\n{rule}\n");
    let authority = slapd.authority.pem();
    let files = [("pool_hba.conf", rules.as_str()), ("ca.pem", &authority), ("env", "LDAPTLS_CACERT=FOLDER/ca.pem\n")];
    Proxy::with_files(&[server], &format!("enable_pool_hba = on\nlogin_failure_limit = 0\n{more}"), &files, &[])
}

fn log_in(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

fn refused(user: &str) -> Result<String, String> {
    Err(format!("28000: LDAP authentication failed for user \"{user}\""))
}

#[test]
fn a_user_is_bound_by_his_name_between_prefix_and_suffix() {
    let Some(slapd) = Slapd::start() else { return };
    let cluster = guarded();
    let place = format!("ldapserver=127.0.0.1 ldapport={}", slapd.plain.number());
    let rule = format!("host all all all ldap {place} ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"");
    let proxy = proxy(cluster.primary(), &slapd, &rule, "");
    assert_eq!(log_in(&proxy, "guest", "pässwörd 密"), Ok("guest".into()));
    for (user, password) in [("guest", "wrong"), ("nobody", "pässwörd 密"), ("anna,x", "secret of anna")] {
        assert_eq!(log_in(&proxy, user, password), refused(user));
    }
    let mut silent = Raw::tcp(proxy.port());
    silent.send(&wire::startup(wire::V3_0, &[("user", "guest"), ("database", "postgres")]));
    assert_eq!(silent.read().body, [0, 0, 0, 3], "the password is asked for in clear text");
    // A directory would take it for nobody in particular, and let him in.
    silent.send(&wire::message(b'p', b"\0"));
    assert_eq!(silent.read().failure().message, "empty password returned by client");
    assert!(proxy.log().contains("is refused by the directory of"), "{}", proxy.log());
    assert!(!proxy.log().contains("pässwörd"), "passwords are not logged");
}

#[test]
fn a_user_is_searched_for_and_must_be_the_only_one_found() {
    let Some(slapd) = Slapd::start() else { return };
    let cluster = guarded();
    let port = slapd.plain.number();
    let by = "ldapbinddn=\"cn=finder,dc=example,dc=org\" ldapbindpasswd=found";
    let place = format!("ldapserver=\"127.0.0.1\" ldapport={port} ldapbasedn=\"dc=example,dc=org\"");
    let url = format!("ldapurl=\"ldap://127.0.0.1:{port}/ou=people,dc=example,dc=org?uid?one\"");
    let proxy = proxy(cluster.primary(), &slapd, &format!("host all all all ldap {place} {by}"), "");
    let with = |rule: &str| {
        proxy.write_file("pool_hba.conf", &format!("host all postgres all trust\nhost all all all ldap {rule}\n"));
        proxy.reload();
        [log_in(&proxy, "guest", "pässwörd 密"), log_in(&proxy, "guest", "wrong"), log_in(&proxy, "*", "pässwörd 密")]
    };
    let works = [Ok("guest".to_string()), refused("guest"), refused("*")];
    let fails = [refused("guest"), refused("guest"), refused("*")];
    assert_eq!(with(&format!("{place} {by}")), works);
    assert_eq!(with(&format!("{place} {by} ldapsearchattribute=cn")), works);
    assert_eq!(with(&format!("{place} {by} ldapsearchattribute=sn")), fails);
    assert_eq!(
        with(&format!("{place} {by} \"ldapsearchfilter=(&(objectClass=inetOrgPerson)(|(uid=$username)(sn=no)))\"")),
        works
    );
    assert_eq!(with(&format!("{url} {by}")), works);
    // Two have that address.
    assert_eq!(with(&format!("{place} {by} ldapsearchfilter=\"(mail=twin@example.org)\"")), fails);
    assert!(proxy.log().contains("returned several entries"), "{}", proxy.log());
    // A user who may not search cannot check anybody.
    let unchecked = "57P03: the password cannot be checked now";
    let wrong_finder = with(&format!("{place} ldapbinddn=\"cn=finder,dc=example,dc=org\" ldapbindpasswd=wrong"));
    assert_eq!(wrong_finder[0], Err(unchecked.into()));
    assert!(proxy.log().contains("could not perform initial LDAP bind"), "{}", proxy.log());
}

#[test]
fn a_directory_is_spoken_to_over_tls_if_its_certificate_is_right() {
    let Some(slapd) = Slapd::start() else { return };
    let cluster = guarded();
    let name = "ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"";
    let (plain, tls) = (slapd.plain.number(), slapd.tls.number());
    let rule = format!("ldapserver=127.0.0.1 ldapscheme=ldaps ldapport={tls} {name}");
    let proxy = proxy(cluster.primary(), &slapd, &format!("host all all all ldap {rule}"), "auth_cache_time = 0\n");
    let with = |rule: &str| {
        proxy.write_file("pool_hba.conf", &format!("host all postgres all trust\nhost all all all ldap {rule}\n"));
        proxy.reload();
        (log_in(&proxy, "guest", "pässwörd 密"), log_in(&proxy, "guest", "wrong"))
    };
    let works = (Ok("guest".to_string()), refused("guest"));
    assert_eq!(with(&rule), works);
    assert_eq!(with(&format!("ldapserver=localhost ldaptls=1 ldapport={plain} {name}")), works);
    proxy.write_file("ca.pem", &Authority::new("somebody else").pem());
    let unchecked: Result<String, String> = Err("57P03: the password cannot be checked now".into());
    assert_eq!(with(&rule), (unchecked.clone(), unchecked));
}

#[test]
fn a_directory_that_hangs_costs_a_login_its_time_and_others_nothing() {
    let Some(slapd) = Slapd::start() else { return };
    let cluster = guarded();
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = hole.local_addr().unwrap().port();
    let name = "ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"";
    let place = |port: u16| format!("ldapserver=127.0.0.1 ldapport={port} {name}");
    let rules = format!("host all guest all ldap {}\nhost all all all ldap {}", place(slapd.plain.number()), place(hanging));
    let proxy =
        proxy(cluster.primary(), &slapd, &rules, "auth_query_timeout = 1s\nauth_cache_time = 3600s\nworker_threads = 1\n");
    assert_eq!(log_in(&proxy, "guest", "pässwörd 密"), Ok("guest".into()));
    thread::scope(|scope| {
        let stuck: Vec<_> = (0..6)
            .map(|n| {
                scope.spawn({
                    let proxy = &proxy;
                    move || log_in(proxy, &format!("stuck{n}"), "x")
                })
            })
            .collect();
        let begun = Instant::now();
        let mut other = proxy.console();
        (0..20).for_each(|_| other.run("select 1"));
        check_within("others while the directory hangs", begun, Duration::ZERO);
        for login in stuck {
            assert_eq!(login.join().unwrap(), Err("57P03: the password cannot be checked now".into()));
        }
    });
    // An accepted password is believed for a while; a refused one is asked again.
    slapd.freeze(rustix::process::Signal::STOP);
    assert_eq!(log_in(&proxy, "guest", "pässwörd 密"), Ok("guest".into()));
    assert_eq!(log_in(&proxy, "guest", "wrong"), Err("57P03: the password cannot be checked now".into()));
    slapd.freeze(rustix::process::Signal::CONT);
    assert_eq!(log_in(&proxy, "guest", "wrong"), refused("guest"));
}

#[test]
fn servers_are_shown_the_directorys_password_only_if_the_rule_says_so() {
    let Some(slapd) = Slapd::start() else { return };
    let cluster = guarded();
    let rule = format!(
        "host all all all ldap ldapserver=\"127.0.0.1\" ldapport={} ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=org\"",
        slapd.plain.number()
    );
    let proxy = proxy(cluster.primary(), &slapd, &rule, "");
    // The server asks for SCRAM keys of the same password.
    assert!(log_in(&proxy, "anna", "secret of anna").unwrap_err().starts_with("28P01"));
    let forwards = format!("host all postgres all trust\n{rule} backend_use_passwd=1\n");
    proxy.write_file("pool_hba.conf", &forwards);
    proxy.reload();
    assert_eq!(log_in(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(log_in(&proxy, "anna", "wrong"), refused("anna"));
}
