//! `primary_conninfo`: a standby's primary, and data for the Weirs.
//!
//! `fallback_application_name` holds mark and numbers. The receiver sets it itself behind this text, so that it has no other effect.
//! Source: `conninfo_parse` in PostgreSQL's fe-connect.c, `libpqrcv_connect` in libpqwalreceiver.c.

use super::ballot::Mark;
use super::numbers::PromotionNumbers;

/// A missing folder; without a host libpq would use a default.
const NOWHERE: &str = "/weir-cut-off";
const MARK: &str = "fallback_application_name";
const BEHIND: char = ';';
/// Words that locate a server.
const PLACE: [&str; 4] = ["host", "hostaddr", "port", "service"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conninfo(Vec<(String, String)>);

impl Conninfo {
    /// `None`: refused by libpq, or a URI, which is not supported.
    pub fn parse(text: &str) -> Option<Conninfo> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return None;
        }
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (name, behind) = rest.split_once('=')?;
            let name = name.trim_end();
            if name.is_empty() || name.contains(char::is_whitespace) {
                return None;
            }
            let (value, behind) = value(behind.trim_start())?;
            words.push((name.to_string(), value));
            rest = behind.trim_start();
        }
        Some(Conninfo(words))
    }

    pub fn show(&self) -> String {
        let word = |(name, value): &(String, String)| {
            let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '\'' || c == '\\');
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            if is_plain { format!("{name}={value}") } else { format!("{name}='{value}'") }
        };
        self.0.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    pub fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Conninfo {
        self.0.retain(|(known, _)| !names.contains(&known.as_str()));
        self
    }

    /// Returns the last value of a word, as libpq does.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Conninfo {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.into(), value.into()));
        self
    }

    /// Returns host and port.
    pub fn place(&self) -> Option<(&str, u16)> {
        let host = self.get("hostaddr").filter(|host| !host.is_empty()).or_else(|| self.get("host"))?;
        let port = self.get("port").filter(|port| !port.is_empty()).map_or(Some(5432), |port| port.parse().ok())?;
        (host != NOWHERE).then_some((host, port))
    }

    pub fn mark(&self) -> Mark {
        self.memory().0.and_then(Mark::parse).unwrap_or_default()
    }

    pub fn numbers(&self) -> Option<PromotionNumbers> {
        self.memory().1.and_then(PromotionNumbers::parse)
    }

    fn memory(&self) -> (Option<&str>, Option<&str>) {
        let Some(text) = self.get(MARK) else { return (None, None) };
        text.split_once(BEHIND).map_or((Some(text), None), |(mark, numbers)| (Some(mark), Some(numbers)))
    }

    #[must_use]
    pub fn with_mark(self, mark: Mark) -> Conninfo {
        let numbers = self.numbers();
        self.remembering(mark, numbers)
    }

    #[must_use]
    pub fn with_numbers(self, numbers: PromotionNumbers) -> Conninfo {
        let mark = self.mark();
        self.remembering(mark, Some(numbers))
    }

    /// Without a host the text gets one that leads nowhere.
    fn remembering(mut self, mark: Mark, numbers: Option<PromotionNumbers>) -> Conninfo {
        self.0.retain(|(name, _)| name != MARK);
        if PLACE.iter().all(|name| self.get(name).is_none()) {
            self.0.push(("host".into(), NOWHERE.into()));
        }
        let numbers = numbers.map(|numbers| format!("{BEHIND}{}", numbers.show())).unwrap_or_default();
        self.0.push((MARK.into(), format!("{}{numbers}", mark.show())));
        self
    }

    #[must_use]
    pub fn cut_off(mut self) -> Conninfo {
        self.0.retain(|(name, _)| !PLACE.contains(&name.as_str()));
        self.0.push(("host".into(), NOWHERE.into()));
        self
    }

    /// User, password, name and encryption stay.
    #[must_use]
    pub fn to(mut self, host: &str, port: u16) -> Conninfo {
        self.0.retain(|(name, _)| !PLACE.contains(&name.as_str()));
        self.0.push(("host".into(), host.into()));
        self.0.push(("port".into(), port.to_string()));
        self
    }
}

fn value(text: &str) -> Option<(String, &str)> {
    let mut read = String::new();
    let (quoted, body) = match text.strip_prefix('\'') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => read.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Some((read, &body[at + 1..])),
            c if !quoted && c.is_whitespace() => return Some((read, &body[at..])),
            c => read.push(c),
        }
    }
    (!quoted).then_some((read, ""))
}

#[cfg(test)]
mod tests {
    use super::super::ballot::Ballot;
    use super::*;

    #[test]
    fn a_text_is_read_as_libpq_reads_it_and_written_so_that_it_is_read_alike() {
        let text = "host=10.0.0.1 port = 5433 user='a b' password='it\\'s \\\\' sslmode=require empty=''";
        let read = Conninfo::parse(text).unwrap();
        assert_eq!((read.get("user"), read.get("password"), read.get("empty")), (Some("a b"), Some("it's \\"), Some("")));
        assert_eq!(read.place(), Some(("10.0.0.1", 5433)));
        assert_eq!(Conninfo::parse(&read.show()), Some(read));
        assert_eq!(Conninfo::parse(""), Some(Conninfo::default()));
        for wrong in ["host", "host='a", "=a", "a b=c", "postgresql://h/"] {
            assert_eq!(Conninfo::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Conninfo::parse("host=a host=b port=1").unwrap().place(), Some(("b", 1)), "the last one counts");
    }

    #[test]
    fn a_standby_is_cut_off_and_pointed_elsewhere_with_all_else_as_it_was() {
        let mark = Mark { promised: Ballot { term: 3, weir: 7 }, vote: None };
        let own = Conninfo::parse("host=a port=5433 user=u application_name=n").unwrap();
        let cut = own.clone().cut_off().with_mark(mark);
        assert_eq!(cut.show(), "user=u application_name=n host=/weir-cut-off fallback_application_name=weir/3.7");
        assert_eq!((cut.place(), cut.mark()), (None, mark));
        let there = cut.to("b", 5434);
        assert_eq!(there.show(), "user=u application_name=n fallback_application_name=weir/3.7 host=b port=5434");
        assert_eq!(there.place(), Some(("b", 5434)));
        assert_eq!(Conninfo::default().with_mark(mark).place(), None, "a primary that is never to find a server by chance");
        assert_eq!(own.mark(), Mark::default());
    }

    #[test]
    fn numbers_stay_with_another_mark() {
        let [first, second] = [3, 4].map(|term| Mark { promised: Ballot { term, weir: 7 }, vote: None });
        let numbers = PromotionNumbers { timeline: 2, reached: 100, fresh: 103, last_ms: None };
        let kept = Conninfo::default().with_mark(first).with_numbers(numbers);
        assert_eq!(kept.show(), "host=/weir-cut-off fallback_application_name=weir/3.7;2.100.103.-");
        let next = Conninfo::parse(&kept.show()).unwrap().with_mark(second);
        assert_eq!((next.mark(), next.numbers()), (second, Some(numbers)));
        assert_eq!(Conninfo::default().with_mark(first).numbers(), None);
    }
}
