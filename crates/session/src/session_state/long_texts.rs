//! Texts too long to be parsed, or that the server reads otherwise: they pass as they are.

use crate::prepared::key;
use crate::session::{Session, SessionServer};
use crate::upstream::left::{ServerReading, UnnamedStatementState};
use weir_sql::passing::DefinitionCertainty;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, split_cstr};

#[cold]
pub fn pass_on(s: &mut Session) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let defines = upstream.left.pass_on(s.up.rest_here());
    let effects = &mut s.state.effects;
    if defines == DefinitionCertainty::Nothing && effects.by_long_text {
        effects.redefines = false;
    }
    effects.by_long_text &= upstream.left.is_passing();
}

/// Notes a Parse too long to be kept, or read otherwise by the server.
#[cold]
pub fn note_long_parse(s: &mut Session, header: MessageHeader) {
    let may_be_misread = s.may_be_misread();
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let here = s.up.unseen();
    let body = here.get(HEADER_BYTES..here.len().min(header.frame_bytes())).unwrap_or_default();
    let Some((name, text)) = split_cstr(body) else { return };
    let bytes = (header.body_bytes as usize).saturating_sub(name.len() + 1);
    let reads = if may_be_misread { ServerReading::Otherwise } else { ServerReading::AsItLooks };
    upstream.left.parses_long(key(name), bytes, text, reads);
}

/// Notes the Bind of such an unnamed statement.
pub fn note_long_bound(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut().filter(|upstream| upstream.left.long.unnamed == UnnamedStatementState::Parsed) {
        upstream.left.long.unnamed = UnnamedStatementState::Bound;
    }
}
