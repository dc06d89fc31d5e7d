//! The bytes that an agent and its client read from the network, and those that an agent finds beside its server.

use weir_agent::seal::{ClientHello, admit, frame, frame_bytes, greeting};
use weir_agent::{AgentSecret, control_file, postmaster, read_answer, read_request, settings, write_answer, write_request};

/// Reads the bytes as each of them.
pub fn run(bytes: &[u8]) {
    check_messages(bytes);
    check_seal(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = control_file::read(&text, 15);
    let _ = postmaster::read(&text);
    let _ = AgentSecret::read(&text, Some("a:1"));
    let changed = settings::change(&text, &[("a", Some("it's \\ here"))]);
    assert_eq!(settings::get(&changed, "a").as_deref(), Some("it's \\ here"));
}

/// A message that is read is as it would be written.
fn check_messages(bytes: &[u8]) {
    let mut out = Vec::new();
    if let Ok(request) = read_request(bytes) {
        write_request(&mut out, &request);
        assert_eq!(out, bytes);
    }
    out.clear();
    if let Ok(answer) = read_answer(bytes) {
        write_answer(&mut out, &answer);
        assert_eq!(read_answer(&out), Ok(answer));
    }
}

/// Nobody gets in with made up bytes.
fn check_seal(bytes: &[u8]) {
    let secret = AgentSecret::read("0123456789abcdef", None).expect("it is long enough");
    let (agent, client) = ([1; 32], [2; 32]);
    assert!(admit(&secret, agent, bytes).is_err());
    let _ = ClientHello::answer(&secret, bytes, client);
    let (hello, proof) = ClientHello::answer(&secret, &greeting(&agent), client).expect("it is a greeting");
    let (mut theirs, proof) = admit(&secret, agent, &proof).expect("it is a proof");
    let mut ours = hello.finish(&proof).expect("it is a proof");
    assert!(theirs.open(bytes).is_err());
    let sent = frame(&ours.close(bytes));
    let head = sent[..4].try_into().expect("a frame has a head");
    assert_eq!(frame_bytes(head, usize::MAX), Ok(sent.len() - 4));
    assert_eq!(theirs.open(&sent[4..]), Ok(bytes));
}
