//! What `fsck` found, and printing it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::bail;
use serde_json::{Value, json};

use super::broken_files::{BrokenFile, FaultCounts};
use crate::error::Error;
use crate::meta::Ino;
use crate::meta::client::check::{Finding, Outcome, Problem};
use crate::meta::record::SliceSize;

/// Broken files and findings that are described; the rest is counted.
const MAX_FILES: usize = 1_000_000;
const MAX_FINDINGS: usize = 100_000;
/// Lost ranges that are printed for one file.
const MAX_RANGES: usize = 10;

pub struct Report {
    json: bool,
    /// Blocks in the store, and their bytes.
    found: (AtomicU64, AtomicU64),
    /// Records that refer to slices, and their bytes.
    used: (AtomicU64, AtomicU64),
    nodes: AtomicU64,
    details: Mutex<Details>,
}

#[derive(Default)]
struct Details {
    counts: FaultCounts,
    broken: BTreeMap<u64, BrokenFile>,
    findings: Vec<Finding>,
    /// Findings that are not repaired, also those that are not described.
    left: u64,
    unreferenced: Vec<SliceSize>,
}

impl Report {
    pub fn new(json: bool) -> Self {
        let zero = || (AtomicU64::new(0), AtomicU64::new(0));
        let (nodes, details) = (AtomicU64::new(0), Mutex::default());
        Self { json, found: zero(), used: zero(), nodes, details }
    }

    pub fn add_used(&self, records: u64, bytes: u64) {
        self.used.0.fetch_add(records, Ordering::Relaxed);
        self.used.1.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn set_found(&self, blocks: u64, bytes: u64) {
        self.found.0.store(blocks, Ordering::Relaxed);
        self.found.1.store(bytes, Ordering::Relaxed);
    }

    pub fn set_nodes(&self, nodes: u64) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// Adds a part of what is wrong with a file.
    pub fn add_broken(
        &self,
        ino: Ino,
        part: BrokenFile,
        counts: FaultCounts,
    ) -> anyhow::Result<()> {
        let mut details = self.lock();
        details.counts.merge(counts);
        if !details.broken.contains_key(&ino.0) && details.broken.len() >= MAX_FILES {
            bail!("more than {MAX_FILES} files are broken: is this the right bucket?");
        }
        let file = details.broken.entry(ino.0).or_default();
        if file.path.is_empty() {
            file.path = part.path;
        }
        file.lost.extend(part.lost);
        file.objects.extend(part.objects);
        Ok(())
    }

    pub fn broken_inodes(&self) -> Vec<Ino> {
        self.lock().broken.keys().copied().map(Ino).collect()
    }

    pub fn complete(&self, ino: Ino, change: impl FnOnce(&mut BrokenFile)) {
        if let Some(file) = self.lock().broken.get_mut(&ino.0) {
            change(file);
        }
    }

    /// Adds something wrong with the metadata, and prints it unless the output is JSON.
    pub fn add_finding(&self, finding: Finding) {
        if !self.json {
            println!("{}", described(&finding));
        }
        let mut details = self.lock();
        details.left += u64::from(!matches!(finding.outcome, Outcome::Repaired));
        if details.findings.len() < MAX_FINDINGS {
            details.findings.push(finding);
        }
    }

    pub fn add_unreadable(&self, ino: Ino, path: &str, error: Error) {
        let (path, problem) = (path.to_owned(), Problem::Unreadable(error));
        self.add_finding(Finding { ino, path, problem, outcome: Outcome::NotRepairable });
    }

    /// Adds a slice that files use although it has no references: its objects would be deleted.
    pub fn add_unreferenced(&self, slice: SliceSize) {
        let mut details = self.lock();
        if details.unreferenced.len() < MAX_FINDINGS {
            details.unreferenced.push(slice);
        }
    }

    /// What is wrong, in one line; none if nothing is.
    pub fn verdict(&self) -> Option<String> {
        let details = self.lock();
        let FaultCounts { missing, missing_bytes, wrong_size, damaged } = details.counts;
        let mut parts = Vec::new();
        if missing > 0 {
            parts.push(format!("{missing} objects are lost ({missing_bytes} bytes)"));
        }
        if wrong_size > 0 {
            parts.push(format!("{wrong_size} objects have a wrong size"));
        }
        if damaged > 0 {
            parts.push(format!("{damaged} objects are damaged"));
        }
        if !details.broken.is_empty() {
            parts.push(format!("{} broken files", details.broken.len()));
        }
        if !details.unreferenced.is_empty() {
            let count = details.unreferenced.len();
            parts.push(format!("{count} slices are in use without references"));
        }
        if details.left > 0 {
            parts.push(format!("{} problems in the metadata", details.left));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    pub fn print(&self, sessions: usize) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(&self.as_json())?);
            return Ok(());
        }
        let nodes = self.nodes.load(Ordering::Relaxed);
        if nodes > 0 {
            println!("Checked {nodes} nodes");
        }
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        println!("Found {} blocks ({} bytes)", number(&self.found.0), number(&self.found.1));
        println!("Used by {} slices ({} bytes)", number(&self.used.0), number(&self.used.1));
        let details = self.lock();
        for slice in &details.unreferenced {
            println!("slice {} of {} bytes is in use without references", slice.id, slice.size);
        }
        if details.broken.is_empty() {
            return Ok(());
        }
        for file in details.broken.values() {
            for (key, fault) in &file.objects {
                println!("{key} of {} {fault}", printable(&file.path));
            }
        }
        println!("{:>13}: PATH", "INODE");
        for (ino, file) in &details.broken {
            println!("{ino:>13}: {}{}", printable(&file.path), lost(file));
        }
        if details.counts.missing > 0 && sessions > 0 {
            println!(
                "{sessions} clients use the volume: blocks that one of them has staged \
                 (--writeback) are not lost"
            );
        }
        Ok(())
    }

