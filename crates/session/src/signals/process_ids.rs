//! `pg_terminate_backend` and `pg_cancel_backend` calls with a session's process id, which is no process's.
//!
//! Only a statement that is one such call and nothing else is recognised.

use weir_wire::frame::split_cstr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendSignal {
    Terminate,
    Cancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessIdSource {
    Literal(u32),
    Parameter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalCall {
    pub signal: BackendSignal,
    target: ProcessIdSource,
    column: String,
}

/// Longer texts do not count.
const TEXT_BYTES_MAX: usize = 256;

/// Types in a Parse: unspecified, `int4`.
const TYPES: [u32; 2] = [0, 23];

impl SignalCall {
    /// Reads `SELECT pg_terminate_backend(id)`, with optional schema, cast, timeout and column name.
    pub fn of(text: &str) -> Option<SignalCall> {
        let mut words = SignalCallParser(text);
        (text.len() <= TEXT_BYTES_MAX && words.keyword()? == "select").then_some(())?;
        let mut function = words.keyword()?;
        if function == "pg_catalog" && words.take(".") {
            function = words.keyword()?;
        }
        let signal = match function.as_str() {
            "pg_terminate_backend" => BackendSignal::Terminate,
            "pg_cancel_backend" => BackendSignal::Cancel,
            _ => return None,
        };
        words.take("(").then_some(())?;
        let target = words.target()?;
        if words.take("::") && !matches!(words.keyword()?.as_str(), "int" | "int4" | "integer") {
            return None;
        }
        if signal == BackendSignal::Terminate && words.take(",") {
            words.number()?;
        }
        words.take(")").then_some(())?;
        let has_as = words.is_keyword("as");
        let column = match words.keyword() {
            Some(name) => name,
            None if has_as => return None,
            None => function,
        };
        words.take(";");
        words.is_over().then_some(SignalCall { signal, target, column })
    }

    pub fn pid(&self, bind: Option<&[u8]>) -> Option<u32> {
        match self.target {
            ProcessIdSource::Literal(pid) => Some(pid),
            ProcessIdSource::Parameter => only_value(bind?),
        }
    }

    /// Returns a statement with a success's answer and the same parameters.
    pub fn stand_in(&self) -> String {
        let value = match self.target {
            ProcessIdSource::Literal(_) => "true",
            ProcessIdSource::Parameter => "$1::pg_catalog.int4 IS NOT NULL",
        };
        format!("SELECT {value} AS \"{}\"", self.column)
    }

    /// As the part of a Parse after the name. `None`: the parameter has a wrong type.
    pub fn stand_in_of(&self, tail: &[u8]) -> Option<Vec<u8>> {
        let (_, types) = split_cstr(tail)?;
        let known = types.get(2..)?.chunks(4).all(|kind| TYPES.iter().any(|known| known.to_be_bytes() == *kind));
        known.then(|| [self.stand_in().as_bytes(), b"\0", types].concat())
    }
}

fn only_value(bind: &[u8]) -> Option<u32> {
    let (_, rest) = split_cstr(bind)?;
    let (_, rest) = split_cstr(rest)?;
    let (&formats, rest) = rest.split_first_chunk::<2>()?;
    let (format, rest) = match u16::from_be_bytes(formats) {
        0 => (0, rest),
        1 => rest.split_first_chunk::<2>().map(|(&format, rest)| (u16::from_be_bytes(format), rest))?,
        _ => return None,
    };
    let rest = rest.strip_prefix(&[0, 1])?;
    let (&length, rest) = rest.split_first_chunk::<4>()?;
    let value = rest.get(..usize::try_from(i32::from_be_bytes(length)).ok()?)?;
    match format {
        0 => std::str::from_utf8(value).ok()?.trim().parse().ok(),
        _ => value.try_into().ok().map(u32::from_be_bytes),
    }
}

struct SignalCallParser<'a>(&'a str);

impl SignalCallParser<'_> {
    fn take(&mut self, sign: &str) -> bool {
        let rest = self.0.trim_start();
        let taken = rest.strip_prefix(sign);
        self.0 = taken.unwrap_or(rest);
        taken.is_some()
    }

    /// In lower case.
    fn keyword(&mut self) -> Option<String> {
        let rest = self.0.trim_start();
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then(|| {
            self.0 = after;
            word.to_ascii_lowercase()
        })
    }

    fn is_keyword(&mut self, keyword: &str) -> bool {
        let before = self.0;
        let is_it = self.keyword().is_some_and(|word| word == keyword);
        if !is_it {
            self.0 = before;
        }
        is_it
    }

    fn number(&mut self) -> Option<u32> {
        let rest = self.0.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        self.0 = after;
        digits.parse().ok()
    }

    fn target(&mut self) -> Option<ProcessIdSource> {
        if self.take("$1") {
            return Some(ProcessIdSource::Parameter);
        }
        let is_quoted = self.take("'");
        let pid = self.number()?;
        (!is_quoted || self.take("'")).then_some(ProcessIdSource::Literal(pid))
    }

    fn is_over(&self) -> bool {
        self.0.trim().is_empty()
    }
}

