//! The threads that everything runs on, for both programs.

mod attention;

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

#[cfg(target_env = "gnu")]
use nix::libc;
use tokio::runtime::{Builder, Runtime};

use attention::Attention;

use crate::descriptors;

/// Heaps of the allocator: few threads do most of the work.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 4;
/// What is at least as large goes back to the system when it is freed. Blocks and the buffers that requests
/// are received into have pools of their own.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 128 << 10;

/// What the environment says cannot be meant.
const USAGE: u8 = 2;

/// Has the allocator give memory back to the system instead of keeping it for each thread: for a program
/// that has a limit. Before there are threads.
///
/// By itself it keeps what was large and freed in as many heaps as there are threads: under load that is as
/// much again as what is in use.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_ARENA_MAX, HEAPS),
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
    ] {
        #[allow(unsafe_code, reason = "there is no safe call")]
        // SAFETY: takes two numbers and changes settings of the allocator under its own lock.
        let set = unsafe { libc::mallopt(option, value) };
        if set == 0 {
            eprintln!("the allocator does not know option {option}");
        }
    }
}

/// Runs a program to its end.
pub fn run(name: &str, program: impl Future<Output = ExitCode>) -> ExitCode {
    descriptors::raise();
    let threads = available_parallelism().map_or(2, usize::from);
    let attention = match Attention::from_environment(threads) {
        Ok(attention) => attention,
        Err(error) => {
            eprintln!("{name}: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let runtime = match build(threads, attention.as_ref()) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: starting the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(program);
    // Whoever still blocks has nothing to say any more.
    runtime.shutdown_background();
    ended
}

fn build(threads: usize, attention: Option<&Arc<Attention>>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    // Threads for files, databases and mounts, which block. More would only queue in the kernel.
    let blocking = descriptors::blocking_threads();
    builder.worker_threads(threads).max_blocking_threads(blocking).enable_all();
    match attention {
        Some(attention) => attention.build(&mut builder),
        None => builder.build(),
    }
}
