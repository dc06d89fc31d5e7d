use super::*;
use crate::client_demands::{ClientTls, CommonMethod};
use std::collections::HashMap;

/// Reads files of these names and texts, `main` first, with the maps of `ident` if it is among them.
fn read(files: &[(&str, &str)]) -> (Option<HbaRuleSet>, Vec<String>) {
    let texts: HashMap<PathBuf, &str> = files.iter().map(|(name, text)| (PathBuf::from(name), *text)).collect();
    let mut file = |path: &Path| texts.get(path).map(|text| text.as_bytes().to_vec()).ok_or(LoadError::NotFound);
    let mut folder = |path: &Path| {
        let inside: Vec<PathBuf> = texts.keys().filter(|name| name.parent() == Some(path)).cloned().collect();
        if inside.is_empty() { Err(LoadError::NotFound) } else { Ok(inside) }
    };
    let mut loader = FileLoader { file: &mut file, folder: &mut folder };
    let ident = texts.contains_key(Path::new("ident")).then_some(Path::new("ident"));
    let (hba, problems) = HbaRuleSet::read(Path::new("main"), ident, &mut loader);
    (hba, problems.iter().map(ToString::to_string).collect())
}

/// One client in words: `local` or an address, then `user/database`, then further facts.
///
/// `groups=a,b`, `groups=?` (cannot be asked), `host=name`, `host=?`, `system=name`, `tls`, `cn=name`, `dn=name`, `physical`, `logical`.
fn decide(hba: &HbaRuleSet, client: &str) -> String {
    let mut words = client.split_whitespace();
    let origin = match words.next().unwrap() {
        "local" => ClientOrigin::Local,
        address => ClientOrigin::Address(address.parse().unwrap()),
    };
    let (user, database) = words.next().unwrap().split_once('/').unwrap();
    let mut groups = None;
    let networks = [
        IpNetwork::with_prefix("192.168.7.5".parse().unwrap(), 24).unwrap(),
        IpNetwork::with_prefix("fe80::5".parse().unwrap(), 64).unwrap(),
    ];
    let mut visit = LoginFacts {
        user,
        database,
        replication: ReplicationRequest::No,
        origin,
        tls: None,
        system_user: None,
        networks: &networks,
        groups: HbaFact::NotAsked,
        host: HbaFact::NotAsked,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("groups", "?") => visit.groups = HbaFact::Nothing,
            ("groups", list) => groups = Some(list.split(',').map(str::to_string).collect::<BTreeSet<_>>()),
            ("host", "?") => visit.host = HbaFact::Nothing,
            ("host", name) => visit.host = HbaFact::Is(name),
            ("tls", _) => visit.tls = Some(ClientTlsFacts::default()),
            ("cn", name) => visit.tls = Some(ClientTlsFacts { common_name: Some(name), ..ClientTlsFacts::default() }),
            ("dn", name) => visit.tls = Some(ClientTlsFacts { distinguished_name: Some(name), common_name: Some("-") }),
            ("system", name) => visit.system_user = Some(name),
            ("physical", _) => visit.replication = ReplicationRequest::Physical,
            ("logical", _) => visit.replication = ReplicationRequest::Logical,
            other => panic!("{other:?}"),
        }
    }
    if let Some(groups) = &groups {
        visit.groups = HbaFact::Is(groups);
    }
    match hba.decide(&visit) {
        HbaVerdict::Ask(question) => format!("ask {question:?}"),
        HbaVerdict::NoEntry => "no entry".into(),
        HbaVerdict::InDoubt(rule) => format!("in doubt {}", rule.line),
        HbaVerdict::Apply(rule) => {
            let certificate = match hba.accepts_outside_name(rule, &visit) {
                Some(true) => "",
                Some(false) => " wrong name",
                None => " ask Groups",
            };
            format!("{} {:?}{certificate}", rule.line, rule.method)
        }
    }
}

/// `cases`: one client per line, `->`, and the decision.
fn check_files(files: &[(&str, &str)], cases: &str) {
    let (hba, problems) = read(files);
    let hba = hba.unwrap_or_else(|| panic!("{problems:#?}"));
    for case in cases.lines().filter(|line| !line.trim().is_empty()) {
        let (client, expected) = case.split_once("->").unwrap();
        assert_eq!(decide(&hba, client), expected.trim(), "{client}");
    }
}

