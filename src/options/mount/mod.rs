//! The options of a mount, one file for each group.
//!
//! A group's struct is where an option is added: its field has the clap attributes (parsing and
//! `--help`). From there on the compiler and the tests name what is missing: `check` (validation) and
//! `config_file.rs` (what `.config` shows) take the groups apart field by field, and tests compare the
//! options with the table in `docs/mount.md` and with the lists in `policy/options.rs` of who may set
//! them.

mod cache;
mod config_file;
mod fuse;
mod kernel_options;
mod meta;
mod metrics;
mod process;
mod squash;
mod storage;

use clap::Args;
use tracing::warn;

pub use cache::CacheArgs;
pub use fuse::FuseArgs;
use kernel_options::KernelOptions;
pub use meta::{MetaArgs, MetaCacheArgs};
pub use metrics::MetricsArgs;
pub use process::ProcessArgs;
pub use storage::StorageArgs;

/// Every option of a mount.
#[derive(Debug, Args)]
pub struct MountArgs {
    #[command(flatten)]
    pub process: ProcessArgs,
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
    /// Refuses options that are wrong for any volume, and returns warnings about the others.
    pub fn check(&self) -> anyhow::Result<Warnings> {
        let Self { process, fuse, meta, meta_cache, storage, cache, metrics } = self;
        let mut warnings = Warnings::default();
        process.check()?;
        fuse.check(&mut warnings)?;
        meta.check(&mut warnings)?;
        meta_cache.check(&mut warnings);
        storage.check(&mut warnings)?;
        cache.check(&mut warnings)?;
        metrics.check(&mut warnings)?;
        Ok(warnings)
    }

    pub fn is_read_only(&self) -> bool {
        self.meta.read_only || self.fuse.options.read_only
    }
}

/// Warnings about the given options, for the user.
#[derive(Debug, Default)]
pub struct Warnings(Vec<String>);

impl Warnings {
    pub fn add(&mut self, text: String) {
        self.0.push(text);
    }

    /// Adds a warning about an option that is accepted but has no effect.
    pub fn add_no_effect(&mut self, option: &str, why: &str) {
        self.0.push(format!("{option} has no effect: {why}"));
    }

    pub fn texts(self) -> Vec<String> {
        self.0
    }

    pub fn log(&self) {
        for text in &self.0 {
            warn!("{text}");
        }
    }

    #[cfg(test)]
    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|text| text.contains(word))
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An option's value, and the text that it was parsed from.
#[derive(Debug, Clone)]
pub struct Parsed<T> {
    pub value: T,
    pub text: String,
}

impl<T> Parsed<T>
where
    T: std::str::FromStr,
    anyhow::Error: From<T::Err>,
{
    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self { value: text.parse()?, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::MountArgs;

    #[test]
    fn every_option_is_documented() {
        let documented = include_str!("../../../docs/mount.md");
        let command = MountArgs::augment_args(Command::new("mount"));
        let missing: Vec<&str> = command
            .get_arguments()
            .filter(|option| !option.is_hide_set())
            .filter_map(clap::Arg::get_long)
            .filter(|name| !is_documented(documented, name))
            .collect();
        assert!(missing.is_empty(), "add to the tables in docs/mount.md: {missing:?}");
    }

    /// Returns whether a table names the option, `--name` or `--name VALUE`.
    fn is_documented(text: &str, name: &str) -> bool {
        let mut rows = text.lines().filter(|line| line.starts_with('|'));
        rows.any(|row| {
            let mut code = row.split('`').skip(1).step_by(2);
            code.any(|code| code.split(' ').next() == Some(&format!("--{name}")))
        })
    }
}
