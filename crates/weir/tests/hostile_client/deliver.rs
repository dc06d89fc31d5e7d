//! Brings bytes to the proxy in pieces of random sizes, leaves in one of several ways, and judges the replies.

use crate::dice::Dice;
use crate::support::Raw;
use crate::support::raw::Message;
use crate::{DIRECT, PROXIED};
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

/// Where a conversation goes.
pub struct Stand {
    pub proxy: u16,
    pub server: u16,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It says no more and reads to the end.
    HalfClose,
    /// It goes without reading.
    Close,
    /// It closes, and its machine says that nobody is there.
    Reset,
    /// It stays and says nothing.
    Stay,
}

impl Ending {
    pub const ALL: [Ending; 4] = [Ending::HalfClose, Ending::Close, Ending::Reset, Ending::Stay];
}

/// Tags a server may send.
const BACK: &[u8] = b"RKSZCDTEN1234tnsIGHWVAdcv";

/// Says `bytes` from the first byte of a connection on. A connection that stays is returned.
pub fn before_login(stand: &Stand, bytes: &[u8], ending: Ending, dice: &mut Dice) -> Result<Option<Raw>, String> {
    let mut raw = Raw::try_tcp(stand.proxy).ok_or("the proxy accepts nobody")?;
    let writer = write_in_pieces(&raw, bytes, cuts(bytes.len(), dice), ending);
    match ending {
        Ending::HalfClose => {
            // The answer is not all messages: an SSLRequest is answered by one byte.
            raw.bytes_until_end().map_err(|cause| format!("after a half close the connection does not end: {cause}"))?;
        }
        Ending::Close | Ending::Reset | Ending::Stay => {}
    }
    writer.join().map_err(|_| "the writer panicked")?;
    Ok((ending == Ending::Stay).then_some(raw))
}

/// Logs in and says `bytes`. If it reads to the end, so does a client of the server itself, and both must have been told the same.
pub fn after_login(stand: &Stand, bytes: &[u8], ending: Ending, dice: &mut Dice) -> Result<(), String> {
    let mut through = Raw::tcp(stand.proxy)
        .log_in("postgres", PROXIED, &[("application_name", "hostile")])
        .map_err(|failure| format!("cannot log in: {failure:?}"))?;
    let writer = write_in_pieces(&through, bytes, cuts(bytes.len(), dice), ending);
    if ending != Ending::HalfClose {
        return writer.join().map_err(|_| "the writer panicked".into());
    }
    let through = replies(&mut through).map_err(|what| format!("through the proxy: {what}"))?;
    writer.join().map_err(|_| "the writer panicked")?;
    let mut direct = Raw::tcp(stand.server)
        .log_in("postgres", DIRECT, &[("application_name", "hostile")])
        .map_err(|failure| format!("cannot log in to the server: {failure:?}"))?;
    let writer = write_in_pieces(&direct, bytes, Vec::new(), ending);
    let direct = replies(&mut direct).map_err(|what| format!("directly: {what}"))?;
    writer.join().map_err(|_| "the writer panicked")?;
    compare(&through, &direct)
}

/// Places at which the bytes are cut, in order.
fn cuts(bytes: usize, dice: &mut Dice) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..dice.of(&[0, 0, 1, 2, 8])).map(|_| dice.below(bytes + 1)).collect();
    cuts.sort_unstable();
    cuts
}

/// Writes on a thread of its own, since the other side may want to be read first; then leaves.
fn write_in_pieces(raw: &Raw, bytes: &[u8], cuts: Vec<usize>, ending: Ending) -> thread::JoinHandle<()> {
    let (mut stream, bytes) = (raw.tcp_stream(), bytes.to_vec());
    thread::spawn(move || {
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let mut start = 0;
        for end in ends {
            // The other side may have closed by now, as it may.
            if stream.write_all(&bytes[start..end]).is_err() {
                break;
            }
            start = end;
            if end < bytes.len() {
                // Lets the piece arrive by itself, most of the time. Nothing depends on it.
                thread::sleep(Duration::from_micros(300));
            }
        }
        leave(&stream, ending);
    })
}

