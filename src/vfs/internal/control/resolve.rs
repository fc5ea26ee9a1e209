//! Paths of a request: from the root of the mount, through symlinks that stay within it.

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::meta::op::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino, Name};
use crate::vfs::internal::Work;

/// As many symlinks as the kernel follows.
const MAX_LINKS: u32 = 40;
/// What a path begins with that is a number.
const BY_NUMBER: &[u8] = b"inode:";

/// The node that a path means to this caller.
pub async fn resolve(work: &Work, caller: &Caller, path: &[u8]) -> Result<(Ino, Attr)> {
    if let Some(ino) = numbered(path) {
        let ino = work.reach(ino).await?;
        return Ok((ino, work.meta.getattr(ino).await?));
    }
    let mut parts = Vec::new();
    join(&mut parts, path);
    walk(work, caller, parts, MAX_LINKS).await
}

fn walk<'a>(
    work: &'a Work,
    caller: &'a Caller,
    parts: Vec<Vec<u8>>,
    links: u32,
) -> BoxFuture<'a, Result<(Ino, Attr)>> {
    async move {
        let meta = &work.meta;
        let mut at = (work.root, meta.getattr(work.root).await?);
        for (depth, part) in parts.iter().enumerate() {
            if depth > 0 {
                meta.permits(caller, &at.1, access::READ | access::EXEC).await?;
            }
            at = meta.lookup(caller, at.0, &Name::new(part)?).await?;
            if at.1.kind == FileKind::Symlink {
                let target = meta.readlink(at.0).await?;
                if target.starts_with(b"/") || target.windows(3).any(|part| part == b"://") {
                    return Err(Error::NotSupported);
                }
                let left = links.checked_sub(1).ok_or(Error::Invalid)?;
                let mut there = parts[..depth].to_vec();
                join(&mut there, &target);
                at = walk(work, caller, there, left).await?;
            }
        }
        Ok(at)
    }
    .boxed()
}

fn numbered(path: &[u8]) -> Option<Ino> {
    std::str::from_utf8(path.strip_prefix(BY_NUMBER)?).ok()?.parse().ok().map(Ino)
}

/// Adds the parts of a path; what leads upwards takes a part away, and the root has nothing above.
fn join(parts: &mut Vec<Vec<u8>>, path: &[u8]) {
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(base: &[u8], path: &[u8]) -> Vec<u8> {
        let mut parts = Vec::new();
        join(&mut parts, base);
        join(&mut parts, path);
        parts.join(&b'/')
    }

    #[test]
    fn a_target_is_taken_from_where_its_link_is() {
        assert_eq!(joined(b"/a/b", b"../c//./d"), b"a/c/d");
        assert_eq!(joined(b"/", b"../../c"), b"c");
        assert_eq!(joined(b"", b""), b"");
    }

    #[test]
    fn a_path_may_be_a_number() {
        assert_eq!(numbered(b"inode:42"), Some(Ino(42)));
        assert_eq!(numbered(b"inode:x"), None);
        assert_eq!(numbered(b"/inode:42"), None);
    }
}