fn check(rules: &str, cases: &str) {
    check_files(&[("main", rules)], cases);
}

fn check_problems(files: &[(&str, &str)], expected: &[&str]) {
    let (hba, problems) = read(files);
    assert_eq!(problems, expected, "{files:?}");
    assert_eq!(hba.is_none(), expected.iter().any(|text| text.contains(": error: ")));
}

#[test]
fn the_first_rule_that_matches_counts_and_without_one_nobody_gets_in() {
    check(
        "# comment\n\nhost all joe 10.0.0.0/8 reject # not he\nhost db all 10.0.0.0/8 md5\nlocal all all trust\n",
        "10.1.2.3 joe/db -> 3 Reject
         10.1.2.3 ann/db -> 4 Md5
         10.1.2.3 ann/other -> no entry
         11.1.2.3 joe/db -> no entry
         local joe/db -> 5 Trust",
    );
}

#[test]
fn every_kind_of_connection_has_its_word() {
    check(
        "hostssl a all all trust\nhostnossl b all all trust\nhostgssenc c all all trust\nhostnogssenc d all all trust\n\
         host e all all trust\nlocal f all trust",
        "1.1.1.1 u/a -> no entry
         1.1.1.1 u/a tls -> 1 Trust
         1.1.1.1 u/b -> 2 Trust
         1.1.1.1 u/b tls -> no entry
         1.1.1.1 u/c -> no entry
         1.1.1.1 u/d -> 4 Trust
         1.1.1.1 u/e -> 5 Trust
         1.1.1.1 u/e tls -> 5 Trust
         1.1.1.1 u/f -> no entry
         local u/f -> 6 Trust
         local u/e -> no entry",
    );
}

#[test]
fn databases_are_names_keywords_patterns_and_lists() {
    check(
        "local a,b,\"c d\", e all trust\nlocal sameuser all md5\nlocal samerole all password\nlocal \"all\" all reject\n\
         local /^db[0-9]{2}$ all scram-sha-256\nlocal \"/^x,y\" all trust\n",
        "local u/a -> 1 Trust
         local u/c -> ask Groups
         local u/e -> 1 Trust
         local u/A groups=u -> no entry
         local u/u -> 2 Md5
         local u/staff groups=u,staff -> 3 Password
         local u/other groups=u,staff -> no entry
         local u/all groups=u -> 4 Reject
         local u/db12 groups=u -> 5 Scram
         local u/db123 groups=u -> no entry
         local u/x,yz groups=u -> 6 Trust
         local u/db12 groups=? -> in doubt 3
         local u/x groups=u -> no entry",
    );
    check("local samegroup all trust", "local u/staff groups=u,staff -> 1 Trust");
}

#[test]
fn users_are_names_groups_patterns_and_lists() {
    check(
        "local all joe,\"Jim Beam\" trust\nlocal all +staff,+\"two words\" md5\nlocal all \"+staff\" reject\nlocal all /^app_ password\n",
        "local joe/x -> 1 Trust
         local Jim/x -> ask Groups
         local ann/x groups=ann,staff -> 2 Md5
         local staff/x groups=staff -> 2 Md5
         local ann/x groups=ann -> no entry
         local ann/x groups=? -> in doubt 2
         local +staff/x groups=y -> 3 Reject
         local app_1/x groups=app_1 -> 4 Password
         local my_app_1/x groups=my_app_1 -> no entry",
    );
    check("local all joe,+staff trust\nlocal all all reject", "local joe/x -> 1 Trust\n local ann/x -> ask Groups");
    check("local all \"all\" trust\nlocal all ALL md5", "local all/x -> 1 Trust\n local ALL/x -> 2 Md5\n local u/x -> no entry");
}

#[test]
fn a_question_is_only_asked_when_its_answer_decides() {
    check(
        "host db +staff 10.0.0.0/8 trust\nhost db joe app.example.com trust\nhost all all 11.0.0.0/8 md5",
        "11.0.0.1 u/other -> 3 Md5
         10.0.0.1 u/db -> ask Groups
         11.0.0.1 u/db -> 3 Md5
         12.0.0.1 u/db -> no entry
         12.0.0.1 joe/db -> ask HostName
         12.0.0.1 joe/db host=? -> no entry
         12.0.0.1 joe/db host=app.example.com -> 2 Trust",
    );
}

