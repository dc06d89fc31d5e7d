//! Filter of a server's notices by a client's `client_min_messages`.

use weir_wire::back::read_report;
use weir_wire::frame::{HEADER_BYTES, read_header};

/// Severities in the order of `client_min_messages`. Source: `client_message_level_options` in guc_tables.c.
const LEVELS: [&str; 5] = ["debug", "log", "notice", "warning", "error"];

fn level(word: &str) -> usize {
    let word = word.to_ascii_lowercase();
    // `debug1` to `debug5`.
    let word = if word.starts_with("debug") { "debug" } else { word.as_str() };
    LEVELS.iter().position(|level| *level == word).unwrap_or(0)
}

/// Returns the messages for such a client; without `client_min_messages`, all.
pub fn shown(messages: &[u8], min: Option<&str>) -> Vec<u8> {
    let Some(min) = min else { return messages.to_vec() };
    let (mut shown, mut rest) = (Vec::new(), messages);
    while let Ok(Some(header)) = read_header(rest) {
        let Some((message, after)) = rest.split_at_checked(header.frame_bytes()) else { break };
        let severity = String::from_utf8_lossy(read_report(&message[HEADER_BYTES..]).severity);
        // Clients receive INFO at any level. Source: `should_output_to_client` in elog.c.
        if severity == "INFO" || level(&severity) >= level(min) {
            shown.extend_from_slice(message);
        }
        rest = after;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::frame::back;
    use weir_wire::write;

    #[test]
    fn a_client_hears_what_it_asks_for() {
        let notice = |severity: &str| {
            let mut out = Vec::new();
            write::message(&mut out, back::NOTICE, |out| out.extend_from_slice(format!("V{severity}\0Mx\0\0").as_bytes()));
            out
        };
        let both = [notice("NOTICE"), notice("WARNING")].concat();
        for (min, expected) in [
            (None, both.clone()),
            (Some("debug3"), both.clone()),
            (Some("notice"), both.clone()),
            (Some("WARNING"), notice("WARNING")),
            (Some("error"), Vec::new()),
        ] {
            assert_eq!(shown(&both, min), expected, "{min:?}");
        }
    }
}
