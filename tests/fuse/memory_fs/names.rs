//! Names, attributes, listings.

use jfs::error::{Error, Result};
use jfs::fuse::{Listing, ListingPlus, Mknod, ReadDir, Rename, Request, SetAttr, SetTime};
use jfs::meta::Timestamp;
use jfs::meta::record::FileKind;

use super::MemoryFs;
use super::nodes::{Node, Nodes, kind_of};

const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

pub fn set(nodes: &mut Nodes, ino: u64, change: &SetAttr) -> Result<()> {
    let node = nodes.get_mut(ino)?;
    if let Some(size) = change.size {
        node.content.resize(usize::try_from(size).map_err(|_| Error::TooLarge)?, 0);
        node.mtime = Timestamp::now();
    }
    node.mode = change.mode.map_or(node.mode, |mode| mode & 0o7777);
    node.uid = change.uid.unwrap_or(node.uid);
    node.gid = change.gid.unwrap_or(node.gid);
    match change.mtime {
        Some(SetTime::Now) => node.mtime = Timestamp::now(),
        Some(SetTime::At(time)) => node.mtime = time,
        None => {}
    }
    Ok(())
}

pub fn make(nodes: &mut Nodes, request: &Request, mknod: &Mknod<'_>) -> Result<u64> {
    let mut node = Node::new(kind_of(mknod.mode), mknod.mode, (request.uid, request.gid));
    node.rdev = mknod.rdev;
    nodes.add(request.ino.0, mknod.name, node)
}

pub fn unlink(nodes: &mut Nodes, dir: u64, name: &[u8], directory: bool) -> Result<()> {
    let node = nodes.get(nodes.child(dir, name)?)?;
    match (node.kind == FileKind::Dir, directory) {
        (true, false) => return Err(Error::IsDirectory),
        (false, true) => return Err(Error::NotDirectory),
        _ if !node.entries.is_empty() => return Err(Error::NotEmpty),
        _ => {}
    }
    nodes.remove(dir, name);
    Ok(())
}

pub fn rename(nodes: &mut Nodes, dir: u64, rename: &Rename<'_>) -> Result<()> {
    let from = nodes.child(dir, rename.name)?;
    let to = nodes.child(rename.new_dir.0, rename.new_name).ok();
    match (rename.flags, to) {
        (NOREPLACE, Some(_)) => return Err(Error::Exists),
        (EXCHANGE, None) => return Err(Error::NotFound),
        (EXCHANGE, Some(to)) => {
            nodes.get_mut(dir)?.entries.insert(rename.name.to_vec(), to);
        }
        (0, Some(_)) => {
            nodes.remove(rename.new_dir.0, rename.new_name);
            nodes.get_mut(dir)?.entries.remove(rename.name);
        }
        (0 | NOREPLACE, None) => {
            nodes.get_mut(dir)?.entries.remove(rename.name);
        }
        _ => return Err(Error::Invalid),
    }
    nodes.get_mut(rename.new_dir.0)?.entries.insert(rename.new_name.to_vec(), from);
    Ok(())
}

pub fn link(nodes: &mut Nodes, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
    if nodes.child(dir, name).is_ok() {
        return Err(Error::Exists);
    }
    nodes.get_mut(ino)?.nlink += 1;
    nodes.get_mut(dir)?.entries.insert(name.to_vec(), ino);
    Ok(())
}

impl MemoryFs {
    pub fn list(&self, dir: u64, read: ReadDir) -> Result<Listing> {
        let nodes = self.nodes();
        let mut listing = Listing::new(read.size);
        for (offset, ino, name) in entries(&nodes, dir, read.offset)? {
            let kind = nodes.get(ino)?.kind;
            if !listing.push(jfs::meta::Ino(ino), offset, kind, &name) {
                break;
            }
        }
        Ok(listing)
    }

    pub fn list_plus(&self, dir: u64, read: ReadDir) -> Result<ListingPlus> {
        let nodes = self.nodes();
        let mut listing = ListingPlus::new(read.size);
        for (offset, ino, name) in entries(&nodes, dir, read.offset)? {
            let kind = nodes.get(ino)?.kind;
            let dots = name == b"." || name == b"..";
            let pushed = if dots {
                listing.push_name(jfs::meta::Ino(ino), offset, kind, &name)
            } else {
                listing.push(&self.entry(&nodes, ino), offset, kind, &name)
            };
            if !pushed {
                break;
            }
        }
        Ok(listing)
    }
}

/// Returns the entries after `offset`, each with its own offset.
fn entries(nodes: &Nodes, dir: u64, offset: u64) -> Result<Vec<(u64, u64, Vec<u8>)>> {
    let dots = [(b".".to_vec(), dir), (b"..".to_vec(), 1)];
    let names = nodes.get(dir)?.entries.iter().map(|(name, ino)| (name.clone(), *ino));
    let all = dots.into_iter().chain(names).zip(1..);
    let rest = all.skip(usize::try_from(offset).unwrap());
    // More than fit into any buffer.
    Ok(rest.take(8192).map(|((name, ino), offset)| (offset, ino, name)).collect())
}
