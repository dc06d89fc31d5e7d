//! Open pages, to each of which the overview is sent once a second.
//!
//! A page that does not take what is sent misses some overviews, and delays nobody.

use super::api_error::ApiError;
use super::dashboard_sessions::DashboardLogin;
use axum::body::Bytes;
use hyper::body::Frame;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Half of the connections, so that monitoring always gets one.
const STREAMS_MAX: usize = 16;
/// Overviews that wait for a page.
const UNREAD_MAX: usize = 2;

#[derive(Default)]
pub struct OverviewStreams(Mutex<Vec<OverviewStream>>);

struct OverviewStream {
    login: DashboardLogin,
    sender: mpsc::Sender<Bytes>,
}

/// The body of an answer that ends when the page leaves, or its login ends.
pub struct StreamBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

pub fn event(overview: &str) -> Bytes {
    format!("event: overview\ndata: {overview}\n\n").into()
}

impl OverviewStreams {
    /// Gives the body of a stream that begins with an event.
    pub fn open(&self, login: DashboardLogin, first: Bytes) -> Result<StreamBody, ApiError> {
        let mut streams = self.0.lock();
        streams.retain(|stream| !stream.sender.is_closed());
        if streams.len() >= STREAMS_MAX {
            return Err(ApiError::busy(format!("{STREAMS_MAX} pages are open already"), 10));
        }
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        // The channel is new and has room.
        let _ = sender.try_send(first);
        streams.push(OverviewStream { login, sender });
        Ok(StreamBody(receiver))
    }

    /// Forgets pages that left, and those whose login has ended. True if there are others.
    pub fn keep(&self, is_known: impl Fn(&DashboardLogin) -> bool) -> bool {
        let mut streams = self.0.lock();
        streams.retain(|stream| !stream.sender.is_closed() && is_known(&stream.login));
        !streams.is_empty()
    }

    pub fn send(&self, bytes: &Bytes) {
        for stream in self.0.lock().iter() {
            // A page that is behind gets the next one.
            let _ = stream.sender.try_send(bytes.clone());
        }
    }

    pub fn end_all(&self) {
        self.0.lock().clear();
    }
}