#[test]
fn replication_is_a_keyword_that_all_does_not_include() {
    check(
        "local all joe trust\nlocal replication joe md5\nlocal \"replication\" ann reject",
        "local joe/joe -> 1 Trust
         local joe/joe physical -> 2 Md5
         local joe/db logical -> 1 Trust
         local ann/replication -> 3 Reject
         local ann/replication physical -> no entry",
    );
}

#[test]
fn addresses_are_ranges_masks_names_and_keywords() {
    check(
        "host a all 10.1.0.0/16 trust\nhost b all 10.2.0.0 255.255.0.0 trust\nhost c all ::1/128 trust\nhost d all fe80:: ffff:: trust\n\
         host e all samehost trust\nhost f all samenet trust\nhost g all 0.0.0.0/0 trust\nhost h all ::/0 trust\n\
         host i all App.Example.com trust\nhost j all .example.com trust\nhost k all 10.0.0.1/32 trust\nhost l all \"all\" trust\n\
         host m all 10.0.3.0 255.0.255.0 trust",
        "10.1.255.255 u/a -> 1 Trust
         10.2.0.0 u/a -> no entry
         10.2.9.9 u/b -> 2 Trust
         ::1 u/c -> 3 Trust
         ::2 u/c -> no entry
         0.0.0.1 u/c -> no entry
         fe80:1::9 u/d -> 4 Trust
         fe81::9 u/d -> no entry
         192.168.7.5 u/e -> 5 Trust
         192.168.7.6 u/e -> no entry
         192.168.7.6 u/f -> 6 Trust
         192.168.8.6 u/f -> no entry
         fe80::77 u/f -> 6 Trust
         9.9.9.9 u/g -> 7 Trust
         ::1 u/g -> no entry
         ::1 u/h -> 8 Trust
         1.1.1.1 u/h -> no entry
         1.1.1.1 u/i host=APP.example.com -> 9 Trust
         1.1.1.1 u/i host=xapp.example.com -> no entry
         1.1.1.1 u/j host=app.EXAMPLE.com -> 10 Trust
         1.1.1.1 u/j host=example.com -> no entry
         1.1.1.1 u/j host=.example.com -> no entry
         1.1.1.1 u/j host=badexample.com -> no entry
         10.0.0.1 u/k -> 11 Trust
         10.0.0.2 u/k -> no entry
         1.1.1.1 u/l host=all -> 12 Trust
         1.1.1.1 u/l host=other -> no entry
         10.99.3.200 u/m -> 13 Trust
         10.99.4.200 u/m -> no entry",
    );
}

#[test]
fn short_addresses_are_those_that_postgresql_takes() {
    check(
        "host a all 0/0 trust\nhost b all 10/8 trust\nhost c all 10.1.0/24 trust\nhost d all 10.1 255.255.255.255 trust\n\
         host e all 0x7f.1/32 trust\nhost f all 0 0 trust\nhost g all 010.0.0.0/8 trust\nhost h all 1.2.3.4.5 trust",
        "9.9.9.9 u/a -> 1 Trust
         ::1 u/a -> no entry
         0.0.0.10 u/b -> 2 Trust
         10.0.0.10 u/b -> no entry
         10.1.0.200 u/c -> 3 Trust
         10.1.1.0 u/c -> no entry
         10.0.0.1 u/d -> 4 Trust
         127.0.0.1 u/e -> 5 Trust
         9.9.9.9 u/f -> 6 Trust
         8.9.9.9 u/g -> 7 Trust
         1.2.3.4 u/h host=1.2.3.4.5 -> 8 Trust",
    );
}

