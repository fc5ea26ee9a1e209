//! Resident memory of a process and of all that it started.

use std::fs;

use anyhow::{Context, Result};

/// In bytes.
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
