//! Settings under which the engine's answers are those of one server.
//!
//! The engine's session has the settings of its client, and reads what the shards send by them.
//! `postgres_fdw` writes constants of a pushed-down SELECT list or GROUP BY as the engine's session writes values, and the shard reads them as
//! ISO, MDY: `max(timestamp '2024-02-05')` came back as May. It takes care of conditions and ORDER BY only. Seen with versions 13 to 18. Source:
//! calls of `set_transmission_modes` in contrib/postgres_fdw/deparse.c.

struct SettingRow {
    name: &'static str,
    /// True if the shards read values as they are written.
    fits: fn(&str) -> bool,
    wanted: &'static str,
}

const ROWS: [SettingRow; 4] = [
    SettingRow { name: "datestyle", fits: writes_iso, wanted: "DateStyle must be ISO" },
    SettingRow { name: "intervalstyle", fits: writes_signs, wanted: "IntervalStyle must be postgres or iso_8601" },
    SettingRow { name: "extra_float_digits", fits: writes_exactly, wanted: "extra_float_digits must be 1 or more" },
    // While off, a NULL within an array that a shard sends is the text "NULL".
    SettingRow { name: "array_nulls", fits: is_on, wanted: "array_nulls must be on" },
];

/// Returns what must be set otherwise before the engine may answer. `settings`: all that is known of the session, as it was set or reported.
pub fn unfit<'s>(settings: impl IntoIterator<Item = (&'s str, &'s str)>) -> Option<&'static str> {
    let wanted = |(name, value): (&str, &str)| {
        ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name)).filter(|row| !(row.fits)(value)).map(|row| row.wanted)
    };
    settings.into_iter().find_map(wanted)
}

/// A value without a style only orders day and month. Source: `check_datestyle` in variable.c.
fn writes_iso(value: &str) -> bool {
    const OTHERS: [&str; 3] = ["german", "postgres", "sql"];
    let mut words = value.split(',').map(|word| word.trim().to_ascii_lowercase());
    !words.any(|word| OTHERS.iter().any(|other| word.starts_with(other)))
}

/// The styles sql_standard and postgres_verbose write `-1 2:00:00` and `ago`, whose signs hang on the reader's style.
fn writes_signs(value: &str) -> bool {
    ["postgres", "iso_8601"].iter().any(|style| value.eq_ignore_ascii_case(style))
}

fn writes_exactly(value: &str) -> bool {
    value.trim().parse::<i32>().is_ok_and(|digits| digits >= 1)
}

fn is_on(value: &str) -> bool {
    ["on", "true", "yes", "1"].iter().any(|word| value.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_the_shards_would_read_otherwise_are_named() {
        for (name, value, expected) in [
            ("DateStyle", "ISO, DMY", None),
            ("datestyle", "iso", None),
            ("datestyle", "dmy", None),
            ("DateStyle", "German, DMY", Some("DateStyle must be ISO")),
            ("datestyle", "mdy,SQL", Some("DateStyle must be ISO")),
            ("datestyle", "postgresql", Some("DateStyle must be ISO")),
            ("IntervalStyle", "postgres", None),
            ("intervalstyle", "ISO_8601", None),
            ("intervalstyle", "sql_standard", Some("IntervalStyle must be postgres or iso_8601")),
            ("extra_float_digits", "3", None),
            ("extra_float_digits", "0", Some("extra_float_digits must be 1 or more")),
            ("extra_float_digits", "-15", Some("extra_float_digits must be 1 or more")),
            ("extra_float_digits", "x", Some("extra_float_digits must be 1 or more")),
            ("array_nulls", "ON", None),
            ("array_nulls", "off", Some("array_nulls must be on")),
            ("TimeZone", "Europe/Berlin", None),
        ] {
            assert_eq!(unfit([("application_name", "german"), (name, value)]), expected, "{name} = {value}");
        }
    }
}
