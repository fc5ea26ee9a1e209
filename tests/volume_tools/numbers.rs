//! The numbers that both programs print.

use std::collections::BTreeMap;
use std::process::Command;

use crate::support::command::{Finished, run};
use crate::support::fixture::{Fixture, PATIENCE, ours};
use crate::support::juicefs;

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Ours,
    Go,
}

pub const BOTH: [Tool; 2] = [Tool::Ours, Tool::Go];

impl Tool {
    /// A command that takes the metadata URL first.
    pub fn command(self, fixture: &Fixture, action: &str, options: &[&str]) -> Command {
        let mut command = match self {
            Self::Ours => ours(),
            Self::Go => juicefs::command(&[]),
        };
        command.args([action, fixture.url()]).args(options);
        command
    }

    #[track_caller]
    pub fn run(self, fixture: &Fixture, action: &str, options: &[&str]) -> Finished {
        run(self.command(fixture, action, options), PATIENCE)
    }

    /// Runs `gc` on objects of any age.
    #[track_caller]
    pub fn gc(self, fixture: &Fixture, options: &[&str]) -> Gc {
        let mut command = self.command(fixture, "gc", options);
        command.env("JFS_GC_SKIPPEDTIME", "0");
        Gc::of(&run(command, PATIENCE).ok())
    }
}

/// The numbers of `gc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gc(BTreeMap<String, (u64, u64)>);

impl Gc {
    #[track_caller]
    pub fn of(finished: &Finished) -> Self {
        let output = output(finished);
        let line = output.lines().find_map(|line| line.split_once("scanned ")).unwrap().1;
        let mut numbers = BTreeMap::new();
        for part in line.split(", ") {
            let words: Vec<&str> = part.split(['(', ')']).collect();
            let (count, what) = words[0].trim().split_once(' ').unwrap();
            let bytes = words.get(1).map_or(0, |bytes| number(bytes));
            let what = what.split(" [").next().unwrap();
            numbers.insert(what.to_owned(), (number(count), bytes));
        }
        Self(numbers)
    }

    #[track_caller]
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).unwrap_or_else(|| panic!("{what}: {self:?}")).0
    }
}

/// The numbers of `fsck`: blocks found, slices, lost objects, and the inodes of broken files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fsck {
    pub is_clean: bool,
    pub found: (u64, u64),
    pub used: (u64, u64),
    pub lost: (u64, u64),
    pub broken: Vec<u64>,
}

impl Fsck {
    pub fn of(finished: &Finished) -> Self {
        let output = output(finished);
        let after = |word: &str| -> (u64, u64) {
            let Some((_, rest)) = output.split_once(word) else { return (0, 0) };
            let numbers: Vec<&str> = rest.split(' ').collect();
            (number(numbers[0]), number(numbers[2].trim_start_matches('(')))
        };
        let lost = output.split(" objects are lost (").collect::<Vec<_>>();
        let lost = match lost.as_slice() {
            [before, rest, ..] => (number(before.rsplit(' ').next().unwrap()), number(rest)),
            _ => (0, 0),
        };
        let is_inode = |line: &&str| line.starts_with("    ") && !line.contains("INODE");
        let mut broken: Vec<u64> = output
            .lines()
            .filter(is_inode)
            .filter_map(|line| line.split_once(": /")?.0.trim().parse().ok())
            .collect();
        broken.sort_unstable();
        let (found, used) = (after("Found "), after("Used by "));
        Self { is_clean: finished.status.success(), found, used, lost, broken }
    }
}

/// Runs `fsck` by both, which must find the same.
#[track_caller]
pub fn same_fsck(fixture: &Fixture, options: &[&str]) -> Fsck {
    let [ours, go] = BOTH.map(|tool| tool.run(fixture, "fsck", options));
    assert_eq!(Fsck::of(&ours), Fsck::of(&go), "\n{ours}\n{go}");
    Fsck::of(&go)
}

/// Runs `gc` by both, which must find the same.
#[track_caller]
pub fn same_gc(fixture: &Fixture) -> Gc {
    let [ours, go] = BOTH.map(|tool| tool.gc(fixture, &[]));
    assert_eq!(ours, go, "ours on the left");
    go
}

fn output(finished: &Finished) -> String {
    format!("{}\n{}", finished.stdout, finished.stderr)
}

fn number(text: &str) -> u64 {
    let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
