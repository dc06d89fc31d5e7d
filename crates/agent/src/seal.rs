//! Authentication between Weir and an agent: [`weir_wire::frame_seal`] with the agent as server, and nonces alone as hellos.

use crate::secret::AgentSecret;
use weir_wire::frame_seal::{SealHandshake, SealWords, TAG_BYTES};

pub use weir_wire::frame_seal::{FrameSeal, NONCE_BYTES, Nonce, SealError, frame, frame_bytes};

const WORDS: SealWords = SealWords {
    magic: b"weir agent 2\n",
    client_proves: b"client proves",
    server_proves: b"agent proves",
    client_to_server: b"client to agent",
    server_to_client: b"agent to client",
    hello_bytes: NONCE_BYTES..=NONCE_BYTES,
};

pub const BODY_BYTES_MAX: usize = 8 << 10;
pub const GREETING_BYTES_MAX: usize = NONCE_BYTES + TAG_BYTES;
pub const FRAME_BYTES_MAX: usize = BODY_BYTES_MAX + TAG_BYTES;

pub fn greeting(agent: &Nonce) -> Vec<u8> {
    SealHandshake::greeting(&WORDS, agent)
}

pub struct ClientHello<'a>(SealHandshake<'a>);

impl<'a> ClientHello<'a> {
    pub fn answer(secret: &'a AgentSecret, greeting: &[u8], client: Nonce) -> Result<(ClientHello<'a>, Vec<u8>), SealError> {
        let (handshake, proof) = SealHandshake::answer(&WORDS, Some(secret.bytes()), greeting, &client)?;
        Ok((ClientHello(handshake), proof))
    }

    pub fn finish(self, proof: &[u8]) -> Result<FrameSeal, SealError> {
        self.0.finish(proof)?;
        Ok(self.0.client_seal())
    }
}

pub fn admit(secret: &AgentSecret, agent: Nonce, proof: &[u8]) -> Result<(FrameSeal, Vec<u8>), SealError> {
    let (handshake, proof) = SealHandshake::admit(&WORDS, Some(secret.bytes()), &agent, proof)?;
    Ok((handshake.server_seal(), proof))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> AgentSecret {
        AgentSecret::read(text, None).unwrap()
    }

    /// Both sides, after they have proved themselves.
    fn pair(agent: Nonce, client: Nonce) -> (FrameSeal, FrameSeal) {
        let secret = secret("0123456789abcdef");
        let (hello, proof) = ClientHello::answer(&secret, &greeting(&agent), client).unwrap();
        let (theirs, proof) = admit(&secret, agent, &proof).unwrap();
        (hello.finish(&proof).unwrap(), theirs)
    }

    #[test]
    fn both_sides_prove_that_they_know_the_secret() {
        let (right, wrong) = (secret("0123456789abcdef"), secret("0123456789abcdeg"));
        let (agent, client) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (_, proof) = ClientHello::answer(&wrong, &greeting(&agent), client).unwrap();
        assert_eq!(admit(&right, agent, &proof).err(), Some(SealError::Secret));
        let (hello, proof) = ClientHello::answer(&right, &greeting(&agent), client).unwrap();
        assert_eq!(admit(&right, [3; NONCE_BYTES], &proof).err(), Some(SealError::Secret), "of another connection");
        assert_eq!(admit(&right, agent, &proof[..40]).err(), Some(SealError::Secret));
        assert_eq!(admit(&right, agent, &proof[..20]).err(), Some(SealError::Protocol));
        assert_eq!(hello.finish(&proof[NONCE_BYTES..]).err(), Some(SealError::Secret), "its own words");
        let false_agent = ClientHello::answer(&right, &greeting(&agent), client).unwrap().0;
        assert_eq!(
            false_agent.finish(&admit(&wrong, agent, &[]).map_or(vec![], |(_, proof)| proof)).err(),
            Some(SealError::Secret)
        );
        assert_eq!(ClientHello::answer(&right, b"SSH-2.0", client).err(), Some(SealError::Protocol));
    }

    /// Computed with another program: agents and Weirs of different releases talk.
    #[test]
    fn the_bytes_stay_as_they_are() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let secret = secret("0123456789abcdef");
        let (agent, client) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        assert_eq!(greeting(&agent), [&b"weir agent 2\n"[..], &agent].concat());
        let (hello, proof) = ClientHello::answer(&secret, &greeting(&agent), client).unwrap();
        let tag = "659a8bb218344da41d20cba0c99ff5fc10c05c95402926c67b884f4e3bc37909";
        assert_eq!((&proof[..NONCE_BYTES], hex(&proof[NONCE_BYTES..])), (&client[..], tag.into()));
        let (mut theirs, proof) = admit(&secret, agent, &proof).unwrap();
        assert_eq!(hex(&proof), "db6816c62bbfc0e2c8342cee6a40b19533b3061b63110561e16f3e60d950c043");
        let one = hello.finish(&proof).unwrap().close(b"one");
        assert_eq!(hex(&one[3..]), "c3fd7fd6b4ff81b683e07d8bb637bf4cac3bb94d72201ea4e93d8641f2efbac4");
        let yes = theirs.close(b"yes");
        assert_eq!(hex(&yes[3..]), "c3c8cb9c765eb71027dd6795b8403eaf9202db4835bd44976deb5880f2e23b3a");
    }

    #[test]
    fn messages_that_are_repeated_left_out_moved_changed_or_sent_back_are_refused() {
        let (mut client, mut agent) = pair([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (one, two) = (client.close(b"one"), client.close(b"two"));
        assert_eq!(agent.open(&two), Err(SealError::Message), "one was left out");
        assert_eq!(agent.open(&one), Ok(&b"one"[..]));
        assert_eq!(agent.open(&one), Err(SealError::Message), "a second time");
        let mut changed = two.clone();
        changed[0] ^= 1;
        assert_eq!(agent.open(&changed), Err(SealError::Message));
        assert_eq!(client.open(&two), Err(SealError::Message), "sent back");
        assert_eq!(agent.open(&two), Ok(&b"two"[..]));
        assert_eq!(agent.open(&[]), Err(SealError::Message));
        let (_, mut other) = pair([3; NONCE_BYTES], [2; NONCE_BYTES]);
        assert_eq!(other.open(&one), Err(SealError::Message), "of another connection");
    }

    #[test]
    fn a_frame_is_refused_by_its_length_alone() {
        assert_eq!(frame(b"abc"), [0, 0, 0, 3, b'a', b'b', b'c']);
        assert_eq!(frame_bytes([0, 0, 0, 3], 3), Ok(3));
        let refused = SealError::TooLong { bytes: u32::MAX as usize, limit: 3 };
        assert_eq!(frame_bytes([0xff; 4], 3), Err(refused));
    }
}
