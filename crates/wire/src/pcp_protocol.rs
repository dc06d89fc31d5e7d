//! PCP, the administration protocol of Pgpool-II: packets, requests, replies, and the layouts of its releases.
//!
//! A packet is a tag, a length word that includes itself, and a body of NUL-terminated strings. A client asks for a salt, logs
//! in, then sends one request at a time; the answer is one packet, or rows between `ArraySize` and `CommandComplete`. Notices
//! may come at any time. Clients have row layouts compiled in, so a server must speak that of the client's release. Source:
//! Pgpool-II, `src/libs/pcp/pcp.c`, `src/pcp_con/pcp_worker.c`.

mod digest_proof;
mod layout;
mod pcp_request;
mod reply;
#[cfg(test)]
mod tests;

pub use crate::pcp_protocol::digest_proof::{DIGEST_BYTES, SALT_BYTES, StoredDigest, proof};
pub use crate::pcp_protocol::pcp_request::{CommandScope, DrainMode, PcpRequest, PcpShutdownMode, PromotionKind, WatchdogChange};
pub use layout::{NODE_LAYOUTS, NodeInfo, NodeRole, NodeStatus, PROCESS_STRINGS, PcpLayout, StandbyDelay};
pub use reply::{PcpReply, PcpReplyCode, PcpReport, PcpSeverity};

/// Tag and length word.
pub const HEADER_BYTES: usize = 5;

/// Exclusive limit of a request's length word. Source: Pgpool-II, `MAX_PCP_PACKET_LENGTH`.
pub const REQUEST_LENGTH_MAX: u32 = 260;

/// Limit of a reply's length word; the process list of a large server has some hundred kilobytes.
pub const REPLY_LENGTH_MAX: u32 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcpError {
    /// Not PCP, or too large: close the connection.
    #[error("incorrect packet length ({0})")]
    Length(u32),
    #[error("unknown PCP packet type \"{}\"", .0.escape_ascii())]
    Unknown(u8),
    #[error("malformed PCP packet of type \"{}\"", .0.escape_ascii())]
    Malformed(u8),
    /// Not a number; the connection goes on.
    #[error("\"{0}\" is not a number")]
    Number(String),
    /// Not a known letter, such as a shutdown mode; the connection goes on.
    #[error("invalid {what} \"{}\"", .letter.escape_ascii())]
    Letter { what: &'static str, letter: u8 },
}

impl PcpError {
    /// True if the connection must be closed.
    pub fn is_fatal(&self) -> bool {
        match self {
            PcpError::Length(_) | PcpError::Unknown(_) | PcpError::Malformed(_) => true,
            PcpError::Number(_) | PcpError::Letter { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpPacket<'a> {
    pub tag: u8,
    pub body: &'a [u8],
    /// Bytes of the packet.
    pub used: usize,
}

/// Reads the first packet; `None` while incomplete.
///
/// Error: its length word is below 4, or not below `limit`.
pub fn read(bytes: &[u8], limit: u32) -> Result<Option<PcpPacket<'_>>, PcpError> {
    let Some((&[tag, a, b, c, d], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    if !(4..limit).contains(&length) {
        return Err(PcpError::Length(length));
    }
    let body_bytes = length as usize - 4;
    Ok(rest.get(..body_bytes).map(|body| PcpPacket { tag, body, used: HEADER_BYTES + body_bytes }))
}

fn packet(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

/// Appends a NUL-terminated string, cut at a NUL inside.
fn push(body: &mut Vec<u8>, text: &[u8]) {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    body.extend_from_slice(&text[..end]);
    body.push(0);
}

/// Splits at the first NUL.
fn take(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    Some((&body[..end], &body[end + 1..]))
}
