//! The client on a bare host: volumes and the tools beside them.

use std::process::ExitCode;

use jfs::cli::Program;
use jfs::runtime;

fn main() -> ExitCode {
    match Program::begin(std::env::args_os().collect()) {
        Ok(program) => runtime::run("jfs-mount", program.run()),
        Err(over) => over,
    }
}
