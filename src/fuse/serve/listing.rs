//! Directory listings in the kernel's two forms.

use super::ask::{Ask, entry};
use super::numbers::to_kernel;
use crate::error::Result;
use crate::fuse::abi;
use crate::fuse::answer::{Entry, Listing, ListingPlus};
use crate::fuse::decode::ReadDir;
use crate::meta::Ino;
use crate::vfs::{Listed, ListedNode, Node};

/// Counts how many entries fit into an answer.
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

/// Names, nodes and types.
pub async fn names(ask: &Ask, dir: Ino, read: ReadDir) -> Result<Listing> {
    let mut room = Room::new(read.size, abi::DIRENT);
    let listed = ask.vfs.list(dir, read.fh, read.offset, |name| room.takes(name)).await?;
    let mut listing = Listing::new(read.size);
    for Listed { name, ino, kind, next } in &listed {
        if !listing.push(to_kernel(ask.vfs.root(), *ino), *next, *kind, name) {
            break;
        }
    }
    Ok(listing)
}

/// Names with attributes, which live as much shorter as they are old.
pub async fn nodes(ask: &Ask, dir: Ino, read: ReadDir) -> Result<ListingPlus> {
    let mut room = Room::new(read.size, abi::DIRENT + abi::ENTRY_OUT);
    let fits = |name: &[u8]| room.takes(name);
    let nodes = ask.vfs.list_nodes(dir, read.fh, read.offset, fits).await?;
    let mut listing = ListingPlus::new(read.size);
    for ListedNode { listed: Listed { name, ino, kind, next }, attr, age } in nodes {
        let pushed = match attr {
            Some(attr) => {
                let entry = entry(&ask.vfs, &Node { ino, attr });
                let attr_lifetime = entry.attr_lifetime.saturating_sub(age);
                listing.push(&Entry { attr_lifetime, ..entry }, next, kind, &name)
            }
            // What vanished meanwhile is only a name.
            None => listing.push_name(to_kernel(ask.vfs.root(), ino), next, kind, &name),
        };
        if !pushed {
            break;
        }
    }
    Ok(listing)
}
