//! Options for how the data of a volume is transferred and cached. The defaults are those of
//! JuiceFS.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};

/// Data options of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Concurrent uploads.
    pub max_uploads: usize,
    /// Concurrent downloads.
    pub max_downloads: usize,
    /// Concurrent fetches of whole blocks after only a part of each was read.
    pub prefetch: usize,
    /// Of the blocks that are read, cache only those shorter than a full block.
    pub cache_partial_only: bool,
    /// Cache all blocks that are written, not only those shorter than a full block.
    pub cache_large_write: bool,
    /// Blocks count as stored once they are staged on disk.
    pub writeback: Option<Writeback>,
    /// Which blocks are read whole to verify their checksum.
    pub verify: Verify,
    /// Nothing is uploaded, not even blocks that an earlier run left staged.
    pub read_only: bool,
}

/// Which blocks are staged, and when they are uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writeback {
    /// Only blocks shorter than this are staged; `None` stages all.
    pub threshold: Option<u32>,
    /// The minimum time that a block stays staged.
    pub delay: Duration,
    /// The hours of the day in which blocks are uploaded; `None` uploads at any time.
    pub hours: Option<Hours>,
}

/// Which blocks are read whole although only a part is wanted. A store keeps a checksum of the
/// whole object and none of a part, so damage to a part is only detected by reading the whole
/// object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    All,
    /// Blocks that cost hardly more to read whole, because the request itself dominates.
    #[default]
    Cheap,
    None,
}

/// Largest cheap block: its transfer takes some ten milliseconds, as much as a request without a
/// body.
const CHEAP: u32 = 1 << 20;

/// Hours of the day, from `from` up to but not including `to`; past midnight if `to` is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    from: u32,
    to: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_uploads: 20,
            max_downloads: 200,
            prefetch: 1,
            cache_partial_only: false,
            cache_large_write: false,
            writeback: None,
            verify: Verify::default(),
            read_only: false,
        }
    }
}

impl Verify {
    /// Whether a block of this size is read whole.
    pub fn includes(self, size: u32) -> bool {
        match self {
            Self::All => true,
            Self::Cheap => size <= CHEAP,
            Self::None => false,
        }
    }
}

impl FromStr for Verify {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "all" => Self::All,
            "cheap" => Self::Cheap,
            "none" => Self::None,
            _ => {
                let what = format!("verify-reads {text:?} is not one of all, cheap, none");
                return Err(Error::bad_input(what));
            }
        })
    }
}

impl Hours {
    pub fn include(self, hour: u32) -> bool {
        match self.from.cmp(&self.to) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => (self.from..self.to).contains(&hour),
            std::cmp::Ordering::Greater => hour >= self.from || hour < self.to,
        }
    }
}

impl FromStr for Hours {
    type Err = Error;

    /// Accepts `22-6` or `22,6`.
    fn from_str(text: &str) -> Result<Self> {
        let hour = |text: &str| text.trim().parse().ok().filter(|hour: &u32| *hour < 24);
        text.split_once(['-', ','])
            .and_then(|(from, to)| Some(Self { from: hour(from)?, to: hour(to)? }))
            .ok_or_else(|| {
                Error::bad_input(format!("{text:?} is not a pair of hours such as 22-6"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn included(text: &str) -> Vec<u32> {
        let hours: Hours = text.parse().unwrap();
        (0..24).filter(|hour| hours.include(*hour)).collect()
    }

    #[test]
    fn hours_include_the_first_and_exclude_the_second() {
        assert_eq!(included("2-5"), [2, 3, 4]);
        assert_eq!(included("22,2"), [0, 1, 22, 23]);
        assert_eq!(included("7-7").len(), 24);
    }

    #[test]
    fn other_texts_are_not_hours() {
        for text in ["", "5", "1-24", "1-2-3", "-1-2", "a-b", "1 2"] {
            let error = text.parse::<Hours>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
