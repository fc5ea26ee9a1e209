//! Checks of a tree: what `fsck` finds in the metadata of directories, and how it is repaired.

mod dir;
mod repair;
mod tree;
mod volume_usage;

use std::fmt;

use crate::error::Error;
use crate::meta::Ino;
use crate::meta::record::DirStat;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    pub repair: bool,
    /// Whether everything below a directory is checked too.
    pub recursive: bool,
    /// Compares the usage of each directory with its entries. With `repair` of the whole volume,
    /// also corrects the usage of the volume.
    pub sync_dir_stat: bool,
    /// Mode of a directory whose attr is missing.
    pub dir_mode: u16,
}

/// Something wrong with one node.
#[derive(Debug, Clone)]
pub struct Finding {
    pub ino: Ino,
    /// From the root of the volume.
    pub path: String,
    pub problem: Problem,
    pub outcome: Outcome,
}

#[derive(Debug, Clone)]
pub enum Problem {
    /// A directory without an attr.
    MissingAttr,
    /// An entry whose node is missing and cannot be rebuilt.
    MissingNode,
    /// A stored name or record that is no valid entry.
    InvalidEntry,
    Links {
        stored: u32,
        counted: u32,
    },
    Parent {
        stored: Ino,
        lister: Ino,
    },
    /// A directory that more than one directory lists.
    ListedTwice,
    /// The usage record of a directory is missing or negative.
    MissingStat,
    Stat {
        stored: DirStat,
        counted: DirStat,
    },
    /// The directory could not be checked.
    Unreadable(Error),
}

#[derive(Debug, Clone)]
pub enum Outcome {
    /// Nothing was tried.
    Left,
    /// There is no automatic repair.
    NotRepairable,
    Repaired,
    Failed(Error),
}

/// A file of a checked tree, for checks of its data.
#[derive(Debug, Clone)]
pub struct CheckedFile {
    pub ino: Ino,
    pub length: u64,
    pub path: String,
}

impl Problem {
    /// Whether the record of usage is concerned, which `--sync-dir-stat` rewrites.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::MissingStat | Self::Stat { .. })
    }

    /// A word for it, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MissingAttr => "missing attr",
            Self::MissingNode => "missing node",
            Self::InvalidEntry => "invalid entry",
            Self::Links { .. } => "nlink",
            Self::Parent { .. } => "parent",
            Self::ListedTwice => "listed twice",
            Self::MissingStat => "missing dir stat",
            Self::Stat { .. } => "dir stat",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingAttr => write!(f, "the attr of the directory is missing"),
            Self::MissingNode => write!(f, "the entry leads to no node"),
            Self::InvalidEntry => write!(f, "the stored entry is invalid"),
            Self::Links { stored, counted } => {
                write!(f, "nlink is {stored} and should be {counted}")
            }
            Self::Parent { stored, lister } => {
                write!(f, "the stored parent is inode {stored} and should be inode {lister}")
            }
            Self::ListedTwice => write!(f, "more than one directory lists it"),
            Self::MissingStat => write!(f, "the usage record is missing or negative"),
            Self::Stat { stored, counted } => write!(
                f,
                "the usage is {} and should be {}",
                DisplayedStat(stored),
                DisplayedStat(counted)
            ),
            Self::Unreadable(error) => write!(f, "cannot be checked: {error}"),
        }
    }
}

struct DisplayedStat<'a>(&'a DirStat);

impl fmt::Display for DisplayedStat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirStat { length, space, inodes } = self.0;
        write!(f, "{length} bytes in {space} bytes of space and {inodes} entries")
    }
}
