//! All that sessions do, in its order.

use std::sync::{Arc, Mutex, PoisonError};

/// Something that a session did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Bytes went to the server of a connection.
    Server {
        client: char,
        conn: String,
        bytes: Vec<u8>,
    },
    /// Bytes went to a client.
    Client {
        client: char,
        bytes: Vec<u8>,
    },
    Action {
        client: Option<char>,
        what: Action,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A server connection at rest is the session's.
    Took(String),
    /// One was opened for it.
    Opened(String),
    GaveBack(String),
    Reset(String),
    Closed(String),
    /// The next message waits for a server connection.
    Waits(String),
    /// The session is over.
    Ended(String),
    Other(String),
}

/// A list that threads may share, as `Program` must.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Out>>>);

impl Log {
    pub fn add(&self, out: Out) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(out);
    }

    pub fn act(&self, client: Option<char>, what: Action) {
        self.add(Out::Action { client, what });
    }

    pub fn other(&self, client: Option<char>, what: String) {
        self.act(client, Action::Other(what));
    }

    /// Takes the deeds since the last time.
    pub fn take(&self) -> Vec<Out> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