pub fn own_texts() -> Vec<String> {
    let calls = ["SELECT pg_terminate_backend(1)", "SELECT pg_cancel_backend($1)"];
    calls.into_iter().filter_map(|text| SignalCall::of(text).map(|call| call.stand_in())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_is_one_call_is_told_from_all_others() {
        let stand_in = |text: &str| SignalCall::of(text).map(|call| (call.signal, call.pid(None), call.stand_in()));
        let hit = |signal, column: &str| Some((signal, Some(5000000), format!("SELECT true AS \"{column}\"")));
        for (text, expected) in [
            ("select pg_terminate_backend(5000000)", hit(BackendSignal::Terminate, "pg_terminate_backend")),
            (" SELECT pg_catalog.pg_cancel_backend ( 5000000 ) ;", hit(BackendSignal::Cancel, "pg_cancel_backend")),
            ("select pg_terminate_backend('5000000'::int4, 100) as Done", hit(BackendSignal::Terminate, "done")),
            ("select pg_cancel_backend(5000000::integer) done", hit(BackendSignal::Cancel, "done")),
            ("select pg_cancel_backend(5000000, 1)", None),
            ("select pg_cancel_backend(5000000::int8)", None),
            ("select other.pg_cancel_backend(5000000)", None),
            ("select pg_cancel_backend(5000000) from t", None),
            ("select pg_cancel_backend(5000000), 1", None),
            ("select pg_cancel_backend(5000000 + 1)", None),
            ("select pg_cancel_backend(-5000000)", None),
            ("select pg_cancel_backend(5000000) as", None),
            ("select pg_cancel_backend(5000000); select 1", None),
            ("select pg_cancel_backend(pg_backend_pid())", None),
            ("select 1", None),
            ("", None),
        ] {
            assert_eq!(stand_in(text), expected, "{text}");
        }
    }

    #[test]
    fn a_bound_process_id_is_read_in_both_formats() {
        let call = SignalCall::of("select pg_terminate_backend($1)").unwrap();
        let pid = |rest: &[u8]| call.pid(Some(&[b"\0s\0", rest].concat()));
        assert_eq!(pid(b"\0\0\0\x01\0\0\0\x075000000\0\0"), Some(5_000_000));
        assert_eq!(pid(b"\0\x01\0\x01\0\x01\0\0\0\x04\0\x4c\x4b\x40\0\0"), Some(5_000_000));
        assert_eq!(pid(b"\0\0\0\x01\xff\xff\xff\xff\0\0"), None);
        assert_eq!(pid(b"\0\0\0\x02\0\0\0\x011\0\0\0\x011\0\0"), None);
        let text = b"SELECT $1::pg_catalog.int4 IS NOT NULL AS \"pg_terminate_backend\"\0";
        for (types, is_taken) in [(&b"\0\0"[..], true), (b"\0\x01\0\0\0\x17", true), (b"\0\x01\0\0\0\x14", false)] {
            let made = call.stand_in_of(&[b"select pg_terminate_backend($1)\0", types].concat());
            assert_eq!(made, is_taken.then(|| [&text[..], types].concat()), "{types:?}");
        }
    }

    #[test]
    fn both_calls_are_in_the_list_of_own_texts() {
        let texts = own_texts();
        assert!(texts[0].ends_with("AS \"pg_terminate_backend\"") && texts[1].ends_with("AS \"pg_cancel_backend\""), "{texts:?}");
    }
}
