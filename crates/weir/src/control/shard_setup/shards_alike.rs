//! Properties that a database must have in common on all shards: with another encoding or collation, equal keys would have other hashes.

use super::shard_servers::ShardConn;
use super::words::{quote_name, quote_text};
use anyhow::Context;

/// The answers to `DATABASE`, in its order.
const FACTS: [&str; 7] = [
    "major version",
    "encoding",
    "LC_COLLATE",
    "LC_CTYPE",
    "locale provider",
    "locale of the provider",
    "version of the default collation",
];

const DATABASE: &str = "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog./) 10000, \
    pg_catalog.pg_encoding_to_char(d.encoding), d.datcollate, d.datctype, \
    COALESCE(pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocprovider', 'c'), \
    COALESCE(pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'datlocale', pg_catalog.to_jsonb(d) OPERATOR(pg_catalog.->>) 'daticulocale', ''), \
    COALESCE(pg_catalog.pg_collation_actual_version('100'::pg_catalog.oid), '') \
    FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// Not cancel safe: the connection is unusable afterwards.
async fn facts(conn: &mut ShardConn) -> anyhow::Result<Vec<String>> {
    let rows = conn.query(DATABASE).await?;
    let row = rows.into_iter().next().with_context(|| format!("{} does not describe its database", conn.server))?;
    Ok(row.into_iter().map(Option::unwrap_or_default).collect())
}

/// Says what differs from the first connection, a line each. Not cancel safe: connections are unusable afterwards.
pub async fn differences(conns: &mut [ShardConn]) -> anyhow::Result<Vec<String>> {
    let mut of_first: Option<Vec<String>> = None;
    let mut lines = Vec::new();
    for conn in conns {
        let here = facts(conn).await?;
        let Some(wanted) = &of_first else {
            of_first = Some(here);
            continue;
        };
        for ((name, wanted), here) in FACTS.iter().zip(wanted).zip(&here).filter(|((_, wanted), here)| wanted != here) {
            lines.push(format!("{}: the {name} is \"{here}\", and \"{wanted}\" on shard 0", conn.server));
        }
    }
    Ok(lines)
}

/// The order to make a database like the one of the connection. Not cancel safe: the connection is unusable afterwards.
pub async fn create_database(conn: &mut ShardConn, name: &str) -> anyhow::Result<String> {
    Ok(database_text(name, &facts(conn).await?))
}

fn database_text(name: &str, facts: &[String]) -> String {
    let fact = |at: usize| facts.get(at).map_or("", String::as_str);
    let mut text = format!(
        "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}",
        quote_name(name),
        quote_text(fact(1)),
        quote_text(fact(2)),
        quote_text(fact(3))
    );
    match fact(4) {
        "i" => text += &format!(" LOCALE_PROVIDER icu ICU_LOCALE {}", quote_text(fact(5))),
        "b" => text += &format!(" LOCALE_PROVIDER builtin BUILTIN_LOCALE {}", quote_text(fact(5))),
        _ => {}
    }
    text
}

pub fn own_texts() -> Vec<String> {
    vec![DATABASE.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_the_locale_of_its_database() {
        let facts =
            |provider: &str, locale: &str| ["15", "UTF8", "de_DE.UTF-8", "C", provider, locale, ""].map(str::to_owned).to_vec();
        let begin = "CREATE DATABASE \"a\" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'de_DE.UTF-8' LC_CTYPE 'C'";
        assert_eq!(database_text("a", &facts("c", "")), begin);
        assert_eq!(database_text("a", &facts("i", "de")), format!("{begin} LOCALE_PROVIDER icu ICU_LOCALE 'de'"));
    }
}
