//! Breaks a conversation: each mutation is a small one, and several may come together.

use crate::dice::Dice;
use crate::support::wire;

/// Lengths that a message's own one is replaced by.
const LENGTHS: [u32; 10] = [0, 1, 3, 4, 5, 0xffff, 0x3fff_ffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
/// Counts within a message, such as that of a Bind's values.
const COUNTS: [u16; 5] = [0, 1, 2, 0x7fff, 0xffff];
/// Messages in a flood.
const FLOOD: usize = 1500;

pub fn mutate(pieces: &mut Vec<Vec<u8>>, dice: &mut Dice) {
    // Some stay as they are: they must work.
    let mutations = dice.of(&[0, 1, 1, 1, 2, 2, 3, 6]);
    for _ in 0..mutations {
        if pieces.is_empty() {
            return;
        }
        let at = dice.below(pieces.len());
        match dice.below(12) {
            0 => flip(&mut pieces[at], dice),
            1 => set_length(&mut pieces[at], dice),
            2 => set_type(&mut pieces[at], dice),
            3 => {
                let bytes = dice.below(pieces[at].len() + 1);
                pieces[at].truncate(bytes);
            }
            4 => drop(pieces.remove(at)),
            5 => {
                let other = dice.below(pieces.len());
                pieces.swap(at, other);
            }
            6 => pieces.insert(at, pieces[dice.below(pieces.len())].clone()),
            7 => pieces.insert(at, stray(dice)),
            8 => remove_terminators(&mut pieces[at]),
            9 => set_count(&mut pieces[at], dice),
            10 => shorten(&mut pieces[at], dice),
            _ => pieces.insert(at, flood(dice)),
        }
    }
}

fn flip(piece: &mut [u8], dice: &mut Dice) {
    for _ in 0..1 + dice.below(3) {
        if !piece.is_empty() {
            let at = dice.below(piece.len());
            piece[at] ^= 1 << dice.below(8);
        }
    }
}

fn set_length(piece: &mut [u8], dice: &mut Dice) {
    let Some(place) = piece.get_mut(1..5) else { return };
    let own = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
    let length = match dice.below(3) {
        0 => own.wrapping_add(1),
        1 => own.wrapping_sub(1),
        _ => dice.of(&LENGTHS),
    };
    place.copy_from_slice(&length.to_be_bytes());
}

fn set_type(piece: &mut [u8], dice: &mut Dice) {
    if let Some(tag) = piece.first_mut() {
        *tag = if dice.once_in(4) { dice.next() as u8 } else { dice.of(b"QPBDECHSFdcfpX") };
    }
}

/// Ends a message earlier, with its new length: its contents are cut.
fn shorten(piece: &mut Vec<u8>, dice: &mut Dice) {
    if piece.len() > 5 {
        piece.truncate(5 + dice.below(piece.len() - 5));
        let length = piece.len() as u32 - 1;
        piece[1..5].copy_from_slice(&length.to_be_bytes());
    }
}

fn remove_terminators(piece: &mut [u8]) {
    for byte in piece.iter_mut().skip(5).filter(|byte| **byte == 0) {
        *byte = b'0';
    }
}

fn set_count(piece: &mut [u8], dice: &mut Dice) {
    if piece.len() > 7 {
        let at = 5 + dice.below(piece.len() - 6);
        piece[at..at + 2].copy_from_slice(&dice.of(&COUNTS).to_be_bytes());
    }
}

/// A message that has no business here.
fn stray(dice: &mut Dice) -> Vec<u8> {
    match dice.below(14) {
        0 => wire::copy_data(b"stray\n"),
        1 => wire::copy_done(),
        2 => wire::copy_fail("stray"),
        3 => wire::message(b'p', b"secret\0"),
        4 => wire::ssl_request(),
        5 => wire::cancel(1, &[0; 4]),
        6 => wire::startup(wire::V3_0, &[("user", "postgres")]),
        7 => vec![0; 1 + dice.below(64)],
        8 => vec![0xff; 1 + dice.below(64)],
        9 => (0..dice.below(200)).map(|_| dice.next() as u8).collect(),
        10 => wire::query("select '\u{feff}\u{1f600}"),
        11 => wire::message(b'Q', b"select '\xff\xfe'\0"),
        12 => wire::message(b'Q', b"select 1\0and more\0"),
        _ => wire::message(dice.of(b"HSXc"), b"a body where there is none"),
    }
}

/// One small message very often.
fn flood(dice: &mut Dice) -> Vec<u8> {
    let one = match dice.below(6) {
        0 => wire::flush(),
        1 => wire::sync(),
        2 => wire::close(b'S', "nothing"),
        3 => wire::describe(b'S', ""),
        4 => wire::query(""),
        _ => wire::copy_data(b""),
    };
    one.repeat(1 + dice.below(FLOOD))
}
