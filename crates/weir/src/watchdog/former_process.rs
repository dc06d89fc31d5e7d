//! Processes of this member from before a takeover, which keep their sessions on rights that this one passes on.
//!
//! A version that takes something is obeyed only after they have obeyed it, or hold nothing any more: by the end of what they were passed, by the clock
//! that all processes of a machine share, or by their own end.

use crate::runtime::group_seat::FormerLine;
use crate::watchdog::lease_line::{LeaseLine, LineSending};
use std::io;
use std::rc::Rc;
use tokio::task::{JoinHandle, spawn_local};
use weir_group::{GroupMs, MemberRights, PassedRights, StateVersion, VersionNumber};

/// Processes that wait for their last clients beside one that serves.
pub const FORMERS_MAX: usize = 8;

/// Beside the end of passed rights: a worker reads the clock before it lets an answer go.
const PASS_ON_MS: GroupMs = 100;

/// Rights of a former process, as far as this one must expect. `until`: the end of all that it may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormerStanding {
    Holds {
        until: GroupMs,
    },
    /// Its rights of before end with `until`; rights that it was passed beside the order, less those that are taken, with `later`.
    Obeys {
        number: VersionNumber,
        until: GroupMs,
        later: GroupMs,
    },
    Obeyed {
        number: VersionNumber,
        until: GroupMs,
    },
    Ended,
}

impl FormerStanding {
    /// After these rights were passed.
    fn passed(self, passed_until: GroupMs, obey: Option<VersionNumber>) -> FormerStanding {
        let (until, later) = match self {
            FormerStanding::Holds { until } | FormerStanding::Obeyed { until, .. } => (until, until),
            FormerStanding::Obeys { until, later, .. } => (until, later),
            FormerStanding::Ended => return self,
        };
        match (self, obey) {
            (_, None) => FormerStanding::Holds { until: later.max(passed_until) },
            (FormerStanding::Obeyed { number, .. }, Some(same)) if number == same => {
                FormerStanding::Obeyed { number, until: until.max(passed_until) }
            }
            (_, Some(number)) => FormerStanding::Obeys { number, until, later: later.max(passed_until) },
        }
    }

    fn said(self, said: VersionNumber) -> FormerStanding {
        match self {
            FormerStanding::Obeys { number, later, .. } if number == said => FormerStanding::Obeyed { number, until: later },
            FormerStanding::Holds { .. }
            | FormerStanding::Obeys { .. }
            | FormerStanding::Obeyed { .. }
            | FormerStanding::Ended => self,
        }
    }

    fn until(self) -> GroupMs {
        match self {
            FormerStanding::Holds { until } | FormerStanding::Obeyed { until, .. } => until,
            FormerStanding::Obeys { until, later, .. } => until.max(later),
            FormerStanding::Ended => 0,
        }
    }

    /// True if nothing is left of what this version takes.
    fn has_obeyed(self, taking: VersionNumber, now: GroupMs) -> bool {
        match self {
            FormerStanding::Ended => true,
            FormerStanding::Obeyed { number, .. } if number == taking => true,
            FormerStanding::Holds { until } | FormerStanding::Obeys { until, .. } | FormerStanding::Obeyed { until, .. } => {
                now >= until + PASS_ON_MS
            }
        }
    }
}

/// Word of a former process, with the number of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerNews {
    Obeyed { line: usize, number: VersionNumber },
    Ended { line: usize },
}

struct FormerProcess {
    standing: FormerStanding,
    line: Rc<LeaseLine>,
    reader: JoinHandle<()>,
    /// As it was passed last, without the version.
    passed: Option<PassedRights>,
    version: Option<VersionNumber>,
}

/// All that still run. Dropped, their rights end by themselves.
#[derive(Default)]
pub struct FormerProcesses {
    formers: Vec<FormerProcess>,
    /// End of the rights of those that cannot be spoken to.
    unheard_until: Option<GroupMs>,
}

