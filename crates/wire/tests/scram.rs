//! SCRAM exchanges as seen from outside: known vectors, both sides against each other, and every way to get it wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use weir_wire::scram::{
    ClientSecret, ITERATIONS_MAX, MESSAGE_BYTES_MAX, SaltedKeys, ScramAcceptance, ScramBinding, ScramChallenge, ScramClient,
    ScramError, ScramNonce, ScramServer, ScramVerifier, ServerSecret, steady_salt,
};

const PASSWORD: &[u8] = b"pencil";
const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SALT: [u8; 16] = [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];

/// Section 3 of RFC 7677, but for the user name: PostgreSQL's clients leave it empty.
const RFC_CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const RFC_SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const RFC_CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const RFC_SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

/// Made by PostgreSQL 15, `CREATE ROLE ... PASSWORD E'...'`: password and `rolpassword`.
const MADE_BY_POSTGRESQL: &[(&str, &str)] = &[
    (
        "pencil",
        "SCRAM-SHA-256$4096:leQdBXsGN0raNXQe+oUl7w==$M5tTfGCGEtfnRAtc2TwAZvXIiy6vC0nqx+XZkXhQTPM=:4d4wVdgCVIEAoMp37qG30iu1OBhWgwmSHyaupBApu4E=",
    ),
    // Soft hyphen goes, the Roman nine becomes IX.
    (
        "I\u{ad}X \u{2168}",
        "SCRAM-SHA-256$4096:l0/pdpM/K1MFQAXVUULOig==$+6SZ7Ft5JdOr/+43lhSKU5mc/5gJA1kid11cTisYfbU=:qapsZpBa43vptbWDgOTaP7WGVblWutdxtYbVZpFcc1E=",
    ),
    // A control character is forbidden: used as it is.
    (
        "no\u{7}prohibit",
        "SCRAM-SHA-256$4096:AMXxUqhSiXLKNTuS39dT8Q==$y1sFuA4q3MJyYMjw/3rFuR4lpV5ubGrdZh8izpLh7Y8=:Psse/h5zLA7fCfroHRsydCEo1pmfNeLjhzQ7qU2d/JM=",
    ),
    (
        "\u{aa}\u{e9}",
        "SCRAM-SHA-256$4096:T7vku9VB6BojAVErFGiSDg==$O4/pVWkoKyyIo2GkpvCodSQZnku9vEqzhvjoTY0rsII=:0qi3whYR8JE1qIxzComoI/FzC5FIvTCzi5PpqoMghpg=",
    ),
    // Right-to-left text that ends in a digit.
    (
        "\u{627}1",
        "SCRAM-SHA-256$4096:i7uosNrRlRZIczRZSD6Qsw==$OyZ3/t7wjzgP6Y5bk6f8vUmAuR2mF45x//KQTw39V5w=:4TYfYH30Om63VsniVT8ILi4R6bE3V0y5xh3kVK3eKp0=",
    ),
    // Unassigned in Unicode 3.2.
    (
        "\u{221}x",
        "SCRAM-SHA-256$4096:YBrq7NtEv8d6mY8S8YYF9g==$Q0h3qdHej3EO47L8OjJodSlhYgGJhFl893AgNes+HAY=:/mkDItjREPVCvCWhKEiIO7gErVkGWF87wngeQx+Zpsw=",
    ),
    // Nothing is left after mapping.
    (
        "\u{ad}",
        "SCRAM-SHA-256$4096:LmpO/Ue+ZeBJtBpOC+BhAg==$aFJxDG0P+EQhlALi13ICFRHfyu8APYDjjob96+6ryuk=:cepIdBdrEbn2JY9jXtK4cj1Egn1qCLtD3d2Hskl/eP8=",
    ),
    // Forbidden before normalising, allowed after it; PostgreSQL looks before.
    (
        "x\u{340}y",
        "SCRAM-SHA-256$4096:Dp3UqWKQ6/4VkWXZZanrjg==$+ofbaFwnIBW0qIeo+fwwd2faYHIrFDQrCLnWJBBXz7c=:w1PZKw2t4/gKk3NPWtwvBJK7Vcnp7eVmqFRlfotD3LQ=",
    ),
    (
        "\u{212b}\u{a0}\u{2168}",
        "SCRAM-SHA-256$4096:bsqty3upBQQKadwJK7oFhg==$a/qWtdRXt5opKEH+nXHrCKpUy/ViHZvfboTTc24Iazg=:POGbfAQLbftUhdcMhHV0sXqyXCv0bGAfFsi92xOFbG0=",
    ),
    (
        "\u{627}\u{628}",
        "SCRAM-SHA-256$4096:cvcILb5wHmYEUn2ofCvVrA==$ssbX5fq+JRO3NGWGa4IGm4Qz58/iJxHrhCpnYh+TtWY=:XMK8J53Go802EtjCQDQafSSHAB++m0g20560sLQHS4M=",
    ),
    (
        "\u{627}a",
        "SCRAM-SHA-256$4096:bT6jCnQaJSVTl8cJeqh+lg==$RKw8DhfIC418CxwqyPjp22wyRkV8UpbS6FZkK04cr9Y=:n5ZlJdoNeu2aQOrWVnIeBqZxeztrbsGwydwiC67tW9s=",
    ),
];