fn leave(stream: &TcpStream, ending: Ending) {
    // All of these fail where the other side was faster.
    match ending {
        Ending::HalfClose => drop(stream.shutdown(Shutdown::Write)),
        Ending::Close => drop(stream.shutdown(Shutdown::Both)),
        Ending::Reset => drop(socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))),
        Ending::Stay => {}
    }
}

/// Ends the replies to a client that broke the protocol while a row was on its way to it: nothing can be said in a row. Or to
/// one that had sent more than was read when it was sent away. The system then resets the connection, and bytes that have not
/// left yet are lost.
const CUT: &str = "cut";

/// Replies to a client, in the parts that must be the same on any server.
fn replies(raw: &mut Raw) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    loop {
        match raw.try_read() {
            Ok(Some(message)) if !BACK.contains(&message.tag) => return Err(format!("{message:?} is no message of a server's")),
            Ok(Some(message)) => said.extend(told(&message)),
            Ok(None) => return Ok(said),
            Err(cause) if matches!(cause.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                said.push(CUT.into());
                return Ok(said);
            }
            Err(cause) => return Err(format!("after {:?}: {cause}", said.iter().rev().take(5).collect::<Vec<_>>())),
        }
    }
}

/// Reports and notices come when they come; names of columns are told with numbers of tables.
fn told(message: &Message) -> Option<String> {
    let tag = message.tag as char;
    match message.tag {
        b'S' | b'N' | b'A' => None,
        b'T' => Some("T".into()),
        b'E' => {
            let failure = message.failure();
            Some(format!("E {} {}", failure.severity, failure.sqlstate))
        }
        _ => {
            let shown = &message.body[..message.body.len().min(40)];
            Some(format!("{tag} {} bytes: {}", message.body.len(), shown.escape_ascii()))
        }
    }
}

/// A Sync in the middle of a copy's data is ignored by a server, or answered if the copy has failed by then. The proxy ignores it.
fn without_syncs_of_copies(told: &[String], has_copy: bool) -> Vec<String> {
    let mut told = told.to_vec();
    if has_copy {
        told.dedup_by(|a, b| a == b && a.starts_with('Z'));
    }
    told
}

/// Accepts equal replies, and a session that the proxy ends at the first difference. Answers to messages without a Sync behind
/// them need not have left the server when it sees that the client is gone.
fn compare(through: &[String], direct: &[String]) -> Result<(), String> {
    let has_copy = direct.iter().any(|told| told.starts_with('G'));
    let (through, direct) = (&without_syncs_of_copies(through, has_copy), &without_syncs_of_copies(direct, has_copy));
    let same = through.iter().zip(direct).take_while(|(a, b)| a == b).count();
    // Under load the server's last message may be lost as well.
    if direct.get(same).is_some_and(|told| told == CUT) {
        return Ok(());
    }
    let mut rest = through[same..].iter().chain(&direct[same..]);
    if (same == through.len() || same == direct.len()) && !rest.any(|told| told.starts_with('Z')) {
        return Ok(());
    }
    // It left in the middle of a copy's data, which is waited for no longer: nobody hears the server's verdict on the data so
    // far.
    let mut since_copy = through.iter().rev().take_while(|told| !told.starts_with('Z'));
    if same == through.len() && since_copy.any(|told| told.starts_with('G')) {
        return Ok(());
    }
    // 57P01: it left while it waited for a server connection, and nobody waits for a client that has left.
    let told: Vec<&str> = through[same..].iter().map(String::as_str).collect();
    if matches!(told[..], ["E FATAL 08P01" | "E FATAL 57P01" | CUT] | ["E FATAL 08P01", CUT]) {
        return Ok(());
    }
    // It broke into a copy of which only the server knew by then that it had failed.
    if matches!(told[..], ["E ERROR 08P01", "E FATAL 08P01" | CUT] | ["E ERROR 08P01", "E FATAL 08P01", CUT]) {
        return Ok(());
    }
    // A name in no encoding at all: Weir need not ask a server to know that it means nothing.
    if direct.get(same).is_some_and(|told| told == "E ERROR 22021") {
        return Ok(());
    }
    let tail = |said: &[String]| said[same.min(said.len())..].iter().take(6).cloned().collect::<Vec<_>>();
    Err(format!("after {same} same messages, through the proxy {:?}, directly {:?}", tail(through), tail(direct)))
}
