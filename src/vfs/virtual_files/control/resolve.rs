//! Resolves the nodes that a request names, by number or by path.
//!
//! Requests bypass the kernel, so they may name only nodes in the mount that their caller could
//! reach by a path. A caller with only a directory of the volume mounted must not reach nodes
//! outside it, and a caller that may not search a directory must not reach nodes below it. Paths
//! start at the root of the mount and follow symlinks that stay within it.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::op::attrs::access;
use crate::meta::record::{Attr, FileKind};
use crate::meta::{Caller, Ino, Name};
use crate::vfs::control_protocol::Request;
use crate::vfs::virtual_files::ControlContext;

/// The kernel follows as many symlinks, and paths as long.
const MAX_LINKS: usize = 40;
const MAX_PATH: usize = 4096;
/// The prefix of a path that is an inode number.
const NUMBER_PREFIX: &[u8] = b"inode:";

impl ControlContext {
    /// Translates inode numbers to those of the volume, since the root of the mount is 1 to
    /// clients, and checks that the caller may reach them.
    pub async fn check_reach(&self, caller: &Caller, mut request: Request) -> Result<Request> {
        let named: Vec<&mut Ino> = match &mut request {
            Request::Remove(request) => vec![&mut request.dir],
            Request::LegacyInfo(request) | Request::Info(request) => vec![&mut request.ino],
            Request::Clone(request) => {
                vec![&mut request.src, &mut request.src_dir, &mut request.dst_dir]
            }
            Request::Summary(request) => vec![&mut request.ino],
            Request::Compact { ino, .. } => vec![ino],
            // Its paths start at the root of the mount.
            Request::Warmup(_) => Vec::new(),
        };
        for ino in named {
            *ino = self.reach(caller, *ino).await?;
        }
        Ok(request)
    }

    /// Checks a node that a client named by number.
    pub async fn reach(&self, caller: &Caller, ino: Ino) -> Result<Ino> {
        if ino == Ino::ROOT || ino == self.root {
            return Ok(self.root);
        }
        self.meta.reach(caller, self.root, ino).await?;
        Ok(ino)
    }
}

/// Returns the node that a path refers to for this caller.
pub async fn resolve(
    context: &ControlContext,
    caller: &Caller,
    path: &Bytes,
) -> Result<(Ino, Attr)> {
    let meta = &context.meta;
    if let Some(ino) = parse_number(path) {
        let ino = context.reach(caller, ino).await?;
        return Ok((ino, meta.getattr(ino).await?));
    }
    if path.len() > MAX_PATH {
        return Err(Error::NameTooLong);
    }
    // The rest of the path and of the symlinks in it, innermost last.
    let mut left = vec![path.clone()];
    // The directories above the current node, the root of the mount first.
    let mut parents: Vec<Ino> = Vec::new();
    let mut links = 0;
    let mut at = (context.root, meta.getattr(context.root).await?);
    while let Some(component) = next_component(&mut left) {
        match &component[..] {
            b"." => continue,
            // The parent of the root is the root.
            b".." => {
                if let Some(above) = parents.pop() {
                    at = (above, meta.getattr(above).await?);
                }
                continue;
            }
            _ => {}
        }
        if at.0 != context.root {
            meta.permits(caller, &at.1, access::READ | access::EXEC).await?;
        }
        let found = meta.lookup(caller, at.0, &Name::new(&component)?).await?;
        if found.1.kind != FileKind::Symlink {
            parents.push(at.0);
            at = found;
            continue;
        }
        let target = meta.readlink(found.0).await?;
        if target.starts_with(b"/") || target.windows(3).any(|bytes| bytes == b"://") {
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

/// Takes the next component off a path.
fn next_component(left: &mut Vec<Bytes>) -> Option<Bytes> {
    while let Some(path) = left.last_mut() {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let component = path.split_to(end);
        if path.is_empty() {
            left.pop();
        } else {
            drop(path.split_to(1));
        }
        if !component.is_empty() {
            return Some(component);
        }
    }
    None
}

fn parse_number(path: &[u8]) -> Option<Ino> {
    std::str::from_utf8(path.strip_prefix(NUMBER_PREFIX)?).ok()?.parse().ok().map(Ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components(paths: &[&'static str]) -> Vec<Bytes> {
        let mut left = paths.iter().map(|path| Bytes::from_static(path.as_bytes())).collect();
        std::iter::from_fn(|| next_component(&mut left)).collect()
    }

    #[test]
    fn a_path_is_split_at_its_slashes() {
        assert_eq!(components(&["/a//b/"]), ["a", "b"]);
        assert_eq!(components(&["/", "", "//"]), [""; 0]);
        assert_eq!(components(&["../c/./d"]), ["..", "c", ".", "d"]);
    }

    #[test]
    fn the_target_of_a_symlink_is_resolved_before_the_rest() {
        assert_eq!(components(&["c/d", "a/b"]), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_path_may_be_an_inode_number() {
        assert_eq!(parse_number(b"inode:42"), Some(Ino(42)));
        assert_eq!(parse_number(b"inode:x"), None);
        assert_eq!(parse_number(b"/inode:42"), None);
    }
}
