//! The program `jfs-keeper`: holds descriptors of mounts for the process that serves them.

use std::process::ExitCode;

use jfs::keeper::{run, supervise};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    ExitCode::from(run::main(&words, 1, supervise::plain))
}