impl FormerProcesses {
    /// Within a `LocalSet`. News go to `tell`. A process whose line cannot be used keeps its rights until they end: the causes go to `refused`.
    pub fn begin(
        lines: Vec<FormerLine>,
        tell: impl Fn(FormerNews) + Clone + 'static,
        refused: impl Fn(io::Error),
    ) -> FormerProcesses {
        let mut begun = FormerProcesses::default();
        for FormerLine { end, until } in lines {
            let line = match LeaseLine::new(end) {
                Ok(line) => Rc::new(line),
                Err(cause) => {
                    refused(cause);
                    begun.unheard_until = begun.unheard_until.max(Some(until));
                    continue;
                }
            };
            let reader = spawn_local(read(begun.formers.len(), line.clone(), tell.clone()));
            let standing = FormerStanding::Holds { until };
            begun.formers.push(FormerProcess { standing, line, reader, passed: None, version: None });
        }
        begun
    }

    pub fn count(&self) -> usize {
        self.formers.iter().filter(|former| former.standing != FormerStanding::Ended).count()
    }

    /// Passes on what changed. Never waits: a process that does not read is passed the newest later, and its rights end meanwhile.
    pub fn pass(&mut self, rights: MemberRights, obey: Option<VersionNumber>, version: Option<&StateVersion>) {
        let passed = PassedRights { until: rights.until, writes: rights.writes, obey, version: None };
        for former in self.formers.iter_mut().filter(|former| former.standing != FormerStanding::Ended) {
            let news = version.filter(|version| former.version != Some(version.number));
            if former.passed.as_ref() == Some(&passed) && news.is_none() {
                continue;
            }
            let text = PassedRights { version: news.cloned(), ..passed.clone() }.show();
            // An end is told by its reader.
            if former.line.send(&text) == LineSending::Sent {
                former.standing = former.standing.passed(passed.until, obey);
                former.passed = Some(passed.clone());
                former.version = news.map(|version| version.number).or(former.version);
            }
        }
    }

    pub fn take(&mut self, news: FormerNews) {
        let (FormerNews::Obeyed { line, .. } | FormerNews::Ended { line }) = news;
        let Some(former) = self.formers.get_mut(line) else { return };
        former.standing = match news {
            FormerNews::Obeyed { number, .. } => former.standing.said(number),
            FormerNews::Ended { .. } => FormerStanding::Ended,
        };
    }

    /// True if nothing is left anywhere of what this version takes.
    pub fn have_obeyed(&self, number: VersionNumber, now: GroupMs) -> bool {
        let are_unheard_over = self.unheard_until.is_none_or(|until| now >= until + PASS_ON_MS);
        are_unheard_over && self.formers.iter().all(|former| former.standing.has_obeyed(number, now))
    }

    /// The lines, for the next process of this member.
    pub fn hand_over(self) -> io::Result<Vec<FormerLine>> {
        let mut lines = Vec::new();
        for former in &self.formers {
            if former.standing != FormerStanding::Ended {
                lines.push(FormerLine { end: former.line.copy()?, until: former.standing.until() });
            }
        }
        Ok(lines)
    }
}

impl Drop for FormerProcesses {
    fn drop(&mut self) {
        self.formers.iter().for_each(|former| former.reader.abort());
    }
}

