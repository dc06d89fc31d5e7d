//! Messages of the extended protocol behind the one that is looked at: its statement is aimed by their values.

use crate::fault::ErrorReport;
use crate::prepared::key;
use crate::session::Session;
use crate::sharding::shard_target::{ShardAim, ShardTarget, TransactionPart};
use crate::sharding::spread_write::WriteEnd;
use crate::sharding::unaimed::{LOOKED_AT_BYTES_MAX, Unaimed, too_long};
use crate::sharding::write_steps;
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};

/// The description of a statement is the same everywhere, and a transaction that has not begun may be of another shard.
pub(super) const DESCRIBED_ANYWHERE: ShardAim = ShardAim { target: ShardTarget::Any, part: TransactionPart::Outside };

/// How many rows an Execute may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowsAsked {
    /// There are none to return.
    Any,
    MustBeAll,
}

/// The values of the next execution: a Bind behind its names, and how it ends. `None`: it is not the statement's.
#[cold]
pub(super) fn bound_ahead(s: &mut Session, name: &[u8], rows: RowsAsked) -> Result<Option<(Vec<u8>, WriteEnd)>, Unaimed> {
    match execution_ahead(s.up.unseen(), name) {
        ExecutionAhead::Here { asked, .. } if asked > 0 && rows == RowsAsked::MustBeAll => Err(must_ask_all().into()),
        ExecutionAhead::Here { values, end, .. } => Ok(Some((values.to_vec(), end))),
        ExecutionAhead::None => Ok(None),
        ExecutionAhead::More(bytes) if bytes <= LOOKED_AT_BYTES_MAX => {
            s.up.has_whole(bytes);
            Err(Unaimed::More)
        }
        ExecutionAhead::More(_) => Err(too_long().into()),
        ExecutionAhead::Otherwise => {
            let why = "it must be bound to the unnamed portal, with its Execute behind the Bind and nothing but Describe and Close between";
            Err(write_steps::cannot_spread(why).into())
        }
    }
}

#[cold]
fn must_ask_all() -> ErrorReport {
    write_steps::cannot_spread("an Execute must ask for all rows of its RETURNING at once")
}

pub(super) enum BindAhead<'a> {
    /// The Bind behind its names.
    Here(&'a [u8]),
    /// A Sync or a Flush comes first.
    None,
    /// As many bytes are needed to know.
    More(usize),
}

enum ExecutionAhead<'a> {
    /// The Bind behind its names; its Execute follows. `asked`: rows that the Execute asks for; 0 for all.
    Here { values: &'a [u8], asked: u32, end: WriteEnd },
    /// The statement is not bound before the Sync, or others come before: its Bind is looked at by itself.
    None,
    /// As many bytes are needed to know.
    More(usize),
    /// The messages do something else with it.
    Otherwise,
}

/// Looks for the execution of a statement whose Parse or Bind is the first message. `name`: of the Parse.
fn execution_ahead<'a>(here: &'a [u8], name: &[u8]) -> ExecutionAhead<'a> {
    let (mut at, mut bound, mut run) = (0, None, None);
    loop {
        let rest = &here[at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return ExecutionAhead::More(at + HEADER_BYTES),
            Err(_) => return ExecutionAhead::Otherwise,
        };
        if let (Some(values), Some(asked)) = (bound, run)
            && header.tag != front::CLOSE
        {
            let end = if header.tag == front::SYNC { WriteEnd::OfClient } else { WriteEnd::OfExecute };
            return ExecutionAhead::Here { values, asked, end };
        }
        let bytes = header.frame_bytes();
        let Some(body) = rest.get(HEADER_BYTES..bytes) else { return ExecutionAhead::More(at + bytes) };
        match (header.tag, bound) {
            (front::PARSE, None) if at == 0 => {}
            (front::BIND, None) => match split_cstr(body).and_then(|(portal, rest)| Some((portal, split_cstr(rest)?))) {
                Some((portal, (statement, values))) if at == 0 || key(statement) == name => {
                    if !portal.is_empty() {
                        return ExecutionAhead::Otherwise;
                    }
                    bound = Some(values);
                }
                _ => return ExecutionAhead::None,
            },
            (front::EXECUTE, Some(_)) if body.first() == Some(&0) => {
                let asked = body.get(1..).and_then(|rows| rows.first_chunk::<4>());
                run = Some(asked.map_or(0, |rows| u32::from_be_bytes(*rows)));
            }
            (front::DESCRIBE, _) | (front::CLOSE, _) if bound.is_none() || header.tag == front::DESCRIBE || run.is_some() => {}
            (_, None) => return ExecutionAhead::None,
            (_, Some(_)) => return ExecutionAhead::Otherwise,
        }
        at += bytes;
    }
}

