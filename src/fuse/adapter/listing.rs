//! Directory listings in the kernel's two formats.

use super::call::{Call, entry};
use super::convert::to_kernel;
use crate::error::Result;
use crate::fuse::protocol::abi;
use crate::fuse::protocol::decode::ReadDir;
use crate::fuse::protocol::encode::{Entry, Listing, ListingPlus};
use crate::meta::Ino;
use crate::vfs::{ListedEntry, ListedNode, Node};

/// Counts how many entries fit into a reply.
struct Room {
    left: usize,
    fixed: usize,
}

impl Room {
    fn new(size: u32, fixed: usize) -> Self {
        Self { left: usize::try_from(size).unwrap_or(0), fixed }
    }

    fn takes(&mut self, name: &[u8]) -> bool {
        let length = (self.fixed + name.len()).next_multiple_of(8);
        let fits = length <= self.left;
        if fits {
            self.left -= length;
        }
        fits
    }
}

/// Lists names, nodes and types.
pub async fn list_names(call: &Call, dir: Ino, read: ReadDir) -> Result<Listing> {
    let mut room = Room::new(read.size, abi::DIRENT);
    let listed = call.vfs.list(dir, read.fh, read.offset, |name| room.takes(name)).await?;
    let mut listing = Listing::new(read.size);
    for ListedEntry { name, ino, kind, next } in &listed {
        if !listing.push(to_kernel(call.vfs.root(), *ino), *next, *kind, name) {
            break;
        }
    }
    Ok(listing)
}

/// Lists names with attributes, whose age is subtracted from their lifetime.
pub async fn list_nodes(call: &Call, dir: Ino, read: ReadDir) -> Result<ListingPlus> {
    let mut room = Room::new(read.size, abi::DIRENT + abi::ENTRY_OUT);
    let fits = |name: &[u8]| room.takes(name);
    let nodes = call.vfs.list_nodes(dir, read.fh, read.offset, fits).await?;
    let mut listing = ListingPlus::new(read.size);
    for ListedNode { listed: ListedEntry { name, ino, kind, next }, attr, age } in nodes {
        let pushed = match attr {
            Some(attr) => {
                let entry = entry(&call.vfs, &Node { ino, attr });
                let attr_lifetime = entry.attr_lifetime.saturating_sub(age);
                listing.push(&Entry { attr_lifetime, ..entry }, next, kind, &name)
            }
            // An entry removed meanwhile is only a name.
            None => listing.push_name(to_kernel(call.vfs.root(), ino), next, kind, &name),
        };
        if !pushed {
            break;
        }
    }
    Ok(listing)
}
