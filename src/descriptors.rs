//! The limit on open file descriptors, and the share of it that each use may take.
//!
//! Code that opens many at once takes its limit from here, so that a low limit makes it slower
//! instead of making it fail.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Reserved for uses that need few: mounts, metadata, listeners, logs, directories.
const RESERVED: usize = 64;

/// Stands for no limit; more than is ever used.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard limit. Must be called once, at the start.
pub fn raise() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    // If that is not allowed, the limit stays and the shares below are smaller.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns the maximum number of connections to one object store.
pub fn connections() -> usize {
    share(8, 8, 1024)
}

/// Returns the maximum number of open cache files.
pub fn cache_files() -> usize {
    share(8, 8, 256)
}

/// Returns the maximum number of blocking threads, each of which opens one or two files.
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
    fn shares_fit_a_low_limit_and_are_large_for_a_high_one() {
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
