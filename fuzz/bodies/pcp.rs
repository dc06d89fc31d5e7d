//! Packets of PCP, read as a server and as a client.

use weir_wire::pcp_protocol::{
    HEADER_BYTES, NodeInfo, PcpPacket, PcpReply, PcpRequest, REPLY_LENGTH_MAX, REQUEST_LENGTH_MAX, read,
};

/// Walks the bytes as a stream of packets.
pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(PcpPacket { tag, body, used })) = read(rest, REPLY_LENGTH_MAX) {
        assert_eq!(used, HEADER_BYTES + body.len());
        check_request(tag, body);
        check_reply(tag, body);
        rest = &rest[used..];
    }
    if let Some((tag, body)) = bytes.split_first() {
        check_request(*tag, body);
        check_reply(*tag, body);
    }
}

/// A packet that is read is as it would be written, or a shorter form of it.
fn check_request(tag: u8, body: &[u8]) {
    let Ok(request) = PcpRequest::read(tag, body) else { return };
    let mut out = Vec::new();
    request.write(&mut out);
    assert_eq!(out[0], tag);
    let again = if body.len() + 4 < REQUEST_LENGTH_MAX as usize { read(&out, REQUEST_LENGTH_MAX + 16) } else { return };
    let PcpPacket { tag, body, .. } = again.expect("its length is right").expect("all of it is here");
    assert_eq!(PcpRequest::read(tag, body), Ok(request));
}

fn check_reply(tag: u8, body: &[u8]) {
    let Ok(reply) = PcpReply::read(tag, body) else { return };
    let strings = reply.strings();
    assert!(strings.len() <= body.len());
    if let Some(node) = NodeInfo::read(&strings) {
        assert!(!node.hostname.contains('\0'));
    }
    let mut out = Vec::new();
    reply.write(&mut out);
    assert!(read(&out, REPLY_LENGTH_MAX).is_ok_and(|packet| packet.is_some()));
}
