//! Parameters reported over one server connection.

use weir_wire::back as server;
use weir_wire::gather::{BoundExceeded, GatherBound, GatherBudget};

/// PostgreSQL reports about fifteen parameters, extensions may add some. Values may be long (`search_path`).
const REPORTS: GatherBound =
    GatherBound { thing: "the list of parameters that the server reports", count_max: 256, bytes_max: 128 << 10, parameter: "" };

const ROLE: &str = "in_hot_standby";

/// Role reported by a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportedRole {
    /// Version 13 or older.
    #[default]
    Nothing,
    Primary,
    Standby,
}

impl ReportedRole {
    fn of(reported: &str) -> ReportedRole {
        match reported {
            "on" => ReportedRole::Standby,
            "off" => ReportedRole::Primary,
            _ => ReportedRole::Nothing,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ReportedParameters {
    values: Vec<(String, String)>,
    gathered: GatherBudget,
    told: ReportedRole,
}

impl Default for ReportedParameters {
    fn default() -> ReportedParameters {
        ReportedParameters { values: Vec::new(), gathered: GatherBudget::new(REPORTS), told: ReportedRole::default() }
    }
}

impl ReportedParameters {
    /// An error makes the connection unusable.
    pub fn note(&mut self, body: &[u8]) -> Result<(), BoundExceeded> {
        let Some((name, value)) = server::read_parameter(body) else { return Ok(()) };
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        let known = self.values.iter_mut().find(|(known, _)| *known == name);
        if let Some((_, before)) = &known {
            self.gathered.give_back(name.len() + before.len());
        }
        self.gathered.take(name.len() + value.len())?;
        if name == ROLE {
            self.told = ReportedRole::of(&value);
        }
        match known {
            Some((_, known)) => *known = value.into_owned(),
            None => self.values.push((name.into_owned(), value.into_owned())),
        }
        Ok(())
    }

    /// Returns a parameter's value; empty if unreported.
    pub fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    #[inline]
    pub fn told(&self) -> ReportedRole {
        self.told
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str, value: &str) -> Vec<u8> {
        [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat()
    }

    #[test]
    fn the_last_value_counts_however_often_it_is_reported() {
        let mut reports = ReportedParameters::default();
        for number in 0..100_000 {
            reports.note(&body("TimeZone", &format!("UTC{number}"))).unwrap();
        }
        reports.note(b"malformed").unwrap();
        assert_eq!((reports.value("TimeZone"), reports.value("other"), reports.iter().count()), ("UTC99999", "", 1));
        reports.note(&body("DateStyle", "ISO, MDY")).unwrap();
        assert_eq!(reports.iter().collect::<Vec<_>>(), [("TimeZone", "UTC99999"), ("DateStyle", "ISO, MDY")]);
    }

    #[test]
    fn more_names_or_bytes_than_any_server_has_are_refused() {
        let mut reports = ReportedParameters::default();
        let refused = (0..).find(|number| reports.note(&body(&format!("p{number}"), "")).is_err());
        assert_eq!(refused, Some(256));
        let mut reports = ReportedParameters::default();
        let error = reports.note(&body("search_path", &"x".repeat(200_000))).unwrap_err();
        assert_eq!(error.to_string(), "the list of parameters that the server reports takes more than 131072 bytes");
        assert_eq!(reports.value("search_path"), "");
    }

    #[test]
    fn servers_tell_their_role_from_version_14_on() {
        let mut reports = ReportedParameters::default();
        assert_eq!(reports.told(), ReportedRole::Nothing);
        for (value, told) in [("on", ReportedRole::Standby), ("off", ReportedRole::Primary)] {
            reports.note(&body(ROLE, value)).unwrap();
            assert_eq!(reports.told(), told);
        }
    }
}
