//! Is the engine ready: does it hold the rights, settings and columns that the database has now?
//!
//! `weir shard engine` leaves a note in the engine of what it made it by. The look of the same database compares the note with what is there once a second.

use crate::runtime::pool::server_conn::Rows;
use serde_json::{Value, json};
use weir_config::Config;
use weir_shard::EngineReadiness;

/// Finds the note, where a superuser or the asker owns it; with a hash of all in the engine that answers depend on.
pub const ENGINE_NOTE_THERE: &str = "SELECT pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.json_build_array(\
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.srvname, s.srvoptions::pg_catalog.text, s.srvacl::pg_catalog.text) ORDER BY s.srvname) \
    FROM pg_catalog.pg_foreign_server AS s), \
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(r.oid, r.relacl::pg_catalog.text) ORDER BY r.oid) FROM pg_catalog.pg_class AS r \
    WHERE r.relkind OPERATOR(pg_catalog.=) ANY ('{p,f}'::pg_catalog.\"char\"[])), \
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(m.nspname, m.nspacl::pg_catalog.text) ORDER BY m.nspname) \
    FROM pg_catalog.pg_namespace AS m WHERE NOT pg_catalog.starts_with(m.nspname::pg_catalog.text, 'pg_')), \
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(x.setrole, x.setconfig::pg_catalog.text) ORDER BY x.setrole) \
    FROM pg_catalog.pg_db_role_setting AS x WHERE x.setdatabase OPERATOR(pg_catalog.=) d.oid), \
    d.datacl::pg_catalog.text)::pg_catalog.text, pg_catalog.getdatabaseencoding())), 'hex') \
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) c.relowner \
    JOIN pg_catalog.pg_database AS d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
    WHERE n.nspname OPERATOR(pg_catalog.=) 'weir_shard' AND c.relname OPERATOR(pg_catalog.=) 'engine_state' AND c.relkind OPERATOR(pg_catalog.=) 'r' \
    AND (o.rolsuper OR o.rolname OPERATOR(pg_catalog.=) current_user)";

/// Reads the note, and the places at which the server of the engine listens. To be asked only after `ENGINE_NOTE_THERE` gave a row.
pub const ENGINE_NOTE: &str = "SELECT t.state, weir_shard.engine_place() FROM weir_shard.engine_state AS t";

/// Parts of the fingerprint, by the words that tell an operator what has changed.
const PARTS: [&str; 4] = ["the tables and their columns", "rights", "row security", "settings of the database"];

/// Hashes of a database's spread tables, in the order of `PARTS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint([String; 4]);

/// The note of `weir shard engine`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineNote {
    pub fingerprint: Fingerprint,
    /// The answer to `ENGINE_NOTE_THERE`.
    pub of_engine: String,
    /// Socket directories and port of the server.
    pub place: String,
    /// `addresses_of` the configuration.
    pub addresses: String,
    /// Of servers that the engine reaches by other addresses than Weir.
    pub detours: Vec<(u16, String, u16)>,
}

/// Facts of one look.
pub struct EngineSeen {
    pub node: u16,
    pub note: Option<EngineNote>,
    pub fingerprint: Fingerprint,
    pub of_engine: String,
    pub place: String,
    pub addresses: String,
}

/// Tables by schema and name, as an item of FROM with two columns of texts.
pub fn listed<'a>(tables: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let (mut schemas, mut names) = (String::new(), String::new());
    for (schema, name) in tables {
        for (list, text) in [(&mut schemas, schema), (&mut names, name)] {
            if !list.is_empty() {
                list.push(',');
            }
            weir_wire::write::literal(list, text);
        }
    }
    format!(
        "ROWS FROM (pg_catalog.unnest(ARRAY[{schemas}]::pg_catalog.text[]), pg_catalog.unnest(ARRAY[{names}]::pg_catalog.text[]))"
    )
}

