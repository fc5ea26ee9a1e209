//! The CSI driver.

use std::process::ExitCode;
use std::thread::available_parallelism;

use jfs::csi::Program;

/// Threads for files, databases and mounts, which block. More would only queue in the kernel.
const BLOCKING: usize = 64;

fn main() -> ExitCode {
    let program = match Program::begin() {
        Ok(program) => program,
        Err(over) => return over,
    };
    let cores = available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("jfs-csi: starting the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(program.run());
    // Whoever still blocks has nothing to say any more.
    runtime.shutdown_background();
    ended
}
