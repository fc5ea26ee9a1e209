//! Directory listings in the kernel's two forms.

use super::ask::{Ask, entry};
use super::numbers::to_kernel;
use crate::error::Result;
use crate::fuse::abi;
use crate::fuse::answer::{Listing, ListingPlus};
use crate::fuse::decode::ReadDir;
use crate::meta::{Ino, Name};
use crate::vfs::{Listed, Node};

/// Counts how many entries fit into an answer.
struct Room {
    left: usize,
    fixed: usize,
}

impl Room {
    fn new(size: u32, fixed: usize) -> Self {
        Self { left: usize::try_from(size).unwrap_or(0), fixed }
    }

    fn takes(&mut self, name: &Name) -> bool {
        let length = (self.fixed + name.as_bytes().len()).next_multiple_of(8);
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
        if !listing.push(to_kernel(ask.vfs.root(), *ino), *next, *kind, name.as_bytes()) {
            break;
        }
    }
    Ok(listing)
}

/// Names with attributes. These are read now, for exactly what is answered: the kernel takes them
/// for new, so none may be older than the question.
pub async fn nodes(ask: &Ask, dir: Ino, read: ReadDir) -> Result<ListingPlus> {
    let mut room = Room::new(read.size, abi::DIRENT + abi::ENTRY_OUT);
    let listed = ask.vfs.list(dir, read.fh, read.offset, |name| room.takes(name)).await?;
    let inos: Vec<Ino> =
        listed.iter().filter(|one| !is_dots(&one.name)).map(|one| one.ino).collect();
    let mut attrs = ask.vfs.attrs(&inos).await?.into_iter();
    let mut listing = ListingPlus::new(read.size);
    for Listed { name, ino, kind, next } in listed {
        let attr = if is_dots(&name) { None } else { attrs.next().flatten() };
        let pushed = match attr {
            Some(attr) => {
                let node = Node { ino, attr };
                listing.push(&entry(&ask.vfs, &node), next, kind, name.as_bytes())
            }
            // What vanished meanwhile is only a name.
            None => listing.push_name(to_kernel(ask.vfs.root(), ino), next, kind, name.as_bytes()),
        };
        if !pushed {
            break;
        }
    }
    Ok(listing)
}

fn is_dots(name: &Name) -> bool {
    name.is_dot() || name.is_dot_dot()
}
