//! The binary: hands its arguments to `weir::commands::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::commands::cli::main(std::env::args_os().collect())
}
