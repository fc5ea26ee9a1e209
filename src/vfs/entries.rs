//! Operations on names: lookup, create, link, rename and remove.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::record::Attr;
use crate::meta::{Caller, EntryRef, Ino, Name, NodeKind, RenameMode};
use crate::vfs::{Node, Vfs};

impl Vfs {
    pub async fn lookup(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<Node> {
        if let Some((ino, attr)) = self.virtual_files.find(dir, name) {
            return Ok(Node { ino, attr });
        }
        // Only an NFS server asks for these, to reconnect an inode to the tree.
        match name {
            b"." => return self.lookup_self(dir).await,
            b".." => return self.lookup_parent(dir).await,
            _ => {}
        }
        let (ino, attr) = self.meta.lookup(caller, dir, &Name::new(name)?).await?;
        // Include data that is not stored yet.
        let attr =
            if self.content.length(ino).is_some() { self.content.attr(ino).await? } else { attr };
        Ok(Node { ino, attr })
    }

    /// Returns a node by its number alone. Nodes outside the mounted directory are not found.
    async fn lookup_self(&self, ino: Ino) -> Result<Node> {
        if ino != self.root() && !self.meta.is_below(self.root(), ino).await? {
            return Err(Error::NotFound);
        }
        Ok(Node { ino, attr: self.getattr(ino).await? })
    }

    /// Returns the parent directory. The parent of the root is the root itself.
    async fn lookup_parent(&self, dir: Ino) -> Result<Node> {
        let attr = self.meta.getattr(dir).await?.into_dir()?;
        let parent = if dir == self.root() { dir } else { attr.parent };
        self.lookup_self(parent).await
    }

    pub async fn mknod(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        node: NodeKind,
        mode: u16,
        umask: u16,
    ) -> Result<Node> {
        let name = self.name_to_create(dir, name)?;
        let umask = self.umask(umask);
        made(self.meta.mknod(caller, dir, &name, node, mode, umask).await)
    }

    pub async fn mkdir(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        mode: u16,
        umask: u16,
    ) -> Result<Node> {
        let name = self.name_to_create(dir, name)?;
        made(self.meta.mkdir(caller, dir, &name, mode, self.umask(umask)).await)
    }

    pub async fn symlink(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        target: Bytes,
    ) -> Result<Node> {
        let name = self.name_to_create(dir, name)?;
        made(self.meta.symlink(caller, dir, &name, target).await)
    }

    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        self.meta.readlink(ino).await
    }

    pub async fn link(&self, caller: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Node> {
        if self.virtual_files.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        let name = self.name_to_create(dir, name)?;
        let attr = self.meta.link(caller, ino, dir, &name).await?;
        let attr =
            if self.content.length(ino).is_some() { self.content.attr(ino).await? } else { attr };
        Ok(Node { ino, attr })
    }

    pub async fn unlink(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        let name = self.name_to_change(dir, name)?;
        self.meta.unlink(caller, dir, &name).await
    }

    pub async fn rmdir(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        let name = self.name_to_change(dir, name)?;
        if let Some((ino, attr)) = self.meta.remove_dir(caller, dir, &name, false).await? {
            self.keep_removed_dir(ino, &attr);
        }
        Ok(())
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let mode = rename_mode(flags)?;
        let (name, new_name) =
            (self.name_to_change(dir, name)?, self.name_to_change(new_dir, new_name)?);
        let (from, to) = (EntryRef::new(dir, &name), EntryRef::new(new_dir, &new_name));
        self.meta.rename(caller, from, to, mode).await.map(drop)
    }

    /// Checks a name for a new node.
    pub(super) fn name_to_create(&self, dir: Ino, name: &[u8]) -> Result<Name> {
        if self.virtual_files.is_reserved(dir, name) {
            return Err(Error::Exists);
        }
        Name::new(name)
    }

    /// Checks that a name is not that of a virtual file.
    fn name_to_change(&self, dir: Ino, name: &[u8]) -> Result<Name> {
        if self.virtual_files.is_reserved(dir, name) {
            return Err(Error::NotPermitted);
        }
        Name::new(name)
    }
}

fn made(made: Result<(Ino, Attr)>) -> Result<Node> {
    let (ino, attr) = made?;
    Ok(Node { ino, attr })
}

/// Decodes the flags of renameat2(2). Whiteouts are not supported.
fn rename_mode(flags: u32) -> Result<RenameMode> {
    const NO_REPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    match flags {
        0 => Ok(RenameMode::Replace),
        NO_REPLACE => Ok(RenameMode::NoReplace),
        EXCHANGE => Ok(RenameMode::Exchange),
        flags if flags & WHITEOUT != 0 && flags & !(WHITEOUT | NO_REPLACE) == 0 => {
            Err(Error::NotSupported)
        }
        _ => Err(Error::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_flags_mean_what_the_kernel_says() {
        assert_eq!(rename_mode(0).unwrap(), RenameMode::Replace);
        assert_eq!(rename_mode(1).unwrap(), RenameMode::NoReplace);
        assert_eq!(rename_mode(2).unwrap(), RenameMode::Exchange);
        assert!(matches!(rename_mode(4), Err(Error::NotSupported)));
        assert!(matches!(rename_mode(5), Err(Error::NotSupported)));
        assert!(matches!(rename_mode(3), Err(Error::Invalid)));
        assert!(matches!(rename_mode(8), Err(Error::Invalid)));
    }
}
