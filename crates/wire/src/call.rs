//! FunctionCall: a function called by its OID.

/// Returns the arguments received so far, without NULLs.
pub fn arguments(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Function OID, formats, argument count.
    let mut rest = after_formats(body).and_then(|rest| rest.get(2..)).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                rest = after;
                continue;
            };
            let (argument, after) = after.split_at(length.min(after.len()));
            rest = after;
            return Some(argument);
        }
    })
}

fn after_formats(body: &[u8]) -> Option<&[u8]> {
    let (count, rest) = body.get(4..)?.split_first_chunk::<2>()?;
    rest.get(2 * usize::from(u16::from_be_bytes(*count))..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_behind_their_formats() {
        let body = [&[0, 0, 8, 30, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2][..], b"ab", &[255; 4], &[0, 0, 0, 1], b"c", &[0, 0]].concat();
        assert_eq!(arguments(&body).take(2).collect::<Vec<_>>(), [b"ab".as_slice(), b"c"]);
        for end in 0..body.len() {
            assert!(arguments(&body[..end]).count() <= 2, "{end}");
        }
        assert_eq!(arguments(&[0, 0, 0, 1, 255, 255, 0]).count(), 0);
        assert_eq!(arguments(&[0, 0, 0, 1, 0, 0, 0, 9, 127, 255, 255, 255, b'x']).collect::<Vec<_>>(), [b"x"]);
    }
}
