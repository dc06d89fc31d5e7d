//! `--quiet` of commands that tell a terminal how far they are.

use clap::Args;
use weir_progress::{ProgressLine, ProgressWish};

#[derive(Args)]
pub struct ProgressOption {
    /// Show no progress on the terminal.
    #[arg(short = 'q', long)]
    quiet: bool,
}

impl ProgressOption {
    pub fn line(&self) -> ProgressLine {
        ProgressLine::new(ProgressWish::of_quiet(self.quiet))
    }
}
