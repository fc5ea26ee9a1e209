//! The threads that everything runs on, for both programs.

mod attention;

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use attention::Attention;

/// Threads for files, databases and mounts, which block. More would only queue in the kernel.
const BLOCKING: usize = 64;

/// What the environment says cannot be meant.
const USAGE: u8 = 2;

/// Runs a program to its end.
pub fn run(name: &str, program: impl Future<Output = ExitCode>) -> ExitCode {
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
    builder.worker_threads(threads).max_blocking_threads(BLOCKING).enable_all();
    match attention {
        Some(attention) => attention.build(&mut builder),
        None => builder.build(),
    }
}
