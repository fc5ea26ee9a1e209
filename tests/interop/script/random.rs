//! Random scripts: many steps on few names, so that they interact. The seed determines everything.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::script::runner::ScriptPart;
use crate::script::step::{
    Acl, Allocate, GROUP_OBJ, MASK, NodeType, OTHER, RenameFlag, Step, USER, USER_OBJ, Xattr, acl,
};

const CHUNK: u64 = 64 << 20;
const DIRS: [&str; 6] = ["", "/a", "/b", "/a/c", "/a/c/d", "/b/e"];
const NAMES: [&str; 4] = ["x", "y", "z", "w"];
/// Names of nodes that must not be opened: a pipe would block, and a symlink lead elsewhere.
const ODD: [&str; 2] = ["odd", "odder"];

/// Which kinds of steps to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    All,
    /// Files and directories only: the Go client's usage of owners ignores all others.
    FilesAndDirs,
}

/// Returns a random script. It creates the directories first, so that most steps succeed.
pub fn parts(seed: u64, count: usize) -> Vec<ScriptPart> {
    vec![ScriptPart::Session(steps(seed, count, Kinds::All))]
}

pub fn steps(seed: u64, count: usize, kinds: Kinds) -> Vec<Step> {
    let mut generator = StepGenerator { rng: StdRng::seed_from_u64(seed), kinds };
    let dirs = DIRS[1..].iter().map(|dir| Step::Mkdir((*dir).to_owned(), 0o755));
    dirs.chain((0..count).map(|_| generator.step())).collect()
}

struct StepGenerator {
    rng: StdRng,
    kinds: Kinds,
}

impl StepGenerator {
    fn step(&mut self) -> Step {
        match self.rng.random_range(0..40) {
            0..=1 => Step::Mkdir(self.any(), self.mode()),
            2..=8 => Step::File(self.leaf(), self.mode()),
            9..=10 if self.kinds == Kinds::All => self.odd(),
            11..=13 => Step::Link(self.leaf(), self.leaf()),
            14..=16 => Step::Unlink(self.leaf()),
            17 => Step::Rmdir(self.any()),
            18..=22 => Step::Rename(self.any(), self.any(), self.flag()),
            23 => Step::Chmod(self.entry(), self.mode()),
            24 => Step::Chown(self.entry(), self.owner(), self.owner()),
            25 => Step::Times(self.entry(), self.time(), self.time()),
            26..=27 => self.xattr(),
            28 if self.kinds == Kinds::All => self.acl(),
            29..=30 => Step::Truncate(self.leaf(), self.length()),
            31..=32 => self.allocate(),
            33..=34 => {
                let (from, to) = (self.leaf(), self.leaf());
                Step::Copy(from, self.length(), to, self.length(), self.length())
            }
            _ => self.write(),
        }
    }

    /// Within a page: the kernel may split a longer write, which the Go client would store as two slices.
    fn write(&mut self) -> Step {
        let off = self.length();
        let room = 4096 - u32::try_from(off % 4096).unwrap();
        Step::Write(self.leaf(), off, self.rng.random_range(1..=room))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.rng).unwrap()
    }

    fn leaf(&mut self) -> String {
        format!("{}/{}", self.pick(&DIRS), self.pick(&NAMES))
    }

    /// A step on a node that is neither file nor directory.
    fn odd(&mut self) -> Step {
        let mut path = || format!("{}/{}", self.pick(&DIRS), self.pick(&ODD));
        let (path, other) = (path(), path());
        match self.rng.random_range(0..8) {
            0..=1 => Step::Mknod(path, self.special(), self.mode()),
            2..=3 => Step::Symlink { target: other, path },
            4 => Step::Link(path, other),
            5 => Step::Rename(path, other, self.flag()),
            6 => Step::Chown(path, self.owner(), self.owner()),
            _ => Step::Unlink(path),
        }
    }

    fn any(&mut self) -> String {
        if self.rng.random_ratio(1, 4) { self.pick(&DIRS[1..]).to_owned() } else { self.leaf() }
    }

    fn entry(&mut self) -> String {
        self.pick(&DIRS[1..]).to_owned()
    }

    fn mode(&mut self) -> u16 {
        // No setuid: the kernel clears it before the client sees the request.
        self.pick(&[0o755, 0o700, 0o644, 0o666, 0o777, 0o750])
    }

    fn special(&mut self) -> NodeType {
        self.pick(&[NodeType::Fifo, NodeType::Socket, NodeType::Char(0x103), NodeType::Plain])
    }

    fn flag(&mut self) -> RenameFlag {
        self.pick(&[
            RenameFlag::Replace,
            RenameFlag::Replace,
            RenameFlag::NoReplace,
            RenameFlag::Exchange,
        ])
    }

    fn owner(&mut self) -> u32 {
        self.pick(&[0, 1000, 2000])
    }

    fn time(&mut self) -> u64 {
        self.rng.random_range(0..1_500_000_000_000_000_000)
    }

    /// Includes the ends of chunks and pages.
    fn length(&mut self) -> u64 {
        let base = self.pick(&[0, 0, 0, 4096, 8192, CHUNK - 200_000, CHUNK, 2 * CHUNK]);
        base + self.rng.random_range(0..100_000)
    }

    fn xattr(&mut self) -> Step {
        let (path, name) = (self.entry(), format!("user.{}", self.pick(&NAMES)));
        let how = self.pick(&[Xattr::Any, Xattr::Any, Xattr::Create, Xattr::Replace]);
        if self.rng.random_ratio(1, 4) {
            return Step::RemoveXattr(path, name);
        }
        Step::SetXattr(path, name, self.pick(&NAMES).to_owned(), how)
    }

    fn acl(&mut self) -> Step {
        let mut perm = || self.rng.random_range(0..8);
        let rule = acl(&[
            (USER_OBJ, 7, None),
            (USER, perm(), Some(1000)),
            (GROUP_OBJ, perm(), None),
            (MASK, perm(), None),
            (OTHER, perm(), None),
        ]);
        let rule = if self.rng.random_ratio(1, 4) { Vec::new() } else { rule };
        let which = self.pick(&[Acl::Access, Acl::Default]);
        Step::SetAcl(self.entry(), which, rule)
    }

    fn allocate(&mut self) -> Step {
        let how = self.pick(&[Allocate::Grow, Allocate::Keep, Allocate::Punch, Allocate::Zero]);
        Step::Fallocate(self.leaf(), how, self.length(), 1 + self.length())
    }
}
