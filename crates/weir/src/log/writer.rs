//! The thread of one destination: if blocked it delays neither clients nor signals nor the other destination.

use super::Level;
use super::outlet::LogOutlet;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use weir_config::LogConfig;

/// Lines queued; more are counted and left out.
const LINES_MAX: usize = 16 << 10;
/// Bytes queued: a line may hold a long statement.
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
struct QueuedLine {
    level: Level,
    text: String,
    /// Lines before this one that found no room.
    lost: u64,
}

#[derive(Debug, Default)]
struct LineQueue {
    lines: VecDeque<QueuedLine>,
    bytes: usize,
    /// Lines left out since the last queued one.
    lost: u64,
    settings: Option<Box<LogConfig>>,
    rotation: RotationRequest,
    /// Lines ever queued, and lines done.
    taken: u64,
    done: u64,
    life: WriterState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RotationRequest {
    #[default]
    No,
    Wanted,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    #[default]
    Open,
    Closed,
    Over,
}

enum WriterTask {
    Line(QueuedLine),
    Settings(Box<LogConfig>),
    Rotate,
    End { lost: u64 },
}

#[derive(Debug, Default)]
struct WriterChannel {
    queue: Mutex<LineQueue>,
    work: Condvar,
    progress: Condvar,
}

/// Handle of the thread. On drop the thread writes what is queued, and ends.
#[derive(Debug)]
pub struct LogWriter {
    desk: Arc<WriterChannel>,
    files: OpenFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenFiles {
    Some,
    None,
}

impl LogWriter {
    pub fn start(outlet: LogOutlet) -> std::io::Result<LogWriter> {
        let files = if outlet.has_files() { OpenFiles::Some } else { OpenFiles::None };
        let desk = Arc::new(WriterChannel::default());
        let theirs = desk.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || work(&theirs, outlet))?;
        Ok(LogWriter { desk, files })
    }

    pub fn has_files(&self) -> bool {
        self.files == OpenFiles::Some
    }

    /// Queues a line, or counts it as lost if the queue is full.
    pub fn line(&self, level: Level, text: String) {
        self.change(|queue| {
            let is_full = queue.lines.len() >= LINES_MAX || queue.bytes + text.len() > BYTES_MAX;
            // An empty queue takes a line of any length.
            if is_full && !queue.lines.is_empty() {
                queue.lost += 1;
                return;
            }
            queue.bytes += text.len();
            queue.taken += 1;
            let lost = std::mem::take(&mut queue.lost);
            queue.lines.push_back(QueuedLine { level, text, lost });
        });
    }

    pub fn set(&self, config: &LogConfig) {
        self.change(|queue| queue.settings = Some(Box::new(config.clone())));
    }

    pub fn rotate(&self) {
        self.change(|queue| queue.rotation = RotationRequest::Wanted);
    }

    pub fn flush(&self, until: Instant) {
        let wanted = self.desk.queue.lock().taken;
        self.wait(until, |queue| queue.done >= wanted);
    }

    pub fn end(self, until: Instant) {
        self.close();
        self.wait(until, |queue| queue.life == WriterState::Over);
    }

    fn close(&self) {
        self.change(|queue| match queue.life {
            WriterState::Open => queue.life = WriterState::Closed,
            WriterState::Closed | WriterState::Over => {}
        });
    }

    fn change(&self, change: impl FnOnce(&mut LineQueue)) {
        change(&mut self.desk.queue.lock());
        // After the unlock, so that the thread can run: tests check whether it sleeps.
        self.desk.work.notify_one();
    }

    fn wait(&self, until: Instant, is_done: impl Fn(&LineQueue) -> bool) {
        let mut queue = self.desk.queue.lock();
        while !is_done(&queue) && queue.life != WriterState::Over {
            if self.desk.progress.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl WriterChannel {
    fn next(&self) -> WriterTask {
        let mut queue = self.queue.lock();
        loop {
            if let Some(settings) = queue.settings.take() {
                return WriterTask::Settings(settings);
            }
            if std::mem::take(&mut queue.rotation) == RotationRequest::Wanted {
                return WriterTask::Rotate;
            }
            if let Some(line) = queue.lines.pop_front() {
                queue.bytes -= line.text.len();
                return WriterTask::Line(line);
            }
            if queue.life != WriterState::Open {
                return WriterTask::End { lost: std::mem::take(&mut queue.lost) };
            }
            self.work.wait(&mut queue);
        }
    }

    fn tell(&self, change: impl FnOnce(&mut LineQueue)) {
        change(&mut self.queue.lock());
        self.progress.notify_all();
    }
}

fn work(desk: &WriterChannel, mut outlet: LogOutlet) {
    loop {
        match desk.next() {
            WriterTask::Line(line) => {
                outlet.note_lost(line.lost);
                outlet.write(line.level, &line.text);
                desk.tell(|queue| queue.done += 1);
            }
            WriterTask::Settings(settings) => outlet.set(*settings),
            WriterTask::Rotate => outlet.reopen(),
            WriterTask::End { lost } => {
                outlet.note_lost(lost);
                outlet.finish();
                return desk.tell(|queue| queue.life = WriterState::Over);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::file::LogFile;
    use std::io::Read;
    use std::time::Duration;
    use weir_config::Config;

    /// A minute is long enough for any machine; none of these waits ends by it.
    fn limit() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_destination_that_hangs_holds_up_nobody_and_lines_beyond_the_bound_are_counted() {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut settings = Config::default().log;
        settings.line_prefix = String::new();
        let writer = LogWriter::start(LogOutlet::of_file(LogFile::of_pipe(write), &settings)).unwrap();
        let text = |number: usize| format!("{number} {}\n", "x".repeat(5_000));
        let sent = 3 * BYTES_MAX / 5_000;
        (0..sent).for_each(|number| writer.line(Level::Log, text(number)));
        writer.flush(Instant::now());
        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            read.read_to_string(&mut all).unwrap();
            all
        });
        writer.flush(limit());
        writer.line(Level::Log, "the last\n".into());
        writer.end(limit());
        let all = reader.join().unwrap();
        let lines: Vec<&str> = all.lines().collect();
        let kept = lines.len() - 2;
        assert!(kept * 5_000 < BYTES_MAX + (1 << 20) && kept > 1_000, "{kept} of {sent}");
        assert!((0..kept).all(|number| text(number).trim_end() == lines[number]), "in order, and whole");
        let missing = sent - kept;
        let said = format!("WARNING:  {missing} lines of the log are missing: they came faster than they could be written");
        assert_eq!(lines[kept..], [said.as_str(), "the last"]);
    }

    #[test]
    fn an_end_does_not_wait_for_ever_and_takes_the_last_lines_where_it_can() {
        let (read, write) = std::io::pipe().unwrap();
        let writer = LogWriter::start(LogOutlet::of_file(LogFile::of_pipe(write), &Config::default().log)).unwrap();
        writer.line(Level::Log, "x".repeat(1 << 20));
        writer.end(Instant::now());
        drop(read);
    }
}
