//! The paths of volumes in a file system, and the rules for volume and snapshot ids.

use crate::error::{Error, Result};
use crate::meta::Name;
use crate::policy::{Author, Policy};

use super::mount_options;
use super::records::{CONTROLLER_DIR, MAX_ID};

/// The directory of snapshots: `/.snapshots/<volume>/<snapshot>`.
pub const SNAPSHOTS: &str = ".snapshots";
/// Names in the root directory that no volume may use.
const RESERVED: &[&str] = &[CONTROLLER_DIR, SNAPSHOTS, ".trash"];

/// Refuses an id that cannot be the name of a directory.
pub fn check_id(kind: &str, id: &str) -> Result<()> {
    let fail = |what: &str| Err(Error::bad_input(format!("{kind} {id:?}: {what}")));
    match id {
        "" => fail("the id is empty"),
        _ if id.len() > MAX_ID => fail(&format!("the id is longer than {MAX_ID} bytes")),
        _ if RESERVED.contains(&id) => fail("the name is reserved"),
        _ if Name::new(id).is_err() => fail("not a valid directory name"),
        _ => Ok(()),
    }
}

/// Normalizes a path below the root. Refuses `..` and reserved directories.
pub fn normalize(path: &str) -> Result<String> {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let fail = |what: &str| Err(Error::bad_input(format!("path {path:?}: {what}")));
    match parts.first() {
        None => fail("names no directory"),
        Some(first) if RESERVED.contains(first) => fail("lies in a reserved directory"),
        _ if parts.contains(&"..") => fail("contains .."),
        _ if parts.iter().any(|part| Name::new(part).is_err()) => {
            fail("has a part that is not a valid directory name")
        }
        _ => Ok(parts.join("/")),
    }
}

/// Returns the path of a volume: its `subPath` below the `subdir` of the mount options.
pub fn path_of(subdir: Option<&str>, sub_path: &str) -> Result<String> {
    normalize(&format!("{}/{sub_path}", subdir.unwrap_or_default()))
}

/// Checks lists of mount options and returns their `subdir`.
pub fn subdir_of(lists: &[&str], policy: &Policy) -> Result<Option<String>> {
    let parsed = mount_options::read(policy, Author::Administrator, lists)?;
    Ok(parsed.args.meta.subdir.filter(|dir| !dir.is_empty()))
}

/// Whether an id has the form that Kubernetes gives to dynamic volumes: `pvc-` and a UUID.
pub fn is_dynamic(id: &str) -> bool {
    id.strip_prefix("pvc-").is_some_and(|rest| {
        let lengths = rest.split('-').map(str::len);
        lengths.eq([8, 4, 4, 4, 12])
            && rest.chars().all(|letter| letter == '-' || letter.is_ascii_alphanumeric())
    })
}

/// Whether `path` equals `other` or is an ancestor of it.
pub fn covers(path: &str, other: &str) -> bool {
    other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_id_is_a_directory_name() {
        for good in ["pvc-1", "a b", ".hidden", "ü"] {
            check_id("volume", good).unwrap();
        }
        for bad in ["", ".", "..", "a/b", ".trash", ".jfs-csi", ".snapshots", "a\0"] {
            assert!(check_id("volume", bad).is_err(), "{bad:?}");
        }
        assert!(check_id("volume", &"x".repeat(201)).is_err());
    }

    #[test]
    fn a_path_stays_below_the_root() {
        assert_eq!(normalize("/a//./b/").unwrap(), "a/b");
        assert_eq!(path_of(Some("/base/"), "ns/pvc").unwrap(), "base/ns/pvc");
        for bad in ["", "/", "a/../b", "..", ".trash/x", "/.jfs-csi/volumes"] {
            assert!(normalize(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn dynamic_volumes_are_recognised_by_the_form_of_their_id() {
        assert!(is_dynamic("pvc-0f7a2b1c-1234-4abc-9def-0123456789ab"));
        for other in ["pvc-1", "data", "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab-x", "pvc-"] {
            assert!(!is_dynamic(other), "{other}");
        }
    }

    #[test]
    fn a_path_covers_itself_and_everything_below() {
        assert!(covers("a/b", "a/b") && covers("a", "a/b"));
        assert!(!covers("a/b", "a") && !covers("a", "ab"));
    }

    #[test]
    fn mount_options_are_checked_and_name_the_subdir() {
        let policy = Policy::new(crate::policy::Flags::default()).unwrap();
        let subdir_of = |lists: &[&str]| super::subdir_of(lists, &policy);
        assert_eq!(subdir_of(&["writeback,subdir=/x", "subdir=y"]).unwrap().as_deref(), Some("y"));
        assert_eq!(subdir_of(&["ro"]).unwrap(), None);
        assert!(subdir_of(&["cache-size=much"]).is_err());
        assert!(subdir_of(&["suid"]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn a_normalized_path_stays_the_same(path in "[./a-z\\PC]{0,40}") {
            if let Ok(found) = normalize(&path) {
                proptest::prop_assert_eq!(&normalize(&found).unwrap(), &found);
                proptest::prop_assert!(found.split('/').all(|part| !["", ".", ".."].contains(&part)));
            }
        }
    }
}
