//! Mount options and volume attributes: who may use which.
//!
//! These are lists of allowed names, so a new option is refused until it is added to one.

use super::flags::{INLINE_OPTIONS, INLINE_VOLUMES, MOUNT_OPTIONS};
use super::{Policy, always_forbidden, forbidden_without};
use crate::error::Result;

/// Who wrote the options of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// An administrator, in a PV or its class.
    Administrator,
    /// The author of a pod, in an inline volume.
    Pod,
}

/// Options that affect only the users of the volume.
const HARMLESS_OPTIONS: &[&str] = &[
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

/// Options that affect the whole file system or the node.
const ADMINISTRATOR_OPTIONS: &[&str] = &[
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

/// Options of the cache, which all volumes of a node share: flags of the node set them.
const NODE_CACHE_OPTIONS: &[&str] = &[
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

/// What `--allow-mount-options` can allow: devices and set-uid programs affect the node, and a
/// cache directory is on the node.
pub const ALLOWABLE: &[&str] = &["dev", "suid", "cache-dir"];

/// Attributes that choose a directory of the file system.
const DIRECTORY_ATTRIBUTES: &[&str] = &["subPath", "subdir"];

impl Policy {
    /// Checks whether the author may use these options. Returns those without effect, because the
    /// node sets them.
    pub fn check_options<'a>(
        &self,
        author: Author,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>> {
        let mut set_by_node = Vec::new();
        for name in names {
            if !self.has_effect(author, name)? {
                set_by_node.push(name);
            }
        }
        set_by_node.sort_unstable();
        set_by_node.dedup();
        Ok(set_by_node)
    }

    /// Checks whether inline volumes are allowed.
    pub fn check_inline(&self) -> Result<()> {
        match self.flags() {
            Some(flags) if !flags.allow_inline_volumes => {
                Err(forbidden_without("an inline (ephemeral) volume", INLINE_VOLUMES))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether a pod may use an attribute in an inline volume.
    pub fn check_inline_attribute(&self, name: &str) -> Result<()> {
        match self.flags() {
            Some(flags)
                if DIRECTORY_ATTRIBUTES.contains(&name)
                    && !has(&flags.allow_inline_options, name) =>
            {
                let what = format!("volume attribute {name} of an inline volume");
                Err(forbidden_without(what, &format!("{INLINE_OPTIONS}={name}")))
            }
            _ => Ok(()),
        }
    }

    /// Checks whether a volume may use a cache directory.
    pub fn check_cache_dir(&self, dir: &str) -> Result<()> {
        match self.flags() {
            Some(_) if dir.split([':', ',']).any(|dir| dir.trim() == "memory") => {
                Err(always_forbidden(
                    "mount option cache-dir=memory",
                    "not in a driver: the memory of all volumes is one budget of the node",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether an allowed option has an effect; otherwise the node sets it.
    fn has_effect(&self, author: Author, name: &str) -> Result<bool> {
        let Some(flags) = self.flags() else { return Ok(true) };
        if HARMLESS_OPTIONS.contains(&name) || name.starts_with("x-") {
            return Ok(true);
        }
        if author == Author::Pod && !has(&flags.allow_inline_options, name) {
            let what = format!("mount option {name} of an inline volume");
            return Err(forbidden_without(what, &format!("{INLINE_OPTIONS}={name}")));
        }
        if ALLOWABLE.contains(&name) && has(&flags.allow_mount_options, name) {
            return Ok(true);
        }
        if NODE_CACHE_OPTIONS.contains(&name) {
            return Ok(false);
        }
        if ADMINISTRATOR_OPTIONS.contains(&name) {
            return Ok(true);
        }
        if ALLOWABLE.contains(&name) {
            let flag = format!("{MOUNT_OPTIONS}={name}");
            return Err(forbidden_without(format!("mount option {name}"), &flag));
        }
        Err(always_forbidden(format!("mount option {name}"), "not in a driver"))
    }
}

/// Whether inline volumes can be allowed to use an option or attribute.
pub fn is_known(name: &str) -> bool {
    [HARMLESS_OPTIONS, ADMINISTRATOR_OPTIONS, NODE_CACHE_OPTIONS, ALLOWABLE, DIRECTORY_ATTRIBUTES]
        .iter()
        .any(|all| all.contains(&name))
}

fn has(allowed: &[String], name: &str) -> bool {
    allowed.iter().any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Flags;

    fn message<T: std::fmt::Debug>(done: Result<T>) -> String {
        done.unwrap_err().to_string()
    }

    #[test]
    fn devices_and_set_uid_programs_need_a_flag() {
        let policy = Policy::new(Flags::default()).unwrap();
        for name in ["dev", "suid"] {
            for author in [Author::Administrator, Author::Pod] {
                let refusal = message(policy.check_options(author, [name]));
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
    fn an_inline_volume_cannot_choose_its_storage() {
        let policy = Policy::new(Flags::default()).unwrap();
        for name in ["storage", "bucket", "cache-dir", "subdir", "writeback", "context", "colour"] {
            let refusal = message(policy.check_options(Author::Pod, [name]));
            assert!(refusal.contains(name) && refusal.contains(INLINE_OPTIONS), "{refusal}");
        }
        policy.check_options(Author::Pod, ["ro", "cache-size", "noatime", "x-any"]).unwrap();
        policy.check_options(Author::Administrator, ["storage", "bucket", "subdir"]).unwrap();
        for name in DIRECTORY_ATTRIBUTES {
            assert!(message(policy.check_inline_attribute(name)).contains(INLINE_OPTIONS));
        }
        policy.check_inline_attribute("capacity").unwrap();
    }

    #[test]
    fn the_node_configures_its_cache() {
        let policy = Policy::new(Flags::default()).unwrap();
        let names = ["free-space-ratio", "cache-size", "cache-dir", "writeback", "cache-dir"];
        let set_by_node = policy.check_options(Author::Administrator, names).unwrap();
        assert_eq!(set_by_node, ["cache-dir", "free-space-ratio"]);
        assert!(message(policy.check_cache_dir("memory")).contains("memory"));
        assert!(message(policy.check_cache_dir("/a: memory")).contains("memory"));
        policy.check_cache_dir("/a/memory").unwrap();
        let allow_mount_options = vec!["cache-dir".to_owned()];
        let policy = Policy::new(Flags { allow_mount_options, ..Flags::default() }).unwrap();
        let set_by_node = policy.check_options(Author::Administrator, names).unwrap();
        assert_eq!(set_by_node, ["free-space-ratio"]);
    }

    #[test]
    fn an_invalid_flag_is_refused_at_the_start() {
        for flags in [
            Flags { allow_mount_options: vec!["storage".to_owned()], ..Flags::default() },
            Flags { allow_inline_options: vec!["colour".to_owned()], ..Flags::default() },
            Flags { allow_files_below: Some("relative".into()), ..Flags::default() },
            Flags { allow_local_storage: Some("/a/../b".into()), ..Flags::default() },
        ] {
            assert!(message(Policy::new(flags)).starts_with("--allow-"));
        }
    }
}
