//! Clients of the proxy that write and note what was acknowledged, and when.

use crate::support::Proxy;
use std::ops::Deref;
use std::time::Duration;
use weir_demo::{Acknowledged, Crew, LoadPlace, Noted, Server};

/// Least time between two deeds of a client: without it a few clients would be the whole work of the machine, and all tests would wait for it.
const PACE: Duration = Duration::from_millis(5);

/// Clients that run until they are stopped.
pub struct Load(weir_demo::Load);

/// Their deeds.
#[derive(Debug)]
pub struct Outcome(Noted);

impl Load {
    /// Begins so many writers, each of which writes a row at a time, and waits for their first acknowledgements.
    pub fn begin(proxy: &Proxy, writers: usize) -> Load {
        Load::with(proxy, Crew { writers, ..Crew::default() })
    }

    pub fn with(proxy: &Proxy, crew: Crew) -> Load {
        let crew = Crew { pause: crew.pause.max(PACE), ..crew };
        Load(weir_demo::Load::begin(proxy.port(), crew).unwrap_or_else(|error| panic!("{error:#}\n{}", proxy.log())))
    }

    /// Clients of a proxy on another host.
    pub fn with_place(place: &LoadPlace, crew: Crew) -> Load {
        let crew = Crew { pause: crew.pause.max(PACE), ..crew };
        Load(weir_demo::Load::begin_at(place, crew).unwrap_or_else(|error| panic!("{}: {error:#}", place.host)))
    }

    /// Waits for so many more acknowledgements.
    pub fn wait_acknowledged(&self, more: usize) {
        self.0.wait_acknowledged(more).unwrap();
    }

    /// All that was noted so far.
    pub fn noted(&self) -> Outcome {
        Outcome(self.0.noted())
    }

    pub fn end(self) -> Outcome {
        Outcome(self.0.end())
    }
}

impl Deref for Outcome {
    type Target = Noted;

    fn deref(&self) -> &Noted {
        &self.0
    }
}

impl Outcome {
    /// Only what came after `before`, an earlier one.
    pub fn since(self, before: &Outcome) -> Outcome {
        Outcome(self.0.since(&before.0))
    }

    /// Acknowledged writes that are not on this server.
    pub fn missing_on(&self, server: &Server) -> Vec<Acknowledged> {
        self.0.missing_on(server).unwrap()
    }
}
