//! Which nodes a request may name: those of the mount that its caller could come to by a path.
//!
//! Requests name nodes by number, past the kernel. Who has but a directory of the volume mounted must
//! not reach what lies beside it, and who may not search a directory not what lies below it.

use super::request::Ask;
use crate::error::Result;
use crate::meta::{Caller, Ino};
use crate::vfs::internal::Work;

impl Work {
    /// The request with nodes as the volume numbers them: the root of the mount is 1 to those who ask.
    pub async fn within_reach(&self, caller: &Caller, mut ask: Ask) -> Result<Ask> {
        let named: Vec<&mut Ino> = match &mut ask {
            Ask::Remove(ask) => vec![&mut ask.dir],
            Ask::LegacyInfo(ask) | Ask::Info(ask) => vec![&mut ask.ino],
            Ask::Clone(ask) => vec![&mut ask.src, &mut ask.src_dir, &mut ask.dst_dir],
            Ask::Summary(ask) => vec![&mut ask.ino],
            Ask::Compact { ino, .. } => vec![ino],
            // Its paths begin at the root of the mount.
            Ask::Fill(_) => Vec::new(),
        };
        for ino in named {
            *ino = self.reach(caller, *ino).await?;
        }
        Ok(ask)
    }

    /// A node that somebody named by its number.
    pub async fn reach(&self, caller: &Caller, ino: Ino) -> Result<Ino> {
        if ino == Ino::ROOT || ino == self.root {
            return Ok(self.root);
        }
        self.meta.reach(caller, self.root, ino).await?;
        Ok(ino)
    }
}