fn client(secret: ClientSecret, binding: ScramBinding) -> (ScramClient, Vec<u8>) {
    ScramClient::new(secret, &ScramNonce::from_text(CLIENT_NONCE).unwrap(), binding)
}

fn password(text: &[u8]) -> ClientSecret {
    ClientSecret::Password(text.to_vec().into())
}

fn server(secret: ServerSecret, binding: ScramBinding) -> ScramServer {
    ScramServer::new(secret, ScramNonce::from_text(SERVER_NONCE).unwrap(), binding)
}

fn known() -> ServerSecret {
    ServerSecret::Known(verifier())
}

/// Deriving is slow without optimisation, so all tests share one.
fn verifier() -> ScramVerifier {
    ScramVerifier { iterations: 4096, salt: SALT.to_vec(), stored_key: rfc_keys().stored_key, server_key: rfc_keys().server_key }
}

fn rfc_keys() -> SaltedKeys {
    static KEYS: std::sync::OnceLock<SaltedKeys> = std::sync::OnceLock::new();
    KEYS.get_or_init(|| SaltedKeys::derive(PASSWORD, &SALT, 4096)).clone()
}

/// Runs a whole exchange and returns both sides' verdicts.
fn check_exchange(
    (mut client, first): (ScramClient, Vec<u8>),
    mut server: ScramServer,
) -> (Result<(), ScramError>, Result<ScramAcceptance, ScramError>) {
    let reply = match server.on_client_first(&first) {
        Ok(reply) => reply,
        Err(error) => return (Err(ScramError::OutOfOrder), Err(error)),
    };
    let answer = client.on_server_first(&reply).unwrap();
    match server.on_client_final(&answer) {
        Ok(accepted) => (client.on_server_final(&accepted.message), Ok(accepted)),
        Err(error) => (Err(ScramError::OutOfOrder), Err(error)),
    }
}

#[test]
fn the_server_follows_the_example_of_rfc_7677() {
    let mut server = server(known(), ScramBinding::None);
    assert_eq!(server.on_client_first(RFC_CLIENT_FIRST.as_bytes()).unwrap(), RFC_SERVER_FIRST.as_bytes());
    let accepted = server.on_client_final(RFC_CLIENT_FINAL.as_bytes()).unwrap();
    assert_eq!(accepted.message, RFC_SERVER_FINAL.as_bytes());
    assert_eq!(accepted.keys, rfc_keys());
}