    fn as_json(&self) -> Value {
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let details = self.lock();
        let broken: Vec<Value> = details.broken.iter().map(|(ino, file)| {
            let lost: Vec<Value> = file.lost.iter()
                .map(|range| json!({ "Offset": range.start, "Length": range.end - range.start }))
                .collect();
            let objects: Vec<Value> = file.objects.iter()
                .map(|(key, fault)| json!({ "Key": key, "Fault": fault.name(), "Text": fault.to_string() }))
                .collect();
            json!({ "Inode": ino, "Path": file.path, "Lost": lost, "Objects": objects })
        }).collect();
        let findings: Vec<Value> = details
            .findings
            .iter()
            .map(|finding| {
                let repaired = matches!(finding.outcome, Outcome::Repaired);
                json!({
                    "Inode": finding.ino.0, "Path": finding.path, "Problem": finding.problem.name(),
                    "Text": finding.problem.to_string(), "Repaired": repaired,
                })
            })
            .collect();
        let unreferenced: Vec<Value> = details
            .unreferenced
            .iter()
            .map(|slice| json!({ "Id": slice.id.0, "Size": slice.size }))
            .collect();
        json!({
            "CheckedNodes": number(&self.nodes),
            "Blocks": number(&self.found.0), "BlockBytes": number(&self.found.1),
            "Slices": number(&self.used.0), "SliceBytes": number(&self.used.1),
            "LostObjects": details.counts.missing, "LostBytes": details.counts.missing_bytes,
            "WrongSizes": details.counts.wrong_size, "DamagedObjects": details.counts.damaged,
            "BrokenFiles": broken, "UnreferencedSlices": unreferenced, "Metadata": findings,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn described(finding: &Finding) -> String {
    let Finding { ino, path, problem, outcome } = finding;
    let path = printable(path);
    let end = match outcome {
        Outcome::Repaired => "; repaired".to_owned(),
        Outcome::NotRepairable => "; repair it by hand, or remove it".to_owned(),
        Outcome::Failed(error) => format!("; cannot repair it: {error}"),
        Outcome::Left if problem.is_usage() => {
            format!("; --path {path} --repair --sync-dir-stat corrects it")
        }
        Outcome::Left => format!("; --path {path} --repair corrects it"),
    };
    format!("{path} (inode {ino}): {problem}{end}")
}

/// A path without characters that control a terminal: users choose names.
fn printable(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The lost bytes of a file, first and last of each range.
fn lost(file: &BrokenFile) -> String {
    if file.lost.is_empty() {
        return " (no byte of it is lost)".to_owned();
    }
    let shown: Vec<String> = file
        .lost
        .iter()
        .take(MAX_RANGES)
        .map(|range| format!("{}-{}", range.start, range.end - 1))
        .collect();
    let more = file.lost.len().saturating_sub(MAX_RANGES);
    let rest = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
    format!(" (lost bytes {}{rest})", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_control_the_terminal() {
        let path = "/a\u{1b}[2J\nb/\u{e9}".to_owned();
        let problem = Problem::Links { stored: 1, counted: 2 };
        let finding = Finding { ino: Ino(5), path, problem, outcome: Outcome::Left };
        let text = described(&finding);
        assert!(text.starts_with("/a\\u{1b}[2J\\nb/\u{e9} (inode 5): nlink is 1"), "{text}");
        assert!(!text.contains(['\u{1b}', '\n']));
    }

    #[test]
    fn lost_bytes_are_ranges_with_their_last_byte() {
        let file = BrokenFile { lost: vec![0..4096, 8192..8193], ..BrokenFile::default() };
        assert_eq!(lost(&file), " (lost bytes 0-4095, 8192-8192)");
        let many: Vec<_> = (0..12).map(|at| at * 10..at * 10 + 1).collect();
        let file = BrokenFile { lost: many, ..BrokenFile::default() };
        assert!(lost(&file).ends_with("90-90 and 2 more ranges)"), "{}", lost(&file));
        assert_eq!(lost(&BrokenFile::default()), " (no byte of it is lost)");
    }

    #[test]
    fn nothing_wrong_has_no_verdict() {
        let report = Report::new(true);
        assert_eq!(report.verdict(), None);
        let counts = FaultCounts { missing: 2, missing_bytes: 10, ..FaultCounts::default() };
        report.add_broken(Ino(7), BrokenFile::default(), counts).unwrap();
        let verdict = report.verdict();
        assert_eq!(verdict.as_deref(), Some("2 objects are lost (10 bytes), 1 broken files"));
    }
}
