//! The binary: hands its arguments to `weir::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main(std::env::args_os().collect())
}