#[test]
fn the_client_leaves_the_user_name_empty_and_otherwise_follows_the_rfc() {
    let (mut client, first) = client(password(PASSWORD), ScramBinding::None);
    assert_eq!(first, b"n,,n=,r=rOprNGfwEbeRWgbNEkqO");
    let answer = client.on_server_first(RFC_SERVER_FIRST.as_bytes()).unwrap();
    let before_proof = RFC_CLIENT_FINAL.split(",p=").next().unwrap();
    assert!(answer.starts_with(format!("{before_proof},p=").as_bytes()));
}

#[test]
fn verifiers_of_postgresql_fit_their_passwords() {
    for (text, stored) in MADE_BY_POSTGRESQL {
        let verifier = ScramVerifier::parse(stored.as_bytes()).unwrap();
        assert!(verifier.matches(text.as_bytes()), "{text:?}");
        assert_eq!(verifier.to_text().as_str(), *stored);
    }
    let (_, stored) = MADE_BY_POSTGRESQL[0];
    assert!(!ScramVerifier::parse(stored.as_bytes()).unwrap().matches(b"Pencil"));
}

#[test]
fn a_password_that_is_not_utf_8_is_used_as_it_is() {
    let verifier = ScramVerifier::from_password(b"caf\xe9", &SALT);
    assert!(verifier.matches(b"caf\xe9"));
    assert!(!verifier.matches("caf\u{fffd}".as_bytes()));
}

#[test]
fn a_client_with_the_password_gets_in_and_both_sides_have_the_same_keys() {
    let mut pair = client(password(PASSWORD), ScramBinding::None);
    let reply = server(known(), ScramBinding::None).on_client_first(&pair.1).unwrap();
    let challenge = pair.0.challenge(&reply).unwrap();
    assert_eq!((challenge.salt.as_slice(), challenge.iterations), (SALT.as_slice(), 4096));
    let mut server = server(known(), ScramBinding::None);
    server.on_client_first(&pair.1).unwrap();
    let answer = pair.0.on_server_first(&reply).unwrap();
    assert!(pair.0.keys().is_none(), "keys before the server has proved itself");
    let accepted = server.on_client_final(&answer).unwrap();
    pair.0.on_server_final(&accepted.message).unwrap();
    assert_eq!(pair.0.keys(), Some(&accepted.keys));
}

#[test]
fn keys_seen_in_a_login_are_enough_for_the_next_one() {
    let by_keys = || client(ClientSecret::Keys(rfc_keys()), ScramBinding::None);
    let (ours, theirs) = check_exchange(by_keys(), server(known(), ScramBinding::None));
    assert_eq!(ours, Ok(()));
    let passed_through = ClientSecret::Keys(theirs.unwrap().keys);
    let (ours, theirs) = check_exchange(client(passed_through, ScramBinding::None), server(known(), ScramBinding::None));
    assert!(ours.is_ok() && theirs.is_ok());
    let mut late = client(password(b"not this"), ScramBinding::None);
    late.0.use_keys(rfc_keys());
    assert!(check_exchange(late, server(known(), ScramBinding::None)).1.is_ok());
}

fn unknown(secret: &[u8], user: &[u8]) -> ServerSecret {
    ServerSecret::unknown(ScramChallenge { salt: steady_salt(secret, user).to_vec(), iterations: 5000 })
}

#[test]
fn a_wrong_password_and_an_unknown_user_fail_alike() {
    let unknown = unknown(b"secret of this proxy", b"nobody");
    let wrong = check_exchange(client(password(b"pen"), ScramBinding::None), server(known(), ScramBinding::None)).1;
    let nobody = check_exchange(client(password(PASSWORD), ScramBinding::None), server(unknown, ScramBinding::None)).1;
    assert_eq!(wrong.unwrap_err(), ScramError::Proof);
    assert_eq!(nobody.unwrap_err(), ScramError::Proof);
}

