//! The first packet of a connection.

use weir_wire::startup_packet::{FirstPacket, STARTUP_BYTES_MAX, read_first, split_options};

/// Reads the bytes as a first packet, whole and cut.
pub fn run(bytes: &[u8]) {
    if let Ok(Some((first, taken))) = read_first(bytes) {
        assert!(taken <= bytes.len() && taken <= STARTUP_BYTES_MAX as usize);
        assert_eq!(read_first(&bytes[..taken]), Ok(Some((first.clone(), taken))), "later bytes change nothing");
        for short in (0..taken).step_by(1 + taken / 16) {
            assert_eq!(read_first(&bytes[..short]), Ok(None), "a cut packet waits for the rest");
        }
        check_first(&first, taken);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = split_options(text);
    }
}

fn check_first(first: &FirstPacket, taken: usize) {
    match first {
        FirstPacket::Startup(startup) => {
            assert_eq!(startup.version.major(), 3);
            let text_bytes: usize = startup.parameters.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
            // A byte of an application's name may become four.
            assert!(text_bytes < 4 * taken);
            for (name, _) in startup.parameters.iter() {
                assert!(!name.is_empty() && startup.get(name).is_some());
            }
            if let Some(options) = startup.get("options") {
                let _ = split_options(options);
            }
        }
        FirstPacket::Cancel { key, .. } => assert!((1..=256).contains(&key.len())),
        FirstPacket::Unsupported(version) => assert_ne!(version.major(), 3),
        FirstPacket::Ssl | FirstPacket::GssEnc => {}
    }
}
