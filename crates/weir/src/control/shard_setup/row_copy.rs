//! Rows of a table from one shard to another, by COPY.

use super::shard_servers::ShardConn;
use super::table_definition::TableDefinition;
use super::words::{TableName, quote_name};
use crate::runtime::pool::server_login::refused;
use anyhow::bail;
use weir_progress::ProgressLine;
use weir_wire::frame::{back, front};
use weir_wire::write;

/// Copies all rows; returns their number. The line counts them. Not cancel safe: both connections are unusable afterwards.
pub async fn copy(
    from: &mut ShardConn,
    to: &mut ShardConn,
    table: &TableName,
    definition: &TableDefinition,
    line: &ProgressLine,
) -> anyhow::Result<u64> {
    let given = definition.columns.iter().filter(|column| column.generated.is_empty());
    let columns = given.map(|column| quote_name(&column.name)).collect::<Vec<_>>().join(", ");
    begin(from, &format!("COPY {table} ({columns}) TO STDOUT"), back::COPY_OUT).await?;
    begin(to, &format!("COPY {table} ({columns}) FROM STDIN"), back::COPY_IN).await?;
    pass(from, to, line).await?;
    end(to).await
}

/// Not cancel safe: the connection is unusable afterwards.
async fn begin(conn: &mut ShardConn, sql: &str, awaited: u8) -> anyhow::Result<()> {
    conn.renew();
    conn.conn.ask_copy(sql).await.map_err(|error| conn.failed(&error))?;
    loop {
        let (tag, body) = conn.conn.next().await.map_err(|error| conn.failed(&error))?;
        match tag {
            tag if tag == awaited => return Ok(()),
            back::ERROR => return Err(conn.failed(&refused(&conn.conn.address, &body))),
            back::READY => bail!("{}: no COPY in its answer", conn.server),
            _ => {}
        }
    }
}

/// Not cancel safe: both connections are unusable afterwards.
async fn pass(from: &mut ShardConn, to: &mut ShardConn, line: &ProgressLine) -> anyhow::Result<()> {
    let mut out = Vec::new();
    loop {
        from.renew();
        let (tag, body) = from.conn.next().await.map_err(|error| from.failed(&error))?;
        out.clear();
        match tag {
            // A server sends each row in a message of its own.
            back::COPY_DATA => {
                write::message(&mut out, front::COPY_DATA, |out| out.extend_from_slice(&body));
                line.advance(1);
            }
            back::COPY_DONE => write::bare(&mut out, front::COPY_DONE),
            back::ERROR => return Err(from.failed(&refused(&from.conn.address, &body))),
            back::READY => return Ok(()),
            _ => continue,
        }
        to.renew();
        to.conn.send(&out).await.map_err(|error| to.failed(&error))?;
    }
}

/// Not cancel safe: the connection is unusable afterwards.
async fn end(to: &mut ShardConn) -> anyhow::Result<u64> {
    let (mut count, mut error) = (0, None);
    loop {
        let (tag, body) = to.conn.next().await.map_err(|error| to.failed(&error))?;
        match tag {
            back::COMMAND_COMPLETE => {
                let text = String::from_utf8_lossy(&body);
                count = text.trim_end_matches('\0').rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            }
            back::ERROR => error = Some(to.failed(&refused(&to.conn.address, &body))),
            back::READY => return error.map_or(Ok(count), Err),
            _ => {}
        }
    }
}
