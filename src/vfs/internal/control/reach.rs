//! Which nodes a request may name: those of the mount.
//!
//! Requests name nodes by number, past the kernel. Who has but a directory of the volume mounted must
//! not reach what lies beside it.

use super::request::Ask;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::vfs::internal::Work;

impl Work {
    /// The request with nodes as the volume numbers them: the root of the mount is 1 to those who ask.
    pub async fn within_reach(&self, mut ask: Ask) -> Result<Ask> {
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
            *ino = self.reach(*ino).await?;
        }
        Ok(ask)
    }

    /// A node that somebody named by its number.
    pub async fn reach(&self, ino: Ino) -> Result<Ino> {
        if ino == Ino::ROOT || ino == self.root {
            return Ok(self.root);
        }
        if self.root != Ino::ROOT && !self.meta.is_below(self.root, ino).await? {
            return Err(Error::NotFound);
        }
        Ok(ino)
    }
}