/// Ends with the other process. Cancel safe.
async fn read(line: usize, socket: Rc<LeaseLine>, tell: impl Fn(FormerNews)) {
    while let Some(text) = socket.next().await {
        if let Some(number) = VersionNumber::parse(&text) {
            tell(FormerNews::Obeyed { line, number });
        }
    }
    tell(FormerNews::Ended { line });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(counter: u64) -> VersionNumber {
        VersionNumber { counter, ..VersionNumber::default() }
    }

    #[test]
    fn a_version_is_obeyed_by_the_answer_to_it_and_by_no_other() {
        let asked = FormerStanding::Holds { until: 2_000 }.passed(2_250, Some(number(8)));
        assert!(!asked.has_obeyed(number(8), 1_000));
        assert!(!asked.said(number(7)).has_obeyed(number(8), 1_000), "an answer to an earlier one");
        assert!(asked.said(number(8)).has_obeyed(number(8), 1_000));
        let renewed = asked.said(number(8)).passed(2_500, Some(number(8)));
        assert!(renewed.has_obeyed(number(8), 1_000), "a renewal beside the same order");
        let next = renewed.passed(2_750, Some(number(9)));
        assert!(!next.has_obeyed(number(9), 1_000) && next.until() == 2_750, "{next:?}");
    }

    #[test]
    fn without_an_answer_a_version_is_obeyed_when_the_rights_of_before_are_over() {
        let asked = FormerStanding::Holds { until: 2_000 }.passed(2_250, Some(number(8))).passed(9_000, Some(number(8)));
        assert!(!asked.has_obeyed(number(8), 2_000 + PASS_ON_MS - 1));
        assert!(asked.has_obeyed(number(8), 2_000 + PASS_ON_MS), "renewals do not hold what is taken");
        let again = asked.passed(9_500, None);
        assert!(!again.has_obeyed(number(9), 9_500), "they do hold what was not taken: {again:?}");
    }

    #[test]
    fn a_process_that_ended_has_obeyed_and_one_that_was_passed_nothing_has_nothing() {
        assert!(FormerStanding::Ended.passed(9_000, None).has_obeyed(number(8), 0));
        assert!(FormerStanding::Holds { until: 0 }.has_obeyed(number(8), PASS_ON_MS));
        assert!(!FormerStanding::Holds { until: 0 }.passed(9_000, None).has_obeyed(number(8), 8_000));
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_spoken_to_keeps_its_rights_until_they_end() {
        use rustix::fs::{Mode, OFlags};
        let file = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let causes = std::cell::Cell::new(0);
        let lines = vec![FormerLine { end: file, until: 2_000 }];
        let formers = FormerProcesses::begin(lines, |_| {}, |_| causes.set(causes.get() + 1));
        assert_eq!(causes.get(), 1);
        assert!(!formers.have_obeyed(number(8), 1_999 + PASS_ON_MS) && formers.have_obeyed(number(8), 2_000 + PASS_ON_MS));
    }

    #[tokio::test]
    async fn rights_are_passed_once_and_answers_and_ends_are_told() {
        let (ours, theirs) = crate::watchdog::lease_line::pair().unwrap();
        let former = LeaseLine::new(theirs).unwrap();
        let (sender, mut news) = tokio::sync::mpsc::unbounded_channel();
        let within = tokio::task::LocalSet::new();
        within
            .run_until(async move {
                let lines = vec![FormerLine { end: ours, until: 1_000 }];
                let tell = move |said| {
                    let _ = sender.send(said);
                };
                let mut formers = FormerProcesses::begin(lines, tell, |cause| panic!("{cause}"));
                let rights = MemberRights { until: 2_000, leads: Some(4), writes: Some((3, 1)) };
                formers.pass(rights, None, None);
                formers.pass(rights, None, None);
                formers.pass(MemberRights { writes: None, ..rights }, Some(number(8)), None);
                let mut heard = Vec::new();
                for _ in 0..2 {
                    heard.push(PassedRights::parse(&former.next().await.unwrap()).unwrap());
                }
                let first = PassedRights { until: 2_000, writes: Some((3, 1)), obey: None, version: None };
                assert_eq!(heard, [first.clone(), PassedRights { writes: None, obey: Some(number(8)), ..first }]);
                assert_eq!(former.send(&number(8).show()), LineSending::Sent);
                let said = news.recv().await.unwrap();
                assert_eq!(said, FormerNews::Obeyed { line: 0, number: number(8) });
                assert!(!formers.have_obeyed(number(8), 0));
                formers.take(said);
                assert!(formers.have_obeyed(number(8), 0));
                drop(former);
                formers.take(news.recv().await.unwrap());
                assert_eq!((formers.count(), formers.have_obeyed(number(9), 0)), (0, true));
            })
            .await;
    }
}
