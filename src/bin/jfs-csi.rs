//! The program `jfs-csi`: the CSI driver.

use std::process::ExitCode;

use jfs::csi::Program;
use jfs::runtime;

fn main() -> ExitCode {
    runtime::return_freed_memory();
    match Program::begin() {
        Ok(program) => runtime::run("jfs-csi", program.run()),
        Err(exit) => exit,
    }
}
