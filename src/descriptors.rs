//! File descriptors: how many the process may have, and what share of them each use may take.
//!
//! Whoever opens many at once asks here, so that a low limit makes things slower and not fail.

use rustix::process::{Resource, getrlimit, setrlimit};

/// For everything that is few: mounts, metadata, listeners, logs, directories.
const RESERVED: usize = 64;

/// More than is ever used, for no limit at all.
const UNLIMITED: u64 = 1 << 20;

/// Lets the process have as many as it is allowed to have. To be called once, at the start.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    // Where it is not allowed, the limit stays, and the shares below are smaller.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Connections to one store of objects.
pub fn connections() -> usize {
    share(8, 8, 1024)
}

/// Files of the cache that stay open.
pub fn cache_files() -> usize {
    share(8, 8, 256)
}

/// Threads that work with files, each with one or two open.
pub fn blocking_threads() -> usize {
    share(6, 8, 64)
}

fn share(part: usize, least: usize, most: usize) -> usize {
    share_of(limit(), part, least, most)
}

fn share_of(limit: usize, part: usize, least: usize, most: usize) -> usize {
    (limit.saturating_sub(RESERVED) / part).clamp(least, most)
}

fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
    usize::try_from(limit.min(UNLIMITED)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_into_a_low_limit_and_are_large_in_a_high_one() {
        let shares = |limit| {
            [share_of(limit, 8, 8, 1024), share_of(limit, 8, 8, 256), share_of(limit, 6, 8, 64)]
        };
        let [connections, files, threads] = shares(256);
        assert!(
            connections + files + 2 * threads + RESERVED < 256,
            "{connections} {files} {threads}"
        );
        assert_eq!(shares(1 << 20), [1024, 256, 64]);
        assert_eq!(shares(10), [8, 8, 8]);
    }
}