#[test]
fn an_unknown_user_sees_the_same_salt_every_time() {
    let salt_of = |user: &[u8]| {
        let (asker, first) = client(password(b"x"), ScramBinding::None);
        let reply = server(unknown(b"k", user), ScramBinding::None).on_client_first(&first).unwrap();
        asker.challenge(&reply).unwrap()
    };
    assert_eq!(salt_of(b"anna"), salt_of(b"anna"));
    assert_ne!(salt_of(b"anna"), salt_of(b"bert"));
    assert_eq!(salt_of(b"anna"), ScramChallenge { salt: steady_salt(b"k", b"anna").to_vec(), iterations: 5000 });
    assert_ne!(steady_salt(b"k", b"anna"), steady_salt(b"other", b"anna"));
}

#[test]
fn channel_binding_is_taken_only_as_it_was_offered_and_chosen() {
    use ScramBinding::{EndPoint, None as Nothing, Unused};
    let hash = || EndPoint(vec![7; 32]);
    let cases = [
        (Nothing, Nothing, "in"),
        (Unused, Nothing, "in"),
        (Nothing, Unused, "in"),
        (hash(), hash(), "in"),
        (Unused, Unused, "scram channel binding: client believes that it was not offered, but it was"),
        (hash(), Nothing, "client requires channel binding, it is not available here"),
        (hash(), Unused, "client requires channel binding, it is not available here"),
        (Nothing, hash(), "scram channel binding: client chose SCRAM-SHA-256-PLUS but binds nothing"),
        (hash(), EndPoint(vec![8; 32]), "scram channel binding: final message does not repeat the first one's header"),
    ];
    for (theirs, ours, expected) in cases {
        let case = format!("{theirs:?} against {ours:?}");
        let by_keys = client(ClientSecret::Keys(rfc_keys()), theirs);
        let verdict = check_exchange(by_keys, server(known(), ours)).1;
        let text = verdict.map_or_else(|error| error.to_string(), |_| "in".to_owned());
        assert_eq!(text, expected, "{case}");
    }
}

#[test]
fn a_bad_first_message_of_a_client_is_refused() {
    let long = format!("n,,n=,r={}", "x".repeat(MESSAGE_BYTES_MAX));
    let half = format!("n,,n=,r={}", "x".repeat(MESSAGE_BYTES_MAX / 2 + 1));
    let cases: &[(&str, &str)] = &[
        ("", "malformed scram message: channel binding flag of the client's first message"),
        ("x,,n=,r=abc", "malformed scram message: channel binding flag of the client's first message"),
        ("n", "malformed scram message: header of the client's first message"),
        ("n,", "malformed scram message: header of the client's first message"),
        ("n;,n=,r=abc", "malformed scram message: header of the client's first message"),
        ("n,x,n=,r=abc", "malformed scram message: header of the client's first message"),
        ("n,a=root,n=,r=abc", "client wants another authorization identity"),
        ("n,,m=x,n=,r=abc", "client requires a scram extension"),
        ("n,,", "malformed scram message: user name expected in the client's first message"),
        ("n,,r=abc", "malformed scram message: user name expected in the client's first message"),
        ("n,,n", "malformed scram message: user name expected in the client's first message"),
        ("n,,n=", "malformed scram message: nonce expected in the client's first message"),
        ("n,,n=,", "malformed scram message: nonce expected in the client's first message"),
        ("n,,n=,s=abc", "malformed scram message: nonce expected in the client's first message"),
        ("n,,n=,r=", "malformed scram message: nonce has bytes that do not print"),
        ("n,,n=,r=a b", "malformed scram message: nonce has bytes that do not print"),
        ("n,,n=,r=\u{e9}", "malformed scram message: nonce has bytes that do not print"),
        ("n,,n=,r=a\0b", "malformed scram message: zero byte"),
        ("n,,n=,r=abc,junk", "malformed scram message: attribute expected"),
        ("n,,n=,r=abc,1=x", "malformed scram message: name of an attribute is not a letter"),
        ("p=tls-unique,,n=,r=abc", "client requires channel binding, it is not available here"),
        (&long, "scram message of 4104 bytes, limit is 4096"),
        (&half, "malformed scram message: nonce of the client is too long"),
    ];
    for (message, expected) in cases {
        let error = server(known(), ScramBinding::None).on_client_first(message.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), *expected, "{message}");
    }
    let error = server(known(), ScramBinding::EndPoint(vec![1])).on_client_first(b"p=tls-unique,,n=,r=abc").unwrap_err();
    assert_eq!(error.to_string(), "client wants a channel binding of unknown type");
}

