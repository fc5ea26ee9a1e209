//! What is damaged and was passed over: each told once, and not more often than a log can take.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lru::LruCache;
use tracing::warn;

use crate::error::Error;
use crate::meta::Ino;
use crate::sync::Mutex;

/// Things remembered as told.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Lines in a while.
const LINES: u32 = 20;
const WHILE: Duration = Duration::from_mins(1);

pub struct Damage {
    told: Mutex<Told>,
}

struct Told {
    known: LruCache<(Ino, Bytes), ()>,
    since: Instant,
    lines: u32,
}

impl Default for Damage {
    fn default() -> Self {
        let told = Told { known: LruCache::new(REMEMBERED), since: Instant::now(), lines: 0 };
        Self { told: Mutex::new(told) }
    }
}

impl Damage {
    /// An entry whose name or record is none.
    pub fn odd_entry(&self, dir: Ino, name: &[u8]) {
        if self.is_news(dir, name) {
            let name = name.escape_ascii();
            warn!(dir = dir.0, "entry \"{name}\" is damaged or has no proper name: not shown");
        }
    }

    /// An attr that cannot be read.
    pub fn attr(&self, ino: Ino, error: &Error) {
        if self.is_news(ino, b"attr") {
            warn!(ino = ino.0, %error, "a damaged attr: its name is shown without it");
        }
    }

    /// A directory that does not lie where it is listed.
    pub fn foreign_dir(&self, dir: Ino, ino: Ino) {
        if self.is_news(dir, &ino.0.to_be_bytes()) {
            warn!(
                dir = dir.0,
                ino = ino.0,
                "a directory does not lie where it is listed: not entered"
            );
        }
    }

    fn is_news(&self, ino: Ino, what: &[u8]) -> bool {
        let mut told = self.told.lock();
        if told.since.elapsed() >= WHILE {
            (told.since, told.lines) = (Instant::now(), 0);
        }
        let is_known = told.known.put((ino, Bytes::copy_from_slice(what)), ()).is_some();
        if is_known || told.lines >= LINES {
            return false;
        }
        told.lines += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_many_are_not_told() {
        let damage = Damage::default();
        assert!(damage.is_news(Ino(1), b"a"));
        assert!(!damage.is_news(Ino(1), b"a"));
        assert!(damage.is_news(Ino(2), b"a"));
        let told = (0..100_000).filter(|ino| damage.is_news(Ino(*ino), b"b")).count();
        assert_eq!(told, LINES as usize - 2);
    }
}
