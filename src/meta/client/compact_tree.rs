//! Compacting all files of a tree.

use std::sync::OnceLock;

use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::warn;

use super::crew::Crew;
use super::{Meta, Progress};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::Attr;

/// One compaction of a tree under way.
struct Compactor<'a> {
    meta: &'a Meta,
    crew: Crew<'a>,
    /// The first that went wrong. It does not keep the others from being tried.
    failure: OnceLock<Error>,
}

impl Meta {
    /// Compacts every file of a subtree, `at_once` chunks beside each other. Chunks are counted as they
    /// are found and as they are dealt with; the first that fails is told after all were tried.
    pub async fn compact_tree(&self, ino: Ino, at_once: usize, progress: &Progress) -> Result<()> {
        self.refuse_writes()?;
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let crew = Crew::new(at_once, progress);
        let compactor = Compactor { meta: self, crew, failure: OnceLock::new() };
        compactor.node(ino, attr).await?;
        compactor.failure.into_inner().map_or(Ok(()), Err)
    }
}

impl Compactor<'_> {
    fn node(&self, ino: Ino, attr: Attr) -> BoxFuture<'_, Result<()>> {
        async move {
            if attr.is_file() {
                return self.file(ino, attr.length).await;
            }
            if !attr.is_dir() {
                return Ok(());
            }
            let mut listing = self.meta.list(ino, true);
            while let Some(page) = listing.next().await? {
                let nodes = page.into_iter().filter_map(|entry| Some((entry.ino, entry.attr?)));
                self.crew.run(nodes.collect(), |(ino, attr)| self.node(ino, attr)).await?;
            }
            Ok(())
        }
        .boxed()
    }

    async fn file(&self, ino: Ino, length: u64) -> Result<()> {
        let indexes = self.meta.chunk_indexes(ino, length).await?;
        self.crew.progress().found(indexes.len() as u64);
        self.crew.run(indexes, |index| self.chunk(ino, index).boxed()).await
    }

    async fn chunk(&self, ino: Ino, index: u32) -> Result<()> {
        match self.meta.compact(ino, index, true).await {
            // The file went meanwhile.
            Ok(_) | Err(Error::NotFound) => {}
            Err(error) => {
                warn!(ino = ino.0, index, %error, "cannot compact");
                let _ = self.failure.set(error);
            }
        }
        self.crew.progress().did(1);
        Ok(())
    }
}