#[test]
fn user_names_and_extensions_in_a_first_message_are_ignored() {
    for message in ["n,,n=anyone,r=abc", "y,,n=\u{e9},r=abc", "n,,n=,r=abc,x=1,y=", "n,,n=,r=abc,"] {
        let reply = server(known(), ScramBinding::None).on_client_first(message.as_bytes()).unwrap();
        assert!(reply.starts_with(b"r=abc%hvYDpWUa"), "{message}");
    }
}

#[test]
fn a_bad_final_message_of_a_client_is_refused() {
    let nonce = format!("{CLIENT_NONCE}{SERVER_NONCE}");
    let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let cases = [
        (String::new(), "malformed scram message: channel binding expected in the client's final message"),
        ("c".into(), "malformed scram message: channel binding expected in the client's final message"),
        (format!("r={nonce},p={zeros}"), "malformed scram message: channel binding expected in the client's final message"),
        (format!("c=biws,p={zeros}"), "malformed scram message: nonce expected in the client's final message"),
        (format!("c=biws,r={nonce}"), "malformed scram message: attribute expected"),
        (format!("c=biws,r={nonce},x=1,"), "malformed scram message: attribute expected"),
        (format!("c=biws,r={nonce},p="), "malformed scram message: proof in the client's final message"),
        (format!("c=biws,r={nonce},p=AAAA"), "malformed scram message: proof in the client's final message"),
        (format!("c=biws,r={nonce},p=!{}", &zeros[1..]), "malformed scram message: proof in the client's final message"),
        (format!("c=biws,r={nonce},p=AAAA{zeros}"), "malformed scram message: proof in the client's final message"),
        (format!("c=biws,r={nonce},p={zeros},x=1"), "malformed scram message: text after the proof"),
        (format!("c=eSws,r={nonce},p={zeros}"), "scram channel binding: final message does not repeat the first one's header"),
        (format!("c=biws,r={CLIENT_NONCE},p={zeros}"), "scram nonce does not continue ours"),
        (format!("c=biws,r={nonce}x,p={zeros}"), "scram nonce does not continue ours"),
        (format!("c=biws,r=x{nonce},p={zeros}"), "scram nonce does not continue ours"),
        (format!("c=biws,r={nonce},p={zeros}"), "scram proof does not match"),
        (format!("c=biws,r={nonce},p={zeros}\0"), "malformed scram message: zero byte"),
        ("c=".repeat(MESSAGE_BYTES_MAX), "scram message of 8192 bytes, limit is 4096"),
    ];
    for (message, expected) in cases {
        let mut server = server(known(), ScramBinding::None);
        server.on_client_first(RFC_CLIENT_FIRST.as_bytes()).unwrap();
        assert_eq!(server.on_client_final(message.as_bytes()).unwrap_err().to_string(), expected, "{message}");
        let again = server.on_client_final(RFC_CLIENT_FINAL.as_bytes()).unwrap_err();
        assert_eq!(again, ScramError::OutOfOrder, "a second try after: {message}");
    }
}

