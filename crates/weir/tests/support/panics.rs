//! Reasons of failures, printed when they happen.

use std::sync::Once;
use std::{panic, thread};

/// From now on each panic is printed at once, too. The test program keeps a test's output until its own end, which may be half an hour away.
pub fn are_told_at_once() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            // The descriptor itself: what goes to `eprintln!` is kept.
            let line = format!("a panic in {}: {info}\n", thread::current().name().unwrap_or("a thread without a name"));
            let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
        }));
    });
}
