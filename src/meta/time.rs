//! Timestamps as attrs store them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time with nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    pub sec: i64,
    /// 0 to 999 999 999.
    pub nsec: u32,
}

impl Timestamp {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { sec: since.as_secs().cast_signed(), nsec: since.subsec_nanos() }
    }

    pub fn from_secs(sec: i64) -> Self {
        Self { sec, nsec: 0 }
    }

    /// Nanoseconds from `earlier` to this; negative if `earlier` is later.
    pub fn nanos_since(self, earlier: Self) -> i128 {
        let nanos = |t: Self| i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
        nanos(self) - nanos(earlier)
    }
}