#[test]
fn a_bad_first_message_of_a_server_is_refused() {
    let nonce = format!("{CLIENT_NONCE}{SERVER_NONCE}");
    let salt_max = "A".repeat(1368);
    let cases = [
        (String::new(), "malformed scram message: nonce expected in the server's first message"),
        (format!("m=x,r={nonce},s=AAAA,i=1"), "malformed scram message: nonce expected in the server's first message"),
        ("e=unknown-user".into(), "malformed scram message: nonce expected in the server's first message"),
        ("r=,s=AAAA,i=1".into(), "malformed scram message: nonce has bytes that do not print"),
        (format!("r={nonce} ,s=AAAA,i=1"), "malformed scram message: nonce has bytes that do not print"),
        (format!("r={SERVER_NONCE},s=AAAA,i=1"), "scram nonce does not continue ours"),
        (format!("r=x{nonce},s=AAAA,i=1"), "scram nonce does not continue ours"),
        (format!("r={CLIENT_NONCE},s=AAAA,i=1"), "scram nonce does not continue ours"),
        (format!("r={nonce},i=1,s=AAAA"), "malformed scram message: salt expected in the server's first message"),
        (format!("r={nonce},s=,i=1"), "malformed scram message: salt in the server's first message"),
        (format!("r={nonce},s=AAA,i=1"), "malformed scram message: salt in the server's first message"),
        (format!("r={nonce},s=A*==,i=1"), "malformed scram message: salt in the server's first message"),
        (format!("r={nonce},s={salt_max},i=1"), "malformed scram message: salt in the server's first message"),
        (format!("r={nonce},s=AAAA"), "malformed scram message: iteration count expected in the server's first message"),
        (format!("r={nonce},s=AAAA,i="), "malformed scram message: iteration count is not a number"),
        (format!("r={nonce},s=AAAA,i=-1"), "malformed scram message: iteration count is not a number"),
        (format!("r={nonce},s=AAAA,i=+1"), "malformed scram message: iteration count is not a number"),
        (format!("r={nonce},s=AAAA,i=0x10"), "malformed scram message: iteration count is not a number"),
        (format!("r={nonce},s=AAAA,i=0"), "scram iteration count 0 is outside 1 to 1000000"),
        (format!("r={nonce},s=AAAA,i={}", ITERATIONS_MAX + 1), "scram iteration count 1000001 is outside 1 to 1000000"),
        (format!("r={nonce},s=AAAA,i=4294967297"), "scram iteration count 4294967295 is outside 1 to 1000000"),
        (format!("r={nonce},s=AAAA,i=99999999999999999999999"), "scram iteration count 4294967295 is outside 1 to 1000000"),
        (format!("r={nonce},s=AAAA,i=1,garbage"), "malformed scram message: attribute expected"),
        (format!("r={nonce},s=AAAA,i=1\0"), "malformed scram message: zero byte"),
    ];
    for (message, expected) in cases {
        let (mut client, _) = client(ClientSecret::Keys(rfc_keys()), ScramBinding::None);
        assert_eq!(client.challenge(message.as_bytes()).unwrap_err().to_string(), expected, "{message}");
        assert_eq!(client.on_server_first(message.as_bytes()).unwrap_err().to_string(), expected, "{message}");
        assert_eq!(client.on_server_first(RFC_SERVER_FIRST.as_bytes()), Err(ScramError::OutOfOrder));
    }
    let (client, _) = client(ClientSecret::Keys(rfc_keys()), ScramBinding::None);
    assert!(client.challenge(format!("r={nonce},s=AAAA,i=0001,x=new").as_bytes()).is_ok(), "extensions are ignored");
}

