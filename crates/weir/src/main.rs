//! The binary: hands its arguments to `weir::process::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::process::cli::main(std::env::args_os().collect())
}
