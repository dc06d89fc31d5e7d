//! One step on one connection, and its result.

use crate::script::{How, Step};
use crate::support::proxy::column_names;
use crate::support::raw::Message;
use crate::support::{Raw, wire};

/// Rows given to a `COPY FROM STDIN`: two columns fit all tables that scripts fill so.
const COPIED: &[u8] = b"201\t1\n202\t\\N\n203\t3\n";

/// A client's replies, without the part that may differ between two servers of equal content: the order of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    rows: Vec<String>,
    /// Names of columns, and tags of commands.
    said: Vec<String>,
    /// SQLSTATE and message.
    errors: Vec<String>,
    /// `I`, `T` or `E`; empty if the connection ended.
    status: String,
}

/// Plays a step to its end.
pub fn play(client: &mut Raw, step: &Step) -> Outcome {
    let bytes = match step.how {
        How::Simple => wire::query(&step.text),
        How::Extended => {
            [wire::parse("", &step.text), wire::bind("", "", &[]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()]
                .concat()
        }
    };
    let mut outcome = Outcome::default();
    if let Err(cause) = client.try_send(&bytes) {
        outcome.errors.push(format!("cannot send: {cause}"));
        return outcome;
    }
    while outcome.status.is_empty() {
        match client.try_read() {
            Ok(Some(message)) => take(client, &message, &mut outcome),
            Ok(None) => {
                outcome.errors.push("the connection was closed".into());
                return outcome;
            }
            Err(cause) => {
                outcome.errors.push(format!("no answer: {cause}"));
                return outcome;
            }
        }
    }
    outcome.rows.sort();
    if step.text.starts_with("explain") {
        outcome.rows.clear();
    }
    outcome
}

fn take(client: &mut Raw, message: &Message, outcome: &mut Outcome) {
    match message.tag {
        b'D' => outcome.rows.push(format!("{:?}", message.row())),
        b'd' => outcome.rows.push(message.body.escape_ascii().to_string()),
        b'T' => outcome.said.push(column_names(&message.body).join(", ")),
        b'C' => outcome.said.push(message.text()),
        b'G' => client.send(&[wire::copy_data(COPIED), wire::copy_done()].concat()),
        b'E' => {
            let failure = message.failure();
            // In a transaction that only reads, a standby refuses a write for its own reason.
            let message = if failure.sqlstate == "25006" { String::new() } else { failure.message };
            outcome.errors.push(format!("{} {message}", failure.sqlstate));
        }
        b'Z' => outcome.status = message.text(),
        _ => {}
    }
}
