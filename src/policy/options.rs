//! Mount options and attributes: who may say which.
//!
//! Each author has a list of what it may say, and a new option is on none of them.

use super::flags::{INLINE_OPTIONS, INLINE_VOLUMES, MOUNT_OPTIONS};
use super::{Policy, never, refused};
use crate::error::Result;

/// Who has written the options of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// An administrator: a PV, or the class that it was made from.
    Administrator,
    /// Whoever made a pod.
    Pod,
}

/// What concerns nobody but the volume's own users.
const HARMLESS: &[&str] = &[
    "_netdev",
    "all-squash",
    "allow_other",
    "async",
    "attr-cache",
    "attrcacheto",
    "auto",
    "bg",
    "buffer-size",
    "cache-large-write",
    "cache-partial-only",
    "cache-size",
    "comment",
    "default_permissions",
    "defaults",
    "dir-entry-cache",
    "direntrycacheto",
    "dirsync",
    "download-limit",
    "enable-ioctl",
    "enable-xattr",
    "entry-cache",
    "entrycacheto",
    "exec",
    "hide-internal",
    "max-readahead",
    "negative-entry-cache",
    "no-syslog",
    "no-usage-report",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "noexec",
    "nofail",
    "nosuid",
    "prefetch",
    "prefix-internal",
    "read-only",
    "readdir-cache",
    "relatime",
    "ro",
    "root-squash",
    "rw",
    "strictatime",
    "sync",
    "umask",
    "upload-limit",
];

/// What changes how the file system as a whole is used, or what the node does for it.
const ADMINISTRATORS: &[&str] = &[
    "allow_root",
    "async_dio",
    "atime-mode",
    "background",
    "backup-meta",
    "backup-skip-trash",
    "bucket",
    "check-storage",
    "consul",
    "context",
    "custom-labels",
    "data-dir",
    "debug",
    "defcontext",
    "disable-transparent-hugepage",
    "enable-cap",
    "enable-selinux",
    "fast-statfs",
    "force",
    "foreground",
    "fscontext",
    "fsname",
    "get-timeout",
    "group",
    "heartbeat",
    "io-retries",
    "log",
    "max-deletes",
    "max-downloads",
    "max-fuse-io",
    "max-uploads",
    "max_read",
    "metrics",
    "network-interfaces",
    "no-bgjob",
    "non-default-permission",
    "nonempty",
    "nouser",
    "open-cache",
    "open-cache-limit",
    "owner",
    "put-timeout",
    "remount",
    "rootcontext",
    "skip-dir-mtime",
    "skip-dir-nlink",
    "sort-dir",
    "storage",
    "storage-class",
    "subdir",
    "tag",
    "update-fstab",
    "upload-delay",
    "upload-hours",
    "user",
    "users",
    "verify-reads",
    "writeback",
    "writeback-threshold-size",
    "writeback_cache",
];

/// How the cache of the node is kept: one for all volumes, so the node's own flags say it.
const NODE_CACHE: &[&str] = &[
    "cache-dir",
    "cache-eviction",
    "cache-expire",
    "cache-items",
    "cache-mode",
    "cache-scan-interval",
    "free-space-ratio",
    "max-stage-write",
    "verify-cache-checksum",
];

/// What `--allow-mount-options` can open: devices and set-uid programs of a volume count on the
/// node, and blocks are kept where a PV says.
pub const OPENABLE: &[&str] = &["dev", "suid", "cache-dir"];

/// Attributes of a volume that lead to a directory of its file system.
const PLACES: &[&str] = &["subPath", "subdir"];

impl Policy {
    /// Whether the author may give these options, by their names. Answers those that the node decides
    /// in its place.
    pub fn check_options<'a>(
        &self,
        author: Author,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>> {
        let mut decided = Vec::new();
        for name in names {
            if !self.takes(author, name)? {
                decided.push(name);
            }
        }
        decided.sort_unstable();
        decided.dedup();
        Ok(decided)
    }

    /// Whether there may be inline volumes.
    pub fn check_inline(&self) -> Result<()> {
        match self.flags() {
            Some(flags) if !flags.allow_inline_volumes => {
                Err(refused("an inline (ephemeral) volume", INLINE_VOLUMES))
            }
            _ => Ok(()),
        }
    }

