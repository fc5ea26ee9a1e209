//! Where volumes lie in a file system, and what a volume may be called.

use crate::error::{Error, Result};
use crate::meta::Name;
use crate::policy::{Author, Policy};

use super::options;
use super::records::{HOME, MAX_ID};

/// Where snapshots lie: `/.snapshots/<volume>/<snapshot>`.
pub const SNAPSHOTS: &str = ".snapshots";
/// Names in the root that no volume may have.
const RESERVED: &[&str] = &[HOME, SNAPSHOTS, ".trash"];

/// Refuses what cannot be the id of a volume or a snapshot: it is the name of a directory.
pub fn check_id(kind: &str, id: &str) -> Result<()> {
    let fail = |what: &str| Err(Error::bad_input(format!("{kind} {id:?}: {what}")));
    match id {
        "" => fail("it has no name"),
        _ if id.len() > MAX_ID => fail(&format!("its name is longer than {MAX_ID} bytes")),
        _ if RESERVED.contains(&id) => fail("the name is taken"),
        _ if Name::new(id).is_err() => fail("it cannot be the name of a directory"),
        _ => Ok(()),
    }
}

/// A path below the root, in one spelling; refused if it leads upwards, or to what is not for
/// volumes.
pub fn clean(path: &str) -> Result<String> {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let fail = |what: &str| Err(Error::bad_input(format!("path {path:?}: {what}")));
    match parts.first() {
        None => fail("names no directory"),
        Some(first) if RESERVED.contains(first) => fail("is not for volumes"),
        _ if parts.contains(&"..") => fail("leads upwards"),
        _ if parts.iter().any(|part| Name::new(part).is_err()) => {
            fail("has a part that cannot be the name of a directory")
        }
        _ => Ok(parts.join("/")),
    }
}

/// The whole path of a volume: its `subPath` below the directory that the mount options name as
/// `subdir`.
pub fn path_of(subdir: Option<&str>, sub_path: &str) -> Result<String> {
    clean(&format!("{}/{sub_path}", subdir.unwrap_or_default()))
}

/// What lists of mount options name as `subdir`; the options are checked on the way.
pub fn subdir_of(lists: &[&str], policy: &Policy) -> Result<Option<String>> {
    let said = options::read(policy, Author::Administrator, lists)?;
    Ok(said.args.meta.subdir.filter(|dir| !dir.is_empty()))
}

/// Whether it is the name that Kubernetes gives to the volume of a claim: `pvc-` and a UUID.
pub fn is_dynamic(id: &str) -> bool {
    id.strip_prefix("pvc-").is_some_and(|rest| {
        let lengths = rest.split('-').map(str::len);
        lengths.eq([8, 4, 4, 4, 12])
            && rest.chars().all(|letter| letter == '-' || letter.is_ascii_alphanumeric())
    })
}

/// Whether one path is another or lies above it.
pub fn covers(path: &str, other: &str) -> bool {
    other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_the_name_of_one_directory() {
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
        assert_eq!(clean("/a//./b/").unwrap(), "a/b");
        assert_eq!(path_of(Some("/base/"), "ns/pvc").unwrap(), "base/ns/pvc");
        for bad in ["", "/", "a/../b", "..", ".trash/x", "/.jfs-csi/volumes"] {
            assert!(clean(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_names_of_dynamic_volumes_are_known_by_their_shape() {
        assert!(is_dynamic("pvc-0f7a2b1c-1234-4abc-9def-0123456789ab"));
        for other in ["pvc-1", "data", "pvc-0f7a2b1c-1234-4abc-9def-0123456789ab-x", "pvc-"] {
            assert!(!is_dynamic(other), "{other}");
        }
    }

    #[test]
    fn a_path_covers_what_lies_below_it() {
        assert!(covers("a/b", "a/b") && covers("a", "a/b"));
        assert!(!covers("a/b", "a") && !covers("a", "ab"));
    }

    #[test]
    fn mount_options_say_which_directory_and_are_checked() {
        let policy = Policy::new(crate::policy::Flags::default()).unwrap();
        let subdir_of = |lists: &[&str]| super::subdir_of(lists, &policy);
        assert_eq!(subdir_of(&["writeback,subdir=/x", "subdir=y"]).unwrap().as_deref(), Some("y"));
        assert_eq!(subdir_of(&["ro"]).unwrap(), None);
        assert!(subdir_of(&["cache-size=much"]).is_err());
        assert!(subdir_of(&["suid"]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn a_clean_path_is_clean(path in "[./a-z\\PC]{0,40}") {
            if let Ok(found) = clean(&path) {
                proptest::prop_assert_eq!(&clean(&found).unwrap(), &found);
                proptest::prop_assert!(found.split('/').all(|part| !["", ".", ".."].contains(&part)));
            }
        }
    }
}
