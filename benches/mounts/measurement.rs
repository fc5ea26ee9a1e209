//! The measurements and their units, and the memory of a process.

use std::fs;

use anyhow::{Context, Result};

/// One measurement of one round.
pub struct Measurement {
    pub name: &'static str,
    pub unit: Unit,
    pub value: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Fewer are better.
    Milliseconds,
    /// Fewer are better.
    Mib,
    /// More are better.
    PerSecond,
    /// More are better.
    MibPerSecond,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Mib => "MiB",
            Self::PerSecond => "/s",
            Self::MibPerSecond => "MiB/s",
        }
    }

    /// Returns how many times better `ours` is.
    pub fn better(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::Milliseconds | Self::Mib => theirs / ours,
            Self::PerSecond | Self::MibPerSecond => ours / theirs,
        }
    }
}

/// Returns the resident memory of a process and all its children, in bytes.
pub fn resident(pid: u32) -> Result<u64> {
    let mut sum = 0;
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        sum += kib.with_context(|| format!("no memory of process {pid}"))? << 10;
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let children = fs::read_to_string(task?.path().join("children"))?;
            left.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    Ok(sum)
}