/// The question for the fingerprint, to be asked in the database itself. `list`: all spread tables, by `listed`.
pub fn fingerprint_query(list: &str) -> String {
    let hash = |sql: &str| {
        format!(
            "pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(COALESCE(({sql})::pg_catalog.text, ''), \
             pg_catalog.getdatabaseencoding())), 'hex')"
        )
    };
    let columns = hash(
        "SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.nspname, s.relname, a.attnum, a.attname, a.atttypid, a.atttypmod, \
         a.attcollation, a.attnotnull) ORDER BY s.nspname, s.relname, a.attnum) FROM spread AS s \
         LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) s.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped",
    );
    let rights = hash(
        "SELECT pg_catalog.json_build_array((SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.nspname, s.relname, \
         pg_catalog.pg_get_userbyid(s.relowner), s.relacl::pg_catalog.text, pg_catalog.pg_get_userbyid(s.nspowner), s.nspacl::pg_catalog.text) \
         ORDER BY s.nspname, s.relname) FROM spread AS s), \
         (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.nspname, s.relname, a.attname, a.attacl::pg_catalog.text) \
         ORDER BY s.nspname, s.relname, a.attnum) FROM spread AS s JOIN pg_catalog.pg_attribute AS a \
         ON a.attrelid OPERATOR(pg_catalog.=) s.oid AND a.attacl IS NOT NULL), \
         pg_catalog.pg_get_userbyid(d.datdba), d.datacl::pg_catalog.text) \
         FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()",
    );
    let row_security = hash(
        "SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.nspname, s.relname) ORDER BY s.nspname, s.relname) FROM spread AS s \
         WHERE s.relrowsecurity OR s.relforcerowsecurity",
    );
    let settings = hash(
        "SELECT pg_catalog.json_agg(pg_catalog.json_build_array(pg_catalog.pg_get_userbyid(x.setrole), x.setconfig::pg_catalog.text) \
         ORDER BY x.setrole) FROM pg_catalog.pg_db_role_setting AS x JOIN pg_catalog.pg_database AS d \
         ON d.oid OPERATOR(pg_catalog.=) x.setdatabase WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()",
    );
    format!(
        "WITH spread AS (SELECT n.nspname, n.nspowner, n.nspacl, c.oid, c.relname, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity \
         FROM {list} AS x (schema, name) \
         JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) x.schema::pg_catalog.name \
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) x.name::pg_catalog.name) \
         SELECT {columns}, {rights}, {row_security}, {settings}"
    )
}

impl Fingerprint {
    /// `None`: an answer of another form.
    pub fn of_rows(rows: &Rows) -> Option<Fingerprint> {
        let row = rows.first()?;
        let cell = |at: usize| row.get(at).cloned().flatten();
        Some(Fingerprint([cell(0)?, cell(1)?, cell(2)?, cell(3)?]))
    }

    /// The first part that differs.
    fn difference(&self, now: &Fingerprint) -> Option<&'static str> {
        let mut parts = PARTS.iter().zip(self.0.iter().zip(&now.0));
        parts.find_map(|(part, (then, now))| (then != now).then_some(*part))
    }
}

/// The addresses of the servers above shard 0, as the configuration has them.
pub fn addresses_of(config: &Config) -> String {
    let mut nodes: Vec<_> = config.sharding.nodes.iter().collect();
    nodes.sort_by_key(|node| node.shard);
    let address = |node: &&weir_config::NodeConfig| format!("{}={}:{}", node.shard, node.hostname, node.port);
    nodes.iter().map(address).collect::<Vec<_>>().join(" ")
}

impl EngineNote {
    pub fn text(&self) -> String {
        let detours: Vec<Value> = self.detours.iter().map(|(shard, host, port)| json!([shard, host, port])).collect();
        let EngineNote { fingerprint, of_engine, place, addresses, .. } = self;
        json!({ "fingerprint": fingerprint.0, "of_engine": of_engine, "place": place, "addresses": addresses, "detours": detours })
            .to_string()
    }

    /// `None`: another version of Weir wrote it.
    pub fn of_text(text: &str) -> Option<EngineNote> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let parts: Vec<String> =
            value.get("fingerprint")?.as_array()?.iter().map(|part| part.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        let detours = value.get("detours")?.as_array()?.iter().map(detour).collect::<Option<_>>()?;
        Some(EngineNote {
            fingerprint: Fingerprint(parts.try_into().ok()?),
            of_engine: word("of_engine")?,
            place: word("place")?,
            addresses: word("addresses")?,
            detours,
        })
    }
}

fn detour(value: &Value) -> Option<(u16, String, u16)> {
    let number = |at: usize| value.get(at)?.as_u64()?.try_into().ok();
    Some((number(0)?, value.get(1)?.as_str()?.to_owned(), number(2)?))
}

pub fn readiness(seen: &EngineSeen, database: &str) -> EngineReadiness {
    match reason(seen) {
        None => EngineReadiness::Ready { node: seen.node },
        Some(reason) if change_to_follow(seen).is_some() => {
            EngineReadiness::Follows(format!("{reason}: a running Weir has it follow, else run weir shard engine {database}"))
        }
        Some(reason) => EngineReadiness::Behind(format!("{reason}: run weir shard engine {database}")),
    }
}

