//! The process that serves a mount, and what the system lets it have.
//!
//! All of it helps and none of it is needed: what is refused is left alone.

use std::fmt::Display;
use std::fs;

use nix::sys::prctl::set_thp_disable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::process::{configure_io_flusher_behavior, setpriority_process};
use tracing::debug;

/// Open files: connections, cached blocks, files of the store.
const OPEN_FILES: u64 = 100_000;
/// When memory is short, others go first: a mount that is gone takes everybody along who uses it.
const SPARED: &str = "-1000";
/// Others wait for what this process does.
const NICE: i32 = -19;

/// Must come before any thread is started: threads inherit some of it when they begin.
pub fn settle(no_huge_pages: bool) {
    give_memory_back();
    let files = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        // The hard limit may only be raised by root, the soft one up to it by anybody.
        let wanted = OPEN_FILES.max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted.max(hard))
            .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard))
    });
    tried("open files", files);
    if nix::unistd::geteuid().is_root() {
        tried("oom_score_adj", fs::write("/proc/self/oom_score_adj", SPARED));
    }
    tried("nice", setpriority_process(None, NICE));
    // The kernel must not wait for this process to write, while this process waits for memory.
    tried("io flusher", configure_io_flusher_behavior(true));
    if no_huge_pages {
        tried("huge pages", set_thp_disable(true));
    }
}

/// By itself the allocator keeps what was freed: up to as much again as is in use, after large files
/// were read. Blocks are to go back to the system when the budget says that they are free.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "the allocator is set by no safe call")]
fn give_memory_back() {
    use std::thread::available_parallelism;

    use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};

    /// Blocks are larger, nearly everything else is smaller.
    const LARGE: i32 = 1 << 20;
    let cores = available_parallelism().map_or(2, usize::from);
    let arenas = i32::try_from(cores.clamp(2, 8)).unwrap_or(2);
    for (what, value) in
        [(M_ARENA_MAX, arenas), (M_MMAP_THRESHOLD, LARGE), (M_TRIM_THRESHOLD, LARGE)]
    {
        // SAFETY: sets a number of the allocator, while there is one thread.
        unsafe { mallopt(what, value) };
    }
}

/// Other allocators are left as they are.
#[cfg(not(target_env = "gnu"))]
fn give_memory_back() {}

fn tried<E: Display>(what: &str, outcome: Result<(), E>) {
    if let Err(error) = outcome {
        debug!(%error, "{what}: as they were");
    }
}
