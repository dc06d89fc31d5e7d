//! Message headers, and the bodies of the server messages that we look into.

use weir_wire::back;
use weir_wire::frame::{BODY_BYTES_MAX, HEADER_BYTES, back as tags, read_header};
use weir_wire::gather::message_cost;

/// Walks the bytes as a stream of messages.
pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(header)) = read_header(rest) {
        assert!(header.body_bytes <= BODY_BYTES_MAX);
        assert_eq!(header.frame_bytes() - HEADER_BYTES, header.body_bytes as usize);
        check_short(rest);
        let Some(body) = rest.get(HEADER_BYTES..header.frame_bytes()) else { break };
        check_body(body);
        rest = &rest[header.frame_bytes()..];
    }
    check_body(bytes);
}

/// A header is only read when it is all here, and the bytes behind it change nothing.
fn check_short(bytes: &[u8]) {
    for short in 0..HEADER_BYTES {
        assert_eq!(read_header(&bytes[..short]), Ok(None));
    }
    assert_eq!(read_header(&bytes[..HEADER_BYTES]), read_header(bytes));
}

/// Any body may come with any tag, so every reader sees it.
fn check_body(body: &[u8]) {
    let report = back::read_report(body);
    assert!(report.message.len() + report.sqlstate.len() <= body.len());
    if let Some((name, value)) = back::read_parameter(body) {
        assert!(!name.contains(&0) && !value.contains(&0));
    }
    if let Some((_, key)) = back::read_key(body) {
        assert!((1..=256).contains(&key.len()));
    }
    back::read_auth(body);
    if let Some(row) = back::read_row(body) {
        let value_bytes: usize = row.iter().flatten().map(|value| value.len()).sum();
        assert!(2 + 4 * row.len() + value_bytes <= body.len());
        // A row that is kept takes no more than it is counted as: each value in an allocation, of which the allocator takes a little.
        let place_bytes = size_of::<Option<String>>() + 24;
        let kept_bytes = size_of::<Vec<Option<String>>>() + 24 + place_bytes * row.len() + value_bytes;
        assert!(kept_bytes <= message_cost(tags::DATA_ROW, body));
    }
}
