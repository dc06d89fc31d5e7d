//! Plays a script over a connection.

use crate::connection::{Connection, Stop};
use crate::dice::Dice;
use crate::reply::Reply;
use crate::script::{Unit, Wait};

/// Replies to a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    pub replies: Vec<Reply>,
    /// Why it did not come to its end, and in which unit.
    pub stopped: Option<(Stop, usize)>,
}

/// Plays all units. `cuts` says where writes are cut; the same number cuts the same way.
pub fn play(connection: &mut Connection, units: &[Unit], cuts: u64) -> Played {
    let mut dice = Dice::new(cuts);
    for (at, unit) in units.iter().enumerate() {
        let mut bytes = Vec::new();
        unit.messages.iter().for_each(|message| message.write(&mut bytes));
        write_in_pieces(connection, &bytes, &mut dice);
        if let Err(stop) = wait(connection, &unit.wait) {
            return Played { replies: std::mem::take(&mut connection.seen), stopped: Some((stop, at)) };
        }
    }
    Played { replies: std::mem::take(&mut connection.seen), stopped: None }
}

fn write_in_pieces(connection: &mut Connection, mut bytes: &[u8], dice: &mut Dice) {
    let pieces = if dice.once_in(2) { 0 } else { 1 + dice.below(4) };
    for _ in 0..pieces {
        let (piece, rest) = bytes.split_at(dice.below(bytes.len() + 1).min(bytes.len()));
        connection.write(piece);
        std::thread::yield_now();
        bytes = rest;
    }
    connection.write(bytes);
}

fn wait(connection: &mut Connection, wait: &Wait) -> Result<(), Stop> {
    match wait {
        Wait::No => Ok(()),
        Wait::Ready => connection.until(|reply| reply.tag == b'Z'),
        Wait::Execute => {
            let told = connection.seen.iter().rev().take_while(|reply| reply.tag != b'Z').any(|reply| reply.tag == b'E');
            if told {
                return Ok(());
            }
            connection.until(|reply| matches!(reply.tag, b'C' | b's' | b'I' | b'E'))
        }
        Wait::Row(value) => {
            connection.until(|reply| reply.is_row(value))?;
            connection.until(|reply| reply.tag == b'Z')
        }
    }
}
