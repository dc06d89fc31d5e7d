//! SCRAM: each side against a peer that says anything, and an honest exchange that someone tampers with.
//!
//! Input: one byte that chooses the channel binding, then messages separated by line ends.

use weir_wire::scram::{
    ClientSecret, ITERATIONS_MAX, SALT_BYTES_MAX, SaltedKeys, ScramBinding, ScramChallenge, ScramClient, ScramError, ScramKey,
    ScramNonce, ScramServer, ScramVerifier, ServerSecret,
};

/// Nonces and keys never change, so that the seeds can hold whole exchanges.
const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "hvYDpWUa2RaTCAfuxFIlj";

/// Feeds the messages to both sides.
pub fn run(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let binding = match choice % 3 {
        0 => ScramBinding::None,
        1 => ScramBinding::Unused,
        _ => ScramBinding::EndPoint(vec![7; 32]),
    };
    let mut messages = rest.splitn(2, |byte| *byte == b'\n');
    let (first, last) = (messages.next().unwrap_or_default(), messages.next().unwrap_or_default());
    check_server(binding.clone(), first, last);
    check_client(binding.clone(), first, last);
    check_verifier(rest);
    check_tampering(binding, rest);
}

fn keys() -> SaltedKeys {
    SaltedKeys::from_keys(ScramKey::new([1; 32]), ScramKey::new([2; 32]))
}

fn verifier() -> ScramVerifier {
    ScramVerifier { iterations: 4096, salt: vec![3; 16], stored_key: keys().stored_key, server_key: keys().server_key }
}

fn nonce(text: &str) -> ScramNonce {
    ScramNonce::from_text(text).expect("the nonces above are printable")
}

fn client(binding: ScramBinding) -> (ScramClient, Vec<u8>) {
    ScramClient::new(ClientSecret::Keys(keys()), &nonce(CLIENT_NONCE), binding)
}

/// Known and unknown users get answers of the same form and fail at the same place.
fn check_server(binding: ScramBinding, first: &[u8], last: &[u8]) {
    let mut known = ScramServer::new(ServerSecret::Known(verifier()), nonce(SERVER_NONCE), binding.clone());
    let mut unknown = ScramServer::new(
        ServerSecret::unknown(ScramChallenge { salt: vec![4; 16], iterations: 4096 }),
        nonce(SERVER_NONCE),
        binding,
    );
    match (known.on_client_first(first), unknown.on_client_first(first)) {
        (Ok(one), Ok(other)) => assert_eq!(one.len(), other.len()),
        (one, other) => assert_eq!(one.map(|_| ()), other.map(|_| ())),
    }
    match (known.on_client_final(last), unknown.on_client_final(last)) {
        (Ok(_), other) => assert_eq!(other.map(|_| ()), Err(ScramError::Proof)),
        (Err(one), other) => assert_eq!(other.map(|_| ()), Err(one)),
    }
    assert_eq!(known.on_client_final(last).map(|_| ()), Err(ScramError::OutOfOrder));
}

fn check_client(binding: ScramBinding, first: &[u8], last: &[u8]) {
    let (mut client, _) = client(binding);
    let challenge = client.challenge(first);
    if let Ok(challenge) = &challenge {
        assert!((1..=ITERATIONS_MAX).contains(&challenge.iterations));
        assert!((1..=SALT_BYTES_MAX).contains(&challenge.salt.len()));
    }
    assert_eq!(client.on_server_first(first).map(|_| ()), challenge.map(|_| ()));
    let verdict = client.on_server_final(last);
    assert_eq!(verdict.is_ok(), client.keys().is_some());
}

fn check_verifier(text: &[u8]) {
    if let Ok(verifier) = ScramVerifier::parse(text) {
        assert_eq!(ScramVerifier::parse(verifier.to_text().as_bytes()), Ok(verifier));
    }
}

/// An honest exchange succeeds; one with a byte changed on the way does not.
fn check_tampering(binding: ScramBinding, dice: &[u8]) {
    let (mut client, first) = client(binding.clone());
    // A client must not say this to a server that offers more: see `ScramBinding::Unused`.
    let theirs = if binding == ScramBinding::Unused { ScramBinding::None } else { binding };
    let mut server = ScramServer::new(ServerSecret::Known(verifier()), nonce(SERVER_NONCE), theirs);
    let server_first = server.on_client_first(&first).expect("honest first message");
    let honest = client.on_server_first(&server_first).expect("honest challenge");
    let mut sent = honest.clone();
    if let [place, change, ..] = dice {
        let place = usize::from(*place) % sent.len();
        sent[place] ^= change;
    }
    match server.on_client_final(&sent) {
        Ok(accepted) => {
            assert_eq!(sent, honest);
            assert_eq!(client.on_server_final(&accepted.message), Ok(()));
        }
        Err(error) => assert_ne!(sent, honest, "{error}"),
    }
}
