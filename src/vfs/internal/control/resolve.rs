//! Paths of a request: from the root of the mount, through symlinks that stay within it.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino, Name};
use crate::vfs::internal::Work;

/// As many symlinks as the kernel follows, and as long a path.
const MAX_LINKS: usize = 40;
const MAX_PATH: usize = 4096;
/// What a path begins with that is a number.
const BY_NUMBER: &[u8] = b"inode:";

/// The node that a path means to this caller.
pub async fn resolve(work: &Work, caller: &Caller, path: &Bytes) -> Result<(Ino, Attr)> {
    let meta = &work.meta;
    if let Some(ino) = numbered(path) {
        let ino = work.reach(caller, ino).await?;
        return Ok((ino, meta.getattr(ino).await?));
    }
    if path.len() > MAX_PATH {
        return Err(Error::NameTooLong);
    }
    // What is left of the path and of the symlinks in it, the innermost last.
    let mut left = vec![path.clone()];
    // The directories that lead to where it stands, the root of the mount first.
    let mut way: Vec<Ino> = Vec::new();
    let mut links = 0;
    let mut at = (work.root, meta.getattr(work.root).await?);
    while let Some(part) = next_part(&mut left) {
        match &part[..] {
            b"." => continue,
            // Nothing is above the root.
            b".." => {
                if let Some(above) = way.pop() {
                    at = (above, meta.getattr(above).await?);
                }
                continue;
            }
            _ => {}
        }
        if at.0 != work.root {
            meta.permits(caller, &at.1, access::READ | access::EXEC).await?;
        }
        let found = meta.lookup(caller, at.0, &Name::new(&part)?).await?;
        if found.1.kind != FileKind::Symlink {
            way.push(at.0);
            at = found;
            continue;
        }
        let target = meta.readlink(found.0).await?;
        if target.starts_with(b"/") || target.windows(3).any(|part| part == b"://") {
            return Err(Error::NotSupported);
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Error::Invalid);
        }
        left.push(target);
    }
    Ok(at)
}

/// Takes the next part of a path off.
fn next_part(left: &mut Vec<Bytes>) -> Option<Bytes> {
    while let Some(path) = left.last_mut() {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let part = path.split_to(end);
        if path.is_empty() {
            left.pop();
        } else {
            drop(path.split_to(1));
        }
        if !part.is_empty() {
            return Some(part);
        }
    }
    None
}

fn numbered(path: &[u8]) -> Option<Ino> {
    std::str::from_utf8(path.strip_prefix(BY_NUMBER)?).ok()?.parse().ok().map(Ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(paths: &[&'static str]) -> Vec<Bytes> {
        let mut left = paths.iter().map(|path| Bytes::from_static(path.as_bytes())).collect();
        std::iter::from_fn(|| next_part(&mut left)).collect()
    }

    #[test]
    fn a_path_falls_apart_at_its_slashes() {
        assert_eq!(parts(&["/a//b/"]), ["a", "b"]);
        assert_eq!(parts(&["/", "", "//"]), [""; 0]);
        assert_eq!(parts(&["../c/./d"]), ["..", "c", ".", "d"]);
    }

    #[test]
    fn the_target_of_a_symlink_comes_before_the_rest() {
        assert_eq!(parts(&["c/d", "a/b"]), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_path_may_be_a_number() {
        assert_eq!(numbered(b"inode:42"), Some(Ino(42)));
        assert_eq!(numbered(b"inode:x"), None);
        assert_eq!(numbered(b"/inode:42"), None);
    }
}
