//! The log of damaged metadata: each finding is logged once, within a rate limit.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lru::LruCache;
use tracing::warn;

use crate::error::Error;
use crate::meta::Ino;
use crate::sync::Mutex;

/// Findings that are remembered, so that they are not logged again.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Lines within [`PERIOD`].
const MAX_LINES: u32 = 20;
const PERIOD: Duration = Duration::from_mins(1);

pub struct DamageLog {
    logged: Mutex<LoggedDamage>,
}

struct LoggedDamage {
    known: LruCache<(Ino, Bytes), ()>,
    since: Instant,
    lines: u32,
}

impl Default for DamageLog {
    fn default() -> Self {
        let logged =
            LoggedDamage { known: LruCache::new(REMEMBERED), since: Instant::now(), lines: 0 };
        Self { logged: Mutex::new(logged) }
    }
}

impl DamageLog {
    /// Logs an entry with an invalid name or record.
    pub fn invalid_entry(&self, dir: Ino, name: &[u8]) {
        if self.should_log(dir, name) {
            let name = name.escape_ascii();
            warn!(
                dir = dir.0,
                "entry \"{name}\" is damaged or has an invalid name: it is not listed"
            );
        }
    }

    /// Logs an attr that cannot be read.
    pub fn attr(&self, ino: Ino, error: &Error) {
        if self.should_log(ino, b"attr") {
            warn!(ino = ino.0, %error, "the attr is damaged: its entry is listed without it");
        }
    }

    /// Logs a directory that is listed in a directory other than its parent.
    pub fn misplaced_dir(&self, dir: Ino, ino: Ino) {
        if self.should_log(dir, &ino.0.to_be_bytes()) {
            warn!(
                dir = dir.0,
                ino = ino.0,
                "the directory has another parent than the one that lists it: it is not entered"
            );
        }
    }

    fn should_log(&self, ino: Ino, what: &[u8]) -> bool {
        let mut logged = self.logged.lock();
        if logged.since.elapsed() >= PERIOD {
            (logged.since, logged.lines) = (Instant::now(), 0);
        }
        let is_logged = logged.known.put((ino, Bytes::copy_from_slice(what)), ()).is_some();
        if is_logged || logged.lines >= MAX_LINES {
            return false;
        }
        logged.lines += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_logged_once_within_the_rate_limit() {
        let damage = DamageLog::default();
        assert!(damage.should_log(Ino(1), b"a"));
        assert!(!damage.should_log(Ino(1), b"a"));
        assert!(damage.should_log(Ino(2), b"a"));
        let logged = (0..100_000).filter(|ino| damage.should_log(Ino(*ino), b"b")).count();
        assert_eq!(logged, MAX_LINES as usize - 2);
    }
}