    /// Whether a pod may say where in the file system its inline volume lies.
    pub fn check_inline_attribute(&self, name: &str) -> Result<()> {
        match self.flags() {
            Some(flags) if PLACES.contains(&name) && !has(&flags.allow_inline_options, name) => {
                let what = format!("volume attribute {name} of an inline volume");
                Err(refused(what, &format!("{INLINE_OPTIONS}={name}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether blocks may be kept in this directory, which a volume names.
    pub fn check_cache_dir(&self, dir: &str) -> Result<()> {
        match self.flags() {
            Some(_) if dir.split([':', ',']).any(|dir| dir.trim() == "memory") => Err(never(
                "mount option cache-dir=memory",
                "not in a driver: memory of volumes is one budget of the node",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the option counts.
    fn takes(&self, author: Author, name: &str) -> Result<bool> {
        let Some(flags) = self.flags() else { return Ok(true) };
        if HARMLESS.contains(&name) || name.starts_with("x-") {
            return Ok(true);
        }
        if author == Author::Pod && !has(&flags.allow_inline_options, name) {
            let what = format!("mount option {name} of an inline volume");
            return Err(refused(what, &format!("{INLINE_OPTIONS}={name}")));
        }
        if OPENABLE.contains(&name) && has(&flags.allow_mount_options, name) {
            return Ok(true);
        }
        if NODE_CACHE.contains(&name) {
            return Ok(false);
        }
        if ADMINISTRATORS.contains(&name) {
            return Ok(true);
        }
        if OPENABLE.contains(&name) {
            let flag = format!("{MOUNT_OPTIONS}={name}");
            return Err(refused(format!("mount option {name}"), &flag));
        }
        Err(never(format!("mount option {name}"), "not in a driver"))
    }
}

/// Whether it is an option or an attribute that pods can be allowed to give.
pub fn is_known(name: &str) -> bool {
    [HARMLESS, ADMINISTRATORS, NODE_CACHE, OPENABLE, PLACES].iter().any(|all| all.contains(&name))
}

fn has(allowed: &[String], name: &str) -> bool {
    allowed.iter().any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flags;

    fn told<T: std::fmt::Debug>(done: Result<T>) -> String {
        done.unwrap_err().to_string()
    }

    #[test]
    fn devices_and_set_uid_programs_need_a_word_of_the_administrator() {
        let policy = Policy::new(Flags::default()).unwrap();
        for name in ["dev", "suid"] {
            for author in [Author::Administrator, Author::Pod] {
                let refusal = told(policy.check_options(author, [name]));
                assert!(refusal.contains(name) && refusal.contains("--allow-"), "{refusal}");
            }
        }
        let allow_mount_options = vec!["dev".to_owned()];
        let policy = Policy::new(Flags { allow_mount_options, ..Flags::default() }).unwrap();
        policy.check_options(Author::Administrator, ["dev"]).unwrap();
        policy.check_options(Author::Administrator, ["suid"]).unwrap_err();
        policy.check_options(Author::Pod, ["dev"]).unwrap_err();
    }

    #[test]
    fn who_makes_a_pod_cannot_say_where_data_lies() {
        let policy = Policy::new(Flags::default()).unwrap();
        for name in ["storage", "bucket", "cache-dir", "subdir", "writeback", "context", "colour"] {
            let refusal = told(policy.check_options(Author::Pod, [name]));
            assert!(refusal.contains(name) && refusal.contains(INLINE_OPTIONS), "{refusal}");
        }
        policy.check_options(Author::Pod, ["ro", "cache-size", "noatime", "x-any"]).unwrap();
        policy.check_options(Author::Administrator, ["storage", "bucket", "subdir"]).unwrap();
        for name in PLACES {
            assert!(told(policy.check_inline_attribute(name)).contains(INLINE_OPTIONS));
        }
        policy.check_inline_attribute("capacity").unwrap();
    }

    #[test]
    fn the_node_decides_how_its_cache_is_kept() {
        let policy = Policy::new(Flags::default()).unwrap();
        let names = ["free-space-ratio", "cache-size", "cache-dir", "writeback", "cache-dir"];
        let decided = policy.check_options(Author::Administrator, names).unwrap();
        assert_eq!(decided, ["cache-dir", "free-space-ratio"]);
        assert!(told(policy.check_cache_dir("memory")).contains("memory"));
        assert!(told(policy.check_cache_dir("/a: memory")).contains("memory"));
        policy.check_cache_dir("/a/memory").unwrap();
        let allow_mount_options = vec!["cache-dir".to_owned()];
        let policy = Policy::new(Flags { allow_mount_options, ..Flags::default() }).unwrap();
        let decided = policy.check_options(Author::Administrator, names).unwrap();
        assert_eq!(decided, ["free-space-ratio"]);
    }

    #[test]
    fn a_flag_that_means_nothing_is_refused_at_the_start() {
        for flags in [
            Flags { allow_mount_options: vec!["storage".to_owned()], ..Flags::default() },
            Flags { allow_inline_options: vec!["colour".to_owned()], ..Flags::default() },
            Flags { allow_files_below: Some("relative".into()), ..Flags::default() },
            Flags { allow_local_storage: Some("/a/../b".into()), ..Flags::default() },
        ] {
            assert!(told(Policy::new(flags)).starts_with("--allow-"));
        }
    }
}