/// The state of the database, if the engine lacks nothing but to follow its changes.
pub fn change_to_follow(seen: &EngineSeen) -> Option<&Fingerprint> {
    let note = seen.note.as_ref().filter(|note| note.fingerprint.difference(&seen.fingerprint).is_some())?;
    let is_alone = note.of_engine == seen.of_engine && note.place == seen.place && note.addresses == seen.addresses;
    is_alone.then_some(&seen.fingerprint)
}

fn reason(seen: &EngineSeen) -> Option<String> {
    let Some(note) = &seen.note else { return Some("another version of Weir made the engine".to_owned()) };
    if let Some(part) = note.fingerprint.difference(&seen.fingerprint) {
        return Some(format!("{part} changed on shard 0 after the engine was made"));
    }
    if note.of_engine != seen.of_engine {
        return Some("servers, rights or settings of the engine were changed".to_owned());
    }
    if note.place != seen.place {
        return Some("the server of shard 0 listens elsewhere than the one the engine was made on".to_owned());
    }
    (note.addresses != seen.addresses).then(|| "the configuration has other servers of shards than the engine".to_owned())
}

pub fn own_texts() -> Vec<String> {
    vec![ENGINE_NOTE_THERE.to_owned(), fingerprint_query(&listed([("public", "items"), ("a\\b", "it's")].into_iter()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> EngineNote {
        EngineNote {
            fingerprint: Fingerprint(["c", "r", "s", "t"].map(str::to_owned)),
            of_engine: "e".to_owned(),
            place: "/tmp 5432".to_owned(),
            addresses: "1=db1:5432".to_owned(),
            detours: vec![(1, "10.0.0.1".to_owned(), 5433)],
        }
    }

    fn seen() -> EngineSeen {
        let EngineNote { fingerprint, of_engine, place, addresses, .. } = note();
        EngineSeen { node: 3, note: Some(note()), fingerprint, of_engine, place, addresses }
    }

    #[test]
    fn only_changes_of_the_database_are_followed() {
        assert_eq!(change_to_follow(&seen()), None, "nothing has changed");
        let changed = || EngineSeen { fingerprint: Fingerprint(["c2", "r", "s", "t"].map(str::to_owned)), ..seen() };
        assert_eq!(change_to_follow(&changed()), Some(&changed().fingerprint));
        assert_eq!(change_to_follow(&EngineSeen { note: None, ..changed() }), None, "another version of Weir made it");
        assert_eq!(change_to_follow(&EngineSeen { of_engine: "other".to_owned(), ..changed() }), None);
        assert_eq!(change_to_follow(&EngineSeen { place: "other".to_owned(), ..changed() }), None);
        assert_eq!(change_to_follow(&EngineSeen { addresses: "other".to_owned(), ..changed() }), None);
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_other_texts_are_none() {
        assert_eq!(EngineNote::of_text(&note().text()), Some(note()));
        for text in ["", "{}", "[1]", &note().text().replace("\"detours\"", "\"ways\""), &note().text().replace("\"t\"", "1")] {
            assert_eq!(EngineNote::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn an_engine_is_ready_on_its_node_while_nothing_differs() {
        assert_eq!(readiness(&seen(), "shop"), EngineReadiness::Ready { node: 3 });
        let with = |change: &dyn Fn(&mut EngineSeen)| {
            let mut seen = seen();
            change(&mut seen);
            match readiness(&seen, "shop") {
                EngineReadiness::Follows(reason) | EngineReadiness::Behind(reason) => reason,
                other => panic!("{other:?}"),
            }
        };
        let said = [
            with(&|seen| seen.note = None),
            with(&|seen| seen.fingerprint.0[0].push('x')),
            with(&|seen| seen.fingerprint.0[1].push('x')),
            with(&|seen| seen.fingerprint.0[2].push('x')),
            with(&|seen| seen.fingerprint.0[3].push('x')),
            with(&|seen| seen.of_engine.push('x')),
            with(&|seen| seen.place.push('x')),
            with(&|seen| seen.addresses.push('x')),
        ];
        let begins = [
            "another version",
            "the tables",
            "rights",
            "row security",
            "settings of the database",
            "servers",
            "the server of",
            "the configuration",
        ];
        for (said, begin) in said.iter().zip(begins) {
            assert!(said.starts_with(begin) && said.ends_with("run weir shard engine shop"), "{said}");
        }
    }
}
