//! The runtime of both programs: threads, memory allocator, busy polling.

mod busy_poll;

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

#[cfg(target_env = "gnu")]
use nix::libc;
use tokio::runtime::{Builder, Runtime};

use self::busy_poll::BusyPoll;
use crate::descriptors;

/// Arenas of the allocator: few threads do most of the work.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 4;
/// Allocations from this size on return to the system when they are freed. Blocks and the buffers of
/// FUSE requests have pools of their own.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 128 << 10;

/// The exit code for an invalid value in the environment.
const USAGE: u8 = 2;

/// Makes the allocator return freed memory to the system, for a program with a memory limit. Must be
/// called before threads are started.
///
/// By default, the allocator keeps large freed allocations in one arena for each thread: under load, as
/// much as is in use.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_ARENA_MAX, ARENAS),
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
    ] {
        #[allow(unsafe_code, reason = "mallopt has no safe wrapper")]
        // SAFETY: mallopt takes two numbers and changes settings of the allocator under its own lock.
        let set = unsafe { libc::mallopt(option, value) };
        if set == 0 {
            eprintln!("the allocator does not support mallopt option {option}");
        }
    }
}

/// Runs a program to its end.
pub fn run(name: &str, program: impl Future<Output = ExitCode>) -> ExitCode {
    descriptors::raise();
    let threads = available_parallelism().map_or(2, usize::from);
    let busy_poll = match BusyPoll::from_environment(threads) {
        Ok(busy_poll) => busy_poll,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let runtime = match build(threads, busy_poll.as_ref()) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit_code = runtime.block_on(program);
    // Does not wait for blocking calls: their results are no longer needed.
    runtime.shutdown_background();
    exit_code
}

fn build(threads: usize, busy_poll: Option<&Arc<BusyPoll>>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    // Threads for blocking calls: files, databases and mounts. More would only queue in the kernel.
    let blocking = descriptors::blocking_threads();
    builder.worker_threads(threads).max_blocking_threads(blocking).enable_all();
    match busy_poll {
        Some(busy_poll) => busy_poll.build(&mut builder),
        None => builder.build(),
    }
}
