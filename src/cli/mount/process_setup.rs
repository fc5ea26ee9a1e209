//! Limits, priority and allocator settings of the process that serves a mount.
//!
//! All of them help and none is required: a refusal is logged at debug level and ignored.

use std::fmt::Display;
use std::fs;

use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::process::{configure_io_flusher_behavior, setpriority_process};
use tracing::debug;

/// Open files: connections, cached blocks, files of the store.
const OPEN_FILES: u64 = 100_000;
/// Never chosen by the OOM killer: every user of a mount fails with it.
const OOM_SCORE_ADJ: &str = "-1000";
/// Other processes wait for this one.
const NICE: i32 = -19;

/// Applies the settings. Must run before any thread is started, since threads inherit some of them.
pub fn set_up(no_huge_pages: bool) {
    return_freed_memory();
    let files = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        // Only root may raise the hard limit; anybody may raise the soft limit up to it.
        let wanted = OPEN_FILES.max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard))
            .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard))
    });
    log_refusal("open files", files);
    if nix::unistd::geteuid().is_root() {
        log_refusal("oom_score_adj", fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ));
    }
    log_refusal("nice", setpriority_process(None, NICE));
    // Memory reclaim must not wait for this process to write while this process waits for memory.
    log_refusal("io flusher", configure_io_flusher_behavior(true));
    if no_huge_pages {
        log_refusal("huge pages", set_thp_disable(true));
    }
}

/// Makes the allocator return freed blocks to the system, as the memory budget assumes. By default it
/// keeps them: after large files were read, up to as much again as is in use.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "there is no safe call for mallopt")]
fn return_freed_memory() {
    use std::thread::available_parallelism;

    use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};

    /// Blocks are larger; nearly everything else is smaller.
    const LARGE: i32 = 1 << 20;
    let cores = available_parallelism().map_or(2, usize::from);
    let arenas = i32::try_from(cores.clamp(2, 8)).unwrap_or(2);
    for (what, value) in
        [(M_ARENA_MAX, arenas), (M_MMAP_THRESHOLD, LARGE), (M_TRIM_THRESHOLD, LARGE)]
    {
        // SAFETY: sets an integer parameter of the allocator while there is only one thread.
        unsafe { mallopt(what, value) };
    }
}

/// Other allocators are left as they are.
#[cfg(not(target_env = "gnu"))]
fn return_freed_memory() {}

fn log_refusal<E: Display>(what: &str, outcome: Result<(), E>) {
    if let Err(error) = outcome {
        debug!(%error, "{what}: left unchanged");
    }
}