#[test]
fn rules_that_believe_other_hosts_are_told_from_those_for_this_one() {
    for (rules, expected) in [
        ("local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all ::1/128 trust\nhost all all samehost trust", false),
        ("host all all 0/0 trust", true),
        ("hostssl all all all trust", true),
        ("host all all 10.0.0.0/8 scram-sha-256", false),
        ("hostssl all all all trust clientcert=verify-full", false),
        ("host all all localhost trust", false),
    ] {
        let mut file = |_: &Path| Ok(rules.as_bytes().to_vec());
        let mut folder = |_: &Path| Ok(Vec::new());
        let (hba, problems) = HbaRuleSet::read(Path::new("main"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
        assert_eq!(hba.map(|hba| hba.trusts_hosts()), Some(expected), "{rules}: {problems:?}");
    }
}

#[test]
fn rules_that_leave_passwords_to_the_servers_are_known() {
    for (rules, expected) in [
        ("local all all trust\nhost all all all scram-sha-256\nhost all all all md5", false),
        ("host all all all password known_users=1", false),
        ("local all all password", true),
        ("local all all password known_users=0", true),
        ("host all all all reject\nhost all all all password", true),
    ] {
        let mut file = |_: &Path| Ok(rules.as_bytes().to_vec());
        let mut folder = |_: &Path| Ok(Vec::new());
        let (hba, problems) = HbaRuleSet::read(Path::new("main"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
        assert_eq!(hba.map(|hba| hba.passes_passwords_on()), Some(expected), "{rules}: {problems:?}");
    }
}

#[test]
fn files_are_included_by_line_by_word_and_by_folder() {
    let files = [
        ("main", "include sub/a\ninclude_if_exists nothing\nlocal @dbs @sub/users md5\ninclude_dir conf.d\nlocal all all reject"),
        ("sub/a", "local first all trust\ninclude b"),
        ("sub/b", "local second all trust"),
        ("dbs", "x, y # two\n\n\"@z\"\n"),
        ("sub/users", "joe\n@more"),
        ("sub/more", "ann +staff"),
        ("conf.d/2.conf", "local late all scram-sha-256"),
        ("conf.d/1.conf", "local late joe password"),
        ("conf.d/.hidden.conf", "nonsense"),
        ("conf.d/readme", "nonsense"),
    ];
    check_files(
        &files,
        "local u/first -> 1 Trust
         local u/second -> 1 Trust
         local joe/x -> 3 Md5
         local ann/@z -> 3 Md5
         local bob/y groups=bob,staff -> 3 Md5
         local bob/y groups=bob -> 5 Reject
         local joe/late -> 1 Password
         local ann/late -> 1 Scram",
    );
    let (hba, _) = read(&files);
    let files: Vec<_> = hba.unwrap().rules.iter().map(|rule| rule.file.display().to_string()).collect();
    assert_eq!(files, ["sub/a", "sub/b", "main", "conf.d/1.conf", "conf.d/2.conf", "main"]);
}

#[test]
fn a_line_goes_on_behind_a_backslash_and_quotes_hold_anything() {
    check(
        "local a,\\\nb \\\nall trust\nlocal \"q\"\"q # , \" all md5\nlocal x\"y z\" all password\n\tlocal\tlast\tall\ttrust\r\n",
        "local u/b -> 1 Trust
         local u/a -> 1 Trust
         local u/last -> 6 Trust",
    );
    let (hba, _) = read(&[("main", "local \"q\"\"q # , \" all md5\nlocal x\"y z\" all password")]);
    let names: Vec<_> = hba.unwrap().rules.iter().map(|rule| format!("{:?}", rule.databases)).collect();
    assert_eq!(names, ["[Name(\"q\\\"q # , \")]", "[Name(\"xy z\")]"]);
}

#[test]
fn certificates_are_asked_for_by_method_or_by_option() {
    let rules = "hostssl a all all cert\nhostssl b all all cert map=m\nhostssl c all all trust clientcert=verify-ca\n\
                 hostssl d all all md5 clientcert=verify-full clientname=DN\nhostssl e all all cert map=g\nhost all all all reject";
    let ident = "m  boss  joe\nm /^(.*)@example\\.com$ \\1\nm /^any all\ng /x +staff\n";
    check_files(
        &[("main", rules), ("ident", ident)],
        "1.1.1.1 joe/a -> 6 Reject
         1.1.1.1 joe/a tls -> 1 Cert wrong name
         1.1.1.1 joe/a cn=joe -> 1 Cert
         1.1.1.1 joe/a cn=ann -> 1 Cert wrong name
         1.1.1.1 joe/b cn=boss -> 2 Cert
         1.1.1.1 ann/b cn=boss -> 2 Cert wrong name
         1.1.1.1 joe/b cn=joe -> 2 Cert wrong name
         1.1.1.1 ann/b cn=ann@example.com -> 2 Cert
         1.1.1.1 ann/b cn=joe@example.com -> 2 Cert wrong name
         1.1.1.1 ann/b cn=ann@example.org -> 2 Cert wrong name
         1.1.1.1 ann/b cn=anyone -> 2 Cert
         1.1.1.1 joe/c tls -> 3 Trust wrong name
         1.1.1.1 joe/c cn=other -> 3 Trust
         1.1.1.1 joe/d cn=joe -> 4 Md5 wrong name
         1.1.1.1 joe/d dn=joe -> 4 Md5
         1.1.1.1 joe/e cn=x -> 5 Cert ask Groups
         1.1.1.1 joe/e cn=x groups=joe,staff -> 5 Cert
         1.1.1.1 joe/e cn=x groups=joe -> 5 Cert wrong name
         1.1.1.1 joe/e cn=x groups=? -> 5 Cert wrong name",
    );
}

#[test]
fn a_unix_socket_shows_who_is_at_its_other_end() {
    let rules = "local a all peer\nlocal b all peer map=m\nlocal all all reject";
    check_files(
        &[("main", rules), ("ident", "m root joe\nm /^(.*)_os$ \\1")],
        "local joe/a system=joe -> 1 Peer
         local joe/a system=ann -> 1 Peer wrong name
         local joe/a -> 1 Peer wrong name
         local joe/b system=root -> 2 Peer
         local ann/b system=ann_os -> 2 Peer
         local joe/b system=joe -> 2 Peer wrong name
         1.1.1.1 joe/a system=joe -> no entry",
    );
}

/// One wrong file each, and its message.
const WRONG: &[(&str, &str)] = &[
    ("lokal all all trust", "main:1: error: invalid connection type \"lokal\""),
    ("local", "main:1: error: end-of-line before database specification"),
    ("local all", "main:1: error: end-of-line before role specification"),
    ("local all all", "main:1: error: end-of-line before authentication method"),
    ("host all all", "main:1: error: end-of-line before IP address specification"),
    (
        "host all all 10.0.0.1",
        "main:1: error: end-of-line before netmask specification (specify an address range in CIDR notation, \
             or provide a separate netmask)",
    ),
    ("host all all 10.0.0.1 trust", "main:1: error: invalid IP mask \"trust\""),
    ("host all all 10.0.0.0 ffff:: trust", "main:1: error: IP address and mask do not match: \"ffff::\""),
    ("host all all 10.0.0.0/33 trust", "main:1: error: invalid CIDR mask in address \"10.0.0.0/33\""),
    ("host all all 10.0.0.0/x trust", "main:1: error: invalid CIDR mask in address \"10.0.0.0/x\""),
    ("host all all 10.0.0.300/8 trust", "main:1: error: specifying both host name and CIDR mask is invalid: \"10.0.0.300/8\""),
    ("host all all a,b trust", "main:1: error: multiple values where one IP address specification is expected"),
    ("local all all trust,md5", "main:1: error: multiple values where one authentication method is expected"),
    ("local all all magic", "main:1: error: invalid authentication method \"magic\""),
    (
        "local all all radius radiusservers=x",
        "main:1: error: authentication method \"radius\" is not supported by this version; \
             use one of trust, reject, password, md5, scram-sha-256, cert, peer, ldap, pam",
    ),
    (
        "host all all all password pamservice=x",
        "main:1: error: authentication option \"pamservice\" is only valid for authentication methods pam",
    ),
    ("host all all all ldap", "main:1: error: authentication method \"ldap\" requires argument \"ldapserver\" to be set"),
    (
        "host all all all password ldapserver=x",
        "main:1: error: authentication option \"ldapserver\" is only valid for authentication methods ldap",
    ),
    ("host all all all peer", "main:1: error: peer authentication is only supported on local sockets"),
    ("host all all all cert", "main:1: error: cert authentication is only supported on hostssl connections"),
    ("local all all trust x", "main:1: error: authentication option not in name=value format: x"),
    ("local all all trust known_users=yes", "main:1: error: invalid value for known_users: \"yes\""),
    ("local all all trust x=y", "main:1: error: unrecognized authentication option name: \"x\""),
    (
        "local all all md5 map=m",
        "main:1: error: authentication option \"map\" is only valid for authentication methods peer and cert",
    ),
    ("host all all all md5 clientcert=verify-ca", "main:1: error: clientcert can only be configured for \"hostssl\" rows"),
    ("hostssl all all all md5 clientcert=1", "main:1: error: invalid value for clientcert: \"1\""),
    (
        "hostssl all all all cert clientcert=verify-ca",
        "main:1: error: clientcert only accepts \"verify-full\" when using \"cert\" authentication",
    ),
    ("hostssl all all all cert clientname=X", "main:1: error: invalid value for clientname: \"X\""),
    ("local /( all trust", "main:1: error: invalid regular expression \"(\": unclosed group"),
    ("\nlocal \"all all trust", "main:2: error: a quote is not closed"),
    ("local @nothing all trust", "main:1: error: could not open file \"nothing\": no such file"),
    ("include nothing", "main:1: error: could not open file \"nothing\": no such file"),
    ("include", "main:1: error: \"include\" needs exactly one name"),
    ("include_dir nothing", "main:1: error: could not open directory \"nothing\": no such directory"),
    ("local all all trust\ninclude main", "main:2: error: file \"main\" includes itself"),
    ("local @main all trust", "main:1: error: file \"main\" includes itself"),
    ("", "main: error: the file contains no entries"),
    ("# only this", "main: error: the file contains no entries"),
    ("hostgssenc all all all trust", "main:1: warning: hostgssenc matches no client: there is no GSSAPI encryption"),
    ("hostssl all all all cert map=m", "main:1: warning: no line of the ident file belongs to map \"m\", so that nobody matches"),
];

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    for (text, expected) in WRONG {
        check_problems(&[("main", text)], &[expected]);
    }
    check_problems(&[], &["main: error: could not open file \"main\": no such file"]);
    check_problems(
        &[("main", "local all all\nlocal all all trust\nhost all all 1.1.1.1/99 trust"), ("ident", "a b\na /( c\na /x \\1\n")],
        &[
            "main:1: error: end-of-line before authentication method",
            "main:3: error: invalid CIDR mask in address \"1.1.1.1/99\"",
            "ident:1: error: expected three fields: map name, system user name, database user name",
            "ident:2: error: invalid regular expression \"(\": unclosed group",
            "ident:3: error: \"\\1\" has \\1, but the regular expression has no subexpression",
        ],
    );
}

#[test]
fn bytes_that_are_no_text_are_an_error_of_their_line() {
    let mut file = |_: &Path| Ok(b"local all all trust\nlocal \xff all trust\n".to_vec());
    let mut folder = |_: &Path| Err(LoadError::NotFound);
    let (hba, problems) = HbaRuleSet::read(Path::new("f"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
    assert!(hba.is_none());
    assert_eq!(problems[0].to_string(), "f:2: error: byte 7 of the line is not valid utf-8");
}

#[test]
fn a_pam_rule_has_pgpools_service_unless_it_names_one() {
    let rules = "local a all pam\nlocal b all pam pamservice= pam_use_hostname=0\n\
        local c all pam pamservice=mine pam_use_hostname=1 backend_use_passwd=on\nlocal all all trust\n";
    let (hba, problems) = read(&[("main", rules)]);
    assert_eq!(problems, Vec::<String>::new());
    let services: Vec<Option<PamService>> = hba.unwrap().rules.iter().map(|rule| rule.service.as_deref().cloned()).collect();
    let plain = Some(PamService { name: "pgpool".into(), uses_host_name: false, is_password_for_servers: false });
    let mine = Some(PamService { name: "mine".into(), uses_host_name: true, is_password_for_servers: true });
    assert_eq!(services, [plain.clone(), plain, mine, None]);
}

/// The answer of rules under demands, to a client of TCP with or without TLS, or of the unix socket.
fn under(rules: &str, demands: ClientDemands, origin: ClientOrigin, tls: Option<ClientTlsFacts<'_>>) -> String {
    let mut file = |_: &Path| Ok(rules.as_bytes().to_vec());
    let mut folder = |_: &Path| Err(LoadError::NotFound);
    let (hba, problems) =
        HbaRuleSet::read_under(demands, Path::new("main"), None, &mut FileLoader { file: &mut file, folder: &mut folder });
    let Some(hba) = hba else { return problems[0].message.clone() };
    let visit = LoginFacts {
        user: "joe",
        database: "shop",
        replication: ReplicationRequest::No,
        origin,
        tls,
        system_user: None,
        networks: &[],
        groups: HbaFact::NotAsked,
        host: HbaFact::NotAsked,
    };
    match hba.decide(&visit) {
        HbaVerdict::Apply(rule) => format!("{}: {:?} {:?} {:?}", rule.line, rule.method, rule.admits, rule.certificate),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_parameter_names_the_method_of_rules_that_leave_it_to_that() {
    const RULES: &str = "local bad all reject\nlocal all all auth_type\nhost all all all auth_type\nhost all all all reject\nlocal all all peer\n";
    let tcp = ClientOrigin::Address("192.0.2.1".parse().unwrap());
    let ask = |method, origin, tls| under(RULES, ClientDemands { method, ..ClientDemands::default() }, origin, tls);
    let plain = |method| [ask(method, ClientOrigin::Local, None), ask(method, tcp, None)];
    assert_eq!(plain(CommonMethod::ByRules), ["5: Peer Anyone Any", "4: Reject Anyone Any"]);
    assert_eq!(plain(CommonMethod::Md5), ["2: Md5 Anyone Any", "3: Md5 Anyone Any"]);
    assert_eq!(plain(CommonMethod::Scram), ["2: Scram Anyone Any", "3: Scram Anyone Any"]);
    assert_eq!(plain(CommonMethod::Plain), ["2: Password KnownUsers Any", "3: Password KnownUsers Any"]);
    assert_eq!(plain(CommonMethod::Trust), ["2: Trust KnownUsers Any", "3: Trust KnownUsers Any"]);
    assert_eq!(plain(CommonMethod::Pam), ["2: Pam Anyone Any", "3: Pam Anyone Any"]);
    // Without TLS no rule fits, and those behind do not count.
    assert_eq!(plain(CommonMethod::Cert), ["2: Reject Anyone Any", "NoEntry"]);
    assert_eq!(ask(CommonMethod::Cert, tcp, Some(ClientTlsFacts::default())), "3: Cert KnownUsers VerifyFull");
}

#[test]
fn rules_that_leave_all_to_a_parameter_or_nothing_are_errors_where_nobody_would_decide() {
    let ask = |rules, method| under(rules, ClientDemands { method, ..ClientDemands::default() }, ClientOrigin::Local, None);
    assert!(ask("local all all auth_type\n", CommonMethod::ByRules).starts_with("auth_type is hba"));
    assert!(ask("local all all trust\n", CommonMethod::Md5).starts_with("auth_type names a method"));
    assert!(ask("local all all auth_type map=x\n", CommonMethod::Md5).contains("has no options"));
}

#[test]
fn a_parameter_asks_all_clients_over_tcp_for_tls() {
    const RULES: &str = "hostnossl all all all trust\nhost all all all md5\nlocal all all trust\n";
    let tcp = ClientOrigin::Address("192.0.2.1".parse().unwrap());
    let ask = |tls, origin, session| under(RULES, ClientDemands { tls, ..ClientDemands::default() }, origin, session);
    let all = |tls| [ask(tls, tcp, None), ask(tls, tcp, Some(ClientTlsFacts::default())), ask(tls, ClientOrigin::Local, None)];
    let local = "3: Trust Anyone Any";
    assert_eq!(all(ClientTls::Any), ["1: Trust Anyone Any", "2: Md5 Anyone Any", local]);
    assert_eq!(all(ClientTls::Required), ["1: Reject Anyone Any", "2: Md5 Anyone Any", local]);
    assert_eq!(all(ClientTls::Certified), ["1: Reject Anyone Any", "2: Md5 Anyone VerifyCa", local]);
}

#[test]
fn a_rule_for_clients_with_gss_encryption_becomes_none_for_others() {
    let tcp = ClientOrigin::Address("192.0.2.1".parse().unwrap());
    let ask = |rules, demands| under(rules, demands, tcp, Some(ClientTlsFacts::default()));
    for tls in [ClientTls::Any, ClientTls::Required, ClientTls::Certified] {
        let answer =
            ask("hostgssenc all all all trust\nhost all all all reject\n", ClientDemands { tls, ..ClientDemands::default() });
        assert!(answer.starts_with("2: Reject"), "{tls:?}: {answer}");
    }
    let cert = ClientDemands { method: CommonMethod::Cert, ..ClientDemands::default() };
    assert_eq!(ask("hostgssenc all all all auth_type\nhost all all all auth_type\n", cert), "2: Cert KnownUsers VerifyFull");
}
