//! Processes of this member from before a takeover, which keep their sessions on rights that this one passes on.
//!
//! `weir_group::FormerStanding` says what they may still hold.

use crate::runtime::group_seat::FormerLine;
use crate::watchdog::lease_line::{LeaseLine, LineSending};
use std::io;
use std::rc::Rc;
use tokio::task::{JoinHandle, spawn_local};
use weir_group::{FormerStanding, GroupMs, MemberRights, PASS_ON_MS, PassedRights, StateVersion, VersionNumber};

/// Processes that wait for their last clients beside one that serves.
pub const FORMERS_MAX: usize = 8;

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
    /// End of the rights of those whose lines cannot be used.
    unheard_until: Option<GroupMs>,
    /// When this process began beside those that it has no lines to: the process that passed rights on to them has ended before.
    beside_since: Option<GroupMs>,
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

    /// Without lines, beside processes of before.
    pub fn unheard(since: GroupMs) -> FormerProcesses {
        FormerProcesses { formers: Vec::new(), unheard_until: None, beside_since: Some(since) }
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
    pub fn have_obeyed(&self, number: VersionNumber, now: GroupMs, lease_ms: GroupMs) -> bool {
        self.are_unheard_over(now, lease_ms) && self.formers.iter().all(|former| former.standing.has_obeyed(number, now))
    }

    /// True if processes without a line to this one have no rights any more.
    pub fn are_unheard_over(&self, now: GroupMs, lease_ms: GroupMs) -> bool {
        let besides = self.beside_since.map(|since| since.saturating_add(lease_ms));
        self.unheard_until.max(besides).is_none_or(|until| now >= until.saturating_add(PASS_ON_MS))
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

    #[tokio::test]
    async fn a_process_that_cannot_be_spoken_to_keeps_its_rights_until_they_end() {
        use rustix::fs::{Mode, OFlags};
        let file = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let causes = std::cell::Cell::new(0);
        let lines = vec![FormerLine { end: file, until: 2_000 }];
        let formers = FormerProcesses::begin(lines, |_| {}, |_| causes.set(causes.get() + 1));
        assert_eq!(causes.get(), 1);
        let has_obeyed = |now| formers.have_obeyed(number(8), now, 500);
        assert!(!has_obeyed(1_999 + PASS_ON_MS) && has_obeyed(2_000 + PASS_ON_MS));
    }

    #[test]
    fn processes_without_a_line_to_this_one_keep_their_rights_for_a_lease() {
        let formers = FormerProcesses::unheard(10_000);
        let has_obeyed = |now| formers.have_obeyed(number(8), now, 2_000);
        assert!(!has_obeyed(11_999 + PASS_ON_MS) && has_obeyed(12_000 + PASS_ON_MS));
        assert!(FormerProcesses::default().have_obeyed(number(8), 0, 2_000));
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
                assert!(!formers.have_obeyed(number(8), 0, 2_000));
                formers.take(said);
                assert!(formers.have_obeyed(number(8), 0, 2_000));
                drop(former);
                formers.take(news.recv().await.unwrap());
                assert_eq!((formers.count(), formers.have_obeyed(number(9), 0, 2_000)), (0, true));
            })
            .await;
    }
}
