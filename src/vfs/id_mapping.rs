//! Maps the user of a request to the user that acts on the volume: squashing and supplementary
//! groups.

use std::fs;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::meta::Caller;
use crate::sync::Mutex;
use crate::vfs::options::{Squash, VfsOptions};

/// How long the groups of a process are cached.
const GROUPS_LIFETIME: Duration = Duration::from_mins(5);
/// Processes whose groups are cached.
const GROUPS_CACHED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

pub struct IdMapping {
    root_squash: Option<Squash>,
    all_squash: Option<Squash>,
    check: bool,
    groups: Mutex<LruCache<(u32, u32, u32), Groups>>,
}

struct Groups {
    gids: Vec<u32>,
    read: Instant,
}

impl IdMapping {
    pub fn new(options: &VfsOptions) -> Self {
        Self {
            root_squash: options.root_squash,
            all_squash: options.all_squash,
            check: options.check_permissions,
            groups: Mutex::new(LruCache::new(GROUPS_CACHED)),
        }
    }

    /// Returns the caller of a request. A squashed caller has no supplementary groups, and its
    /// permissions are checked here: the kernel has checked those of the original user.
    pub fn caller(&self, uid: u32, gid: u32, pid: u32) -> Caller {
        let squash = self.all_squash.or(self.root_squash.filter(|_| uid == 0));
        if let Some(Squash { uid, gid }) = squash {
            return Caller { uid, gid, gids: Vec::new(), pid, check: true, request: None };
        }
        let gids = if self.check && uid != 0 { self.groups(uid, gid, pid) } else { Vec::new() };
        Caller { uid, gid, gids, pid, check: self.check, request: None }
    }

    fn groups(&self, uid: u32, gid: u32, pid: u32) -> Vec<u32> {
        let key = (pid, uid, gid);
        let mut known = self.groups.lock();
        if let Some(groups) = known.get(&key).filter(|it| it.read.elapsed() < GROUPS_LIFETIME) {
            return groups.gids.clone();
        }
        drop(known);
        let gids = groups_of(pid);
        let groups = Groups { gids: gids.clone(), read: Instant::now() };
        known = self.groups.lock();
        known.put(key, groups);
        gids
    }
}

/// Returns the supplementary groups of a process, or none if it is in another PID namespace.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Squash = Squash { uid: 65534, gid: 65533 };

    fn identity(root: bool, all: bool) -> IdMapping {
        IdMapping::new(&VfsOptions {
            root_squash: root.then_some(NOBODY),
            all_squash: all.then_some(Squash { uid: 7, gid: 8 }),
            ..VfsOptions::default()
        })
    }

    #[test]
    fn by_default_callers_keep_their_ids_and_the_kernel_checks_them() {
        let caller = identity(false, false).caller(0, 5, 1);
        assert_eq!((caller.uid, caller.gid, caller.pid, caller.check), (0, 5, 1, false));
    }

    #[test]
    fn only_root_is_squashed_by_root_squash() {
        let squashed = identity(true, false);
        let root = squashed.caller(0, 0, 1);
        assert_eq!((root.uid, root.gid, root.check), (65534, 65533, true));
        let user = squashed.caller(1000, 0, 1);
        assert_eq!((user.uid, user.gid, user.check), (1000, 0, false));
    }

    #[test]
    fn everybody_is_squashed_by_all_squash_even_root() {
        let squashed = identity(true, true);
        for uid in [0, 1000] {
            let caller = squashed.caller(uid, uid, 1);
            assert_eq!((caller.uid, caller.gid, caller.check), (7, 8, true));
        }
    }

    #[test]
    fn groups_are_those_of_the_process() {
        let ours: Vec<u32> =
            nix::unistd::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        assert_eq!(groups_of(std::process::id()), ours);
        assert!(groups_of(u32::MAX).is_empty());
    }
}
