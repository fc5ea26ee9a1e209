//! Names: finding, making, moving and removing what they lead to.

use bytes::Bytes;

use super::base::{Node, Vfs};
use crate::error::{Error, Result};
use crate::meta::record::Attr;
use crate::meta::{Caller, EntryRef, Ino, Name, NodeKind, RenameMode};

impl Vfs {
    pub async fn lookup(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<Node> {
        if let Some((ino, attr)) = self.internal.find(dir, name) {
            return Ok(Node { ino, attr });
        }
        // Only who goes by numbers asks for these: an NFS server that finds its way back.
        match name {
            b"." => return self.lookup_self(dir).await,
            b".." => return self.lookup_parent(dir).await,
            _ => {}
        }
        let (ino, attr) = self.meta.lookup(caller, dir, &Name::new(name)?).await?;
        // What is not stored yet counts as well.
        let attr =
            if self.content.length(ino).is_some() { self.content.attr(ino).await? } else { attr };
        Ok(Node { ino, attr })
    }

    /// A node by its number alone. Outside of what is mounted there is none.
    async fn lookup_self(&self, ino: Ino) -> Result<Node> {
        if ino != self.root() && !self.meta.is_below(self.root(), ino).await? {
            return Err(Error::NotFound);
        }
        Ok(Node { ino, attr: self.getattr(ino).await? })
    }

    /// The directory above; that of the root is the root itself.
    async fn lookup_parent(&self, dir: Ino) -> Result<Node> {
        let attr = self.meta.getattr(dir).await?.into_dir()?;
        let parent = if dir == self.root() { dir } else { attr.parent };
        self.lookup_self(parent).await
    }

    pub async fn mknod(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &[u8]),
        node: NodeKind,
        (mode, umask): (u16, u16),
    ) -> Result<Node> {
        let name = self.free_name(dir, name)?;
        let umask = self.umask(umask);
        made(self.meta.mknod(caller, dir, &name, node, mode, umask).await)
    }

    pub async fn mkdir(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &[u8]),
        (mode, umask): (u16, u16),
    ) -> Result<Node> {
        let name = self.free_name(dir, name)?;
        made(self.meta.mkdir(caller, dir, &name, mode, self.umask(umask)).await)
    }

    pub async fn symlink(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &[u8]),
        target: Bytes,
    ) -> Result<Node> {
        let name = self.free_name(dir, name)?;
        made(self.meta.symlink(caller, dir, &name, target).await)
    }

    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        self.meta.readlink(ino).await
    }

    pub async fn link(&self, caller: &Caller, ino: Ino, (dir, name): (Ino, &[u8])) -> Result<Node> {
        if self.internal.attr(ino).is_some() {
            return Err(Error::NotPermitted);
        }
        let name = self.free_name(dir, name)?;
        let attr = self.meta.link(caller, ino, dir, &name).await?;
        let attr =
            if self.content.length(ino).is_some() { self.content.attr(ino).await? } else { attr };
        Ok(Node { ino, attr })
    }

    pub async fn unlink(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        let name = self.own_name(dir, name)?;
        self.meta.unlink(caller, dir, &name).await
    }

    pub async fn rmdir(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        let name = self.own_name(dir, name)?;
        if let Some((ino, attr)) = self.meta.remove_dir(caller, dir, &name, false).await? {
            self.keep_removed_dir(ino, &attr);
        }
        Ok(())
    }

    pub async fn rename(
        &self,
        caller: &Caller,
        (src, old): (Ino, &[u8]),
        (dst, new): (Ino, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let mode = rename_mode(flags)?;
        let (old, new) = (self.own_name(src, old)?, self.own_name(dst, new)?);
        self.meta
            .rename(caller, EntryRef::new(src, &old), EntryRef::new(dst, &new), mode)
            .await
            .map(drop)
    }

    /// A name that something may be made by.
    pub(super) fn free_name(&self, dir: Ino, name: &[u8]) -> Result<Name> {
        if self.internal.is_reserved(dir, name) {
            return Err(Error::Exists);
        }
        Name::new(name)
    }

    /// A name that is not one of the virtual files.
    fn own_name(&self, dir: Ino, name: &[u8]) -> Result<Name> {
        if self.internal.is_reserved(dir, name) {
            return Err(Error::NotPermitted);
        }
        Name::new(name)
    }
}

fn made(made: Result<(Ino, Attr)>) -> Result<Node> {
    let (ino, attr) = made?;
    Ok(Node { ino, attr })
}

/// What the flags of renameat2(2) ask for. Nothing here can make a whiteout.
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