/// Looks for the Bind of the statement that the first message prepares.
pub(super) fn bind_behind<'a>(here: &'a [u8], name: &[u8]) -> BindAhead<'a> {
    let mut at = 0;
    loop {
        let rest = &here[at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return BindAhead::More(at + HEADER_BYTES),
            Err(_) => return BindAhead::None,
        };
        let bytes = header.frame_bytes();
        let Some(body) = rest.get(HEADER_BYTES..bytes) else { return BindAhead::More(at + bytes) };
        match header.tag {
            front::BIND => {
                let names = split_cstr(body).and_then(|(_, rest)| split_cstr(rest));
                if let Some((_, values)) = names.filter(|(statement, _)| key(statement) == name) {
                    return BindAhead::Here(values);
                }
            }
            front::PARSE | front::DESCRIBE | front::CLOSE | front::EXECUTE => {}
            _ => return BindAhead::None,
        }
        at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::write::{bare, message};

    fn written(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, tag, |out| out.extend_from_slice(body));
        out
    }

    fn sync() -> Vec<u8> {
        let mut out = Vec::new();
        bare(&mut out, front::SYNC);
        out
    }

    #[test]
    fn the_execution_of_a_statement_of_several_shards_is_looked_for() {
        let parse = || written(front::PARSE, b"s\0update t set x = $1\0\0\0");
        let bind = |portal: &[u8]| written(front::BIND, &[portal, b"\0s\0values"].concat());
        let execute = |portal: &[u8]| written(front::EXECUTE, &[portal, &[0; 5]].concat());
        let describe = || written(front::DESCRIBE, b"P\0");
        let close = || written(front::CLOSE, b"P\0");
        let flush = || written(front::FLUSH, b"");
        let told = |messages: &[Vec<u8>]| match execution_ahead(&messages.concat(), b"s") {
            ExecutionAhead::Here { values, asked, end } => format!("{} {asked} {end:?}", String::from_utf8_lossy(values)),
            ExecutionAhead::None => "none".to_owned(),
            ExecutionAhead::More(_) => "more".to_owned(),
            ExecutionAhead::Otherwise => "otherwise".to_owned(),
        };
        for (messages, expected) in [
            (vec![parse(), bind(b""), describe(), execute(b""), sync()], "values 0 OfClient"),
            (vec![bind(b""), execute(b""), close(), sync()], "values 0 OfClient"),
            (vec![bind(b""), written(front::EXECUTE, &[0, 0, 0, 0, 1]), sync()], "values 1 OfClient"),
            (vec![bind(b""), execute(b""), flush(), sync()], "values 0 OfExecute"),
            (vec![bind(b""), execute(b""), execute(b""), sync()], "values 0 OfExecute"),
            (vec![bind(b""), execute(b""), bind(b"")], "values 0 OfExecute"),
            (vec![parse(), bind(b""), execute(b""), close(), parse()], "values 0 OfExecute"),
            (vec![parse(), written(front::DESCRIBE, b"Ss\0"), sync()], "none"),
            (vec![parse(), parse(), bind(b""), execute(b""), sync()], "none"),
            (vec![parse(), written(front::BIND, b"\0other\0values"), execute(b"")], "none"),
            (vec![parse(), flush(), bind(b"")], "none"),
            (vec![bind(b""), execute(b"")], "more"),
            (vec![parse(), bind(b"")], "more"),
            (vec![bind(b""), flush(), execute(b"")], "otherwise"),
            (vec![bind(b""), close(), execute(b"")], "otherwise"),
            (vec![bind(b"p"), execute(b"p"), sync()], "otherwise"),
            (vec![bind(b""), execute(b"p"), sync()], "otherwise"),
            (vec![bind(b""), sync()], "otherwise"),
        ] {
            assert_eq!(told(&messages), expected);
        }
    }

    /// `None`: no Bind; a number of bytes that are needed, or the values.
    fn look(messages: &[Vec<u8>], name: &[u8]) -> Option<Result<Vec<u8>, usize>> {
        match bind_behind(&messages.concat(), name) {
            BindAhead::Here(values) => Some(Ok(values.to_vec())),
            BindAhead::More(bytes) => Some(Err(bytes)),
            BindAhead::None => None,
        }
    }

    #[test]
    fn a_parse_finds_the_bind_of_its_statement_up_to_the_sync() {
        let parse = written(front::PARSE, b"s\0select $1\0\0\0");
        let bind = |name: &[u8]| written(front::BIND, &[b"\0", name, b"\0values"].concat());
        let describe = written(front::DESCRIBE, b"Ss\0");
        assert_eq!(look(&[parse.clone(), describe.clone(), bind(b"s"), sync()], b"s"), Some(Ok(b"values".to_vec())));
        assert_eq!(look(&[parse.clone(), bind(b"t"), bind(b"s")], b"s"), Some(Ok(b"values".to_vec())), "another one is before");
        assert_eq!(look(&[parse.clone(), describe.clone(), sync(), bind(b"s")], b"s"), None, "the next pipeline");
        let flush = written(front::FLUSH, b"");
        assert_eq!(look(&[parse.clone(), flush, bind(b"s")], b"s"), None, "the client waits for an answer");
        let here = parse.len();
        assert_eq!(look(std::slice::from_ref(&parse), b"s"), Some(Err(here + HEADER_BYTES)));
        let whole = bind(b"s");
        let cut = whole[..whole.len() - 1].to_vec();
        assert_eq!(look(&[parse, cut], b"s"), Some(Err(here + whole.len())));
    }
}