#[test]
fn a_server_that_cannot_prove_itself_is_refused() {
    let other_signature = RFC_SERVER_FINAL.replace("6rri", "6rrj");
    let long_reason = format!("e={}", "z".repeat(1000));
    let cases = [
        (other_signature, "scram signature of the server does not match".to_owned()),
        (String::new(), "malformed scram message: attribute expected".into()),
        ("v=".into(), "malformed scram message: signature in the server's final message".into()),
        ("v=AAAA".into(), "malformed scram message: signature in the server's final message".into()),
        ("x=AAAA".into(), "malformed scram message: signature expected in the server's final message".into()),
        (format!("{RFC_SERVER_FINAL},garbage"), "malformed scram message: attribute expected".into()),
        ("e=invalid-proof".into(), "server ended the scram exchange: invalid-proof".into()),
        ("e=a\u{1b}[31m\n".into(), "server ended the scram exchange: a?[31m?".into()),
        (long_reason, format!("server ended the scram exchange: {}", "z".repeat(200))),
    ];
    for (message, expected) in cases {
        let (mut client, _) = client(ClientSecret::Keys(rfc_keys()), ScramBinding::None);
        client.on_server_first(RFC_SERVER_FIRST.as_bytes()).unwrap();
        assert_eq!(client.on_server_final(message.as_bytes()).unwrap_err().to_string(), expected, "{message}");
        assert!(client.keys().is_none());
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let (mut early, first) = client(ClientSecret::Keys(rfc_keys()), ScramBinding::None);
    assert_eq!(early.on_server_final(RFC_SERVER_FINAL.as_bytes()), Err(ScramError::OutOfOrder));
    assert_eq!(early.challenge(RFC_SERVER_FIRST.as_bytes()), Err(ScramError::OutOfOrder));
    let mut early = server(known(), ScramBinding::None);
    assert_eq!(early.on_client_final(RFC_CLIENT_FINAL.as_bytes()).unwrap_err(), ScramError::OutOfOrder);
    let mut twice = server(known(), ScramBinding::None);
    twice.on_client_first(&first).unwrap();
    assert_eq!(twice.on_client_first(&first), Err(ScramError::OutOfOrder));
}

#[test]
fn a_bad_verifier_is_refused_and_not_shown() {
    let (_, good) = MADE_BY_POSTGRESQL[0];
    let cases = [
        (String::new(), "verifier does not have three parts"),
        ("SCRAM-SHA-256".into(), "verifier does not have three parts"),
        ("SCRAM-SHA-256$4096:AAAA".into(), "verifier does not have three parts"),
        (good.replace("SHA-256", "SHA-512"), "verifier does not have three parts"),
        (good.replace("4096:", "4096;"), "verifier lacks a colon"),
        (good.replace("=:", "=;"), "verifier lacks a colon"),
        (good.replace("4096", ""), "iteration count is not a number"),
        (good.replace("4096", "0"), "scram iteration count 0 is outside 1 to 1000000"),
        (good.replace("4096", "18446744073709551617"), "scram iteration count 4294967295 is outside 1 to 1000000"),
        (good.replace("leQd", "le!d"), "salt of the verifier"),
        (good.replace("M5tT", ""), "stored key of the verifier"),
        (good.replace("4d4w", "4d4w4d4w"), "server key of the verifier"),
        (format!("{good}:"), "server key of the verifier"),
    ];
    for (text, expected) in cases {
        let error = ScramVerifier::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error.trim_start_matches("malformed scram message: "), expected, "{text}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let (client, _) = client(password(PASSWORD), ScramBinding::None);
    let texts = [
        format!("{client:?}"),
        format!("{:?}", rfc_keys()),
        format!("{:?}", verifier()),
        format!("{:?}", server(known(), ScramBinding::None)),
    ];
    for text in texts {
        assert!(text.contains("*****") && !text.contains("pencil") && !text.contains("112, 101"), "{text}");
    }
}

#[test]
fn nonces_are_printable_text_without_a_comma() {
    assert_eq!(ScramNonce::from_random(&[0xff; 18]), ScramNonce::from_text(&"/".repeat(24)).unwrap());
    for text in ["", "a,b", "a b", "\u{e9}", "a\u{7f}"] {
        assert!(ScramNonce::from_text(text).is_none(), "{text}");
    }
}
