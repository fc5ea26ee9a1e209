//! The options of a mount: one file for each group, which knows what becomes of it.

mod cache;
mod fuse;
mod general;
mod kernel;
mod meta;
mod metrics;
mod shown;
mod squash;
mod storage;
mod warnings;

use clap::Args;

pub use cache::CacheArgs;
pub use fuse::FuseArgs;
pub use general::GeneralArgs;
pub use meta::{MetaArgs, MetaCacheArgs};
pub use metrics::MetricsArgs;
pub use storage::StorageArgs;
pub use warnings::Warnings;

/// Every option of a mount.
#[derive(Debug, Args)]
pub struct MountArgs {
    #[command(flatten)]
    pub general: GeneralArgs,
    #[command(flatten)]
    pub fuse: FuseArgs,
    #[command(flatten)]
    pub meta: MetaArgs,
    #[command(flatten)]
    pub meta_cache: MetaCacheArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

impl MountArgs {
    /// Refuses what makes no sense, whatever the volume is. The rest is worth a warning.
    pub fn check(&self) -> anyhow::Result<Warnings> {
        let mut warnings = Warnings::default();
        self.general.check()?;
        self.fuse.check(&mut warnings)?;
        self.meta.check(&mut warnings)?;
        self.meta_cache.check(&mut warnings);
        self.storage.check(&mut warnings)?;
        self.cache.check(&mut warnings)?;
        self.metrics.check(&mut warnings)?;
        Ok(warnings)
    }

    pub fn is_read_only(&self) -> bool {
        self.meta.read_only || self.fuse.options.read_only
    }
}
